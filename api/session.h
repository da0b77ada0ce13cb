/* The state behind a hadal_session, shared by the files of api/. */
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
    bool out_of_memory; /* reported without allocating anything */

    HD_VEC(hfe_define) defines;
    HD_VEC(const char *) include_dirs;
    const char *data_dir; /* std/ is below it */
    const char *lib_dir;  /* libhadalrt.a is in it */

    const char *spec;
    hir_module *graph; /* as loaded; never changed */
    hir_module *m;     /* what passes work on: a clone of graph */
    hir_compile_options pass_options;
    bool published_types; /* some weights are stored as the checkpoint has them, unasked */
    hir_remarks remarks;
    struct report_history *history;          /* of the last run of passes; NULL: nobody asked */
    HD_VEC(size_t) history_remarks;          /* by stage: how many remarks there were behind it */
    bool from_dumps;                         /* it was read, no passes have run */
    const char *library_path, *library_info; /* hadal_load_library; NULL */
    hcg_program *program;                    /* lowered from m for `target_key` */
    const char *target_key;

    struct hir_reducer *reducer; /* hadal_reduce_*; NULL: not begun */
    struct profile *profile;     /* of the last hadal_run; NULL: none was asked for */
    hadal_next_token *next;      /* likewise */
    size_t n_next;
    struct bench_state *bench; /* hadal_bench_*; NULL: not begun */

    struct hd_build *build; /* in which outputs wait for each other (hadal_build_in); NULL: none */

    const struct hadal_comm *comm; /* of divided libraries (hadal_use_ranks); NULL: there is none */
    int64_t comm_timeout;          /* nanoseconds */

    const char *weights_path;
    bool weights_open;
    hd_tensors stored;  /* as the files have them */
    hd_tensors weights; /* what they are: quantised ones decode as they are read */
};

/* Every public function that allocates starts with API_ENTER and leaves with API_LEAVE: exhaustion
 * of memory anywhere below comes back here as a failure, and settings of the host count for nothing
 * in between (support/host.h). */
#define API_ENTER(s)                                                                               \
    HD_APART_FROM_HOST;                                                                            \
    jmp_buf api_here_;                                                                             \
    jmp_buf *const api_outer_ = hd_arena_guard((s)->arena, &api_here_);                            \
    if (setjmp(api_here_)) {                                                                       \
        hd_arena_guard((s)->arena, api_outer_);                                                    \
        (s)->out_of_memory = true;                                                                 \
        return API_FAILED;                                                                         \
    }                                                                                              \
    const size_t api_errors_ = (s)->diags.errors
/* The caller's options as a variable `all`: what an older caller does not know is 0, what a newer one
 * knows beyond these is passed over. */
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
/* The same where a value is given back, such as a text that is NULL on failure. `value` is a
 * variable: what may run out of memory is done before. */
#define API_RETURN(s, value)                                                                       \
    do {                                                                                           \
        (void)api_errors_;                                                                         \
        hd_arena_guard((s)->arena, api_outer_);                                                    \
        return (value);                                                                            \
    } while (0)

/* The module of a .hadal spec, IR text or a folder; NULL and a diagnostic on failure. */
hir_module *api_read_model(hadal_session *s, const char *spec, const char *name);
bool api_need_module(hadal_session *s);
bool api_need_kernels(hadal_session *s);
/* Gives the states of m the types that the last run of passes was asked for. */
void api_recast_states(const hadal_session *s, hir_module *m);
/* Lowers once per target; packing does not care which. */
bool api_need_program(hadal_session *s, const hadal_target *t);
/* A regular expression that names are held against; all pass where none was given. */
typedef struct api_filter {
    regex_t regex;
    const char *text; /* NULL: none */
} api_filter;
/* NULL, and a diagnostic, if `text` is no POSIX extended regular expression. Freed with the arena.
 */
const api_filter *api_filter_new(hadal_session *s, const char *what, const char *text);
bool api_filter_takes(const api_filter *f, const char *name); /* NULL: no name, taken by none */

/* Opens the weights given, or those of the folder. False: none, or bad (diagnostic). */
bool api_need_weights(hadal_session *s);
/* False, and a diagnostic, if a file under `path` is the spec or a file of the weights: what an
 * output replaces is gone as soon as writing begins. */
bool api_may_write(hadal_session *s, const char *path);

#endif
