/* The clock of the CPUs while vectors of each width are at work on all threads. Some CPUs lower it
 * for wide vectors, or for the matrix unit: then a level with these does less more than its limit of
 * multiply-adds says, since everything else on that CPU is slower, too.
 *
 * A guest of a virtual machine has no counter of cycles. A chain of additions that wait for each
 * other takes one cycle each, whatever the CPU is, so its time says how long a cycle is. The clock
 * goes back up some milliseconds after the last wide instruction: the chain runs between pieces of
 * work that are much shorter. */
#ifndef API_MACHINE_CLOCK_H
#define API_MACHINE_CLOCK_H

#include <stdbool.h>

#include "api/stats.h"

/* C(ENUM, "name", f32 of a vector): what is at work between chains. The first one is the chain
 * itself, which the others are compared with. */
#define MACHINE_CLOCKS(C)                                                                          \
    C(SCALAR, "scalar", 0)                                                                         \
    C(OF_4, "4", 4)                                                                                \
    C(OF_8, "8", 8)                                                                                \
    C(OF_16, "16", 16)                                                                             \
    C(TILES, "tiles", 0)

typedef enum clock_load {
#define C(id, name, lanes) CLOCK_##id,
    MACHINE_CLOCKS(C)
#undef C
        CLOCK_LOADS
} clock_load;

typedef struct machine_clock {
    double hertz;              /* with scalar code; 0: not measured */
    double share[CLOCK_LOADS]; /* of that; 0: this process may not use such vectors */
    double moved;              /* how far a share differs from round to round */
} machine_clock;

/* Measures on so many threads what the process may use. Takes some 0.3 s. */
machine_clock machine_measure_clock(int threads, const bool may_use[CLOCK_LOADS]);
/* The result of rounds: hertz[l] has one sample each round, or none. If a share differs by more than
 * 2 % from round to round, nothing is known. */
machine_clock machine_clock_of(const samples hertz[CLOCK_LOADS]);
/* The part of its clock that the CPU gives up for this load; 0: nothing, or less than 3 %, or nothing
 * is known. */
double machine_throttled_by(const machine_clock *c, clock_load l);
const char *machine_clock_name(clock_load l);
unsigned machine_clock_lanes(clock_load l);

#endif
