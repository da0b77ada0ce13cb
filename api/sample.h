/* From logits to tokens: choosing the next one, and listing the most likely ones. */
#ifndef API_SAMPLE_H
#define API_SAMPLE_H

#include "api/session.h"
#include "ir/eval/random.h"

typedef struct sampler {
    double temperature, top_p;
    size_t top_k; /* 0: all */
    hir_random random;
    size_t n;       /* number of logits */
    double *weight; /* of each id; 0: the id is left out */
    int32_t *order; /* ids that may be kept, the most likely first */
} sampler;

sampler api_sampler(hd_arena *a, const hadal_generate_options *o, size_t n);
/* The chosen id, as include/hadal/hadal.h describes; -1: the logits are no numbers. */
int32_t api_sample(sampler *s, const float *logits);

/* Keeps the `most` largest of n logits for hadal_next_tokens. False, and a diagnostic, if the
 * logits are no numbers. */
bool api_keep_next(hadal_session *s, const float *logits, size_t n, int64_t most);

#endif
