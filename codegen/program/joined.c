/* Matrices that a checkpoint joins row by row: q, k and v in one tensor, gate and up in another.
 *
 * The graph says which rows are a matrix of their own: all that reads the product takes ranges of its
 * channels, whichever elementwise ops, convolutions along the sequence and reshapes are between. Where
 * something reads all channels, or every n-th of them, the tensor is one matrix. */
#include "codegen/program/lowering.h"

typedef struct tensor {
    bool *cut; /* by row: a matrix begins there; NULL: the tensor is not Muon's */
    int64_t rows;
    bool read, whole; /* by a product; by something that takes all rows */
} tensor;

typedef struct search {
    const hir_module *m;
    hir_uses uses;
    tensor *of; /* by weight of the module */
} search;

/* ---- channels -------------------------------------------------------------------------------- */

/* A slice takes a range of the channels if its axis is the outermost of their dims. */
static bool cut_at(const hir_module *m, tensor *of, const hir_op *slice) {
    const hir_type t = hir_ref_type(m, slice->args[0]);
    const uint32_t axis = (uint32_t)hir_attr_int(slice, HIR_A_AXIS, 0);
    int64_t inner = 1;
    for (uint32_t i = axis + 1; i < t.rank; i++)
        inner *= t.dim[i];
    if (t.dim[axis] == HIR_T || inner * t.dim[axis] != of->rows) return false;
    const int64_t from = inner * hir_attr_int(slice, HIR_A_START, 0);
    const int64_t to = from + inner * hir_attr_int(slice, HIR_A_LENGTH, 0);
    of->cut[from] = of->cut[to] = true;
    return true;
}

/* Does it keep each channel by itself? Of ops that look along the sequence only convolutions do, the
 * ones that take an epilogue. */
static bool is_channelwise(const hir_module *m, const hir_op *o, hir_ref x) {
    const bool whole = hir_type_row_elements(hir_ref_type(m, x)) ==
                       hir_type_row_elements(hir_value_at(m, o->results[0])->type);
    return whole && (o->code == HIR_RESHAPE_OP || hir_has_trait(o->code, HIR_ELEMENTWISE) ||
                     (hir_takes_epilogue(o->code) && hir_ref_equal(o->args[0], x)));
}

/* Cuts where the readers of the value take ranges of its channels; false: one takes all. */
static bool follow(const search *s, tensor *of, hir_id v) {
    for (uint32_t i = 0; i < s->uses.count[v]; i++) {
        const hir_op *o = hir_op_at(s->m, s->uses.user[s->uses.first[v] + i]);
        if (o->code == HIR_TRACE_OP) continue;
        if (o->code == HIR_SLICE_OP
                ? cut_at(s->m, of, o)
                : o->n_results == 1 && is_channelwise(s->m, o, hir_value_ref(v)) &&
                      follow(s, of, o->results[0]))
            continue;
        return false;
    }
    return true;
}

/* Is the op a product with the matrix? */
static bool is_product(const hir_op *o) {
    return o->code == HIR_LINEAR_OP || o->code == HIR_BLOCK_LINEAR_OP ||
           o->code == HIR_EXPERT_LINEAR_OP;
}

/* Reads the module once, for all tensors. */
static void find_cuts(const search *s) {
    HIR_EACH(s->m, id, s->m->first) {
        const hir_op *o = hir_op_at(s->m, id);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_WEIGHT) continue;
            tensor *of = &s->of[o->args[i].index];
            if (!of->cut || of->whole) continue;
            of->read = true;
            of->whole = !is_product(o) || i != 1 || !follow(s, of, o->results[0]);
        }
    }
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Adds the parts, of which each has two rows at least; nothing is added if the tensor is one
 * matrix. */
static void add_parts(lowering *l, const tensor *of, hrt_parameter *p) {
    const uint32_t first = (uint32_t)l->p->parts.n;
    int64_t from = 0;
    bool fit = true;
    for (int64_t row = 1; row <= of->rows; row++) {
        if (row < of->rows && !of->cut[row]) continue;
        fit &= row - from > 1;
        hd_push(l->a, &l->p->parts, ((hrt_part){.rows = (uint64_t)(row - from)}));
        from = row;
    }
    const size_t n = l->p->parts.n - first;
    if (!fit || n < 2) {
        l->p->parts.n = first;
        return;
    }
    p->first_part = first;
    p->n_parts = (uint32_t)n;
}

static const char *text_of(const lowering *l, const hrt_parameter *p) {
    hd_text text;
    hd_text_init(&text, l->a);
    hd_text_f(&text, "%s, by rows: ", p->how);
    for (uint32_t i = 0; i < p->n_parts; i++)
        hd_text_f(&text, "%s%llu", i ? ", " : "",
                  (unsigned long long)l->p->parts.at[p->first_part + i].rows);
    return text.at;
}

/* The tensor of the module that the parameter is, where Muon changes it. */
static tensor *tensor_of(const search *s, const hir_weight *w, const hrt_parameter *p) {
    const uint32_t same = p->update == HRT_UPDATE_MUON ? hir_find_weight(s->m, w->name) : HIR_NONE;
    return same == HIR_NONE ? NULL : &s->of[same];
}

/* The parameters of a weight: itself, or as many of a stack, which are alike. */
static void split(lowering *l, const tensor *of, hrt_parameter *p, int64_t n) {
    if (!of || !of->read || of->whole) return;
    add_parts(l, of, p);
    if (p->n_parts) p->how = text_of(l, p);
    for (int64_t i = 1; i < n; i++)
        p[i].first_part = p->first_part, p[i].n_parts = p->n_parts, p[i].how = p->how;
}

void lower_joined(lowering *l) {
    const hir_module *graph = l->p->options.whole;
    search s = {.m = graph};
    if (!graph || graph->stage != HIR_STAGE_GRAPH) return;
    s.uses = hir_compute_uses(graph, l->a);
    s.of = hd_new_array(l->a, tensor, graph->weights.n + 1);
    hrt_parameter *p = l->p->parameters.at;
    for (size_t i = 0; i < l->m->weights.n; i++) {
        const hir_weight *w = &l->m->weights.at[i];
        if (hir_is_derived(w)) continue;
        tensor *of = tensor_of(&s, w, p);
        if (of) {
            of->rows = (int64_t)p->rows;
            of->cut = hd_new_array(l->a, bool, (size_t)p->rows + 1);
        }
        p += hir_parts(w);
    }
    find_cuts(&s);
    p = l->p->parameters.at;
    for (size_t i = 0; i < l->m->weights.n; i++) {
        const hir_weight *w = &l->m->weights.at[i];
        if (hir_is_derived(w)) continue;
        split(l, tensor_of(&s, w, p), p, hir_parts(w));
        p += hir_parts(w);
    }
}
