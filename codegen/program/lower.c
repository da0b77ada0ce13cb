/* hcg_lower: kernel IR to hcg_program.
 *
 * Lowering walks the kernels once. Each kernel becomes a step (steps.c): its kernel function,
 * shared with every kernel of the same body (share.c); the places of its operands; how it is split
 * among threads. Weights that some kernel reads get offsets in the order of the table (weights.c).
 * Communication between ranks becomes steps without code (collectives.c). The result is plain data,
 * without LLVM. */
#include "codegen/program/build_id.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"
#include "codegen/program/lowering.h"
#include "ir/text/text.h"

/* ---- helpers of all parts of hcg_lower ------------------------------------------------------- */
bool lower_row_bytes(hir_type t, uint64_t *bytes) {
    int64_t elements = hir_type_row_elements(t);
    return elements >= 0 &&
           !hd_mul_overflow((uint64_t)elements, (uint64_t)hir_dtype_bytes(t.dtype), bytes);
}

hd_loc lower_place(const lowering *l, const hir_op *op) {
    return hir_place_of(l->m, (hir_id)(op - l->m->ops.at));
}

bool lower_reject(lowering *l, hd_error code, hd_loc loc, const char *message, const char *hint) {
    hd_err(l->d, code, loc, "%s", message)->hint = hint;
    return false;
}

/* ---- types that activations may be rounded to (activations.def) -------------------------------
 */
static const struct {
    const char *name;
    bool by_default;
} roundings[] = {
#define A(id, name, by_default) {name, by_default},
#include "codegen/target/activations.def"
#undef A
};

const char *hcg_rounding_name(unsigned i) {
    return roundings[i].name;
}

unsigned hcg_exact_by_default(void) {
    unsigned exact = 0;
    for (unsigned i = 0; i < HCG_ROUNDINGS; i++)
        if (!roundings[i].by_default) exact |= 1u << i;
    return exact;
}

bool hcg_read_activations(const char *text, unsigned *exact) {
    *exact = HCG_ROUND_ALL;
    if (strcmp(text, "f32") == 0) return true;
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        unsigned i = 0;
        while (i < HCG_ROUNDINGS &&
               !(strlen(roundings[i].name) == n && strncmp(roundings[i].name, at, n) == 0))
            i++;
        if (i == HCG_ROUNDINGS) return false;
        *exact &= ~(1u << i);
        at += n;
        if (!*at) return true;
    }
}

/* ---- kinds of matrices of a program ---------------------------------------------------------- */
_Static_assert(HIR_DTYPE_COUNT *HIR_LAYOUTS <= 32, "a set of matrices has a bit for each kind");

uint32_t hcg_matrix(hir_dtype dtype, hir_layout layout) {
    return UINT32_C(1) << (dtype * HIR_LAYOUTS + layout);
}

/* The kinds of matrices that contractions may read, and cached rows that attention multiplies as a
 * matrix. */
static uint32_t matrices_of(const hir_module *m) {
    uint32_t matrices = 0;
    HIR_EACH(m, id, m->first)
    if (hir_is_kernel(hir_op_at(m, id))) matrices |= hcg_cached_matrices(m, id);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (w->layout != HIR_LAYOUT_ROWS) matrices |= hcg_matrix(w->type.dtype, w->layout);
    }
    return matrices;
}

/* Does the module have attention in one of the kernel forms that process a tile of queries? */
static bool has_attention(const hir_module *m) {
    HIR_EACH(m, id, m->first) {
        const hir_kernel_form form = hir_form_of(m, id);
        if (form == HIR_FORM_ATTENTION || form == HIR_FORM_LATENT || form == HIR_FORM_EXPANDED)
            return true;
    }
    return false;
}

/* ---- the whole program ----------------------------------------------------------------------- */
hcg_program *hcg_lower(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_options *o) {
    lowering l = {.a = a, .d = d, .m = m, .p = hd_new(a, hcg_program)};
    if (m->stage != HIR_STAGE_KERNEL) {
        lower_reject(&l, HD_E_TYPE, HD_NOWHERE, "code can only be made from kernel IR",
                     "run the whole pipeline first");
        return NULL;
    }
    if (!lower_name(&l) || !hir_verify(m, d) || !hir_verify_kernels(m, d)) return NULL;
    l.p->arena = a;
    l.p->m = m;
    if (o) l.p->options = *o;
    l.p->chunk = o && o->compile.chunk > 0 ? o->compile.chunk : hir_default_options.chunk;
    l.p->op_lines = hir_op_lines(m, a);
    l.p->options.matrices = matrices_of(m);
    l.p->options.attention = has_attention(m);
    if (!hcg_plan_contractions(l.p, d)) return NULL;
    l.uses = hcg_share_kernels(l.p);
    l.conditions = hcg_find_conditions(a, m);
    if (!lower_inputs(&l) || !lower_outputs(&l) || !lower_weights(&l) || !lower_steps(&l))
        return NULL;
    lower_gradients(&l);
    if (hcg_has_gradients(l.p) && !lower_updates(&l)) return NULL;
    lower_overlaps(&l);
    lower_runs(&l);
    lower_tiled(&l);
    lower_digest(&l);
    hcg_program_id(l.p);
    return l.p;
}
