/* How long collectives between ranks take, and figures that ranks gather from each other while they
 * measure. All ranks make the same calls and get the same figures; each result is a
 * hadal_comm_result. */
#ifndef API_MACHINE_RANKS_H
#define API_MACHINE_RANKS_H

#include <stdint.h>

#include "hadal/hadal_comm.h"

typedef struct machine_links {
    int32_t ranks;
    double latency; /* seconds of a collective of few bytes among all ranks */
    /* bits per second that leave a rank in a collective of many bytes, while as many arrive */
    double network;
} machine_links;

/* A number for the set of CPUs that this process may use and the machine they belong to: ranks with
 * the same number take turns on the same CPUs. */
uint64_t machine_cpus_here(void);
/* Of rates that all ranks have measured at the same time, the slowest one. Ranks on the same CPUs
 * are equally fast, however their turns fell during a short sample: for them it is the mean. 0:
 * some rank's rate is 0. */
int machine_slowest_of_ranks(const hadal_comm *c, int64_t timeout_ns, uint64_t cpus, double mine,
                             double *slowest);
int machine_measure_links(const hadal_comm *c, int64_t timeout_ns, machine_links *out);

#endif
