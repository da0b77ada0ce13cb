/* Which window of the data is read when: an order that is drawn from a seed and needs no memory.
 *
 * The data are n tokens one after the other. A window is `context` + 1 of them: all but the last are
 * read, all but the first predicted. Windows follow each other with a step of `context`, so that the
 * last token of one is the first of the next, and each token is predicted once. In an epoch each
 * window is read once, in an order of that epoch. The tokens that no whole window is left for are
 * divided between both ends, in each epoch in another way. */
#ifndef API_TRAIN_ORDER_H
#define API_TRAIN_ORDER_H

#include <stdint.h>

typedef struct train_order {
    uint64_t seed;
    int64_t context;
    int64_t windows; /* of an epoch, at least 1 */
    int64_t spare;   /* tokens that no window of an epoch has */
} train_order;

/* `tokens` more than `context`. */
train_order train_order_of(uint64_t seed, int64_t tokens, int64_t context);
/* The first token of the window that is read as number `i` (from 0, through all epochs). */
int64_t train_window(const train_order *o, int64_t i);

#endif
