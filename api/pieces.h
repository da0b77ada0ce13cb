/* The time of a call in pieces: each step of it in each round. A call of a whole model takes longer
 * than other work on a shared host leaves the cores alone; its steps, of 1 to 30 ms, are run often
 * enough for some of them to be left alone.
 *
 *   pieces p;
 *   pieces_begin(&p, arena, n);          of n pieces each
 *   for (...) pieces_add(&p, seconds);   once a round, seconds[n]
 *   pieces_seconds(&p, kind, PIECES_LEAST) */
#ifndef API_PIECES_H
#define API_PIECES_H

#include "api/stats.h"
#include "support/arena.h"

typedef struct pieces {
    hd_arena *arena;
    size_t n, rounds;
    double *at[SAMPLES]; /* [rounds][n] */
} pieces;

/* The share of the runs of a kind that is taken to be undisturbed, and the one that shows how much that
 * choice matters. */
#define PIECES_LEAST 0.1
#define PIECES_MORE  0.25

void pieces_begin(pieces *p, hd_arena *a, size_t n);
void pieces_add(pieces *p, const double *seconds); /* dropped once there are SAMPLES rounds */
/* Seconds of a call: the sum over all pieces, each with the quantile q of the runs of its kind in all
 * rounds. kind[n]: pieces that do the same work have the same number, that of the first of them. Of
 * two runs or more the fastest never counts alone. 0: there are no rounds. */
double pieces_seconds(const pieces *p, const size_t *kind, double q);

#endif
