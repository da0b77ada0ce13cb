/* The runtime of generated libraries: sessions, mapped weights, threads.
 *
 * A generated object holds kernels (machine code per CPU level) and one constant hrt_model that
 * describes the program as a list of steps; everything else is this small C library, linked in
 * statically with hidden symbols. The public functions of model.h (NAME_forward ...) are wrappers
 * in the generated object that pass the address of the hrt_model.
 *
 * Nothing here allocates in a call of the model, prints, exits, or writes a global.
 * Layout of the structs is the contract with codegen/module/constants.c: both are made of
 * structs.def; HRT_VERSION changes with it.
 */
#ifndef HADAL_RT_H
#define HADAL_RT_H

#include <stddef.h>
#include <stdint.h>

#include "hadal/hadal_comm.h"
#include "support/latent_costs.h"
#include "support/machine.h"

#define HRT_VERSION     13u
#define HRT_ALIGN       64 /* of session memory, buffers, weights */
#define HRT_MAX_THREADS 256
#define HRT_MAX_LEVELS  8
#define HRT_LINE        64  /* bytes of a cache line */
#define HRT_QUEUES      16  /* most queues of work items in a step (hrt_dynamic) */
#define HRT_SMALL_BATCH 8   /* most tokens whose work kernels may cut as for one token */
#define HRT_KEYS        256 /* positions of the cache in a range (HRT_SPLIT_KEYS) */
#define HRT_LIST_ROWS   32  /* rows of a list in a range are a multiple of it, at most HRT_KEYS, */
#define HRT_LIST_RANGES 8   /* and as few as make no more ranges than so many, if that can be */

/* Rounded up to HRT_ALIGN; bytes are at most 2^64 - HRT_ALIGN. */
static inline uint64_t hrt_aligned(uint64_t bytes) {
    return (bytes + HRT_ALIGN - 1) / HRT_ALIGN * HRT_ALIGN;
}

enum hrt_result {
#define R(id, value, text) HRT_##id = value,
#include "runtime/errors.def"
#undef R
};

/* The session that a row of a batch belongs to. */
typedef struct hrt_owner {
    int64_t length, cap; /* the row's position, and positions that each of its caches holds */
    char *const *states;
} hrt_owner;

/* Counts the work items of a queue that threads have taken: the number of the next one. */
typedef struct hrt_counter {
    _Alignas(HRT_LINE) _Atomic int64_t next;
} hrt_counter;

/* The work of all threads in a step that is cut by columns. The kernel may schedule it dynamically
 * among the threads (codegen/contract/dynamic.h) instead of doing the cell that it was called for.
 * All threads are offered the same work, so that either all accept it or none does. */
typedef struct hrt_dynamic {
    hrt_counter *queues;     /* [HRT_QUEUES], shared by all threads; 0 before the step */
    int64_t r0, r1, cols;    /* rows [r0, r1) of columns [0, cols) */
    int64_t threads, thread; /* how many there are; which this one is */
} hrt_dynamic;

/* What every kernel knows of the call (of one chunk of it). */
typedef struct hrt_frame {
    int64_t T;     /* tokens in this chunk */
    int64_t C;     /* cache length after this chunk: token t stands at position C - T + t */
    int64_t cap;   /* positions that each cache holds */
    void *scratch; /* this thread's, scratch_bytes of the model, 64-byte aligned */
    void *shared;  /* one for all threads: what threads pass to each other within a kernel, 64-byte
                    * aligned; it begins with counters, which are 0 between kernels */
    const hrt_owner *const *owners; /* owner of each of the chunk's rows in a batch, where the
                                     * argument of a state is the state's number; NULL: all rows
                                     * belong to this call */
    int64_t l3;                     /* bytes of the cache that the cores of this machine share */
    const hrt_dynamic *dynamic;     /* NULL: no work is offered for dynamic scheduling */
    int64_t rank; /* of this process among those that share the layers; 0: they are not shared */
} hrt_frame;

/* Does rows [r0, r1) of columns [c0, c1). Rows are tokens; the kernel's form defines what a column
 * is (ir/kernel/kernels.def; with HRT_SPLIT_KEYS it is a range of such a column's positions).
 * `args`: base pointers of the operands, in the order of the step; a base points at row 0 (token 0
 * of the chunk) also when r0 > 0. */
typedef void hrt_kernel(const hrt_frame *frame, void *const *args, int64_t r0, int64_t r1,
                        int64_t c0, int64_t c1);

typedef enum hrt_base {
    HRT_ARENA,  /* arena + offset * hd_arena_rows(T) */
    HRT_FIXED,  /* fixed area + offset */
    HRT_WEIGHT, /* weights file data + offset */
    HRT_STATE,  /* state number `index` (hrt_state_info) */
    HRT_INPUT,  /* input number `index`, advanced to the first token of the chunk (inputs with T) */
    HRT_OUTPUT, /* output number `index`, such that row t of the chunk is at base + t * row size */
    HRT_NUMBER, /* no address: the argument is the number `offset` */
    HRT_LOCAL,  /* rows of this rank: as HRT_ARENA, in an area of their own, times those rows */
    HRT_KEPT,   /* as HRT_ARENA and HRT_LOCAL, in areas of which each chunk in flight has its own */
    HRT_LOCAL_KEPT,
    HRT_TILE,    /* rows of a tile: as HRT_ARENA, in an area of their own, times those rows */
    HRT_TARGETS, /* of a call of hrt_loss, advanced to the first token of the chunk */
    HRT_LOSSES,
} hrt_base;

/* The same values as in ir/kernel/splits.def. */
typedef enum hrt_split {
    HRT_SPLIT_NONE,   /* one thread does everything */
    HRT_SPLIT_ROWS,   /* contiguous shares of rows */
    HRT_SPLIT_CYCLIC, /* as many whole columns for each thread; chunks of `grain` rows of those that
                       * are left, round robin: for causal attention */
    HRT_SPLIT_COLS,   /* contiguous shares of columns, and of rows where columns are too few */
    HRT_SPLIT_KEYS,   /* T = 1, or small: contiguous shares of cols * R columns, where R ranges of
                       * HRT_KEYS positions cover the cache: column g * R + r is range r of head
                       * g. The ranges do not depend on the threads, so neither do results */
    HRT_SPLIT_CHANNELS, /* contiguous shares of columns, never of rows: a row needs the one before
                         */
    HRT_SPLIT_HEADS,    /* contiguous shares of columns; where there are fewer columns than threads,
                         * of rows too, weighted by causal work */
} hrt_split;

/* In which calls a step runs: in all calls; only in those in which the first (HRT_FEW) or the
 * second (HRT_MANY) of two ways to compute a result takes fewer multiply-adds; or only in calls of
 * hrt_loss, or in all but those. */
enum { HRT_ALWAYS, HRT_FEW, HRT_MANY, HRT_IN_LOSS, HRT_NOT_IN_LOSS };

/* The number of rows in one range of a list of `rows` rows: short lists, too, are divided among
 * several threads. The result does not depend on the number of threads. Generated kernels compute
 * the same number (hcg_list_range). */
static inline int64_t hrt_list_range(int64_t rows) {
    const int64_t piece = HRT_LIST_ROWS * HRT_LIST_RANGES;
    const int64_t each = (rows + piece - 1) / piece * HRT_LIST_ROWS;
    return each > HRT_KEYS ? HRT_KEYS : each < HRT_LIST_ROWS ? HRT_LIST_ROWS : each;
}

/* The kinds of communication between the ranks of a model, and two that cross nothing but depend on
 * the rank (HRT_PART_*). The step's first operand is x, its last one y; a SEND has only x, a RECV
 * only y. */
typedef enum hrt_collective_kind {
    HRT_ALL_REDUCE,     /* y = the sum of x over the ranks */
    HRT_REDUCE_SCATTER, /* the same, but y holds only the rows of this rank */
    HRT_GATHER_ROWS,    /* y = the rows of all ranks, all-gathered */
    HRT_GATHER_UNITS,   /* y's rows are made of units of which each rank has some */
    HRT_PART_ROWS,      /* y = the rows of x that belong to this rank */
    HRT_PART_UNITS,     /* y's rows = the units of x's rows that belong to this rank */
    HRT_SEND,           /* to the same rank of pipeline stage `peer` */
    HRT_RECV,
} hrt_collective_kind;

enum { HRT_MOST_TILES = 64 }; /* most tiles of rows in an overlap with collectives */

/* CPU features a level may need: C(ENUM, bit, "LLVM name") */
/* clang-format off */
#define HRT_CPU_FEATURES(C) \
    C(SSE3, 0, "sse3") C(SSSE3, 1, "ssse3") C(SSE41, 2, "sse4.1") C(SSE42, 3, "sse4.2") \
    C(POPCNT, 4, "popcnt") C(CX16, 5, "cx16") C(SAHF, 6, "sahf") C(AVX, 7, "avx") \
    C(AVX2, 8, "avx2") C(BMI, 9, "bmi") C(BMI2, 10, "bmi2") C(F16C, 11, "f16c") \
    C(FMA, 12, "fma") C(LZCNT, 13, "lzcnt") C(MOVBE, 14, "movbe") C(AVX512F, 15, "avx512f") \
    C(AVX512BW, 16, "avx512bw") C(AVX512CD, 17, "avx512cd") C(AVX512DQ, 18, "avx512dq") \
    C(AVX512VL, 19, "avx512vl") C(AVX512VNNI, 20, "avx512vnni") \
    C(AVX512BF16, 21, "avx512bf16") C(AVXVNNI, 22, "avxvnni") C(AMXTILE, 23, "amx-tile") \
    C(AMXBF16, 24, "amx-bf16") C(AMXINT8, 25, "amx-int8") \
    C(DOTPROD, 26, "dotprod") C(BF16, 27, "bf16")
/* clang-format on */
enum {
#define C(id, bit, name) HRT_CPU_##id = 1 << bit,
    HRT_CPU_FEATURES(C)
#undef C
};

/* Kinds of state, the same as in the IR: ir/states.def describes each. */
typedef enum hrt_state_kind {
#define S(id, word, rows, rewind, dims, growth, rewinding, saved, address, doc) HRT_STATE_##id,
#include "ir/states.def"
#undef S
    HRT_STATE_KINDS
} hrt_state_kind;

/* How a step changes a parameter: updates.def has the meaning of each. */
typedef enum hrt_update {
#define U(id, text, moments, decays, meaning) HRT_UPDATE_##id,
#include "runtime/updates.def"
#undef U
    HRT_UPDATES
} hrt_update;

/* The structs in which a library describes its program: structs.def has their fields and describes
 * each. */
/* clang-format off */
#define STRUCT(name)              typedef struct name {
#define END(name)                 } name;
#define U32(field)                uint32_t field;
#define U64(field)                uint64_t field;
#define I64(field)                int64_t field;
#define BYTES16(field)            uint8_t field[16];
#define TEXT(field)               const char *field;
#define ONE(type, field)          type field;
#define TABLE(type, field, count) const type *field;
#define KERNELS(field)            hrt_kernel *const *field;
/* clang-format on */
#include "runtime/structs.def"
#undef STRUCT
#undef END
#undef U32
#undef U64
#undef I64
#undef BYTES16
#undef TEXT
#undef ONE
#undef TABLE
#undef KERNELS

/* Does a step run in a call, not of hrt_loss, that computes the last `rows` rows and ends with
 * `length` positions? */
static inline bool hrt_runs(const hrt_condition *c, int64_t rows, int64_t length) {
    if (c->when == HRT_IN_LOSS) return false;
    return c->when == HRT_ALWAYS || c->when == HRT_NOT_IN_LOSS ||
           (c->when == HRT_MANY) == hd_expanded_is_cheaper(&c->forms, rows, length);
}

/* ---- weights --------------------------------------------------------------------------------- */
/* File: this header (little endian), zeros up to 4096, then the data: each weight in the layout the
 * library expects, at its offset, 64-byte aligned. */
#define HRT_WEIGHTS_MAGIC "HADALWT1"
#define HRT_WEIGHTS_DATA  4096
typedef struct hrt_weights_header {
    char magic[8];
    uint32_t version, rank; /* rank: whose share of a divided model the file holds; 0 if the model
                             * is not divided */
    uint8_t digest[16];
    uint64_t data_offset, data_bytes; /* file size is their sum */
    uint8_t content[16]; /* XXH3-128 of the data, canonical form; checked by tools, not at open */
    uint8_t set[16];     /* of a divided model: XXH3-128 of the ranks' `content`, the same in all
                          * files that were packed together; 0 if the model is not divided */
    uint8_t source[16];  /* of a pipeline stage: identifies the checkpoint, from which the weights
                          * of the other stages must be packed as well; 0 of other models */
    uint8_t program[16]; /* the first part of the build id (build_id.h); 0 in older files */
} hrt_weights_header;

typedef struct hrt_weights hrt_weights;
typedef struct hrt_session hrt_session;

int hrt_weights_open(const hrt_model *m, const char *path, hrt_weights **out);
/* The same, with the file read into memory of the process in place of a map. */
int hrt_weights_read(const hrt_model *m, const char *path, hrt_weights **out);
/* The file's content, already in memory (64-byte aligned, outliving the object). */
int hrt_weights_from_memory(const hrt_model *m, const void *data, size_t size, hrt_weights **out);
void hrt_weights_close(hrt_weights *w);

/* ---- sessions -------------------------------------------------------------------------------- */
size_t hrt_session_size(const hrt_model *m, int64_t max_tokens); /* 0: out of range */
int hrt_session_init(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                     int64_t max_tokens, hrt_session **out);
/* For a divided model; all ranks call it. Each rank checks its own arguments; then the ranks share
 * the results, and all return the same: the error of the first rank that has one, or HRT_RANKS if
 * they differ in model, build, weights packed together, or max_tokens. On an error *out, where this
 * rank could make a session, may be used for hrt_session_message alone, which names the rank and
 * what differs. All ranks of a pipeline stage use the best CPU level that each of them can run.
 * `timeout_ns` is the deadline of each communication step, here and in every call of the session.
 * `comm` must outlive the session. */
int hrt_session_init_on(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                        int64_t max_tokens, const hadal_comm *comm, int64_t timeout_ns,
                        hrt_session **out);
/* 1 .. HRT_MAX_THREADS; initially the OpenMP default. No more threads run than there are CPUs that
 * the process may use now: further threads would wait for each other. */
int hrt_session_set_threads(hrt_session *s, int threads);
/* NULL: the best level of this CPU or, of a divided model, the best that all ranks of the pipeline
 * stage have. For any other level, all of these ranks have to set the same before the next call. */
int hrt_session_set_cpu(hrt_session *s, const char *level);
int64_t hrt_session_length(const hrt_session *s);
/* Forgets all tokens but the first `length`. HRT_REWIND if the session has a state that can only be
 * cleared, and length is neither 0 nor the present length. */
int hrt_session_rewind(hrt_session *s, int64_t length);

/* All state of a session as bytes, for a session of the same model, build and weights: this header
 * (little endian), zeros up to HRT_SAVED_DATA, then each state in order, head by head: of a cache
 * the rows of positions 0 .. length - 1, of other states all rows. */
#define HRT_SAVED_MAGIC "HADALSS1"
#define HRT_SAVED_DATA  128
typedef struct hrt_saved_header {
    char magic[8];
    uint32_t version, reserved;
    uint8_t digest[16], build[16]; /* hrt_model */
    uint8_t content[16];           /* hrt_weights_header */
    int64_t length;                /* tokens that the session held */
    uint64_t bytes;                /* size of the whole, including this header */
    uint64_t check;                /* FNV-1a, 64 bits, of the bytes of the header before this */
} hrt_saved_header;
size_t hrt_session_save_size(const hrt_session *s);
int hrt_session_save(hrt_session *s, void *memory, size_t size);
/* The session's capacity may differ from that of the one that was saved. */
int hrt_session_restore(hrt_session *s, const void *memory, size_t size);
const char *hrt_session_message(const hrt_session *s); /* details of the last error, "" if none */
const char *hrt_session_cpu(const hrt_session *s);
const char *hrt_session_machine(const hrt_session *s); /* the facts of its machine as JSON */

/* A profile: the time of one step so far, in nanoseconds of the calling thread. work_ns and wait_ns
 * together are the time that passed; where no barrier follows a step its wait_ns is 0. */
typedef struct hrt_profile_step {
    uint64_t calls;   /* how often the step ran: once a chunk */
    uint64_t work_ns; /* that thread's own share of the step */
    uint64_t wait_ns; /* from then until the other threads had finished their shares */
} hrt_profile_step;
/* From now on every forward adds to steps[0 .. n), one entry per step of the model; n must be
 * n_steps (HRT_ARGUMENT). The memory is the caller's, is not cleared here, and must last until
 * another call with NULL, 0 turns profiling off: then it costs nothing. */
int hrt_session_profile(hrt_session *s, hrt_profile_step *steps, size_t n);

/* outs[0]: the last `rows` rows of output 0. outs[1..]: all rows of the other outputs (traces).
 * NULL: the output is not wanted; it is then written to memory of the session that nobody reads.
 * The generated wrappers pass all outputs. */
int hrt_forward(hrt_session *s, const int32_t *tokens, int64_t n, float *const *outs, int64_t rows);

/* As hrt_forward of n tokens, but instead of logits losses[i] is what token targets[i] costs after
 * tokens[i], in nats: ln sum_j e^logit_j - logit of the target; 0 where targets[i] is below 0. For
 * models with steps that run in calls of it. */
int hrt_loss(hrt_session *s, const int32_t *tokens, const int32_t *targets, int64_t n,
             float *losses);

/* One more token for each of `count` sessions of one model on one weights object, each session
 * once, with the results of calling hrt_forward for one after the other. Row i of every output with
 * T belongs to session i; an output is NULL if it is not wanted. Threads, CPU level, work memory
 * and profile are those of the first session, which also holds the message of an error; after an
 * error no session is changed. */
int hrt_forward_batch(hrt_session *const *sessions, const int32_t *tokens, int64_t count,
                      float *const *outs);

/* A program without tokens and state, called as a plain function: inputs and outputs in order. */
size_t hrt_work_size(const hrt_model *m, int64_t T);
int hrt_call(const hrt_model *m, const hrt_weights *w, int64_t T, const void *const *ins,
             void *const *outs, void *work, size_t work_size);

/* ---- gradients (trainer.c) -------------------------------------------------------------------- */
/* A trainer: the parameters of a model with gradients, their gradients, and what a call needs. It
 * begins as a session, whose functions for threads, CPU level and messages take it as well. */
typedef struct hrt_trainer hrt_trainer;
typedef struct hrt_parameter_view {
    const char *name, *type;
    float *values, *gradient; /* rows one after the other, as in a checkpoint */
    size_t elements;
    const char *update; /* a text of updates.def, and, of Muon, which rows are a matrix */
} hrt_parameter_view;

size_t hrt_trainer_size(const hrt_model *m, int64_t max_tokens); /* 0: out of range */
/* Parameters and gradients are zeros. */
int hrt_trainer_init(const hrt_model *m, void *mem, size_t size, int64_t max_tokens,
                     hrt_trainer **out);
/* A trainer that all ranks of `comm` share; all of them call it, and return the same, as for
 * hrt_session_init_on. Each has the parameters, and the moments of a share of them. From then on all
 * ranks make the same calls, but for the settings and for what they read, in the same order:
 * hrt_gradients and hrt_trainer_loss each with its own sequences, of which a rank may have none. */
size_t hrt_trainer_size_on(const hrt_model *m, int64_t max_tokens, const hadal_comm *comm);
int hrt_trainer_init_on(const hrt_model *m, void *mem, size_t size, int64_t max_tokens,
                        const hadal_comm *comm, int64_t timeout_ns, hrt_trainer **out);
const hrt_parameter_view *hrt_trainer_parameters(hrt_trainer *t, size_t *n);
/* Adds the gradients of the losses of `sequences` sequences, packed one after the other, each from
 * position 0. *sum is the sum of the losses of this call, *count the number of targets that are
 * counted, those from 0 on; both are of all ranks. */
int hrt_gradients(hrt_trainer *t, const int32_t *tokens, const int32_t *targets,
                  const int64_t *lengths, int64_t sequences, double *sum, int64_t *count);
/* The losses alone, by the forward half of the program: gradients stay as they are. */
int hrt_trainer_loss(hrt_trainer *t, const int32_t *tokens, const int32_t *targets,
                     const int64_t *lengths, int64_t sequences, double *sum, int64_t *count);

/* ---- steps (optimizer.c) ----------------------------------------------------------------------- */
typedef struct hrt_step_options {
    int64_t step; /* the number of this step, from 1 on */
#define O(name, value, least, most, meaning) double name;
#include "runtime/step_options.def"
#undef O
} hrt_step_options;
/* Divides the gradients by the number of targets that have counted since the last step, clips them,
 * changes the parameters, and sets the gradients to zero. *norm (may be NULL): that of the mean
 * gradients, before they are clipped. */
int hrt_trainer_step(hrt_trainer *t, const hrt_step_options *o, float *norm);
/* Sets the gradients, and the number of targets that have counted, to zero. */
int hrt_trainer_clear(hrt_trainer *t);
int64_t
hrt_trainer_steps(const hrt_trainer *t); /* the number of the last step; 0: there was none */
/* As hrt_session_profile, for sequences and for steps: after the entries of the model come those of
 * runtime/step_parts.def, n_steps + HRT_STEP_PARTS in all. */
int hrt_trainer_profile(hrt_trainer *t, hrt_profile_step *steps, size_t n);

/* All that a trainer keeps from step to step as bytes, for a trainer of the same build of the
 * library: this header (little endian), zeros up to HRT_SAVED_DATA, the parameters, the moments. */
#define HRT_TRAINED_MAGIC "HADALTR1"
typedef struct hrt_trained_header {
    char magic[8];
    uint32_t version, reserved;
    uint8_t digest[16], build[16]; /* hrt_model */
    int64_t steps;
    uint64_t bytes; /* size of the whole, including this header */
    uint64_t check; /* FNV-1a, 64 bits, of the bytes of the header before this */
} hrt_trained_header;
size_t hrt_trainer_save_size(const hrt_trainer *t);
int hrt_trainer_save(hrt_trainer *t, void *memory, size_t size);
/* The gradients become zeros. Of several ranks the first has the memory, whole, and the others pass
 * NULL; their number may be another than it was. */
int hrt_trainer_restore(hrt_trainer *t, const void *memory, size_t size);

const char *hrt_strerror(int code);
uint64_t hrt_cpu_features(void); /* of the machine this runs on, as the OS allows them */

#endif
