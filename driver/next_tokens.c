#include "driver/next_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "driver/report.h"

static int fail(hadal_session *s) {
    return hadal_fail(s, "memory", "no memory for the text of tokens", NULL);
}

static void print_line(const char *text) {
    (void)report_text(text, strlen(text)); /* main says if it could not be written */
}

static int print_text(hadal_session *s, hadal_text_stream *stream, int32_t token) {
    size_t n = 0;
    const char *bytes = hadal_text_stream_bytes(stream, token, &n);
    const size_t length = bytes ? hadal_text_quote(bytes, n, NULL, 0) : 0;
    char *quoted = bytes ? malloc(length + 1) : NULL;
    if (!quoted) return fail(s);
    hadal_text_quote(bytes, n, quoted, length + 1);
    print_line("  ");
    print_line(quoted);
    free(quoted);
    return 0;
}

/* `stream` NULL: there is no text. */
static int print_rows(hadal_session *s, hadal_text_stream *stream) {
    size_t n;
    char line[96];
    const hadal_next_token *next = hadal_next_tokens(s, &n);
    snprintf(line, sizeof line, "rank        id  probability       logit%s\n",
             stream ? "  text" : "");
    print_line(line);
    for (size_t i = 0; i < n; i++) {
        snprintf(line, sizeof line, "%4zu  %8d  %11.4g  %10.4f", i + 1, next[i].token,
                 next[i].probability, (double)next[i].logit);
        print_line(line);
        if (stream && print_text(s, stream, next[i].token)) return 1;
        print_line("\n");
    }
    return 0;
}

int print_next_tokens(hadal_session *s, const prompt *p) {
    if (!p->tokenizer) return print_rows(s, NULL);
    hadal_text_stream *stream = hadal_text_stream_open(p->tokenizer, 0);
    if (!stream) return fail(s);
    for (int64_t i = 0; i < p->n; i++) /* a text goes on differently than it begins */
        (void)hadal_text_stream_add(stream, p->ids[i], NULL);
    const int failed = print_rows(s, stream);
    hadal_text_stream_close(stream);
    return failed;
}
