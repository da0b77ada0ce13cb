/* Which back end multiplies a matrix: matmul/backends.def as data, what follows from it, and the
 * back ends of one kernel. */
#include "codegen/matmul/backend.h"

#include <stddef.h>
#include <string.h>

#define USE(id, rounds, weights, layouts, tokens, lanes, features, needs)                          \
    extern const hcg_backend hcg_##id;
#include "codegen/matmul/backends.def"
#undef USE

enum { HCG_ROUND_NONE, DECODE = HCG_FOR_DECODE, PREFILL = HCG_FOR_PREFILL };

static const hcg_backend_row backend_rows[] = {
#define W(id) (1u << HIR_##id)
#define L(id) (1u << HIR_LAYOUT_##id)
#define ANY                                                                                        \
    { 0, 0 }
#define AT_LEAST(fact, n)                                                                          \
    { offsetof(hd_machine, fact), n }
#define USE(id, rounds, weights, layouts, tokens, lanes, features, needs)                          \
    {&hcg_##id, HCG_ROUND_##rounds, weights, layouts, tokens, lanes, features, needs},
#include "codegen/matmul/backends.def"
#undef USE
#undef AT_LEAST
#undef ANY
#undef L
#undef W
};
enum { ROWS = sizeof backend_rows / sizeof *backend_rows };

size_t hcg_backend_rows(const hcg_backend_row **out) {
    *out = backend_rows;
    return ROWS;
}

/* ---- rows of the table ----------------------------------------------------------------------- */
static bool multiplies(const hcg_backend_row *c, unsigned exact, hir_dtype dtype,
                       hir_layout layout) {
    return !(c->rounds & exact) && (c->weights & 1u << dtype) && (c->layouts & 1u << layout);
}

static bool has_rate(const hcg_backend_row *c, const hd_machine *m) {
    uint32_t rate;
    if (!c->needs.least) return true;
    memcpy(&rate, (const char *)m + c->needs.fact, sizeof rate);
    return rate >= c->needs.least;
}

static bool runs_on(const hcg_backend_row *c, const hcg_level *level) {
    return (!c->lanes || c->lanes == level->lanes) && hcg_has_features(level, c->features) &&
           has_rate(c, &level->machine);
}

const hcg_backend_row *hcg_choose_backend(const hcg_level *level, unsigned exact, hir_dtype dtype,
                                          hir_layout layout, unsigned tokens) {
    for (size_t i = 0; i < ROWS; i++)
        if (multiplies(&backend_rows[i], exact, dtype, layout) &&
            runs_on(&backend_rows[i], level) && (backend_rows[i].tokens & tokens))
            return &backend_rows[i];
    return NULL;
}

/* ---- sets of matrices ------------------------------------------------------------------------ */
bool hcg_same_backends(const hcg_level *a, const hcg_level *b, unsigned exact, uint32_t matrices) {
    for (int d = 0; d < HIR_DTYPE_COUNT; d++)
        for (int l = 0; l < HIR_LAYOUTS; l++)
            for (unsigned tokens = DECODE; tokens <= PREFILL; tokens++)
                if (matrices & hcg_matrix((hir_dtype)d, (hir_layout)l) &&
                    hcg_choose_backend(a, exact, (hir_dtype)d, (hir_layout)l, tokens) !=
                        hcg_choose_backend(b, exact, (hir_dtype)d, (hir_layout)l, tokens))
                    return false;
    return true;
}

/* Where there are dot products of bf16 for one token, outer products have them, too (outer.c). */
bool hcg_multiplies_bf16(const hcg_level *level) {
    const unsigned exact = HCG_ROUND_ALL & ~(unsigned)HCG_ROUND_BF16;
    for (unsigned tokens = DECODE; tokens <= PREFILL; tokens++) {
        const hcg_backend_row *c =
            hcg_choose_backend(level, exact, HIR_BF16, HIR_LAYOUT_PANEL, tokens);
        if (!c || c->rounds != HCG_ROUND_BF16) return false;
    }
    return true;
}

unsigned hcg_roundings_on(const hcg_level *level, uint32_t matrices, unsigned exact) {
    unsigned rounds = 0;
    for (int d = 0; d < HIR_DTYPE_COUNT; d++)
        for (int l = 0; l < HIR_LAYOUTS; l++)
            for (unsigned tokens = DECODE; tokens <= PREFILL; tokens++) {
                const hcg_backend_row *c =
                    matrices & hcg_matrix((hir_dtype)d, (hir_layout)l)
                        ? hcg_choose_backend(level, exact, (hir_dtype)d, (hir_layout)l, tokens)
                        : NULL;
                if (c) rounds |= c->rounds;
            }
    return rounds;
}

unsigned hcg_roundings_of(uint32_t matrices, unsigned exact) {
    unsigned rounds = 0;
    for (size_t i = 0; i < ROWS; i++)
        for (int d = 0; d < HIR_DTYPE_COUNT; d++)
            for (int l = 0; l < HIR_LAYOUTS; l++)
                if (matrices & hcg_matrix((hir_dtype)d, (hir_layout)l) &&
                    multiplies(&backend_rows[i], exact, (hir_dtype)d, (hir_layout)l))
                    rounds |= backend_rows[i].rounds;
    return rounds;
}

/* ---- the back ends at work in one kernel ----------------------------------------------------- */
static const hcg_backend_row *backend_row_of(const hcg_emit *e, const hcg_products *p,
                                             const hcg_linear *l) {
    const unsigned tokens = p->decode ? HCG_FOR_DECODE : HCG_FOR_PREFILL;
    const unsigned exact = hcg_exact_products(&e->p->options);
    return hcg_choose_backend(e->level, exact, l->dtype, l->layout, tokens);
}

static bool reject(hcg_emit *e, const hcg_linear *l) {
    const hir_value *y = hir_value_at(e->p->m, l->value);
    hd_err(e->diags, HD_E_INTERNAL, *hir_op_at(e->p->m, y->op)->loc,
           "no back end multiplies a matrix of %s on %s", hir_dtype_name(l->dtype), e->level->name)
        ->hint = "matmul/backends.def";
    return false;
}

/* Makes a product for each row of backends.def that multiplies one of the matrices. */
bool hcg_choose_products(hcg_emit *e, const hcg_kernel *k, const hcg_contraction *c,
                         hcg_products *out) {
    *out = (hcg_products){
        .decode = k->phase == HIR_DECODE, .k = c->k, .tile_panels = 1, .row_unit = 1};
    if (k->n_sizes) out->k = k->size[HCG_K].most;
    out->of = hd_new_array(e->arena, unsigned, c->linears.n);
    for (size_t i = 0; i < c->linears.n; i++)
        if (!backend_row_of(e, out, &c->linears.at[i])) return reject(e, &c->linears.at[i]);
    for (size_t row = 0; row < ROWS; row++) {
        hcg_product product = {.backend = backend_rows[row].backend};
        for (size_t i = 0; i < c->linears.n; i++) {
            if (backend_row_of(e, out, &c->linears.at[i]) != &backend_rows[row]) continue;
            product.weights |= 1u << c->linears.at[i].dtype;
            out->of[i] = out->n;
        }
        if (!product.weights) continue;
        if (out->n == HCG_MOST_PRODUCTS) return reject(e, &c->linears.at[0]);
        out->at[out->n++] = product;
    }
    return true;
}

int64_t hcg_block_of_products(const hcg_emit *e, hcg_products *p) {
    int64_t least = INT64_MAX;
    for (unsigned i = 0; i < p->n; i++) {
        const hcg_backend *b = p->at[i].backend;
        const int64_t panels = b->tile_panels(e->level);
        const int64_t rows = b->block_rows(e->level, p->k);
        const int64_t unit = b->row_unit ? b->row_unit(e->level) : 1;
        if (panels > p->tile_panels) p->tile_panels = panels;
        if (unit > p->row_unit) p->row_unit = unit;
        if (rows < least) least = rows;
    }
    return least;
}

void hcg_begin_products(hcg_emit *e, hcg_products *p, uint64_t rows) {
    for (unsigned i = 0; i < p->n; i++) {
        hcg_product *q = &p->at[i];
        q->decode = p->decode, q->k = p->k, q->rows = rows, q->panels = p->tile_panels;
        q->of_tokens = p->of_tokens;
        if (q->backend->begin) q->backend->begin(e, q);
    }
}

void hcg_prepare_products(hcg_emit *e, hcg_products *p, LLVMValueRef x, LLVMValueRef k,
                          LLVMValueRef n_rows) {
    hcg_prepare_listed(e, p, x, k, n_rows, NULL, 1);
}

bool hcg_products_gather(const hcg_products *p) {
    bool all = true;
    for (unsigned i = 0; i < p->n; i++)
        all &= p->at[i].backend->gathers;
    return all;
}

void hcg_prepare_listed(hcg_emit *e, hcg_products *p, LLVMValueRef x, LLVMValueRef k,
                        LLVMValueRef n_rows, LLVMValueRef list, int64_t each) {
    for (unsigned i = 0; i < p->n; i++) {
        hcg_product *q = &p->at[i];
        q->x = x, q->n_rows = n_rows, q->list = list, q->each = each;
        q->ldx = q->length = k;
        if (q->backend->prepare) q->backend->prepare(e, q);
    }
}

void hcg_end_products(hcg_emit *e, hcg_products *p) {
    for (unsigned i = 0; i < p->n; i++)
        if (p->at[i].backend->end) p->at[i].backend->end(e, &p->at[i]);
}

uint64_t hcg_rows_of_sums(const hcg_products *p, uint64_t rows) {
    uint64_t most = rows;
    for (unsigned i = 0; i < p->n && !p->decode; i++) {
        const uint64_t tile = p->at[i].backend->tile_rows;
        const uint64_t whole = (rows + tile - 1) / tile * tile;
        if (whole > most) most = whole;
    }
    return most;
}
