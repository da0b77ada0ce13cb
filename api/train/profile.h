/* What the kernels of a trainer and the parts of its steps take in the steps of a run. */
#ifndef API_TRAIN_PROFILE_H
#define API_TRAIN_PROFILE_H

#include "api/trainer.h"
#include "inspect/profile.h"

typedef struct train_profile {
    profile *of;        /* NULL: none is made */
    int64_t *sequences; /* by length: how many there were */
    int64_t longest, steps;
} train_profile;

/* Sets the session's profile, which begins at zero. False, and a diagnostic: it cannot be made. */
bool train_profile_open(train_profile *x, const api_trainer *t, int64_t context, int threads);
/* From now on the trainer adds to it, or no more. */
void train_profile_turn(const train_profile *x, const api_trainer *t, bool on);
/* After a step of so many seconds. */
void train_profile_add(train_profile *x, const int64_t *lengths, int64_t sequences, double seconds);
/* After the last step: the work of all of them. */
void train_profile_close(train_profile *x, const hcg_program *p);

#endif
