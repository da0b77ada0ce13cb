/* What a view describes: a model at several stages of compilation, and data of its runs. */
#ifndef INSPECT_SUBJECT_H
#define INSPECT_SUBJECT_H

#include "ir/eval.h"
#include "passes/pass.h"

typedef struct inspect_subject {
    hd_arena *arena; /* of the data that views collect */
    hd_diags *diags;
    const hir_module *graph; /* as loaded */
    const hir_module *now;   /* as it stands after passes; `graph` itself: none have run */
    const hir_pass_options *pass_options;
    /* for views of a model at work */
    hir_weight_source weight_source;
    void *weights;
    const double *ids; /* [tokens] */
    int64_t tokens;
    /* for views of a run */
    const struct profile *profile;
    const struct bench_results *bench;
} inspect_subject;

#endif
