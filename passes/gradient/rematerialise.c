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
 */
#include <math.h>
#include <string.h>

#include "ir/kernel/tiled.h"
#include "passes/analysis/depth_backward.h"
#include "passes/gradient/min_cut.h"
#include "passes/util.h"

enum {
    WORK_OF_ELEMENT = 32, /* multiply-adds that take as long as one element of a row program */
    WINDOWS = 6,          /* all of the backward half, half of it, a quarter .. */
    RATES = 14,           /* steps of the bisection */
    RATE_BITS = 24,       /* the highest rate is 2^24 FLOPs for a byte */
};

typedef struct halves {
    hir_pass_context *c;
    const hir_module *m;
    HD_VEC(hir_id) program; /* ops in their order */
    uint32_t n_backward;
    bool *backward;      /* by op: does it depend on a gradient? */
    bool *may;           /* by value: may it be computed again, whatever reads it? */
    uint32_t *first;     /* by value of the forward half: the first op of the backward half that */
    uint32_t *last;      /* reads it, and the last one, by number in the program; HIR_NONE: none */
    uint32_t *backwards; /* by number in the program: ops of the backward half before it */
} halves;

typedef struct choice { /* by value of the forward half */
    bool *again;        /* it is computed again, */
    uint32_t *at;       /* before the op of this number */
} choice;

/* ---- the two halves -------------------------------------------------------------------------- */
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

static void find_reads(halves *h) {
    for (size_t v = 0; v < h->m->values.n; v++)
        h->first[v] = h->last[v] = HIR_NONE;
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
            if (h->first[v] == HIR_NONE) h->first[v] = k;
            h->last[v] = k;
            h->may[v] &= waits;
        }
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */
/* Where each value is needed in the backward half if those of `again` are computed again: at the ops
 * `need` to `late`. Without `again`: all of which it is possible, and `again` becomes these. */
typedef struct needs {
    uint32_t *need, *late; /* by value; HIR_NONE: it is not needed */
    bool *again;
} needs;

static needs find_needs(const halves *h, const bool *again, uint32_t window) {
    const size_t n = h->m->values.n;
    needs x = {.need = hd_new_array(h->c->scratch, uint32_t, n + 1),
               .late = hd_new_array(h->c->scratch, uint32_t, n + 1),
               .again = hd_new_array(h->c->scratch, bool, n + 1)};
    memcpy(x.need, h->first, n * sizeof *x.need);
    memcpy(x.late, h->last, n * sizeof *x.late);
    for (size_t k = h->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        if (h->backward[h->program.at[k]] || o->n_results != 1) continue;
        const hir_id v = o->results[0];
        if (x.need[v] == HIR_NONE) continue;
        const uint32_t apart = h->backwards[x.late[v]] - h->backwards[x.need[v]];
        x.again[v] = again ? again[v] : h->may[v] && apart <= window;
        for (uint32_t i = 0; x.again[v] && i < o->n_args; i++) {
            const hir_id u = stored(h, o->args[i]);
            if (u == HIR_NONE) continue;
            if (x.need[u] == HIR_NONE || x.need[v] < x.need[u]) x.need[u] = x.need[v];
            if (x.late[u] == HIR_NONE || x.need[v] > x.late[u]) x.late[u] = x.need[v];
        }
    }
    return x;
}

static uint64_t bytes_of(const halves *h, hir_id v) {
    const hir_type t = hir_value_at(h->m, v)->type;
    const int64_t n = pass_elements(t);
    return (uint64_t)(n > INT32_MAX ? INT32_MAX : n) * hir_dtype_bytes(t.dtype);
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
    const needs all = find_needs(h, NULL, window);
    min_cut *g = min_cut_new(h->c->scratch, needed((hir_id)n));
    for (uint32_t k = 0; k < h->program.n; k++) {
        const hir_op *o = hir_op_at(h->m, h->program.at[k]);
        const hir_id v = o->n_results == 1 ? o->results[0] : HIR_NONE;
        if (v == HIR_NONE || h->backward[h->program.at[k]] || all.need[v] == HIR_NONE) continue;
        if (h->first[v] != HIR_NONE) min_cut_edge(g, SOURCE, needed(v), MIN_CUT_WHOLE);
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
    return (choice){again, find_needs(h, again, 0).need};
}

/* ---- the module ------------------------------------------------------------------------------ */
typedef struct rewriter {
    const halves *h;
    const choice *x;
    hir_module *m; /* that of `h`, or a copy of it */
    hir_builder b;
    hir_ref *copy; /* by value of the forward half: what is computed again */
} rewriter;

/* The operand as an op reads it at the builder: its copy, if it has one; else after `then`. */
static hir_ref read_again(rewriter *w, hir_ref r, hir_ref then) {
    const hir_ref base = hir_through_reshapes(w->h->m, r);
    hir_ref x;
    if (base.kind != HIR_REF_VALUE) return r; /* a weight, or a view of one */
    if (w->copy[base.index].kind != HIR_REF_NONE)
        x = w->copy[base.index];
    else if (then.kind == HIR_REF_NONE || !has_rows(w->h, r))
        return r;
    else
        x = hir_emit2(&w->b, HIR_AFTER_OP, base, then);
    return x.kind == HIR_REF_NONE ? x : pass_reshape(&w->b, x, hir_ref_type(w->m, r));
}

static bool compute_again(rewriter *w, hir_id op, hir_id v) {
    const hir_op o = *hir_op_at(w->m, op);
    const hir_id at = w->h->program.at[w->x->at[v]];
    const hir_ref then = waits_on(w->h, at);
    hir_ref *args = hd_new_array(w->h->c->scratch, hir_ref, o.n_args + 1);
    w->b = hir_before(w->m, w->h->c->diags, at);
    w->b.loc = o.loc;
    for (uint32_t i = 0; i < o.n_args; i++)
        args[i] = read_again(w, o.args[i], then);
    w->copy[v] = hir_emit(&w->b, o.code, args, o.n_args, o.attrs, o.n_attrs);
    return w->copy[v].kind != HIR_REF_NONE;
}

static bool read_copies(rewriter *w, hir_id op) {
    w->b = hir_before(w->m, w->h->c->diags, op);
    w->b.loc = hir_op_at(w->m, op)->loc;
    for (uint32_t i = 0; i < hir_op_at(w->m, op)->n_args; i++) {
        const hir_ref r = pass_arg(w->m, op, i), x = read_again(w, r, hir_no_ref());
        if (r.kind != HIR_REF_NONE && x.kind == HIR_REF_NONE) return false;
        hir_op_at(w->m, op)->args[i] = x;
    }
    return true;
}

static bool rewrite(const halves *h, hir_module *m, const choice *x) {
    rewriter w = {.h = h, .x = x, .m = m};
    w.copy = hd_new_array(h->c->scratch, hir_ref, h->m->values.n + 1);
    for (size_t v = 0; v < h->m->values.n; v++)
        w.copy[v] = hir_no_ref();
    for (size_t k = 0; k < h->program.n; k++) {
        const hir_id op = h->program.at[k];
        const hir_id v = hir_op_at(m, op)->n_results == 1 ? hir_result(m, op) : HIR_NONE;
        if (h->backward[op] || v == HIR_NONE || !x->again[v]) continue;
        if (!compute_again(&w, op, v)) return false;
    }
    for (size_t k = 0; k < h->program.n; k++)
        if (h->backward[h->program.at[k]] && !read_copies(&w, h->program.at[k])) return false;
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
    const int64_t rest = o->memory - o->arena_bytes;
    hd_diag *e = hd_err(h->c->diags, HD_E_LIMIT, HD_NOWHERE,
                        "the gradients of sequences of up to %lld tokens do not fit in %lld bytes",
                        (long long)o->chunk, (long long)o->memory);
    e->cause = hd_printf(
        h->c->diags->arena,
        "with all computed again that can be, they take %llu bytes: %llu for values "
        "of a sequence, and %lld for all else",
        (unsigned long long)(least + (uint64_t)rest), (unsigned long long)least, (long long)rest);
    e->hint = "allow that much, or shorter sequences: --chunk N";
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
    find_halves(&h);
    find_reads(&h);
    if (!find_window(&h, &window, &best)) return false;
    if (!fits(c->options, best.bytes)) return reject(&h, best.bytes);
    if (!find_rate(&h, window, &best)) return false;
    tell(&h, &best, before);
    c->changed = true;
    return rewrite(&h, m, &best.x);
}
