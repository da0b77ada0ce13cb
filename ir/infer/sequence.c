/* Type rules of positions, of state over time, and of attention. */
#include <math.h>
#include <string.h>

#include "ir/infer/rules.h"

/* ---- rotary tables ------------------------------------------------------------------------- */
/* A scaling of frequencies: the attributes that it needs, and those that it may have. */
typedef struct scaling {
    const char *name;
    hir_attr_id needs[4], may[3]; /* HIR_A_AXIS, which no table has, ends a list */
} scaling;

static const scaling scalings[] = {
    {"linear", {HIR_A_FACTOR}, {0}},
    {"llama3", {HIR_A_FACTOR, HIR_A_LOW_FREQ, HIR_A_HIGH_FREQ, HIR_A_ORIGINAL}, {0}},
    {"yarn", {HIR_A_FACTOR, HIR_A_ORIGINAL}, {HIR_A_BETA_FAST, HIR_A_BETA_SLOW, HIR_A_TRUNCATE}},
    {"longrope", {HIR_A_SHORT_FACTORS, HIR_A_LONG_FACTORS, HIR_A_ORIGINAL}, {0}},
};
enum { SCALINGS = sizeof scalings / sizeof *scalings };

/* All attributes that belong to some scaling. */
static const hir_attr_id of_scalings[] = {
    HIR_A_FACTOR,    HIR_A_LOW_FREQ, HIR_A_HIGH_FREQ,     HIR_A_ORIGINAL,     HIR_A_BETA_FAST,
    HIR_A_BETA_SLOW, HIR_A_TRUNCATE, HIR_A_SHORT_FACTORS, HIR_A_LONG_FACTORS,
};

static bool is_listed(const hir_attr_id *list, size_t n, hir_attr_id id) {
    for (size_t i = 0; i < n && list[i] != HIR_A_AXIS; i++)
        if (list[i] == id) return true;
    return false;
}

/* NULL: no scaling is known by this name. */
static const scaling *scaling_by_name(const char *name) {
    for (size_t i = 0; i < SCALINGS; i++)
        if (strcmp(scalings[i].name, name) == 0) return &scalings[i];
    return NULL;
}

static bool unknown_scaling(hir_check *c, const char *name) {
    hd_text known;
    hd_text_init(&known, c->d->arena);
    for (size_t i = 0; i < SCALINGS; i++)
        hd_text_f(&known, "%s\"%s\"",
                  i == 0             ? "the scalings are "
                  : i + 1 < SCALINGS ? ", "
                                     : " and ",
                  scalings[i].name);
    return hir_reject(c, HD_E_VALUE, known.at, "scaling \"%s\" is not known", name);
}

/* Has the op what its scaling needs, and nothing of another one? */
static bool has_what_it_needs(hir_check *c, const scaling *s) {
    for (size_t i = 0; i < sizeof of_scalings / sizeof *of_scalings; i++) {
        const hir_attr_id id = of_scalings[i];
        const bool given = hir_find_attr(c->op, id) != NULL;
        const bool needs = s && is_listed(s->needs, 4, id);
        if (needs && !given)
            return hir_reject(c, HD_E_TYPE, NULL, "scaling \"%s\" needs the attribute '%s'",
                              s->name, hir_attr_name(id));
        if (!given || needs || (s && is_listed(s->may, 3, id))) continue;
        const char *with =
            s ? hd_printf(c->d->arena, "with scaling \"%s\"", s->name) : "without a scaling";
        return hir_reject(c, HD_E_TYPE, NULL, "attribute '%s' means nothing %s", hir_attr_name(id),
                          with);
    }
    return true;
}

static bool is_below(hir_check *c, hir_attr_id low, hir_attr_id high) {
    if (hir_attr_float(c->op, low, 0) < hir_attr_float(c->op, high, 0)) return true;
    return hir_reject(c, HD_E_VALUE, NULL, "'%s' must be less than '%s'", hir_attr_name(low),
                      hir_attr_name(high));
}

/* A list of positive factors, one for each frequency. */
static bool factors_fit(hir_check *c, hir_attr_id id) {
    const hir_attr *a = hir_find_attr(c->op, id);
    const int64_t half = hir_attr_int(c->op, HIR_A_LENGTH, 0) / 2;
    if (!a) return true;
    if ((int64_t)a->n != half)
        return hir_reject(c, HD_E_VALUE, "there is one for each pair of entries that rotates",
                          "'%s' has %u entr%s, not %lld", hir_attr_name(id), a->n,
                          a->n == 1 ? "y" : "ies", (long long)half);
    for (uint32_t i = 0; i < a->n; i++)
        if (!isfinite(a->floats[i]) || a->floats[i] <= 0)
            return hir_reject(c, HD_E_VALUE, NULL,
                              "entry %u of '%s' must be finite and more than 0", i,
                              hir_attr_name(id));
    return true;
}

static bool numbers_fit(hir_check *c, const scaling *s) {
    static const hir_attr_id positive[] = {HIR_A_FACTOR,    HIR_A_LOW_FREQ,
                                           HIR_A_HIGH_FREQ, HIR_A_BETA_FAST,
                                           HIR_A_BETA_SLOW, HIR_A_ATTENTION_FACTOR};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (!hir_finite(c, positive[i], true)) return false;
    if (hir_find_attr(c->op, HIR_A_LOW_FREQ) && !is_below(c, HIR_A_LOW_FREQ, HIR_A_HIGH_FREQ))
        return false;
    if (hir_find_attr(c->op, HIR_A_ORIGINAL) && hir_attr_int(c->op, HIR_A_ORIGINAL, 0) <= 0)
        return hir_reject(c, HD_E_VALUE, NULL, "'original_positions' must be more than 0");
    const int64_t truncate = hir_attr_int(c->op, HIR_A_TRUNCATE, 1);
    if (truncate != 0 && truncate != 1)
        return hir_reject(c, HD_E_VALUE, NULL, "'truncate' is %lld; it must be 0 or 1",
                          (long long)truncate);
    if (s && strcmp(s->name, "yarn") == 0) {
        if (hir_attr_float(c->op, HIR_A_BETA_SLOW, 1) > hir_attr_float(c->op, HIR_A_BETA_FAST, 32))
            return hir_reject(c, HD_E_VALUE, NULL, "'beta_slow' must not be more than 'beta_fast'");
        if (hir_attr_float(c->op, HIR_A_THETA, 0) <= 1)
            return hir_reject(c, HD_E_VALUE, NULL,
                              "scaling \"yarn\" needs a 'theta' of more than 1");
    }
    return factors_fit(c, HIR_A_SHORT_FACTORS) && factors_fit(c, HIR_A_LONG_FACTORS);
}

static bool scaling_fits(hir_check *c) {
    const char *name = hir_attr_string(c->op, HIR_A_SCALING, NULL);
    const scaling *s = name ? scaling_by_name(name) : NULL;
    if (name && !s) return unknown_scaling(c, name);
    return has_what_it_needs(c, s) && numbers_fit(c, s);
}

bool hir_rule_rope_table(hir_check *c, hir_type *y) {
    const int64_t length = hir_attr_int(c->op, HIR_A_LENGTH, 0);
    const int64_t rotating = hir_attr_int(c->op, HIR_A_ROTATING, length / 2);
    if (length < 2 || length % 2 || length > HIR_MAX_DIM)
        return hir_reject(c, HD_E_VALUE, NULL, "'length' is %lld; it must be even and at least 2",
                          (long long)length);
    const int64_t offset = hir_attr_int(c->op, HIR_A_OFFSET, 0);
    if (offset < -HIR_MAX_DIM || offset > HIR_MAX_DIM)
        return hir_reject(c, HD_E_VALUE, NULL, "'offset' is %lld; it must be from %d to %d",
                          (long long)offset, -HIR_MAX_DIM, HIR_MAX_DIM);
    if (rotating < 0 || rotating > length / 2)
        return hir_reject(c, HD_E_VALUE, "it counts the pairs of entries that rotate",
                          "'rotating' is %lld; it must be from 0 to %lld", (long long)rotating,
                          (long long)length / 2);
    y->rank = 2;
    y->dim[0] = HIR_T;
    y->dim[1] = length;
    return hir_finite(c, HIR_A_THETA, true) && scaling_fits(c);
}

bool hir_rule_rope(hir_check *c, hir_type *y) {
    if (!hir_rule_unary(c, y) || !hir_plain(c, 1) || !hir_rank_is(c, 0, 3, "[T, H, n]"))
        return false;
    const hir_type x = hir_arg(c, 0), table = hir_arg(c, 1);
    const int64_t start = hir_attr_int(c->op, HIR_A_START, 0);
    const char *pairs = hir_attr_string(c->op, HIR_A_PAIRS, "halves");
    if (!hir_type_has_t(x))
        return hir_reject(c, HD_E_TYPE, NULL, "operand x must be [T, H, n], not %s",
                          hir_type_text(c, x));
    if (table.rank != 2 || table.dim[0] != x.dim[0] || table.dim[1] % 2 || table.dim[1] > x.dim[2])
        return hir_reject(c, HD_E_TYPE, "rope_table makes one",
                          "operand table must be [T, m] with an even m of at most %lld, not %s",
                          (long long)x.dim[2], hir_type_text(c, table));
    if (start < 0 || start > x.dim[2] - table.dim[1])
        return hir_reject(
            c, HD_E_VALUE, NULL,
            "'start' is %lld; it must be from 0 to %lld, as the table rotates %lld of "
            "the %lld entries of a head",
            (long long)start, (long long)(x.dim[2] - table.dim[1]), (long long)table.dim[1],
            (long long)x.dim[2]);
    return strcmp(pairs, "halves") == 0 || strcmp(pairs, "adjacent") == 0 ||
           hir_reject(c, HD_E_VALUE, NULL,
                      "'pairs' is \"%s\"; it is one of \"halves\", \"adjacent\"", pairs);
}

/* ---- state over time ----------------------------------------------------------------------- */
bool hir_rule_cache_append(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 0) || !hir_is_value(c, 0) || !hir_rank_is(c, 0, 3, "[T, G, n]")) return false;
    hir_type x = hir_arg(c, 0), like;
    if (!hir_type_has_t(x))
        return hir_reject(c, HD_E_TYPE, NULL, "operand x must be [T, G, n], not %s",
                          hir_type_text(c, x));
    *y = hir_arg(c, 1);
    like = x;
    like.dim[0] = hir_type_has_c(*y) ? y->dim[0] : HIR_C;
    like.dtype = y->dtype; /* cache_append rounds x to the state's type */
    return hir_type_equal(like, *y) ||
           hir_reject(c, HD_E_TYPE, NULL, "x is %s, so the state must be %s, not %s",
                      hir_type_text(c, x), hir_type_text(c, like), hir_type_text(c, *y));
}

static bool is_cache(hir_check *c, uint32_t i) {
    hir_type t = hir_arg(c, i);
    if (!hir_is_value(c, i)) return false;
    return (t.rank == 3 && t.dim[0] == HIR_C) ||
           hir_reject(c, HD_E_TYPE, "cache_append makes such a value from rows [T, G, n]",
                      "operand %s must be [C, G, n], not %s", hir_arg_name(c, i),
                      hir_type_text(c, t));
}

/* One logit per head, the same for every token or not. */
static bool sink_fits(hir_check *c, uint32_t i, int64_t heads) {
    if (!hir_has_arg(c, i)) return true;
    if (!hir_plain(c, i)) return false;
    const hir_type t = hir_arg(c, i);
    const bool fixed = t.rank == 1 && t.dim[0] == heads;
    const bool by_token = t.rank == 2 && t.dim[0] == HIR_T && t.dim[1] == heads;
    return fixed || by_token ||
           hir_reject(c, HD_E_TYPE, NULL, "operand sink must be [%lld] or [T, %lld], not %s",
                      (long long)heads, (long long)heads, hir_type_text(c, t));
}

static bool bias_fits(hir_check *c, uint32_t i, int64_t heads) {
    if (!hir_has_arg(c, i)) return true;
    if (!hir_plain(c, i)) return false;
    const hir_type t = hir_arg(c, i);
    return (t.rank == 3 && t.dim[0] == HIR_T && t.dim[1] == heads) ||
           hir_reject(c, HD_E_TYPE, "extent counts distances from 0, the token itself, on",
                      "operand bias must be [T, %lld, extent], not %s", (long long)heads,
                      hir_type_text(c, t));
}

static bool window_fits(hir_check *c) {
    const int64_t window = hir_attr_int(c->op, HIR_A_WINDOW, 1);
    if (window < 1 || window > HIR_MAX_DIM)
        return hir_reject(
            c, HD_E_VALUE, "it counts the positions seen, with that of the token itself",
            "'window' is %lld; it must be from 1 to %d", (long long)window, HIR_MAX_DIM);
    return true;
}

static bool options_fit(hir_check *c, uint32_t sink, int64_t heads) {
    return sink_fits(c, sink, heads) && bias_fits(c, sink + 1, heads) && window_fits(c) &&
           hir_finite(c, HIR_A_SOFTCAP, true);
}

/* G key/value heads for H query heads. */
static bool heads_divide(hir_check *c, int64_t groups, int64_t heads) {
    return heads % groups == 0 ||
           hir_reject(c, HD_E_TYPE, "each key/value head serves as many query heads as any other",
                      "the number of query heads, %lld, is no multiple of that of key/value heads, "
                      "%lld",
                      (long long)heads, (long long)groups);
}

/* q, k and v of attention, whose result is *y */
static bool heads_fit(hir_check *c, hir_type *y) {
    if (!hir_rule_unary(c, y) || !hir_rank_is(c, 0, 3, "[T, H, n]") || !is_cache(c, 1) ||
        !is_cache(c, 2) || !hir_finite(c, HIR_A_SCALE, false))
        return false;
    hir_type q = hir_arg(c, 0), k = hir_arg(c, 1), v = hir_arg(c, 2);
    if (!hir_type_has_t(q))
        return hir_reject(c, HD_E_TYPE, NULL, "operand q must be [T, H, n], not %s",
                          hir_type_text(c, q));
    if (q.dim[2] != k.dim[2])
        return hir_reject(c, HD_E_TYPE, NULL, "q is %s and k is %s: the head sizes differ",
                          hir_type_text(c, q), hir_type_text(c, k));
    if (k.dim[1] != v.dim[1])
        return hir_reject(c, HD_E_TYPE, NULL, "k is %s and v is %s: the head counts differ",
                          hir_type_text(c, k), hir_type_text(c, v));
    y->dim[2] = v.dim[2];
    return heads_divide(c, k.dim[1], q.dim[1]);
}

bool hir_rule_attention(hir_check *c, hir_type *y) {
    return heads_fit(c, y) && options_fit(c, 3, y->dim[1]);
}

bool hir_rule_attention_carried(hir_check *c, hir_type *y) {
    if (!heads_fit(c, y) || !sink_fits(c, 3, y->dim[1]) || !window_fits(c) ||
        !hir_finite(c, HIR_A_FACTOR, false))
        return false;
    const int64_t begin = hir_attr_int(c->op, HIR_A_BEGIN, 0);
    if (begin != 0 && begin != 1)
        return hir_reject(c, HD_E_VALUE, NULL, "'begin' is %lld; it must be 0 or 1",
                          (long long)begin);
    return hir_takes_state(c, 4, HIR_STATE_SCORES, 2, (int64_t[]){HIR_C, y->dim[1]});
}

/* ---- latent attention ---------------------------------------------------------------------- */
/* Operands of the two forms: where q is, what follows it, and how many elements the latent has. */
typedef struct latent_rule {
    uint32_t q, rows, q_shared, shared;
    int64_t r;
} latent_rule;

static bool is_query(hir_check *c, uint32_t i) {
    hir_type q = hir_arg(c, i);
    return (hir_plain(c, i) && q.rank == 3 && hir_type_has_t(q)) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be [T, H, n], not %s",
                      hir_arg_name(c, i), hir_type_text(c, q));
}

/* Checks q_shared and what it is multiplied with: `left` elements of a row, or rows of their own.
 */
static bool shared_part_fits(hir_check *c, const latent_rule *l, int64_t left) {
    const hir_type q = hir_arg(c, l->q), rows = hir_arg(c, l->rows);
    const bool own = hir_has_arg(c, l->shared);
    if (own && left)
        return hir_reject(c, HD_E_TYPE, NULL,
                          "the latent has %lld element%s, so rows must be [C, %lld, %lld], not %s",
                          (long long)l->r, hd_s((uint64_t)l->r), (long long)rows.dim[1],
                          (long long)l->r, hir_type_text(c, rows));
    if (own && !is_cache(c, l->shared)) return false;
    if (own && hir_arg(c, l->shared).dim[1] != rows.dim[1])
        return hir_reject(c, HD_E_TYPE, NULL, "operand shared must be [C, %lld, m], not %s",
                          (long long)rows.dim[1], hir_type_text(c, hir_arg(c, l->shared)));
    const int64_t m = own ? hir_arg(c, l->shared).dim[2] : left;
    if (!m)
        return !hir_has_arg(c, l->q_shared) ||
               hir_reject(c, HD_E_TYPE, NULL, "operand q_shared has no keys to be multiplied with");
    if (!hir_has_arg(c, l->q_shared))
        return hir_reject(c, HD_E_TYPE, NULL, "operand q_shared is missing");
    if (!is_query(c, l->q_shared)) return false;
    const hir_type p = hir_arg(c, l->q_shared);
    return (p.dim[1] == q.dim[1] && p.dim[2] == m) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand q_shared must be [T, %lld, %lld], not %s",
                      (long long)q.dim[1], (long long)m, hir_type_text(c, p));
}

static bool latent_fits(hir_check *c, const latent_rule *l) {
    if (!is_query(c, l->q) || !is_cache(c, l->rows) || !hir_finite(c, HIR_A_SCALE, false))
        return false;
    const hir_type rows = hir_arg(c, l->rows);
    const int64_t start = hir_attr_int(c->op, HIR_A_START, 0), left = rows.dim[2] - l->r;
    if (left < 0 || (start != 0 && start != left))
        return hir_reject(
            c, HD_E_VALUE, "the latent is the first or the last elements of a row",
            "a latent of length %lld from element %lld on is at no end of the rows %s",
            (long long)l->r, (long long)start, hir_type_text(c, rows));
    return heads_divide(c, rows.dim[1], hir_arg(c, l->q).dim[1]) && shared_part_fits(c, l, left);
}

bool hir_rule_attention_latent(hir_check *c, hir_type *y) {
    if (!is_query(c, 0)) return false;
    const latent_rule l = {
        .q = 0, .rows = 1, .q_shared = 2, .shared = 3, .r = hir_arg(c, 0).dim[2]};
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    return latent_fits(c, &l) && options_fit(c, 4, y->dim[1]);
}

/* [K, n, r] */
static bool is_map(hir_check *c, uint32_t i) {
    return hir_plain(c, i) && hir_rank_is(c, i, 3, "[K, n, r]");
}

bool hir_rule_attention_expanded(hir_check *c, hir_type *y) {
    if (!is_query(c, 0) || !is_query(c, 1) || !is_map(c, 5) || !is_map(c, 6)) return false;
    const hir_type o = hir_arg(c, 0), q = hir_arg(c, 1), k = hir_arg(c, 5), v = hir_arg(c, 6);
    const latent_rule l = {.q = 1, .rows = 2, .q_shared = 3, .shared = 4, .r = k.dim[2]};
    if (k.dim[0] != v.dim[0] || k.dim[2] != v.dim[2] || k.dim[1] != q.dim[2])
        return hir_reject(c, HD_E_TYPE, NULL,
                          "q is %s, w_k %s and w_v %s: w_k must be [K, n, r], w_v [K, m, r]",
                          hir_type_text(c, q), hir_type_text(c, k), hir_type_text(c, v));
    if (!latent_fits(c, &l) || !heads_divide(c, k.dim[0], q.dim[1]) ||
        !heads_divide(c, hir_arg(c, 2).dim[1], k.dim[0]))
        return false;
    *y = q;
    y->dtype = HIR_F32, y->dim[2] = v.dim[1];
    if (!hir_type_equal(o, *y))
        return hir_reject(c, HD_E_TYPE, NULL, "operand otherwise must be %s, not %s",
                          hir_type_text(c, *y), hir_type_text(c, o));
    if (hir_attr_int(c->op, HIR_A_MOST, 1) < 1)
        return hir_reject(c, HD_E_VALUE, NULL, "'most' is %lld; it must be 1 or more",
                          (long long)hir_attr_int(c->op, HIR_A_MOST, 1));
    return options_fit(c, 7, y->dim[1]);
}
