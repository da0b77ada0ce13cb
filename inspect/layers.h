/* What the layers of a model keep from token to token, and what of it and of their experts a token
 * moves: bytes of the module as it stands.
 *
 * Held is what a session for so many positions has memory for: a cache has a row for each position,
 * also where attention has a window (docs/decisions/attention.md). Read is what one token
 * behind the others reads: all of a carry and of a window, of a cache the rows that are seen. */
#ifndef INSPECT_LAYERS_H
#define INSPECT_LAYERS_H

#include "inspect/views.h"

enum state_group {
#define G(id, key, label) STATE_GROUP_##id,
#include "inspect/state_groups.def"
#undef G
    STATE_GROUP_OF_KIND, /* + hir_state_kind, of kinds that are no caches */
    STATE_GROUPS = STATE_GROUP_OF_KIND + HIR_STATE_KINDS
};
const char *state_group_key(int group);
const char *state_group_label(int group);

typedef struct state_bytes { /* of a token: the last of so many */
    uint64_t held, read, written;
} state_bytes;

typedef struct states_at {
    int64_t positions;
    state_bytes group[STATE_GROUPS], all;
} states_at;
enum { STATE_LENGTHS = 4 };

/* Layers whose tokens choose alike: `chosen` of `experts`. */
typedef struct expert_group {
    int64_t experts, chosen;
    uint32_t layers;
    uint64_t bytes; /* of all their experts, as stored */
} expert_group;

typedef struct layers {
    uint32_t states[STATE_GROUPS]; /* how many there are */
    uint32_t groups;               /* of states, that there are */
    states_at at[STATE_LENGTHS];   /* behind 4K, 32K, 128K and 1M positions */
    HD_VEC(expert_group) experts;
} layers;
void layers_collect(const hir_module *m, hd_arena *a, layers *out);

/* Experts that one of so many tokens is expected to choose, if all are chosen alike. */
double expert_group_touched(const expert_group *g, int64_t tokens);

void layers_held_text(const layers *x, hd_text *out);
void layers_traffic_text(const layers *x, hd_text *out);
void layers_json(const layers *x, hd_text *out); /* "states": [..], "experts": [..] */

#endif
