/* absorb-latent: attention whose keys and values are computed from cached rows.
 *
 * Needs    a graph.
 * Does     Latent attention caches a small row c for each position, from which linear maps compute
 *          k and v of all heads. Executed as written, every call would compute k and v of all
 *          positions. The maps are moved to the other side of the products:
 *
 *              q . (W_k c) = (W_k^T q) . c           sum_s p_s (W_v c_s) = W_v (sum_s p_s c_s)
 *
 *          which is attention.latent (over selected positions: attention_selected of one row for
 *          all heads) between two block_linear ops with a matrix for each head: the absorbed form.
 *          In addition there is the expanded form, which computes k and v of a tile of rows, for
 *          calls of many tokens that attend to every visible position. The weights of both are
 *          derived from the maps. The rewrite is applied where a row of the cache is shorter than k
 *          and v of all heads, which attention would read otherwise.
 *          Other attention over values computed from cached rows caches these values: since they
 *          are local to a row, they are computed from each token's row before the cache instead of
 *          after it.
 * Leaves   attention that reads caches directly.
 *
 * cache-made-rows: the last part alone, of all attention: for gradients, which have kernels of
 * attention over caches.
 */
#include <string.h>

#include "passes/graph/latent_view.h"

typedef struct absorber {
    hir_pass_context *c;
    hir_module *m;
    pass_forward forward;
    hir_ref *made; /* by value [C, ..]: that of the tokens of this call; none ref: not built yet */
    size_t n_values;
    bool *left; /* by value: rows of a state that some attention no longer reads */
} absorber;

/* ---- derived matrices ---------------------------------------------------------------------- */
static bool same_weight(const hir_weight *w, hir_type type, const hir_derived_row *rows,
                        uint32_t n) {
    bool same = hir_type_equal(w->type, type) && w->n_rows == n;
    for (uint32_t i = 0; same && i < n; i++)
        same = hir_same_derived_row(&w->rows[i], &rows[i]);
    return same;
}

/* Adds or finds the derived weight of this name; a number is appended where another weight has the
 * name. */
static hir_ref derived(absorber *s, const char *name, hir_type type, const hir_derived_row *rows,
                       uint32_t n, hd_loc loc) {
    const char *unique = name;
    for (int i = 2;; i++) {
        const uint32_t w = hir_find_weight(s->m, unique);
        if (w == HIR_NONE)
            return hir_weight_ref(hir_add_derived_weight(s->m, unique, type, rows, n, loc));
        if (same_weight(&s->m->weights.at[w], type, rows, n)) return hir_weight_ref(w);
        unique = hd_printf(s->c->scratch, "%s%d", name, i);
    }
}

/* For each of `heads` query heads, the rows of the map that compute the head of k or v that it
 * attends to: [heads, n, r], or transposed [heads, r, n]. */
static hir_ref matrix_of(absorber *s, const latent_view *v, const latent_map *map, int64_t heads,
                         bool transposed, const char *what) {
    const int64_t of = v->heads, groups = v->groups;
    const hir_weight *w = &s->m->weights.at[map->w.index];
    const int64_t r = map->c.n;
    hir_derived_row *rows = hd_new_array(s->c->scratch, hir_derived_row, (size_t)heads);
    for (int64_t h = 0; h < heads; h++) {
        hir_derived_factor *f = hd_new(s->c->scratch, hir_derived_factor);
        *f = (hir_derived_factor){.name = w->name, .n = map->n * r};
        f->by = transposed ? HIR_DERIVED_TRANSPOSED : HIR_DERIVED_AS_IS;
        const int64_t j = h / (heads / of), each = of / groups; /* head of k; of a cached row */
        f->first = (map->first + j / each * map->group_stride + j % each * map->stride) * r;
        rows[h] = (hir_derived_row){1, f};
    }
    const int64_t dims[] = {heads, transposed ? r : map->n, transposed ? map->n : r};
    return derived(s, hd_printf(s->c->scratch, "%s.%s", w->name, what),
                   hir_make_type(HIR_F32, 3, dims), rows, (uint32_t)heads, w->loc);
}

/* ---- latent attention ---------------------------------------------------------------------- */
/* Entries at .. at+n-1 of each head of q: a slice, or an operand of a concat where it has exactly
 * these entries. */
static hir_ref entries(absorber *s, hir_builder *b, hir_ref q, int64_t at, int64_t n) {
    const hir_id concat = pass_def_if(s->m, q, HIR_CONCAT_OP);
    if (at == 0 && n == hir_ref_type(s->m, q).dim[2]) return q;
    if (concat != HIR_NONE && hir_attr_int(hir_op_at(s->m, concat), HIR_A_AXIS, 0) == 2) {
        int64_t first = 0;
        for (uint32_t i = 0; i < hir_op_at(s->m, concat)->n_args && first <= at; i++) {
            const hir_ref part = pass_arg(s->m, concat, i);
            const int64_t width = hir_ref_type(s->m, part).dim[2];
            if (first == at && width == n) return part;
            first += width;
        }
    }
    const hir_attr attrs[] = {hir_int(HIR_A_AXIS, 2), hir_int(HIR_A_START, at),
                              hir_int(HIR_A_LENGTH, n)};
    return hir_emit(b, HIR_SLICE_OP, &q, 1, attrs, 3);
}

/* The operands and attributes that the absorbed and the expanded form of attention have in common.
 */
typedef struct form {
    hir_ref q, rows, q_shared, shared, sink, bias;
    hir_attr attrs[5];
    uint32_t n_attrs;
    int64_t heads; /* heads of q */
} form;

static bool read_form(absorber *s, hir_builder *b, hir_id op, const latent_view *v, form *out) {
    const hir_op *o = hir_op_at(s->m, op);
    const bool selected = o->code == HIR_ATTENTION_SELECTED_OP;
    const hir_ref q = pass_arg(s->m, op, 0), none = hir_no_ref();
    const bool own = v->has_shared && !hir_ref_equal(v->shared.rows, v->k.c.rows);
    *out = (form){.rows = v->k.c.rows, .shared = own ? v->shared.rows : none, .q_shared = none};
    out->sink = pass_arg(s->m, op, selected ? 4 : 3);
    out->bias = selected ? none : pass_arg(s->m, op, 4);
    out->heads = hir_ref_type(s->m, q).dim[1];
    if (v->k.c.start) out->attrs[out->n_attrs++] = hir_int(HIR_A_START, v->k.c.start);
    for (uint32_t i = 0; i < o->n_attrs; i++) /* scale, window, softcap */
        out->attrs[out->n_attrs++] = o->attrs[i];
    out->q = entries(s, b, q, v->k_at, v->k.n);
    if (v->has_shared) out->q_shared = entries(s, b, q, v->shared_at, v->shared.n);
    return out->q.kind != HIR_REF_NONE && (!v->has_shared || out->q_shared.kind != HIR_REF_NONE);
}

/* Builds W_v (attention.latent (W_k^T q)); each of the two maps is a block_linear over all heads.
 */
static hir_ref absorbed(absorber *s, hir_builder *b, const latent_view *v, const form *f) {
    const hir_ref w_k = matrix_of(s, v, &v->k, f->heads, true, "keys");
    const hir_ref w_v = matrix_of(s, v, &v->v, f->heads, false, "values");
    hir_ref o = hir_emit2(b, HIR_BLOCK_LINEAR_OP, f->q, w_k);
    if (o.kind == HIR_REF_NONE) return o;
    const hir_ref args[] = {o, f->rows, f->q_shared, f->shared, f->sink, f->bias};
    o = hir_emit(b, HIR_ATTENTION_LATENT_OP, args, 6, f->attrs, f->n_attrs);
    return o.kind == HIR_REF_NONE ? o : hir_emit2(b, HIR_BLOCK_LINEAR_OP, o, w_v);
}

static hir_ref expanded(absorber *s, hir_builder *b, const latent_view *v, const form *f,
                        hir_ref otherwise) {
    const hir_ref w_k = matrix_of(s, v, &v->k, v->heads, false, "expanded_keys");
    const hir_ref w_v = matrix_of(s, v, &v->v, v->heads, false, "values");
    const hir_ref args[] = {otherwise, f->q, f->rows, f->q_shared, f->shared,
                            w_k,       w_v,  f->sink, f->bias};
    return hir_emit(b, HIR_ATTENTION_EXPANDED_OP, args, 9, f->attrs, f->n_attrs);
}

/* The smallest number of tokens of a call after `past` earlier tokens for which the expanded form
 * is cheaper; 0: it is not, for calls of up to a million tokens. */
static int64_t least_tokens(const hd_latent_costs *f, int64_t past) {
    int64_t low = 1, high = 1 << 20;
    if (!hd_expanded_is_cheaper(f, high, past + high)) return 0;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        *(hd_expanded_is_cheaper(f, middle, past + middle) ? &high : &low) = middle;
    }
    return high;
}

/* Remarks the costs of both forms, and from how many tokens on the expanded form is used. */
static void remark_forms(absorber *s, hir_id op, hir_id by) {
    enum { LONG = 32768 };
    hd_latent_costs f = hir_forms_of(s->m, by);
    const int64_t most = f.most;
    f.most = 0;
    const int64_t alone = least_tokens(&f, 0), behind = most ? 0 : least_tokens(&f, LONG);
    const char *only = "";
    if (most)
        only = hd_printf(s->c->scratch, ", while no more than %lld are seen, which are all chosen",
                         (long long)most);
    if (behind)
        only = hd_printf(s->c->scratch, ", after %d others of %lld", (int)LONG, (long long)behind);
    hir_remark_add(
        s->c, true, op,
        "many tokens against few positions attend to keys and values that are made of the "
        "cached rows: %lld multiply-adds for each pair instead of %lld, and %lld for "
        "each position instead of %lld for each token; calls of %lld tokens or more%s",
        (long long)f.many_pair, (long long)f.few_pair, (long long)f.many_position,
        (long long)f.few_row, (long long)alone, only);
}

/* Builds the absorbed form of attention and, if it is cheaper for some calls, the expanded one. */
static bool absorb(absorber *s, hir_id op, const latent_view *v) {
    hir_builder b = hir_before(s->m, s->c->diags, op);
    form f;
    if (!read_form(s, &b, op, v, &f)) return false;
    hir_ref o = absorbed(s, &b, v, &f);
    if (o.kind == HIR_REF_NONE) return false;
    if (v->k.n + v->v.n < 2 * v->k.c.n) {
        o = expanded(s, &b, v, &f, o);
        if (o.kind == HIR_REF_NONE) return false;
        remark_forms(s, op, pass_def(s->m, o));
    } else {
        const int64_t p = v->has_shared ? v->shared.n : 0;
        hir_remark_add(s->c, false, op,
                       "many tokens attend to the cached rows as one does: with keys and values of "
                       "their own they would take %lld multiply-adds for each pair of positions, "
                       "not less than %lld",
                       (long long)(f.heads * (v->k.n + p + v->v.n)),
                       (long long)(f.heads * (2 * v->k.c.n + p)));
    }
    pass_forward_op(&s->forward, s->m, op, o);
    return s->c->changed = true;
}

/* ---- selected positions ---------------------------------------------------------------------- */
/* Attention over selected positions reads whole cached rows as keys and as values, so its queries
 * are in the order of a row: [W_k^T q_n | q_p], or the other way round. Of its result only the
 * latent's entries are used. */
static hir_ref absorbed_selected(absorber *s, hir_builder *b, hir_id op, const latent_view *v,
                                 const form *f) {
    const hir_op o = *hir_op_at(s->m, op);
    const hir_ref w_k = matrix_of(s, v, &v->k, v->heads, true, "keys");
    const hir_ref w_v = matrix_of(s, v, &v->v, v->heads, false, "values");
    hir_ref args[6], q = hir_emit2(b, HIR_BLOCK_LINEAR_OP, f->q, w_k);
    memcpy(args, o.args, sizeof args);
    if (v->has_shared && q.kind != HIR_REF_NONE) {
        const bool last = v->k.c.start != 0;
        const hir_attr axis = hir_int(HIR_A_AXIS, 2);
        const hir_ref parts[] = {last ? f->q_shared : q, last ? q : f->q_shared};
        q = hir_emit(b, HIR_CONCAT_OP, parts, 2, &axis, 1);
    }
    if (q.kind == HIR_REF_NONE) return q;
    args[0] = q, args[1] = args[2] = v->k.c.rows;
    hir_ref y = hir_emit(b, HIR_ATTENTION_SELECTED_OP, args, 6, o.attrs, o.n_attrs);
    if (y.kind != HIR_REF_NONE) y = entries(s, b, y, v->k.c.start, v->k.c.n);
    return y.kind == HIR_REF_NONE ? y : hir_emit2(b, HIR_BLOCK_LINEAR_OP, y, w_v);
}

/* The number of positions up to which the list names every position that is seen; 0: the list may
 * omit positions of any call. */
static int64_t all_are_chosen(const hir_module *m, hir_ref list) {
    const hir_id select = pass_def_if(m, list, HIR_SELECT_OP);
    if (select == HIR_NONE) return 0;
    const hir_op *o = hir_op_at(m, select);
    const bool positions = strcmp(hir_attr_string(o, HIR_A_OF, "rows"), "positions") == 0;
    const bool rows = positions || hir_rate(hir_arg_type(m, select, 1).dim[0]) == 1;
    return rows && !hir_attr_int(o, HIR_A_WINDOW, 0) ? hir_ref_type(m, list).dim[2] : 0;
}

/* While all positions are selected the result is that of latent attention, so the expanded form is
 * built as well. */
static bool absorb_selected(absorber *s, hir_id op, const latent_view *v) {
    hir_builder b = hir_before(s->m, s->c->diags, op);
    const int64_t most = all_are_chosen(s->m, pass_arg(s->m, op, 3));
    form f;
    if (!read_form(s, &b, op, v, &f)) return false;
    hir_ref o = absorbed_selected(s, &b, op, v, &f);
    if (o.kind == HIR_REF_NONE) return false;
    if (most && v->k.n + v->v.n < 2 * v->k.c.n) {
        f.attrs[f.n_attrs++] = hir_int(HIR_A_MOST, most);
        o = expanded(s, &b, v, &f, o);
        if (o.kind == HIR_REF_NONE) return false;
        remark_forms(s, op, pass_def(s->m, o));
    }
    pass_forward_op(&s->forward, s->m, op, o);
    return s->c->changed = true;
}

/* ---- caches of computed keys and values ---------------------------------------------------- */
static hir_ref of_tokens(absorber *s, hir_builder *b, hir_ref r);

/* The row that a token has written, as a read of the cache returns it. */
static hir_ref written_row(absorber *s, hir_builder *b, hir_ref state) {
    const hir_ref x = pass_arg(s->m, pass_def(s->m, state), 0);
    const hir_dtype dtype = hir_ref_type(s->m, state).dtype;
    const hir_attr attr = hir_string(HIR_A_DTYPE, hir_dtype_name(dtype));
    return dtype == HIR_F32 ? x : hir_emit(b, HIR_CONVERT_OP, &x, 1, &attr, 1);
}

/* Copies the op, with T in place of C: for the tokens of this call instead of all cached positions.
 */
static hir_ref copy_op(absorber *s, hir_builder *b, hir_id op) {
    const hir_op o = *hir_op_at(s->m, op);
    hir_ref *args = hd_new_array(s->c->scratch, hir_ref, o.n_args);
    hir_attr *attrs = hd_new_array(s->c->scratch, hir_attr, o.n_attrs + 1);
    for (uint32_t i = 0; i < o.n_args; i++) {
        args[i] = of_tokens(s, b, o.args[i]);
        if (o.args[i].kind != HIR_REF_NONE && args[i].kind == HIR_REF_NONE) return hir_no_ref();
    }
    for (uint32_t i = 0; i < o.n_attrs; i++) {
        attrs[i] = o.attrs[i];
        if (attrs[i].id != HIR_A_SHAPE) continue;
        int64_t *shape = hd_new_array(s->c->scratch, int64_t, attrs[i].n + 1);
        memcpy(shape, attrs[i].ints, attrs[i].n * sizeof *shape);
        if (attrs[i].n && shape[0] == HIR_C) shape[0] = HIR_T;
        attrs[i].ints = shape;
    }
    return hir_emit(b, o.code, args, o.n_args, attrs, o.n_attrs);
}

static hir_ref of_tokens(absorber *s, hir_builder *b, hir_ref r) {
    if (r.kind != HIR_REF_VALUE || !hir_type_has_c(hir_ref_type(s->m, r))) return r;
    hir_ref *made = r.index < s->n_values ? &s->made[r.index] : NULL;
    if (made && made->kind != HIR_REF_NONE) return *made;
    const bool state = hir_state_of_value(s->m, r) != HIR_NONE;
    const hir_ref y = state ? written_row(s, b, r) : copy_op(s, b, pass_def(s->m, r));
    if (state) s->left[r.index] = true;
    return made ? *made = y : y;
}

/* The rows of a state from which r is computed. */
static hir_ref first_state(const absorber *s, hir_ref r) {
    while (hir_state_of_value(s->m, r) == HIR_NONE) {
        const hir_op *o = hir_op_at(s->m, pass_def(s->m, r));
        for (uint32_t i = 0; i < o->n_args; i++) {
            r = o->args[i];
            if (r.kind == HIR_REF_VALUE && hir_type_has_c(hir_ref_type(s->m, r))) break;
        }
    }
    return r;
}

static const char *state_name(const absorber *s, hir_ref of, const char *what) {
    const char *base = s->m->states.at[hir_state_of_value(s->m, of)].name;
    const char *name = hd_printf(s->c->scratch, "%s.%s", base, what);
    for (int i = 2; hir_find_state(s->m, name) != HIR_NONE; i++)
        name = hd_printf(s->c->scratch, "%s.%s%d", base, what, i);
    return name;
}

/* Operand `arg` of an attention op becomes a separate cache, in f32: values computed from rounded
 * rows are not rounded again. */
static bool keep(absorber *s, hir_id op, uint32_t arg, const char *what) {
    const hir_ref rows = pass_arg(s->m, op, arg);
    if (hir_state_of_value(s->m, rows) != HIR_NONE) return true;
    const hir_type t = hir_ref_type(s->m, rows);
    const hir_ref of = first_state(s, rows);
    hir_builder b = hir_before(s->m, s->c->diags, op);
    const hir_ref x = of_tokens(s, &b, rows);
    if (x.kind == HIR_REF_NONE) return false;
    const hir_type type = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_C, t.dim[1], t.dim[2]});
    const hir_opcode append = hir_op_at(s->m, pass_def(s->m, of))->code;
    const char *name = state_name(s, of, what);
    const uint32_t state = hir_add_state(s->m, name, HIR_STATE_CACHE, type, b.loc);
    const hir_ref kept = hir_emit2(&b, append, x, hir_state_ref(state));
    if (kept.kind == HIR_REF_NONE) return false;
    hir_op_at(s->m, op)->args[arg] = kept;
    return s->c->changed = true;
}

/* Erases values that are computed from cached rows and no longer read, and writes of states that
 * were only read to compute them. */
static void sweep(absorber *s) {
    bool *live = hd_new_array(s->c->scratch, bool, s->m->values.n);
    for (hir_id op = s->m->last, prev; op != HIR_NONE; op = prev) {
        const hir_op *o = hir_op_at(s->m, op);
        const hir_id y = o->n_results ? o->results[0] : HIR_NONE;
        prev = o->prev;
        const bool rows = y != HIR_NONE && hir_type_has_c(hir_value_at(s->m, y)->type);
        const bool writes = hir_has_trait(o->code, HIR_EFFECT);
        const bool left = rows && y < s->n_values && s->left[y];
        if (rows && !live[y] && (!writes || left)) {
            hir_erase(s->m, op);
            continue;
        }
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) live[o->args[i].index] = true;
    }
}

/* ---- the pass ------------------------------------------------------------------------------ */
/* Numbers that attention reads for each position: cached_numbers if it reads the cached rows,
 * made_numbers if it reads k and v. */
static int64_t cached_numbers(const hir_module *m, const latent_view *v) {
    const bool own = v->has_shared && !hir_ref_equal(v->shared.rows, v->k.c.rows);
    return v->groups * (hir_ref_type(m, v->k.c.rows).dim[2] + (own ? v->shared.n : 0));
}

static int64_t made_numbers(const hir_module *m, hir_id op) {
    return pass_elements(hir_arg_type(m, op, 1)) + pass_elements(hir_arg_type(m, op, 2));
}

/* The numbers that the states from which r is computed have for each position; each value counts
 * once. */
static int64_t numbers_of_states(const absorber *s, hir_ref r, bool *seen) {
    const hir_id made = pass_def(s->m, r);
    int64_t sum = 0;
    if (r.kind != HIR_REF_VALUE || seen[r.index] || !hir_type_has_c(hir_ref_type(s->m, r)))
        return 0;
    seen[r.index] = true;
    if (hir_state_of_value(s->m, r) != HIR_NONE) return pass_elements(hir_ref_type(s->m, r));
    for (uint32_t i = 0; made != HIR_NONE && i < hir_op_at(s->m, made)->n_args; i++)
        sum += numbers_of_states(s, pass_arg(s->m, made, i), seen);
    return sum;
}

/* For the remark: what attention over the cached rows themselves would have saved. */
static const char *gain_of_rows(const absorber *s, hir_id op, int64_t made) {
    bool *seen = hd_new_array(s->c->scratch, bool, s->m->values.n);
    const int64_t rows = numbers_of_states(s, pass_arg(s->m, op, 1), seen) +
                         numbers_of_states(s, pass_arg(s->m, op, 2), seen);
    if (rows >= made)
        return hd_printf(s->c->scratch,
                         "; nothing would have been gained: the rows have %lld numbers for each "
                         "position, k and v %lld",
                         (long long)rows, (long long)made);
    return hd_printf(s->c->scratch,
                     "; attention reads %lld numbers for each position instead of the %lld of the "
                     "rows",
                     (long long)made, (long long)rows);
}

static bool visit(absorber *s, hir_id op) {
    latent_view v;
    const int64_t made = made_numbers(s->m, op), heads = hir_arg_type(s->m, op, 0).dim[1];
    const char *why = latent_find(s->m, op, s->c->scratch, &v);
    if (!why && hir_op_at(s->m, op)->code == HIR_ATTENTION_SELECTED_OP && v.has_shared &&
        !hir_ref_equal(v.shared.rows, v.k.c.rows))
        why = "the latent and what all heads share are cached separately";
    const int64_t cached = why ? 0 : cached_numbers(s->m, &v);
    if (!why && cached < made) {
        const int64_t r = v.k.c.n, p = v.has_shared ? v.shared.n : 0;
        hir_remark_add(s->c, true, op,
                       "latent attention: %lld numbers read for each position instead of %lld of k "
                       "and v; %lld multiply-adds for each pair of positions instead of %lld, and "
                       "%lld for each token instead of each position that is read",
                       (long long)cached, (long long)made, (long long)(heads * (2 * r + p)),
                       (long long)(heads * (v.k.n + p + v.v.n)),
                       (long long)(heads * r * (v.k.n + v.v.n)));
        const bool selected = hir_op_at(s->m, op)->code == HIR_ATTENTION_SELECTED_OP;
        return selected ? absorb_selected(s, op, &v) : absorb(s, op, &v);
    }
    if (!why) why = "they are no larger than the rows";
    hir_remark_add(s->c, false, op, "k and v are cached as they are made of rows: %s%s", why,
                   gain_of_rows(s, op, made));
    return keep(s, op, 1, "keys") && keep(s, op, 2, "values");
}

static bool is_made(const hir_module *m, hir_ref r) {
    return hir_state_of_value(m, r) == HIR_NONE && pass_def(m, r) != HIR_NONE;
}

/* Calls `of` for each attention op whose keys or values are made of cached rows. */
static bool each_made(hir_pass_context *c, bool (*of)(absorber *s, hir_id op)) {
    absorber s = {.c = c, .m = c->m, .forward = {.arena = c->scratch}, .n_values = c->m->values.n};
    s.made = hd_new_array(c->scratch, hir_ref, s.n_values);
    s.left = hd_new_array(c->scratch, bool, s.n_values);
    HIR_EACH(s.m, op, s.m->first) {
        const hir_opcode code = hir_op_at(s.m, op)->code;
        if (code != HIR_ATTENTION_OP && code != HIR_ATTENTION_SELECTED_OP) continue;
        const bool made = is_made(s.m, pass_arg(s.m, op, 1)) || is_made(s.m, pass_arg(s.m, op, 2));
        if (made && !of(&s, op)) return false;
    }
    if (!c->changed) return true;
    pass_forward_finish(&s.forward, s.m);
    sweep(&s);
    return true;
}

bool pass_absorb_latent(hir_pass_context *c) {
    return each_made(c, visit);
}

static bool keep_both(absorber *s, hir_id op) {
    hir_remark_add(s->c, true, op, "k and v are made of each token's row, and cached");
    return keep(s, op, 1, "keys") && keep(s, op, 2, "values");
}

bool pass_cache_made(hir_pass_context *c) {
    return each_made(c, keep_both);
}
