/* Derived weights: what the checkpoint must hold, and what the evaluator computes from it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "ir/eval/eval.h"

static const char text[] = "hir 1 graph @made\n"
                           "weight @a : f32[1, 4]\n"
                           "weight @b : f32[4]\n"
                           "weight @s : f32[1]\n"
                           "weight @ab : f32[4] = @a * @b\n"
                           "weight @rows : f32[2, 4] = @a * @b * @s, @b\n"
                           "weight @more : f32[4, 4] = @b, @m * @b * @s\n"
                           "weight @m : f32[3, 4]\n"
                           "weight @soft : f32[4] = softmax(@b)\n"
                           "weight @cut : f32[2, 2] = softmax(@b)[1:3] * @s, sigmoid(@a)[2:4]\n"
                           "weight @pieces : f32[4] = softmax(@b)[3:4], @a[0:2], @s * @s\n"
                           "func(%x: f32[T, 4]) {\n"
                           "  %0 = mul %x, @ab : f32[T, 4]\n"
                           "  %1 = reshape @rows {shape = [2, 4]} : f32[2, 4]\n"
                           "  output %0 {name = \"y\"}\n"
                           "  output %1 {name = \"rows\"}\n"
                           "  %2 = reshape @more {shape = [4, 4]} : f32[4, 4]\n"
                           "  output %2 {name = \"more\"}\n"
                           "  %3 = reshape @soft {shape = [4]} : f32[4]\n"
                           "  output %3 {name = \"soft\"}\n"
                           "  %4 = reshape @cut {shape = [4]} : f32[4]\n"
                           "  output %4 {name = \"cut\"}\n"
                           "  %5 = reshape @pieces {shape = [4]} : f32[4]\n"
                           "  output %5 {name = \"pieces\"}\n"
                           "}\n";

static hd_arena *arena;
static hd_diags diags;

static hir_module *parsed(void) {
    arena = hd_arena_new();
    hd_diags_init(&diags, arena);
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    cr_assert_not_null(m);
    return m;
}

static const char *temporary(void) {
    char *path = hd_strdup(arena, "/tmp/hadal-made-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    FILE *f = fdopen(fd, "w");
    cr_assert_not_null(f);
    fclose(f);
    return path;
}

/* As many bits as f32 has, so that nothing is rounded on the way. */
static void put(hd_tensor *t, const char *name, uint32_t rank, int64_t n, const float *at) {
    *t = (hd_tensor){.name = name, .dtype = HD_T_F32, .rank = rank, .data = (const uint8_t *)at};
    t->shape[0] = rank == 2 ? n / 4 : n;
    if (rank == 2) t->shape[1] = 4;
    cr_assert(hd_tensor_measure(t));
}

static const float a[] = {1, 2, 3, 4}, b[] = {0.5f, -1, 2, 0.25f}, s[] = {3};
static const float matrix[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static hd_tensors checkpoint(const char *extra) {
    hd_tensor list[5];
    hd_tensors t;
    const char *path = temporary();
    put(&list[0], "a", 2, 4, a);
    put(&list[1], "b", 1, 4, b);
    put(&list[2], "s", 1, 1, s);
    put(&list[3], "m", 2, 12, matrix);
    if (extra) put(&list[4], extra, 1, 4, b);
    cr_assert(hd_safetensors_write(arena, &diags, path, list, extra ? 5 : 4));
    cr_assert(hd_safetensors_open(arena, &diags, path, &t));
    remove(path);
    return t;
}

Test(derived_weights, the_checkpoint_holds_what_they_are_made_of) {
    hir_module *m = parsed();
    hd_tensors t = checkpoint(NULL);
    cr_assert(hcg_check_weights(m, &diags, &t));
    t = checkpoint("ab");
    cr_assert_not(hcg_check_weights(m, &diags, &t),
                  "a tensor named like a derived weight is no weight");
    hd_arena_free(arena);
}

Test(derived_weights, products_row_after_row) {
    hir_module *m = parsed();
    hd_tensors t = checkpoint(NULL);
    hir_eval *e = hir_eval_new(arena, m, hcg_weight_source, &t);
    double x[] = {1, 1, 1, 1};
    const double *inputs[] = {x};
    hir_results y;
    cr_assert(hir_eval_call(e, arena, &diags, 1, inputs, &y, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(y.outputs.at[0].at[i], a[i] * b[i]);
        cr_assert_eq(y.outputs.at[1].at[i], 3 * a[i] * b[i]);
        cr_assert_eq(y.outputs.at[1].at[4 + i], b[i]);
        cr_assert_eq(y.outputs.at[2].at[i], b[i]);
    }
    for (int i = 0; i < 12; i++)
        cr_assert_eq(y.outputs.at[2].at[4 + i], 3 * matrix[i] * b[i % 4]);
    hd_arena_free(arena);
}

/* In the precision of the evaluator: what the packer rounds, golden tests and those of depth passes
 * hold against it. */
Test(derived_weights, functions_of_weights_and_elements_of_them) {
    hir_module *m = parsed();
    hd_tensors t = checkpoint(NULL);
    hir_eval *e = hir_eval_new(arena, m, hcg_weight_source, &t);
    double x[] = {1, 1, 1, 1}, soft[4], sum = 0;
    const double *inputs[] = {x};
    hir_results y;
    cr_assert(hir_eval_call(e, arena, &diags, 1, inputs, &y, NULL, NULL));
    for (int i = 0; i < 4; i++)
        sum += soft[i] = exp(b[i]);
    const double cut[] = {3 * soft[1] / sum, 3 * soft[2] / sum, 1 / (1 + exp(-a[2])),
                          1 / (1 + exp(-a[3]))};
    const double pieces[] = {soft[3] / sum, a[0], a[1], 9};
    for (int i = 0; i < 4; i++) {
        cr_assert_float_eq(y.outputs.at[3].at[i], soft[i] / sum, 1e-15);
        cr_assert_float_eq(y.outputs.at[4].at[i], cut[i], 1e-15);
        cr_assert_float_eq(y.outputs.at[5].at[i], pieces[i], 1e-15);
    }
    hd_arena_free(arena);
}

Test(derived_weights, a_random_checkpoint_has_none) {
    hir_module *m = parsed();
    const char *path = temporary();
    hd_tensors t;
    cr_assert(hcg_init_weights(m, &diags, 1, false, HD_T_F32, path));
    cr_assert(hd_safetensors_open(arena, &diags, path, &t));
    remove(path);
    cr_assert_eq(t.list.n, 4);
    cr_assert(hcg_check_weights(m, &diags, &t));
    hd_arena_free(arena);
}

Test(derived_weights, a_copy_of_the_module_has_its_own) {
    hir_module *m = parsed();
    hd_arena *other = hd_arena_new();
    hir_module *c = hir_module_clone(m, other);
    hd_arena_free(arena);
    const hir_weight *w = &c->weights.at[hir_find_weight(c, "rows")];
    cr_assert(hir_is_derived(w));
    cr_assert_str_eq(w->rows[0].factor[2].name, "s");
    cr_assert_str_eq(w->rows[1].factor[0].name, "b");
    hd_arena_free(other);
}
