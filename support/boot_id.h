/* Which start of which machine a process runs in: what two processes share that have the same.
 * Linux tells it, in containers and namespaces as well. */
#ifndef HD_BOOT_ID_H
#define HD_BOOT_ID_H

#include <stdio.h>
#include <string.h>

enum { HD_BOOT_ID = 40 };

/* "": nobody tells it. */
static inline void hd_read_boot_id(char id[HD_BOOT_ID]) {
    memset(id, 0, HD_BOOT_ID);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f) return;
    if (!fgets(id, HD_BOOT_ID, f)) id[0] = 0;
    fclose(f);
}

#endif
