/* Options of a compilation: what each row of the table takes and refuses, and what is told of it.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "ir/compile_options.h"
#include "tests/unit/arena_fixture.h"

TestSuite(compile_options, .init = open_arena, .fini = close_arena);

static const char *value_of(const hir_compile_options *o, hir_compile_option id) {
    hd_text text;
    hd_text_init(&text, arena);
    hir_compile_option_print(o, id, &text);
    return text.at;
}

/* Is `text` taken, and printed as it was? */
static bool takes(hir_compile_option id, const char *text) {
    hir_compile_options o = hir_default_options;
    return hir_compile_option_read_text(&o, id, text, &diags) &&
           strcmp(value_of(&o, id), text) == 0;
}

static bool takes_number(hir_compile_option id, int64_t number) {
    hir_compile_options o = hir_default_options;
    return hir_compile_option_read_number(&o, id, number, &diags) &&
           strcmp(value_of(&o, id), hd_printf(arena, "%lld", (long long)number)) == 0;
}

/* Each word of "f32|bf16", and no other. */
static void check_words(hir_compile_option id, const char *words, const char *rejection) {
    char *list = hd_strdup(arena, words), *rest = list;
    for (char *word = strtok_r(list, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        cr_expect(takes(id, word), "%s", word);
    const char *const others[] = {"", "f3", "f322", "q8", "|", "bf16|f32"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        cr_expect_not(takes(id, others[i]), "%s: %s", hir_compile_option_name(id), others[i]);
        const hd_diag *d = &diags.list.at[diags.list.n - 1];
        cr_expect_str_eq(d->message, hd_printf(arena, "%s \"%s\"", rejection, others[i]));
        cr_expect(strstr(d->hint, " or "), "%s", d->hint);
    }
}

static void check_text(hir_compile_option id, const char *missing) {
    const hir_compile_options o = hir_default_options;
    cr_expect_str_eq(value_of(&o, id), missing);
    cr_expect(takes(id, "a \"text\""));
}

static void check_tiles(hir_compile_option id) {
    const char *const good[] = {"auto", "off", "2", "64"};
    const char *const bad[] = {
        "", "0", "1", "65", "-2", "2x", "many", " 2", "99999999999999999999"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect(takes(id, good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_not(takes(id, bad[i]), "%s", bad[i]);
}

static void check_bytes(hir_compile_option id) {
    const char *const good[] = {"1", "1023", "4K", "600M", "3G"};
    const char *const bad[] = {"",
                               "0",
                               "-1",
                               "K",
                               "2T",
                               "1.5G",
                               " 2",
                               "2 M",
                               "99999999999999999999",
                               "9223372036854775808"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect(takes(id, good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_not(takes(id, bad[i]), "%s", bad[i]);
}

static void check_number(hir_compile_option id, int64_t least, int64_t most, int64_t missing) {
    hir_compile_options o = hir_default_options;
    const char *absent = hd_printf(arena, "%lld", (long long)missing);
    cr_expect_str_eq(value_of(&o, id), absent);
    cr_expect(hir_compile_option_read_number(&o, id, 0, &diags));
    cr_expect_str_eq(value_of(&o, id), absent);
    cr_expect(takes_number(id, least) && takes_number(id, most));
    cr_expect_not(takes_number(id, most + 1) || takes_number(id, -1) ||
                  takes_number(id, INT64_MIN));
    const hd_diag *d = &diags.list.at[diags.list.n - 1];
    cr_expect(strstr(d->message, hir_compile_option_name(id)), "%s", d->message);
}

Test(compile_options, each_takes_what_its_row_says) {
    diags.limit = 1000;
#define TEXT(missing)                check_text(row, missing)
#define DTYPE(rejection)             check_words(row, words, rejection)
#define STATE_DTYPE(rejection)       check_words(row, words, rejection)
#define WORD(rejection)              check_words(row, words, rejection)
#define TILES                        check_tiles(row)
#define BYTES                        check_bytes(row)
#define NUMBER(least, most, missing) check_number(row, least, most, missing)
#define P(id, member, name, group, type, argument, ...)                                            \
    {                                                                                              \
        const hir_compile_option row = HIR_OPTION_##id;                                            \
        const char *words = argument;                                                              \
        cr_expect_str_eq(hir_compile_option_name(row), name);                                      \
        (void)words;                                                                               \
        type;                                                                                      \
    }
#include "support/compile_options.def"
#undef P
}

Test(compile_options, what_is_not_given_is_the_default) {
    hir_compile_options o;
    memset(&o, 0xff, sizeof o);
#undef NUMBER
#define NUMBER(...) hir_compile_option_read_number(&o, row, 0, &diags)
#undef TEXT
#define TEXT(...) hir_compile_option_read_text(&o, row, NULL, &diags)
#undef TILES
#define TILES TEXT()
#undef BYTES
#define BYTES TEXT()
#undef DTYPE
#define DTYPE TEXT
#undef WORD
#define WORD TEXT
#undef STATE_DTYPE
#define STATE_DTYPE TEXT
#define P(id, member, name, group, type, ...)                                                      \
    {                                                                                              \
        const hir_compile_option row = HIR_OPTION_##id;                                            \
        cr_expect(type, name);                                                                     \
        cr_expect_str_eq(value_of(&o, row), value_of(&hir_default_options, row), name);            \
    }
#include "support/compile_options.def"
#undef P
    cr_expect_not(o.cache_dtype.given || o.carry_dtype.given);
}

/* Places in info count from 1, each once. */
Test(compile_options, places_in_info) {
    int rows[HIR_OPTIONS + 2] = {0};
#define INFO(place, key, when)                                          place
#define NOT_IN_INFO                                                     0
#define P(id, member, name, group, type, argument, commands, info, ...) rows[info]++;
#include "support/compile_options.def"
#undef P
    for (int i = 2; i < HIR_OPTIONS + 2; i++)
        cr_expect(rows[i] <= 1 && rows[i] <= rows[i - 1], "place %d", i);
}

static const char *text_of(void (*print)(const hir_compile_options *o, hd_text *out),
                           const hir_compile_options *o) {
    hd_text text;
    hd_text_init(&text, arena);
    print(o, &text);
    return text.at;
}

Test(compile_options, what_is_told) {
    hir_compile_options o = hir_default_options;
    o.ranks = 0; /* as a program that is not divided has it */
    cr_expect_str_eq(text_of(hir_options_print_info, &o),
                     ", \"chunk\": 512, \"weights\": \"f32\", \"activations\": \"int8\", "
                     "\"bank\": \"f32\", \"phase1\": \"f32\", \"merge_norm\": \"dots\"");
    cr_expect_str_eq(text_of(hir_options_print_settings, &o),
                     "{\"weights-dtype\": \"f32\", \"bank-dtype\": \"f32\", "
                     "\"phase1-dtype\": \"f32\", \"merge-norm\": \"dots\", \"chunk\": \"512\"}");
    o = (hir_compile_options){.weights_dtype = "q4,\"x\"=q8",
                              .phase1_dtype = HIR_BF16,
                              .merge_norm = HIR_NORM_OF_ROW,
                              .chunk = 8,
                              .cache_dtype = {true, HIR_F16},
                              .ranks = 2,
                              .divide_from = 9,
                              .gather_dtype = HIR_BF16,
                              .overlap = 4,
                              .stages = 3,
                              .virtual_stages = 2};
    cr_expect_str_eq(text_of(hir_options_print_info, &o),
                     ", \"chunk\": 8, \"weights\": \"q4,\\\"x\\\"=q8\", \"activations\": \"int8\", "
                     "\"bank\": \"f32\", \"phase1\": \"bf16\", \"merge_norm\": \"row\", "
                     "\"ranks\": 2, \"stage\": 0, \"stages\": 3, \"tiles\": 4");
    cr_expect_str_eq(text_of(hir_options_print_settings, &o),
                     "{\"weights-dtype\": \"q4,\\\"x\\\"=q8\", \"bank-dtype\": \"f32\", "
                     "\"phase1-dtype\": \"bf16\", \"merge-norm\": \"row\", \"chunk\": \"8\", "
                     "\"cache-dtype\": \"f16\", \"ranks\": \"2\", \"divide-from\": \"9\", "
                     "\"gather-dtype\": \"bf16\", \"overlap\": \"4\", \"stages\": \"3\", "
                     "\"virtual-stages\": \"2\", \"stage\": \"0\"}");
}
