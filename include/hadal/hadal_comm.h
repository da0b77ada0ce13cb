/* hadal_comm.h: how a model that is divided over several processes ("ranks") exchanges values.
 *
 * A library compiled with --ranks calls the functions of this struct and knows nothing of the
 * network behind them. libhadal_mpi fills it from an MPI communicator (hadal_mpi.h),
 * libhadal_threads from threads of one process (hadal_threads.h); a transport of your own is these
 * seven functions, and three more if its exchanges can go on while a rank computes.
 *
 * Rules of all exchanges:
 *   - They block, for at most `timeout_ns` nanoseconds each; `start` and `advance` do not.
 *   - All ranks of the group make the same exchange, with the same counts, in the same order.
 *   - Sums are taken in f32 in the order of ranks, ((x0 + x1) + x2) + ..., so that results depend
 *     neither on timing nor on the transport, and all ranks that get a sum get the same bits.
 *   - Blocks of ranks lie one after the other; a count may be 0.
 *   - After an error nothing more can be exchanged: every later call returns the same error at
 * once, and the other ranks get HADAL_COMM_LOST or, if that message does not reach them,
 *     HADAL_COMM_TIMEOUT. Memory of the caller is never touched after a call has returned.
 *   - One thread at a time makes exchanges of one rank.
 */
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
    R(ARGUMENT, 1, "an argument of the exchange is out of its range")                              \
    R(TIMEOUT, 2, "another rank did not answer in time")                                           \
    R(LOST, 3, "another rank has closed its side, or failed")                                      \
    R(MISMATCH, 4, "another rank makes another exchange, or one of another size")                  \
    R(TRANSPORT, 5, "the transport failed")                                                        \
    R(MEMORY, 6, "out of memory")
typedef enum hadal_comm_result {
#define HADAL_COMM_RESULT(id, value, text) HADAL_COMM_##id = value,
    HADAL_COMM_RESULTS(HADAL_COMM_RESULT)
#undef HADAL_COMM_RESULT
} hadal_comm_result;

/* What crosses: T(NAME, bytes of an element). */
#define HADAL_COMM_TYPES(T)                                                                        \
    T(BYTES, 1)                                                                                    \
    T(BF16, 2)                                                                                     \
    T(F32, 4)
typedef enum hadal_comm_type {
#define HADAL_COMM_TYPE(id, bytes) HADAL_COMM_##id,
    HADAL_COMM_TYPES(HADAL_COMM_TYPE)
#undef HADAL_COMM_TYPE
} hadal_comm_type;

/* The exchanges: E(NAME, "name"). */
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

/* Ranks first .. first + count - 1: those that take part in an exchange of many. */
typedef struct hadal_comm_group {
    int32_t first, count;
} hadal_comm_group;

/* Of one exchange: how often this rank made it, and bytes of values that crossed to other ranks and
 * from them. What a rank keeps for itself, and what the transport adds, is not counted. */
typedef struct hadal_comm_traffic {
    uint64_t calls, sent, received;
} hadal_comm_traffic;

typedef struct hadal_comm {
    uint32_t version;   /* HADAL_COMM_VERSION */
    int32_t rank, size; /* of this process, and how many there are */
    void *context;      /* first argument of the functions */

    /* out[i] = the sum of in[i] over the ranks, i < n. Few elements go from every rank to every
     * other (hadal_comm_is_direct); of many each rank sums a part [first_row(n, rank, size),
     * first_row(n, rank + 1, size)) and sends the sums, in f32, to the others. The bits are the
     * same. */
    int (*all_reduce)(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                      float *out, uint64_t n, int64_t timeout_ns);

    /* `in` holds a block of counts[i] elements for rank group.first + i; out = the sum over the
     * ranks of this rank's block. Types F32 and BF16. `out` may be this rank's block of `in` if
     * that is F32, and must not overlap `in` otherwise; so with all_reduce. */
    int (*reduce_scatter)(void *context, hadal_comm_group group, hadal_comm_type type,
                          const void *in, float *out, const uint64_t *counts, int64_t timeout_ns);

    /* out = the blocks of all ranks; `in` this rank's, which may stand at its place in `out`. */
    int (*all_gather)(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                      void *out, const uint64_t *counts, int64_t timeout_ns);

    /* From one rank to another. A send may return before the other rank has received. */
    int (*send)(void *context, int32_t to, const void *data, uint64_t bytes, int64_t timeout_ns);
    int (*recv)(void *context, int32_t from, void *data, uint64_t bytes, int64_t timeout_ns);

    /* traffic[HADAL_COMM_EXCHANGE_COUNT], since the beginning. */
    void (*count)(void *context, hadal_comm_traffic *traffic);
    /* What was wrong with the exchange that failed: who did not answer, in which exchange; "" if
     * none did. */
    const char *(*message)(void *context);

    /* The same without waiting, so that this rank computes meanwhile: all three, or all NULL, and
     * then nothing goes on beside computing. One exchange at a time is under way: no other may be
     * made before `advance` or `finish` has said that it is over. Whether the other ranks start it
     * or make it with the functions above makes no difference, nor does it to the results.
     *
     * start: a REDUCE_SCATTER or an ALL_GATHER. As above, but that blocks need not lie one after
     * the other: that of member i is at element starts[i] of `in` (REDUCE_SCATTER) or of `out`
     * (ALL_GATHER). counts and starts may change after the call; what is sent must stay, and what
     * is received must not be read, until the exchange is over. The deadline counts from here. */
    int (*start)(void *context, hadal_comm_exchange what, hadal_comm_group group,
                 hadal_comm_type type, const void *in, void *out, const uint64_t *counts,
                 const uint64_t *starts, int64_t timeout_ns);
    /* Does what can be done at once: sends what there is room for, takes what has come. A rank that
     * computes calls it now and then; nothing else of it makes the exchange go on. *over: 1 if it
     * is over, or none was started. */
    int (*advance)(void *context, int *over);
    /* Waits until it is over. */
    int (*finish)(void *context);
} hadal_comm;

/* Rows of `rank` of `size` when `rows` are shared out: [first, end), ragged where `size` does not
 * divide them, none for some ranks where there are fewer rows than ranks. */
static inline int64_t hadal_comm_first_row(int64_t rows, int32_t rank, int32_t size) {
    return rows / size * rank + rows % size * rank / size;
}

/* How an all_reduce of n elements goes: directly, which takes one message's time and sends
 * (size - 1) n elements, where that is at most so many bytes; in two steps otherwise. Transports
 * agree on it so that the bytes of a model's call can be told beforehand. */
#define HADAL_COMM_DIRECT_BYTES 16384
static inline int hadal_comm_is_direct(uint64_t n, uint64_t element_bytes, int32_t size) {
    return size < 2 || n <= HADAL_COMM_DIRECT_BYTES / element_bytes / (uint64_t)(size - 1);
}

#ifdef __cplusplus
}
#endif

#endif
