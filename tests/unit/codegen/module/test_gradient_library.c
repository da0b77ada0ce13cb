/* Libraries of gradients, from the graph of a model: through the pipeline, emitted, linked, loaded
 * and called. The models have nothing that looks along the sequence: the gradients of a sequence are
 * then those of its tokens, added, however it is cut. That is what tiles of logits
 * (passes/kernels/tile_logits.c) are held against. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/module/module.h"
#include "codegen/program/program.h"
#include "ir/text/text.h"
#include "passes/pass.h"
#include "tests/tools/full.h"

#define FOLDER "/tmp/hadal-gradients-XXXXXX"
#include "tests/unit/folder_fixture.h"

#define RUNTIME HADAL_BUILD "/lib/libhadalrt.a"
enum { LARGE = 65600, SMALL = 48, LONGEST = 300 };

TestSuite(gradient_library, .init = open_folder, .fini = close_folder, .timeout = 300);

static const char *first_error(void) {
    if (!diags.list.n) return "no diagnostic";
    const hd_diag *d = &diags.list.at[0];
    return hd_printf(arena, "%s (%s)", d->message, d->cause ? d->cause : "");
}

/* ---- models ---------------------------------------------------------------------------------- */
/* What is done with the hidden row %y [T, 8]: @head is [rows, 8], and `vocab` logits are left. */
typedef struct head {
    const char *body;
    int rows, vocab;
    bool tied;
} head;

static const head plain = {"  %logits = linear %y, @head, _\n", LARGE, LARGE, false};
static const head few = {"  %logits = linear %y, @head, _\n", SMALL, SMALL, false};
static const head tied = {"  %logits = linear %y, @embed, _\n", 0, LARGE, true};
static const head capped = {"  %l = linear %y, @head, _\n"
                            "  %a = const {value = 0.125, shape = []}\n"
                            "  %b = mul %l, %a\n  %c = tanh %b\n"
                            "  %d = const {value = 8, shape = []}\n  %logits = mul %c, %d\n",
                            LARGE, LARGE, false};
static const head padded = {"  %l = linear %y, @head, @bias\n"
                            "  %logits = slice %l {axis = 1, start = 0, length = 65600}\n",
                            LARGE + 24, LARGE, false};

static hir_module *graph_of(const head *h) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_f(&t,
              "hir 1 graph @toy\nweight @embed : f32[%d, 8]\nweight @gain : f32[8]\n"
              "weight @up : f32[12, 8]\nweight @down : f32[8, 12]\n",
              h->vocab);
    if (!h->tied) hd_text_f(&t, "weight @head : f32[%d, 8]\n", h->rows);
    if (strstr(h->body, "@bias")) hd_text_f(&t, "weight @bias : f32[%d]\n", h->rows);
    hd_text_f(&t,
              "func(%%tokens: i32[T]) {\n  %%x = gather @embed, %%tokens\n"
              "  %%n = rmsnorm %%x, @gain {eps = 1e-05}\n  %%u = linear %%n, @up, _\n"
              "  %%s = silu %%u\n  %%o = linear %%s, @down, _\n  %%y = add %%x, %%o\n%s"
              "  output %%logits {name = \"logits\"}\n}\n",
              h->body);
    hir_module *m = hir_parse(arena, &diags, "toy.hir", t.at);
    cr_assert(m && hir_add_loss(m, &diags), "%s", first_error());
    return m;
}

/* The module that is compiled; *tiled: the kernels that go tile by tile. */
static hir_module *compiled_of(const head *h, const hir_compile_options *o, int *tiled) {
    const hir_pass_id *passes = hir_gradient_pipeline();
    size_t n = 0;
    while (passes[n] != HIR_PASS_COUNT)
        n++;
    const hir_run run = {
        .passes = passes, .n_passes = n, .stop_after = HIR_PASS_COUNT, .verify = true};
    hir_module *m = graph_of(h);
    cr_assert(hir_run_passes(m, &run, o, NULL, &diags), "%s", first_error());
    *tiled = 0;
    HIR_EACH(m, op, m->first) *tiled += hir_attr_int(hir_op_at(m, op), HIR_A_TILE, 0) > 0;
    return m;
}

/* ---- libraries ------------------------------------------------------------------------------- */
typedef struct parameter { /* hadal_parameter of a generated header */
    const char *name, *type;
    float *values, *gradient;
    size_t elements;
    const char *update;
} parameter;

typedef struct library {
    void *handle;
    size_t (*trainer_size)(int64_t);
    int (*trainer_init)(void *, size_t, int64_t, void **);
    const parameter *(*trainer_parameters)(void *, size_t *);
    int (*trainer_set_threads)(void *, int);
    const char *(*trainer_message)(const void *);
    int (*gradients)(void *, const int32_t *, const int32_t *, const int64_t *, int64_t, double *,
                     int64_t *);
} library;

static library open_library(const head *h, bool tiles) {
    const hcg_options o = {.cpu = "native", .compile = {.matrix_dtype = HIR_F32, .chunk = 512}};
    int tiled;
    hcg_program *p = hcg_lower(arena, &diags, compiled_of(h, &o.compile, &tiled), &o);
    cr_assert(p, "%s", first_error());
    cr_assert_eq(tiled >= 4, tiles, "%d kernels go tile by tile", tiled);
    hcg_objects objects;
    const char *so = in_folder("libtoy.so");
    cr_assert(hcg_emit_units(p, &diags, in_folder("toy"), &objects), "%s", first_error());
    cr_assert(hcg_link(p, &diags, &objects, NULL, RUNTIME, so), "%s", first_error());
    hcg_remove_objects(&objects);
    library l = {.handle = dlopen(so, RTLD_NOW | RTLD_LOCAL)};
    cr_assert(l.handle, "%s", dlerror());
#define F(function)                                                                                \
    do {                                                                                           \
        void *at = dlsym(l.handle, "toy_" #function);                                              \
        cr_assert(at, #function);                                                                  \
        memcpy(&l.function, &at, sizeof at);                                                       \
    } while (0)
    F(trainer_size);
    F(trainer_init);
    F(trainer_parameters);
    F(trainer_set_threads);
    F(trainer_message);
    F(gradients);
#undef F
    return l;
}

typedef struct trainer {
    const library *l;
    void *memory, *t;
    const parameter *p;
    size_t n;
} trainer;

/* Its memory holds NaN before, and 64 bytes after it are watched. */
static trainer open_trainer(const library *l, int64_t longest, int threads) {
    const size_t size = l->trainer_size(longest);
    trainer x = {.l = l, .memory = aligned_alloc(64, size + 64)};
    cr_assert(size > 0 && x.memory);
    memset(x.memory, 0xff, size + 64);
    cr_assert_eq(l->trainer_init(x.memory, size, longest, &x.t), 0);
    cr_assert_eq(l->trainer_set_threads(x.t, threads), 0);
    x.p = l->trainer_parameters(x.t, &x.n);
    uint32_t seed = 5;
    for (size_t i = 0; i < x.n; i++)
        for (size_t k = 0; k < x.p[i].elements; k++) {
            seed = seed * 1664525u + 1013904223u;
            x.p[i].values[k] = (float)(seed >> 8) / (float)(1 << 24) - 0.4F;
        }
    return x;
}

static void close_trainer(trainer *x) {
    const unsigned char *end = (const unsigned char *)x->memory + x->l->trainer_size(LONGEST);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(end[i], 0xff, "written behind its memory");
    free(x->memory);
}

typedef struct call {
    int32_t tokens[LONGEST], targets[LONGEST];
    double sum;
    int64_t count;
} call;

static call a_call(int vocab) {
    call c = {.sum = -1, .count = -1};
    for (int i = 0; i < LONGEST; i++) {
        c.tokens[i] = (int32_t)((int64_t)i * 7919 % vocab);
        c.targets[i] = i % 5 == 3 ? -1 : (int32_t)((int64_t)i * 104729 % vocab);
    }
    return c;
}

static int make(const trainer *x, call *c, const int64_t *lengths, int64_t sequences) {
    return x->l->gradients(x->t, c->tokens, c->targets, lengths, sequences, &c->sum, &c->count);
}

static bool same_bits(const trainer *a, const trainer *b) {
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(a->p[i].gradient, b->p[i].gradient, a->p[i].elements * sizeof(float)) != 0)
            return false;
    return true;
}

static void expect_close(const trainer *a, const trainer *b) {
    for (size_t i = 0; i < a->n; i++) {
        float most = 0, off = 0;
        for (size_t k = 0; k < a->p[i].elements; k++) {
            most = fmaxf(most, fabsf(b->p[i].gradient[k]));
            off = fmaxf(off, fabsf(a->p[i].gradient[k] - b->p[i].gradient[k]));
        }
        cr_assert(most > 0 && off <= 1e-5F * most, "%s: off by %g of %g", a->p[i].name, (double)off,
                  (double)most);
    }
}

/* A sequence of two tiles against two sequences of one. */
static void check_tiles(const head *h) {
    static const int64_t whole = LONGEST, halves[] = {LONGEST / 2, LONGEST / 2};
    const library l = open_library(h, true);
    trainer one = open_trainer(&l, LONGEST, 1), two = open_trainer(&l, LONGEST, 2),
            cut = open_trainer(&l, LONGEST, 2);
    call a = a_call(h->vocab), b = a, c = a;
    cr_assert_eq(make(&one, &a, &whole, 1), 0, "%s", l.trainer_message(one.t));
    cr_assert_eq(make(&two, &b, &whole, 1), 0);
    cr_assert(a.sum == b.sum && same_bits(&one, &two), "threads change bits");
    cr_assert_eq(make(&cut, &c, halves, 2), 0);
    cr_assert(a.count == LONGEST / 5 * 4 && c.count == a.count);
    cr_assert_float_eq(a.sum, c.sum, 1e-5 * c.sum);
    expect_close(&one, &cut);
    close_trainer(&one), close_trainer(&two), close_trainer(&cut);
    dlclose(l.handle);
}

Test(gradient_library, logits_of_a_large_vocabulary_are_made_tile_by_tile) {
    check_tiles(&tied);
    if (full_set()) check_tiles(&plain), check_tiles(&capped), check_tiles(&padded);
}

/* The larger part of a trainer would be logits. */
Test(gradient_library, memory_of_a_trainer_does_not_grow_with_logits_beyond_a_tile) {
    const library l = open_library(&plain, true);
    const size_t tile = l.trainer_size(256), call = l.trainer_size(512);
    cr_assert_leq(call - tile, 256 * 4096, "%zu and %zu", tile, call);
    dlclose(l.handle);
}

/* ---- the contract ---------------------------------------------------------------------------- */
Test(gradient_library, a_call_is_repeated_to_the_bit_and_wrong_ones_are_rejected) {
    const library l = open_library(&few, false);
    static const int threads[] = {1, 2, 16};
    static const int64_t lengths[] = {1, 150, 149}, one = 1;
    trainer first = open_trainer(&l, LONGEST, 1);
    call c = a_call(SMALL);
    cr_assert_eq(make(&first, &c, lengths, 3), 0);
    for (int i = 0; i < 3; i++) {
        trainer x = open_trainer(&l, LONGEST, threads[i]);
        call again = a_call(SMALL);
        cr_assert_eq(make(&x, &again, lengths, 3), 0);
        cr_assert(again.sum == c.sum && same_bits(&first, &x), "%d threads", threads[i]);
        close_trainer(&x);
    }
    trainer x = open_trainer(&l, LONGEST, 2);
    call none = a_call(SMALL);
    for (int i = 0; i < LONGEST; i++)
        none.targets[i] = -1;
    cr_assert_eq(make(&x, &none, lengths, 3), 0);
    cr_assert(none.sum == 0 && none.count == 0);
    for (size_t i = 0; i < x.n; i++)
        for (size_t k = 0; k < x.p[i].elements; k++)
            cr_assert_eq(x.p[i].gradient[k], 0, "%s", x.p[i].name);
    call single = a_call(SMALL);
    cr_assert_eq(make(&x, &single, &one, 1), 0);
    cr_assert(single.count == 1 && single.sum > 0);

    call bad = a_call(SMALL);
    bad.tokens[0] = SMALL;
    cr_assert_eq(make(&x, &bad, &one, 1), HRT_TOKEN);
    bad = a_call(SMALL), x.p[2].values[7] = (float)NAN;
    cr_assert_eq(make(&x, &bad, &one, 1), HRT_FINITE);
    cr_assert(strstr(l.trainer_message(x.t), "element 7 of parameter up") != NULL, "%s",
              l.trainer_message(x.t));
    cr_assert(bad.sum == -1 && bad.count == -1);
    void *t = &x;
    cr_assert_eq(l.trainer_init(x.memory, l.trainer_size(LONGEST) - 1, LONGEST, &t), HRT_SIZE);
    cr_assert_null(t);
    close_trainer(&first), close_trainer(&x);
    dlclose(l.handle);
}
