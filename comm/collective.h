/* The collectives of hadal_comm.h built from messages between two ranks: the part that is the same
 * for every transport. A transport provides a link, whose functions never block; waiting,
 * deadlines, the order of sums, cutting into messages, checks and counters are here.
 *
 * Values are copied into memory of the link before they are sent, and out of it once they have
 * arrived. So a rank that gives up leaves none of its caller's memory to the transport, whatever
 * the other ranks do afterwards, and no collective allocates. */
#ifndef HADAL_COMM_EXCHANGE_H
#define HADAL_COMM_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hadal/hadal_comm.h"

/* A message consists of this head and the values. The head has a cache line to itself, so that
 * values are aligned in memory of the link. */
enum { COMM_HEAD = 64 };
typedef struct comm_head {
    uint32_t kind, type; /* hadal_comm_exchange, or COMM_CLOSE; hadal_comm_type */
    uint64_t number;     /* of this message, among the messages of this rank to the other */
    uint64_t total;      /* bytes of values that the collective sends to that rank */
    int64_t due;         /* when it arrives over a slow link (slow_link.h); 0: at once */
} comm_head;
/* The last message of a rank that closes: no further one follows. */
enum { COMM_CLOSE = HADAL_COMM_EXCHANGE_COUNT };

/* Messages from one rank to another arrive in the order in which they were posted. `rank` is never
 * this rank. */
typedef struct comm_link {
    void *self;
    size_t piece; /* bytes of values that a message holds at most; a multiple of 4 */
    /* Memory for the next message, COMM_HEAD + piece bytes aligned to 64; NULL: the previous
     * message has not left it yet. */
    uint8_t *(*room)(void *self, int32_t rank);
    /* Sends `bytes` of that memory; a hadal_comm_result. */
    int (*post)(void *self, int32_t rank, size_t bytes);
    /* Have all posted messages left, so that they arrive even if this rank does nothing more? */
    bool (*has_left)(void *self, int32_t rank);
    /* The next message; NULL: none has arrived, or *code is an error. The message stays until
     * `drop`. */
    const uint8_t *(*look)(void *self, int32_t rank, size_t *bytes, int *code);
    void (*drop)(void *self, int32_t rank);
    /* Has that rank given up? What it sent before may still arrive. */
    bool (*is_gone)(void *self, int32_t rank);
    /* Notifies all other ranks that this one has given up, as far as they can be reached. */
    void (*give_up)(void *self);
} comm_link;

typedef struct comm_ends { /* number of messages to and from one other rank so far */
    uint64_t sent, received;
} comm_ends;

/* What a collective sends and receives. */
typedef struct comm_job comm_job;
struct comm_job {
    uint32_t kind;
    hadal_comm_type type;
    hadal_comm_group group;
    /* For member i of the group, which is not this rank: what is sent to it, and how many bytes. */
    const uint8_t *(*outgoing)(const comm_job *j, int32_t i, uint64_t *bytes);
    uint64_t (*incoming)(const comm_job *j, int32_t i);
    /* Takes bytes [at, at + piece) of all that is received; parts[i] comes from member i. */
    void (*take)(const comm_job *j, uint64_t at, uint64_t piece, const uint8_t *const *parts);
    const uint8_t *in;
    uint8_t *out;
    const uint64_t *counts; /* elements of each member's block; NULL: `n` for all */
    const uint64_t *starts; /* the element at which it begins; NULL: the blocks are contiguous */
    uint64_t n;
    int32_t self; /* this rank's place in the group; -1: it is not in it (send, recv) */
};

typedef struct comm_patience {
    int64_t until; /* nanoseconds of the monotonic clock */
    int64_t begun;
    unsigned looks;
} comm_patience;

/* A round: at most one message to and one from each member. */
typedef struct comm_round {
    uint64_t at;
    bool posted[HADAL_COMM_MAX_RANKS];
    const uint8_t *parts[HADAL_COMM_MAX_RANKS];
} comm_round;

/* The progress of a collective. */
typedef struct comm_progress {
    comm_job job;
    comm_round round;
    uint64_t longest; /* bytes of the longest range to or from a member */
    comm_patience patience;
    int32_t missing; /* a member that this rank waits for */
} comm_progress;

typedef struct comm_collective {
    hadal_comm interface;
    comm_link link;
    comm_ends *ends; /* [size] */
    int broken;      /* hadal_comm_result of the collective that failed */
    hadal_comm_traffic traffic[HADAL_COMM_EXCHANGE_COUNT];
    char message[160];
    bool started; /* a collective begun with `start` is not over yet; its lists are kept here */
    comm_progress going;
    int64_t looked; /* when it was last advanced */
    uint64_t counts[HADAL_COMM_MAX_RANKS], starts[HADAL_COMM_MAX_RANKS];
} comm_collective;

/* `ends`: [size]; this keeps the pointer and does not free it. */
void comm_collective_start(comm_collective *x, comm_link link, int32_t rank, int32_t size,
                           comm_ends *ends);
/* Exchanges last messages with all other ranks. False: some did not arrive in time, or a collective
 * had failed before; then messages may still be under way. */
bool comm_collective_end(comm_collective *x, int64_t timeout_ns);

#endif
