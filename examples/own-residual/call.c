/* The model of this directory, called from C: a prompt in one call, then the same prompt token by
 * token. Both must give the same logits, since mixing over depth keeps nothing from one token to
 * the next.
 *
 *   call ECHOES.weights */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "echoes.h"

enum { TOKENS = 12 };

/* Computes the logits of the last token, with `step` tokens a call. */
static int run(echoes_weights *weights, const int32_t *tokens, int step, float *logits) {
    echoes_session *session;
    const size_t size = echoes_session_size(TOKENS);
    void *memory = aligned_alloc(ECHOES_ALIGN, size);
    int code = memory ? echoes_session_init(memory, size, weights, TOKENS, &session) : 1;
    for (int t = 0; t < TOKENS && !code; t += step)
        code = echoes_forward(session, tokens + t, step, logits, 1);
    free(memory);
    return code;
}

int main(int argc, char **argv) {
    static const int32_t tokens[TOKENS] = {104, 101, 108, 108, 111, 32,
                                           101, 99,  104, 111, 101, 115};
    float at_once[ECHOES_VOCAB], one_by_one[ECHOES_VOCAB];
    float difference = 0, largest = 0;
    echoes_weights *weights;

    if (argc != 2) {
        fprintf(stderr, "usage: call ECHOES.weights\n");
        return 2;
    }
    int code = echoes_weights_open(argv[1], &weights);
    if (!code) code = run(weights, tokens, TOKENS, at_once);
    if (!code) code = run(weights, tokens, 1, one_by_one);
    if (code) {
        fprintf(stderr, "%s\n", echoes_strerror(code));
        return 1;
    }
    for (int i = 0; i < ECHOES_VOCAB; i++) {
        difference = fmaxf(difference, fabsf(at_once[i] - one_by_one[i]));
        largest = fmaxf(largest, fabsf(at_once[i]));
    }
    printf("largest logit %g; one call and single tokens differ by %g\n", largest, difference);
    echoes_weights_close(weights);
    return !(difference <= 1e-5f * largest);
}
