/* A fixture for tests that need memory and a place for diagnostics, and nothing else:
 * TestSuite(x, .init = open_arena, .fini = close_arena). */
#ifndef ARENA_FIXTURE_H
#define ARENA_FIXTURE_H

#include <string.h>

#include "tests/unit/diags_text.h"

static hd_arena *arena;
static hd_diags diags;

static inline void open_arena(void) {
    arena = hd_arena_new();
    hd_diags_init(&diags, arena);
}

static inline void close_arena(void) {
    hd_arena_free(arena);
}

/* All diagnostics as text, for messages of failed assertions and for searching. */
static inline const char *said(void) {
    return diags_text(arena, &diags);
}

/* The first diagnostic whose message has this part; NULL: none has. */
static inline const hd_diag *find_message(const char *part) {
    for (size_t i = 0; i < diags.list.n; i++)
        if (strstr(diags.list.at[i].message, part)) return &diags.list.at[i];
    return NULL;
}

#endif
