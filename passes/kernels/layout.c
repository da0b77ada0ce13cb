/* layout: how each weight is stored.
 *
 * Needs    kernels.
 * Does     decides layout and storage dtype of every weight by the ops that read it and by the
 *          caller's options (matrix_dtype, weight_rules):
 *            linear or expert_linear in a
 *            contraction kernel               panels; few outputs of many inputs: narrow ones
 *            block_linear,
 *            attention.expanded               panels of each group's matrix
 *            gather only                      rows; q8, q4, mxfp4 and nvfp4: panels
 *            gather and linear (tied heads)   panels: kept once, gather reads panels too
 *            anything else                    rows in f32: gains, biases, pseudo-queries, and
 *                                             tables that row programs read element by element
 *          With --matmul-dtype bf16, panels of gradients are bf16: what is gathered too stays in
 *          rows of f32, and contractions read a copy of it.
 * Leaves   weights that no op reads. A matrix that is read both by a contraction and by arithmetic
 *          of a row program is an error (split-small-contractions turns such a contraction into row
 *          operations, so this happens in hand-written kernels only).
 */
#include <string.h>

#include "passes/util.h"

typedef struct reads { /* of one weight: one op of each kind that reads it, for messages; HIR_NONE:
                        * none */
    hir_id contracted, gathered, by_element;
    bool decides; /* its products decide a selection: a router */
} reads;

static void note_read(reads *r, hir_opcode kernel, hir_opcode code, uint32_t arg, hir_id op) {
    /* a linear op of a row program reads elements */
    if (hir_is_matrix(code, arg) && kernel != HIR_KERNEL_ROW_OP)
        r->contracted = op;
    else if (code == HIR_GATHER_OP && arg == 0)
        r->gathered = op;
    else
        r->by_element = op;
}

static reads *find_reads(hir_pass_context *c) {
    const hir_module *m = c->m;
    reads *all = hd_new_array(c->scratch, reads, m->weights.n);
    for (size_t w = 0; w < m->weights.n; w++)
        all[w] = (reads){HIR_NONE, HIR_NONE, HIR_NONE, false};
    HIR_EACH(m, kernel, m->first) {
        HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
            const hir_op *o = hir_op_at(m, op);
            for (uint32_t i = 0; i < o->n_args; i++)
                if (o->args[i].kind == HIR_REF_WEIGHT)
                    note_read(&all[o->args[i].index], hir_op_at(m, kernel)->code, o->code, i, op);
        }
    }
    const bool *router = pass_find_routers(c);
    for (size_t w = 0; w < m->weights.n; w++)
        all[w].decides = router[w];
    return all;
}

/* ---- bf16 products of gradients -------------------------------------------------------------- */
static bool rounds_products(const hir_pass_context *c) {
    return c->options->matmul_dtype == HIR_BF16 && hir_has_gradients(c->m);
}

/* Contractions read a copy of a weight that is gathered too, so that they alone read it rounded. */
static reads *copy_gathered(hir_pass_context *c, reads *all) {
    HIR_EACH(c->m, kernel, c->m->first) {
        if (hir_op_at(c->m, kernel)->code == HIR_KERNEL_ROW_OP) continue;
        HIR_EACH(c->m, op, hir_op_at(c->m, kernel)->body_first) {
            hir_op *o = hir_op_at(c->m, op);
            for (uint32_t i = 0; i < o->n_args; i++) {
                if (o->args[i].kind != HIR_REF_WEIGHT || !hir_is_matrix(o->code, i)) continue;
                const uint32_t w = o->args[i].index;
                const hir_weight weight = c->m->weights.at[w];
                if (all[w].gathered == HIR_NONE || hir_is_derived(&weight)) continue;
                hir_derived_factor whole = {.name = weight.name};
                o->args[i].index = pass_derived_weight(
                    c, weight.type, &(hir_derived_row){1, &whole}, 1, weight.loc);
            }
        }
    }
    return find_reads(c);
}

/* A router stays f32, since a small error in its products changes the selection. */
static bool is_rounded(const reads *r) {
    return r->contracted != HIR_NONE && r->gathered == HIR_NONE && r->by_element == HIR_NONE &&
           !r->decides;
}

static bool conflict(hir_pass_context *c, const hir_weight *w, const reads *r) {
    hd_diag *e = hd_err(c->diags, HD_E_UNSUPPORTED, *hir_op_at(c->m, r->contracted)->loc,
                        "weight '%s' is wanted in two layouts", w->name);
    e->cause = hd_printf(c->diags->arena,
                         "a contraction reads panels of it, and its elements are "
                         "read by: %s",
                         pass_op_text(c->m, r->by_element, c->diags->arena));
    e->hint = "give the row program's matrix a name of its own, or run split-small-contractions "
              "before fuse";
    return false;
}

/* ---- the caller's rules ---------------------------------------------------------------------- */
/* The effect of a rule: how many weights match it, how many of these cannot be stored as it says,
 * and one of the latter. */
typedef struct outcome {
    size_t matched, left;
    const hir_weight *example;
} outcome;

static bool is_read(const reads *r) {
    return r->contracted != HIR_NONE || r->gathered != HIR_NONE || r->by_element != HIR_NONE;
}

/* Can the weight be stored as dtype? Matrices can be stored as any; grouped types need matrices. */
static bool can_store(const hir_weight *w, const reads *r, hir_dtype dtype) {
    bool matrix = w->type.rank >= 2 && r->by_element == HIR_NONE &&
                  (r->contracted != HIR_NONE || r->gathered != HIR_NONE);
    return dtype == HIR_F32 || (matrix && (hir_has_matrices(w->type) || !hir_is_quantised(dtype)));
}

static bool is_made(const hir_weight *w) {
    return hir_is_derived(w) && w->type.rank == 3;
}

/* A matrix that is derived from another follows the rules for either name; one that is the
 * transpose of another only follows rules for such derived matrices. */
static bool rule_matches(const hir_weight_rule *rule, const hir_weight *w) {
    if (rule->of_transposed && !is_made(w)) return false;
    return hir_rule_matches(rule, w->name) ||
           (is_made(w) && hir_rule_matches(rule, w->rows[0].factor[0].name));
}

/* Does the weight consist of all of another weight that nothing else reads, each matrix transposed?
 */
static bool is_other_transposed(const hir_pass_context *c, const reads *all, const hir_weight *w) {
    const hir_id source = hir_transposed_source(c->m, w);
    return source != HIR_NONE && !is_read(&all[source]);
}

/* The dtype of a derived weight. It is stored in groups if it is another weight transposed.
 * Otherwise the other weight is also read in its own order, whose groups would differ from these;
 * the next best type is bf16, which is the same in both orders. bf16 is also used if only the
 * numbers of the other weight, as it is stored, are exact in groups. */
static hir_dtype for_derived(hir_pass_context *c, const reads *all, const hir_weight *w,
                             const hir_weight_rule *rule, hir_dtype dtype) {
    if (!is_made(w) || !hir_is_quantised(dtype)) return dtype;
    const bool exact_elsewhere = rule && rule->offered && !rule->of_transposed;
    return exact_elsewhere || !is_other_transposed(c, all, w) ? HIR_BF16 : dtype;
}

/* Chooses the dtype of a weight: that of the last rule that matches and can be applied, else the
 * one for matrices; for a router f32, since a small error in its products changes the selection. */
static hir_dtype choose_dtype(hir_pass_context *c, const hir_weight *w, const reads *all,
                              outcome *outcomes, hir_dtype *wanted) {
    const reads *r = &all[w - c->m->weights.at];
    const hir_dtype matrix = for_derived(c, all, w, NULL, c->options->matrix_dtype);
    hir_dtype dtype = can_store(w, r, matrix) && !r->decides ? matrix : HIR_F32;
    *wanted = c->options->matrix_dtype;
    for (size_t i = 0; i < c->options->n_weight_rules; i++) {
        const hir_weight_rule *rule = &c->options->weight_rules[i];
        if (!rule_matches(rule, w)) continue;
        *wanted = rule->dtype;
        outcomes[i].matched++;
        const hir_dtype asked = for_derived(c, all, w, rule, rule->dtype);
        if (can_store(w, r, asked)) {
            dtype = asked;
        } else if (is_read(r)) {
            outcomes[i].left++;
            outcomes[i].example = w;
        }
    }
    return dtype;
}

/* The weight nearest to a pattern that no weight matches. */
static const char *nearest_weight(hir_pass_context *c, const char *pattern) {
    hd_arena *a = c->diags->arena;
    const size_t end = strlen(".weight");
    const char **names = hd_new_array(a, const char *, c->m->weights.n + 1);
    for (size_t i = 0; i < c->m->weights.n; i++) {
        const char *name = c->m->weights.at[i].name;
        names[i] = hd_ends_with(name, ".weight") && !hd_ends_with(pattern, ".weight")
                       ? hd_strndup(a, name, strlen(name) - end)
                       : name;
    }
    return hd_nearest(pattern, names, c->m->weights.n);
}

/* A rule that names one weight must be applicable, else it is an error; one with wildcards may
 * match weights that it cannot apply to. */
static bool judge_rule(hir_pass_context *c, const hir_weight_rule *rule, const outcome *o) {
    const char *dtype = hir_dtype_name(rule->dtype);
    if (rule->offered) return true;
    if (!o->matched) {
        const char *near = nearest_weight(c, rule->pattern);
        hd_warn(c->diags, HD_E_WEIGHTS, HD_NOWHERE, "no weight matches \"%s\", which is to be %s",
                rule->pattern, dtype)
            ->hint = near ? hd_printf(c->diags->arena, "did you mean \"%s\"?", near)
                          : "a pattern is for the whole name, with or without \".weight\" at its "
                            "end; * stands for any characters";
        return true;
    }
    bool rejected = o->left == o->matched;
    if (!o->left) return true;
    hd_diag *e = rejected ? hd_err(c->diags, HD_E_WEIGHTS, o->example->loc,
                                   "weight '%s' cannot be stored as %s", o->example->name, dtype)
                          : hd_warn(c->diags, HD_E_WEIGHTS, o->example->loc,
                                    "%zu of %zu weights that match \"%s\" stay as they are, '%s' "
                                    "among them",
                                    o->left, o->matched, rule->pattern, o->example->name);
    e->cause =
        hd_printf(c->diags->arena,
                  "%s is for matrices that linear or gather read; row programs read elements "
                  "in f32",
                  dtype);
    return !rejected;
}

static bool decide(hir_pass_context *c, hir_weight *w, const reads *r, hir_dtype dtype) {
    bool contracted = r->contracted != HIR_NONE, by_element = r->by_element != HIR_NONE;
    if (contracted && by_element) return conflict(c, w, r);
    bool gathered = r->gathered != HIR_NONE, panels = contracted || hir_is_quantised(dtype);
    hir_layout layout = panels ? HIR_LAYOUT_PANEL : HIR_LAYOUT_ROWS;
    hir_type stored = w->type;
    stored.dtype = dtype;
    if (contracted && !gathered && hir_fits_narrow(stored)) layout = HIR_LAYOUT_NARROW;
    if (contracted && gathered)
        hir_remark_add(c, true, r->gathered, "weight '%s' is kept once, as panels", w->name);
    c->changed |= w->layout != layout || w->type.dtype != dtype;
    w->layout = layout;
    w->type.dtype = dtype;
    return true;
}

/* Reports why a matrix is not stored in the type that the options request, and what that costs. */
static void remark_wider(hir_pass_context *c, const hir_weight *w, const reads *r,
                         hir_dtype wanted) {
    hir_weight asked = *w;
    uint64_t bytes, less;
    asked.type.dtype = wanted;
    if (hir_is_quantised(wanted)) asked.layout = HIR_LAYOUT_PANEL;
    if (w->type.rank < 2 || !hir_weight_bytes(w, &bytes) || !hir_weight_bytes(&asked, &less))
        return;
    if (less >= bytes) return;
    const bool by_element = r->by_element != HIR_NONE;
    if (by_element && hir_is_derived(w)) return; /* a table of vectors, not a matrix of the model */
    const hir_id op = by_element                  ? r->by_element
                      : r->contracted != HIR_NONE ? r->contracted
                                                  : r->gathered;
    const char *why = by_element          ? "row programs read its elements in f32"
                      : hir_is_derived(w) ? "it is made of other weights, whose groups are others"
                      : r->decides        ? "its products decide what is selected, and a small "
                                            "error of one selects something else"
                                          : "its type has no matrices to make groups of";
    hir_remark_add(c, false, op, "weight '%s' is stored as %s, not as %s: %s; %llu bytes, not %llu",
                   w->name, hir_dtype_name(w->type.dtype), hir_dtype_name(wanted), why,
                   (unsigned long long)bytes, (unsigned long long)less);
}

/* Weights from which only matrices like this one are derived get its type: then the numbers of the
 * checkpoint are rounded once, however they are read. They are stored in groups once they are in
 * their place. */
static void pass_to_sources(hir_pass_context *c, const reads *all, const hir_weight *w) {
    if (!is_made(w) || hir_is_quantised(w->type.dtype)) return;
    for (uint32_t i = 0; i < w->n_rows; i++)
        for (uint32_t k = 0; k < w->rows[i].n; k++) {
            const uint32_t source = hir_find_weight(c->m, w->rows[i].factor[k].name);
            if (!is_read(&all[source])) c->m->weights.at[source].type.dtype = w->type.dtype;
        }
}

bool pass_layout(hir_pass_context *c) {
    const bool rounds = rounds_products(c);
    reads *all = rounds ? copy_gathered(c, find_reads(c)) : find_reads(c);
    outcome *outcomes = hd_new_array(c->scratch, outcome, c->options->n_weight_rules + 1);
    for (size_t w = 0; w < c->m->weights.n; w++) {
        hir_weight *weight = &c->m->weights.at[w];
        hir_dtype wanted, dtype = choose_dtype(c, weight, all, outcomes, &wanted);
        if (!is_read(&all[w])) continue;
        if (rounds && is_rounded(&all[w])) dtype = wanted = HIR_BF16;
        if (!decide(c, weight, &all[w], dtype)) return false;
        if (dtype != wanted) remark_wider(c, weight, &all[w], wanted);
    }
    for (size_t w = 0; w < c->m->weights.n && !rounds; w++)
        pass_to_sources(c, all, &c->m->weights.at[w]);
    bool ok = true;
    for (size_t i = 0; i < c->options->n_weight_rules; i++)
        ok &= judge_rule(c, &c->options->weight_rules[i], &outcomes[i]);
    return ok;
}
