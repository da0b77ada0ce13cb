/* What decisions about code need to know of a machine: the one place that holds the size of a
 * cache.
 *
 * A CPU level has a row of cautious defaults (codegen/library/levels.def), since a library made for
 * it runs on many machines; for `--target-cpu native` they are those of the machine at hand. Passes
 * and emitters read the struct that the level carries and know no sizes of their own. */
#ifndef HD_MACHINE_H
#define HD_MACHINE_H

#include <stdint.h>

typedef struct hd_machine {
    uint32_t line;   /* bytes of a cache line */
    uint32_t l1, l2; /* bytes of one core's data caches */
    uint64_t l3;     /* bytes of the cache that cores share, as far as one may count on it */
} hd_machine;

#endif
