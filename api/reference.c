/* Reference texts about the compiler (its ops and passes), and how two models differ. */
#include <string.h>

#include "api/session.h"
#include "ir/compare/diff.h"
#include "ir/text/text.h"

#define API_FAILED ""

#define TEXT_ENTER(s)                                                                              \
    API_ENTER(s);                                                                                  \
    (void)api_errors_;                                                                             \
    hd_text text;                                                                                  \
    hd_text_init(&text, (s)->arena)
#define TEXT_LEAVE(s)                                                                              \
    hd_arena_guard((s)->arena, api_outer_);                                                        \
    return text.at ? text.at : ""

const char *hadal_passes_text(hadal_session *s) {
    TEXT_ENTER(s);
    for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++)
        hd_text_f(&text, "%-26s %s\n", hir_pass(*id)->name, hir_pass(*id)->doc);
    size_t n;
    const hir_pass_info *own = hir_own_passes(&n);
    if (n) hd_text_add(&text, "\nPasses of one's own, which run where --passes names them:\n");
    for (size_t i = 0; i < n; i++)
        hd_text_f(&text, "%-26s %s\n", own[i].name, own[i].doc);
    TEXT_LEAVE(s);
}

#undef API_FAILED
#define API_FAILED NULL
const char *hadal_ops_text(hadal_session *s, const char *only, int markdown) {
    TEXT_ENTER(s);
    if (!hir_print_reference(&text, markdown != 0, only)) {
        const char *names[HIR_OPCODE_COUNT];
        for (int i = 0; i < HIR_OPCODE_COUNT; i++)
            names[i] = hir_info((hir_opcode)i)->name;
        const char *near = hd_nearest(only, names, HIR_OPCODE_COUNT);
        hd_diag *e = hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "there is no op \"%s\"", only);
        e->hint = near ? hd_printf(s->arena, "did you mean \"%s\"?", near) : NULL;
        hd_arena_guard(s->arena, api_outer_);
        return NULL;
    }
    TEXT_LEAVE(s);
}

/* ---- how two models differ -------------------------------------------------------------------- */

static void count_line(hd_text *out, const hir_diff_counts *c) {
    if (!hir_diff_any(c)) {
        hd_text_add(out, "no differences\n");
        return;
    }
    hd_text_f(out, "%zu added, %zu removed, %zu changed, %zu moved, %zu the same\n", c->added,
              c->removed, c->changed, c->moved, c->same);
}

static bool is_ir_text(const char *path) {
    return hd_ends_with(path, ".hir");
}

/* Names of specs come from their file names, which say nothing about the models. */
static void print_difference(const hir_module *a, const hir_module *b, bool named, hd_text *out,
                             int *differences) {
    hir_module same_name = *b;
    if (!named) same_name.name = a->name;
    const hir_diff_counts counts = hir_diff(a, &same_name, out);
    count_line(out, &counts);
    *differences = hir_diff_any(&counts);
}

const char *hadal_diff(hadal_session *s, const char *a, const char *b, int *differences) {
    TEXT_ENTER(s);
    *differences = 0;
    const char *weights = s->weights_path;
    const hir_module *ma = api_read_model(s, a, NULL);
    const hir_module *mb = api_read_model(s, b, NULL);
    s->weights_path = weights; /* a model folder would have brought its own weights */
    const bool ok = ma && mb;
    if (ok) print_difference(ma, mb, is_ir_text(a) && is_ir_text(b), &text, differences);
    API_RETURN(s, ok ? text.at : NULL);
}

const char *hadal_diff_loaded(hadal_session *s, const hadal_session *other, int *differences) {
    TEXT_ENTER(s);
    *differences = 0;
    const bool ok = api_need_module(s) && other->graph;
    if (ok)
        print_difference(s->graph, other->graph, is_ir_text(s->spec) && is_ir_text(other->spec),
                         &text, differences);
    else if (s->m)
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "the other session has no model loaded");
    API_RETURN(s, ok ? text.at : NULL);
}
