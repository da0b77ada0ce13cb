/* Contraction kernels against double loops: every epilogue form, odd shapes, decode and prefill, at
 * every CPU level of this machine, whole and divided into blocks. */
#include <criterion/criterion.h>
#include <math.h>

#include "codegen/matmul/backend.h"
#include "codegen/program/contraction.h"
#include "tests/unit/codegen/contract/contract_harness.h"

/* ---- a kernel and its data ------------------------------------------------------------------- */

typedef struct bound {
    hir_ref ref;
    float *values; /* row-major; of a matrix: as rounded to its storage */
    void *stored;  /* what the kernel reads */
} bound;

typedef struct problem {
    bench b;
    uint64_t seed;
    hir_id kernel;
    hir_builder body;
    int64_t t, k;
    int64_t tokens; /* that the kernel is called for: 1, or t */
    hir_dtype dtype;
    const hcg_level *level; /* whose back ends round x */
    HD_VEC(bound) bound;
    hir_ref yields[4];
    hir_type types[4];
    uint32_t n_yields;
} problem;

static hir_type matrix(int64_t n) {
    return hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, n});
}

static void bind(problem *p, hir_ref r, size_t n) {
    float *x = random_floats(&p->seed, n);
    hd_push(p->b.arena, &p->bound, ((bound){r, x, x}));
}

static hir_ref outer(problem *p, hir_type type) {
    int64_t rows = hir_type_has_t(type) ? p->t : 1;
    hir_ref r =
        hir_value_ref(hir_add_input(p->b.m, hd_printf(p->b.arena, "i%zu", p->bound.n), type));
    bind(p, r, (size_t)(rows * hir_type_row_elements(type)));
    return r;
}

static hir_ref vector_weight(problem *p, int64_t n) {
    hir_type type = hir_make_type(HIR_F32, 1, &n);
    hir_ref r = hir_weight_ref(
        hir_add_weight(p->b.m, hd_printf(p->b.arena, "v%zu", p->bound.n), type, HD_NOWHERE));
    bind(p, r, (size_t)n);
    return r;
}

static hir_ref linear(problem *p, hir_ref x, int64_t n, bool bias) {
    hir_type type = hir_make_type(p->dtype, 2, (int64_t[]){n, p->k});
    uint32_t w =
        hir_add_weight(p->b.m, hd_printf(p->b.arena, "w%zu", p->bound.n), type, HD_NOWHERE);
    const hir_layout layout = random_layout(&p->seed, p->k, p->dtype);
    p->b.m->weights.at[w].layout = layout;
    float *values = random_floats(&p->seed, (size_t)(n * p->k));
    for (int64_t i = 0; i < n * p->k; i++)
        values[i] *= (float)sqrt(3.0 / (double)p->k); /* sums of size 1 */
    void *stored = pack_matrix(values, n, p->k, p->dtype, layout);
    hd_push(p->b.arena, &p->bound, ((bound){hir_weight_ref(w), values, stored}));
    hir_ref b = bias ? vector_weight(p, n) : hir_no_ref();
    return hir_emit(&p->body, HIR_LINEAR_OP, (hir_ref[]){x, hir_weight_ref(w), b}, 3, NULL, 0);
}

static void yield(problem *p, hir_ref r) {
    p->yields[p->n_yields++] = r;
}

/* ---- epilogue forms -------------------------------------------------------------------------- */

typedef void form(problem *p, hir_ref x, int64_t n);

static void form_plain(problem *p, hir_ref x, int64_t n) {
    yield(p, linear(p, x, n, false));
}

static void form_bias(problem *p, hir_ref x, int64_t n) {
    yield(p, linear(p, x, n, true));
}

static void form_gated(problem *p, hir_ref x, int64_t n) {
    hir_ref gate = linear(p, x, n, false), up = linear(p, x, n, true);
    yield(p, hir_emit2(&p->body, HIR_MUL_OP, hir_emit1(&p->body, HIR_SILU_OP, gate), up));
}

static void form_residual(problem *p, hir_ref x, int64_t n) {
    hir_ref h = outer(p, matrix(n));
    yield(p, hir_emit2(&p->body, HIR_ADD_OP, h, linear(p, x, n, false)));
}

static void form_gelu(problem *p, hir_ref x, int64_t n) {
    yield(p, hir_emit1(&p->body, HIR_GELU_TANH_OP, linear(p, x, n, true)));
}

static void form_qkv(problem *p, hir_ref x, int64_t n) {
    yield(p, linear(p, x, n, true));
    yield(p, linear(p, x, 1 + random_below(&p->seed, 70), false));
    yield(p, hir_emit1(&p->body, HIR_TANH_OP, linear(p, x, n, false)));
}

/* a constant, a weight [N], a scalar input, and both the sum and what becomes of it leave */
static void form_scaled(problem *p, hir_ref x, int64_t n) {
    hir_ref y = linear(p, x, n, false), two = hir_emit_const(&p->body, 2.5);
    hir_ref scalar = outer(p, hir_make_type(HIR_F32, 1, (int64_t[]){1}));
    hir_ref z = hir_emit2(&p->body, HIR_MUL_OP, y, vector_weight(p, n));
    z = hir_emit2(&p->body, HIR_SUB_OP, two, z);
    z = hir_emit2(&p->body, HIR_MAX_OP, z, scalar);
    yield(p, z);
    yield(p, y);
}

/* an op of outer values only, that two linears meet through; the same sum leaves twice, reshaped */
static void form_outer_gate(problem *p, hir_ref x, int64_t n) {
    hir_ref a = linear(p, x, n, false), b = linear(p, x, n, false);
    hir_ref column = outer(p, hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, 1}));
    hir_ref g = hir_emit1(&p->body, HIR_SIGMOID_OP, outer(p, matrix(n)));
    g = hir_emit1(&p->body, HIR_NEG_OP, g);
    hir_ref ya = hir_emit2(&p->body, HIR_MUL_OP, g, a);
    hir_ref yb = hir_emit2(&p->body, HIR_ADD_OP, hir_emit2(&p->body, HIR_MUL_OP, b, g), column);
    hir_attr shape = hir_ints(HIR_A_SHAPE, (int64_t[]){HIR_T, 1, n}, 3);
    yield(p, ya);
    yield(p, hir_emit(&p->body, HIR_RESHAPE_OP, &yb, 1, &shape, 1));
    yield(p, yb);
}

/* x is [T, 1, K] outside */
static void form_reshaped_x(problem *p, hir_ref x, int64_t n) {
    (void)x;
    hir_ref outside = outer(p, hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, 1, p->k}));
    hir_attr shape = hir_ints(HIR_A_SHAPE, (int64_t[]){HIR_T, p->k}, 2);
    hir_ref in = hir_emit(&p->body, HIR_RESHAPE_OP, &outside, 1, &shape, 1);
    yield(p, linear(p, in, n, true));
}

static form *const forms[] = {form_plain, form_bias,   form_gated,      form_residual,  form_gelu,
                              form_qkv,   form_scaled, form_outer_gate, form_reshaped_x};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

/* Results are only known once the body is built: it is built in a kernel without results, which
 * then gets them as hir_build_kernel would have made them. */
static void build(problem *p, form *f, int64_t t, int64_t n, int64_t k, hir_dtype dtype,
                  uint64_t seed) {
    *p = (problem){.b = bench_new(), .seed = seed * 2654435761u + 1, .t = t, .k = k};
    p->dtype = dtype;
    bench_start(&p->b);
    hir_module *m = p->b.m;
    hir_builder top = hir_at_end(m, &p->b.diags);
    hir_ref x = outer(p, matrix(k));
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "contract0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "cols"),
                        hir_string(HIR_A_SPLIT_PREFILL, "cols")};
    p->kernel = hir_build_kernel(&top, HIR_KERNEL_CONTRACT_OP, attrs, 4, NULL, 0);
    p->body = hir_in_body(m, &p->b.diags, p->kernel);
    f(p, x, n);
    hir_build(&p->body, HIR_YIELD_OP, p->yields, p->n_yields, NULL, 0);
    hir_id *results = hd_new_array(p->b.arena, hir_id, p->n_yields);
    for (uint32_t i = 0; i < p->n_yields; i++) {
        p->types[i] = hir_ref_type(m, p->yields[i]);
        results[i] = (hir_id)m->values.n;
        hd_push(m->arena, &m->values, ((hir_value){.type = p->types[i], .op = p->kernel}));
    }
    hir_op_at(m, p->kernel)->results = results;
    hir_op_at(m, p->kernel)->n_results = p->n_yields;
    cr_assert(!hd_diags_failed(&p->b.diags), "%s", bench_errors(&p->b));
}

static void discard(problem *p) {
    for (size_t i = 0; i < p->bound.n; i++) {
        if (p->bound.at[i].stored != p->bound.at[i].values) guarded_free(p->bound.at[i].stored);
        guarded_free(p->bound.at[i].values);
    }
    bench_free(&p->b);
}

/* ---- the expected value of one element ------------------------------------------------------- */

static const bound *find_bound(const problem *p, hir_ref r) {
    for (size_t i = 0; i < p->bound.n; i++)
        if (hir_ref_equal(p->bound.at[i].ref, r)) return &p->bound.at[i];
    cr_assert_fail("operand not bound");
    return NULL;
}

static double apply(hir_opcode code, double x, double y) {
    switch (code) {
    case HIR_SILU_OP: return x / (1 + exp(-x));
    case HIR_TANH_OP: return tanh(x);
    case HIR_SIGMOID_OP: return 1 / (1 + exp(-x));
    case HIR_GELU_TANH_OP: return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case HIR_NEG_OP: return -x;
    case HIR_ADD_OP: return x + y;
    case HIR_SUB_OP: return x - y;
    case HIR_MUL_OP: return x * y;
    case HIR_MAX_OP: return fmax(x, y);
    default: cr_assert_fail("op not expected");
    }
    return 0;
}

static double expect(const problem *p, hir_ref r, int64_t row, int64_t column);

static double expect_linear(const problem *p, const hir_op *op, int64_t row, int64_t column) {
    const float *x = find_bound(p, hir_through_reshapes(p->b.m, op->args[0]))->values;
    const float *w = find_bound(p, op->args[1])->values;
    double sum = op->args[2].kind == HIR_REF_NONE ? 0 : expect(p, op->args[2], row, column);
    const hir_weight *weight = &p->b.m->weights.at[op->args[1].index];
    const seen_as s = seen_by(p->level, p->b.exact, weight->type.dtype, weight->layout, p->tokens);
    double rounded[p->k];
    round_row(s, x + row * p->k, p->k, rounded);
    for (int64_t i = 0; i < p->k; i++)
        sum += rounded[i] * rounded_w(s, w[column * p->k + i]);
    return sum;
}

static double expect(const problem *p, hir_ref r, int64_t row, int64_t column) {
    const hir_module *m = p->b.m;
    r = hir_through_reshapes(m, r);
    hir_id by = r.kind == HIR_REF_VALUE ? hir_value_at(m, r.index)->op : HIR_NONE;
    if (by == HIR_NONE) {
        hir_type t = hir_ref_type(m, r);
        int64_t n = t.dim[t.rank - 1];
        return find_bound(p, r)->values[(hir_type_has_t(t) ? row * n : 0) + (n == 1 ? 0 : column)];
    }
    const hir_op *op = hir_op_at(m, by);
    if (op->code == HIR_CONST_OP) return hir_attr_float(op, HIR_A_VALUE, 0);
    if (op->code == HIR_LINEAR_OP) return expect_linear(p, op, row, column);
    double x = expect(p, op->args[0], row, column);
    return apply(op->code, x, op->n_args > 1 ? expect(p, op->args[1], row, column) : 0);
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct outputs {
    float *at[4];
    int64_t n[4]; /* columns */
} outputs;

static const float untouched = -12345.0f;
enum { GUARD = 64 };

static outputs new_outputs(const problem *p) {
    outputs o = {0};
    for (uint32_t i = 0; i < p->n_yields; i++) {
        o.n[i] = hir_type_row_elements(p->types[i]);
        size_t size = (size_t)(p->t * o.n[i] + GUARD);
        o.at[i] = guarded(size * 4);
        for (size_t j = 0; j < size; j++)
            o.at[i][j] = untouched;
    }
    return o;
}

static void free_outputs(outputs *o) {
    for (int i = 0; i < 4; i++)
        guarded_free(o->at[i]);
}

static void call(const problem *p, const compiled *c, outputs *o, int64_t r0, int64_t r1,
                 int64_t c0, int64_t c1) {
    void *args[32];
    size_t n = c->k.operands.n;
    for (size_t i = 0; i < c->k.n_inputs; i++)
        args[i] = find_bound(p, c->k.operands.at[i])->stored;
    for (size_t i = c->k.n_inputs; i < n; i++)
        args[i] = o->at[i - c->k.n_inputs];
    hrt_frame frame = {
        .T = p->t, .C = p->t, .cap = p->t, .scratch = guarded((c->scratch + 63) / 64 * 64)};
    memset(frame.scratch, 0xff, c->scratch); /* NaN: scratch must not be read before written */
    c->call(&frame, args, r0, r1, c0, c1);
    guarded_free(frame.scratch);
}

/* Sums of products are of this size, however small what is left of them is: weights are such. */
static double row_size(const problem *p, int64_t row) {
    double size = 1;
    for (int64_t k = 0; k < p->k; k++)
        size = fmax(size, fabs((double)p->bound.at[0].values[row * p->k + k]));
    return size;
}

static void compare(const problem *p, const outputs *o, const char *what) {
    const double tolerance = 1e-5;
    for (uint32_t i = 0; i < p->n_yields; i++) {
        for (int64_t r = 0; r < p->t; r++) {
            const double size = row_size(p, r);
            for (int64_t j = 0; j < o->n[i]; j++) {
                double e = expect(p, p->yields[i], r, j), g = o->at[i][r * o->n[i] + j];
                cr_assert(fabs(g - e) <= tolerance * (size + fabs(e)),
                          "%s: result %u [%ld, %ld] is %.9g, not %.9g (T=%ld N=%ld K=%ld)", what, i,
                          r, j, g, e, p->t, o->n[i], p->k);
            }
        }
        for (int64_t j = 0; j < GUARD; j++)
            cr_assert(o->at[i][p->t * o->n[i] + j] == untouched, "%s: wrote behind the result",
                      what);
    }
}

static bool same(const problem *p, const outputs *a, const outputs *b) {
    for (uint32_t i = 0; i < p->n_yields; i++)
        if (memcmp(a->at[i], b->at[i], (size_t)(p->t * a->n[i]) * 4) != 0) return false;
    return true;
}

/* Random blocks that cover everything give what the whole gives, bit for bit. */
static void run_blocks(problem *p, const compiled *c, outputs *o) {
    int64_t columns = hcg_columns(p->b.m, p->kernel);
    for (int64_t r0 = 0, r1; r0 < p->t; r0 = r1) {
        r1 = r0 + 1 + random_below(&p->seed, p->t - r0);
        for (int64_t c0 = 0, c1; c0 < columns; c0 = c1) {
            c1 = c0 + 1 + random_below(&p->seed, columns - c0);
            call(p, c, o, r0, r1, c0, c1);
        }
    }
}

static void check(problem *p, const hcg_level *level, bool one, const char *what) {
    compiled c = {0};
    p->level = level, p->tokens = one ? 1 : p->t, p->b.what = what;
    bool ok = compile_kernel(&p->b, HIR_KERNEL_CONTRACT, p->kernel, one, level, &c);
    cr_assert(ok, "%s: %s", what, bench_errors(&p->b));
    outputs whole = new_outputs(p), blocks = new_outputs(p);
    call(p, &c, &whole, 0, p->t, 0, hcg_columns(p->b.m, p->kernel));
    compare(p, &whole, what);
    run_blocks(p, &c, &blocks);
    cr_assert(same(p, &whole, &blocks), "%s: blocks differ from the whole", what);
    free_outputs(&whole), free_outputs(&blocks);
    compiled_free(&c);
}

static void check_form(unsigned f, const hcg_level *level, uint64_t seed) {
    uint64_t s = seed * 7919 + f + 1;
    for (int i = 0; i < 8; i++)
        random_bits(&s);
    int64_t t = 1 + random_below(&s, 40), n = 1 + random_below(&s, 200),
            k = 1 + random_below(&s, 200);
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16, HIR_F16};
    hir_dtype dtype = dtypes[random_below(&s, 3)];
    if (seed % 4 == 0) n = (n + 15) / 16 * 16;
    problem p;
    build(&p, forms[f], t, n, k, dtype, s);
    char what[96];
    snprintf(what, sizeof what, "%s form %u seed %lu %s many", level->name, f, seed,
             hir_dtype_name(dtype));
    check(&p, level, false, what);
    discard(&p);
    build(&p, forms[f], 1 + random_below(&s, 2), n, k, dtype, s);
    memcpy(strstr(what, "many"), "one ", 4);
    check(&p, level, true, what);
    discard(&p);
}

static void check_level(const char *name) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(levels[i].name, name) != 0) continue;
        if (!level_runs(&levels[i])) cr_skip_test("this CPU has no %s", name);
        for (unsigned f = 0; f < N_FORMS; f++)
            for (uint64_t seed = 0; seed < 6; seed++)
                if (has_turn(f + seed + (unsigned)__builtin_ctz(levels[i].lanes), 6))
                    check_form(f, &levels[i], seed);
        return;
    }
    cr_assert_fail("no level %s", name);
}

Test(emit_contract, avx512) {
    check_level("avx512");
}

Test(emit_contract, avx2) {
    check_level("avx2");
}

Test(emit_contract, baseline) {
    check_level("baseline");
}

/* ---- weights in groups ----------------------------------------------------------------------- */
/* q, k and v of different dtypes: x is there as floats and as bytes. */
static void form_mixed(problem *p, hir_ref x, int64_t n) {
    static const hir_dtype dtypes[] = {HIR_Q4, HIR_NVFP4, HIR_Q8, HIR_BF16};
    for (int i = 0; i < 4; i++) {
        p->dtype = dtypes[i];
        yield(p, linear(p, x, n, i == 2));
    }
}

static form *const group_forms[] = {form_plain, form_gated, form_mixed, form_qkv};

/* Any shape, with edges more often than chance has them: K of one, of less than a group, of whole
 * groups; N of one and of whole panels; all heights of tiles. */
static void check_groups(const hcg_level *level, uint64_t seed) {
    static const int64_t ks[] = {1, 3, 31, 32, 33, 64, 96}, ns[] = {1, 15, 16, 17, 32, 48};
    uint64_t s = seed * 104729 + 1;
    for (int i = 0; i < 8; i++)
        random_bits(&s);
    int64_t k = seed % 2 ? ks[random_below(&s, 7)] : 1 + random_below(&s, 300);
    int64_t n = seed % 3 ? 1 + random_below(&s, 100) : ns[random_below(&s, 6)];
    int64_t t = 1 + random_below(&s, seed % 5 ? 20 : 200);
    hir_dtype dtype = seed % 3 == 2 ? (seed % 2 ? HIR_MXFP4 : HIR_NVFP4)
                      : seed % 2    ? HIR_Q4
                                    : HIR_Q8;
    bool floats = rounds_of(level, 0, HIR_Q8, HIR_LAYOUT_PANEL) && random_below(&s, 3) == 0;
    for (int one = 0; one < 2; one++) {
        problem p;
        char what[96];
        snprintf(what, sizeof what, "%s seed %lu %s%s", level->name, seed, one ? "one" : "many",
                 floats ? " floats" : "");
        build(&p, group_forms[seed % 4], one ? 1 : t, n, k, seed % 8 > 3 ? dtype : HIR_Q8, s);
        p.b.exact = floats ? HCG_ROUND_ALL : 0;
        check(&p, level, one, what);
        discard(&p);
    }
}

Test(emit_contract, groups) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (uint64_t seed = 0; seed < 24; seed++)
            if (products_run(&levels[i], 0, HIR_Q8, HIR_LAYOUT_PANEL) && has_turn(seed / 3 + i, 4))
                check_groups(&levels[i], seed);
}

/* x that bytes can only hold with care: zeros, tiny and large numbers, one large among small ones;
 * a NaN makes the sums of its row NaN and of no other. */
Test(emit_contract, groups_of_strange_x) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < 4 * n; i++) {
        const hcg_level *level = &levels[i / 4];
        const int rows = i / 2 % 2 ? 27 : 7; /* so many that q8 may be widened, or few */
        if (!products_run(level, 0, HIR_Q8, HIR_LAYOUT_PANEL)) continue;
        problem p;
        build(&p, form_plain, rows, 20, 70, i % 2 ? HIR_Q4 : HIR_Q8, i + 1);
        float *x = p.bound.at[0].values;
        memset(x, 0, 70 * 4);
        for (int k = 0; k < 70; k++) {
            x[70 + k] *= 1e-33f, x[140 + k] *= 1e30f, x[210 + k] *= k == 3 ? 1 : 1e-4f;
            x[280 + k] = 1e-38f;
        }
        check(&p, level, false, level->name);
        x[350 + 40] = NAN;
        compiled c = {0};
        cr_assert(compile_kernel(&p.b, HIR_KERNEL_CONTRACT, p.kernel, false, level, &c));
        outputs o = new_outputs(&p);
        call(&p, &c, &o, 0, rows, 0, hcg_columns(p.b.m, p.kernel));
        for (int j = 0; j < rows * 20; j++)
            cr_assert_eq(isnan(o.at[0][j]) != 0, j / 20 == 5, "%s: [%d, %d] is %g", level->name,
                         j / 20, j % 20, (double)o.at[0][j]);
        free_outputs(&o);
        compiled_free(&c);
        discard(&p);
    }
}

/* Whatever its instructions, a level that takes x as bytes gives the bits that the others give:
 * sums of integers are exact, those of floats have one order. (A matrix unit takes it as bf16 in
 * calls of many tokens.) */
static void check_same_bits(hir_dtype dtype, int64_t t, int64_t n, int64_t k) {
    const hcg_level *levels;
    size_t n_levels = hcg_levels(&levels), compared = 0;
    problem p;
    build(&p, form_plain, t, n, k, dtype, (uint64_t)(t * n * k));
    outputs first = new_outputs(&p);
    for (size_t i = 0; i < n_levels; i++) {
        if (!level_runs(&levels[i])) continue;
        if (seen_by(&levels[i], 0, dtype, HIR_LAYOUT_PANEL, t).x != HCG_ROUND_INT8) continue;
        compiled c = {0};
        outputs o = new_outputs(&p);
        cr_assert(compile_kernel(&p.b, HIR_KERNEL_CONTRACT, p.kernel, t == 1, &levels[i], &c));
        call(&p, &c, compared ? &o : &first, 0, t, 0, hcg_columns(p.b.m, p.kernel));
        cr_assert(!compared++ || same(&p, &first, &o), "%s: %s [%ld, %ld, %ld] differs",
                  levels[i].name, hir_dtype_name(dtype), t, n, k);
        free_outputs(&o);
        compiled_free(&c);
    }
    if (compared < 2) cr_log_info("this CPU has fewer than two levels that take bytes");
    free_outputs(&first);
    discard(&p);
}

Test(emit_contract, bytes_give_the_same_bits) {
    for (hir_dtype dtype = HIR_Q8; dtype <= HIR_NVFP4; dtype++) {
        check_same_bits(dtype, 1, 37, 100);
        check_same_bits(dtype, 23, 37, 100);
        check_same_bits(dtype, 7, 200, 333);
        check_same_bits(dtype, 31, 20, 1100); /* some blocks of widened panels */
        check_same_bits(dtype, 25, 33, 96);   /* whole groups */
    }
}

/* The ends of the range of a format's numbers, stored with a scale of 1. A group of q4 has both. */
static const struct {
    hir_dtype dtype;
    float low, high;
    bool both;
} ends[] = {
    {HIR_Q8, -2, 2, false}, /* -127, 127 */
    {HIR_Q4, 0, 2, true},   /* 0, 15 */
    {HIR_MXFP4, -6, 6, false},
    {HIR_NVFP4, -6, 6, false},
};
enum { FORMATS = sizeof ends / sizeof *ends };

/* Which elements of a row differ in sign: none, every other one, every other pair, of which a lane
 * of 16 bits gathers all of either kind, or the halves of a group. */
enum { SIGNS = 4 };
static bool is_second(int signs, int k) {
    const int turn[SIGNS] = {0, k % 2, k / 2 % 2, k % 32 / 16};
    return turn[signs];
}

/* Row n of a weight: all at one end, or at one in some places and at the other in the others. */
static float end_of(size_t format, int n, int k) {
    if (ends[format].both && k % 32 == 0) return ends[format].low;
    const bool high = is_second(n / 2 % SIGNS, k) != n % 2;
    return high || ends[format].both ? ends[format].high : ends[format].low;
}

/* Likewise row n of x: 1.5 or -1.5. */
static float sign_of(int n, int k) {
    return is_second(n / 2 % SIGNS, k) != n % 2 ? -1.5f : 1.5f;
}

static void check_largest_sums(const hcg_level *level, size_t format, int64_t t) {
    enum { N = 20, K = 70 };
    problem p;
    char what[96];
    snprintf(what, sizeof what, "%s %s", level->name, hir_dtype_name(ends[format].dtype));
    build(&p, form_plain, t, N, K, ends[format].dtype, format + 1);
    float *x = p.bound.at[0].values, *w = p.bound.at[1].values;
    for (int i = 0; i < t * K; i++)
        x[i] = sign_of(i / K, i % K);
    for (int i = 0; i < N * K; i++)
        w[i] = end_of(format, i / K, i % K);
    guarded_free(p.bound.at[1].stored);
    p.bound.at[1].stored = pack_panels(w, N, K, p.dtype);
    p.b.m->weights.at[p.bound.at[1].ref.index].layout = HIR_LAYOUT_PANEL;
    check(&p, level, t == 1, what);
    discard(&p);
}

/* The largest sums that bytes can make: all x of a row alike, or alike but for signs, so that every
 * p is 127 or -127, and weights that take the ends of their range. Nothing saturates on the way, and
 * no sum leaves 16 bits before it is widened: 16 * 24 * 127 of fp4 would. */
Test(emit_contract, largest_sums_of_bytes) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n * FORMATS; i++) {
        const hcg_level *level = &levels[i / FORMATS];
        if (!products_run(level, 0, ends[i % FORMATS].dtype, HIR_LAYOUT_PANEL)) continue;
        check_largest_sums(level, i % FORMATS, 1);
        check_largest_sums(level, i % FORMATS, 2 * SIGNS + 1);
    }
}

/* K and T over the sizes of blocks: several k blocks and row blocks with remainders. */
Test(emit_contract, blocks) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < 4 * n; i++) {
        static const hir_dtype dtypes[] = {HIR_BF16, HIR_F32, HIR_Q4, HIR_F16};
        const hcg_level *level = &levels[i / 4];
        if (!products_run(level, 0, dtypes[i % 4], HIR_LAYOUT_PANEL)) continue;
        problem p;
        if (i % 4 == 0) build(&p, form_gated, 35, 37, 5003, HIR_BF16, 5);
        if (i % 4 == 1) build(&p, form_bias, 301, 19, 67, HIR_F32, 6);
        if (i % 4 == 2) build(&p, form_gated, 137, 37, 1000, HIR_Q4, 7);
        if (i % 4 == 3) build(&p, form_gated, 61, 37, 300, HIR_F16, 8);
        check(&p, level, false, level->name);
        discard(&p);
    }
}

/* Any number of rows: tiles of every height, among few rows and among many, which have tiles of their
 * own; the bits are those of all rows at once. */
static void check_heights(const hcg_level *level, hir_dtype dtype) {
    enum { MOST = 44 };
    problem p;
    compiled c = {0};
    build(&p, form_plain, MOST, 50, 70, dtype, 3);
    p.b.exact = HCG_ROUND_ALL;
    p.level = level, p.tokens = MOST, p.b.what = level->name;
    cr_assert(compile_kernel(&p.b, HIR_KERNEL_CONTRACT, p.kernel, false, level, &c), "%s: %s",
              level->name, bench_errors(&p.b));
    const int64_t columns = hcg_columns(p.b.m, p.kernel);
    outputs whole = new_outputs(&p);
    call(&p, &c, &whole, 0, MOST, 0, columns);
    compare(&p, &whole, level->name);
    for (int64_t rows = 1; rows < MOST; rows++) {
        outputs cut = new_outputs(&p);
        for (int64_t r0 = 0; r0 < MOST; r0 += rows)
            call(&p, &c, &cut, r0, r0 + rows < MOST ? r0 + rows : MOST, 0, columns);
        cr_expect(same(&p, &whole, &cut), "%s, %s: %ld rows at a time", level->name,
                  hir_dtype_name(dtype), (long)rows);
        free_outputs(&cut);
    }
    free_outputs(&whole);
    compiled_free(&c);
    discard(&p);
}

Test(emit_contract, heights) {
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16, HIR_F16};
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < 3 * n; i++)
        if (products_run(&levels[i / 3], HCG_ROUND_ALL, dtypes[i % 3], HIR_LAYOUT_PANEL))
            check_heights(&levels[i / 3], dtypes[i % 3]);
}

/* Any number of panels, of rows that whole tiles of 4 and of 6 cover and others: panels that are
 * multiplied together give the bits that each gives alone. */
static void check_widths(const hcg_level *level, hir_dtype dtype, int64_t n) {
    static const int64_t rows[] = {79, 42, 37, 12, 8, 7, 4, 3};
    problem p;
    compiled c = {0};
    build(&p, form_plain, rows[0], n, 290, dtype, (uint64_t)n);
    p.b.exact = HCG_ROUND_ALL;
    p.level = level, p.tokens = rows[0], p.b.what = level->name;
    cr_assert(compile_kernel(&p.b, HIR_KERNEL_CONTRACT, p.kernel, false, level, &c), "%s: %s",
              level->name, bench_errors(&p.b));
    const int64_t columns = hcg_columns(p.b.m, p.kernel);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outputs whole = new_outputs(&p);
        call(&p, &c, &whole, 0, rows[i], 0, columns);
        if (i == 0) compare(&p, &whole, level->name);
        for (int64_t each = 1; each < columns; each++) {
            outputs cut = new_outputs(&p);
            for (int64_t c0 = 0; c0 < columns; c0 += each)
                call(&p, &c, &cut, 0, rows[i], c0, c0 + each < columns ? c0 + each : columns);
            cr_expect(same(&p, &whole, &cut), "%s, %s: %ld rows, %ld outputs, %ld panels at a time",
                      level->name, hir_dtype_name(dtype), (long)rows[i], (long)n, (long)each);
            free_outputs(&cut);
        }
        free_outputs(&whole);
    }
    compiled_free(&c);
    discard(&p);
}

Test(emit_contract, widths) {
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16, HIR_F16};
    static const int64_t ns[] = {31, 32, 48, 64, 77, 97};
    enum { WIDTHS = sizeof ns / sizeof *ns };
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < 3 * n; i++) {
        if (!products_run(&levels[i / 3], HCG_ROUND_ALL, dtypes[i % 3], HIR_LAYOUT_PANEL)) continue;
        for (size_t j = 0; j < WIDTHS; j++)
            check_widths(&levels[i / 3], dtypes[i % 3], ns[j]);
    }
}

/* One token: K around the pages that a panel lies in, which a loop of their own goes through. */
static void check_pages(const hcg_level *level, hir_dtype dtype, unsigned exact, size_t turn) {
    static const int64_t ks[] = {127, 128, 129, 136, 257, 511, 513, 807, 993, 1601};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        if (!has_turn(i + turn, 3)) continue;
        problem p;
        char what[96];
        snprintf(what, sizeof what, "%s %s K = %ld%s", level->name, hir_dtype_name(dtype),
                 (long)ks[i], exact ? " floats" : "");
        build(&p, form_plain, 1, 33, ks[i], dtype, i);
        p.b.exact = exact;
        check(&p, level, true, what);
        discard(&p);
    }
}

Test(emit_contract, pages_of_one_token) {
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16,  HIR_F16,  HIR_Q8,
                                       HIR_Q4,  HIR_MXFP4, HIR_NVFP4};
    enum { N = sizeof dtypes / sizeof *dtypes };
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n * N; i++) {
        const hcg_level *level = &levels[i / N];
        const hir_dtype dtype = dtypes[i % N];
        if (products_run(level, 0, dtype, HIR_LAYOUT_PANEL)) check_pages(level, dtype, 0, i / N);
        if (products_run(level, HCG_ROUND_ALL, dtype, HIR_LAYOUT_PANEL) &&
            rounds_of(level, 0, dtype, HIR_LAYOUT_PANEL))
            check_pages(level, dtype, HCG_ROUND_ALL, i / N + 1);
    }
}

Test(emit_contract, columns) {
    problem p;
    build(&p, form_gated, 2, 33, 4, HIR_F32, 1);
    cr_assert_eq(hcg_columns(p.b.m, p.kernel), 3, "linears that meet share columns");
    discard(&p);
    build(&p, form_outer_gate, 2, 17, 4, HIR_F32, 1);
    cr_assert_eq(hcg_columns(p.b.m, p.kernel), 2, "linears meet through an op of outer values");
    discard(&p);
    build(&p, form_qkv, 2, 33, 4, HIR_F32, 1);
    hcg_contraction c;
    cr_assert(hcg_plan_contraction(p.b.arena, &p.b.diags, p.b.m, p.kernel, &c));
    cr_assert_eq(c.groups.n, 3);
    cr_assert_eq(c.groups.at[1].first_column, 3);
    cr_assert_eq(c.groups.at[2].first_column, 3 + c.groups.at[1].panels);
    cr_assert_eq(c.columns, hcg_columns(p.b.m, p.kernel));
    discard(&p);
}

/* Levels of other machines: the code is generated, and calls nothing that is not there. (Of levels that
 * run, that is seen of each kernel.) */
Test(emit_contract, every_architecture) {
    static const hir_dtype every[] = {HIR_F32, HIR_Q8, HIR_F16, HIR_Q4};
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n * N_FORMS; i++) {
        const hcg_level *level = &levels[i / N_FORMS];
        if (level_runs(level) || !has_turn(i / N_FORMS + i, 2)) continue;
        problem p;
        build(&p, forms[i % N_FORMS], 2, 37, 21, every[i % 4], i);
        for (int one = 0; one < 2; one++) {
            const char *call = calls_outside(&p.b, HIR_KERNEL_CONTRACT, p.kernel, one, level);
            cr_assert(!call, "%s form %zu calls %s %s", level->name, i % N_FORMS, call,
                      bench_errors(&p.b));
        }
        discard(&p);
    }
}

/* The check above sees a call when there is one. */
Test(emit_contract, foreign_call_is_seen) {
    const hcg_level claims_fma = {.name = "baseline",
                                  .arch = "x86_64",
                                  .cpu = "x86-64",
                                  .lanes = 4,
                                  .registers = 16,
                                  .fma = true,
                                  .features = "",
                                  .machine = {.line = 64, .l1 = 32768, .l2 = 262144}};
    problem p;
    build(&p, form_plain, 2, 37, 21, HIR_F32, 1);
    const char *call = calls_outside(&p.b, HIR_KERNEL_CONTRACT, p.kernel, false, &claims_fma);
    cr_assert(call && !strcmp(call, "fmaf"));
    discard(&p);
}

/* A body that no pass may leave is refused with a diagnostic, not emitted. */
static void form_illegal(problem *p, hir_ref x, int64_t n) {
    hir_ref y = linear(p, x, n, false);
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    yield(p, y);
    hir_emit(&p->body, HIR_REDUCE_SUM_OP, &y, 1, &axis, 1);
}

static void form_two_inputs(problem *p, hir_ref x, int64_t n) {
    yield(p, linear(p, x, n, false));
    yield(p, linear(p, outer(p, matrix(p->k)), n, false));
}

static void form_rows(problem *p, hir_ref x, int64_t n) {
    yield(p, linear(p, x, n, false));
    p->b.m->weights.at[0].layout = HIR_LAYOUT_ROWS;
}

/* A matrix that no row of matmul/backends.def multiplies. */
static void form_narrow_f16(problem *p, hir_ref x, int64_t n) {
    yield(p, linear(p, x, n, false));
    p->b.m->weights.at[0].type.dtype = HIR_F16;
    p->b.m->weights.at[0].layout = HIR_LAYOUT_NARROW;
}

Test(emit_contract, rejected) {
    static form *const illegal[] = {form_illegal, form_two_inputs, form_rows, form_narrow_f16};
    const hcg_level *levels;
    hcg_levels(&levels);
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++) {
        problem p;
        compiled c;
        build(&p, illegal[i], 2, 5, 4, HIR_F32, 1);
        cr_assert_not(compile_kernel(&p.b, HIR_KERNEL_CONTRACT, p.kernel, false, &levels[0], &c));
        cr_assert_eq(hd_diags_first(&p.b.diags), HD_E_INTERNAL);
        discard(&p);
    }
}
