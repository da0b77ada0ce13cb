/* What Hadal's own kernels reach of the limits of the machine, so that `hadal plan` need not use
 * the shares of other machines: inspect/plan_reached.def has the list.
 *
 * Small models with random weights (api/machine_models.def) are compiled for this machine, or for one
 * CPU level of it. In each
 * round, parts of a prompt and tokens after it are timed step by step, between two samples of the
 * limits. The start of a kernel and the barrier after it are subtracted, since a plan counts them
 * separately. Where something else had the CPUs meanwhile a share is left out rather than reported
 * wrongly. */
#ifndef API_MACHINE_KERNELS_H
#define API_MACHINE_KERNELS_H

#include "api/machine.h"
#include "inspect/plan_host.h"
#include "support/arena.h"

typedef struct machine_kernels {
    bool tried;
    double share[PLAN_FACTS - PLAN_REACHED]; /* as inspect/plan_reached.def; 0: not measured */
    const char *why_not;                     /* NULL: they were measured */
    int on_one_thread; /* how many were taken from one thread, since they varied on all threads */
    int left_out;      /* how many were left out, since they varied on one thread too */
} machine_kernels;

/* Measures the shares of code for `cpu` ("native", or a level). Libraries and weights, some 130 MB, lie in `folder` meanwhile. All ranks
 * measure at once, and get the same shares: those of the slowest, or the mean of ranks on the same
 * CPUs. Forgets the samples of the limits. Takes some 4 s. `barrier`: seconds, from
 * machine_barrier. */
void machine_measure_kernels(machine *m, hd_arena *a, const char *cpu, const char *folder,
                             double barrier, machine_kernels *out);
/* Print lines of text, and the member "reached" of the JSON. */
void machine_describe_kernels(const machine_kernels *k, hd_text *out);
void machine_kernels_json(const machine_kernels *k, hd_text *out);

#endif
