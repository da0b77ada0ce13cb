/* A guard of the pipeline: what the passes over depth do to the ledger as a whole.
 *
 * Each of them decides by what it knows when it runs: recognise-depth-attention by the pattern,
 * form-blocks by what results of a first phase cost, defer-norms by the length of a row. What the
 * kernels move in the end depends on what fuse makes of it. So the rest of the run is tried on
 * copies, with these passes and without, and where the model would move more with them those that
 * make it so are left out. Equal traffic is no reason to leave one out.
 *
 * It stands beside the pass manager: the manager calls it, and it calls the manager on the copies.
 */
#ifndef HIR_PASSES_WEIGH_DEPTH_H
#define HIR_PASSES_WEIGH_DEPTH_H

#include "passes/pass.h"

typedef struct depth_weighed { /* passes that are not to run, and why */
    bool done;
    bool skip[HIR_PASS_COUNT];
    bool speaks[HIR_PASS_COUNT]; /* of those that go together the first, which has the remark */
    const char *why;
} depth_weighed;

/* Is it one of the passes that are weighed? */
bool depth_is_weighed(hir_pass_id id);

/* Weighs the passes that are left of a run, of which the first is a weighed one. Nothing is left
 * out of a run that makes no kernels, or where either way fails. The reason is in the arena. */
void depth_weigh(const hir_module *m, const hir_pass_id *passes, size_t n,
                 const hir_compile_options *options, hd_arena *scratch, hd_arena *a,
                 depth_weighed *out);

#endif
