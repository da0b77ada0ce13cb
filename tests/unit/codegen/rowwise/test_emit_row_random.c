/* Random row programs against the evaluator: chains of every op that a row program may hold, on
 * random shapes, with values read once, twice and never, at every CPU level of this machine.
 *
 * Tolerance 1e-4 of a result's largest element. The generator keeps values near 1 (functions with
 * steep slopes are applied to squashed values only), but a chain of sums, differences and products
 * may amplify f32 rounding a thousandfold. */
#include <criterion/criterion.h>

#include "tests/unit/codegen/rowwise/row_harness.h"

static const double tolerance = 1e-4;
enum { MOST_ELEMENTS = 3000, POOL = 128 };

typedef struct maker {
    bench *b;
    hir_builder at;
    uint64_t seed;
    hir_ref pool[POOL];
    uint32_t n;
    bool has_t;
} maker;

static int64_t below(maker *k, int64_t n) {
    return random_below(&k->seed, n);
}

static hir_type type_of(maker *k, hir_ref r) {
    return hir_ref_type(k->b->m, r);
}

static hir_ref any(maker *k) {
    return k->pool[below(k, 2) && k->n > 4 ? k->n - 1 - below(k, 4) : below(k, k->n)];
}

static void keep(maker *k, hir_ref r) {
    cr_assert(r.kind != HIR_REF_NONE, "%s", bench_errors(k->b));
    if (hir_type_row_elements(type_of(k, r)) <= MOST_ELEMENTS && k->n < POOL) k->pool[k->n++] = r;
}

static hir_ref op1(maker *k, hir_opcode code, hir_ref x) {
    return hir_emit1(&k->at, code, x);
}

static hir_ref op2(maker *k, hir_opcode code, hir_ref x, hir_ref y) {
    return hir_emit2(&k->at, code, x, y);
}

static hir_ref with(maker *k, hir_opcode code, hir_ref x, hir_attr a) {
    return hir_emit(&k->at, code, &x, 1, &a, 1);
}

static hir_ref squashed(maker *k, hir_ref x) {
    return op1(k, HIR_TANH_OP, x);
}

static hir_ref number(maker *k, double v) {
    return hir_emit_const(&k->at, v);
}

static int64_t some_dim(maker *k) {
    static const int64_t dims[] = {1, 2, 3, 4, 5, 8, 16, 17, 24, 33, 64, 70};
    return dims[below(k, 12)];
}

static void make_unary(maker *k) {
    static const hir_opcode gentle[] = {
        HIR_NEG_OP,  HIR_ABS_OP,       HIR_TANH_OP, HIR_SIGMOID_OP,  HIR_SILU_OP,
        HIR_GELU_OP, HIR_GELU_TANH_OP, HIR_RELU_OP, HIR_SOFTPLUS_OP, HIR_ERF_OP};
    static const hir_opcode positive[] = {HIR_SQRT_OP, HIR_RSQRT_OP, HIR_RECIP_OP, HIR_LOG_OP};
    hir_ref x = any(k);
    if (below(k, 3))
        keep(k, op1(k, gentle[below(k, 10)], x));
    else if (below(k, 2))
        keep(k, op1(k, HIR_EXP_OP, squashed(k, x)));
    else {
        hir_ref above = op2(k, HIR_ADD_OP, op1(k, HIR_ABS_OP, squashed(k, x)), number(k, 0.5));
        keep(k, op1(k, positive[below(k, 4)], above));
    }
}

/* A value that broadcasts with x: x's type with some dims cut to 1 and leading dims cut off. */
static hir_ref partner(maker *k, hir_ref x) {
    hir_type t = type_of(k, x);
    for (int tries = 0; tries < 20; tries++) {
        hir_ref y = any(k);
        hir_type u = type_of(k, y);
        bool fits = u.rank <= t.rank;
        for (uint32_t i = 0; fits && i < u.rank; i++) {
            int64_t a = t.dim[t.rank - 1 - i], b = u.dim[u.rank - 1 - i];
            fits = a == b || a == 1 || b == 1;
            fits &= (a < 0) == (b < 0) || b == 1;
        }
        if (fits) return y;
    }
    if (t.rank == 0) return number(k, 0.7);
    uint32_t axis = (uint32_t)below(k, t.rank);
    if (t.dim[axis] < 0) return x;
    hir_ref s = with(k, HIR_REDUCE_MEAN_OP, x, hir_int(HIR_A_AXIS, axis));
    t.dim[axis] = 1;
    return with(k, HIR_RESHAPE_OP, s, hir_ints(HIR_A_SHAPE, t.dim, t.rank));
}

static void make_binary(maker *k) {
    static const hir_opcode codes[] = {HIR_ADD_OP, HIR_SUB_OP, HIR_MUL_OP,
                                       HIR_MAX_OP, HIR_MIN_OP, HIR_WHEN_OP};
    hir_ref x = any(k), y = partner(k, x);
    if (below(k, 6) == 0) {
        hir_ref d = op2(k, HIR_ADD_OP, op1(k, HIR_ABS_OP, squashed(k, y)), number(k, 1));
        keep(k, op2(k, HIR_DIV_OP, x, d));
    } else {
        keep(k, op2(k, codes[below(k, 6)], x, y));
    }
}

static void make_reduction(maker *k) {
    static const hir_opcode codes[] = {HIR_REDUCE_SUM_OP, HIR_REDUCE_MEAN_OP, HIR_REDUCE_MAX_OP};
    hir_ref x = any(k);
    hir_type t = type_of(k, x);
    if (t.rank == 0) return;
    uint32_t axis = (uint32_t)below(k, t.rank);
    if (t.dim[axis] < 0) return;
    hir_ref y = with(k, codes[below(k, 3)], x, hir_int(HIR_A_AXIS, axis));
    keep(k, below(k, 2) ? y : squashed(k, y));
}

/* x as one row for each token, or one. */
static hir_ref as_row(maker *k, hir_ref x) {
    hir_type t = type_of(k, x);
    bool has_t = t.rank && t.dim[0] < 0;
    int64_t d[] = {HIR_T, hir_type_row_elements(t)};
    return with(k, HIR_RESHAPE_OP, x, hir_ints(HIR_A_SHAPE, d + !has_t, 1 + has_t));
}

/* Sums that one number decides about, which may be a sum of that kind itself; what is summed is
 * read by others too, or is not. */
static void make_decided_sum(maker *k) {
    hir_ref x = as_row(k, any(k)), c = as_row(k, any(k));
    hir_type t = type_of(k, x), u = type_of(k, c);
    if (u.rank > t.rank) return; /* c has T and x has none */
    c = with(k, HIR_REDUCE_MEAN_OP, c, hir_int(HIR_A_AXIS, u.rank - 1));
    u.dim[u.rank - 1] = 1;
    c = with(k, HIR_RESHAPE_OP, c, hir_ints(HIR_A_SHAPE, u.dim, u.rank));
    for (int64_t i = 1 + below(k, 2); i > 0; i--) {
        if (below(k, 2)) x = op2(k, HIR_MUL_OP, squashed(k, x), number(k, 0.5));
        if (below(k, 3) == 0) keep(k, x);
        hir_ref y = below(k, 2) ? op2(k, HIR_MUL_OP, x, x) : x;
        y = with(k, below(k, 2) ? HIR_REDUCE_SUM_OP : HIR_REDUCE_MEAN_OP, op2(k, HIR_WHEN_OP, c, y),
                 hir_int(HIR_A_AXIS, t.rank - 1));
        keep(k, squashed(k, y));
    }
}

/* Two neighbouring dims become one, one becomes two, or a dim of 1 comes or goes. */
static void make_reshape(maker *k) {
    hir_ref x = any(k);
    hir_type t = type_of(k, x);
    uint32_t first = t.rank && t.dim[0] < 0 ? 1 : 0;
    int64_t d[HIR_MAX_RANK + 1];
    uint32_t n = t.rank, at = first + (uint32_t)below(k, (int64_t)(t.rank - first) + 1);
    memcpy(d, t.dim, sizeof t.dim);
    int kind = (int)below(k, 3);
    if (kind == 0 && at + 1 < n) {
        d[at] *= d[at + 1];
        for (uint32_t i = at + 1; i + 1 < n; i++)
            d[i] = d[i + 1];
        n--;
    } else if (n < HIR_MAX_RANK) {
        int64_t factor = 1;
        for (int64_t f = 2; kind == 1 && at < n && f <= 8; f++)
            if (d[at] % f == 0 && below(k, 2)) factor = f;
        for (uint32_t i = n; i > at; i--)
            d[i] = d[i - 1];
        d[at] = factor;
        if (at < n) d[at + 1] /= factor;
        n++;
    }
    keep(k, with(k, HIR_RESHAPE_OP, x, hir_ints(HIR_A_SHAPE, d, n)));
}

static void make_transpose(maker *k) {
    hir_ref x = any(k);
    hir_type t = type_of(k, x);
    int64_t perm[HIR_MAX_RANK];
    uint32_t first = t.rank && t.dim[0] < 0 ? 1 : 0;
    for (uint32_t i = 0; i < t.rank; i++)
        perm[i] = i;
    for (uint32_t i = t.rank; i-- > first + 1;) {
        uint32_t j = first + (uint32_t)below(k, i - first + 1);
        int64_t p = perm[i];
        perm[i] = perm[j], perm[j] = p;
    }
    if (t.rank) keep(k, with(k, HIR_TRANSPOSE_OP, x, hir_ints(HIR_A_PERM, perm, t.rank)));
}

static void make_slice(maker *k) {
    hir_ref x = any(k);
    hir_type t = type_of(k, x);
    uint32_t axis = t.rank ? (uint32_t)below(k, t.rank) : 0;
    if (!t.rank || t.dim[axis] < 0) return;
    int64_t start = below(k, t.dim[axis]), length = 1 + below(k, t.dim[axis] - start);
    hir_attr a[] = {hir_int(HIR_A_AXIS, axis), hir_int(HIR_A_START, start),
                    hir_int(HIR_A_LENGTH, length)};
    keep(k, hir_emit(&k->at, HIR_SLICE_OP, &x, 1, a, 3));
}

static void make_broadcast(maker *k) {
    hir_ref x = any(k);
    hir_type t = type_of(k, x);
    for (uint32_t i = 0; i < t.rank; i++)
        if (t.dim[i] == 1 && below(k, 2)) t.dim[i] = some_dim(k);
    if (t.rank && t.rank < 4 && t.dim[0] > 0 && below(k, 2)) {
        for (uint32_t i = t.rank++; i > 0; i--)
            t.dim[i] = t.dim[i - 1];
        t.dim[0] = k->has_t && below(k, 2) ? HIR_T : some_dim(k);
    }
    if (hir_type_row_elements(t) <= MOST_ELEMENTS)
        keep(k, with(k, HIR_BROADCAST_OP, x, hir_ints(HIR_A_SHAPE, t.dim, t.rank)));
}

static void make_side_by_side(maker *k) {
    hir_ref parts[6];
    hir_ref x = any(k);
    hir_type t = type_of(k, x);
    uint32_t n = 1 + (uint32_t)below(k, 6), first = t.rank && t.dim[0] < 0 ? 1 : 0;
    bool stack = below(k, 2);
    if (t.rank == first && !stack) return;
    if (stack && t.rank == HIR_MAX_RANK) return;
    if (hir_type_row_elements(t) * n > MOST_ELEMENTS) return;
    uint32_t axis = first + (uint32_t)below(k, t.rank - first + (stack ? 1 : 0));
    uint32_t found = 0;
    for (int tries = 0; tries < 40 && found < n; tries++) {
        hir_ref y = any(k);
        hir_type u = type_of(k, y);
        bool fits = u.rank == t.rank;
        for (uint32_t i = 0; fits && i < t.rank; i++)
            fits = u.dim[i] == t.dim[i] || (!stack && i == axis && u.dim[i] > 0);
        if (fits) parts[found++] = y;
    }
    if (!found) parts[found++] = x;
    hir_attr a = hir_int(HIR_A_AXIS, axis);
    hir_ref y = hir_emit(&k->at, stack ? HIR_STACK_OP : HIR_CONCAT_OP, parts, found, &a, 1);
    keep(k, y);
}

static void make_op(maker *k) {
    switch (below(k, 11)) {
    case 10: make_decided_sum(k); break;
    case 0: make_unary(k); break;
    case 1:
    case 2: make_binary(k); break;
    case 3:
    case 4: make_reduction(k); break;
    case 5: make_reshape(k); break;
    case 6: make_transpose(k); break;
    case 7: make_slice(k); break;
    case 8: make_broadcast(k); break;
    default: make_side_by_side(k); break;
    }
}

/* Inputs and weights of related shapes, so that ops find partners. */
static void make_outside(maker *k) {
    int64_t d[4] = {k->has_t ? HIR_T : some_dim(k), some_dim(k), some_dim(k), some_dim(k)};
    for (int i = 0; i < 6; i++) {
        uint32_t rank = 1 + (uint32_t)below(k, 3);
        int64_t dims[4] = {d[0], d[1 + below(k, 3)], d[1 + below(k, 3)], 1};
        hir_type t = hir_make_type(HIR_F32, rank, dims);
        if (hir_type_row_elements(t) <= MOST_ELEMENTS)
            keep(k, hir_value_ref(hir_add_input(k->b->m, hd_printf(k->b->arena, "x%d", i), t)));
        t = hir_make_type(below(k, 3) ? HIR_F32 : below(k, 2) ? HIR_BF16 : HIR_F16, rank, dims + 1);
        uint32_t w = hir_add_weight(k->b->m, hd_printf(k->b->arena, "w%d", i), t, HD_NOWHERE);
        if (below(k, 2) && hir_type_row_elements(t) <= MOST_ELEMENTS) keep(k, hir_weight_ref(w));
    }
}

/* Ops in a list of their own first: the types of the results are known when the kernel is built. */
static void make_kernel(maker *k, int ops) {
    hir_module *m = k->b->m;
    m->stage = HIR_STAGE_GRAPH;
    make_outside(k);
    uint32_t outside = k->n;
    k->at = hir_at_end(m, &k->b->diags);
    keep(k, number(k, 0.25));
    for (int i = 0; i < ops; i++)
        make_op(k);
    hir_ref yields[5];
    hir_type types[5];
    uint32_t n = 0;
    for (int tries = 0; n < 5 && tries < 40; tries++) {
        hir_ref r =
            tries == 0 ? k->pool[k->n - 1] : k->pool[outside / 2 + below(k, k->n - outside / 2)];
        hir_type t = type_of(k, r);
        if (r.kind == HIR_REF_VALUE && t.rank && t.dtype == HIR_F32 &&
            hir_type_has_t(t) == k->has_t) {
            types[n] = t;
            yields[n++] = r;
        }
    }
    if (n == 0) return;
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "row0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "none"),
                        hir_string(HIR_A_SPLIT_PREFILL, "none")};
    hir_id last = m->last;
    m->stage = HIR_STAGE_KERNEL;
    hir_id kernel = hir_build_kernel(&k->at, HIR_KERNEL_ROW_OP, attrs, 4, types, n);
    cr_assert(kernel != HIR_NONE, "%s", bench_errors(k->b));
    if (last != HIR_NONE) HIR_EACH(m, op, m->first)
    if (op != kernel) hir_move_before(m, op, kernel, HIR_NONE);
    hir_builder body = hir_in_body(m, &k->b->diags, kernel);
    hir_build(&body, HIR_YIELD_OP, yields, n, NULL, 0);
}

static double run_one(const hcg_level *level, uint64_t seed, int ops, const char **text) {
    bench *b = malloc(sizeof *b);
    *b = bench_new();
    bench_start(b);
    maker k = {.b = b, .seed = seed * 0x9e3779b97f4a7c15u + 1, .has_t = seed % 4 != 0};
    make_kernel(&k, ops);
    rows r;
    double worst = INFINITY;
    hd_text t;
    hd_text_init(&t, b->arena);
    hir_print(b->m, (hir_print_options){0}, &t);
    if (rows_open(&r, b, level, seed)) {
        for (int64_t tokens = 3; tokens > 0; tokens -= 2) {
            double **in = hd_new_array(b->arena, double *, b->m->inputs.n + 1);
            for (size_t i = 0; i < b->m->inputs.n; i++) {
                hir_type type = hir_value_at(b->m, b->m->inputs.at[i])->type;
                int64_t n = hir_type_row_elements(type) * (hir_type_has_t(type) ? tokens : 1);
                in[i] = hd_new_array(b->arena, double, (size_t)n);
                for (int64_t j = 0; j < n; j++)
                    in[i][j] = (double)random_float(&k.seed);
            }
            worst = rows_call(&r, tokens, k.has_t ? tokens / 2 : 0, (const double *const *)in);
        }
        rows_close(&r);
    }
    *text = strdup(worst < tolerance ? "" : hd_printf(b->arena, "%s%s", t.at, bench_errors(b)));
    bench_free(b);
    free(b);
    return worst;
}

static void run_many(const char *name, uint64_t from, uint64_t n) {
    const hcg_level *levels;
    for (size_t l = 0, count = hcg_levels(&levels); l < count; l++) {
        if (strcmp(levels[l].name, name) != 0 || !level_runs(&levels[l])) continue;
        for (uint64_t seed = from; seed < from + n; seed++) {
            const char *text;
            double e = run_one(&levels[l], seed, 4 + (int)(seed % 40), &text);
            cr_assert(e < tolerance, "%s, seed %llu: error %g\n%s", name, (unsigned long long)seed,
                      e, text);
            free((void *)text);
        }
    }
}

static uint64_t first_seed(void) {
    const char *s = getenv("ROW_SEED");
    return s ? strtoull(s, NULL, 10) : 1;
}

static uint64_t seeds(void) {
    const char *s = getenv("ROW_SEEDS");
    return s ? strtoull(s, NULL, 10) : 60;
}

Test(emit_row_random, avx512) {
    run_many("avx512", first_seed(), seeds());
}
Test(emit_row_random, avx2) {
    run_many("avx2", first_seed(), seeds());
}
Test(emit_row_random, baseline) {
    run_many("baseline", first_seed(), seeds());
}
