/* Matching the ops of two modules.
 *
 * 1. Equal expressions: ops with the same hash over all that they compute, down to the names of
 *    inputs, weights and states, if the expression occurs equally often in both modules. Where it
 *    does not, occurrences next to matched ops are matched first, then the rest in program order.
 * 2. Ops that read inputs, weights or states of the same name, and outputs of the same name, where
 *    only one op on each side does.
 * 3. Graph neighbours: two ops that are the same operand of matched ops, or that read the same
 *    matched operand, are matched; first if all but their operands is equal, then if only the
 * opcode is.
 *
 * Kernels are paired by the number of matched ops in their bodies. */
#include "ir/compare/diff.h"

#include <stdlib.h>
#include <string.h>

/* ---- hashes ---------------------------------------------------------------------------------- */
static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static uint64_t mix_text(uint64_t h, const char *s) {
    for (; *s; s++)
        h = mix(h, (unsigned char)*s);
    return mix(h, 0x100);
}

static uint64_t mix_attr(uint64_t h, const hir_attr *a) {
    h = mix(h, a->id);
    uint64_t bits;
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: return mix(h, (uint64_t)a->i);
    case HIR_ATTR_FLOAT: memcpy(&bits, &a->f, sizeof bits); return mix(h, bits);
    case HIR_ATTR_STRING: return mix_text(h, a->s);
    case HIR_ATTR_INTS:
        for (uint32_t i = 0; i < a->n; i++)
            h = mix(h, (uint64_t)a->ints[i]);
        return mix(h, a->n);
    case HIR_ATTR_FLOATS:
        for (uint32_t i = 0; i < a->n; i++) {
            memcpy(&bits, &a->floats[i], sizeof bits);
            h = mix(h, bits);
        }
        return mix(h, a->n);
    }
    return h;
}

static uint64_t hash_head(const hir_op *op) {
    uint64_t h = mix(0x6861646c, op->code);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        h = mix_attr(h, &op->attrs[i]);
    return h;
}

static uint64_t hash_source(const hir_diff_side *s, uint64_t h, hir_diff_origin from) {
    h = mix(h, from.kind);
    switch (from.kind) {
    case HIR_FROM_NOTHING: return h;
    case HIR_FROM_OP: return mix(mix(h, s->deep[from.index]), from.result);
    case HIR_FROM_INPUT: return mix(h, from.index);
    case HIR_FROM_WEIGHT: return mix_text(h, s->m->weights.at[from.index].name);
    case HIR_FROM_STATE: return mix_text(h, s->m->states.at[from.index].name);
    }
    return h;
}

/* ---- flattening ------------------------------------------------------------------------------ */
hir_diff_origin hir_diff_source(const hir_diff_side *s, hir_ref r) {
    switch ((hir_ref_kind)r.kind) {
    case HIR_REF_NONE: break;
    case HIR_REF_VALUE: return s->value[r.index];
    case HIR_REF_WEIGHT: return (hir_diff_origin){HIR_FROM_WEIGHT, r.index, 0};
    case HIR_REF_STATE: return (hir_diff_origin){HIR_FROM_STATE, r.index, 0};
    }
    return (hir_diff_origin){HIR_FROM_NOTHING, 0, 0};
}

static void take_op(hir_diff_side *s, hir_id id) {
    const hir_op *op = hir_op_at(s->m, id);
    const uint32_t at = s->n++;
    s->op[at] = id;
    uint64_t h = hash_head(op);
    for (uint32_t i = 0; i < op->n_args; i++)
        h = hash_source(s, h, hir_diff_source(s, op->args[i]));
    s->deep[at] = h;
    for (uint32_t i = 0; i < op->n_results; i++)
        s->value[op->results[i]] = (hir_diff_origin){HIR_FROM_OP, at, i};
}

/* A kernel's results are resolved to the values that its body yields. */
static void take_kernel(hir_diff_side *s, hd_arena *a, hir_id id) {
    const hir_op *k = hir_op_at(s->m, id);
    hd_push(a, &s->kernels, id);
    HIR_EACH(s->m, inner, k->body_first) {
        const hir_op *op = hir_op_at(s->m, inner);
        if (op->code != HIR_YIELD_OP) {
            take_op(s, inner);
            continue;
        }
        for (uint32_t i = 0; i < op->n_args && i < k->n_results; i++)
            s->value[k->results[i]] = hir_diff_source(s, op->args[i]);
    }
}

/* The users of each op's results, as one array. */
static void find_users(hir_diff_side *s, hd_arena *a) {
    s->user_first = hd_new_array(a, uint32_t, s->n);
    s->user_count = hd_new_array(a, uint32_t, s->n);
    size_t total = 0;
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < s->n; i++) {
            const hir_op *op = hir_op_at(s->m, s->op[i]);
            for (uint32_t j = 0; j < op->n_args; j++) {
                const hir_diff_origin from = hir_diff_source(s, op->args[j]);
                if (from.kind != HIR_FROM_OP) continue;
                if (fill)
                    s->user[s->user_first[from.index] + s->user_count[from.index]] =
                        (hir_diff_user){i, j};
                s->user_count[from.index]++;
                total += !fill;
            }
        }
        if (fill) break;
        uint32_t first = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            s->user_first[i] = first;
            first += s->user_count[i];
            s->user_count[i] = 0;
        }
        s->user = hd_new_array(a, hir_diff_user, total);
    }
}

static uint32_t *all_none(hd_arena *a, size_t n) {
    uint32_t *list = hd_new_array(a, uint32_t, n);
    for (size_t i = 0; i < n; i++)
        list[i] = HIR_NONE;
    return list;
}

static void flatten(hir_diff_side *s, const hir_module *m, hd_arena *a) {
    *s = (hir_diff_side){.m = m};
    s->op = hd_new_array(a, hir_id, m->ops.n);
    s->deep = hd_new_array(a, uint64_t, m->ops.n);
    s->value = hd_new_array(a, hir_diff_origin, m->values.n);
    for (uint32_t i = 0; i < m->inputs.n; i++)
        s->value[m->inputs.at[i]] = (hir_diff_origin){HIR_FROM_INPUT, i, 0};
    HIR_EACH(m, id, m->first) {
        if (hir_is_kernel(hir_op_at(m, id)))
            take_kernel(s, a, id);
        else
            take_op(s, id);
    }
    s->match = all_none(a, s->n);
    s->kernel_match = all_none(a, m->ops.n);
    find_users(s, a);
}

/* ---- equal expressions ----------------------------------------------------------------------- */
typedef struct hashed {
    uint64_t hash;
    uint32_t at;
} hashed;

static int by_hash(const void *x, const void *y) {
    const hashed *a = x, *b = y;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* The ops without a match, sorted by hash and then by program order. */
static hashed *sorted(const hir_diff_side *s, hd_arena *a, size_t *n) {
    hashed *list = hd_new_array(a, hashed, s->n);
    *n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->match[i] == HIR_NONE) list[(*n)++] = (hashed){s->deep[i], i};
    qsort(list, *n, sizeof *list, by_hash);
    return list;
}

static void pair(hir_diff_side *a, uint32_t i, hir_diff_side *b, uint32_t j) {
    a->match[i] = j;
    b->match[j] = i;
}

static size_t run_length(const hashed *list, size_t from, size_t n) {
    size_t end = from;
    while (end < n && list[end].hash == list[from].hash)
        end++;
    return end - from;
}

/* Pairs equal expressions in program order; `sure`: only those that both sides have equally often.
 */
static void pair_equal(hir_diff_side *a, hir_diff_side *b, hd_arena *arena, bool sure) {
    size_t na, nb, i = 0, j = 0;
    const hashed *x = sorted(a, arena, &na), *y = sorted(b, arena, &nb);
    while (i < na && j < nb) {
        if (x[i].hash != y[j].hash) {
            if (x[i].hash < y[j].hash)
                i++;
            else
                j++;
            continue;
        }
        const size_t p = run_length(x, i, na), q = run_length(y, j, nb);
        for (size_t k = 0; k < p && k < q && (p == q || !sure); k++)
            pair(a, x[i + k].at, b, y[j + k].at);
        i += p;
        j += q;
    }
}

/* ---- neighbours ------------------------------------------------------------------------------ */
typedef enum strictness { SAME_EXPRESSION, SAME_HEAD, SAME_CODE, STRICTNESSES } strictness;

enum {
    MOST_LOOKED_AT = 64, /* readers of one value, so that work stays linear in the module */
    MOST_SWEEPS = 64,
};

static bool same_source(const hir_diff_side *a, hir_diff_origin x, const hir_diff_side *b,
                        hir_diff_origin y) {
    if (x.kind != y.kind) return false;
    switch (x.kind) {
    case HIR_FROM_NOTHING: return true;
    case HIR_FROM_OP:
        return x.result == y.result &&
               (a->match[x.index] == y.index || a->deep[x.index] == b->deep[y.index]);
    case HIR_FROM_INPUT: return x.index == y.index;
    case HIR_FROM_WEIGHT:
        return strcmp(a->m->weights.at[x.index].name, b->m->weights.at[y.index].name) == 0;
    case HIR_FROM_STATE:
        return strcmp(a->m->states.at[x.index].name, b->m->states.at[y.index].name) == 0;
    }
    return false;
}

static bool share_a_reader(const hir_diff_side *a, uint32_t i, const hir_diff_side *b, uint32_t j) {
    for (uint32_t k = 0; k < a->user_count[i] && k < MOST_LOOKED_AT; k++) {
        const hir_diff_user u = a->user[a->user_first[i] + k];
        const uint32_t other = a->match[u.op];
        if (other == HIR_NONE) continue;
        const hir_op *op = hir_op_at(b->m, b->op[other]);
        if (u.operand >= op->n_args) continue;
        const hir_diff_origin from = hir_diff_source(b, op->args[u.operand]);
        if (from.kind == HIR_FROM_OP && from.index == j) return true;
    }
    return false;
}

/* A score for i and j being the same op; 0: they are not. */
static unsigned likeness(const hir_diff_side *a, uint32_t i, const hir_diff_side *b, uint32_t j,
                         strictness s) {
    const hir_op *x = hir_op_at(a->m, a->op[i]), *y = hir_op_at(b->m, b->op[j]);
    if (x->code != y->code) return 0;
    const bool heads = hash_head(x) == hash_head(y);
    if (s == SAME_EXPRESSION && a->deep[i] != b->deep[j]) return 0;
    if (s == SAME_HEAD && !heads) return 0;
    unsigned shared = 0;
    for (uint32_t k = 0; k < x->n_args && k < y->n_args; k++)
        if (x->args[k].kind != HIR_REF_NONE)
            shared +=
                same_source(a, hir_diff_source(a, x->args[k]), b, hir_diff_source(b, y->args[k]));
    const bool read = share_a_reader(a, i, b, j);
    return shared || read ? 1 + 4 * shared + 3 * read + 2 * heads : 0;
}

typedef struct candidate {
    uint32_t at;
    unsigned score;
} candidate;

static void consider(const hir_diff_side *a, uint32_t i, const hir_diff_side *b, uint32_t j,
                     strictness s, candidate *best) {
    if (b->match[j] != HIR_NONE) return;
    const unsigned score = likeness(a, i, b, j, s);
    if (score > best->score || (score && score == best->score && j < best->at))
        *best = (candidate){j, score};
}

/* The best match for op i of a among the ops of b next to i's matched neighbours: users of its
 * matched operands, and operands of its matched users. */
static candidate best_neighbour(const hir_diff_side *a, uint32_t i, const hir_diff_side *b,
                                strictness s) {
    candidate best = {HIR_NONE, 0};
    const hir_op *op = hir_op_at(a->m, a->op[i]);
    for (uint32_t k = 0; k < op->n_args; k++) {
        const hir_diff_origin from = hir_diff_source(a, op->args[k]);
        if (from.kind != HIR_FROM_OP || a->match[from.index] == HIR_NONE) continue;
        const uint32_t maker = a->match[from.index];
        for (uint32_t u = 0; u < b->user_count[maker] && u < MOST_LOOKED_AT; u++)
            consider(a, i, b, b->user[b->user_first[maker] + u].op, s, &best);
    }
    for (uint32_t k = 0; k < a->user_count[i] && k < MOST_LOOKED_AT; k++) {
        const hir_diff_user u = a->user[a->user_first[i] + k];
        if (a->match[u.op] == HIR_NONE) continue;
        const hir_op *reader = hir_op_at(b->m, b->op[a->match[u.op]]);
        if (u.operand >= reader->n_args) continue;
        const hir_diff_origin from = hir_diff_source(b, reader->args[u.operand]);
        if (from.kind == HIR_FROM_OP) consider(a, i, b, from.index, s, &best);
    }
    return best;
}

static bool sweep(hir_diff_side *a, hir_diff_side *b, strictness s, bool forwards) {
    bool any = false;
    for (uint32_t k = 0; k < a->n; k++) {
        const uint32_t i = forwards ? k : a->n - 1 - k;
        if (a->match[i] != HIR_NONE) continue;
        const candidate best = best_neighbour(a, i, b, s);
        if (best.at == HIR_NONE) continue;
        pair(a, i, b, best.at);
        any = true;
    }
    return any;
}

static void pair_neighbours(hir_diff_side *a, hir_diff_side *b, strictness s) {
    for (int n = 0; n < MOST_SWEEPS; n++) {
        const bool down = sweep(a, b, s, true), up = sweep(a, b, s, false);
        if (!down && !up) return;
    }
}

/* Ops that read inputs, weights or state of the same name, and outputs of the same name: starting
 * points for matching neighbours in modules that differ everywhere. */
static uint64_t anchor_hash(const hir_diff_side *s, uint32_t i) {
    const hir_op *op = hir_op_at(s->m, s->op[i]);
    uint64_t h = mix(1, op->code);
    bool named = op->code == HIR_OUTPUT_OP || op->code == HIR_TRACE_OP;
    if (named) return mix_text(h, hir_attr_string(op, HIR_A_NAME, ""));
    for (uint32_t k = 0; k < op->n_args; k++) {
        const hir_diff_origin from = hir_diff_source(s, op->args[k]);
        if (from.kind == HIR_FROM_OP || from.kind == HIR_FROM_NOTHING) continue;
        h = hash_source(s, mix(h, k), from);
        named = true;
    }
    return named ? h : 0;
}

static hashed *sorted_anchors(const hir_diff_side *s, hd_arena *a, size_t *n) {
    hashed *list = hd_new_array(a, hashed, s->n);
    *n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint64_t h = s->match[i] == HIR_NONE ? anchor_hash(s, i) : 0;
        if (h) list[(*n)++] = (hashed){h, i};
    }
    qsort(list, *n, sizeof *list, by_hash);
    return list;
}

static void pair_anchors(hir_diff_side *a, hir_diff_side *b, hd_arena *arena) {
    size_t na, nb, i = 0, j = 0;
    const hashed *x = sorted_anchors(a, arena, &na), *y = sorted_anchors(b, arena, &nb);
    while (i < na && j < nb) {
        const size_t p = run_length(x, i, na), q = run_length(y, j, nb);
        if (x[i].hash < y[j].hash) {
            i += p;
        } else if (x[i].hash > y[j].hash) {
            j += q;
        } else {
            if (p == 1 && q == 1) pair(a, x[i].at, b, y[j].at);
            i += p;
            j += q;
        }
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */
typedef struct vote {
    hir_id a, b;
    uint32_t votes;
} vote;

static int by_kernels(const void *x, const void *y) {
    const vote *p = x, *q = y;
    if (p->a != q->a) return p->a < q->a ? -1 : 1;
    return p->b < q->b ? -1 : p->b > q->b;
}

static int by_votes(const void *x, const void *y) {
    const vote *p = x, *q = y;
    if (p->votes != q->votes) return p->votes > q->votes ? -1 : 1;
    return by_kernels(x, y);
}

static void elect(hir_diff_side *a, hir_diff_side *b, const vote *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const vote *v = &list[i];
        if (a->kernel_match[v->a] != HIR_NONE || b->kernel_match[v->b] != HIR_NONE) continue;
        a->kernel_match[v->a] = v->b;
        b->kernel_match[v->b] = v->a;
    }
}

/* Pairs kernels of the same kind by the number of matched ops that they share, most first. */
static void pair_kernels(hir_diff_side *a, hir_diff_side *b, hd_arena *arena) {
    vote *list = hd_new_array(arena, vote, a->n);
    size_t n = 0, kept = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->match[i] == HIR_NONE) continue;
        const hir_id ka = hir_op_at(a->m, a->op[i])->parent;
        const hir_id kb = hir_op_at(b->m, b->op[a->match[i]])->parent;
        if (ka == HIR_NONE || kb == HIR_NONE) continue;
        if (hir_op_at(a->m, ka)->code == hir_op_at(b->m, kb)->code) list[n++] = (vote){ka, kb, 1};
    }
    qsort(list, n, sizeof *list, by_kernels);
    for (size_t i = 0; i < n; i++) {
        if (kept && by_kernels(&list[kept - 1], &list[i]) == 0)
            list[kept - 1].votes++;
        else
            list[kept++] = list[i];
    }
    qsort(list, kept, sizeof *list, by_votes);
    elect(a, b, list, kept);
}

/* Kernels that only copy share no ops: they are paired by kind and name. */
static void pair_kernels_by_name(hir_diff_side *a, hir_diff_side *b) {
    for (size_t i = 0; i < a->kernels.n; i++) {
        const hir_id ka = a->kernels.at[i];
        const hir_op *x = hir_op_at(a->m, ka);
        for (size_t j = 0; j < b->kernels.n && a->kernel_match[ka] == HIR_NONE; j++) {
            const hir_id kb = b->kernels.at[j];
            const hir_op *y = hir_op_at(b->m, kb);
            if (b->kernel_match[kb] != HIR_NONE || x->code != y->code ||
                strcmp(hir_attr_string(x, HIR_A_NAME, ""), hir_attr_string(y, HIR_A_NAME, "")) != 0)
                continue;
            a->kernel_match[ka] = kb;
            b->kernel_match[kb] = ka;
        }
    }
}

void hir_diff_match(const hir_module *a, const hir_module *b, hd_arena *arena, hir_diff_side *sa,
                    hir_diff_side *sb) {
    flatten(sa, a, arena);
    flatten(sb, b, arena);
    pair_equal(sa, sb, arena, true);
    pair_neighbours(sa, sb, SAME_EXPRESSION);
    pair_equal(sa, sb, arena, false);
    pair_anchors(sa, sb, arena);
    for (strictness s = SAME_HEAD; s < STRICTNESSES; s++)
        pair_neighbours(sa, sb, s);
    pair_kernels(sa, sb, arena);
    pair_kernels_by_name(sa, sb);
}
