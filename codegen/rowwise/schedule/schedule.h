/* Schedules of row programs: the second of three steps, graph → schedule → emit
 * (docs/row-programs.md).
 *
 * Every choice about how a row program runs on a CPU level is made here and kept as plain data: the
 * nests in order, what each computes, how its loops are unrolled, jammed, blocked and interchanged,
 * what is prefetched and which stores may be non-temporal. emit/ carries it out and chooses
 * nothing. A schedule can be printed (print.c) and is read by tests; nothing here knows LLVM.
 *
 *   schedule/nests.c        what is kept where, which nodes share one loop nest, and nests that stay in
 *                           registers
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

/* What a schedule depends on beside the graph. */
typedef struct row_target {
    unsigned lanes, registers; /* f32 of a vector; for vectors */
    bool nontemporal;          /* it has stores that bypass the caches */
    hd_machine machine;
} row_target;

enum {
    ROW_UNROLL = 4,     /* vectors side by side in an iteration, at most */
    ROW_MOST_SUMS = 24, /* row_most_sums() of any target, at most */
    ROW_MOST_JAM = 24,  /* rows jammed into one iteration, at most */
};

/* Accumulators of an iteration, over all jammed rows and unrolled vectors: the registers of the
 * target that operands do not need. */
static inline uint32_t row_most_sums(const row_target *t) {
    return t->registers < 32 ? 8 : ROW_MOST_SUMS;
}

/* ---- one nest -------------------------------------------------------------------------------- */

/* Unroll-and-jam: how many elements of the two dims in front of the vectors' dim one iteration
 * computes. */
typedef struct row_jam {
    uint32_t outer, inner;
} row_jam;

/* Blocks of the dim that vectors run along: all sums read a block, which stays in the L1 meanwhile,
 * before any reads the next. */
typedef struct row_block {
    int64_t length;    /* elements; 0: no blocks */
    bool interchanged; /* the two loops in front of the vectors' loop are interchanged */
} row_block;

/* Groups of results: where a nest makes many results from the same rows, those that one loop along
 * the vectors computes. */
typedef struct row_groups {
    const uint32_t *order;  /* the nest's roots, each followed by those that read it; later first */
    HD_VEC(uint32_t) first; /* of each group in `order`; the groups in the order they run in */
    unsigned unroll;
    int64_t block; /* elements that all groups compute before any goes on to the next block */
} row_groups;

/* Reductions, over a dim that vectors do not run along, which share one loop and the loads in it.
 */
typedef struct row_team {
    unsigned unroll; /* of the iterations that use this team */
    uint32_t n, member[ROW_MOST_SUMS];
    int64_t step;      /* elements that an iteration takes; the extent or more: no loop */
    uint32_t prefetch; /* ROW_MULTI whose rows are prefetched further along; HIR_NONE */
} row_team;

/* Rows that are prefetched while others are read: of ROW_MULTI `node`, counted by loop `dim`. */
typedef struct row_prefetch {
    uint32_t node, dim;
} row_prefetch;

typedef struct row_nest {
    row_shape domain;
    row_index loops[ROW_VARS]; /* dims of its roots as functions of the loops */
    HD_VEC(uint32_t) roots;    /* later ones first */
    uint32_t reductions;       /* of them along the vectors */
    const row_ref *when;       /* it runs for tokens where this number is above 0; NULL: for all */
    bool choice;               /* its root is a ROW_CHOICE, whose code has loops of its own */
    bool small;                /* its roots are computed whole, in registers */
    /* how its loops run; not used for small nests and those of one element */
    bool sums;     /* all roots are reductions along the vectors */
    bool in_place; /* it writes where it reads: an iteration stores at its end */
    row_jam jam;
    uint8_t unroll[ROW_MOST_JAM + 1]; /* vectors of an iteration that takes so many rows */
    row_block block;
    row_groups groups; /* for iterations of one row; `first` empty: all results are one group */
    HD_VEC(row_team) teams;
    HD_VEC(row_prefetch) prefetch;
} row_nest;

typedef struct row_nests {
    HD_VEC(row_nest) list; /* the one that runs last comes first */
    bool once;             /* before the first token */
} row_nests;

/* What is decided of a node. */
typedef struct row_scheduled {
    uint32_t uses, depth; /* reads; ops that are computed where it is read, one inside the other */
    uint32_t direct;      /* reads that are not by way of a ROW_MULTI */
    bool wide_use;        /* read once for several elements of the reader */
    bool costly;          /* holds more than additions and multiplications */
    bool root;            /* computed in a nest of its own or with others, not where it is read */
    uint32_t nest, limit, reader; /* its own; the earliest that it may be in; one that reads it */
    bool far_read;                /* read elsewhere than at the same index of the same nest */
    bool chained;     /* reads other roots of its nest at its own index, so it comes after them */
    bool small;       /* its nest is (schedule/nests.c) */
    bool from_memory; /* read by a nest that is not */
    bool nontemporal; /* its stores may be (schedule/memory.c) */
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
/* Graph and schedule of a row kernel: results in place where the schedule allows it. False after a
 * diagnostic. */
bool row_schedule_kernel(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_kernel *k,
                         const row_target *target, row_graph *g, row_schedule *out);

/* A line a nest, each behind `indent`. */
void row_print_schedule(const row_schedule *s, const char *indent, hd_text *out);

/* The team whose first member is `node`, in iterations of `unroll` vectors; NULL: `node` is in the
 * team of another. */
const row_team *row_team_of(const row_nest *nest, uint32_t node, unsigned unroll);
/* The loops that compute a root: its dims and, for a reduction along the vectors, the reduced one.
 */
row_shape row_domain(const row_node *n);
/* Non-temporal stores fill units of so many bytes, a power of two: lines, and vectors as long as
 * can be, which must not lie across two units whatever the lines are. */
int64_t row_store_unit(const hd_machine *m);
/* The largest value of a size, among all N of the kernel. */
int64_t row_most(const row_graph *g, row_size size);

#endif
