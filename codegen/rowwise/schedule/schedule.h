/* Schedules of row programs: the second of three steps, graph → schedule → emit
 * (docs/row-programs.md).
 *
 * Every decision about how a row program runs on a CPU level is made here and kept as plain data:
 * the nests in order, what each computes, how its loops are unrolled, jammed, blocked and
 * interchanged, what is prefetched and which stores may be non-temporal. emit/ carries it out and
 * decides nothing. A schedule can be printed (print.c) and is read by tests; nothing here knows
 * LLVM.
 *
 *   schedule/nests.c        what is kept where, which nodes share one loop nest, and which nests
 *                           stay in registers
 *   schedule/loops.c        unroll, unroll-and-jam, blocks of sums
 *   schedule/groups.c       many results of the same rows; reductions that share a loop
 *   schedule/in_place.c     results that have the place of what they replace
 *   schedule/memory.c       which rows are prefetched, which stores may be non-temporal
 *   schedule/schedule.c     the steps in order
 *   schedule/print.c        a line of text a nest
 */
#ifndef HCG_ROW_SCHEDULE_H
#define HCG_ROW_SCHEDULE_H

#include "codegen/rowwise/graph/graph.h"
#include "support/machine.h"

/* What a schedule depends on besides the graph. */
typedef struct row_target {
    unsigned lanes, registers; /* lanes: f32 of a vector; registers: for vectors */
    bool nontemporal;          /* the target has stores that bypass the caches */
    hd_machine machine;
} row_target;

enum {
    ROW_UNROLL = 4,     /* the most vectors side by side in an iteration */
    ROW_MOST_SUMS = 24, /* the greatest row_most_sums() of any target */
    ROW_MOST_JAM = 24,  /* the most rows jammed into one iteration */
};

/* The most accumulators of an iteration, over all jammed rows and unrolled vectors: the registers
 * of the target that operands do not need. */
static inline uint32_t row_most_sums(const row_target *t) {
    return t->registers < 32 ? 8 : ROW_MOST_SUMS;
}

/* The same where all are products of n rows with m others: beside them stay the vectors of one side
 * and one of the other. */
static inline uint32_t row_most_products(const row_target *t) {
    return t->registers < 32 ? 12 : ROW_MOST_SUMS;
}

/* ---- one nest -------------------------------------------------------------------------------- */

/* Unroll-and-jam: how many elements of the two dims in front of the vectors' dim one iteration
 * computes. */
typedef struct row_jam {
    uint32_t outer, inner;
} row_jam;

/* Blocks of the dim that vectors run along: all sums read a block, which stays in the L1
 * meanwhile, before any sum reads the next block. */
typedef struct row_block {
    int64_t length;    /* elements; 0: no blocks */
    bool interchanged; /* the two loops in front of the vectors' loop are interchanged */
} row_block;

/* The accumulators of a sum along the vectors' dim: vector number v is added to accumulator v mod
 * so many, the accumulators are added up, and then the upper half of the lanes to the lower until
 * one is left. So the order of a sum is a property of its op and of the level's vectors, and neither
 * of the unroll nor of what shares its nest: an op that another row program computes as well, as
 * those that `rematerialise` repeats, has the same bits there. A sum with no others beside it has
 * two, for the latency of an addition; where there are several (a nest of more dims), these hide
 * it. */
enum { ROW_CHAINS = 2 };
static inline uint32_t row_chains(const row_shape *domain) {
    return domain->rank == 1 ? ROW_CHAINS : 1;
}

/* Groups of results, where a nest makes many results from the same rows: one loop along the
 * vectors computes one group. */
typedef struct row_groups {
    const uint32_t *order;  /* the nest's roots, each next to its readers; later ones first */
    HD_VEC(uint32_t) first; /* where each group begins in `order`; in the order of execution */
    unsigned unroll;
    int64_t block; /* elements that all groups compute before any goes on to the next block */
} row_groups;

/* Reductions, over a dim that vectors do not run along, which share one loop and the loads in it.
 */
typedef struct row_team {
    unsigned unroll; /* unroll of the iterations that use this team */
    uint32_t n, member[ROW_MOST_SUMS];
    int64_t step;      /* elements that an iteration takes; the extent or more: no loop */
    uint32_t prefetch; /* the ROW_MULTI whose rows are prefetched further along; HIR_NONE: none */
} row_team;

/* Rows that are prefetched while others are read: rows of ROW_MULTI `node`, counted by loop
 * `dim`. */
typedef struct row_prefetch {
    uint32_t node, dim;
} row_prefetch;

typedef struct row_nest {
    row_shape domain;
    row_index loops[ROW_VARS]; /* dims of its roots as functions of the loops */
    HD_VEC(uint32_t) roots;    /* later ones first */
    uint32_t reductions;       /* how many roots are reductions along the vectors */
    const row_ref *when;       /* it runs for tokens where this number is above 0; NULL: for all */
    bool selection;            /* its root is a ROW_SELECTION, whose code has loops of its own */
    bool small;                /* its roots are computed whole, in registers */
    /* How its loops run. These are not used for small nests and nests of one element. */
    bool sums;     /* all roots are reductions along the vectors */
    bool in_place; /* the nest writes where it reads: an iteration stores at its end */
    row_jam jam;
    /* An iteration takes each row of the inner loop with all of the outer one, not vice versa. */
    bool outer_stays;
    uint8_t unroll[ROW_MOST_JAM + 1]; /* vectors of an iteration that takes so many rows */
    row_block block;
    row_groups groups; /* for iterations of one row; `first` empty: all results are one group */
    HD_VEC(row_team) teams;
    HD_VEC(row_prefetch) prefetch;
} row_nest;

typedef struct row_nests {
    HD_VEC(row_nest) list; /* the one that runs last comes first */
    bool once;             /* they run once, before the first token */
} row_nests;

/* What the schedule decides about a node. */
typedef struct row_scheduled {
    uint32_t uses, depth; /* reads; how many nested ops are computed where it is read */
    uint32_t direct;      /* reads that are not by way of a ROW_MULTI */
    bool wide_use;        /* read once for several elements of the reader */
    bool costly;          /* holds more than additions and multiplications */
    bool root;            /* computed in a nest of its own or with others, not where it is read */
    uint32_t nest, limit, reader; /* its nest; the earliest that it may be in; one that reads it */
    bool far_read;                /* read elsewhere than at the same index of the same nest */
    bool chained;     /* reads other roots of its nest at its own index, so it comes after them */
    bool small;       /* its nest is small (schedule/nests.c) */
    bool from_memory; /* it is in a small nest and is read by a nest that is not */
    bool nontemporal; /* its stores may be non-temporal (schedule/memory.c) */
} row_scheduled;

typedef struct row_schedule {
    row_graph *g;
    row_target target;
    row_scheduled *of; /* per node of the graph */
    row_nests once, per_token;
} row_schedule;

static inline row_scheduled *row_of(const row_schedule *s, const row_node *n) {
    return &s->of[n - s->g->nodes.at];
}

/* Bytes of a row that an iteration has to read before it prefetches any: half a line. */
enum { ROW_PREFETCH_LEAST = 32 };

/* ---- schedules ------------------------------------------------------------------------------- */

/* Makes the schedule of `g`, and gives buffers in `g` to what is kept in memory. */
void row_make_schedule(row_graph *g, const row_target *target, row_schedule *out);
/* May results overwrite the values that they replace? If not, they are computed in scratch
 * (row_graph.apart). */
bool row_may_be_in_place(const row_schedule *s);
/* Makes the graph and the schedule of a row kernel, with results in place where the schedule
 * allows it. False after a diagnostic. */
bool row_schedule_kernel(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_kernel *k,
                         const row_target *target, row_graph *g, row_schedule *out);

/* Prints a line for each nest, each after `indent`. */
void row_print_schedule(const row_schedule *s, const char *indent, hd_text *out);

/* The team whose first member is `node`, in iterations of `unroll` vectors; NULL: `node` is in the
 * team of another. */
const row_team *row_team_of(const row_nest *nest, uint32_t node, unsigned unroll);
/* The loops that compute a root: its dims and, for a reduction along the vectors, the reduced one.
 */
row_shape row_domain(const row_node *n);
/* Non-temporal stores fill units of so many bytes, a power of two: a cache line, or the longest
 * vector if that is longer, since a vector must not lie across two units. */
int64_t row_store_unit(const hd_machine *m);
/* How many vectors of a result that is stored fill such a unit. */
unsigned row_unit_vectors(const row_schedule *s, const row_node *n);
/* The largest value of a size, among all N of the kernel. */
int64_t row_most(const row_graph *g, row_size size);

#endif
