/* Sizes that depend on N (program.h: HCG_ANY). */
#include "codegen/row/schedule/schedule.h"

row_sum row_sum_of(int64_t size) {
    const int64_t half = HCG_ANY / 2;
    const int64_t b = (size + (size < 0 ? -half : half)) / HCG_ANY;
    return (row_sum){size - b * HCG_ANY, b};
}

bool row_is_dynamic(const row_graph *g, int64_t size) {
    return g->k->any && row_sum_of(size).b != 0;
}

int64_t row_most(const row_graph *g, int64_t size) {
    if (!row_is_dynamic(g, size)) return size;
    const row_sum s = row_sum_of(size);
    return s.a + s.b * g->k->size[HCG_N].most;
}
