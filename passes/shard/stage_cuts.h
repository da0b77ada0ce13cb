/* Where a program is cut into ranges of layers (`runs`) for the stages of a pipeline.
 *
 * stage_cost.c  work and memory of each op, in numbers that do not depend on any machine
 * stage_cuts.c  the best cut for these numbers
 *
 * Every stage is compiled by itself, perhaps on another machine, and all must find the same cut: so
 * all numbers are integers, and none is a measurement of a machine. docs/decisions/sharding.md says
 * what is counted, and why. */
#ifndef HIR_PASSES_STAGE_CUTS_H
#define HIR_PASSES_STAGE_CUTS_H

#include "passes/util.h"

/* The call that is counted: a prompt in chunks, which is what fills a pipeline. (A single token
 * goes through all stages however they are cut.) The numbers are the defaults of `hadal plan` and
 * --chunk. */
enum { STAGE_PROMPT = 4096, STAGE_CHUNK = 512 };
enum { STAGE_OPERATIONS_PER_BYTE = 8 }; /* operations done while one byte comes from memory */

/* The cost of one op. */
typedef struct stage_cost {
    uint64_t work;   /* operations, and bytes as the operations done in the same time */
    uint64_t at_end; /* the same in the last range, whose results are wanted for one token alone */
    uint64_t held;   /* bytes of the weights that it reads, and of the states that it is the first
                      * to use */
    bool layer;      /* reads weights, other than rows of a table */
    bool contracted; /* it is a kernel of its own, next to which there are row programs */
} stage_cost;

/* By number in `program`, n ops in their order; every stage does the ops of `free` (by op). */
stage_cost *stage_costs(hir_pass_context *c, const hir_id *program, uint32_t n, const bool *free);
/* Places where the program may be cut; the first is its beginning, the last its end. */
typedef struct stage_places {
    uint32_t n;
    const uint64_t *work, *held; /* of all that precedes the place */
    const uint64_t *at_end;      /* the same work, if it were in the last range */
    const uint64_t *live;        /* elements of each token that a cut there sends; 0 at both ends */
    const uint32_t *layers;      /* ops that read weights and precede the place */
} stage_places;

/* The work of the range between two places. */
static inline uint64_t stage_run_work(const stage_places *p, uint32_t from, uint32_t to) {
    const uint64_t *work = to + 1 == p->n ? p->at_end : p->work;
    return work[to] - work[from];
}
/* The most that a range may hold and work, given the mean and the least possible. */
uint64_t stage_most_held(uint64_t mean, uint64_t least);
uint64_t stage_most_work(uint64_t least);

/* Fills cut[0 .. runs] with numbers of places, from 0 to n - 1. Every range reads weights. Among
 * all such cuts it takes those that hold no more than stage_most_held in any range; of these, those
 * whose range of most work has no more than stage_most_work of the least possible; of these, those
 * at which the least is live; and of these one whose range of most work has the least. False: there
 * are fewer layers than ranges. */
bool stage_best_cuts(hd_arena *a, const stage_places *p, uint32_t runs, uint32_t *cut);

#endif
