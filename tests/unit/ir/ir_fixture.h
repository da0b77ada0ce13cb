/* An arena and diagnostics for tests of the IR, and short ways to parse and print. */
#ifndef IR_FIXTURE_H
#define IR_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "ir/signature.h"
#include "ir/verify.h"
#include "tests/unit/arena_fixture.h"

static inline hir_module *parse(const char *text) {
    hd_diags_init(&diags, arena);
    return hir_parse(arena, &diags, "test.hir", text);
}

static inline const char *print(const hir_module *m, bool locations) {
    hd_text t;
    hd_text_init(&t, arena);
    hir_print(m, (hir_print_options){.locations = locations}, &t);
    return t.at;
}

static inline hir_type type_of(const char *text) { /* by way of the parser: "f32[T, 4]" */
    hir_module *m = parse(hd_printf(arena, "hir 1 graph @m\nfunc(%%x: %s) {\n}\n", text));
    cr_assert_not_null(m, "%s", said());
    return hir_value_at(m, 0)->type;
}

#endif
