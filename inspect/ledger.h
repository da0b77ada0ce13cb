/* The ledger of a model: what the residual mechanism reads and writes at each IR stage of the
 * model, beside the closed forms of the Attention Residuals paper (docs/ledger.md has the
 * reference). */
#ifndef INSPECT_LEDGER_H
#define INSPECT_LEDGER_H

#include "codegen/codegen.h"
#include "inspect/layers.h"
#include "passes/analysis/backward_forms.h"
#include "passes/analysis/backward_ledger.h"
#include "passes/analysis/ledger.h"
#include "passes/analysis/paper_forms.h"
#include "runtime/step_parts.h"

typedef struct ledger_step { /* after a pass that changed something */
    const char *pass;
    hir_stage stage;
    hir_traffic total;
    hir_traffic back; /* of the backward half */
} ledger_step;

/* Reads of sources in the blocks that form-blocks has chosen: `shared` ones that a block reads once
 * for all its mixes, `single` ones that each mix makes for itself. */
typedef struct ledger_schedule {
    uint32_t blocks;
    uint64_t shared, single;
} ledger_schedule;

/* A row of the paper's Table 1, counted in the IR by the paper's rules, beside what the kernels
 * move, and why the two differ. The unit is a row of the residual stream per token. */
typedef struct ledger_line {
    const char *what, *why;
    hir_traffic paper, kernels;
} ledger_line;

typedef struct ledger_table { /* n = 0: no row of Table 1 is of this model's kind */
    const hir_paper_form *form;
    hir_paper_parameters parameters;
    bool by_line;    /* the kernels' column has a figure for each line; if not, only a sum */
    bool has_inputs; /* layer inputs are among the lines */
    size_t n;
    ledger_line line[8];
    hir_traffic paper, kernels; /* the sums of the lines */
} ledger_table;

/* Bytes of a session for `tokens` tokens, `chunk` of them at a time. */
typedef struct ledger_memory {
    uint64_t tokens, chunk;
    uint64_t state, mechanism_state; /* per token; the mechanism's: no keys or values */
    uint64_t call_state;             /* scores: for each position and each token of a chunk */
    uint64_t fixed_state;            /* windows and carries: independent of the length */
    uint64_t arena, mechanism_arena; /* per token of a chunk; the mechanism's: at its fullest */
    uint64_t local, ranks;           /* arena per row of a rank; number of ranks, 1: not sharded */
    uint64_t local_rows;             /* the most rows of a chunk that one rank has */
    uint64_t kept, local_kept;       /* of both arenas, what each chunk in flight has for itself */
    uint64_t in_flight;              /* number of those: 1 but in stages of several layer ranges */
    uint64_t mechanism_rows;         /* rows of the mechanism that a rank holds of a chunk, */
    uint64_t all_rows;               /* of all tokens at once */
    uint64_t fixed;
    uint64_t session; /* sum of all; the library adds tables and scratch memory of threads */
} ledger_memory;

typedef struct ledger_group { /* `n` accesses of a kernel that differ in nothing but the place */
    size_t n;
    bool write;
    hir_phase phase;
    hir_flow_kind kind;
    hir_dtype dtype;
} ledger_group;

typedef struct ledger_kernel { /* `times` kernels of one name that do the same */
    const char *name;
    uint32_t times;
    HD_VEC(ledger_group) groups;
    hir_traffic each;
} ledger_kernel;

typedef struct
    ledger_back_group { /* `n` accesses of a kernel that differ in nothing but the place */
    size_t n;
    bool write;
    hir_back_phase phase;
} ledger_back_group;

typedef struct ledger_back_kernel { /* `times` kernels of one name that do the same */
    const char *name;
    uint32_t times;
    HD_VEC(ledger_back_group) groups;
    hir_traffic each;
} ledger_back_kernel;

/* The backward half of a module with gradients, at the IR stages of the report. */
typedef struct ledger_backward {
    hir_back_ledger ops;      /* as differentiate leaves it, without the depth passes */
    hir_back_ledger naive;    /* kernels made without the depth passes */
    hir_back_ledger compiled; /* the module as it stands */
    HD_VEC(ledger_back_kernel) kernels;
} ledger_backward;

/* A part of a step of the optimizer (runtime/step_parts.def): the tensors it is for, and what it moves
 * and computes. */
typedef struct ledger_step_part {
    uint64_t tensors, parameters;
    hir_traffic each;
    double flops;
} ledger_step_part;

typedef struct ledger_optimizer {
    ledger_step_part parts[HRT_STEP_PARTS];
} ledger_optimizer;

/* One module at several IR stages. Where ranks divide the module, its kernels are those of all
 * ranks together, in calls whose rows the ranks divide. */
typedef struct ledger_report {
    const char *name;
    int64_t stage, stages; /* of a pipeline-parallel model: the stage reported; else 0 of 1 */
    hir_ledger graph;      /* as loaded: op by op, unless the loaded module is kernel IR already */
    hir_ledger naive;      /* kernels made without the depth passes */
    hir_ledger compiled;   /* the module as it stands */
    const hir_module *compiled_module;
    bool has_ops, has_naive, has_kernels;
    bool has_attends; /* attention over depth has been recognised */
    HD_VEC(ledger_step) steps;
    hir_flow_reads reads;  /* reads of sources in `graph` */
    hir_products products; /* products in `graph` */
    hir_paper_parameters parameters;
    ledger_schedule
        schedule; /* where the blocks are only a schedule (Full AttnRes); blocks 0: they are not */
    ledger_table table;
    layers layers;         /* of the compiled module: what the sublayers keep and read per token */
    int64_t chunk;         /* the most tokens of a pass */
    ledger_backward *back; /* NULL: a module without gradients */
    ledger_optimizer *optimizer; /* NULL: a module without gradients, or without kernels */
    ledger_memory *memory; /* NULL: there is no memory plan, no residual stream, or gradients */
    hir_traffic *by_block; /* of `compiled`, by block from 1; 0: the output. NULL: one block */
    HD_VEC(ledger_kernel) kernels; /* of `compiled`, in program order */
} ledger_report;

const char *ledger_step_part_name(int part); /* HRT_STEP_* */
void ledger_optimizer_of(const hcg_program *p, ledger_optimizer *o);
/* Of the module as it stands. False, and a diagnostic, if it cannot be lowered. */
bool ledger_count_optimizer(const inspect_subject *s, ledger_optimizer *o);
void ledger_optimizer_text(const ledger_optimizer *o, hd_text *out);
void ledger_optimizer_json(const ledger_optimizer *o, hd_text *out);

/* Fills the whole report, in the subject's arena. False, and a diagnostic, if the passes failed on
 * a copy of the module. */
bool ledger_collect(const inspect_subject *s, ledger_report *out);
void ledger_text(const ledger_report *r, hd_text *out);
void ledger_json(const ledger_report *r, hd_text *out);
/* An object: in d per token and sublayer, and in bytes per token. */
void ledger_json_traffic(hd_text *out, const hir_ledger *l, hir_traffic t);

/* Parts of the report, each from what the report holds already. */
ledger_table ledger_count_table(const ledger_report *r);
double ledger_streams(const hir_ledger *l); /* how many parallel streams there are, at least 1 */
/* What the closed forms of the paper are for. Other systems have none of their own. */
typedef enum ledger_kind {
    LEDGER_PLAIN,     /* nothing is mixed but by sums */
    LEDGER_STREAMS,   /* parallel streams */
    LEDGER_ATTENTION, /* attention over what sublayers have made */
    LEDGER_OTHER,
} ledger_kind;
ledger_kind ledger_kind_of(const ledger_report *r);
/* Is a closed form of the paper one for this kind of model? */
bool ledger_form_fits(const ledger_report *r, hir_paper_kind of);
void ledger_count_memory(const ledger_report *r, int64_t chunk, hd_arena *a, ledger_memory *out);
void ledger_count_blocks(ledger_report *r, hd_arena *a);
void ledger_count_kernels(ledger_report *r, hd_arena *a);
void ledger_count_backward(ledger_report *r, hd_arena *a);
void ledger_print_units(hd_text *out, double units); /* 8.4375 as "8.438", 0 as "-" */
void ledger_backward_text(const ledger_report *r, hd_text *out);
void ledger_backward_json(const ledger_report *r, hd_text *out);

/* Turns the change of the ledger by each pass of a pipeline into a remark. */
typedef struct ledger_watch {
    hir_stage stage;
    hir_traffic total;
    hir_traffic back; /* of the backward half, once there is one */
    bool has_back;
    uint32_t sublayers; /* of the model, or of the pipeline stage, as loaded */
    uint64_t unit;
} ledger_watch;
void ledger_watch_start(ledger_watch *w, const hir_module *m, hd_arena *a);
void ledger_watch_pass(ledger_watch *w, const hir_module *m, const char *pass, hd_arena *a,
                       hir_remarks *remarks);

/* The name of an op for people: that of its kernel, or its opcode's. */
const char *ledger_op_name(const hir_module *m, hir_id op);

#endif
