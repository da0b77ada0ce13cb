#include "ir/kernel/tiled.h"

#include "ir/kernel/kernels.h"
#include "support/arena_rows.h"

hir_tiled_list hir_find_tiled(hd_arena *a, const hir_module *m) {
    hir_tiled_list out = {0};
    uint32_t k = 0;
    HIR_EACH(m, id, m->first) {
        const hir_op *kernel = hir_op_at(m, id);
        if (!hir_is_kernel(kernel)) continue;
        const int64_t tokens = hir_attr_int(kernel, HIR_A_TILE, 0);
        if (tokens) {
            if (!out.list.n || out.list.at[out.list.n - 1].end != k)
                hd_push(a, &out.list, ((hir_tiled){k, k}));
            out.list.at[out.list.n - 1].end = k + 1;
            out.tokens = tokens;
        }
        k++;
    }
    return out;
}

size_t hir_tiled_of(const hir_tiled_list *all, uint32_t kernel) {
    size_t i = 0;
    while (i < all->list.n && !(all->list.at[i].first <= kernel && kernel < all->list.at[i].end))
        i++;
    return i;
}

/* Does a gradient of the model alone read the sums over tokens, so that the kernel adds to it? */
static bool adds_to_gradients(const hir_module *m, hir_id kernel) {
    const hir_op *k = hir_op_at(m, kernel);
    for (uint32_t i = 0; i < k->n_results; i++) {
        bool adds = hir_type_has_t(hir_value_at(m, k->results[i])->type); /* no sum */
        HIR_EACH(m, op, m->first) {
            const hir_op *o = hir_op_at(m, op);
            adds |= hir_is_gradient(o) && hir_ref_equal(o->args[0], hir_value_ref(k->results[i]));
        }
        if (!adds) return false;
    }
    return true;
}

const char *hir_why_not_tiled(const hir_module *m, hir_id kernel) {
    const hir_op *k = hir_op_at(m, kernel);
    if (hir_rows_of(k) != HIR_ROWS_ALL || hir_runs_once(m, kernel))
        return "it does not do all rows of a call";
    HIR_EACH(m, id, k->body_first) {
        const hir_opcode code = hir_op_at(m, id)->code;
        if (hir_has_trait(code, HIR_SEQUENCE | HIR_POSITION | HIR_COMM | HIR_WRITES_STATE))
            return "it looks along the sequence, or beyond it";
        if (code == HIR_EXPERT_LINEAR_OP || code == HIR_EXPERT_LINEAR_GRAD_OP)
            return "experts would be read for each tile";
        if (hir_has_trait(code, HIR_REDUCES_TOKENS) && !adds_to_gradients(m, kernel))
            return "it sums over all tokens";
    }
    return NULL;
}

static uint64_t times(uint64_t bytes, int64_t rows) {
    return hd_capped_mul(bytes, hd_arena_rows((uint64_t)rows));
}

uint64_t hir_bytes_of_call(hd_arena *a, const hir_module *m, int64_t tokens) {
    const int64_t most = hir_find_tiled(a, m).tokens;
    return hd_capped_add(times(m->arena_per_token, tokens),
                         times(m->tile_per_token, tokens < most ? tokens : most));
}
