/* Ranks as threads of one process (hadal_threads.h): for each pair of ranks and each direction a
 * slot in shared memory that holds one message. */
#include "hadal/hadal_threads.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "comm/collective.h"
#include "comm/slow_link.h"

enum { PIECE = 128 << 10, SLOT = COMM_HEAD + PIECE };

typedef struct channel {              /* from one rank to another */
    _Alignas(64) atomic_size_t bytes; /* 0: empty */
    uint8_t *slot;
} channel;

typedef struct rank_side {
    comm_collective collective;
    hadal_threads *group;
    comm_slow slow;
    int32_t rank;
    atomic_bool gone;
} rank_side;

struct hadal_threads {
    int32_t size;
    rank_side *ranks;  /* [size] */
    channel *channels; /* [from * size + to] */
    uint8_t *slots;
    comm_ends *ends; /* [rank * size + other] */
};

static channel *channel_of(const rank_side *s, int32_t from, int32_t to) {
    return &s->group->channels[(size_t)from * (size_t)s->group->size + (size_t)to];
}

/* ---- the link (collective.h) ----------------------------------------------------------------- */
static uint8_t *room(void *self, int32_t rank) {
    const rank_side *s = self;
    channel *c = channel_of(s, s->rank, rank);
    return atomic_load_explicit(&c->bytes, memory_order_acquire) ? NULL : c->slot;
}

static int post(void *self, int32_t rank, size_t bytes) {
    const rank_side *s = self;
    channel *c = channel_of(s, s->rank, rank);
    atomic_store_explicit(&c->bytes, bytes, memory_order_release);
    return HADAL_COMM_OK;
}

/* Slots belong to the group and remain when a rank leaves it. */
static bool has_left(void *self, int32_t rank) {
    (void)self, (void)rank;
    return true;
}

static const uint8_t *look(void *self, int32_t rank, size_t *bytes, int *code) {
    const rank_side *s = self;
    channel *c = channel_of(s, rank, s->rank);
    (void)code;
    *bytes = atomic_load_explicit(&c->bytes, memory_order_acquire);
    return *bytes ? c->slot : NULL;
}

static void drop(void *self, int32_t rank) {
    const rank_side *s = self;
    channel *c = channel_of(s, rank, s->rank);
    atomic_store_explicit(&c->bytes, 0, memory_order_release);
}

static bool is_gone(void *self, int32_t rank) {
    const rank_side *s = self;
    return atomic_load_explicit(&s->group->ranks[rank].gone, memory_order_acquire);
}

static void give_up(void *self) {
    rank_side *s = self;
    atomic_store_explicit(&s->gone, true, memory_order_release);
}

/* ---- the group ------------------------------------------------------------------------------- */
static bool allocate(hadal_threads *g) {
    const size_t n = (size_t)g->size;
    g->ranks = calloc(n, sizeof *g->ranks);
    g->ends = calloc(n * n, sizeof *g->ends);
    g->channels = aligned_alloc(64, n * n * sizeof *g->channels);
    g->slots = aligned_alloc(64, n * n * SLOT); /* allocated pages are touched only where ranks
                                                 * communicate */
    return g->ranks && g->ends && g->channels && g->slots;
}

int hadal_threads_open(int32_t ranks, hadal_threads **out) {
    if (out) *out = NULL;
    if (!out || ranks < 1 || ranks > HADAL_COMM_MAX_RANKS) return HADAL_COMM_ARGUMENT;
    hadal_threads *g = calloc(1, sizeof *g);
    if (!g) return HADAL_COMM_MEMORY;
    g->size = ranks;
    if (!allocate(g)) {
        hadal_threads_close(g);
        return HADAL_COMM_MEMORY;
    }
    const size_t n = (size_t)ranks;
    for (size_t i = 0; i < n * n; i++) {
        atomic_init(&g->channels[i].bytes, 0);
        g->channels[i].slot = g->slots + i * SLOT;
    }
    for (int32_t r = 0; r < ranks; r++) {
        rank_side *s = &g->ranks[r];
        s->group = g;
        s->rank = r;
        atomic_init(&s->gone, false);
        const comm_link link = {s, PIECE, room, post, has_left, look, drop, is_gone, give_up};
        comm_collective_start(&s->collective, link, r, ranks, g->ends + (size_t)r * n);
    }
    *out = g;
    return HADAL_COMM_OK;
}

const hadal_comm *hadal_threads_comm(hadal_threads *g, int32_t rank) {
    return g && rank >= 0 && rank < g->size ? &g->ranks[rank].collective.interface : NULL;
}

int hadal_threads_slow(hadal_threads *g, double bits_per_second, int64_t latency_ns) {
    int rc = g ? HADAL_COMM_OK : HADAL_COMM_ARGUMENT;
    for (int32_t r = 0; !rc && r < g->size; r++)
        rc =
            comm_slow_down(&g->ranks[r].slow, &g->ranks[r].collective, bits_per_second, latency_ns);
    return rc;
}

void hadal_threads_leave(hadal_threads *g, int32_t rank) {
    if (g && rank >= 0 && rank < g->size) give_up(&g->ranks[rank]);
}

void hadal_threads_close(hadal_threads *g) {
    if (!g) return;
    free(g->ranks);
    free(g->ends);
    free(g->channels);
    free(g->slots);
    free(g);
}
