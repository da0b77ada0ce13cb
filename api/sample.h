/* Choosing the next token. */
#ifndef API_SAMPLE_H
#define API_SAMPLE_H

#include "api/session.h"
#include "ir/eval/random.h"

typedef struct sampler {
    double temperature, top_p;
    size_t top_k; /* 0: all */
    hir_random random;
    size_t n;       /* logits */
    double *weight; /* of each id; 0: left out */
    int32_t *order; /* ids that may be left in, the largest first */
} sampler;

sampler api_sampler(hd_arena *a, const hadal_generate_options *o, size_t n);
/* As include/hadal/hadal.h says; -1: the logits are no numbers. */
int32_t api_sample(sampler *s, const float *logits);

#endif
