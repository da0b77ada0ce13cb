/* The ledger against what compiled kernels really load and store.
 *
 * The kernels of whole models run with a report in front of each access. For every kernel and every
 * value of the residual mechanism, the bytes of it that were touched are what the ledger charges,
 * times the tokens; and no row program touches any that is not charged. A kernel may load a row
 * more than once (statistics first, then the mix): what the ledger counts is that it must come from
 * somewhere once.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "hadal/hadal.h"
#include "passes/analysis/ledger.h"
#include "passes/pass.h"
#include "tests/unit/arena_fixture.h"
#include "tests/unit/passes/access_counter.h"
#include "tests/unit/passes/depth_models.h"

enum { TOKENS = 5 };

TestSuite(ledger_counts, .init = open_arena, .fini = close_arena);

/* ---- what was touched ------------------------------------------------------------------------ */

typedef struct region { /* a value that the running kernel may touch */
    const char *at;
    size_t bytes;
    bool *loaded, *stored;            /* by byte */
    uint64_t load_bytes, store_bytes; /* with repetitions */
} region;

static HD_VEC(region) regions;

static void report(const void *p, int64_t bytes, int32_t kind) {
    for (size_t i = 0; i < regions.n; i++) {
        region *r = &regions.at[i];
        const char *from = p;
        if (from < r->at || from >= r->at + r->bytes) continue;
        for (int64_t k = 0; k < bytes && from + k < r->at + r->bytes; k++)
            (kind == ACCESS_STORE ? r->stored : r->loaded)[from - r->at + k] = true;
        *(kind == ACCESS_STORE ? &r->store_bytes : &r->load_bytes) += (uint64_t)bytes;
    }
}

static uint64_t touched(const bool *bytes, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += bytes[i];
    return sum;
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct machine {
    const hir_module *m;
    hcg_program *p;
    char *arena, *fixed, *weights, **states, **inputs, **outputs;
} machine;

static char *memory(size_t bytes) {
    char *p = hd_alloc(arena, bytes + 128, 1);
    return p + (64 - (uintptr_t)p % 64) % 64;
}

static void fill(void *p, size_t bytes) {
    float *f = p;
    uint32_t x = 12345;
    for (size_t i = 0; i < bytes / 4; i++) {
        x = x * 1664525 + 1013904223;
        f[i] = ((float)(x >> 8) / (1 << 24) - 0.5f) * 0.2f;
    }
}

static size_t row_bytes(hir_type t) {
    return (size_t)hir_type_row_elements(t) * hir_dtype_bytes(t.dtype);
}

static void make_memory(machine *x) {
    x->arena = memory(x->m->arena_per_token * TOKENS);
    x->fixed = memory(x->m->fixed_bytes);
    x->weights = memory(x->p->weights_bytes);
    fill(x->weights, x->p->weights_bytes);
    x->states = hd_new_array(arena, char *, x->m->states.n + 1);
    for (size_t i = 0; i < x->m->states.n; i++)
        x->states[i] = memory(row_bytes(x->m->states.at[i].type) * TOKENS);
    x->outputs = hd_new_array(arena, char *, x->p->outputs.n + 1);
    for (size_t i = 0; i < x->p->outputs.n; i++)
        x->outputs[i] = memory(x->p->outputs.at[i].row_bytes * TOKENS);
    x->inputs = hd_new_array(arena, char *, x->m->inputs.n + 1);
    for (size_t i = 0; i < x->m->inputs.n; i++) {
        hir_type t = hir_value_at(x->m, x->m->inputs.at[i])->type;
        x->inputs[i] = memory(row_bytes(t) * TOKENS);
        void *input = x->inputs[i];
        int32_t *ids = input;
        if (t.dtype != HIR_I32) fill(x->inputs[i], row_bytes(t) * TOKENS);
        for (int k = 0; t.dtype == HIR_I32 && k < TOKENS; k++)
            ids[k] = 3 * k + 1;
    }
}

static void *operand_at(machine *x, hrt_operand o) {
    switch ((hrt_base)o.base) {
    case HRT_ARENA: return x->arena + o.offset * TOKENS;
    case HRT_FIXED: return x->fixed + o.offset;
    case HRT_WEIGHT: return x->weights + o.offset;
    case HRT_STATE: return x->states[o.index];
    case HRT_INPUT: return x->inputs[o.index];
    case HRT_OUTPUT: return x->outputs[o.index];
    case HRT_NUMBER: return (void *)(uintptr_t)o.offset;
    case HRT_LOCAL:
    case HRT_KEPT:
    case HRT_TARGETS:
    case HRT_LOSSES:
    case HRT_TILE:              /* of no call of forward */
    case HRT_LOCAL_KEPT: break; /* of divided models, which are counted by what crosses */
    }
    return NULL;
}

static const char *value_at(const machine *x, hir_id v) {
    const hir_value *value = hir_value_at(x->m, v);
    if (value->place == HIR_PLACE_ARENA) return x->arena + value->offset * TOKENS;
    if (value->place == HIR_PLACE_INPUT) return x->inputs[value->offset];
    if (value->place == HIR_PLACE_OUTPUT) return x->outputs[value->offset];
    return NULL;
}

/* ---- one kernel ------------------------------------------------------------------------------ */

typedef struct watch { /* value i of a kernel is region i */
    HD_VEC(hir_id) values;
    size_t n_read;
} watch;

static void watch_value(machine *x, const hir_ledger *l, watch *w, hir_id v) {
    if (l->flow.kind[l->flow.origin[v]] == HIR_FLOW_NONE || !value_at(x, v)) return;
    for (size_t i = 0; i < w->values.n; i++)
        if (w->values.at[i] == v) return;
    region r = {.at = value_at(x, v), .bytes = row_bytes(hir_value_at(x->m, v)->type) * TOKENS};
    r.loaded = hd_new_array(arena, bool, r.bytes);
    r.stored = hd_new_array(arena, bool, r.bytes);
    hd_push(arena, &regions, r);
    hd_push(arena, &w->values, v);
}

/* Values from outside first, then results: they may lie in the same place. */
static watch watch_kernel(machine *x, const hir_ledger *l, hir_id op) {
    watch w = {0};
    regions.n = 0;
    HIR_EACH(x->m, in, hir_op_at(x->m, op)->body_first) {
        const hir_op *o = hir_op_at(x->m, in);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            hir_id made = hir_value_at(x->m, o->args[i].index)->op;
            if (made == HIR_NONE || hir_op_at(x->m, made)->parent != op)
                watch_value(x, l, &w, o->args[i].index);
        }
    }
    w.n_read = w.values.n;
    for (uint32_t i = 0; i < hir_op_at(x->m, op)->n_results; i++)
        watch_value(x, l, &w, hir_op_at(x->m, op)->results[i]);
    return w;
}

static void run_step(machine *x, const counted *c, const hrt_step *step) {
    void **args = hd_new_array(arena, void *, step->n_operands + 1);
    for (uint32_t i = 0; i < step->n_operands; i++)
        args[i] = operand_at(x, x->p->operands.at[step->first_operand + i]);
    hrt_frame frame = {.T = TOKENS, .C = TOKENS, .cap = TOKENS, .scratch = memory(c->scratch)};
    c->kernels[step->kernel_prefill](&frame, args, 0, TOKENS, 0, step->cols);
}

/* Bytes of an access, and how often: a contraction reads at both of its ends, in front of the
 * arithmetic and behind it. */
static uint64_t charged(const hir_ledger *l, hir_id op, hir_id v, bool write, uint64_t *times) {
    uint64_t bytes = 0;
    *times = 0;
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *a = &l->accesses.at[i];
        if (a->op != op || a->value != v || a->write != write) continue;
        bytes = a->bytes * TOKENS;
        ++*times;
    }
    return bytes;
}

typedef struct sums { /* over all kernels, of the mechanism */
    uint64_t read, loads, written, stores;
} sums;

static void check_kernel(const machine *x, const hir_ledger *l, hir_id op, const watch *w,
                         sums *all) {
    const hir_op *kernel = hir_op_at(x->m, op);
    const char *name = hir_attr_string(kernel, HIR_A_NAME, "");
    for (size_t i = 0; i < w->values.n; i++) {
        const region *r = &regions.at[i];
        const bool result = i >= w->n_read;
        uint64_t times;
        const uint64_t ledger = charged(l, op, w->values.at[i], result, &times);
        const uint64_t real = touched(result ? r->stored : r->loaded, r->bytes);
        /* contractions and attention read layer inputs, which are the sublayers' own */
        if (kernel->code != HIR_KERNEL_ROW_OP && !result && !ledger) continue;
        cr_expect_eq(real, ledger, "%s %s value %u: %llu bytes, and the ledger says %llu", name,
                     result ? "writes" : "reads", w->values.at[i], (unsigned long long)real,
                     (unsigned long long)ledger);
        *(result ? &all->written : &all->read) += real * times;
        *(result ? &all->stores : &all->loads) += result ? r->store_bytes : r->load_bytes;
    }
}

/* ---- whole models ---------------------------------------------------------------------------- */

static hir_module *load(const char *spec) {
    hadal_session *s = hadal_open();
    cr_assert_eq(hadal_include_path(s, HADAL_SOURCE "/frontend/std"), 0);
    cr_assert_eq(hadal_load(s, spec, NULL), 0, "%s", spec);
    hir_module *m = hir_parse(arena, &diags, spec, hd_strdup(arena, hadal_ir_text(s, 0)));
    hadal_close(s);
    cr_assert(m);
    return m;
}

static void compile(hir_module *m, bool depth, hir_dtype storage) {
    hir_pass_id passes[HIR_PASS_COUNT * 2];
    size_t n = 0;
    for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++)
        if (depth || hir_pass(*id)->stage_out != HIR_STAGE_DEPTH) passes[n++] = *id;
    hir_run run = {.passes = passes, .n_passes = n, .stop_after = HIR_PASS_COUNT};
    const hir_compile_options options = {
        .bank_dtype = storage, .phase1_dtype = storage, .chunk = 512};
    cr_assert(hir_run_passes(m, &run, &options, NULL, &diags));
}

/* Bytes that were read and written. */
static uint64_t check_stored(hir_module *m, const char *what, bool depth, const char *cpu,
                             hir_dtype storage) {
    compile(m, depth, storage);
    hir_ledger l;
    hir_ledger_find(m, arena, &l);
    hcg_options options = {.cpu = cpu};
    machine x = {.m = m, .p = hcg_lower(arena, &diags, m, &options)};
    cr_assert(x.p);
    counted c;
    bool ok = counted_compile(&c, x.p, arena, &diags, report);
    for (size_t i = 0; i < diags.list.n; i++)
        cr_log_error("%s: %s", diags.list.at[i].message, diags.list.at[i].cause);
    cr_assert(ok);
    make_memory(&x);
    sums all = {0};
    size_t step = 0;
    HIR_EACH(m, op, m->first) {
        if (!hir_is_kernel(hir_op_at(m, op))) continue;
        cr_assert_lt(step, x.p->steps.n);
        watch w = watch_kernel(&x, &l, op);
        run_step(&x, &c, &x.p->steps.at[step++]);
        check_kernel(&x, &l, op, &w, &all);
    }
    counted_free(&c);
    const uint64_t own = l.phase[HIR_PHASE_OWN].written + l.phase[HIR_PHASE_OWN_SUM].written;
    cr_expect_eq(all.read, l.total.read * TOKENS);
    cr_expect_eq(all.written, (l.total.written + own) * TOKENS);
    cr_expect_geq(all.loads, all.read);
    cr_expect_eq(all.stores, all.written, "each byte is stored once");
    if (getenv("LEDGER_COUNTS"))
        printf("%s, %s: %llu bytes read, loaded %.2f times; %llu written, stored %.2f times\n",
               what, depth ? "compiled" : "naive", (unsigned long long)all.read,
               (double)all.loads / (double)all.read, (unsigned long long)all.written,
               (double)all.stores / (double)all.written);
    return all.read + all.written;
}

static uint64_t check_module(hir_module *m, const char *what, bool depth, const char *cpu) {
    return check_stored(m, what, depth, cpu, HIR_F32);
}

static void check_model(const char *spec, bool depth, const char *cpu) {
    check_module(load(spec), spec, depth, cpu);
}

Test(ledger_counts, block_attnres_in_two_phases) {
    check_model(TEST_DATA "/golden/attnres-block", true, "baseline");
}

Test(ledger_counts, block_attnres_naive) {
    check_model(TEST_DATA "/golden/attnres-block", false, "baseline");
}

Test(ledger_counts, odd_blocks) {
    check_model(TEST_DATA "/golden/attnres-block-odd", true, "baseline");
}

Test(ledger_counts, full_attnres) {
    check_model(TEST_DATA "/golden/attnres-full", true, "baseline");
}

Test(ledger_counts, standard_residual) {
    check_model(TEST_DATA "/golden/standard-llama", true, "baseline");
}

Test(ledger_counts, widest_vectors_of_this_machine) {
    check_model(TEST_DATA "/golden/attnres-block", true, "native");
    check_model(TEST_DATA "/../examples/tiny/tiny.hadal", true, "native");
}

/* Two bytes where bf16 is stored: in a block's phase 1, in sources, in a contraction's epilogue. */
Test(ledger_counts, sources_and_results_in_bf16) {
    static const char *const specs[] = {"attnres-block", "attnres-block-odd", "attnres-full",
                                        "attnres-inputquery"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        check_stored(load(hd_printf(arena, TEST_DATA "/golden/%s", specs[i])), specs[i], true,
                     i % 2 ? "baseline" : "native", HIR_BF16);
}

/* Heads, windows, sigmoid, static logits, queries of the input, sums in any order. */
Test(ledger_counts, other_ways_of_mixing) {
    static const depth_style styles[] = {
        {.norm = NORM_GAIN, .heads = 3, .d = 48, .sublayers = 9, .block = 3},
        {.norm = NORM_GAIN, .d = 48, .sublayers = 9, .block = 1, .window = 3},
        {.sigmoid = true, .norm = NORM_OP, .d = 48, .sublayers = 7, .block = 2},
        {.query = QUERY_NONE, .sum = SUM_LEFT, .d = 48, .sublayers = 6, .block = 2},
        {.query = QUERY_INPUT, .norm = NORM_WRITTEN, .d = 48, .sublayers = 6, .block = 3},
        {.bias = BIAS_VECTOR, .one_by_one = true, .d = 48, .sublayers = 12, .block = 4},
    };
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        uint64_t bytes[2];
        for (int depth = 0; depth < 2; depth++)
            bytes[depth] = check_module(depth_model(arena, &diags, styles[i]).m,
                                        hd_printf(arena, "style %zu", i), depth, "baseline");
        cr_expect_leq(bytes[1], bytes[0], "style %zu: %llu bytes, naive %llu", i,
                      (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
    }
}
