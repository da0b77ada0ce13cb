/* Weights that are not stored like this in a checkpoint: the share of a weight that a rank has, and
 * weights computed from others when weights are packed. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/ir.h"

/* ---- shards ---------------------------------------------------------------------------------- */

/* The share of a weight that a rank has, and the share that a comm op specifies. The arithmetic is
 * in support/share.h. */

const char *hir_why_no_share(const hd_share *s) {
    int64_t units;
    if (s->ranks < 2 || s->ranks > HIR_MAX_RANKS) return "there is one rank, or there are too many";
    if (s->groups < 1 || s->units < 1) return "groups and units count from 1";
    if (hd_mul_overflow(s->groups, s->units, &units) || s->whole < units || s->whole % units)
        return "the units of all groups do not divide the dim";
    return NULL;
}

hir_type hir_whole_type(const hir_weight *w) {
    hir_type t = w->type;
    if (w->share.on) t.dim[w->share.dim] = w->share.share.whole;
    return t;
}

void hir_shard_weight(hir_weight *w, uint32_t dim, hd_share share) {
    w->share = (hir_weight_share){.on = true, .dim = dim, .share = share};
    w->type.dim[dim] = hd_local_elements(&share);
}

const hir_module *hir_with_whole_weights(const hir_module *m, hd_arena *a) {
    if (!m->ranks) return m;
    hir_module *whole = hd_new(a, hir_module);
    *whole = *m;
    whole->weights.at = hd_new_array(a, hir_weight, m->weights.n);
    for (size_t i = 0; i < m->weights.n; i++) {
        whole->weights.at[i] = m->weights.at[i];
        whole->weights.at[i].type = hir_whole_type(&m->weights.at[i]);
        whole->weights.at[i].share.on = false;
    }
    return whole;
}

void hir_take_share(const hir_weight *w, int64_t rank, size_t size, const void *whole, void *part) {
    const hd_share *s = &w->share.share;
    size_t outer = 1, inner = size * (size_t)hd_unit_elements(s);
    for (uint32_t i = 0; i < w->type.rank; i++) {
        if (i < w->share.dim) outer *= (size_t)w->type.dim[i];
        if (i > w->share.dim) inner *= (size_t)w->type.dim[i];
    }
    const size_t units = (size_t)(s->groups * s->units);
    const size_t local = (size_t)(hd_local_groups(s) * hd_local_units(s));
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < local; i++) {
            const int64_t unit = hd_unit_of(s, rank, (int64_t)i);
            unsigned char *to = (unsigned char *)part + (o * local + i) * inner;
            if (unit < 0)
                memset(to, 0, inner);
            else
                memcpy(to, (const unsigned char *)whole + (o * units + (size_t)unit) * inner,
                       inner);
        }
}

bool hir_share_of_op(const hir_module *m, const hir_op *op, int64_t whole, hd_share *out) {
    *out = (hd_share){.ranks = m->ranks,
                      .whole = whole,
                      .groups = hir_attr_int(op, HIR_A_GROUPS, 1),
                      .units = hir_attr_int(op, HIR_A_UNITS, 1),
                      .repeat = strcmp(hir_attr_string(op, HIR_A_PAD, "zero"), "repeat") == 0};
    return hir_find_attr(op, HIR_A_AXIS) != NULL;
}

/* ---- derived weights ------------------------------------------------------------------------- */

/* The evaluator (ir/eval/eval.c) and the packer (codegen/weights/pack.c) compute their elements,
 * with the functions of this section. */

const char *hir_derived_by_name(hir_derived_by by) {
    static const char *const names[] = {
#define M(id, name, meaning) name,
#include "ir/derived.def"
#undef M
    };
    return names[by];
}

static const struct {
    const char *word;
    double number;
} inits[] = {
#define I(id, word, number) {word, number},
    HIR_INITS(I)
#undef I
};

const char *hir_init_word(hir_init_kind kind) {
    return inits[kind].word;
}

double hir_init_number(hir_init_kind kind) {
    return inits[kind].number;
}

const char *hir_init_text(hd_arena *a, hir_init init) {
    hd_text text;
    if (init.n == 0 && init.deviation == 0) return hir_init_word(init.kind);
    hd_text_init(&text, a);
    if (init.n == 0) hd_text_double(&text, init.deviation);
    for (uint32_t i = 0; i < init.n; i++) {
        hd_text_add(&text, i ? ", " : "[");
        hd_text_double(&text, init.numbers[i]);
    }
    if (init.n) hd_text_add(&text, "]");
    return text.at;
}

bool hir_same_init(hir_init x, hir_init y) {
    if (x.kind != y.kind || x.deviation != y.deviation || x.n != y.n) return false;
    for (uint32_t i = 0; i < x.n; i++)
        if (x.numbers[i] != y.numbers[i]) return false;
    return true;
}

hir_init hir_copy_init(hd_arena *a, hir_init init) {
    if (init.n == 0) return init;
    double *copy = hd_new_array(a, double, init.n);
    memcpy(copy, init.numbers, init.n * sizeof *copy);
    init.numbers = copy;
    return init;
}

const char *hir_why_no_init(const hir_weight *w) {
    if (w->init.n == 0) return NULL;
    if (w->stacked) return "a list of numbers begins one tensor, not a stack of them";
    if (w->init.n > 1 && hir_type_row_elements(hir_whole_type(w)) != w->init.n)
        return "a list of numbers has one for each entry, or one for all";
    for (uint32_t i = 0; i < w->init.n; i++)
        if (!hir_is_initial(w->init.numbers[i])) return "weights begin as numbers that f32 has";
    return NULL;
}

bool hir_is_deviation(double x) {
    return x >= 0x1p-126 && x <= 0x1p127;
}

bool hir_is_initial(double x) {
    return fabs(x) <= FLT_MAX;
}

const hir_derived_row *hir_copy_derived_rows(hd_arena *a, const hir_derived_row *rows, uint32_t n) {
    hir_derived_row *copy = hd_new_array(a, hir_derived_row, n);
    for (uint32_t r = 0; r < n; r++) {
        copy[r] = (hir_derived_row){rows[r].n, hd_new_array(a, hir_derived_factor, rows[r].n)};
        for (uint32_t k = 0; k < rows[r].n; k++) {
            copy[r].factor[k] = rows[r].factor[k];
            copy[r].factor[k].name = hd_strdup(a, rows[r].factor[k].name);
        }
    }
    return copy;
}

uint32_t hir_add_derived_weight(hir_module *m, const char *name, hir_type type,
                                const hir_derived_row *rows, uint32_t n_rows, hd_loc loc) {
    uint32_t i = hir_add_weight(m, name, type, loc);
    m->weights.at[i].n_rows = n_rows;
    m->weights.at[i].rows = hir_copy_derived_rows(m->arena, rows, n_rows);
    return i;
}

int64_t hir_derived_row_elements(hir_type t) {
    return t.rank >= 2 ? t.dim[t.rank - 1] : 1;
}

int64_t hir_derived_rows(const hir_module *m, const hir_derived_row *block, int64_t row) {
    int64_t rows = 1;
    for (uint32_t i = 0; i < block->n; i++) {
        const uint32_t at = hir_find_weight(m, block->factor[i].name);
        if (at == HIR_NONE) continue;
        const int64_t all = hir_type_row_elements(m->weights.at[at].type),
                      n = hir_factor_elements(&block->factor[i], all) / row;
        if (n > rows) rows = n;
    }
    return rows;
}

static bool same_factor(const hir_derived_factor *a, const hir_derived_factor *b) {
    return a->by == b->by && a->first == b->first && a->n == b->n && !strcmp(a->name, b->name);
}

bool hir_same_derived_row(const hir_derived_row *a, const hir_derived_row *b) {
    bool same = a->n == b->n;
    for (uint32_t k = 0; same && k < a->n; k++)
        same = same_factor(&a->factor[k], &b->factor[k]);
    return same;
}

hir_id hir_transposed_source(const hir_module *m, const hir_weight *w) {
    if (!hir_is_derived(w) || w->type.rank < 2) return HIR_NONE;
    const hir_id source = hir_find_weight(m, w->rows[0].factor[0].name);
    if (source == HIR_NONE) return HIR_NONE;
    const hir_type from = hir_whole_type(&m->weights.at[source]), to = hir_whole_type(w);
    const uint32_t rank = from.rank, n = rank == 3 ? (uint32_t)from.dim[0] : 1;
    if (rank != to.rank || w->n_rows != n || from.dim[rank - 2] != to.dim[rank - 1] ||
        from.dim[rank - 1] != to.dim[rank - 2])
        return HIR_NONE;
    const int64_t each = from.dim[rank - 2] * from.dim[rank - 1], all = n * each;
    for (uint32_t i = 0; i < n; i++) {
        const hir_derived_factor *f = w->rows[i].factor;
        if (w->rows[i].n != 1 || f->by != HIR_DERIVED_TRANSPOSED || f->first != i * each ||
            hir_factor_elements(f, all) != each || strcmp(f->name, m->weights.at[source].name) != 0)
            return HIR_NONE;
    }
    return source;
}

static void softmax(double *x, int64_t n) {
    double max = x[0], sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > max || isnan(x[i])) max = x[i];
    for (int64_t i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - max);
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}

void hir_transpose_rows(const double *x, int64_t n, int64_t row, double *y) {
    const int64_t rows = n / row;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < row; k++)
            y[k * rows + i] = x[i * row + k];
}

void hir_derive_elements(hir_derived_by by, double *x, int64_t n) {
    if (by == HIR_DERIVED_SOFTMAX && n > 0) softmax(x, n);
    for (int64_t i = 0; by == HIR_DERIVED_SIGMOID && i < n; i++)
        x[i] = 1 / (1 + exp(-x[i]));
    const bool is_exp = by == HIR_DERIVED_EXP || by == HIR_DERIVED_NEG_EXP;
    for (int64_t i = 0; is_exp && i < n; i++)
        x[i] = exp(x[i]);
    const bool is_neg = by == HIR_DERIVED_NEG || by == HIR_DERIVED_NEG_EXP;
    for (int64_t i = 0; is_neg && i < n; i++)
        x[i] = -x[i];
}
