/* Continues a text with a compiled model and the tokenizer that belongs to it.
 *
 *   complete WEIGHTS TOKENIZER TEXT N
 *
 * libjargon makes tokens of tokens; libhadaltext makes tokens of text, and text of tokens. Neither
 * needs the other, nor the compiler. */
#include <hadal/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jargon.h"

static int32_t likeliest(const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < JARGON_LOGITS; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int failed(int code) {
    fprintf(stderr, "complete: %s\n", jargon_strerror(code));
    return 1;
}

/* The tokens of a text; NULL: out of memory, or a pattern of the tokenizer takes too long. */
static int32_t *encode(const hadal_tokenizer *t, const char *text, int64_t *n) {
    *n = hadal_tokenizer_encode(t, text, strlen(text), 1, NULL, 0);
    int32_t *ids = *n < 0 ? NULL : malloc((size_t)(*n + 1) * sizeof *ids);
    if (ids) hadal_tokenizer_encode(t, text, strlen(text), 1, ids, *n);
    return ids;
}

int main(int argc, char **argv) {
    char message[512];
    if (argc != 5) {
        fprintf(stderr, "usage: complete WEIGHTS TOKENIZER TEXT N\n");
        return 2;
    }
    const long more = atol(argv[4]);
    hadal_tokenizer *tokenizer = hadal_tokenizer_open(argv[2], message, sizeof message);
    if (!tokenizer) {
        fputs(message, stderr);
        return 1;
    }
    int64_t n;
    int32_t *prompt = encode(tokenizer, argv[3], &n);
    hadal_text_stream *stream = hadal_text_stream_open(tokenizer, 1);
    jargon_weights *weights;
    int code = jargon_weights_open(argv[1], &weights);
    if (code) return failed(code);
    if (!prompt || !stream || n == 0 || more < 0) return failed(JARGON_ARGUMENT);

    const size_t size = jargon_session_size(n + more);
    void *memory = size ? aligned_alloc(JARGON_ALIGN, size) : NULL;
    jargon_session *session;
    if (!memory) return failed(JARGON_MEMORY);
    if ((code = jargon_session_init(memory, size, weights, n + more, &session)))
        return failed(code);

    float logits[JARGON_LOGITS];
    for (int64_t i = 0; i < n; i++) /* so that the text continues where the prompt ends */
        hadal_text_stream_add(stream, prompt[i], NULL);
    code = jargon_forward(session, prompt, n, logits, 1);
    for (long i = 0; i < more && !code; i++) {
        const int32_t next = likeliest(logits);
        fputs(hadal_text_stream_add(stream, next, NULL), stdout);
        fflush(stdout);
        code = jargon_forward(session, &next, 1, logits, 1);
    }
    puts(hadal_text_stream_end(stream, NULL));
    hadal_text_stream_close(stream);
    hadal_tokenizer_close(tokenizer);
    free(prompt);
    free(memory);
    jargon_weights_close(weights);
    return code ? failed(code) : 0;
}
