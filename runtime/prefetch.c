/* The order of prefetching (prefetch.h): column by column, and in each column the panels of all
 * matrices that have the column. That is nearly the order in which kernels read them. */
#include "runtime/prefetch.h"

#include <stddef.h>

void hrt_prefetch_aim(hrt_prefetch *a, const hrt_model *m, const uint8_t *weights, uint32_t step,
                      int64_t from, int64_t to, int64_t most) {
    if (a->step == step && a->to == to) return;
    const hrt_step *s = &m->steps[step];
    *a = (hrt_prefetch){.step = step, .col = from, .to = to, .weights = weights};
    for (uint32_t k = 0; k < s->n_operands && a->n < HRT_PREFETCH_MATRICES; k++) {
        const hrt_operand *o = &m->operands[s->first_operand + k];
        if (o->col_bytes > 0) a->of[a->n++] = o;
    }
    a->left = a->n > 0 && from < to ? most : 0;
}

/* Moves to the next panel. False: that was the last one. */
static bool next_panel(hrt_prefetch *a) {
    a->at = 0;
    if (++a->matrix < a->n) return true;
    a->matrix = 0;
    return ++a->col < a->to;
}

/* Column `col` of the step as the matrix counts its own columns. Outside of [0, cols): the matrix
 * does not have it. */
static int64_t own_column(const hrt_prefetch *a) {
    return a->col - (int64_t)a->of[a->matrix]->first_col;
}

const uint8_t *hrt_prefetch_next(hrt_prefetch *a) {
    if (a->left <= 0) return NULL;
    while (own_column(a) < 0 || own_column(a) >= (int64_t)a->of[a->matrix]->cols ||
           a->at >= a->of[a->matrix]->col_bytes)
        if (!next_panel(a)) {
            a->left = 0;
            return NULL;
        }
    const hrt_operand *o = a->of[a->matrix];
    const uint8_t *p = a->weights + o->offset + (uint64_t)own_column(a) * o->col_bytes + a->at;
    a->at += HRT_PREFETCH_BLOCK;
    a->left -= HRT_PREFETCH_BLOCK;
    return p;
}
