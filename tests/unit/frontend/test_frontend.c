/* The model language: programs that are accepted, with the IR they leave; programs that are
 * refused, with what is said; limits; and places in the IR.
 *
 * tests/frontend/accept/NAME.hadal with NAME.hir, tests/frontend/errors/NAME.hadal with NAME.err.
 * A first line `#! -D name=value` (there may be more) sets a parameter. HADAL_UPDATE=1 in the
 * environment writes the expectations instead of comparing. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/frontend.h"
#include "support/file.h"
#include "tests/tools/full.h"

static const char std_dir[] = "../../../frontend/std"; /* from the folders of the programs */

typedef struct fixture {
    hd_arena *a;
    hd_diags d;
    hfe_options options;
    hfe_define defines[16];
} fixture;

static void set_up(fixture *f) {
    memset(f, 0, sizeof *f);
    f->a = hd_arena_new();
    hd_diags_init(&f->d, f->a);
    f->options.std_dir = TEST_DATA "/../frontend/std";
    f->options.defines = f->defines;
}

static char *rendered(fixture *f) {
    hd_text out;
    hd_text_init(&out, f->a);
    hd_text_add(&out, "");
    for (size_t i = 0; i < f->d.list.n; i++)
        hd_diag_render(&f->d.list.at[i], false, &out);
    if (f->d.errors > 20) hd_text_f(&out, "%zu errors\n", f->d.errors);
    return out.at ? out.at : "";
}

static char *ir_text(fixture *f, const hir_module *m, bool locations) {
    hd_text out;
    hd_text_init(&out, f->a);
    hir_print(m, (hir_print_options){.locations = locations}, &out);
    return out.at;
}

static hir_module *load_text(fixture *f, const char *text) {
    return hfe_load_spec_text(f->a, &f->d, "t.hadal", text, &f->options);
}

/* ---- programs in files --------------------------------------------------------------------- */
static void read_defines(fixture *f, const char *text) {
    while (strncmp(text, "#! -D ", 6) == 0) {
        size_t n = strcspn(text, "\n");
        char *line = hd_strndup(f->a, text + 6, n - 6);
        char *value = strchr(line, '=');
        *value = 0;
        f->defines[f->options.n_defines++] = (hfe_define){line, value + 1};
        text += n + 1;
    }
}

/* Everything that loading a program leaves: diagnostics, then the IR. */
static char *outcome(fixture *f, const char *path) {
    hd_text out;
    size_t n;
    char *text = hd_read_text(f->a, &f->d, path, 1 << 20, &n);
    cr_assert(text, "%s", path);
    read_defines(f, text);
    f->options.std_dir = std_dir;
    hir_module *m = hfe_load_spec(f->a, &f->d, path, &f->options);
    cr_expect_eq(m == NULL, hd_diags_failed(&f->d), "%s: a module or errors", path);
    hd_text_init(&out, f->a);
    hd_text_add(&out, rendered(f));
    if (m) hd_text_add(&out, ir_text(f, m, false));
    return out.at;
}

static void compare(const char *path, const char *expected_path, const char *suffix) {
    fixture f;
    set_up(&f);
    char *got = outcome(&f, path);
    bool rejected = hd_diags_failed(&f.d);
    cr_expect_eq(rejected, strcmp(suffix, ".err") == 0, "%s is %s:\n%s", path,
                 rejected ? "refused" : "accepted", got);
    if (getenv("HADAL_UPDATE")) {
        FILE *out = fopen(expected_path, "w");
        cr_assert(out);
        fputs(got, out);
        fclose(out);
    } else {
        size_t n;
        hd_diags d;
        hd_diags_init(&d, f.a);
        char *expected = hd_read_text(f.a, &d, expected_path, 1 << 20, &n);
        cr_expect(expected, "%s is missing", expected_path);
        if (expected)
            cr_expect_str_eq(got, expected, "%s: expected\n%s\ngot\n%s", path, expected, got);
    }
    hd_arena_free(f.a);
}

/* Every NAME.hadal of a folder that says `suffix`; those without expectation are used by others. */
static int compare_folder(const char *folder, const char *suffix) {
    int count = 0;
    cr_assert_eq(chdir(folder), 0, "%s", folder);
    DIR *dir = opendir(".");
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".hadal") != 0 || strstr(entry->d_name, "_used")) continue;
        char expected[300];
        snprintf(expected, sizeof expected, "%.*s%s", (int)(dot - entry->d_name), entry->d_name,
                 suffix);
        compare(entry->d_name, expected, suffix);
        count++;
    }
    closedir(dir);
    return count;
}

Test(frontend, accepts) {
    cr_assert_geq(compare_folder(TEST_DATA "/frontend/accept", ".hir"), 14);
}

Test(frontend, rejects) {
    cr_assert_geq(compare_folder(TEST_DATA "/frontend/errors", ".err"), 50);
}

/* ---- places -------------------------------------------------------------------------------- */
Test(frontend, ops_carry_the_place_in_the_spec) {
    fixture f;
    set_up(&f);
    hir_module *m = load_text(&f, "use \"layers\"\n"
                                  "model m() {\n"
                                  "    x = embed(\"embed\", 16, 8)\n"
                                  "    output logits = head(swiglu(x, 12), 16)\n"
                                  "}\n");
    cr_assert(m, "%s", rendered(&f));
    int gathers = 0, linears = 0;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        cr_expect_str_eq(o->loc->file, "t.hadal");
        if (o->code == HIR_GATHER_OP) {
            gathers++;
            cr_expect_eq(o->loc->line, 3);
            cr_expect_eq(o->loc->column, 9);
        }
        if (o->code == HIR_LINEAR_OP && ++linears < 4) {
            cr_expect_eq(o->loc->line, 4);
            cr_expect_eq(o->loc->column, 26, "the call of swiglu, not that of head");
        }
    }
    cr_expect_eq(gathers, 1);
    cr_expect_eq(linears, 4);
    hd_arena_free(f.a);
}

Test(frontend, ops_of_a_function_in_the_spec_stand_in_it) {
    fixture f;
    set_up(&f);
    hir_module *m = load_text(&f, "fn double(x) {\n"
                                  "    return x + x\n"
                                  "}\n"
                                  "model m() (x: f32[T, 4]) {\n"
                                  "    output y = double(x)\n"
                                  "}\n");
    cr_assert(m, "%s", rendered(&f));
    cr_expect_eq(hir_op_at(m, m->first)->loc->line, 2);
    cr_expect_eq(hir_op_at(m, m->first)->loc->column, 12);
    hd_arena_free(f.a);
}

/* ---- the module ---------------------------------------------------------------------------- */
Test(frontend, module_has_its_name_and_parameters) {
    fixture f;
    set_up(&f);
    f.options.name = "other";
    f.defines[f.options.n_defines++] = (hfe_define){"n", "5"};
    hir_module *m = load_text(&f, "model m(n = 4, eps = 1e-6) { output y = const(eps, [n]) }");
    cr_assert(m, "%s", rendered(&f));
    cr_expect_str_eq(m->name, "other");
    cr_assert_eq(m->options.n, 2);
    cr_expect_str_eq(m->options.at[0].key, "n");
    cr_expect_str_eq(m->options.at[0].value, "5");
    cr_expect_str_eq(m->options.at[1].value, "1e-06");
    cr_expect_eq(m->stage, HIR_STAGE_GRAPH);
    hd_arena_free(f.a);
}

Test(frontend, module_name_must_be_an_identifier) {
    fixture f;
    set_up(&f);
    f.options.name = "my-model";
    cr_expect_null(load_text(&f, "model m() { output y = const(1.0, [1]) }"));
    cr_expect_str_eq(f.d.list.at[0].message, "'my-model' cannot be the name of a module");
    hd_arena_free(f.a);
}

Test(frontend, options_may_be_absent) {
    fixture f;
    set_up(&f);
    cr_expect(
        hfe_load_spec_text(f.a, &f.d, "t.hadal", "model m() { output y = const(1.0, [1]) }", NULL));
    cr_expect_null(hfe_load_spec_text(f.a, &f.d, "t.hadal", "use \"layers\"\n", NULL));
    hd_arena_free(f.a);
}

/* ---- files --------------------------------------------------------------------------------- */
static void write_text(const char *dir, const char *name, const char *text) {
    char path[500];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "w");
    cr_assert(out, "%s", path);
    fputs(text, out);
    fclose(out);
}

Test(frontend, use_looks_beside_the_file_then_in_include_folders_then_in_std) {
    fixture f;
    set_up(&f);
    char dir[] = "/tmp/hadal-use-XXXXXX", include[] = "/tmp/hadal-use-XXXXXX", path[500];
    cr_assert(mkdtemp(dir) && mkdtemp(include));
    const char *includes[] = {include};
    f.options.include_dirs = includes;
    f.options.n_include_dirs = 1;
    write_text(dir, "m.hadal",
               "use \"a\"\nuse \"b.hadal\"\nuse \"layers\"\n"
               "model m() { output y = tied_head(const(a() + b(), [1]), 1) }");
    write_text(dir, "a.hadal", "fn a() { return 1 }");
    write_text(include, "a.hadal", "fn a() { return 2 }");
    write_text(include, "b.hadal", "fn b() { return 4 }");
    snprintf(path, sizeof path, "%s/m.hadal", dir);
    hir_module *m = hfe_load_spec(f.a, &f.d, path, &f.options);
    cr_assert(m, "%s", rendered(&f));
    cr_expect(strstr(ir_text(&f, m, false), "value = 5"), "%s", ir_text(&f, m, false));
    hd_arena_free(f.a);
}

Test(frontend, a_model_may_have_the_name_of_a_function_that_it_uses) {
    fixture f;
    set_up(&f);
    hir_module *m = load_text(&f, "use \"layers\"\n"
                                  "model swiglu() { output y = swiglu(embed(\"e\", 16, 8), 16) }");
    cr_assert(m, "%s", rendered(&f));
    cr_expect_str_eq(m->name, "swiglu");
    cr_expect_null(load_text(&f, "model swiglu() { output y = swiglu(const(1.0, [4]), 16) }"));
    cr_expect(strstr(rendered(&f), "use \"layers\""), "%s", rendered(&f));
    f.d.list.n = f.d.errors = 0;
    f.options.std_dir = NULL;
    cr_expect_null(load_text(&f, "model swiglu() { output y = swiglu(const(1.0, [4]), 16) }"));
    cr_expect_null(strstr(rendered(&f), "did you mean 'swiglu'"), "%s", rendered(&f));
    hd_arena_free(f.a);
}

Test(frontend, files_that_cannot_be_read) {
    fixture f;
    set_up(&f);
    cr_expect_null(hfe_load_spec(f.a, &f.d, "/no/such/file.hadal", &f.options));
    cr_expect_eq(hd_diags_first(&f.d), HD_E_IO, "%s", rendered(&f));
    cr_expect_null(hfe_load_spec(f.a, &f.d, "/tmp", &f.options));
    cr_expect_geq(f.d.errors, 2);
    hd_arena_free(f.a);
}

Test(frontend, a_page_may_build_on_the_library_page_of_its_name) {
    fixture f;
    set_up(&f);
    char dir[] = "/tmp/hadal-use-XXXXXX", path[500];
    cr_assert(mkdtemp(dir));
    write_text(dir, "m.hadal", "use \"layers\"\nmodel m() { output y = twice(const(1.0, [4])) }");
    write_text(dir, "layers.hadal",
               "use \"layers\"\nfn twice(x) { return linear(linear(x, \"a\", 4), \"b\", 4) }");
    snprintf(path, sizeof path, "%s/m.hadal", dir);
    cr_expect(hfe_load_spec(f.a, &f.d, path, &f.options), "%s", rendered(&f));
    hd_arena_free(f.a);
}

/* Memory may run out anywhere: control comes back to the guard, and the arena can be freed. */
static bool load_with_failing_allocation(size_t n) {
    fixture f;
    jmp_buf here;
    set_up(&f);
    hd_arena_guard(f.a, &here);
    bool failed = setjmp(here) != 0;
    if (!failed) {
        hd_arena_fail_after(f.a, n);
        load_text(&f, "use \"layers\"\nmodel m() {\n"
                      "x = attention(embed(\"e\", 16, 8), 2)\n"
                      "output y = swigluu(x, \"{1}\") }");
    }
    hd_arena_free(f.a);
    return failed;
}

Test(frontend, memory_runs_out) {
    size_t n = 1;
    while (load_with_failing_allocation(n)) {
        n += 1 + n / 50;
    }
    cr_expect_gt(n, 500);
}

/* ---- limits -------------------------------------------------------------------------------- */
static void expect_rejected(const char *text, hd_error code, const char *part) {
    fixture f;
    set_up(&f);
    cr_expect_null(load_text(&f, text));
    cr_expect_eq(hd_diags_first(&f.d), code, "%s", rendered(&f));
    cr_expect(strstr(rendered(&f), part), "expected '%s' in\n%s", part, rendered(&f));
    hd_arena_free(f.a);
}

static char *repeat(const char *before, const char *piece, size_t n, const char *after) {
    char *text = malloc(strlen(before) + n * strlen(piece) + strlen(after) + 1), *at = text;
    cr_assert(text);
    at += sprintf(at, "%s", before);
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s", piece);
    sprintf(at, "%s", after);
    return text;
}

Test(frontend, limits_of_the_text) {
    static const char *const pieces[][3] = {
        {"model m() { x = ", "(", "1"},
        {"model m() { x = ", "-", "1 }"},
        {"model m() { x = ", "not ", "1 }"},
        {"model m() { x = 1", "+ 1", " }"},
        {"model m() { x = f", "()", " }"},
        {"model m() { x = f", ".y", " }"},
        {"model m() { x = ", "[", " }"},
        {"model m() { ", "if true { ", "} }"},
        {"model m() { ", "if true { } else ", "{ } }"},
        {"model m() { x = ", "if true { 1 } else ", "{ 2 } }"},
        {"model m() { x = ", "if ", "{ 2 } }"},
        {"model m() { ", "for i in [] { ", "} }"},
        {"model m() { x = \"{", "(", "1}\" }"},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char *text = repeat(pieces[i][0], pieces[i][1], 50000, pieces[i][2]);
        expect_rejected(text, HD_E_LIMIT, "nests too deeply");
        free(text);
    }
    char *text = repeat("# ", "x", 1 << 20, "\n");
    expect_rejected(text, HD_E_LIMIT, "is too long");
    free(text);
}

Test(frontend, limits_of_the_program) {
    expect_rejected("fn f(x) { return f(f(x)) }\nmodel m() { f(1) }", HD_E_LIMIT, "calls are open");
    expect_rejected("object a() { b = a() }\nmodel m() { a() }", HD_E_LIMIT, "calls are open");
    expect_rejected("fn f(a = f()) { return a }\nmodel m() { f() }", HD_E_LIMIT, "calls are open");
    expect_rejected("model m() { for i in 0..9223372036854775807 { } }", HD_E_LIMIT, "too long");
    expect_rejected("model m() { for i in -9223372036854775807..9223372036854775807 { } }",
                    HD_E_LIMIT, "too long");
    expect_rejected("model m() { x = const(1.0, [1]) for i in 0..1 { } }", HD_E_SYNTAX, "expected");
    expect_rejected("model m() { x = const(1.0, [1])\nfor i in 0..4000000 { x = x + x } }",
                    HD_E_LIMIT, "the graph grows too large");
    expect_rejected("model m() { xs = [const(1.0, [1]) for i in 0..10000]\n"
                    "for i in 0..10000 { y = stack(xs, axis: 0) } }",
                    HD_E_LIMIT, "the graph grows too large");
    expect_rejected("model m() { for i in 0..4000000 { weight(\"w{i}\", [1]) } }", HD_E_LIMIT,
                    "weights and states");
    expect_rejected("model m() { for i in 0..4000 { x = 0..1000000 } }", HD_E_LIMIT,
                    "lists grow too long");
    expect_rejected("fn f(n) { at \"scope{n}\" { f(n + 1) } }\nmodel m() { f(0) }", HD_E_LIMIT,
                    "calls are open");
}

Test(frontend, text_that_is_not_a_program) {
    expect_rejected("", HD_E_NAME, "no model");
    expect_rejected("\n\n# nothing\n", HD_E_NAME, "no model");
    expect_rejected("\x01\x02\xff\xfe", HD_E_SYNTAX, "unexpected");
    expect_rejected("}}}}}}}}", HD_E_SYNTAX, "expected a definition");
    expect_rejected("model", HD_E_SYNTAX, "expected a name");
    expect_rejected("model m", HD_E_SYNTAX, "expected '('");
    expect_rejected("model m(", HD_E_SYNTAX, "expected");
    expect_rejected("model m(a = ", HD_E_SYNTAX, "expected a value");
    expect_rejected("model m() {", HD_E_SYNTAX, "expected '}'");
    expect_rejected("model m() { x = \"", HD_E_SYNTAX, "no end");
    expect_rejected("model m() { x = \"\\", HD_E_SYNTAX, "no end");
    expect_rejected("model m() { x = \"{", HD_E_SYNTAX, "no end");
    expect_rejected("use", HD_E_SYNTAX, "expected a string");
}

Test(frontend, deep_expressions_in_deep_calls) {
    char *sums = repeat("fn f(x) { return ", "(1 + ", 90, "f(x)"),
         *text = repeat(sums, ")", 90, " }\nmodel m() { f(1) }");
    expect_rejected(text, HD_E_LIMIT, "the evaluation nests too deeply");
    free(sums);
    free(text);
}

/* Every prefix of a program, and the program with every byte changed, end with an answer. */
Test(frontend, damaged_programs) {
    static const char program[] =
        "use \"layers\"\nobject o(x) { h = x\n fn write(y) { h = h + y } }\n"
        "fn f(a, b = [1, 2.5e-1]) { for i, v in b { if v > 1 { a = a * v } else { a = -a } }\n"
        "return a }\n"
        "model m(n = 2) { r = o(embed(\"e{n}\", 16, 8)); at \"s\" { r.write(f(r.h)) }\n"
        "output y = r.h }\n";
    static const char bytes[] = "(){}[]\"\n.,=+x1 #:";
    char text[sizeof program];
    for (size_t i = 0; i < sizeof program; i++) {
        fixture f;
        set_up(&f);
        memcpy(text, program, i);
        text[i] = 0;
        load_text(&f, text);
        hd_arena_free(f.a);
    }
    for (size_t i = 0; i + 1 < sizeof program; i++) {
        for (size_t k = 0; k + 1 < sizeof bytes; k++) {
            if (!has_turn(i + k, 3)) continue;
            fixture f;
            set_up(&f);
            memcpy(text, program, sizeof program);
            text[i] = bytes[k];
            hir_module *m = load_text(&f, text);
            cr_expect_eq(m == NULL, hd_diags_failed(&f.d), "%s", text);
            hd_arena_free(f.a);
        }
    }
}
