/* absorb-latent: every way of writing latent attention that it takes, and what it leaves, through
 * the whole pipeline with every pass checked against the evaluator. */
#include <criterion/criterion.h>

#include "ir/eval/eval.h"
#include "passes/pass.h"
#include "tests/unit/arena_fixture.h"
#include "tests/unit/passes/latent_models.h"

TestSuite(passes_latent, .init = open_arena, .fini = close_arena);

static hir_remarks remarks;

/* After the passes up to `last`. */
static hir_module *passed(const char *text, hir_dtype cache, hir_pass_id last) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    cr_assert_not_null(m, "%s\n%s", said(), text);
    if (cache != HIR_F32) hir_set_state_dtype(m, HIR_STATE_CACHE, cache);
    const size_t n = hir_pipeline_length();
    const hir_run run = {
        .passes = hir_pipeline(), .n_passes = n, .stop_after = last, .verify = true, .check = true};
    const hir_compile_options options = {
        .bank_dtype = HIR_F32, .phase1_dtype = HIR_F32, .chunk = 512};
    remarks = (hir_remarks){.arena = arena};
    cr_assert(hir_run_passes(m, &run, &options, &remarks, &diags), "%s\n%s", said(), text);
    return m;
}

static int count(const hir_module *m, hir_id first, hir_opcode code) {
    int n = 0;
    HIR_EACH(m, op, first) {
        n += hir_op_at(m, op)->code == code;
        n += count(m, hir_op_at(m, op)->body_first, code);
    }
    return n;
}

static const char *remark(bool taken) {
    for (size_t i = 0; i < remarks.list.n; i++)
        if (!strcmp(remarks.list.at[i].pass, "absorb-latent") && remarks.list.at[i].taken == taken)
            return remarks.list.at[i].text;
    return "";
}

/* Cached rows are shorter than k and v of all heads, and nothing hides the maps. */
static bool is_absorbed(const latent_model *l) {
    const bool shorter = latent_row(l) < latent_kv_heads(l) * (l->nope + l->rope + l->value);
    return shorter && !l->stretched && !l->normed;
}

static void check(const latent_model *l, hir_dtype cache) {
    const hir_module *m = passed(latent_text(arena, l), cache, HIR_PASS_COUNT);
    const bool absorbed = is_absorbed(l);
    cr_assert_eq(count(m, m->first, HIR_ATTENTION_LATENT_OP), absorbed);
    cr_assert_eq(count(m, m->first, HIR_BLOCK_LINEAR_OP), 2 * absorbed);
    cr_assert_eq(count(m, m->first, HIR_ATTENTION_OP), !absorbed);
    const bool both = absorbed && l->nope + l->value < 2 * l->latent;
    cr_assert_eq(count(m, m->first, HIR_ATTENTION_EXPANDED_OP), both);
    cr_assert(*remark(absorbed), "no remark");
    /* rows of the cache are made by nothing but writes of states */
    for (size_t i = 0; i < m->values.n; i++) {
        const hir_value *v = hir_value_at(m, (hir_id)i);
        if (v->op == HIR_NONE || hir_op_at(m, v->op)->erased || !hir_type_has_c(v->type)) continue;
        const hir_opcode code = hir_op_at(m, v->op)->code;
        cr_assert(hir_has_trait(code, HIR_WRITES_STATE | HIR_REGION), "%s", hir_info(code)->name);
    }
}

Test(passes_latent, every_way_of_writing_it) {
    for (int i = 0; i < LATENT_MODELS; i++) {
        check(&latent_models[i], HIR_F32);
        check(&latent_models[i], HIR_BF16);
    }
}

Test(passes_latent, what_is_normed_behind_the_cache_is_kept) {
    latent_model l = latent_models[0];
    l.normed = true;
    check(&l, HIR_F32);
    check(&l, HIR_BF16); /* what is normed is the row as the cache rounds it */
    cr_assert_not_null(strstr(remark(false), "rmsnorm stands between"), "%s", remark(false));
}

static const char tables[] = "hir 1 graph @t\n\nweight @k : f32[12, 6]\nweight @v : f32[8, 6]\n"
                             "weight @b : f32[12]\nweight @o : f32[8, 12]\n"
                             "weight @twice : f32[12, 12]\nstate $c : f32[C, 1, 6]\n"
                             "state $d : f32[C, 1, 6]\nstate $e : f32[C, 2, 3]\n\n"
                             "func(%q: f32[T, 4, 3], %x: f32[T, 1, 6], %y: f32[T, 2, 3]) {\n"
                             "  %c = cache_append %x, $c\n  %d = cache_append %x, $d\n"
                             "  %e = cache_append %y, $e\n  %r = reshape %c {shape = [C, 6]}\n"
                             "  %s = reshape %d {shape = [C, 6]}\n"
                             "  %two = reshape %e {shape = [C, 6]}\n";

typedef struct miss {
    const char *body, *why;
} miss;

/* Near misses: refused with the reason, and compiled all the same. */
Test(passes_latent, near_misses) {
#define ATTEND                                                                                     \
    "  %kh = reshape %k {shape = [C, 4, 3]}\n  %vh = reshape %v {shape = [C, 4, 2]}\n"             \
    "  %a = attention %q, %kh, %vh {scale = 1}\n  output %a {name = \"a\"}\n}\n"
    static const miss misses[] = {
        {"  %k = linear %r, @k, @b\n  %v = linear %r, @v, _\n" ATTEND, "its map has a bias"},
        {"  %k = linear %r, @k, _\n  %v = linear %s, @v, _\n" ATTEND,
         "k and v are maps of different rows"},
        {"  %k = linear %two, @k, _\n  %v = linear %two, @v, _\n" ATTEND,
         "its map takes cached rows of a position together"},
        {"  %k1 = linear %r, @k, _\n  %k = linear %k1, @twice, _\n  %v = linear %r, @v, _\n" ATTEND,
         "it is a map of a map"},
        {"  %k1 = linear %r, @k, _\n  %k = silu %k1\n  %v = linear %r, @v, _\n" ATTEND,
         "silu stands between"},
        {"  %k = linear %r, @k, _\n  %v1 = linear %r, @v, _\n  %v = add %v1, %v1\n" ATTEND,
         "add stands between"},
        {"  %k1 = linear %r, @k, _\n  %k2 = reshape %k1 {shape = [C, 2, 6]}\n"
         "  %k3 = transpose %k2 {perm = [0, 2, 1]}\n  %k = reshape %k3 {shape = [C, 12]}\n"
         "  %v = linear %r, @v, _\n" ATTEND,
         "a reshape mixes its parts"},
        {"  %k1 = linear %r, @k, _\n  %k2 = reshape %k1 {shape = [C, 3, 4]}\n"
         "  %kh = transpose %k2 {perm = [0, 2, 1]}\n  %v = linear %r, @v, _\n"
         "  %vh = reshape %v {shape = [C, 4, 2]}\n"
         "  %a = attention %q, %kh, %vh {scale = 1}\n  output %a {name = \"a\"}\n}\n",
         "rows of its map that make a head do not follow each other"},
        {"  %k1 = linear %r, @k, _\n  %kh = reshape %k1 {shape = [C, 4, 3]}\n"
         "  %v1 = slice %c {axis = 2, start = 0, length = 2}\n"
         "  %vh = broadcast %v1 {shape = [C, 4, 2]}\n"
         "  %a = attention %q, %kh, %vh {scale = 1}\n  output %a {name = \"a\"}\n}\n",
         "v is no map of cached rows"},
        {"  %l = slice %c {axis = 2, start = 1, length = 4}\n  %l2 = reshape %l {shape = [C, 4]}\n"
         "  %k1 = slice @k {axis = 1, start = 0, length = 4}\n  %k0 = linear %l2, %k1, _\n"
         "  %kh = reshape %k0 {shape = [C, 4, 3]}\n"
         "  %a = attention %q, %kh, %kh {scale = 1}\n  output %a {name = \"a\"}\n}\n",
         "its map is no matrix of the checkpoint"},
    };
#undef ATTEND
    for (size_t i = 0; i < sizeof misses / sizeof *misses; i++) {
        const hir_module *m =
            passed(hd_printf(arena, "%s%s", tables, misses[i].body), HIR_F32, HIR_PASS_COUNT);
        cr_assert_eq(count(m, m->first, HIR_ATTENTION_LATENT_OP), 0, "%s", misses[i].body);
        cr_assert_not_null(strstr(remark(false), misses[i].why), "%s\nsaid: %s", misses[i].why,
                           remark(false));
    }
}

/* Heads of a map in an order of their own, a slice of heads, k and v cut out of one map by
 * transposed axes: what counts is where rows of the matrix are. */
Test(passes_latent, cuts_through_transposes_and_slices) {
    static const char *const bodies[] = {
        /* [2, 4, 3]: k first for all heads, then v */
        "weight @w : f32[24, 3]\nstate $c : f32[C, 1, 3]\n"
        "func(%q: f32[T, 4, 3], %x: f32[T, 1, 3]) {\n  %c = cache_append %x, $c\n"
        "  %m = linear %c, @w, _\n  %h = reshape %m {shape = [C, 2, 4, 3]}\n"
        "  %k1 = slice %h {axis = 1, start = 0, length = 1}\n  %k = reshape %k1 {shape = [C, 4, "
        "3]}\n"
        "  %v1 = slice %h {axis = 1, start = 1, length = 1}\n  %v = reshape %v1 {shape = [C, 4, "
        "3]}\n",
        /* [4, 2, 3]: k and v of a head side by side, taken by a transpose */
        "weight @w : f32[24, 3]\nstate $c : f32[C, 1, 3]\n"
        "func(%q: f32[T, 4, 3], %x: f32[T, 1, 3]) {\n  %c = cache_append %x, $c\n"
        "  %m = linear %c, @w, _\n  %h = reshape %m {shape = [C, 4, 2, 3]}\n"
        "  %t = transpose %h {perm = [0, 2, 1, 3]}\n"
        "  %k1 = slice %t {axis = 1, start = 0, length = 1}\n  %k = reshape %k1 {shape = [C, 4, "
        "3]}\n"
        "  %v1 = slice %t {axis = 1, start = 1, length = 1}\n  %v = reshape %v1 {shape = [C, 4, "
        "3]}\n",
        /* every second head of eight */
        "weight @w : f32[24, 3]\nstate $c : f32[C, 1, 3]\n"
        "func(%q: f32[T, 4, 3], %x: f32[T, 1, 3]) {\n  %c = cache_append %x, $c\n"
        "  %m = linear %c, @w, _\n  %h = reshape %m {shape = [C, 4, 2, 3]}\n"
        "  %k1 = slice %h {axis = 2, start = 1, length = 1}\n  %k = reshape %k1 {shape = [C, 4, "
        "3]}\n"
        "  %v = reshape %k1 {shape = [C, 4, 3]}\n",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        const hir_module *m =
            passed(hd_printf(arena,
                             "hir 1 graph @t\n\n%s  %%o = attention %%q, %%k, %%v {scale = 1}\n"
                             "  output %%o {name = \"o\"}\n}\n",
                             bodies[i]),
                   HIR_F32, HIR_PASS_COUNT);
        cr_assert_eq(count(m, m->first, HIR_ATTENTION_LATENT_OP), 1, "%s: %s", bodies[i],
                     remark(false));
    }
}

/* One map for two layers gives one pair of derived matrices. */
Test(passes_latent, layers_that_share_a_map_share_what_is_derived) {
    const hir_module *m =
        passed("hir 1 graph @t\n\nweight @w : f32[24, 3]\nstate $c : f32[C, 1, 3]\n"
               "state $d : f32[C, 1, 3]\n\nfunc(%q: f32[T, 4, 3], %x: f32[T, 1, 3]) {\n"
               "  %c = cache_append %x, $c\n  %m = linear %c, @w, _\n  %h = reshape %m {shape = "
               "[C, 4, 6]}\n"
               "  %k = slice %h {axis = 2, start = 0, length = 3}\n"
               "  %v = slice %h {axis = 2, start = 3, length = 3}\n  %o = attention %q, %k, %v "
               "{scale = 1}\n"
               "  %d = cache_append %x, $d\n  %m2 = linear %d, @w, _\n"
               "  %h2 = reshape %m2 {shape = [C, 4, 6]}\n"
               "  %k2 = slice %h2 {axis = 2, start = 0, length = 3}\n"
               "  %v2 = slice %h2 {axis = 2, start = 3, length = 3}\n"
               "  %o2 = attention %o, %k2, %v2 {scale = 1}\n  output %o2 {name = \"o\"}\n}\n",
               HIR_F32, HIR_PASS_COUNT);
    size_t derived = 0;
    for (size_t i = 0; i < m->weights.n; i++)
        derived += hir_is_derived(&m->weights.at[i]);
    cr_assert_eq(derived, 2);
    cr_assert_eq(count(m, m->first, HIR_ATTENTION_LATENT_OP), 2);
}

/* ---- chosen positions ------------------------------------------------------------------------ */
static hir_id find(const hir_module *m, hir_id first, hir_opcode code) {
    HIR_EACH(m, op, first) {
        if (hir_op_at(m, op)->code == code) return op;
        const hir_id in = find(m, hir_op_at(m, op)->body_first, code);
        if (in != HIR_NONE) return in;
    }
    return HIR_NONE;
}

/* Latent attention over the positions of a list that two layers share. */
static const char *chosen(const char *rate, const char *options) {
    return hd_printf(
        arena,
        "hir 1 graph @t\n\nweight @kv : f32[20, 6]\nstate $c : f32[C, 1, 8]\n"
        "state $d : f32[C, 1, 8]\nstate $i : f32[C%s, 1, 2]\n\nfunc(%%q: f32[T, 4, 5], "
        "%%x: f32[T, 1, 8], %%iq: f32[T, 2, 2], %%ik: f32[T, 1, 2]) {\n"
        "  %%i = cache_append %%ik, $i\n  %%list = select %%iq, %%i, _ {k = 2%s}\n"
        "  %%c = cache_append %%x, $c\n  %%c0 = slice %%c {axis = 2, start = 0, length = 6}\n"
        "  %%p0 = slice %%c {axis = 2, start = 6, length = 2}\n"
        "  %%c1 = reshape %%c0 {shape = [C, 6]}\n  %%m = linear %%c1, @kv, _\n"
        "  %%h = reshape %%m {shape = [C, 4, 5]}\n"
        "  %%kn = slice %%h {axis = 2, start = 0, length = 3}\n"
        "  %%kp = broadcast %%p0 {shape = [C, 4, 2]}\n  %%k = concat %%kn, %%kp {axis = 2}\n"
        "  %%v = slice %%h {axis = 2, start = 3, length = 2}\n"
        "  %%o = attention_selected %%q, %%k, %%v, %%list, _, _ {scale = 0.4}\n"
        "  %%d = cache_append %%x, $d\n  %%d0 = slice %%d {axis = 2, start = 0, length = 6}\n"
        "  %%e0 = slice %%d {axis = 2, start = 6, length = 2}\n"
        "  %%d1 = reshape %%d0 {shape = [C, 6]}\n  %%m2 = linear %%d1, @kv, _\n"
        "  %%h2 = reshape %%m2 {shape = [C, 4, 5]}\n"
        "  %%kn2 = slice %%h2 {axis = 2, start = 0, length = 3}\n"
        "  %%kp2 = broadcast %%e0 {shape = [C, 4, 2]}\n  %%k2 = concat %%kn2, %%kp2 {axis = 2}\n"
        "  %%v2 = slice %%h2 {axis = 2, start = 3, length = 2}\n"
        "  %%o2 = attention_selected %%q, %%k2, %%v2, %%list, _, _ {scale = 0.4}\n"
        "  %%y = add %%o, %%o2\n  output %%y {name = \"o\"}\n}\n",
        rate, options);
}

typedef struct choice {
    const char *rate, *options;
    int64_t most; /* positions up to which all are chosen; 0: never known */
} choice;

/* While all positions are chosen it is latent attention, whose second form is made, too; `passed`
 * compares calls that end with 5, 6 and 9 positions, some of them within `most`. */
Test(passes_latent, chosen_positions_have_the_second_form_while_all_are_chosen) {
    static const choice choices[] = {
        {"", "", 2},
        {"/3", ", of = \"positions\"", 8},
        {"/2", ", of = \"positions\"", 5},
        {"/3", "", 0}, /* rows, which are no positions */
        {"", ", window = 2", 0},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const choice *c = &choices[i];
        const hir_module *m = passed(chosen(c->rate, c->options), HIR_F32, HIR_PASS_COUNT);
        cr_assert_eq(count(m, m->first, HIR_ATTENTION_SELECTED_OP), 2);
        cr_assert_eq(count(m, m->first, HIR_ATTENTION_EXPANDED_OP), c->most ? 2 : 0);
        if (!c->most) continue;
        const hir_id by = find(m, m->first, HIR_ATTENTION_EXPANDED_OP);
        cr_assert_eq(hir_attr_int(hir_op_at(m, by), HIR_A_MOST, 0), c->most);
        cr_assert_eq(hir_forms_of(m, by).most, c->most);
        const hd_latent_costs f = hir_forms_of(m, by);
        cr_assert(!hd_expanded_is_cheaper(&f, c->most + 1, c->most + 1));
    }
}
