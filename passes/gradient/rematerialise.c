/* rematerialise: less memory for more work.
 *
 * Needs    a model with its gradients (differentiate), as fuse takes it, and a bound of memory.
 * Does     What the backward half reads of the forward half is kept until then. Where the bytes of all
 *          that is kept are more than the bound allows, some of these values are computed a second
 *          time, by the same ops, shortly before the backward half reads them:
 *
 *              %3 = silu %1                      %3 = silu %1
 *              ..                                ..
 *              %8 = linear_grad %7, %3     ->    %8 = after %1, %7
 *                                                %9 = silu %8
 *                                                %10 = linear_grad %7, %9
 *
 *          `after` says when: not before the gradient %7 is there.
 * Leaves   choices, which stay what they were; all else. Without a bound, or where all fits, nothing
 *          is computed again.
 *
 * Which values. A value costs its bytes if it is kept; if it is computed again it costs its work, at so
 * many FLOPs for a byte, and its operands have to be there, kept or computed again themselves. The
 * cheapest choice is a minimum cut, with two nodes for a value v:
 *
 *     source -> n(v)    uncut, if the backward half reads v
 *     n(v) -> r(v)      its bytes: cut where v is kept
 *     r(v) -> sink      its work: cut where v is computed again; uncut if it must not be
 *     r(v) -> n(u)      uncut, for each operand u
 *
 * At a low rate only what costs next to nothing is computed again, such as norms and activations; at a
 * higher one contractions, attention last. The rate is the lowest at which the bound holds, found by
 * bisection; the later a value, the dearer its work, so that layers that are alike go one by one, the
 * first layers first: when the backward half comes to them, much else has been freed. Whether the bound
 * holds is not estimated: a copy of the module goes through the rest of the passes, up to the memory
 * plan.
 *
 * For how long. A value that is computed again for the last layer and read by the first layer would
 * be kept nearly as long as the original. So it must not be if the ops of the backward half that read
 * it, or for which something else is computed from it, are further apart than a window. Of a stream of
 * sums, each of which can be made of the one before, every so many then are kept: a short window keeps
 * many, a long one has many at once where they are computed again. Several are tried, and the one with
 * which the least memory is possible is taken.
 *
 * Where. A copy is made just before the first op of the backward half that reads it, with two
 * exceptions, so that row programs read fewer rows:
 *
 *     phases 1   The mixes of a phase 1 of attention over depth have the same sources. They are
 *                made again at once, where the first of them is needed: then the sources are read
 *                once for a block and not once for each mix. Until they are read they take memory,
 *                so that it is done for as many phases 1 as the bound allows, those of the first
 *                blocks: when the backward half comes to them, much else has been freed.
 *     norms      The gradient of a matrix needs dy and x = norm(h), that of the norm dx = dy W
 *                and h. A sum over tokens can wait: x is made again where h is read or made again
 *                for the gradient of the norm, and the sum moves there.
 */
#include <math.h>
#include <string.h>

#include "ir/kernel/tiled.h"
#include "passes/analysis/depth_backward.h"
#include "passes/gradient/min_cut.h"
#include "passes/util.h"
#include "support/known.h"

enum {
    WORK_OF_ELEMENT = 32, /* multiply-adds that take as long as one element of a row program */
    WINDOWS = 6,          /* all of the backward half, half of it, a quarter .. */
    RATES = 14,           /* steps of the bisection */
    RATE_BITS = 24,       /* the highest rate is 2^24 FLOPs for a byte */
};

typedef HD_VEC(hir_id) id_list;

typedef struct halves {
    hir_pass_context *c;
    const hir_module *m;
    HD_VEC(hir_id) program; /* ops in their order */
    uint32_t n_backward;
    bool *backward;  /* by op: does it depend on a gradient? */
    bool *may;       /* by value: may it be computed again, whatever reads it? */
    bool *of_loss;   /* by value: targets, a loss, a gradient of logits, or made of such */
    uint32_t *first; /* by value of the forward half: the first op of the backward half that reads
                      * it, by number in the program; HIR_NONE: there is none */
    uint32_t *sum;   /* the same of sums over tokens that can wait, which are not in `first` */
    uint32_t *last;  /* the last op of either kind */
    uint32_t *backwards; /* by number in the program: ops of the backward half before it */
    uint32_t *steps;  /* and products or kernels along the sequence on the longest way through the
                       * backward half to its operands */
    uint32_t *phase1; /* by value of the forward half: its phase; HIR_NONE: it is no mix */
    HD_VEC(id_list) phases; /* mixes of the same sources, all made before one of them is read */
} halves;

typedef struct choice { /* by value of the forward half */
    bool *again;        /* it is computed again, */
    uint32_t *at;       /* before the op of this number */
    uint32_t at_once;   /* the mixes of so many phases 1 are made again at once */
} choice;

/* ---- the two halves -------------------------------------------------------------------------- */
static uint64_t bytes_of(const halves *h, hir_id v) {
    const hir_type t = hir_value_at(h->m, v)->type;
    const int64_t n = pass_elements(t);
    return (uint64_t)(n > INT32_MAX ? INT32_MAX : n) * hir_dtype_bytes(t.dtype);
}

/* The value of the forward half that would have to be stored for the operand; HIR_NONE: there is
 * none. */
static hir_id stored(const halves *h, hir_ref r) {
    r = hir_through_reshapes(h->m, r);
    const hir_id op = pass_def(h->m, r);
    if (op == HIR_NONE || h->backward[op] || hir_op_at(h->m, op)->code == HIR_CONST_OP)
        return HIR_NONE;
    return hir_type_has_t(hir_ref_type(h->m, r)) ? r.index : HIR_NONE;
}

/* Rows of tokens that can be read at another time: inputs, and what is stored. */
static bool has_rows(const halves *h, hir_ref r) {
    r = hir_through_reshapes(h->m, r);
    if (r.kind != HIR_REF_VALUE || !hir_type_has_t(hir_ref_type(h->m, r))) return false;
    return pass_def(h->m, r) == HIR_NONE || stored(h, r) != HIR_NONE;
}

/* May the op run a second time? What changes a state may not; nor what chooses, since of numbers that
 * are rounded otherwise it might choose others; and without rows of tokens as operands nothing would
 * say when. */
static bool may_repeat(const halves *h, hir_id op) {
    const hir_op *o = hir_op_at(h->m, op);
    bool rows = false;
    if (o->n_results != 1 || !hir_has_trait(o->code, HIR_LOCAL | HIR_SEQUENCE)) return false;
    if (hir_has_trait(o->code, HIR_EFFECT | HIR_COMM | HIR_REDUCES_TOKENS)) return false;
    if (pass_result_type(h->m, op).dtype == HIR_I32) return false;
    for (uint32_t i = 0; i < o->n_args; i++)
        rows |= has_rows(h, o->args[i]);
    return rows;
}

/* What the sum of the losses depends on is the forward half; what reads the targets besides, to give
 * the losses their gradients, and all that depends on it, the backward half. The rest is read by the
 * backward half, but depends on the forward half alone: it counts as a part of that. */
static void find_halves(halves *h) {
    const hir_module *m = h->m;
    const bool *of_loss = hir_needed_by_loss(m, h->c->scratch);
    HIR_EACH(m, op, m->first)
    hd_push(h->c->scratch, &h->program, op);
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_id op = h->program.at[k];
        const hir_op *o = hir_op_at(m, op);
        const bool loss = !o->n_results || of_loss[o->results[0]];
        bool backward = false;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id made = pass_def(m, o->args[i]);
            backward |= made != HIR_NONE && h->backward[made];
            backward |= !loss && hir_ref_equal(o->args[i], hir_value_ref(m->inputs.at[1]));
        }
        h->backward[op] = backward;
        h->backwards[k] = h->n_backward;
        h->n_backward += backward;
    }
}

/* How far the backward half has come when the operands of op k are there. */
static void count_steps(halves *h) {
    uint32_t *steps = hd_new_array(h->c->scratch, uint32_t, h->m->values.n + 1);
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        const bool step = hir_is_linear(o->code) || hir_has_trait(o->code, HIR_SEQUENCE);
        if (!h->backward[h->program.at[k]]) continue;
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE && steps[o->args[i].index] > h->steps[k])
                h->steps[k] = steps[o->args[i].index];
        for (uint32_t i = 0; i < o->n_results; i++)
            steps[o->results[i]] = h->steps[k] + step;
    }
}

/* The gradient on which the op waits: of its operands the one that is made last. The none ref: it
 * waits on none, as it is the first. */
static hir_ref waits_on(const halves *h, hir_id op) {
    const hir_op *o = hir_op_at(h->m, op);
    hir_ref last = hir_no_ref();
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id made = pass_def(h->m, o->args[i]);
        if (made == HIR_NONE || !h->backward[made]) continue;
        if (last.kind == HIR_REF_NONE || made > pass_def(h->m, last)) last = o->args[i];
    }
    return last;
}

static bool reads_loss(const halves *h, const hir_op *o, uint64_t bytes) {
    bool any = false;
    for (uint32_t i = 0; i < o->n_args; i++)
        any |= o->args[i].kind == HIR_REF_VALUE && h->of_loss[o->args[i].index] &&
               bytes_of(h, o->args[i].index) >= bytes;
    return any;
}

/* Losses and the gradients of logits: what is made of targets, up to a product with a matrix. */
static void find_loss(halves *h) {
    h->of_loss[h->m->inputs.at[1]] = true; /* targets */
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        if (o->n_results != 1 || hir_is_linear(o->code)) continue;
        h->of_loss[o->results[0]] = reads_loss(h, o, 0);
    }
}

/* Does the op read gradients of logits that exist for some tokens at a time (tile-logits)? So must
 * all that it reads with them: nothing of that can be made again of rows that are made of the
 * gradients of all tokens. */
static bool is_of_tile(const halves *h, const hir_op *o) {
    const int64_t chunk = h->c->options->chunk;
    return chunk > 0 && reads_loss(h, o, (uint64_t)(HIR_MOST_LOGITS / chunk));
}

/* By op: is it a sum over tokens that can wait, as no row of tokens depends on it? Those of the
 * gradients of logits do not, since these take much memory. */
static bool *find_patient(const halves *h) {
    const hir_module *m = h->m;
    bool *patient = hd_new_array(h->c->scratch, bool, m->ops.n + 1);
    bool *awaited = hd_new_array(h->c->scratch, bool, m->values.n + 1);
    for (size_t k = h->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(m, h->program.at[k]);
        bool rows = hir_has_trait(o->code, HIR_EFFECT) && o->code != HIR_OUTPUT_OP;
        for (uint32_t i = 0; i < o->n_results; i++) {
            const hir_type t = hir_value_at(m, o->results[i])->type;
            rows |= awaited[o->results[i]] || hir_type_has_t(t) || hir_type_has_c(t);
        }
        for (uint32_t i = 0; rows && i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) awaited[o->args[i].index] = true;
    }
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_id op = h->program.at[k];
        const hir_op *o = hir_op_at(m, op);
        if (o->n_results != 1 || !h->backward[op] || awaited[o->results[0]]) continue;
        patient[op] = hir_has_trait(o->code, HIR_REDUCES_TOKENS) &&
                      !hir_has_trait(o->code, HIR_SEQUENCE) && !reads_loss(h, o, 0);
    }
    return patient;
}

/* A norm and the like, which row programs alone make. */
static bool needs_whole_rows(const halves *h, hir_id v) {
    const hir_opcode code = hir_op_at(h->m, hir_value_at(h->m, v)->op)->code;
    return hir_has_trait(code, HIR_COMPOSITE) && !hir_has_trait(code, HIR_ELEMENTWISE);
}

static void find_reads(halves *h) {
    const bool *patient = find_patient(h);
    for (size_t v = 0; v < h->m->values.n; v++)
        h->first[v] = h->last[v] = h->sum[v] = HIR_NONE;
    for (uint32_t k = 0; k < h->program.n; k++) {
        const hir_id op = h->program.at[k];
        const hir_op *o = hir_op_at(h->m, op);
        if (!h->backward[op]) {
            if (o->n_results) h->may[o->results[0]] = may_repeat(h, op);
            continue;
        }
        const bool waits = waits_on(h, op).kind != HIR_REF_NONE;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id v = stored(h, o->args[i]);
            if (v == HIR_NONE) continue;
            uint32_t *first = patient[op] && needs_whole_rows(h, v) ? h->sum : h->first;
            if (first[v] == HIR_NONE) first[v] = k;
            h->last[v] = k;
            h->may[v] &= waits && !is_of_tile(h, o);
        }
    }
}

/* ---- phases 1 -------------------------------------------------------------------------------- */
static bool same_sources(const halves *h, hir_id a, hir_id b) {
    const hir_op *x = hir_op_at(h->m, hir_value_at(h->m, a)->op);
    const hir_op *y = hir_op_at(h->m, hir_value_at(h->m, b)->op);
    bool same = x->n_args == y->n_args;
    for (uint32_t i = 1; same && i < x->n_args; i++)
        same = hir_ref_equal(x->args[i], y->args[i]);
    return same;
}

static void find_phases(halves *h) {
    const size_t n = h->m->values.n;
    /* By the first source: a phase that may have more mixes. */
    uint32_t *open = hd_new_array(h->c->scratch, uint32_t, n + 1);
    for (size_t v = 0; v < n; v++)
        open[v] = h->phase1[v] = HIR_NONE;
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        if (h->backward[h->program.at[k]]) continue;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_ref r = hir_through_reshapes(h->m, o->args[i]);
            const uint32_t read = r.kind == HIR_REF_VALUE ? h->phase1[r.index] : HIR_NONE;
            if (read == HIR_NONE) continue;
            const hir_id mix = h->phases.at[read].at[0];
            const hir_ref x = hir_op_at(h->m, hir_value_at(h->m, mix)->op)->args[1];
            if (open[x.index] == read) open[x.index] = HIR_NONE; /* it has all its mixes */
        }
        if (o->code != HIR_DEPTH_MIX_OP || o->args[1].kind != HIR_REF_VALUE) continue;
        uint32_t *at = &open[o->args[1].index];
        if (*at == HIR_NONE || !same_sources(h, h->phases.at[*at].at[0], o->results[0])) {
            *at = (uint32_t)h->phases.n;
            hd_push(h->c->scratch, &h->phases, (id_list){0});
        }
        h->phase1[o->results[0]] = *at;
        hd_push(h->c->scratch, &h->phases.at[*at], o->results[0]);
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */
/* Where each value is needed in the backward half if those of `again` are computed again: at the
 * ops `need` to `late`; one of which `need` is HIR_NONE at the op `sum`, or later. HIR_NONE both: it
 * is not needed. Without `again`: all of which it is possible, and `again` becomes these. */
typedef struct needs {
    uint32_t *need, *sum, *late; /* by value */
    uint32_t *read;              /* `need`, but of mixes that are made at once with others */
    bool *again;
} needs;

static uint32_t *copy_of(const halves *h, const uint32_t *by_value) {
    const size_t n = h->m->values.n;
    uint32_t *x = hd_new_array(h->c->scratch, uint32_t, n + 1);
    memcpy(x, by_value, n * sizeof *x);
    return x;
}

static uint32_t earlier(uint32_t a, uint32_t b) {
    return a < b ? a : b; /* HIR_NONE is after all others */
}

static uint32_t where(const needs *x, hir_id v) {
    return x->need[v] == HIR_NONE ? x->sum[v] : x->need[v];
}

/* Does the op `at` come so long after the sum that this should not wait for it? What a sum adds up
 * takes memory until then. */
static bool is_far(const halves *h, uint32_t sum, uint32_t at) {
    return at != HIR_NONE && at > sum && h->steps[at] > h->steps[sum] + 1;
}

static void end_waiting(const halves *h, needs *x, hir_id v) {
    if (x->sum[v] != HIR_NONE && is_far(h, x->sum[v], x->need[v])) x->need[v] = x->sum[v];
}

/* The mixes of a phase 1 are needed where the first of those is that are computed again. */
static void need_at_once(const halves *h, const id_list *phase, needs *x) {
    uint32_t first = HIR_NONE;
    for (size_t i = 0; i < phase->n; i++)
        end_waiting(h, x, phase->at[i]);
    for (size_t i = 0; i < phase->n; i++)
        if (x->again[phase->at[i]]) first = earlier(first, where(x, phase->at[i]));
    for (size_t i = 0; i < phase->n; i++) {
        const hir_id v = phase->at[i];
        x->read[v] = x->need[v];
        if (x->again[v] && where(x, v) != HIR_NONE) x->need[v] = first;
    }
}

static void need_operands(const halves *h, needs *x, hir_id v) {
    const hir_op *o = hir_op_at(h->m, hir_value_at(h->m, v)->op);
    const uint32_t at = where(x, v);
    uint32_t *need = x->need[v] == HIR_NONE ? x->sum : x->need;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id u = stored(h, o->args[i]);
        if (u == HIR_NONE) continue;
        need[u] = earlier(need[u], at);
        if (x->late[u] == HIR_NONE || at > x->late[u]) x->late[u] = at;
    }
}

static needs find_needs(const halves *h, const bool *again, uint32_t window, uint32_t at_once) {
    needs x = {.need = copy_of(h, h->first),
               .sum = copy_of(h, h->sum),
               .late = copy_of(h, h->last),
               .read = hd_new_array(h->c->scratch, uint32_t, h->m->values.n + 1),
               .again = hd_new_array(h->c->scratch, bool, h->m->values.n + 1)};
    if (again) memcpy(x.again, again, h->m->values.n * sizeof *again);
    for (size_t k = h->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        if (h->backward[h->program.at[k]] || o->n_results != 1) continue;
        const hir_id v = o->results[0];
        const uint32_t phase = h->phase1[v];
        if (phase < at_once && h->phases.at[phase].at[h->phases.at[phase].n - 1] == v)
            need_at_once(h, &h->phases.at[phase], &x);
        end_waiting(h, &x, v);
        if (phase >= at_once) x.read[v] = x.need[v];
        const uint32_t at = where(&x, v);
        if (at == HIR_NONE) continue;
        if (!again) x.again[v] = h->may[v] && h->backwards[x.late[v]] - h->backwards[at] <= window;
        if (x.again[v]) need_operands(h, &x, v);
    }
    return x;
}

/* What only sums over tokens need is made where its operands are needed for something else, if that
 * is later. */
static void wait_for_operands(const halves *h, needs *x) {
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        const hir_id v = o->n_results == 1 ? o->results[0] : HIR_NONE;
        if (v == HIR_NONE || h->backward[h->program.at[k]] || !x->again[v]) continue;
        if (x->need[v] != HIR_NONE || x->sum[v] == HIR_NONE) continue;
        x->need[v] = x->sum[v];
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id u = stored(h, o->args[i]);
            const uint32_t at = u == HIR_NONE ? HIR_NONE : x->read[u];
            if (at == HIR_NONE || at < x->need[v]) continue;
            const bool waits = waits_on(h, h->program.at[at]).kind != HIR_REF_NONE;
            if (x->again[u] || (waits && !is_far(h, x->sum[v], at))) x->need[v] = at;
        }
        x->read[v] = x->need[v];
    }
}

/* `again`, with places for all that is computed again. */
static choice place(const halves *h, bool *again, uint32_t at_once) {
    hd_known(again);
    needs x = find_needs(h, again, 0, at_once);
    wait_for_operands(h, &x);
    return (choice){again, x.need, at_once};
}

/* FLOPs of a token, in the middle of the longest sequence. */
static double work_of(const halves *h, hir_id op) {
    const hir_op_work w = hir_work_of(h->m, op);
    const double elements = (double)pass_elements(pass_result_type(h->m, op));
    return (double)w.row_flops + (double)w.pair_flops * (double)h->c->options->chunk / 2 +
           elements * WORK_OF_ELEMENT;
}

/* The capacity of the work on a value, op number k, at `rate` FLOPs for a byte. */
static uint64_t price_of(const halves *h, uint32_t k, double rate) {
    const double later = 1 + (double)k / (double)h->program.n / 4;
    return (uint64_t)(64 * work_of(h, h->program.at[k]) * later / rate);
}

enum { SOURCE, SINK };
static uint32_t needed(hir_id v) {
    return 2 + 2 * v;
}
static uint32_t repeated(hir_id v) {
    return 3 + 2 * v;
}

static choice choose(const halves *h, uint32_t window, double rate) {
    const size_t n = h->m->values.n;
    const needs all = find_needs(h, NULL, window, 0);
    min_cut *g = min_cut_new(h->c->scratch, needed((hir_id)n));
    for (uint32_t k = 0; k < h->program.n; k++) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        const hir_id v = o->n_results == 1 ? o->results[0] : HIR_NONE;
        if (v == HIR_NONE || h->backward[h->program.at[k]] || where(&all, v) == HIR_NONE) continue;
        if (h->last[v] != HIR_NONE) min_cut_edge(g, SOURCE, needed(v), MIN_CUT_WHOLE);
        min_cut_edge(g, needed(v), repeated(v), 64 * bytes_of(h, v));
        min_cut_edge(g, repeated(v), SINK, all.again[v] ? price_of(h, k, rate) : MIN_CUT_WHOLE);
        for (uint32_t i = 0; all.again[v] && i < o->n_args; i++) {
            const hir_id u = stored(h, o->args[i]);
            if (u != HIR_NONE) min_cut_edge(g, repeated(v), needed(u), MIN_CUT_WHOLE);
        }
    }
    bool *side = hd_new_array(h->c->scratch, bool, needed((hir_id)n));
    bool *again = hd_new_array(h->c->scratch, bool, n + 1);
    min_cut_find(g, side);
    for (hir_id v = 0; v < n; v++)
        again[v] = side[repeated(v)];
    return place(h, again, 0);
}

/* ---- the module ------------------------------------------------------------------------------ */
typedef struct rewriter {
    const halves *h;
    const choice *x;
    hir_module *m; /* that of `h`, or a copy of it */
    hir_builder b;
    hir_ref *copy; /* by value of the forward half: what is computed again */
} rewriter;

/* The operand as an op reads it at the builder: its copy, if it has one; else after `then`. So is a
 * mix that is made again at once with others, long before it is read. */
static hir_ref read_again(rewriter *w, hir_ref r, hir_ref then) {
    const hir_ref base = hir_through_reshapes(w->h->m, r);
    if (base.kind != HIR_REF_VALUE) return r; /* a weight, or a view of one */
    hir_ref x = w->copy[base.index];
    const bool again = x.kind != HIR_REF_NONE, waits = then.kind != HIR_REF_NONE;
    if (!again && (!waits || !has_rows(w->h, r))) return r;
    if (!again || (waits && w->h->phase1[base.index] < w->x->at_once))
        x = hir_emit2(&w->b, HIR_AFTER_OP, again ? x : base, then);
    return x.kind == HIR_REF_NONE ? x : pass_reshape(&w->b, x, hir_ref_type(w->m, r));
}

static bool compute_again(rewriter *w, hir_id op, hir_id v) {
    const hir_op o = *hir_op_at(w->m, op);
    const hir_id at = w->h->program.at[w->x->at[v]];
    const hir_ref then = waits_on(w->h, at);
    hir_ref *args = hd_new_array(w->h->c->scratch, hir_ref, o.n_args + 1);
    w->b = hir_before(w->m, w->h->c->diags, at);
    w->b.loc = *o.loc;
    for (uint32_t i = 0; i < o.n_args; i++)
        args[i] = read_again(w, o.args[i], then);
    w->copy[v] = hir_emit(&w->b, o.code, args, o.n_args, o.attrs, o.n_attrs);
    return w->copy[v].kind != HIR_REF_NONE;
}

/* An op that reads a copy that is made later, or what depends on such an op, moves after the copy:
 * it is a sum over tokens that can wait, or made of one. `moved`: by op, before which op of the
 * program it stands then; 0: where it was. */
static void move_after_copies(rewriter *w, uint32_t k, uint32_t *moved) {
    const hir_id op = w->h->program.at[k];
    const hir_op *o = hir_op_at(w->m, op);
    uint32_t to = k;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref r = hir_through_reshapes(w->h->m, o->args[i]);
        const hir_id made = pass_def(w->h->m, o->args[i]);
        if (r.kind == HIR_REF_VALUE && w->copy[r.index].kind != HIR_REF_NONE &&
            w->x->at[r.index] > to)
            to = w->x->at[r.index];
        if (made != HIR_NONE && moved[made] > to) to = moved[made];
    }
    if (to == k) return;
    moved[op] = to;
    hir_move_before(w->m, op, HIR_NONE, w->h->program.at[to]);
}

static bool read_copies(rewriter *w, hir_id op) {
    w->b = hir_before(w->m, w->h->c->diags, op);
    w->b.loc = *hir_op_at(w->m, op)->loc;
    for (uint32_t i = 0; i < hir_op_at(w->m, op)->n_args; i++) {
        const hir_ref r = pass_arg(w->m, op, i), x = read_again(w, r, hir_no_ref());
        if (r.kind != HIR_REF_NONE && x.kind == HIR_REF_NONE) return false;
        hir_op_at(w->m, op)->args[i] = x;
    }
    return true;
}

static bool rewrite(const halves *h, hir_module *m, const choice *x) {
    rewriter w = {.h = h, .x = x, .m = m};
    uint32_t *moved = hd_new_array(h->c->scratch, uint32_t, h->m->ops.n + 1);
    const size_t n_values = h->m->values.n; /* it may be that of `m`, which grows */
    w.copy = hd_new_array(h->c->scratch, hir_ref, n_values + 1);
    for (size_t v = 0; v < n_values; v++)
        w.copy[v] = hir_no_ref();
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_id op = h->program.at[k];
        const hir_id v = hir_op_at(m, op)->n_results == 1 ? hir_result(m, op) : HIR_NONE;
        if (h->backward[op] || v == HIR_NONE || !x->again[v]) continue;
        if (!compute_again(&w, op, v)) return false;
    }
    for (uint32_t k = 0; k < h->program.n; k++) {
        if (!h->backward[h->program.at[k]]) continue;
        move_after_copies(&w, k, moved);
        if (!read_copies(&w, h->program.at[k])) return false;
    }
    return true;
}

/* ---- trying ---------------------------------------------------------------------------------- */
/* The passes after this one. */
static hir_run rest_of_pipeline(void) {
    const hir_pass_id *rest = hir_gradient_pipeline();
    while (*rest++ != HIR_PASS_REMATERIALISE) {
    }
    hir_run run = hir_run_of(rest);
    run.all = true;
    return run;
}

/* Bytes of the values of the longest sequence with this choice, NULL: nothing is computed again. The
 * copy of the module is freed at once, or, where memory runs out, with the pass's own. */
static bool try(const halves *h, const choice *x, uint64_t *bytes) {
    hir_pass_context *c = h->c;
    hd_arena **scratch = hd_scratch_new(c->scratch);
    const hir_run run = rest_of_pipeline();
    hir_module *m = hir_module_clone(h->m, *scratch);
    const bool ok = (!x || rewrite(h, m, x)) && hir_run_passes(m, &run, c->options, NULL, c->diags);
    *bytes = hir_bytes_of_call(*scratch, m, c->options->chunk);
    hd_scratch_free(scratch);
    return ok;
}

static bool fits(const hir_compile_options *o, uint64_t bytes) {
    return o->arena_bytes >= 0 && bytes <= (uint64_t)o->arena_bytes;
}

static bool reject(const halves *h, uint64_t least) {
    const hir_compile_options *o = h->c->options;
    const uint64_t all = least + (uint64_t)o->rest_bytes;
    hd_arena *a = h->c->diags->arena;
    hd_diag *e =
        hd_err(h->c->diags, HD_E_LIMIT, HD_NOWHERE,
               "the gradients of sequences of up to %lld tokens do not fit in %lld byte%s%s",
               (long long)o->chunk, (long long)o->memory, hd_s((uint64_t)o->memory),
               o->beside ? " beside the trainer of the steps" : "");
    e->cause =
        hd_printf(a,
                  "with all computed again that can be, they take %llu bytes: %llu for "
                  "values of a sequence, and %lld for all else",
                  (unsigned long long)all, (unsigned long long)least, (long long)o->rest_bytes);
    e->hint = "allow that much, or shorter sequences: --chunk N, of hadal train --context N";
    if (!o->beside) return false;
    e->cause = hd_printf(a, "%s; the trainer of the steps takes %lld with nothing computed again",
                         e->cause, (long long)o->beside);
    e->hint = hd_printf(a, "the least for both is %llu bytes; with --depth-every 0 there is one",
                        (unsigned long long)(all + (uint64_t)o->beside));
    return false;
}

typedef struct trial {
    choice x;
    uint64_t bytes;
} trial;

/* The window with which the least memory is possible, and what is chosen then. */
static bool find_window(const halves *h, uint32_t *window, trial *best) {
    const double any_work = HUGE_VAL;
    best->bytes = UINT64_MAX;
    for (int i = 0; i < WINDOWS && h->n_backward >> i; i++) {
        trial t = {.x = choose(h, h->n_backward >> i, any_work)};
        if (!try(h, &t.x, &t.bytes)) return false;
        if (t.bytes >= best->bytes) continue;
        *best = t;
        *window = h->n_backward >> i;
    }
    return true;
}

static bool same(const halves *h, const choice *a, const choice *b) {
    return a->again && memcmp(a->again, b->again, h->m->values.n * sizeof *a->again) == 0;
}

/* The least work with which the bound holds, given what needs the least memory. */
static bool find_rate(const halves *h, uint32_t window, trial *best) {
    double low = 0, high = RATE_BITS;
    trial failed = {0};
    for (int i = 0; i < RATES; i++) {
        const double middle = (low + high) / 2;
        trial t = {.x = choose(h, window, exp2(middle))};
        const bool fails = same(h, &failed.x, &t.x);
        t.bytes = best->bytes;
        if (!fails && !same(h, &best->x, &t.x) && !try(h, &t.x, &t.bytes)) return false;
        const bool holds = !fails && fits(h->c->options, t.bytes);
        *(holds ? best : &failed) = t;
        *(holds ? &high : &low) = middle;
    }
    return true;
}

/* Those of the first n phases 1 of which several mixes are computed again. */
static uint32_t count_phases(const halves *h, const choice *x, uint32_t n, uint32_t *last) {
    uint32_t count = 0;
    for (uint32_t p = 0; p < n; p++) {
        uint32_t mixes = 0;
        for (size_t i = 0; i < h->phases.at[p].n; i++)
            mixes += x->again[h->phases.at[p].at[i]];
        if (mixes < 2) continue;
        count++;
        *last = p;
    }
    return count;
}

/* Makes the mixes of as many phases 1 at once as the bound allows, given what is computed again:
 * often all but the last one or two. */
static bool find_at_once(const halves *h, trial *best) {
    uint32_t last = 0;
    if (!count_phases(h, &best->x, (uint32_t)h->phases.n, &last)) return true;
    for (uint32_t holds = 0, fails = last + 2, step = 1; holds + 1 < fails;) {
        const uint32_t n = holds || step >= fails ? (holds + fails) / 2 : fails - step;
        trial t = {.x = place(h, best->x.again, n)};
        if (!try(h, &t.x, &t.bytes)) return false;
        if (fits(h->c->options, t.bytes)) {
            *best = t;
            holds = n;
        } else {
            fails = n;
            step *= 2;
        }
    }
    return true;
}

/* ---- the pass -------------------------------------------------------------------------------- */
/* "24 mul, 24 silu", the most frequent ones first. */
static const char *names_of(const halves *h, const choice *x, size_t *all) {
    uint32_t count[HIR_OPCODE_COUNT] = {0};
    hd_text text;
    hd_text_init(&text, h->c->scratch);
    *all = 0;
    for (hir_id v = 0; v < h->m->values.n; v++)
        if (x->again[v]) count[hir_op_at(h->m, hir_value_at(h->m, v)->op)->code]++, ++*all;
    for (;;) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < HIR_OPCODE_COUNT; i++)
            if (count[i] > count[most]) most = i;
        if (!count[most]) return text.n ? text.at : "";
        hd_text_f(&text, "%s%u %s", text.n ? ", " : "", count[most],
                  hir_info((hir_opcode)most)->name);
        count[most] = 0;
    }
}

static void tell(const halves *h, const trial *t, uint64_t before) {
    double work = 0, again = 0;
    size_t n;
    const char *names = names_of(h, &t->x, &n);
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        if (o->n_results != 1 || o->code == HIR_CONST_OP) continue;
        const double w = work_of(h, h->program.at[k]);
        work += w;
        if (!h->backward[h->program.at[k]] && t->x.again[o->results[0]]) again += w;
    }
    hir_remark_add(h->c, true, HIR_NONE,
                   "%zu value%s computed again, %.1f %% more work: %s; %llu bytes "
                   "of values instead of %llu",
                   n, n == 1 ? " is" : "s are", 100 * again / work, names,
                   (unsigned long long)t->bytes, (unsigned long long)before);
    uint32_t last = 0;
    const uint32_t phases = count_phases(h, &t->x, (uint32_t)h->phases.n, &last);
    const uint32_t at_once = count_phases(h, &t->x, t->x.at_once, &last);
    if (phases)
        hir_remark_add(h->c, at_once > 0, HIR_NONE,
                       "of %u phase%s 1 whose mixes are computed again, %u read%s the sources once "
                       "for all of them",
                       phases, hd_s(phases), at_once, at_once == 1 ? "s" : "");
}

bool pass_rematerialise(hir_pass_context *c) {
    hir_module *m = c->m;
    const size_t n_ops = m->ops.n + 1, n_values = m->values.n + 1;
    halves h = {.c = c, .m = m};
    trial best;
    uint64_t before;
    uint32_t window = 0;
    if (!c->options->bounded || !hir_has_gradients(m)) return true;
    if (!try(&h, NULL, &before)) return false;
    if (fits(c->options, before)) {
        hir_remark_add(c, false, HIR_NONE,
                       "nothing is computed again, as all fits: nothing would have been gained");
        return true;
    }
    h.backward = hd_new_array(c->scratch, bool, n_ops);
    h.backwards = hd_new_array(c->scratch, uint32_t, n_ops);
    h.may = hd_new_array(c->scratch, bool, n_values);
    h.first = hd_new_array(c->scratch, uint32_t, n_values);
    h.last = hd_new_array(c->scratch, uint32_t, n_values);
    h.sum = hd_new_array(c->scratch, uint32_t, n_values);
    h.phase1 = hd_new_array(c->scratch, uint32_t, n_values);
    h.steps = hd_new_array(c->scratch, uint32_t, n_ops);
    h.of_loss = hd_new_array(c->scratch, bool, n_values);
    find_halves(&h);
    find_loss(&h);
    count_steps(&h);
    find_phases(&h);
    find_reads(&h);
    if (!find_window(&h, &window, &best)) return false;
    if (!fits(c->options, best.bytes)) return reject(&h, best.bytes);
    if (!find_rate(&h, window, &best) || !find_at_once(&h, &best)) return false;
    tell(&h, &best, before);
    c->changed = true;
    return rewrite(&h, m, &best.x);
}
