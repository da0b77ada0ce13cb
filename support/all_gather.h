/* What ranks report to each other about themselves, next to the collectives of a model: the same
 * code for the runtime and the tool. */
#ifndef HD_ALL_GATHER_H
#define HD_ALL_GATHER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "hadal/hadal_comm.h"

/* all[i] = the `size` bytes that member i of the group contributes; `mine` are those of this rank.
 * All members call it. Returns a hadal_comm_result. */
static inline int hd_all_gather(const hadal_comm *c, hadal_comm_group group, int64_t timeout_ns,
                                const void *mine, void *all, size_t size) {
    uint64_t counts[HADAL_COMM_MAX_RANKS];
    for (int32_t i = 0; i < group.count; i++)
        counts[i] = size;
    return c->all_gather(c->context, group, HADAL_COMM_BYTES, mine, all, counts, timeout_ns);
}

static inline hadal_comm_group hd_all_ranks(const hadal_comm *c) {
    return (hadal_comm_group){0, c->size};
}

/* Identifies a machine and one of its boots: two processes that read the same id run on one machine
 * that has not been restarted in between. Linux gives it in containers and namespaces as well. */
enum { HD_BOOT_ID = 40 };

/* Leaves "" in `id` where the system does not give one. */
static inline void hd_read_boot_id(char id[HD_BOOT_ID]) {
    memset(id, 0, HD_BOOT_ID);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f) return;
    if (!fgets(id, HD_BOOT_ID, f)) id[0] = 0;
    fclose(f);
}

#endif
