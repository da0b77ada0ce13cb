/* How much of what it enumerates a test does: a part that is enough from day to day, or all, which the environment asks for with
 * HADAL_FULL=1 (docs/testing.md). */
#ifndef TEST_TOOLS_FULL_H
#define TEST_TOOLS_FULL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline bool full_set(void) {
    const char *full = getenv("HADAL_FULL");
    return full && *full == '1';
}

/* Each `of`-th. Where the number is a sum of the numbers of several choices, the short set still has every pair of two of them. */
static inline bool has_turn(uint64_t number, unsigned of) {
    return number % of == 0 || full_set();
}

#endif
