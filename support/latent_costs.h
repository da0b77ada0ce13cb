/* The costs of two ways to compute latent attention, of which a call takes the one with fewer
 * multiply-adds. The first attends to the latent rows as they are cached, and is cheaper for calls
 * with few rows. The second expands keys and values from the latent rows first, and is cheaper for
 * calls with many rows. The passes state these numbers; the runtime decides by them for each call.
 */
#ifndef HD_LATENT_COSTS_H
#define HD_LATENT_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#define HD_LATENT_COSTS(I64)                                                                       \
    I64(window) /* positions that a row attends to, including its own; 0: all up to its own */     \
    /* Multiply-adds of both ways per pair of a row and a position: */                             \
    I64(few_pair)                                                                                  \
    I64(many_pair)                                                                                 \
    I64(few_row)       /* multiply-adds of the first way per row */                                \
    I64(many_position) /* of the second per position that any row attends to */                    \
    I64(most)          /* the second is for calls with at most this many positions; 0: no limit */

typedef struct hd_latent_costs {
#define I64(field) int64_t field;
    HD_LATENT_COSTS(I64)
#undef I64
} hd_latent_costs;

/* Does a call that computes the last `rows` of `length` positions take fewer multiply-adds in the
 * second way? Its first row attends to length - rows + 1 positions, its last row to all of them. */
static inline bool hd_expanded_is_cheaper(const hd_latent_costs *f, int64_t rows, int64_t length) {
    const int64_t window = f->window ? f->window : length, before = length - rows + 1;
    const int64_t first = before < window ? before : window;
    const int64_t last = length < window ? length : window;
    const int64_t seen = length - rows < window - 1 ? length : window - 1 + rows;
    const int64_t pairs = rows * (first + last) / 2;
    return rows > 1 && (!f->most || length <= f->most) &&
           pairs * f->many_pair + seen * f->many_position < pairs * f->few_pair + rows * f->few_row;
}

#endif
