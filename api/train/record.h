/* What a run was begun with, in RUN/run.json: all that its results depend on, and its options. */
#ifndef API_TRAIN_RECORD_H
#define API_TRAIN_RECORD_H

#include "api/session.h"

/* V(member, "name", TYPE, RULE, "what a user calls it"). When a run goes on,
 *   SAME       anything else would give other results, and is an error
 *   GROWS      may be larger
 *   FREE       may be different */
#define TRAIN_RECORD(V)                                                                            \
    V(hadal, "hadal", TEXT, FREE, "the version of Hadal")                                          \
    V(build, "build", TEXT, FREE, "the build id of the compiled model")                            \
    V(spec, "spec", TEXT, FREE, "the path of the model")                                           \
    V(model, "model", TEXT, SAME, "the model")                                                     \
    V(weights, "weights", TEXT, SAME, "--weights")                                                 \
    V(cpu_level, "cpu_level", TEXT, SAME, "--cpu-level")                                           \
    V(data, "data", TEXT, SAME, "--data")                                                          \
    V(tokens, "tokens", WHOLE, SAME, "--data")                                                     \
    V(eval_data, "eval_data", TEXT, SAME, "--eval-data")                                           \
    V(documents, "separate_documents", TEXT, SAME, "--separate-documents")                         \
    V(context, "context", WHOLE, SAME, "--context")                                                \
    V(batch, "batch", WHOLE, SAME, "--batch")                                                      \
    V(ranks, "ranks", WHOLE, SAME, "the number of ranks (mpirun -n)")                              \
    V(steps, "steps", WHOLE, GROWS, "--steps")                                                     \
    V(optimizer, "optimizer", TEXT, SAME, "--optimizer")                                           \
    V(memory, "memory", WHOLE, SAME, "--memory")                                                   \
    V(matmul, "matmul_dtype", TEXT, SAME, "--matmul-dtype")                                        \
    V(lr, "lr", DECIMAL, SAME, "--lr")                                                             \
    V(schedule, "schedule", TEXT, SAME, "--schedule")                                              \
    V(warmup, "warmup", WHOLE, SAME, "--warmup")                                                   \
    V(weight_decay, "weight_decay", DECIMAL, SAME, "--weight-decay")                               \
    V(clip, "clip", DECIMAL, SAME, "--clip")                                                       \
    V(seed, "seed", WHOLE, SAME, "--seed")                                                         \
    V(eval_every, "eval_every", WHOLE, FREE, "--eval-every")                                       \
    V(depth_every, "depth_every", WHOLE, FREE, "--depth-every")                                    \
    V(save_every, "save_every", WHOLE, FREE, "--save-every")                                       \
    V(keep, "keep", WHOLE, FREE, "--keep")

#define TRAIN_TEXT    const char *
#define TRAIN_WHOLE   int64_t
#define TRAIN_DECIMAL double

typedef struct train_record {
#define V(member, name, type, rule, called) TRAIN_##type member;
    TRAIN_RECORD(V)
#undef V
} train_record;

/* What is in the file. */
const char *train_record_text(hd_arena *a, const train_record *r, size_t *n);
/* Writes the file: all of it, or nothing is changed. */
bool train_record_write(hadal_session *s, const char *path, const train_record *r);
bool train_record_read(hadal_session *s, const char *path, train_record *out);
/* False, and a diagnostic for each value in which `now` may not be different from `begun`. */
bool train_record_may_go_on(hadal_session *s, const char *run, const train_record *begun,
                            const train_record *now);

#endif
