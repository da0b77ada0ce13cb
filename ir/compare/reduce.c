/* Proposals for smaller modules (delta debugging).
 *
 * Kinds of edits, from coarse to fine: remove outputs; remove kernels; remove ops, with uses
 * replaced by an operand of the same type, by another value of that type, or by a constant; remove
 * unused table rows; shrink dims. Each kind is tried on ranges of items: all of them, then halves,
 * down to one. The reducer ends when a round of all kinds has changed nothing.
 *
 * An edit of several items also removes the ops that it leaves without uses. Ops that had no uses
 * before stay, as they may be the cause of the failure; a separate edit tries to remove them. */
#include "ir/compare/reduce.h"

#include <string.h>

typedef enum edit_kind { OUTPUTS, KERNELS, OPS, TABLES, DIMS, EDIT_KINDS } edit_kind;

struct hir_reducer {
    hd_arena *owner;
    hd_arena *best_arena, *next_arena;
    hir_module *best, *next;
    edit_kind kind;
    size_t size, at; /* the range of items tried next */
    bool any;        /* a proposal was accepted in this round */
    bool done;
};

/* One proposal in the making. */
typedef struct edit {
    hir_module *m;
    hd_arena *a;
    hd_diags d;        /* of building and inferring; discarded */
    bool *dead_before; /* [ops] had no uses before the edit */
    size_t ops_before;
    hir_ref *to; /* [values] the replacement of a value; kind none: not replaced */
} edit;

/* ---- size ------------------------------------------------------------------------------------ */
static uint64_t dims_of(hir_type t) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t.rank; i++)
        sum += t.dim[i] > 0 ? (uint64_t)t.dim[i] : 0;
    return sum;
}

static uint64_t op_weight(const hir_op *op) {
    if (op->code == HIR_YIELD_OP) return op->n_args;
    return (op->code == HIR_CONST_OP ? 2 : 8) + op->n_args + op->n_results;
}

typedef struct size {
    uint64_t ops, rows, dims;
} size;

static size size_of(const hir_module *m) {
    size s = {.rows = m->weights.n + m->states.n + m->inputs.n + m->options.n + m->unused_below.n};
    for (size_t i = 0; i < m->weights.n; i++)
        s.dims += dims_of(m->weights.at[i].type);
    for (size_t i = 0; i < m->states.n; i++)
        s.dims += dims_of(m->states.at[i].type);
    for (size_t i = 0; i < m->inputs.n; i++)
        s.dims += dims_of(hir_value_at(m, m->inputs.at[i])->type);
    for (size_t i = 0; i < m->ops.n; i++) {
        const hir_op *op = &m->ops.at[i];
        if (op->erased) continue;
        s.ops += op_weight(op);
        for (uint32_t k = 0; k < op->n_results; k++)
            s.dims += dims_of(hir_value_at(m, op->results[k])->type);
    }
    return s;
}

static bool smaller(const hir_module *a, const hir_module *b) {
    const size x = size_of(a), y = size_of(b);
    if (x.ops != y.ops) return x.ops < y.ops;
    return x.rows != y.rows ? x.rows < y.rows : x.dims < y.dims;
}

/* ---- walking --------------------------------------------------------------------------------- */
static bool is_item(const hir_op *op, edit_kind kind) {
    const bool leaves = op->code == HIR_OUTPUT_OP || op->code == HIR_TRACE_OP;
    switch (kind) {
    case OUTPUTS: return leaves;
    case KERNELS: return hir_is_kernel(op);
    case OPS: return !leaves && !hir_is_kernel(op) && op->code != HIR_YIELD_OP;
    default: return false;
    }
}

/* All ops in program order, a kernel before its body. */
static hir_id *program_order(const hir_module *m, hd_arena *a, size_t *n) {
    hir_id *list = hd_new_array(a, hir_id, m->ops.n);
    *n = 0;
    HIR_EACH(m, op, m->first) {
        list[(*n)++] = op;
        HIR_EACH(m, inner, hir_op_at(m, op)->body_first) {
            list[(*n)++] = inner;
        }
    }
    return list;
}

/* ---- ops without uses ------------------------------------------------------------------------ */
static void count_reads(const hir_module *m, hir_id id, uint32_t *reads, int step) {
    const hir_op *op = hir_op_at(m, id);
    for (uint32_t i = 0; i < op->n_args; i++)
        if (op->args[i].kind == HIR_REF_VALUE) reads[op->args[i].index] += (uint32_t)step;
}

static bool unread(const hir_op *op, const uint32_t *reads) {
    for (uint32_t i = 0; i < op->n_results; i++)
        if (reads[op->results[i]]) return false;
    return true;
}

static bool has_effect(const hir_module *m, const hir_op *op) {
    if (hir_has_trait(op->code, HIR_EFFECT)) return true;
    HIR_EACH(m, inner, op->body_first) {
        const hir_op *in = hir_op_at(m, inner);
        if (in->code != HIR_YIELD_OP && hir_has_trait(in->code, HIR_EFFECT)) return true;
    }
    return false;
}

/* Marks dead ops, also those used by dead ops only; ops in `kept` are live. Walks backwards, so
 * that users come before their operands. */
static void mark_dead(const hir_module *m, hd_arena *a, const bool *kept, size_t n_kept,
                      bool *dead) {
    uint32_t *reads = hd_new_array(a, uint32_t, m->values.n);
    size_t n;
    const hir_id *list = program_order(m, a, &n);
    for (size_t i = 0; i < n; i++)
        count_reads(m, list[i], reads, 1);
    for (size_t i = n; i-- > 0;) {
        const hir_op *op = hir_op_at(m, list[i]);
        if ((list[i] < n_kept && kept[list[i]]) || has_effect(m, op) || !unread(op, reads))
            continue;
        dead[list[i]] = true;
        count_reads(m, list[i], reads, -1);
        HIR_EACH(m, inner, op->body_first) { /* visited already, and counted as users until now */
            if (!dead[inner]) count_reads(m, inner, reads, -1);
            dead[inner] = true;
        }
    }
}

static void erase_dead(edit *e) {
    bool *dead = hd_new_array(e->a, bool, e->m->ops.n);
    mark_dead(e->m, e->a, e->dead_before, e->ops_before, dead);
    for (size_t i = e->m->ops.n; i-- > 0;)
        if (dead[i] && !e->m->ops.at[i].erased) hir_erase(e->m, (hir_id)i);
}

/* Removes results of a kernel that the edit left without uses; at least one result stays. */
static void trim_kernel(edit *e, hir_id id, const uint32_t *reads) {
    hir_op *k = hir_op_at(e->m, id);
    if (k->body_last == HIR_NONE || (id < e->ops_before && e->dead_before[id])) return;
    hir_op *yield = hir_op_at(e->m, k->body_last);
    if (yield->code != HIR_YIELD_OP || yield->n_args != k->n_results) return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < k->n_results; i++) {
        if (!reads[k->results[i]] && k->n_results - i + kept > 1) continue;
        k->results[kept] = k->results[i];
        yield->args[kept++] = yield->args[i];
    }
    k->n_results = yield->n_args = kept;
}

static void trim_kernels(edit *e) {
    uint32_t *reads = hd_new_array(e->a, uint32_t, e->m->values.n);
    size_t n;
    const hir_id *list = program_order(e->m, e->a, &n);
    for (size_t i = 0; i < n; i++)
        count_reads(e->m, list[i], reads, 1);
    for (size_t i = 0; i < n; i++)
        if (hir_is_kernel(hir_op_at(e->m, list[i]))) trim_kernel(e, list[i], reads);
}

static bool is_output(const hir_module *m, hir_id value) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_OUTPUT_OP && hir_ref_equal(o->args[0], hir_value_ref(value)))
            return true;
    }
    return false;
}

static bool is_given_out(const hir_value *v) {
    return v->place == HIR_PLACE_OUTPUT || v->place == HIR_PLACE_GRADIENT;
}

/* Renumbers the places of outputs; values that are no longer outputs lose theirs. */
static void renumber_outputs(hir_module *m) {
    uint64_t n = 0;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_results; i++) {
            hir_value *v = hir_value_at(m, o->results[i]);
            if (is_given_out(v) && !is_output(m, o->results[i])) v->place = HIR_PLACE_NONE;
        }
        if (o->code != HIR_OUTPUT_OP) continue;
        hir_value *v = o->args[0].kind == HIR_REF_VALUE ? hir_value_at(m, o->args[0].index) : NULL;
        if (v && is_given_out(v)) v->offset = n;
        n++;
    }
}

/* ---- removing ops ---------------------------------------------------------------------------- */
static hir_ref stands_for(const edit *e, hir_ref r) {
    if (r.kind != HIR_REF_VALUE || e->to[r.index].kind == HIR_REF_NONE) return r;
    return e->to[r.index];
}

/* Another value of the type: an operand, an input, the result of an earlier op. */
static bool find_operand(const edit *e, const hir_op *op, hir_type type, hir_ref *out) {
    for (uint32_t i = 0; i < op->n_args; i++) {
        const hir_ref r = stands_for(e, op->args[i]);
        if (r.kind != HIR_REF_VALUE && r.kind != HIR_REF_WEIGHT) continue;
        if (!hir_type_equal(hir_ref_type(e->m, r), type)) continue;
        *out = r;
        return true;
    }
    return false;
}

static bool find_in_front(const edit *e, hir_id from, hir_type type, hir_ref *out) {
    enum { MOST = 64 };
    int steps = 0;
    for (hir_id id = hir_op_at(e->m, from)->prev; id != HIR_NONE && steps < MOST; steps++) {
        const hir_op *op = hir_op_at(e->m, id);
        for (uint32_t i = 0; i < op->n_results; i++)
            if (hir_type_equal(hir_value_at(e->m, op->results[i])->type, type)) {
                *out = hir_value_ref(op->results[i]);
                return true;
            }
        id = op->prev;
    }
    return false;
}

static bool find_input(const edit *e, hir_type type, hir_ref *out) {
    for (size_t i = 0; i < e->m->inputs.n; i++) {
        if (!hir_type_equal(hir_value_at(e->m, e->m->inputs.at[i])->type, type)) continue;
        *out = hir_value_ref(e->m->inputs.at[i]);
        return true;
    }
    return false;
}

static bool make_constant(edit *e, hir_id id, hir_type type, hir_ref *out) {
    const hir_op *op = hir_op_at(e->m, id);
    if (op->code == HIR_CONST_OP || hir_is_kernel(op) || type.dtype != HIR_F32) return false;
    hir_builder b = hir_before(e->m, &e->d, id);
    const hir_attr attrs[] = {hir_ints(HIR_A_SHAPE, type.dim, type.rank),
                              hir_float(HIR_A_VALUE, 0.5)};
    *out = hir_emit(&b, HIR_CONST_OP, NULL, 0, attrs, 2);
    return out->kind == HIR_REF_VALUE;
}

/* For a kernel: a value from outside that its body reads. */
static bool find_outer_operand(const edit *e, const hir_op *kernel, hir_type type, hir_ref *out) {
    HIR_EACH(e->m, inner, kernel->body_first) {
        const hir_op *op = hir_op_at(e->m, inner);
        for (uint32_t i = 0; i < op->n_args; i++) {
            const hir_ref r = stands_for(e, op->args[i]);
            if (r.kind != HIR_REF_VALUE || !hir_type_equal(hir_ref_type(e->m, r), type)) continue;
            const hir_id maker = hir_value_at(e->m, r.index)->op;
            if (maker != HIR_NONE && hir_op_at(e->m, maker)->parent != HIR_NONE) continue;
            *out = r;
            return true;
        }
    }
    return false;
}

static bool replacement(edit *e, hir_id id, hir_type type, hir_ref *out) {
    const hir_op *op = hir_op_at(e->m, id);
    if (find_operand(e, op, type, out) || find_outer_operand(e, op, type, out)) return true;
    if (find_in_front(e, id, type, out) || find_input(e, type, out)) return true;
    if (op->parent != HIR_NONE && find_in_front(e, op->parent, type, out)) return true;
    return make_constant(e, id, type, out);
}

/* Removes an op; false, and no change, if there is no replacement for its results. */
static bool remove_op(edit *e, hir_id id, const uint32_t *reads) {
    hir_ref with[64];
    const uint32_t n = hir_op_at(e->m, id)->n_results;
    if (n > 64) return false;
    for (uint32_t i = 0; i < n; i++) {
        const hir_id v = hir_op_at(e->m, id)->results[i];
        with[i] = hir_no_ref();
        if (reads[v] && !replacement(e, id, hir_value_at(e->m, v)->type, &with[i])) return false;
    }
    for (uint32_t i = 0; i < n; i++)
        e->to[hir_op_at(e->m, id)->results[i]] = with[i];
    hir_erase(e->m, id);
    return true;
}

static void apply_replacements(edit *e, size_t n_values) {
    for (size_t i = 0; i < e->m->ops.n; i++) {
        hir_op *op = &e->m->ops.at[i];
        for (uint32_t j = 0; !op->erased && j < op->n_args; j++)
            if (op->args[j].kind == HIR_REF_VALUE && op->args[j].index < n_values)
                op->args[j] = stands_for(e, op->args[j]);
    }
}

static bool remove_items(edit *e, edit_kind kind, size_t from, size_t count) {
    size_t n, item = 0, removed = 0;
    const size_t n_values = e->m->values.n;
    const hir_id *list = program_order(e->m, e->a, &n);
    uint32_t *reads = hd_new_array(e->a, uint32_t, n_values);
    /* and space for the constants that may be added, one for each result */
    e->to = hd_new_array(e->a, hir_ref, 2 * n_values + 1);
    for (size_t i = 0; i < n; i++)
        count_reads(e->m, list[i], reads, 1);
    for (size_t i = 0; i < n; i++) {
        if (hir_op_at(e->m, list[i])->erased || !is_item(hir_op_at(e->m, list[i]), kind)) continue;
        if (item >= from && item < from + count) removed += remove_op(e, list[i], reads);
        item++;
    }
    if (!removed) return false;
    apply_replacements(e, n_values);
    if (count > 1) {
        erase_dead(e);
        trim_kernels(e);
        erase_dead(e); /* ops used by the removed results only */
    }
    renumber_outputs(e->m);
    return true;
}

/* ---- tables ---------------------------------------------------------------------------------- */
typedef struct named { /* table rows that are referred to */
    bool *weight, *state, *input;
} named;

static named find_named(const edit *e) {
    const hir_module *m = e->m;
    named s = {hd_new_array(e->a, bool, m->weights.n), hd_new_array(e->a, bool, m->states.n),
               hd_new_array(e->a, bool, m->values.n)};
    for (size_t i = 0; i < m->ops.n; i++) {
        const hir_op *op = &m->ops.at[i];
        for (uint32_t j = 0; !op->erased && j < op->n_args; j++) {
            const hir_ref r = op->args[j];
            if (r.kind == HIR_REF_WEIGHT) s.weight[r.index] = true;
            if (r.kind == HIR_REF_STATE) s.state[r.index] = true;
            if (r.kind == HIR_REF_VALUE) s.input[r.index] = true;
        }
        for (uint32_t j = 0; !op->erased && j < op->n_results; j++) {
            const hir_value *v = hir_value_at(m, op->results[j]);
            if (v->place == HIR_PLACE_STATE && v->offset < m->states.n) s.state[v->offset] = true;
        }
    }
    for (size_t i = 0; i < m->weights.n; i++) { /* factors of derived weights */
        const hir_weight *w = &m->weights.at[i];
        for (uint32_t r = 0; s.weight[i] && r < w->n_rows; r++)
            for (uint32_t k = 0; k < w->rows[r].n; k++) {
                const uint32_t at = hir_find_weight(m, w->rows[r].factor[k].name);
                if (at != HIR_NONE) s.weight[at] = true;
            }
    }
    return s;
}

/* Drops the rows of a table that are in the range of items and not referred to; new indices in
 * `number`. */
#define DROP_ROWS(table, is_named, number)                                                         \
    do {                                                                                           \
        size_t kept_ = 0;                                                                          \
        for (size_t i_ = 0; i_ < (table)->n; i_++) {                                               \
            const bool drop_ = row >= from && row < from + count && !(is_named);                   \
            row++;                                                                                 \
            (number)[i_] = (uint32_t)kept_;                                                        \
            if (!drop_) (table)->at[kept_++] = (table)->at[i_];                                    \
        }                                                                                          \
        dropped += (table)->n - kept_;                                                             \
        (table)->n = kept_;                                                                        \
    } while (0)

static void renumber(hir_module *m, const uint32_t *weight, const uint32_t *state) {
    for (size_t i = 0; i < m->ops.n; i++) {
        hir_op *op = &m->ops.at[i];
        if (op->erased) continue;
        for (uint32_t j = 0; j < op->n_args; j++) {
            const hir_ref r = op->args[j];
            if (r.kind == HIR_REF_WEIGHT) op->args[j] = hir_weight_ref(weight[r.index]);
            if (r.kind == HIR_REF_STATE) op->args[j] = hir_state_ref(state[r.index]);
        }
        for (uint32_t j = 0; j < op->n_results; j++) {
            hir_value *v = hir_value_at(m, op->results[j]);
            if (v->place == HIR_PLACE_STATE) v->offset = state[v->offset];
        }
    }
    for (size_t i = 0; i < m->inputs.n; i++)
        if (hir_value_at(m, m->inputs.at[i])->place == HIR_PLACE_INPUT)
            hir_value_at(m, m->inputs.at[i])->offset = i;
}

static bool remove_rows(edit *e, size_t from, size_t count) {
    hir_module *m = e->m;
    const named s = find_named(e);
    uint32_t *weight = hd_new_array(e->a, uint32_t, m->weights.n);
    uint32_t *state = hd_new_array(e->a, uint32_t, m->states.n);
    uint32_t *rest = hd_new_array(e->a, uint32_t, m->inputs.n + m->options.n + m->unused_below.n);
    size_t row = 0, dropped = 0;
    DROP_ROWS(&m->weights, s.weight[i_], weight);
    m->weight_names = (hir_names){0};
    DROP_ROWS(&m->states, s.state[i_], state);
    DROP_ROWS(&m->inputs, s.input[m->inputs.at[i_]], rest);
    DROP_ROWS(&m->options, false, rest);
    DROP_ROWS(&m->unused_below, false, rest);
    renumber(m, weight, state);
    return dropped > 0;
}

/* ---- dims ------------------------------------------------------------------------------------ */
enum { MOST_DIMS = 10 };

typedef struct dim_set { /* the largest distinct dims of the module, in falling order */
    int64_t at[MOST_DIMS];
    size_t n;
} dim_set;

static void add_dim(dim_set *s, int64_t dim) {
    if (dim <= 1) return;
    size_t at = 0;
    while (at < s->n && s->at[at] > dim)
        at++;
    if (at == MOST_DIMS || (at < s->n && s->at[at] == dim)) return;
    const size_t moved = (s->n < MOST_DIMS ? s->n : MOST_DIMS - 1) - at;
    memmove(s->at + at + 1, s->at + at, moved * sizeof *s->at);
    s->at[at] = dim;
    if (s->n < MOST_DIMS) s->n++;
}

static void add_dims(dim_set *s, hir_type t) {
    for (uint32_t i = 0; i < t.rank; i++)
        add_dim(s, t.dim[i]);
}

static dim_set dims_in(const hir_module *m) {
    dim_set s = {.n = 0};
    for (size_t i = 0; i < m->weights.n; i++)
        add_dims(&s, m->weights.at[i].type);
    for (size_t i = 0; i < m->states.n; i++)
        add_dims(&s, m->states.at[i].type);
    for (size_t i = 0; i < m->ops.n; i++)
        for (uint32_t k = 0; !m->ops.at[i].erased && k < m->ops.at[i].n_results; k++)
            add_dims(&s, hir_value_at(m, m->ops.at[i].results[k])->type);
    return s;
}

/* Dims to shrink together: up to four of the distinct dims, as bits, each halved or set to one.
 * Most combinations make some reshape illegal and are dropped before they are proposed. */
typedef struct shrink {
    dim_set dims;
    unsigned set;
    bool halve;
} shrink;

static bool nth_set(size_t n_dims, size_t item, unsigned *set) {
    for (unsigned bits = 1; bits < 1u << n_dims; bits++) {
        if (__builtin_popcount(bits) > 4) continue;
        if (item-- == 0) {
            *set = bits;
            return true;
        }
    }
    return false;
}

static size_t count_sets(size_t n_dims) {
    size_t n = 0;
    for (unsigned bits = 1; bits < 1u << n_dims; bits++)
        n += __builtin_popcount(bits) <= 4;
    return n;
}

static int64_t shrunk(const shrink *s, int64_t dim) {
    for (size_t i = 0; i < s->dims.n; i++)
        if (s->dims.at[i] == dim && s->set >> i & 1) return s->halve && dim > 2 ? dim / 2 : 1;
    return dim;
}

static void shrink_type(const shrink *s, hir_type *t) {
    for (uint32_t i = 0; i < t->rank; i++)
        t->dim[i] = shrunk(s, t->dim[i]);
}

static void shrink_attrs(edit *e, const shrink *s, hir_id id) {
    const hir_attr *shape = hir_find_attr(hir_op_at(e->m, id), HIR_A_SHAPE);
    if (shape) {
        int64_t dims[HIR_MAX_RANK];
        for (uint32_t i = 0; i < shape->n && i < HIR_MAX_RANK; i++)
            dims[i] = shrunk(s, shape->ints[i]);
        hir_set_attr(e->m, id, hir_ints(HIR_A_SHAPE, dims, shape->n));
    }
    static const hir_attr_id sizes[] = {HIR_A_LENGTH, HIR_A_HEADS};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const hir_attr *a = hir_find_attr(hir_op_at(e->m, id), sizes[i]);
        if (a) hir_set_attr(e->m, id, hir_int(sizes[i], shrunk(s, a->i)));
    }
}

/* Result types of kernels are taken from their yield. */
static bool infer_again(edit *e, hir_id id) {
    const hir_op *op = hir_op_at(e->m, id);
    if (op->code == HIR_YIELD_OP) {
        const hir_op *kernel = hir_op_at(e->m, op->parent);
        for (uint32_t i = 0; i < op->n_args && i < kernel->n_results; i++)
            hir_value_at(e->m, kernel->results[i])->type = hir_ref_type(e->m, op->args[i]);
        return true;
    }
    hir_type type;
    if (hir_is_kernel(op)) return true;
    if (!hir_infer(e->m, op, &e->d, &type)) return false;
    if (op->n_results) hir_value_at(e->m, op->results[0])->type = type;
    return true;
}

static bool shrink_dims(edit *e, size_t item) {
    hir_module *m = e->m;
    shrink s = {.dims = dims_in(m), .halve = item % 2};
    if (!nth_set(s.dims.n, item / 2, &s.set)) return false;
    for (size_t i = 0; i < m->weights.n; i++)
        shrink_type(&s, &m->weights.at[i].type);
    for (size_t i = 0; i < m->states.n; i++)
        shrink_type(&s, &m->states.at[i].type);
    for (size_t i = 0; i < m->inputs.n; i++)
        shrink_type(&s, &hir_value_at(m, m->inputs.at[i])->type);
    size_t n;
    const hir_id *list = program_order(m, e->a, &n);
    for (size_t i = 0; i < n; i++) {
        shrink_attrs(e, &s, list[i]);
        if (!infer_again(e, list[i])) return false;
    }
    return true;
}

/* ---- the order of proposals ------------------------------------------------------------------ */
static size_t count_items(const hir_module *m, edit_kind kind) {
    if (kind == TABLES)
        return m->weights.n + m->states.n + m->inputs.n + m->options.n + m->unused_below.n;
    if (kind == DIMS) return 2 * count_sets(dims_in(m).n);
    size_t n = 0;
    for (size_t i = 0; i < m->ops.n; i++)
        n += !m->ops.at[i].erased && is_item(&m->ops.at[i], kind);
    return n;
}

static void start_kind(hir_reducer *r, edit_kind kind) {
    r->kind = kind;
    r->at = 0;
    r->size = 1;
    if (kind != EDIT_KINDS && kind != DIMS) r->size = count_items(r->best, kind);
    if (r->size == 0) r->size = 1;
}

/* Continues with smaller ranges, the next kind, the next round, or the end. */
static void next_pass(hir_reducer *r) {
    if (r->size > 1) {
        r->size = r->size / 2;
        r->at = 0;
        return;
    }
    start_kind(r, (edit_kind)(r->kind + 1));
    if (r->kind != EDIT_KINDS) return;
    r->done = !r->any;
    r->any = false;
    start_kind(r, OUTPUTS);
}

/* ---- the reducer ----------------------------------------------------------------------------- */
static void free_arena(void *slot) {
    hd_arena_free(*(hd_arena **)slot);
    *(hd_arena **)slot = NULL;
}

/* A fresh arena; when it runs out of memory control goes to the guard of the owner. */
static hd_arena *fresh_arena(hir_reducer *r, hd_arena **slot) {
    free_arena(slot);
    *slot = hd_arena_new();
    jmp_buf *outer = hd_arena_guard(r->owner, NULL);
    hd_arena_guard(r->owner, outer);
    if (!*slot) {
        if (outer) longjmp(*outer, 1);
        return NULL;
    }
    hd_arena_guard(*slot, outer);
    return *slot;
}

hir_reducer *hir_reducer_new(const hir_module *m, hd_arena *owner, hd_diags *d) {
    hir_reducer *r = hd_new(owner, hir_reducer);
    r->owner = owner;
    hd_arena_defer(owner, free_arena, &r->best_arena);
    hd_arena_defer(owner, free_arena, &r->next_arena);
    hd_arena *a = fresh_arena(r, &r->best_arena);
    if (!a) {
        hd_err(d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
        return NULL;
    }
    r->best = hir_module_clone(m, a);
    start_kind(r, OUTPUTS);
    return r;
}

static bool propose(hir_reducer *r) {
    hd_arena *a = fresh_arena(r, &r->next_arena);
    if (!a) return false;
    edit e = {.m = hir_module_clone(r->best, a), .a = a, .ops_before = r->best->ops.n};
    hd_diags_init(&e.d, a);
    r->next = e.m;
    e.dead_before = hd_new_array(a, bool, e.ops_before);
    mark_dead(e.m, a, NULL, 0, e.dead_before);
    const bool done = r->kind == TABLES ? remove_rows(&e, r->at, r->size)
                      : r->kind == DIMS ? shrink_dims(&e, r->at)
                                        : remove_items(&e, r->kind, r->at, r->size);
    hd_diags check;
    hd_diags_init(&check, a);
    return done && smaller(e.m, r->best) && hir_verify(e.m, &check);
}

const hir_module *hir_reducer_next(hir_reducer *r) {
    while (!r->done) {
        if (r->at >= count_items(r->best, r->kind)) {
            next_pass(r);
            continue;
        }
        if (propose(r)) return r->next;
        r->at += r->size;
    }
    return NULL;
}

void hir_reducer_answer(hir_reducer *r, bool taken) {
    if (!taken) {
        r->at += r->size;
        return;
    }
    hd_arena *old = r->best_arena;
    r->best_arena = r->next_arena;
    r->next_arena = old;
    r->best = r->next;
    r->any = true;
}

const hir_module *hir_reducer_best(const hir_reducer *r) {
    return r->best;
}
