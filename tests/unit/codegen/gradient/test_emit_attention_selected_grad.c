/* Gradients of attention over rows that a list names, against the evaluator at every CPU level of
 * this machine: lists of positions and of entries, all entries, with a window beside them, lists
 * that end early or at once, one list for all heads or one for each, k and v in one cache or two,
 * sinks, a soft cap.
 *
 * The tolerance is that of test_emit_attention_grad.c. */
#include "tests/unit/codegen/gradient/gradient_harness.h"

typedef struct shape {
    int64_t t, heads, groups, n, m;
    int64_t rate;        /* of entries; 0: none */
    int64_t lists, most; /* 0: no list */
    int64_t window;
    bool same; /* k and v are one cache */
    enum { NO_SINK, SINK_BY_HEAD, SINK_BY_TOKEN } sink;
    double softcap;
} shape;

enum { LIST = 4 }; /* number of the input */

static void put_gradient(hd_text *text, const shape *s, const char *of, const char *type) {
    hd_text_f(text,
              "    %%d%s = attention_selected_grad %%q, %%k, %%%s, %s, %s, %s, %%dy {scale = 0.4",
              of, s->same ? "k" : "v", s->most ? "%list" : "_", s->sink ? "%sink" : "_",
              s->rate ? "%e" : "_");
    if (s->window) hd_text_f(text, ", window = %ld", s->window);
    if (s->softcap > 0) hd_text_f(text, ", softcap = %g", s->softcap);
    hd_text_f(text, ", of = \"%s\"} : f32[%s]\n", of, type);
}

static const char *module_of(hd_arena *a, const shape *s) {
    const char *entries = hd_printf(a, "C/%ld", s->rate);
    const char *k = hd_printf(a, "%ld, %ld", s->groups, s->n);
    const char *v = hd_printf(a, "%ld, %ld", s->groups, s->m);
    const char *q = hd_printf(a, "T, %ld, %ld", s->heads, s->n);
    const char *sink = hd_printf(a, s->sink == SINK_BY_TOKEN ? "T, %ld" : "%ld", s->heads);
    hd_text text;
    hd_text_init(&text, a);
    hd_text_f(&text, "hir 1 kernel @s\nstate $k : f32[C, %s]\nstate $v : f32[C, %s]\n", k, v);
    if (s->rate) hd_text_f(&text, "state $e : f32[%s, %s]\n", entries, k);
    hd_text_f(&text,
              "func(%%q: f32[%s], %%xk: f32[T, %s], %%xv: f32[T, %s], %%xe: f32[T, %s], "
              "%%list: i32[T, %ld, %ld], %%sink: f32[%s], %%dy: f32[T, %ld, %ld]) {\n",
              q, k, v, k, s->most ? s->lists : 1, s->most ? s->most : 1, sink, s->heads, s->m);
    gradient_put_cache(&text, "k", hd_printf(a, "C, %s", k));
    if (!s->same) gradient_put_cache(&text, "v", hd_printf(a, "C, %s", v));
    if (s->rate) gradient_put_cache(&text, "e", hd_printf(a, "%s, %s", entries, k));
    hd_text_f(&text, "  %%1, %%2, %%3%s%s = " GRADIENT_KERNEL " : f32[%s], f32[T, %s], f32[T, %s]",
              s->rate ? ", %4" : "", s->sink ? ", %5" : "", q, k, v);
    if (s->rate) hd_text_f(&text, ", f32[T, %s]", k);
    if (s->sink) hd_text_f(&text, ", f32[%s]", sink);
    hd_text_f(&text, " {\n");
    put_gradient(&text, s, "q", q);
    put_gradient(&text, s, "k", hd_printf(a, "C, %s", k));
    put_gradient(&text, s, "v", hd_printf(a, "C, %s", v));
    if (s->rate) put_gradient(&text, s, "entries", hd_printf(a, "%s, %s", entries, k));
    if (s->sink) put_gradient(&text, s, "sink", sink);
    hd_text_f(&text, "    %%rk = cache_rows %%dk : f32[T, %s]\n", k);
    hd_text_f(&text, "    %%rv = cache_rows %%dv : f32[T, %s]\n", v);
    if (s->rate) hd_text_f(&text, "    %%re = cache_rows %%dentries : f32[T, %s]\n", k);
    hd_text_f(&text, "    yield %%dq, %%rk, %%rv%s%s\n  }\n", s->rate ? ", %re" : "",
              s->sink ? ", %dsink" : "");
    hd_text_f(&text, "  output %%1 {name = \"q\"}\n  output %%2 {name = \"k\"}\n"
                     "  output %%3 {name = \"v\"}\n");
    if (s->rate) hd_text_f(&text, "  output %%4 {name = \"e\"}\n");
    if (s->sink)
        hd_text_f(&text, "  output %%5 {name = \"%s\"}\n",
                  s->sink == SINK_BY_HEAD ? "grad.sink" : "sink");
    hd_text_f(&text, "}\n");
    return text.at;
}

/* Lists of rows that tokens see, each row once, in no order; some end before they are full, and
 * some at once: with -1 or with a row that is not seen. */
static void fill_lists(gradient_problem *p, const shape *s) {
    for (int64_t at = 0; at < s->t * s->lists; at++) {
        const int64_t rows = (at / s->lists + 1) / (s->rate ? s->rate : 1);
        const int64_t full = rows < s->most ? rows : s->most;
        const int64_t n = at % 5 == 4 ? random_below(&p->seed, full + 1) : full;
        const int64_t step = rows % 7 ? 7 : 1; /* prime to it */
        int32_t list[256];
        for (int64_t i = 0; i < s->most; i++)
            list[i] = i < n ? (int32_t)((at + i * step) % rows) : i % 2 ? -1 : (int32_t)rows;
        memcpy(p->in[LIST] + at * s->most, list, (size_t)s->most * 4);
    }
}

static void check(shape s) {
    static uint64_t seed;
    gradient_problem p;
    hd_arena *a = hd_arena_new();
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    gradient_open(&p, module_of(a, &s), s.t, 1, ++seed);
    if (s.most) fill_lists(&p, &s);
    gradient_evaluate(&p);
    for (size_t i = 0; i < n; i++)
        if (vectors_run(&levels[i]) && has_turn(levels[i].lanes / 8 + seed, 3))
            gradient_check_level(&p, &levels[i], 5e-6);
    gradient_close(&p);
    hd_arena_free(a);
}

Test(emit_attention_selected_grad, listed_positions) {
    check((shape){.t = 1, .heads = 2, .groups = 1, .n = 8, .m = 8, .lists = 1, .most = 1});
    shape s = {.t = 90, .heads = 6, .groups = 2, .n = 20, .m = 12, .lists = 2, .most = 13};
    check(s);
    s.lists = 1, s.most = 80, s.sink = SINK_BY_HEAD, s.softcap = 2;
    check(s);
    s.m = 20, s.same = true, s.sink = SINK_BY_TOKEN;
    check(s);
}

Test(emit_attention_selected_grad, all_entries) {
    shape s = {.t = 70, .heads = 20, .groups = 1, .n = 24, .m = 24, .rate = 4, .window = 9};
    check(s);
    s.sink = SINK_BY_HEAD, s.same = true;
    check(s);
    s.window = 0, s.groups = 2, s.rate = 16, s.softcap = 3;
    check(s);
    s.t = 3;
    check(s);
}

/* Rows in lanes (selected_few.c): of whole vectors and not, and of several chains of them. */
Test(emit_attention_selected_grad, few_heads_that_share_keys) {
    shape s = {.t = 70, .heads = 2, .groups = 2, .n = 150, .m = 70, .lists = 1, .most = 40};
    check(s);
    s = (shape){.t = 70, .heads = 3, .groups = 1, .n = 72, .m = 72, .rate = 4, .window = 9};
    s.sink = SINK_BY_HEAD, s.softcap = 2;
    check(s);
    s.t = 5, s.same = true, s.sink = SINK_BY_TOKEN, s.rate = 2;
    check(s);
}

Test(emit_attention_selected_grad, listed_entries) {
    shape s = {.t = 130, .heads = 4, .groups = 1, .n = 16, .m = 16, .rate = 2};
    s.lists = 1, s.most = 70, s.window = 1, s.same = true;
    check(s);
    s.window = 33, s.most = 5, s.sink = SINK_BY_TOKEN, s.groups = 2, s.lists = 2, s.same = false;
    check(s);
}
