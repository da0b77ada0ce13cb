/* Where a program is cut into runs of layers for the stages of a pipeline.
 *
 * stage_cost.c  what each op takes and holds, in numbers that no machine has a part in
 * stage_cuts.c  the best cut, given these
 *
 * Every stage is compiled by itself, perhaps on another machine, and all must find the same cut: so
 * there are integers alone, and no figure of a machine. docs/decisions/sharding.md says what
 * is counted, and why so. */
#ifndef HIR_PASSES_STAGE_CUTS_H
#define HIR_PASSES_STAGE_CUTS_H

#include "passes/util.h"

/* The call that is counted: a prompt in chunks, which is what fills a pipeline. A token goes
 * through all stages, however they are cut. They are those of `hadal plan` and --chunk where
 * nothing else is asked for. */
enum { STAGE_PROMPT = 4096, STAGE_CHUNK = 512 };
enum { STAGE_OPERATIONS_PER_BYTE = 8 }; /* that are done while a byte comes from memory */

/* Of an op. */
typedef struct stage_cost {
    uint64_t work;   /* operations, and bytes as the operations that are done meanwhile */
    uint64_t at_end; /* the same in the last run, whose results are wanted of one token alone */
    uint64_t held;   /* bytes of the weights that it reads, and of the states that it is first at */
    bool layer;      /* reads weights, other than rows of a table */
    bool contracted; /* a kernel of its own, beside which row programs stand */
} stage_cost;

/* By number in `program`, n ops in their order; those of `free`, by op, are done by every stage. */
stage_cost *stage_costs(hir_pass_context *c, const hir_id *program, uint32_t n, const bool *free);
/* Places where the program may be cut, with its beginning as the first and its end as the last. */
typedef struct stage_places {
    uint32_t n;
    const uint64_t *work, *held; /* of all that is in front of the place */
    const uint64_t *at_end;      /* the same work, were it in the last run */
    const uint64_t *live;        /* elements of each token that are sent there; 0 at both ends */
    const uint32_t *layers;      /* ops that read weights, in front of the place */
} stage_places;

/* Work of the run between two places. */
static inline uint64_t stage_run_work(const stage_places *p, uint32_t from, uint32_t to) {
    const uint64_t *work = to + 1 == p->n ? p->at_end : p->work;
    return work[to] - work[from];
}
/* What a run may hold and work at most, given the mean, and the least that can be had. */
uint64_t stage_most_held(uint64_t mean, uint64_t least);
uint64_t stage_most_work(uint64_t least);

/* Fills cut[0 .. runs] with the numbers of places, from 0 to n - 1. Every run reads weights. Of all
 * such cuts, those count that hold no more than stage_most_held in any run; of these, those whose
 * run of most work has no more than stage_most_work of the least possible; of these, those at which
 * least is live; of these it is one whose run of most work has least. False: there are fewer layers
 * than runs. */
bool stage_best_cuts(hd_arena *a, const stage_places *p, uint32_t runs, uint32_t *cut);

#endif
