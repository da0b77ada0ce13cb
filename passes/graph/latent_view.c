#include "passes/graph/latent_view.h"

/* ---- strides ------------------------------------------------------------------------------- */
/* A strided view of a value [C, ..]: element (i, j, ..) of a row is element offset + i stride[0] +
 * j stride[1] + .. of a row of `base`, which is the rows of a state or the result of a linear or
 * block_linear op. */
typedef struct strided {
    hir_ref base;
    int64_t offset;
    uint32_t rank; /* without C */
    int64_t dim[HIR_MAX_RANK], stride[HIR_MAX_RANK];
} strided;

static strided contiguous(hir_ref base, hir_type t) {
    strided s = {.base = base, .rank = t.rank - 1};
    int64_t step = 1;
    for (uint32_t i = s.rank; i-- > 0;) {
        s.dim[i] = t.dim[i + 1];
        s.stride[i] = step;
        step *= s.dim[i];
    }
    return s;
}

/* Drops dims of 1, and merges adjacent dims that are contiguous. */
static void merge_dims(strided *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->rank; i++) {
        if (s->dim[i] == 1) continue;
        if (n && s->stride[n - 1] == s->stride[i] * s->dim[i]) {
            s->dim[n - 1] *= s->dim[i];
            s->stride[n - 1] = s->stride[i];
            continue;
        }
        s->dim[n] = s->dim[i];
        s->stride[n++] = s->stride[i];
    }
    s->rank = n;
}

/* Cuts each merged dim into dims of the new shape, starting from the last. False: a new dim would
 * be part of two merged dims. */
static bool reshape_view(strided *s, hir_type t) {
    merge_dims(s);
    strided y = {.base = s->base, .offset = s->offset, .rank = t.rank - 1};
    uint32_t from = s->rank;
    int64_t left = from ? s->dim[from - 1] : 1, step = from ? s->stride[from - 1] : 0;
    for (uint32_t i = y.rank; i-- > 0;) {
        y.dim[i] = t.dim[i + 1];
        if (y.dim[i] == 1) continue;
        if (left == 1 && from > 1) {
            from--;
            left = s->dim[from - 1], step = s->stride[from - 1];
        }
        if (left % y.dim[i]) return false;
        y.stride[i] = step;
        step *= y.dim[i];
        left /= y.dim[i];
    }
    *s = y;
    return true;
}

static void broadcast_view(strided *s, hir_type t) {
    strided y = {.base = s->base, .offset = s->offset, .rank = t.rank - 1};
    const uint32_t lead = y.rank - s->rank; /* both have C as first dim, so ranks are equal */
    for (uint32_t i = 0; i < y.rank; i++) {
        const bool stretched = i < lead || s->dim[i - lead] == 1;
        y.dim[i] = t.dim[i + 1];
        y.stride[i] = stretched ? 0 : s->stride[i - lead];
    }
    *s = y;
}

static void transpose_view(strided *s, const int64_t *perm) {
    strided y = *s;
    for (uint32_t i = 0; i < s->rank; i++) {
        y.dim[i] = s->dim[perm[i + 1] - 1];
        y.stride[i] = s->stride[perm[i + 1] - 1];
    }
    *s = y;
}

static void slice_view(strided *s, const hir_op *o) {
    const int64_t axis = hir_attr_int(o, HIR_A_AXIS, 0) - 1;
    s->offset += hir_attr_int(o, HIR_A_START, 0) * s->stride[axis];
    s->dim[axis] = hir_attr_int(o, HIR_A_LENGTH, 0);
}

/* Follows r to a state or a linear op. Returns NULL, or why r leads to neither. */
static const char *view_of(const hir_module *m, hir_ref r, hd_arena *a, strided *out) {
    const hir_id op = pass_def(m, r);
    if (hir_state_of_value(m, r) != HIR_NONE) {
        *out = contiguous(r, hir_ref_type(m, r));
        return NULL;
    }
    if (op == HIR_NONE) return "a part of it is not made of cached rows";
    const hir_op *o = hir_op_at(m, op);
    const hir_type t = pass_result_type(m, op);
    if (o->code == HIR_LINEAR_OP || o->code == HIR_BLOCK_LINEAR_OP) {
        *out = contiguous(r, t);
        return NULL;
    }
    if (o->code != HIR_RESHAPE_OP && o->code != HIR_SLICE_OP && o->code != HIR_TRANSPOSE_OP &&
        o->code != HIR_BROADCAST_OP)
        return hd_printf(a, "%s stands between the cached rows and the product",
                         hir_info(o->code)->name);
    const hir_type from = hir_ref_type(m, o->args[0]);
    if (!hir_type_has_c(from)) return "a part of it is not made of cached rows";
    const char *why = view_of(m, o->args[0], a, out);
    if (why) return why;
    if (o->code == HIR_RESHAPE_OP && !reshape_view(out, t)) return "a reshape mixes its parts";
    if (o->code == HIR_SLICE_OP) slice_view(out, o);
    if (o->code == HIR_TRANSPOSE_OP) transpose_view(out, hir_find_attr(o, HIR_A_PERM)->ints);
    if (o->code == HIR_BROADCAST_OP) broadcast_view(out, t);
    return NULL;
}

/* ---- maps and columns ---------------------------------------------------------------------- */
static bool is_state(const hir_module *m, const strided *s) {
    return hir_state_of_value(m, s->base) != HIR_NONE;
}

static int64_t rows_of(const hir_module *m, hir_ref state) {
    return hir_ref_type(m, state).dim[1];
}

/* Reads columns of each of the `groups` cached rows of a position: the view [G, n] of a state. */
static const char *columns_of(const hir_module *m, strided *s, int64_t groups,
                              latent_columns *out) {
    const hir_type rows = hir_ref_type(m, s->base);
    if (!is_state(m, s)) return "it is a map of a map";
    if (rows.rank != 3) return "the cached rows have several heads";
    if (rows.dim[1] != groups)
        return groups == 1 ? "the cached rows have several heads"
                           : "its parts are cached in different numbers of rows";
    if (groups > 1) {
        if (s->rank != 2 || s->dim[0] != groups || s->stride[0] != rows.dim[2])
            return "it takes cached rows of a position together";
        s->dim[0] = 1;
    }
    merge_dims(s);
    if (s->rank > 1 || (s->rank == 1 && s->stride[0] != 1))
        return "it takes cached elements that do not follow each other";
    *out = (latent_columns){s->base, s->offset, s->rank ? s->dim[0] : 1};
    return out->start + out->n > rows.dim[2] ? "it takes cached rows of a position together" : NULL;
}

/* Reads the view [G, H/G, n] of the result of a linear op on the G cached rows of a position, n
 * elements each. */
static const char *map_of(const hir_module *m, const strided *s, hd_arena *a, latent_map *out) {
    const hir_id linear = pass_def(m, s->base);
    const bool own = hir_op_at(m, linear)->code == HIR_BLOCK_LINEAR_OP; /* a matrix for each row */
    const hir_ref x = pass_arg(m, linear, 0), w = pass_arg(m, linear, 1);
    const hir_type made = hir_ref_type(m, s->base);
    const int64_t groups = s->dim[0], n = made.dim[made.rank - 1], last = s->dim[1] - 1;
    strided c = {0};
    if (pass_arg(m, linear, 2).kind != HIR_REF_NONE) return "its map has a bias";
    if (w.kind != HIR_REF_WEIGHT || hir_is_derived(&m->weights.at[w.index]) ||
        m->weights.at[w.index].stacked)
        return "its map is no matrix of the checkpoint";
    if (s->dim[2] != 1 && s->stride[2] != 1)
        return "rows of its map that make a head do not follow each other";
    const char *why = view_of(m, x, a, &c);
    if (why) return why;
    if (pass_elements(made) != groups * n) {
        if (groups > 1) return "its map takes cached rows of a position together";
        if (!own) return "its map is applied to several rows";
        if (c.rank != 2 || c.stride[0] != 0) return "its maps are of different cached rows";
        c.dim[0] = 1; /* one row, with a matrix for each head */
    }
    if (groups > 1 && (s->stride[0] != n || s->offset + last * s->stride[1] + s->dim[2] > n))
        return "heads of a cached row do not follow each other";
    *out = (latent_map){.w = w, .first = s->offset, .stride = s->stride[1], .n = s->dim[2]};
    out->group_stride = own ? n : 0;
    return columns_of(m, &c, groups, &out->c);
}

/* Reads the part of a key that is the same for all heads of a cached row. */
static const char *shared_of(const hir_module *m, strided *s, latent_columns *out) {
    const int64_t groups = s->dim[0];
    if (s->dim[1] != 1 && s->stride[1] != 0) return "heads of k are parts of the cached rows";
    s->dim[1] = s->dim[2], s->stride[1] = s->stride[2], s->rank = 2;
    return columns_of(m, s, groups, out);
}

/* ---- heads --------------------------------------------------------------------------------- */
/* If r [C, H, n] is a reshape of a value [C, G, H/G, n], that value; otherwise r. */
static hir_ref by_groups(const hir_module *m, hir_ref r, int64_t groups) {
    const hir_id reshape = pass_def_if(m, r, HIR_RESHAPE_OP);
    if (reshape == HIR_NONE || groups == 1) return r;
    const hir_ref x = pass_arg(m, reshape, 0);
    const hir_type from = hir_ref_type(m, x), to = hir_ref_type(m, r);
    const bool same = from.rank == 4 && to.rank == 3 && from.dim[1] == groups &&
                      from.dim[1] * from.dim[2] == to.dim[1] && from.dim[3] == to.dim[2];
    return same ? x : r;
}

/* The view [G, H/G, n] of r, [C, H, n] or [C, G, H/G, n]. */
static const char *heads_of(const hir_module *m, hir_ref r, int64_t groups, hd_arena *a,
                            strided *s) {
    const char *why = view_of(m, r, a, s);
    if (why) return why;
    if (s->rank == 3) return s->dim[0] == groups ? NULL : "it is not [C, H, n]";
    if (s->rank != 2) return "it is not [C, H, n]";
    if (s->dim[0] % groups) return "its heads do not divide among the cached rows";
    const int64_t each = s->dim[0] / groups;
    s->rank = 3;
    s->dim[2] = s->dim[1], s->stride[2] = s->stride[1];
    s->dim[1] = each, s->stride[1] = s->stride[0];
    s->dim[0] = groups, s->stride[0] *= each;
    return NULL;
}

/* The number of rows of a position in the state from which r, or a part of r, is computed; 1 if no
 * state is found. */
static int64_t groups_of(const hir_module *m, hir_ref r) {
    for (hir_id op; hir_state_of_value(m, r) == HIR_NONE; r = pass_arg(m, op, 0)) {
        op = pass_def(m, r);
        if (op == HIR_NONE || hir_op_at(m, op)->n_args == 0) return 1;
    }
    return hir_ref_type(m, r).rank == 3 ? rows_of(m, r) : 1;
}

/* ---- attention ----------------------------------------------------------------------------- */
typedef struct reader {
    const hir_module *m;
    hd_arena *a;
    latent_view *out;
    int64_t at; /* entries of a head of k so far */
    unsigned maps, shared;
} reader;

/* Reads the parts of k along the entries of a head; parts of nested concats are read in order. */
static const char *read_keys(reader *r, hir_ref k) {
    k = by_groups(r->m, k, r->out->groups);
    const hir_id concat = pass_def_if(r->m, k, HIR_CONCAT_OP);
    const int64_t entries = hir_ref_type(r->m, k).rank - 1;
    const char *why = NULL;
    strided s = {0};
    if (concat != HIR_NONE && hir_attr_int(hir_op_at(r->m, concat), HIR_A_AXIS, 0) == entries) {
        for (uint32_t i = 0; i < hir_op_at(r->m, concat)->n_args && !why; i++)
            why = read_keys(r, pass_arg(r->m, concat, i));
        return why;
    }
    if ((why = heads_of(r->m, k, r->out->groups, r->a, &s))) return why;
    const bool shared = is_state(r->m, &s);
    if (shared ? r->shared++ : r->maps++) return "k has more than one part of a kind";
    *(shared ? &r->out->shared_at : &r->out->k_at) = r->at;
    r->at += s.dim[2];
    return shared ? shared_of(r->m, &s, &r->out->shared) : map_of(r->m, &s, r->a, &r->out->k);
}

static bool same_columns(const latent_columns *a, const latent_columns *b) {
    return hir_ref_equal(a->rows, b->rows) && a->start == b->start && a->n == b->n;
}

/* Checks that the latent is at one end of its rows, and that the shared part is the rest of these
 * rows or a whole state. */
static const char *check_places(const hir_module *m, const latent_view *v) {
    const latent_columns *c = &v->k.c, *p = &v->shared;
    const int64_t width = hir_ref_type(m, c->rows).dim[2], rest = width - c->n;
    if (c->start != 0 && c->start != rest) return "the latent lies amidst its rows";
    if (!v->has_shared) return rest ? "a part of the cached rows is not used" : NULL;
    if (hir_ref_equal(p->rows, c->rows))
        return p->n == rest && p->start == (c->start ? 0 : c->n)
                   ? NULL
                   : "the shared part is not what is left of the latent's rows";
    if (rest || p->start || p->n != hir_ref_type(m, p->rows).dim[2])
        return "a part of the cached rows is not used";
    return NULL;
}

/* For attention over selected rows: checks that one list serves all heads, and that it lists the
 * positions themselves. */
static const char *check_selected(const hir_module *m, hir_id op, const latent_view *v) {
    const hir_op *o = hir_op_at(m, op);
    if (v->groups > 1) return "the cached rows have several heads";
    if (o->args[5].kind != HIR_REF_NONE) return "it reads entries beside k and v";
    if (hir_ref_type(m, o->args[3]).dim[1] != 1) return "heads see different positions";
    return hir_arg_type(m, op, 0).dim[1] != hir_arg_type(m, op, 1).dim[1]
               ? "several heads of q share a head of k"
               : NULL;
}

const char *latent_find(const hir_module *m, hir_id op, hd_arena *a, latent_view *out) {
    *out = (latent_view){.heads = hir_arg_type(m, op, 1).dim[1]};
    reader r = {.m = m, .a = a, .out = out};
    strided v = {0};
    const char *why = NULL;
    out->groups = groups_of(m, pass_arg(m, op, 1));
    if (hir_op_at(m, op)->code == HIR_ATTENTION_SELECTED_OP) why = check_selected(m, op, out);
    if (!why) why = read_keys(&r, pass_arg(m, op, 1));
    if (why) return why;
    out->has_shared = r.shared > 0;
    if (!r.maps) return "k is no map of cached rows";
    const hir_ref values = by_groups(m, pass_arg(m, op, 2), out->groups);
    if ((why = heads_of(m, values, out->groups, a, &v))) return why;
    if (is_state(m, &v)) return "v is no map of cached rows";
    if ((why = map_of(m, &v, a, &out->v))) return why;
    if (!same_columns(&out->k.c, &out->v.c)) return "k and v are maps of different rows";
    return check_places(m, out);
}
