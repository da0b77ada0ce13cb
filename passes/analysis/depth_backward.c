/* Finds the gradients of the residual mechanism in the backward half of a module
 * (depth_backward.h).
 *
 *   kinds     from the first op of the half to the last: what reads the inside of a sublayer, or a
 *             gradient of it, is inside; all else that is made of the mechanism or of its gradients
 *             is of the mechanism.
 *   doubtful  an op that reads a value that is made inside a sublayer for the mechanism (an output,
 *             a gate) may be the gradient of either side: d(g y) = g dy is of the mechanism, that
 *             of g = sigmoid(x) is not. Its users tell: it is inside if all that is made of it goes
 *             on inside.
 */
#include "passes/analysis/depth_backward.h"

#include <string.h>

#include "ir/signature.h"
#include "passes/analysis/copies.h"
#include "passes/util.h"

/* ---- halves ---------------------------------------------------------------------------------- */

static void need_arguments(const hir_op *o, bool *needed) {
    for (uint32_t i = 0; i < o->n_args; i++)
        if (o->args[i].kind == HIR_REF_VALUE) needed[o->args[i].index] = true;
}

static bool any_needed(const hir_op *o, const bool *needed) {
    bool any = false;
    for (uint32_t i = 0; i < o->n_results; i++)
        any |= needed[o->results[i]];
    return any;
}

/* Marks what outputs depend on, all of them or `loss` alone, among the ops up to `last`. */
static void need_in(const hir_module *m, hir_id last, const hir_op *kernel, hir_id loss,
                    bool *needed) {
    for (hir_id op = last; op != HIR_NONE; op = hir_op_at(m, op)->prev) {
        const hir_op *o = hir_op_at(m, op);
        const bool yields = kernel && o->code == HIR_YIELD_OP;
        for (uint32_t i = 0; yields && i < o->n_args; i++)
            if (needed[kernel->results[i]] && o->args[i].kind == HIR_REF_VALUE)
                needed[o->args[i].index] = true;
        const bool begins = loss == HIR_NONE ? !o->n_results : op == loss;
        if (yields || (!begins && !any_needed(o, needed))) continue;
        if (hir_is_kernel(o))
            need_in(m, o->body_last, o, loss, needed);
        else
            need_arguments(o, needed);
    }
}

bool *hir_needed_by_loss(const hir_module *m, hd_arena *a) {
    bool *needed = hd_new_array(a, bool, m->values.n + 1);
    const hir_id loss = hir_loss_sum_output(m);
    if (loss != HIR_NONE)
        need_in(m, m->last, NULL, loss, needed);
    else
        memset(needed, true, m->values.n);
    return needed;
}

/* ---- the finder ------------------------------------------------------------------------------ */

typedef enum side {          /* of a value, by itself */
                    NEUTRAL, /* the same for every token */
                    MEMBER,  /* of the mechanism, in the forward half */
                    CLAIMED, /* made inside a sublayer for the mechanism: an output, a gate */
                    INSIDE,  /* of a sublayer, in either half */
                    GRADIENT,
                    AGAIN,
} side;

typedef struct finder {
    hir_backward *out;
    const hir_flow *flow;
    const hir_module *m;
    hd_arena *arena;
    side *side;     /* by value */
    bool *narrow;   /* by value: numbers, made of entries that are numbers and no other gradients */
    bool *doubtful; /* by value: of the backward half */
    bool *goes_inside; /* by value: all that is made of it goes on inside a sublayer */
    bool *goes_on;     /* by value: some does not */
    hir_id *reader;    /* by weight: a contraction of the forward half */
    hir_id *read_by;   /* by value: a border op of the forward half that is no contraction */
    hir_id *picked;    /* by value: of ids, the scores that they are picked from */
    hir_id *base;      /* by value of the forward half: the row that it is made of alone */
    bool *is_base;     /* by value: a sublayer's input is made of it alone */
} finder;

static bool is_row_of_floats(const finder *f, hir_id v) {
    const hir_type t = hir_value_at(f->m, v)->type;
    return t.dtype != HIR_I32 && (hir_type_has_t(t) || hir_type_has_c(t));
}

static uint64_t row(const finder *f, hir_id v) {
    return (uint64_t)pass_elements(hir_value_at(f->m, v)->type);
}

/* The origin of operand i if it is a row of floats; else HIR_NONE. */
static hir_id operand(const finder *f, const hir_op *o, uint32_t i) {
    if (o->args[i].kind != HIR_REF_VALUE || !is_row_of_floats(f, o->args[i].index)) return HIR_NONE;
    return f->flow->origin[o->args[i].index];
}

static bool is_of_mechanism(const finder *f, hir_id v) {
    return f->flow->member[v] && !f->flow->inside[v];
}

/* The weight of an operand as the forward half has it: that which it is the transpose of. */
static hir_id weight_of(const finder *f, hir_ref r) {
    while (r.kind == HIR_REF_VALUE) { /* before fold-weights it is transposed by ops */
        const hir_id made = hir_value_at(f->m, r.index)->op;
        const hir_op *by = made == HIR_NONE ? NULL : hir_op_at(f->m, made);
        if (!by || (by->code != HIR_TRANSPOSE_OP && by->code != HIR_RESHAPE_OP)) return HIR_NONE;
        r = by->args[0];
    }
    if (r.kind != HIR_REF_WEIGHT) return HIR_NONE;
    const hir_weight *w = &f->m->weights.at[r.index];
    hir_id source = hir_transposed_source(f->m, w);
    if (source == HIR_NONE && w->n_rows == 1 && w->rows[0].n == 1) /* of one row or column */
        source = hir_find_weight(f->m, w->rows[0].factor[0].name);
    return source == HIR_NONE ? r.index : source;
}

/* ---- what the forward half tells ------------------------------------------------------------- */

/* A contraction of few columns may be a product of rows, and a sum over it. */
static void note_row_operation(finder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id w = weight_of(f, o->args[i]);
        const bool matrix = w != HIR_NONE && f->m->weights.at[w].type.rank == 2;
        if (matrix && f->reader[w] == HIR_NONE) f->reader[w] = op;
    }
}

static void find_readers(finder *f) {
    f->reader = hd_new_array(f->arena, hir_id, f->m->weights.n + 1);
    f->read_by = hd_new_array(f->arena, hir_id, f->m->values.n + 1);
    for (size_t w = 0; w < f->m->weights.n; w++)
        f->reader[w] = HIR_NONE;
    f->picked = hd_new_array(f->arena, hir_id, f->m->values.n + 1);
    for (size_t v = 0; v < f->m->values.n; v++)
        f->read_by[v] = f->picked[v] = HIR_NONE;
    for (size_t k = 0; k < f->flow->program.n; k++) {
        const hir_id op = f->flow->program.at[k];
        const hir_op *o = hir_op_at(f->m, op);
        if (hir_is_linear(o->code)) {
            const hir_id w = weight_of(f, o->args[1]);
            const hir_id x = operand(f, o, 0);
            if (w != HIR_NONE && f->reader[w] == HIR_NONE) f->reader[w] = op;
            if (x == HIR_NONE || !hir_flow_is_border(f->flow, o)) continue;
            uint64_t *least = &f->out->contracted[x];
            if (!*least || row(f, o->results[0]) < *least) *least = row(f, o->results[0]);
        } else if (o->code == HIR_MUL_OP) {
            note_row_operation(f, op);
        } else if (hir_flow_is_border(f->flow, o) && o->n_results) {
            const bool picks = o->code == HIR_PICK_OP && o->args[1].kind == HIR_REF_VALUE;
            if (picks) f->picked[f->flow->origin[o->args[1].index]] = operand(f, o, 0);
            for (uint32_t i = 0; i < o->n_args; i++) {
                const hir_id x = operand(f, o, i);
                if (x != HIR_NONE) f->read_by[x] = op;
            }
        }
    }
}

/* The row that a value of the mechanism is made of alone: a value of the stream, a mix, or a
 * stack of sources; a value narrower than a row that it is made of begins again. */
static hir_id base_of(const finder *f, const hir_op *o) {
    const hir_id y = o->results[0];
    hir_id base = HIR_NONE;
    if (hir_flow_is_stream(f->flow->kind[y]) || f->flow->inside[y]) return f->flow->root[y];
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id x = operand(f, o, i);
        if (x == HIR_NONE || !f->flow->varies[x]) continue;
        const hir_id of = f->base[x];
        const bool narrower = row(f, y) >= f->flow->width && row(f, x) > row(f, y);
        if (of == HIR_NONE || narrower || (base != HIR_NONE && base != of)) return y;
        base = of;
    }
    return base == HIR_NONE ? y : base;
}

static void find_norms(finder *f) {
    const size_t n = f->m->values.n;
    f->base = hd_new_array(f->arena, hir_id, n + 1);
    f->is_base = hd_new_array(f->arena, bool, n + 1);
    bool *mixed = hd_new_array(f->arena, bool, n + 1);
    for (size_t v = 0; v < n; v++)
        f->base[v] = (hir_id)v;
    for (size_t k = 0; k < f->flow->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->flow->program.at[k]);
        if (o->n_results == 1) f->base[o->results[0]] = base_of(f, o);
    }
    for (size_t i = 0; i < f->flow->inputs.n; i++) {
        const hir_flow_input *x = &f->flow->inputs.at[i];
        f->is_base[f->base[x->value]] = true;
        for (size_t k = 0; hir_flow_sources(x) > 1 && k < hir_flow_sources(x); k++)
            mixed[hir_flow_source(x, k)->value] = true;
    }
    for (size_t v = 0; v < n; v++) {
        const hir_id base = f->base[v];
        f->out->normed[v] = is_of_mechanism(f, (hir_id)v) && f->is_base[base] && !mixed[base];
    }
}

/* ---- sides ----------------------------------------------------------------------------------- */

static side side_in_forward(const finder *f, hir_id v) {
    if (!f->flow->varies[v]) return NEUTRAL;
    if (!f->flow->member[v]) return INSIDE;
    return f->flow->inside[v] ? CLAIMED : MEMBER;
}

static side side_of_operand(const finder *f, const hir_op *o, uint32_t i) {
    const hir_id x = operand(f, o, i);
    return x == HIR_NONE ? NEUTRAL : f->out->forward[x] ? side_in_forward(f, x) : f->side[x];
}

/* Of gradients: does it come out of a sublayer, as that of what attention or a choice reads
 * does, and has met no row since then? */
static bool comes_out(const finder *f, hir_id v) {
    if (f->out->forward[v]) return false;
    return f->side[v] == INSIDE || f->out->kind[v] == HIR_BACK_ENTRY || f->narrow[v];
}

/* The contraction of a sublayer in the forward half that has the op's weight; NULL: none. One
 * with few columns is an op of the mechanism like others, unless what it makes is for sublayers
 * alone. */
static const hir_op *contraction_of(const finder *f, const hir_op *o) {
    if (!hir_is_linear(o->code)) return NULL;
    const hir_id w = weight_of(f, o->args[1]), op = w == HIR_NONE ? HIR_NONE : f->reader[w];
    const hir_op *forward = op == HIR_NONE ? NULL : hir_op_at(f->m, op);
    const hir_id dy = operand(f, o, 0);
    const bool few = forward && !hir_flow_is_border(f->flow, forward);
    return few && (dy == HIR_NONE || !comes_out(f, dy)) ? NULL : forward;
}

/* What a state was given: its gradient is that of the rows that are read. */
static hir_id cached(const finder *f, hir_id x) {
    const hir_id made = x == HIR_NONE ? HIR_NONE : hir_value_at(f->m, x)->op;
    const bool state =
        made != HIR_NONE && hir_has_trait(hir_op_at(f->m, made)->code, HIR_WRITES_STATE);
    return state ? operand(f, hir_op_at(f->m, made), 0) : x;
}

/* The value whose gradient an op gives that is that of a border of sublayers: of an operand
 * along the sequence, or of the scores that a choice was made from; HIR_NONE: it is not such an
 * op. */
static hir_id gradient_of(const finder *f, const hir_op *o) {
    if (o->code == HIR_SCATTER_OP && o->args[1].kind == HIR_REF_VALUE) {
        const hir_id ids = f->flow->origin[o->args[1].index], original = f->out->original[ids];
        return f->picked[original == HIR_NONE ? ids : original];
    }
    const char *of = hir_attr_string(o, HIR_A_OF, NULL);
    if (!of || !hir_has_trait(o->code, HIR_SEQUENCE)) return HIR_NONE;
    const hir_signature s = hir_signature_of(o->code);
    for (uint32_t i = 0; i < o->n_args && i < s.n_operands; i++)
        if (!strcmp(s.operands[i].name, of)) return cached(f, operand(f, o, i));
    return HIR_NONE;
}

/* What a contraction reads, or a product of rows in its place. */
static hir_id operand_with_weight(const finder *f, const hir_op *o) {
    const hir_id x = operand(f, o, 0);
    return x == HIR_NONE && o->n_args > 1 ? operand(f, o, 1) : x;
}

static uint32_t sublayer_reading(const finder *f, hir_id x) {
    const uint32_t i = f->flow->input[x];
    return i == HIR_NONE ? HIR_FLOW_MANY : f->flow->inputs.at[i].sublayer;
}

/* What a border gives: the gradient of what it reads in the forward half. */
static side side_of_border(finder *f, const hir_op *o, hir_id x) {
    const hir_id y = o->results[0];
    if (x == HIR_NONE) return INSIDE;
    const bool made_again = !f->out->forward[x] && (f->side[x] == AGAIN || f->side[x] == CLAIMED);
    if (!made_again && (!f->out->forward[x] || !f->flow->member[x])) return INSIDE;
    f->out->kind[y] = HIR_BACK_ENTRY;
    f->out->home[y] = made_again ? HIR_FLOW_MANY : sublayer_reading(f, x);
    return GRADIENT;
}

typedef struct seen { /* among the operands of an op */
    bool inside, claimed, member, gradient, again;
    bool entries; /* all gradients are entries */
    bool narrow;  /* all gradients come out of sublayers as numbers */
    bool inputs;  /* all that varies is of a sublayer's input and its norm */
    uint32_t home;
} seen;

static void join(uint32_t *home, uint32_t with) {
    if (with) *home = *home && *home != with ? HIR_FLOW_MANY : with;
}

static seen look_at(const finder *f, const hir_op *o) {
    seen s = {.entries = true, .narrow = true, .inputs = true};
    for (uint32_t i = 0; i < o->n_args; i++) {
        const side at = side_of_operand(f, o, i);
        if (at == NEUTRAL) continue;
        const hir_id x = operand(f, o, i);
        const hir_back_kind kind = f->out->kind[x];
        s.inside |= at == INSIDE;
        s.claimed |= at == CLAIMED;
        s.member |= at == MEMBER;
        s.gradient |= at == GRADIENT;
        s.again |= at == AGAIN;
        s.entries &= at == GRADIENT && kind == HIR_BACK_ENTRY;
        const bool numbers = row(f, x) < f->flow->width;
        if (at == GRADIENT) s.narrow &= f->narrow[x] || (numbers && kind == HIR_BACK_ENTRY);
        s.inputs &= kind == HIR_BACK_ENTRY || kind == HIR_BACK_INPUT || f->out->normed[x];
        if (at == GRADIENT) join(&s.home, f->out->home[x]);
    }
    return s;
}

static hir_back_kind kind_of(const finder *f, const hir_op *o, const seen *s) {
    const bool narrow = row(f, o->results[0]) < f->flow->width;
    if (!s->gradient) return HIR_BACK_AGAIN;
    if (s->entries && o->code == HIR_ADD_OP) return HIR_BACK_ENTRY;
    if (narrow) return HIR_BACK_NUMBERS;
    return s->inputs && s->home != HIR_FLOW_MANY ? HIR_BACK_INPUT : HIR_BACK_ROW;
}

static bool reads_ids(const finder *f, const hir_op *o) {
    bool any = false;
    for (uint32_t i = 0; i < o->n_args; i++)
        any |= o->args[i].kind == HIR_REF_VALUE && hir_ref_type(f->m, o->args[i]).dtype == HIR_I32;
    return any;
}

static side side_of_local(finder *f, const hir_op *o) {
    const hir_id y = o->results[0];
    const seen s = look_at(f, o);
    const bool any = s.claimed || s.member || s.gradient || s.again;
    if (s.inside || (f->doubtful[y] && f->goes_inside[y])) return INSIDE;
    if (!any) return reads_ids(f, o) ? INSIDE : NEUTRAL;
    f->doubtful[y] = s.claimed && !s.member;
    f->out->kind[y] = kind_of(f, o, &s);
    f->out->normed[y] = s.inputs;
    f->narrow[y] = s.gradient && s.narrow && row(f, y) < f->flow->width;
    f->out->home[y] = s.home;
    return s.gradient ? GRADIENT : AGAIN;
}

/* A product of rows with the matrix of a contraction of the forward half: where it has few rows,
 * its transpose is no contraction. */
static bool is_of_contraction(const finder *f, const hir_op *o) {
    for (uint32_t i = 0; o->code == HIR_MUL_OP && i < o->n_args; i++) {
        const hir_id w = weight_of(f, o->args[i]), op = w == HIR_NONE ? HIR_NONE : f->reader[w];
        if (op != HIR_NONE && hir_flow_is_border(f->flow, hir_op_at(f->m, op))) return true;
    }
    return false;
}

/* What is computed again is on the side of its original. */
static side side_of_copy(finder *f, hir_id y, hir_id original) {
    const side at = side_in_forward(f, original);
    if (at != MEMBER && at != CLAIMED) return at;
    f->out->kind[y] = HIR_BACK_AGAIN;
    f->out->normed[y] = f->out->normed[original];
    return at == MEMBER ? AGAIN : CLAIMED;
}

static side side_of(finder *f, const hir_op *o) {
    const hir_id y = o->results[0];
    f->out->kind[y] = HIR_BACK_NONE;
    f->out->normed[y] = false;
    if (!is_row_of_floats(f, y)) return NEUTRAL;
    if (f->out->original[y] != HIR_NONE) return side_of_copy(f, y, f->out->original[y]);
    const hir_op *forward = contraction_of(f, o);
    const hir_id of = gradient_of(f, o);
    if (forward) return side_of_border(f, o, operand_with_weight(f, forward));
    if (of != HIR_NONE) return side_of_border(f, o, of);
    if (hir_has_trait(o->code, HIR_SEQUENCE)) return INSIDE;
    const side at = side_of_local(f, o);
    f->narrow[y] |= is_of_contraction(f, o);
    return at;
}

static void find_sides(finder *f) {
    for (size_t k = 0; k < f->out->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->out->program.at[k]);
        if (o->n_results == 1) f->side[o->results[0]] = side_of(f, o);
    }
}

/* ---- doubts ---------------------------------------------------------------------------------- */

/* The op of the forward half whose result has the gradient that a border of the backward half reads
 * in its last operand, or a contraction in its first; NULL: unknown. */
static const hir_op *forward_of(const finder *f, const hir_op *o) {
    if (hir_is_linear(o->code)) return contraction_of(f, o);
    const hir_id x = gradient_of(f, o), op = x == HIR_NONE ? HIR_NONE : f->read_by[x];
    return op == HIR_NONE ? NULL : hir_op_at(f->m, op);
}

static void note_use(finder *f, const hir_op *o) {
    const hir_id y = o->n_results == 1 ? o->results[0] : HIR_NONE;
    if (y == HIR_NONE || !is_row_of_floats(f, y)) return;
    const hir_op *forward = forward_of(f, o);
    if (f->out->original[y] != HIR_NONE) return;
    const bool border = forward || hir_has_trait(o->code, HIR_SEQUENCE);
    const seen s = look_at(f, o);
    bool inside = s.inside || f->side[y] == INSIDE;
    if (forward)
        inside = !f->flow->member[f->flow->origin[forward->results[0]]];
    else if (border)
        return;
    else if (!inside && !s.member)
        inside = f->goes_inside[y] && !f->goes_on[y];
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id x = operand(f, o, i);
        if (x == HIR_NONE || f->out->forward[x]) continue;
        *(inside ? &f->goes_inside[x] : &f->goes_on[x]) = true;
    }
}

/* Finds the doubtful ones that are inside a sublayer; false: there are none. */
static bool settle_doubts(finder *f) {
    bool any = false;
    for (size_t k = f->out->program.n; k-- > 0;)
        note_use(f, hir_op_at(f->m, f->out->program.at[k]));
    for (size_t v = 0; v < f->m->values.n; v++) {
        f->goes_inside[v] &= !f->goes_on[v];
        any |= f->doubtful[v] && f->goes_inside[v];
    }
    return any;
}

/* ---- weights --------------------------------------------------------------------------------- */

static bool is_gradient(hir_back_kind kind) {
    return kind != HIR_BACK_NONE && kind != HIR_BACK_AGAIN;
}

/* A sum over tokens of what is the mechanism's alone, as for the gain of a norm or the query of a
 * mix. Those for matrices and biases of contractions and for the embedding are not. */
static bool sums_for_weights(const hir_backward *b, const hir_op *o) {
    if (!hir_has_trait(o->code, HIR_REDUCES_TOKENS) || hir_has_trait(o->code, HIR_SEQUENCE) ||
        o->code == HIR_SCATTER_ROWS_OP)
        return false;
    bool gradient = false, contraction = false;
    const uint64_t columns = (uint64_t)pass_elements(hir_ref_type(b->flow->m, o->args[0]));
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        const hir_id x = b->flow->origin[o->args[i].index];
        const bool mine = b->forward[x] ? b->flow->member[x] : b->kind[x] != HIR_BACK_NONE;
        if (!mine) return false;
        gradient |= is_gradient(b->kind[x]);
        contraction |= o->code == HIR_SUM_TOKENS_OP
                           ? b->biased[x]
                           : b->gives[x] || (b->contracted[x] && columns >= b->contracted[x]);
    }
    return gradient && !contraction;
}

bool hir_backward_sums_gain(const hir_backward *b, const hir_op *o) {
    if (!sums_for_weights(b, o)) return false;
    bool gain = true;
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        const hir_back_kind kind = b->kind[b->flow->origin[o->args[i].index]];
        gain &= !is_gradient(kind) || kind == HIR_BACK_ENTRY || kind == HIR_BACK_INPUT;
    }
    return gain;
}

static bool makes_gradient(const hir_backward *b, const hir_op *o) {
    const hir_back_kind kind = b->kind[o->results[0]];
    return kind != HIR_BACK_NONE && kind != HIR_BACK_ENTRY;
}

bool hir_backward_repeats_inside(const hir_backward *b, hir_id v) {
    const hir_id original = b->original[v];
    return original != HIR_NONE && b->flow->inside[original];
}

bool hir_backward_has(const hir_backward *b, const hir_op *o) {
    if (o->n_results != 1 || b->forward[o->results[0]] || hir_is_kernel(o)) return false;
    if (hir_flow_is_view(o) || hir_backward_repeats_inside(b, o->results[0])) return false;
    return makes_gradient(b, o) || sums_for_weights(b, o);
}

/* Gradients of what contractions of sublayers make, and of those that add a bias. */
static void find_given(finder *f) {
    for (size_t k = 0; k < f->out->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->out->program.at[k]), *forward = contraction_of(f, o);
        const hir_id dy = forward ? operand(f, o, 0) : HIR_NONE;
        if (dy == HIR_NONE) continue;
        f->out->gives[dy] = true;
        for (uint32_t i = 2; i < forward->n_args; i++)
            f->out->biased[dy] |= forward->args[i].kind == HIR_REF_WEIGHT;
    }
}

/* A row that only sums over tokens read. */
static void find_for_weights(finder *f) {
    hir_backward *b = f->out;
    bool *other = hd_new_array(f->arena, bool, f->m->values.n + 1);
    for (size_t k = 0; k < b->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, b->program.at[k]);
        const bool sums = sums_for_weights(b, o);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id x = f->flow->origin[o->args[i].index];
            *(sums ? &b->for_weights[x] : &other[x]) = true;
        }
    }
    for (size_t v = 0; v < f->m->values.n; v++)
        b->for_weights[v] &= !other[v] && !b->forward[v];
}

/* ---- the whole analysis ---------------------------------------------------------------------- */

/* `live`, by value: passes leave dead ops in the module. */
static void list_half(finder *f, hir_id first, const bool *live) {
    HIR_EACH(f->m, op, first) {
        const hir_op *o = hir_op_at(f->m, op);
        const hir_id y = o->n_results ? o->results[0] : HIR_NONE;
        if (hir_is_kernel(o))
            list_half(f, o->body_first, live);
        else if (y != HIR_NONE && live[y] && !f->out->forward[y] &&
                 !(hir_flow_is_view(o) && o->args[0].kind == HIR_REF_VALUE))
            hd_push(f->arena, &f->out->program, op);
    }
}

void hir_backward_find(const hir_module *m, const hir_flow *flow, hd_arena *a, hir_backward *out) {
    const size_t n = m->values.n + 1;
    *out = (hir_backward){.flow = flow, .forward = hir_needed_by_loss(m, a)};
    out->kind = hd_new_array(a, hir_back_kind, n);
    out->normed = hd_new_array(a, bool, n);
    out->for_weights = hd_new_array(a, bool, n);
    out->contracted = hd_new_array(a, uint64_t, n);
    out->gives = hd_new_array(a, bool, n);
    out->biased = hd_new_array(a, bool, n);
    out->home = hd_new_array(a, uint32_t, n);
    if (!flow->width) return;
    finder f = {.out = out,
                .flow = flow,
                .m = m,
                .arena = a,
                .side = hd_new_array(a, side, n),
                .narrow = hd_new_array(a, bool, n),
                .doubtful = hd_new_array(a, bool, n),
                .goes_inside = hd_new_array(a, bool, n),
                .goes_on = hd_new_array(a, bool, n)};
    bool *live = hd_new_array(a, bool, n);
    need_in(m, m->last, NULL, HIR_NONE, live);
    list_half(&f, m->first, live);
    out->original = hir_find_copies(flow, out->program.at, out->program.n, a);
    find_readers(&f);
    find_norms(&f);
    find_sides(&f);
    if (settle_doubts(&f)) find_sides(&f);
    find_given(&f);
    find_for_weights(&f);
}
