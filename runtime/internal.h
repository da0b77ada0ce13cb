/* Shared by the runtime's files; not part of the contract with generated code. */
#ifndef HRT_INTERNAL_H
#define HRT_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/hadal_rt.h"
#include "support/share.h"

struct hrt_weights {
    const hrt_model *model;
    uint32_t rank;
    uint8_t content[16], set[16], source[16];
    const uint8_t *data;
    void *map; /* NULL: the memory is the caller's */
    size_t map_bytes;
};

/* Where things lie in the caller's memory: offsets from its start, each a multiple of HRT_ALIGN.
 * In this order:
 *   head     the session struct (none for plain calls) and the tables of pointers
 *   states   one after the other, each of the rows that its kind has (state.c)
 *   arena    values of one chunk, at their offsets (bytes per token) times hrt_arena_rows
 *   local    the same of rows of this rank, where the model is divided over ranks
 *   kept     for each chunk in flight, the same that a run of layers leaves for a later one: those
 *            of all rows, then those of this rank's
 *   fixed    values without T
 *   sinks    one per output after the first: where it goes when the caller does not want it; of
 *            each chunk in flight
 *   staging  values on their way to other ranks and from them, in the form in which they cross
 *   shared   what threads leave for each other in a kernel; its counters are zero between kernels
 *   workers  per thread: the argument array of a kernel call, then the kernel's scratch */
typedef struct hrt_layout {
    size_t tables, states, arena, local, kept, fixed, sinks, staging, shared, workers;
    size_t kept_bytes, local_kept_bytes; /* of a chunk in flight */
    size_t args_bytes, worker_bytes;     /* worker_bytes 4096-aligned: no line is shared */
    size_t total;
    int64_t chunk;  /* tokens that the arena holds */
    int64_t flight; /* chunks that may be in flight at once */
} hrt_layout;

/* Factor of the arena's offsets, which are bytes per token, in a call of `tokens`: that number, or
 * the next odd one. plan-memory puts rows of whole pages one cache line further apart than they are
 * long, so that they do not all lie in the same set of a cache. An even factor can undo that: 512
 * such rows are a whole number of pages again, and token t of all sources of a mix would compete
 * for one set. */
static inline uint64_t hrt_arena_rows(int64_t tokens) {
    return (uint64_t)tokens | 1;
}

/* ---- pipeline.c ---- */
/* Chunks in flight of a session of `cap` tokens. */
int64_t hrt_most_in_flight(const hrt_model *m, int64_t cap, int64_t chunk);

/* Are the operand's rows those of this rank? */
static inline bool hrt_is_local(const hrt_operand *o) {
    return o->base == HRT_LOCAL || o->base == HRT_LOCAL_KEPT;
}

/* False: a size does not fit. */
bool hrt_lay_out(const hrt_model *m, int64_t cap, size_t head, size_t threads, bool sinks,
                 hrt_layout *out);

/* The same as pointers, once memory is there. */
typedef struct hrt_memory {
    char **states; /* [n_states] */
    char **sinks;  /* [n_outputs], NULL without sinks; entry 0 is not used */
    char *arena, *local, *kept, *fixed, *staging, *shared, *workers;
    size_t kept_bytes, local_kept_bytes; /* of a chunk in flight */
    size_t args_bytes, worker_bytes;
    int64_t cap, chunk, flight;
} hrt_memory;
/* Of an output that the caller does not want, for a chunk in flight. */
size_t hrt_sink_bytes(const hrt_tensor_info *output, int64_t chunk);
/* Zeros the counters. */
void hrt_carve(const hrt_model *m, int64_t cap, const hrt_layout *l, void *memory, bool sinks,
               hrt_memory *out);

/* ---- state.c ---- */
/* Rows of each head of a state: all of them if `cap` is the capacity of the session, those in use
 * if it is the session's length. */
uint64_t hrt_state_rows(const hrt_state_info *s, int64_t cap);
/* Does this runtime support the kinds and shapes of all states? */
bool hrt_states_known(const hrt_model *m);
/* The first state that can only be cleared; NULL: all can be shortened. */
const hrt_state_info *hrt_state_to_clear(const hrt_model *m);
const char *hrt_state_word(const hrt_state_info *s);                 /* "window" */
void hrt_clear_states(const hrt_model *m, const hrt_memory *memory); /* of fixed size */

/* ---- ranks.c, exchange.c: models that are divided ---- */
/* The side of a session among those of other ranks. */
typedef struct hrt_side {
    const hadal_comm *comm;
    int64_t timeout_ns;
    hadal_comm_group group; /* that shares the layers of this rank */
    int32_t rank;           /* in that group */
    int over; /* why no more calls are made: HRT_COLLECTIVE, an exchange has failed, or what the
               * session was refused for when it was made; HRT_OK: they are */
} hrt_side;

/* Rows of a call, or of a chunk of it: `tokens` from number `start` on. */
typedef struct hrt_place {
    int64_t start, tokens;
    int64_t slot; /* which of the chunks in flight it is */
} hrt_place;

/* The rows of a rank of the group, as a place in the call. */
hrt_place hrt_place_of(const hrt_model *m, const hrt_place *chunk, int64_t rank);
/* Most rows of a rank in a chunk of up to `chunk` tokens. */
int64_t hrt_local_rows(const hrt_model *m, int64_t chunk);
/* Bytes of staging that the model's exchanges need. False on overflow. */
bool hrt_staging_bytes(const hrt_model *m, int64_t chunk, uint64_t *bytes);
/* x and y point at row 0 of the chunk, or of this rank's part of it; `wanted`: the first row of the
 * chunk that the step does. A hadal_comm_result. */
int hrt_make_collective(const hrt_model *m, const hrt_side *side, const hrt_collective *e,
                        const void *x, void *y, void *staging, const hrt_place *chunk,
                        int64_t wanted);
/* Tile `number` of `count` of a chunk that is divided: that part of each rank's rows. */
typedef struct hrt_tile {
    int64_t number, count;
} hrt_tile;
hrt_place hrt_tile_of(const hrt_model *m, const hrt_place *chunk, int64_t rank, hrt_tile tile);
/* HRT_REDUCE_SCATTER or HRT_GATHER_ROWS of the rows of a tile, begun (hadal_comm.start). One tile
 * at a time has the staging. */
int hrt_start_tile(const hrt_model *m, const hrt_side *side, const hrt_collective *e, const void *x,
                   void *y, void *staging, const hrt_place *chunk, hrt_tile tile);
/* Once that is over: then y has the rows. */
void hrt_end_tile(const hrt_model *m, const hrt_side *side, const hrt_collective *e, void *y,
                  void *staging, const hrt_place *chunk, hrt_tile tile);

/* ---- tiles.c: how many of them pay ---- */
/* A chunk all rows at once: of the steps of all overlaps, what the slowest rank computes and what
 * an exchange takes that waits for no rank; and what both took, of all ranks together. */
typedef struct hrt_whole {
    int64_t compute_ns, collective_ns, all_ns;
} hrt_whole;

/* What a session measures to find that out. */
typedef struct hrt_figures {
    int64_t latency_ns; /* of a message */
    int64_t tokens;     /* of the chunks that are compared: the longest that there were */
    int64_t chunks;     /* of these so far */
    int64_t now;        /* tiles of the chunk at hand, or that all in flight began with */
    int64_t timed; /* tiles of one that is timed, 0: none is; and when that is over, `taken`, */
    bool taken;    /* what it took this rank, for as long as the others have not been told */
    int64_t collective_ns, compute_ns;
    /* The same on all ranks of the group: */
    bool cold;               /* `whole` is of the first chunk, or of shorter ones */
    hrt_whole whole;         /* all_ns 0: nothing is known */
    int64_t tiles, tiled_ns; /* so many took that long, of all ranks together; 0: not tried */
} hrt_figures;
/* Is the chunk at hand to be timed? */
bool hrt_times_chunk(const hrt_figures *f);
/* Tiles of a chunk of so many tokens, 1: all rows at once. `begins`: it is the first of those in
 * flight, and its first run of layers; then ranks that have timed one tell each other, and *code is
 * the hadal_comm_result of that. The others go as that one does. */
int64_t hrt_choose_tiles(const hrt_model *m, const hrt_side *side, hrt_figures *f, int64_t tokens,
                         bool begins, int *code);

/* Before a call of `n` tokens, which this rank refuses with `code` if that is an error: the ranks
 * tell each other, and HRT_OK means that all make the same call. */
int hrt_agree_on_call(hrt_session *s, int code, const int32_t *tokens, int64_t n, int64_t rows);
/* The same of a batch, of which the first session is there; `wanted`: its first output. */
int hrt_agree_on_batch(hrt_session *const *sessions, int code, const int32_t *tokens, int64_t count,
                       bool wanted);
/* An exchange in the call has failed. */
int hrt_break(hrt_session *s, int comm_code);

/* One call of a program: n tokens from position `position` on. */
typedef struct hrt_job {
    const hrt_model *model;
    const hrt_level *level;
    const hrt_memory *memory;
    const uint8_t *weights;
    const void *const *ins;
    void *const *outs;
    int64_t n, rows, position;
    hrt_session *const *batch; /* [n] whose tokens the rows are; NULL: all are of one */
    hrt_profile_step *profile; /* per step; NULL: not wanted */
    const hrt_side *side;      /* among ranks; NULL: the model is not divided */
    hrt_figures *figures;      /* of its session; NULL without side */
} hrt_job;
/* 0, or the hadal_comm_result of the exchange that failed. */
int hrt_run(const hrt_job *job, int threads);

struct hrt_session {
    hrt_owner owner; /* first: a batch of sessions is one of owners; written by hrt_forward_batch */
    atomic_flag busy;
    const hrt_session *self; /* where it was made: pointers into its memory are good there alone */
    int threads;             /* as set by the caller */
    int processors;          /* CPUs that the process may use: no more threads run, */
    int thread_capacity;     /* nor more than memory holds workspace for */
    const hrt_model *model;
    const hrt_level *level;
    const uint8_t *weights;
    int64_t length;
    hrt_side side;           /* comm NULL: the model is not divided */
    const hrt_level *common; /* the best that all ranks of the group can run; NULL without side */
    int32_t without_best;    /* a rank of it that cannot run the library's best; -1: all can */
    hrt_figures figures;
    hrt_memory memory;
    hrt_profile_step *profile; /* NULL: off */
    char message[200];
    char machine[512]; /* the level, why none better, and the facts that kernels go by, as JSON */
};

/* hrt_session_init of any model; `out` is not cleared on errors. */
int hrt_session_make(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                     int64_t max_tokens, hrt_session **out);
/* The best level that this CPU has, or the one named; NULL: there is none. */
const hrt_level *hrt_pick_level(const hrt_model *m, const char *name);
/* Bits of the levels: those that run here, and of them those that are passed over for a lower one
 * because the machine is slow at what they were chosen for. */
void hrt_levels_here(const hrt_model *m, uint32_t *runs, uint32_t *slow);
/* The session's level from now on. */
void hrt_take_level(hrt_session *s, const hrt_level *level);
/* The features of a level that cannot be used here, 0: it runs. refused: the CPU has them, and the
 * operating system does not give them. */
uint64_t hrt_level_lacks(const hrt_level *level, bool *rejected);
/* The same as text, cut off at `size`: how long it is. */
size_t hrt_print_lacks(const hrt_level *level, char *out, size_t size);
/* Facts about this CPU; those that it does not report are as the level's code assumes. */
hd_machine hrt_machine_facts(const hrt_model *m, const hrt_level *level);
int hrt_processors(void);      /* that this process may use, 1 .. HRT_MAX_THREADS */
int hrt_default_threads(void); /* what OpenMP would take, at most hrt_processors() */

/* ---- one caller at a time (session.c) ---- */
bool hrt_enter(hrt_session *s);          /* false: it cannot be used now, and */
int hrt_why_not(const hrt_session *s);   /* HRT_BUSY: somebody is in a call; or HRT_MOVED */
int hrt_leave(hrt_session *s, int code); /* code */
__attribute__((format(printf, 3, 4))) int hrt_fail(hrt_session *s, int code, const char *format,
                                                   ...); /* code; the text is the message */
/* Whether the model has that id; the message is written to `teller` otherwise, i is its index. */
int hrt_check_token(hrt_session *teller, const hrt_model *m, int64_t i, int32_t id);
int hrt_workers(const hrt_session *s); /* threads of its next call */
bool hrt_weights_fit(const hrt_model *m, const hrt_weights *w);

#endif
