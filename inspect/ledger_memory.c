/* What a session of a long prompt holds: states for all its tokens, the arena for one chunk; and
 * what of both belongs to the residual mechanism, with the arena of a program that takes all
 * tokens at once beside it (the paper's prefill memory, N T d).
 */
#include "inspect/ledger.h"
#include "inspect/memory_plan.h"
#include "runtime/pipeline.h"

/* By state: what looks along the sequence reads it, such as keys and values of attention. */
static bool *states_of_attention(const hir_ledger *l, const hir_module *m, hd_arena *a) {
    bool *of_attention = hd_new_array(a, bool, m->states.n + 1);
    for (size_t k = 0; k < l->flow.program.n; k++) {
        const hir_op *o = hir_op_at(m, l->flow.program.at[k]);
        for (uint32_t i = 0; hir_has_trait(o->code, HIR_SEQUENCE) && i < o->n_args; i++) {
            if (o->args[i].kind == HIR_REF_STATE) of_attention[o->args[i].index] = true;
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_ref made = hir_value_ref(l->flow.origin[o->args[i].index]);
            const uint32_t state = hir_state_of_value(m, made);
            if (state != HIR_NONE) of_attention[state] = true;
        }
    }
    return of_attention;
}

static void count_states(const hir_ledger *l, const hir_module *m, hd_arena *a,
                         ledger_memory *out) {
    const bool *of_attention = states_of_attention(l, m, a);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        const uint64_t bytes = hir_state_bytes(s);
        if (hir_state_kind_of(s->kind)->rows != HIR_ROWS_PER_POSITION) {
            out->fixed_state = hd_capped_add(out->fixed_state, bytes);
            continue;
        }
        out->state = hd_capped_add(out->state, bytes);
        if (!of_attention[i]) out->mechanism_state = hd_capped_add(out->mechanism_state, bytes);
    }
}

/* The most that lies in the arena of the mechanism at one time. */
static uint64_t most_alive(const hir_ledger *l, const hir_module *m, hd_arena *a) {
    memory_plan plan;
    memory_plan_find(m, a, &plan);
    uint64_t *alive = hd_new_array(a, uint64_t, (size_t)plan.kernels + 1), most = 0;
    for (size_t i = 0; i < plan.rows.n; i++) {
        const memory_plan_row *row = &plan.rows.at[i];
        const bool ours = l->flow.kind[l->flow.origin[row->value]] != HIR_FLOW_NONE;
        const hir_place place = hir_value_at(m, row->value)->place;
        if (!ours || (place != HIR_PLACE_ARENA && place != HIR_PLACE_LOCAL)) continue;
        for (uint32_t k = row->first + row->in_place; k <= row->last; k++)
            alive[k] = hd_capped_add(alive[k], row->bytes);
    }
    for (uint32_t k = 0; k < plan.kernels; k++)
        if (alive[k] > most) most = alive[k];
    return most;
}

/* The most rows that a rank has of calls of up to so many tokens: in short ones it has all. */
static uint64_t most_local_rows(const hir_module *m, uint64_t tokens) {
    if (!m->ranks) return tokens;
    const uint64_t share = (tokens + m->ranks - 1) / m->ranks, whole = (uint64_t)m->divide_from - 1;
    const uint64_t undivided = whole < tokens ? whole : tokens;
    return share > undivided ? share : undivided;
}

void ledger_count_memory(const ledger_report *r, int64_t chunk, hd_arena *a, ledger_memory *out) {
    const hir_module *m = r->compiled_module;
    *out = (ledger_memory){.tokens = 128 * 1024, .chunk = (uint64_t)chunk};
    if (out->chunk > out->tokens) out->chunk = out->tokens;
    count_states(&r->compiled, m, a, out);
    out->arena = m->arena_per_token;
    out->mechanism_arena = most_alive(&r->compiled, m, a);
    out->fixed = m->fixed_bytes;
    out->session = hd_capped_add(hd_capped_mul(out->state, out->tokens),
                                 hd_capped_mul(out->arena, out->chunk));
    out->ranks = m->ranks ? m->ranks : 1;
    out->local = m->local_per_token;
    out->local_rows = most_local_rows(m, out->chunk);
    out->mechanism_rows = out->local_rows;
    out->kept = m->arena_kept;
    out->local_kept = m->local_kept;
    out->in_flight = 1;
    if (out->kept || out->local_kept)
        out->in_flight =
            (uint64_t)hrt_chunks_in_flight((int64_t)out->tokens, (int64_t)out->chunk, r->stages);
    const uint64_t more = out->in_flight - 1; /* one has its part in the arena above */
    out->session = hd_capped_add(out->session, hd_capped_mul(out->kept, more * out->chunk));
    out->session =
        hd_capped_add(out->session, hd_capped_mul(out->local_kept, more * out->local_rows));
    out->all_rows = (out->tokens + out->ranks - 1) / out->ranks;
    out->session = hd_capped_add(out->session, hd_capped_mul(out->local, out->local_rows));
    out->session = hd_capped_add(out->session, hd_capped_add(out->fixed, out->fixed_state));
}
