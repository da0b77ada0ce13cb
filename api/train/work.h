/* The share of the machine's f32 multiply-adds that steps are.
 *
 * Counted are the products of the compiled program, of both halves, those that --memory has computed
 * again, too; the optimizer's are not, but its time is. The machine is measured beside them, in a
 * loop of some 2 ms when the steps begin and then at most every two seconds, since on a shared host
 * it is not always as fast. */
#ifndef API_TRAIN_WORK_H
#define API_TRAIN_WORK_H

#include "api/session.h"
#include "codegen/program/program.h"

typedef struct train_work {
    const hcg_program *p;
    double *flops; /* by length of a sequence; 0: not counted yet */
    int threads;
    unsigned lanes;
    double rates, samples, next; /* their sum and number; when the machine is measured again */
    double done, seconds;        /* all steps together */
} train_work;

/* `context`: the longest sequence; `threads` 0: the default; `level`: of the CPU, or another name. */
void train_work_begin(train_work *w, hd_arena *a, const hcg_program *p, int64_t context,
                      int threads, const char *level);
/* A step of these sequences took so long. */
void train_work_add(train_work *w, const int64_t *lengths, int64_t sequences, double seconds);
double train_work_share(const train_work *w); /* of all steps; 0: there were none */

#endif
