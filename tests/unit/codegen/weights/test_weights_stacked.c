/* Matrices of experts in a checkpoint: one tensor for all, or one for each with its number in the
 * name. Both are packed to the same bytes, and read as the same numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "codegen/program/program.h"

#define FOLDER "/tmp/hadal-stacked-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(weights_stacked, .init = open_folder, .fini = close_folder);

enum { EXPERTS = 12, N = 19, K = 70 };

static void add_tensor(hd_tensors *t, const char *name, uint32_t rank, const int64_t *shape,
                       int64_t from) {
    hd_tensor x = {.name = name, .dtype = HD_T_F32, .rank = rank, .file = "x.safetensors"};
    memcpy(x.shape, shape, rank * sizeof *shape);
    cr_assert(hd_tensor_measure(&x));
    float *data = hd_new_array(arena, float, x.elements);
    for (uint64_t i = 0; i < x.elements; i++)
        data[i] = (float)((int)(((uint64_t)from + i) * 37 % 255) - 127) / 16;
    x.data = (const uint8_t *)data;
    size_t to = t->list.n;
    hd_push(arena, &t->list, x);
    for (; to > 0 && strcmp(t->list.at[to - 1].name, name) > 0; to--)
        t->list.at[to] = t->list.at[to - 1];
    t->list.at[to] = x;
}

static hir_module *module_with(const char *name, bool stacked, hir_dtype dtype, hir_layout layout) {
    hir_module *m = hir_module_new(arena, "m");
    const int64_t dims[] = {EXPERTS, N, K};
    uint32_t w = hir_add_weight(m, name, hir_make_type(dtype, 3, dims), HD_NOWHERE);
    m->weights.at[w].layout = layout;
    m->weights.at[w].stacked = stacked;
    cr_assert(hir_verify(m, &diags));
    return m;
}

static void add_parts(hd_tensors *t, int64_t from, int64_t to) {
    for (int64_t e = from; e < to; e++)
        add_tensor(t, hd_printf(arena, "experts.%lld.w1.weight", (long long)e), 2,
                   (const int64_t[]){N, K}, e * N * K);
}

/* A program that reads this weight alone. */
static hcg_program *program_of(const hir_module *m, uint32_t weight) {
    hcg_program *p = hd_new(arena, hcg_program);
    p->arena = arena, p->m = m;
    for (uint32_t i = 0; i < m->weights.n; i++)
        hd_push(arena, &p->weight_offsets, i == weight ? 0 : HCG_UNREAD);
    cr_assert(hir_weight_bytes(&m->weights.at[weight], &p->weights_bytes));
    return p;
}

static hd_bytes packed_weight(const hir_module *m, uint32_t weight, const hd_tensors *t,
                              const char *file) {
    hd_bytes bytes;
    cr_assert(hcg_pack(program_of(m, weight), &diags, t, in_folder(file)), "%s",
              diags.list.n ? diags.list.at[0].message : "");
    cr_assert(hd_map_file(arena, &diags, in_folder(file), &bytes));
    return bytes;
}

static hd_bytes packed(const hir_module *m, const hd_tensors *t, const char *file) {
    return packed_weight(m, 0, t, file);
}

static const struct {
    hir_dtype dtype;
    hir_layout layout;
} stores[] = {
    {HIR_F32, HIR_LAYOUT_ROWS},   {HIR_BF16, HIR_LAYOUT_ROWS},   {HIR_F32, HIR_LAYOUT_PANEL},
    {HIR_BF16, HIR_LAYOUT_PANEL}, {HIR_F16, HIR_LAYOUT_PANEL},   {HIR_Q8, HIR_LAYOUT_PANEL},
    {HIR_Q4, HIR_LAYOUT_PANEL},   {HIR_MXFP4, HIR_LAYOUT_PANEL}, {HIR_NVFP4, HIR_LAYOUT_PANEL}};

Test(weights_stacked, both_forms_are_one) {
    hd_tensors parts = {0}, whole = {0};
    add_parts(&parts, 0, EXPERTS);
    add_tensor(&whole, "experts.w1", 3, (const int64_t[]){EXPERTS, N, K}, 0);
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        hir_module *a = module_with("experts.*.w1.weight", true, stores[i].dtype, stores[i].layout);
        hir_module *b = module_with("experts.w1", false, stores[i].dtype, stores[i].layout);
        cr_assert(hcg_check_weights(a, &diags, &parts));
        cr_assert(hcg_check_weights(b, &diags, &whole));
        hd_bytes x = packed(a, &parts, "a.weights"), y = packed(b, &whole, "b.weights");
        cr_assert_eq(x.n, y.n);
        cr_expect_eq(memcmp(x.at + 4096, y.at + 4096, x.n - 4096), 0, "type %zu", i);
        double *p = hd_new_array(arena, double, EXPERTS *N *K),
               *q = hd_new_array(arena, double, EXPERTS *N *K);
        cr_assert(hcg_weight_source(&parts, a, 0, p, &diags));
        cr_assert(hcg_weight_source(&whole, b, 0, q, &diags));
        cr_expect_eq(memcmp(p, q, EXPERTS * N * K * sizeof *p), 0, "type %zu", i);
    }
}

/* A matrix of the stack lies as it would alone. */
Test(weights_stacked, each_matrix_is_packed_as_one_alone) {
    hd_tensors parts = {0};
    add_parts(&parts, 0, EXPERTS);
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        hir_module *all =
            module_with("experts.*.w1.weight", true, stores[i].dtype, stores[i].layout);
        hd_bytes x = packed(all, &parts, "all.weights");
        for (int64_t e = 0; e < EXPERTS; e += 5) {
            hd_tensors one = {0};
            hir_module *m = hir_module_new(arena, "m");
            add_tensor(&one, "w", 2, (const int64_t[]){N, K}, e * N * K);
            hir_add_weight(m, "w", hir_make_type(stores[i].dtype, 2, (const int64_t[]){N, K}),
                           HD_NOWHERE);
            m->weights.at[0].layout = stores[i].layout;
            hd_bytes y = packed(m, &one, "one.weights");
            cr_assert_eq((x.n - 4096) / EXPERTS, y.n - 4096);
            cr_expect_eq(memcmp(x.at + 4096 + (uint64_t)e * (y.n - 4096), y.at + 4096, y.n - 4096),
                         0);
        }
    }
}

/* ---- made of other weights ---- */
/* A module with the weight "w" of a checkpoint that holds [E, N, K], and with one derived from a
 * tensor [E, K, N]. */
static hir_module *made_of_transposed(int64_t e, int64_t n, int64_t k, hir_dtype dtype,
                                      hir_layout layout) {
    hir_module *m = hir_module_new(arena, "m");
    hir_derived_row *rows = hd_new_array(arena, hir_derived_row, (size_t)e);
    hir_add_weight(m, "right", hir_make_type(HIR_F32, 3, (const int64_t[]){e, k, n}), HD_NOWHERE);
    for (int64_t i = 0; i < e; i++) {
        rows[i] = (hir_derived_row){1, hd_new(arena, hir_derived_factor)};
        *rows[i].factor = (hir_derived_factor){
            .name = "right", .by = HIR_DERIVED_TRANSPOSED, .first = i * n * k, .n = n * k};
    }
    hir_add_derived_weight(m, "made", hir_make_type(dtype, 3, (const int64_t[]){e, n, k}), rows,
                           (uint32_t)e, HD_NOWHERE);
    m->weights.at[1].layout = layout;
    cr_assert(hir_verify(m, &diags), "%s", diags.list.n ? diags.list.at[0].message : "");
    return m;
}

static void add_transposed(hd_tensors *t, const hd_tensor *of) {
    const int64_t e = of->shape[0], n = of->shape[1], k = of->shape[2];
    add_tensor(t, "right", 3, (const int64_t[]){e, k, n}, 0);
    const hd_tensor *to = hd_tensors_find(t, "right");
    float *x = (float *)(uintptr_t)to->data;
    for (int64_t i = 0; i < e * n * k; i++)
        x[i / (n * k) * n * k + i % k * n + i / k % n] = (float)hd_tensor_get(of, (uint64_t)i);
}

/* Sizes of which a thread makes several pieces, and the packer several parts. */
Test(weights_stacked, a_transposed_stack_is_packed_as_the_stack) {
    static const int64_t sizes[][3] = {{5, 19, 70}, {2, 1000, 1100}, {3, 40, 1}, {1, 1, 70}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t s = 0; s < sizeof stores / sizeof *stores; s++) {
            const int64_t *size = sizes[i];
            if (size[1] == 1000 && s % 2 == 0) continue; /* large ones: every other type */
            hd_tensors plain = {0}, turned = {0};
            add_tensor(&plain, "w", 3, size, 0);
            add_transposed(&turned, &plain.list.at[0]);
            hir_module *a = hir_module_new(arena, "m");
            hir_module *b =
                made_of_transposed(size[0], size[1], size[2], stores[s].dtype, stores[s].layout);
            hir_add_weight(a, "w", hir_make_type(stores[s].dtype, 3, size), HD_NOWHERE);
            a->weights.at[0].layout = stores[s].layout;
            hd_bytes x = packed(a, &plain, "a.weights"),
                     y = packed_weight(b, 1, &turned, "b.weights");
            cr_assert_eq(x.n, y.n);
            cr_expect_eq(memcmp(x.at + 4096, y.at + 4096, x.n - 4096), 0, "size %zu, type %zu", i,
                         s);
        }
}

/* How long rows are says the weight that is made, not the tensor, which may have another shape. */
Test(weights_stacked, a_reshaped_stack_is_transposed) {
    static const int64_t size[] = {5, 19, 70}, other[] = {175, 38};
    hd_tensors plain = {0}, turned = {0}, flat = {0};
    add_tensor(&plain, "w", 3, size, 0);
    add_transposed(&turned, &plain.list.at[0]);
    add_tensor(&flat, "right", 2, other, 0);
    memcpy((void *)(uintptr_t)flat.list.at[0].data, turned.list.at[0].data,
           (size_t)(other[0] * other[1]) * sizeof(float));
    for (size_t s = 0; s < sizeof stores / sizeof *stores; s += 2) {
        hir_module *m =
            made_of_transposed(size[0], size[1], size[2], stores[s].dtype, stores[s].layout);
        const hd_bytes x = packed_weight(m, 1, &turned, "a.weights");
        m->weights.at[0].type = hir_make_type(HIR_F32, 2, other);
        cr_assert(hir_verify(m, &diags), "%s", diags.list.n ? diags.list.at[0].message : "");
        const hd_bytes y = packed_weight(m, 1, &flat, "b.weights");
        cr_assert_eq(x.n, y.n);
        cr_expect_eq(memcmp(x.at + 4096, y.at + 4096, x.n - 4096), 0, "type %zu", s);
    }
}

/* The place of a number that cannot be stored is that in the whole weight. */
Test(weights_stacked, a_made_number_that_cannot_be_stored_is_found) {
    hd_tensors plain = {0}, turned = {0};
    add_tensor(&plain, "w", 3, (const int64_t[]){2, 1000, 1100}, 0);
    float *w = (float *)(uintptr_t)plain.list.at[0].data;
    w[(1000 + 990) * 1100 + 7] = 1e6f;
    add_transposed(&turned, &plain.list.at[0]);
    hir_module *m = made_of_transposed(2, 1000, 1100, HIR_F16, HIR_LAYOUT_PANEL);
    hcg_program *p = program_of(m, 1);
    cr_expect_not(hcg_pack(p, &diags, &turned, in_folder("x.weights")));
    cr_assert_eq(diags.errors, 1);
    cr_expect(strstr(diags.list.at[0].cause, "1e+06 at [1, 990, 7]"), "%s", diags.list.at[0].cause);
}

/* One in a tensor that it is made of is found there. */
Test(weights_stacked, what_is_not_finite_is_found_where_it_is_made_of) {
    hd_tensors plain = {0}, turned = {0};
    add_tensor(&plain, "w", 3, (const int64_t[]){2, 19, 70}, 0);
    ((float *)(uintptr_t)plain.list.at[0].data)[19 * 70 + 3] = INFINITY;
    add_transposed(&turned, &plain.list.at[0]);
    hcg_program *p = program_of(made_of_transposed(2, 19, 70, HIR_F32, HIR_LAYOUT_ROWS), 1);
    cr_expect_not(hcg_pack(p, &diags, &turned, in_folder("x.weights")));
    cr_expect(strstr(diags.list.at[0].message, "'right' is infinite at [1, 3, 0]"), "%s",
              diags.list.at[0].message);
}

Test(weights_stacked, missing_parts_are_named) {
    hir_module *m = module_with("experts.*.w1.weight", true, HIR_F32, HIR_LAYOUT_ROWS);
    hd_tensors t = {0};
    add_parts(&t, 3, 4);
    cr_expect_not(hcg_check_weights(m, &diags, &t));
    cr_assert_eq(diags.errors, 1, "one message for all");
    const hd_diag *g = &diags.list.at[0];
    cr_expect(strstr(g->message, "11 of the 12 tensors of weight 'experts.*.w1.weight'"), "%s",
              g->message);
    cr_assert_not_null(g->cause);
    cr_expect(strstr(g->cause, "missing are experts.0.w1.weight, experts.1.w1.weight"), "%s",
              g->cause);
    cr_expect(strstr(g->cause, "experts.10.w1.weight and 1 more"), "%s", g->cause);
    double *out = hd_new_array(arena, double, EXPERTS *N *K);
    cr_expect_not(hcg_weight_source(&t, m, 0, out, &diags));
}

Test(weights_stacked, parts_of_other_shapes_and_numbers_are_rejected) {
    hir_module *m = module_with("experts.*.w1.weight", true, HIR_F32, HIR_LAYOUT_ROWS);
    hd_tensors t = {0};
    add_parts(&t, 0, EXPERTS + 1); /* one too many */
    t.list.at[0].shape[0] = K, t.list.at[0].shape[1] = N;
    cr_expect_not(hcg_check_weights(m, &diags, &t));
    cr_assert_eq(diags.errors, 2);
    cr_expect(strstr(diags.list.at[0].message,
                     "'experts.0.w1.weight' is F32 [70, 19] in the checkpoint, [19, 70] in the"));
    cr_expect(strstr(diags.list.at[1].message, "experts.12.w1.weight"), "%s",
              diags.list.at[1].message);
}

Test(weights_stacked, a_number_that_cannot_be_stored_is_found_in_its_part) {
    hir_module *m = module_with("experts.*.w1.weight", true, HIR_F16, HIR_LAYOUT_PANEL);
    hd_tensors t = {0};
    const float large = 1e6f;
    add_parts(&t, 0, EXPERTS);
    hd_tensor *part = (hd_tensor *)(uintptr_t)hd_tensors_find(&t, "experts.7.w1.weight");
    memcpy((uint8_t *)(uintptr_t)part->data + 4 * (3 * K + 5), &large, 4);
    cr_expect_not(hcg_pack(program_of(m, 0), &diags, &t, in_folder("x.weights")));
    cr_assert_eq(diags.errors, 1);
    cr_expect(strstr(diags.list.at[0].cause, "1e+06 at [3, 5]"), "%s", diags.list.at[0].cause);
}

Test(weights_stacked, names_and_types_are_verified) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"weight @experts.w : f32[2, 3, 4] stacked", "its name has one `*`"},
        {"weight @\"e.*.*.w\" : f32[2, 3, 4] stacked", "its name has one `*`"},
        {"weight @\"e.*.w\" : f32[2] stacked", "its type two dims or more"},
        {"weight @a : f32[2, 4]\nweight @\"e.*\" : f32[2, 4] stacked = @a", "it is not derived"},
        {"weight @\"e.*\" : f32[2, 4] stacked\nweight @d : f32[2, 4] = @\"e.*\"", "is stacked"},
        {"weight @\"e\" : f32[2, 3, 4] narrow", "narrow ones are f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        const char *text = hd_printf(
            arena, "hir 1 graph @m\n%s\nfunc(%%x: f32[T]) {\n  output %%x {name = \"y\"}\n}\n",
            cases[i].text);
        cr_expect_null(hir_parse(arena, &diags, "t.hir", text));
        cr_assert_gt(diags.list.n, 0);
        cr_expect(strstr(diags.list.at[0].message, cases[i].says), "%zu: %s", i,
                  diags.list.at[0].message);
    }
}
