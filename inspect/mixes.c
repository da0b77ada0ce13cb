/* Each traced tensor of weights is multiplied with a stack of sources: the stack says which source
 * each weight belongs to, and following the product through the graph says which sublayer reads the
 * mix. */
#include "inspect/mixes.h"

#include <string.h>

static bool is_trace(const hir_op *o) {
    return o->code == HIR_TRACE_OP &&
           strcmp(hir_attr_string(o, HIR_A_NAME, ""), "depth_weights") == 0;
}

/* The value whose elements a tensor shows, whatever its shape. (A stack of one value is that
 * value.) */
static hir_ref root_of(const hir_module *m, hir_ref r) {
    while (r.kind == HIR_REF_VALUE && hir_value_at(m, r.index)->op != HIR_NONE) {
        const hir_op *o = hir_op_at(m, hir_value_at(m, r.index)->op);
        const bool view = hir_has_trait(o->code, HIR_MOVE) && o->n_args == 1;
        if (!view || o->code == HIR_STACK_OP) break;
        r = o->args[0];
    }
    return r;
}

static const hir_op *stack_of(const hir_module *m, hir_ref r) {
    const hir_ref root = root_of(m, r);
    if (root.kind != HIR_REF_VALUE || hir_value_at(m, root.index)->op == HIR_NONE) return NULL;
    const hir_op *o = hir_op_at(m, hir_value_at(m, root.index)->op);
    return o->code == HIR_STACK_OP ? o : NULL;
}

/* The first product of these weights with a stack of n sources; *at: the product's index in the
 * program. */
static const hir_op *find_product(const hir_flow *f, hir_ref weights, uint32_t n, size_t *at) {
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        if (o->code != HIR_MUL_OP) continue;
        for (int i = 0; i < 2; i++) {
            if (!hir_ref_equal(root_of(f->m, o->args[i]), weights)) continue;
            const hir_op *stack = stack_of(f->m, o->args[1 - i]);
            if (!stack || stack->n_args != n) continue;
            *at = k;
            return stack;
        }
    }
    return NULL;
}

/* The first sublayer that uses what op number `at` of the program makes: the sublayer reads it as
 * its input, or makes a value inside of it. 0: no sublayer does. */
static uint32_t reader_of(const hir_flow *f, const uint32_t *home, size_t at, hd_arena *a) {
    bool *reached = hd_new_array(a, bool, f->m->values.n);
    reached[hir_op_at(f->m, f->program.at[at])->results[0]] = true;
    for (size_t k = at; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        if (!o->n_results) continue;
        const hir_id y = o->results[0];
        for (uint32_t i = 0; i < o->n_args && !reached[y]; i++)
            reached[y] = o->args[i].kind == HIR_REF_VALUE && reached[f->origin[o->args[i].index]];
        if (!reached[y]) continue;
        if (f->input[y] != HIR_NONE) return f->inputs.at[f->input[y]].sublayer;
        if (home[y]) return home[y];
    }
    return 0;
}

void depth_mixes_find(const hir_flow *f, const uint32_t *home, hd_arena *a, depth_mixes *out) {
    *out = (depth_mixes){0};
    HIR_EACH(f->m, op, f->m->first) {
        const hir_op *o = hir_op_at(f->m, op);
        if (!is_trace(o)) continue;
        depth_mix mix = {.weights = o->args[0]};
        const hir_type t = hir_ref_type(f->m, mix.weights);
        const int64_t n = t.dim[t.rank - 1];
        size_t at = 0;
        mix.stack = find_product(f, root_of(f->m, mix.weights), (uint32_t)n, &at);
        const uint32_t reader = mix.stack ? reader_of(f, home, at, a) : 0;
        mix.sublayer = reader == HIR_FLOW_RESULT ? 0 : reader;
        hd_push(a, &out->list, mix);
    }
}
