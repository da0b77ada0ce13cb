/* NAME.h: the C interface of one library, written for people.
 *
 * A template with marks, one for models and one for plain functions: @name@ and @NAME@ are the
 * prefix of functions and of constants; @macros@ and similar marks are text that depends on the
 * program. */
#include <ctype.h>
#include <string.h>

#include "codegen/module/module.h"
#include "codegen/module/templates.h"
#include "codegen/program/build_id.h"
#include "runtime/step_parts.h"
#include "support/file.h"

typedef struct mark {
    const char *name, *text;
} mark;

typedef struct marks {
    HD_VEC(mark) list;
    hd_arena *arena;
} marks;

static void set(marks *m, const char *name, const char *text) {
    hd_push(m->arena, &m->list, ((mark){name, text}));
}

static const char *find_mark(const marks *m, const char *name, size_t n) {
    for (size_t i = 0; i < m->list.n; i++)
        if (strlen(m->list.at[i].name) == n && memcmp(m->list.at[i].name, name, n) == 0)
            return m->list.at[i].text;
    return NULL;
}

/* `template` with every @mark@ replaced. */
static void fill(hd_text *out, const marks *m, const char *template) {
    while (*template) {
        size_t n = strcspn(template, "@");
        hd_text_add_n(out, template, n);
        template += n;
        if (!*template) return;
        size_t length = strcspn(template + 1, "@");
        const char *text = find_mark(m, template + 1, length);
        hd_text_add(out, text ? text : "");
        template += length + 2;
    }
}

static const char *filled(const marks *m, const char *template) {
    hd_text text;
    hd_text_init(&text, m->arena);
    hd_text_add(&text, "");
    fill(&text, m, template);
    return text.at;
}

/* ---- templates ------------------------------------------------------------------------------- */
static const char model_head[] =
    "/* @name@.h: the model @name@, compiled by Hadal @version@ (lib@name@.so).\n"
    " *\n"
    " *     #include <stdio.h>\n"
    " *     #include <stdlib.h>\n"
    " *     #include \"@name@.h\"\n"
    " *\n"
    " *     int main(void) {\n"
    " *         static float logits[@NAME@_LOGITS];\n"
    " *         const int32_t tokens[] = {0, 1, 2};\n"
    " *         @name@_weights *weights = NULL;\n"
    " *         @name@_session *session = NULL;\n"
    " *         size_t size = @name@_session_size(1024);  // room for 1024 tokens\n"
    " *         void *memory = aligned_alloc(@NAME@_ALIGN, size);\n"
    "@example_session@"
    " *         if (!code) code = @name@_forward(session, tokens, 3, logits, 1);\n"
    " *         if (code) fprintf(stderr, \"%s\\n\", @name@_strerror(code));\n"
    " *         else printf(\"the first logit of the last token is %g\\n\", logits[0]);\n"
    " *         free(memory);\n"
    " *         @name@_weights_close(weights);\n"
    " *         return code;\n"
    " *     }\n"
    " *\n"
    " *     cc main.c -L. -l@name@ -Wl,-rpath,.\n"
    " *\n"
    " * Every function that can fail returns 0 or an error code; after an error everything is as\n"
    " * it was before the call. Nothing here prints, exits, or writes a global variable, and\n"
    " * @name@_forward allocates no memory. Weights are read-only and may be shared by any number\n"
    " * of sessions in any number of threads; a session serves one thread at a time.\n"
    " */\n";

static const char call_head[] =
    "/* @name@.h: the function @name@, compiled by Hadal @version@ (lib@name@.so).\n"
    " *\n"
    " *     #include <stdio.h>\n"
    " *     #include <stdlib.h>\n"
    " *     #include \"@name@.h\"\n"
    " *\n"
    " *     int main(void) {\n"
    "@example_buffers@"
    " *         size_t size = @name@_work_size(@example_n@);\n"
    " *         void *work = aligned_alloc(@NAME@_ALIGN, size);\n"
    "@example_open@"
    " *         @example_call@\n"
    " *         if (code) fprintf(stderr, \"%s\\n\", @name@_strerror(code));\n"
    " *         free(work);\n"
    "@example_close@" HCG_HEAD_END("call") "Any number of threads may\n"
                                           " * call at once, each with work memory of its own.\n"
                                           " */\n";

static const char prologue[] =
    "#ifndef HADAL_MODEL_@name@_H\n"
    "#define HADAL_MODEL_@name@_H\n"
    "\n"
    "#include <stddef.h>\n"
    "#include <stdint.h>\n"
    "\n"
    "#ifdef __cplusplus\n"
    "extern \"C\" {\n"
    "#endif\n"
    "\n"
    "@macros@"
    "\n"
    "/* Result codes. Their values never change. */\n"
    "enum @name@_result {\n"
    "@codes@"
    "};\n"
    "/* A text that lives as long as the library; any int is allowed. */\n"
    "const char *@name@_strerror(int code);\n"
    "\n";

static const char weights_functions[] =
    "/* ---- weights ------------------------------------------------------------------------- */\n"
    "typedef struct @name@_weights @name@_weights;\n"
    "\n"
    "/* Maps @name@.weights read-only: nothing is parsed or copied, and processes share the\n"
    " * pages. The file must not shrink while it is open. It is checked to belong to this library\n"
    " * (names, shapes, layouts). *out is NULL after an error: @NAME@_OPEN, _FORMAT, _DIGEST,\n"
    " * _MEMORY. */\n"
    "int @name@_weights_open(const char *path, @name@_weights **out);\n"
    "\n"
    "/* The same, with the file read into memory of this process in place of a map: in huge pages\n"
    " * where the system has any (Linux: /sys/kernel/mm/transparent_hugepage/enabled is not\n"
    " * `never`), in which decoding is faster than in a map of small pages. It takes the time of "
    "a\n"
    " * copy, by up to 8 threads that end before it returns; processes share nothing of it, and "
    "the\n"
    " * system cannot drop it. The file may change afterwards. Errors as above. */\n"
    "int @name@_weights_read(const char *path, @name@_weights **out);\n"
    "\n"
    "/* The same from the file's content in memory, aligned to @NAME@_ALIGN, which is not copied\n"
    " * and must outlive *out. */\n"
    "int @name@_weights_from_memory(const void *data, size_t size, @name@_weights **out);\n"
    "\n"
    "/* Only when no session uses them any more. NULL is allowed. */\n"
    "void @name@_weights_close(@name@_weights *weights);\n"
    "\n";

static const char session_functions[] =
    "/* ---- sessions: one sequence of tokens each ------------------------------------------- */\n"
    "typedef struct @name@_session @name@_session;\n"
    "\n"
    "/* Bytes for a session of up to max_tokens tokens, a multiple of @NAME@_ALIGN; 0 if\n"
    " * max_tokens is less than 1 or too large. Memory that is never used is never touched. */\n"
    "size_t @name@_session_size(int64_t max_tokens);\n"
    "\n"
    "/* Makes a session in memory of the caller, aligned to @NAME@_ALIGN, at least session_size\n"
    " * bytes; what it holds does not matter. The session is gone when the memory is: there is\n"
    " * nothing to close. It stays where it is: after memcpy, realloc or a move calls return\n"
    " * @NAME@_MOVED. The weights must outlive it. */\n"
    "@session_init@"
    "\n"
    "/* Reads n >= 1 tokens after those the session holds, and writes the logits of the last\n"
    " * `rows` of them: rows * @NAME@_LOGITS floats, row by row, in order. 0 <= rows <= n; logits\n"
    " * may be NULL if rows is 0. All ids are checked before anything is written. Errors:\n"
    " *   @NAME@_TOKEN   an id is outside of 0 .. @NAME@_VOCAB - 1 (session_message: which)\n"
    " *   @NAME@_FULL    the session has not room for n more tokens\n"
    " *   @NAME@_BUSY    another thread is in a call with this session\n"
    " * Results do not depend on how tokens are divided into calls, beyond rounding. */\n"
    "int @name@_forward(@name@_session *session, const int32_t *tokens, int64_t n,\n"
    "    float *logits, int64_t rows);\n"
    "@forward_outputs@"
    "@loss@"
    "\n"
    "/* One token more for each of count sessions, tokens[i] for sessions[i]; the weights are\n"
    " * read once for all. Row i of the logits (@NAME@_LOGITS floats) is what @name@_forward "
    "would\n"
    " * have given for sessions[i] alone, up to rounding: sums are taken in another order. NULL:\n"
    " * not wanted. Any count from 1 on. The sessions are different ones on one weights object,\n"
    " * of any length and size. The first lends the call its threads, its CPU level and its work\n"
    " * memory, which holds min(max_tokens, @NAME@_MAX_CHUNK) rows: more take further passes.\n"
    " * After an error no session has changed; session_message of the first tells the details:\n"
    " *   @NAME@_TOKEN, @NAME@_FULL, @NAME@_BUSY as above; the call has all sessions in use\n"
    " *   @NAME@_TWICE   a session stands twice in the batch\n"
    " *   @NAME@_MIXED   the sessions are not all on the same weights object */\n"
    "int @name@_forward_batch(@name@_session *const *sessions, const int32_t *tokens,\n"
    "    int64_t count, float *logits);\n"
    "@batch_outputs@"
    "\n"
    "/* Tokens that the session holds. */\n"
    "int64_t @name@_session_length(const @name@_session *session);\n"
    "\n"
    "/* Forgets all but the first `length` tokens. @NAME@_LENGTH if there are fewer.@rewind@ */\n"
    "int @name@_session_rewind(@name@_session *session, int64_t length);\n"
    "\n"
    "/* Keeps all that a session holds as bytes in memory of the caller, of any alignment, and "
    "puts\n"
    " * it back: a prompt that is read once and continued often, or a session that goes to a "
    "file.\n"
    " * save_size is for the tokens held now; only what they have filled of the caches is kept.\n"
    " * A session takes back what any session of this build of the library has saved with the "
    "same\n"
    " * weights and has room for. After an error it is as it was; session_message tells more:\n"
    " *   @NAME@_SIZE    the memory is too small, or the bytes are cut short\n"
    " *   @NAME@_SAVED   the bytes are no saved session, or damaged\n"
    " *   @NAME@_BUILD   they are of another model, another build of it, or other weights\n"
    " *   @NAME@_FULL    more tokens were saved than this session holds\n"
    " *   @NAME@_BUSY    another thread is in a call with this session */\n"
    "size_t @name@_session_save_size(const @name@_session *session);\n"
    "int @name@_session_save(@name@_session *session, void *memory, size_t size);\n"
    "int @name@_session_restore(@name@_session *session, const void *memory, size_t size);\n"
    "\n"
    "/* Threads to use from the next call on, 1 .. @NAME@_MAX_THREADS. At first: what OpenMP\n"
    " * would use (OMP_NUM_THREADS). No more run than there are CPUs that this process may use\n"
    " * now: they would only wait for each other. With 1, no OpenMP thread is ever started.\n"
    " * Fewer run where threads cannot be made, and one in the child of a process that forks once "
    "the\n"
    " * library is loaded. Results do not depend on the number. */\n"
    "int @name@_session_set_threads(@name@_session *session, int threads);\n"
    "\n"
    "/* Chooses a CPU level by name (@levels@) instead of the best one; NULL: the best. */\n"
    "int @name@_session_set_cpu(@name@_session *session, const char *level);\n"
    "\n"
    "/* The level in use. */\n"
    "const char *@name@_session_cpu(const @name@_session *session);\n"
    "\n"
    "/* The level in use and, if the library's best one does not run here, why not; what it takes\n"
    " * the machine for: sizes in bytes of a cache line and of the caches. As JSON. Sizes come "
    "from\n"
    " * this CPU; what it does not report is as the level's code assumes. The text changes with\n"
    " * session_set_cpu. */\n"
    "const char *@name@_session_machine(const @name@_session *session);\n"
    "\n"
    "/* What exactly was wrong with the last call on this session, \"\" if nothing was. The text\n"
    " * changes with the next call. */\n"
    "const char *@name@_session_message(const @name@_session *session);\n"
    "\n";

static const char example_alone[] =
    " *         int code = @name@_weights_open(\"@name@.weights\", &weights);\n"
    " *         if (!code) code = @name@_session_init(memory, size, weights, 1024, &session);\n";

/* The user's program supplies `comm`: docs/many-machines.md has a complete example. */
static const char example_on_ranks[] =
    " *         char share[64]; // of this rank; `comm` is how it reaches the others\n"
    " *         snprintf(share, sizeof share, \"@name@.r%dof@ranks@.weights\", (int)comm->rank);\n"
    " *         int code = @name@_weights_open(share, &weights);\n"
    " *         if (!code) code = @name@_session_init_on(memory, size, weights, 1024, comm,\n"
    " *                                                  10 * INT64_C(1000000000), &session);\n";

static const char init_alone[] =
    "int @name@_session_init(void *memory, size_t size, const @name@_weights *weights,\n"
    "    int64_t max_tokens, @name@_session **out);\n";

static const char init_on_ranks[] =
    "/* This model is divided over @NAME@_RANK_COUNT ranks: `weights` are the share of this one,\n"
    " * @name@.r0of@ranks@.weights for rank 0, and `comm` is how it reaches the others\n"
    " * (<hadal/hadal_comm.h>, of libhadal_mpi or libhadal_threads), which must outlive the\n"
    " * session. All ranks make their sessions, and then every call, with the same tokens and\n"
    " * rows, batches with sessions in the same order, and all get the same logits.\n"
    " * `timeout_ns`, nanoseconds, is the deadline of each collective. A rank that lacks its "
    "weights\n"
    " * or memory calls this all the same, with NULL, and all return @NAME@_ARGUMENT at once.\n"
    " * Errors, besides those of arguments:\n"
    " *   @NAME@_RANKS       the ranks differ in model, build, packing of the weights or\n"
    " *                      max_tokens, or have the wrong share; here all ranks return the same\n"
    " *   @NAME@_COLLECTIVE  a collective failed or was not over in time, here or in any call\n"
    " *                      after it; the session cannot go on\n"
    " *   @NAME@_PEER        of calls: another rank rejected it, or was called with other\n"
    " *                      tokens; nothing has changed\n"
    " * After an error *out is NULL, or a session for @name@_session_message alone, which tells "
    "the\n"
    " * rank and what differs. The CPU level is the best that all ranks of a stage can run; "
    "another\n"
    " * one has to be set on all of them. */\n"
    "struct hadal_comm;\n"
    "int @name@_session_init_on(void *memory, size_t size, const @name@_weights *weights,\n"
    "    int64_t max_tokens, const struct hadal_comm *comm, int64_t timeout_ns,\n"
    "    @name@_session **out);\n";

static const char outputs_function[] =
    "\n"
    "/* The same with every output: outs[0] the logits as above, outs[i] all n rows of output i\n"
    " * (outputs without T: once), NULL where it is not wanted:\n"
    "@output_list@"
    " */\n"
    "int @name@_forward_outputs(@name@_session *session, const int32_t *tokens, int64_t n,\n"
    "    float *const *outs, int64_t rows);\n";

static const char loss_function[] =
    "\n"
    "/* Reads n >= 1 tokens as @name@_forward does, and writes n losses: losses[i] is what the "
    "token\n"
    " * targets[i] costs after tokens[i], ln sum_j e^logits[j] - logits[targets[i]], in nats; 0 "
    "where\n"
    " * targets[i] is below 0, which is not counted. For the loss of a text targets[i] is\n"
    " * tokens[i + 1]. No row of logits is stored. Errors as above; @NAME@_TOKEN also for a target "
    "of\n"
    " * @NAME@_LOGITS or more. After an error nothing has changed.@loss_stage@ */\n"
    "int @name@_loss(@name@_session *session, const int32_t *tokens, const int32_t *targets,\n"
    "    int64_t n, float *losses);\n";

static const char loss_of_stages[] =
    "\n * Of the stages of a pipeline the last one alone reads targets and writes losses; in the\n"
    " * others both may be NULL.";

static const char when_trainer[] =
    "\n * Steps with `when` 4 do not run in calls of @name@_trainer_loss.";

static const char when_loss[] = "\n * Steps with `when` 3 run in calls of @name@_loss alone, those "
                                "with 4 in all others.";

static const char batch_outputs_function[] =
    "\n"
    "/* The same with every output, row i of each that of sessions[i] (outputs without T: once);\n"
    " * outs[i] is NULL where output i is not wanted. */\n"
    "int @name@_forward_batch_outputs(@name@_session *const *sessions, const int32_t *tokens,\n"
    "    int64_t count, float *const *outs);\n";

static const char call_functions[] =
    "/* ---- the function --------------------------------------------------------------------- "
    "*/\n"
    "/* Bytes of work memory for a call@work_comment@, a multiple of @NAME@_ALIGN. */\n"
    "size_t @name@_work_size(@work_params@);\n"
    "\n"
    "/* Arrays are dense, row by row, and need no alignment beyond their type's; inputs and\n"
    " * outputs must not overlap:\n"
    "@port_list@"
    " * `work` must be aligned to @NAME@_ALIGN; what it holds does not matter. Runs on as many\n"
    " * threads as OpenMP would use (OMP_NUM_THREADS). */\n"
    "int @name@_call(@call_params@);\n"
    "\n";

/* Every header contains this struct; its fields are those of support/library_info.def, from which
 * codegen/module/constants.c writes it. */
static const char info_part[] =
    "/* ---- reflection ---------------------------------------------------------------------- */\n"
    "#ifndef HADAL_INFO_DEFINED\n"
    "#define HADAL_INFO_DEFINED\n"
    "typedef struct hadal_info_tensor {\n"
    "    const char *name;\n"
    "    const char *type; /* \"f32[T, 256]\"; T: one row per token */\n"
    "} hadal_info_tensor;\n"
    "\n"
    "/* One call of a kernel. A call of the model of T tokens (at most max_chunk) that ends with "
    "C\n"
    " * positions in the caches does n rows of each step: T, or the rows of logits asked for "
    "where\n"
    " * last_rows is 1. FLOPs: n * row_flops, and pair_flops for each row and position it looks "
    "at:\n"
    " * all before it, or the last `window`. Bytes: pass_bytes + n * row_bytes, position_bytes for "
    "each\n"
    " * of the C positions that some row looks at, each read and each write once; and of\n"
    " * the expert_bytes of `experts` matrices, of which a row chooses `chosen`, those that some "
    "row\n"
    " * has chosen: if all are chosen alike, expert_bytes * (1 - (1 - chosen / experts)^n). A step "
    "with\n"
    " * `when` runs in calls for which it is the way with fewer multiply-adds: those of few rows "
    "(1)\n"
    " * take few_row for each row and few_pair for each pair of a row and a position that it "
    "sees,\n"
    " * those of many (2) many_position for each position that is seen and many_pair for each "
    "pair;\n"
    " * with many_most, those of many end with at most so many positions.@when_loss@ */\n"
    "typedef struct hadal_info_step {\n"
    "    const char *name;    /* of the kernel; those that share their code share it */\n"
    "    const char *kind;    /* \"row\", \"contract\", \"sequence\" */\n"
    "    const char *scope;   /* what its weights and caches are parts of: \"model.layers.3\";\n"
    "                          * \"model.layers.3, pass 2\" where a layer runs several times */\n"
    "    uint64_t line;       /* of the kernel in the kernel IR text (--emit=kernel) */\n"
    "    uint64_t last_rows;\n"
    "    uint64_t row_flops, pair_flops;\n"
    "    uint64_t pass_bytes, row_bytes, position_bytes;\n"
    "    uint64_t expert_bytes, experts, chosen; /* experts 0: there are none */\n"
    "    uint64_t window;      /* positions that a row looks at; 0: all before it */\n"
    "    uint64_t state_bytes; /* of pass_bytes: states of fixed size, read and left */\n"
    "    uint64_t when, few_pair, many_pair, few_row, many_position; /* when 0: always */\n"
    "    uint64_t many_most; /* 0: any */\n"
    "} hadal_info_step;\n"
    "\n"
    "typedef struct hadal_info_state { /* what a session keeps between calls */\n"
    "    const char *name;\n"
    "    const char *kind; /* @state_kinds@ */\n"
    "    const char *type; /* \"f32[C, 4, 64]\"; C: one row per token */\n"
    "} hadal_info_state;\n"
    "\n"
    "typedef struct hadal_profile_step {\n"
    "    uint64_t calls;   /* times the step ran */\n"
    "    uint64_t work_ns; /* the calling thread's own share of it */\n"
    "    uint64_t wait_ns; /* until the other threads were done with theirs */\n"
    "} hadal_profile_step;\n"
    "\n"
    "typedef struct hadal_info {\n"
    "    size_t struct_size;  /* of the library's struct; fields are only ever added at the end "
    "*/\n"
    "    const char *version; /* of Hadal */\n"
    "    const char *name;\n"
    "    const char *digest;  /* of the weights table, 32 hex digits */\n"
    "    const char *options; /* what it was compiled with, JSON */\n"
    "    const char *ops;     /* kernels, one per line: name, kind, ops */\n"
    "    size_t weights_size; /* of the weights file; 0: there is none */\n"
    "    size_t max_chunk;    /* tokens of one pass; longer calls are cut */\n"
    "    size_t n_levels;     /* CPU levels, best first */\n"
    "    const char *const *levels;\n"
    "    size_t n_inputs;\n"
    "    const hadal_info_tensor *inputs;\n"
    "    size_t n_outputs;\n"
    "    const hadal_info_tensor *outputs;\n"
    "    size_t vocab;        /* token ids are 0 .. vocab - 1; 0: any */\n"
    "    size_t n_steps;\n"
    "    const hadal_info_step *steps;\n"
    "    size_t n_states;\n"
    "    const hadal_info_state *states;\n"
    "    size_t step_size;    /* bytes from one of steps to the next: they grow as this does */\n"
    "    const char *build_id; /* which header and weights belong to the library */\n"
    "} hadal_info;\n"
    "#endif\n"
    "/* Constant, lives as long as the library. */\n"
    "const hadal_info *@name@_info(void);\n"
    "\n";

static const char profile_function[] =
    "/* Measures: from now on every forward adds to steps[0 .. n), one entry per step of\n"
    " * @name@_info, n = n_steps. The memory is the caller's, is not cleared here, and must "
    "last\n"
    " * until NULL, 0 turns profiling off; then it costs nothing. */\n"
    "int @name@_session_profile(@name@_session *session, hadal_profile_step *steps, size_t "
    "n);\n\n";
static const char trainer_profile_function[] =
    "/* Measures: from now on every sequence adds to steps[0 .. n_steps), one entry per step of\n"
    " * @name@_info, and every step of the optimizer to the @step_parts@ after them:\n"
    " * @step_part_names@. n is the sum of both. The memory is the caller's, is not cleared\n"
    " * here, and must last until NULL, 0 turns profiling off; then it costs nothing. */\n"
    "#define @NAME@_STEP_PARTS @step_parts@\n"
    "int @name@_trainer_profile(@name@_trainer *trainer, hadal_profile_step *steps, size_t "
    "n);\n\n";

static const char epilogue[] = "#ifdef __cplusplus\n"
                               "}\n"
                               "#endif\n"
                               "#endif\n";

/* ---- text that depends on the program -------------------------------------------------------- */
/* What constants begin with: `tiny` in capitals, but `Tiny` as it is, so that no two models share
 * them. */
static const char *constants_of(hd_arena *a, const char *name) {
    char *copy = hd_strdup(a, name);
    for (char *c = copy; *c; c++)
        if (isupper((unsigned char)*c)) return name;
    for (char *c = copy; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return copy;
}

static bool reject_name(hd_diags *d, const char *name, const char *cause) {
    hd_diag *e =
        hd_err(d, HD_E_NAME, HD_NOWHERE, "a model with a header cannot be called \"%s\"", name);
    e->cause = cause;
    e->hint = "-o DIR/NAME gives it another name";
    return false;
}

/* The header must go with any other of its program. */
static bool check_name(hd_arena *a, hd_diags *d, const char *name) {
    static const struct {
        const char *name, *taken;
    } table[] = {
#define T(name, taken) {#name, #taken},
#include "codegen/module/taken.def"
#undef T
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0)
            return reject_name(
                d, name, hd_printf(a, "%s is a name of the system's headers", table[i].taken));
    if (strcmp(name, "hadal") == 0 || hd_begins_with(name, "hadal_"))
        return reject_name(d, name, "names of Hadal's own libraries begin so");
    if (*name == '_') return reject_name(d, name, "names of the C library begin with _");
    bool small = false, large = false;
    for (const char *c = name; *c; c++) {
        small |= islower((unsigned char)*c) != 0;
        large |= isupper((unsigned char)*c) != 0;
    }
    if (large && !small)
        return reject_name(d, name, "its constants would be those of the name in small letters");
    return true;
}

static const char *result_codes(const marks *m) {
    hd_text text;
    const char *before = NULL; /* meaning of the code whose line is not finished yet */
    hd_text_init(&text, m->arena);
#define R(id, value, meaning)                                                                      \
    if (before) hd_text_f(&text, ", /* %s */\n", before);                                          \
    hd_text_f(&text, "    @NAME@_%s = %d", #id, value);                                            \
    before = meaning;
#include "runtime/errors.def"
#undef R
    hd_text_f(&text, " /* %s */\n", before); /* C++98 has no comma there */
    return filled(m, text.at);
}

static void add_macro(hd_text *out, const char *name, uint64_t value, const char *comment) {
    hd_text_f(out, "#define @NAME@_%-12s %llu /* %s */\n", name, (unsigned long long)value,
              comment);
}

/* The note on rewinding in the header, where a state can only be cleared. */
static const char *rewind_text(const hir_module *m, const marks *marks) {
    for (size_t i = 0; i < m->states.n; i++)
        if (hir_state_kind_of(m->states.at[i].kind)->rewind == HIR_REWIND_CLEAR)
            return filled(marks, "\n * This model keeps state that can only be cleared: "
                                 "@NAME@_REWIND unless `length` is 0 or that\n * of now; "
                                 "session_restore goes back to what session_save has kept.");
    return "";
}

static const char *macros(hcg_program *p, const marks *m) {
    hd_text text;
    hd_text_init(&text, m->arena);
    if (p->is_model) {
        uint64_t logits = p->outputs.n ? p->outputs.at[0].row_bytes / sizeof(float) : 0;
        add_macro(&text, "VOCAB", (uint64_t)p->vocab, "token ids are 0 .. VOCAB - 1");
        add_macro(&text, "LOGITS", logits, "floats per row of logits");
        add_macro(&text, "OUTPUTS", p->outputs.n, "outputs of forward, the logits included");
        add_macro(&text, "MAX_THREADS", HRT_MAX_THREADS, "of a session");
        add_macro(&text, "CACHE_BYTES", hir_all_state_bytes(p->m, true),
                  "of keys and values that a session keeps of each token");
        if (hir_all_state_bytes(p->m, false) > 0)
            add_macro(&text, "STATE_BYTES", hir_all_state_bytes(p->m, false),
                      "of other state that a session keeps, however many tokens it has read");
    }
    if (hcg_has_gradients(p)) {
        add_macro(&text, "VOCAB", (uint64_t)p->vocab, "token ids are 0 .. VOCAB - 1");
        add_macro(&text, "PARAMETERS", p->parameters.n, "tensors of the checkpoint");
        add_macro(&text, "PARAMETER_BYTES", p->parameters_bytes,
                  "of all of them, and of their gradients as much again");
        add_macro(&text, "MOMENT_BYTES", p->moments_bytes, "that steps keep of them");
        add_macro(&text, "MAX_THREADS", HRT_MAX_THREADS, "of a trainer");
    }
    if (hcg_ranks(p) > 0) {
        add_macro(&text, "RANK_COUNT", hcg_ranks(p) * hcg_stages(p),
                  "that make the model together");
        if (hcg_stages(p) > 1)
            add_macro(&text, "STAGE_COUNT", hcg_stages(p),
                      "among which the layers are shared out; the last has logits");
    }
    add_macro(&text, "ALIGN", HRT_ALIGN, "of memory handed over, in bytes");
    add_macro(&text, "MAX_CHUNK", (uint64_t)p->chunk,
              hcg_has_gradients(p) ? "tokens of the longest sequence"
                                   : "longer calls are divided into chunks of this");
    if (p->weights_bytes > 0 && !hcg_has_gradients(p))
        add_macro(&text, "WEIGHTS_SIZE", p->weights_bytes + HRT_WEIGHTS_DATA,
                  "bytes of the weights file");
    hd_text_f(
        &text,
        "#define @NAME@_BUILD_ID     \"%s\" /* that of the library, which its info tells */\n",
        hcg_build_id(p));
    return filled(m, text.at);
}

static const char *state_kinds(hd_arena *a) {
    hd_text text;
    hd_text_init(&text, a);
    for (int i = 0; i < HIR_STATE_KINDS; i++)
        hd_text_f(&text, "%s\"%s\"", i ? ", " : "", hir_state_kind_of((hir_state_kind)i)->word);
    return text.at;
}

static const char *level_names(const hcg_target *t, hd_arena *a) {
    hd_text text;
    hd_text_init(&text, a);
    for (size_t i = 0; i < t->variants.n; i++)
        hd_text_f(&text, "%s\"%s\"", i ? ", " : "", t->variants.at[i].level.name);
    return text.at;
}

/* One line, " *   in_x    const float *  f32[T, 64]"; names are written so that they cannot end the
 * comment. */
static void describe_port(hd_text *out, const char *what, const hcg_port *port) {
    hd_text_f(out, " *   %-8s ", what);
    for (const char *c = port->name; *c; c++)
        hd_text_f(out, "%c",
                  isprint((unsigned char)*c) && *c != '*' && *c != '/' && *c != '@' && *c != '\\'
                      ? *c
                      : '_');
    hd_text_add(out, ": ");
    hir_print_type(out, port->type);
    hd_text_add(out, "\n");
}

static const char *output_list(const hcg_program *p, hd_arena *a) {
    hd_text text;
    hd_text_init(&text, a);
    for (size_t i = 0; i < p->outputs.n; i++)
        describe_port(&text, hd_printf(a, "outs[%zu]", i), &p->outputs.at[i]);
    return text.at;
}

/* A value's name with underscores for characters that an identifier cannot contain. */
static const char *identifier(hd_arena *a, const char *prefix, const char *name) {
    char *copy = hd_printf(a, "%s_%s", prefix, name);
    for (char *c = copy; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return copy;
}

/* in_x, out_y; in_0, in_1 where two parameters would get the same name. */
static const char *parameter(hd_arena *a, const char *prefix, const hcg_port *list, size_t n,
                             size_t i) {
    for (size_t j = 0; j < n; j++)
        for (size_t k = 0; k < j; k++)
            if (strcmp(identifier(a, "", list[j].name), identifier(a, "", list[k].name)) == 0)
                return hd_printf(a, "%s_%zu", prefix, i);
    return identifier(a, prefix, list[i].name);
}

static const char *element_type(const hcg_port *port) {
    return port->type.dtype == HIR_I32 ? "int32_t" : "float";
}

/* Adds one array of a plain function to its signature, its comment, and the example. */
static void add_port(const hcg_program *p, size_t i, bool input, hd_text *params, hd_text *comment,
                     hd_text *buffers, hd_text *arguments) {
    const hcg_port *list = input ? p->inputs.at : p->outputs.at;
    size_t n = input ? p->inputs.n : p->outputs.n;
    const char *name = parameter(p->arena, input ? "in" : "out", list, n, i);
    const char *type = element_type(&list[i]);
    uint64_t elements = list[i].row_bytes / 4 * (hir_type_has_t(list[i].type) ? 8 : 1);
    hd_text_f(params, "%s%s%s *%s", params->n ? ", " : "", input ? "const " : "", type, name);
    describe_port(comment, name, &list[i]);
    hd_text_f(buffers, " *         static %s %s[%llu];\n", type, name,
              (unsigned long long)elements);
    hd_text_f(arguments, "%s%s", arguments->n ? ", " : "", name);
}

static void set_call_marks(const hcg_program *p, marks *m) {
    hd_arena *a = m->arena;
    hd_text params, comment, buffers, arguments;
    hd_text *all[] = {&params, &comment, &buffers, &arguments};
    for (size_t i = 0; i < 4; i++) {
        hd_text_init(all[i], a);
        hd_text_add(all[i], "");
    }
    bool has_weights = hcg_has_weights(p), has_tokens = hcg_has_tokens(p);
    if (has_weights) {
        hd_text_add(&params, filled(m, "const @name@_weights *weights"));
        hd_text_add(&arguments, "weights");
    }
    if (has_tokens) {
        hd_text_f(&params, "%sint64_t tokens", params.n ? ", " : "");
        hd_text_f(&arguments, "%s8", arguments.n ? ", " : "");
        hd_text_add(&comment, " *   tokens   T below, at least 1\n");
    }
    for (size_t i = 0; i < p->inputs.n; i++)
        add_port(p, i, true, &params, &comment, &buffers, &arguments);
    for (size_t i = 0; i < p->outputs.n; i++)
        add_port(p, i, false, &params, &comment, &buffers, &arguments);
    hd_text_add(&params, ",\n    void *work, size_t work_size");
    set(m, "work_params", has_tokens ? "int64_t tokens" : "void");
    set(m, "work_comment",
        has_tokens ? " with that many tokens, 0 if less than 1 or too many" : "");
    set(m, "call_params", params.at);
    set(m, "port_list", comment.at);
    set(m, "example_buffers", buffers.at);
    set(m, "example_n", has_tokens ? "8" : "");
    set(m, "example_open",
        !has_weights ? ""
                     : filled(m, " *         @name@_weights *weights = NULL;\n"
                                 " *         int code = @name@_weights_open(\"@name@.weights\", "
                                 "&weights);\n"));
    set(m, "example_close",
        !has_weights ? "" : filled(m, " *         @name@_weights_close(weights);\n"));
    set(m, "example_call",
        hd_printf(a, "%s%s_call(%s, work, size);",
                  has_weights ? "if (!code) code = " : "int code = ", p->m->name, arguments.at));
}

bool hcg_emit_header(hcg_program *p, hd_diags *d, const char *path) {
    hcg_target t;
    if (!check_name(p->arena, d, p->m->name)) return false;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    marks m = {.arena = p->arena};
    set(&m, "name", p->m->name);
    set(&m, "NAME", constants_of(p->arena, p->m->name));
    set(&m, "version", HADAL_VERSION);
    set(&m, "levels", level_names(&t, p->arena));
    set(&m, "codes", result_codes(&m));
    set(&m, "macros", macros(p, &m));
    set(&m, "rewind", rewind_text(p->m, &m));
    set(&m, "state_kinds", state_kinds(p->arena));
    set(&m, "output_list", output_list(p, p->arena));
    set(&m, "ranks", hd_printf(p->arena, "%u", hcg_ranks(p) * hcg_stages(p)));
    set(&m, "example_session", filled(&m, hcg_ranks(p) ? example_on_ranks : example_alone));
    set(&m, "session_init", filled(&m, hcg_ranks(p) ? init_on_ranks : init_alone));
    set(&m, "batch_outputs", p->outputs.n > 1 ? filled(&m, batch_outputs_function) : "");
    set(&m, "loss_stage", hcg_stages(p) > 1 ? loss_of_stages : "");
    set(&m, "loss", hcg_has_loss(p) ? filled(&m, loss_function) : "");
    set(&m, "when_loss",
        hcg_has_gradients(p) ? filled(&m, when_trainer)
        : hcg_has_loss(p)    ? filled(&m, when_loss)
                             : "");
    set(&m, "forward_outputs", p->outputs.n > 1 ? filled(&m, outputs_function) : "");
    const bool gradients = hcg_has_gradients(p);
    set(&m, "updates", hcg_update_texts(p->arena));
    set(&m, "step_parts", hd_printf(p->arena, "%d", HRT_STEP_PARTS));
    set(&m, "step_part_names", hcg_step_part_names(p->arena));
    set(&m, "step_fields", hcg_step_fields(p->arena));
    set(&m, "step_defaults", hcg_step_defaults(p->arena));
    if (!p->is_model && !gradients) set_call_marks(p, &m);
    hd_text text;
    hd_text_init(&text, p->arena);
    fill(&text, &m, gradients ? hcg_trainer_head : p->is_model ? model_head : call_head);
    fill(&text, &m, prologue);
    if (hcg_has_weights(p)) fill(&text, &m, weights_functions);
    fill(&text, &m,
         gradients     ? hcg_trainer_functions
         : p->is_model ? session_functions
                       : call_functions);
    fill(&text, &m, info_part);
    if (p->is_model) fill(&text, &m, profile_function);
    if (gradients) fill(&text, &m, trainer_profile_function);
    fill(&text, &m, epilogue);
    return hd_write_file(p->arena, d, path, text.at, text.n);
}
