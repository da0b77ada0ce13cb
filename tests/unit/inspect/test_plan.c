/* Predictions of `hadal plan` held against arithmetic done by hand, and what it refuses of a host.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "inspect/plan_rates.h"
#include "runtime/grid.h"
#include "tests/unit/arena_fixture.h"

TestSuite(plan, .init = open_arena, .fini = close_arena);

static double share_of(const char *name) {
#define S(id, value, text)                                                                         \
    if (!strcmp(name, #id)) return value;
#include "inspect/plan_shares.def"
#undef S
    cr_assert_fail("no share %s", name);
    return NAN;
}

static plan_host host(const char *text) {
    plan_host h;
    cr_assert(plan_host_parse(&diags, text, &h), "%s", said());
    return h;
}

static void close_to(double x, double want, const char *what) {
    cr_assert(fabs(x - want) <= 1e-12 * fabs(want), "%s: %.17g is not %.17g", what, x, want);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

Test(plan, a_host_by_name) {
    const plan_host h = host("memory=2G,read=1.5G,flops=3T,network=10G,latency=50us");
    close_to(h.fact[PLAN_MEMORY], 2147483648.0, "memory");
    close_to(h.fact[PLAN_READ], 1.5e9, "read");
    close_to(h.fact[PLAN_FMA], 3e12, "flops");
    close_to(h.fact[PLAN_NETWORK], 1e10, "network");
    close_to(h.fact[PLAN_LATENCY], 50e-6, "latency");
    cr_assert_eq(h.fact[PLAN_TILES], 0);
    close_to(host("latency=2s").fact[PLAN_LATENCY], 2, "seconds");
    close_to(host("latency=0.5").fact[PLAN_LATENCY], 0.5, "no suffix");
}

static const char *file_with(const char *text) {
    char *path = hd_strdup(arena, "/tmp/hadal-plan-XXXXXX");
    const int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

Test(plan, a_host_from_a_file_and_names_that_replace_its_facts) {
    const char *path =
        file_with("{\"schema\": \"hadal-machine-1\", \"memory\": 1000, \"cache\": "
                  "300, \"cached\": 9e9, \"latency\": 2e-6, \"network\": 3e9, \"limits\": "
                  "{\"memory read\": 5e9, \"f32 multiply-add\": 7e9}}");
    const plan_host h = host(hd_printf(arena, "read=6G,%s,latency=1us", path));
    unlink(path);
    close_to(h.fact[PLAN_MEMORY], 1000, "memory");
    close_to(h.fact[PLAN_READ], 6e9, "read: by name");
    close_to(h.fact[PLAN_FMA], 7e9, "flops");
    close_to(h.fact[PLAN_LATENCY], 1e-6, "latency: by name");
    close_to(h.fact[PLAN_NETWORK], 3e9, "network: as ranks have measured it");
    close_to(h.fact[PLAN_CACHE], 300, "cache: as it was measured");
    close_to(h.fact[PLAN_CACHED], 9e9, "its rate");
}

Test(plan, what_kernels_reach_by_name_and_from_a_file) {
    const char *path = file_with("{\"schema\": \"hadal-machine-1\", \"limits\": {\"f32\": 7e9}, "
                                 "\"f32\": 8, \"reached\": {\"f32\": 0.9, \"read.q4\": 1.01}}");
    const plan_host h = host(hd_printf(arena, "%s,reached.row.bf16=0.4,reached.f32=0.95", path));
    unlink(path);
    close_to(h.fact[PLAN_MANY_F32], 0.95, "by name");
    close_to(h.fact[PLAN_READ_Q4], 1.01, "from the file");
    close_to(h.fact[PLAN_ROW_BF16], 0.4, "with two points");
    cr_assert_eq(plan_reached_known(&h), 3);
    cr_assert_str_eq(plan_fact_name(PLAN_READ_Q4), "reached.read.q4");
    cr_assert_str_eq(plan_fact_key(PLAN_READ_Q4), "read.q4");
}

/* As `hadal machine` leaves it: the plan is made, and says what it rests on. */
Test(plan, a_host_that_was_measured_busy_is_told) {
    const char *const files[] = {
        "{\"schema\": \"hadal-machine-1\", \"memory\": 1000, \"busy\": false}",
        "{\"schema\": \"hadal-machine-1\", \"memory\": 1000, \"busy\": true}"};
    for (int busy = 0; busy < 2; busy++) {
        const size_t before = diags.list.n;
        const char *path = file_with(files[busy]);
        (void)host(path);
        unlink(path);
        cr_assert_eq(diags.list.n, before + (size_t)busy);
        if (busy)
            cr_assert(strstr(said(), "was measured while the machine was busy"), "%s", said());
    }
}

static void rejected(const char *text, const char *why) {
    plan_host h;
    const size_t before = diags.errors;
    cr_assert_not(plan_host_parse(&diags, text, &h), "%s", text);
    cr_assert_eq(diags.errors, before + 1, "%s", text);
    cr_assert(strstr(said(), why), "%s: %s", text, said());
}

Test(plan, hosts_that_are_rejected) {
    rejected("memmory=2G", "did you mean \"memory\"?");
    rejected("cores=2", "memory, read, cache, cached, flops");
    rejected("memory=", "\"\" is no value of memory");
    rejected("memory=0", "no value of memory");
    rejected("memory=-1", "no value of memory");
    rejected("memory=2Q", "no value of memory");
    rejected("memory=16", "K, M, G or T after it: memory=512G");
    rejected("read=200", "no value of read");
    rejected("memory=inf", "no value of memory");
    rejected("read=nan", "no value of read");
    rejected("latency=5xs", "no value of latency");
    rejected("latency=us", "no value of latency");
    rejected("/nowhere/at/all.json", "/nowhere/at/all.json");
    const char *bad[][2] = {
        {"[1", "not legal JSON"},
        {"[1]", "its schema is not \"hadal-machine-1\""},
        {"{\"schema\": \"hadal-machine-9\"}", "its schema is not \"hadal-machine-1\""},
        {"{\"schema\": \"hadal-machine-1\", \"memory\": \"much\"}", "\"memory\" is \"much\""},
        {"{\"schema\": \"hadal-machine-1\", \"limits\": {\"memory read\": -4}}",
         "\"memory read\" is -4"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *path = file_with(bad[i][0]);
        rejected(path, bad[i][1]);
        unlink(path);
    }
}

Test(plan, shares_that_are_rejected) {
    rejected("reached.f32=0", "a share, above 1 where a faster unit");
    rejected("reached.f32=1G", "no value of reached.f32");
    rejected("reached.f31=1", "did you mean \"reached.f32\"?");
    const char *path = file_with("{\"schema\": \"hadal-machine-1\", \"reached\": {\"q8\": 0}}");
    rejected(path, "\"q8\" is 0");
    unlink(path);
}

Test(plan, what_a_host_must_tell) {
    const plan_host alone = host("memory=1G,read=1G,flops=1G"), blind = host("memory=1G,flops=1G");
    cr_assert(plan_host_check(&diags, &alone, 1));
    cr_assert_not(plan_host_check(&diags, &alone, 2));
    cr_assert(strstr(said(), "lacks network"), "%s", said());
    cr_assert_not(plan_host_check(&diags, &blind, 1));
    cr_assert(strstr(said(), "lacks read"), "%s", said());
}

/* ---- predictions ----------------------------------------------------------------------------- */

/* A product of 1000 operations and 10 bytes for each row, 4000 bytes once a pass. */
static plan_step product(void) {
    return (plan_step){
        .work = {.name = "p", .row_flops = 1000, .row_bytes = 10, .pass_bytes = 4000}};
}

static hir_crossing crossing(hir_opcode code, uint64_t row) {
    return (hir_crossing){.code = code, .row = row, .element_bytes = 4};
}

static plan_stage stage_with(const plan_step *steps, size_t n) {
    plan_stage out = {.weight_bytes = 4000,
                      .state_bytes = 8,
                      .fixed_state_bytes = 100,
                      .arena_per_token = 16,
                      .local_per_token = 64,
                      .fixed_bytes = 32};
    for (size_t i = 0; i < n; i++)
        hd_push(arena, &out.steps, steps[i]);
    return out;
}

static plan_stage stage_that_sends(const hir_crossing *all, size_t n) {
    plan_stage out = stage_with(NULL, 0);
    for (size_t i = 0; i < n; i++)
        hd_push(arena, &out.crossings, ((plan_crossing){.x = all[i]}));
    return out;
}

static plan of_one(const char *facts, int64_t ranks, const plan_stage *stages, size_t n,
                   plan_call call) {
    plan p = {.model = "m", .host = host(facts), .call = call};
    plan_shape shape = {.ranks = ranks, .stages = (int64_t)n};
    hir_module *m = hir_module_new(arena, "m");
    m->ranks = ranks > 1 ? (uint32_t)ranks : 0;
    m->divide_from = ranks > 1 ? 8 : 0;
    for (size_t i = 0; i < n; i++) {
        plan_stage stage = stages[i];
        stage.m = m;
        hd_push(arena, &shape.stage, stage);
    }
    hd_push(arena, &p.shapes, shape);
    plan_predict(&p);
    return p;
}

Test(plan, one_host_by_hand) {
    const plan_step steps[] = {product()};
    const plan_stage stage = stage_with(steps, 1);
    const plan p = of_one("memory=1G,read=1000,flops=100000", 1, &stage, 1,
                          (plan_call){.prompt = 100, .position = 40, .chunk = 64});
    const plan_shape *s = &p.shapes.at[0];
    /* chunks of 64 and 36 rows: their bytes take longer than their operations */
    close_to(s->prefill.memory, (4000 + 640 + 4000 + 360) / 1000.0 / share_of("READ"), "prefill");
    close_to(s->prefill_rate, 100 / (s->prefill.memory + s->prefill.overhead), "rate");
    close_to(s->decode.memory, 4010 / 1000.0 / share_of("READ"), "decode");
    cr_assert_str_eq(plan_binds(s->decode), "memory");
    cr_assert_eq(s->decode.latency, 0, "there is nobody to agree with");
    cr_assert_eq(s->state_bytes, 100 + 8 * 100);
    cr_assert_eq(s->arena_bytes, 32 + (16 + 64) * 64);
    cr_assert_eq(s->bytes, 4000 + 900 + 5152);
    cr_assert(s->fits);
    cr_assert_eq(p.best_decode, 0);
}

Test(plan, arithmetic_where_it_takes_longer) {
    const plan_step steps[] = {product()};
    const plan_stage stage = stage_with(steps, 1);
    const plan p = of_one("memory=1K,read=1G,flops=1000", 1, &stage, 1,
                          (plan_call){.prompt = 10, .position = 0, .chunk = 64});
    const plan_shape *s = &p.shapes.at[0];
    close_to(s->prefill.arithmetic, 10 * 1000 / 1000.0 / share_of("FMA"), "prefill");
    cr_assert_eq(s->prefill.memory, 0);
    cr_assert_str_eq(plan_binds(s->prefill), "arithmetic");
    cr_assert_not(s->fits);
    cr_assert_eq(p.best_prefill, 1, "nothing fits");
}

Test(plan, attention_reaches_less_of_the_limit) {
    plan_step attention = product();
    attention.work.row_flops = 0;
    attention.work.pair_flops = 100;
    const plan_stage stage = stage_with(&attention, 1);
    const plan p = of_one("memory=1G,read=1G,flops=1000", 1, &stage, 1,
                          (plan_call){.prompt = 4, .position = 9, .chunk = 64});
    const plan_shape *s = &p.shapes.at[0];
    close_to(s->prefill.arithmetic, 10 * 100 / 1000.0 / share_of("ATTEND"), "four rows see ten");
    close_to(s->decode.arithmetic, 10 * 100 / 1000.0 / share_of("FMA"), "one row: as a product");
}

Test(plan, a_pass_that_caches_hold_is_read_from_them) {
    const plan_step steps[] = {product(), product()};
    const plan_stage stage = stage_with(steps, 2);
    const plan_call call = {.prompt = 1, .position = 0, .chunk = 64};
    const char *facts = "memory=1G,read=1000,flops=1T,cached=4000,cache=";
    const double bytes = 2 * 4010, more = bytes - 2000;
    plan p = of_one(hd_printf(arena, "%s%d", facts, 8020), 1, &stage, 1, call);
    close_to(p.shapes.at[0].decode.memory, bytes / 4000.0 / share_of("READ"), "held");
    p = of_one(hd_printf(arena, "%s%d", facts, 2000), 1, &stage, 1, call);
    close_to(p.shapes.at[0].decode.memory, (2000 / 4000.0 + more / 1000) / share_of("READ"),
             "what does not stay comes from memory");
    p = of_one("memory=1G,read=8000,flops=1T,cached=4000,cache=1M", 1, &stage, 1, call);
    close_to(p.shapes.at[0].decode.memory, bytes / 8000.0 / share_of("READ"), "slower caches");
    p = of_one("memory=1G,read=1000,flops=1T,cache=1M", 1, &stage, 1, call);
    close_to(p.shapes.at[0].decode.memory, bytes / 1000.0 / share_of("READ"), "rate not known");
}

Test(plan, kernels_and_collectives_begin_and_threads_meet) {
    const plan_step steps[] = {product(), product(), {.work = {.name = "nothing to do"}}};
    const plan_stage stage = stage_with(steps, 3);
    const plan_call call = {.prompt = 1, .position = 0, .chunk = 64};
    const plan p = of_one("memory=1G,read=1G,flops=1G,barrier=3us", 1, &stage, 1, call);
    close_to(p.shapes.at[0].decode.overhead, 2 * (share_of("BEGIN") + 3e-6), "two kernels");
    const hir_crossing sum = crossing(HIR_COMM_ALL_REDUCE_OP, 100);
    const plan_stage sends = stage_that_sends(&sum, 1);
    const plan q = of_one("memory=1G,read=1G,flops=1G,network=1G,latency=1ms", 2, &sends, 1, call);
    close_to(q.shapes.at[0].decode.overhead, share_of("BEGIN"), "an exchange");
}

Test(plan, bytes_go_through_the_transport_and_over_the_link) {
    const hir_crossing sum = crossing(HIR_COMM_ALL_REDUCE_OP, 100);
    const plan_stage stage = stage_that_sends(&sum, 1);
    const plan_call call = {.prompt = 1, .position = 0, .chunk = 64};
    const char *facts = "memory=1G,read=1G,flops=1G,network=8000,latency=1ms";
    close_to(of_one(facts, 2, &stage, 1, call).shapes.at[0].decode.network, 400 / 1000.0, "link");
    facts = "memory=1G,read=1G,flops=1G,network=8000,latency=1ms,transport=0.5K";
    close_to(of_one(facts, 2, &stage, 1, call).shapes.at[0].decode.network,
             400 / 1000.0 + 400 / 500.0, "both");
}

Test(plan, rates_go_by_the_type_of_the_matrix) {
    plan_step q8 = product();
    q8.matrix = HIR_Q8;
    plan_stage stage = stage_with(&q8, 1);
    stage.int8 = true;
    const plan_call call = {.prompt = 8, .position = 0, .chunk = 64};
    const char *with = "memory=1G,read=1T,flops=1000,int8=8000";
    close_to(of_one(with, 1, &stage, 1, call).shapes.at[0].prefill.arithmetic,
             8000 / 8000.0 / share_of("INT8"), "bytes");
    const char *without = "memory=1G,read=1T,flops=1000";
    close_to(of_one(without, 1, &stage, 1, call).shapes.at[0].prefill.arithmetic,
             8000 / 1000.0 / share_of("FMA"), "no dot products of bytes");
    stage.int8 = false;
    close_to(of_one(with, 1, &stage, 1, call).shapes.at[0].prefill.arithmetic,
             8000 / 1000.0 / share_of("FMA"), "activations that are not rounded");
}

/* Seconds of eight rows, and of one, of a product with such a matrix. */
typedef struct taken {
    double many, one;
} taken;

static taken product_with(hir_dtype matrix, bool rounds, bool attends, const char *facts) {
    plan_step step = product();
    step.matrix = matrix;
    if (attends) step.work.row_flops = 0, step.work.pair_flops = 1000;
    plan_stage stage = stage_with(&step, 1);
    stage.int8 = stage.bf16 = rounds;
    const plan p = of_one(hd_printf(arena, "memory=1G,read=1T,flops=1000,%s", facts), 1, &stage, 1,
                          (plan_call){.prompt = 8, .position = 0, .chunk = 64});
    return (taken){p.shapes.at[0].prefill.arithmetic, p.shapes.at[0].decode.arithmetic};
}

/* What was measured on the host comes before the table, whatever units it has. */
Test(plan, what_kernels_reach_was_measured) {
    const char *units = "int8=8000,bf16=4000,tiles=16000,cached=1T";
    static const struct {
        hir_dtype matrix;
        bool rounds;
        const char *key;
    } cases[] = {{HIR_F32, false, "f32"},    {HIR_F16, true, "f16"},
                 {HIR_BF16, false, "bf16"},  {HIR_BF16, true, "bf16.rounded"},
                 {HIR_Q8, true, "q8"},       {HIR_Q8, false, "q8.exact"},
                 {HIR_Q4, true, "q4"},       {HIR_Q4, false, "q4.exact"},
                 {HIR_MXFP4, true, "mxfp4"}, {HIR_MXFP4, false, "mxfp4.exact"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *facts = hd_printf(arena, "%s,reached.%s=2.5", units, cases[i].key);
        const taken t = product_with(cases[i].matrix, cases[i].rounds, false, facts);
        close_to(t.many, 8000 / 1000.0 / 2.5, cases[i].key);
        const taken table = product_with(cases[i].matrix, cases[i].rounds, false, units);
        close_to(t.one, table.one, "one row is another fact");
    }
    const char *facts = hd_printf(arena, "%s,reached.q4=2.5,reached.row.q4=0.5", units);
    close_to(product_with(HIR_Q4, true, false, facts).one, 1000 / 1000.0 / 0.5, "one row");
    facts = hd_printf(arena, "%s,reached.attention=1.25,reached.row.f32=0.5", units);
    const taken attention = product_with(HIR_BF16, true, true, facts);
    close_to(attention.many, 36 * 1000 / 1000.0 / 1.25, "eight rows see 36");
    close_to(attention.one, 1 / share_of("FMA"), "one row of attention: from the table");
}

Test(plan, bytes_that_were_read_while_measuring) {
    plan_step q4 = product();
    q4.matrix = HIR_Q4;
    const plan_step steps[] = {q4, product()};
    const plan_stage stage = stage_with(steps, 2);
    const plan p = of_one("memory=1G,read=1000,flops=1T,reached.read.q4=0.5", 1, &stage, 1,
                          (plan_call){.prompt = 1, .position = 0, .chunk = 64});
    close_to(p.shapes.at[0].decode.memory, 4010 / 500.0 + 4010 / 1000.0 / share_of("READ"),
             "q4 as measured, f32 by the table");
}

/* As codegen/matmul/backends.def has it: all many rows go by the unit but of q8 and q4 with f32
 * activations, one row never. */
Test(plan, a_host_with_a_matrix_unit) {
    static const struct {
        hir_dtype matrix;
        bool rounds, attends;
        const char *share; /* of the unit; NULL: multiply-adds */
    } cases[] = {{HIR_F32, true, false, "TILES_F32"},
                 {HIR_F16, true, false, "TILES_F16"},
                 {HIR_BF16, false, false, "EXACT"},
                 {HIR_BF16, true, false, "TILES"},
                 {HIR_Q8, true, false, "TILES_GROUPS"},
                 {HIR_Q4, true, false, "TILES_GROUPS"},
                 {HIR_MXFP4, true, false, "TILES_GROUPS"},
                 {HIR_NVFP4, true, false, "TILES_GROUPS"},
                 {HIR_MXFP4, false, false, "EXACT"},
                 {HIR_NVFP4, false, false, "EXACT"},
                 {HIR_Q8, false, false, NULL},
                 {HIR_F32, false, true, "ATTEND_F32"},
                 {HIR_F16, false, true, "ATTEND_F16"},
                 {HIR_BF16, false, true, "ATTEND_BF16"},
                 {HIR_F32, true, true, "ATTEND_ROUNDED"},
                 {HIR_BF16, true, true, "ATTEND_ROUNDED"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const taken t =
            product_with(cases[i].matrix, cases[i].rounds, cases[i].attends, "tiles=16000");
        const double rate =
            cases[i].share ? 16000 * share_of(cases[i].share) : 1000 * share_of("FMA");
        close_to(t.many, (cases[i].attends ? 36 : 8) * 1000 / rate,
                 hir_dtype_name(cases[i].matrix));
        close_to(t.one, 1 / share_of("FMA"), "one row");
    }
}

/* A recurrence has nothing for the unit to multiply. */
Test(plan, neither_a_product_nor_attention) {
    plan_step step = product();
    step.other = true;
    const plan_stage stage = stage_with(&step, 1);
    const plan p =
        of_one("memory=1G,read=1T,flops=1000,tiles=16000,reached.f32=0.5,reached.row.f32=0.1", 1,
               &stage, 1, (plan_call){.prompt = 8, .position = 0, .chunk = 64});
    close_to(p.shapes.at[0].prefill.arithmetic, 8 / share_of("FMA"), "multiply-adds");
    close_to(p.shapes.at[0].decode.arithmetic, 1 / share_of("FMA"), "of one row, too");
}

Test(plan, ranks_do_their_rows_of_long_calls) {
    plan_step local = product();
    local.local = true;
    const plan_stage stage = stage_with(&local, 1);
    const plan_call call = {.prompt = 10, .position = 0, .chunk = 10};
    const char *facts = "memory=1G,read=1G,flops=1000,network=1G,latency=1us";
    const plan p = of_one(facts, 4, &stage, 1, call);
    close_to(p.shapes.at[0].prefill.arithmetic, 3 * 1000 / 1000.0 / share_of("FMA"),
             "three rows of ten on the fullest rank");
    close_to(p.shapes.at[0].decode.arithmetic, 1 / share_of("FMA"), "each rank has the one row");
    cr_assert_eq(p.shapes.at[0].arena_bytes, 32 + 16 * 10 + 64 * 3);
}

Test(plan, what_crosses_between_ranks) {
    const hir_crossing all[] = {crossing(HIR_COMM_REDUCE_SCATTER_OP, 100),
                                crossing(HIR_COMM_ALL_GATHER_OP, 100)};
    const plan_stage stage = stage_that_sends(all, 2);
    const char *facts = "memory=1G,read=1G,flops=1G,network=8000,latency=1ms";
    const plan p =
        of_one(facts, 4, &stage, 1, (plan_call){.prompt = 12, .position = 0, .chunk = 12});
    const plan_shape *s = &p.shapes.at[0];
    close_to(s->prefill_crossing, 2 * 400 * 3 / 4.0, "three quarters of a row, twice");
    close_to(s->prefill.network, 12 * 600 / 1000.0, "1000 bytes a second");
    close_to(s->prefill.latency, 3e-3, "twice, and the ranks agree on the call");
    cr_assert_str_eq(plan_binds(s->prefill), "network");
    /* one row: a sum for all ranks, to each of the three others, and nothing is gathered */
    close_to(s->decode_crossing, 3 * 400, "a token");
    close_to(s->decode.latency, 2e-3, "one sum, and the ranks agree");
}

Test(plan, a_large_sum_goes_in_two_steps) {
    const hir_crossing sum = crossing(HIR_COMM_ALL_REDUCE_OP, 100000);
    const plan_stage stage = stage_that_sends(&sum, 1);
    const plan p = of_one("memory=1G,read=1G,flops=1G,network=8000,latency=1ms", 4, &stage, 1,
                          (plan_call){.prompt = 1, .position = 0, .chunk = 10});
    close_to(p.shapes.at[0].decode_crossing, 2 * 400000 * 3 / 4.0, "parts, and their sums");
    close_to(p.shapes.at[0].decode.latency, 3e-3, "two steps");
}

Test(plan, stages_fill_with_chunks) {
    const plan_step steps[] = {product()};
    const plan_stage stages[] = {stage_with(steps, 1), stage_with(steps, 1)};
    const plan_call call = {.prompt = 100, .position = 0, .chunk = 10};
    const char *facts = "memory=1G,read=1G,flops=1000,network=1G,latency=1us";
    const double one = of_one(facts, 1, stages, 1, call).shapes.at[0].prefill.arithmetic;
    const plan p = of_one(facts, 1, stages, 2, call);
    close_to(p.shapes.at[0].prefill.arithmetic, one * 11 / 10, "ten chunks and one to fill");
    const double token = of_one(facts, 1, stages, 1, call).shapes.at[0].decode.arithmetic;
    close_to(p.shapes.at[0].decode.arithmetic, 2 * token, "a token goes through both");
}

/* Ten rows of 100 elements cross in a millisecond and 4 seconds. The second of three stages
 * receives as many as it sends, at the same boundary, before the next one can go on. */
Test(plan, a_stage_in_the_middle_receives_and_sends) {
    const plan_step steps[] = {product()};
    plan_stage stages[] = {stage_with(steps, 1), stage_with(steps, 1), stage_with(steps, 1)};
    const plan_crossing on = {crossing(HIR_COMM_SEND_OP, 100), .beside = false};
    const plan_crossing from = {crossing(HIR_COMM_RECV_OP, 100), .beside = false};
    for (int i = 0; i < 3; i++) {
        if (i < 2) hd_push(arena, &stages[i].crossings, on);
        if (i > 0) hd_push(arena, &stages[i].crossings, from);
    }
    const char *facts = "memory=1G,read=1G,flops=1M,network=8000,latency=1ms";
    const plan_call call = {.prompt = 50, .position = 0, .chunk = 10};
    const plan p = of_one(facts, 1, stages, 3, call);
    const plan_shape *s = &p.shapes.at[0];
    const double work = 10e3 / 1e6 / share_of("FMA") + share_of("BEGIN");
    const double message = 4 + 1e-3 + share_of("BEGIN");
    close_to(s->stage.at[0].prompt, 5 * (work + message), "sends");
    close_to(s->stage.at[1].prompt, 5 * (work + 2 * message), "receives and sends");
    close_to(s->stage.at[2].prompt, 5 * (work + message), "receives");
    /* four chunks pass the second stage while the fifth comes through all of them */
    close_to(plan_time_all(s->prefill), 1e-3 + 4 * (work + 2 * message) + 3 * work + 2 * message,
             "each message once on the way, and twice where chunks wait for each other");
    close_to(s->prefill_crossing, 400, "what leaves a host is what it sends");
    close_to(s->decode.network, 2 * 0.4, "a token waits for two messages");
    close_to(s->decode.latency, 3e-3, "and for both ranks' agreement");
}

/* With two runs of layers on a stage, half of that; and what a group of one chunk waits. */
Test(plan, runs_fill_stages_sooner) {
    const plan_step steps[] = {product()};
    plan_stage stages[] = {stage_with(steps, 1), stage_with(steps, 1)};
    for (int i = 0; i < 2; i++)
        stages[i].runs = 2, stages[i].arena_kept = 8, stages[i].local_kept = 4;
    const char *facts = "memory=1G,read=1G,flops=1000,network=1G,latency=1us";
    for (int64_t chunks = 9; chunks <= 10; chunks++) {
        const plan_call call = {.prompt = 10 * chunks, .position = 0, .chunk = 10};
        const double one = of_one(facts, 1, stages, 1, call).shapes.at[0].prefill.arithmetic;
        const plan p = of_one(facts, 1, stages, 2, call);
        const double turns = 2.0 * (double)chunks + 1 + (double)(chunks % 2);
        close_to(p.shapes.at[0].prefill.arithmetic, one * turns / (2.0 * (double)chunks), "turns");
        cr_assert_eq(p.shapes.at[0].arena_bytes, 32 + (16 + 64) * 10 + (8 + 4) * 10,
                     "another chunk is in flight");
    }
}

/* ---- computing beside exchanges -------------------------------------------------------------- */

/* A product of 1000 operations a row, and the sums of rows of 100 elements behind it. */
static plan_stage product_and_sums(int64_t tiles) {
    plan_step front = product();
    front.work.row_bytes = front.work.pass_bytes = 0;
    front.beside = true;
    plan_stage out = stage_with(&front, 1);
    const plan_crossing sums = {crossing(HIR_COMM_REDUCE_SCATTER_OP, 100), .beside = true};
    hd_push(arena, &out.crossings, sums);
    out.tiles = tiles;
    return out;
}

enum { ROWS = 400, TWO = 2 };

/* Of 400 rows on two ranks: what computing takes with all rows at once, and the bytes of a rank. */
static const double row_bytes = 400, half = ROWS / 2.0;

static const plan_shape *in_tiles(const char *facts, int64_t tiles) {
    const plan_stage stage = product_and_sums(tiles);
    static plan p;
    p = of_one(facts, TWO, &stage, 1, (plan_call){.prompt = ROWS, .chunk = ROWS});
    return &p.shapes.at[0];
}

/* For each part of each rank's rows the weights are read once more, which costs as much as 8 rows
 * of arithmetic: runtime/grid.c. */
static double with_weights_of(int64_t tiles) {
    return hrt_cost_of_calls(ROWS, tiles * TWO) / hrt_cost_of_calls(ROWS, 1);
}

Test(plan, collectives_that_take_longer_hide_computing) {
    const char *facts = "memory=1G,read=1T,flops=1M,network=8000,latency=1ms";
    const double compute = ROWS * 1000 / 1e6 / share_of("FMA"), link = half * row_bytes / 1000;
    const plan_shape *s = in_tiles(facts, 4);
    const double computing = compute * with_weights_of(4) + share_of("BEGIN") * with_weights_of(4);
    close_to(s->prefill.hidden, 0.75 * computing, "three of four tiles");
    close_to(s->prefill.network, link, "all that crosses");
    close_to(s->prefill.latency, 1e-3 + 4e-3, "the ranks agree; four messages");
    close_to(plan_time_all(s->prefill), 5e-3 + link + computing / 4 + share_of("BEGIN"),
             "the first tile is made with nothing under way");
    s = in_tiles(facts, 1);
    cr_assert_eq(s->prefill.hidden, 0, "--overlap off");
    close_to(plan_time_all(s->prefill), 2e-3 + link + compute + 2 * share_of("BEGIN"), "off");
}

Test(plan, computing_that_takes_longer_hides_collectives) {
    const char *facts = "memory=1G,read=1T,flops=1000,network=80K,latency=1ms";
    const double link = half * row_bytes / 1e4;
    const plan_shape *s = in_tiles(facts, 2);
    close_to(s->prefill.hidden, (link + 2e-3) / 2, "one of two tiles");
    close_to(s->prefill.network, link / 2, "the last one is waited for");
    close_to(s->prefill.arithmetic, ROWS / share_of("FMA") * with_weights_of(2), "weights twice");
    cr_assert_str_eq(plan_binds(s->prefill), "arithmetic");
}

/* What the CPU copies does not go on by itself. */
Test(plan, the_work_of_the_transport_is_not_hidden) {
    const char *facts = "memory=1G,read=1T,flops=1000,network=80K,latency=1ms,transport=5K";
    const double link = half * row_bytes / 1e4, copying = half * row_bytes / 5e3;
    const plan_shape *s = in_tiles(facts, 2);
    close_to(s->prefill.hidden, (link + 2e-3) / 2, "of the link alone");
    close_to(s->prefill.network, link / 2 + copying, "the whole of the copying");
}

Test(plan, as_many_tiles_as_a_session_would_choose) {
    const char *facts = "memory=1G,read=1T,flops=1M,network=2M,latency=1us";
    const double compute = ROWS * 1000 / 1e6 / share_of("FMA") + share_of("BEGIN");
    const double link = half * row_bytes * 8 / 2e6;
    const hrt_beside b = {.tokens = ROWS,
                          .ranks = TWO,
                          .compute = compute,
                          .collective = link + 1e-6 + share_of("BEGIN"),
                          .latency = 1e-6,
                          .collectives = 1};
    const int64_t best = hrt_best_tiles(&b);
    cr_assert_gt(best, 1);
    const double chosen = plan_time_all(in_tiles(facts, 0)->prefill);
    for (int64_t n = 1; n <= 64; n++) {
        const double time = plan_time_all(in_tiles(facts, n)->prefill);
        cr_assert(n != best || fabs(time - chosen) <= 1e-12 * chosen, "%lld tiles", (long long)n);
        cr_assert_geq(time, chosen * (1 - 1e-4), "%lld tiles are better", (long long)n);
    }
}

/* Decoding, and calls whose rows are not divided, have nothing to cut. */
Test(plan, a_token_has_no_tiles) {
    const plan_stage stage = product_and_sums(4);
    const char *facts = "memory=1G,read=1T,flops=1M,network=8000,latency=1ms";
    const plan p = of_one(facts, TWO, &stage, 1, (plan_call){.prompt = 7, .chunk = 7});
    cr_assert_eq(p.shapes.at[0].decode.hidden, 0);
    cr_assert_eq(p.shapes.at[0].prefill.hidden, 0, "seven rows: divided from eight on");
}

/* ---- the best of all ------------------------------------------------------------------------- */

static plan_shape *add_shape(plan *p, int64_t ranks, int64_t stages) {
    hir_module *m = hir_module_new(arena, "m");
    plan_shape shape = {.ranks = ranks, .stages = stages};
    m->ranks = ranks > 1 ? (uint32_t)ranks : 0;
    m->divide_from = ranks > 1 ? 8 : 0;
    for (int64_t i = 0; i < stages; i++) { /* of 64 steps and as many exchanges, its share */
        plan_stage stage = product_and_sums(0);
        plan_step *one = &stage.steps.at[0];
        one->work.row_flops = 64000.0 / (double)(ranks * stages);
        one->work.pass_bytes = 4e6 / (double)(ranks * stages);
        stage.weight_bytes = (uint64_t)one->work.pass_bytes;
        stage.crossings.at[0].x.row = (uint64_t)(6400 / stages);
        stage.crossings.n = ranks > 1;
        const plan_crossing on = {crossing(HIR_COMM_SEND_OP, 500), .beside = false};
        if (i + 1 < stages) hd_push(arena, &stage.crossings, on);
        stage.arena_per_token = 20000;
        stage.m = m;
        hd_push(arena, &shape.stage, stage);
    }
    hd_push(arena, &p->shapes, shape);
    return &p->shapes.at[p->shapes.n - 1];
}

static plan all_shapes(const char *facts, int64_t hosts, int64_t prompt, int64_t chunk) {
    plan p = {.model = "m",
              .host = host(facts),
              .call = {.prompt = prompt, .position = 0, .chunk = chunk}};
    for (int64_t stages = 1; stages <= hosts; stages++)
        if (hosts % stages == 0) add_shape(&p, hosts / stages, stages);
    plan_predict(&p);
    return p;
}

/* The row that the plan calls best, with the chunk that it has chosen, against every row with every
 * chunk, each computed by itself. */
static void none_is_better(const char *facts, int64_t hosts, int64_t prompt) {
    const plan found = all_shapes(facts, hosts, prompt, 0);
    cr_assert_lt(found.best_prefill, found.shapes.n, "%s: nothing fits", facts);
    const double best = found.shapes.at[found.best_prefill].prefill_rate;
    const double best_decode = found.shapes.at[found.best_decode].decode_rate;
    bool met = false;
    for (int64_t chunk = PLAN_SHORTEST_CHUNK; chunk < 2 * prompt; chunk *= 2) {
        const plan one = all_shapes(facts, hosts, prompt, chunk);
        for (size_t i = 0; i < one.shapes.n; i++) {
            const plan_shape *s = &one.shapes.at[i];
            if (!s->fits) continue;
            cr_assert_leq(s->prefill_rate, best, "%s: %lld x %lld, chunk %lld", facts,
                          (long long)s->ranks, (long long)s->stages, (long long)chunk);
            cr_assert_leq(s->decode_rate, best_decode, "%s: %lld x %lld", facts,
                          (long long)s->ranks, (long long)s->stages);
            met |= s->prefill_rate == best;
        }
    }
    cr_assert(met, "the best row is one of them");
}

Test(plan, no_shape_and_no_chunk_is_better_than_the_best) {
    static const char *const networks[] = {"network=100M", "network=1G", "network=100G"};
    static const char *const latencies[] = {"1us", "100us", "10ms"};
    static const char *const memories[] = {"8M", "40M", "1G"};
    for (size_t n = 0; n < 3; n++)
        for (size_t l = 0; l < 3; l++)
            for (size_t m = 0; m < 3; m++)
                for (int64_t hosts = 1; hosts <= 16; hosts *= 2)
                    none_is_better(
                        hd_printf(arena, "memory=%s,read=10G,flops=1G,barrier=2us,%s,latency=%s",
                                  memories[m], networks[n], latencies[l]),
                        hosts, 3000);
}

/* Where memory is scarce the chunk gives way, not the shape. */
Test(plan, a_chunk_that_fits) {
    const plan large = all_shapes("memory=1G,read=10G,flops=1G", 1, 3000, 0);
    const plan small = all_shapes("memory=16M,read=10G,flops=1G", 1, 3000, 0);
    cr_assert_eq(large.shapes.at[0].chunk, 4096);
    cr_assert_eq(small.shapes.at[0].chunk, 512, "%lld", (long long)small.shapes.at[0].chunk);
    cr_assert(small.shapes.at[0].fits);
    const plan none = all_shapes("memory=1M,read=10G,flops=1G", 1, 3000, 0);
    cr_assert_not(none.shapes.at[0].fits);
    cr_assert_eq(none.shapes.at[0].chunk, PLAN_SHORTEST_CHUNK);
}
