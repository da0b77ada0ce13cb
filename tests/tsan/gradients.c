/* Gradients of a compiled model with one thread and with as many as there are: the same bits.
 *
 *   gradients     linked with attnres.o, of hadal compile tests/golden/attnres-block --gradients
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnres.h"

enum { LONGEST = 32, SEQUENCES = 3, TOKENS = 40 };

/* A trainer whose parameters are drawn, after a call. NULL: an error, which is printed. */
static void *after_a_call(int threads, attnres_trainer **trainer) {
    static const int64_t lengths[SEQUENCES] = {1, LONGEST, TOKENS - 1 - LONGEST};
    int32_t tokens[TOKENS], targets[TOKENS];
    double sum;
    int64_t count;
    size_t n;
    void *memory = aligned_alloc(ATTNRES_ALIGN, attnres_trainer_size(LONGEST));
    int code = memory
                   ? attnres_trainer_init(memory, attnres_trainer_size(LONGEST), LONGEST, trainer)
                   : ATTNRES_MEMORY;
    if (!code) code = attnres_trainer_set_threads(*trainer, threads);
    const hadal_parameter *p = code ? NULL : attnres_trainer_parameters(*trainer, &n);
    for (size_t i = 0; p && i < n; i++)
        for (size_t k = 0; k < p[i].elements; k++)
            p[i].values[k] = (float)((7 * i + 3 * k) % 23) / 23 - 0.5F;
    for (int32_t i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 37 + 11) % ATTNRES_VOCAB;
        targets[i] = i % 5 ? (i * 13) % ATTNRES_VOCAB : -1;
    }
    if (!code)
        code = attnres_gradients(*trainer, tokens, targets, lengths, SEQUENCES, &sum, &count);
    if (!code) return memory;
    fprintf(stderr, "%d threads: %s\n", threads, attnres_strerror(code));
    free(memory);
    return NULL;
}

int main(void) {
    attnres_trainer *one, *many;
    size_t n;
    void *a = after_a_call(1, &one), *b = after_a_call(16, &many);
    if (!a || !b) return 1;
    const hadal_parameter *x = attnres_trainer_parameters(one, &n),
                          *y = attnres_trainer_parameters(many, &n);
    for (size_t i = 0; i < n; i++)
        if (memcmp(x[i].gradient, y[i].gradient, x[i].elements * sizeof(float)) != 0) {
            fprintf(stderr, "%s differs\n", x[i].name);
            return 1;
        }
    free(a);
    free(b);
    return 0;
}
