#include "api/taps.h"

#include <unistd.h>

#include "api/look.h"
#include "inspect/by_depth.h"
#include "inspect/format.h"

/* ---- which are wanted ------------------------------------------------------------------------ */

static bool divided(hadal_session *s) {
    if (s->pass_options.ranks <= 1 && s->pass_options.stages <= 1) return false;
    hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "a divided model has no taps")->hint =
        "leave out --ranks and --stages: the values are the same";
    return true;
}

bool api_choose_taps(hadal_session *s, const hadal_pipeline *p) {
    s->taps = NULL, s->by_depth = NULL;
    if (!p->taps && !p->by_depth) return true;
    taps *x = hd_new(s->arena, taps);
    if (divided(s) || !taps_find(s->graph, s->arena, &s->diags, x)) return false;
    if (p->taps && !taps_store(x, p->taps, s->arena, &s->diags)) return false;
    if (p->by_depth) taps_measure(x);
    taps_keep(x, s->arena);
    s->taps = x;
    return true;
}

bool api_add_taps(hadal_session *s, hir_module *m) {
    return !s->taps || taps_add_outputs(s->taps, m, &s->diags);
}

/* ---- their size ------------------------------------------------------------------------------ */

uint64_t api_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
}

bool api_check_taps(hadal_session *s, int64_t rows, uint64_t memory) {
    enum { MUCH = 1 << 28 };
    if (!s->taps) return true;
    const uint64_t bytes = taps_bytes(s->taps, s->graph, rows);
    const char *size = inspect_bytes(s->arena, bytes);
    if (bytes > memory) {
        hd_diag *e =
            hd_err(&s->diags, HD_E_LIMIT, HD_NOWHERE,
                   "the taps of %lld tokens take %s, more than the memory of this machine, "
                   "%s",
                   (long long)rows, size, inspect_bytes(s->arena, memory));
        e->hint = "take fewer of them, as --taps output.*, or fewer tokens";
        return false;
    }
    if (bytes > MUCH)
        hd_note(&s->diags, HD_NOWHERE, "the taps of %lld tokens take %s of memory", (long long)rows,
                size);
    return true;
}

/* ---- what becomes of them -------------------------------------------------------------------- */

/* A stored tap as a tensor. What is a part of a value is copied out of its rows. */
static hd_tensor tensor_of(hadal_session *s, const tap *t, const api_tapped *x) {
    const hir_type type = hir_ref_type(s->graph, t->value);
    const int64_t row = hir_type_row_elements(type);
    hd_tensor out = {.name = t->name, .dtype = HD_T_F32, .rank = type.rank};
    for (uint32_t i = 0; i < type.rank; i++)
        out.shape[i] = type.dim[i] == HIR_T ? x->rows : type.dim[i];
    const float *at = x->at[t->shown];
    if (t->n != row) {
        out.rank = 2;
        out.shape[1] = t->n;
        float *part = hd_alloc(s->arena, (size_t)x->rows, (size_t)t->n * sizeof(float));
        for (int64_t r = 0; r < x->rows; r++)
            for (int64_t k = 0; k < t->n; k++)
                part[r * t->n + k] = at[r * row + t->first + k * t->stride];
        at = part;
    }
    out.elements = (uint64_t)(x->rows * t->n);
    out.bytes = out.elements * sizeof(float);
    out.data = (const uint8_t *)at;
    return out;
}

bool api_write_taps(hadal_session *s, const api_tapped *x, const char *path) {
    const taps *all = s->taps;
    if (!path || !all) return true;
    hd_tensor *list = hd_new_array(s->arena, hd_tensor, all->list.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < all->list.n; i++)
        if (all->list.at[i].stored) list[n++] = tensor_of(s, &all->list.at[i], x);
    return hd_safetensors_write(s->arena, &s->diags, path, list, n);
}

void api_start_measuring(hadal_session *s) {
    bool any = false;
    for (size_t i = 0; s->taps && i < s->taps->list.n; i++)
        any |= s->taps->list.at[i].measured;
    s->by_depth = any ? hd_new(s->arena, by_depth) : NULL;
    if (any) by_depth_start(s->taps, s->arena, s->by_depth);
}

void api_measure_taps(hadal_session *s, const api_tapped *x) {
    if (!s->by_depth) return;
    for (uint32_t i = 0; i < s->taps->values.n; i++)
        by_depth_add(s->by_depth, i, x->at[i],
                     hir_type_row_elements(hir_ref_type(s->graph, s->taps->values.at[i])), x->rows);
    s->by_depth->tokens += x->rows;
}

uint32_t *api_tapped_outputs(hadal_session *s, size_t *n) {
    HD_VEC(uint32_t) out = {0};
    uint32_t shown = 0;
    HIR_EACH(s->m, op, s->m->first) {
        const hir_op *o = hir_op_at(s->m, op);
        if (o->code != HIR_OUTPUT_OP) continue;
        const bool tap = taps_is_output(hir_attr_string(o, HIR_A_NAME, ""));
        hd_push(s->arena, &out, tap ? shown++ : HIR_NONE);
    }
    *n = out.n;
    return out.at;
}

#define API_FAILED NULL

const char *hadal_by_depth_text(hadal_session *s, const char *form) {
    API_ENTER(s);
    inspect_form found;
    hd_text text;
    hd_text_init(&text, s->arena);
    const bool ok = s->by_depth && inspect_find_form(form, &found) &&
                    inspect_write(INSPECT_BY_DEPTH, found, s->by_depth, &text);
    API_RETURN(s, ok ? text.at : NULL);
}
