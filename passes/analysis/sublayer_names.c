/* Names of sublayers for people, by the weights of their last contractions, and passes: where a
 * sublayer ends in the same weights as an earlier one, its layer runs again. */
#include <string.h>

#include "passes/analysis/depth_flow.h"
#include "passes/util.h"

typedef struct namer {
    const hir_flow *f;
    hd_arena *arena;
    uint32_t *seen; /* by value: the last walk that visited it */
    uint32_t walk;
    HD_VEC(hir_id) stack;
    const char *name; /* common prefix of the names so far; NULL: no name yet */
    size_t n;
    uint32_t weight; /* the first that was found */
} namer;

static void add_name(namer *x, uint32_t weight) {
    const char *name = x->f->m->weights.at[weight].name;
    if (x->weight == HIR_NONE) x->weight = weight;
    size_t n = strlen(name), tail = strlen(".weight");
    if (n > tail && strcmp(name + n - tail, ".weight") == 0) n -= tail;
    const char *own = hd_strndup(x->arena, name, n);
    x->n = x->name ? hd_shared_components(x->name, x->n, own) : n;
    if (!x->name) x->name = own;
}

/* Pushes the operands that are computed inside the sublayer, too. */
static void push_inner(namer *x, const hir_op *o) {
    const hir_flow *f = x->f;
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        const hir_id v = f->origin[o->args[i].index];
        if (x->seen[v] == x->walk || f->input[v] != HIR_NONE) continue;
        if (f->kind[v] != HIR_FLOW_NONE && !f->inside[v]) continue;
        x->seen[v] = x->walk;
        hd_push(x->arena, &x->stack, v);
    }
}

/* The weight that r is or whose elements it only moves; HIR_NONE: there is none. */
static uint32_t weight_behind(const hir_module *m, hir_ref r) {
    while (r.kind == HIR_REF_VALUE) {
        const hir_id made = hir_value_at(m, r.index)->op;
        if (made == HIR_NONE || !hir_has_trait(hir_op_at(m, made)->code, HIR_MOVE)) break;
        r = hir_op_at(m, made)->args[0];
    }
    return r.kind == HIR_REF_WEIGHT ? r.index : HIR_NONE;
}

/* Walks back from the output to the sublayer's last contractions. */
static void name_output(namer *x, hir_id output) {
    const hir_module *m = x->f->m;
    x->name = NULL;
    x->weight = HIR_NONE;
    x->walk++;
    hd_push(x->arena, &x->stack, output);
    while (x->stack.n) {
        const hir_id op = hir_value_at(m, x->stack.at[--x->stack.n])->op;
        const hir_op *o = op == HIR_NONE ? NULL : hir_op_at(m, op);
        if (!o) continue;
        const uint32_t weight = hir_is_linear(o->code) ? weight_behind(m, o->args[1]) : HIR_NONE;
        if (weight != HIR_NONE)
            add_name(x, weight);
        else if (!hir_flow_is_border(x->f, o))
            push_inner(x, o);
    }
}

const char *hir_with_pass(hd_arena *a, const char *name, uint32_t pass) {
    return pass ? hd_printf(a, "%s, pass %u", name, pass) : name;
}

const hir_flow_label *hir_flow_labels(const hir_flow *f, hd_arena *a) {
    const uint32_t n = (uint32_t)f->outputs.n;
    namer x = {.f = f, .arena = a, .seen = hd_new_array(a, uint32_t, f->m->values.n + 1)};
    hir_flow_label *labels = hd_new_array(a, hir_flow_label, n + 1);
    uint32_t *last = hd_new_array(a, uint32_t, n + 1); /* by sublayer: its last weight */
    uint32_t *runs = hd_new_array(a, uint32_t, f->m->weights.n + 1);
    for (uint32_t k = 0; k < n; k++) {
        name_output(&x, f->outputs.at[k]);
        labels[k].name = x.name ? hd_strndup(a, x.name, x.n) : "";
        last[k] = x.weight;
        if (x.weight != HIR_NONE) labels[k].pass = ++runs[x.weight];
    }
    for (uint32_t k = 0; k < n; k++) {
        if (last[k] == HIR_NONE || runs[last[k]] == 1)
            labels[k].pass = 0;
        else
            labels[k].name = hir_with_pass(a, labels[k].name, labels[k].pass);
    }
    return labels;
}

const char *hir_flow_passes(const hir_flow_label *labels, size_t n, hd_arena *a) {
    enum { MOST = 16 }; /* spans that are named */
    size_t spans = 0;
    hd_text out;
    hd_text_init(&out, a);
    for (size_t k = 0, to; k < n; k = to) {
        to = k + 1;
        while (to < n && labels[to].pass == labels[k].pass)
            to++;
        if (!labels[k].pass || ++spans > MOST) continue;
        hd_text_f(&out, "%spass %u: ", spans > 1 ? ", " : "", labels[k].pass);
        hd_text_f(&out, to - k > 1 ? "%zu-%zu" : "%zu", k + 1, to);
    }
    if (spans > MOST) hd_text_f(&out, ", and %zu more", spans - MOST);
    return spans ? out.at : NULL;
}
