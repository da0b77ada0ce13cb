/* What is found to go on beside exchanges (ir/kernel/overlap.c), what plan-memory makes of it, and what
 * the library is told: golden cases divided over three ranks. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "codegen/program/program.h"
#include "ir/kernel/overlap.h"
#include "passes/pass.h"
#include "tests/unit/stored_models.h"

TestSuite(overlap, .init = open_arena, .fini = close_arena, .timeout = 600);

/* To kernels, by passes that were told `tiles`. */
static hir_module *compiled(const char *name, int64_t ranks, int64_t tiles) {
    static hir_remarks remarks;
    hir_module *m = load("golden", name);
    const size_t n = hir_pipeline_length();
    const hir_run run = {
        .passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_COUNT, .verify = true};
    const hir_compile_options options = {
        .chunk = 16, .ranks = ranks, .divide_from = ranks, .overlap = tiles};
    remarks = (hir_remarks){.arena = arena};
    if (!hir_run_passes(m, &run, &options, &remarks, &diags)) cr_assert_fail("%s", said());
    return m;
}

static const hcg_program *lowered(const hir_module *m, uint32_t tiles) {
    const hcg_program *p =
        hcg_lower(arena, &diags, m, &(hcg_options){.compile.chunk = 16, .compile.overlap = tiles});
    cr_assert(p, "%s", said());
    return p;
}

static const hir_op *kernel_at(const hir_module *m, uint32_t number) {
    HIR_EACH(m, id, m->first) {
        if (hir_is_kernel(hir_op_at(m, id)) && number-- == 0) return hir_op_at(m, id);
    }
    return NULL;
}

static bool has(const hir_module *m, const hir_op *kernel, hir_opcode code) {
    HIR_EACH(m, id, kernel->body_first)
    if (hir_op_at(m, id)->code == code) return true;
    return false;
}

static void check_part(const hcg_program *p, uint32_t from, uint32_t end, bool local) {
    for (uint32_t i = from; i < end; i++) {
        const hrt_step *s = &p->steps.at[i];
        const hir_op *k = kernel_at(p->m, i);
        cr_assert(!s->collective && !s->last_rows && s->local == local);
        cr_assert(s->split_prefill == HRT_SPLIT_ROWS || s->split_prefill == HRT_SPLIT_COLS);
        cr_assert(!has(p->m, k, HIR_ATTENTION_OP) && !has(p->m, k, HIR_SHORT_CONV_OP) &&
                  !has(p->m, k, HIR_DELTA_RULE_OP) && !has(p->m, k, HIR_EXPERT_LINEAR_OP));
    }
}

static void check_collective(const hcg_program *p, uint32_t from, uint32_t end,
                             hrt_collective_kind kind) {
    cr_assert(end - from <= 1);
    if (from == end) return;
    const hrt_step *s = &p->steps.at[from];
    cr_assert(s->collective && !s->last_rows && p->collectives.at[s->collective - 1].kind == kind);
}

static void check_overlaps(const hcg_program *p) {
    uint32_t from = 0;
    for (size_t i = 0; i < p->overlaps.n; i++) {
        const hrt_overlap *o = &p->overlaps.at[i];
        cr_assert(from <= o->front && o->front <= o->scatter && o->scatter <= o->middle &&
                  o->middle <= o->gather && o->gather <= o->back && o->back <= o->end &&
                  o->end <= p->steps.n);
        cr_assert(o->scatter < o->middle || o->gather < o->back, "nothing crosses");
        cr_assert(o->scatter - o->front <= 1);
        check_part(p, o->front, o->scatter, false);
        check_collective(p, o->scatter, o->middle, HRT_REDUCE_SCATTER);
        check_part(p, o->middle, o->gather, true);
        check_collective(p, o->gather, o->back, HRT_GATHER_ROWS);
        check_part(p, o->back, o->end, false);
        from = o->end;
    }
}

static const char *const cases[] = {"standard",
                                    "attnres-block",
                                    "attnres-full",
                                    "mhc",
                                    "k3",
                                    "kimi-linear-attnres",
                                    "muddformer",
                                    "depth-attention",
                                    "hyper-connections",
                                    "ddl",
                                    "denseformer",
                                    "value-residual"};

Test(overlap, what_is_found_is_kept_apart) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const hir_module *m = compiled(cases[i], 3, 0);
        const hir_overlaps found = hir_find_overlaps(arena, m);
        const hcg_program *p = lowered(m, 0);
        cr_assert_gt(found.list.n, 0, "%s", cases[i]);
        cr_assert_eq(p->overlaps.n, found.list.n, "%s: %zu of %zu are kept apart", cases[i],
                     p->overlaps.n, found.list.n);
        check_overlaps(p);
        cr_assert_eq(lowered(m, 1)->overlaps.n, 0, "%s: off", cases[i]);
        close_arena();
        open_arena();
    }
}

/* Where plan-memory was told that nothing overlaps, code generation sees what does not. */
Test(overlap, what_is_not_apart_does_not_overlap) {
    const hir_module *m = compiled("standard", 3, 1);
    const hir_overlaps found = hir_find_overlaps(arena, m);
    const hcg_program *p = lowered(m, 0);
    cr_assert_lt(p->overlaps.n, found.list.n);
    check_overlaps(p);
}

Test(overlap, one_machine_has_none) {
    const hir_module *m = compiled("standard", 1, 0);
    cr_assert_eq(hir_find_overlaps(arena, m).list.n, 0);
    cr_assert_eq(lowered(m, 0)->overlaps.n, 0);
}

/* Between two attentions of a standard layer: the output map, the sum, the norm, the gathered row,
 * gate and up; then down, the sum, the next norm, its row, q, k and v. */
Test(overlap, both_sides_of_a_sublayer) {
    const hir_module *m = compiled("standard", 3, 0);
    const hir_overlaps found = hir_find_overlaps(arena, m);
    cr_assert_gt(found.list.n, 2);
    cr_assert_eq(found.list.at[0].front, found.list.at[0].middle, "the embedding is not scattered");
    for (size_t i = 1; i < found.list.n; i++) {
        const hir_overlap *o = &found.list.at[i];
        cr_assert_eq(o->scatter - o->front, 1);
        cr_assert_eq(o->middle - o->scatter, 1);
        cr_assert_geq(o->gather - o->middle, 1);
        cr_assert_eq(o->back - o->gather, 1);
        cr_assert_geq(o->end - o->back, 1);
    }
}
