/* What may come next, of logits with equals, with tokens that never come, and of none that are
 * numbers; and how the text of a token is shown. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/sample.h"
#include "hadal/text.h"

TestSuite(next_tokens, .timeout = 60);

static void kept_are(const float *logits, size_t n, int64_t most, const char *wanted) {
    char found[200] = "";
    hadal_session *s = hadal_open();
    size_t kept;
    cr_assert(api_keep_next(s, logits, n, most));
    const hadal_next_token *next = hadal_next_tokens(s, &kept);
    for (size_t i = 0; i < kept; i++) {
        const size_t at = strlen(found);
        snprintf(found + at, sizeof found - at, "%d %.4f, ", next[i].token, next[i].probability);
        cr_expect_eq(next[i].logit, logits[next[i].token]);
    }
    cr_expect_str_eq(found, wanted);
    hadal_close(s);
}

Test(next_tokens, order) {
    const float two = logf(2), never = -INFINITY;
    kept_are((const float[]){0, two, 0, two, never}, 5, 3, "1 0.3333, 3 0.3333, 0 0.1667, ");
    kept_are((const float[]){0, never, two}, 3, 9, "2 0.6667, 0 0.3333, 1 0.0000, ");
    kept_are((const float[]){-3e38f, 3e38f}, 2, 1, "1 1.0000, ");
    kept_are((const float[]){7}, 1, INT64_MAX, "0 1.0000, ");
}

Test(next_tokens, no_numbers) {
    const float wrong[][2] = {{0, NAN}, {INFINITY, 0}, {-INFINITY, -INFINITY}};
    for (size_t i = 0; i < 3; i++) {
        hadal_session *s = hadal_open();
        size_t n = 9;
        cr_expect_not(api_keep_next(s, wrong[i], 2, 1));
        cr_expect_null(hadal_next_tokens(s, &n));
        cr_expect_eq(n, 0);
        cr_expect_eq(hadal_exit_code(s), 3);
        hadal_close(s);
    }
}

static void quoted_is(const char *text, size_t n, const char *wanted) {
    char out[100], small[6];
    cr_expect_eq(hadal_text_quote(text, n, out, sizeof out), strlen(wanted));
    cr_expect_str_eq(out, wanted);
    cr_expect_eq(hadal_text_quote(text, n, small, sizeof small), strlen(wanted));
    cr_expect_eq(strncmp(small, wanted, sizeof small - 1), 0);
    cr_expect_eq(strlen(small), strlen(wanted) < 5 ? strlen(wanted) : 5);
    cr_expect_eq(hadal_text_quote(text, n, NULL, 0), strlen(wanted));
}

Test(next_tokens, text) {
    quoted_is("", 0, "\"\"");
    quoted_is(" of\n", 4, "\" of\\n\"");
    quoted_is("\t\r\"\\\0\x1b\x7f", 7, "\"\\t\\r\\\"\\\\\\x00\\x1b\\x7f\"");
    quoted_is("\xc3\xa9\xe6\xbc\xa2", 5, "\"\xc3\xa9\xe6\xbc\xa2\"");
    quoted_is("\xe2\x80", 2, "\"\\xe2\\x80\"");
    quoted_is("\x99"
              "A\xff",
              3, "\"\\x99A\\xff\"");
    quoted_is("\xc2\xa0\xe2\x80\xae\xe3\x80\x80\xc2\x85", 10,
              "\"\\u{a0}\\u{202e}\\u{3000}\\u{85}\"");
}

/* What tokens give one after the other, with bytes asked for between them. */
static void stream_is(const char *file, const char *const *tokens, const char *const *bytes,
                      const char *wanted) {
    char message[512], path[512], text[100] = "";
    snprintf(path, sizeof path, TEST_DATA "/text/%s.json", file);
    hadal_tokenizer *t = hadal_tokenizer_open(path, message, sizeof message);
    cr_assert(t, "%s", message);
    hadal_text_stream *s = hadal_text_stream_open(t, 0);
    for (size_t i = 0; tokens[i]; i++) {
        const int32_t id = hadal_tokenizer_id(t, tokens[i]);
        cr_assert(id >= 0, "%s", tokens[i]);
        size_t n = 0;
        const char *raw = hadal_text_stream_bytes(s, id, &n);
        cr_expect(n == strlen(bytes[i]) && memcmp(raw, bytes[i], n) == 0, "%zu of %s", i, file);
        strcat(text, hadal_text_stream_add(s, id, NULL));
    }
    cr_expect_str_eq(text, wanted);
    hadal_text_stream_close(s);
    hadal_tokenizer_close(t);
}

Test(next_tokens, bytes) {
    const char *const byte_level[] = {"\xc3\xa2", "\xc4\xac", "\xc4\xbb", "A", NULL};
    stream_is("gpt2", byte_level, (const char *const[]){"\xe2", "\x8a", "\x99", "A"},
              "\xe2\x8a\x99"
              "A");
    const char *const fallback[] = {"\xe2\x96\x81", "<0xE2>", "<0x8A>", "<0x99>", "a", NULL};
    stream_is("llama2", fallback, (const char *const[]){"", "\xe2", "\x8a", "\x99", "a"},
              "\xe2\x8a\x99"
              "a");
}
