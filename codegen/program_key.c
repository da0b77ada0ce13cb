/* Canonical form of a kernel's body, for sharing code between layers.
 *
 * The key holds everything that an emitter may look at: the body's ops with attributes, types and
 * operands, where a value of the body is its number in the body and an outer value, weight or state
 * its argument number; then kind, type and layout of each argument, and which of them a result has
 * the place of. The kernel's own attributes say how its step is run (rows, splits, grain),
 * which is no matter of its code. Two kernels that differ only in that and in which tensors they
 * touch have equal keys. */
#include <string.h>

#include "codegen/contract/contraction.h"
#include "codegen/program_key.h"

enum { FREE = -100 }; /* no dim is that */

hcg_keys *hcg_keys_new(hd_arena *a, const hir_module *m) {
    hcg_keys *k = hd_new(a, hcg_keys);
    k->arena = a;
    k->m = m;
    size_t sizes[2] = {m->weights.n, m->states.n};
    k->owner = hd_new_array(a, hir_id, m->values.n + 1);
    k->local = hd_new_array(a, uint32_t, m->values.n + 1);
    memset(k->owner, 0xff, (m->values.n + 1) * sizeof *k->owner);
    for (int i = 0; i < 2; i++) {
        k->seen_by[i] = hd_new_array(a, hir_id, sizes[i] + 1);
        k->number[i] = hd_new_array(a, uint32_t, sizes[i] + 1);
        memset(k->seen_by[i], 0xff, (sizes[i] + 1) * sizeof(hir_id));
    }
    return k;
}

static void add_u64(hd_text *key, uint64_t v) {
    hd_text_add_n(key, (const char *)&v, sizeof v);
}

static void add_string(hd_text *key, const char *s) {
    size_t n = s ? strlen(s) : 0;
    add_u64(key, n);
    if (n) hd_text_add_n(key, s, n);
}

static void add_type(hd_text *key, hir_type t) {
    add_u64(key, (uint64_t)t.dtype << 32 | t.rank);
    for (uint32_t i = 0; i < t.rank; i++)
        add_u64(key, (uint64_t)t.dim[i]);
}

static void add_attr(hd_text *key, const hir_attr *a) {
    add_u64(key, a->id);
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: add_u64(key, (uint64_t)a->i); break;
    case HIR_ATTR_FLOAT: {
        uint64_t bits;
        memcpy(&bits, &a->f, sizeof bits);
        add_u64(key, bits);
        break;
    }
    case HIR_ATTR_STRING: add_string(key, a->s); break;
    case HIR_ATTR_INTS:
        add_u64(key, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            add_u64(key, (uint64_t)a->ints[i]);
        break;
    }
}

static void add_attrs(hd_text *key, const hir_op *op) {
    for (uint32_t i = 0; i < op->n_attrs; i++)
        add_attr(key, &op->attrs[i]);
    add_u64(key, UINT64_MAX);
}

/* The argument number of something from outside the body; a new one at first sight. */
static uint32_t argument(hcg_keys *k, hcg_operands *operands, hir_ref r) {
    bool is_value = r.kind == HIR_REF_VALUE;
    int table = r.kind == HIR_REF_STATE;
    hir_id *seen = is_value ? &k->owner[r.index] : &k->seen_by[table][r.index];
    uint32_t *number = is_value ? &k->local[r.index] : &k->number[table][r.index];
    if (*seen != k->call) {
        *seen = k->call;
        *number = (uint32_t)operands->list.n;
        hd_push(k->arena, &operands->list, r);
    }
    return *number;
}

enum { REF_NONE, REF_LOCAL, REF_ARGUMENT };

static bool is_local(const hcg_keys *k, hir_id kernel, hir_ref r) {
    hir_id def = r.kind == HIR_REF_VALUE ? hir_value_at(k->m, r.index)->op : HIR_NONE;
    return def != HIR_NONE && hir_op_at(k->m, def)->parent == kernel;
}

/* Numbers from the first value and argument of the part on, modulo 2^32. */
static void add_number(hd_text *key, uint32_t kind, uint32_t number, uint32_t first) {
    add_u64(key, kind | (uint64_t)(uint32_t)(number - first) << 8);
}

static void add_argument_type(hcg_keys *k, hd_text *key, hir_ref r);

static void add_ref(hcg_keys *k, hir_id kernel, hcg_operands *operands, hd_text *key, hir_ref r) {
    if (r.kind == HIR_REF_NONE) {
        add_u64(key, REF_NONE);
        return;
    }
    if (is_local(k, kernel, r)) {
        add_number(key, REF_LOCAL, k->local[r.index], k->first_value);
        return;
    }
    const uint32_t number = argument(k, operands, r);
    add_number(key, REF_ARGUMENT, number, k->first_arg);
    if (number < k->first_arg) add_argument_type(k, key, r);
}

/* A type in a key without sizes: N and K are -1 there, where they stand in a body that
 * hcg_family_key takes. */
static hir_type without_sizes(const hcg_keys *k, hir_ref r, hir_type t) {
    if (!k->without_sizes || t.rank == 0) return t;
    bool matrix = r.kind == HIR_REF_WEIGHT && k->m->weights.at[r.index].layout != HIR_LAYOUT_ROWS;
    if (matrix) t.dim[0] = FREE;
    if (t.dim[t.rank - 1] != 1) t.dim[t.rank - 1] = FREE;
    return t;
}

static void add_argument_type(hcg_keys *k, hd_text *key, hir_ref r) {
    add_u64(key, r.kind);
    add_type(key, without_sizes(k, r, hir_ref_type(k->m, r)));
    if (r.kind == HIR_REF_WEIGHT) add_u64(key, k->m->weights.at[r.index].layout);
}

/* Results behind the operands read; one that is a state is the state's own argument. */
static void add_results(hcg_keys *k, hir_id kernel, hcg_operands *operands, hd_text *key) {
    const hir_op *op = hir_op_at(k->m, kernel);
    for (uint32_t i = 0; i < op->n_results; i++) {
        const hir_value *v = hir_value_at(k->m, op->results[i]);
        bool state = v->place == HIR_PLACE_STATE;
        add_u64(key, state);
        if (state) {
            hir_ref r = hir_state_ref((uint32_t)v->offset);
            bool known = v->offset < k->m->states.n;
            add_number(key, REF_ARGUMENT, known ? argument(k, operands, r) : UINT32_MAX,
                       k->first_arg);
        } else {
            hir_id over = hir_in_place_of(k->m, kernel, i);
            bool none = over == HIR_NONE;
            add_number(key, REF_ARGUMENT,
                       none ? UINT32_MAX : argument(k, operands, hir_value_ref(over)),
                       k->first_arg);
            hd_push(k->arena, &operands->list, hir_value_ref(op->results[i]));
        }
        add_type(key, without_sizes(k, hir_value_ref(op->results[i]), v->type));
    }
}

/* An op with its operands from number `from` on; its values get the next numbers. */
static void add_op(hcg_keys *k, hir_id kernel, hir_id id, uint32_t from, uint32_t *values,
                   hcg_operands *operands, hd_text *key) {
    const hir_op *b = hir_op_at(k->m, id);
    add_u64(key, b->code);
    add_attrs(key, b);
    add_u64(key, b->n_args);
    for (uint32_t i = from; i < b->n_args; i++)
        add_ref(k, kernel, operands, key, b->args[i]);
    for (uint32_t i = 0; i < b->n_results; i++) {
        k->local[b->results[i]] = (*values)++;
        add_type(key, without_sizes(k, hir_value_ref(b->results[i]),
                                    hir_value_at(k->m, b->results[i])->type));
    }
}

void hcg_kernel_key(hcg_keys *k, hir_id kernel, hcg_operands *operands, hd_text *key) {
    *operands = (hcg_operands){0};
    k->call++;
    add_u64(key, hir_op_at(k->m, kernel)->code);
    uint32_t values = 0;
    HIR_EACH(k->m, id, hir_op_at(k->m, kernel)->body_first)
    add_op(k, kernel, id, 0, &values, operands, key);
    operands->n_inputs = (uint32_t)operands->list.n;
    for (size_t i = 0; i < operands->list.n; i++)
        add_argument_type(k, key, operands->list.at[i]);
    add_results(k, kernel, operands, key);
}

/* ---- contractions of any size ------------------------------------------------------------------
 */
static bool is_in_front(const hcg_contraction *c, hir_id op) {
    for (size_t i = 0; i < c->prologue.n; i++)
        if (c->prologue.at[i] == op) return true;
    return false;
}

/* Every last dim of the body is N or 1, but for that of x, which only linears read, and of what
 * makes x. */
static bool has_free_sizes(const hcg_keys *k, hir_id kernel, const hcg_contraction *c) {
    HIR_EACH(k->m, id, hir_op_at(k->m, kernel)->body_first) {
        const hir_op *op = hir_op_at(k->m, id);
        if (is_in_front(c, id)) continue;
        if (op->code == HIR_RESHAPE_OP) return false;
        for (uint32_t i = op->code == HIR_LINEAR_OP; i < op->n_args; i++)
            if (hir_ref_equal(op->args[i], c->x)) return false;
    }
    for (size_t i = 0; i < c->linears.n; i++) {
        const hir_dtype dtype = c->linears.at[i].dtype;
        if (hir_is_quantised(dtype) || dtype == HIR_BF16) return false; /* x is prepared by K */
        if (c->linears.at[i].narrow) return false;                      /* N counts panels */
    }
    const hcg_column_group *g = &c->groups.at[0];
    return c->groups.n == 1 && c->width == 1 && !g->heads && g->n > HIR_PANEL && c->k > 1;
}

/* What makes x is made for its sizes, K among them: they stay in the key. */
static void add_prologue_sizes(const hcg_keys *k, const hcg_contraction *c, hd_text *key) {
    for (size_t i = 0; i < c->prologue.n; i++) {
        const hir_op *op = hir_op_at(k->m, c->prologue.at[i]);
        for (uint32_t j = 0; j < op->n_args; j++)
            add_type(key, hir_ref_type(k->m, op->args[j]));
        for (uint32_t j = 0; j < op->n_results; j++)
            add_type(key, hir_value_at(k->m, op->results[j])->type);
    }
}

static bool plan(const hcg_keys *k, hir_id kernel, hcg_contraction *c) {
    hd_diags d; /* what is wrong is told when the kernel is emitted */
    hd_diags_init(&d, k->arena);
    return hir_op_at(k->m, kernel)->code == HIR_KERNEL_CONTRACT_OP &&
           hcg_plan_contraction(k->arena, &d, k->m, kernel, c);
}

bool hcg_family_key(hcg_keys *k, hir_id kernel, hd_text *key, int64_t size[HCG_SIZES]) {
    hcg_contraction c;
    hcg_operands operands;
    if (!plan(k, kernel, &c) || !has_free_sizes(k, kernel, &c)) return false;
    k->without_sizes = true;
    hcg_kernel_key(k, kernel, &operands, key);
    k->without_sizes = false;
    size[HCG_N] = c.groups.at[0].n;
    size[HCG_K] = c.k;
    add_prologue_sizes(k, &c, key);
    return true;
}

/* ---- parts -------------------------------------------------------------------------------------
 */
bool hcg_prologue_key(hcg_keys *k, hir_id kernel, hd_text *key) {
    hcg_contraction c;
    hcg_operands operands = {0};
    uint32_t values = 0;
    if (!plan(k, kernel, &c) || !c.prologue.n) return false;
    k->call++;
    for (size_t i = 0; i < c.prologue.n; i++)
        add_op(k, kernel, c.prologue.at[i], 0, &values, &operands, key);
    add_u64(key, k->local[c.x.index]);
    for (size_t i = 0; i < operands.list.n; i++)
        add_argument_type(k, key, operands.list.at[i]);
    return true;
}

/* Whether anything from `from` on reads a value that is made before, other than x. */
static bool reads_before(const hcg_keys *k, hir_id kernel, hir_id from) {
    for (hir_id id = from; id != HIR_NONE; id = hir_op_at(k->m, id)->next) {
        const hir_op *op = hir_op_at(k->m, id);
        for (uint32_t i = op->code == HIR_LINEAR_OP; i < op->n_args; i++)
            if (is_local(k, kernel, op->args[i]) && k->local[op->args[i].index] < k->first_value)
                return true;
    }
    return false;
}

bool hcg_epilogue_key(hcg_keys *k, hir_id kernel, uint32_t *first, hd_text *key) {
    hcg_contraction c;
    hcg_operands operands = {0};
    hd_text before;
    uint32_t values = 0;
    hd_text_init(&before, k->arena);
    if (!plan(k, kernel, &c)) return false;
    k->call++;
    hir_id id = hir_op_at(k->m, kernel)->body_first;
    for (; hir_op_at(k->m, id)->code != HIR_LINEAR_OP; id = hir_op_at(k->m, id)->next)
        add_op(k, kernel, id, 0, &values, &operands, &before);
    add_ref(k, kernel, &operands, &before, hir_op_at(k->m, id)->args[0]);
    k->first_value = values;
    *first = k->first_arg = (uint32_t)operands.list.n;
    for (hir_id at = id; at != HIR_NONE; at = hir_op_at(k->m, at)->next) {
        const bool linear = hir_op_at(k->m, at)->code == HIR_LINEAR_OP; /* their x is one */
        add_op(k, kernel, at, linear, &values, &operands, key);
    }
    for (size_t i = *first; i < operands.list.n; i++)
        add_argument_type(k, key, operands.list.at[i]);
    add_results(k, kernel, &operands, key);
    const bool alone = !reads_before(k, kernel, id);
    k->first_value = k->first_arg = 0;
    return alone;
}
