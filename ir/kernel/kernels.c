/* The tables kernels.def, splits.def, rows.def and phases.def. */
#include "ir/kernel/kernels.h"

#include <string.h>

static const hir_kind_info kinds[] = {
#define K(id, name, noun, doc) {HIR_KERNEL_##id##_OP, name, noun, doc},
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column, doc)
#include "ir/kernel/kernels.def"
#undef K
#undef F
};

/* The names that kernels.def uses in its columns of sets. */
enum {
#define S(id, name, doc) id = 1 << HIR_SPLIT_##id,
#include "ir/kernel/splits.def"
#undef S
#define P(id, name, doc) id = 1 << HIR_##id,
#include "ir/kernel/phases.def"
#undef P
    LAST_ROWS = HIR_LAST_ROWS,
    OWNERS = HIR_OWNERS,
    VIEWS = HIR_VIEWS,
    EPILOGUE = HIR_EPILOGUE,
};

static const hir_form_info forms[] = {
#define K(id, name, noun, doc)
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column,    \
          doc)                                                                                     \
    {#name,        HIR_KERNEL_##kind, HIR_##op##_OP, HIR_SPLIT_##decode, HIR_SPLIT_##prefill,      \
     (may_decode), (may_prefill),     (phases),      (traits),           column,                   \
     doc},
#include "ir/kernel/kernels.def"
#undef K
#undef F
};

typedef struct word {
    const char *name, *doc;
} word;

static const word splits[] = {
#define S(id, name, doc) {name, doc},
#include "ir/kernel/splits.def"
#undef S
};

static const word rows[] = {
#define R(id, name, doc) {name, doc},
#include "ir/kernel/rows.def"
#undef R
};

static const word phases[] = {
#define P(id, name, doc) {name, doc},
#include "ir/kernel/phases.def"
#undef P
};

const hir_kind_info *hir_kind(hir_kernel_kind kind) {
    return &kinds[kind];
}

const hir_form_info *hir_form(hir_kernel_form form) {
    return &forms[form];
}

/* ---- of ops -------------------------------------------------------------------------------- */
hir_kernel_kind hir_kind_of(hir_opcode code) {
    int kind = 0;
    while (kind < HIR_KERNEL_KINDS && kinds[kind].op != code)
        kind++;
    return (hir_kernel_kind)kind;
}

hir_kernel_form hir_form_by_op(hir_opcode code) {
    int form = 0;
    while (form < HIR_KERNEL_FORMS && forms[form].op != code)
        form++;
    return (hir_kernel_form)form;
}

bool hir_are_gradients_of_one(const hir_module *m, hir_id a, hir_id b) {
    const hir_op *x = hir_op_at(m, a), *y = hir_op_at(m, b);
    if (x->code != y->code || !hir_has_trait(x->code, HIR_REDUCES_TOKENS)) return false;
    if (!hir_find_attr(x, HIR_A_OF) || x->n_args != y->n_args || x->n_attrs != y->n_attrs)
        return false;
    for (uint32_t i = 0; i < x->n_args; i++)
        if (!hir_ref_equal(x->args[i], y->args[i])) return false;
    for (uint32_t i = 0; i < x->n_attrs; i++)
        if ((x->attrs[i].id != HIR_A_OF || y->attrs[i].id != HIR_A_OF) &&
            !hir_same_attr(&x->attrs[i], &y->attrs[i]))
            return false;
    return true;
}

/* ---- of kernels ---------------------------------------------------------------------------- */
hir_id hir_form_op(const hir_module *m, hir_id kernel) {
    const hir_op *k = hir_op_at(m, kernel);
    const hir_kernel_kind kind = hir_kind_of(k->code);
    if (k->code != HIR_KERNEL_ROW_OP) HIR_EACH(m, op, k->body_first) {
            const hir_kernel_form form = hir_form_by_op(hir_op_at(m, op)->code);
            if (form != HIR_KERNEL_FORMS && forms[form].kind == kind) return op;
        }
    return hir_form_by_op(k->code) != HIR_KERNEL_FORMS ? kernel : HIR_NONE;
}

bool hir_is_matrix(hir_opcode code, uint32_t i) {
    if (code == HIR_ATTENTION_EXPANDED_OP) return i == 5 || i == 6;
    return i == 1 && (hir_is_linear(code) || code == HIR_BLOCK_LINEAR_OP);
}

bool hir_is_view_of_rows(const hir_module *m, const hir_op *o) {
    if (o->code != HIR_CACHE_ROWS_OP) return false;
    const hir_ref x = o->args[0];
    const hir_id by = x.kind == HIR_REF_VALUE ? hir_value_at(m, x.index)->op : HIR_NONE;
    if (by != HIR_NONE && hir_op_at(m, by)->code == HIR_ATTENTION_SELECTED_GRAD_OP) return true;
    return hir_ref_type(m, x).dim[0] == HIR_C;
}

static bool has_trait(hir_opcode code, unsigned trait) {
    const hir_kernel_form form = hir_form_by_op(code);
    return form != HIR_KERNEL_FORMS && forms[form].traits & trait;
}

bool hir_takes_views(hir_opcode code) {
    return has_trait(code, HIR_VIEWS);
}

bool hir_takes_epilogue(hir_opcode code) {
    return has_trait(code, HIR_EPILOGUE);
}

hir_kernel_form hir_form_of(const hir_module *m, hir_id kernel) {
    const hir_id op = hir_form_op(m, kernel);
    if (op == kernel && hir_reduces_tokens(m, kernel)) return HIR_FORM_ROW_SUMS;
    return op == HIR_NONE ? HIR_KERNEL_FORMS : hir_form_by_op(hir_op_at(m, op)->code);
}

bool hir_has_form_trait(const hir_module *m, hir_id kernel, unsigned trait) {
    const hir_kernel_form form = hir_form_of(m, kernel);
    return form != HIR_KERNEL_FORMS && forms[form].traits & trait;
}

hir_split hir_split_of(const hir_op *kernel, hir_attr_id attr) {
    hir_split split = HIR_SPLIT_NONE;
    hir_split_by_name(hir_attr_string(kernel, attr, ""), &split);
    return split;
}

hir_rows hir_rows_of(const hir_op *kernel) {
    hir_rows r = HIR_ROWS_ALL;
    hir_rows_by_name(hir_attr_string(kernel, HIR_A_ROWS, ""), &r);
    return r;
}

/* ---- names --------------------------------------------------------------------------------- */
static int find_word(const word *words, int n, const char *name) {
    int i = 0;
    while (i < n && strcmp(words[i].name, name) != 0)
        i++;
    return i;
}

const char *hir_split_name(hir_split split) {
    return splits[split].name;
}

const char *hir_rows_name(hir_rows r) {
    return rows[r].name;
}

const char *hir_kernel_phase_name(hir_kernel_phase phase) {
    return phases[phase].name;
}

bool hir_split_by_name(const char *name, hir_split *out) {
    const int i = find_word(splits, HIR_SPLITS, name);
    if (i < HIR_SPLITS) *out = (hir_split)i;
    return i < HIR_SPLITS;
}

bool hir_rows_by_name(const char *name, hir_rows *out) {
    const int i = find_word(rows, HIR_ROWS, name);
    if (i < HIR_ROWS) *out = (hir_rows)i;
    return i < HIR_ROWS;
}

static void list_set(hd_text *out, const word *words, int n, unsigned set) {
    const char *between = "";
    for (int i = 0; i < n; i++) {
        if (!(set & 1u << i)) continue;
        hd_text_f(out, "%s%s", between, words[i].name);
        between = ", ";
    }
}

void hir_list_splits(hd_text *out, unsigned set) {
    list_set(out, splits, HIR_SPLITS, set);
}

/* ---- docs/ops.md --------------------------------------------------------------------------- */
static void print_words(hd_text *out, const char *what, const word *words, int n) {
    hd_text_f(out, "\n| %s | meaning |\n|---|---|\n", what);
    for (int i = 0; i < n; i++)
        hd_text_f(out, "| `%s` | %s |\n", words[i].name, words[i].doc);
}

void hir_print_kernel_tables(hd_text *out) {
    hd_text_add(out, "\n## Forms of kernels\n\n"
                     "From `ir/kernel/kernels.def`; below, from `ir/kernel/splits.def`, "
                     "`ir/kernel/rows.def` and "
                     "`ir/kernel/phases.def`, what its words\nmean.\n\n"
                     "| form | in | made by | `split_decode` | `split_prefill` | functions for | "
                     "a column | meaning |\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < HIR_KERNEL_FORMS; i++) {
        const hir_form_info *f = &forms[i];
        const bool any = f->op == kinds[f->kind].op;
        hd_text_f(out, "| %s | `%s` | %s%s%s | ", f->name, hir_info(kinds[f->kind].op)->name,
                  any ? "" : "`", any ? "any body" : hir_info(f->op)->name, any ? "" : "`");
        hir_list_splits(out, f->may_decode);
        hd_text_add(out, " | ");
        hir_list_splits(out, f->may_prefill);
        hd_text_add(out, " | ");
        if (f->phases == PREFILL)
            hd_text_add(out, "any number of tokens");
        else
            list_set(out, phases, HIR_KERNEL_PHASES, f->phases);
        hd_text_f(out, " | %s | %s |\n", f->column, f->doc);
    }
    print_words(out, "split", splits, HIR_SPLITS);
    print_words(out, "rows", rows, HIR_ROWS);
    print_words(out, "functions for", phases, HIR_KERNEL_PHASES);
}
