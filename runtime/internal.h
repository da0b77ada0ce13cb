/* What the runtime's files share; it is not part of the contract with generated code. */
#ifndef HRT_INTERNAL_H
#define HRT_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/hadal_rt.h"
#include "support/arena_rows.h"
#include "support/share.h"

struct hrt_weights {
    const hrt_model *model;
    uint32_t rank;
    uint8_t content[16], set[16], source[16];
    const uint8_t *data;
    void *map; /* NULL: the memory is the caller's */
    size_t map_bytes;
};

/* Where things lie in the caller's memory: offsets from its start, each a multiple of HRT_ALIGN. In
 * this order:
 *   head     the session struct (none for plain calls) and the tables of pointers
 *   states   one after the other, each with as many rows as its kind has (state.c)
 *   arena    values of one chunk, at their offsets (bytes per token) times hd_arena_rows
 *   local    the same for values of this rank's rows, where the model is divided over ranks
 *   tile     the same for values of which only the rows of one tile exist at a time
 *   kept     for each chunk in flight, the values that one layer range leaves for a later one:
 *            those of all rows, then those of this rank's rows
 *   fixed    values without T
 *   sinks    one buffer per output after the first, which receives the output when the caller does
 *            not want it; for each chunk in flight
 *   staging  values on their way to and from other ranks, in the type in which they are sent
 *   shared   what threads pass to each other within a kernel; its counters are zero between kernels
 *   workers  per thread: the argument array of a kernel call, then the kernel's scratch */
typedef struct hrt_layout {
    size_t tables, states, arena, local, tile, kept, fixed, sinks, staging, shared, workers;
    size_t kept_bytes, local_kept_bytes; /* of one chunk in flight */
    size_t args_bytes, worker_bytes;     /* worker_bytes is a multiple of 4096: no cache line is
                                          * shared */
    size_t total;
    int64_t chunk;  /* tokens that the arena holds */
    int64_t flight; /* chunks that may be in flight at once */
} hrt_layout;

/* ---- read_file.c ---- */
/* Reads the `size` bytes of a file into memory in huge pages, at *memory, which the caller unmaps:
 * *bytes of it. HRT_OPEN, HRT_FORMAT (the file is shorter), HRT_MEMORY: there is nothing to unmap. */
int hrt_read_file(int fd, size_t size, void **memory, size_t *bytes);

/* ---- pipeline.c ---- */
/* How many chunks of a session of `cap` tokens may be in flight. */
int64_t hrt_most_in_flight(const hrt_model *m, int64_t cap, int64_t chunk);

/* Does the operand hold the rows of this rank only? */
static inline bool hrt_is_local(const hrt_operand *o) {
    return o->base == HRT_LOCAL || o->base == HRT_LOCAL_KEPT;
}

/* Computes the layout. False: a size overflows. */
bool hrt_lay_out(const hrt_model *m, int64_t cap, size_t head, size_t threads, bool sinks,
                 hrt_layout *out);

/* The same layout as pointers into the memory. */
typedef struct hrt_memory {
    char **states; /* [n_states] */
    char **sinks;  /* [n_outputs], NULL without sinks; entry 0 is not used */
    char *arena, *local, *tile, *kept, *fixed, *staging, *shared, *workers;
    size_t kept_bytes, local_kept_bytes; /* of one chunk in flight */
    size_t args_bytes, worker_bytes;
    int64_t cap, chunk, flight;
} hrt_memory;
/* Bytes that receive an output which the caller does not want, for one chunk in flight. */
size_t hrt_sink_bytes(const hrt_tensor_info *output, int64_t chunk);
/* Fills `memory` with pointers and zeros the shared counters. */
void hrt_carve(const hrt_model *m, int64_t cap, const hrt_layout *l, void *memory, bool sinks,
               hrt_memory *out);

/* ---- state.c ---- */
/* The rows of each head of a state: all of them if `cap` is the capacity of the session, the rows
 * in use if `cap` is the session's length. */
uint64_t hrt_state_rows(const hrt_state_info *s, int64_t cap);
/* Of these, those that a saved session of so many tokens has. */
uint64_t hrt_saved_rows(const hrt_state_info *s, int64_t length);
/* Does this runtime support the kinds and shapes of all states? */
bool hrt_states_known(const hrt_model *m);
/* The first state that can only be cleared, not shortened; NULL: there is none. */
const hrt_state_info *hrt_state_to_clear(const hrt_model *m);
const char *hrt_state_word(const hrt_state_info *s);                 /* the kind of the state:
                                                                      * "window" */
void hrt_clear_states(const hrt_model *m, const hrt_memory *memory); /* clears the states of fixed
                                                                      * size */

/* ---- saved.c ---- */
/* FNV-1a: byte after byte, xor and times the prime 2^40 + 2^8 + 0xb3. */
uint64_t hrt_checksum(const void *at, size_t n);
/* What the headers of saved sessions and trainers begin with. */
typedef struct hrt_saved_origin {
    char magic[8];
    uint32_t version, reserved;
    uint8_t digest[16], build[16];
} hrt_saved_origin;
/* Fills the beginning of a header, which has zeros. */
void hrt_set_origin(const hrt_model *m, const char *magic, void *header);
/* Rejects what is no saved `what` ("session", "trainer"), has a damaged header (not whole), or is of
 * another model, "or one with another `part`", or of another build of it. */
int hrt_check_origin(hrt_session *s, const void *header, const char *magic, bool whole,
                     const char *what, const char *part);

/* ---- ranks.c, collective.c: divided models ---- */
/* What a session of a divided model, or a trainer that ranks share, knows of the other ranks. */
typedef struct hrt_side {
    const hadal_comm *comm;
    int64_t timeout_ns;
    hadal_comm_group group; /* the ranks that share the layers of this rank, or the trainer */
    int32_t rank;           /* number of this rank in that group */
    int over; /* why no more calls are possible: HRT_COLLECTIVE, a communication step has failed, or
               * the error with which the session was rejected when it was made; HRT_OK: they are
               * possible */
} hrt_side;

/* Rows of a call, or of a chunk of it: `tokens` rows, of which the first has number `start`. */
typedef struct hrt_place {
    int64_t start, tokens;
    int64_t slot; /* which of the chunks in flight it is */
} hrt_place;

/* The rows of one rank of the group, as a place in the call. */
hrt_place hrt_place_of(const hrt_model *m, const hrt_place *chunk, int64_t rank);
/* The largest number of rows of one rank in a chunk of up to `chunk` tokens. */
int64_t hrt_local_rows(const hrt_model *m, int64_t chunk);
/* Bytes of staging that the model's collectives and messages need. False on overflow. */
bool hrt_staging_bytes(const hrt_model *m, int64_t chunk, uint64_t *bytes);
/* Makes one collective or point-to-point message. x and y point at row 0 of the chunk, or of this
 * rank's part of it; `wanted`: the first row of the chunk that the step does. Returns a
 * hadal_comm_result. */
int hrt_make_collective(const hrt_model *m, const hrt_side *side, const hrt_collective *e,
                        const void *x, void *y, void *staging, const hrt_place *chunk,
                        int64_t wanted);
/* Tile `number` of `count` of a chunk that is divided over ranks: that part of each rank's rows. */
typedef struct hrt_tile {
    int64_t number, count;
} hrt_tile;
hrt_place hrt_tile_of(const hrt_model *m, const hrt_place *chunk, int64_t rank, hrt_tile tile);
/* Starts HRT_REDUCE_SCATTER or HRT_GATHER_ROWS for the rows of a tile, without waiting
 * (hadal_comm.start). Only one tile at a time uses the staging. */
int hrt_start_tile(const hrt_model *m, const hrt_side *side, const hrt_collective *e, const void *x,
                   void *y, void *staging, const hrt_place *chunk, hrt_tile tile);
/* Completes that collective once it is over: then y has the rows. */
void hrt_end_tile(const hrt_model *m, const hrt_side *side, const hrt_collective *e, void *y,
                  void *staging, const hrt_place *chunk, hrt_tile tile);

/* ---- tiles.c: how many tiles pay ---- */
/* The times of a chunk that is done all rows at once. Of all overlaps: the computing time of the
 * slowest rank, and the time of the collectives without waiting for other ranks. all_ns: the time
 * of both, of all ranks together. */
typedef struct hrt_whole {
    int64_t compute_ns, collective_ns, all_ns;
} hrt_whole;

/* What a session measures to find the number of tiles that takes the least time. */
typedef struct hrt_figures {
    int64_t latency_ns; /* of one message */
    int64_t tokens;     /* length of the chunks that are compared: the longest ones so far */
    int64_t chunks;     /* how many such chunks there were */
    int64_t now;        /* tiles of this chunk, or of the first layer range of all in flight */
    int64_t timed;      /* tiles of the chunk that is timed; 0: none is */
    bool taken; /* it is done: the two times are this rank's, until it has sent them to others */
    int64_t collective_ns, compute_ns;
    /* The same on all ranks of the group: */
    bool cold;               /* `whole` was measured in the first chunk, or in shorter ones */
    hrt_whole whole;         /* all_ns 0: nothing is known */
    int64_t tiles, tiled_ns; /* a chunk in so many tiles took that long, of all ranks together; 0:
                              * not tried */
} hrt_figures;
/* Is this chunk to be timed? */
bool hrt_times_chunk(const hrt_figures *f);
/* The number of tiles of a chunk of `tokens` tokens; 1: all rows at once. `begins`: this is the
 * first chunk of those in flight, in its first layer range. Then ranks that have timed a chunk send
 * each other the times, and *code is the hadal_comm_result of that. The other chunks in flight take
 * the same number. */
int64_t hrt_choose_tiles(const hrt_model *m, const hrt_side *side, hrt_figures *f, int64_t tokens,
                         bool begins, int *code);

/* Can a session or a trainer use it? */
bool hrt_is_usable(const hadal_comm *c);
/* What a session, or a trainer without `w`, is to know of the other ranks, of which `ranks` share its
 * layers, or all of which share the trainer. `code`: why this rank has to reject it, which s may then
 * be NULL for. All ranks call it, and all return the same (hrt_session_init_on). */
int hrt_join_ranks(hrt_session *s, const hrt_model *m, const hrt_weights *w, int64_t max_tokens,
                   int32_t ranks, const hadal_comm *c, int64_t timeout_ns, int code);
/* Called before a call of `n` tokens, which this rank rejects if `code` is an error. The ranks
 * compare the call; HRT_OK means that all make the same call. */
int hrt_agree_on_call(hrt_session *s, int code, const int32_t *tokens, int64_t n, int64_t rows);
/* The same for a call of hrt_loss. */
int hrt_agree_on_loss(hrt_session *s, int code, const int32_t *tokens, const int32_t *targets,
                      int64_t n);
/* The same for a batch whose first session has been entered; `wanted`: the first session's output.
 */
int hrt_agree_on_batch(hrt_session *const *sessions, int code, const int32_t *tokens, int64_t count,
                       bool wanted);
/* Marks the session as broken after a communication step of the call has failed. */
int hrt_break(hrt_session *s, int comm_code);

/* One call of a program: n tokens from position `position` on. */
typedef struct hrt_job {
    const hrt_model *model;
    const hrt_level *level;
    const hrt_memory *memory;
    const uint8_t *weights;
    const void *const *ins;
    void *const *outs; /* NULL: no output is wanted */
    int64_t n, rows, position;
    bool in_loss;              /* it is a call of hrt_loss, */
    const int32_t *targets;    /* with [n], and */
    float *losses;             /* [n]; both may be NULL in a pipeline stage before the last */
    hrt_session *const *batch; /* [n] the sessions to which the rows belong; NULL: all rows belong
                                * to one session */
    hrt_profile_step *profile; /* per step; NULL: not wanted */
    const hrt_side *side;      /* what the session knows of other ranks; NULL: the model is not
                                * divided */
    hrt_figures *figures;      /* of the session; NULL without side */
} hrt_job;
/* Returns 0, or the hadal_comm_result of the communication step that failed. */
int hrt_run(const hrt_job *job, int threads);

/* Calls `share` in each thread of a team of at most `threads`: work that is no step of a program. */
/* A profile of the steps of the model and of `more` entries after them. */
int hrt_set_profile(hrt_session *s, hrt_profile_step *steps, size_t n, uint32_t more);
void hrt_in_shares(int threads, void (*share)(void *context, int index, int count), void *context);

struct hrt_session {
    hrt_owner owner; /* comes first: a batch of sessions is an array of owners; written by
                      * hrt_forward_batch */
    atomic_flag busy;
    const hrt_session *self; /* address at which it was made: a session that has been moved cannot
                              * be used */
    int threads;             /* as set by the caller */
    int processors;          /* CPUs that the process may use: no more threads run, */
    int thread_capacity;     /* nor more than memory holds workspace for */
    const hrt_model *model;
    const hrt_level *level;
    const uint8_t *weights;
    int64_t length;
    hrt_side side;           /* side.comm is NULL if the model is not divided */
    const hrt_level *common; /* the best that all ranks of the group can run; NULL without side */
    int32_t without_best;    /* a rank of the group that cannot run the library's best level; -1:
                              * all can */
    hrt_figures figures;
    hrt_memory memory;
    hrt_profile_step *profile; /* NULL: off */
    char message[200];
    char machine[512]; /* its level, why no better one, and the facts that kernels use, as JSON */
};

/* hrt_session_init for any model; `out` is not cleared on errors. */
int hrt_session_make(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                     int64_t max_tokens, hrt_session **out);
size_t hrt_usual_threads(void);
/* The layout of a session after `head` bytes, which begin with the session itself. */
bool hrt_lay_out_session(const hrt_model *m, int64_t max_tokens, size_t head, hrt_layout *l);
/* Makes it at the beginning of the memory. */
int hrt_session_place(const hrt_model *m, const hrt_weights *w, void *mem, size_t size, size_t head,
                      int64_t max_tokens);
/* The best level that this CPU has, or the level `name` if it has that; NULL: there is none. */
const hrt_level *hrt_pick_level(const hrt_model *m, const char *name);
/* The levels as bits: in `runs` those that run here, and in `slow` those of them that are passed
 * over for a lower level because the machine is slow at what they were chosen for. */
void hrt_levels_here(const hrt_model *m, uint32_t *runs, uint32_t *slow);
/* The session's level from now on. */
void hrt_take_level(hrt_session *s, const hrt_level *level);
/* The features of a level that cannot be used here; 0: the level runs. *rejected: the CPU has them,
 * but the operating system does not allow them. */
uint64_t hrt_level_lacks(const hrt_level *level, bool *rejected);
/* Prints them as text, cut off at `size`; returns the length of the text. */
size_t hrt_print_lacks(const hrt_level *level, char *out, size_t size);
/* Facts about this CPU; what the CPU does not report is as the level's code assumes. */
hd_machine hrt_machine_facts(const hrt_model *m, const hrt_level *level);
/* CPUs that the calling thread may use, by its affinity and by quota, 1 .. HRT_MAX_THREADS */
int hrt_processors(void);
int hrt_default_threads(void); /* what OpenMP would start, at most hrt_processors() */

/* ---- one caller at a time (session.c) ---- */
bool hrt_enter(hrt_session *s);          /* false: the session cannot be used now, and */
int hrt_why_not(const hrt_session *s);   /* says why: HRT_BUSY: it is in a call; or HRT_MOVED */
int hrt_leave(hrt_session *s, int code); /* returns code */
__attribute__((format(printf, 3, 4))) int hrt_fail(hrt_session *s, int code, const char *format,
                                                   ...); /* returns code; the text becomes the
                                                          * message */
/* Checks that the model has token `id`; otherwise writes a message to `teller`. `i` is the index of
 * the token in the call. */
int hrt_check_token(hrt_session *teller, const hrt_model *m, int64_t i, int32_t id);
int hrt_workers(const hrt_session *s); /* threads of its next call */
bool hrt_weights_fit(const hrt_model *m, const hrt_weights *w);

#endif
