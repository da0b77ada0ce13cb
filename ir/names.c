/* Open addressing with linear probing, at most half full. */
#include "ir/names.h"

#include <string.h>

static uint32_t hash_of(const char *s) { /* FNV-1a with a final mix */
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    return h ^ h >> 13;
}

void hir_names_init(hir_names *t, hd_arena *a) {
    *t = (hir_names){.arena = a};
}

/* The slot of a name, or the free slot where it belongs. */
static struct hir_names_slot *slot_of(const hir_names *t, const char *name, uint32_t hash) {
    size_t i = hash & (t->cap - 1);
    while (t->slots[i].name && (t->slots[i].hash != hash || strcmp(t->slots[i].name, name) != 0))
        i = (i + 1) & (t->cap - 1);
    return &t->slots[i];
}

static void grow(hir_names *t) {
    hir_names bigger = {.arena = t->arena, .n = t->n, .cap = t->cap ? t->cap * 2 : 64};
    bigger.slots = hd_new_array(t->arena, struct hir_names_slot, bigger.cap);
    for (size_t i = 0; i < t->cap; i++)
        if (t->slots[i].name) *slot_of(&bigger, t->slots[i].name, t->slots[i].hash) = t->slots[i];
    *t = bigger;
}

uint32_t *hir_names_find(const hir_names *t, const char *name) {
    if (!t->cap) return NULL;
    struct hir_names_slot *slot = slot_of(t, name, hash_of(name));
    return slot->name ? &slot->value : NULL;
}

uint32_t *hir_names_add(hir_names *t, const char *name, uint32_t value) {
    if (t->n * 2 >= t->cap) grow(t);
    uint32_t hash = hash_of(name);
    struct hir_names_slot *slot = slot_of(t, name, hash);
    if (slot->name) return &slot->value;
    *slot = (struct hir_names_slot){name, hash, value};
    t->n++;
    return NULL;
}
