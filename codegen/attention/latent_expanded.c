/* The kernel form expanded of kernel.sequence: latent attention with keys and values that are
 * made of the cached rows, for calls of many rows (hrt_condition).
 *
 *     q[T, H, n]  q_shared[T, H, m]  rows c[C, G, r] p[C, G, m]  w_k[K, n, r]  w_v[K, v, r]
 *
 *     k = [w_k[j] c | p]    v = w_v[j] c        of a tile of keys and a head j, into scratch
 *
 * A tile of queries attends to them as to those of a cache (query_tile.h). A tile has as many
 * tokens as a call usually has, since each tile makes keys and values for itself; they are read
 * from the L2. Columns are heads j. Products with w are those of other contractions (backend.h).
 */
#include "codegen/attention/latent.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/packed.h"
#include "codegen/matmul/backend.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

enum { QUERIES = 512 /* queries of a tile, of one head */ };

typedef struct map { /* what makes keys, or values */
    LLVMValueRef w;
    hir_dtype dtype;
    int64_t n, panels, step; /* outputs; panels of a head, and computed together */
    hcg_product product;
    LLVMValueRef sums; /* scratch: a row for each key */
    int64_t ld;
} map;

typedef struct expanded {
    hcg_latent l;
    int64_t per_latent; /* K / G */
    map k, v;
    LLVMValueRef c, p; /* scratch: the rows that the tile of keys is made of; NULL: they are read
                          where they lie */
} expanded;

/* ---- operands -------------------------------------------------------------------------------- */
static bool find_map(hcg_emit *e, const hcg_kernel *k, hir_ref r, map *out) {
    const hir_module *m = e->p->m;
    const hir_type t = hir_ref_type(m, r);
    *out = (map){.w = hcg_arg(e, k, r), .dtype = t.dtype, .n = t.dim[1]};
    out->panels = hcg_whole_panels(t.dim[1]) / HIR_PANEL;
    const hcg_backend_row *row = hcg_choose_backend(e->level, e->p->options.exact, t.dtype,
                                                    HIR_LAYOUT_PANEL, HCG_FOR_PREFILL);
    if (!row) {
        hd_err(e->diags, HD_E_INTERNAL, *hir_op_at(m, k->op)->loc,
               "no back end multiplies a matrix of %s on %s", hir_dtype_name(t.dtype),
               e->level->name)
            ->hint = "matmul/backends.def";
        return false;
    }
    out->product = (hcg_product){.backend = row->backend, .weights = 1u << t.dtype};
    out->product.k = t.dim[2];
    return true;
}

/* Workspace and sums for `keys` rows. */
static void begin_map(hcg_emit *e, map *m, int64_t keys) {
    const hcg_backend *back = m->product.backend;
    const int64_t tile = (int64_t)back->tile_rows, rows = (keys + tile - 1) / tile * tile;
    m->step = back->tile_panels(e->level);
    m->ld = (m->panels + m->step - 1) / m->step * m->step * HIR_PANEL;
    m->product.rows = (uint64_t)keys, m->product.panels = m->step;
    if (back->begin) back->begin(e, &m->product);
    m->sums = hcg_floats(e, rows * m->ld);
}

static void end_map(hcg_emit *e, map *m) {
    if (m->product.backend->end) m->product.backend->end(e, &m->product);
}

/* ---- a tile of keys -------------------------------------------------------------------------- */
/* sums[key] = w[head] c[key] */
static hcg_key_rows multiply(hcg_emit *e, map *m, LLVMValueRef head, LLVMValueRef c,
                             LLVMValueRef keys) {
    hcg_product *q = &m->product;
    const int64_t bytes = hcg_panel_bytes(m->dtype, q->k);
    LLVMValueRef w = hcg_at(e, e->i8, m->w, hcg_mul_const(e, head, m->panels * bytes));
    q->x = c, q->ldx = q->length = hcg_i64(e, q->k), q->n_rows = keys;
    if (q->backend->prepare) q->backend->prepare(e, q);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, m->panels), hcg_i64(e, m->step),
                                "panels", 0, NULL);
    hcg_panels p = {.dtype = m->dtype, .ld = hcg_i64(e, m->ld)};
    p.n = hcg_smaller(e, hcg_sub(e, hcg_i64(e, m->panels), l.index), hcg_i64(e, m->step));
    p.w = hcg_at(e, e->i8, w, hcg_mul_const(e, l.index, bytes));
    p.next = hcg_at(e, e->i8, p.w, hcg_mul_const(e, p.n, bytes));
    p.sums = hcg_at(e, e->f32, m->sums, hcg_mul_const(e, l.index, HIR_PANEL));
    q->backend->gemm(e, q, &p);
    hcg_loop_end(e, &l, NULL);
    hcg_key_rows rows = {.x = m->sums, .next = m->sums, .ld = m->ld, .n = m->n};
    rows.ahead = hcg_i64(e, 0); /* they are made */
    return rows;
}

/* Columns at .. at + n - 1 of the rows first .. first + count - 1 of a state, of `group`. */
typedef struct columns {
    const hcg_cache *state;
    LLVMValueRef group, first, count;
    int64_t at, n;
} columns;

/* Copies the columns to scratch as f32 without gaps; or gives where they lie, if scratch is
 * NULL. */
static LLVMValueRef take_columns(hcg_emit *e, const expanded *x, const columns *from,
                                 LLVMValueRef scratch) {
    const hcg_cache *c = from->state;
    LLVMTypeRef elem = hcg_element(e, c->dtype);
    LLVMValueRef rows = hcg_cache_row(e, &x->l.a, c, from->group, from->first);
    LLVMValueRef n = hcg_i64(e, from->n), at = hcg_i64(e, from->at), zero = hcg_i64(e, 0);
    if (!scratch) return hcg_at(e, elem, rows, at);
    hcg_loop row = hcg_loop_begin(e, zero, from->count, hcg_i64(e, 1), "gather", 0, NULL);
    at = hcg_add(e, hcg_mul_const(e, row.index, c->width), at);
    LLVMValueRef to = hcg_at(e, e->f32, scratch, hcg_mul_const(e, row.index, from->n));
    hcg_widen_row(e, c->dtype, hcg_at(e, elem, rows, at), to, n);
    hcg_loop_end(e, &row, NULL);
    return scratch;
}

static void fetch(hcg_emit *e, hcg_query_tile *t) {
    expanded *x = t->of;
    const hcg_latent *l = &x->l;
    columns c = {.state = &l->state[0], .first = t->first, .count = t->count};
    c.group = LLVMBuildUDiv(e->b, t->group, hcg_i64(e, x->per_latent), "");
    c.at = l->start, c.n = l->r;
    LLVMValueRef latents = take_columns(e, x, &c, x->c);
    t->rows[0] = multiply(e, &x->k, t->group, latents, t->count), t->sums = 1;
    t->values = multiply(e, &x->v, t->group, latents, t->count);
    if (!l->shared) return;
    c.state = &l->state[l->shared_state], c.at = l->shared_at, c.n = l->m;
    LLVMValueRef p = take_columns(e, x, &c, x->p);
    t->rows[1] = (hcg_key_rows){.x = p, .next = p, .n = l->m, .line = l->a.n};
    t->rows[1].ld = x->p ? l->m : c.state->width, t->sums = 2;
    t->rows[1].dtype = x->p ? HIR_F32 : c.state->dtype, t->rows[1].ahead = hcg_i64(e, 0);
}

/* ---- the form -------------------------------------------------------------------------------- */
/* Products read rows without gaps, and products of vectors read f32. */
static void make_scratch(hcg_emit *e, expanded *x, const hcg_query_tile *t) {
    const int64_t keys = t->keys;
    const hcg_latent *l = &x->l;
    const hcg_cache *c = &l->state[0], *p = &l->state[l->shared_state];
    if (c->dtype != HIR_F32 || c->width != l->r) x->c = hcg_floats(e, keys * l->r);
    if (l->shared && p->dtype != HIR_F32 && !t->amx) x->p = hcg_floats(e, keys * l->m);
    begin_map(e, &x->k, keys);
    begin_map(e, &x->v, keys);
}

static bool emit_expanded(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_type w = hir_arg_type(m, id, 5);
    expanded x = {0};
    if (!hcg_find_latent(e, k, id, 1, 7, w.dim[2], &x.l)) return false;
    if (!find_map(e, k, hir_op_at(m, id)->args[5], &x.k)) return false;
    if (!find_map(e, k, hir_op_at(m, id)->args[6], &x.v)) return false;
    hcg_attention *a = &x.l.a;
    x.per_latent = w.dim[0] / x.l.groups;
    a->groups = w.dim[0], a->per_group = a->heads / a->groups, a->m = x.v.n;
    hcg_at_op(e, id);
    int64_t tokens = QUERIES / a->per_group;
    if (tokens > e->p->chunk) tokens = e->p->chunk;
    hcg_query_tile t = {.a = a, .tokens = tokens < 1 ? 1 : tokens, .keys = HCG_KEYS};
    t.parts = 1 + x.l.shared, t.fetch = fetch, t.of = &x;
    t.part[0] = (hcg_query_part){.q = a->q, .n = a->n};
    if (x.l.shared) t.part[1] = (hcg_query_part){.q = x.l.q_shared, .n = x.l.m, .line = a->n};
    t.segment[0].n = a->n, t.segments = 1 + x.l.shared;
    if (x.l.shared) t.segment[1].line = a->n, t.segment[1].n = x.l.m;
    hcg_queries_begin(e, &t);
    make_scratch(e, &x, &t);
    hcg_queries_all_rows(e, &t);
    end_map(e, &x.k);
    end_map(e, &x.v);
    return true;
}

static int64_t heads_of_maps(const hir_module *m, hir_id kernel) {
    return hir_arg_type(m, hir_form_op(m, kernel), 5).dim[0];
}

const hcg_form hcg_form_expanded = {.emit = emit_expanded, .columns = heads_of_maps};
