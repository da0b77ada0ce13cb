/* Programs without tokens and state, called as plain functions.
 *
 * No object is kept between calls: the caller hands over work memory with every call, and as many
 * threads run as OpenMP would start and as the memory holds workspace for. */
#include <string.h>

#include "runtime/internal.h"

static bool lay_out(const hrt_model *m, int64_t tokens, size_t threads, hrt_layout *l) {
    return hrt_lay_out(m, tokens, 0, threads, false, l);
}

size_t hrt_work_size(const hrt_model *m, int64_t tokens) {
    hrt_layout l;
    if (!m || !lay_out(m, tokens, (size_t)hrt_default_threads(), &l)) return 0;
    return l.total < HRT_ALIGN ? HRT_ALIGN : l.total;
}

/* Ids that a gather reads must lie in its table. Inputs of ids are i32. */
static bool ids_in_range(const hrt_model *m, const void *const *ins, int64_t tokens) {
    for (uint32_t i = 0; m->vocab > 0 && i < m->n_inputs; i++) {
        const hrt_tensor_info *t = &m->inputs[i];
        if (strncmp(t->type, "i32", 3) != 0) continue;
        const int32_t *ids = ins[i];
        int64_t n = (int64_t)(t->row_bytes / sizeof *ids) * (t->has_t ? tokens : 1);
        for (int64_t k = 0; k < n; k++)
            if (ids[k] < 0 || ids[k] >= m->vocab) return false;
    }
    return true;
}

static bool any_null(const void *const *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!list[i]) return true;
    return false;
}

int hrt_call(const hrt_model *m, const hrt_weights *w, int64_t tokens, const void *const *ins,
             void *const *outs, void *work, size_t work_size) {
    hrt_layout l;
    if (!m || !work || (!ins && m->n_inputs) || (!outs && m->n_outputs)) return HRT_ARGUMENT;
    if (!w && m->weights_bytes > 0) return HRT_ARGUMENT;
    if (any_null(ins, m->n_inputs) || any_null((const void *const *)outs, m->n_outputs))
        return HRT_ARGUMENT;
    if (!lay_out(m, tokens, 1, &l)) return HRT_ARGUMENT;
    if ((uintptr_t)work % HRT_ALIGN != 0) return HRT_ALIGNMENT;
    if (work_size < l.total) return HRT_SIZE;
    if (w && !hrt_weights_fit(m, w)) return HRT_DIGEST;
    if (!ids_in_range(m, ins, tokens)) return HRT_TOKEN;
    const hrt_level *level = hrt_pick_level(m, NULL);
    if (!level) return HRT_CPU;

    int threads = hrt_default_threads();
    if (l.worker_bytes > 0) {
        size_t capacity = (work_size - l.total) / l.worker_bytes + 1;
        if ((size_t)threads > capacity) threads = (int)capacity;
    }
    hrt_memory memory;
    hrt_carve(m, tokens, &l, work, false, &memory);
    hrt_run(
        &(hrt_job){
            .model = m,
            .level = level,
            .memory = &memory,
            .weights = w ? w->data : NULL,
            .ins = ins,
            .outs = outs,
            .n = tokens,
            .rows = tokens,
        },
        threads);
    return HRT_OK;
}
