/* How far apart the values of an arena lie that has a row of each value for each token. plan-memory
 * gives each value a place in bytes a token; in a call of T tokens places are multiplied by this
 * number of rows, T or a little more.
 *
 * Kernels read and write the same columns of many values at a time. Where these are the same line of
 * their pages, they compete for one set of the L1; where they are that or the next line, loads wait for
 * stores that they have nothing to do with, since a CPU compares the lower 12 bits of addresses first
 * (4K aliasing).
 * Rows of values are n lines long with an odd n (plan-memory pads them), so with R rows the next value
 * is n R lines further on: modulo the 64 lines of a page, an even R repeats a line after a few values,
 * a multiple of 64 at once, and R = 64 i + 1 puts values side by side whose n is 1 modulo 64 (d = 1024,
 * 2048 ..). Programs call with powers of two. */
#ifndef HD_ARENA_ROWS_H
#define HD_ARENA_ROWS_H

#include <stdint.h>

enum {
    HD_PAGE_LINES = 64,
    HD_LINES_APART = 5, /* at least, and odd: 3 to 61 are alike, 1 and 63 take 8 / 7 of the time */
    HD_FEW_ROWS = 32,   /* calls of fewer tokens take as long wherever values lie */
};

/* An odd number of rows, `tokens` or more; more tokens have as many or more. */
static inline uint64_t hd_arena_rows(uint64_t tokens) {
    const uint64_t rows = tokens | 1, over = rows % HD_PAGE_LINES;
    if (tokens < HD_FEW_ROWS) return rows;
    if (over < HD_LINES_APART) return rows + HD_LINES_APART - over;
    if (over <= HD_PAGE_LINES - HD_LINES_APART) return rows;
    return rows + HD_PAGE_LINES + HD_LINES_APART - over;
}

#endif
