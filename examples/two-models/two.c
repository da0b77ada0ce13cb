/* Two models in one process: every symbol has its model's prefix, and the models share nothing.
 *
 *   two FIRST.weights SECOND.weights
 *
 * The program is built with two libraries made from one spec under two names, with different
 * parameters. */
#include <stdio.h>
#include <stdlib.h>

#include "large.h"
#include "small.h"

#define RUN(model, MODEL, path)                                                                    \
    do {                                                                                           \
        model##_weights *w;                                                                        \
        model##_session *s;                                                                        \
        float logits[MODEL##_VOCAB];                                                               \
        const int32_t tokens[] = {1, 2, 3};                                                        \
        const size_t size = model##_session_size(8);                                               \
        void *memory = aligned_alloc(MODEL##_ALIGN, size);                                         \
        int code = model##_weights_open(path, &w);                                                 \
        if (!code) code = model##_session_init(memory, size, w, 8, &s);                            \
        if (!code) code = model##_forward(s, tokens, 3, logits, 1);                                \
        if (code) {                                                                                \
            fprintf(stderr, "%s: %s\n", #model, model##_strerror(code));                           \
            return 1;                                                                              \
        }                                                                                          \
        printf("%s: vocabulary %d, first logit %g\n", #model, MODEL##_VOCAB, logits[0]);           \
        free(memory);                                                                              \
        model##_weights_close(w);                                                                  \
    } while (0)

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: two SMALL.weights LARGE.weights\n");
        return 2;
    }
    RUN(small, SMALL, argv[1]);
    RUN(large, LARGE, argv[2]);
    return 0;
}
