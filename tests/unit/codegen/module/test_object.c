/* From kernel IR to libraries that run: emitted, linked, loaded and compared with the evaluator,
 * for every CPU level of this machine; and what a library looks like from outside. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/library.h"
#include "codegen/module/module.h"
#include "ir/eval/eval.h"
#include "runtime/internal.h"
#include "support/tensorfile.h"
#include "tests/tools/full.h"
#include "tests/unit/codegen/toy_model.h"

#define FOLDER "/tmp/hadal-object-XXXXXX"
#include "tests/unit/folder_fixture.h"

#define RUNTIME HADAL_BUILD "/lib/libhadalrt.a"
enum { VOCAB = 40, LAYERS = 2, TOKENS = 21 };

TestSuite(object, .init = open_folder, .fini = close_folder, .timeout = 300);

static const char *first_error(void) {
    if (!diags.list.n) return "no diagnostic";
    const hd_diag *d = &diags.list.at[0];
    return hd_printf(arena, "%s (%s)", d->message, d->cause ? d->cause : "");
}

static hcg_program *lower(const char *text, const hcg_options *o) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    hcg_program *p = m ? hcg_lower(arena, &diags, m, o) : NULL;
    if (!p) cr_assert_fail("%s", first_error());
    return p;
}

static const char *build_library(hcg_program *p, const char *name) {
    const char *so = in_folder(hd_printf(arena, "lib%s.so", name));
    hcg_objects objects;
    cr_assert(hcg_emit_units(p, &diags, in_folder(name), &objects), "%s", first_error());
    cr_assert(hcg_link(p, &diags, &objects, NULL, RUNTIME, so), "%s", first_error());
    cr_assert(objects.n > 1 && hd_exists(objects.at[0]));
    hcg_remove_objects(&objects);
    cr_assert(objects.n == 0 && !hd_exists(in_folder(hd_printf(arena, "%s.000.o", name))));
    return so;
}

/* One object, from one module. */
static const char *build_object(hcg_program *p, const char *name) {
    const char *path = in_folder(hd_printf(arena, "%s.o", name));
    cr_assert(hcg_emit_code(p, &diags, HCG_CODE_OBJECT, path), "%s", first_error());
    return path;
}

static bool shell(const char *command) {
    return system(command) == 0;
}

/* Programs that load a library of a sanitized build need the sanitizer as well. */
#if defined(__SANITIZE_ADDRESS__)
#define CC "${CC:-cc} -fsanitize=address,undefined"
#elif defined(__SANITIZE_THREAD__)
#define CC "${CC:-cc} -fsanitize=thread"
#else
#define CC "${CC:-cc}"
#endif

static const char *read_bytes(const char *path, size_t *n) {
    hd_bytes bytes;
    cr_assert(hd_map_file(arena, &diags, path, &bytes), "%s", path);
    *n = bytes.n;
    return (const char *)bytes.at;
}

static bool same_files(const char *a, const char *b) {
    size_t n, m;
    const char *x = read_bytes(a, &n), *y = read_bytes(b, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* Seeded random weights of the module as a packed file. */
static const char *pack_random(hcg_program *p, const char *name, uint64_t seed) {
    const hir_module *m = p->m;
    hd_tensors list = {0};
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        int64_t n = hir_type_row_elements(w->type);
        double *values = hd_new_array(arena, double, (size_t)n);
        float *data = hd_new_array(arena, float, (size_t)n);
        cr_assert(hir_random_weights(&seed, m, (uint32_t)i, values, &diags));
        for (int64_t k = 0; k < n; k++)
            data[k] = (float)values[k];
        hd_tensor t = {.name = w->name,
                       .dtype = HD_T_F32,
                       .rank = w->type.rank,
                       .data = (const uint8_t *)data,
                       .bytes = (uint64_t)n * 4,
                       .elements = (uint64_t)n,
                       .file = "random"};
        memcpy(t.shape, w->type.dim, w->type.rank * sizeof *t.shape);
        size_t at = list.list.n;
        hd_push(arena, &list.list, t);
        for (; at > 0 && strcmp(list.list.at[at - 1].name, w->name) > 0; at--)
            list.list.at[at] = list.list.at[at - 1];
        list.list.at[at] = t;
    }
    const char *path = in_folder(hd_printf(arena, "%s.weights", name));
    cr_assert(hcg_pack(p, &diags, &list, path), "%s", first_error());
    return path;
}

/* ---- a loaded model -------------------------------------------------------------------------- */
typedef struct model {
    void *handle, *weights, *session, *memory;
    int (*weights_open)(const char *, void **);
    void (*weights_close)(void *);
    size_t (*session_size)(int64_t);
    int (*session_init)(void *, size_t, const void *, int64_t, void **);
    int (*session_set_threads)(void *, int);
    int (*session_set_cpu)(void *, const char *);
    const char *(*session_cpu)(const void *);
    const char *(*session_message)(const void *);
    int64_t (*session_length)(const void *);
    int (*session_rewind)(void *, int64_t);
    size_t (*session_save_size)(const void *);
    int (*session_save)(void *, void *, size_t);
    int (*session_restore)(void *, const void *, size_t);
    int (*forward)(void *, const int32_t *, int64_t, float *, int64_t);
    const char *(*strerror)(int);
} model;

static void *symbol(void *handle, const char *name, const char *function) {
    void *p = dlsym(handle, hd_printf(arena, "%s_%s", name, function));
    if (!p) cr_assert_fail("%s_%s is not there", name, function);
    return p;
}

static void *open_library(const char *so) {
    void *handle = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!handle) cr_assert_fail("%s", dlerror());
    return handle;
}

/* l.function = NAME_function of the library l */
#define BIND(l, name, function)                                                                    \
    memcpy(&(l).function, &(void *){symbol((l).handle, name, #function)}, sizeof(void *))

static model load(const char *so, const char *name, const char *weights, int64_t max_tokens) {
    model l = {.handle = open_library(so)};
#define F(function) BIND(l, name, function)
    F(weights_open), F(weights_close), F(session_size), F(session_init), F(session_set_threads);
    F(session_set_cpu), F(session_cpu), F(session_message), F(session_length), F(session_rewind);
    F(session_save_size), F(session_save), F(session_restore), F(forward), F(strerror);
#undef F
    cr_assert_eq(l.weights_open(weights, &l.weights), 0);
    size_t size = l.session_size(max_tokens);
    cr_assert(size > 0 && size % 64 == 0);
    l.memory = aligned_alloc(64, size);
    memset(l.memory, 0xff, size);
    cr_assert_eq(l.session_init(l.memory, size, l.weights, max_tokens, &l.session), 0);
    return l;
}

static void unload(model *l) {
    l->weights_close(l->weights);
    free(l->memory);
    dlclose(l->handle);
}

static void fill_ids(int32_t *ids) {
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * 11 + 5) % VOCAB;
}

/* All rows of logits by the reference evaluator. */
static const double *reference(const hir_module *m, uint64_t seed, const int32_t *ids) {
    hir_eval *e = hir_eval_new(arena, m, hir_random_weights, &seed);
    double *tokens = hd_new_array(arena, double, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = ids[i];
    hir_results results = {0};
    cr_assert(e && hir_eval_call(e, arena, &diags, TOKENS, (const double *const[]){tokens},
                                 &results, NULL, NULL),
              "%s", first_error());
    return results.outputs.at[0].at;
}

static double worst_error(const double *expected, const float *got, int64_t n) {
    double most = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(expected[i]));
        double e = fabs(expected[i] - got[i]);
        worst = isnan(e) ? INFINITY : fmax(worst, e);
    }
    return worst / most;
}

/* ---- answers --------------------------------------------------------------------------------- */
Test(object, every_level_agrees_with_the_evaluator) {
    hcg_options o = {.compile.chunk = 8};
    hcg_program *p = lower(toy_model(arena, "toy", LAYERS, VOCAB), &o);
    const char *so = build_library(p, "toy"), *weights = pack_random(p, "toy", 7);
    int32_t ids[TOKENS];
    fill_ids(ids);
    const double *expected = reference(p->m, 7, ids);
    const char *const levels[] = {"amx", "avx512bf16", "avx512", "avx2", "baseline"};
    const int64_t splits[][4] = {{21}, {20, 1}, {3, 10, 8}, {1, 1, 17, 2}};
    for (size_t level = 0; level < sizeof levels / sizeof *levels; level++)
        for (size_t split = 0; split < 4; split++)
            for (int threads = 1; threads <= 4; threads += 3) {
                model l = load(so, "toy", weights, TOKENS);
                float got[TOKENS * VOCAB];
                if (l.session_set_cpu(l.session, levels[level]) != 0) {
                    /* no warning: Criterion counts those as failures when it exits */
                    cr_log_info("%s", l.session_message(l.session));
                    unload(&l);
                    continue;
                }
                cr_assert_str_eq(l.session_cpu(l.session), levels[level]);
                cr_assert_eq(l.session_set_threads(l.session, threads), 0);
                int64_t at = 0;
                for (int i = 0; i < 4 && at < TOKENS; i++) {
                    int64_t n = splits[split][i];
                    cr_assert_eq(l.forward(l.session, ids + at, n, got + at * VOCAB, n), 0);
                    at += n;
                }
                double e = worst_error(expected, got, TOKENS * VOCAB);
                /* a matrix of the toy is in bf16: there, x is rounded to it (2^-8 at most) */
                cr_assert_lt(e, level > 1 ? 1e-5 : 1e-2,
                             "level %s, split %zu, %d threads: error %g", l.session_cpu(l.session),
                             split, threads, e);
                unload(&l);
            }
}

Test(object, last_rows_and_rewind) {
    hcg_options o = {.compile.chunk = 8, .cpu = "native", .exact = HCG_ROUND_ALL};
    hcg_program *p = lower(toy_model(arena, "toy", LAYERS, VOCAB), &o);
    model l = load(build_library(p, "toy"), "toy", pack_random(p, "toy", 7), TOKENS);
    int32_t ids[TOKENS];
    fill_ids(ids);
    const double *expected = reference(p->m, 7, ids);
    float got[TOKENS * VOCAB + 1];
    for (int64_t rows = 0; rows <= TOKENS; rows++) {
        got[rows * VOCAB] = -7;
        cr_assert_eq(l.session_rewind(l.session, 0), 0);
        cr_assert_eq(l.forward(l.session, ids, TOKENS, rows ? got : NULL, rows), 0);
        cr_assert(rows == 0 ||
                  worst_error(expected + (TOKENS - rows) * VOCAB, got, rows * VOCAB) < 1e-5);
        cr_assert(rows == 0 || got[rows * VOCAB] == -7, "written past the last row");
    }
    cr_assert_eq(l.session_rewind(l.session, 13), 0);
    cr_assert_eq(l.forward(l.session, ids + 13, TOKENS - 13, got, TOKENS - 13), 0);
    cr_assert_lt(worst_error(expected + 13 * VOCAB, got, (TOKENS - 13) * VOCAB), 1e-5);
    cr_assert_eq(l.forward(l.session, ids, 1, got, 1), HRT_FULL);
    int32_t bad[] = {1, VOCAB};
    cr_assert_eq(l.session_rewind(l.session, 0), 0);
    cr_assert_eq(l.forward(l.session, bad, 2, got, 1), HRT_TOKEN);
    cr_assert_not_null(strstr(l.session_message(l.session), "token 1 is 40"));
    cr_assert_eq(l.session_length(l.session), 0);
    unload(&l);
}

/* OpenMP's threads outlive the library that started them; a new build is not mistaken for the old.
 */
Test(object, libraries_can_be_unloaded) {
    hcg_options o = {.cpu = "baseline"};
    const char *so = in_folder("libtoy.so");
    int32_t ids[TOKENS];
    fill_ids(ids);
    for (int layers = 1; layers <= 2; layers++) {
        hcg_program *p = lower(toy_model(arena, "toy", layers, VOCAB), &o);
        const char *weights = pack_random(p, "toy", 7);
        cr_assert_str_eq(build_library(p, "toy"), so);
        model l = load(so, "toy", weights, TOKENS);
        float got[TOKENS * VOCAB];
        cr_assert_eq(l.session_set_threads(l.session, 4), 0);
        cr_assert_eq(l.forward(l.session, ids, TOKENS, got, TOKENS), 0);
        cr_assert_lt(worst_error(reference(p->m, 7, ids), got, TOKENS * VOCAB), 1e-5);
        unload(&l);
        cr_assert_null(dlopen(so, RTLD_NOW | RTLD_NOLOAD), "the library is still there");
        usleep(50000);
    }
}

/* Which thread computes a value does not change how it is computed. */
Test(object, any_number_of_threads_gives_the_same_bits) {
    hcg_options o = {.compile.chunk = 16, .cpu = "native"};
    hcg_program *p = lower(toy_model(arena, "toy", LAYERS, VOCAB), &o);
    model l = load(build_library(p, "toy"), "toy", pack_random(p, "toy", 7), TOKENS);
    int32_t ids[TOKENS];
    fill_ids(ids);
    float first[TOKENS * VOCAB], got[TOKENS * VOCAB];
    for (int threads = 1; threads <= 9; threads++) {
        cr_assert_eq(l.session_rewind(l.session, 0), 0);
        cr_assert_eq(l.session_set_threads(l.session, threads), 0);
        cr_assert_eq(l.forward(l.session, ids, TOKENS, got, TOKENS), 0);
        if (threads == 1) memcpy(first, got, sizeof first);
        cr_assert_eq(memcmp(first, got, sizeof first), 0, "%d threads", threads);
    }
    unload(&l);
}

Test(object, two_models_in_one_process) {
    hcg_options o = {.cpu = "baseline"};
    hcg_program *p = lower(toy_model(arena, "one", 1, VOCAB), &o);
    hcg_program *q = lower(toy_model(arena, "two", 2, VOCAB), &o);
    const char *pw = pack_random(p, "one", 1), *qw = pack_random(q, "two", 2);
    model a = load(build_library(p, "one"), "one", pw, TOKENS);
    model b = load(build_library(q, "two"), "two", qw, TOKENS);
    int32_t ids[TOKENS];
    fill_ids(ids);
    float got[TOKENS * VOCAB];
    for (int i = 0; i < TOKENS; i++) {
        cr_assert_eq(a.forward(a.session, ids + i, 1, got, 1), 0);
        cr_assert_eq(b.forward(b.session, ids + i, 1, got, 1), 0);
    }
    cr_assert_lt(worst_error(reference(q->m, 2, ids) + (TOKENS - 1) * VOCAB, got, VOCAB), 1e-5);
    void *w;
    cr_assert_eq(a.weights_open(qw, &w), HRT_DIGEST, "weights of another model");
    cr_assert_null(w);
    unload(&a);
    unload(&b);
}

/* ---- plain functions ------------------------------------------------------------------------- */
static const char gate[] =
    "hir 1 kernel @gate\n\narena 0 per token\nfixed 0\n\n"
    "weight @scale : f32[8]\n\n"
    "func(%\"a b\": f32[T, 8], %g: f32[8]) {\n"
    "  %y = kernel.row {name = \"gate\", rows = \"all\", split_decode = \"none\", split_prefill = "
    "\"rows\"} : f32[T, 8] in output[0] {\n"
    "    %s = sigmoid %g : f32[8]\n"
    "    %m = mul %\"a b\", %s : f32[T, 8]\n"
    "    %n = mul %m, @scale : f32[T, 8]\n"
    "    yield %n\n  }\n"
    "  output %y {name = \"y\"}\n}\n";

/* Contractions one after the other that differ in N and K alone, more than get functions of their
 * own; in each the last panel has four of its 16 columns. */
static const int64_t widths[] = {24, 20, 36, 52, 68, 84, 100, 116};
enum { CHAIN = sizeof widths / sizeof *widths - 1 };

static const char *chain_text(void) {
    hd_text t;
    int64_t at[CHAIN + 1] = {0};
    hd_text_init(&t, arena);
    for (int i = 1; i <= CHAIN; i++)
        at[i] = at[i - 1] + 4 * widths[i - 1] / 64 * 64 + 64;
    hd_text_f(&t, "hir 1 kernel @chain\n\narena %ld per token\nfixed 0\n\n", at[CHAIN] + 512);
    for (int i = 1; i <= CHAIN; i++)
        hd_text_f(&t, "weight @w%d : f32[%ld, %ld] panel\nweight @b%d : f32[%ld]\n", i, widths[i],
                  widths[i - 1], i, widths[i]);
    hd_text_add(&t, "\nfunc(%v0: f32[T, 24]) {\n");
    for (int i = 1; i <= CHAIN; i++) {
        const char *place = i == CHAIN ? "output[0]" : hd_printf(arena, "arena[%ld]", at[i]);
        hd_text_f(
            &t,
            "  %%v%d = kernel.contract {name = \"c%d\", rows = \"all\", split_decode = \"cols\", "
            "split_prefill = \"cols\"} : f32[T, %ld] in %s {\n"
            "    %%l%d = linear %%v%d, @w%d, @b%d : f32[T, %ld]\n"
            "    %%g%d = silu %%l%d : f32[T, %ld]\n    yield %%g%d\n  }\n",
            i, i, widths[i], place, i, i - 1, i, i, widths[i], i, i, widths[i], i);
    }
    hd_text_f(&t, "  output %%v%d {name = \"y\"}\n}\n", CHAIN);
    return t.at;
}

typedef struct plain { /* a loaded plain function */
    void *handle, *weights;
    int (*weights_open)(const char *, void **);
    void (*weights_close)(void *);
    size_t (*work_size)(int64_t);
    void (*call)(void); /* NAME_call, for the caller to give its type */
} plain;

static plain load_plain(const char *so, const char *name, const char *weights) {
    plain l = {.handle = open_library(so)};
    BIND(l, name, weights_open), BIND(l, name, weights_close);
    BIND(l, name, work_size), BIND(l, name, call);
    cr_assert_eq(l.weights_open(weights, &l.weights), 0);
    return l;
}

static void unload_plain(plain *l) {
    l->weights_close(l->weights);
    dlclose(l->handle);
}

static void check_chain(const char *cpu) {
    enum { MOST = 40 };
    hcg_options o = {.cpu = cpu};
    hcg_program *p = lower(chain_text(), &o);
    cr_assert_eq(p->kernels.n, 2, "one function for decode and one for prefill");
    const char *so = build_library(p, "chain"), *path = pack_random(p, "chain", 3);
    plain l = load_plain(so, "chain", path);
    int (*call)(const void *, int64_t, const float *, float *, void *, size_t);
    memcpy(&call, &l.call, sizeof call);
    static float x[MOST * 24], y[MOST * 116];
    static double exact[MOST * 24];
    for (int i = 0; i < MOST * 24; i++)
        exact[i] = x[i] = (float)((i * 37 % 101) - 50) / 25;
    const int64_t tokens[] = {1, 2, 7, MOST};
    for (int i = 0; i < 4; i++) {
        uint64_t seed = 3;
        hir_results results = {0};
        hir_eval *e = hir_eval_new(arena, p->m, hir_random_weights, &seed);
        cr_assert(hir_eval_call(e, arena, &diags, tokens[i], (const double *const[]){exact},
                                &results, NULL, NULL));
        size_t size = l.work_size(tokens[i]);
        void *work = aligned_alloc(64, size);
        cr_assert_eq(call(l.weights, tokens[i], x, y, work, size), 0);
        double error = worst_error(results.outputs.at[0].at, y, tokens[i] * widths[CHAIN]);
        cr_expect_lt(error, 1e-5, "%s, %ld tokens: error %g", cpu, tokens[i], error);
        free(work);
    }
    unload_plain(&l);
}

Test(object, contractions_of_many_sizes_share_functions) {
    check_chain("native");
    check_chain("baseline");
    if (__builtin_cpu_supports("avx2")) check_chain("avx2");
}

Test(object, plain_function_with_weights) {
    hcg_program *p = lower(gate, NULL);
    const char *so = build_library(p, "gate"), *path = pack_random(p, "gate", 3);
    plain l = load_plain(so, "gate", path);
    int (*call)(const void *, int64_t, const float *, const float *, float *, void *, size_t);
    memcpy(&call, &l.call, sizeof call);
    cr_assert_null(dlsym(l.handle, "gate_forward"));
    float x[5][8], g[8], y[5][8];
    double scale[8];
    uint64_t seed = 3;
    cr_assert(hir_random_weights(&seed, p->m, 0, scale, &diags));
    for (int i = 0; i < 40; i++)
        x[i / 8][i % 8] = (float)i / 4 - 3;
    for (int i = 0; i < 8; i++)
        g[i] = (float)(i - 4);
    size_t size = l.work_size(5);
    void *work = aligned_alloc(64, size);
    cr_assert_eq(call(l.weights, 5, &x[0][0], g, &y[0][0], work, size), 0);
    for (int i = 0; i < 40; i++) {
        double expected = x[i / 8][i % 8] / (1 + exp(-(double)g[i % 8])) * scale[i % 8];
        cr_assert_float_eq(y[i / 8][i % 8], expected, 1e-5 * fmax(1, fabs(expected)));
    }
    cr_assert_eq(call(NULL, 5, &x[0][0], g, &y[0][0], work, size), HRT_ARGUMENT);
    cr_assert_eq(call(l.weights, 0, &x[0][0], g, &y[0][0], work, size), HRT_ARGUMENT);
    free(work);
    unload_plain(&l);
}

/* ---- states of every kind -------------------------------------------------------------------- */
/* The toy with a window and a carry that no op writes yet. */
static const char *toy_of_all_kinds(void) {
    const char *text = toy_model(arena, "toy", 1, VOCAB), *func = strstr(text, "\nfunc(");
    return hd_printf(arena,
                     "%.*sstate $tail : window bf16[3, 96]\nstate $sum : carry f32[4, 2, 8]\n%s",
                     (int)(func - text), text, func);
}

enum { SAVED_HEADER = 128, WINDOW_BYTES = 3 * 96 * 2, CARRY_BYTES = 4 * 64 };

Test(object, a_model_with_a_carry_is_saved_and_not_shortened) {
    const hcg_options o = {.cpu = "native"};
    hcg_program *p = lower(toy_of_all_kinds(), &o);
    model l = load(build_library(p, "toy"), "toy", pack_random(p, "toy", 7), TOKENS);
    int32_t ids[TOKENS];
    float before[VOCAB], after[VOCAB];
    fill_ids(ids);
    cr_assert_eq(l.forward(l.session, ids, 9, NULL, 0), 0);
    cr_assert_eq(l.session_rewind(l.session, 4), HRT_REWIND);
    cr_assert(strstr(l.session_message(l.session), "tail, a window, can only be cleared"));
    cr_assert_eq(l.session_length(l.session), 9);
    const size_t cache = 9 * 4 * (3 + 2 * 32), /* $extra, keys, values */
        size = l.session_save_size(l.session);
    cr_assert_eq(size, SAVED_HEADER + cache + WINDOW_BYTES + CARRY_BYTES);
    void *kept = hd_alloc(arena, 1, size);
    cr_assert_eq(l.session_save(l.session, kept, size), 0);
    cr_assert_eq(l.forward(l.session, ids + 9, 1, before, 1), 0);
    cr_assert_eq(l.session_rewind(l.session, 0), 0);
    cr_assert_eq(l.session_restore(l.session, kept, size), 0);
    cr_assert_eq(l.session_length(l.session), 9);
    cr_assert_eq(l.forward(l.session, ids + 9, 1, after, 1), 0);
    cr_assert_arr_eq(before, after, sizeof before);
    unload(&l);
}

Test(object, the_header_tells_what_state_there_is) {
    const char *const texts[] = {toy_of_all_kinds(), toy_model(arena, "toy", 1, VOCAB)};
    for (int i = 0; i < 2; i++) {
        hcg_program *p = lower(texts[i], NULL);
        cr_assert(hcg_emit_header(p, &diags, in_folder("toy.h")));
        const char *none = i ? "! " : "";
        cr_assert(shell(hd_printf(
            arena,
            "cd %s && grep -q 'TOY_CACHE_BYTES  *268 ' toy.h && %sgrep -q 'TOY_STATE_BYTES  *832 ' "
            "toy.h && %sgrep -q 'TOY_REWIND unless' toy.h && " CC " -x c -std=c99 -pedantic "
            "-Wall -Wextra -Werror -fsyntax-only toy.h",
            folder, none, none)));
    }
}

/* ---- what a library looks like from outside -------------------------------------------------- */
Test(object, same_input_same_bytes) {
    unsetenv("HADAL_CODE_CACHE"); /* which would give the second what was made for the first */
    const char *text = toy_model(arena, "toy", LAYERS, VOCAB);
    const char *cpu = full_set() ? NULL : "avx2"; /* of the library: all levels, or one */
    hcg_options o = {.ir_file = in_folder("toy.kernel.hir"), .cpu = cpu};
    const char *a = build_library(lower(text, &o), "toy");
    o.cpu = "avx2";
    build_object(lower(text, &o), "toy");
    cr_assert(shell(hd_printf(arena, "cd %s && mkdir one && mv toy.o libtoy.so one", folder)));
    hcg_options elsewhere = {.ir_file = "somewhere/else/toy.kernel.hir", .cpu = cpu};
    const char *b = build_library(lower(text, &elsewhere), "toy");
    elsewhere.cpu = "avx2";
    build_object(lower(text, &elsewhere), "toy");
    cr_assert(same_files(in_folder("one/toy.o"), in_folder("toy.o")));
    cr_assert(same_files(in_folder("one/libtoy.so"), b));
    (void)a;
}

Test(object, only_public_functions_are_visible_and_few_are_needed) {
    build_library(lower(toy_model(arena, "toy", 1, VOCAB), NULL), "toy");
    cr_assert(shell(hd_printf(
        arena,
        "cd %s && nm -D --defined-only libtoy.so | awk '{print $3}' | grep -v '^toy_[a-z_]*$'"
        " > extra; test ! -s extra",
        folder)));
    cr_assert(shell(hd_printf(
        arena,
        "cd %s && nm -D --undefined-only libtoy.so | sed 's/.* //; s/@.*//' | grep -vxE "
        "'open|open64|read|pread|pread64|posix_fadvise|posix_fadvise64|close|fstat|fstat64|"
        "mmap|mmap64|munmap|madvise|mprotect|malloc|free|sysconf|sigfillset|pthread_sigmask|"
        "pthread_setcancelstate|"
        "syscall|"
        "memcpy|memcmp|memset|strlen|strcmp|strncmp|strchr|strrchr|strstr|snprintf|vsnprintf|clock_"
        "gettime|"
        "__(v?snprintf|memcpy|memset)_chk|__stack_chk_fail|__errno_location|"
        "getpid|getenv|pthread_(attr_[a-z]*|create|join|mutex_[a-z]*|key_[a-z]*|[gs]etspecific)|__"
        "tls_get_addr|"
        "dladdr|dlopen|dlclose|omp_get_[a-z_]*|GOMP_parallel|"
        "_ITM_.*|__gmon_start__|__cxa_finalize|__[atu]b?san.*|__sanitizer.*|_Unwind_.*' > needed; "
        "test ! -s needed || { cat needed; false; }",
        folder)));
}

Test(object, headers_compile_as_c_and_as_cxx) {
    const char *const texts[] = {toy_model(arena, "toy", 1, VOCAB), gate};
    const char *const names[] = {"toy", "gate"};
    const hcg_options o = {.cpu = "baseline"};
    for (int i = 0; i < 2; i++) {
        hcg_program *p = lower(texts[i], &o);
        const char *name = names[i];
        build_library(p, name);
        cr_assert(hcg_emit_header(p, &diags, in_folder(hd_printf(arena, "%s.h", name))));
        pack_random(p, name, 1);
        /* the example in the head comment: between the first line and the cc line */
        cr_assert(shell(hd_printf(
            arena,
            "cd %s && awk '/#include <stdio.h>/ { on = 1 } / cc main.c/ { exit } on' %s.h | sed "
            "'s/^ \\*//' > main.c && " CC " -std=c11 -Wall -Wextra -Werror main.c -o main_%s "
            "-L. "
            "-l%s -Wl,-rpath,$PWD && ./main_%s > out_%s",
            folder, name, name, name, name, name)));
        cr_assert(shell(hd_printf(
            arena,
            "cd %s && echo '#include \"%s.h\"' > t.c && all='-pedantic -Wall -Wextra -Wconversion "
            "-Wsign-conversion -Wshadow -Werror' && " CC " -std=c99 $all -c t.c -o t.o && " CC
            " -std=c17 $all -c t.c -o t.o && if command -v g++ >/dev/null; then g++ -x c++ "
            "-std=c++11 $all -c t.c -o t.o && g++ -x c++ -std=c++98 $all -Wno-long-long -c t.c -o "
            "t.o; fi",
            folder, name)));
    }
    /* both headers in one file: hadal_info is one type */
    cr_assert(
        shell(hd_printf(arena,
                        "cd %s && printf '#include \"toy.h\"\\n#include \"gate.h\"\\n"
                        "const hadal_info *f(int x) { return x ? toy_info() : gate_info(); }' "
                        "> both.c && " CC " -Wall -Wextra -Werror -c both.c -o both.o",
                        folder)));
}

/* The header has the structs as text with comments; libraries are written and read by the table. */
Test(object, the_header_has_the_fields_where_libraries_have_them) {
    cr_assert(hcg_emit_header(lower(gate, NULL), &diags, in_folder("gate.h")));
    FILE *f = fopen(in_folder("fields.c"), "w");
    cr_assert_not_null(f);
    fputs("#include \"gate.h\"\n#include <stddef.h>\n", f);
    const char *assert_that = "_Static_assert(%s == %zu, \"\");\n", *prefix = "hadal";
/* hd_info is hadal_info there */
#define STRUCT(name)                                                                               \
    {                                                                                              \
        typedef name here;                                                                         \
        const char *of = &#name[2];                                                                \
        fprintf(f, assert_that, hd_printf(arena, "sizeof(%s%s)", prefix, of), sizeof(here));
#define FIELD(field)                                                                               \
    fprintf(f, assert_that, hd_printf(arena, "offsetof(%s%s, " #field ")", prefix, of),            \
            offsetof(here, field));
#define END(name)                 }
#define TEXT                      FIELD
#define U64                       FIELD
#define TEXTS(field, count)       FIELD(field)
#define TABLE(type, field, count) FIELD(field)
#include "support/library_info.def"
#undef STRUCT
#undef FIELD
#undef END
#undef TEXT
#undef U64
#undef TEXTS
#undef TABLE
    fclose(f);
    cr_assert(shell(hd_printf(arena, "cd %s && " CC " -fsyntax-only fields.c", folder)));
}

/* For each struct of a library, field by field: what lies in memory is what was described. */
#define STRUCT(name)     static void name##_is(const name *in_memory, const name *described) {
#define END(name)        }
#define SAME(field)      cr_assert_eq(in_memory->field, described->field, #field);
#define U32              SAME
#define U64              SAME
#define I64              SAME
#define BYTES16(field)   cr_assert_arr_eq(in_memory->field, described->field, 16, #field);
#define TEXT(field)      cr_assert_str_eq(in_memory->field, described->field, #field);
#define ONE(type, field) type##_is(&in_memory->field, &described->field);
#define KERNELS(field)   cr_assert(in_memory->field && * in_memory->field && !described->field);
#define TABLE(type, field, count)                                                                  \
    for (uint32_t i = 0; i < described->count; i++)                                                \
        type##_is(&in_memory->field[i], &described->field[i]);
STRUCT(hd_latent_costs)
HD_LATENT_COSTS(SAME)
END(hd_latent_costs)
#define FACT(name, ...) SAME(name)
STRUCT(hd_machine)
HD_MACHINE_FACTS(FACT)
END(hd_machine)
#include "runtime/structs.def"
#undef STRUCT
#undef END
#undef U32
#undef U64
#undef I64
#undef TEXT
#undef TABLE

Test(object, a_library_has_the_model_as_it_was_described) {
    hcg_options o = {.compile.chunk = 99, .machine = {.l2 = 3 << 20, .l3 = UINT64_C(5) << 20}};
    o.cpu = full_set() ? NULL : "baseline"; /* of all levels, or one */
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    hcg_target t;
    model l = load(build_library(p, "toy"), "toy", pack_random(p, "toy", 1), 16);
    cr_assert(hcg_find_target(&p->options, arena, &diags, &t));
    const hrt_model described = hcg_model_of(p, &t), *m = ((const hrt_session *)l.session)->model;
    hrt_model_is(m, &described);
    cr_assert_eq(m->version, HRT_VERSION);
    cr_assert_str_eq(m->name, "toy");
    cr_assert_eq(m->vocab, VOCAB);
    cr_assert_eq(m->chunk, 99);
    cr_assert_eq(m->n_steps, p->steps.n);
    cr_assert_eq(m->n_states, 3);
    cr_assert_eq(m->machine.l3, 5 << 20);
    cr_assert_eq(m->weights_bytes, p->weights_bytes);
    cr_assert_eq(m->scratch_bytes, p->scratch_bytes);
    cr_assert_str_eq(m->weights[m->n_weights - 1].type,
                     hir_type_string(arena, p->m->weights.at[p->m->weights.n - 1].type));
    unload(&l);
}

static const hd_info *info_of(void *toy) {
    const hd_info *(*get)(void);
    memcpy(&get, &(void *){symbol(toy, "toy", "info")}, sizeof get);
    return get();
}

Test(object, the_library_tells_what_it_is) {
    hcg_options o = {.compile.chunk = 99};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    void *handle = open_library(build_library(p, "toy"));
    const hd_info *i = info_of(handle);
    cr_assert_eq(i->struct_size, sizeof *i);
    cr_assert_str_eq(i->name, "toy");
    cr_assert_eq(strlen(i->digest), 32);
    cr_assert_eq(i->max_chunk, 99);
    cr_assert_eq(i->weights_size, p->weights_bytes + 4096);
    cr_assert_eq(i->n_levels, 5);
    cr_assert_str_eq(i->levels[0], "amx");
    cr_assert_str_eq(i->inputs[0].name, "tokens");
    cr_assert_str_eq(i->outputs[0].type, "f32[T, 40]");
    cr_assert_not_null(strstr(i->ops, "append0 row: reshape cache_append reshape cache_append\n"));
    cr_assert_not_null(strstr(i->options, "\"assumed\": {\"amx\": {\"line\": 64, \"l1\": "));
    cr_assert_not_null(
        strstr(i->options,
               "\"machine\": {}, \"chunk\": 99, \"weights\": \"f32\", \"activations\": \"bf16\", "
               "\"bank\": \"f32\", \"phase1\": \"f32\", \"merge_norm\": \"dots\", "
               "\"cache\": \"f32\", "
               "\"parameters\": {\"layers\": \"1\"}}"));
    cr_assert_eq(i->vocab, VOCAB);
    cr_assert_eq(i->n_states, 3);
    cr_assert_str_eq(i->states[1].name, "l0.k");
    cr_assert_str_eq(i->states[1].kind, "cache");
    cr_assert_str_eq(i->states[1].type, "f32[C, 1, 32]");
    cr_assert_eq(i->n_steps, p->steps.n);
    cr_assert_eq(i->step_size, sizeof *i->steps);
    for (size_t k = 0; k < i->n_steps; k++) {
        const hcg_step_work *w = &p->work.at[k];
        cr_assert_str_eq(i->steps[k].name, p->steps.at[k].name);
        cr_assert_str_eq(i->steps[k].scope, w->scope);
        cr_assert_eq(i->steps[k].line, w->line);
        cr_assert_eq(i->steps[k].last_rows, p->steps.at[k].last_rows);
        cr_assert_eq(i->steps[k].row_flops, w->row_flops);
        cr_assert_eq(i->steps[k].pair_flops, w->pair_flops);
        cr_assert_eq(i->steps[k].pass_bytes, w->pass_bytes);
        cr_assert_eq(i->steps[k].row_bytes, w->row_bytes);
        cr_assert_eq(i->steps[k].position_bytes, w->position_bytes);
        cr_assert_eq(i->steps[k].window, p->steps.at[k].window); /* none has a list */
        cr_assert_eq(i->steps[k].state_bytes, w->state_bytes);
    }
    cr_assert_str_eq(i->steps[2].kind, "contract");
    dlclose(handle);
}

Test(object, line_tables_point_into_the_kernel_ir) {
    hcg_options o = {.ir_file = "dir/toy.kernel.hir", .cpu = "avx2"};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    build_library(p, "toy");
    uint32_t line = 0;
    for (size_t i = 0; i < p->kernels.n; i++)
        if (!strcmp(p->kernels.at[i].name, "attention0_decode")) line = p->kernels.at[i].line;
    cr_assert_gt(line, 0);
    cr_assert(shell(hd_printf(arena,
                              "cd %s && objdump --dwarf=decodedline libtoy.so | grep -qE "
                              "'toy.kernel.hir +%u '",
                              folder, line)));
}

Test(object, assembly_and_llvm_text) {
    hcg_options o = {0};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    cr_assert(hcg_emit_code(p, &diags, HCG_CODE_ASM, in_folder("toy.s")), "%s", first_error());
    cr_assert(hcg_emit_code(p, &diags, HCG_CODE_LLVM, in_folder("toy.ll")), "%s", first_error());
    cr_assert(shell(hd_printf(
        arena, "cd %s && " CC " -c toy.s -o s.o && nm s.o | grep -q ' T toy_forward'", folder)));
    cr_assert(shell(hd_printf(
        arena, "cd %s && grep -q 'define hidden void @toy_head_prefill_avx512' toy.ll", folder)));
    cr_assert(
        shell(hd_printf(
            arena, "cd %s && objdump -d s.o | awk '/^$/{on=0} /avx512>:/{on=1} on' | grep -q zmm",
            folder)),
        "the widest registers are not used");
    cr_assert(
        shell(hd_printf(arena,
                        "cd %s && objdump -d s.o | awk '/^$/{on=0} /baseline>:/{on=1} on' > b; "
                        "test -s b && ! grep -qE '%%[yz]mm|\\sv[a-z]' b",
                        folder)),
        "baseline code uses more than SSE2");
}

/* ---- targets --------------------------------------------------------------------------------- */
Test(object, one_body_for_one_cpu) {
    const struct {
        const char *cpu, *level;
    } cases[] = {{"native", NULL}, {"avx2", "avx2"}, {"haswell", "haswell"}};
    for (size_t i = 0; i < 3; i++) {
        hcg_options o = {.cpu = cases[i].cpu};
        hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
        void *handle = open_library(build_library(p, hd_printf(arena, "toy%zu", i)));
        const hd_info *info = info_of(handle);
        cr_assert_eq(info->n_levels, 1);
        if (cases[i].level) cr_assert_str_eq(info->levels[0], cases[i].level);
        dlclose(handle);
    }
}

Test(object, cross_object_for_aarch64) {
    hcg_options o = {.triple = "aarch64-linux-gnu"};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    cr_assert(hcg_emit_code(p, &diags, HCG_CODE_OBJECT, in_folder("toy.o")), "%s", first_error());
    size_t n;
    const char *elf = read_bytes(in_folder("toy.o"), &n);
    cr_assert(n > 64 && !memcmp(elf, "\177ELF", 4) && elf[18] == (char)183, "an AArch64 object");
}

/* What --emit=obj leaves is all of the library but the runtime: linked by hand, it answers as the
 * library does that is linked of units. */
Test(object, the_one_object_links_to_a_library) {
    hcg_options o = {.compile.chunk = 8, .exact = HCG_ROUND_ALL};
    o.cpu = full_set() ? NULL : "native";
    hcg_program *p = lower(toy_model(arena, "toy", LAYERS, VOCAB), &o);
    const char *object = build_object(p, "toy"), *so = in_folder("libtoy.so");
    const hcg_objects one = {&object, 1};
    cr_assert(hcg_link(p, &diags, &one, NULL, RUNTIME, so), "%s", first_error());
    model l = load(so, "toy", pack_random(p, "toy", 7), TOKENS);
    int32_t ids[TOKENS];
    fill_ids(ids);
    float got[TOKENS * VOCAB];
    cr_assert_eq(l.forward(l.session, ids, TOKENS, got, TOKENS), 0);
    cr_assert_lt(worst_error(reference(p->m, 7, ids), got, TOKENS * VOCAB), 1e-5);
    unload(&l);
}

Test(object, pieces_that_cannot_be_written_leave_nothing) {
    hcg_options o = {.cpu = "baseline"};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    hcg_objects objects;
    cr_assert_not(hcg_emit_units(p, &diags, "/nonexistent/toy", &objects));
    cr_assert_eq(hd_diags_first(&diags), HD_E_IO);
    cr_assert_eq(objects.n, 0);
}

static void rejected_target(const char *triple, const char *cpu, const char *message,
                            const char *hint) {
    hcg_options o = {.triple = triple, .cpu = cpu};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    diags.list.n = 0;
    diags.errors = 0;
    const char *path = in_folder("refused.o");
    cr_assert_not(hcg_emit_code(p, &diags, HCG_CODE_OBJECT, path));
    cr_assert_eq(hd_diags_first(&diags), HD_E_TARGET);
    cr_assert_not_null(strstr(diags.list.at[0].message, message), "%s", diags.list.at[0].message);
    cr_assert(diags.list.at[0].hint && strstr(diags.list.at[0].hint, hint), "%s",
              diags.list.at[0].hint);
    cr_assert_not(hd_exists(path));
}

Test(object, targets_that_are_rejected) {
    rejected_target(NULL, "haswel", "no x86_64 CPU \"haswel\"", "\"haswell\"");
    rejected_target(NULL, "avx513", "no x86_64 CPU", "\"avx512\"");
    rejected_target(NULL, "pdp11", "no x86_64 CPU",
                    "native, amx, avx512bf16, avx512vnni, avx512, avxvnni, avx2, baseline");
    rejected_target("aarch64-linux-gnu", "haswell", "no aarch64 CPU", "neon");
    rejected_target("aarch64-linux-gnu", "native", "not a CPU", "name the CPU");
    rejected_target("vax-dec-ultrix", NULL, "vax-dec-ultrix", "x86_64-linux-gnu");
    rejected_target("x86_64-apple-darwin", NULL, "darwin", "x86_64-linux-gnu");
    rejected_target("", NULL, "no code can be made", "x86_64-linux-gnu");
}

/* ---- linking --------------------------------------------------------------------------------- */
Test(object, links_that_fail_leave_nothing) {
    hcg_options o = {.cpu = "baseline"};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    const char *object = build_object(p, "toy"), *so = in_folder("libtoy.so");
    const struct {
        const char *object, *cc, *runtime;
        hd_error code;
        const char *part;
    } cases[] = {
        {object, "no-such-compiler", RUNTIME, HD_E_TOOL, "no-such-compiler"},
        {object, "false", RUNTIME, HD_E_TOOL, "exit code 1"},
        {object, " ", RUNTIME, HD_E_TOOL, "linker"},
        {object, NULL, "/nonexistent/libhadalrt.a", HD_E_IO, "/nonexistent/libhadalrt.a"},
        {"/nonexistent/toy.o", NULL, RUNTIME, HD_E_TOOL, "failed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(hd_write_file(arena, &diags, so, "old", 3));
        diags.list.n = 0;
        diags.errors = 0;
        const hcg_objects one = {(const char *[]){cases[i].object}, 1};
        cr_assert_not(hcg_link(p, &diags, &one, cases[i].cc, cases[i].runtime, so));
        cr_assert_eq(hd_diags_first(&diags), cases[i].code, "case %zu", i);
        cr_assert_not_null(strstr(diags.list.at[0].message, cases[i].part), "%s",
                           diags.list.at[0].message);
        cr_assert_not(cases[i].code == HD_E_TOOL && hd_exists(so),
                      "an old library is left, case %zu", i);
    }
    cr_assert_not_null(strstr(diags.list.at[0].cause, "toy.o"), "what the linker said");
    cr_assert_not_null(strstr(diags.list.at[0].hint, "--emit=obj"));
}

Test(object, a_foreign_library_needs_a_runtime_of_its_architecture) {
    hcg_options o = {.triple = "arm64-linux-gnu"};
    hcg_program *p = lower(toy_model(arena, "toy", 1, VOCAB), &o);
    const char *so = in_folder("libtoy.so");
    const hcg_objects none = {0}; /* not read before the runtime is there */
    const char *runtime = hcg_runtime(p, "/nonexistent");
    cr_assert_str_eq(runtime, "/nonexistent/hadal/aarch64-linux-gnu/libhadalrt.a");
    cr_assert_not(hcg_link(p, &diags, &none, NULL, runtime, so));
    cr_assert_eq(hd_diags_first(&diags), HD_E_IO);
    cr_assert_not_null(strstr(diags.list.at[0].hint, "aarch64-linux-gnu-gcc"));
    cr_assert_not(hd_exists(so));
}
