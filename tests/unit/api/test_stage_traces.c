/* Stages of a pipeline, each compiled by itself, with traces or without: a trace is an output of
 * the model that was cut, so all stages have them or none. Ranks are threads. */
#define FOLDER "/tmp/hadal-traces-XXXXXX"
#include <pthread.h>

#include "hadal/hadal.h"
#include "hadal/hadal_threads.h"
#include "runtime/hadal_rt.h"
#include "tests/tools/model_library.h"
#include "tests/unit/folder_fixture.h"

TestSuite(stage_traces, .init = open_folder, .fini = close_folder, .timeout = 300);

enum { STAGES = 2, TOKENS = 8 };
#define PATIENT INT64_C(60000000000)

static const char *path_of(const char *form, int stage, bool traces) {
    return in_folder(hd_printf(arena, form, hd_printf(arena, "m_s%d%s", stage, traces ? "t" : "")));
}

static void compile(int stage, bool traces) {
    hadal_session *s = hadal_open();
    const hadal_pipeline passes = {
        .struct_size = sizeof passes, .stages = STAGES, .stage = stage, .keep_traces = traces};
    const hadal_target target = {
        .struct_size = sizeof target, .cpu = "native", .runtime = HADAL_BUILD "/lib/libhadalrt.a"};
    const char *name = hd_printf(arena, "m_s%d%s", stage, traces ? "t" : "");
    const bool ok = !hadal_include_path(s, HADAL_SOURCE "/frontend/std") &&
                    !hadal_load(s, HADAL_SOURCE "/examples/tiny/tiny.hadal", name) &&
                    !hadal_weights(s, in_folder("model.safetensors")) &&
                    !hadal_run_passes(s, &passes) &&
                    !hadal_emit(s, &target, "so", path_of("lib%s.so", stage, traces)) &&
                    !hadal_emit(s, &target, "weights", path_of("%s.weights", stage, traces));
    cr_assert(ok, "%s", hadal_diagnostics(s) ? hadal_diagnostic_text(s, 0, 0) : "?");
    hadal_close(s);
}

typedef struct rank {
    hadal_threads *group;
    int32_t number;
    bool traces;
    int code;
    const char *library, *weights;
    const char *why;
} rank;

static void open_session(rank *r) {
    static library all[STAGES][2];
    library *l = &all[r->number][r->traces];
    void *weights = NULL, *session = NULL;
    r->why = "no library";
    if (!l->handle && open_library(l, r->library)) return;
    r->why = "no weights";
    if (l->weights_open(r->weights, &weights)) return;
    const size_t size = l->session_size(TOKENS);
    void *memory = aligned_alloc(64, size);
    r->why = NULL;
    r->code = l->session_init_on(memory, size, weights, TOKENS,
                                 hadal_threads_comm(r->group, r->number), PATIENT, &session);
    free(memory);
    l->weights_close(weights);
}

static void *run_rank(void *argument) {
    rank *r = argument;
    open_session(r);
    hadal_threads_leave(r->group, r->number);
    return NULL;
}

/* What both stages say to sessions of these. */
static int session_of(bool first, bool second) {
    const bool traces[STAGES] = {first, second};
    static rank all[STAGES];
    pthread_t started[STAGES];
    hadal_threads *group;
    cr_assert_eq(hadal_threads_open(STAGES, &group), HADAL_COMM_OK);
    for (int i = 0; i < STAGES; i++)
        all[i] =
            (rank){.group = group,
                   .number = i,
                   .traces = traces[i],
                   .library = path_of("lib%s.so", i, traces[i]),
                   .weights = path_of(i ? "%s.r1of2.weights" : "%s.r0of2.weights", i, traces[i])};
    for (int i = 0; i < STAGES; i++)
        cr_assert_eq(pthread_create(&started[i], NULL, run_rank, &all[i]), 0);
    for (int i = 0; i < STAGES; i++)
        pthread_join(started[i], NULL);
    hadal_threads_close(group);
    for (int i = 0; i < STAGES; i++)
        cr_assert_null(all[i].why, "stage %d: %s", i, all[i].why);
    cr_assert_eq(all[0].code, all[1].code);
    return all[0].code;
}

static void make_weights(void) {
    hadal_session *s = hadal_open();
    cr_assert_eq(hadal_include_path(s, HADAL_SOURCE "/frontend/std"), 0);
    cr_assert_eq(hadal_load(s, HADAL_SOURCE "/examples/tiny/tiny.hadal", NULL), 0);
    cr_assert_eq(hadal_draw_weights(s, 1, "f32", in_folder("model.safetensors")), 0);
    hadal_close(s);
}

Test(stage_traces, all_stages_have_them_or_none) {
    make_weights();
    for (int stage = 0; stage < STAGES; stage++)
        for (int traces = 0; traces < 2; traces++)
            compile(stage, traces);
    cr_assert_eq(session_of(false, false), HRT_OK);
    cr_assert_eq(session_of(true, true), HRT_OK);
    cr_assert_eq(session_of(true, false), HRT_RANKS);
    cr_assert_eq(session_of(false, true), HRT_RANKS);
}
