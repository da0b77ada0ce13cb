/* Kinds and forms of kernels: the tables kernels.def, splits.def, rows.def and phases.def, and
 * queries on a kernel that they answer. */
#ifndef HIR_KERNELS_H
#define HIR_KERNELS_H

#include "ir/ir.h"

typedef enum hir_kernel_kind {
#define K(id, name, noun, doc) HIR_KERNEL_##id,
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column, doc)
#include "ir/kernel/kernels.def"
#undef K
#undef F
    HIR_KERNEL_KINDS
} hir_kernel_kind;

typedef enum hir_kernel_form {
#define K(id, name, noun, doc)
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column,    \
          doc)                                                                                     \
    HIR_FORM_##id,
#include "ir/kernel/kernels.def"
#undef K
#undef F
    HIR_KERNEL_FORMS
} hir_kernel_form;

typedef enum hir_split {
#define S(id, name, doc) HIR_SPLIT_##id,
#include "ir/kernel/splits.def"
#undef S
    HIR_SPLITS
} hir_split;

typedef enum hir_rows {
#define R(id, name, doc) HIR_ROWS_##id,
#include "ir/kernel/rows.def"
#undef R
    HIR_ROWS
} hir_rows;

typedef enum hir_kernel_phase {
#define P(id, name, doc) HIR_##id,
#include "ir/kernel/phases.def"
#undef P
    HIR_KERNEL_PHASES
} hir_kernel_phase;

enum hir_form_trait { HIR_LAST_ROWS = 1, HIR_OWNERS = 2, HIR_VIEWS = 4, HIR_EPILOGUE = 8 };

typedef struct hir_kind_info {
    hir_opcode op;
    const char *name, *noun, *doc;
} hir_kind_info;

typedef struct hir_form_info {
    const char *name;
    hir_kernel_kind kind;
    hir_opcode op;
    hir_split decode, prefill;        /* what schedule chooses */
    unsigned may_decode, may_prefill; /* what it may choose from: sets of 1 << hir_split */
    unsigned phases;                  /* set of 1 << hir_kernel_phase */
    unsigned traits;                  /* of hir_form_trait */
    const char *column, *doc;
} hir_form_info;

const hir_kind_info *hir_kind(hir_kernel_kind kind);
const hir_form_info *hir_form(hir_kernel_form form);

/* ---- of ops -------------------------------------------------------------------------------- */
hir_kernel_kind hir_kind_of(hir_opcode code); /* HIR_KERNEL_KINDS: not a kernel's op */
/* The form of kernels with this op in the body; HIR_KERNEL_FORMS: the op decides no form. */
hir_kernel_form hir_form_by_op(hir_opcode code);

/* Is operand `i` of the op a matrix, or several, that contractions multiply with? */
bool hir_is_matrix(hir_opcode code, uint32_t i);
/* Does the op multiply whole rows by one matrix, or by selected ones (experts), and add a bias? */
static inline bool hir_is_linear(hir_opcode code) {
    return code == HIR_LINEAR_OP || code == HIR_EXPERT_LINEAR_OP;
}
/* The operand of such an op that is the bias. */
static inline uint32_t hir_bias_of(hir_opcode code) {
    return code == HIR_EXPERT_LINEAR_OP ? 3 : 2;
}

/* Is it a cache_rows that changes nothing? The tokens of a call with gradients are one sequence, so
 * that the rows of a cache that has one for each position are those of the tokens; and the kernel
 * attention_selected_grad gives those of entries, one for several positions, as cache_rows does. */
bool hir_is_view_of_rows(const hir_module *m, const hir_op *o);

/* May all operands of the op, which makes a form, be reshaped in its kernel? */
bool hir_takes_views(hir_opcode code);
/* May elementwise ops of the op's result follow in its kernel? */
bool hir_takes_epilogue(hir_opcode code);

/* Are both gradients of operands of one op, so that they may stand in one kernel? Their operands and
 * attributes are equal, but for `of`. */
bool hir_are_gradients_of_one(const hir_module *m, hir_id a, hir_id b);

/* ---- of kernels ---------------------------------------------------------------------------- */
/* The form of a kernel; HIR_KERNEL_FORMS: no op of its body decides one. */
hir_kernel_form hir_form_of(const hir_module *m, hir_id kernel);
/* The op of the body that decides the form; the kernel itself if its kind has a form for bodies
 * without such an op; HIR_NONE: there is none. */
hir_id hir_form_op(const hir_module *m, hir_id kernel);
/* False for a kernel of no form. */
bool hir_has_form_trait(const hir_module *m, hir_id kernel, unsigned trait);
/* Attributes of a kernel that hir_verify has accepted. A name that is not in the table gives
 * HIR_SPLIT_NONE and HIR_ROWS_ALL. */
hir_split hir_split_of(const hir_op *kernel, hir_attr_id attr);
hir_rows hir_rows_of(const hir_op *kernel);

/* ---- names --------------------------------------------------------------------------------- */
const char *hir_split_name(hir_split split);
const char *hir_rows_name(hir_rows rows);
const char *hir_kernel_phase_name(hir_kernel_phase phase);
bool hir_split_by_name(const char *name, hir_split *out);
bool hir_rows_by_name(const char *name, hir_rows *out);
/* "none, rows": the names of a set of splits. */
void hir_list_splits(hd_text *out, unsigned set);
/* The part of docs/ops.md that describes forms, splits, rows and phases. */
void hir_print_kernel_tables(hd_text *out);

/* Queries of one key/value head that a thread computes together: the grain that schedule chooses,
 * and the size of the emitter's tiles (codegen/attention/attention.h). */
enum { HIR_QUERY_TILE = 128 };
/* Tokens of a tile of carried attention with H/G heads each: whole panels of queries. */
static inline int64_t hir_carried_tokens(int64_t per_group) {
    int64_t unit = HIR_PANEL;
    while (unit > 1 && unit / 2 * per_group % HIR_PANEL == 0)
        unit /= 2;
    const int64_t tokens = HIR_QUERY_TILE / per_group / unit * unit;
    return tokens ? tokens : unit;
}

#endif
