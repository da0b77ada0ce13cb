/* What the files of trainers share: trainer.c makes them and computes gradients, optimizer.c takes
 * steps, trainer_saved.c keeps them. */
#ifndef HRT_TRAINER_H
#define HRT_TRAINER_H

#include <string.h>

#include "runtime/internal.h"

struct hrt_trainer {
    hrt_session session; /* comes first */
    hrt_parameter_view *views;
    void **outs; /* by output of the program */
    uint8_t *weights, *gradients, *moments, *space;
    size_t space_threads; /* that `space` is for, muon_bytes for each */
    int64_t count;        /* targets that have counted since the last step */
    int64_t steps;        /* taken so far */
    bool spoilt;          /* a loss was not finite, and so are gradients, or nothing but noise */
    float loss;           /* of a sequence: the first output */
};

/* Sets all gradients to zero, and what belongs to them. */
void hrt_clear_gradients(hrt_trainer *t);

/* The moments of a parameter. */
static inline float *hrt_moment(const hrt_trainer *t, const hrt_parameter *p, uint32_t which) {
    const uint64_t each = hrt_aligned(p->elements * sizeof(float));
    void *at = t->moments + p->moments + which * each;
    return at;
}

#endif
