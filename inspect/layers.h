/* What the layers of a model keep from token to token, and how many bytes of that and of their
 * experts one token moves. All figures are bytes of the module as it stands.
 *
 * Held: memory that a session for so many positions has. A cache has a row for each position, also
 * where attention has a window (docs/decisions/attention.md). Read: what one token after so many
 * positions reads, which is all of a carry (a state of fixed size) and of a window, and of a cache
 * the rows that the token attends to. */
#ifndef INSPECT_LAYERS_H
#define INSPECT_LAYERS_H

#include "inspect/views.h"

enum state_group {
#define G(id, key, label) STATE_GROUP_##id,
#include "inspect/state_groups.def"
#undef G
    STATE_GROUP_OF_KIND, /* + hir_state_kind, for the kinds that are no caches */
    STATE_GROUPS = STATE_GROUP_OF_KIND + HIR_STATE_KINDS
};
const char *state_group_key(int group);
const char *state_group_label(int group);

typedef struct state_bytes { /* for one token, the last of so many */
    uint64_t held, read, written;
} state_bytes;

typedef struct states_at {
    int64_t positions;
    state_bytes group[STATE_GROUPS], all;
} states_at;
enum { STATE_LENGTHS = 4 };

/* Layers whose tokens use the same number of experts, `chosen` of `experts`, equally often. */
typedef struct expert_group {
    int64_t experts, chosen;
    int64_t passes; /* of a token through each of these layers, which chooses in each of them */
    uint32_t layers;
    uint64_t bytes; /* of all experts of these layers, as stored */
} expert_group;

typedef struct layers {
    uint32_t states[STATE_GROUPS]; /* by group: number of states */
    uint32_t groups;               /* number of groups that have states */
    states_at at[STATE_LENGTHS];   /* after 4K, 32K, 128K and 1M positions */
    HD_VEC(expert_group) experts;
} layers;
void layers_collect(const hir_module *m, hd_arena *a, layers *out);

/* The number of experts that at least one of so many tokens is expected to use, if all experts are
 * equally likely. */
double expert_group_touched(const expert_group *g, int64_t tokens);

void layers_held_text(const layers *x, hd_text *out);
void layers_traffic_text(const layers *x, hd_text *out);
void layers_json(const layers *x, hd_text *out); /* "states": [..], "experts": [..] */

#endif
