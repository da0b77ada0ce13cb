/* What the two kinds of steps share: optimizer.c (AdamW) and muon.c. */
#ifndef HRT_OPTIMIZER_H
#define HRT_OPTIMIZER_H

#include <stdatomic.h>

#include "runtime/profile.h"
#include "runtime/step_parts.h"
#include "runtime/trainer.h"

enum { HRT_NORM_PARTS = 64 };

/* A step of an optimizer, for all threads. */
typedef struct hrt_optimizer {
    hrt_trainer *t;
    double sums[HRT_NORM_PARTS]; /* of the squares of gradients */
    float scale;                 /* of the gradients */
    float keep[HRT_UPDATES];     /* of a parameter: 1, or 1 - learning rate times decay */
    /* AdamW */
    float beta1, beta2, rest1, rest2, eps;
    float rate; /* learning rate over 1 - beta1^step */
    float root; /* 1 / sqrt(1 - beta2^step) */
    /* Muon */
    float momentum;
    double learning_rate;
    _Atomic uint64_t next; /* matrix that no thread has taken yet */
    hrt_stopwatch watch;   /* of the first thread: by part of a step */
} hrt_optimizer;

double hrt_squares(const float *x, size_t n); /* their sum */
/* Changes matrices of HRT_UPDATE_MUON until none is left: a thread's part of a step. */
void hrt_by_muon(hrt_optimizer *s, int index);

#endif
