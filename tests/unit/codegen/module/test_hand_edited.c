/* Dumps edited by hand, at every stage, all the way to an object: an edit is either legal, and code
 * comes out, or refused with an error at its place. Nothing may crash, and no edit may be called a
 * defect of the compiler.
 *
 * Each edit changes one line of a good dump. Edits are enumerated, not drawn, and each test takes
 * every n-th of them; the full set four times as many. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "hadal/hadal.h"
#include "passes/pass.h"
#include "tests/tools/full.h"

TestSuite(hand_edited, .timeout = 240);

static hd_arena *arena;
static char object[] = "/tmp/hadal-edited-XXXXXX";

/* ---- one text, all the way ------------------------------------------------------------------- */
typedef enum outcome { NOT_PARSED, REFUSED, COMPILED, OUTCOMES } outcome;

static void errors_are_good(const hd_diags *d, const char *text, bool located) {
    cr_assert_gt(d->errors, 0, "failed without an error:\n%s", text);
    for (size_t i = 0; i < d->list.n; i++) {
        const hd_diag *e = &d->list.at[i];
        if (e->severity != HD_ERROR) continue;
        hd_text said;
        hd_text_init(&said, arena);
        hd_diag_render(e, false, &said);
        cr_expect(e->code != HD_E_INTERNAL && e->code != HD_E_PASS, "%s\n%s", said.at, text);
        cr_expect(!located || (e->loc.file && e->loc.line), "no place: %s\n%s", said.at, text);
    }
}

/* The passes of the default pipeline behind the one that made the dump. */
static bool finish(hir_module *m, int done, hd_diags *d) {
    const hir_pass_id *passes = hir_pipeline();
    size_t n = 0;
    while (passes[n] != HIR_PASS_COUNT)
        n++;
    const hir_compile_options options = {.matrix_dtype = HIR_F32, .chunk = 512};
    const hir_run run = {.passes = passes + done,
                         .n_passes = n - (size_t)done,
                         .stop_after = HIR_PASS_COUNT,
                         .verify = true};
    return hir_run_passes(m, &run, &options, NULL, d);
}

static outcome compile(const char *text, int done, bool emit) {
    hd_arena *a = hd_arena_new();
    hd_arena *outer = arena;
    arena = a;
    hd_diags d;
    hd_diags_init(&d, a);
    outcome result = NOT_PARSED;
    hir_module *m = hir_parse(a, &d, "edit.hir", text);
    if (!m) {
        errors_are_good(&d, text, true);
    } else if (!finish(m, done, &d)) {
        result = REFUSED;
        errors_are_good(&d, text, false); /* ops that passes make have no place in the text */
    } else {
        const hcg_options o = {.cpu = "baseline", .threads = 1};
        hcg_program *p = hcg_lower(a, &d, m, &o);
        const bool last = hir_pipeline()[done] == HIR_PASS_COUNT;
        result = p && (!emit || hcg_emit_code(p, &d, HCG_CODE_OBJECT, object)) ? COMPILED : REFUSED;
        if (result == REFUSED) errors_are_good(&d, text, last);
    }
    hd_arena_free(a);
    arena = outer;
    return result;
}

/* ---- edits ----------------------------------------------------------------------------------- */
typedef struct line {
    size_t start, end; /* end: behind the newline */
} line;

/* The first `from` of the line becomes `to`; a `from` that ends in '#' takes the digits behind it
 * as well. */
static const struct {
    const char *from, *to;
} swaps[] = {
    {"f32[T, ", "f32[T, 1"},
    {"f32[T, ", "f32["},
    {"f32[T", "f32[C"},
    {"f32[C", "f32[T"},
    {"f32[", "bf16["},
    {"f32[", "i32["},
    {"f32[T, #", "f32[T, 2147483647"},
    {"[#", "[1"},
    {" panel", ""},
    {" panel", " unused"},
    {"]\n", "] panel\n"},
    {" in arena[#]", ""},
    {"arena[#", "arena[0"},
    {"arena[#", "arena[2"},
    {"arena[#", "arena[64"},
    {"arena[#", "arena[18446744073709551612"},
    {"arena[", "fixed["},
    {"arena[", "state["},
    {"arena[", "output["},
    {"state[#", "state[99"},
    {"state[#", "state[0"},
    {"state[", "arena["},
    {"output[#", "output[1"},
    {"output[", "arena["},
    {"input[#", "input[1"},
    {"arena # per", "arena 0 per"},
    {"arena # per", "arena 18446744073709551615 per"},
    {"kernel.row", "kernel.contract"},
    {"kernel.row", "kernel.sequence"},
    {"kernel.contract", "kernel.row"},
    {"kernel.contract", "kernel.sequence"},
    {"kernel.sequence", "kernel.row"},
    {"kernel.sequence", "kernel.contract"},
    {"\"all\"", "\"last\""},
    {"\"last\"", "\"all\""},
    {"\"last\"", "\"first\""},
    {"split_prefill = \"rows\"", "split_prefill = \"cols\""},
    {"split_prefill = \"cols\"", "split_prefill = \"rows\""},
    {"split_prefill = \"cyclic\"", "split_prefill = \"none\""},
    {"grain = #", "grain = 0"},
    {"grain = #", "grain = 9223372036854775807"},
    {"name = \"", "name = \"1 ; \\x01"},
    {"axis = #", "axis = 0"},
    {"axis = #", "axis = 99"},
    {"axis = #", "axis = -1"},
    {"start = #", "start = 2147483647"},
    {"length = #", "length = 0"},
    {"length = #", "length = 3"},
    {"shape = [", "shape = [1, "},
    {"shape = [T", "shape = [7"},
    {"value = #", "value = nan"},
    {"eps = #", "eps = -1"},
    {"scale = #", "scale = inf"},
    {"heads = #", "heads = 0"},
    {"theta = #", "theta = 0"},
    {"linear", "attention"},
    {"attention", "linear"},
    {"add", "linear"},
    {"mul", "gather"},
    {"reshape", "cache_append"},
    {"rope ", "rope_table "},
    {"cache_append", "reshape"},
    {"yield", "output"},
    {"yield %#", "yield %0"},
    {"yield %#, ", "yield "},
    {"yield ", "yield %0, "},
    {"%#,", "%0,"},
    {"%#,", "%99999,"},
    {"%#,", "@lm_head.weight,"},
    {"%#,", "_,"},
    {"= linear %#", "= linear %1"},
    {"= add %#", "= add %3"},
    {", @", ", %0, @"},
    {"@model", "$model"},
    {"$model", "@model"},
    {"$model.layers.0", "$model.layers.1"},
    {"{\n", "\n"},
    {"}\n", "\n"},
    {", _ :", " :"},
    {"kernel @", "graph @"},
    {"graph @", "kernel @"},
    {"depth @", "graph @"},
};
enum { DELETE = sizeof swaps / sizeof *swaps, DOUBLE, COLLECTIVE, EMPTY_BODY, EDITS };

static const char *find(const char *from, const char *to, const char *what, size_t *taken) {
    const size_t n = strlen(what);
    for (const char *c = from; c < to; c++) {
        const char *at = c;
        size_t i = 0;
        for (; i < n && at < to; i++) {
            if (what[i] != '#') {
                if (*at != what[i]) break;
                at++;
                continue;
            }
            const char *digits = at;
            while (at < to && strchr("0123456789.e-+", *at) && *at)
                at++;
            if (at == digits) break;
        }
        if (i < n) continue;
        *taken = (size_t)(at - c);
        return c;
    }
    return NULL;
}

/* The text with one line edited, or NULL where the edit does not apply. */
static const char *edited(hd_arena *a, const char *text, line l, int edit) {
    const char *at = text + l.start, *end = text + l.end;
    const int before = (int)l.start, length = (int)(l.end - l.start);
    if (edit == DELETE) return hd_printf(a, "%.*s%s", before, text, end);
    if (edit == DOUBLE) return hd_printf(a, "%.*s%.*s%s", before, text, length, at, at);
    const char *next = strchr(end, '\n');
    if (edit == COLLECTIVE)
        return next ? hd_printf(a, "%.*s%.*s%.*s%s", before, text, (int)(next + 1 - end), end,
                                length, at, next + 1)
                    : NULL;
    if (edit == EMPTY_BODY) {
        const char *close = strstr(end, "\n  }\n");
        return close && length > 3 && !strncmp(end - 2, "{", 1)
                   ? hd_printf(a, "%.*s%s", (int)l.end, text, close + 1)
                   : NULL;
    }
    size_t taken;
    const char *found = find(at, end, swaps[edit].from, &taken);
    if (!found) return NULL;
    return hd_printf(a, "%.*s%s%s", (int)(found - text), text, swaps[edit].to, found + taken);
}

/* ---- all edits of a dump --------------------------------------------------------------------- */
typedef struct tally {
    size_t of[OUTCOMES], all;
} tally;

/* Every `step`-th edit; of those that compile every `emit`-th is compiled to the end. */
static tally edit_all(const char *text, int done, size_t step, size_t emit) {
    tally t = {.all = 0};
    size_t number = 0;
    for (size_t start = 0; text[start];) {
        const char *newline = strchr(text + start, '\n');
        const line l = {start, (size_t)(newline - text) + 1};
        for (int e = 0; e < EDITS; e++) {
            hd_arena *a = hd_arena_new();
            const char *changed = edited(a, text, l, e);
            if (changed && number++ % step == 0) {
                t.of[compile(changed, done, t.of[COMPILED] % emit == 0)]++;
                t.all++;
            }
            hd_arena_free(a);
        }
        start = l.end;
    }
    return t;
}

/* A small model at the stage behind `stop`. */
static const char *dump_after(const char *stop, int *done) {
    hadal_session *s = hadal_open();
    const char *const sizes[][2] = {
        {"layers", "2"}, {"hidden", "32"}, {"heads", "2"}, {"ff", "48"}, {"vocab", "40"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        hadal_define(s, sizes[i][0], sizes[i][1]);
    hadal_include_path(s, HADAL_SOURCE "/frontend/std");
    const hadal_pipeline p = {.struct_size = sizeof p, .stop_after = stop};
    cr_assert_eq(hadal_load(s, HADAL_SOURCE "/examples/tiny/tiny.hadal", NULL), 0, "%s",
                 hadal_diagnostic_text(s, 0, 0));
    cr_assert_eq(hadal_run_passes(s, &p), 0);
    const char *text = hd_strdup(arena, hadal_ir_text(s, 0));
    hadal_close(s);
    const hir_pass_id *passes = hir_pipeline();
    *done = 0;
    while (strcmp(hir_pass(passes[*done])->name, stop) != 0)
        ++*done;
    ++*done;
    return text;
}

static void edit_stage(const char *stop, size_t step, size_t emit) {
    arena = hd_arena_new();
    strcpy(object + sizeof object - 7, "XXXXXX");
    const int file = mkstemp(object);
    cr_assert_geq(file, 0);
    close(file);
    int done;
    const char *text = dump_after(stop, &done);
    cr_assert_eq(compile(text, done, true), COMPILED, "%s", text);
    const tally t = edit_all(text, done, full_set() ? step : 4 * step, emit);
    remove(object);
    /* the edits reach everywhere: into the parser, behind it, and through */
    cr_expect_gt(t.all, full_set() ? 200 : 50);
    cr_expect_gt(t.of[NOT_PARSED], t.all / 10, "%zu of %zu", t.of[NOT_PARSED], t.all);
    cr_expect_gt(t.of[COMPILED], t.all / 100, "%zu of %zu", t.of[COMPILED], t.all);
    hd_arena_free(arena);
}

Test(hand_edited, graph) {
    edit_stage("lower-traces", 1, 20);
}

Test(hand_edited, depth) {
    edit_stage("split-merge", 1, 20);
}

Test(hand_edited, fused) {
    edit_stage("fuse", 3, 20);
}

Test(hand_edited, expanded) {
    edit_stage("expand", 7, 20);
}

Test(hand_edited, planned) {
    edit_stage("plan-memory", 3, 8);
}
