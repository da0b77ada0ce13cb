/* The back ends int8_* (int8/group.h): rows of x rounded group by group, register tiles of dot
 * products of four bytes, and the same with one row. The products are in int8/group.c.
 *
 * A tile keeps sums of integers for a group, and sums of floats for all groups:
 *
 *     i[r][n] = sum q p over the group,   f += s t i  (+ m t sum p)
 *
 * Sums of integers are exact, and those of floats are made in the same order whatever the tile and
 * the instructions are: every level with such a back end gives the same bits.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/backends/int8/group.h"
#include "codegen/matmul/backends/vector.h"
#include "codegen/program/packed.h"

enum {
    WORD = 4,
    ROWS = 6, /* rows of a tile */
    PANELS = 2,
};
static const unsigned heights[] = {6, 4, 2, 1}; /* rows of the tiles for last rows */
enum { HEIGHTS = sizeof heights / sizeof *heights };

/* How many rows a slab of x has. */
static unsigned width_of(const hcg_product *p) {
    return p->decode ? 1 : ROWS;
}

/* Tables of a group of x (int8/group.h): those for halves if a matrix needs them. */
static unsigned tables_of(const hcg_product *p) {
    return p->weights >> HIR_NVFP4 & 1 ? HCG_INT8_ALL_TABLES : HCG_INT8_TABLES;
}

/* Are there rows enough for q8 that words of 16 bits may pay (int8/words.c)? */
static bool has_words(const hcg_product *p) {
    const hcg_int8_instructions *with = p->backend->instructions;
    return !with->dot && !p->decode && p->weights >> HIR_Q8 & 1;
}

/* Whether all matrices are q8, so that a block of rows is prepared for words or for bytes, and not
 * for both. */
static bool words_alone(const hcg_product *p) {
    return has_words(p) && p->weights == 1u << HIR_Q8;
}

static hcg_int8_form form_of(const hcg_product *p) {
    const hcg_int8_instructions *with = p->backend->instructions;
    hcg_int8_form f = {.width = width_of(p), .tables = tables_of(p), .bytes = true};
    f.pairs = !with->dot && p->weights >> HIR_MXFP4 & 1;
    f.words = has_words(p) && !words_alone(p);
    return f;
}

/* The form of many rows. */
static hcg_int8_form form_of_many(const hcg_product *p) {
    if (!words_alone(p)) return form_of(p);
    return (hcg_int8_form){.width = width_of(p), .tables = 1, .words = true};
}

/* Are there many rows, for which widened panels pay? */
static LLVMValueRef are_many(hcg_emit *e, const hcg_product *p) {
    LLVMValueRef most = hcg_i64(e, HCG_INT8_FEW_SLABS * ROWS);
    return LLVMBuildICmp(e->b, LLVMIntSGT, p->n_rows, most, "many");
}

/* A name for functions of this form. */
static const char *named(hcg_emit *e, const char *name, hcg_int8_form f) {
    if (f.words) name = hd_printf(e->arena, "%s_%s", name, f.bytes ? "both" : "words");
    if (f.pairs) name = hd_printf(e->arena, "%s_pairs", name);
    return f.tables <= HCG_INT8_TABLES ? name : hd_printf(e->arena, "%s_halves", name);
}

/* ---- x --------------------------------------------------------------------------------------- */
static void store4(hcg_emit *e, LLVMValueRef v, LLVMValueRef p) {
    LLVMSetAlignment(LLVMBuildStore(e->b, v, p), 4);
}

/* The two words of each four elements of a row side by side, to `words` of the slab. A word has the
 * lower halves of two elements, which come together within the 16 bytes where they are. */
static void store_words(hcg_emit *e, const hcg_int8_x *g, unsigned width, LLVMValueRef words,
                        LLVMValueRef row) {
    const unsigned lanes = e->level->lanes;
    LLVMTypeRef halves = LLVMVectorType(e->i16, 2 * lanes);
    LLVMTypeRef twos = LLVMVectorType(e->i64, lanes / 2);
    LLVMValueRef order[2 * HIR_PANEL];
    for (unsigned j = 0; j < 2 * lanes; j++) {
        const unsigned four = j / (2 * WORD) * WORD, at = j % (2 * WORD);
        order[j] = at < WORD ? LLVMConstInt(e->i32, 2 * (four + at % 2 * 2 + at / 2), false)
                             : LLVMGetPoison(e->i32);
    }
    words = hcg_at(e, e->i64, words, row);
    for (unsigned i = 0; i < HIR_GROUP / lanes; i++) {
        LLVMValueRef p = LLVMBuildBitCast(e->b, g->p[i], halves, "");
        p = LLVMBuildShuffleVector(e->b, p, p, LLVMConstVector(order, 2 * lanes), "");
        p = LLVMBuildBitCast(e->b, p, twos, "");
        for (unsigned j = 0; j < lanes / WORD; j++) {
            const int64_t at = (int64_t)(i * lanes / WORD + j) * width * 8;
            LLVMValueRef lane = LLVMConstInt(e->i32, 2 * j, false);
            LLVMValueRef two = LLVMBuildExtractElement(e->b, p, lane, "");
            store4(e, two, hcg_at_byte(e, words, at));
        }
    }
}

/* Brings one group of one row into bytes: n elements of x (NULL: all of the group) to the row's
 * place in the slab's group. */
static void prepare_group(hcg_emit *e, hcg_int8_form f, LLVMValueRef x, LLVMValueRef n,
                          LLVMValueRef group, LLVMValueRef row) {
    const unsigned lanes = e->level->lanes, width = f.width;
    LLVMValueRef bytes = hcg_at(e, e->i32, group, row);
    LLVMValueRef out = hcg_at_byte(e, bytes, hcg_int8_before_tables(f));
    const bool halves = f.tables > HCG_INT8_TABLES;
    const hcg_int8_x g =
        hcg_int8_round(e, x, n, (halves ? HCG_INT8_HALVES : 0u) | (f.pairs ? HCG_INT8_PAIRS : 0u));
    if (f.words) store_words(e, &g, width, hcg_at_byte(e, group, hcg_int8_before_words(f)), row);
    store4(e, g.step, out);
    if (!f.bytes) return;
    for (unsigned i = 0; i < HIR_GROUP / lanes; i++) {
        LLVMValueRef p = LLVMBuildTrunc(e->b, g.p[i], LLVMVectorType(e->i8, lanes), "");
        p = LLVMBuildBitCast(e->b, p, LLVMVectorType(e->i32, lanes / WORD), "");
        for (unsigned j = 0; j < lanes / WORD; j++) {
            int64_t at = (i * lanes / WORD + j) * (int64_t)width * 4;
            LLVMValueRef lane = LLVMConstInt(e->i32, j, false);
            store4(e, LLVMBuildExtractElement(e->b, p, lane, ""), hcg_at_byte(e, bytes, at));
        }
    }
    store4(e, g.of_x, hcg_at_byte(e, out, (int64_t)width * 4));
    store4(e, f.pairs ? g.pair_start : g.start, hcg_at_byte(e, out, (int64_t)width * 8));
    for (unsigned i = 0; i < 2 && halves; i++)
        store4(e, g.half_start[i], hcg_at_byte(e, out, (int64_t)width * 4 * (HCG_INT8_TABLES + i)));
}

/* The parameters of functions that prepare rows; those that read rows of a list have the last two,
 * too. */
enum { ROWS_X, ROWS_LDX, ROWS_N, ROWS_K, ROWS_OUT, ROWS_LIST, ROWS_EACH, ROWS_PARAMS };

/* Where row `row` of the slabs, or of the list, lies in x. */
static LLVMValueRef listed_row(hcg_emit *e, const hcg_shared *s, LLVMValueRef row, bool listed) {
    if (listed) {
        row = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, s->param[ROWS_LIST], row), "");
        LLVMSetAlignment(row, 4);
        row = LLVMBuildZExt(e->b, row, e->i64, "");
        row = LLVMBuildUDiv(e->b, row, s->param[ROWS_EACH], "");
    }
    return hcg_at(e, e->f32, s->param[ROWS_X], hcg_mul(e, row, s->param[ROWS_LDX]));
}

/* Row `within` of the slab `out`, from x. next: a row to prefetch; NULL: none. */
static void prepare_row(hcg_emit *e, hcg_int8_form f, bool whole, LLVMValueRef x, LLVMValueRef next,
                        LLVMValueRef k, LLVMValueRef out, LLVMValueRef within) {
    const int64_t bytes = hcg_int8_slab_group(f), line = e->level->machine.line;
    LLVMValueRef n = LLVMBuildUDiv(e->b, k, hcg_i64(e, HIR_GROUP), "whole");
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), "group", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, l.index, HIR_GROUP);
    for (int64_t i = 0; next && i < HIR_GROUP * (int64_t)sizeof(float); i += line)
        hcg_prefetch(e, hcg_at(e, e->f32, next, at), i);
    prepare_group(e, f, hcg_at(e, e->f32, x, at), NULL,
                  hcg_at(e, e->i8, out, hcg_mul_const(e, l.index, bytes)), within);
    hcg_loop_end(e, &l, NULL);
    if (whole) return;
    at = hcg_mul_const(e, n, HIR_GROUP);
    prepare_group(e, f, hcg_at(e, e->f32, x, at), hcg_sub(e, k, at),
                  hcg_at(e, e->i8, out, hcg_mul_const(e, n, bytes)), within);
}

/* int8_rows_W(x, ldx, rows, k, out[, list, each]); rows missing in the last slab repeat the last
 * row. whole: k is groups without a rest. */
static hcg_shared prepare_function(hcg_emit *e, hcg_int8_form f, bool whole, bool listed) {
    LLVMTypeRef params[ROWS_PARAMS] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr, e->i64};
    hcg_shared s;
    const unsigned width = f.width;
    const char *name = named(e, hd_printf(e->arena, "int8_rows_%u", width), f);
    if (!whole) name = hd_printf(e->arena, "%s_rest", name);
    if (listed) name = hd_printf(e->arena, "%s_listed", name);
    if (!hcg_shared_begin(e, name, params, listed ? ROWS_PARAMS : ROWS_LIST, &s)) return s;
    LLVMValueRef rows = s.param[ROWS_N], zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    LLVMValueRef last = LLVMBuildNSWSub(e->b, rows, one, "last");
    LLVMValueRef groups = hcg_divide_up(e, s.param[ROWS_K], hcg_i64(e, HIR_GROUP));
    LLVMValueRef slab_bytes = hcg_mul_const(e, groups, hcg_int8_slab_group(f));
    LLVMValueRef slabs = hcg_divide_up(e, rows, hcg_i64(e, width));
    hcg_loop lr = hcg_loop_begin(e, zero, hcg_mul_const(e, slabs, width), one, "row", 0, NULL);
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, lr.index, last, "");
    LLVMValueRef row = LLVMBuildSelect(e->b, in, lr.index, last, "");
    LLVMValueRef slab = LLVMBuildUDiv(e->b, lr.index, hcg_i64(e, width), "");
    LLVMValueRef within = LLVMBuildURem(e->b, lr.index, hcg_i64(e, width), "");
    LLVMValueRef out = hcg_at(e, e->i8, s.param[ROWS_OUT], hcg_mul(e, slab, slab_bytes));
    LLVMValueRef next = listed_row(e, &s, hcg_smaller(e, hcg_add(e, row, one), last), listed);
    row = listed_row(e, &s, row, listed);
    prepare_row(e, f, whole, row, listed ? next : NULL, s.param[ROWS_K], out, within);
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

static void begin(hcg_emit *e, hcg_product *p) {
    const uint64_t slabs = (p->rows + width_of(p) - 1) / width_of(p);
    const uint64_t groups = (uint64_t)hcg_groups(p->k);
    const int64_t few = hcg_int8_slab_group(form_of(p)),
                  many = hcg_int8_slab_group(form_of_many(p));
    p->x_workspace = hcg_scratch(e, slabs * groups * (uint64_t)(few > many ? few : many));
    if (has_words(p)) p->panel_workspace = hcg_scratch(e, hcg_int8_words_bytes(e));
}

static void prepare_in(hcg_emit *e, const hcg_product *p, hcg_int8_form form) {
    hcg_shared f = prepare_function(e, form, p->k % HIR_GROUP == 0, p->list);
    LLVMValueRef args[ROWS_PARAMS] = {p->x,           p->ldx,  p->n_rows,          hcg_i64(e, p->k),
                                      p->x_workspace, p->list, hcg_i64(e, p->each)};
    hcg_shared_call(e, &f, args, p->list ? ROWS_PARAMS : ROWS_LIST);
}

static void prepare(hcg_emit *e, hcg_product *p) {
    if (!words_alone(p)) {
        prepare_in(e, p, form_of(p));
        return;
    }
    const hcg_either b = hcg_either_begin(e, are_many(e, p), "many", "few");
    prepare_in(e, p, form_of_many(p));
    hcg_either_other(e, &b);
    prepare_in(e, p, form_of(p));
    hcg_either_end(e, &b);
}

/* ---- a tile ---------------------------------------------------------------------------------- */
/* t->floats = sums + the products of group `index`. */
static void add_group(hcg_emit *e, hcg_int8_tile *t, const hcg_shared *s, LLVMValueRef index,
                      const LLVMValueRef *sums) {
    const unsigned per_panel = HIR_PANEL / e->level->lanes;
    LLVMValueRef x = s->param[0], b = s->param[1], panel_bytes = s->param[2];
    t->x = hcg_at(e, e->i8, x, hcg_mul_const(e, index, hcg_int8_slab_group(t->form)));
    LLVMValueRef group = hcg_at(e, e->i8, b, hcg_mul_const(e, index, hcg_group_bytes(t->dtype)));
    for (unsigned v = 0; v < t->vectors; v++) {
        unsigned panel = (t->first + v) / per_panel;
        t->group[v] = hcg_at(e, e->i8, group, hcg_mul_const(e, panel_bytes, panel));
        if ((t->first + v) % per_panel == 0) hcg_quant_prefetch(e, t->dtype, t->group[v]);
    }
    for (unsigned i = 0; i < t->rows * t->vectors; i++)
        t->floats[i] = sums[i];
    hcg_int8_group(e, t);
}

/* The sums of a vector of the tile's panels, after all groups. */
static LLVMValueRef ended(hcg_emit *e, const hcg_int8_tile *t, const hcg_shared *s, unsigned vector,
                          LLVMValueRef sums) {
    const unsigned per_panel = HIR_PANEL / e->level->lanes;
    if (!hcg_panel_end(t->dtype)) return sums;
    LLVMValueRef at = hcg_mul_const(e, s->param[3], (int64_t)hcg_group_bytes(t->dtype));
    at = hcg_add(e, at, hcg_mul_const(e, s->param[2], vector / per_panel));
    LLVMValueRef end = hcg_at(e, e->i8, s->param[1], at);
    return hcg_quant_times_factor(e, t->dtype, end, vector % per_panel, sums);
}

/* Computes the vectors of a tile from `first` on that are computed together, along all groups.
 * `pages` of a panel: see hcg_streamed. */
static void run_vectors(hcg_emit *e, hcg_int8_tile *t, const hcg_shared *s, int64_t pages) {
    const unsigned n = t->rows * t->vectors;
    LLVMValueRef groups = s->param[3];
    for (unsigned i = 0; i < n; i++)
        t->floats[i] = LLVMConstNull(e->vec);
    hcg_loop l;
    if (t->form.width == 1) { /* gemv */
        const hcg_streamed w = {s->param[1], groups, 1, (int64_t)hcg_group_bytes(t->dtype), pages};
        hcg_stream all = hcg_stream_begin(e, &w, "group", n, t->floats);
        add_group(e, t, s, all.step.index, all.step.carried);
        hcg_stream_end(e, &all, t->floats);
        l = all.page;
    } else {
        l = hcg_loop_begin(e, hcg_i64(e, 0), groups, hcg_i64(e, 1), "group", n, t->floats);
        add_group(e, t, s, l.index, l.carried);
        hcg_loop_end(e, &l, t->floats);
    }
    for (unsigned i = 0; i < n; i++) {
        const unsigned vector = t->first + i % t->vectors;
        LLVMValueRef at = hcg_mul_const(e, s->param[5], i / t->vectors);
        at = hcg_add(e, at, hcg_i64(e, vector * e->level->lanes));
        hcg_store(e, hcg_at(e, e->f32, s->param[4], at), ended(e, t, s, vector, l.carried[i]),
                  NULL);
    }
}

/* What the functions of tiles have in common; pages: of a panel, where there is one row. */
typedef struct tiles {
    const hcg_int8_instructions *with;
    hir_dtype dtype;
    hcg_int8_form form;
    int64_t pages;
} tiles;

/* tile(x, b, panel_bytes, groups, c, ldc): c[rows][panels * 16] = one slab times panels. `pages` of
 * a panel of which there is one row: hcg_streamed. */
static hcg_shared tile_function(hcg_emit *e, const void *of, unsigned rows, unsigned panels) {
    const tiles *a = of;
    LLVMTypeRef params[] = {e->ptr, e->ptr, e->i64, e->i64, e->ptr, e->i64};
    const char *name = hd_printf(e->arena, "dots_%s_%u_%ux%u", hir_dtype_name(a->dtype),
                                 a->form.width, rows, panels * HIR_PANEL);
    name = named(e, name, a->form);
    if (a->pages) name = hd_printf(e->arena, "%s_pages_%ld", name, (long)a->pages);
    hcg_shared s;
    if (!hcg_shared_begin(e, name, params, 6, &s)) return s;
    unsigned all = panels * HIR_PANEL / e->level->lanes;
    hcg_int8_tile t = {.with = a->with, .dtype = a->dtype, .form = a->form, .rows = rows};
    t.vectors = hcg_int8_vectors(e, &t, all);
    for (; t.first < all; t.first += t.vectors)
        run_vectors(e, &t, &s, a->pages);
    hcg_shared_end(e, &s);
    return s;
}

/* Two vectors of sums, or one panel where those are less. */
unsigned hcg_int8_panels(const hcg_emit *e) {
    const unsigned panels = PANELS * e->level->lanes / HIR_PANEL;
    return panels ? panels : 1;
}

/* ---- blocks ---------------------------------------------------------------------------------- */
void hcg_int8_dispatch(hcg_emit *e, hcg_int8_tile_function *function, const void *of,
                       LLVMValueRef rows, LLVMValueRef panels, const LLVMValueRef *args,
                       unsigned n) {
    LLVMValueRef height = hcg_i64(e, heights[0]);
    for (unsigned i = 1; i < HEIGHTS; i++) {
        LLVMValueRef holds = LLVMBuildICmp(e->b, LLVMIntSLE, rows, hcg_i64(e, heights[i]), "");
        height = LLVMBuildSelect(e->b, holds, hcg_i64(e, heights[i]), height, "");
    }
    const unsigned most = hcg_int8_panels(e);
    LLVMValueRef key = hcg_add(e, hcg_mul_const(e, height, PANELS + 1), panels);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiled");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, HEIGHTS * most);
    for (unsigned i = 0; i < HEIGHTS; i++)
        for (unsigned p = 1; p <= most; p++) {
            LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tile");
            LLVMAddCase(choice, hcg_i64(e, heights[i] * (PANELS + 1) + p), block);
            LLVMPositionBuilderAtEnd(e->b, block);
            hcg_shared f = function(e, of, heights[i], p);
            hcg_shared_call(e, &f, args, n);
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}

enum { GEMM_TOUCHED = 7, GEMM_LD_TOUCHED = GEMM_TOUCHED + HCG_TOUCHED, GEMM_PARAMS };

void hcg_int8_prefetch_touched(hcg_emit *e, const LLVMValueRef *of, LLVMValueRef row,
                               LLVMValueRef rows, LLVMValueRef panel) {
    LLVMValueRef column = hcg_mul_const(e, panel, HIR_PANEL);
    rows = hcg_smaller(e, rows, hcg_i64(e, ROWS));
    for (int i = 0; i < HCG_TOUCHED; i++) {
        LLVMValueRef any = LLVMBuildIsNotNull(e->b, of[i], "");
        LLVMValueRef n = LLVMBuildSelect(e->b, any, rows, hcg_i64(e, 0), "");
        hcg_prefetch_rows(e, of[i], of[HCG_TOUCHED], row, n, column,
                          hcg_int8_panels(e) * HIR_PANEL * (unsigned)sizeof(float));
    }
}

/* gemm(x, rows, groups, b, panels, c, ldc[, touched.., ld_touched]): a panel or two stay in the L2
 * while all slabs are multiplied with them */
static hcg_shared gemm_function(hcg_emit *e, const hcg_backend *of, hir_dtype dtype,
                                hcg_int8_form f) {
    LLVMTypeRef params[GEMM_PARAMS] = {e->ptr, e->i64, e->i64, e->ptr, e->i64,
                                       e->ptr, e->i64, e->ptr, e->ptr, e->i64};
    _Static_assert(HCG_TOUCHED == 2, "as many pointers");
    hcg_shared s;
    const char *name = named(e, hd_printf(e->arena, "dots_%s", hir_dtype_name(dtype)), f);
    const unsigned n = of->prefetches ? GEMM_PARAMS : GEMM_TOUCHED;
    if (!hcg_shared_begin(e, name, params, n, &s)) return s;
    LLVMValueRef x = s.param[0], rows = s.param[1], groups = s.param[2], b = s.param[3];
    LLVMValueRef panels = s.param[4], c = s.param[5], ldc = s.param[6], zero = hcg_i64(e, 0);
    LLVMValueRef panel_bytes = hcg_mul_const(e, groups, hcg_group_bytes(dtype));
    panel_bytes = hcg_add(e, panel_bytes, hcg_i64(e, hcg_panel_end(dtype)));
    LLVMValueRef row_bytes = hcg_mul_const(e, groups, hcg_int8_slab_group(f) / f.width);
    LLVMValueRef most = hcg_i64(e, hcg_int8_panels(e));
    hcg_loop lp = hcg_loop_begin(e, zero, panels, most, "panel", 0, NULL);
    LLVMValueRef wide = hcg_smaller(e, hcg_sub(e, panels, lp.index), most);
    LLVMValueRef bp = hcg_at(e, e->i8, b, hcg_mul(e, lp.index, panel_bytes));
    hcg_loop lr = hcg_loop_begin(e, zero, rows, hcg_i64(e, ROWS), "row", 0, NULL);
    LLVMValueRef high = hcg_sub(e, rows, lr.index);
    if (of->prefetches)
        hcg_int8_prefetch_touched(e, s.param + GEMM_TOUCHED, lr.index, high, lp.index);
    LLVMValueRef at = hcg_mul(e, lr.index, ldc);
    at = hcg_add(e, at, hcg_mul_const(e, lp.index, HIR_PANEL));
    LLVMValueRef xr = hcg_at(e, e->i8, x, hcg_mul(e, lr.index, row_bytes));
    LLVMValueRef args[] = {xr, bp, panel_bytes, groups, hcg_at(e, e->f32, c, at), ldc};
    const tiles t = {of->instructions, dtype, f, 0};
    hcg_int8_dispatch(e, tile_function, &t, high, wide, args, 6);
    hcg_loop_end(e, &lr, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- the back ends --------------------------------------------------------------------------- */
static void gemm_of_bytes(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_shared f = gemm_function(e, p->backend, b->dtype, form_of(p));
    LLVMValueRef groups = hcg_i64(e, hcg_groups(p->k));
    LLVMValueRef args[GEMM_PARAMS] = {p->x_workspace, p->n_rows, groups, b->w,
                                      b->n,           b->sums,   b->ld};
    for (int i = 0; i < HCG_TOUCHED; i++)
        args[GEMM_TOUCHED + i] = b->touched[i] ? b->touched[i] : LLVMConstNull(e->ptr);
    args[GEMM_LD_TOUCHED] = b->ld_touched ? b->ld_touched : hcg_i64(e, 0);
    hcg_shared_call(e, &f, args, p->backend->prefetches ? GEMM_PARAMS : GEMM_TOUCHED);
}

/* Widened panels pay from some slabs on (int8/words.c). */
static void gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    if (b->dtype != HIR_Q8 || !has_words(p)) {
        gemm_of_bytes(e, p, b);
        return;
    }
    const hcg_either rows = hcg_either_begin(e, are_many(e, p), "many", "few");
    hcg_int8_words_gemm(e, p, b, form_of_many(p));
    hcg_either_other(e, &rows);
    gemm_of_bytes(e, p, b);
    hcg_either_end(e, &rows);
}

/* One panel after the other: a stream that is read once. */
static void gemv(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    const int64_t bytes = hcg_panel_bytes(b->dtype, p->k);
    LLVMValueRef panel_bytes = hcg_i64(e, bytes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), b->n, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef w = hcg_at(e, e->i8, b->w, hcg_mul(e, l.index, panel_bytes));
    LLVMValueRef at = hcg_at(e, e->f32, b->sums, hcg_mul_const(e, l.index, HIR_PANEL));
    LLVMValueRef groups = hcg_i64(e, hcg_groups(p->k));
    LLVMValueRef args[] = {p->x_workspace, w, panel_bytes, groups, at, hcg_i64(e, HIR_PANEL)};
    const tiles t = {p->backend->instructions, b->dtype, form_of(p), hcg_stream_pages(bytes)};
    hcg_shared f = tile_function(e, &t, 1, 1);
    hcg_shared_call(e, &f, args, 6);
    hcg_loop_end(e, &l, NULL);
}

/* Blocks are whole slabs: one that is not full takes nearly as long. */
static int64_t row_unit(const hcg_level *level) {
    (void)level;
    return ROWS;
}

static int64_t whole_slabs(int64_t rows) {
    return (rows + ROWS - 1) / ROWS * ROWS;
}

/* Rows of a block: x of so many stays in the L2 ... */
static int64_t rows_of_x(const hcg_level *level, int64_t k) {
    return whole_slabs(hcg_vector_rows(level, k));
}

/* ... or what products of 16 bits read of prepared x. */
static int64_t rows_of_words(const hcg_level *level, int64_t k) {
    const hcg_int8_form f = {.width = 1, .tables = 1, .words = true};
    const int64_t bytes = hcg_groups(k) * hcg_int8_slab_group(f);
    return whole_slabs(hcg_block_rows(level, bytes, hcg_vector_panels(level)));
}

/* touches: lines of results are prefetched before the epilogue stores to them. For maddubs_256 the
 * gain is measured (Zen 3); for the others it has not been tried. */
#define BACKEND(id, touches, rows, ...)                                                            \
    const hcg_backend hcg_##id = {                                                                 \
        .name = #id,                                                                               \
        .prefetches = touches,                                                                     \
        .gathers = true,                                                                           \
        .instructions = &(const hcg_int8_instructions){__VA_ARGS__},                               \
        .tile_panels = hcg_vector_panels,                                                          \
        .block_rows = rows,                                                                        \
        .row_unit = row_unit,                                                                      \
        .tile_rows = ROWS,                                                                         \
        .begin = begin,                                                                            \
        .prepare = prepare,                                                                        \
        .gemm = gemm,                                                                              \
        .gemv = gemv,                                                                              \
    }
BACKEND(int8_vnni_512, false, rows_of_x, .dot = "llvm.x86.avx512.vpdpbusd.512",
        .lookup = "llvm.x86.avx512.pshuf.b.512");
BACKEND(int8_vnni_256, false, rows_of_x, .dot = "llvm.x86.avx512.vpdpbusd.256",
        .lookup = "llvm.x86.avx2.pshuf.b");
BACKEND(int8_sdot, false, rows_of_x, .dot = "llvm.aarch64.neon.sdot", .is_signed = true,
        .lookup = "llvm.aarch64.neon.tbl1");
BACKEND(int8_maddubs_512, false, rows_of_words, .maddubs = "llvm.x86.avx512.pmaddubs.w.512",
        .maddwd = "llvm.x86.avx512.pmaddw.d.512", .lookup = "llvm.x86.avx512.pshuf.b.512");
BACKEND(int8_maddubs_256, true, rows_of_words, .maddubs = "llvm.x86.avx2.pmadd.ub.sw",
        .maddwd = "llvm.x86.avx2.pmadd.wd", .sign = "llvm.x86.avx2.psign.b",
        .lookup = "llvm.x86.avx2.pshuf.b");
#undef BACKEND
