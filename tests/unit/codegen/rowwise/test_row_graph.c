/* Row algebra: index maps of reshapes (codegen/rowwise/graph/index.c), and the line that the sizes
 * of two row programs lie on (codegen/program/row_family.c). */
#include <criterion/criterion.h>

#include "codegen/program/row_family.h"
#include "codegen/rowwise/graph/index.h"
#include "tests/unit/arena_fixture.h"

TestSuite(row_graph, .init = open_arena, .fini = close_arena);

static row_shape shape_of(uint32_t rank, const int64_t *dims) {
    row_shape s = {.rank = rank};
    for (uint32_t d = 0; d < rank; d++)
        s.dim[d] = row_int(dims[d]);
    return s;
}

#define SHAPE(...)                                                                                 \
    shape_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* constant + first * dim 0 + second * dim 1 */
static row_index map_of(int64_t constant, int64_t first, int64_t second) {
    return (row_index){.constant = row_int(constant), .by = {row_int(first), row_int(second)}};
}

/* Index `number` of shape `s` as its dims. */
static void unravel(const row_shape *s, int64_t number, int64_t *at) {
    for (uint32_t d = s->rank; d-- > 0; number /= s->dim[d].a)
        at[d] = number % s->dim[d].a;
}

static int64_t value_at(const row_index *f, const row_shape *s, const int64_t *at) {
    int64_t sum = f->constant.a;
    for (uint32_t d = 0; d < s->rank; d++)
        sum += f->by[d].a * at[d];
    return sum;
}

/* ---- a reshape of a view: old dims over new dims --------------------------------------------- */

/* A reshape moves no element: element number i of the new shape is number i of the old one. */
static void expect_split(row_shape old, row_shape new) {
    row_index map[ROW_VARS] = {0};
    cr_assert(row_split(&old, &new, map));
    for (int64_t i = 0; i < row_elements(&new).a; i++) {
        int64_t at[HIR_MAX_RANK], before[HIR_MAX_RANK];
        unravel(&new, i, at);
        unravel(&old, i, before);
        for (uint32_t d = 0; d < old.rank; d++)
            cr_expect_eq(value_at(&map[d], &new, at), before[d], "element %lld, dim %u",
                         (long long)i, d);
    }
}

Test(row_graph, dims_that_are_cut_are_sums_of_the_new_ones) {
    expect_split(SHAPE(12), SHAPE(3, 4));
    expect_split(SHAPE(24), SHAPE(2, 3, 4));
    expect_split(SHAPE(5, 12), SHAPE(5, 3, 4));
    expect_split(SHAPE(6, 35), SHAPE(2, 3, 5, 7));
    expect_split(SHAPE(3, 4), SHAPE(3, 4));
}

/* The index in [3, 4] of element i of [12] is i / 4 and i % 4: no affine map. */
Test(row_graph, dims_that_are_joined_would_be_quotients) {
    row_index map[ROW_VARS] = {0};
    const row_shape old = SHAPE(3, 4), joined = SHAPE(12), other = SHAPE(4, 3);
    const row_shape three = SHAPE(2, 3, 4), two = SHAPE(2, 12);
    cr_expect_not(row_split(&old, &joined, map));
    cr_expect_not(row_split(&old, &other, map));
    cr_expect_not(row_split(&three, &two, map));
}

/* ---- a reshape of memory: element numbers over new dims -------------------------------------- */

static void expect_reshape(row_index f, row_shape old, row_shape new) {
    row_index out;
    cr_assert(row_reshape(&f, &old, &new, &out));
    for (int64_t i = 0; i < row_elements(&new).a; i++) {
        int64_t at[HIR_MAX_RANK], before[HIR_MAX_RANK];
        unravel(&new, i, at);
        unravel(&old, i, before);
        cr_expect_eq(value_at(&out, &new, at), value_at(&f, &old, before), "element %lld",
                     (long long)i);
    }
}

Test(row_graph, elements_in_order_have_any_shape) {
    const row_shape shapes[] = {SHAPE(24), SHAPE(4, 6), SHAPE(2, 3, 4), SHAPE(3, 8)};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++)
            expect_reshape(row_major(&shapes[i]), shapes[i], shapes[j]);
}

/* The second half of each row of [4, 16]: rows can be counted otherwise, elements of a row too. */
Test(row_graph, parts_of_rows_keep_their_rows) {
    const row_index half = map_of(8, 16, 1);
    const row_shape old = SHAPE(4, 8), joined = SHAPE(32);
    row_index out;
    expect_reshape(half, SHAPE(4, 8), SHAPE(2, 2, 8));
    expect_reshape(half, SHAPE(4, 8), SHAPE(4, 2, 4));
    cr_expect_not(row_reshape(&half, &old, &joined, &out), "rows are apart");
}

/* A transposed matrix has its elements in another order. */
Test(row_graph, columns_are_no_rows) {
    const row_index transposed = map_of(0, 1, 4);
    const row_shape old = SHAPE(4, 6), joined = SHAPE(24);
    row_index out;
    cr_expect_not(row_reshape(&transposed, &old, &joined, &out));
    expect_reshape(transposed, SHAPE(4, 6), SHAPE(2, 2, 6));
}

/* f(g): the map of a view of a view. */
Test(row_graph, maps_compose) {
    const row_index f = map_of(3, 10, 1);
    const row_index g[ROW_VARS] = {map_of(2, 1, 0), map_of(0, 0, 5)};
    const row_index expected = map_of(23, 10, 5), is = row_substitute(&f, g);
    cr_expect(row_index_equal(&is, &expected));
}

/* ---- sizes a + b N --------------------------------------------------------------------------- */

static row_size affine(int64_t a, int64_t b) {
    return (row_size){.a = a, .b = b};
}

/* Strides of [2, 1 + N, 8] depend on N where dims behind do; splitting them is
 * the same algebra. */
Test(row_graph, sizes_may_depend_on_n) {
    const row_shape s = {.rank = 3, .dim = {row_int(2), affine(1, 1), row_int(8)}};
    const row_shape joined = {.rank = 2, .dim = {row_int(2), affine(8, 8)}};
    const row_index at = row_major(&s), two = row_major(&joined);
    row_index out, map[ROW_VARS] = {0};
    cr_expect(row_size_equal(row_elements(&s), affine(16, 16)));
    cr_expect(row_size_equal(at.by[0], affine(8, 8)));
    cr_expect(row_size_is(at.by[1], 8));
    cr_assert(row_reshape(&at, &s, &joined, &out));
    cr_expect(row_index_equal(&out, &two));
    cr_expect(row_split(&joined, &s, map));
    cr_expect_not(row_split(&s, &joined, map));
}

Test(row_graph, n_is_larger_than_any_number) {
    cr_expect(row_size_less(row_int(1 << 30), affine(-5, 1)));
    cr_expect(row_size_less(affine(100, 1), affine(0, 2)));
    cr_expect_not(row_size_less(affine(3, 1), affine(3, 1)));
    cr_expect(row_bound(affine(0, 1)) > INT32_MAX);
}

Test(row_graph, multiples_are_multiples_whatever_n_is) {
    cr_expect(row_size_divisible(affine(16, 32), row_int(16)));
    cr_expect_not(row_size_divisible(affine(16, 8), row_int(16)));
    cr_expect(row_size_divisible(affine(6, 4), affine(3, 2)));
    cr_expect_not(row_size_divisible(affine(6, 4), affine(2, 2)));
    cr_expect(row_size_divisible(row_int(0), affine(1, 1)));
    cr_expect_not(row_size_divisible(row_int(8), row_int(0)));
}

/* N times N is no a + b N: it is marked, and refused when code is made of it.
 */
Test(row_graph, products_of_two_dynamic_sizes_are_marked) {
    const row_size square = row_size_mul(affine(0, 1), affine(2, 1));
    cr_expect(square.not_affine);
    cr_expect(row_size_add(row_int(1), square).not_affine);
    cr_expect(row_size_scale(square, 0).not_affine);
    cr_expect_not(row_size_mul(affine(0, 1), row_int(3)).not_affine);
}

static hcg_row_form form_of(size_t n, const int64_t *numbers) {
    hcg_row_form x = {0};
    const hcg_row_place places[] = {{.ref = hir_value_ref(0), .op = HIR_NONE, .first = 0}};
    for (size_t i = 0; i < n; i++) {
        hcg_row_place place = places[0];
        place.first = i; /* a value of one dim each */
        hd_push(arena, &x.numbers, numbers[i]);
        hd_push(arena, &x.places, place);
    }
    return x;
}

#define FORM(...)                                                                                  \
    form_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* n, n + 1, 4 n and a width: two forms give the line, others lie on it or not. */
Test(row_graph, two_forms_give_a_line) {
    const hcg_row_form x = FORM(3, 4, 12, 64), y = FORM(5, 6, 20, 64);
    hcg_row_model model;
    cr_assert(hcg_find_row_model(arena, &x, &y, &model));
    const int64_t a[] = {0, 1, 0, 64}, b[] = {1, 1, 4, 0};
    for (size_t i = 0; i < 4; i++)
        cr_expect(model.b[i] == b[i] && model.a[i] + model.b[i] * 3 == x.numbers.at[i] &&
                      model.a[i] == a[i] + (model.n == 1 ? -b[i] : 0),
                  "size %zu is %lld + %lld N", i, (long long)model.a[i], (long long)model.b[i]);
    const hcg_row_form on = FORM(9, 10, 36, 64), off = FORM(9, 10, 37, 64);
    const hcg_row_form wide = FORM(9, 10, 36, 128);
    cr_expect(hcg_fits_row_model(&model, &on));
    cr_expect_not(hcg_fits_row_model(&model, &off));
    cr_expect_not(hcg_fits_row_model(&model, &wide));
}

/* Rows leave out dims of 1, so a size that depends on N is 2 at least; rows wider than a mix has
 * sources are widths. */
Test(row_graph, sizes_out_of_range_have_no_line) {
    hcg_row_model model;
    const hcg_row_form one = FORM(1, 64), two = FORM(2, 64), three = FORM(3, 64);
    const hcg_row_form wide = FORM(5000, 64), other = FORM(3, 64, 7);
    cr_expect(hcg_find_row_model(arena, &two, &three, &model));
    cr_expect_not(hcg_find_row_model(arena, &one, &two, &model));
    cr_expect_not(hcg_find_row_model(arena, &two, &wide, &model));
    cr_expect_not(hcg_find_row_model(arena, &two, &two, &model), "nothing differs");
    cr_expect_not(hcg_find_row_model(arena, &two, &other, &model), "another body");
}
