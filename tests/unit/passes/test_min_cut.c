/* Minimum cuts against all cuts of small random graphs, and the largest of the paths through a long one. */
#include <criterion/criterion.h>

#include "passes/gradient/min_cut.h"
#include "tests/unit/arena_fixture.h"

TestSuite(min_cut, .init = open_arena, .fini = close_arena);

enum { NODES = 9, EDGES = 24 };

typedef struct edge {
    uint32_t from, to;
    uint64_t capacity;
} edge;

/* The least that a set of nodes with the source and without the sink costs. */
static uint64_t least(const edge *e, uint32_t nodes, uint32_t edges) {
    uint64_t best = UINT64_MAX;
    for (uint32_t set = 0; set < 1u << nodes; set++) {
        uint64_t all = 0;
        if (!(set & 1) || set & 2) continue;
        for (uint32_t i = 0; i < edges; i++)
            if (set >> e[i].from & 1 && !(set >> e[i].to & 1)) all += e[i].capacity;
        if (all < best) best = all;
    }
    return best;
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

Test(min_cut, is_the_least_of_all_cuts) {
    uint32_t seed = 7;
    for (int n = 0; n < 300; n++) {
        edge e[EDGES];
        bool side[NODES];
        min_cut *g = min_cut_new(arena, NODES);
        for (int i = 0; i < EDGES; i++) {
            e[i] = (edge){draw(&seed) % NODES, draw(&seed) % NODES, draw(&seed) % 20};
            min_cut_edge(g, e[i].from, e[i].to, e[i].capacity);
        }
        const uint64_t found = min_cut_find(g, side);
        uint64_t cut = 0;
        for (int i = 0; i < EDGES; i++)
            if (side[e[i].from] && !side[e[i].to]) cut += e[i].capacity;
        cr_assert(side[0] && !side[1]);
        cr_assert_eq(cut, found);
        cr_assert_eq(found, least(e, NODES, EDGES));
    }
}

/* A path as long as a deep model, whose narrowest edge is in the middle; of equal cuts that next to the
 * source. */
Test(min_cut, long_paths) {
    enum { LENGTH = 200000 };
    min_cut *g = min_cut_new(arena, LENGTH + 2);
    bool *side = hd_new_array(arena, bool, LENGTH + 2);
    min_cut_edge(g, 0, 2, MIN_CUT_WHOLE);
    for (uint32_t i = 2; i <= LENGTH; i++)
        min_cut_edge(g, i, i + 1, i == 1000 || i == LENGTH / 2 ? 5 : 9);
    min_cut_edge(g, LENGTH + 1, 1, MIN_CUT_WHOLE);
    cr_assert_eq(min_cut_find(g, side), 5);
    cr_assert(side[1000] && !side[1001]);
}

Test(min_cut, none) {
    bool side[3];
    min_cut *g = min_cut_new(arena, 3);
    cr_assert_eq(min_cut_find(g, side), 0);
    cr_assert(side[0] && !side[1] && !side[2]);
    g = min_cut_new(arena, 3);
    min_cut_edge(g, 0, 2, MIN_CUT_WHOLE);
    min_cut_edge(g, 2, 1, MIN_CUT_WHOLE);
    min_cut_edge(g, 0, 1, 1);
    cr_assert_gt(min_cut_find(g, side), MIN_CUT_WHOLE);
}
