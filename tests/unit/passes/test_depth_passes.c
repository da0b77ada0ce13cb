/* The depth passes on attention over depth in every way it can be written: all mixes are found,
 * none is left, and the answer stays the same to 1e-9 after each pass. */
#include <criterion/criterion.h>

#include "ir/eval/random.h"
#include "tests/unit/passes/depth_models.h"

static const depth_style plain = {.norm = NORM_GAIN, .d = 12, .sublayers = 9, .block = 3};

static const hir_pass_id depth_passes[] = {
    HIR_PASS_CSE,         HIR_PASS_RECOGNISE_DEPTH, HIR_PASS_FORM_BLOCKS, HIR_PASS_BATCH_QUERIES,
    HIR_PASS_SPLIT_MERGE, HIR_PASS_FOLD_WEIGHTS,    HIR_PASS_DCE};

static size_t count(const hir_module *m, hir_opcode code) {
    size_t n = 0;
    HIR_EACH(m, op, m->first) n += hir_op_at(m, op)->code == code;
    return n;
}

static size_t count_attr(const hir_module *m, hir_attr_id id) {
    size_t n = 0;
    HIR_EACH(m, op, m->first) n += hir_find_attr(hir_op_at(m, op), id) != NULL;
    return n;
}

static bool has_remark(const bench *b, bool taken, const char *text) {
    for (size_t i = 0; i < b->remarks.list.n; i++)
        if (b->remarks.list.at[i].taken == taken && strstr(b->remarks.list.at[i].text, text))
            return true;
    return false;
}

static const char *style_text(hd_arena *a, const depth_style *s) {
    return hd_printf(a,
                     "{.sigmoid = %d, .gain_in_query = %d, .dot_written = %d, .one_by_one = %d, "
                     ".softmax_written = %d, .weights_first = %d, .norm = %d, .sum = %d, .bias = "
                     "%d, .query = %d, .scale = %g, .scale_before = %d, .heads = %d, .d = %d, "
                     ".sublayers = %d, .block = %d, .window = %d, .show = %d, .varied = %d}",
                     s->sigmoid, s->gain_in_query, s->dot_written, s->one_by_one,
                     s->softmax_written, s->weights_first, s->norm, s->sum, s->bias, s->query,
                     s->scale, s->scale_before, s->heads, s->d, s->sublayers, s->block, s->window,
                     s->show, s->varied);
}

static bench built(depth_style s, int *mixes) {
    bench b = {.arena = hd_arena_new()};
    hd_diags_init(&b.diags, b.arena);
    b.remarks.arena = b.arena;
    depth_writer w = depth_model(b.arena, &b.diags, s);
    b.m = w.m;
    *mixes = w.mixes;
    cr_assert(hir_verify(b.m, &b.diags), "%s\n%s", style_text(b.arena, &s), errors_of(&b));
    return b;
}

/* Takes all mixes, leaves none, keeps the answer; the whole pipeline too. */
static bench taken(depth_style s, bool all_passes) {
    int mixes;
    bench b = built(s, &mixes);
    const char *text = style_text(b.arena, &s);
    cr_assert(run_list(&b, depth_passes, 2, true, NULL), "%s\n%s", text, errors_of(&b));
    cr_assert_eq(count(b.m, HIR_DEPTH_ATTEND_OP), (size_t)mixes, "%s: %zu of %d mixes found: %s",
                 text, count(b.m, HIR_DEPTH_ATTEND_OP), mixes,
                 b.remarks.list.n ? b.remarks.list.at[0].text : "no remark");
    cr_assert(run_list(&b, depth_passes + 2, 5, true, NULL), "%s\n%s", text, errors_of(&b));
    cr_assert_eq(count(b.m, HIR_DEPTH_ATTEND_OP), 0);
    static const hir_pass_id rest[] = {HIR_PASS_SPLIT_SMALL, HIR_PASS_FUSE,
                                       HIR_PASS_EXPAND,      HIR_PASS_LAYOUT,
                                       HIR_PASS_SCHEDULE,    HIR_PASS_PLAN_MEMORY};
    if (all_passes) cr_assert(run_list(&b, rest, 6, true, NULL), "%s\n%s", text, errors_of(&b));
    return b;
}

static void take(depth_style s) {
    bench b = taken(s, true);
    hd_arena_free(b.arena);
}

/* ---- how it is written ----------------------------------------------------------------------- */
Test(depth_passes, every_norm_and_every_sum) {
    for (int norm = 0; norm < NORM_KINDS; norm++)
        for (int sum = 0; sum < SUM_KINDS; sum++) {
            depth_style s = plain;
            s.norm = (depth_norm)norm;
            s.sum = (depth_sum)sum;
            take(s);
        }
}

Test(depth_passes, sources_one_by_one) {
    for (int norm = 0; norm < NORM_KINDS; norm++) {
        depth_style s = plain;
        s.norm = (depth_norm)norm;
        s.one_by_one = true;
        s.dot_written = norm & 1;
        s.sum = SUM_BALANCED;
        take(s);
    }
}

Test(depth_passes, biases_and_scales) {
    for (int bias = 0; bias < BIAS_KINDS; bias++)
        for (int k = 0; k < 3; k++) {
            depth_style s = plain;
            s.bias = (depth_bias)bias;
            s.scale = k ? 0.37 : 0;
            s.scale_before = k == 2;
            take(s);
        }
}

Test(depth_passes, heads) {
    for (int heads = 2; heads <= 6; heads++) {
        depth_style s = plain;
        s.heads = heads;
        s.d = 60;
        s.bias = heads & 1 ? BIAS_VECTOR : BIAS_NONE;
        s.sum = heads == 3 ? SUM_LEFT : SUM_REDUCE;
        take(s);
        s.sigmoid = true;
        take(s);
    }
}

Test(depth_passes, sigmoid_and_softmax_written_out) {
    depth_style s = plain;
    s.softmax_written = true;
    take(s);
    s.sigmoid = true;
    take(s);
    s.one_by_one = true;
    s.bias = BIAS_VECTOR;
    take(s);
}

Test(depth_passes, static_logits) {
    depth_style s = plain;
    s.query = QUERY_NONE;
    take(s);
    s.sum = SUM_LEFT;
    s.block = 1;
    take(s);
    s.sigmoid = true;
    take(s);
}

Test(depth_passes, any_combination) {
    hir_random r = hir_random_stream(3, "styles");
    for (int i = 0; i < 400; i++) {
        depth_style s = depth_random_style(&r, 12);
        s.show = hir_random_below(&r, 3) == 0;
        if (s.block == 1 && hir_random_below(&r, 2)) s.window = 2 + (int)hir_random_below(&r, 3);
        bench b = taken(s, i % 8 == 0);
        hd_arena_free(b.arena);
    }
}

/* Weights that are looked at come from the two phases, not from scores made beside them. */
Test(depth_passes, weights_are_shown_as_the_mix_has_them) {
    for (int i = 0; i < 8; i++) {
        depth_style s = plain;
        s.show = true;
        s.sigmoid = i & 1;
        s.heads = i & 2 ? 3 : 1;
        s.window = i & 4 ? 4 : 0;
        s.block = i & 4 ? 1 : 3;
        s.bias = i == 5 || i == 6 ? BIAS_VECTOR : BIAS_NONE;
        int mixes;
        bench b = built(s, &mixes);
        cr_assert(run_list(&b, depth_passes, 2, true, NULL), "%s", errors_of(&b));
        cr_assert_eq(count(b.m, HIR_DEPTH_WEIGHTS_OP), (size_t)mixes);
        cr_assert(run_list(&b, depth_passes + 2, 5, true, NULL), "%s", errors_of(&b));
        cr_assert_eq(count(b.m, HIR_DEPTH_WEIGHTS_OP), 0);
        cr_assert_eq(count(b.m, HIR_RMSNORM_OP), (size_t)s.sublayers, "keys are normed beside");
        hd_arena_free(b.arena);
        take(s);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */
Test(depth_passes, blocks_of_every_size) {
    static const int sizes[][3] = {{12, 4, 0}, {12, 1, 0}, {12, 2, 0},  {11, 4, 0},
                                   {13, 3, 0}, {5, 8, 0},  {24, 24, 0}, {30, 1, 4},
                                   {30, 1, 0}, {40, 2, 0}, {1, 1, 0},   {20, 1, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        depth_style s = plain;
        s.sublayers = sizes[i][0];
        s.block = sizes[i][1];
        s.window = sizes[i][2];
        take(s);
    }
}

/* S = 4: blocks begin before sublayers 0, 4, 8, 12. The first two blocks have one and two sources,
 * which are mixed again; from the third on phase 1 is made once. */
Test(depth_passes, one_phase_1_for_each_block) {
    depth_style s = plain;
    s.block = 4;
    s.sublayers = 16;
    bench b = taken(s, false);
    cr_assert_eq(count(b.m, HIR_LOGSUMEXP_OP),
                 2); /* blocks at 8 and 12; the output is in the last */
    cr_assert_eq(count(b.m, HIR_DEPTH_MERGE_OP), 3 + 4);
    cr_assert(has_remark(&b, true, "block 0: 4 mixes share 3 sources"));
    cr_assert(has_remark(&b, true, "block 1: 5 mixes share 4 sources"));
    /* each source is normed once: the input, four sums of blocks and eleven partial sums */
    cr_assert_eq(count(b.m, HIR_DEPTH_INVERSE_RMS_OP), 1 + 16);
    hd_arena_free(b.arena);
}

Test(depth_passes, the_first_of_a_block_reads_phase_1_alone) {
    depth_style s = plain;
    s.block = 6;
    s.sublayers = 18;
    bench b = taken(s, false);
    cr_assert_eq(count(b.m, HIR_DEPTH_MERGE_OP), 6); /* 12 reads phase 1; 13 .. 17 and the output */
    hd_arena_free(b.arena);
}

/* Full AttnRes: the cost decides; three sources or more are shared by every block. */
Test(depth_passes, full_attention_is_cut_where_it_saves_most) {
    depth_style s = plain;
    s.block = 1;
    s.sublayers = 24;
    int mixes;
    bench b = built(s, &mixes);
    cr_assert(run_list(&b, depth_passes, 3, true, NULL), "%s", errors_of(&b));
    int64_t saved = 0, last = -1;
    HIR_EACH(b.m, op, b.m->first) {
        const hir_op *o = hir_op_at(b.m, op);
        int64_t block = hir_attr_int(o, HIR_A_BLOCK, -1);
        int64_t shared = hir_attr_int(o, HIR_A_SHARED, 0);
        if (o->code != HIR_DEPTH_ATTEND_OP || block < 0) continue;
        cr_assert_geq(shared, 3);
        if (block == last) saved += shared - 2;
        last = block;
    }
    /* by brute force over equal groups nothing is better */
    for (int size = 1; size <= 24; size++) {
        int64_t equal = 0;
        for (int from = 1; from <= 24; from += size) { /* mix k has k + 1 sources */
            int m = from + size <= 25 ? size : 25 - from;
            if (from + 1 > 2) equal += (int64_t)(m - 1) * (from + 1 - 2);
        }
        cr_assert_geq(saved, equal, "groups of %d save %lld, the pass %lld", size, (long long)equal,
                      (long long)saved);
    }
    hd_arena_free(b.arena);
}

Test(depth_passes, queries_from_the_input_stand_alone) {
    depth_style s = plain;
    s.query = QUERY_INPUT;
    s.dot_written = true;
    bench b = taken(s, true);
    cr_assert(has_remark(&b, false, "its query depends on the token"));
    hd_arena_free(b.arena);
}

Test(depth_passes, two_sources_are_mixed_again) {
    depth_style s = plain;
    s.block = 8;
    s.sublayers = 12;
    int mixes;
    bench b = built(s, &mixes);
    cr_assert(run_list(&b, depth_passes, 3, true, NULL), "%s", errors_of(&b));
    cr_assert_eq(count_attr(b.m, HIR_A_BLOCK), 0);
    cr_assert(has_remark(&b, false, "mixed alone, 3 sources"));
    hd_arena_free(b.arena);
}
