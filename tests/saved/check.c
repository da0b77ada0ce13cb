/* A compiled model called `model`: a prompt is read once and kept, and continued in three ways. The
 * logits are those of sessions that read prompt and continuation themselves, to the last bit,
 * whichever session goes on and with however many threads.
 *
 *   check model.weights save FILE      checks, and leaves a saved session in FILE
 *   check model.weights refuse FILE    FILE was saved by another build of the model */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { PROMPT = 300, CHUNK = 5, SINGLE = 6, MORE = CHUNK + SINGLE, WAYS = 3 };

static float wanted[WAYS][MORE][MODEL_LOGITS], got[MORE][MODEL_LOGITS];
static int failed;

static void need(int code, const char *what, const model_session *s) {
    if (!code) return;
    fprintf(stderr, "%s: %s (%s)\n", what, model_strerror(code), s ? model_session_message(s) : "");
    exit(1);
}

static void expect(int code, int right, const char *what) {
    if (code == right) return;
    fprintf(stderr, "%s: code %d instead of %d\n", what, code, right);
    failed = 1;
}

static model_session *open_session(const model_weights *weights, int64_t room, int threads) {
    model_session *s = NULL;
    const size_t size = model_session_size(room);
    void *memory = aligned_alloc(MODEL_ALIGN, size);
    if (!memory) exit(1);
    memset(memory, 0xff, size); /* NaNs: nothing may be read before it is written */
    need(model_session_init(memory, size, weights, room, &s), "session_init", NULL);
    need(model_session_set_threads(s, threads), "set_threads", s);
    return s;
}

static int32_t token(int way, int64_t at) {
    return (int32_t)((at * 7 + (at < PROMPT ? 1 : way * 13)) % MODEL_VOCAB);
}

static void read_prompt(model_session *s) {
    int32_t ids[PROMPT];
    for (int t = 0; t < PROMPT; t++)
        ids[t] = token(0, t);
    need(model_forward(s, ids, PROMPT, NULL, 0), "the prompt", s);
}

static void go_on(model_session *s, int way, float (*logits)[MODEL_LOGITS]) {
    int32_t ids[MORE];
    for (int t = 0; t < MORE; t++)
        ids[t] = token(way, PROMPT + t);
    need(model_forward(s, ids, CHUNK, logits[0], CHUNK), "a continuation", s);
    for (int t = CHUNK; t < MORE; t++)
        need(model_forward(s, ids + t, 1, logits[t], 1), "a continuation", s);
}

static void compare(int way, int threads, const char *who) {
    if (memcmp(got, wanted[way], sizeof got) == 0) return;
    fprintf(stderr, "way %d, %d threads, %s: other logits\n", way, threads, who);
    failed = 1;
}

static void *save(model_session *s, size_t *size) {
    *size = model_session_save_size(s);
    void *bytes = malloc(*size);
    if (!bytes) exit(1);
    expect(model_session_save(s, bytes, *size - 1), MODEL_SIZE, "a short buffer");
    need(model_session_save(s, bytes, *size), "save", s);
    return bytes;
}

static void check_ways(const model_weights *weights, const void *bytes, size_t size, int threads) {
    model_session *same = open_session(weights, PROMPT + MORE, threads);
    model_session *larger = open_session(weights, 3 * PROMPT, threads);
    for (int way = 0; way < WAYS; way++) {
        need(model_session_restore(same, bytes, size), "restore", same);
        go_on(same, way, got);
        compare(way, threads, "restored");
        need(model_session_restore(larger, bytes, size), "restore", larger);
        go_on(larger, way, got);
        compare(way, threads, "restored into a larger session");
    }
    free(same);
    free(larger);
}

static void check_rejections(const model_weights *weights, char *bytes, size_t size) {
    model_session *small = open_session(weights, PROMPT - 1, 1);
    model_session *s = open_session(weights, PROMPT + MORE, 1);
    expect(model_session_restore(small, bytes, size), MODEL_FULL, "too small a session");
    expect(model_session_restore(s, bytes, size - 1), MODEL_SIZE, "bytes cut short");
    expect(model_session_restore(s, NULL, size), MODEL_ARGUMENT, "no bytes");
    bytes[64] ^= 1; /* of the length */
    expect(model_session_restore(s, bytes, size), MODEL_SAVED, "a damaged header");
    bytes[64] ^= 1;
    expect((int)model_session_length(s), 0, "the length after what was refused");
    free(small);
    free(s);
}

static size_t state_bytes(void) {
#ifdef MODEL_STATE_BYTES
    return MODEL_STATE_BYTES;
#else
    return 0;
#endif
}

static void check(const model_weights *weights, const char *path) {
    size_t size;
    for (int way = 0; way < WAYS; way++) {
        model_session *s = open_session(weights, PROMPT + MORE, 1);
        read_prompt(s);
        go_on(s, way, wanted[way]);
        free(s);
    }
    model_session *s = open_session(weights, PROMPT + MORE, 2);
    read_prompt(s);
    char *bytes = save(s, &size);
    /* the rows in use, and state of a fixed size */
    if (size > PROMPT * (size_t)MODEL_CACHE_BYTES + state_bytes() + 4096) failed = 1;
    for (int threads = 1; threads <= 2; threads++)
        check_ways(weights, bytes, size, threads);
    check_rejections(weights, bytes, size);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) exit(1);
    free(bytes);
    free(s);
}

static void check_other_build(const model_weights *weights, const char *path) {
    static char bytes[1 << 24];
    FILE *f = fopen(path, "rb");
    if (!f) exit(1);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    model_session *s = open_session(weights, PROMPT + MORE, 1);
    expect(model_session_restore(s, bytes, size), MODEL_BUILD, "another build's bytes");
    expect(strstr(model_session_message(s), "another build") == NULL, 0, "the message");
    free(s);
}

int main(int argc, char **argv) {
    model_weights *weights = NULL;
    if (argc != 4) return 2;
    need(model_weights_open(argv[1], &weights), argv[1], NULL);
    if (strcmp(argv[2], "save") == 0)
        check(weights, argv[3]);
    else
        check_other_build(weights, argv[3]);
    model_weights_close(weights);
    return failed;
}
