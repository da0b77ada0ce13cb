/* Minimum cuts by Dinic's algorithm: flow is sent along shortest paths that have capacity left, as
 * much at a time as all of one length take, until no path is left. What the source still reaches
 * then is its side of the cut. In O(nodes^2 edges), and on graphs of models near O(edges). Nothing
 * recurses, since a path may be as long as the model. */
#include "passes/gradient/min_cut.h"

#include <string.h>

enum { SOURCE, SINK, NONE = UINT32_MAX };

typedef struct edge { /* edge i ^ 1 is the same one backward */
    uint32_t to, next;
    uint64_t left;
} edge;

struct min_cut {
    hd_arena *arena;
    uint32_t nodes;
    HD_VEC(edge) edges;
    uint32_t *first; /* by node: its first edge */
    /* of a round: */
    uint32_t *level; /* by node: edges from the source to it; NONE: no path leads to it */
    uint32_t *next;  /* by node: the first of its edges that may lead on */
    uint32_t *list;  /* nodes in the order of levels; the edges of a path */
};

static uint32_t *no_edges(min_cut *g) {
    uint32_t *x = hd_new_array(g->arena, uint32_t, g->nodes);
    memset(x, 0xff, g->nodes * sizeof *x);
    return x;
}

min_cut *min_cut_new(hd_arena *a, uint32_t nodes) {
    min_cut *g = hd_new(a, min_cut);
    *g = (min_cut){.arena = a, .nodes = nodes};
    g->first = no_edges(g);
    g->level = no_edges(g);
    g->next = no_edges(g);
    g->list = hd_new_array(a, uint32_t, nodes);
    return g;
}

static void add(min_cut *g, uint32_t from, uint32_t to, uint64_t capacity) {
    hd_push(g->arena, &g->edges, ((edge){to, g->first[from], capacity}));
    g->first[from] = (uint32_t)g->edges.n - 1;
}

void min_cut_edge(min_cut *g, uint32_t from, uint32_t to, uint64_t capacity) {
    add(g, from, to, capacity);
    add(g, to, from, 0);
}

/* Finds how far each node is from the source; false: the sink cannot be reached. */
static bool find_levels(min_cut *g) {
    uint32_t n = 0;
    memset(g->level, 0xff, g->nodes * sizeof *g->level);
    g->level[SOURCE] = 0;
    g->list[n++] = SOURCE;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = g->list[i];
        for (uint32_t e = g->first[at]; e != NONE; e = g->edges.at[e].next) {
            const uint32_t to = g->edges.at[e].to;
            if (!g->edges.at[e].left || g->level[to] != NONE) continue;
            g->level[to] = g->level[at] + 1;
            g->list[n++] = to;
        }
    }
    return g->level[SINK] != NONE;
}

/* The edge that leads from the node to the next level; NONE: there is none left. */
static uint32_t leads_on(min_cut *g, uint32_t at) {
    uint32_t *e = &g->next[at];
    for (; *e != NONE; *e = g->edges.at[*e].next) {
        const edge *x = &g->edges.at[*e];
        if (x->left && g->level[x->to] == g->level[at] + 1) break;
    }
    return *e;
}

/* Finds a path to the sink in list[0 .. *n), by levels. */
static bool find_path(min_cut *g, uint32_t *n) {
    uint32_t at = SOURCE;
    for (*n = 0; at != SINK;) {
        const uint32_t e = leads_on(g, at);
        if (e != NONE) {
            g->list[(*n)++] = e;
            at = g->edges.at[e].to;
            continue;
        }
        if (!*n) return false;
        const uint32_t back = g->list[--*n]; /* nothing leads on from here */
        at = g->edges.at[back ^ 1].to;
        g->next[at] = g->edges.at[back].next;
    }
    return true;
}

static uint64_t send(min_cut *g, uint32_t n) {
    uint64_t flow = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (g->edges.at[g->list[i]].left < flow) flow = g->edges.at[g->list[i]].left;
    for (uint32_t i = 0; i < n; i++) {
        g->edges.at[g->list[i]].left -= flow;
        g->edges.at[g->list[i] ^ 1].left += flow;
    }
    return flow;
}

uint64_t min_cut_find(min_cut *g, bool *side) {
    uint64_t all = 0;
    uint32_t n;
    while (all <= MIN_CUT_WHOLE && find_levels(g)) {
        memcpy(g->next, g->first, g->nodes * sizeof *g->next);
        while (all <= MIN_CUT_WHOLE && find_path(g, &n))
            all += send(g, n);
    }
    for (uint32_t i = 0; i < g->nodes; i++)
        side[i] = g->level[i] != NONE;
    return all;
}
