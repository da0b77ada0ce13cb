/* Random programs through the whole pipeline: every pass keeps the answer, every result is legal.
 *
 * A program is grown op by op from random operands by the builder, which refuses what is illegal;
 * half of them are models (token ids, state, attention), half plain functions of f32 inputs. The
 * seeds are fixed. The models have gradients, too, which --check-passes holds against differences
 * of the loss. */
#include <criterion/criterion.h>

#include "ir/eval/random.h"
#include "tests/unit/passes/pass_models.h"

typedef struct grower {
    hir_builder b;
    hir_random r;
    HD_VEC(hir_ref) pool; /* operands to choose from: values and weights */
    int weights, states;
    hd_arena *arena;
    /* No steps: where a condition is 0 but for rounding, differences of the loss show nothing. */
    bool differs;
} grower;

static uint64_t below(grower *g, uint64_t n) {
    return hir_random_below(&g->r, n);
}

static void keep(grower *g, hir_ref r) {
    if (r.kind != HIR_REF_NONE) hd_push(g->arena, &g->pool, r);
}

static hir_ref any(grower *g) {
    size_t n = g->pool.n; /* mostly recent ones, so that programs get deep */
    size_t back = below(g, 3) ? below(g, n < 6 ? n : 6) : below(g, n);
    return g->pool.at[n - 1 - back];
}

static hir_type type_of(grower *g, hir_ref r) {
    return hir_ref_type(g->b.m, r);
}

static hir_ref new_weight(grower *g, uint32_t rank, const int64_t *dims) {
    const char *name = hd_printf(g->arena, "w%d", g->weights++);
    return hir_weight_ref(
        hir_add_weight(g->b.m, name, hir_make_type(HIR_F32, rank, dims), HD_NOWHERE));
}

static hir_ref reshaped(grower *g, hir_ref x, hir_type t) {
    hir_attr shape = hir_ints(HIR_A_SHAPE, t.dim, t.rank);
    return hir_emit(&g->b, HIR_RESHAPE_OP, &x, 1, &shape, 1);
}

/* ---- one op each; a refused op adds nothing -------------------------------------------------- */
static hir_ref grow_unary(grower *g) {
    static const hir_opcode codes[] = {HIR_NEG_OP,  HIR_ABS_OP,       HIR_TANH_OP, HIR_SIGMOID_OP,
                                       HIR_SILU_OP, HIR_GELU_TANH_OP, HIR_RELU_OP, HIR_SOFTPLUS_OP};
    return hir_emit1(&g->b, codes[below(g, 8)], any(g));
}

static hir_ref grow_binary(grower *g) {
    static const hir_opcode codes[] = {HIR_ADD_OP, HIR_ADD_OP,  HIR_ADD_OP, HIR_SUB_OP,
                                       HIR_MUL_OP, HIR_WHEN_OP, HIR_MAX_OP, HIR_MIN_OP};
    hir_ref a = any(g), b = any(g);
    if (!below(g, 4)) b = hir_emit_const(&g->b, (double)below(g, 3));
    if (!below(g, 8)) return hir_emit2(&g->b, HIR_DIV_OP, a, hir_emit_const(&g->b, 4));
    const hir_opcode code = codes[below(g, 8)];
    return hir_emit2(&g->b, code == HIR_WHEN_OP && g->differs ? HIR_SUB_OP : code, a, b);
}

static hir_ref grow_axis(grower *g) {
    static const hir_opcode codes[] = {HIR_REDUCE_SUM_OP, HIR_REDUCE_MEAN_OP, HIR_REDUCE_MAX_OP,
                                       HIR_SOFTMAX_OP};
    hir_ref x = any(g);
    hir_type t = type_of(g, x);
    if (!t.rank) return hir_no_ref();
    hir_attr axis = hir_int(HIR_A_AXIS, (int64_t)below(g, t.rank));
    return hir_emit(&g->b, codes[below(g, 4)], &x, 1, &axis, 1);
}

static hir_ref grow_norm(grower *g) {
    hir_ref x = any(g);
    hir_type t = type_of(g, x);
    if (!t.rank || t.dim[t.rank - 1] < 1) return hir_no_ref();
    hir_attr eps = hir_float(HIR_A_EPS, 1e-3);
    hir_ref gain = below(g, 2) ? new_weight(g, 1, &t.dim[t.rank - 1]) : hir_no_ref();
    if (below(g, 3)) return hir_emit(&g->b, HIR_RMSNORM_OP, (hir_ref[]){x, gain}, 2, &eps, 1);
    return hir_emit(&g->b, HIR_LAYERNORM_OP, (hir_ref[]){x, gain, hir_no_ref()}, 3, &eps, 1);
}

/* [T, ab] <-> [T, a, b], ones put in */
static hir_ref grow_reshape(grower *g) {
    hir_ref x = any(g);
    hir_type t = type_of(g, x);
    if (t.rank >= 2 && t.rank < 5 && t.dim[t.rank - 1] % 4 == 0 && below(g, 2)) {
        t.dim[t.rank] = 4;
        t.dim[t.rank - 1] /= 4;
        t.rank++;
    } else if (t.rank >= 3 && t.dim[t.rank - 1] > 0) {
        t.dim[t.rank - 2] *= t.dim[t.rank - 1];
        t.rank--;
    } else if (t.rank >= 1 && t.rank < 4) {
        t.dim[t.rank++] = 1;
    }
    return reshaped(g, x, t);
}

static hir_ref grow_move(grower *g) {
    hir_ref x = any(g);
    hir_type t = type_of(g, x);
    int64_t perm[] = {0, 2, 1};
    hir_attr p = hir_ints(HIR_A_PERM, perm, 3);
    if (t.rank == 3 && below(g, 2)) return hir_emit(&g->b, HIR_TRANSPOSE_OP, &x, 1, &p, 1);
    if (!t.rank) return hir_no_ref();
    uint32_t axis = (uint32_t)below(g, t.rank);
    if (t.dim[axis] < 1) return hir_no_ref();
    int64_t start = (int64_t)below(g, (uint64_t)t.dim[axis]);
    int64_t length = 1 + (int64_t)below(g, (uint64_t)(t.dim[axis] - start));
    hir_attr at[] = {hir_int(HIR_A_AXIS, axis), hir_int(HIR_A_START, start),
                     hir_int(HIR_A_LENGTH, length)};
    return hir_emit(&g->b, HIR_SLICE_OP, &x, 1, at, 3);
}

/* stack or concat of values of one type */
static hir_ref grow_join(grower *g) {
    hir_ref xs[3] = {any(g)};
    hir_type t = type_of(g, xs[0]);
    uint32_t n = 1;
    for (int tries = 0; n < 3 && tries < 12; tries++) {
        hir_ref x = any(g);
        if (hir_type_equal(type_of(g, x), t)) xs[n++] = x;
    }
    if (!t.rank || t.rank > 3) return hir_no_ref();
    hir_attr axis = hir_int(HIR_A_AXIS, 1 + (int64_t)below(g, t.rank));
    return hir_emit(&g->b, below(g, 2) ? HIR_STACK_OP : HIR_CONCAT_OP, xs, n, &axis, 1);
}

static hir_ref grow_linear(grower *g) {
    static const int64_t sizes[] = {1, 3, 8, 12, 16, 16, 16, 32};
    hir_ref x = any(g);
    hir_type t = type_of(g, x);
    if (!t.rank || t.dim[t.rank - 1] < 2) return hir_no_ref();
    int64_t dims[] = {sizes[below(g, 8)], t.dim[t.rank - 1]};
    hir_ref w = new_weight(g, 2, dims), bias = hir_no_ref();
    if (!below(g, 3)) bias = new_weight(g, 1, dims);
    if (!below(g, 12)) w = hir_emit1(&g->b, HIR_TANH_OP, w);
    if (!below(g, 12)) keep(g, w);
    return hir_emit(&g->b, HIR_LINEAR_OP, (hir_ref[]){x, w, bias}, 3, NULL, 0);
}

/* x + linear(..) and act(linear) * linear, which are what epilogues are made of */
static hir_ref grow_idiom(grower *g) {
    hir_ref x = any(g);
    hir_type t = type_of(g, x);
    if (!hir_type_has_t(t) || t.rank != 2 || t.dim[1] < 2) return hir_no_ref();
    int64_t square[] = {t.dim[1], t.dim[1]};
    hir_ref none = hir_no_ref();
    hir_ref y =
        hir_emit(&g->b, HIR_LINEAR_OP, (hir_ref[]){x, new_weight(g, 2, square), none}, 3, NULL, 0);
    if (below(g, 2)) return hir_emit2(&g->b, HIR_ADD_OP, x, y);
    hir_ref z =
        hir_emit(&g->b, HIR_LINEAR_OP, (hir_ref[]){x, new_weight(g, 2, square), none}, 3, NULL, 0);
    return hir_emit2(&g->b, HIR_MUL_OP, hir_emit1(&g->b, HIR_SILU_OP, y), z);
}

static hir_ref append(grower *g, hir_ref x) {
    hir_type t = type_of(g, x);
    t.dim[0] = HIR_C;
    uint32_t s = hir_add_state(g->b.m, hd_printf(g->arena, "s%d", g->states++), HIR_STATE_CACHE, t,
                               HD_NOWHERE);
    return hir_emit2(&g->b, HIR_CACHE_APPEND_OP, x, hir_state_ref(s));
}

static hir_ref grow_attention(grower *g) {
    hir_type heads = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, 2, 8}), flat = heads;
    flat.rank = 2;
    flat.dim[1] = 16;
    hir_ref x[3];
    for (int i = 0; i < 3; i++) {
        x[i] = any(g);
        hir_type t = type_of(g, x[i]);
        if (!hir_type_has_t(t) || hir_type_row_elements(t) != 16) return hir_no_ref();
        x[i] = reshaped(g, x[i], heads);
    }
    hir_attr rope[] = {hir_int(HIR_A_LENGTH, 8), hir_float(HIR_A_THETA, 100)};
    hir_ref table = hir_emit(&g->b, HIR_ROPE_TABLE_OP, NULL, 0, rope, 2);
    x[0] = hir_emit2(&g->b, HIR_ROPE_OP, x[0], table);
    x[1] = append(g, hir_emit2(&g->b, HIR_ROPE_OP, x[1], table));
    x[2] = append(g, x[2]);
    hir_attr scale = hir_float(HIR_A_SCALE, 0.3);
    hir_ref o = hir_emit(&g->b, HIR_ATTENTION_OP, x, 3, &scale, 1);
    return reshaped(g, o, flat);
}

/* ---- programs -------------------------------------------------------------------------------- */
static void output(grower *g, const char *name, hir_ref x) {
    hir_attr attr = hir_string(HIR_A_NAME, name);
    hir_build(&g->b, HIR_OUTPUT_OP, &x, 1, &attr, 1);
}

static hir_ref with_tokens(grower *g) {
    for (int tries = 0; tries < 50; tries++) {
        hir_ref x = any(g);
        if (hir_type_has_t(type_of(g, x))) return x;
    }
    return g->pool.at[0];
}

/* One value that needs many: the newest with T, each as a vector's mean, side by side. */
static hir_ref gathered(grower *g) {
    hir_ref means[16];
    uint32_t n = 0;
    for (size_t i = g->pool.n; i-- > 0 && n < 16;) {
        hir_ref x = g->pool.at[i];
        hir_type t = type_of(g, x);
        if (!hir_type_has_t(t)) continue;
        hir_type flat = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, hir_type_row_elements(t)});
        x = reshaped(g, x, flat);
        hir_attr axis = hir_int(HIR_A_AXIS, 1);
        means[n++] = hir_emit(&g->b, HIR_REDUCE_MEAN_OP, &x, 1, &axis, 1);
    }
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    return hir_emit(&g->b, HIR_STACK_OP, means, n, &axis, 1);
}

/* What a program is: a model whose one output is logits of a few ids has a loss. */
typedef enum kind { FUNCTION, MODEL, WITH_LOSS } kind;

static hir_module *grow(hd_arena *a, uint64_t seed, kind kind) {
    const bool model = kind != FUNCTION;
    static hir_ref (*const growers[])(grower *) = {
        grow_unary,   grow_binary, grow_binary, grow_binary, grow_axis,   grow_norm,
        grow_reshape, grow_move,   grow_join,   grow_linear, grow_linear, grow_idiom};
    hir_module *m = hir_module_new(a, "random");
    hd_diags *rejections = hd_new(a, hd_diags);
    hd_diags_init(rejections, a);
    grower g = {.b = hir_at_end(m, rejections), .arena = a, .differs = kind == WITH_LOSS};
    g.r = hir_random_stream(seed, model ? "model" : "function");
    if (model) {
        hir_ref ids = hir_value_ref(
            hir_add_input(m, "tokens", hir_make_type(HIR_I32, 1, (int64_t[]){HIR_T})));
        hir_ref table = new_weight(&g, 2, (int64_t[]){40, 16});
        keep(&g, hir_emit2(&g.b, HIR_GATHER_OP, table, ids));
        if (seed % 5 == 0) /* tied: the table is a matrix too */
            keep(&g, hir_emit(&g.b, HIR_LINEAR_OP, (hir_ref[]){g.pool.at[0], table, hir_no_ref()},
                              3, NULL, 0));
    } else {
        hir_type t = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, 16});
        keep(&g, hir_value_ref(hir_add_input(m, "x", t)));
        keep(&g, hir_value_ref(hir_add_input(m, "y", t)));
        keep(&g, hir_value_ref(hir_add_input(m, "v", hir_make_type(HIR_F32, 1, &t.dim[1]))));
    }
    keep(&g, new_weight(&g, 1, (int64_t[]){16}));
    keep(&g, new_weight(&g, 2, (int64_t[]){2, 16}));
    int n = 6 + (int)below(&g, 30);
    for (int i = 0; i < n; i++) {
        hir_ref r = model && !below(&g, 12)
                        ? grow_attention(&g)
                        : growers[below(&g, sizeof growers / sizeof *growers)](&g);
        hir_type t = type_of(&g, r);
        if (hir_type_row_elements(t) <= 4096) keep(&g, r);
        if (!below(&g, 20) && kind != WITH_LOSS)
            output(&g, hd_printf(a, "early%d", i), with_tokens(&g));
    }
    if (kind == WITH_LOSS) {
        output(&g, "logits", gathered(&g));
        return m;
    }
    output(&g, "logits", seed % 4 ? gathered(&g) : with_tokens(&g));
    if (!below(&g, 3)) output(&g, "other", any(&g));
    if (!below(&g, 6)) output(&g, "again", any(&g));
    return m;
}

static bool first_output_has_t(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    if (hir_op_at(m, op)->code == HIR_OUTPUT_OP) return hir_type_has_t(hir_arg_type(m, op, 0));
    return false;
}

static void run_seed(uint64_t seed, kind kind, int64_t ranks) {
    bench b = {.arena = hd_arena_new()};
    hd_diags_init(&b.diags, b.arena);
    b.remarks.arena = b.arena;
    b.m = grow(b.arena, seed, kind);
    if (hir_verify(b.m, &b.diags) && first_output_has_t(b.m)) {
        hir_compile_options options = {.matrix_dtype = seed % 3 ? HIR_F32 : HIR_BF16, .chunk = 512};
        options.ranks = options.divide_from = ranks;
        const char *text = text_of(&b);
        bool ok = run_all(&b, true, &options);
        cr_expect(ok, "seed %llu %s\n%s%s", (unsigned long long)seed,
                  kind == MODEL ? "model" : "function", text, errors_of(&b));
        if (ok) { /* what is printed is what there is */
            const char *kernels = text_of(&b);
            bench again = new_bench(kernels);
            cr_expect(again.m && hir_verify_kernels(again.m, &again.diags), "seed %llu\n%s",
                      (unsigned long long)seed, kernels);
            if (again.m) cr_expect_str_eq(text_of(&again), kernels);
            hd_arena_free(again.arena);
        }
    } else {
        cr_expect(!hd_diags_failed(&b.diags), "seed %llu: %s", (unsigned long long)seed,
                  errors_of(&b));
    }
    hd_arena_free(b.arena);
}

#ifndef RANDOM_SEEDS
#define RANDOM_SEEDS 120
#endif

Test(passes_random, functions) {
    for (uint64_t seed = 0; seed < RANDOM_SEEDS; seed++)
        run_seed(seed, FUNCTION, 1);
}

Test(passes_random, models) {
    for (uint64_t seed = 0; seed < RANDOM_SEEDS; seed++)
        run_seed(seed, MODEL, 1);
}

/* Divided over 2 to 4 ranks, with rows divided in the longer calls of the check. */
Test(passes_random, functions_on_ranks) {
    for (uint64_t seed = 0; seed < RANDOM_SEEDS; seed++)
        run_seed(seed, FUNCTION, 2 + (int64_t)seed % 3);
}

Test(passes_random, models_on_ranks) {
    for (uint64_t seed = 0; seed < RANDOM_SEEDS; seed++)
        run_seed(seed, MODEL, 2 + (int64_t)seed % 3);
}

/* Random models with a loss, differentiated by these passes. */
static void run_gradients(const hir_pass_id *passes, size_t n, uint64_t every) {
    const hir_run run = {.passes = passes,
                         .n_passes = n,
                         .stop_after = HIR_PASS_COUNT,
                         .verify = true,
                         .check = true,
                         .all = true};
    const hir_compile_options options = {.matrix_dtype = HIR_F32, .chunk = 512};
    for (uint64_t seed = 0; seed < RANDOM_SEEDS; seed += every) {
        bench b = {.arena = hd_arena_new()};
        hd_diags_init(&b.diags, b.arena);
        b.m = grow(b.arena, seed, WITH_LOSS);
        const bool ok = hir_verify(b.m, &b.diags) && hir_add_loss(b.m, &b.diags) &&
                        hir_run_passes(b.m, &run, &options, NULL, &b.diags);
        cr_expect(ok, "seed %llu\n%s%s", (unsigned long long)seed, text_of(&b), errors_of(&b));
        hd_arena_free(b.arena);
    }
}

Test(passes_random, gradients) {
    static const hir_pass_id passes[] = {HIR_PASS_CANONICALISE, HIR_PASS_FOLD_CONSTANTS,
                                         HIR_PASS_CSE,          HIR_PASS_DIFFERENTIATE,
                                         HIR_PASS_CSE,          HIR_PASS_DCE};
    run_gradients(passes, sizeof passes / sizeof *passes, 1);
}

/* By the whole pipeline, with mixes over depth in two phases. */
Test(passes_random, compiled_gradients) {
    size_t n = 0;
    while (hir_gradient_pipeline()[n] != HIR_PASS_COUNT)
        n++;
    run_gradients(hir_gradient_pipeline(), n, 4);
}
