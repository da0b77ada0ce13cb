/* The same sums as those of the runtime (runtime/trainer.c, layout.c), where a trainer is laid out:
 * tests/gradients/memory.py compares them. */
#include "inspect/trainer_memory.h"

#include "inspect/format.h"
#include "inspect/memory_plan.h"
#include "ir/kernel/tiled.h"
#include "support/arena_rows.h"

enum { SESSION = 4096 }; /* more than the session itself takes */

/* The sum of the losses, with which the forward half ends. */
static hir_id end_of_forward(const hir_module *m) {
    const hir_id output = hir_loss_sum_output(m);
    const hir_ref sum = output == HIR_NONE ? hir_no_ref() : hir_op_at(m, output)->args[0];
    return sum.kind == HIR_REF_VALUE ? sum.index : HIR_NONE;
}

/* Bytes of a token in the arena that are made in the forward half and read in the backward half. */
static uint64_t kept_of(const hir_module *m, hd_arena *a) {
    memory_plan plan;
    uint32_t end = 0;
    uint64_t sum = 0;
    memory_plan_find(m, a, &plan);
    const hir_id loss = end_of_forward(m);
    for (size_t i = 0; i < plan.rows.n; i++)
        if (plan.rows.at[i].value == loss) end = plan.rows.at[i].first;
    for (size_t i = 0; i < plan.rows.n; i++) {
        const memory_plan_row *row = &plan.rows.at[i];
        const bool arena = hir_value_at(m, row->value)->place == HIR_PLACE_ARENA;
        if (arena && row->first <= end && row->last > end) sum = hd_capped_add(sum, row->bytes);
    }
    return sum;
}

/* What threads pass to each other within a kernel, as partial_bytes of the runtime has it. */
static uint64_t shared_of(const hcg_program *p, uint64_t tokens) {
    const uint64_t short_ones = (tokens + HRT_LIST_ROWS - 1) / HRT_LIST_ROWS;
    const uint64_t least = short_ones < p->least_ranges ? short_ones : p->least_ranges;
    uint64_t ranges = (tokens + HRT_KEYS - 1) / HRT_KEYS;
    if (ranges < least) ranges = least;
    const uint64_t seen = ranges < p->window_ranges ? ranges : p->window_ranges;
    const uint64_t all = hd_capped_mul(ranges, p->range_bytes),
                   windows = hd_capped_mul(seen, p->window_range_bytes);
    return hd_capped_add(p->counter_bytes, all > windows ? all : windows);
}

/* Tables of pointers and of parameters. */
static uint64_t tables_of(const hcg_program *p) {
    return SESSION + sizeof(hrt_parameter_view) * (uint64_t)p->parameters.n +
           sizeof(void *) * (uint64_t)(p->outputs.n + p->m->states.n);
}

/* Bytes of a thread: arguments of a kernel and its scratch memory, in whole pages, and the workspace
 * of a step of Muon. */
static uint64_t thread_of(const hcg_program *p) {
    enum { PAGE = 4096 };
    uint64_t most = 0;
    for (size_t i = 0; i < p->steps.n; i++)
        if (p->steps.at[i].n_operands > most) most = p->steps.at[i].n_operands;
    return (most * sizeof(void *) + p->scratch_bytes + PAGE - 1) / PAGE * PAGE + p->muon_bytes;
}

void trainer_memory_find(const hcg_program *p, int64_t tokens, hd_arena *a, trainer_memory *out) {
    const uint64_t rows = hd_arena_rows((uint64_t)tokens);
    *out = (trainer_memory){
        .tokens = tokens,
        .parameters = p->parameters_bytes,
        .gradients = p->parameters_bytes,
        .moments = p->moments_bytes,
        .panels = p->weights_bytes - p->parameters_bytes,
        .states = hd_capped_add(hd_capped_mul(hir_all_state_bytes(p->m, true), (uint64_t)tokens),
                                hir_all_state_bytes(p->m, false)),
        .arena = hir_bytes_of_call(a, p->m, tokens),
        .kept = hd_capped_mul(kept_of(p->m, a), rows),
        .rest = hd_capped_add(hd_capped_add(p->m->fixed_bytes, tables_of(p)),
                              shared_of(p, (uint64_t)tokens)),
        .thread = p->scratch_bytes ? thread_of(p) : 0,
    };
    const uint64_t parts[] = {out->parameters, out->gradients, out->moments, out->panels,
                              out->states,     out->arena,     out->rest};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        out->all = hd_capped_add(out->all, parts[i]);
}

const char *trainer_memory_text(const trainer_memory *x, hd_arena *a) {
    return hd_printf(
        a,
        "parameters %s, gradients %s, moments of steps %s, panels of matrices %s, keys, values and "
        "other "
        "states %s, values of a sequence %s, of which %s are kept from the forward half "
        "to the backward half, the rest %s",
        inspect_bytes(a, x->parameters), inspect_bytes(a, x->gradients),
        inspect_bytes(a, x->moments), inspect_bytes(a, x->panels), inspect_bytes(a, x->states),
        inspect_bytes(a, x->arena), inspect_bytes(a, x->kept), inspect_bytes(a, x->rest));
}

void trainer_memory_json(const trainer_memory *x, hd_text *out) {
    const struct {
        const char *key;
        uint64_t bytes;
    } parts[] = {{"parameters", x->parameters},
                 {"gradients", x->gradients},
                 {"moments", x->moments},
                 {"panels", x->panels},
                 {"states", x->states},
                 {"arena", x->arena},
                 {"kept", x->kept},
                 {"rest", x->rest},
                 {"all", x->all},
                 {"thread", x->thread}};
    hd_text_f(out, "{\"tokens\": %lld", (long long)x->tokens);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hd_text_f(out, ", \"%s\": %llu", parts[i].key, (unsigned long long)parts[i].bytes);
    hd_text_add(out, "}");
}
