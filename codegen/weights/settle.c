/* What checkpoints contain that is not a weight of the model and yet no fault: tables that a model
 * computes itself, names with other prefixes, and the copy of an embedding that is the head. */
#include "codegen/codegen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/weights/convert.h"
#include "support/packed.h"

typedef struct settling {
    const hir_module *m;
    hd_diags *d;
    hd_tensors *t;
    bool *is_weight; /* of each tensor */
} settling;

static const char *behind_last_dot(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool is_extra(const settling *s, size_t i) {
    const hd_tensor *t = &s->t->list.at[i];
    return !s->is_weight[i] && !t->optional &&
           hir_unused_below(s->m, t->name) == s->m->unused_below.n;
}

/* Removes the marked tensors; they are not read any more. */
static void take_out(settling *s, const bool *marked) {
    size_t n = 0;
    for (size_t i = 0; i < s->t->list.n; i++) {
        if (marked[i]) continue;
        s->is_weight[n] = s->is_weight[i];
        s->t->list.at[n++] = s->t->list.at[i];
    }
    s->t->list.n = n;
}

/* ---- names that a model needs ---------------------------------------------------------------- */

typedef HD_VEC(const char *) names;

/* The names of the weights that are missing. */
static names find_weights(settling *s) {
    names missing = {0};
    for (size_t i = 0; i < s->m->weights.n; i++) {
        const hir_weight *w = &s->m->weights.at[i];
        if (hir_is_derived(w)) continue;
        for (int64_t p = 0; p < hir_parts(w); p++) {
            const char *name = w->stacked ? hir_part_of(s->d->arena, w, p).name : w->name;
            const hd_tensor *t = hd_tensors_find(s->t, name);
            if (t)
                s->is_weight[t - s->t->list.at] = true;
            else if (!w->unused)
                hd_push(s->d->arena, &missing, name);
        }
    }
    return missing;
}

/* ---- other prefixes -------------------------------------------------------------------------- */

/* Names of the model begin with the first n bytes of `in_model`, those of the file with the first
 * `n_file` bytes of `in_file`; the rest is equal. */
typedef struct prefixes {
    const char *in_model, *in_file;
    size_t n, n_file, fits;
} prefixes;

/* The length in bytes of the common end of two names, from the beginning of a component on. */
static size_t common_end(const char *a, const char *b) {
    const size_t na = strlen(a), nb = strlen(b);
    size_t n = 0, whole = 0;
    while (n < na && n < nb && a[na - n - 1] == b[nb - n - 1]) {
        n++;
        const bool a_begins = n == na || a[na - n - 1] == '.',
                   b_begins = n == nb || b[nb - n - 1] == '.';
        if (a_begins && b_begins) whole = n;
    }
    return whole;
}

static const char *renamed(hd_arena *a, const prefixes *p, const char *name) {
    return hd_printf(a, "%.*s%s", (int)p->n_file, p->in_file, name + p->n);
}

static bool begins_so(const prefixes *p, const char *name) {
    return strncmp(name, p->in_model, p->n) == 0;
}

static const hd_tensor *found_as(const settling *s, const prefixes *p, const char *name) {
    if (!begins_so(p, name)) return NULL;
    const hd_tensor *t = hd_tensors_find(s->t, renamed(s->d->arena, p, name));
    return t && !s->is_weight[t - s->t->list.at] ? t : NULL;
}

static const char *shown_prefix(hd_arena *a, const char *at, size_t n) {
    return n ? hd_printf(a, "the prefix '%.*s'", (int)n, at) : "no prefix";
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const hd_tensor *)x)->name, ((const hd_tensor *)y)->name);
}

/* Renames tensors to the names that the model has for them. */
static void rename_tensors(settling *s, const prefixes *p, const names *missing) {
    size_t n = 0;
    for (size_t i = 0; i < missing->n; i++) {
        const hd_tensor *t = found_as(s, p, missing->at[i]);
        if (!t) continue;
        const size_t k = (size_t)(t - s->t->list.at);
        s->is_weight[k] = true; /* no other name finds it: the list is sorted only after all are
                                 * renamed */
        n++;
    }
    for (size_t i = 0; i < s->t->list.n; i++) {
        hd_tensor *t = &s->t->list.at[i];
        if (!s->is_weight[i] || strncmp(t->name, p->in_file, p->n_file) != 0) continue;
        const char *name =
            hd_printf(s->d->arena, "%.*s%s", (int)p->n, p->in_model, t->name + p->n_file);
        for (size_t k = 0; k < missing->n; k++)
            if (strcmp(missing->at[k], name) == 0) t->name = missing->at[k];
    }
    qsort(s->t->list.at, s->t->list.n, sizeof *s->t->list.at, by_name);
    hd_note(s->d, HD_NOWHERE,
            n == 1 ? "%zu tensor of the checkpoint has %s where the model has %s"
                   : "%zu tensors of the checkpoint have %s where the model has %s",
            n, shown_prefix(s->d->arena, p->in_file, p->n_file),
            shown_prefix(s->d->arena, p->in_model, p->n));
}

/* The missing weight of the first layer whose name has the most components: it identifies a prefix
 * best. */
static const char *telling_name(const names *missing) {
    const char *best = NULL;
    size_t most = 0;
    for (size_t i = 0; i < missing->n; i++) {
        size_t dots = 0;
        for (const char *c = missing->at[i]; *c; c++)
            dots += *c == '.';
        if (dots > most) best = missing->at[i], most = dots;
    }
    return best;
}

/* Files that were saved from another class than the config describes have names with another
 * prefix. A prefix is accepted if it explains most of the missing names, and no other prefix does.
 */
static bool settle_prefix(settling *s, const names *missing) {
    const char *name = telling_name(missing);
    prefixes best = {0};
    size_t equals = 0;
    if (!name || missing->n < 2) return true;
    for (size_t i = 0; i < s->t->list.n; i++) {
        const char *other = s->t->list.at[i].name;
        const size_t end = is_extra(s, i) ? common_end(name, other) : 0;
        if (!end || !memchr(name + strlen(name) - end, '.', end)) continue;
        prefixes p = {name, other, strlen(name) - end, strlen(other) - end, 0};
        if (best.fits && p.n == best.n && p.n_file == best.n_file &&
            strncmp(p.in_file, best.in_file, p.n_file) == 0)
            continue;
        for (size_t k = 0; k < missing->n; k++)
            p.fits += found_as(s, &p, missing->at[k]) != NULL;
        if (p.fits > best.fits)
            best = p, equals = 1;
        else
            equals += p.fits == best.fits && p.fits > 0;
    }
    if (2 * best.fits <= missing->n) return true;
    if (equals == 1) {
        rename_tensors(s, &best, missing);
        return true;
    }
    hd_diag *g = hd_err(s->d, HD_E_WEIGHTS, (hd_loc){.file = s->t->list.at[0].file},
                        "names of the checkpoint do not have %s, and %zu others explain them",
                        shown_prefix(s->d->arena, best.in_model, best.n), equals);
    g->hint = hd_printf(s->d->arena, "one is %s: keep the tensors of one model in the file",
                        shown_prefix(s->d->arena, best.in_file, best.n_file));
    return false;
}

/* ---- tables that a model computes itself ----------------------------------------------------- */

/* Last components of names, and a part of the component before; masks have shapes [1, 1, n, n]. */
static const struct {
    const char *last, *in;
    bool mask;
} tables[] = {
    {"inv_freq", "", false},     {"original_inv_freq", "", false},
    {"freqs", "rope", false},    {"freqs", "rot", false},
    {"freqs_cis", "", false},    {"cos_cached", "", false},
    {"sin_cached", "", false},   {"cos_cache", "", false},
    {"sin_cache", "", false},    {"cos_sin_cache", "", false},
    {"position_ids", "", false}, {"masked_bias", "att", false},
    {"bias", "att", true},       {"causal_mask", "", true},
    {"mask", "att", true},       {"attn_mask", "att", true},
    {"tril", "att", true},       {"cos", "rot", false},
    {"sin", "rot", false},       {"cos", "rope", false},
    {"sin", "rope", false},      {"_extra_state", "", false},
};

static bool is_table(const hd_tensor *t) {
    const char *last = behind_last_dot(t->name);
    const size_t n = (size_t)(last - t->name);
    const char *before = t->name;
    for (size_t i = 0; i + 1 < n; i++)
        if (t->name[i] == '.') before = t->name + i + 1;
    const bool square = t->rank >= 2 && t->shape[t->rank - 1] == t->shape[t->rank - 2] &&
                        t->elements == (uint64_t)(t->shape[t->rank - 1] * t->shape[t->rank - 1]) &&
                        (t->rank == 4 || t->dtype == HD_T_BOOL || t->dtype == HD_T_U8);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(last, tables[i].last) != 0 || (tables[i].mask && !square)) continue;
        const char *in = strstr(before, tables[i].in);
        if (!tables[i].in[0] || (in && in < last)) return true;
    }
    return false;
}

static void leave_out_tables(settling *s) {
    bool *marked = hd_new_array(s->d->arena, bool, s->t->list.n + 1);
    const char *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < s->t->list.n; i++) {
        const hd_tensor *t = &s->t->list.at[i];
        marked[i] = is_extra(s, i) && is_table(t);
        if (!marked[i]) continue;
        if (!n++) first = t->name;
    }
    if (!n) return;
    hd_note(s->d, HD_NOWHERE,
            "%zu tensor%s, such as '%s', hold%s what the model makes itself, and %s left out", n,
            n == 1 ? "" : "s", first, n == 1 ? "s" : "", n == 1 ? "is" : "are");
    take_out(s, marked);
}

/* ---- a head that is the embedding ------------------------------------------------------------ */

/* The weight in which tokens are looked up and which a linear map reads too; NULL: no head is tied.
 */
static const hir_weight *tied_embedding(const hir_module *m) {
    bool *gathered = hd_new_array(m->arena, bool, m->weights.n + 1);
    bool *mapped = hd_new_array(m->arena, bool, m->weights.n + 1);
    for (size_t i = 0; i < m->ops.n; i++) {
        const hir_op *op = &m->ops.at[i];
        if (op->erased) continue;
        if (op->code == HIR_GATHER_OP && op->args[0].kind == HIR_REF_WEIGHT)
            gathered[op->args[0].index] = true;
        if (op->code == HIR_LINEAR_OP && op->args[1].kind == HIR_REF_WEIGHT)
            mapped[op->args[1].index] = true;
    }
    for (size_t i = 0; i < m->weights.n; i++)
        if (gathered[i] && mapped[i]) return &m->weights.at[i];
    return NULL;
}

/* The distance of neighbouring codes of a quantised matrix at its element i, which is x. */
static double step_at(const hd_tensor *t, uint64_t i, double x) {
    const hd_packed *p = t->packed;
    const uint64_t row = i / (uint64_t)t->shape[1], col = i % (uint64_t)t->shape[1];
    const uint64_t at =
        p->transposed ? hd_packed_scale_index(p, col, row) : hd_packed_scale_index(p, row, col);
    const double scale = fabs((double)hd_packed_scale(p, at)) * hd_packed_factor(p, 0);
    if (hd_integer_bits(p->packing)) return scale;
    /* E2M1, from 0.5 in steps of 0.5; or E4M3 */
    const bool four = p->packing == HD_PACKING_MXFP4 || p->packing == HD_PACKING_NVFP4;
    const int fraction = four ? 1 : 3, least = four ? -1 : -9;
    const int step = scale > 0 && x != 0 ? ilogb(x / scale) - fraction : least;
    return ldexp(scale, step < least ? least : step);
}

/* The sum of squared errors that rounding to such codes causes in these numbers: for evenly spread
 * numbers the mean square is a twelfth of the square of the step. */
static double rounding(const hd_tensor *t, uint64_t first, uint64_t n, const double *x) {
    double sum = 0;
    for (uint64_t i = 0; t->packed && i < n; i++) {
        const double step = step_at(t, first + i, x[i]);
        sum += step * step / 12;
    }
    return sum;
}

/* The distance of two matrices of one shape: 0 if their numbers are the same where the one with
 * fewer bits is exact, else the root of the mean square of the differences over that of `b`.
 * *rounded: the distance that rounding alone would cause if one matrix were made from the other; 0
 * if neither is quantised. */
static double distance(const hd_tensor *a, const hd_tensor *b, double *rounded) {
    enum { SOME = 1024 };
    double x[SOME], y[SOME], apart = 0, all = 0, noise = 0;
    *rounded = 0;
    const bool packed = a->packed || b->packed;
    if (!packed && a->dtype == b->dtype && memcmp(a->data, b->data, (size_t)a->bytes) == 0)
        return 0;
    for (uint64_t i = 0, n; i < a->elements; i += n) {
        n = a->elements - i < SOME ? a->elements - i : SOME;
        hd_tensor_to_f64(a, i, n, x);
        hd_tensor_to_f64(b, i, n, y);
        noise += rounding(a, i, n, x) + rounding(b, i, n, y);
        for (uint64_t k = 0; k < n; k++) {
            all += y[k] * y[k];
            const bool half = a->dtype == HD_T_BF16 || b->dtype == HD_T_BF16,
                       f16 = a->dtype == HD_T_F16 || b->dtype == HD_T_F16;
            const bool same =
                x[k] == y[k] ||
                (!packed && half && hir_rounded(HIR_BF16, x[k]) == hir_rounded(HIR_BF16, y[k])) ||
                (!packed && f16 && hir_rounded(HIR_F16, x[k]) == hir_rounded(HIR_F16, y[k])) ||
                (!packed && (float)x[k] == (float)y[k]);
            if (!same) apart += (x[k] - y[k]) * (x[k] - y[k]);
        }
    }
    if (all > 0) *rounded = sqrt(noise / all);
    return apart == 0 ? 0 : all == 0 || !isfinite(apart) ? INFINITY : sqrt(apart / all);
}

bool hcg_is_head(const char *name) {
    static const char *const heads[] = {"lm_head.weight", "output.weight", "embed_out.weight"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const size_t n = strlen(name), k = strlen(heads[i]);
        if (n >= k && strcmp(name + n - k, heads[i]) == 0 && (n == k || name[n - k - 1] == '.'))
            return true;
    }
    return false;
}

/* Of two names for one matrix a program may have stored that of the head alone. */
static void take_head_for_embedding(settling *s, const hir_weight *w) {
    hd_tensor *head = NULL;
    size_t heads = 0;
    for (size_t i = 0; i < s->t->list.n; i++) {
        hd_tensor *t = &s->t->list.at[i];
        if (!is_extra(s, i) || !hcg_is_head(t->name) || (uint32_t)t->rank != w->type.rank) continue;
        bool fits = true;
        for (uint32_t k = 0; k < w->type.rank; k++)
            fits &= t->shape[k] == w->type.dim[k];
        if (fits && !heads++) head = t;
    }
    if (heads != 1) return;
    hd_note(s->d, HD_NOWHERE, "the head is tied to '%s', which is stored as '%s'", w->name,
            head->name);
    head->name = w->name;
    qsort(s->t->list.at, s->t->list.n, sizeof *s->t->list.at, by_name);
}

static bool settle_head(settling *s) {
    /* Programs that quantise do not round to the nearest code: they make up for the errors of other
     * weights (GPTQ), or clip. That moves numbers by about as much again as rounding does. */
    const double most_rounded = 3;
    const hir_weight *w = tied_embedding(s->m);
    const hd_tensor *table = w ? hd_tensors_find(s->t, w->name) : NULL;
    bool *marked = hd_new_array(s->d->arena, bool, s->t->list.n + 1), any = false;
    if (w && !table) take_head_for_embedding(s, w);
    if (!table) return true;
    for (size_t i = 0; i < s->t->list.n; i++) {
        const hd_tensor *t = &s->t->list.at[i];
        if (!is_extra(s, i) || !hcg_is_head(t->name)) continue;
        const bool same_shape = t->rank == table->rank && t->rank == 2 &&
                                t->shape[0] == table->shape[0] && t->shape[1] == table->shape[1];
        const bool numbers =
            (t->packed || hd_tensor_is_number(t)) && (table->packed || hd_tensor_is_number(table));
        double rounded = 0;
        const double far = same_shape && numbers ? distance(t, table, &rounded) : INFINITY;
        if (!(far <= most_rounded * rounded)) {
            hd_diag *g =
                hd_err(s->d, HD_E_WEIGHTS, (hd_loc){.file = t->file},
                       "tensor '%s' is not equal to '%s', and tie_word_embeddings says that "
                       "they are one",
                       t->name, w->name);
            if (isfinite(far))
                g->cause = rounded > 0
                               ? hd_printf(s->d->arena,
                                           "the difference is %.3g of its size; rounding to its "
                                           "codes makes one of about %.3g",
                                           far, rounded)
                               : hd_printf(s->d->arena, "the difference is %.3g of its size", far);
            g->hint = "set tie_word_embeddings to false, and the head is read; or take the tensor "
                      "out of the file";
            return false;
        }
        hd_note(s->d, HD_NOWHERE, "the head is tied to '%s': '%s', %s, is left out", w->name,
                t->name, far == 0 ? "the same numbers" : "the same in a quantised form");
        marked[i] = any = true;
    }
    if (any) take_out(s, marked);
    return true;
}

bool hcg_settle_weights(const hir_module *m, hd_diags *d, hd_tensors *t) {
    settling s = {m, d, t, hd_new_array(d->arena, bool, t->list.n + 1)};
    names missing = find_weights(&s);
    leave_out_tables(&s);
    if (!settle_prefix(&s, &missing)) return false;
    memset(s.is_weight, 0, t->list.n * sizeof *s.is_weight);
    find_weights(&s);
    return settle_head(&s);
}
