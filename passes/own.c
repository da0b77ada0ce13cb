/* Passes of one's own: the tables of the directories in HADAL_EXTRA_PASSES, joined to one by
 * cmake/own_passes.cmake; it is empty where there are none.
 *
 * This is the only file that reads that table. So compilers with different passes of one's own
 * share all other objects, and a change to such a pass compiles nothing of Hadal. */
#include "passes/pass.h"

#define P(id, name, fn, stage_in, stage_out, doc) bool fn(hir_pass_context *c);
#include "own_passes.def"
#undef P

static const hir_pass_info own[] = {
#define P(id, name, fn, stage_in, stage_out, doc)                                                  \
    {name, fn, HIR_STAGE_##stage_in, HIR_STAGE_##stage_out, doc},
#include "own_passes.def"
#undef P
    {0}, /* an array has at least one element */
};

const hir_pass_info *hir_own_passes(size_t *n) {
    *n = sizeof own / sizeof *own - 1;
    return own;
}
