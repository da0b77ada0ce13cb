/* Speed of attention kernels on one thread, alone: for T > 1 as a fraction of what the two matrix
 * products cost at the rate of a large GEMM (give it in GFLOP/s as the second argument), for T = 1
 * in GB/s of keys and values.
 *
 *     sequence [LEVEL] [GFLOP/s]
 */
#include <time.h>

#include "tests/unit/emit_harness.h"

typedef struct shape {
    int64_t t, past, heads, groups, n;
} shape;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static hir_ref state(bench *b, const char *name, shape s) {
    hir_type type = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_C, s.groups, s.n});
    uint32_t index = hir_add_state(b->m, name, type, HD_NOWHERE);
    hir_id v = hir_add_input(b->m, name, type);
    hir_value_at(b->m, v)->place = HIR_PLACE_STATE;
    hir_value_at(b->m, v)->offset = index;
    return hir_value_ref(v);
}

static hir_id build(bench *b, shape s) {
    hir_builder top = hir_at_end(b->m, &b->diags);
    hir_type type = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.heads, s.n});
    hir_ref args[] = {hir_value_ref(hir_add_input(b->m, "q", type)), state(b, "k", s),
                      state(b, "v", s)};
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_ONE, "cols"), hir_string(HIR_A_SPLIT_MANY, "cyclic"),
                        hir_int(HIR_A_GRAIN, 16)};
    hir_id kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 5, &type, 1);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_attr scale = hir_float(HIR_A_SCALE, 0.1);
    hir_ref o = hir_emit(&body, HIR_ATTENTION_OP, args, 3, &scale, 1);
    hir_build(&body, HIR_YIELD_OP, &o, 1, NULL, 0);
    return kernel;
}

/* One call for each `grain` rows, as the runtime deals them out. */
static double time_kernel(const compiled *c, shape s, int64_t grain, void *const *args) {
    hrt_frame frame = {.T = s.t, .C = s.t + s.past, .cap = s.t + s.past};
    frame.scratch = guarded((c->scratch + 63) / 64 * 64);
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double start = now();
        for (int64_t r = 0; r < s.t; r += grain)
            c->call(&frame, args, r, r + grain < s.t ? r + grain : s.t, 0, s.groups);
        double t = now() - start;
        if (t < best) best = t;
    }
    guarded_free(frame.scratch);
    return best;
}

static void run(const hcg_level *level, shape s, int64_t grain, double rate) {
    bench b = bench_new();
    bench_start(&b);
    hir_id kernel = build(&b, s);
    compiled c;
    if (!compile_kernel(&b, HCG_SEQUENCE, kernel, s.t == 1, level, &c)) {
        fprintf(stderr, "%s\n", bench_errors(&b));
        exit(1);
    }
    uint64_t seed = 1;
    int64_t length = s.t + s.past;
    size_t queries = (size_t)(s.t * s.heads * s.n), keys = (size_t)(length * s.groups * s.n);
    float *q = random_floats(&seed, queries), *k = random_floats(&seed, keys);
    float *v = random_floats(&seed, keys), *o = guarded(queries * 4);
    double t = time_kernel(&c, s, grain, (void *[]){q, k, v, o});
    double pairs = (double)s.t * (double)s.past + 0.5 * (double)s.t * (double)(s.t + 1);
    double work = 4.0 * pairs * (double)(s.heads * s.n);
    printf("%-8s T=%-4ld C=%-5ld H=%-2ld G=%-2ld n=%-3ld grain %-3ld %9.1f us %7.1f GFLOP/s",
           level->name, s.t, length, s.heads, s.groups, s.n, grain, t * 1e6, work / t * 1e-9);
    if (s.t > 1 && rate > 0) printf(" %.2f of gemm", work / t * 1e-9 / rate);
    if (s.t == 1) printf(" %6.1f GB/s", (double)keys * 8 / t * 1e-9);
    printf("  %zu bytes\n", c.code_bytes);
    guarded_free(q), guarded_free(k), guarded_free(v), guarded_free(o);
    compiled_free(&c);
    bench_free(&b);
}

int main(int argc, char **argv) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    double rate = argc > 2 ? atof(argv[2]) : 0;
    for (size_t i = 0; i < n; i++) {
        if (!level_runs(&levels[i]) || (argc > 1 && strcmp(argv[1], levels[i].name) != 0)) continue;
        run(&levels[i], (shape){512, 0, 16, 4, 128}, 16, rate);
        run(&levels[i], (shape){512, 0, 16, 16, 64}, 16, rate);
        run(&levels[i], (shape){512, 0, 16, 16, 64}, 64, rate);
        run(&levels[i], (shape){512, 3584, 16, 4, 128}, 16, rate);
        run(&levels[i], (shape){1, 511, 16, 4, 128}, 1, rate);
        run(&levels[i], (shape){1, 16383, 16, 4, 128}, 1, rate);
        run(&levels[i], (shape){1, 16383, 16, 16, 64}, 1, rate);
    }
    return 0;
}
