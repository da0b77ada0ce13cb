/* Passes: each is one file and one function; passes.def lists them, pipeline.c orders them. A pass
 * does not print, time or dump: the caller's hooks do. It reports its decisions as remarks. */
#ifndef HIR_PASS_H
#define HIR_PASS_H

#include "ir/compile_options.h"
#include "passes/weight_types.h"

typedef enum hir_pass_id {
#define P(id, name, fn, stage_in, stage_out, doc) HIR_PASS_##id,
#include "passes/passes.def"
#undef P
    HIR_PASS_COUNT,
    HIR_PASS_OWN /* ids from here on: passes of one's own, of which there are hir_own_passes */
} hir_pass_id;

typedef struct hir_remark {
    const char *pass;
    bool taken;          /* an optimisation was applied, or not applied */
    hir_id op;           /* HIR_NONE: the module */
    const char *op_name; /* copied, as the op may be erased */
    const char *weight;  /* name of the first weight that it reads; NULL: it reads none */
    uint32_t layer_pass; /* of the weight's layer, if that runs several times (from 1); else 0 */
    const char *value;   /* "%7": the op's result in the module after the pass; NULL: it has none */
    hd_loc loc;
    const char *text; /* what and why */
} hir_remark;

typedef struct hir_remarks {
    hd_arena *arena;
    HD_VEC(hir_remark) list;
} hir_remarks;

typedef struct hir_pass_context {
    hir_module *m;
    hd_diags *diags;
    const hir_compile_options *options;
    hd_arena *scratch;    /* freed after the pass */
    hir_remarks *remarks; /* NULL: remarks are not wanted */
    const char *pass;     /* name of the running pass, for remarks */
    bool changed;         /* set by the pass */
    hir_names derived;    /* derived weights by what they are derived of (passes/util.c) */
    size_t n_derived;     /* of the first so many weights */
} hir_pass_context;

/* Adds a remark on `op` (HIR_NONE: the module) with the formatted text. Names of values are filled
 * in when the pass is over: hir_remarks_name. */
void hir_remark_add(hir_pass_context *c, bool taken, hir_id op, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fills in `value` and `layer_pass` of the remarks from number `from` on; `m` is the module after the pass that made
 * them. */
void hir_remarks_name(hir_remarks *remarks, size_t from, const hir_module *m);

typedef bool (*hir_pass_fn)(
    hir_pass_context *c); /* false: a diagnostic was added, the module is unusable */

typedef struct hir_pass_info {
    const char *name;
    hir_pass_fn run;
    hir_stage stage_in, stage_out; /* IR stages; stage_in: the latest at which the pass may run */
    const char *doc;
} hir_pass_info;
const hir_pass_info *hir_pass(hir_pass_id id);
bool hir_pass_by_name(const char *name, hir_pass_id *out);
/* Names of all passes, those of one's own last; the array is in `a`. */
const char **hir_pass_names(hd_arena *a, size_t *n);

/* Passes of one's own: those of the directories in HADAL_EXTRA_PASSES (cmake/own_passes.cmake).
 * They are in no pipeline: a run has those that the caller names. */
const hir_pass_info *hir_own_passes(size_t *n);

/* The default order, HIR_PASS_COUNT-terminated. */
const hir_pass_id *hir_pipeline(void);
/* The order for a model whose gradients are compiled, terminated in the same way. */
const hir_pass_id *hir_gradient_pipeline(void);
size_t hir_pipeline_length(void); /* number of passes, without the terminator */

typedef struct hir_hooks { /* each may be NULL; `before` and `after` see every pass in order */
    void *context;
    void (*before)(void *context, int index, hir_pass_id id, const hir_module *m);
    bool (*after)(void *context, int index, hir_pass_id id, const hir_module *m, bool changed,
                  double seconds, hd_diags *d); /* false stops with failure */
} hir_hooks;

/* Runs passes in order and, with `verify`, verifies the module after each. Stops after `stop_after`
 * (HIR_PASS_COUNT: never). With `check`, evaluates before and after every pass that changed
 * something (ir/eval/eval.h: hir_same_answer) and fails at the first that changed an answer, naming
 * it. */
typedef struct hir_run {
    const hir_pass_id *passes;
    size_t n_passes;
    hir_pass_id stop_after;
    bool verify, check;
    bool all; /* no pass is skipped for lack of gain (weigh_depth.h) */
    hir_hooks hooks;
    /* The caller's own passes (for tests and experiments), run after the first `extra_at` listed
     * passes (0: after all), at any IR stage; hooks see them as HIR_PASS_COUNT. */
    const hir_pass_info *extra;
    size_t n_extra, extra_at;
} hir_run;
/* A run of the passes up to HIR_PASS_COUNT, as pipelines end. */
hir_run hir_run_of(const hir_pass_id *passes);
bool hir_run_passes(hir_module *m, const hir_run *run, const hir_compile_options *options,
                    hir_remarks *remarks, hd_diags *d);

#endif
