/* Evaluator rules of ngram_gather and its gradient. Ids are whole numbers in f64; hashes have 64
 * bits, whose products wrap around. */
#include <string.h>

#include "ir/eval/private.h"

/* The ids that tokens see, and how rows are named by them. */
typedef struct ngrams {
    const hir_array *ids, *window; /* window NULL: the call is the whole sequence */
    int64_t past;                  /* position of the first token */
    const hir_attr *halves, *sizes, *offsets;
    int64_t n, heads,
        end;          /* ids of the longest context; rows of a token; the id before the start */
    bool ends;        /* a token with that id ends the context, too */
    int64_t *context; /* [n] */
    int64_t *rows;    /* [heads] */
} ngrams;

static ngrams ngrams_of(const eval_call *c, const hir_op *op, const hir_array *ids) {
    ngrams g = {.ids = ids,
                .past = c->C - c->T,
                .halves = hir_find_attr(op, HIR_A_MULTIPLIERS),
                .sizes = hir_find_attr(op, HIR_A_SIZES),
                .offsets = hir_find_attr(op, HIR_A_OFFSETS),
                .ends = hir_find_attr(op, HIR_A_EOS) != NULL};
    g.n = g.halves->n / 2, g.heads = g.sizes->n;
    g.end = hir_attr_int(op, g.ends ? HIR_A_EOS : HIR_A_BEFORE, 0);
    g.context = hd_new_array(c->scratch, int64_t, (size_t)g.n);
    g.rows = hd_new_array(c->scratch, int64_t, (size_t)g.heads);
    return g;
}

/* The id of a position of this call, or of one that the window still holds. */
static int64_t id_at(const ngrams *g, int64_t position) {
    if (position >= g->past) return (int64_t)g->ids->at[position - g->past];
    hd_known(g->window); /* without one the call is the whole sequence, from position 0 */
    return (int64_t)g->window->at[position % g->window->n];
}

/* The ids that the token at p sees s positions back, for s < n: eos from the first eos before p on,
 * and before the start; with `before` in its place, that before the start. */
static void find_context(const ngrams *g, int64_t p) {
    bool ended = false;
    g->context[0] = id_at(g, p);
    for (int64_t s = 1; s < g->n; s++) {
        ended |= s > p;
        g->context[s] = ended ? g->end : id_at(g, p - s);
        ended |= g->ends && g->context[s] == g->end;
    }
}

static uint64_t multiplier(const hir_attr *halves, int64_t s) {
    const uint64_t low = (uint64_t)(int64_t)halves->floats[2 * s];
    return low + ((uint64_t)(int64_t)halves->floats[2 * s + 1] << 32);
}

static int64_t remainder_of(uint64_t hash, int64_t size) {
    const int64_t rest = (int64_t)hash % size;
    return rest < 0 ? rest + size : rest;
}

/* The rows that hashes of the context of token t name. */
static void find_rows(const ngrams *g, int64_t t) {
    const int64_t each = g->heads / (g->n - 1);
    find_context(g, g->past + t);
    uint64_t hash = (uint64_t)g->context[0] * multiplier(g->halves, 0);
    for (int64_t j = 0; j < g->heads; j++) {
        const int64_t s = j / each + 1;
        if (j % each == 0) hash ^= (uint64_t)g->context[s] * multiplier(g->halves, s);
        g->rows[j] =
            remainder_of(hash, (int64_t)g->sizes->floats[j]) + (int64_t)g->offsets->floats[j];
    }
}

bool eval_ngram_gather(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    ngrams g = ngrams_of(c, op, x[0]);
    const int64_t width = y->type.dim[2];
    g.window = x[2];
    for (int64_t t = 0; t < c->T; t++) {
        find_rows(&g, t);
        for (int64_t j = 0; j < g.heads; j++)
            memcpy(y->at + (t * g.heads + j) * width, x[1]->at + g.rows[j] * width,
                   (size_t)width * sizeof *y->at);
    }
    for (int64_t t = c->T > x[2]->n ? c->T - x[2]->n : 0; t < c->T; t++)
        x[2]->at[(g.past + t) % x[2]->n] = x[0]->at[t];
    return true;
}

bool eval_ngram_gather_grad(eval_call *c, const hir_op *op, const hir_array *const *x,
                            hir_array *y) {
    const ngrams g = ngrams_of(c, op, x[0]);
    const int64_t width = x[1]->type.dim[2];
    if (!eval_from_the_start(c, op)) return false;
    for (int64_t t = 0; t < c->T; t++) {
        find_rows(&g, t);
        for (int64_t j = 0; j < g.heads; j++)
            for (int64_t i = 0; i < width; i++)
                y->at[g.rows[j] * width + i] += x[1]->at[(t * g.heads + j) * width + i];
    }
    return true;
}
