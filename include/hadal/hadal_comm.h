/* hadal_comm.h: how the processes ("ranks") that share one model exchange values.
 *
 * A library compiled with --ranks calls the functions of this struct and knows nothing of the
 * network. libhadal_mpi fills in the struct from an MPI communicator (hadal_mpi.h),
 * libhadal_threads from threads of one process (hadal_threads.h). A transport of your own has to
 * provide seven functions, and three more if its collectives can go on while a rank computes.
 *
 * Rules of all collectives, and of send and recv where they apply:
 *   - They block, for at most `timeout_ns` nanoseconds each; `start` and `advance` do not.
 *   - All ranks of the group make the same collective, with the same counts, in the same order.
 *   - Sums are taken in f32 in the order of ranks, ((x0 + x1) + x2) + ..., so that results depend
 *     neither on timing nor on the transport, and all ranks that get a sum get the same bits.
 *   - Blocks of ranks are contiguous, in the order of ranks; a count may be 0.
 *   - After an error no further communication is possible: every later call returns the same error
 *     at once, and the other ranks get HADAL_COMM_LOST or, if the notice does not reach them,
 *     HADAL_COMM_TIMEOUT. Memory of the caller is never accessed after a call has returned.
 *   - Only one thread at a time may communicate for a rank. */
#ifndef HADAL_COMM_H
#define HADAL_COMM_H

#include <stdint.h>

#ifndef HADAL_API
#if defined(__GNUC__)
#define HADAL_API __attribute__((visibility("default")))
#else
#define HADAL_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HADAL_COMM_VERSION   2
#define HADAL_COMM_MAX_RANKS 256

/* Results: R(NAME, value, "text"). Values never change. */
#define HADAL_COMM_RESULTS(R)                                                                      \
    R(OK, 0, "no error")                                                                           \
    R(ARGUMENT, 1, "an argument of the collective is out of its range")                            \
    R(TIMEOUT, 2, "another rank did not answer in time")                                           \
    R(LOST, 3, "another rank has closed its side, or failed")                                      \
    R(MISMATCH, 4, "another rank makes another collective, or one of another size")                \
    R(TRANSPORT, 5, "the transport failed")                                                        \
    R(MEMORY, 6, "out of memory")
typedef enum hadal_comm_result {
#define HADAL_COMM_RESULT(id, value, text) HADAL_COMM_##id = value,
    HADAL_COMM_RESULTS(HADAL_COMM_RESULT)
#undef HADAL_COMM_RESULT
} hadal_comm_result;

/* Types of the values that are sent: T(NAME, bytes of an element). */
#define HADAL_COMM_TYPES(T)                                                                        \
    T(BYTES, 1)                                                                                    \
    T(BF16, 2)                                                                                     \
    T(F32, 4)
typedef enum hadal_comm_type {
#define HADAL_COMM_TYPE(id, bytes) HADAL_COMM_##id,
    HADAL_COMM_TYPES(HADAL_COMM_TYPE)
#undef HADAL_COMM_TYPE
} hadal_comm_type;

/* The collectives and point-to-point messages: E(NAME, "name"). */
#define HADAL_COMM_EXCHANGES(E)                                                                    \
    E(ALL_REDUCE, "all_reduce")                                                                    \
    E(REDUCE_SCATTER, "reduce_scatter")                                                            \
    E(ALL_GATHER, "all_gather")                                                                    \
    E(SEND, "send")                                                                                \
    E(RECV, "recv")
typedef enum hadal_comm_exchange {
#define HADAL_COMM_EXCHANGE(id, name) HADAL_COMM_##id,
    HADAL_COMM_EXCHANGES(HADAL_COMM_EXCHANGE)
#undef HADAL_COMM_EXCHANGE
        HADAL_COMM_EXCHANGE_COUNT
} hadal_comm_exchange;

/* Ranks first .. first + count - 1, which take part in a collective. */
typedef struct hadal_comm_group {
    int32_t first, count;
} hadal_comm_group;

/* For one kind of exchange: how often this rank made it, and the bytes of values that were sent to
 * other ranks and received from them. What a rank keeps for itself, and what the transport adds, is
 * not counted. */
typedef struct hadal_comm_traffic {
    uint64_t calls, sent, received;
} hadal_comm_traffic;

typedef struct hadal_comm {
    uint32_t version;   /* HADAL_COMM_VERSION */
    int32_t rank, size; /* of this process; number of ranks */
    void *context;      /* first argument of the functions */

    /* out[i] = the sum of in[i] over the ranks, i < n. If there are few elements every rank sends
     * all of them to every other (hadal_comm_is_direct); if there are many, each rank sums a part
     * [first_row(n, rank, size), first_row(n, rank + 1, size)) and sends the sums, in f32, to the
     * others. The bits are the same. */
    int (*all_reduce)(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                      float *out, uint64_t n, int64_t timeout_ns);

    /* `in` holds a block of counts[i] elements for rank group.first + i; out = the sum over the
     * ranks of this rank's block. Types F32 and BF16. If the type is F32, `out` may be this rank's
     * block of `in`; otherwise it must not overlap `in`. The same holds for all_reduce. */
    int (*reduce_scatter)(void *context, hadal_comm_group group, hadal_comm_type type,
                          const void *in, float *out, const uint64_t *counts, int64_t timeout_ns);

    /* out = the blocks of all ranks; `in` = this rank's block, which may be at its place in `out`.
     */
    int (*all_gather)(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                      void *out, const uint64_t *counts, int64_t timeout_ns);

    /* A message from one rank to another. A send may return before the other rank has received. */
    int (*send)(void *context, int32_t to, const void *data, uint64_t bytes, int64_t timeout_ns);
    int (*recv)(void *context, int32_t from, void *data, uint64_t bytes, int64_t timeout_ns);

    /* Fills in traffic[HADAL_COMM_EXCHANGE_COUNT], counted since the beginning. */
    void (*count)(void *context, hadal_comm_traffic *traffic);
    /* A message on the error: which rank did not answer, in which collective; "" if there was none.
     */
    const char *(*message)(void *context);

    /* The same without waiting, so that this rank computes meanwhile. A transport has all three
     * functions, or all are NULL, and then collectives never overlap with computing. One such
     * collective at a time may be under way, and no other call may be made before `advance` or
     * `finish` has reported that it is over. The other ranks may start it, too, or make it with the
     * functions above; neither the matching nor the results depend on that.
     *
     * start: a REDUCE_SCATTER or an ALL_GATHER. As above, except that blocks need not be
     * contiguous: the block of member i begins at element starts[i] of `in` (REDUCE_SCATTER) or of
     * `out` (ALL_GATHER). counts and starts may change after the call; what is sent must not
     * change, and what is received must not be read, until the collective is over. The deadline
     * counts from here. */
    int (*start)(void *context, hadal_comm_exchange what, hadal_comm_group group,
                 hadal_comm_type type, const void *in, void *out, const uint64_t *counts,
                 const uint64_t *starts, int64_t timeout_ns);
    /* Does what can be done at once: sends what there are buffers for, takes what has arrived. A
     * rank that computes must call it now and then, since nothing else on this rank advances the
     * collective. *over: 1 if it is over, or none was started. */
    int (*advance)(void *context, int *over);
    /* Waits until the collective is over. */
    int (*finish)(void *context);
} hadal_comm;

/* First row of `rank` of `size` ranks that share `rows` rows; the rows of a rank end where those of
 * the next begin. The shares are uneven where `size` does not divide the rows, and empty for some
 * ranks where there are fewer rows than ranks. */
static inline int64_t hadal_comm_first_row(int64_t rows, int32_t rank, int32_t size) {
    return rows / size * rank + rows % size * rank / size;
}

/* How an all_reduce of n elements is done: directly, which takes the time of one message and sends
 * (size - 1) n elements, if these are at most so many bytes; otherwise in two steps. All transports
 * follow this, so that the bytes that a model's call sends can be computed in advance. */
#define HADAL_COMM_DIRECT_BYTES 16384
static inline int hadal_comm_is_direct(uint64_t n, uint64_t element_bytes, int32_t size) {
    return size < 2 || n <= HADAL_COMM_DIRECT_BYTES / element_bytes / (uint64_t)(size - 1);
}

#ifdef __cplusplus
}
#endif

#endif
