/* Stages that have several runs of layers, as the compiler makes them: messages at the ends of a
 * run, what is kept of each chunk in flight, and what the rules say of modules that are otherwise.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "inspect/ledger.h"
#include "ir/kernel/kernels.h"
#include "ir/kernel/layer_ranges.h"
#include "ir/verify.h"
#include "tests/unit/stored_models.h"

TestSuite(runs, .init = open_arena, .fini = close_arena, .timeout = 300);

static const char *const systems[] = {
    "standard", "attnres-block",  "attnres-full", "mhc", "muddformer",
    "k3",       "value-residual", "kimi-linear"};
enum { SYSTEMS = sizeof systems / sizeof *systems };

static hir_compile_options options_of(int64_t stage, int64_t runs, int64_t ranks) {
    return (hir_compile_options){.stages = 2,
                                 .virtual_stages = runs,
                                 .stage = stage,
                                 .ranks = ranks,
                                 .divide_from = ranks,
                                 .chunk = 512};
}

static hir_module *stage_of(const hir_module *graph, const hir_compile_options *o) {
    hir_module *m = hir_module_clone(graph, arena);
    const hir_run run = {
        .passes = hir_pipeline(), .n_passes = hir_pipeline_length(), .stop_after = HIR_PASS_COUNT};
    cr_assert(hir_run_passes(m, &run, o, NULL, &diags), "%s", said());
    return m;
}

static hir_module *one_stage(const char *name, int64_t stage, int64_t runs, int64_t ranks) {
    const hir_compile_options o = options_of(stage, runs, ranks);
    return stage_of(load("golden", name), &o);
}

static const char *text_of(const hir_module *m) {
    hd_text t;
    hd_text_init(&t, arena);
    hir_print(m, (hir_print_options){0}, &t);
    return t.at;
}

static void check_order(const hir_module *m, const char *name) {
    const hir_runs runs = hir_find_layer_ranges(arena, m);
    uint32_t k = 0;
    HIR_EACH(m, id, m->first) {
        if (!hir_is_kernel(hir_op_at(m, id))) continue;
        const hir_layer_range *r = &runs.list.at[hir_layer_range_of(&runs, k)];
        const hir_opcode message = hir_message_of(m, id);
        cr_assert_eq(message == HIR_COMM_RECV_OP, k < r->work, "%s: kernel %u", name, k);
        cr_assert_eq(message == HIR_COMM_SEND_OP, k >= r->send, "%s: kernel %u", name, k);
        k++;
    }
}

Test(runs, receive_first_and_send_last) {
    for (int i = 0; i < SYSTEMS; i++)
        for (int64_t stage = 0; stage < 2; stage++)
            for (int64_t ranks = 0; ranks <= 2; ranks += 2) {
                const hir_module *m = one_stage(systems[i], stage, 2, ranks);
                cr_assert_eq(hir_find_layer_ranges(arena, m).list.n, 2, "%s", systems[i]);
                check_order(m, systems[i]);
                cr_assert(ranks ? m->local_kept : m->arena_kept, "%s: nothing is kept", systems[i]);
            }
}

Test(runs, a_stage_with_one_run_keeps_nothing) {
    for (int i = 0; i < SYSTEMS; i++) {
        const hir_module *m = one_stage(systems[i], 1, 1, 2);
        cr_assert_eq(hir_find_layer_ranges(arena, m).list.n, 1);
        cr_assert_eq(m->arena_kept + m->local_kept, 0, "%s", systems[i]);
        check_order(m, systems[i]);
    }
}

Test(runs, what_is_kept_is_in_the_text) {
    const hir_module *m = one_stage("attnres-block", 1, 2, 2);
    const char *text = text_of(m);
    hir_module *again = hir_parse(arena, &diags, "stage.hir", text);
    cr_assert(again, "%s", said());
    cr_assert_eq(again->arena_kept, m->arena_kept);
    cr_assert_eq(again->local_kept, m->local_kept);
    cr_assert_str_eq(text_of(again), text);
}

/* ---- the ledger ------------------------------------------------------------------------------ */
Test(runs, the_ledger_has_what_chunks_in_flight_keep) {
    static hir_compile_options o;
    for (int i = 0; i < SYSTEMS; i++) {
        const hir_module *graph = load("golden", systems[i]);
        o = options_of(1, 2, 2);
        const hir_module *m = stage_of(graph, &o);
        const inspect_subject s = {
            .arena = arena, .diags = &diags, .graph = graph, .now = m, .pass_options = &o};
        ledger_report r;
        cr_assert(ledger_collect(&s, &r), "%s", said());
        const ledger_memory *x = r.memory;
        cr_assert_eq(x->in_flight, 2, "%s", systems[i]);
        cr_assert_eq(x->kept, m->arena_kept);
        cr_assert_eq(x->local_kept, m->local_kept);
        cr_assert_eq(x->session,
                     x->state * x->tokens + x->fixed_state + x->fixed +
                         (x->arena + x->kept) * x->chunk +
                         (x->local + x->local_kept) * x->local_rows,
                     "%s", systems[i]);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */
static void rejects(const hir_module *m, const char *words) {
    const bool good = hir_verify(m, &diags) && hir_verify_kernels(m, &diags);
    cr_assert(!good, "not refused: %s", words);
    cr_assert(strstr(said(), words), "\"%s\" is not in: %s", words, said());
}

Test(runs, what_crosses_runs_has_to_be_kept) {
    hir_module *m = one_stage("attnres-block", 1, 2, 0);
    m->arena_kept = 0;
    rejects(m, "lies in the part of the arena that is kept");
}

Test(runs, no_value_is_kept_in_part) {
    hir_module *m = one_stage("attnres-block", 1, 2, 0);
    m->arena_kept += 4;
    rejects(m, "does not fit its place");
}

Test(runs, no_more_is_kept_than_there_is) {
    hir_module *m = one_stage("attnres-block", 1, 2, 0);
    m->arena_kept = m->arena_per_token + 64;
    rejects(m, "more of an arena is kept than it has");
}

/* A message in the middle of a run. */
Test(runs, messages_stand_at_the_ends) {
    hir_module *m = one_stage("attnres-block", 1, 2, 0);
    const hir_runs runs = hir_find_layer_ranges(arena, m);
    hir_id kernels[2] = {HIR_NONE, HIR_NONE}; /* the first of all, and what computes first */
    uint32_t k = 0;
    HIR_EACH(m, id, m->first) {
        if (k == 0) kernels[0] = id;
        if (k == runs.list.at[0].work) kernels[1] = id;
        k++;
    }
    cr_assert_neq(hir_message_of(m, kernels[0]), HIR_OPCODE_COUNT);
    hir_move_before(m, kernels[1], HIR_NONE, kernels[0]);
    rejects(m, "a run of layers receives at its beginning");
}
