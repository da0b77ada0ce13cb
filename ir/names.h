/* A hash table from names to numbers, in an arena. */
#ifndef HIR_NAMES_H
#define HIR_NAMES_H

#include "support/arena.h"

typedef struct hir_names {
    hd_arena *arena;
    struct hir_names_slot {
        const char *name; /* NULL: free */
        uint32_t hash, value;
    } * slots;
    size_t n, cap; /* cap is a power of two */
} hir_names;

void hir_names_init(hir_names *t, hd_arena *a);
/* The value kept under a name, or NULL. */
uint32_t *hir_names_find(const hir_names *t, const char *name);
/* Adds `name` (the pointer is kept) with a value and returns NULL; if it is there already, changes
 * nothing and returns the old value. */
uint32_t *hir_names_add(hir_names *t, const char *name, uint32_t value);

#endif
