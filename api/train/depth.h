/* Magnitudes by depth of a run, and the weights of its depth mixes, by compiled code.
 *
 * A library of its own makes them: that of the same model with its gradients, in which each value to
 * look at gives a sum over tokens, of the squares of what a sublayer gives, of those of its gradient,
 * of the weights of a mix. A sum comes out as the gradient of a parameter does, of one that is made
 * for it. So the library of the run, and each bit of the run, is the same with them and without. */
#ifndef API_TRAIN_DEPTH_H
#define API_TRAIN_DEPTH_H

#include "api/train/data.h"
#include "api/trainer.h"
#include "inspect/heatmap.h"
#include "inspect/taps.h"

typedef struct train_depth {
    api_trainer *t; /* of that library; NULL: the run has none */
    const taps *outputs;
    depth_weights mixes; /* without rows: the model has none */
    /* The sums of outputs and of their gradients, by tap, and of mixes, by row; NULL: there is none. */
    const api_parameter **of_output, **of_gradient, **of_mix;
    hd_text members;
} train_depth;

/* Compiles the library for sequences of up to `context` tokens; its file `path` goes with the folder
 * that it is in. False, and a diagnostic: the model has no residual stream, or its gradients do not
 * compile with these sums. */
bool train_depth_open(train_depth *x, hadal_session *s, const hadal_target *target,
                      const char *path, int64_t context, int threads);
void train_depth_close(train_depth *x);
/* Writes what does not change in a run: which sublayers there are, and what each mix reads. */
bool train_depth_describe(const train_depth *x, hadal_session *s, const char *path);
/* The members of an object of the log, by the parameters of `of` and the sequences of a batch: valid
 * until the next call. NULL, and a diagnostic: they cannot be computed. */
const char *train_depth_measure(train_depth *x, const api_trainer *of, const train_batch *b);

#endif
