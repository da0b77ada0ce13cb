/* logits WEIGHTS SPLIT THREADS OUT.npy TOKEN...
 *
 * Runs the library of "model", linked: SPLIT tokens in the first call and the rest one at a time;
 * the logits of all to an .npy file, and the CPU level that ran to standard output. LEVEL in the
 * environment forces one. For emulators, where `hadal run` cannot go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static int fail(const char *what, const char *why) {
    fprintf(stderr, "logits: %s: %s\n", what, why);
    return 1;
}

/* Version 1 of the format: magic, a header of text that ends at a multiple of 64 bytes, data. */
static int write_npy(const char *path, const float *data, size_t rows, size_t columns) {
    char text[119], header[128] = "\x93NUMPY\1\0\166"; /* 118 bytes of text */
    const int used =
        snprintf(text, sizeof text,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", rows, columns);
    memset(header + 10, ' ', 117);
    memcpy(header + 10, text, (size_t)used);
    header[127] = '\n';
    FILE *f = fopen(path, "wb");
    if (!f) return fail(path, "cannot be written");
    const size_t count = rows * columns;
    int ok = fwrite(header, 128, 1, f) == 1 && fwrite(data, sizeof *data, count, f) == count;
    ok &= fclose(f) == 0;
    return ok ? 0 : fail(path, "cannot be written");
}

static int run(model_session *s, const int32_t *tokens, int64_t n, int64_t split, float *logits) {
    int rc = model_forward(s, tokens, split, logits, split);
    for (int64_t i = split; !rc && i < n; i++)
        rc = model_forward(s, tokens + i, 1, logits + i * MODEL_LOGITS, 1);
    return rc;
}

int main(int argc, char **argv) {
    if (argc < 6) return fail("usage", "logits WEIGHTS SPLIT THREADS OUT.npy TOKEN...");
    const int64_t n = argc - 5, split = atoll(argv[2]);
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)atol(argv[5 + i]);
    float *logits = malloc((size_t)n * MODEL_LOGITS * sizeof *logits);
    model_weights *weights = NULL;
    model_session *session = NULL;
    int rc = model_weights_open(argv[1], &weights);
    if (rc) return fail(argv[1], model_strerror(rc));
    const size_t size = model_session_size(n);
    void *memory = aligned_alloc(MODEL_ALIGN, size);
    rc = model_session_init(memory, size, weights, n, &session);
    if (rc) return fail("session", model_strerror(rc));
    rc = model_session_set_threads(session, atoi(argv[3]));
    if (!rc && getenv("LEVEL")) rc = model_session_set_cpu(session, getenv("LEVEL"));
    if (!rc) rc = run(session, tokens, n, split, logits);
    if (rc) return fail(model_strerror(rc), model_session_message(session));
    rc = write_npy(argv[4], logits, (size_t)n, MODEL_LOGITS);
    if (puts(model_session_cpu(session)) < 0) rc = fail("standard output", "cannot be written");
    model_weights_close(weights);
    free(memory);
    free(logits);
    free(tokens);
    return rc;
}
