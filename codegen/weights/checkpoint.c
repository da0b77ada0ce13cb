/* Compares a checkpoint with a module: is every weight there, with its shape, in a dtype that can
 * be converted, and nothing else? It also reads the weights as numbers, for the evaluator. */
#include "codegen/codegen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/weights/convert.h"
#include "codegen/weights/kept.h"
#include "codegen/weights/quant.h"
#include "support/halves.h"
#include "support/packed.h"

enum {
    MAX_HINTS = 20,        /* names for which a similar one is searched */
    MAX_CANDIDATES = 5000, /* names that are compared with them */
    NAMED_PARTS = 10,      /* missing parts of a stacked weight that are named */
    ALL_FAULTS = 1 << 20,  /* all faults of a checkpoint are listed, however many there are */
};

/* Integers count as numbers only where they are meant as such, in a table that selects (ids).
 * Elsewhere they are the words of a quantised format, and as numbers they would be wrong by many
 * powers of ten. */
static bool dtype_fits(hd_tensor_dtype have, hir_dtype want, bool holds_ids) {
    if (want == HIR_I32) return have == HD_T_I32;
    if (have == HD_T_I64 || have == HD_T_I32) return want == HIR_F32 && holds_ids;
    return have == HD_T_F32 || have == HD_T_BF16 || have == HD_T_F16 || have == HD_T_F64;
}

/* For each weight: are its rows gathered and then used as ids? */
static bool *tables_of_ids(const hir_module *m, hd_arena *a) {
    bool *holds_ids = hd_new_array(a, bool, m->weights.n + 1);
    for (size_t i = 0; i < m->ops.n; i++) {
        const hir_op *op = &m->ops.at[i];
        if (op->erased || op->code != HIR_TO_IDS_OP || op->args[0].kind != HIR_REF_VALUE) continue;
        const hir_id made_by = hir_value_at(m, op->args[0].index)->op;
        const hir_op *gather = made_by == HIR_NONE ? NULL : hir_op_at(m, made_by);
        if (gather && gather->code == HIR_GATHER_OP && gather->args[0].kind == HIR_REF_WEIGHT)
            holds_ids[gather->args[0].index] = true;
    }
    return holds_ids;
}

/* A stack of matrices [G, N, K] may be stored as one of all their rows, [G N, K]. */
static bool is_joined(const hd_tensor *t, hir_type type) {
    return t->rank == 2 && type.rank == 3 && t->shape[0] == type.dim[0] * type.dim[1] &&
           t->shape[1] == type.dim[2];
}

/* One number [1] may be stored without axes, []. */
static bool is_bare_number(const hd_tensor *t, hir_type type) {
    return t->rank == 0 && type.rank == 1 && type.dim[0] == 1;
}

static bool shape_fits(const hd_tensor *t, hir_type type) {
    if (is_joined(t, type) || is_bare_number(t, type)) return true;
    if (t->rank != type.rank) return false;
    for (uint32_t i = 0; i < type.rank; i++)
        if (t->shape[i] != type.dim[i]) return false;
    return true;
}

static const char *shape_text(hd_arena *a, hir_type type) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_add(&t, "[");
    for (uint32_t i = 0; i < type.rank; i++)
        hd_text_f(&t, "%s%lld", i ? ", " : "", (long long)type.dim[i]);
    hd_text_add(&t, "]");
    return t.at;
}

static const char *tensor_text(hd_arena *a, const hd_tensor *t) {
    hd_text text;
    hd_text_init(&text, a);
    hd_tensor_print_type(&text, t);
    return text.at;
}

/* Checks the shape and dtype of a tensor that exists. */
static bool check_tensor(const hir_weight *w, const hd_tensor *t, bool holds_ids, hd_diags *d) {
    if (!shape_fits(t, w->type)) {
        hd_diag *g = hd_err(d, HD_E_WEIGHTS, w->loc,
                            "weight '%s' is %s in the checkpoint, %s in "
                            "the model",
                            w->name, tensor_text(d->arena, t), shape_text(d->arena, w->type));
        if (t->rank == 2 && w->type.rank == 2 && t->shape[0] == w->type.dim[1] &&
            t->shape[1] == w->type.dim[0])
            g->hint = "it may be stored transposed; a linear weight is [out, in]";
        return false;
    }
    if (dtype_fits(t->dtype, w->type.dtype, holds_ids)) return true;
    hd_diag *g = hd_err(d, HD_E_WEIGHTS, w->loc,
                        "weight '%s' has the dtype %s, which cannot be "
                        "converted to %s",
                        w->name, hd_tensor_dtype_name(t->dtype), hir_dtype_name(w->type.dtype));
    g->cause = "weights are read from F32, BF16, F16 and F64, and from the quantised forms in "
               "docs/quantised-checkpoints.md";
    if (t->dtype != HD_T_BOOL)
        g->hint =
            "if the checkpoint is quantised, quantization_config in config.json has to say how";
    return false;
}

/* ---- matrices of a weight -------------------------------------------------------------------- */

int64_t hcg_matrices(const hir_weight *w) {
    return w->type.rank == 3 ? w->type.dim[0] : 1;
}

hd_tensor hcg_find_matrix(hd_arena *a, const hd_tensors *weights, const hir_weight *w, int64_t i) {
    const hir_weight part = hir_part_of(a, w, i);
    hd_tensor t = *hd_tensors_find(weights, part.name);
    if (is_joined(&t, part.type)) {
        t.rank = part.type.rank;
        memcpy(t.shape, part.type.dim, t.rank * sizeof *t.shape);
    }
    return t.rank == 3 ? hd_tensor_at(&t, i) : t;
}

typedef HD_VEC(const char *) name_list;

/* "did you mean", among the names that are unmatched on the other side. */
static void hint_nearest(hd_diag *g, const char *name, const name_list *names, size_t given,
                         hd_diags *d) {
    if (given >= MAX_HINTS || names->n > MAX_CANDIDATES) return;
    const char *near = hd_nearest(name, names->at, names->n);
    if (near) g->hint = hd_printf(d->arena, "did you mean '%s'?", near);
}

static void report_missing(const hir_module *m, const name_list *missing, const name_list *extra,
                           hd_diags *d) {
    for (size_t i = 0; i < missing->n; i++) {
        const hir_weight *w = &m->weights.at[hir_find_weight(m, missing->at[i])];
        hd_diag *g = hd_err(d, HD_E_WEIGHTS, w->loc,
                            "weight '%s' %s is missing from the "
                            "checkpoint",
                            w->name, shape_text(d->arena, w->type));
        hint_nearest(g, w->name, extra, i, d);
        if (!g->hint && hcg_is_head(w->name))
            g->hint = "if the head is the embedding, config.json has to say "
                      "\"tie_word_embeddings\": true";
    }
}

/* Missing parts of a stacked weight: one error for all, since there may be thousands. */
static void report_missing_parts(const hir_weight *w, const name_list *missing, hd_diags *d) {
    const size_t named = missing->n < NAMED_PARTS ? missing->n : NAMED_PARTS;
    hd_text names;
    hd_text_init(&names, d->arena);
    for (size_t i = 0; i < named; i++)
        hd_text_f(&names, "%s%s", i ? ", " : "missing are ", missing->at[i]);
    if (missing->n > named) hd_text_f(&names, " and %zu more", missing->n - named);
    hd_err(d, HD_E_WEIGHTS, w->loc,
           "%zu of the %lld tensors of weight '%s' %s are missing from the checkpoint", missing->n,
           (long long)w->type.dim[0], w->name, shape_text(d->arena, w->type))
        ->cause = names.at;
}

static void report_extra(const hd_tensors *weights, const name_list *missing,
                         const name_list *extra, hd_diags *d) {
    for (size_t i = 0; i < extra->n; i++) {
        const hd_tensor *t = hd_tensors_find(weights, extra->at[i]);
        hd_text name;
        hd_text_init(&name, d->arena);
        hd_text_quoted(&name, t->name); /* a name from a file may contain any character */
        hd_diag *g = hd_err(d, HD_E_WEIGHTS, (hd_loc){.file = t->file},
                            "tensor %s %s of the checkpoint is no weight of the model", name.at,
                            tensor_text(d->arena, t));
        hint_nearest(g, t->name, missing, i, d);
    }
}

typedef struct seen { /* which tensors of a checkpoint are weights of the model */
    const hd_tensors *weights;
    bool *is_weight;
} seen;

static const hd_tensor *see(seen *s, const char *name) {
    const hd_tensor *t = hd_tensors_find(s->weights, name);
    if (t) s->is_weight[t - s->weights->list.at] = true;
    return t;
}

static void check_parts(const hir_weight *w, seen *s, hd_diags *d) {
    name_list missing = {0};
    for (int64_t i = 0; i < w->type.dim[0]; i++) {
        const hir_weight part = hir_part_of(d->arena, w, i);
        const hd_tensor *t = see(s, part.name);
        if (t)
            check_tensor(&part, t, false, d);
        else
            hd_push(d->arena, &missing, part.name);
    }
    if (missing.n && !w->unused) report_missing_parts(w, &missing, d);
}

/* A text with '*' for each component of a name that is a number: texts on different layers become
 * equal. */
static const char *kind_of(hd_arena *a, const char *text) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_add(&t, "");
    for (const char *p = text; *p;) {
        const size_t digits = strspn(p, "0123456789");
        const bool whole = digits > 0 && p > text && p[-1] == '.' && p[digits] == '.';
        hd_text_add_n(&t, whole ? "*" : p, 1);
        p += whole ? digits : 1;
    }
    return t.at;
}

/* Errors from number `first` on that differ in the layer alone are joined into one that counts
 * them. */
static void join_alike(hd_diags *d, size_t first) {
    enum { KINDS = 200 }; /* that are distinguished; errors of further kinds are not joined */
    struct kind {
        const char *text, *last;
        size_t at, more;
    } kinds[KINDS];
    size_t n_kinds = 0, kept = first;
    for (size_t i = first; i < d->list.n; i++) {
        const hd_diag g = d->list.at[i];
        const char *text = kind_of(d->arena, g.message);
        size_t k = 0;
        while (k < n_kinds && strcmp(kinds[k].text, text) != 0)
            k++;
        if (k < n_kinds) {
            kinds[k].more++, kinds[k].last = g.message;
            d->errors--;
            continue;
        }
        if (k < KINDS) kinds[n_kinds++] = (struct kind){text, NULL, kept, 0};
        d->list.at[kept++] = g;
    }
    d->list.n = kept;
    for (size_t k = 0; k < n_kinds; k++) {
        hd_diag *g = &d->list.at[kinds[k].at];
        if (!kinds[k].more) continue;
        const char *all = hd_printf(d->arena, "%zu more of this kind, the last: %s", kinds[k].more,
                                    kinds[k].last);
        g->cause = g->cause ? hd_printf(d->arena, "%s; %s", g->cause, all) : all;
    }
}

bool hcg_check_weights(const hir_module *m, hd_diags *d, const hd_tensors *weights) {
    size_t errors = d->errors, limit = d->limit, before = d->list.n;
    name_list missing = {0}, extra = {0};
    seen s = {weights, hd_new_array(d->arena, bool, weights->list.n + 1)};
    const bool *holds_ids = tables_of_ids(m, d->arena);
    d->limit = ALL_FAULTS;
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (hir_is_derived(w)) continue;
        if (w->stacked) {
            check_parts(w, &s, d);
            continue;
        }
        const hd_tensor *t = see(&s, w->name);
        if (t)
            check_tensor(w, t, holds_ids[i] || w->unused, d);
        else if (!w->unused)
            hd_push(d->arena, &missing, w->name);
    }
    for (size_t i = 0; i < weights->list.n; i++) {
        const char *name = weights->list.at[i].name;
        if (!s.is_weight[i] && !weights->list.at[i].optional &&
            hir_unused_below(m, name) == m->unused_below.n)
            hd_push(d->arena, &extra, name);
    }
    report_missing(m, &missing, &extra, d);
    report_extra(weights, &missing, &extra, d);
    d->limit = limit;
    join_alike(d, before);
    return d->errors == errors;
}

/* Tensors that nothing reads and whose names begin with one prefix, or with several. */
typedef struct unread {
    size_t n, beginnings;
    size_t beginning; /* length of the prefix of the last one */
    bool several;     /* they have prefixes that match one pattern */
    uint64_t bytes;
} unread;

static void note_unread(hd_diags *d, const unread *u, const char *beginning) {
    const char *others = "";
    if (u->beginnings > 1)
        others = hd_printf(d->arena, " and %zu other beginnings of names", u->beginnings - 1);
    hd_note(d, HD_NOWHERE,
            "%zu tensor%s below '%s'%s (%llu bytes) belong%s to another part of the "
            "checkpoint and %s left out",
            u->n, u->n == 1 ? "" : "s", beginning, others, (unsigned long long)u->bytes,
            u->n == 1 ? "s" : "", u->n == 1 ? "is" : "are");
}

/* The prefix with a '*' for each component that is a number: the prefixes of layers become one
 * pattern. */
static const char *pattern_of(hd_arena *a, const char *beginning) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_add(&t, "");
    for (const char *p = beginning; *p;) {
        const size_t n = strcspn(p, "."), digits = strspn(p, "0123456789");
        if (n > 0 && digits == n)
            hd_text_add(&t, "*");
        else
            hd_text_add_n(&t, p, n);
        p += n;
        if (*p) hd_text_add_n(&t, p++, 1);
    }
    return t.at;
}

/* The prefixes of names, the first one for all prefixes of one pattern. */
typedef struct beginnings {
    const char **name;
    size_t *first, n;
} beginnings;

static beginnings group_beginnings(const hir_module *m, hd_arena *a) {
    beginnings b = {.n = m->unused_below.n};
    b.name = hd_new_array(a, const char *, b.n + 1);
    b.first = hd_new_array(a, size_t, b.n + 1);
    for (size_t i = 0; i < b.n; i++) {
        b.name[i] = pattern_of(a, m->unused_below.at[i]);
        b.first[i] = 0;
        while (strcmp(b.name[b.first[i]], b.name[i]) != 0)
            b.first[i]++;
    }
    return b;
}

/* Notes how much of the checkpoint belongs to other parts of it, which nothing reads: one note for
 * each part, or one for all if there are many. */
static void note_unused_below(const hir_module *m, hd_diags *d, const hd_tensors *weights) {
    enum { FEW = 8 };
    const beginnings b = group_beginnings(m, d->arena);
    unread *of = hd_new_array(d->arena, unread, b.n + 1), all = {0};
    size_t first = b.n;
    for (size_t k = 0; k < weights->list.n; k++) {
        const hd_tensor *t = &weights->list.at[k];
        const size_t found = hir_unused_below(m, t->name);
        if (found == b.n || hir_find_weight(m, t->name) != HIR_NONE) continue;
        const size_t i = b.first[found];
        if (of[i].n > 0 && of[i].beginning != found) of[i].several = true;
        of[i].beginning = found;
        all.beginnings += of[i].n == 0;
        of[i].n++, of[i].bytes += t->bytes;
        all.n++, all.bytes += t->bytes;
        if (i < first) first = i;
    }
    if (all.beginnings > FEW) {
        note_unread(d, &all, m->unused_below.at[first]);
        return;
    }
    for (size_t i = 0; i < b.n; i++)
        if (of[i].n > 0)
            note_unread(d, &of[i], of[i].several ? b.name[i] : m->unused_below.at[of[i].beginning]);
}

void hcg_warn_of_absent(const hir_module *m, hd_diags *d, const hd_tensors *weights) {
    note_unused_below(m, d, weights);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (!w->unused || hir_is_derived(w) || w->stacked || hd_tensors_find(weights, w->name))
            continue;
        hd_warn(d, HD_E_WEIGHTS, w->loc,
                "weight '%s' %s is missing from the checkpoint; no result depends on it", w->name,
                shape_text(d->arena, w->type));
    }
}

/* ---- as numbers ------------------------------------------------------------------------------ */

/* f32 holds all narrower floats exactly. f64 is rounded to odd in f32 first, which keeps what the
 * rounding to the narrow type needs: the result is as if it were rounded once. */
static void narrow(const hd_tensor *t, uint64_t first, uint64_t n, hir_dtype to, uint16_t *out) {
    enum { SOME = 256 };
    float block[SOME];
    double wide[SOME];
    for (uint64_t some; n > 0; n -= some, first += some, out += some) {
        some = n < SOME ? n : SOME;
        if (t->dtype == HD_T_F64) {
            hd_tensor_to_f64(t, first, some, wide);
            hd_odd_f32s(wide, some, block);
        } else {
            hd_tensor_to_f32(t, first, some, block);
        }
        to == HIR_BF16 ? hd_bf16s_from_f32(block, some, out) : hd_f16s_from_f32(block, some, out);
    }
}

static void convert(const hd_tensor *t, uint64_t first, uint64_t n, hir_dtype to, void *out) {
    const bool same = !t->packed && ((to == HIR_BF16 && t->dtype == HD_T_BF16) ||
                                     (to == HIR_F16 && t->dtype == HD_T_F16));
    if (to == HIR_F32)
        hd_tensor_to_f32(t, first, n, out);
    else if (same)
        memcpy(out, t->data + first * 2, (size_t)n * 2);
    else
        narrow(t, first, n, to, out);
}

/* An exponent whose bits are all ones is that of infinities and NaN. The loops have no early exit,
 * so that compilers vectorise them. */
static bool words_are_finite(const uint32_t *x, uint64_t n) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= (x[i] & 0x7f800000u) == 0x7f800000u;
    return !bad;
}

static bool halves_are_finite(const uint16_t *x, uint64_t n, uint16_t exponent) {
    uint16_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= (x[i] & exponent) == exponent;
    return !bad;
}

bool hcg_convert(const hd_tensor *t, uint64_t first, uint64_t n, hir_dtype to, void *out) {
    if (to == HIR_I32) {
        memcpy(out, t->data + first * 4, (size_t)n * 4);
        return true;
    }
    convert(t, first, n, to, out);
    if (to == HIR_F32) return words_are_finite(out, n);
    return halves_are_finite(out, n, to == HIR_BF16 ? 0x7f80 : 0x7c00);
}

/* ---- numbers that cannot be stored ----------------------------------------------------------- */

/* The value of x after storing it as `to`, element by element; x itself for types that are stored
 * in groups. */
static double stored(double x, hir_dtype to) {
    return (float)hir_rounded(to, x);
}

/* "[3, 77]" of element i. */
static const char *index_text(hd_arena *a, const hd_tensor *t, uint64_t i) {
    uint64_t index[HD_TENSOR_MAX_RANK] = {0};
    hd_text text;
    for (uint32_t k = t->rank; k-- > 0; i /= (uint64_t)t->shape[k])
        index[k] = i % (uint64_t)t->shape[k];
    hd_text_init(&text, a);
    for (uint32_t k = 0; k < t->rank; k++)
        hd_text_f(&text, "%s%llu", k ? ", " : "[", (unsigned long long)index[k]);
    hd_text_add(&text, "]");
    return text.at;
}

/* Reports element i of t, which is element `first + i` of `whole`. */
static bool reject_element(hd_diags *d, const hir_weight *w, const hd_tensor *t, uint64_t i,
                           const hd_tensor *whole, uint64_t first) {
    const double x = hd_tensor_get(t, i);
    const char *at = index_text(d->arena, whole, first + i), *dtype = hir_dtype_name(w->type.dtype);
    const hd_loc loc = t->file ? (hd_loc){.file = t->file} : w->loc;
    if (!isfinite(x)) {
        hd_diag *g = hd_err(d, HD_E_WEIGHTS, loc, "weight '%s' is %s at %s", t->name,
                            isnan(x) ? "not a number"
                            : x > 0  ? "infinite"
                                     : "minus infinity",
                            at);
        g->cause = "one such weight makes every result that it reaches useless";
        g->hint = "the training diverged, a conversion to f16 overflowed, or the file is damaged: "
                  "take another checkpoint";
        if (t->packed) g->cause = hd_packed_fault(d->arena, t, i);
        return false;
    }
    hd_diag *g = hd_err(d, HD_E_WEIGHTS, loc, "weight '%s' cannot be stored as %s", w->name, dtype);
    g->cause = hd_printf(d->arena, "it is %g at %s, more than %s holds", x, at, dtype);
    if (w->type.dtype != HIR_F32)
        g->hint = hd_printf(d->arena, "store it wider: --weights-dtype '...,%s=f32'", w->name);
    else
        g->hint = "f32 is the widest type that weights are stored in: scale the weight";
    return false;
}

bool hcg_reject_part(hd_diags *d, const hir_weight *w, const hd_tensor *t, const hd_tensor *whole,
                     uint64_t first) {
    for (uint64_t i = 0; i < t->elements; i++)
        if (!isfinite(stored(hd_tensor_get(t, i), w->type.dtype)))
            return reject_element(d, w, t, i, whole, first);
    hd_diag *g = hd_err(d, HD_E_WEIGHTS, w->loc, "weight '%s' cannot be stored as %s", w->name,
                        hir_dtype_name(w->type.dtype));
    g->cause = w->type.dtype == HIR_NVFP4
                   ? "a number in it is more than 92160, which nvfp4 holds without a factor"
                   : "a number in it is too large for a scale in f16";
    g->hint = hd_printf(d->arena, "store it wider: --weights-dtype '...,%s=f32'", w->name);
    return false;
}

bool hcg_reject_values(hd_diags *d, const hir_weight *w, const hd_tensor *t) {
    return hcg_reject_part(d, w, t, t, 0);
}

/* The groups of a row of K elements from `first` on, as the packer makes them. */
static bool groups_of_row(hir_dtype dtype, const hd_tensor *t, uint64_t first, uint64_t K,
                          float *row, hcg_group *out) {
    hd_tensor_to_f32(t, first, K, row);
    if (dtype == HIR_MXFP4 || !hcg_may_keep(t, dtype)) return hcg_quantise_row(dtype, row, K, out);
    const bool whole = dtype == HIR_NVFP4; /* a row of it is kept or rounded as a whole */
    bool ok = true;                        /* MXFP4 is exact in mxfp4 with either function */
    for (uint64_t k = 0; ok && k < K; k += HIR_GROUP)
        ok = hcg_keep_group(t, dtype, first + k, &out[k / HIR_GROUP]) ||
             (!whole && hcg_quantise(dtype, row + k, &out[k / HIR_GROUP]));
    return ok || (whole && hcg_quantise_row(dtype, row, K, out));
}

/* Replaces the numbers of a matrix by their values after it is stored in groups. */
static bool quantised_source(const hir_weight *w, const hd_tensor *t, double *out, hd_diags *d) {
    uint64_t K = (uint64_t)t->shape[t->rank - 1], groups = (K + HIR_GROUP - 1) / HIR_GROUP;
    float *row = malloc(K * sizeof *row);
    hcg_group *g = malloc(groups * sizeof *g);
    bool ok = row && g;
    if (!ok) hd_err(d, HD_E_MEMORY, w->loc, "no memory for a row of weight '%s'", w->name);
    for (uint64_t first = 0; ok && first < t->elements; first += K) {
        if (!groups_of_row(w->type.dtype, t, first, K, row, g)) {
            ok = hcg_reject_values(d, w, t);
            break;
        }
        for (uint64_t k = 0; k < K; k++)
            out[first + k] = hcg_group_at(w->type.dtype, &g[k / HIR_GROUP], k % HIR_GROUP);
    }
    free(row);
    free(g);
    return ok;
}

/* Reads a weight that is one tensor. A type narrower than f32 is requested by the model, so its
 * rounding is part of what the model computes. To f32, a checkpoint with wider numbers (scales of
 * fp8 in f32) is rounded as all numbers are that compiled code computes with; the evaluator gets
 * the unrounded numbers. */
static bool read_tensor(const hd_tensors *weights, const hir_weight *w, double *out, hd_diags *d) {
    const hd_tensor *t = hd_tensors_find(weights, w->name);
    if (!t) {
        hd_err(d, HD_E_WEIGHTS, w->loc, "weight '%s' is missing from the checkpoint", w->name);
        return false;
    }
    if (!check_tensor(w, t, true, d)) return false; /* whether it may hold ids was checked before */
    if (hir_is_quantised(w->type.dtype)) return quantised_source(w, t, out, d);
    for (uint64_t i = 0; i < t->elements; i++) {
        const double x = hd_tensor_get(t, i), in_storage = stored(x, w->type.dtype);
        const bool exactly = w->type.dtype == HIR_I32 || w->type.dtype == HIR_F32;
        out[i] = exactly ? x : in_storage;
        if (!isfinite(in_storage)) return reject_element(d, w, t, i, t, 0);
    }
    return true;
}

/* Rounds the numbers of a derived weight to their values when they are stored in groups. */
static bool round_derived(const hir_weight *w, double *at, hd_diags *d) {
    const uint64_t row = (uint64_t)hir_derived_row_elements(w->type);
    const uint64_t n = (uint64_t)hir_type_row_elements(w->type);
    float *x = malloc(n * sizeof *x);
    if (!x) return !hd_err(d, HD_E_MEMORY, w->loc, "no memory for weight '%s'", w->name);
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)at[i];
    hd_tensor t = {.name = w->name, .dtype = HD_T_F32, .rank = 2};
    t.shape[0] = (int64_t)(n / row), t.shape[1] = (int64_t)row;
    hd_tensor_measure(&t);
    t.data = (const uint8_t *)x;
    const bool ok = quantised_source(w, &t, at, d);
    free(x);
    return ok;
}

bool hcg_weight_source(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d) {
    const hir_weight *weight = &m->weights.at[w];
    if (hir_is_derived(weight)) return round_derived(weight, out, d);
    const int64_t parts = hir_parts(weight), each = hir_type_row_elements(weight->type) / parts;
    for (int64_t i = 0; i < parts; i++) {
        const hir_weight part = hir_part_of(d->arena, weight, i);
        if (!read_tensor(context, &part, out + i * each, d)) return false;
    }
    return true;
}

/* The weight, stored in groups, that holds the matrices of weight `name` transposed; NULL: none. */
static const hir_weight *transposed_in_groups(const hir_module *m, const char *name) {
    const hir_id source = hir_find_weight(m, name);
    for (size_t i = 0; source != HIR_NONE && i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (hir_is_quantised(w->type.dtype) && hir_transposed_source(m, w) == source) return w;
    }
    return NULL;
}

bool hcg_rounded_source(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d) {
    const hcg_rounded_weights *all = context;
    const hir_weight *weight = &m->weights.at[w];
    const hir_weight *made = transposed_in_groups(all->packed, weight->name);
    if (!hcg_weight_source((void *)all->checkpoint, m, w, out, d)) return false;
    if (!made) return true;
    const int64_t *dim = made->type.dim + made->type.rank - 2, each = dim[0] * dim[1];
    const int64_t n = hir_type_row_elements(made->type);
    double *rows = calloc((size_t)n, sizeof *rows);
    if (!rows)
        return !hd_err(d, HD_E_MEMORY, weight->loc, "no memory for weight '%s'", weight->name);
    for (int64_t at = 0; at < n; at += each)
        hir_transpose_rows(out + at, each, dim[0], rows + at);
    const bool ok = round_derived(made, rows, d);
    for (int64_t at = 0; ok && at < n; at += each)
        hir_transpose_rows(rows + at, each, dim[1], out + at);
    free(rows);
    return ok;
}
