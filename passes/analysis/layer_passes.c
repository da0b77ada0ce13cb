#include "passes/analysis/layer_passes.h"

#include <string.h>

#include "ir/kernel/kernels.h"
#include "passes/analysis/copies.h"
#include "passes/util.h"

typedef struct layer {
    const char *name; /* the first n characters */
    size_t n;
    uint32_t passes, last; /* how often it runs; the pass whose weights were read last, 0: none */
} layer;

struct hir_layer_passes {
    const hir_module *m;
    HD_VEC(layer) layers;
    uint32_t *layer; /* by op: that of the weights that were read last; HIR_NONE */
    uint32_t *pass;  /* by op: of this layer, at that time; 0: not known */
};

static uint32_t find_layer(const hir_layer_passes *x, const char *name) {
    const size_t n = hd_layer_length(name);
    for (size_t i = 0; n && i < x->layers.n; i++)
        if (x->layers.at[i].n == n && strncmp(x->layers.at[i].name, name, n) == 0)
            return (uint32_t)i;
    return HIR_NONE;
}

/* ---- which layers run several times ---------------------------------------------------------- */

static bool reads_again(const hir_module *m, hir_id first, bool *read) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        if (reads_again(m, o->body_first, read)) return true;
        if (!hir_is_linear(o->code) || o->args[1].kind != HIR_REF_WEIGHT) continue;
        if (read[o->args[1].index]) return true;
        read[o->args[1].index] = true;
    }
    return false;
}

static void list_layers(hir_layer_passes *x, const hir_flow *f, hd_arena *a) {
    const hir_flow_label *labels = hir_flow_labels(f, a);
    for (size_t k = 0; k < f->outputs.n; k++) {
        const size_t n = hd_layer_length(labels[k].name);
        if (!labels[k].pass || !n) continue;
        const uint32_t known = find_layer(x, labels[k].name);
        if (known == HIR_NONE)
            hd_push(a, &x->layers, ((layer){labels[k].name, n, labels[k].pass, 0}));
        else if (labels[k].pass > x->layers.at[known].passes)
            x->layers.at[known].passes = labels[k].pass;
    }
}

/* ---- which of them an op is of --------------------------------------------------------------- */

typedef struct readings { /* by weight */
    uint32_t *all, *so_far;
    bool last_first; /* the last pass comes first */
} readings;

static void note_reading(hir_layer_passes *x, readings *r, uint32_t weight, hir_id op) {
    const uint32_t at = find_layer(x, x->m->weights.at[weight].name);
    x->layer[op] = at;
    if (at == HIR_NONE) return;
    layer *l = &x->layers.at[at];
    const uint64_t i = r->so_far[weight]++;
    if (r->all[weight] % l->passes) return; /* each pass reads it as often as the others */
    const uint32_t before = (uint32_t)(i * l->passes / r->all[weight]);
    l->last = r->last_first ? l->passes - before : 1 + before;
}

/* Of the ops of a half, in order. */
static void note_ops(hir_layer_passes *x, const hir_id *program, size_t n_ops, bool last_first,
                     hd_arena *a) {
    const size_t n = x->m->weights.n + 1;
    readings r = {hd_new_array(a, uint32_t, n), hd_new_array(a, uint32_t, n), last_first};
    uint32_t now = HIR_NONE;
    for (size_t i = 0; i < x->layers.n; i++)
        x->layers.at[i].last = 0;
    for (size_t k = 0; k < n_ops; k++) {
        const hir_op *o = hir_op_at(x->m, program[k]);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_WEIGHT) r.all[o->args[i].index]++;
    }
    for (size_t k = 0; k < n_ops; k++) {
        const hir_id op = program[k];
        const hir_op *o = hir_op_at(x->m, op);
        x->layer[op] = now;
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_WEIGHT) note_reading(x, &r, o->args[i].index, op);
        now = x->layer[op];
        if (now != HIR_NONE) x->pass[op] = x->layers.at[now].last;
    }
}

/* ---- the backward half ----------------------------------------------------------------------- */

typedef HD_VEC(hir_id) op_list;

static void list_backward(const hir_module *m, hir_id first, const bool *forward, hd_arena *a,
                          op_list *out) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        if (hir_is_kernel(o))
            list_backward(m, o->body_first, forward, a, out);
        else if (!forward[op] && o->n_results && !hir_flow_is_view(o))
            hd_push(a, out, op);
    }
}

/* Gradients go through the passes from the last to the first. What is computed again is of the pass of
 * what it copies, wherever it stands. */
static void note_backward(hir_layer_passes *x, const hir_flow *f, hd_arena *a) {
    op_list all = {0};
    bool *forward = hd_new_array(a, bool, x->m->ops.n + 1);
    for (size_t k = 0; k < f->program.n; k++)
        forward[f->program.at[k]] = true;
    list_backward(x->m, x->m->first, forward, a, &all);
    if (all.n == 0) return;
    const hir_id *original = hir_find_copies(f, all.at, all.n, a);
    size_t gradients = 0;
    for (size_t k = 0; k < all.n; k++) {
        const hir_id op = all.at[k], of = original[hir_op_at(x->m, op)->results[0]];
        if (of == HIR_NONE) {
            all.at[gradients++] = op;
            continue;
        }
        const hir_id first = hir_value_at(x->m, of)->op;
        if (first == HIR_NONE) continue;
        x->layer[op] = x->layer[first];
        x->pass[op] = x->pass[first];
    }
    note_ops(x, all.at, gradients, true, a);
}

const hir_layer_passes *hir_layer_passes_find(const hir_module *m, hd_arena *a) {
    if (!reads_again(m, m->first, hd_new_array(a, bool, m->weights.n + 1))) return NULL;
    hir_flow f;
    hir_flow_find_brief(m, a, &f);
    hir_layer_passes *x = hd_new(a, hir_layer_passes);
    x->m = m;
    if (f.width) list_layers(x, &f, a);
    if (x->layers.n == 0) return NULL;
    x->layer = hd_new_array(a, uint32_t, m->ops.n + 1);
    x->pass = hd_new_array(a, uint32_t, m->ops.n + 1);
    for (size_t i = 0; i < m->ops.n; i++)
        x->layer[i] = HIR_NONE;
    note_ops(x, f.program.at, f.program.n, false, a);
    note_backward(x, &f, a);
    return x;
}

uint32_t hir_layer_pass(const hir_layer_passes *x, hir_id op, const char *name) {
    const uint32_t layer = x && name ? find_layer(x, name) : HIR_NONE;
    if (layer == HIR_NONE || op >= x->m->ops.n) return 0;
    uint32_t pass = x->layer[op] == layer ? x->pass[op] : 0;
    HIR_EACH(x->m, inner, hir_op_at(x->m, op)->body_first) {
        const uint32_t here = hir_layer_pass(x, inner, name);
        if (here) pass = here; /* the last of its ops */
    }
    return pass;
}
