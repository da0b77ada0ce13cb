/* Panels of groups that keep the codes of the checkpoint (kept.h): the words of 16 rows are
 * transposed, and their codes become those of the panel, four rows at a time. */
#include "codegen/weights/kept.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "codegen/weights/lanes/transpose.h"
#include "support/known.h"
#include "support/packed.h"

bool hcg_may_keep(const hd_tensor *t, hir_dtype dtype) {
    if (!hd_packed_in_rows(t)) return false;
    const hd_packing packing = t->packed->packing;
    if (dtype == HIR_NVFP4) return packing == HD_PACKING_NVFP4;
    if (t->packed->cols % HIR_GROUP) return false;
    if (dtype == HIR_MXFP4) return packing == HD_PACKING_MXFP4;
    const uint32_t bits = hd_integer_bits(packing);
    if (t->packed->tile.cols % HIR_GROUP || t->packed->order) return false;
    return dtype == HIR_Q4 ? bits == 4 : dtype == HIR_Q8 && bits > 0;
}

/* ---- codes of 16 rows ------------------------------------------------------------------------ */
typedef uint8_t quad_bytes __attribute__((vector_size(16)));

static const uint8_t nothing[HIR_GROUP]; /* codes of rows beyond the matrix */

/* Spreads codes of four bits to one in each byte, the code in the lowest bits first; they lie in
 * the low half of each word. */
static inline hcg_quad spread(hcg_quad x) {
    x &= 0xffff;
    x = (x | x << 8) & 0x00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f;
}

/* The codes of a group of 16 rows. They are either the codes of each row, contiguous, or words of
 * all rows: one word of each row after the other, in lines that are `stride` bytes apart. */
typedef struct source {
    const uint8_t *rows[HIR_PANEL];
    const uint8_t *words; /* NULL: `rows` is set instead */
    uint64_t stride;
    unsigned there; /* rows that exist */
} source;

/* Loads words at / 4 .. at / 4 + 3 of four rows: r[j] is word j of each. */
static inline void load_quads(const source *s, unsigned row, size_t at, hcg_quad r[4]) {
    const unsigned left = s->there > row ? s->there - row : 0;
    for (unsigned i = 0; i < 4 && !s->words; i++)
        memcpy(&r[i], s->rows[row + i] + at, sizeof r[i]);
    if (!s->words) {
        hcg_transpose(r);
        return;
    }
    for (unsigned j = 0; j < 4; j++) {
        const uint8_t *from = s->words + (at / 4 + j) * s->stride + row * sizeof(uint32_t);
        r[j] = (hcg_quad){0};
        memcpy(&r[j], from, left < 4 ? left * sizeof(uint32_t) : sizeof r[j]);
    }
}

/* Stores word j of four rows. */
static inline void put_quad(hcg_quad x, int j, int row, uint8_t *out) {
    memcpy(out + (j * HIR_PANEL + row) * 4, &x, sizeof x);
}

/* Four-bit codes stay four bits: byte i of a word of the panel has code i in its low half, 4 + i in
 * its high half. */
static void put_halves(const source *codes, uint8_t *out) {
    hcg_quad r[4];
    for (int row = 0; row < HIR_PANEL; row += 4) {
        load_quads(codes, (unsigned)row, 0, r);
        for (int j = 0; j < 4; j++)
            put_quad(spread(r[j]) | spread(r[j] >> 16) << 4, j, row, out);
    }
}

/* Each byte of the panel is a code plus the `add` of its row; `add` has the number in each byte. */
static void put_bytes(const source *codes, uint32_t bits, const uint32_t add[HIR_PANEL],
                      uint8_t *out) {
    hcg_quad r[4], more;
    for (int row = 0; row < HIR_PANEL; row += 4) {
        memcpy(&more, add + row, sizeof more);
        for (int at = 0; at < HIR_GROUP * (int)bits / 8; at += 16) {
            load_quads(codes, (unsigned)row, (size_t)at, r);
            for (int j = 0; j < 4; j++) {
                const hcg_quad low = bits == 4 ? spread(r[j]) : r[j], high = spread(r[j] >> 16);
                const int word = bits == 4 ? 2 * j : at / 4 + j;
                put_quad((hcg_quad)((quad_bytes)low + (quad_bytes)more), word, row, out);
                if (bits == 4)
                    put_quad((hcg_quad)((quad_bytes)high + (quad_bytes)more), word + 1, row, out);
            }
        }
    }
}

/* ---- MXFP4 ----------------------------------------------------------------------------------- */
/* False where a scale is so large that f32 cannot hold all codes with it, or is not a number. */
static bool copy_mxfp4(const hd_tensor *t, uint64_t first, uint8_t *out) {
    enum { LARGEST = 252 }; /* 6 2^125 is below 2^128 */
    const uint64_t N = (uint64_t)t->shape[0], groups = t->packed->cols / HIR_GROUP;
    const uint64_t there = N - first < HIR_PANEL ? N - first : HIR_PANEL;
    const uint64_t at = (t->packed_first / t->packed->cols + first) * groups;
    const uint8_t *codes = t->packed->codes->data + at * HIR_GROUP / 2;
    const uint8_t *scales = t->packed->scales->data + at;
    source from = {0};
    bool ok = true;
    for (uint64_t row = 0; row < HIR_PANEL; row++)
        from.rows[row] = nothing;
    for (uint64_t g = 0; g < groups; g++, out += HCG_MXFP4_GROUP) {
        memset(out, 0, HIR_PANEL);
        hcg_ask_for_next_panel(codes + g * HIR_GROUP / 2, groups * HIR_GROUP / 2, 1);
        for (uint64_t row = 0; row < there; row++) {
            out[row] = scales[row * groups + g];
            ok &= out[row] <= LARGEST;
            from.rows[row] = codes + (row * groups + g) * HIR_GROUP / 2;
        }
        put_halves(&from, out + HCG_MXFP4_FIRST);
    }
    return ok;
}

/* ---- NVFP4 ----------------------------------------------------------------------------------- */
enum { HALF = HIR_GROUP / 2 };

/* The factor of the matrix that element `first` of t is in. False: it is no normal f32, or so large
 * that f32 cannot hold all numbers with it. */
static bool factor_of(const hd_tensor *t, uint64_t first, double *out) {
    const hd_packed *p = t->packed;
    const double most = 6 * 448,
                 f = hd_packed_factor(p, (t->packed_first + first) / p->cols / p->rows);
    *out = f;
    return f == 0 || (f >= (double)FLT_MIN && f * most < (double)FLT_MAX);
}

/* The codes of n elements, at most a group, from column k on of a row of the file, and the scales
 * of its halves. A scale of 0 makes zeros of the codes; elements beyond n are 0. False: a scale is
 * no number. */
static bool half_groups(const hd_packed *p, uint64_t row, uint64_t k, uint64_t n,
                        uint8_t codes[HALF], uint8_t scales[2]) {
    enum { SIGNS = 0x88, BYTES = HALF / 2 }; /* bytes of a half's codes */
    const uint64_t at = row * p->cols + k;
    bool ok = true;
    memset(codes, 0, HALF);
    memcpy(codes, p->codes->data + at / 2, n / 2);
    for (uint64_t half = 0; half < 2; half++) {
        scales[half] = HCG_E5M3_ONE;
        if (half * HALF >= n) continue;
        const float scale = hd_packed_scale(p, at / HALF + half);
        ok &= scale >= 0;
        if (scale > 0) scales[half] = hcg_small_scale(scale);
        for (uint64_t i = 0; scale == 0 && i < BYTES; i++)
            codes[half * BYTES + i] &= SIGNS;
    }
    return ok;
}

/* False where a scale is no number, or the factor does not fit f32. */
static bool copy_nvfp4(const hd_tensor *t, uint64_t first, uint8_t *out) {
    const hd_packed *p = t->packed;
    const uint64_t N = (uint64_t)t->shape[0], in_file = t->packed_first / p->cols + first;
    const uint64_t there = N - first < HIR_PANEL ? N - first : HIR_PANEL;
    uint8_t codes[HIR_PANEL][HALF], scales[2];
    float factors[HIR_PANEL] = {0};
    double exact = 0;
    source from = {0};
    bool ok = true;
    for (uint64_t row = 0; row < HIR_PANEL; row++) {
        from.rows[row] = row < there ? codes[row] : nothing;
        if (row < there) ok &= factor_of(t, (first + row) * p->cols, &exact);
        if (row < there) factors[row] = (float)exact;
    }
    for (uint64_t k = 0; k < p->cols; k += HIR_GROUP, out += HCG_NVFP4_GROUP) {
        const uint64_t n = p->cols - k < HIR_GROUP ? p->cols - k : HIR_GROUP;
        memset(out, 0, HCG_NVFP4_FIRST);
        hcg_ask_for_next_panel(p->codes->data + (in_file * p->cols + k) / 2, p->cols / 2, 1);
        for (uint64_t row = 0; row < there; row++) {
            ok &= half_groups(p, in_file + row, k, n, codes[row], scales);
            out[row] = scales[0], out[HIR_PANEL + row] = scales[1];
        }
        put_halves(&from, out + HCG_NVFP4_FIRST);
    }
    hcg_put_factors(HIR_NVFP4, factors, out);
    return ok;
}

/* The group from element `first` on, for the evaluator. The factor is that of the checkpoint: f32
 * is what all numbers are rounded to with which compiled code computes. */
static bool keep_nvfp4(const hd_tensor *t, uint64_t first, hcg_group *out) {
    const hd_packed *p = t->packed;
    const uint64_t at = t->packed_first + first, k = at % p->cols;
    const uint64_t n = p->cols - k < HIR_GROUP ? p->cols - k : HIR_GROUP;
    uint8_t codes[HALF], scales[2];
    if (!factor_of(t, first, &out->factor) || !half_groups(p, at / p->cols, k, n, codes, scales))
        return false;
    out->scale = scales[0], out->least = scales[1];
    for (unsigned i = 0; i < HIR_GROUP; i++)
        out->q[i] = codes[i / 2] >> i % 2 * 4 & 15;
    return true;
}

/* ---- integers -------------------------------------------------------------------------------- */
typedef struct line { /* what all groups of a tile have in common */
    hd_integers in;
    uint16_t s, m;
    bool kept; /* its groups keep their codes, whatever the codes are */
} line;

static line line_of(hd_integers in, hir_dtype dtype) {
    line l = {.in = in, .s = hd_f16_from_f32(in.scale)};
    const double s = (double)in.scale, m = dtype == HIR_Q4 ? -in.zero * s : 0;
    const double most = dtype == HIR_Q4 ? 15 : 127;
    l.m = hd_f16_from_f64(m);
    const double moved =
        most * fabs((double)hd_f16_to_f32(l.s) - s) + fabs((double)hd_f16_to_f32(l.m) - m);
    l.kept = s >= 0 && moved <= s / 16; /* both are false where one is NaN */
    return l;
}

/* q8 can have code - zero + 128 from 1 to 255. `codes`: the codes of a group, as in the file. */
static bool codes_fit_q8(const hd_integers *in, const uint8_t *codes) {
    const int32_t least = in->zero - 127, most = in->zero + 127;
    const uint8_t low = (uint8_t)(least < 0 ? 0 : least), high = (uint8_t)(most > 255 ? 255 : most);
    quad_bytes x[HIR_GROUP / 16];
    uint64_t beyond[2];
    if (in->bits == 4) return true; /* code and zero differ by at most 15 */
    memcpy(x, codes, sizeof x);
    x[0] ^= in->flip, x[1] ^= in->flip;
    const quad_bytes bad =
        (quad_bytes)((x[0] - low > (uint8_t)(high - low)) | (x[1] - low > (uint8_t)(high - low)));
    memcpy(beyond, &bad, sizeof beyond);
    return !(beyond[0] | beyond[1]);
}

/* Does the group from column k on of a row of the file keep its codes? */
static bool keeps(const hd_packed *p, const line *l, hir_dtype dtype, uint64_t row, uint64_t k) {
    uint8_t codes[HIR_GROUP];
    if (!l->kept || dtype == HIR_Q4 || l->in.bits == 4) return l->kept;
    if (l->in.codes) return codes_fit_q8(&l->in, l->in.codes);
    hd_packed_codes(p, row, k, HIR_GROUP, codes);
    return codes_fit_q8(&l->in, codes);
}

static void put_scale(const line *l, hir_dtype dtype, unsigned row, uint8_t *out) {
    memcpy(out + 2 * row, &l->s, 2);
    if (dtype == HIR_Q4) memcpy(out + 2 * (HIR_PANEL + row), &l->m, 2);
}

/* Writes a panel's group for the rows that exist. Rows whose group does not keep its codes get
 * meaningless bytes, which are overwritten later. */
static void put_codes(const line *lines, const source *codes, hir_dtype dtype, unsigned there,
                      uint8_t *out) {
    uint32_t add[HIR_PANEL] = {0};
    memset(out, 0, hcg_group_first(dtype));
    for (unsigned row = 0; row < there; row++) {
        const hd_integers *in = &lines[row].in;
        put_scale(&lines[row], dtype, row, out);
        add[row] = (uint8_t)(128 - in->zero + in->flip) * 0x01010101u;
    }
    out += hcg_group_first(dtype);
    if (dtype == HIR_Q4)
        put_halves(codes, out);
    else
        put_bytes(codes, lines[0].in.bits, add, out);
}

/* Keeps the codes of one group for the evaluator, row by row. Fetched codes are already flipped. */
bool hcg_keep_group(const hd_tensor *t, hir_dtype dtype, uint64_t first, hcg_group *out) {
    if (dtype == HIR_NVFP4) return keep_nvfp4(t, first, out);
    const hd_packed *p = t->packed;
    const uint64_t at = t->packed_first + first, row = at / p->cols, col = at % p->cols;
    line l = line_of(hd_packed_integers(p, row, col), dtype);
    uint8_t codes[HIR_GROUP], panel[HCG_MOST_GROUP];
    source from = {0};
    if (!keeps(p, &l, dtype, row, col)) return false;
    hd_packed_codes(p, row, col, HIR_GROUP, codes);
    l.in.flip = 0;
    for (unsigned i = 0; i < HIR_PANEL; i++)
        from.rows[i] = i ? nothing : codes;
    put_codes(&l, &from, dtype, 1, panel);
    hcg_get_group(dtype, panel, 0, out);
    return true;
}

/* Copies the group of a row of one panel to a row of another. */
static void copy_lane(hir_dtype dtype, const uint8_t *from, unsigned i, uint8_t *to, unsigned row) {
    const uint64_t first = hcg_group_first(dtype), size = hcg_group_bytes(dtype);
    for (uint64_t at = 0; at < first; at += 2 * HIR_PANEL)
        memcpy(to + at + 2 * row, from + at + 2 * i, 2);
    for (uint64_t at = first; at < size; at += 4 * HIR_PANEL)
        memcpy(to + at + 4 * row, from + at + 4 * i, 4);
}

/* Scattered groups that do not keep their codes: they are collected and rounded once there are
 * enough of them to fill the lanes of a panel. */
typedef struct others {
    float *numbers; /* [HIR_PANEL][HIR_GROUP] */
    unsigned n;
    struct {
        uint8_t *panel; /* where the result goes: the group of a panel */
        unsigned row;   /* and its row there */
    } to[HIR_PANEL];
} others;

static bool round_others(others *o, hir_dtype dtype) {
    uint8_t panel[HCG_MOST_GROUP];
    const hcg_rows numbers = hcg_rows_of(o->numbers, HIR_GROUP);
    if (o->n && !hcg_quantise_rows(dtype, &numbers, o->n, panel)) return false;
    for (unsigned i = 0; i < o->n; i++)
        copy_lane(dtype, panel, i, o->to[i].panel, o->to[i].row);
    o->n = 0;
    return true;
}

/* Adds the group from element `first` of t on. */
static bool add_other(others *o, const hd_tensor *t, hir_dtype dtype, uint64_t first,
                      uint8_t *panel, unsigned row) {
    hd_tensor_to_f32(t, first, HIR_GROUP, o->numbers + o->n * HIR_GROUP);
    o->to[o->n].panel = panel, o->to[o->n].row = row;
    return ++o->n < HIR_PANEL || round_others(o, dtype);
}

/* Finds the lines of the tile from column k on, for the file's rows from `row` on. Their position
 * is computed once for a row, since consecutive tiles are adjacent. */
static void find_lines(const hd_packed *p, hir_dtype dtype, uint64_t row, uint64_t k,
                       unsigned there, uint64_t scales[HIR_PANEL], line lines[HIR_PANEL]) {
    for (unsigned i = 0; i < there; i++) {
        hd_integers in = lines[i].in;
        if (k == 0) scales[i] = hd_packed_scale_index(p, row + i, 0);
        if (k == 0 || p->zeros)
            in = hd_packed_integers(p, row + i, k);
        else
            in.scale = hd_packed_scale(p, scales[i] + k / p->tile.cols * hd_packed_scale_step(p));
        lines[i] = line_of(in, dtype);
    }
}

/* Transposes eight words of eight codes of four bits, separately in each lane: word i gets code i
 * of each word. */
static inline void transpose_codes(hcg_quad x[8]) {
    static const struct {
        int apart;
        uint32_t mask;
    } steps[] = {{1, 0x0f0f0f0f}, {2, 0x00ff00ff}, {4, 0x0000ffff}};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 8; i++) {
            const int j = i + steps[s].apart;
            if (i & steps[s].apart) continue;
            const hcg_quad swapped = ((x[i] >> 4 * steps[s].apart) ^ x[j]) & steps[s].mask;
            x[j] ^= swapped, x[i] ^= swapped << 4 * steps[s].apart;
        }
}

/* Turns AWQ's words, eight outputs of a column, into words of eight columns of a row: [word][row].
 */
static void turn_awq(const hd_packed *p, uint64_t row, uint64_t k, unsigned there,
                     uint32_t out[4][HIR_PANEL]) {
    const uint64_t across = p->rows / 8;
    for (unsigned block = 0; block < there; block += 8) {
        const uint8_t *from = p->codes->data + (k * across + (row + block) / 8) * 4;
        hcg_quad x[8];
        for (unsigned i = 0; i < 8; i++)
            for (unsigned j = 0; j < 4; j++) {
                uint32_t word;
                memcpy(&word, from + (8 * j + i) * across * 4, sizeof word);
                x[i][j] = word;
            }
        transpose_codes(x);
        for (unsigned i = 0; i < 8; i++)
            for (unsigned j = 0; j < 4; j++)
                out[j][block + i] = x[hd_awq_place[i]][j];
    }
}

/* Finds the codes of the group from column k on, for the file's rows from `row` on. */
static void find_source(const hd_packed *p, const line *lines, uint64_t row, uint64_t k,
                        unsigned there, uint32_t turned[4][HIR_PANEL], source *s) {
    hd_known(lines[0].in.bits > 0);
    const uint64_t in_word = 32 / lines[0].in.bits;
    s->there = there;
    for (unsigned i = 0; i < HIR_PANEL && lines[0].in.codes; i++)
        s->rows[i] = i < there ? lines[i].in.codes : nothing;
    if (lines[0].in.codes) return;
    if (p->packing == HD_PACKING_AWQ) {
        turn_awq(p, row, k, there, turned);
        s->words = (const uint8_t *)turned, s->stride = sizeof *turned;
        return;
    }
    s->stride = p->rows * sizeof(uint32_t);
    s->words = p->codes->data + (k / in_word * p->rows + row) * sizeof(uint32_t);
    for (uint64_t i = 0; i < HIR_GROUP / in_word; i++) /* those codes belong to the next panel */
        __builtin_prefetch(s->words + i * s->stride + HIR_PANEL * sizeof(uint32_t));
}

static bool make_integers(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows,
                          uint8_t *out) {
    const hd_packed *p = t->packed;
    const uint64_t left = (uint64_t)t->shape[0] - first,
                   in_file = t->packed_first / p->cols + first;
    const unsigned there = left < HIR_PANEL ? (unsigned)left : HIR_PANEL;
    const uint64_t stride = p->codes->bytes / (uint64_t)p->codes->shape[0];
    uint64_t scales[HIR_PANEL];
    uint32_t turned[4][HIR_PANEL] = {0};
    line lines[HIR_PANEL] = {0};
    source from = {0};
    others o = {.numbers = rows};
    bool ok = true;
    for (uint64_t k = 0; ok && k < p->cols; k += HIR_GROUP, out += hcg_group_bytes(dtype)) {
        if (k % p->tile.cols == 0) find_lines(p, dtype, in_file, k, there, scales, lines);
        find_source(p, lines, in_file, k, there, turned, &from);
        if (there == HIR_PANEL && !from.words) hcg_ask_for_next_panel(from.rows[0], stride, 1);
        put_codes(lines, &from, dtype, there, out);
        for (unsigned row = 0; row < there; row++) {
            if (ok && !keeps(p, &lines[row], dtype, in_file + row, k))
                ok = add_other(&o, t, dtype, (first + row) * p->cols + k, out, row);
            if (!from.words) lines[row].in.codes += HIR_GROUP * lines[row].in.bits / 8;
        }
    }
    return ok && round_others(&o, dtype);
}

bool hcg_make_kept(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows, uint8_t *out) {
    if (dtype == HIR_MXFP4) return copy_mxfp4(t, first, out);
    if (dtype == HIR_NVFP4) return copy_nvfp4(t, first, out);
    return make_integers(t, dtype, first, rows, out);
}
