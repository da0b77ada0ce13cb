/* The history of a module: the module after each pass, and what became of each op from pass to
 * pass.
 *
 * Passes rewrite a module, so an op of one dump has no name in the next. Here all ops that `hadal
 * diff` matches are one op, with one number from the first pass that has it to the last. An op that
 * a pass removed has a successor: the op that its readers read now. The history is made from
 * modules alone, so it works for any passes, whether they ran here or left dumps. */
#ifndef REPORT_HISTORY_H
#define REPORT_HISTORY_H

#include "ir/compare/diff.h"
#include "ir/names.h"
#include "passes/analysis/ledger.h"

/* A table of strings without duplicates. Number 0 is the empty string. */
typedef struct report_strings {
    hd_arena *arena;
    hir_names index;
    HD_VEC(const char *) list;
} report_strings;
uint32_t report_string(report_strings *s, const char *text);

/* The row of an op, as it is printed, is kept as a row form: a list of numbers (words) with this
 * meaning. Rows with equal words share one row form. */
enum report_form_word {
    REPORT_FORM_OP,   /* number of the op in the history */
    REPORT_FORM_CODE, /* a string: "rmsnorm" */
    REPORT_FORM_ATTRS,
    REPORT_FORM_FILE, /* a string: the file of the spec; 0: none */
    REPORT_FORM_LINE,
    REPORT_FORM_COLUMN,
    REPORT_FORM_PARENT, /* number of the op's kernel + 1; 0: the op is in no kernel */
    REPORT_FORM_RESULTS,
    REPORT_FORM_WORDS, /* followed by value, type and place of each result, then by the operands */
};
/* An operand is a number times REPORT_OPERAND_KINDS plus what the number is of. */
enum report_operand {
    REPORT_OPERAND_NONE,
    REPORT_OPERAND_VALUE,
    REPORT_OPERAND_WEIGHT, /* the number of the name's string; so for states */
    REPORT_OPERAND_STATE,
    REPORT_OPERAND_KINDS
};
typedef struct report_form {
    const uint32_t *word;
    uint32_t n;
} report_form;

typedef struct report_successor { /* numbers of the removed op and of its successor */
    uint32_t op, successor;
} report_successor;

typedef struct report_row {
    hir_id op; /* in the module of the stage */
    uint32_t form;
    uint8_t mark; /* a hir_diff_mark: how the row differs from the stage before */
} report_row;

typedef struct report_stage { /* the module after a pass; the first stage: as loaded */
    const char *pass;
    int index; /* number of the pass in the sequence of passes; 0: as loaded */
    hir_stage ir;
    bool changed;
    double seconds; /* negative: not known */
    /* set if the pass changed something: */
    const hir_module *m;
    HD_VEC(report_row) rows;             /* all ops in program order, each kernel before its body */
    HD_VEC(uint32_t) removed;            /* rows of the stage before whose ops were removed */
    HD_VEC(report_successor) successors; /* of those removed ops that have a successor */
    uint32_t *op_of;                     /* by op of the module: its number; HIR_NONE */
    uint32_t *number;                    /* by value: the printer's number for it, if unnamed */
    uint32_t *line;                      /* by op: its line in the printed module */
    hir_diff_counts counts;              /* as `hadal diff` counts them; 0 in the first stage */
    hir_ledger ledger;
} report_stage;

typedef struct report_call { /* where in the model a page was called that made an op */
    uint32_t op, file, line, column;
} report_call;

typedef struct report_op {
    HD_VEC(uint32_t) values; /* numbers of the results */
    uint32_t yield;          /* of a kernel: number of its yield op + 1 */
    uint32_t form;           /* number of the most recent row form */
    bool formed;
} report_op;

typedef struct report_value {
    const char *name; /* NULL: the value has a number instead */
    uint32_t op;      /* the op that makes the value; HIR_NONE: it is an input */
} report_value;

typedef struct report_history {
    hd_arena *arena;
    report_strings strings;
    HD_VEC(report_form) forms;
    HD_VEC(report_call) calls; /* of ops that were written in a page which the model uses */
    HD_VEC(report_op) ops;
    HD_VEC(report_value) values;
    HD_VEC(uint32_t) inputs; /* numbers of the values that are inputs */
    HD_VEC(report_stage) stages;
    uint32_t last; /* index of the last stage that changed something */
} report_history;

report_history *report_history_new(hd_arena *a);
/* Adds a copy of the module as it is after a pass. The first call adds the module as loaded. */
void report_history_add(report_history *h, const char *pass, int index, const hir_module *m,
                        bool changed, double seconds);
static inline const report_stage *report_last(const report_history *h) {
    return &h->stages.at[h->last];
}
/* The number of an op of a stage's module, or of the module of the stage before, whose op the pass
 * may have erased; HIR_NONE: neither has it. */
uint32_t report_op_number(const report_history *h, size_t stage, hir_id op);
/* The row of an op in a stage; HIR_NONE: the stage does not have the op. */
uint32_t report_find_row(const report_stage *s, uint32_t op);
/* The successor of an op that this stage has removed; HIR_NONE: none. */
uint32_t report_find_successor(const report_stage *s, uint32_t op);

#endif
