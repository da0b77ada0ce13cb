#include <string.h>

#include "api/train/data.h"
#include "tests/fuzz/fuzz.h"

enum { VOCABULARY = 256, CONTEXT = 5 };

/* A sequence as long as the context from each token on: ids of the vocabulary, and targets that are
 * the ids after them or are not counted. */
static void read_windows(hadal_session *s, const train_data *all) {
    const train_documents documents = {true, 10};
    train_batch b = train_batch_new(s->arena, 1, CONTEXT);
    char digest[TRAIN_DIGEST];
    train_data_digest(all, digest);
    for (int64_t t = 0; t + CONTEXT < all->tokens; t++) {
        train_batch_clear(&b);
        train_batch_add(&b, all, &documents, t, CONTEXT);
        int64_t tokens = 0;
        for (int64_t i = 0; i < b.sequences; i++)
            tokens += b.lengths[i];
        if (tokens != CONTEXT || b.n_tokens != CONTEXT) fuzz_fail("lengths are not the tokens");
        for (int64_t i = 0; i < CONTEXT; i++)
            if (b.tokens[i] < 0 || b.tokens[i] >= VOCABULARY || b.targets[i] < -1 ||
                b.targets[i] >= VOCABULARY)
                fuzz_fail("an id that is none was taken");
    }
}

/* The first byte says what the rest is: n a .npy file, i a .i32 file, else bytes of text. */
static bool read_tokens(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    const char *name = n && *data == 'n' ? "fuzz.npy" : n && *data == 'i' ? "fuzz.i32" : "fuzz.txt";
    hadal_session *s = hd_new(a, hadal_session);
    const hadal_data *file;
    train_data all;
    s->arena = a;
    s->diags = *d;
    const bool ok =
        hadal_data_open(s, fuzz_write(name, data + (n > 0), n - (n > 0)), NULL, 0, &file) == 0 &&
        train_data_open(s, (const hadal_data *const[]){file, file}, 2, VOCABULARY, CONTEXT + 1,
                        "--data", &all);
    if (ok) read_windows(s, &all);
    *d = s->diags;
    return ok || s->out_of_memory; /* of which no diagnostic is made */
}

int fuzz_tokens(const uint8_t *data, size_t n) {
    fuzz_in_arena(read_tokens, data, n);
    return 0;
}
