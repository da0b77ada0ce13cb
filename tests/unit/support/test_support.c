/* Arena, text and diagnostics. */
#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <string.h>

#include "support/arena_rows.h"
#include "tests/unit/arena_fixture.h"

TestSuite(support, .init = open_arena, .fini = close_arena);

static const char *double_text(double value) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_double(&t, value);
    return t.at;
}

/* ---- arena --------------------------------------------------------------------------------- */
Test(support, memory_is_zeroed_aligned_and_apart) {
    unsigned char *items[500];
    for (size_t i = 0; i < 500; i++) {
        items[i] = hd_alloc(arena, i, 7);
        cr_assert_eq((uintptr_t)items[i] % 16, 0);
        for (size_t j = 0; j < i * 7; j++)
            cr_assert_eq(items[i][j], 0);
        memset(items[i], (int)i, i * 7);
    }
    for (size_t i = 0; i < 500; i++)
        for (size_t j = 0; j < i * 7; j++)
            cr_assert_eq(items[i][j], (unsigned char)i);
}

Test(support, rows_of_values_are_odd_and_apart) {
    for (uint64_t tokens = 1; tokens <= 2000; tokens++) {
        const uint64_t rows = hd_arena_rows(tokens), over = rows % HD_PAGE_LINES;
        cr_assert(rows >= tokens && rows % 2 == 1 && rows >= hd_arena_rows(tokens - 1));
        if (tokens < HD_FEW_ROWS)
            cr_assert_leq(rows - tokens, 1);
        else
            cr_assert(rows - tokens < 2 * HD_LINES_APART && over >= HD_LINES_APART &&
                      over <= HD_PAGE_LINES - HD_LINES_APART);
    }
}

Test(support, large_items_do_not_waste_the_open_chunk) {
    char *before = hd_alloc(arena, 1, 16);
    char *large = hd_alloc(arena, 1, 8 << 20);
    large[(8 << 20) - 1] = 1;
    char *after = hd_alloc(arena, 1, 16);
    cr_assert_lt(after - before, 1024);
}

static int exhausted_by(size_t n, size_t size) {
    jmp_buf here, *outer = hd_arena_guard(arena, &here);
    if (setjmp(here)) {
        hd_arena_guard(arena, outer);
        return 1;
    }
    hd_alloc(arena, n, size);
    hd_arena_guard(arena, outer);
    return 0;
}

Test(support, exhaustion_goes_to_the_guard) {
    cr_assert_eq(exhausted_by(SIZE_MAX / 2, 3), 1, "a product that overflows");
    cr_assert_eq(exhausted_by(SIZE_MAX - 4, 1), 1, "padding that overflows");
    cr_assert_eq(exhausted_by(SIZE_MAX / 4, 1), 1, "more than there is");
    cr_assert_eq(exhausted_by(100, 1), 0);
    hd_arena_fail_after(arena, 2);
    cr_assert_eq(exhausted_by(1, 1), 0);
    cr_assert_eq(exhausted_by(1, 1), 1);
    cr_assert_eq(exhausted_by(1, 1), 0, "the hook fires once");
}

/* Its memory is that of a while, its guard the owner's. */
static hd_arena **scratch;
static int exhausted_in_scratch(void) {
    jmp_buf here;
    jmp_buf *outer = hd_arena_guard(arena, &here);
    if (setjmp(here)) {
        hd_arena_guard(arena, outer);
        return 1;
    }
    scratch = hd_scratch_new(arena);
    hd_alloc(*scratch, SIZE_MAX / 4, 1);
    return 0;
}

Test(support, scratch_goes_to_the_guard_of_its_owner) {
    cr_assert_eq(exhausted_in_scratch(), 1);
    hd_scratch_free(scratch);
    cr_assert_null(*scratch, "the owner frees nothing twice");
    cr_assert_not_null(hd_new_array(*hd_scratch_new(arena), int, 100000), "the owner frees it");
}

static char calls[8];
static void note_call(void *what) {
    strcat(calls, what);
}

Test(support, deferred_calls_run_backwards) {
    hd_arena *a = hd_arena_new();
    hd_arena_defer(a, note_call, "a");
    hd_arena_defer(a, note_call, "b");
    hd_arena_free(a);
    hd_arena_free(NULL);
    cr_assert_str_eq(calls, "ba");
}

Test(support, vectors_grow) {
    HD_VEC(int) v = {0};
    for (int i = 0; i < 10000; i++)
        hd_push(arena, &v, i);
    cr_assert_eq(v.n, 10000);
    for (int i = 0; i < 10000; i++)
        cr_assert_eq(v.at[i], i);
}

Test(support, strings) {
    cr_assert_str_eq(hd_printf(arena, "%s-%d", "x", 3), "x-3");
    cr_assert_str_eq(hd_strndup(arena, "abcdef", 3), "abc");
    cr_assert_str_eq(hd_strndup(arena, "ab", 30), "ab");
}

/* ---- text ---------------------------------------------------------------------------------- */
Test(support, text_grows) {
    hd_text t;
    hd_text_init(&t, arena);
    for (int i = 0; i < 3000; i++)
        hd_text_f(&t, "%d,", i);
    hd_text_add(&t, "end");
    cr_assert_eq(t.n, strlen(t.at));
    cr_assert_str_eq(t.at + t.n - 8, "2999,end");
}

Test(support, doubles_have_their_usual_form) {
    static const struct {
        double value;
        const char *text;
    } table[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {-1.5, "-1.5"},
        {1e-6, "1e-06"},
        {1e-5, "1e-05"},
        {0.0001, "0.0001"},
        {0.00123, "0.00123"},
        {0.1, "0.1"},
        {10000, "10000"},
        {500000, "500000"},
        {1e15, "1000000000000000"},
        {1e16, "1e+16"},
        {1e22, "1e+22"},
        {1.25e-100, "1.25e-100"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
        {-NAN, "nan"},
        {0.044715, "0.044715"},
        {123.456, "123.456"},
        {4.9406564584124654e-324, "5e-324"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_assert_str_eq(double_text(table[i].value), table[i].text, "%s is not %s",
                         double_text(table[i].value), table[i].text);
}

Test(support, doubles_read_back_to_the_same_bits) {
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        double value, back;
        memcpy(&value, &state, sizeof value);
        if (i % 3 == 0) value = (double)(int64_t)(state % 2000000) / 1000 - 1000;
        if (i % 3 == 1) value = (float)value;
        if (isnan(value)) continue;
        const char *text = double_text(value);
        cr_assert(hd_read_double(text, strlen(text), &back), "%s", text);
        cr_assert_eq(memcmp(&value, &back, sizeof value), 0, "%s", text);
        cr_assert_str_eq(double_text(back), text);
    }
}

Test(support, doubles_do_not_follow_the_locale) {
    double back;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is none, this tests the C locale */
    cr_assert_str_eq(double_text(1.5), "1.5");
    cr_assert(hd_read_double("2.25", 4, &back));
    cr_assert_eq(back, 2.25);
}

Test(support, what_is_no_double_is_rejected) {
    double out;
    cr_assert_not(hd_read_double("", 0, &out));
    cr_assert_not(hd_read_double("1.5x", 4, &out));
    cr_assert_not(hd_read_double("x", 1, &out));
    cr_assert(hd_read_double("1.5x", 3, &out) && out == 1.5);
}

Test(support, quoting) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_quoted(&t, "a\"b\\c\n\t\x01\x7fé");
    cr_assert_str_eq(t.at, "\"a\\\"b\\\\c\\n\\t\\x01\\x7fé\"");
}

Test(support, json_is_utf8_whatever_a_path_has) {
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"a\"b\\\n", "\"a\\\"b\\\\\\u000a\""},
        {"\xc3\xa4", "\"\xc3\xa4\""},
        {"\xe4.hadal", "\"\\ufffd.hadal\""},
        {"x\xff\xfey", "\"x\\ufffd\\ufffdy\""},
        {"\xc3", "\"\\ufffd\""},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"", "\"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_text t;
        hd_text_init(&t, arena);
        hd_text_add_json(&t, cases[i].text);
        cr_expect_str_eq(t.at, cases[i].json, "%zu", i);
    }
}

Test(support, nearest_word) {
    static const char *const words[] = {"linear", "reshape", "rope", "rmsnorm", NULL};
    cr_assert_str_eq(hd_nearest("lienar", words, 5), "linear");
    cr_assert_str_eq(hd_nearest("resahpe", words, 5), "reshape");
    cr_assert_str_eq(hd_nearest("rop", words, 5), "rope");
    cr_assert_str_eq(hd_nearest("rmsnorms", words, 5), "rmsnorm");
    cr_assert_str_eq(hd_nearest("ROPE", words, 5), "rope", "letters of another case are the same");
    cr_assert_null(hd_nearest("xyzzy", words, 5));
    cr_assert_null(hd_nearest("rope", words, 5), "the word itself is no hint");
    cr_assert_null(hd_nearest("ro", words, 5), "two letters are too few to guess from");
    cr_assert_null(hd_nearest("", words, 5));
    cr_assert_null(hd_nearest(hd_alloc(arena, 1, 1), words, 0));
    char longest[200] = {0};
    memset(longest, 'x', sizeof longest - 1);
    cr_assert_null(hd_nearest(longest, words, 5));
}

/* ---- diagnostics --------------------------------------------------------------------------- */
static const char *rendered(const hd_diag *diag) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_diag_render(diag, false, &t);
    return t.at;
}

Test(support, a_diagnostic_shows_its_line) {
    hd_diags d;
    hd_diags_init(&d, arena);
    hd_diags_source(&d, "m.hadal", "first\n\ty = lienar(x)\nlast");
    hd_diag *diag = hd_err(&d, HD_E_NAME, (hd_loc){"m.hadal", 2, 6, 12, NULL},
                           "unknown function '%s'", "lienar");
    diag->cause = "no such name is in scope";
    diag->hint = "did you mean 'linear'?";
    cr_assert_str_eq(rendered(diag), "m.hadal:2:6: error: unknown function 'lienar' [name]\n"
                                     "    2 | \ty = lienar(x)\n"
                                     "      | \t    ^~~~~~\n"
                                     "  cause: no such name is in scope\n"
                                     "  hint: did you mean 'linear'?\n");
    cr_assert(hd_diags_failed(&d));
    cr_assert_eq(hd_diags_first(&d), HD_E_NAME);
}

Test(support, places_that_do_not_exist_are_harmless) {
    hd_diags d;
    hd_diags_init(&d, arena);
    hd_diags_source(&d, "f", "a\nb");
    cr_assert_str_eq(rendered(hd_warn(&d, HD_E_IO, HD_NOWHERE, "w")), "warning: w [io]\n");
    cr_assert_str_eq(rendered(hd_note(&d, (hd_loc){"f", 99, 1, 0, NULL}, "n")),
                     "f:99:1: note: n\n");
    cr_assert_str_eq(rendered(hd_err(&d, HD_E_IO, (hd_loc){"f", 2, 70, 90, NULL}, "e")),
                     "f:2:70: error: e [io]\n    2 | b\n      |  ^\n");
    cr_assert_str_eq(rendered(hd_err(&d, HD_E_IO, (hd_loc){"g", 2, 0, 0, NULL}, "e")),
                     "g:2: error: e [io]\n");
}

Test(support, long_lines_are_cut_and_control_characters_hidden) {
    hd_diags d;
    char text[3000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    text[1990] = '\x1b';
    hd_diags_init(&d, arena);
    hd_diags_source(&d, "f", text);
    const char *out = rendered(hd_err(&d, HD_E_SYNTAX, (hd_loc){"f", 1, 2000, 2010, NULL}, "e"));
    cr_assert_lt(strlen(out), 500);
    cr_assert_null(strchr(out, '\x1b'));
    cr_assert_not_null(strstr(out, "a?a"));
    cr_assert_not_null(strstr(out, "^~~~~~~~~~\n"));
}

Test(support, errors_beyond_the_limit_are_counted) {
    hd_diags d;
    hd_diags_init(&d, arena);
    for (int i = 0; i < 50; i++)
        hd_err(&d, HD_E_VALUE, HD_NOWHERE, "%d", i)->hint = "h";
    cr_assert_eq(d.errors, 50);
    cr_assert_eq(d.list.n, 20);
}

Test(support, error_codes_are_described) {
    for (int e = 0; e < HD_E_COUNT; e++) {
        cr_assert_gt(strlen(hd_error_name(e)), 0);
        cr_assert_eq(hd_error_exit_code(e) == 0, e == HD_E_OK);
    }
}

Test(diag, the_same_error_at_the_same_place_is_said_once) {
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_diags_init(&d, a);
    const hd_loc here = {.file = "m.hadal", .line = 3, .column = 5};
    for (int i = 0; i < 4; i++)
        hd_err(&d, HD_E_TYPE, here, "wrong")->hint = "a hint";
    hd_err(&d, HD_E_TYPE, here, "otherwise wrong");
    hd_err(&d, HD_E_TYPE, HD_NOWHERE, "wrong");
    hd_err(&d, HD_E_TYPE, HD_NOWHERE, "wrong");
    cr_assert_eq(d.list.n, 4);
    cr_assert_eq(d.errors, 7);
    hd_arena_free(a);
}
