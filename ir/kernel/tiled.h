/* Kernels that do the tokens of a call tile by tile: all of them the first so many tokens, then all
 * of them the next.
 *
 * Such kernels stand one after the other and have the attribute `tile`, the most tokens of a tile.
 * What one of them leaves for another exists for the rows of one tile at a time. Each does the rows
 * of a tile as it would do those of a call, and a sum over tokens is added to a gradient of the
 * model tile by tile, so that no result needs rows of other tiles. The runtime runs them so
 * (runtime/run.c), plan-memory places what does not leave them in an area of its own
 * (HIR_PLACE_TILE), and tile-logits decides which they are. */
#ifndef HIR_TILED_H
#define HIR_TILED_H

#include "ir/ir.h"

/* What logits may take of memory, in bytes, before they exist by tiles: no size of a cache, they lie
 * in none. */
enum { HIR_MOST_LOGITS = 64 << 20 };

/* Kernels by number, in the order of the text without outputs. */
typedef struct hir_tiled {
    uint32_t first, end;
} hir_tiled;

typedef struct hir_tiled_list {
    HD_VEC(hir_tiled) list; /* in order; between two of them is a kernel without `tile` */
    int64_t tokens;         /* of a tile, at most; the same in all of them */
} hir_tiled_list;

hir_tiled_list hir_find_tiled(hd_arena *a, const hir_module *m);
/* The one that holds the kernel; the length of the list: none does. */
size_t hir_tiled_of(const hir_tiled_list *all, uint32_t kernel);

/* Bytes of the values of a call of so many tokens, after plan-memory: the arena, and that of a tile
 * (runtime/layout.c). */
uint64_t hir_bytes_of_call(hd_arena *a, const hir_module *m, int64_t tokens);

/* Why the kernel cannot be done tile by tile; NULL: it can. */
const char *hir_why_not_tiled(const hir_module *m, hir_id kernel);

#endif
