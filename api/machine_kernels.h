/* What Hadal's own kernels reach of the limits of the machine, so that `hadal plan` need not take
 * the shares of other machines: inspect/plan_reached.def has the list.
 *
 * Small models with random weights (api/machine_models.def) are compiled for this machine. In each
 * round parts of a prompt, and tokens behind it, are timed step by step between two samples of the
 * limits. What a plan counts apart, the beginning of a kernel and the barrier behind it, is no part
 * of it. Where something else had the CPUs meanwhile a share is left out rather than told wrong.
 */
#ifndef API_MACHINE_KERNELS_H
#define API_MACHINE_KERNELS_H

#include "api/machine.h"
#include "inspect/plan_host.h"
#include "support/arena.h"

typedef struct machine_kernels {
    bool tried;
    double share[PLAN_FACTS - PLAN_REACHED]; /* as inspect/plan_reached.def; 0: not measured */
    const char *why_not;                     /* NULL: they were measured */
    int on_one_thread; /* of them, since they were not the same in all rounds on all threads */
    int left_out;      /* of them, that were not the same in all rounds on one thread either */
} machine_kernels;

/* Libraries and weights, some 130 MB, lie in `folder` meanwhile. On ranks all of them measure at
 * once, and have the same shares: of the slowest, or the mean of those on the same CPUs. Forgets
 * the samples of the limits. Some 4 s. `barrier`: seconds, as machine_barrier has found. */
void machine_measure_kernels(machine *m, hd_arena *a, const char *folder, double barrier,
                             machine_kernels *out);
/* Lines of text, and the member "reached" of the JSON. */
void machine_describe_kernels(const machine_kernels *k, hd_text *out);
void machine_kernels_json(const machine_kernels *k, hd_text *out);

#endif
