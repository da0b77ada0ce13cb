/* Models of tests/golden and tests/published as graphs, for the test at hand (arena_fixture.h). */
#ifndef STORED_MODELS_H
#define STORED_MODELS_H

#include <criterion/criterion.h>

#include "frontend/frontend.h"
#include "tests/unit/arena_fixture.h"

/* `where`: "golden" or "published". */
static inline hir_module *load(const char *where, const char *name) {
    const hfe_options options = {.std_dir = TEST_DATA "/../frontend/std"};
    const char *folder = hd_printf(arena, "%s/%s/%s", TEST_DATA, where, name);
    const char *text = hfe_import(arena, &diags, folder, &options);
    cr_assert(text, "%s", said());
    hir_module *m =
        hfe_load_spec_text(arena, &diags, hd_printf(arena, "%s.hadal", folder), text, &options);
    cr_assert(m, "%s", said());
    return m;
}

#endif
