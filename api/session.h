/* The state of a hadal_session, shared by the files of api/. */
#ifndef API_SESSION_H
#define API_SESSION_H

#include <regex.h>
#include <string.h>

#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "hadal/hadal.h"
#include "passes/pass.h"
#include "support/host.h"
#include "support/tensorfile.h"

struct hadal_session {
    hd_arena *arena;
    hd_diags diags;
    bool out_of_memory; /* memory was exhausted; the diagnostic of that allocates nothing */

    HD_VEC(hfe_define) defines;
    HD_VEC(const char *) include_dirs;
    const char *data_dir; /* the directory that contains std/ */
    const char *lib_dir;  /* the directory that contains libhadalrt.a */

    const char *spec;
    hir_module *graph; /* as loaded; never changed */
    hir_module *m;     /* what passes change: a clone of `graph` */
    hir_compile_options pass_options;
    bool published_types; /* some weights keep the checkpoint's type without a request */
    hir_remarks remarks;
    const struct api_filter *filter_passes, *filter_ops; /* of remarks; NULL: no passes have run */
    struct report_history *history;          /* of the last pipeline; NULL: none is recorded */
    HD_VEC(size_t) history_remarks;          /* by stage of it: number of remarks up to its end */
    bool from_dumps;                         /* of the history; no passes have run */
    const char *library_path, *library_info; /* set by hadal_load_library; NULL */
    hcg_program *program;                    /* lowered from m for `target_key` */
    const char *target_key;

    struct hir_reducer *reducer; /* hadal_reduce_*; NULL: not begun */
    struct taps *taps;           /* of the module m, as outputs; NULL: none */
    struct by_depth *by_depth;   /* of the last run or evaluation; NULL: not wanted */
    struct profile *profile;     /* of the last hadal_run; NULL: it recorded none */
    hadal_next_token *next;      /* of the last hadal_run; NULL: it listed none */
    size_t n_next;
    struct bench_state *bench; /* hadal_bench_*; NULL: not begun */

    struct hd_build *build; /* the build that outputs belong to (hadal_build_in); NULL: none */

    const struct hadal_comm *comm; /* for divided libraries (hadal_use_ranks), or NULL */
    int64_t comm_timeout;          /* nanoseconds */
    bool reads_weights;            /* of libraries; they map them otherwise (hadal_weights_load) */

    const char *weights_path;
    bool weights_given; /* by hadal_weights, so that they must be there */
    bool weights_open;
    hd_tensors stored;  /* as the files store them */
    hd_tensors weights; /* as the model uses them: quantised ones are decoded when they are read */
};

/* Every public function that allocates starts with API_ENTER and leaves with API_LEAVE. If memory
 * is exhausted anywhere below, control returns here and the function fails; in between,
 * floating-point and locale settings of the host do not count (support/host.h). */
#define API_ENTER(s)                                                                               \
    HD_ISOLATED_FROM_HOST;                                                                         \
    jmp_buf api_here_;                                                                             \
    jmp_buf *const api_outer_ = hd_arena_guard((s)->arena, &api_here_);                            \
    if (setjmp(api_here_)) {                                                                       \
        hd_arena_guard((s)->arena, api_outer_);                                                    \
        (s)->out_of_memory = true;                                                                 \
        return API_FAILED;                                                                         \
    }                                                                                              \
    const size_t api_errors_ = (s)->diags.errors
/* Copies the caller's options to a variable `all`. Members that an older caller does not know are
 * 0; members that a newer caller has beyond these are ignored. */
#define API_TAKE(type, all, given)                                                                 \
    type all = {0};                                                                                \
    memcpy(&all, given, (given)->struct_size < sizeof all ? (given)->struct_size : sizeof all)
#define API_LEAVE(s, ok)                                                                           \
    do {                                                                                           \
        const bool api_ok_ = (ok);                                                                 \
        hd_arena_guard((s)->arena, api_outer_);                                                    \
        if (!api_ok_ && (s)->diags.errors == api_errors_)                                          \
            hd_err(&(s)->diags, HD_E_INTERNAL, HD_NOWHERE, "a step failed without saying why");    \
        return api_ok_ ? 0 : 1;                                                                    \
    } while (0)
/* The same for functions that return a value, such as a text that is NULL on failure. `value` is a
 * variable: what may run out of memory is computed before. */
#define API_RETURN(s, value)                                                                       \
    do {                                                                                           \
        (void)api_errors_;                                                                         \
        hd_arena_guard((s)->arena, api_outer_);                                                    \
        return (value);                                                                            \
    } while (0)

/* Reads the module of a .hadal spec, IR text or a model folder; NULL, and a diagnostic, on
 * failure. */
hir_module *api_read_model(hadal_session *s, const char *spec, const char *name);
bool api_need_module(hadal_session *s);
bool api_need_kernels(hadal_session *s);
/* Sets the options of the table that belong to the passes; false, and a diagnostic: one is none. */
bool api_read_options(hadal_session *s, const hadal_pipeline *p);
/* Gives the states of m the types that the last execution of passes had. */
void api_recast_states(const hadal_session *s, hir_module *m);
/* Lowers the module, once per target. Packing works with the program of any target. */
bool api_need_program(hadal_session *s, const hadal_target *t);
/* The program of kernel IR for a target, and the library of a program. NULL, and false: failed. */
hcg_program *api_lower(hadal_session *s, const hir_module *m, const hir_compile_options *compile,
                       const hadal_target *t);
bool api_emit_library(hadal_session *s, hcg_program *p, const hadal_target *t, const char *path);
/* A regular expression that names are matched against; without one, all names match. */
typedef struct api_filter {
    regex_t regex;
    const char *text; /* NULL: no expression was given */
} api_filter;
/* NULL, and a diagnostic, if `text` is no POSIX extended regular expression. The filter is freed
 * with the arena. */
const api_filter *api_filter_new(hadal_session *s, const char *what, const char *text);
bool api_filter_takes(const api_filter *f, const char *name); /* a NULL name matches nothing */
/* Does it match one of the names? If not, a diagnostic names the nearest of them, or says what `lists`
 * them. */
bool api_filter_takes_any(hadal_session *s, const api_filter *f, const char *what,
                          const char *const *names, size_t n, const char *lists);

/* Opens the weights given, or those of the model folder. False: there are none, or they are bad
 * (with a diagnostic). */
bool api_add_token_map(hadal_session *s);       /* token_map.c */
bool api_has_token_map(const hadal_session *s); /* has the loaded model such a weight? */
bool api_need_weights(hadal_session *s);
/* The first of the open weights that is stored as codes; NULL: all are numbers. */
const hd_tensor *api_find_codes(const hadal_session *s);
/* False, and a diagnostic, if `path` is the spec or a file of the weights: an output that replaces
 * such a file removes it as soon as writing begins. */
bool api_may_write(hadal_session *s, const char *path);

#endif
