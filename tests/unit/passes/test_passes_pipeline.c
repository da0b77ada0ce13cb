/* The pass manager and the whole pipeline: answers, hooks, wrong passes, time. */
#include <criterion/criterion.h>
#include <time.h>

#include "passes/analysis/ledger.h"
#include "tests/unit/passes/pass_models.h"

/* ---- answers --------------------------------------------------------------------------------- */
static void expect_runs(decoder d, bool keep_traces, hir_dtype dtype) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(decoder_text(a, &d));
    hir_compile_options options = {.keep_traces = keep_traces, .matrix_dtype = dtype, .chunk = 512};
    cr_assert(b.m);
    cr_expect(run_all(&b, true, &options), "%s", errors_of(&b));
    cr_expect(hir_verify_kernels(b.m, &b.diags), "%s", errors_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

Test(pipeline, standard_decoder) {
    decoder d = small_decoder;
    expect_runs(d, false, HIR_F32);
    d.qk_norm = false;
    d.bias = d.tied = true;
    expect_runs(d, false, HIR_BF16);
}

Test(pipeline, naive_attention_residuals) {
    decoder d = small_decoder;
    d.layers = 5;
    d.traces = true;
    for (d.block = 1; d.block <= 6; d.block++)
        expect_runs(d, d.block % 2, HIR_F32);
}

/* Every mix, norm included, is one row program between two contractions. */
Test(pipeline, a_mix_is_one_row_program) {
    hd_arena *a = hd_arena_new();
    decoder d = small_decoder;
    d.layers = 4;
    d.block = 2;
    bench b = new_bench(decoder_text(a, &d));
    const hir_run all = {.passes = hir_pipeline(),
                         .n_passes = hir_pipeline_length(),
                         .stop_after = HIR_PASS_COUNT,
                         .check = true,
                         .all = true}; /* of two mixes a block the passes over depth are left out */
    cr_assert(hir_run_passes(b.m, &all, NULL, NULL, &b.diags), "%s", errors_of(&b));
    size_t rows = 0, prologues = 0;
    HIR_EACH(b.m, op, b.m->first) {
        const hir_op *o = hir_op_at(b.m, op);
        hir_opcode first =
            o->body_first == HIR_NONE ? o->code : hir_op_at(b.m, o->body_first)->code;
        rows += o->code == HIR_KERNEL_ROW_OP;
        prologues +=
            o->code == HIR_KERNEL_CONTRACT_OP && first != HIR_LINEAR_OP && first != HIR_RESHAPE_OP;
    }
    /* embedding; per layer two mixes (the first of all is the embedding); the last mix. Those that
     * merge one result of phase 1 with one live source are made where they are read. */
    cr_expect_eq(rows + prologues, 1 + 4 * 2 - 1 + 1, "%zu\n%s", rows, text_of(&b));
    cr_expect_eq(prologues, 3, "%zu", prologues);
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* Two mixes of a block, made where they are read, move less than a phase 1 for both, which the cost
 * of a block does not know: fuse decides that. The ledger does, and leaves these passes out. */
Test(pipeline, passes_over_depth_never_cost_more) {
    hd_arena *a = hd_arena_new();
    int left_out = 0;
    for (int traces = 0; traces < 2; traces++)
        for (int block = 1; block <= 6; block++) {
            decoder d = small_decoder;
            d.layers = 4;
            d.block = block;
            d.traces = traces;
            uint64_t bytes[2];
            for (int depth = 0; depth < 2; depth++) {
                hir_pass_id list[HIR_PASS_COUNT * 2];
                size_t n = 0;
                for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++)
                    if (depth || hir_pass(*id)->stage_out != HIR_STAGE_DEPTH) list[n++] = *id;
                bench b = new_bench(decoder_text(a, &d));
                hir_remarks remarks = {.arena = b.arena};
                const hir_run run = {.passes = list, .n_passes = n, .stop_after = HIR_PASS_COUNT};
                cr_assert(hir_run_passes(b.m, &run, NULL, &remarks, &b.diags), "%s", errors_of(&b));
                hir_ledger l;
                hir_ledger_find(b.m, b.arena, &l);
                bytes[depth] = l.total.read + l.total.written;
                for (size_t i = 0; i < remarks.list.n; i++)
                    left_out += strstr(remarks.list.at[i].text, "left out") != NULL;
                hd_arena_free(b.arena);
            }
            cr_expect_leq(bytes[1], bytes[0], "block %d: %llu bytes, %llu without", block,
                          (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
        }
    cr_expect_gt(left_out, 0);
    hd_arena_free(a);
}

/* ---- the manager ----------------------------------------------------------------------------- */
typedef struct seen {
    hir_pass_id ids[32];
    int n, before, stop_at;
} seen;

static void see_before(void *context, int index, hir_pass_id id, const hir_module *m) {
    (void)index, (void)id, (void)m;
    ((seen *)context)->before++;
}

static bool see_after(void *context, int index, hir_pass_id id, const hir_module *m, bool changed,
                      double seconds, hd_diags *d) {
    seen *s = context;
    (void)m, (void)changed;
    cr_expect_eq(index, s->n);
    cr_expect_geq(seconds, 0);
    s->ids[s->n++] = id;
    if (s->n == s->stop_at) hd_err(d, HD_E_IO, HD_NOWHERE, "enough");
    return s->n != s->stop_at;
}

static bool run_seen(bench *b, seen *s, hir_pass_id stop_after) {
    const size_t n = hir_pipeline_length();
    hir_run run = {.passes = hir_pipeline(),
                   .n_passes = n,
                   .stop_after = stop_after,
                   .verify = true,
                   .hooks = {s, see_before, see_after}};
    return hir_run_passes(b->m, &run, NULL, &b->remarks, &b->diags);
}

Test(manager, hooks_and_stop_after) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(decoder_text(a, &small_decoder));
    seen s = {0};
    cr_assert(run_seen(&b, &s, HIR_PASS_FUSE), "%s", errors_of(&b));
    cr_expect_eq(s.ids[s.n - 1], HIR_PASS_FUSE);
    cr_expect_eq(s.before, s.n);
    cr_expect_eq(b.m->stage, HIR_STAGE_KERNEL);
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

Test(manager, a_hook_can_stop) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(decoder_text(a, &small_decoder));
    seen s = {.stop_at = 3};
    cr_expect_not(run_seen(&b, &s, HIR_PASS_COUNT));
    cr_expect_eq(s.n, 3);
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_IO);
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

Test(manager, names) {
    for (int i = 0; i < HIR_PASS_COUNT; i++) {
        hir_pass_id id;
        cr_expect(hir_pass_by_name(hir_pass((hir_pass_id)i)->name, &id) && (int)id == i);
    }
    hir_pass_id id;
    cr_expect_not(hir_pass_by_name("(extra)", &id));
    cr_expect_not(hir_pass_by_name("", &id));
}

Test(manager, graph_passes_reject_kernels) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(decoder_text(a, &small_decoder));
    cr_assert(run_all(&b, false, NULL));
    hir_pass_id cse = HIR_PASS_CSE;
    cr_expect_not(run_list(&b, &cse, 1, false, NULL));
    cr_expect(strstr(errors_of(&b), "pass 'cse' cannot run"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* The second half of the pipeline works on what the first half printed. */
Test(manager, text_in_between) {
    static const hir_pass_id first[] = {HIR_PASS_CANONICALISE, HIR_PASS_CSE, HIR_PASS_SPLIT_SMALL,
                                        HIR_PASS_FUSE, HIR_PASS_EXPAND},
                             second[] = {HIR_PASS_LAYOUT, HIR_PASS_SCHEDULE, HIR_PASS_PLAN_MEMORY};
    hd_arena *a = hd_arena_new();
    bench b = new_bench(decoder_text(a, &small_decoder));
    cr_assert(run_list(&b, first, 5, true, NULL), "%s", errors_of(&b));
    bench c = new_bench(text_of(&b));
    cr_assert(run_list(&b, second, 3, true, NULL), "%s", errors_of(&b));
    cr_assert(run_list(&c, second, 3, true, NULL), "%s", errors_of(&c));
    cr_expect_str_eq(text_of(&b), text_of(&c));
    cr_expect(hir_same_answer(b.m, c.m, 0, 1, &b.diags));
    hd_arena_free(b.arena);
    hd_arena_free(c.arena);
    hd_arena_free(a);
}

/* ---- passes that are wrong ------------------------------------------------------------------- */
static hir_id first_of(const hir_module *m, hir_opcode code) {
    for (size_t i = 0; i < m->ops.n; i++)
        if (!m->ops.at[i].erased && m->ops.at[i].code == code) return (hir_id)i;
    return HIR_NONE;
}

/* Forgets how small eps is. */
static bool wrong_eps(hir_pass_context *c) {
    hir_id op = first_of(c->m, HIR_RMSNORM_OP);
    hir_set_attr(c->m, op, hir_float(HIR_A_EPS, 1.1e-5));
    c->changed = true;
    return true;
}

/* Takes the product of gate and up for a sum. */
static bool wrong_op(hir_pass_context *c) {
    hir_op_at(c->m, first_of(c->m, HIR_MUL_OP))->code = HIR_ADD_OP;
    c->changed = true;
    return true;
}

/* Leaves a use without definition. */
static bool wrong_order(hir_pass_context *c) {
    hir_move_before(c->m, c->m->first, HIR_NONE, HIR_NONE);
    c->changed = true;
    return true;
}

static bool wrong_silence(hir_pass_context *c) {
    (void)c;
    return false;
}

static bench run_wrong(hir_pass_fn fn, bool verify, bool check) {
    static const hir_pass_id before[] = {HIR_PASS_CANONICALISE, HIR_PASS_CSE};
    hd_arena *a = hd_arena_new();
    bench b = new_bench(decoder_text(a, &small_decoder));
    hir_pass_info extra = {"wrong", fn, HIR_STAGE_GRAPH, HIR_STAGE_GRAPH, ""};
    hir_run run = {.passes = before,
                   .n_passes = 2,
                   .stop_after = HIR_PASS_COUNT,
                   .verify = verify,
                   .check = check,
                   .extra = &extra,
                   .n_extra = 1};
    cr_expect_not(hir_run_passes(b.m, &run, NULL, &b.remarks, &b.diags));
    cr_expect(strstr(errors_of(&b), "pass 'wrong'"), "%s", errors_of(&b));
    hd_arena_free(a);
    return b;
}

Test(check_passes, names_a_wrong_attribute) {
    bench b = run_wrong(wrong_eps, true, true);
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_PASS);
    cr_expect(strstr(errors_of(&b), "output 'logits' differs"), "%s", errors_of(&b));
    cr_expect(strstr(errors_of(&b), "rmsnorm %"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
}

Test(check_passes, names_a_wrong_op) {
    bench b = run_wrong(wrong_op, true, true);
    cr_expect(strstr(errors_of(&b), "differs"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
}

/* ---- a wrong rewrite in the middle of the pipeline ------------------------------------------- */
static size_t behind(hir_pass_id id) {
    size_t n = 0;
    while (hir_pipeline()[n] != id)
        n++;
    return n + 1;
}

static int last_seen; /* index of the last pass that came through */

static bool see(void *context, int index, hir_pass_id id, const hir_module *m, bool changed,
                double seconds, hd_diags *d) {
    (void)context, (void)id, (void)m, (void)changed, (void)seconds, (void)d;
    last_seen = index;
    return true;
}

/* The default pipeline over a model with attention over depth, with passes of ours behind `id`. */
static bool run_with(bench *b, hir_pass_id id, const hir_pass_info *extra, size_t n_extra) {
    const size_t n = hir_pipeline_length();
    const hir_run run = {.passes = hir_pipeline(),
                         .n_passes = n,
                         .stop_after = HIR_PASS_COUNT,
                         .check = true,
                         .hooks = {.after = see},
                         .extra = extra,
                         .n_extra = n_extra,
                         .extra_at = behind(id)};
    decoder d = small_decoder;
    d.block = 1;
    hd_arena *a = hd_arena_new();
    *b = new_bench(decoder_text(a, &d));
    hd_arena_free(a);
    last_seen = -1;
    return hir_run_passes(b->m, &run, NULL, &b->remarks, &b->diags);
}

/* Mixes over depth without the last source. */
static bool wrong_mix(hir_pass_context *c) {
    hir_op *op = hir_op_at(c->m, first_of(c->m, HIR_DEPTH_ATTEND_OP));
    op->args[op->n_args - 1] = op->args[op->n_args - 2];
    c->changed = true;
    return true;
}

/* Attends a little more sharply, inside of a kernel. */
static bool wrong_scale(hir_pass_context *c) {
    hir_id op = first_of(c->m, HIR_ATTENTION_OP);
    double scale = hir_attr_float(hir_op_at(c->m, op), HIR_A_SCALE, 1);
    hir_set_attr(c->m, op, hir_float(HIR_A_SCALE, scale * 1.01));
    c->changed = true;
    return true;
}

static bool right(hir_pass_context *c) {
    c->changed = true;
    return true;
}

static void expect_blamed(hir_pass_id id, hir_pass_fn fn, const char *op) {
    const hir_pass_info extra[] = {{"right", right, HIR_STAGE_KERNEL, HIR_STAGE_KERNEL, ""},
                                   {"bad", fn, HIR_STAGE_KERNEL, HIR_STAGE_KERNEL, ""},
                                   {"worse", fn, HIR_STAGE_KERNEL, HIR_STAGE_KERNEL, ""}};
    bench b;
    cr_expect_not(run_with(&b, id, extra, 3));
    const char *said = errors_of(&b);
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_PASS);
    cr_expect(strstr(said, "pass 'bad': output 'logits' differs"), "%s", said);
    cr_expect(!strstr(said, "'worse'"), "%s", said);
    cr_expect(strstr(said, "the earliest value that is not as before"), "%s", said);
    const char *note = strstr(said, "the earliest value");
    cr_expect(note && strstr(note, op), "%s", said);
    cr_expect_eq(last_seen, (int)behind(id), "pass %d came through", last_seen); /* `right` */
    hd_arena_free(b.arena);
}

Test(check_passes, a_wrong_mix_behind_recognition) {
    expect_blamed(HIR_PASS_RECOGNISE_DEPTH, wrong_mix, "= depth.attend");
}

Test(check_passes, a_wrong_scale_behind_fusing) {
    expect_blamed(HIR_PASS_FUSE, wrong_scale, "= attention");
}

Test(check_passes, a_wrong_scale_behind_everything) {
    expect_blamed(HIR_PASS_PLAN_MEMORY, wrong_scale, "= attention");
}

Test(check_passes, a_right_pass_in_the_middle) {
    const hir_pass_info extra = {"right", right, HIR_STAGE_KERNEL, HIR_STAGE_KERNEL, ""};
    bench b;
    cr_expect(run_with(&b, HIR_PASS_EXPAND, &extra, 1), "%s", errors_of(&b));
    hd_arena_free(b.arena);
}

Test(check_passes, verifier_names_a_broken_module) {
    bench b = run_wrong(wrong_order, true, false);
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_PASS);
    cr_expect(strstr(errors_of(&b), "not legal any more"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
}

Test(check_passes, failure_without_a_reason) {
    bench b = run_wrong(wrong_silence, false, false);
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_INTERNAL);
    hd_arena_free(b.arena);
}

/* Scratch that runs out comes back to the guard of the module's arena. */
static bool exhausting(hir_pass_context *c) {
    hd_arena_fail_after(c->scratch, 1);
    hd_alloc(c->scratch, 1, 16);
    return true;
}

Test(manager, out_of_memory) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(decoder_text(a, &small_decoder));
    hir_pass_info extra = {"exhausting", exhausting, HIR_STAGE_GRAPH, HIR_STAGE_GRAPH, ""};
    hir_run run = {.stop_after = HIR_PASS_COUNT, .extra = &extra, .n_extra = 1};
    jmp_buf here;
    hd_arena_guard(b.arena, &here);
    if (setjmp(here) == 0) {
        hir_run_passes(b.m, &run, NULL, &b.remarks, &b.diags);
        cr_expect(false, "must not come here");
    }
    hd_arena_guard(b.arena, NULL);
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* The module's own arena runs out at many different places: control comes here, nothing leaks (the
 * sanitizer build looks), and the next run in fresh memory works. */
Test(manager, out_of_memory_anywhere) {
    hd_arena *a = hd_arena_new();
    const char *text = decoder_text(a, &small_decoder);
    volatile size_t failures = 0;
    for (volatile size_t n = 1; n < 100000; n += n / 3 + 1) {
        bench b = new_bench(text);
        jmp_buf here;
        hd_arena_guard(b.arena, &here);
        if (setjmp(here) == 0) {
            hd_arena_fail_after(b.arena, n);
            run_all(&b, false, NULL);
            n = 100000; /* it had enough */
        } else {
            failures++;
        }
        hd_arena_guard(b.arena, NULL);
        hd_arena_free(b.arena);
    }
    cr_expect_gt(failures, 10);
    hd_arena_free(a);
}

/* ---- time ------------------------------------------------------------------------------------ */
/* Best of three, in time of this process, because the machine may be busy; the bounds are far above
 * what it takes: they are there for an algorithm that grows with the square of the depth. */
static double best_ms(decoder d) {
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        hd_arena *a = hd_arena_new();
        bench b = new_bench(decoder_text(a, &d));
        struct timespec from, to;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        const size_t n = hir_pipeline_length();
        hir_run run = {.passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_COUNT};
        cr_assert(hir_run_passes(b.m, &run, NULL, NULL, &b.diags), "%s", errors_of(&b));
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        double ms =
            1e3 * (double)(to.tv_sec - from.tv_sec) + 1e-6 * (double)(to.tv_nsec - from.tv_nsec);
        if (ms < best) best = ms;
        hd_arena_free(b.arena);
        hd_arena_free(a);
    }
    return best;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 20 };
#else
enum { SLOWER = 1 };
#endif

Test(pipeline, time_of_deep_models) {
    decoder d = small_decoder;
    d.layers = 48;
    cr_expect_lt(best_ms(d), 200 * SLOWER);
    d.layers = 93;
    d.block = 12;
    cr_expect_lt(best_ms(d), 400 * SLOWER);
    d.block = 1; /* Full AttnRes: sources grow with depth */
    cr_expect_lt(best_ms(d), 400 * SLOWER);
}
