/* tile-logits: the logits of a training call exist for a tile of its tokens at a time.
 *
 * Needs    kernels in their order (schedule) of a model with gradients.
 * Does     finds the kernels that make or read rows of logits, or of their gradients: the products
 *          with the head's matrix, the loss, and their gradients. Where the logits of the longest
 *          call take more than HIR_MOST_LOGITS bytes, these kernels get the attribute `tile` and are moved
 *          together, so that they do all of a few hundred tokens before the next (ir/kernel/tiled.h).
 *          Kernels between them go before them, or after them if they need their results.
 * Leaves   models with few logits; and, with a remark, those whose kernels cannot be done so: their
 *          logits are stored.
 *
 * Nothing is computed twice. The price is that the matrix, its transpose and its gradient go through
 * memory once a tile, and not once a call: tiles have LEAST tokens at least, for which that is
 * little beside the products.
 */
#include "ir/kernel/tiled.h"
#include "passes/util.h"

enum {
    LEAST = 256, /* tokens of a tile, */
    UNIT = 64,   /* and what they are a multiple of */
};

/* When a kernel between those that are tiled runs. */
typedef enum when { BEFORE, AMONG, AFTER } when;

typedef struct tiler {
    hir_pass_context *c;
    hir_module *m;
    HD_VEC(hir_id) kernels;
    uint32_t *number;     /* by op: of a kernel */
    bool *logits, *tiled; /* by value: rows of logits, or as long; by kernel */
    size_t first, end;    /* kernels from the first to the last that is tiled */
    int64_t longest;      /* elements of the longest row that a kernel of the loss reads or makes */
    when *when;           /* by kernel from the first to the last that is tiled */
} tiler;

typedef void visitor(tiler *t, size_t kernel, hir_id value);

/* Visits the values that the kernel reads from others or gives to them, some more than once. */
static void each_read(tiler *t, size_t kernel, visitor *visit) {
    const hir_id id = t->kernels.at[kernel];
    HIR_EACH(t->m, op, hir_op_at(t->m, id)->body_first) {
        const hir_op *o = hir_op_at(t->m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id def = pass_def(t->m, o->args[i]);
            if (def == HIR_NONE || hir_op_at(t->m, def)->parent == HIR_NONE)
                visit(t, kernel, o->args[i].index);
        }
    }
}

static void each_operand(tiler *t, size_t kernel, visitor *visit) {
    const hir_op *k = hir_op_at(t->m, t->kernels.at[kernel]);
    for (uint32_t i = 0; i < k->n_results; i++)
        visit(t, kernel, k->results[i]);
    each_read(t, kernel, visit);
}

static void find_kernels(tiler *t) {
    hd_arena *a = t->c->scratch;
    t->number = hd_new_array(a, uint32_t, t->m->ops.n);
    HIR_EACH(t->m, op, t->m->first) {
        if (!hir_is_kernel(hir_op_at(t->m, op))) continue;
        t->number[op] = (uint32_t)t->kernels.n;
        hd_push(a, &t->kernels, op);
    }
    t->logits = hd_new_array(a, bool, t->m->values.n);
    t->tiled = hd_new_array(a, bool, t->kernels.n + 1);
}

/* ---- which kernels --------------------------------------------------------------------------- */
static int64_t row_elements(const tiler *t, hir_id value) {
    const hir_type type = hir_value_at(t->m, value)->type;
    return hir_type_has_t(type) ? pass_elements(type) : 0;
}

static void note_targets(tiler *t, size_t kernel, hir_id value) {
    t->tiled[kernel] |= value == t->m->inputs.at[1];
}

static void note_longest(tiler *t, size_t kernel, hir_id value) {
    (void)kernel;
    if (row_elements(t, value) > t->longest) t->longest = row_elements(t, value);
}

/* Padding of a vocabulary makes rows longer, and two heads side by side twice as long. */
static void note_logits(tiler *t, size_t kernel, hir_id value) {
    if (t->tiled[kernel]) t->logits[value] |= row_elements(t, value) > t->longest / 2;
}

static void note_tiled(tiler *t, size_t kernel, hir_id value) {
    t->tiled[kernel] |= t->logits[value];
}

/* Begins with the kernels of the loss, and adds those that share rows of logits with them. */
static void find_tiled(tiler *t) {
    for (size_t k = 0; k < t->kernels.n; k++)
        each_read(t, k, note_targets);
    for (size_t k = 0; k < t->kernels.n; k++)
        if (t->tiled[k]) each_operand(t, k, note_longest);
    for (size_t found = 0, before = SIZE_MAX; found != before;) {
        before = found, found = 0;
        for (size_t k = 0; k < t->kernels.n; k++) {
            each_operand(t, k, note_tiled);
            each_operand(t, k, note_logits);
            found += t->tiled[k];
        }
    }
    for (size_t k = t->kernels.n; k-- > 0;)
        if (t->tiled[k]) t->first = k;
    for (size_t k = 0; k < t->kernels.n; k++)
        if (t->tiled[k]) t->end = k + 1;
}

/* ---- order ----------------------------------------------------------------------------------- */
/* The kernel of the interval that makes the value; its end: none does. */
static size_t maker(const tiler *t, hir_id value) {
    const hir_id op = hir_value_at(t->m, value)->op;
    if (op == HIR_NONE || !hir_is_kernel(hir_op_at(t->m, op))) return t->end;
    const size_t k = t->number[op];
    return k >= t->first && k < t->end ? k : t->end;
}

static void note_waits(tiler *t, size_t kernel, hir_id value) {
    const size_t by = maker(t, value);
    if (by != t->end && t->when[by] != BEFORE && t->when[kernel] == BEFORE) t->when[kernel] = AFTER;
}

static void note_awaited(tiler *t, size_t kernel, hir_id value) {
    const size_t by = maker(t, value);
    if (by != t->end && t->when[kernel] == AMONG && t->when[by] == AFTER) t->when[by] = AMONG;
}

/* A kernel that needs no tiled one goes before them, one that no tiled one needs after them; the
 * others are tiled as well. */
static void find_order(tiler *t) {
    t->when = hd_new_array(t->c->scratch, when, t->kernels.n);
    for (size_t k = t->first; k < t->end; k++) {
        t->when[k] = t->tiled[k] ? AMONG : BEFORE;
        each_read(t, k, note_waits);
    }
    for (size_t k = t->end; k-- > t->first;)
        each_read(t, k, note_awaited);
}

/* Why a kernel cannot be tiled; *kernel: which it is. NULL: all can. */
static const char *why_not(const tiler *t, hir_id *kernel) {
    for (size_t k = t->first; k < t->end; k++) {
        const char *why = t->when[k] == AMONG ? hir_why_not_tiled(t->m, t->kernels.at[k]) : NULL;
        *kernel = t->kernels.at[k];
        if (why) return why;
    }
    return NULL;
}

static void move_together(tiler *t, int64_t tokens) {
    const hir_id behind = hir_op_at(t->m, t->kernels.at[t->end - 1])->next;
    for (when now = BEFORE; now <= AFTER; now++)
        for (size_t k = t->first; k < t->end; k++) {
            if (t->when[k] != now) continue;
            hir_move_before(t->m, t->kernels.at[k], HIR_NONE, behind);
            if (now == AMONG) hir_set_attr(t->m, t->kernels.at[k], hir_int(HIR_A_TILE, tokens));
        }
    t->c->changed = true;
}

/* ---- the pass -------------------------------------------------------------------------------- */
bool pass_tile_logits(hir_pass_context *c) {
    tiler t = {.c = c, .m = c->m};
    hir_id kernel = HIR_NONE;
    if (!hir_has_gradients(c->m)) return true;
    find_kernels(&t);
    find_tiled(&t);
    if (!t.longest) return true;
    const int64_t row = t.longest * (int64_t)sizeof(float);
    const int64_t chunk = c->options->chunk > 0 ? c->options->chunk : hir_default_options.chunk;
    int64_t tokens = HIR_MOST_LOGITS / row / UNIT * UNIT;
    if (tokens < LEAST) tokens = LEAST;
    if (tokens >= chunk) {
        hir_remark_add(c, false, HIR_NONE,
                       "logits are stored: %lld bytes of each token, at most %lld tokens",
                       (long long)row, (long long)chunk);
        return true;
    }
    find_order(&t);
    const char *why = why_not(&t, &kernel);
    if (why) {
        hir_remark_add(c, false, kernel,
                       "logits of all tokens are stored: of one of their kernels, %s", why);
        return true;
    }
    move_together(&t, tokens);
    hir_remark_add(c, true, HIR_NONE,
                   "logits are there for %lld tokens at a time: %lld bytes of each token",
                   (long long)tokens, (long long)row);
    return true;
}
