/* What exchanges between ranks take, and what ranks tell each other while they measure. All make
 * the same calls, and get the same figures; the result is a hadal_comm_result. */
#ifndef API_MACHINE_RANKS_H
#define API_MACHINE_RANKS_H

#include "hadal/hadal_comm.h"

typedef struct machine_links {
    int32_t ranks;
    double latency; /* seconds of an exchange of few bytes among all ranks */
    double network; /* bits per second that leave a rank in one of many, while as many come */
} machine_links;

int machine_lowest_of_ranks(const hadal_comm *c, int64_t timeout_ns, double mine, double *lowest);
int machine_measure_links(const hadal_comm *c, int64_t timeout_ns, machine_links *out);

#endif
