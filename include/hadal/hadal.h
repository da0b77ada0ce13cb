/* hadal.h: the Hadal compiler as a library (libhadalc).
 *
 * One hadal_session compiles one model at a time: load it, run passes over it, emit from it. No
 * function prints or exits; every failure is a list of diagnostics in the session. A session
 * belongs to one thread; different sessions may run in different threads at once. Strings returned
 * belong to the session unless stated otherwise and live until it is closed.
 */
#ifndef HADAL_H
#define HADAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HADAL_API __attribute__((visibility("default")))
#else
#define HADAL_API
#endif

typedef struct hadal_session hadal_session;

/* ---- session and diagnostics ----------------------------------------------------------------- */
HADAL_API const char *hadal_version(void);
HADAL_API hadal_session *hadal_open(void); /* NULL: out of memory */
HADAL_API void hadal_close(hadal_session *s);

typedef struct hadal_diagnostic {
    int severity;     /* 0 error, 1 warning, 2 note */
    const char *name; /* "syntax", "weights" ...: support/errors.def */
    const char *file; /* NULL: the diagnostic has no place */
    unsigned line, column, end_column;
    const char *message, *cause, *hint, *source_line; /* all but message may be NULL */
} hadal_diagnostic;
HADAL_API size_t hadal_diagnostics(const hadal_session *s);
HADAL_API hadal_diagnostic hadal_diagnostic_at(const hadal_session *s, size_t i);
HADAL_API const char *hadal_diagnostic_text(hadal_session *s, size_t i,
                                            int colour); /* rendered, several lines */
HADAL_API int hadal_exit_code(const hadal_session *s);   /* 0, or that of the first error */

/* Adds an error of the caller's own to the list of diagnostics, so that one list has all errors:
 * `name` as in support/errors.def. Returns 1. */
HADAL_API int hadal_fail(hadal_session *s, const char *name, const char *message, const char *hint);
/* Long operations (packing, reading) call `report` now and then; `total` 0: unknown. NULL: nothing
 * is reported. */
HADAL_API void hadal_progress(hadal_session *s,
                              void (*report)(void *context, const char *what, uint64_t done,
                                             uint64_t total),
                              void *context);

/* Every function below that returns int returns 0 on success and 1 on failure (see the
 * diagnostics). */

/* ---- input ----------------------------------------------------------------------------------- */
/* Parameters for the elaboration of a spec (-D); before hadal_load. */
HADAL_API int hadal_define(hadal_session *s, const char *name, const char *value);
HADAL_API int hadal_include_path(hadal_session *s,
                                 const char *dir); /* searched by `use` before std */
/* SPEC: a .hadal file, a .hir file, or a model folder with config.json. `name`: name of the module;
 * NULL: derived from the path. */
HADAL_API int hadal_load(hadal_session *s, const char *spec, const char *name);
/* Weights for packing, checking and running: a file, an index or a folder. NULL: the folder given
 * as SPEC. */
HADAL_API int hadal_weights(hadal_session *s, const char *path);
HADAL_API const char *hadal_weights_path(const hadal_session *s); /* NULL: none given */
/* Do the weights exist: does the folder hold weights, or is the file there? 0 where none were
 * given. */
HADAL_API int hadal_weights_exist(hadal_session *s);
/* Stage of the module at present: "graph", "depth" or "kernel". NULL: there is no module. */
HADAL_API const char *hadal_stage(const hadal_session *s);
/* Readable spec text from a Hugging Face style folder, for a file. */
HADAL_API const char *hadal_import_text(hadal_session *s, const char *folder); /* NULL: failed */
HADAL_API int hadal_import(hadal_session *s, const char *folder, const char *out_path);
/* Compares the given weights with the loaded module (names, shapes, dtypes) and reports all faults
 * at once. */
HADAL_API int hadal_check_weights(hadal_session *s);
/* Writes weights for the loaded module as they are before training, in "f32", "bf16" or "f16": as
 * the model says; else gains are one, biases zero, and matrices drawn by the seed (docs/formats.md).
 * hadal_draw_weights draws all. */
HADAL_API int hadal_init_weights(hadal_session *s, uint64_t seed, const char *dtype,
                                 const char *out_path);
HADAL_API int hadal_draw_weights(hadal_session *s, uint64_t seed, const char *dtype,
                                 const char *out_path);

/* ---- passes ---------------------------------------------------------------------------------- */
typedef struct hadal_pass_event {
    int index;
    const char *pass;
    int changed;
    double seconds;
} hadal_pass_event;
typedef struct hadal_pipeline {
    size_t struct_size;     /* sizeof(hadal_pipeline) */
    const char *passes;     /* comma-separated; "default" among them, or NULL: the whole pipeline */
    const char *stop_after; /* NULL: all passes run */
    const char *dump_dir;   /* NULL: no dumps; numbered .hir file per pass */
    int verify_each, check; /* verifier after each pass; compare answers after each pass */
    int keep_traces;
    const char *weights_dtype; /* "f32", "bf16", "f16", "q8", "q4", "mxfp4", "nvfp4", and for
                                * weights by name: "q4,lm_head=q8,*embed*=f16" */
    int64_t chunk;             /* 0: 512 */
    void (*event)(void *context, const hadal_pass_event *event); /* after each pass; may be NULL */
    void *context;
    /* POSIX extended regular expressions over the names of passes and of ops: which dumps and
     * remarks are kept. NULL: all. With filter_ops dumps are extracts, which cannot be read back.
     * One that matches no pass that runs ("input" is what came in), or no op there is, is an error. */
    const char *filter_passes, *filter_ops;
    const char *cache_dtype; /* of keys and values: "f32", "bf16", "f16"; NULL: as the module says,
                              * which is f32 where it does not */
    int ledger; /* 1: a remark after each pass that changed the memory traffic of the residual
                 * mechanism */
    /* "f32" (NULL) or "bf16": storage of sources that several depth mixes (weighted sums of earlier
     * outputs) read, that is finished residual blocks and the embedding; and storage of the results
     * of their phase 1 */
    const char *bank_dtype, *phase1_dtype;
    /* The norm after a merge of phase 2: "dots" (NULL) computes it from dot products of the two
     * merged parts, or from the resulting row where they cancel; "row" always from the row */
    const char *merge_norm;
    const char *depth_path;  /* a file for the IR before the pass that makes kernels; NULL: none */
    int keep_hidden;         /* for hadal_run_options.hidden_path */
    const char *carry_dtype; /* of the states of recurrences: as cache_dtype */
    int keep_history;        /* for hadal_report and hadal_explain */
    /* Many machines: ranks that share each layer (0: one); the number of tokens from which on they
     * divide rows (0: the compiler decides); how gathered rows are sent ("f32", NULL, or "bf16");
     * pipeline stages that share the layers (0: one); how many parts each stage has (0: one); and
     * which stage is wanted. */
    int64_t ranks, divide_from, stages, virtual_stages, stage;
    const char *gather_dtype;
    /* Computing while collectives of rows are under way: "auto" (NULL), where it pays; "off"; or
     * the number of tiles into which rows are cut. */
    const char *overlap;
    /* Taps, for hadal_run_options.taps_path: a list such as "output.*,stream.1-4,input.head"; NULL:
     * none. And those of hadal_by_depth_text. (docs/looking-inside.md) */
    const char *taps;
    int by_depth;
    int loss; /* 1: with NAME_loss, the losses of given targets (docs/eval.md) */
    /* 1: what is compiled are the gradients of the model, NAME_gradients (docs/learning.md), and
     * `chunk` is the longest sequence, 4096 if it is 0 */
    int gradients;
    const char *optimizer; /* with `gradients`: "adamw" (NULL) or "muon" (NAME_trainer_step) */
    /* Of gradients: the most bytes of a trainer for sequences of `chunk` tokens, but for the scratch
     * memory of its threads ("600M"); NULL: no bound */
    const char *memory;
    /* Of gradients: sums over tokens are made in row programs that have their rows ("rows", NULL), or
     * each in a kernel of its own ("kernels") */
    const char *token_sums;
    /* Of gradients: both operands of products with matrices are rounded to "bf16", or are "f32" (NULL) */
    const char *matmul_dtype;
} hadal_pipeline;
HADAL_API int hadal_run_passes(hadal_session *s, const hadal_pipeline *p);
/* After a library of gradients has been emitted: the memory of its trainer for the longest sequence,
 * in bytes, as a JSON object (docs/learning.md). A note says the same. NULL: failed. */
HADAL_API const char *hadal_trainer_memory(hadal_session *s);

typedef struct hadal_remark {
    const char *pass, *op, *file;
    unsigned line, column;
    int taken;
    const char *text;
    const char *value;  /* "%7": the op's result in the dump of the pass; NULL: the result no longer
                        * exists */
    const char *weight; /* the first weight that the op reads, or a kernel's first product; NULL:
                         * none */
    /* The call in the model that led to the place, if that is in a page which the model uses; else
     * call_file is NULL. */
    const char *call_file;
    unsigned call_line, call_column;
    /* Of the layer of `weight`, if that runs several times: which time, from 1; else 0. */
    unsigned layer_pass;
} hadal_remark;
HADAL_API size_t hadal_remarks(const hadal_session *s);
HADAL_API hadal_remark hadal_remark_at(const hadal_session *s, size_t i);

/* ---- shrinking what fails -------------------------------------------------------------------- */
/* Proposes ever smaller modules, starting from the loaded one (after passes: from their result).
 * The caller tries each and reports whether it still fails. Texts are valid until the next call. */
HADAL_API int hadal_reduce_begin(hadal_session *s);
HADAL_API const char *hadal_reduce_next(hadal_session *s); /* NULL: there is none left */
HADAL_API void hadal_reduce_answer(hadal_session *s, int still_fails);
HADAL_API const char *hadal_reduce_best(hadal_session *s, size_t *ops); /* the smallest so far, and
                                                                         * its ops */

/* ---- many machines --------------------------------------------------------------------------- */
typedef struct hadal_plan_options {
    size_t struct_size;   /* sizeof(hadal_plan_options) */
    const char *host;     /* "FILE.json,name=value,..": inspect/plan_facts.def */
    const int64_t *hosts; /* numbers of hosts: each of them is tried */
    size_t n_hosts;
    int64_t prompt, position; /* tokens of a prefill; cached tokens when one token is decoded */
    int json;
    const char *activations; /* as in hadal_target */
    int any_chunk;           /* 1: the chunk that makes a prompt fastest; 0: that of the pipeline */
} hadal_plan_options;
/* How the loaded model could be spread over hosts, what each would hold, and the rates to expect,
 * as text or JSON (docs/many-machines.md). Weights are not needed. Runs the pipeline for each
 * shape. NULL: failed. */
HADAL_API const char *hadal_plan(hadal_session *s, const hadal_pipeline *p,
                                 const hadal_plan_options *o);

/* ---- output ---------------------------------------------------------------------------------- */
/* Text of the module at present; `locations`: with source locations. */
HADAL_API const char *hadal_ir_text(hadal_session *s, int locations);
HADAL_API const char *hadal_plan_text(hadal_session *s); /* memory plan, after the pipeline */

/* Part of the code of a library (kind "so"): the functions of one kind for one CPU level. */
typedef struct hadal_code_event {
    const char *level, *part;       /* "avx512", "row programs" */
    size_t functions, instructions; /* instructions of LLVM's IR */
    size_t bytes;
    double build, translate; /* seconds of CPU time: building LLVM's IR, and translating it to the
                              * object */
} hadal_code_event;
typedef struct hadal_target {
    size_t struct_size;
    const char *triple;      /* NULL: this machine's */
    const char *cpu;         /* NULL: every level; "native", a level, or an LLVM CPU */
    const char *cc;          /* linker driver; NULL: $CC or cc, for another architecture
                                ARCH-linux-gnu-gcc */
    const char *runtime;     /* libhadalrt.a of that architecture; NULL: the installed one */
    const char *ir_file;     /* line tables point here; NULL: no debug info */
    const char *activations; /* what they may be rounded to where that is faster: "int8" for q8 and
                              * q4 weights, "bf16" for bf16 weights and cached latents, "int8,bf16";
                              * "f32": nothing; NULL: "int8" */
    void (*event)(void *context, const hadal_code_event *event); /* may be NULL */
    void *context;
    const char *machine; /* facts to assume of every machine instead of its own, for experiments:
                            "l2=2M,l3=480M" (line, l1, l2, l3); NULL: none */
} hadal_target;
/* Is it the name of a CPU level of this machine's architecture, as hadal_machine_text lists them?
 * Whether the machine can run it is another question. */
HADAL_API int hadal_check_level(hadal_session *s, const char *level);
/* After the pipeline: reports what hadal_emit would reject about the target, without writing
 * anything. */
HADAL_API int hadal_check_target(hadal_session *s, const hadal_target *t);
/* kind: "obj" "so" "header" "python" "llvm" "asm" "weights" "ir" (the present IR text, at any stage) "torch"
 * (a PyTorch module, from the graph as it was loaded). Except for "ir" and "torch" the pipeline must
 * have run. */
HADAL_API int hadal_emit(hadal_session *s, const hadal_target *t, const char *kind,
                         const char *path);

/* Writes text to a file that appears complete or not at all. */
HADAL_API int hadal_write_text(hadal_session *s, const char *path, const char *text);

/* ---- builds ---------------------------------------------------------------------------------- */
/* Files of one directory that are only of use together: library, header, weights. The files that
 * sessions "in" a build write with hadal_emit, hadal_write_text and `depth_path` wait under
 * temporary names and appear when the build is published: all of them or none, even if the process
 * is killed, and never mixed with the files of another process that publishes the same names.
 * Weights are emitted before the library and the header, whose build ids then say to which weights
 * they belong. */
typedef struct hadal_build hadal_build;
HADAL_API hadal_build *hadal_build_open(void); /* NULL: no memory */
/* Removes what has not been published. Sessions in the build must not be used afterwards. */
HADAL_API void hadal_build_close(hadal_build *b);
HADAL_API void hadal_build_in(hadal_session *s, hadal_build *b); /* NULL: in none from now on */
/* A file of an earlier build that is removed when this one is published; for NAME.weights, the
 * shares of ranks as well. 1: out of memory. */
HADAL_API int hadal_build_replaces(hadal_build *b, const char *path);
/* Removes them now, so that none looks up to date if this build fails. */
HADAL_API void hadal_build_remove_earlier(hadal_build *b);
HADAL_API int hadal_build_publish(hadal_session *s, hadal_build *b);

/* ---- machines -------------------------------------------------------------------------------- */
/* What Hadal sees of this machine: features, the CPU levels that it can run and what it lacks for
 * the others, caches, threads. `threads` > 0: also its limits, measured on so many threads; 0:
 * limits are not measured; -1: measured on all threads that the process may use. Where limits are
 * measured and `folder` is not NULL, it also compiles small models, in files in that folder that
 * are removed afterwards, to find how much of the limits kernels reach (4 s more). `level`: a CPU
 * level that the machine runs, as if it had no better one; NULL: the best. NULL: failed. */
HADAL_API const char *hadal_machine_text(hadal_session *s, int json, int threads,
                                         const char *folder, const char *level);

/* ---- evaluation ------------------------------------------------------------------------------ */
/* The number of ranks into which a compiled library is divided; 0: it is not divided. */
struct hadal_comm;
HADAL_API int hadal_library_ranks(hadal_session *s, const char *library, int64_t *ranks);
/* What a library says of itself, and whether the given header and weights (NULL: none), including
 * shares of ranks, were made with it, by their build ids. *together: they were. NULL: failed. */
HADAL_API const char *hadal_library_text(hadal_session *s, const char *library, const char *header,
                                         const char *weights, int *together);
/* The communicator (hadal_comm.h) with which hadal_run, hadal_generate and hadal_bench_run run
 * divided libraries, and hadal_train trains on many ranks; it must outlive the session.
 * `timeout_ns` is the deadline of each collective. All ranks make the same calls; each opens its own
 * share of the weights, NAME.r0of4.weights for NAME.weights. In hadal_train the first rank has the
 * folder of the run and calls `event`, and a batch is divided among all. */
HADAL_API void hadal_use_ranks(hadal_session *s, const struct hadal_comm *comm, int64_t timeout_ns);

/* How hadal_run, hadal_generate, hadal_evaluate and hadal_bench_run get at the packed weights of a
 * library from now on. "mmap" or NULL, as at first: their file is mapped (NAME_weights_open);
 * "read": it is read into memory of the process, in huge pages (NAME_weights_read). */
HADAL_API int hadal_weights_load(hadal_session *s, const char *how);

/* Reads "network=10G,latency=50us", in the syntax of the facts of a host: a slower network that
 * hadal_mpi_slow simulates between ranks of one machine. */
HADAL_API int hadal_read_link(hadal_session *s, const char *text, double *bits_per_second,
                              int64_t *latency_ns);

/* Without a loaded model `library` runs by itself, and gives its outputs alone. */
typedef struct hadal_run_options {
    size_t struct_size;
    const int64_t *split; /* tokens of the first calls, the others one at a time; none: all tokens
                           * in one call */
    size_t n_split;
    int interpret;         /* 1: the reference evaluator; 0: `library` */
    const char *library;   /* path of the compiled .so */
    const char *packed;    /* its .weights */
    const char *cpu_level; /* NULL: best */
    int threads;           /* 0: default */
    int profile;           /* compiled models: runs to profile, after a warm-up; 0: none */
    /* An .npy file for the input of the output head, after the last norm, float32 [n, d]; NULL:
     * none. The passes must have run with keep_hidden. */
    const char *hidden_path;
    /* How many of the likeliest next tokens are wanted, for hadal_next_tokens; 0: none. The first
     * output must be "logits", [T, vocab]. */
    int64_t top;
    /* The number of last positions for which outputs are wanted; 0, or with `profile`: all
     * positions. One is enough for `top`. All ranks of a divided library must give the same number.
     */
    int64_t rows;
    /* A .safetensors file for the taps that the passes were told of; NULL: none. */
    const char *taps_path;
} hadal_run_options;
/* Reads token ids from "1,2,3", FILE.npy or FILE.safetensors:tensor. *tokens belongs to the
 * session. */
HADAL_API int hadal_read_tokens(hadal_session *s, const char *text, const int32_t **tokens,
                                int64_t *n);
/* Runs the model. Writes the logits of all positions (or of the last `rows`), float32 [n, vocab],
 * to an .npy file; traces to a .safetensors file (NULL: none). */
HADAL_API int hadal_run(hadal_session *s, const hadal_run_options *o, const int32_t *tokens,
                        int64_t n, const char *logits_path, const char *trace_path);

typedef struct hadal_next_token {
    int32_t token;
    float logit;
    double probability; /* exp(logit) / the sum of exp over all logits */
} hadal_next_token;
/* The likeliest tokens after the last position of the last hadal_run with `top`: that many tokens,
 * or all of a smaller vocabulary, the likeliest first, of equally likely ones the lower id first.
 * *n: how many. NULL: none were requested, the library is a pipeline stage that has no logits, or
 * the run failed. */
HADAL_API const hadal_next_token *hadal_next_tokens(const hadal_session *s, size_t *n);

/* The root mean square by depth of inputs, outputs and streams of sublayers in the last hadal_run,
 * or hadal_evaluate (of the tokens that predict); the passes must have run with `by_depth`. form:
 * "text", "json" or "svg". NULL: it was not wanted, or there is no such form. */
HADAL_API const char *hadal_by_depth_text(hadal_session *s, const char *form);

/* The times of the steps in the last hadal_run or hadal_train that was profiled. form: "text", "json", or "folded"
 * (stacks for flame graphs). NULL: there is no profile, or no such form. */
HADAL_API const char *hadal_profile_text(hadal_session *s, const char *form);

/* ---- losses ---------------------------------------------------------------------------------- */
/* A sequence of tokens in a file, which is mapped: .npy of whole numbers [n]; such a tensor,
 * FILE.safetensors:NAME; .i32, little-endian numbers of 32 bits; any other file is text. `t`: the tokenizer of text; NULL: a byte is a token.
 * `with_template`: with the tokens that the tokenizer puts around a text. It belongs to the
 * session. */
typedef struct hadal_data hadal_data;
struct hadal_tokenizer;
HADAL_API int hadal_data_is_text(const char *path);
HADAL_API int hadal_data_open(hadal_session *s, const char *path, const struct hadal_tokenizer *t,
                              int with_template, const hadal_data **out);

/* Checks that the loaded model has all tokens of the data, as hadal_evaluate does: before a large
 * model is compiled for it. */
HADAL_API int hadal_check_data(hadal_session *s, const hadal_data *data);

typedef struct hadal_eval_options {
    size_t struct_size;
    int interpret;                /* 1: the reference evaluator; 0: `library` */
    const char *library, *packed; /* the compiled model, with NAME_loss, and its .weights */
    const char *cpu_level;        /* NULL: best */
    int threads;                  /* 0: default */
    /* A window is up to `context` tokens, at least 2, before which nothing is known. Without a
     * stride windows do not overlap, and the first token of each is not predicted. With one each
     * window predicts the next `stride` tokens, less than `context`, after as many others as fit:
     * every token but the first is predicted once. */
    int64_t context, stride;
    const char *losses_path; /* .npy, float32 [tokens]: the loss of each; NULL: none */
} hadal_eval_options;
typedef struct hadal_evaluation {
    int64_t tokens; /* predicted, of `data_tokens` */
    int64_t data_tokens;
    int64_t bytes;     /* of the text; 0: the data are tokens */
    double loss;       /* mean over `tokens`, in nats */
    double perplexity; /* e^loss */
    double
        bits_per_byte; /* loss / ln 2 times tokens per byte of the text; 0: the data are tokens */
    double seconds;
} hadal_evaluation;
/* The loss of the data under the model: of a loaded one, after hadal_run_passes with `loss`, or of
 * `library` alone. Progress is reported as "evaluating", in tokens. Of a library that is divided
 * over ranks all of them call it, and those of the last pipeline stage have the losses. */
HADAL_API int hadal_evaluate(hadal_session *s, const hadal_eval_options *o, const hadal_data *data,
                             hadal_evaluation *out);

/* ---- gradients ------------------------------------------------------------------------------- */
/* The gradients of the loaded model for one sequence of n tokens from position 0, and n targets, of
 * which those below 0 are not counted. The loss is the mean over the others, in nats; without any
 * it is 0, and so are the gradients. `path`, a .safetensors file: "loss", float32 [1], and for each
 * weight of the spec "grad.NAME", float32, with the name and the shape that it has in a checkpoint.
 * The evaluator computes in 64 bits; else `library`, which hadal_emit has made after
 * hadal_run_passes with `gradients`. */
typedef struct hadal_gradient_options {
    size_t struct_size;
    int interpret; /* 1: the reference evaluator */
    const char *path;
    /* 1: also "out_rms" and "out_grad_rms", float32 [sublayers]: the root mean square over tokens
     * and channels of the output of each sublayer, and of the gradient of the loss with respect to
     * it, in the order in which they run. */
    int by_depth; /* the evaluator computes then, with a note if `interpret` is 0 */
    const char *library;
    int threads;           /* of the library; 0: all CPUs */
    const char *cpu_level; /* NULL: the best that runs here */
} hadal_gradient_options;
typedef struct hadal_gradient_result {
    double loss;
    int64_t count; /* targets that are counted */
} hadal_gradient_result;
HADAL_API int hadal_gradients(hadal_session *s, const hadal_gradient_options *o,
                              const int32_t *tokens, const int32_t *targets, int64_t n,
                              hadal_gradient_result *out);

/* ---- training -------------------------------------------------------------------------------- */
typedef struct hadal_train_event { /* after a step */
    int64_t step, steps;
    double loss, learning_rate, norm;
    int evaluated; /* with `eval_loss` */
    double eval_loss;
    const char *checkpoint; /* that was written; NULL: none */
    int64_t tokens;         /* read by this call so far, in so many seconds */
    double seconds, seconds_left;
    double multiply_add; /* products of the steps, as a share of the f32 multiply-adds that the
                            machine does in the same time on as many threads */
} hadal_train_event;
/* A run in the folder `run`, as docs/training.md has it. The loaded model has been through
 * hadal_run_passes with `gradients`, a `chunk` of at least the context, and `optimizer`. It begins with
 * the weights given, or with such as hadal_init_weights makes; where the folder has a run, it goes on
 * from its last checkpoint. */
typedef struct hadal_train_options {
    size_t struct_size;
    const char *run;
    const hadal_data *const *data; /* one sequence of tokens, in this order */
    size_t n_data;
    const hadal_data *const *eval_data;
    size_t n_eval_data;    /* 0: there is none */
    const char *tokenizer; /* its file or folder, for checkpoints; NULL: none */
    /* 1: tokens see none of another document. Documents end with a file, and with each token
     * `document_end` (-1: none). */
    int separate_documents;
    int32_t document_end;
    int64_t context, batch, steps; /* tokens of a window; windows of a step */
    const char *optimizer;         /* as in hadal_pipeline */
    const char *schedule;          /* "cosine", "wsd" or "constant" */
    int64_t warmup;
    double learning_rate, weight_decay, clip; /* clip 0: gradients are not clipped */
    int64_t seed;
    int64_t eval_every, save_every; /* 0: after the last step alone */
    int64_t keep;                   /* so many checkpoints; 0: all */
    int threads;                    /* 0: default */
    const char *cpu_level;          /* NULL: the best that runs here */
    const char *cc;                 /* as in hadal_target */
    void (*event)(void *context, const hadal_train_event *event); /* may be NULL */
    /* Called between steps: a result other than 0 ends the call, after a checkpoint. */
    int (*interrupted)(void *context);
    void *context_of_calls;
    int64_t depth_every; /* magnitudes by depth and weights of mixes after so many steps, and after
                            the last; 0: never */
    int profile;         /* 1: what kernels and parts of steps take, for hadal_profile_text */
} hadal_train_options;
typedef struct hadal_trained {
    int64_t begun, step, steps; /* this call began after step `begun` */
    int finished;               /* the run had been finished before */
    int interrupted;
    double loss; /* of the last step of this call */
    int evaluated;
    double eval_loss; /* the last one of this call */
    int64_t parameters, data_tokens;
    int64_t tokens; /* read by this call */
    double seconds;
    const char *checkpoint; /* the last one; NULL: none */
} hadal_trained;
HADAL_API int hadal_train(hadal_session *s, const hadal_train_options *o, hadal_trained *out);

/* Is there a run in the folder? */
HADAL_API int hadal_is_run(const char *path);
/* What runs have recorded and logged, as JSON (docs/training.md), also of runs that are under way; and
 * one HTML file that shows it. NULL: failed. */
HADAL_API const char *hadal_run_report(hadal_session *s, const char *const *runs, size_t n);
HADAL_API const char *hadal_run_page(hadal_session *s, const char *report);

/* ---- text ------------------------------------------------------------------------------------ */
/* The tokenizer of a folder, of a tokenizer.json, or of a tiktoken.model, for the functions of
 * hadal/text.h. It belongs to the session; the caller must not close it. NULL: failed;
 * `hadal_has_tokenizer` checks whether there is one. */
HADAL_API const struct hadal_tokenizer *hadal_tokenizer_of(hadal_session *s, const char *path);
HADAL_API int hadal_has_tokenizer(const char *path);
/* The tokens that end a text: eos_token_id of the folder's generation_config.json, else of its
 * config.json (or of the text part in it). It is no failure if there are none. *ids belongs to the
 * session. */
HADAL_API int hadal_stop_tokens(hadal_session *s, const char *folder, const int32_t **ids,
                                size_t *n);

typedef struct hadal_generate_options {
    size_t struct_size;
    const char *library, *packed; /* the compiled model, DIR/libNAME.so, and its .weights */
    const char *cpu_level;        /* NULL: best */
    int threads;                  /* 0: default */
    int64_t max_tokens;           /* the most new tokens */
    /* The next token, from its logits l: the largest where temperature is 0 (the first of equals).
     * Else weights exp((l - max l) / temperature); of these the top_k largest (0: all), of those
     * the fewest largest that have at least top_p (1: all) of their sum. Of equals the lower id
     * counts as larger. A number u in [0, 1) is drawn, and the ids that are left are visited in
     * increasing order: the first at which the running sum exceeds u times the whole is the token.
     * u is the upper 53 bits of the next number of a xoshiro256** generator seeded from `seed`
     * (ir/eval/random.c, stream "generate"); one for each token. */
    double temperature, top_p;
    int64_t top_k;
    uint64_t seed;
    const int32_t *stop; /* tokens that end the text; they are not reported */
    size_t n_stop;
    /* Called with each new token, and between calls of the model: a result other than 0 stops.
     * NULL: not called. */
    int (*token)(void *context, int32_t id);
    int (*interrupted)(void *context);
    void *context;
} hadal_generate_options;
typedef struct hadal_generated {
    int64_t prompt_tokens, tokens; /* read; generated */
    double prompt_seconds, seconds;
    int interrupted; /* the caller stopped the generation */
} hadal_generated;
/* Reads the prompt (at least one token) and generates the tokens that follow. */
HADAL_API int hadal_generate(hadal_session *s, const hadal_generate_options *o,
                             const int32_t *prompt, int64_t n, hadal_generated *out);

/* A session of a compiled model that is kept from one text to the next, as the turns of a chat are.
 * `o` is read by the call; its callbacks and lists must live on. The session has room for
 * `max_tokens` tokens, of prompts and of what is generated. NULL: failed. */
typedef struct hadal_generation hadal_generation;
HADAL_API hadal_generation *hadal_generation_open(hadal_session *s, const hadal_generate_options *o,
                                                  int64_t max_tokens);
/* As hadal_generate, with the whole text so far as its prompt. Of that the session keeps what it
 * holds already, and only the rest is read: out->prompt_tokens says how much. Where the text
 * differs from what the session holds, it goes back to the last token that is the same; a session
 * that cannot be rewound (sliding windows, states of recurrences) goes back to the end of the last
 * prompt, or to the start. As many tokens are generated as the session has room for, at most
 * max_tokens. */
HADAL_API int hadal_generation_continue(hadal_generation *g, const int32_t *prompt, int64_t n,
                                        hadal_generated *out);
HADAL_API void
hadal_generation_close(hadal_generation *g); /* before its session; NULL is allowed */

/* The chat templates of a model folder, for the functions of hadal/text.h. They belong to the
 * session; the caller must not close them. NULL: failed. */
HADAL_API const struct hadal_chat_template *hadal_chat_template_of(hadal_session *s,
                                                                   const char *folder);

/* ---- benchmarks ------------------------------------------------------------------------------ */
typedef struct hadal_bench_options {
    size_t struct_size;
    const int64_t *prefill; /* tokens of a call on an empty session; each at least 1 */
    size_t n_prefill;
    const int64_t *decode; /* cache lengths before a call of one token; each at least 0 */
    size_t n_decode;
    const int *threads;
    size_t n_threads;
    int rounds; /* measurements that must be valid, per configuration */
    void (*print)(void *context, const char *text); /* lines of the table; NULL: not wanted */
    void *context;
    const char *cpu_level; /* NULL: best */
} hadal_bench_options;
typedef struct hadal_bench_model {
    const char *library, *weights; /* DIR/libNAME.so and the packed weights */
    const char *label, *types;     /* for the table: the model, and how its weights are stored */
} hadal_bench_model;
/* Measures compiled models, alongside the limits of the machine at the same moment. Begin once,
 * then run as often as wanted: one model, or two whose runs alternate, so that the ratio of their
 * times comes from neighbouring measurements. */
HADAL_API int hadal_bench_begin(hadal_session *s, const hadal_bench_options *o);
HADAL_API int hadal_bench_run(hadal_session *s, const hadal_bench_model *models, size_t n);
/* All measurements so far (docs/benchmarks.md has the schema). */
HADAL_API const char *hadal_bench_json(hadal_session *s);

/* ---- reports --------------------------------------------------------------------------------- */
/* What the passes did to the loaded model, and all that is known of the result, as JSON
 * (docs/report-json.md). Call it after hadal_run_passes with keep_history, hadal_load_dumps or
 * hadal_load_library; a session in which loading failed gives a report of its diagnostics. */
typedef struct hadal_report_options {
    size_t struct_size;
    const char *path; /* path of the model, for the title of the report */
    /* Tokens on which the report shows the weights of depth mixes and the mixing matrix, computed
     * with the given weights, and the profile of the last hadal_run, if there was one. 0 tokens:
     * neither */
    const int32_t *tokens;
    int64_t n_tokens;
    const char *profile;        /* a file of `hadal run --profile=FILE.json` instead; NULL: none */
    const char *machine;        /* JSON of hadal_machine_text; NULL: none */
    const hadal_target *target; /* code for the first CPU level of this target; NULL: no code */
} hadal_report_options;
HADAL_API const char *hadal_report(hadal_session *s, const hadal_report_options *o);
/* Loads the files of --dump-ir instead of a model: the first of them is its graph, and the last one
 * the present module. */
HADAL_API int hadal_load_dumps(hadal_session *s, const char *folder);
HADAL_API int hadal_is_dumps(const char *path); /* is it a folder with such files? */
/* Loads a compiled library, DIR/libNAME.so, with the IR that `compile --emit=graph,depth,kernel`
 * left next to it (at least the kernel IR, which must be that of the library). */
HADAL_API int hadal_load_library(hadal_session *s, const char *path);
/* Reads a report that was written before, and rejects any other JSON. */
HADAL_API const char *hadal_read_report(hadal_session *s, const char *path);
/* One HTML file that shows one report, or two side by side (`against`; NULL: one). `other`: the
 * session that the second report belongs to, for the difference of the two models op by op; may be
 * NULL. */
HADAL_API const char *hadal_report_page(hadal_session *s, const char *report, hadal_session *other,
                                        const char *against);
/* The history of one value, weight or state through the passes, as text. `what`: %N or %NAME of the
 * last dump; PASS:%N of the dump of a pass, where `input` is the first; else the name of a weight,
 * a state or an output. `target`: the machine code of the op for the first CPU level of this target
 * is described as well; NULL: it is not. */
HADAL_API const char *hadal_explain(hadal_session *s, const char *what, const hadal_target *target);

/* ---- facts ----------------------------------------------------------------------------------- */
/* The changes that turn the module of spec `a` into that of spec `b`, by op, not by line; the last
 * line counts them. *differences: whether there are any. NULL on failure. The loaded module stays
 * as it is. */
HADAL_API const char *hadal_diff(hadal_session *s, const char *a, const char *b, int *differences);
/* The same for what two sessions have loaded (hadal_load), each with parameters of its own. */
HADAL_API const char *hadal_diff_loaded(hadal_session *s, const hadal_session *other,
                                        int *differences);
/* Parameters, FLOPs per token, bytes of weights and state, op counts, memory plan; as text or JSON.
 */
HADAL_API const char *hadal_inspect(hadal_session *s, int json);
/* Memory traffic of the residual mechanism: of the module as loaded, without the depth passes, and
 * at present; next to the closed forms of the Attention Residuals paper. As text or JSON. NULL:
 * there is no module, or the passes failed. */
HADAL_API const char *hadal_ledger_text(hadal_session *s, int json);
/* Which sublayer reads which sources, the residual blocks, and the kernels that do it. NULL: no
 * module. */
HADAL_API const char *hadal_depth_map_text(hadal_session *s);
/* How much each sublayer reads of the output of each earlier one on these tokens, in float64, from
 * the graph as loaded and the given weights: h_l = sum_i M(l, i) v_i, checked against the values
 * themselves. Written to a .npy file [n, rows, sources], or an .svg file (mean over tokens);
 * returns a text on the findings. NULL: failed. */
HADAL_API const char *hadal_mixing_matrix(hadal_session *s, const int32_t *tokens, int64_t n,
                                          const char *path);
/* The weights of the model's depth mixes, mean over tokens: to a .npy file [mixes, columns] (NaN:
 * no such source), or an .svg file. NULL: failed, or there are no mixes. */
HADAL_API const char *hadal_heatmap(hadal_session *s, const int32_t *tokens, int64_t n,
                                    const char *path);
HADAL_API const char *hadal_ops_text(hadal_session *s, const char *only,
                                     int markdown); /* NULL: no such op */
HADAL_API const char *hadal_passes_text(hadal_session *s);
HADAL_API const char *hadal_families_text(hadal_session *s); /* Markdown */

#ifdef __cplusplus
}
#endif
#endif
