/* How the loops of a nest run: unroll, unroll-and-jam, and blocks of long sums. Vectors run along
 * the last dim of a nest's domain. */
#include "codegen/rowwise/schedule/steps.h"

/* ---- unroll-and-jam -------------------------------------------------------------------------- */

static bool is_all_sums(const row_graph *g, const row_nest *nest) {
    for (size_t i = 0; i < nest->roots.n; i++)
        if (!row_along_lanes(row_at(g, nest->roots.at[i]))) return false;
    return true;
}

static bool adds_products(const row_graph *g, const row_nest *nest) {
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(g, nest->roots.at[i]);
        if (n->buffer == ROW_NO_BUFFER || g->buffers.at[n->buffer].where != ROW_SUM) return false;
    }
    return true;
}

/* How many of `size` elements an iteration takes, at most `most`: all of them; else a divisor, if
 * one is at least LEAST; else such a number that there are as few iterations as possible, of nearly
 * equal size. */
static uint32_t share_of(int64_t size, uint32_t most) {
    enum { LEAST = 3 };
    if (most == 0) return 1;
    if (size <= most) return (uint32_t)size;
    for (uint32_t even = most; even >= LEAST; even--)
        if (size % even == 0) return even;
    const int64_t iterations = (size + most - 1) / most;
    return (uint32_t)((size + iterations - 1) / iterations);
}

/* A nest of sums alone: an iteration multiplies n sources with m queries and loads n + m vectors.
 * If it takes all queries, each source is read once and memory is never idle. More than JAM_OF_SUMS
 * queries are too many: then an iteration takes some sources, each a stream from memory, and as
 * many queries as there are registers left: four and six with 32 registers, two and six with 16.
 * One source at a time, with eight queries, would be bound by loads: nine for eight products.
 * Other nests: an iteration takes all elements of a short dim, such as the streams that a small
 * matrix mixes, since all are made of the same rows, which are then loaded once; and of products that
 * are added to sums over tokens, as for the queries of a block, some of them, for the same reason. */
static row_jam choose_jam(const row_schedule *s, const row_nest *nest) {
    enum { JAM_OF_ALL = 8, JAM_OF_SUMS = 8, JAM_OF_PRODUCTS = 8 };
    const bool many_registers = s->target.registers >= 32;
    const uint32_t most = row_most_sums(&s->target);
    const uint32_t products = row_most_products(&s->target);
    const uint32_t streams = many_registers ? 4 : 2;
    const uint32_t roots = (uint32_t)nest->roots.n, rank = nest->domain.rank;
    row_jam jam = {1, 1};
    if (rank < 2 || roots == 0) return jam;
    const int64_t inner = row_bound(nest->domain.dim[rank - 2]);
    const int64_t outer = rank > 2 ? row_bound(nest->domain.dim[rank - 3]) : 1;
    if (adds_products(s->g, nest)) {
        jam.inner =
            share_of(inner, most / roots < JAM_OF_PRODUCTS ? most / roots : JAM_OF_PRODUCTS);
        return jam;
    }
    if (!nest->sums) {
        if (inner <= JAM_OF_ALL && inner * roots <= most) jam.inner = (uint32_t)inner;
        return jam;
    }
    uint32_t together = most / roots < JAM_OF_SUMS ? most / roots : JAM_OF_SUMS;
    if (inner > together && outer >= streams && products / roots >= streams * streams)
        together = products / roots / streams;
    jam.inner = share_of(inner, together);
    for (jam.outer = streams; jam.outer > 1; jam.outer /= 2)
        if (jam.outer * jam.inner * roots <= products && jam.outer <= outer) break;
    return jam;
}

/* An iteration that goes from row to row of the outer loop keeps a vector of each row of the inner one
 * in a register, beside the sums and a vector of its own. Where there are too few registers for that,
 * those of the outer loop stay, which are fewer. */
static bool outer_stays(const row_target *t, row_jam jam) {
    return jam.outer * jam.inner + jam.inner + 1 > t->registers;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The number of rows that are read again and again while sums of n rows with m others are
 * computed: those of one iteration, and all rows of the inner loop. These are the m rows (in phase
 * 1 of Attention Residuals the queries, while sources come four at a time) or, if the loops are
 * interchanged, the n rows. */
static int64_t rows_in_use(const row_schedule *s, const row_nest *nest, bool interchanged) {
    const uint32_t rank = nest->domain.rank;
    const row_size *dim = nest->domain.dim;
    if (rank < 3) return nest->jam.inner;
    return interchanged ? nest->jam.inner + row_most(s->g, dim[rank - 3])
                        : nest->jam.outer + row_most(s->g, dim[rank - 2]);
}

/* The longest block whose rows in use stay in the L1, with loops interchanged if fewer rows are in
 * use then. No blocks if whole rows stay in the L1, or if there are few sums. */
static row_block choose_block(const row_schedule *s, const row_nest *nest) {
    enum { LEAST = 512, FEW = 8, ELEMENT = 4 };
    const row_block none = {0};
    const row_size lanes = nest->domain.dim[nest->domain.rank - 1];
    const int64_t size = lanes.a, elements = row_bound(row_elements(&nest->domain));
    const int64_t roots = (int64_t)nest->roots.n, l1 = s->target.machine.l1;
    if (row_is_dynamic(lanes) || elements / size < FEW) return none;
    if (!nest->sums) return none;
    row_block block = {.length = LEAST};
    int64_t rows = roots + rows_in_use(s, nest, false);
    if (size <= LEAST || size * rows * ELEMENT <= l1) return none;
    const int64_t other = roots + rows_in_use(s, nest, true);
    block.interchanged = nest->domain.rank > 2 && other < rows;
    if (block.interchanged) rows = 2 * other; /* the next block is prefetched meanwhile */
    while (2 * block.length * rows * ELEMENT <= l1)
        block.length *= 2;
    return size > block.length ? block : none;
}

/* ---- unroll ---------------------------------------------------------------------------------- */

/* How many vectors fill a unit of non-temporal stores, in each result that may have such. */
static unsigned vectors_of_unit(const row_schedule *s, const row_nest *nest) {
    unsigned most = 1;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(s->g, nest->roots.at[i]);
        const unsigned vectors = row_of(s, n)->nontemporal ? row_unit_vectors(s, n) : 1;
        if (vectors > most) most = vectors;
    }
    return most;
}

bool row_is_costly(const row_schedule *s, const row_nest *nest) {
    bool is = false;
    for (size_t i = 0; i < nest->roots.n; i++)
        is |= row_of(s, row_at(s->g, nest->roots.at[i]))->costly;
    return is;
}

/* How many vectors of `values` results an iteration computes. Several hide the latency of sums,
 * and share loads of reductions inside the loop and factors that are the same for all; functions of
 * many instructions keep the CPU busy alone. Non-temporal stores need whole units. A smaller number
 * is chosen if it divides the row. */
static unsigned vectors_at_once(const row_schedule *s, const row_nest *nest, size_t values) {
    const int64_t vectors = nest->domain.dim[nest->domain.rank - 1].a / s->target.lanes;
    const bool many_registers = s->target.lanes == 16 && nest->reductions <= 1;
    const unsigned unit = vectors_of_unit(s, nest);
    unsigned most = values > 8 && !many_registers ? 1 : values > 3 ? 2 : ROW_UNROLL;
    if (row_is_costly(s, nest)) most = 1;
    if (most < unit) most = unit;
    if (vectors < most) return vectors > 0 ? (unsigned)vectors : 1;
    for (unsigned unroll = most; unroll > 1; unroll -= unit)
        if (vectors % unroll == 0) return unroll;
    return most;
}

/* How many vectors an iteration that takes `jam` rows computes. */
static unsigned choose_unroll(const row_schedule *s, const row_nest *nest, uint32_t jam) {
    if (row_is_dynamic(nest->domain.dim[nest->domain.rank - 1])) return 1;
    unsigned unroll = vectors_at_once(s, nest, nest->roots.n * (nest->sums ? 1 : jam));
    while (jam > 1 && unroll > 1 && jam * nest->reductions * unroll > row_most_sums(&s->target))
        unroll /= 2;
    return nest->block.length && unroll == 3 ? 2 : unroll; /* blocks are powers of two */
}

void row_choose_loops(const row_schedule *s, row_nest *nest) {
    nest->sums = is_all_sums(s->g, nest);
    nest->jam = choose_jam(s, nest);
    nest->outer_stays = outer_stays(&s->target, nest->jam);
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(s->g, nest->roots.at[i]);
        nest->in_place |= n->buffer != ROW_NO_BUFFER && s->g->buffers.at[n->buffer].in_place;
    }
    if (nest->domain.rank == 0) return;
    nest->block = choose_block(s, nest);
    for (uint32_t jam = 1; jam <= nest->jam.outer * nest->jam.inner; jam++)
        nest->unroll[jam] = (uint8_t)choose_unroll(s, nest, jam);
}
