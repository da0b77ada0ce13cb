/* What exchanges between ranks take, and what ranks tell each other while they measure. All make
 * the same calls, and get the same figures; the result is a hadal_comm_result. */
#ifndef API_MACHINE_RANKS_H
#define API_MACHINE_RANKS_H

#include <stdint.h>

#include "hadal/hadal_comm.h"

typedef struct machine_links {
    int32_t ranks;
    double latency; /* seconds of an exchange of few bytes among all ranks */
    double network; /* bits per second that leave a rank in one of many, while as many come */
} machine_links;

/* The CPUs that this process may use, and of which machine, as a number: ranks that have the same
 * take turns on them. */
uint64_t machine_cpus_here(void);
/* Of rates that all ranks have measured at the same time, that of the slowest. Ranks on the same
 * CPUs are as fast as each other, however their turns fell in a time as short as that of a sample:
 * of them it is the mean. 0: that of some rank is 0. */
int machine_slowest_of_ranks(const hadal_comm *c, int64_t timeout_ns, uint64_t cpus, double mine,
                             double *slowest);
int machine_measure_links(const hadal_comm *c, int64_t timeout_ns, machine_links *out);

#endif
