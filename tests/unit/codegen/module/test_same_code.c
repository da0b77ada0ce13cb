/* Levels share the functions whose code is equal (codegen/module/same_code.h). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codegen/module/module.h"
#include "codegen/module/same_code.h"
#include "tests/tools/full.h"
#include "tests/unit/codegen/toy_model.h"

#define FOLDER "/tmp/hadal-same-XXXXXX"
#include "tests/unit/folder_fixture.h"

#define RUNTIME HADAL_BUILD "/lib/libhadalrt.a"
enum { VOCAB = 40 };

TestSuite(same_code, .init = open_folder, .fini = close_folder, .timeout = 300);

/* What nm says of the library: a line for each symbol. */
static const char *symbols(void) {
    char text[65536];
    FILE *f = popen(hd_printf(arena, "nm %s/libtoy.so", folder), "r");
    const size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    cr_assert(n > 0 && n < sizeof text && pclose(f) == 0);
    return hd_strndup(arena, text, n);
}

static bool has_function(const char *nm, const char *name, const hcg_level *level) {
    return strstr(nm, hd_printf(arena, " t %s_%s\n", name, level->name)) != NULL;
}

/* Level amx multiplies and attends in its own way. Rows are as for the level that it extends, and
 * made once. */
Test(same_code, levels_share_what_is_the_same) {
    hcg_options o = {0};
    hcg_target t;
    hcg_objects objects;
    hir_module *m = hir_parse(arena, &diags, "test.hir", toy_model(arena, "toy", 1, VOCAB));
    hcg_program *p = m ? hcg_lower(arena, &diags, m, &o) : NULL;
    cr_assert(p && hcg_emit_units(p, &diags, in_folder("toy"), &objects));
    cr_assert(hcg_link(p, &diags, &objects, NULL, RUNTIME, in_folder("libtoy.so")));
    hcg_remove_objects(&objects);
    const char *nm = symbols();
    cr_assert(hcg_find_target(&p->options, arena, &diags, &t));
    const hcg_variant *best = &t.variants.at[0], *worst = &t.variants.at[t.variants.n - 1];
    cr_assert(t.variants.n > 2 && !strcmp(best->level.name, "amx"));
    cr_expect_not(has_function(nm, "toy_embed", &best->level));
    cr_expect(has_function(nm, "toy_embed", &worst->level));
    cr_expect(has_function(nm, "toy_head_prefill", &best->level));
    hcg_find_same_code(p, &t);
    cr_assert(best->same && best->same->names.n > 2 && !worst->same);
    for (const hcg_variant *v = best; v < worst; v++) {
        cr_assert(!v->same || v->same->as == v + 1);
        for (size_t k = 0; v->same && k < v->same->names.n; k++) {
            const char *name = v->same->names.at[k];
            cr_expect(k == 0 || strcmp(v->same->names.at[k - 1], name) < 0, "%s", name);
            cr_expect_not(has_function(nm, name, &v->level), "%s", name);
        }
    }
}
