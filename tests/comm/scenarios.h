/* What a transport must do, as scenarios that every rank runs with its side of it: the threads
 * transport under Criterion (unit/comm/test_comm.c), MPI under mpirun (ranks.c). */
#ifndef TEST_COMM_SCENARIOS_H
#define TEST_COMM_SCENARIOS_H

#include <stdbool.h>

#include "hadal/hadal_comm.h"

typedef struct scenario {
    const char *name;
    /* False: something was not as it has to be; *why says what. */
    bool (*run)(const hadal_comm *c, const char **why);
    bool ends_well; /* all ranks can close afterwards */
} scenario;

extern const scenario scenarios[];
extern const int n_scenarios;

/* NULL: there is none of that name. */
const scenario *find_scenario(const char *name);

#endif
