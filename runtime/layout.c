/* How a call's memory is cut: sizes with checked arithmetic, then pointers. */
#include <string.h>

#include "runtime/internal.h"
#include "runtime/pipeline.h"

enum { PAGE = 4096 };

/* Appends `n * size` bytes, rounded up to `align`, at *end; *at is their offset. False on overflow.
 */
static bool place(size_t *end, uint64_t n, uint64_t size, size_t align, size_t *at) {
    uint64_t bytes, stop;
    *at = *end;
    if (__builtin_mul_overflow(n, size, &bytes)) return false;
    if (__builtin_add_overflow((uint64_t)*end, bytes, &stop)) return false;
    if (__builtin_add_overflow(stop, (uint64_t)(align - 1), &stop)) return false;
    stop -= stop % align;
    if (stop > PTRDIFF_MAX) return false;
    *end = (size_t)stop;
    return true;
}

/* The rows of an output for one chunk. */
static uint64_t chunk_rows(const hrt_tensor_info *t, int64_t chunk) {
    return t->has_t ? (uint64_t)chunk : 1;
}

/* Bytes for the arguments of the step that has most of them. */
static size_t args_bytes(const hrt_model *m) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < m->n_steps; i++)
        if (m->steps[i].n_operands > most) most = m->steps[i].n_operands;
    return (size_t)hrt_aligned((uint64_t)most * sizeof(void *));
}

/* Bytes that threads pass to each other within a kernel, for the kernel that needs most: for each
 * range of the session's positions, or for as many ranges as a window can touch. False on overflow.
 */
static bool partial_bytes(const hrt_model *m, int64_t cap, uint64_t *out) {
    const uint64_t short_ones = ((uint64_t)cap + HRT_LIST_ROWS - 1) / HRT_LIST_ROWS;
    const uint64_t least = short_ones < m->least_ranges ? short_ones : m->least_ranges;
    uint64_t ranges = ((uint64_t)cap + HRT_KEYS - 1) / HRT_KEYS;
    if (ranges < least) ranges = least; /* the ranges of a list may be shorter */
    const uint64_t seen = ranges < m->window_ranges ? ranges : m->window_ranges;
    uint64_t windows;
    if (__builtin_mul_overflow(ranges, m->range_bytes, out)) return false;
    if (__builtin_mul_overflow(seen, m->window_range_bytes, &windows)) return false;
    if (windows > *out) *out = windows;
    return true;
}

bool hrt_lay_out(const hrt_model *m, int64_t cap, size_t head, size_t threads, bool sinks,
                 hrt_layout *out) {
    hrt_layout l = {0};
    if (cap < 1 || m->chunk < 1 || m->version != HRT_VERSION || !hrt_states_known(m)) return false;
    l.chunk = cap < m->chunk ? cap : m->chunk;
    size_t end = 0, at;
    uint64_t pointers = (uint64_t)m->n_states + (sinks ? m->n_outputs : 0);
    if (!place(&end, 1, head, HRT_ALIGN, &at)) return false;
    if (!place(&end, pointers, sizeof(char *), HRT_ALIGN, &l.tables)) return false;
    l.states = end;
    for (uint32_t i = 0; i < m->n_states; i++) {
        const hrt_state_info *s = &m->states[i];
        if (!place(&end, hrt_state_rows(s, cap), s->row_bytes, HRT_ALIGN, &at)) return false;
    }
    uint64_t rows = hd_arena_rows(l.chunk);
    if (!place(&end, rows, m->arena_per_token, HRT_ALIGN, &l.arena)) return false;
    const uint64_t local_rows = hd_arena_rows(hrt_local_rows(m, l.chunk));
    if (!place(&end, local_rows, m->local_per_token, HRT_ALIGN, &l.local)) return false;
    const int64_t tile_rows = l.chunk < m->tile_tokens ? l.chunk : m->tile_tokens;
    if (!place(&end, hd_arena_rows(tile_rows), m->tile_per_token, HRT_ALIGN, &l.tile)) return false;
    if (!place(&l.kept_bytes, rows, m->kept_per_token, HRT_ALIGN, &at)) return false;
    if (!place(&l.local_kept_bytes, local_rows, m->local_kept_per_token, HRT_ALIGN, &at))
        return false;
    l.flight = hrt_most_in_flight(m, cap, l.chunk);
    if (!place(&end, (uint64_t)l.flight, l.kept_bytes, HRT_ALIGN, &l.kept)) return false;
    if (!place(&end, (uint64_t)l.flight, l.local_kept_bytes, HRT_ALIGN, &at)) return false;
    if (!place(&end, 1, m->fixed_bytes, HRT_ALIGN, &l.fixed)) return false;
    l.sinks = end;
    for (uint32_t i = 1; sinks && i < m->n_outputs; i++) {
        size_t bytes = 0;
        const hrt_tensor_info *t = &m->outputs[i];
        if (!place(&bytes, chunk_rows(t, l.chunk), t->row_bytes, HRT_ALIGN, &at)) return false;
        if (!place(&end, (uint64_t)l.flight, bytes, HRT_ALIGN, &at)) return false;
    }
    uint64_t staging, partials;
    if (!hrt_staging_bytes(m, l.chunk, &staging)) return false;
    if (!place(&end, 1, staging, HRT_ALIGN, &l.staging)) return false;
    if (!partial_bytes(m, cap, &partials)) return false;
    if (!place(&end, 1, m->counter_bytes, HRT_ALIGN, &l.shared)) return false;
    if (!place(&end, 1, partials, HRT_ALIGN, &at)) return false;
    l.args_bytes = args_bytes(m);
    if (!place(&l.worker_bytes, 1, l.args_bytes, HRT_ALIGN, &at)) return false;
    if (!place(&l.worker_bytes, 1, m->scratch_bytes, PAGE, &at)) return false;
    if (!place(&end, threads, l.worker_bytes, HRT_ALIGN, &l.workers)) return false;
    l.total = end;
    *out = l;
    return true;
}

size_t hrt_sink_bytes(const hrt_tensor_info *output, int64_t chunk) {
    return (size_t)hrt_aligned(chunk_rows(output, chunk) * output->row_bytes);
}

void hrt_carve(const hrt_model *m, int64_t cap, const hrt_layout *l, void *memory, bool sinks,
               hrt_memory *out) {
    char *base = memory, *at = base + l->states;
    void *tables = base + l->tables;
    *out = (hrt_memory){
        .states = tables,
        .arena = base + l->arena,
        .local = base + l->local,
        .tile = base + l->tile,
        .kept = base + l->kept,
        .fixed = base + l->fixed,
        .staging = base + l->staging,
        .shared = base + l->shared,
        .workers = base + l->workers,
        .kept_bytes = l->kept_bytes,
        .local_kept_bytes = l->local_kept_bytes,
        .args_bytes = l->args_bytes,
        .worker_bytes = l->worker_bytes,
        .cap = cap,
        .chunk = l->chunk,
        .flight = l->flight,
    };
    memset(out->shared, 0, (size_t)m->counter_bytes);
    for (uint32_t i = 0; i < m->n_states; i++) {
        out->states[i] = at;
        at += (size_t)hrt_aligned(hrt_state_rows(&m->states[i], cap) * m->states[i].row_bytes);
    }
    if (!sinks) return;
    out->sinks = out->states + m->n_states;
    at = base + l->sinks;
    for (uint32_t i = 0; i < m->n_outputs; i++) {
        const hrt_tensor_info *t = &m->outputs[i];
        out->sinks[i] = at;
        if (i > 0) at += hrt_sink_bytes(t, l->chunk) * (size_t)l->flight;
    }
}
