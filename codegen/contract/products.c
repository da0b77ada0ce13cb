/* Choosing and starting the back ends of a kernel (contract/products.h). */
#include "codegen/contract/products.h"

static const hcg_choice *choice_of(const hcg_emit *e, const hcg_products *p, const hcg_linear *l) {
    const unsigned tokens = p->decode ? HCG_FOR_DECODE : HCG_FOR_PREFILL;
    return hcg_choose(e->level, e->p->options.exact, l->dtype, l->layout, tokens);
}

static bool refuse(hcg_emit *e, const hcg_linear *l) {
    const hir_value *y = hir_value_at(e->p->m, l->value);
    hd_err(e->diags, HD_E_INTERNAL, hir_op_at(e->p->m, y->op)->loc,
           "no back end multiplies a matrix of %s on %s", hir_dtype_name(l->dtype), e->level->name)
        ->hint = "matmul/backends.def";
    return false;
}

/* Makes a product for each row of backends.def that multiplies one of the matrices. */
bool hcg_choose_products(hcg_emit *e, const hcg_kernel *k, const hcg_contraction *c,
                         hcg_products *out) {
    const hcg_choice *choices;
    const size_t n = hcg_choices(&choices);
    *out = (hcg_products){.decode = k->phase == HIR_DECODE, .k = c->k, .tile_panels = 1};
    if (k->n_sizes) out->k = k->size[HCG_K].most;
    out->of = hd_new_array(e->arena, unsigned, c->linears.n);
    for (size_t i = 0; i < c->linears.n; i++)
        if (!choice_of(e, out, &c->linears.at[i])) return refuse(e, &c->linears.at[i]);
    for (size_t row = 0; row < n; row++) {
        hcg_product product = {.backend = choices[row].backend};
        for (size_t i = 0; i < c->linears.n; i++) {
            if (choice_of(e, out, &c->linears.at[i]) != &choices[row]) continue;
            product.weights |= 1u << c->linears.at[i].dtype;
            out->of[i] = out->n;
        }
        if (!product.weights) continue;
        if (out->n == HCG_MOST_PRODUCTS) return refuse(e, &c->linears.at[0]);
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
        if (panels > p->tile_panels) p->tile_panels = panels;
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
    for (unsigned i = 0; i < p->n; i++) {
        hcg_product *q = &p->at[i];
        q->x = x, q->n_rows = n_rows;
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
