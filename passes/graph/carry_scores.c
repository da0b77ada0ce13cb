/* carry-scores: scores of attention that are sums over layers are carried from layer to layer.
 *
 * Needs    a graph; after absorb-latent and, for several ranks, shard-tensor.
 * Does     A residual system on attention's scores (RealFormer) is written with queries and keys of
 *          all layers so far laid end to end: layer l attends with concat(q_0 .. q_l) and caches
 *          concat(k_0 .. k_l), so that keys are cached and multiplied again and again. In a chain of
 *          such attentions each one adds the products of its newest part to what the one before has
 *          made (attention.carried), and caches that part alone. What is carried is a state of kind
 *          scores, which lives for one call: a number for each position, token and head. One is
 *          written for a chain where it is read and written at less cost than keys would be.
 * Leaves   chains of which a link does not need the result of the one before, attention with a bias
 *          or a soft cap, and modules whose ranges of layers take turns among the chunks of a call
 *          (virtual stages).
 */
#include <string.h>

#include "passes/util.h"

typedef struct heads_part { /* of queries and of keys */
    hir_ref q, k;
} heads_part;

typedef struct attention {
    hir_id op, append; /* append: of the keys */
    HD_VEC(heads_part) parts;
    uint32_t next, before; /* index of a link of the chain; HIR_NONE: none */
} attention;

typedef struct carrier {
    hir_pass_context *c;
    hir_module *m;
    hir_uses uses;
    uint32_t *order; /* by op */
    uint32_t *seen;  /* by op: number of the search that came here */
    uint32_t searches;
    HD_VEC(attention) list;
} carrier;

/* ---- reading ------------------------------------------------------------------------------- */
typedef HD_VEC(hir_ref) ref_list;

/* Operands of nested concats along the entries of heads; of another value itself. */
static void flatten(const carrier *s, hir_ref x, ref_list *out) {
    const hir_id op = pass_def_if(s->m, x, HIR_CONCAT_OP);
    if (op == HIR_NONE || hir_attr_int(hir_op_at(s->m, op), HIR_A_AXIS, 0) != 2) {
        hd_push(s->c->scratch, out, x);
        return;
    }
    for (uint32_t i = 0; i < hir_op_at(s->m, op)->n_args; i++)
        flatten(s, pass_arg(s->m, op, i), out);
}

static bool read_parts(const carrier *s, attention *a) {
    ref_list q = {0}, k = {0};
    flatten(s, pass_arg(s->m, a->op, 0), &q);
    flatten(s, pass_arg(s->m, a->append, 0), &k);
    if (q.n != k.n) return false;
    for (size_t i = 0; i < q.n; i++) {
        if (hir_ref_type(s->m, q.at[i]).dim[2] != hir_ref_type(s->m, k.at[i]).dim[2]) return false;
        hd_push(s->c->scratch, &a->parts, ((heads_part){q.at[i], k.at[i]}));
    }
    return true;
}

/* Attention over cached rows that nothing else reads, with logits that are products alone. */
static bool read_attention(const carrier *s, hir_id op, attention *a) {
    const hir_op *o = hir_op_at(s->m, op);
    *a = (attention){.op = op, .next = HIR_NONE, .before = HIR_NONE};
    if (o->code != HIR_ATTENTION_OP || o->args[4].kind != HIR_REF_NONE ||
        hir_find_attr(o, HIR_A_SOFTCAP) || hir_arg_type(s->m, op, 0).dim[0] != HIR_T)
        return false;
    if (hir_state_of_value(s->m, o->args[1]) == HIR_NONE) return false;
    a->append = pass_def(s->m, o->args[1]);
    return s->uses.count[o->args[1].index] == 1 && read_parts(s, a);
}

/* Does x need the result of op `made`? */
static bool needs(carrier *s, hir_ref x, hir_id made) {
    HD_VEC(hir_id) open = {0};
    const hir_id first = pass_def(s->m, x);
    s->searches++;
    if (first != HIR_NONE) hd_push(s->c->scratch, &open, first);
    while (open.n) {
        const hir_id op = open.at[--open.n];
        if (op == made) return true;
        if (s->order[op] < s->order[made] || s->seen[op] == s->searches) continue;
        s->seen[op] = s->searches;
        for (uint32_t i = 0; i < hir_op_at(s->m, op)->n_args; i++) {
            const hir_id by = pass_def(s->m, pass_arg(s->m, op, i));
            if (by != HIR_NONE) hd_push(s->c->scratch, &open, by);
        }
    }
    return false;
}

/* ---- chains -------------------------------------------------------------------------------- */
static int64_t window_of(const carrier *s, const attention *a) {
    return hir_attr_int(hir_op_at(s->m, a->op), HIR_A_WINDOW, INT64_MAX);
}

static double scale_of(const carrier *s, const attention *a) {
    return hir_attr_float(hir_op_at(s->m, a->op), HIR_A_SCALE, 1);
}

/* Are b's parts those of a and one more? */
static bool extends(const attention *a, const attention *b) {
    if (a->parts.n + 1 != b->parts.n) return false;
    for (size_t i = a->parts.n; i-- > 0;)
        if (!hir_ref_equal(a->parts.at[i].q, b->parts.at[i].q) ||
            !hir_ref_equal(a->parts.at[i].k, b->parts.at[i].k))
            return false;
    return true;
}

/* NULL: b, which extends a, may follow it in a chain; else the reason why not. */
static const char *why_not(carrier *s, const attention *a, const attention *b) {
    if (a->next != HIR_NONE) return "another attention continues the same scores";
    if (hir_arg_type(s->m, a->op, 1).dtype != hir_arg_type(s->m, b->op, 1).dtype)
        return "its keys are rounded to another type than those before";
    if (window_of(s, b) > window_of(s, a))
        return "it sees positions that the attention before does not see";
    if (scale_of(s, a) == 0) return "the scores before have the factor 0";
    if (!needs(s, b->parts.at[b->parts.n - 1].q, a->op))
        return "it does not need the result of the attention before, so it may be done first";
    return NULL;
}

static void link_to_earlier(carrier *s, uint32_t number) {
    attention *b = &s->list.at[number];
    for (uint32_t i = number; i-- > 0;) {
        attention *a = &s->list.at[i];
        if (!extends(a, b)) continue;
        const char *why = why_not(s, a, b);
        if (why) {
            hir_remark_add(s->c, false, b->op, "its scores are not carried: %s", why);
            return;
        }
        a->next = number;
        b->before = i;
        return;
    }
}

/* ---- rewriting ----------------------------------------------------------------------------- */
/* Bytes for each position and token: of keys that are not read again, and of scores. */
typedef struct gain {
    uint32_t links;
    int64_t keys, scores;
} gain;

static gain gain_of(const carrier *s, uint32_t first) {
    gain g = {0};
    for (uint32_t i = first; i != HIR_NONE; i = s->list.at[i].next, g.links++) {
        const attention *a = &s->list.at[i];
        const hir_type q = hir_arg_type(s->m, a->op, 0), k = hir_arg_type(s->m, a->op, 1);
        const int64_t own = hir_ref_type(s->m, a->parts.at[a->parts.n - 1].k).dim[2];
        g.scores += q.dim[1] * (int64_t)sizeof(float) * (i == first ? 1 : 2);
        if (i != first) g.keys += k.dim[1] * (k.dim[2] - own) * (int64_t)hir_dtype_bytes(k.dtype);
    }
    return g;
}

static uint32_t new_scores(carrier *s, int64_t heads, hd_loc loc) {
    const char *name = "attention.scores";
    for (int i = 2; hir_find_state(s->m, name) != HIR_NONE; i++)
        name = hd_printf(s->c->scratch, "attention.scores%d", i);
    const hir_type type = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_C, heads});
    return hir_add_state(s->m, name, HIR_STATE_SCORES, type, loc);
}

/* The newest part alone is cached, and multiplied. */
static hir_ref keep_newest(carrier *s, const attention *a) {
    const heads_part *newest = &a->parts.at[a->parts.n - 1];
    hir_op *append = hir_op_at(s->m, a->append);
    const int64_t width = hir_ref_type(s->m, newest->k).dim[2];
    append->args[0] = newest->k;
    s->m->states.at[hir_written_state(s->m, a->append)].type.dim[2] = width;
    hir_value_at(s->m, append->results[0])->type.dim[2] = width;
    return newest->q;
}

static bool carry(carrier *s, const attention *a, double scale, uint32_t scores,
                  pass_forward *forward) {
    const hir_op *o = hir_op_at(s->m, a->op);
    const bool begins = a->before == HIR_NONE;
    const double factor = scale_of(s, a) / scale;
    hir_builder b = hir_before(s->m, s->c->diags, a->op);
    hir_attr attrs[4] = {hir_float(HIR_A_SCALE, scale)};
    uint32_t n = 1;
    b.loc = *o->loc;
    if (factor != 1) attrs[n++] = hir_float(HIR_A_FACTOR, factor);
    if (begins) attrs[n++] = hir_int(HIR_A_BEGIN, 1);
    if (hir_find_attr(o, HIR_A_WINDOW)) attrs[n++] = hir_int(HIR_A_WINDOW, window_of(s, a));
    hir_ref args[] = {o->args[0], o->args[1], o->args[2], o->args[3], hir_state_ref(scores)};
    if (!begins) args[0] = keep_newest(s, a);
    const hir_ref y = hir_emit(&b, hir_form(HIR_FORM_CARRIED)->op, args, 5, attrs, n);
    if (y.kind == HIR_REF_NONE) return false;
    pass_forward_op(forward, s->m, a->op, y);
    return true;
}

static bool carry_chain(carrier *s, uint32_t first, pass_forward *forward) {
    const attention *a = &s->list.at[first];
    const gain g = gain_of(s, first);
    if (g.keys <= g.scores) {
        hir_remark_add(s->c, false, a->op,
                       "scores of %u attentions are not carried: %lld bytes of them would be read "
                       "and written for each position, keys are %lld",
                       g.links, (long long)g.scores, (long long)g.keys);
        return true;
    }
    hir_remark_add(s->c, true, a->op,
                   "scores are carried through %u attentions: for each position %lld bytes of them "
                   "are read and written instead of %lld of keys of earlier layers",
                   g.links, (long long)g.scores, (long long)g.keys);
    const double scale = scale_of(s, a);
    const uint32_t scores =
        new_scores(s, hir_arg_type(s->m, a->op, 0).dim[1], *hir_op_at(s->m, a->op)->loc);
    for (uint32_t i = first; i != HIR_NONE; i = s->list.at[i].next)
        if (!carry(s, &s->list.at[i], scale, scores, forward)) return false;
    return s->c->changed = true;
}

/* ---- the pass ------------------------------------------------------------------------------ */
static void find_attentions(carrier *s) {
    uint32_t number = 0;
    attention a;
    HIR_EACH(s->m, op, s->m->first) {
        s->order[op] = number++;
        if (!read_attention(s, op, &a)) continue;
        hd_push(s->c->scratch, &s->list, a);
        if (a.parts.n > 1) link_to_earlier(s, (uint32_t)s->list.n - 1);
    }
}

static bool is_chain(const carrier *s, uint32_t i) {
    return s->list.at[i].before == HIR_NONE && s->list.at[i].next != HIR_NONE;
}

bool pass_carry_scores(hir_pass_context *c) {
    const size_t ops = c->m->ops.n;
    carrier s = {.c = c, .m = c->m, .uses = hir_compute_uses(c->m, c->scratch)};
    s.order = hd_new_array(c->scratch, uint32_t, ops);
    s.seen = hd_new_array(c->scratch, uint32_t, ops);
    find_attentions(&s);
    pass_forward forward = {.arena = c->scratch};
    for (uint32_t i = 0; i < s.list.n; i++) {
        if (!is_chain(&s, i)) continue;
        if (c->options->virtual_stages > 1)
            hir_remark_add(
                c, false, s.list.at[i].op,
                "scores are not carried: ranges of layers take turns among the chunks of "
                "a call, and keys of %lld bytes are read again for each position",
                (long long)gain_of(&s, i).keys);
        else if (!carry_chain(&s, i, &forward))
            return false;
    }
    pass_forward_finish(&forward, c->m);
    return true;
}
