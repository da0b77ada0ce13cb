/* Two ways to one result, of which a call takes the one with fewer multiply-adds: latent attention
 * over rows as they are cached, for few rows of a call, and over keys and values that are made of
 * them first, for many. The passes state these numbers, the runtime decides by them for each call.
 */
#ifndef HD_LATENT_COSTS_H
#define HD_LATENT_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#define HD_LATENT_COSTS(I64)                                                                       \
    I64(window) /* positions that a row sees, with its own; 0: all before it */                    \
    /* Multiply-adds of both for each pair of a row and a position that it sees; */                \
    I64(few_pair)                                                                                  \
    I64(many_pair)                                                                                 \
    I64(few_row)       /* of the first for each row; */                                            \
    I64(many_position) /* of the second for each position that some row sees. */                   \
    I64(most) /* the second is only for calls that end with so many positions; 0: with any */

typedef struct hd_latent_costs {
#define I64(field) int64_t field;
    HD_LATENT_COSTS(I64)
#undef I64
} hd_latent_costs;

/* Does a call that does its last `rows` rows, and ends with `length` positions, take fewer in the
 * second? The first of them sees length - rows + 1 positions, the last one all. */
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
