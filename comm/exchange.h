/* The exchanges of hadal_comm.h over messages between two ranks: what is the same for every
 * transport. A transport gives a link, whose functions never block; waiting, deadlines, order of
 * sums, cutting into messages, checks and counters are here.
 *
 * Values are copied into memory of the link before they are sent, and out of it once they have
 * come. So a rank that gives up leaves nothing of its caller's memory in the hands of the
 * transport, whatever the other ranks do afterwards, and no exchange allocates. */
#ifndef HADAL_COMM_EXCHANGE_H
#define HADAL_COMM_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hadal/hadal_comm.h"

/* A message: this head, then values. The head has a cache line to itself, so that values are
 * aligned in memory of the link. */
enum { COMM_HEAD = 64 };
typedef struct comm_head {
    uint32_t kind, type; /* hadal_comm_exchange, or COMM_CLOSE; hadal_comm_type */
    uint64_t number;     /* of this message, among those of this rank to the other */
    uint64_t total;      /* bytes of values that the exchange sends to that rank */
} comm_head;
/* The last message of a rank that closes: there will be no more. */
enum { COMM_CLOSE = HADAL_COMM_EXCHANGE_COUNT };

/* Messages from one rank to another arrive in their order. `rank` is never this rank. */
typedef struct comm_link {
    void *self;
    size_t piece; /* bytes of values that a message holds at most; a multiple of 4 */
    /* Memory for the next message, COMM_HEAD + piece bytes aligned to 64; NULL: the one before has
     * not left it. */
    uint8_t *(*room)(void *self, int32_t rank);
    /* Sends `bytes` of that memory; a hadal_comm_result. */
    int (*post)(void *self, int32_t rank, size_t bytes);
    /* Has all that was posted left, so that it arrives even if this rank does nothing more? */
    bool (*has_left)(void *self, int32_t rank);
    /* The next message; NULL: it has not come, or *code is an error. It stays until `drop`. */
    const uint8_t *(*look)(void *self, int32_t rank, size_t *bytes, int *code);
    void (*drop)(void *self, int32_t rank);
    /* Has that rank given up? What it sent before may still come. */
    bool (*is_gone)(void *self, int32_t rank);
    /* Tells all other ranks that this one has given up, as far as they can be told. */
    void (*give_up)(void *self);
} comm_link;

typedef struct comm_ends { /* messages to and from one other rank, so far */
    uint64_t sent, received;
} comm_ends;

typedef struct comm_exchange {
    hadal_comm face;
    comm_link link;
    comm_ends *ends; /* [size] */
    int broken;      /* hadal_comm_result of the exchange that failed */
    hadal_comm_traffic traffic[HADAL_COMM_EXCHANGE_COUNT];
    char message[160];
} comm_exchange;

/* `ends`: [size], which the exchange keeps and does not free. */
void comm_exchange_start(comm_exchange *x, comm_link link, int32_t rank, int32_t size,
                         comm_ends *ends);
/* Exchanges last messages with all others. False: some did not come in time, or something had
 * failed before; then messages may still be under way. */
bool comm_exchange_end(comm_exchange *x, int64_t timeout_ns);

#endif
