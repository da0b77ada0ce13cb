/* Trainers: the parameters of a model with gradients, in memory that the caller owns.
 *
 *     hrt_trainer | views of the parameters | outputs | parameters, packed weights | gradients |
 *     moments | workspace of steps | what a session has
 *
 * A trainer begins with a session, by which it belongs to one thread at a time, as a session does,
 * and has its threads, CPU level and message. A call makes the packed weights of the parameters, and
 * then runs the program once for each sequence, from position 0 and with empty states: a call of
 * several sequences gives the same bits as a call for each. Kernels add to the gradients. Nothing is
 * allocated. A call that is rejected changes nothing but the message.
 *
 * Of ranks that share a trainer (trainer_ranks.c) each has all of it, but of the moments its share. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/lanes.h"
#include "runtime/trainer.h"
#include "support/halves.h"

/* Offsets of the parts that come before those of the session. */
typedef struct head {
    size_t views, outs, weights, gradients, moments[HRT_MOMENTS], space, total;
    hrt_span mine[HRT_PARTS];
} head;

static bool add(size_t *end, uint64_t bytes, size_t *at) {
    uint64_t stop;
    *at = *end;
    if (__builtin_add_overflow((uint64_t)*end, bytes, &stop)) return false;
    if (__builtin_add_overflow(stop, (uint64_t)HRT_ALIGN - 1, &stop) || stop > PTRDIFF_MAX)
        return false;
    *end = (size_t)(stop - stop % HRT_ALIGN);
    return true;
}

static uint64_t moment_bytes(const head *h, int which) {
    const hrt_span mine = h->mine[hrt_part_of_moment(which)];
    return (uint64_t)(mine.to - mine.from) * sizeof(float);
}

static bool lay_out_head(const hrt_model *m, int32_t rank, int32_t ranks, head *h) {
    uint64_t space;
    size_t end = 0, at;
    hrt_divide(m, rank, ranks, h->mine);
    const bool fits =
        !__builtin_mul_overflow(m->muon_bytes, hrt_usual_threads(), &space) &&
        add(&end, sizeof(hrt_trainer), &at) &&
        add(&end, (uint64_t)m->n_parameters * sizeof(hrt_parameter_view), &h->views) &&
        add(&end, (uint64_t)m->n_outputs * sizeof(void *), &h->outs) &&
        add(&end, m->weights_bytes, &h->weights) && add(&end, m->parameters_bytes, &h->gradients) &&
        add(&end, moment_bytes(h, HRT_FIRST), &h->moments[HRT_FIRST]) &&
        add(&end, moment_bytes(h, HRT_SECOND), &h->moments[HRT_SECOND]) &&
        add(&end, moment_bytes(h, HRT_MOMENTUM), &h->moments[HRT_MOMENTUM]) &&
        add(&end, space, &h->space);
    h->total = end;
    return fits;
}

/* A sequence is one pass through the steps. */
static bool lay_out(const hrt_model *m, int64_t max_tokens, int32_t rank, int32_t ranks, head *h,
                    hrt_layout *l) {
    return m->parameters_bytes > 0 && max_tokens <= m->chunk && lay_out_head(m, rank, ranks, h) &&
           hrt_lay_out_session(m, max_tokens, h->total, l);
}

static size_t size_of(const hrt_model *m, int64_t max_tokens, int32_t rank, int32_t ranks) {
    hrt_layout l;
    head h;
    return m && lay_out(m, max_tokens, rank, ranks, &h, &l) ? l.total : 0;
}

size_t hrt_trainer_size(const hrt_model *m, int64_t max_tokens) {
    return size_of(m, max_tokens, 0, 1);
}

size_t hrt_trainer_size_on(const hrt_model *m, int64_t max_tokens, const hadal_comm *c) {
    return hrt_is_usable(c) ? size_of(m, max_tokens, c->rank, c->size) : 0;
}

static void set_views(hrt_trainer *t) {
    const hrt_model *m = t->session.model;
    for (uint32_t i = 0; i < m->n_parameters; i++) {
        const hrt_parameter *p = &m->parameters[i];
        void *values = t->weights + p->offset, *gradient = t->gradients + p->offset;
        t->views[i] = (hrt_parameter_view){.name = p->name,
                                           .type = p->type,
                                           .values = values,
                                           .gradient = gradient,
                                           .elements = (size_t)p->elements,
                                           .update = p->how};
    }
}

static int make_trainer(const hrt_model *m, void *mem, size_t size, int64_t max_tokens,
                        int32_t rank, int32_t ranks, hrt_trainer **out) {
    hrt_layout l;
    head h;
    if (!mem || !lay_out(m, max_tokens, rank, ranks, &h, &l)) return HRT_ARGUMENT;
    const int code = hrt_session_place(m, NULL, mem, size, h.total, max_tokens);
    if (code != HRT_OK) return code;
    char *base = mem;
    void *views = base + h.views, *outs = base + h.outs;
    hrt_trainer *t = mem;
    t->views = views;
    t->outs = outs;
    t->weights = (uint8_t *)base + h.weights;
    t->gradients = (uint8_t *)base + h.gradients;
    for (int i = 0; i < HRT_MOMENTS; i++) {
        void *moments = base + h.moments[i];
        t->moments[i] = moments;
        memset(moments, 0, (size_t)moment_bytes(&h, i));
    }
    memcpy(t->mine, h.mine, sizeof t->mine);
    t->space = (uint8_t *)base + h.space;
    t->space_threads = hrt_usual_threads();
    t->count = t->steps = 0;
    t->spoilt = false;
    t->session.weights = t->weights;
    /* rows that fill up panels stay zeros */
    memset(t->weights, 0, (size_t)m->weights_bytes);
    memset(t->gradients, 0, (size_t)m->parameters_bytes);
    for (uint32_t i = 0; i < m->n_outputs; i++)
        t->outs[i] = i ? t->gradients + m->outputs[i].offset : (void *)&t->loss;
    set_views(t);
    *out = t;
    return HRT_OK;
}

int hrt_trainer_init(const hrt_model *m, void *mem, size_t size, int64_t max_tokens,
                     hrt_trainer **out) {
    if (out) *out = NULL;
    return m && out ? make_trainer(m, mem, size, max_tokens, 0, 1, out) : HRT_ARGUMENT;
}

/* A trainer that was made but rejected is still returned, for its message. */
int hrt_trainer_init_on(const hrt_model *m, void *mem, size_t size, int64_t max_tokens,
                        const hadal_comm *c, int64_t timeout_ns, hrt_trainer **out) {
    hrt_trainer *t = NULL;
    if (out) *out = NULL;
    if (!m || !hrt_is_usable(c)) return HRT_ARGUMENT;
    int code = out ? make_trainer(m, mem, size, max_tokens, c->rank, c->size, &t) : HRT_ARGUMENT;
    code =
        hrt_join_ranks(t ? &t->session : NULL, m, NULL, max_tokens, c->size, c, timeout_ns, code);
    if (out) *out = t;
    return code;
}

const hrt_parameter_view *hrt_trainer_parameters(hrt_trainer *t, size_t *n) {
    if (n) *n = 0;
    if (!t || t->session.self != &t->session) return NULL;
    if (n) *n = t->session.model->n_parameters;
    return t->views;
}

/* ---- packed weights -------------------------------------------------------------------------- */
enum {
    COLUMNS = 64, /* of a block of a transposed matrix: its rows, which are read side by side */
    AHEAD = 32,   /* floats of a row between a prefetch and a load */
};

/* Rows of a parameter's matrix that are in one panel, and columns of them. */
typedef struct block {
    uint64_t row, rows, column, columns;
} block;

/* Four rows `apart` of four numbers to four columns `panel` apart, or rows to rows. No loop, so that
 * all stays in registers. */
static inline void pack_four(const float *x, uint64_t apart, bool turn, float *to, uint64_t panel) {
    hrt_lanes four[HRT_LANES] = {hrt_get(x), hrt_get(x + apart), hrt_get(x + 2 * apart),
                                 hrt_get(x + 3 * apart)};
    if (turn) hrt_transpose(four);
    hrt_stream(to, four[0]);
    hrt_stream(to + panel, four[1]);
    hrt_stream(to + 2 * panel, four[2]);
    hrt_stream(to + 3 * panel, four[3]);
}

/* The first `rows` rows and `columns` columns, multiples of four, of a block whose panels have one
 * column after the other: nearly all of every matrix. All panels together are read again much later,
 * so they are written by non-temporal stores. */
static void pack_fours(const hrt_packing *p, const float *x, uint64_t rows, uint64_t columns,
                       float *to) {
    const uint64_t width = p->panel;
    if (p->transposed)
        for (uint64_t k = 0; k < columns; k += HRT_LANES, x += HRT_LANES * p->rows) {
            for (uint64_t j = 0; j < HRT_LANES; j++)
                __builtin_prefetch(x + j * p->rows + AHEAD);
            for (uint64_t i = 0; i < rows; i += HRT_LANES)
                pack_four(x + i, p->rows, false, to + k * width + i, width);
        }
    else
        for (uint64_t k = 0; k < columns; k += HRT_LANES)
            for (uint64_t i = 0; i < rows; i += HRT_LANES) {
                const float *from = x + i * p->columns + k;
                if (k % (4 * HRT_LANES) == 0)
                    for (uint64_t j = 0; j < HRT_LANES; j++)
                        __builtin_prefetch(from + j * p->columns + AHEAD);
                pack_four(from, p->columns, true, to + k * width + i, width);
            }
}

/* Column by column, so that memory is written from front to back. */
static void pack_block(const hrt_packing *p, const float *x, const block *b, float *to) {
    const uint64_t lines = (p->columns + p->depth - 1) / p->depth, line = p->panel * p->depth;
    const uint64_t by_row = p->transposed ? 1 : p->columns, by_column = p->transposed ? p->rows : 1;
    const uint64_t row = p->first + b->row;
    to += row / p->panel * lines * line + row % p->panel * p->depth;
    /* Then lanes in a panel are aligned. */
    const bool fours = p->depth == 1 && p->panel % HRT_LANES == 0 && row % HRT_LANES == 0;
    const uint64_t rows = fours ? b->rows / HRT_LANES * HRT_LANES : 0;
    const uint64_t columns = fours ? b->columns / HRT_LANES * HRT_LANES : 0;
    x += b->row * by_row;
    pack_fours(p, x + b->column * by_column, rows, columns, to + b->column * p->panel);
    for (uint64_t k = b->column; k < b->column + b->columns; k++) {
        float *at = to + k / p->depth * line + k % p->depth;
        for (uint64_t i = k < b->column + columns ? rows : 0; i < b->rows; i++)
            at[i * p->depth] = x[i * by_row + k * by_column];
    }
}

/* The same, rounded to bf16: two elements of a row, whose number is even but for the last one, are a
 * word. */
static void pack_rounded(const hrt_packing *p, const float *x, const block *b, uint32_t *to) {
    const uint64_t lines = (p->columns + 1) / 2, row = p->first + b->row;
    const uint64_t by_row = p->transposed ? 1 : p->columns, by_column = p->transposed ? p->rows : 1;
    to += row / p->panel * lines * p->panel + row % p->panel;
    x += b->row * by_row;
    for (uint64_t k = b->column; k < b->column + b->columns; k += 2) {
        uint32_t *at = to + k / 2 * p->panel;
        const float *low = x + k * by_column, *high = low + by_column;
        const bool alone = k + 1 == p->columns;
        for (uint64_t i = 0; i < b->rows; i++)
            at[i] = hd_bf16_from_f32(low[i * by_row]) |
                    (alone ? 0 : (uint32_t)hd_bf16_from_f32(high[i * by_row]) << 16);
    }
}

/* The rows in panels [from, to), counted from that of the first row. */
static void pack_panels(const hrt_packing *p, const float *x, hrt_span panels, void *to) {
    const uint64_t before = p->first % p->panel, most = p->transposed ? COLUMNS : p->columns;
    for (uint64_t k = 0; k < p->columns; k += most)
        for (uint64_t i = (uint64_t)panels.from; i < (uint64_t)panels.to; i++) {
            block b = {.column = k, .columns = p->columns - k < most ? p->columns - k : most};
            const uint64_t end = (i + 1) * p->panel - before;
            b.row = i ? i * p->panel - before : 0;
            b.rows = (end < p->rows ? end : p->rows) - b.row;
            if (p->rounded)
                pack_rounded(p, x, &b, to);
            else
                pack_block(p, x, &b, to);
        }
}

/* A share of the panels of each matrix. */
static void pack(void *context, int index, int count) {
    const hrt_trainer *t = context;
    const hrt_model *m = t->session.model;
    for (uint32_t i = 0; i < m->n_packings; i++) {
        const hrt_packing *p = &m->packings[i];
        const void *from = t->weights + p->from;
        void *to = t->weights + p->to;
        const uint64_t panels = (p->first % p->panel + p->rows + p->panel - 1) / p->panel;
        pack_panels(p, from, hrt_share((hrt_span){0, (int64_t)panels}, index, count), to);
    }
    hrt_end_streams();
}

/* ---- arguments ------------------------------------------------------------------------------- */
static int check_pointers(hrt_session *s, const void *const *pointers, const char *const *names,
                          size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!pointers[i]) return hrt_fail(s, HRT_ARGUMENT, "the %s are a null pointer", names[i]);
    return HRT_OK;
}

static int check_target(hrt_session *s, int64_t i, int32_t id) {
    const int64_t vocab = s->model->targets;
    if (id < vocab) return HRT_OK;
    return hrt_fail(s, HRT_TOKEN,
                    "target %" PRId64 " is %" PRId32 ": targets are 0 .. %" PRId64
                    ", or below 0: not counted",
                    i, id, vocab - 1);
}

/* Checks the lengths, and gives the number of all tokens. */
static int check_lengths(hrt_session *s, const int64_t *lengths, int64_t sequences, int64_t *n) {
    *n = 0;
    for (int64_t i = 0; i < sequences; i++) {
        if (lengths[i] < 1)
            return hrt_fail(s, HRT_ARGUMENT, "sequence %" PRId64 " has %" PRId64 " tokens", i,
                            lengths[i]);
        if (lengths[i] > s->memory.cap)
            return hrt_fail(s, HRT_FULL,
                            "sequence %" PRId64 " has %" PRId64
                            " tokens, and the trainer is made for %" PRId64,
                            i, lengths[i], s->memory.cap);
        if (__builtin_add_overflow(*n, lengths[i], n))
            return hrt_fail(s, HRT_ARGUMENT, "the lengths add up to more than 2^63 tokens");
    }
    return HRT_OK;
}

static int check_tokens(hrt_session *s, const int32_t *tokens, const int32_t *targets, int64_t n,
                        int64_t *count) {
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        int code = hrt_check_token(s, s->model, i, tokens[i]);
        if (code == HRT_OK) code = check_target(s, i, targets[i]);
        if (code != HRT_OK) return code;
        *count += targets[i] >= 0;
    }
    return HRT_OK;
}

/* Are `n` numbers finite? Without a branch for each, since all of a model are looked at. Adds their
 * bits, whatever the order. */
static bool are_finite(const float *x, size_t n, uint32_t *sum) {
    typedef uint32_t words __attribute__((vector_size(HRT_LANES * sizeof(uint32_t))));
    const uint32_t exponent = UINT32_C(0x7f800000);
    words any = {0}, all = {0};
    size_t k = 0;
    for (; k + HRT_LANES <= n; k += HRT_LANES) {
        words bits;
        memcpy(&bits, x + k, sizeof bits);
        any |= (words)((bits & exponent) == exponent);
        all += bits;
    }
    for (; k < n; k++) {
        uint32_t bits;
        memcpy(&bits, x + k, sizeof bits);
        any[0] |= (bits & exponent) == exponent;
        all[0] += bits;
    }
    for (int i = 1; i < HRT_LANES; i++)
        any[0] |= any[i], all[0] += all[i];
    *sum += all[0];
    return !any[0];
}

typedef struct finding {
    hrt_trainer *t;
    atomic_bool found;
    _Atomic uint32_t sum; /* of the bits of all parameters */
} finding;

static void look_for_infinite(void *context, int index, int count) {
    finding *f = context;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < f->t->session.model->n_parameters; i++) {
        const hrt_parameter_view *p = &f->t->views[i];
        const hrt_span mine = hrt_share((hrt_span){0, (int64_t)p->elements}, index, count);
        if (!are_finite(p->values + mine.from, (size_t)(mine.to - mine.from), &sum))
            atomic_store_explicit(&f->found, true, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&f->sum, sum, memory_order_relaxed);
}

/* A number that is not finite makes all gradients so: the first one is named. *sum: a checksum, by
 * which ranks compare their parameters. */
static int check_parameters(hrt_trainer *t, uint64_t *sum) {
    hrt_session *s = &t->session;
    finding f = {.t = t};
    hrt_in_shares(hrt_workers(s), look_for_infinite, &f);
    *sum = atomic_load_explicit(&f.sum, memory_order_relaxed);
    if (!atomic_load_explicit(&f.found, memory_order_relaxed)) return HRT_OK;
    for (uint32_t i = 0; i < s->model->n_parameters; i++) {
        const hrt_parameter_view *p = &t->views[i];
        for (size_t k = 0; k < p->elements; k++)
            if (!isfinite(p->values[k]))
                return hrt_fail(s, HRT_FINITE, "element %zu of parameter %.100s is %g", k, p->name,
                                (double)p->values[k]);
    }
    return HRT_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */
typedef struct call {
    const int32_t *tokens, *targets; /* of all sequences */
    const int64_t *lengths;
    int64_t sequences;
    bool alone; /* the losses alone: the backward half does not run */
} call;

/* One pass through the program, from position 0 and with empty states. */
static void run_sequence(hrt_trainer *t, const call *c, int64_t start, int64_t n) {
    hrt_session *s = &t->session;
    const void *ins[] = {c->tokens + start, c->targets + start};
    hrt_clear_states(s->model, &s->memory);
    const hrt_job job = {
        .model = s->model,
        .level = s->level,
        .memory = &s->memory,
        .weights = t->weights,
        .ins = ins,
        .outs = t->outs,
        .n = n,
        .rows = n,
        .in_loss = c->alone,
        .profile = s->profile,
    };
    (void)hrt_run(&job, hrt_workers(s)); /* nothing crosses in it, so nothing can fail */
}

static int run(hrt_trainer *t, const call *c, double *sum) {
    int64_t start = 0;
    *sum = 0;
    hrt_in_shares(hrt_workers(&t->session), pack, t);
    for (int64_t i = 0; i < c->sequences; i++) {
        run_sequence(t, c, start, c->lengths[i]);
        t->spoilt |= !c->alone && !isfinite(t->loss);
        if (!isfinite(t->loss))
            return hrt_fail(&t->session, HRT_FINITE,
                            "the loss of sequence %" PRId64
                            " is %g: numbers on the way to it are too large%s",
                            i, (double)t->loss, c->alone ? "" : ", and the gradients are spoilt");
        *sum += (double)t->loss;
        start += c->lengths[i];
    }
    return HRT_OK;
}

static int make_call(hrt_trainer *t, const call *c, double *sum, int64_t *count) {
    static const char *const names[] = {"tokens", "targets", "lengths", "sum", "count"};
    const void *const pointers[] = {c->tokens, c->targets, c->lengths, sum, count};
    if (!t) return HRT_ARGUMENT;
    hrt_session *s = &t->session;
    if (!hrt_enter(s)) return hrt_why_not(s);
    const int64_t least = s->side.comm ? 0 : 1; /* other ranks may have some */
    int64_t n = 0, counted = 0;
    uint64_t parameters = 0;
    double all = 0;
    int code = check_pointers(s, pointers, names, sizeof names / sizeof *names);
    if (code == HRT_OK && c->sequences < least)
        code = hrt_fail(s, HRT_ARGUMENT, "%" PRId64 " sequences: at least one is needed",
                        c->sequences);
    if (code == HRT_OK) code = check_lengths(s, c->lengths, c->sequences, &n);
    if (code == HRT_OK) code = check_tokens(s, c->tokens, c->targets, n, &counted);
    if (code == HRT_OK) code = check_parameters(t, &parameters);
    code =
        hrt_agree_on_training(t, c->alone ? HRT_CALL_LOSS : HRT_CALL_GRADIENTS, code, parameters);
    if (code != HRT_OK) return hrt_leave(s, code);
    code = hrt_sum_losses(t, run(t, c, &all), &all, &counted);
    t->spoilt |= code != HRT_OK && !c->alone;
    if (code != HRT_OK) return hrt_leave(s, code);
    *sum = all, *count = counted;
    if (!c->alone) t->count += counted;
    return hrt_leave(s, HRT_OK);
}

int hrt_gradients(hrt_trainer *t, const int32_t *tokens, const int32_t *targets,
                  const int64_t *lengths, int64_t sequences, double *sum, int64_t *count) {
    const call c = {tokens, targets, lengths, sequences, false};
    return make_call(t, &c, sum, count);
}

int hrt_trainer_loss(hrt_trainer *t, const int32_t *tokens, const int32_t *targets,
                     const int64_t *lengths, int64_t sequences, double *sum, int64_t *count) {
    const call c = {tokens, targets, lengths, sequences, true};
    return make_call(t, &c, sum, count);
}
