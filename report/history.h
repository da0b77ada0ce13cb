/* The history of a module: what each pass left, and the life of each op from pass to pass.
 *
 * Passes rewrite a module, so that an op of one dump has no name in the next. Here ops that
 * `hadal diff` matches are one op, with one number from the first pass that has it to the last; an
 * op that a pass removed leads to its heir, the op that those who read it read now. Whatever passes
 * there were, and whether they ran here or left dumps, the history is made from modules alone. */
#ifndef REPORT_HISTORY_H
#define REPORT_HISTORY_H

#include "ir/compare/diff.h"
#include "ir/names.h"
#include "passes/analysis/ledger.h"

/* Texts, each once. Number 0 is the empty one. */
typedef struct report_strings {
    hd_arena *arena;
    hir_names index;
    HD_VEC(const char *) list;
} report_strings;
uint32_t report_string(report_strings *s, const char *text);

/* What is written in the row of an op: words, of which each is a number. Rows with equal words
 * share a form. */
enum report_form_word {
    REPORT_FORM_OP,   /* number of the op in the history */
    REPORT_FORM_CODE, /* string: "rmsnorm" */
    REPORT_FORM_ATTRS,
    REPORT_FORM_FILE, /* string: place in the spec; 0: none */
    REPORT_FORM_LINE,
    REPORT_FORM_COLUMN,
    REPORT_FORM_PARENT, /* number of its kernel + 1; 0: it is in none */
    REPORT_FORM_RESULTS,
    REPORT_FORM_WORDS, /* then value, type, place of each result; then the operands */
};
/* Operands: a number and what it is of. */
enum report_operand {
    REPORT_OPERAND_NONE,
    REPORT_OPERAND_VALUE,
    REPORT_OPERAND_WEIGHT, /* the string of its name; states likewise */
    REPORT_OPERAND_STATE,
    REPORT_OPERAND_KINDS
};
typedef struct report_form {
    const uint32_t *word;
    uint32_t n;
} report_form;

typedef struct report_successor { /* numbers of ops */
    uint32_t op, successor;
} report_successor;

typedef struct report_row {
    hir_id op; /* in the stage's module */
    uint32_t form;
    uint8_t mark; /* hir_diff_mark, against the stage before */
} report_row;

typedef struct report_stage { /* after a pass; the first one: as loaded */
    const char *pass;
    int index; /* of the pass in its run; 0: as loaded */
    hir_stage ir;
    bool changed;
    double seconds; /* negative: not known */
    /* of a pass that changed something: */
    const hir_module *m;
    HD_VEC(report_row) rows;             /* all ops in program order, a kernel before its body */
    HD_VEC(uint32_t) removed;            /* rows of the stage before */
    HD_VEC(report_successor) successors; /* of removed ops that have one */
    uint32_t *op_of;                     /* by op of the module: its number; HIR_NONE */
    uint32_t *number;                    /* by value: as the printer numbers those without a name */
    uint32_t *line;                      /* by op: in the printed module */
    hir_diff_counts counts;              /* as `hadal diff` counts; of the first stage 0 */
    hir_ledger ledger;
} report_stage;

typedef struct report_op {
    HD_VEC(uint32_t) values; /* numbers of its results */
    uint32_t yield;          /* of a kernel: number of its yield + 1 */
    uint32_t form;           /* the last one */
    bool formed;
} report_op;

typedef struct report_value {
    const char *name; /* NULL: numbered */
    uint32_t op;      /* HIR_NONE: an input */
} report_value;

typedef struct report_history {
    hd_arena *arena;
    report_strings strings;
    HD_VEC(report_form) forms;
    HD_VEC(report_op) ops;
    HD_VEC(report_value) values;
    HD_VEC(uint32_t) inputs; /* values */
    HD_VEC(report_stage) stages;
    uint32_t last; /* the last stage that changed something */
} report_history;

report_history *report_history_new(hd_arena *a);
/* The module as it is after a pass, copied. The first call has what was loaded. */
void report_history_add(report_history *h, const char *pass, int index, const hir_module *m,
                        bool changed, double seconds);
static inline const report_stage *report_last(const report_history *h) {
    return &h->stages.at[h->last];
}
/* The number of an op of a stage's module, or of the stage before, which a pass may have erased;
 * HIR_NONE: neither has it. */
uint32_t report_op_number(const report_history *h, size_t stage, hir_id op);
/* The row of an op in a stage; HIR_NONE: it is not there. */
uint32_t report_find_row(const report_stage *s, uint32_t op);
/* What an op that a stage has removed became; HIR_NONE: nothing. */
uint32_t report_find_successor(const report_stage *s, uint32_t op);

#endif
