/* Legality of a whole module, in time proportional to its ops.
 *
 * The type rules (ir/infer/) check each op and its operands. Checked here: the tables; that
 * definitions come before uses; the structure of bodies; that outputs have distinct names and a
 * state is written once; that places are inside their areas. Whether code generation can emit a
 * kernel is checked by ir/kernel/rules.c.
 */
#include "ir/verify.h"

#include "ir/names.h"

/* State of a value during the walk; CLAIMED: a result of the op being verified. */
typedef enum visibility { UNDEFINED, CLAIMED, DEFINED, OUT_OF_SCOPE } visibility;

typedef struct verifier {
    const hir_module *m;
    const hir_module
        *whole; /* with weights as in the checkpoint: derived weights are made of those */
    hd_diags *d;
    const hir_text_locs *text; /* where it was parsed from, or NULL */
    unsigned char *visible;
    bool *written;              /* states that an op has changed */
    hir_names outputs, names;   /* of outputs; of named values */
    HD_VEC(hir_ref) out_values; /* operand of each output op, in order */
    size_t visited;
    bool ok;
} verifier;

static hd_loc loc_of(const verifier *v, hir_id op) {
    return v->text ? v->text->ops[op] : *hir_op_at(v->m, op)->loc;
}

#define REFUSE(v, code, loc, ...) (hd_err((v)->d, (code), (loc), __VA_ARGS__), (v)->ok = false)

/* ---- tables -------------------------------------------------------------------------------- */
static bool is_identifier(const char *s) {
    if (!s || !*s || (*s >= '0' && *s <= '9')) return false;
    for (; *s; s++)
        if (!(*s >= 'a' && *s <= 'z') && !(*s >= 'A' && *s <= 'Z') && !(*s >= '0' && *s <= '9') &&
            *s != '_')
            return false;
    return true;
}

/* Dims from `first` on are integers in range, and the bytes of a row do not overflow. */
static bool dims_fit(hir_type t, uint32_t first) {
    int64_t elements = hir_type_row_elements(t), bytes;
    for (uint32_t i = first; i < t.rank; i++)
        if (t.dim[i] < 1 || t.dim[i] > HIR_MAX_DIM) return false;
    return t.rank <= HIR_MAX_RANK && elements >= 0 &&
           !hd_mul_overflow(elements, (int64_t)sizeof(double), &bytes);
}

/* The factors of one block of rows of a derived weight: weights of the checkpoint that have the
 * elements of the whole block, of one row, or one element. */
static bool verify_factors(verifier *v, const hir_weight *w, const hir_derived_row *block,
                           hd_loc loc, const hir_names *names) {
    const int64_t row = hir_derived_row_elements(w->type),
                  rows = hir_derived_rows(v->whole, block, row);
    const size_t errors = v->d->errors;
    for (uint32_t k = 0; k < block->n; k++) {
        const hir_derived_factor *factor = &block->factor[k];
        const char *name = factor->name;
        const uint32_t *at = hir_names_find(names, name);
        const hir_weight *f = at ? &v->whole->weights.at[*at] : NULL;
        const int64_t all = f ? hir_type_row_elements(f->type) : 0,
                      n = hir_factor_elements(factor, all);
        if (!f)
            REFUSE(v, HD_E_NAME, loc, "weight @%s is derived from @%s, which is no weight", w->name,
                   name);
        else if (hir_is_derived(f) || f->unused || (f->stacked && !hir_has_gradients(v->m)))
            REFUSE(v, HD_E_TYPE, loc, "weight @%s is derived from @%s, which is %s", w->name, name,
                   f->unused    ? "unused"
                   : f->stacked ? "stacked"
                                : "derived itself");
        else if (factor->first < 0 || n < 1 || n > all - factor->first)
            REFUSE(v, HD_E_TYPE, loc, "weight @%s is derived from elements %lld to %lld of @%s, %s",
                   w->name, (long long)factor->first, (long long)(factor->first + n), name,
                   hir_type_string(v->d->arena, f->type));
        else if (factor->by == HIR_DERIVED_TRANSPOSED &&
                 (f->type.rank < 2 || f->type.rank > 3 || n % row || factor->first % (n / row)))
            REFUSE(v, HD_E_TYPE, loc, "weight @%s: what is transposed of @%s, %s, is no whole rows",
                   w->name, name, hir_type_string(v->d->arena, f->type));
        else if (n != 1 && n != row && n != rows * row)
            REFUSE(v, HD_E_TYPE, loc, "weight @%s: %s of %lld elements is derived from @%s, %s",
                   w->name, rows > 1 || row == 1 ? "a block" : "a row", (long long)(rows * row),
                   name, hir_type_string(v->d->arena, f->type));
    }
    return v->d->errors == errors;
}

/* The blocks of a derived weight must add up to the rows of its type (of a vector: the
 * elements). */
static void verify_derived(verifier *v, size_t i, const hir_names *names) {
    const hir_weight *w = &v->whole->weights.at[i];
    hd_loc loc = v->text ? v->text->weights[i] : w->loc;
    const uint32_t rank = w->type.rank;
    const char *wrong = rank == 1
                            ? "weight @%s is derived from more or fewer elements than its type has"
                            : "weight @%s is derived from more or fewer rows than its type has";
    int64_t rows = 0;
    bool ok = true;
    if (!dims_fit(w->type, 0)) return; /* reported already */
    if (w->unused || rank < 1 || rank > 3) {
        REFUSE(v, HD_E_TYPE, loc,
               w->unused ? "weight @%s is derived from others, but unused" : wrong, w->name);
        return;
    }
    for (uint32_t r = 0; r < w->n_rows; r++) {
        ok &= verify_factors(v, w, &w->rows[r], loc, names);
        rows += hir_derived_rows(v->whole, &w->rows[r], hir_derived_row_elements(w->type));
    }
    if (ok && rows != (rank == 3 ? w->type.dim[0] * w->type.dim[1] : w->type.dim[0]))
        REFUSE(v, HD_E_TYPE, loc, wrong, w->name);
}

/* Is the weight's type that of a share of one of its dims? */
static bool share_fits(const hir_module *m, const hir_weight *w) {
    const hir_weight_share *s = &w->share;
    return s->dim < w->type.rank && s->share.ranks == (int64_t)m->ranks && m->ranks > 1 &&
           !hir_why_no_share(&s->share) && w->type.dim[s->dim] == hd_local_elements(&s->share);
}

static void verify_weights(verifier *v) {
    hir_names seen;
    hir_names_init(&seen, v->d->arena);
    for (size_t i = 0; i < v->m->weights.n; i++) {
        const hir_weight *w = &v->m->weights.at[i];
        hd_loc loc = v->text ? v->text->weights[i] : w->loc;
        if (hir_names_add(&seen, w->name, (uint32_t)i))
            REFUSE(v, HD_E_NAME, loc, "there are two weights @%s", w->name);
        if (w->type.dtype == HIR_I32)
            REFUSE(v, HD_E_TYPE, loc,
                   "weight @%s is i32; weights are f32, bf16, f16, q8, q4 or mxfp4", w->name);
        if (!dims_fit(w->type, 0))
            REFUSE(
                v, HD_E_TYPE, loc,
                "weight @%s is %s; its dims must be positive integers whose product can be counted",
                w->name, hir_type_string(v->d->arena, w->type));
        else if (hir_why_no_init(w))
            REFUSE(v, HD_E_VALUE, loc, "weight @%s is %s: %s", w->name,
                   hir_type_string(v->d->arena, w->type), hir_why_no_init(w));
        if (w->layout != HIR_LAYOUT_ROWS && !hir_has_matrices(w->type))
            REFUSE(v, HD_E_TYPE, loc, "weight @%s is %s; only matrices have panels", w->name,
                   hir_type_string(v->d->arena, w->type));
        if (w->stacked && (!hir_is_part_pattern(w->name) || w->type.rank < 2 || hir_is_derived(w)))
            REFUSE(
                v, HD_E_TYPE, loc,
                "weight @%s is stacked: its name has one `*`, for the number of a part, its type "
                "two dims or more, and it is not derived",
                w->name);
        if (w->share.on && !share_fits(v->m, w))
            REFUSE(v, HD_E_TYPE, loc, "weight @%s, %s, is not the shard that it says", w->name,
                   hir_type_string(v->d->arena, w->type));
        if (hir_is_quantised(w->type.dtype) && w->layout != HIR_LAYOUT_PANEL)
            REFUSE(v, HD_E_TYPE, loc,
                   "weight @%s is %s; q8, q4 and mxfp4 are stored in panels only", w->name,
                   hir_type_string(v->d->arena, w->type));
        if (w->layout == HIR_LAYOUT_NARROW && hir_has_matrices(w->type) &&
            (w->type.rank != 2 || w->type.dtype != HIR_F32 || w->type.dim[1] % 2))
            REFUSE(v, HD_E_TYPE, loc,
                   "weight @%s is %s; narrow ones are f32 with rows of even length", w->name,
                   hir_type_string(v->d->arena, w->type));
    }
    for (size_t i = 0; i < v->m->weights.n; i++)
        if (hir_is_derived(&v->m->weights.at[i])) verify_derived(v, i, &seen);
}

static void verify_states(verifier *v) {
    hir_names seen;
    hir_names_init(&seen, v->d->arena);
    for (size_t i = 0; i < v->m->states.n; i++) {
        const hir_state *s = &v->m->states.at[i];
        hd_loc loc = v->text ? v->text->states[i] : s->loc;
        if (hir_names_add(&seen, s->name, 0))
            REFUSE(v, HD_E_NAME, loc, "there are two states $%s", s->name);
        const char *why = (unsigned)s->kind < HIR_STATE_KINDS ? hir_why_no_state(s->kind, s->type)
                                                              : "its kind does not exist";
        if (why)
            REFUSE(v, HD_E_TYPE, loc, "state $%s is %s; %s", s->name,
                   hir_type_string(v->d->arena, s->type), why);
    }
}

static void verify_value_name(verifier *v, hir_id value, hd_loc loc) {
    const char *name = hir_value_at(v->m, value)->name;
    if (name && hir_names_add(&v->names, name, value))
        REFUSE(v, HD_E_NAME, loc, "there are two values %%%s", name);
}

static void verify_inputs(verifier *v) {
    for (size_t i = 0; i < v->m->inputs.n; i++) {
        hir_id id = v->m->inputs.at[i];
        hd_loc loc = v->text ? v->text->inputs[i] : HD_NOWHERE;
        if (id >= v->m->values.n || hir_value_at(v->m, id)->op != HIR_NONE ||
            v->visible[id] != UNDEFINED) {
            REFUSE(v, HD_E_INTERNAL, loc, "input %zu is no value of its own", i);
            continue;
        }
        const hir_value *value = hir_value_at(v->m, id);
        const char *name = value->name ? value->name : "?";
        hir_type t = value->type;
        v->visible[id] = DEFINED;
        verify_value_name(v, id, loc);
        const bool ids = t.dtype == HIR_I32 && t.rank && t.dim[0] == HIR_T;
        if ((!ids && t.dtype != HIR_F32) || !dims_fit(t, t.rank && t.dim[0] == HIR_T ? 1 : 0))
            REFUSE(v, HD_E_TYPE, loc,
                   "input %%%s is %s; an input is f32, ids i32[T], or choices i32[T, .., k]", name,
                   hir_type_string(v->d->arena, t));
        if (value->place != HIR_PLACE_NONE &&
            (value->place != HIR_PLACE_INPUT || value->offset != i))
            REFUSE(v, HD_E_TYPE, loc, "input %%%s has the place of something else", name);
    }
}

static void verify_tables(verifier *v) {
    if (v->m->ranks && (v->m->ranks < 2 || v->m->ranks > HIR_MAX_RANKS ||
                        v->m->divide_from < (int64_t)v->m->ranks))
        REFUSE(v, HD_E_VALUE, v->text ? v->text->module : HD_NOWHERE,
               "the module is for %u ranks, and divides rows from %lld tokens on: not every rank "
               "would have one",
               v->m->ranks, (long long)v->m->divide_from);
    if (v->m->arena_kept > v->m->arena_per_token || v->m->local_kept > v->m->local_per_token)
        REFUSE(v, HD_E_VALUE, v->text ? v->text->module : HD_NOWHERE,
               "more of an arena is kept than it has");
    if (!is_identifier(v->m->name))
        REFUSE(v, HD_E_NAME, v->text ? v->text->module : HD_NOWHERE,
               "the module's name '%s' is no C identifier", v->m->name);
    verify_weights(v);
    verify_states(v);
    verify_inputs(v);
}

/* ---- places -------------------------------------------------------------------------------- */
/* Does a value lie inside its area, and not across the boundary of the part that is separate from
 * the rest (hir_module.arena_kept)? */
static bool area_holds(uint64_t area, uint64_t kept, uint64_t offset, hir_type t) {
    int64_t elements = hir_type_row_elements(t), bytes;
    uint64_t end;
    return elements >= 0 && !hd_mul_overflow(elements, (int64_t)hir_dtype_bytes(t.dtype), &bytes) &&
           !hd_add_overflow(offset, (uint64_t)bytes, &end) && end <= area && offset % 4 == 0 &&
           (offset >= kept || end <= kept);
}

static bool place_fits(const verifier *v, hir_id id) {
    const hir_value *value = hir_value_at(v->m, id);
    hir_type t = value->type;
    const bool has_c = hir_type_has_c(t);
    switch (value->place) {
    case HIR_PLACE_NONE: return true;
    case HIR_PLACE_ARENA:
        return t.rank && t.dim[0] == HIR_T &&
               area_holds(v->m->arena_per_token, v->m->arena_kept, value->offset, t);
    case HIR_PLACE_LOCAL:
        return t.rank && hir_is_row_share(t.dim[0]) &&
               area_holds(v->m->local_per_token, v->m->local_kept, value->offset, t);
    case HIR_PLACE_TILE:
        return t.rank && t.dim[0] == HIR_T && area_holds(v->m->tile_per_token, 0, value->offset, t);
    case HIR_PLACE_FIXED:
        return !hir_type_has_t(t) && !has_c && area_holds(v->m->fixed_bytes, 0, value->offset, t);
    case HIR_PLACE_OUTPUT:
    case HIR_PLACE_GRADIENT:
        return value->offset < v->out_values.n &&
               hir_ref_equal(v->out_values.at[value->offset], hir_value_ref(id));
    case HIR_PLACE_STATE:
        return value->offset < v->m->states.n &&
               hir_type_equal(t, v->m->states.at[value->offset].type);
    case HIR_PLACE_INPUT: return false;
    }
    return false;
}

static void verify_places(verifier *v, hir_id id, const hir_op *op) {
    bool kernel = hir_is_kernel(op);
    for (uint32_t i = 0; i < op->n_results; i++) {
        const hir_value *value = hir_value_at(v->m, op->results[i]);
        if (value->place != HIR_PLACE_NONE && !kernel)
            REFUSE(v, HD_E_TYPE, loc_of(v, id), "%s: only results of kernels have places",
                   hir_info(op->code)->name);
        else if (!place_fits(v, op->results[i]))
            REFUSE(v, HD_E_TYPE, loc_of(v, id), "%s: result %u does not fit its place",
                   hir_info(op->code)->name, i);
    }
}

/* ---- ops ----------------------------------------------------------------------------------- */
static bool args_visible(verifier *v, hir_id id, const hir_op *op) {
    for (uint32_t i = 0; i < op->n_args; i++) {
        hir_ref r = op->args[i];
        if (r.kind == HIR_REF_WEIGHT && r.index < v->m->weights.n &&
            v->m->weights.at[r.index].unused)
            REFUSE(v, HD_E_TYPE, loc_of(v, id), "%s: weight @%s is declared unused",
                   hir_info(op->code)->name, v->m->weights.at[r.index].name);
        if (r.kind != HIR_REF_VALUE) continue;
        if (r.index >= v->m->values.n || v->visible[r.index] != DEFINED) {
            bool inner = r.index < v->m->values.n && v->visible[r.index] == OUT_OF_SCOPE;
            REFUSE(v, HD_E_NAME, loc_of(v, id), "%s: operand %u is a value that is %s",
                   hir_info(op->code)->name, i,
                   inner ? "inside another kernel's body" : "not defined before it");
            return false;
        }
    }
    return true;
}

/* No other op has the same results. */
static bool results_sound(verifier *v, hir_id id, const hir_op *op) {
    bool ok = hir_is_kernel(op) ? op->n_results > 0 : op->n_results == hir_result_count(op->code);
    for (uint32_t i = 0; ok && i < op->n_results; i++) {
        hir_id r = op->results[i];
        ok = r < v->m->values.n && hir_value_at(v->m, r)->op == id && v->visible[r] == UNDEFINED;
        if (ok) v->visible[r] = CLAIMED;
    }
    if (!ok)
        REFUSE(v, HD_E_INTERNAL, loc_of(v, id), "%s: its results are not its own",
               hir_info(op->code)->name);
    return ok;
}

static void define_results(verifier *v, hir_id id, const hir_op *op) {
    for (uint32_t i = 0; i < op->n_results; i++) {
        v->visible[op->results[i]] = DEFINED;
        verify_value_name(v, op->results[i], loc_of(v, id));
    }
}

static bool stage_fits(verifier *v, hir_id id, const hir_op *op) {
    hir_stage stage = hir_info(op->code)->stage;
    bool top = op->parent == HIR_NONE;
    const char *name = hir_info(op->code)->name;
    if (stage > v->m->stage) {
        REFUSE(v, HD_E_TYPE, loc_of(v, id), "%s is legal %s, and this module is at the %s stage",
               name, hir_stage_legal(stage), hir_stage_name(v->m->stage));
        return false;
    }
    bool only_top = hir_is_kernel(op) || op->code == HIR_OUTPUT_OP || op->code == HIR_TRACE_OP;
    if (only_top && !top)
        REFUSE(v, HD_E_TYPE, loc_of(v, id), "%s cannot stand in a kernel's body", name);
    else if (op->code == HIR_YIELD_OP && top)
        REFUSE(v, HD_E_TYPE, loc_of(v, id), "yield stands at the end of a kernel's body only");
    else
        return true;
    return false;
}

/* Output names are distinct, but that those of a gradient are its summands; and a state is written at most once; scores go from op to op. */
static void verify_once(verifier *v, hir_id id, const hir_op *op) {
    if (op->code == HIR_OUTPUT_OP) {
        const char *name = hir_attr_string(op, HIR_A_NAME, "");
        if (hir_names_add(&v->outputs, name, id) && !hir_is_gradient(op))
            REFUSE(v, HD_E_NAME, loc_of(v, id), "there are two outputs \"%s\"", name);
    }
    const uint32_t state = hir_written_state(v->m, id);
    if (state == HIR_NONE || hir_is_of_call(&v->m->states.at[state])) return;
    if (v->written[state])
        REFUSE(v, HD_E_TYPE, loc_of(v, id), "%s: state $%s is written twice",
               hir_info(op->code)->name, v->m->states.at[state].name);
    v->written[state] = true;
}

/* One op without its body; true if the body can be verified. */
static bool verify_op(verifier *v, hir_id id) {
    const hir_op *op = hir_op_at(v->m, id);
    hir_op here = *op;
    hir_type type;
    if (!results_sound(v, id, op) || !stage_fits(v, id, op)) return false;
    if (op->body_first != HIR_NONE && !hir_is_kernel(op)) {
        REFUSE(v, HD_E_INTERNAL, loc_of(v, id), "%s has a body", hir_info(op->code)->name);
        return false;
    }
    const hd_loc at = loc_of(v, id);
    here.loc = &at;
    if (!args_visible(v, id, op)) return true;
    if (!hir_infer(v->m, &here, v->d, &type)) {
        v->ok = false;
        return true;
    }
    if (!hir_is_kernel(op) && op->n_results == 1 &&
        !hir_type_equal(type, hir_value_at(v->m, op->results[0])->type))
        REFUSE(v, HD_E_TYPE, at, "%s: the result is %s, but its operands give %s",
               hir_info(op->code)->name,
               hir_type_string(v->d->arena, hir_value_at(v->m, op->results[0])->type),
               hir_type_string(v->d->arena, type));
    verify_once(v, id, op);
    verify_places(v, id, op);
    return true;
}

/* ---- lists --------------------------------------------------------------------------------- */
/* The op's links agree with the walk; this also ends the walk at a cycle. */
static bool linked(verifier *v, hir_id id, hir_id parent, hir_id prev) {
    const hir_op *op = id < v->m->ops.n ? hir_op_at(v->m, id) : NULL;
    if (op && !op->erased && op->parent == parent && op->prev == prev &&
        v->visited++ < v->m->ops.n && (unsigned)op->code < HIR_OPCODE_COUNT)
        return true;
    REFUSE(v, HD_E_INTERNAL, HD_NOWHERE, "the op list is broken at op %u", id);
    return false;
}

static void verify_yield(verifier *v, hir_id kernel, hir_id last) {
    const hir_op *k = hir_op_at(v->m, kernel), *y = last == HIR_NONE ? NULL : hir_op_at(v->m, last);
    const char *name = hir_info(k->code)->name;
    if (!y || y->code != HIR_YIELD_OP) {
        REFUSE(v, HD_E_TYPE, loc_of(v, kernel), "%s: the body does not end with yield", name);
        return;
    }
    if (y->n_args != k->n_results) {
        REFUSE(v, HD_E_TYPE, loc_of(v, last), "yield has %u value%s for %u result%s of its kernel",
               y->n_args, hd_s(y->n_args), k->n_results, hd_s(k->n_results));
        return;
    }
    for (uint32_t i = 0; i < y->n_args; i++) {
        hir_type result = hir_value_at(v->m, k->results[i])->type;
        if (y->args[i].kind == HIR_REF_VALUE && y->args[i].index < v->m->values.n &&
            !hir_type_equal(hir_ref_type(v->m, y->args[i]), result))
            REFUSE(v, HD_E_TYPE, loc_of(v, last), "yield: value %u is %s, but the result is %s", i,
                   hir_type_string(v->d->arena, hir_ref_type(v->m, y->args[i])),
                   hir_type_string(v->d->arena, result));
    }
}

static void verify_body(verifier *v, hir_id kernel) {
    hir_id prev = HIR_NONE;
    bool misplaced = false;
    for (hir_id id = hir_op_at(v->m, kernel)->body_first; id != HIR_NONE;
         prev = id, id = hir_op_at(v->m, id)->next) {
        if (!linked(v, id, kernel, prev)) return;
        const hir_op *op = hir_op_at(v->m, id);
        if (op->code == HIR_YIELD_OP && op->next != HIR_NONE) {
            misplaced = true;
            REFUSE(v, HD_E_TYPE, loc_of(v, id), "yield is not the last op of the body");
        }
        if (verify_op(v, id)) define_results(v, id, op);
    }
    if (!misplaced) verify_yield(v, kernel, prev);
    HIR_EACH(v->m, id, hir_op_at(v->m, kernel)->body_first) {
        const hir_op *op = hir_op_at(v->m, id);
        for (uint32_t i = 0; i < op->n_results; i++)
            if (op->results[i] < v->m->values.n) v->visible[op->results[i]] = OUT_OF_SCOPE;
    }
}

static void verify_ops(verifier *v) {
    hir_id prev = HIR_NONE;
    for (hir_id id = v->m->first; id != HIR_NONE; prev = id, id = hir_op_at(v->m, id)->next) {
        if (!linked(v, id, HIR_NONE, prev)) return;
        if (!verify_op(v, id)) continue;
        if (hir_is_kernel(hir_op_at(v->m, id))) verify_body(v, id);
        define_results(v, id, hir_op_at(v->m, id));
    }
    if (prev != v->m->last)
        REFUSE(v, HD_E_INTERNAL, HD_NOWHERE, "the op list does not end at its last op");
}

/* Operands of outputs: places refer to them before the walk reaches the output ops. */
static void collect_outputs(verifier *v) {
    size_t steps = 0;
    for (hir_id id = v->m->first; id < v->m->ops.n && steps++ < v->m->ops.n;
         id = hir_op_at(v->m, id)->next) {
        const hir_op *op = hir_op_at(v->m, id);
        if (op->code == HIR_OUTPUT_OP && op->n_args == 1)
            hd_push(v->d->arena, &v->out_values, op->args[0]);
    }
}

bool hir_verify_at(const hir_module *m, hd_diags *d, const hir_text_locs *text) {
    verifier v = {.m = m, .d = d, .text = text, .ok = true};
    v.whole = hir_with_whole_weights(m, d->arena);
    v.visible = hd_new_array(d->arena, unsigned char, m->values.n);
    v.written = hd_new_array(d->arena, bool, m->states.n);
    hir_names_init(&v.outputs, d->arena);
    hir_names_init(&v.names, d->arena);
    collect_outputs(&v);
    verify_tables(&v);
    verify_ops(&v);
    return v.ok;
}

bool hir_verify(const hir_module *m, hd_diags *d) {
    return hir_verify_at(m, d, NULL);
}
