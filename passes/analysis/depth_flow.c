/* Finds which values belong to the residual mechanism, and of what kind they are.
 *
 *   member    the embedding; results of token-local ops on members; and the other operands of such
 *             ops, which are outputs of sublayers.
 *   kind      a sum of the embedding and outputs (scaled or not) is a sum, any other value as wide
 *             as the stream is a mix, and narrower ones are numbers.
 *
 * depth_sources.c finds the sources of inputs and the blocks that they form.
 */
#include "passes/analysis/depth_backward.h"
#include "passes/analysis/depth_flow_private.h"
#include "passes/util.h"
#include "support/known.h"

/* A linear op with so few outputs, fewer than the stream has channels, computes gates and not a
 * sublayer's output. */
enum { FEW_COLUMNS = 8 };

/* ---- views ----------------------------------------------------------------------------------- */

bool hir_flow_is_view(const hir_op *o) {
    return o->code == HIR_RESHAPE_OP || o->code == HIR_CONVERT_OP || o->code == HIR_AFTER_OP ||
           (o->code == HIR_COMM_PART_OP && !hir_find_attr(o, HIR_A_AXIS));
}

/* Is the op of the forward half? Of the outputs of a module with gradients that is the loss. */
static bool is_forward(const flow_finder *f, const hir_op *o) {
    if (o->code == HIR_OUTPUT_OP && o->args[0].kind == HIR_REF_VALUE)
        return f->needed[o->args[0].index];
    bool any = !o->n_results;
    for (uint32_t i = 0; i < o->n_results; i++)
        any |= f->needed[o->results[i]];
    return any;
}

/* Streams begin at such ops, if not behind them. They are few: what asks where the stream begins need
 * not walk the whole program. */
static bool is_start(const hir_op *o) {
    return o->code == HIR_GATHER_OP || o->code == HIR_COMM_RECV_OP ||
           o->code == HIR_COMM_ALL_GATHER_OP;
}

static void list_ops(flow_finder *f, hir_id first) {
    const hir_module *m = f->out->m;
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        if (hir_is_kernel(o)) {
            list_ops(f, o->body_first);
            const hir_op *yield = o->body_last == HIR_NONE ? NULL : hir_op_at(m, o->body_last);
            for (uint32_t i = 0; yield && i < o->n_results && i < yield->n_args; i++)
                if (yield->args[i].kind == HIR_REF_VALUE)
                    f->out->origin[o->results[i]] = f->out->origin[yield->args[i].index];
            continue;
        }
        if (o->code == HIR_YIELD_OP) continue;
        if (hir_flow_is_view(o) && o->args[0].kind == HIR_REF_VALUE) {
            f->out->origin[o->results[0]] = f->out->origin[o->args[0].index];
            continue;
        }
        if (!is_forward(f, o)) continue;
        hd_push(f->arena, &f->out->program, op);
        if (is_start(o)) hd_push(f->arena, &f->starts, op);
    }
}

/* Does the result depend on tokens, and not on weights or the position alone? */
static bool depends_on_tokens(const flow_finder *f, const hir_op *o) {
    bool varies = !hir_has_trait(o->code, HIR_LOCAL);
    for (uint32_t i = 0; !varies && i < o->n_args; i++)
        varies = o->args[i].kind == HIR_REF_STATE ||
                 (o->args[i].kind == HIR_REF_VALUE && f->varies[f->out->origin[o->args[i].index]]);
    return varies;
}

static hir_id operand_of(const flow_finder *f, hir_ref r) {
    if (r.kind != HIR_REF_VALUE) return HIR_NONE;
    const hir_type *t = &hir_value_at(f->out->m, r.index)->type;
    const hir_id v = f->out->origin[r.index];
    return !hir_type_has_t(*t) || t->dtype == HIR_I32 || !f->varies[v] ? HIR_NONE : v;
}

/* What depends on tokens, and operands: those of an op are made before it. */
static void list_operands(flow_finder *f) {
    const hir_module *m = f->out->m;
    f->varies = hd_new_array(f->arena, bool, m->values.n);
    f->first = hd_new_array(f->arena, uint32_t, m->ops.n);
    for (size_t v = 0; v < m->values.n; v++)
        f->varies[v] = hir_value_at(m, (hir_id)v)->op == HIR_NONE; /* an input */
    for (size_t k = 0; k < f->out->program.n; k++) {
        const hir_op *o = hir_op_at(m, f->out->program.at[k]);
        const bool varies = depends_on_tokens(f, o);
        for (uint32_t i = 0; i < o->n_results; i++)
            f->varies[o->results[i]] = varies;
        f->first[f->out->program.at[k]] = (uint32_t)f->operands.n + 1;
        for (uint32_t i = 0; i < o->n_args; i++)
            hd_push(f->arena, &f->operands, operand_of(f, o->args[i]));
    }
}

uint64_t flow_row(const flow_finder *f, hir_id v) {
    int64_t n = pass_elements(hir_value_at(f->out->m, v)->type);
    return (uint64_t)n;
}

/* ---- members --------------------------------------------------------------------------------- */

bool hir_flow_is_border(const hir_flow *f, const hir_op *o) {
    switch (o->code) {
    case HIR_LINEAR_OP: {
        const hir_ref w = o->args[1];
        if (w.kind != HIR_REF_WEIGHT) return false;
        const uint64_t columns = (uint64_t)hir_ref_type(f->m, w).dim[0];
        return columns > FEW_COLUMNS || (f->width && columns >= f->width);
    }
    case HIR_EXPERT_LINEAR_OP: return true;
    case HIR_PICK_OP: return true; /* the weights of the experts that a router has selected */
    default: return !hir_has_trait(o->code, HIR_LOCAL) || hir_has_trait(o->code, HIR_WRITES_STATE);
    }
}

bool hir_flow_is_choice(const hir_module *m, const hir_op *o) {
    return o->n_results == 1 && hir_value_at(m, o->results[0])->type.dtype == HIR_I32;
}

static bool is_border(const flow_finder *f, const hir_op *o) {
    return hir_flow_is_border(f->out, o);
}

static bool is_effect(const hir_op *o) {
    return hir_has_trait(o->code, HIR_EFFECT) || o->n_results == 0;
}

static hir_id inner_operand(const flow_finder *f, const hir_op *o, uint32_t i) {
    hir_id x = flow_operand(f, o, i);
    return x == HIR_NONE || f->member[x] ? HIR_NONE : x;
}

/* Marks the operands of an output, transitively, down to the sublayer's last contractions, as
 * inside the sublayer. A value that two outputs depend on is the end of the sublayer: an output
 * itself. */
static void look_inside(flow_finder *f, hir_id output) {
    const hir_module *m = f->out->m;
    const hir_id before = f->into[output];
    f->pending.n = 0;
    hd_push(f->arena, &f->pending, output);
    while (f->pending.n) {
        hir_id op = hir_value_at(m, f->pending.at[--f->pending.n])->op;
        if (op == HIR_NONE || is_border(f, hir_op_at(m, op))) continue;
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            hir_id x = inner_operand(f, o, i);
            if (x == HIR_NONE || f->into[x] == output) continue;
            if (f->into[x] != HIR_NONE && f->into[x] != before) {
                hd_push(f->arena, &f->outputs, x);
                continue;
            }
            f->into[x] = output;
            hd_push(f->arena, &f->pending, x);
        }
    }
}

/* Is it a product with a factor that is the same for every token? */
static bool is_scaling(const flow_finder *f, const hir_op *o) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_args; i++)
        n += flow_operand(f, o, i) != HIR_NONE;
    if (o->code == HIR_DIV_OP) return n == 1 && flow_operand(f, o, 0) != HIR_NONE; /* not c / x */
    return n == 1 && (o->code == HIR_MUL_OP || o->code == HIR_NEG_OP);
}

/* The value of which v is a multiple. */
static hir_id unscaled(const flow_finder *f, hir_id v) {
    for (;;) {
        hir_id op = hir_value_at(f->out->m, v)->op, x = HIR_NONE;
        const hir_op *o = op == HIR_NONE ? NULL : hir_op_at(f->out->m, op);
        if (!o || !is_scaling(f, o)) return v;
        for (uint32_t i = 0; i < o->n_args && x == HIR_NONE; i++)
            x = flow_operand(f, o, i);
        if (flow_row(f, x) != flow_row(f, v)) return v;
        v = x;
    }
}

/* Marks a sublayer's output: a value that is combined with the stream but does not depend on a
 * member. A scaling of the output belongs to the mechanism. */
static void claim(flow_finder *f, hir_id output) {
    output = unscaled(f, output);
    f->outputs.n = 0;
    hd_push(f->arena, &f->outputs, output);
    while (f->outputs.n) {
        hir_id v = f->outputs.at[--f->outputs.n];
        if (f->member[v]) continue;
        f->member[v] = f->grown = true;
        look_inside(f, v);
        f->into[v] = HIR_NONE;
    }
}

static bool reads_member(const flow_finder *f, const hir_op *o) {
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_id x = flow_operand(f, o, i);
        if (x != HIR_NONE && f->member[x]) return true;
    }
    return false;
}

/* Looked up with each rank's share of the features, the embedding is what is gathered of them. */
static bool gathers_embedding(const flow_finder *f, const hir_op *o) {
    if (o->code != HIR_COMM_ALL_GATHER_OP || !hir_find_attr(o, HIR_A_AXIS)) return false;
    const hir_id x = flow_operand(f, o, 0), op = x == HIR_NONE ? x : hir_value_at(f->out->m, x)->op;
    return op != HIR_NONE && hir_op_at(f->out->m, op)->code == HIR_GATHER_OP;
}

/* Among the values that pipeline stages send to each other: is it a source as wide as the stream,
 * or several streams? Rows of heads, such as attention values of an earlier layer, are not. */
static bool is_source(const flow_finder *f, hir_id v) {
    const hir_type t = hir_value_at(f->out->m, v)->type;
    return t.rank > 1 && (uint64_t)t.dim[t.rank - 1] == f->out->width;
}

bool flow_is_received(const flow_finder *f, const hir_op *o) {
    return o->code == HIR_COMM_RECV_OP && is_source(f, o->results[0]);
}

bool flow_is_embedding(const flow_finder *f, const hir_op *o) {
    return o->code == HIR_GATHER_OP || gathers_embedding(f, o);
}

/* Where the stream begins behind the embedding, other embeddings than those that it is made of,
 * which layers add to it, begin as they do without. */
static bool is_beginning(const flow_finder *f, const hir_op *o) {
    if (f->begin == HIR_NONE) return flow_is_embedding(f, o) || flow_is_received(f, o);
    if (!o->n_results) return false;
    return o->results[0] == f->begin || (flow_is_embedding(f, o) && !f->before[o->results[0]]);
}

/* The width of the stream in a pipeline stage without an embedding: the longest last dim among the
 * values that it receives. For several streams that is the width of one, and what sublayers send in
 * addition to the stream is narrower. */
static uint64_t received_width(const flow_finder *f) {
    const hir_module *m = f->out->m;
    int64_t most = 0;
    for (size_t k = 0; k < f->starts.n; k++) {
        const hir_op *o = hir_op_at(m, f->starts.at[k]);
        if (o->code != HIR_COMM_RECV_OP) continue;
        const hir_type t = hir_value_at(m, o->results[0])->type;
        if (t.rank > 1 && t.dim[t.rank - 1] > most) most = t.dim[t.rank - 1];
    }
    return (uint64_t)most;
}

static void grow_at(flow_finder *f, const hir_op *o) {
    const hir_id sent = o->code == HIR_COMM_SEND_OP ? flow_operand(f, o, 0) : HIR_NONE;
    if (sent != HIR_NONE && !f->member[sent] && is_source(f, sent)) claim(f, sent);
    if (is_effect(o) || is_border(f, o) || hir_flow_is_choice(f->out->m, o) || !reads_member(f, o))
        return;
    if (!f->member[o->results[0]]) f->member[o->results[0]] = f->grown = true;
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_id x = inner_operand(f, o, i);
        if (x != HIR_NONE) claim(f, x);
    }
}

static void find_width(flow_finder *f) {
    if (f->begin != HIR_NONE) {
        f->out->width = flow_row(f, f->begin);
        return;
    }
    for (size_t k = 0; k < f->starts.n; k++) {
        const hir_op *o = hir_op_at(f->out->m, f->starts.at[k]);
        const bool whole = gathers_embedding(f, o);
        if (whole || (o->code == HIR_GATHER_OP && !f->out->width))
            f->out->width = flow_row(f, o->results[0]);
        if (whole) return;
    }
    if (!f->out->width) f->out->width = received_width(f);
}

/* Marks the first members: the embedding, the values that a pipeline stage receives, or the inputs
 * of a plain function. */
static void seed(flow_finder *f) {
    const hir_module *m = f->out->m;
    find_width(f);
    if (f->begin != HIR_NONE && f->out->width) f->member[f->begin] = true;
    for (size_t k = 0; k < f->starts.n && f->out->width; k++) {
        const hir_op *o = hir_op_at(m, f->starts.at[k]);
        if (!is_beginning(f, o)) continue;
        f->member[o->results[0]] = true;
        if (gathers_embedding(f, o)) f->member[flow_operand(f, o, 0)] = false;
    }
    if (f->out->width) return;
    for (size_t i = 0; i < m->inputs.n; i++) {
        hir_id v = m->inputs.at[i];
        hir_type t = hir_value_at(m, v)->type;
        if (!hir_type_has_t(t) || t.dtype == HIR_I32 || t.rank < 2) continue;
        f->member[v] = true;
        if (flow_row(f, v) > f->out->width) f->out->width = flow_row(f, v);
    }
}

static void find_members(flow_finder *f) {
    seed(f);
    if (f->kept != HIR_NONE) claim(f, f->kept);
    do {
        f->grown = false;
        for (size_t k = 0; k < f->out->program.n; k++)
            grow_at(f, hir_op_at(f->out->m, f->out->program.at[k]));
    } while (f->grown);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

const char *hir_flow_kind_name(hir_flow_kind k) {
    static const char *const names[] = {
        [HIR_FLOW_NONE] = "none",     [HIR_FLOW_EMBEDDING] = "embedding",
        [HIR_FLOW_OUTPUT] = "output", [HIR_FLOW_SUM] = "sum",
        [HIR_FLOW_MIX] = "mix",       [HIR_FLOW_NUMBERS] = "numbers",
    };
    return names[k];
}

bool hir_flow_is_stream(hir_flow_kind k) {
    return k == HIR_FLOW_EMBEDDING || k == HIR_FLOW_OUTPUT || k == HIR_FLOW_SUM;
}

/* The operands that have a token dim T. */
typedef struct operands {
    uint32_t n;
    bool numbers, stream, scaled; /* true if all operands are */
    hir_id first;
} operands;

/* Is v a multiple of its root other than by -1? */
static bool is_weighted(const flow_finder *f, hir_id v) {
    while (f->out->root[v] != v) {
        const hir_id op = hir_value_at(f->out->m, v)->op;
        if (op == HIR_NONE || hir_op_at(f->out->m, op)->code != HIR_NEG_OP) return true;
        v = flow_operand(f, hir_op_at(f->out->m, op), 0);
    }
    return false;
}

static operands operands_of(const flow_finder *f, const hir_op *o) {
    operands x = {.numbers = true, .stream = true, .scaled = true, .first = HIR_NONE};
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_id v = flow_operand(f, o, i);
        if (v == HIR_NONE) continue;
        if (x.n++ == 0) x.first = v;
        x.numbers &= f->out->kind[v] == HIR_FLOW_NUMBERS;
        x.stream &= hir_flow_is_stream(f->out->kind[v]);
        x.scaled &= is_weighted(f, v);
    }
    return x;
}

/* Is it a reduction over the channels? The axis of the channels is the last one that has the width
 * of the stream (with as many sources as channels, two axes have that width). */
static bool takes_width(const flow_finder *f, const hir_op *o) {
    hir_type t = hir_ref_type(f->out->m, o->args[0]);
    uint32_t axis = (uint32_t)hir_attr_int(o, HIR_A_AXIS, 0);
    if (axis >= t.rank || (uint64_t)t.dim[axis] != f->out->width) return false;
    for (uint32_t i = axis + 1; i < t.rank; i++)
        if (t.dim[i] == t.dim[axis]) return false;
    return true;
}

/* Is it a sum over products of rows, such as q . k per head? (Of heads times sources there may be as
 * many as channels.) */
static bool is_dot_product(const flow_finder *f, const hir_op *o) {
    const hir_id x = flow_operand(f, o, 0),
                 made = x == HIR_NONE ? x : hir_value_at(f->out->m, x)->op;
    const hir_type t = hir_ref_type(f->out->m, o->args[0]);
    if (made == HIR_NONE || hir_attr_int(o, HIR_A_AXIS, 0) != t.rank - 1) return false;
    const hir_op *product = hir_op_at(f->out->m, made);
    if (product->code != HIR_MUL_OP) return false;
    for (uint32_t i = 0; i < 2; i++) {
        const hir_type y = hir_ref_type(f->out->m, product->args[i]);
        if (flow_operand(f, product, i) == HIR_NONE || !y.rank || y.dim[y.rank - 1] == 1)
            return false;
    }
    return true;
}

/* Does a contraction make something else than rows of each of several streams? (Of many streams the
 * coefficients may be as many as channels.) */
static bool makes_coefficients(const flow_finder *f, const hir_op *o) {
    const hir_type t = hir_value_at(f->out->m, o->results[0])->type;
    return t.rank > 2 && (uint64_t)t.dim[t.rank - 1] % f->out->width != 0 && reads_member(f, o);
}

/* Is the result narrower than the stream, or computed only from such values? (The scores of many
 * sources may be as wide as the stream.) */
static bool are_numbers(const flow_finder *f, const hir_op *o, const operands *x) {
    uint64_t width = f->out->width, row = flow_row(f, o->results[0]);
    if (row < width) return true;
    const bool spread =
        x->n && flow_row(f, x->first) < width && !reads_member(f, o) && o->code != HIR_BROADCAST_OP;
    if (x->n && x->numbers && !spread) return true; /* spread: a narrow output, through a matrix */
    if (o->code == HIR_DEPTH_SCORES_OP || o->code == HIR_DEPTH_INVERSE_RMS_OP) return true;
    if (hir_is_linear(o->code)) return !is_border(f, o) || makes_coefficients(f, o);
    if (!hir_has_trait(o->code, HIR_REDUCE)) return false;
    return row % width != 0 || takes_width(f, o) || is_dot_product(f, o);
}

/* Is it a use that a gate may have: is v multiplied with another value as wide as the stream
 * (`wide`), negated, or combined with a value that is the same for every token, as in 1 - g? */
static bool is_gate_use(const flow_finder *f, const hir_op *o, hir_id v, bool *wide) {
    hir_id a = o->n_args == 2 ? flow_operand(f, o, 0) : HIR_NONE;
    hir_id b = o->n_args == 2 ? flow_operand(f, o, 1) : HIR_NONE;
    if (o->code == HIR_NEG_OP) return true;
    if (o->n_args != 2 || !hir_has_trait(o->code, HIR_ELEMENTWISE) || a == b) return false;
    hir_id other = a == v ? b : a;
    *wide = other != HIR_NONE;
    return !*wide || (o->code == HIR_MUL_OP && flow_row(f, other) >= f->out->width);
}

/* Finds factors: values that are multiplied with others as wide as the stream, perhaps after a
 * negation or the addition of a number, and have no other uses. */
static void find_factors(flow_finder *f) {
    bool *other_use = hd_new_array(f->arena, bool, f->out->m->values.n);
    for (size_t k = f->out->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(f->out->m, f->out->program.at[k]);
        for (uint32_t i = 0; i < o->n_args; i++) {
            hir_id v = flow_operand(f, o, i);
            if (v == HIR_NONE) continue;
            bool wide = false;
            const bool gates = is_gate_use(f, o, v, &wide);
            other_use[v] |= !gates;
            f->factor[v] |=
                wide || (gates && f->factor[o->results[0]] && !other_use[o->results[0]]);
        }
    }
    for (size_t v = 0; v < f->out->m->values.n; v++)
        f->factor[v] &= !other_use[v];
}

/* The op that makes a value, looking through negations; NULL: none does. */
static const hir_op *made_by(const flow_finder *f, hir_id v) {
    while (v != HIR_NONE && hir_value_at(f->out->m, v)->op != HIR_NONE) {
        const hir_op *o = hir_op_at(f->out->m, hir_value_at(f->out->m, v)->op);
        if (o->code != HIR_NEG_OP) return o;
        v = flow_operand(f, o, 0);
    }
    return NULL;
}

/* The op that makes x in a sum x + c or c - x, where c is the same for every token; NULL: the op is
 * no such sum. */
static const hir_op *shifted(const flow_finder *f, const hir_op *o) {
    if (o->code != HIR_ADD_OP && o->code != HIR_SUB_OP) return NULL;
    const hir_id a = flow_operand(f, o, 0), b = flow_operand(f, o, 1), x = a == HIR_NONE ? b : a;
    return x == HIR_NONE || (a != HIR_NONE && b != HIR_NONE) ? NULL : made_by(f, x);
}

/* Is it a sigmoid that is written out, 1 / (1 + e^-x) or e^x / (1 + e^x)? */
static bool is_written_sigmoid(const flow_finder *f, const hir_op *o) {
    if (o->code == HIR_MUL_OP)
        for (uint32_t i = 0; i < 2; i++) {
            const hir_op *other = made_by(f, flow_operand(f, o, i));
            if (other && other->code == HIR_RECIP_OP) o = other;
        }
    if (o->code != HIR_DIV_OP && o->code != HIR_RECIP_OP) return false;
    const hir_op *below = made_by(f, flow_operand(f, o, o->n_args - 1));
    const hir_op *of = below ? shifted(f, below) : NULL;
    return of && of->code == HIR_EXP_OP;
}

/* Is an operand of a product spread over the channels of the result, as a coefficient of rows is? */
static bool is_spread(const flow_finder *f, const hir_op *o, uint32_t i) {
    if (o->code != HIR_MUL_OP && o->code != HIR_DIV_OP) return false;
    const hir_type x = hir_ref_type(f->out->m, o->args[i]),
                   y = hir_value_at(f->out->m, o->results[0])->type;
    for (uint32_t k = y.rank; k-- > 0;) {
        if ((uint64_t)y.dim[k] != f->out->width) continue;
        const uint32_t from_end = y.rank - k;
        return from_end > x.rank || x.dim[x.rank - from_end] == 1;
    }
    return false;
}

/* Finds what contractions and the program's output read, and what goes into that other than as a
 * coefficient: the rows of the stream, and of sublayers. */
static void find_rows(flow_finder *f) {
    const hir_module *m = f->out->m;
    for (size_t k = f->out->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(m, f->out->program.at[k]);
        const bool reads = o->code != HIR_TRACE_OP && (is_effect(o) || is_border(f, o));
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id x = flow_operand(f, o, i);
            if (x == HIR_NONE) continue;
            f->row[x] |= reads || (o->n_results && f->row[o->results[0]] && !is_spread(f, o, i));
        }
    }
}

/* A gate per channel: a bounded value, or 1 - such a value, that the stream is multiplied with. It
 * is as wide as a sublayer's output, but is not one. */
static bool is_gate(const flow_finder *f, const hir_op *o) {
    if (!f->member[o->results[0]] || !f->factor[o->results[0]]) return false;
    const hir_op *of = o->code == HIR_NEG_OP ? made_by(f, o->results[0]) : shifted(f, o);
    if (of) o = of;
    return o->code == HIR_SIGMOID_OP || o->code == HIR_TANH_OP || o->code == HIR_SOFTMAX_OP ||
           is_written_sigmoid(f, o);
}

static void set_kind(flow_finder *f, const hir_op *o) {
    hir_id v = o->results[0];
    bool inside = !f->member[v] && f->into[v] != HIR_NONE;
    if ((!f->member[v] && !inside) || !hir_type_has_t(hir_value_at(f->out->m, v)->type)) return;
    hir_flow_kind *kind = &f->out->kind[v];
    f->out->root[v] = v;
    if (is_beginning(f, o)) {
        *kind = HIR_FLOW_EMBEDDING;
        return;
    }
    operands x = operands_of(f, o);
    *kind = are_numbers(f, o, &x) ? HIR_FLOW_NUMBERS : HIR_FLOW_MIX;
    if (inside || is_border(f, o) || !reads_member(f, o)) {
        f->out->inside[v] = true;
        if (*kind == HIR_FLOW_MIX)
            *kind = is_gate(f, o) || !f->row[v] ? HIR_FLOW_NUMBERS : HIR_FLOW_OUTPUT;
        return;
    }
    if (!x.n || !x.stream || flow_row(f, v) != flow_row(f, x.first)) return;
    bool adds = o->code == HIR_ADD_OP || o->code == HIR_SUB_OP;
    if (x.n == 1 &&
        (adds ||
         is_scaling(
             f, o))) { /* combined with a value that is the same for every token: the kind stays */
        *kind = f->out->kind[x.first];
        f->out->root[v] = f->out->root[x.first];
    } else if (adds && !x.scaled) { /* a sum in which each summand has a weight is a mix */
        *kind = HIR_FLOW_SUM;
    }
}

static void find_kinds(flow_finder *f) {
    const hir_module *m = f->out->m;
    for (size_t i = 0; i < m->inputs.n; i++) {
        hir_id v = m->inputs.at[i];
        if (!f->member[v]) continue;
        f->out->root[v] = v;
        f->out->kind[v] = flow_row(f, v) < f->out->width ? HIR_FLOW_NUMBERS : HIR_FLOW_EMBEDDING;
    }
    for (size_t k = 0; k < f->out->program.n; k++) {
        const hir_op *o = hir_op_at(m, f->out->program.at[k]);
        if (o->n_results && o->code != HIR_COMM_SEND_OP) set_kind(f, o);
    }
}

/* ---- the whole analysis ---------------------------------------------------------------------- */

static hir_id *ids(hd_arena *a, size_t n, bool self) {
    hir_id *at = hd_new_array(a, hir_id, n);
    for (size_t i = 0; i < n; i++)
        at[i] = self ? (hir_id)i : HIR_NONE;
    return at;
}

/* Marks what the beginning is made of. */
static void find_before(flow_finder *f) {
    f->before = hd_new_array(f->arena, bool, f->out->m->values.n);
    f->before[f->begin] = true;
    for (size_t k = f->out->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(f->out->m, f->out->program.at[k]);
        if (!o->n_results || !f->before[o->results[0]]) continue;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id x = flow_operand(f, o, i);
            if (x != HIR_NONE) f->before[x] = true;
        }
    }
}

/* Runs the analysis from a given beginning of the stream (HIR_NONE: the embedding). */
static void find_from(flow_finder *f, hir_id begin) {
    hir_flow *out = f->out;
    const size_t n = out->m->values.n;
    const hir_flow known = *out;
    *out = (hir_flow){.m = known.m, .origin = known.origin, .input = ids(f->arena, n, false)};
    out->program = known.program;
    out->kind = hd_new_array(f->arena, hir_flow_kind, n);
    out->varies = f->varies;
    out->inside = hd_new_array(f->arena, bool, n);
    out->own = hd_new_array(f->arena, bool, n);
    f->begin = begin;
    if (begin != HIR_NONE) find_before(f);
    f->member = out->member = hd_new_array(f->arena, bool, n);
    f->out->root = ids(f->arena, n, false);
    f->into = ids(f->arena, n, false);
    f->factor = hd_new_array(f->arena, bool, n);
    f->row = hd_new_array(f->arena, bool, n);
    find_members(f);
    if (!out->width) return;
    find_factors(f);
    find_rows(f);
    find_kinds(f);
    flow_find_inputs(f);
    if (!f->brief) flow_find_blocks(f);
}

/* Are all outputs equally wide, and wider than the assumed stream? */
static bool is_too_narrow(const flow_finder *f) {
    const hir_flow *out = f->out;
    for (size_t i = 0; i < out->outputs.n; i++)
        if (flow_row(f, out->outputs.at[i]) <= out->width ||
            flow_row(f, out->outputs.at[i]) != flow_row(f, out->outputs.at[0]))
            return false;
    return out->outputs.n > 0;
}

/* The next candidate for the beginning of the stream: the first value that a border op computes
 * from the mechanism, such as a projected embedding or the embedding after a convolution. Or, if
 * outputs are wider than the embedding, the first member that is as wide as they are: several
 * embeddings side by side. */
static hir_id next_beginning(const flow_finder *f) {
    const hir_flow *out = f->out;
    hd_known(out->outputs.at || !out->outputs.n);
    const uint64_t wide = is_too_narrow(f) ? flow_row(f, out->outputs.at[0]) : 0;
    for (size_t k = 0; k < out->program.n; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        if (!o->n_results || is_effect(o) || o->results[0] == f->begin) continue;
        const hir_id v = out->origin[o->results[0]];
        if (wide ? f->member[v] && flow_row(f, v) == wide : is_border(f, o) && reads_member(f, o))
            return v;
    }
    return HIR_NONE;
}

/* Is the beginning a stream: do several sublayers, or a sublayer and the head, read it? (A product
 * of the two halves of a gated layer is not: only one layer reads it.) */
static bool is_stream(const hir_flow *out) {
    uint32_t readers = 0;
    for (size_t i = 0; i < out->inputs.n && readers < 2; i++)
        for (size_t k = 0; k < hir_flow_sources(&out->inputs.at[i]); k++)
            readers += hir_flow_source(&out->inputs.at[i], k)->first == 0;
    return out->outputs.n && readers > 1;
}

/* Do several sublayers read it? */
static bool is_read_again(const hir_flow *out, hir_id v) {
    uint32_t readers = 0;
    for (size_t i = 0; i < out->inputs.n && readers < 2; i++)
        for (size_t k = 0; k < hir_flow_sources(&out->inputs.at[i]); k++)
            readers += hir_flow_source(&out->inputs.at[i], k)->value == v;
    return readers > 1;
}

/* ---- a beginning behind the embedding ---------------------------------------------------------- */

static void begin_later(flow_finder *f) {
    const hir_flow first = *f->out;
    const hir_id begin = flow_later_beginning(f);
    if (begin == HIR_NONE) return;
    find_from(f, begin);
    if (!f->out->outputs.n) *f->out = first;
}

/* The stream begins where all that is made of the embeddings comes together, through contractions or
 * not, such as a projected embedding and that of the position. False: at none of the last such
 * values. */
static bool begin_joined(flow_finder *f) {
    enum { MOST_TRIED = 4 };
    hir_id joints[MOST_TRIED];
    const size_t n = flow_list_joints(f, joints, MOST_TRIED);
    const bool brief = f->brief;
    f->brief = false; /* where the stream begins, its sources decide */
    for (size_t i = 0; i < n; i++) {
        find_from(f, joints[i]);
        if (!is_stream(f->out) || is_too_narrow(f)) continue;
        bool wide = true;
        for (size_t k = 0; k < f->out->outputs.n; k++)
            wide &= flow_row(f, f->out->outputs.at[k]) == f->out->width;
        if (wide) return true;
    }
    f->brief = brief;
    if (n) find_from(f, HIR_NONE);
    return false;
}

/* Where sublayers add to nothing at all, but later ones read mixes of what earlier ones have made,
 * as in multi-head layer attention: the first such value is an output, and from it follow the
 * others. The embedding is what the first sublayer reads. */
static bool find_kept(flow_finder *f) {
    enum { MOST_TRIED = 32 };
    const hir_flow *out = f->out;
    uint32_t *users = hd_new_array(f->arena, uint32_t, out->m->values.n);
    for (size_t k = 0; k < out->program.n; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        for (uint32_t i = 0; i < o->n_args && !is_effect(o) && !is_border(f, o); i++) {
            const hir_id x = flow_operand(f, o, i);
            if (x != HIR_NONE) users[x]++;
        }
    }
    const hir_flow first = *out;
    size_t tried = 0;
    for (size_t k = 0; k < first.program.n && tried < MOST_TRIED; k++) {
        const hir_op *o = hir_op_at(out->m, first.program.at[k]);
        const hir_id v =
            o->n_results && !is_effect(o) && is_border(f, o) ? o->results[0] : HIR_NONE;
        if (v == HIR_NONE || users[v] < 2 || flow_row(f, v) < first.width) continue;
        tried++;
        f->kept = v;
        find_from(f, HIR_NONE);
        if (is_read_again(out, v)) return true;
    }
    f->kept = HIR_NONE;
    return false;
}

/* Are there several embeddings? */
static bool has_embeddings(const flow_finder *f) {
    uint32_t n = 0;
    for (size_t k = 0; k < f->starts.n; k++)
        n += flow_is_embedding(f, hir_op_at(f->out->m, f->starts.at[k]));
    return n > 1;
}

static void find(const hir_module *m, hd_arena *a, bool brief, hir_flow *out) {
    enum { MOST_LAYERS = 4 }; /* layers before the stream */
    *out = (hir_flow){.m = m, .origin = ids(a, m->values.n, true)};
    flow_finder f = {.out = out, .arena = a, .brief = brief, .kept = HIR_NONE};
    f.needed = hir_needed_by_loss(m, a);
    list_ops(&f, m->first);
    list_operands(&f);
    find_from(&f, HIR_NONE);
    if (!out->width) return;
    const bool found = out->outputs.n && !is_too_narrow(&f);
    if ((!found || has_embeddings(&f) || flow_begins_changed(&f)) && begin_joined(&f)) return;
    if (found) {
        begin_later(&f);
        return;
    }
    const hir_flow first = *out;
    f.brief = false; /* where the stream begins, its sources decide */
    for (int i = 0; i < MOST_LAYERS; i++) {
        const hir_id begin = next_beginning(&f);
        if (begin == HIR_NONE) break;
        find_from(&f, begin);
        if (!is_stream(out) || is_too_narrow(&f)) continue;
        begin_later(&f);
        return;
    }
    if (find_kept(&f)) return;
    *out = first;
}

void hir_flow_find(const hir_module *m, hd_arena *a, hir_flow *out) {
    find(m, a, false, out);
    if (out->width) flow_find_readers(out, a);
}

void hir_flow_find_brief(const hir_module *m, hd_arena *a, hir_flow *out) {
    find(m, a, true, out);
    if (out->width) flow_find_readers(out, a);
}

/* ---- what belongs to sublayers --------------------------------------------------------------- */

/* Is v computed inside a sublayer, from what the sublayer reads? Positions and layer inputs are
 * not. */
static bool is_inside(const hir_flow *f, hir_id v) {
    const hir_value *value = hir_value_at(f->m, v);
    if (value->op == HIR_NONE || f->input[v] != HIR_NONE || !hir_type_has_t(value->type))
        return false;
    if (f->kind[v] != HIR_FLOW_NONE && !f->inside[v]) return false;
    return !hir_has_trait(hir_op_at(f->m, value->op)->code, HIR_PURE_CONST);
}

/* Is v a state? The caches of attention have a dim C and no T, but values that are appended to them
 * belong to the sublayer, so the walk continues through states. */
static bool is_state(const hir_flow *f, hir_id v) {
    return hir_state_of_value(f->m, hir_value_ref(v)) != HIR_NONE;
}

/* Walks backwards from the outputs; a value that several sublayers read belongs to the first of
 * them. */
uint32_t *hir_flow_homes(const hir_flow *f, hd_arena *a, bool *crosses) {
    uint32_t *home = hd_new_array(a, uint32_t, f->m->values.n);
    for (size_t i = 0; i < f->outputs.n; i++)
        home[f->outputs.at[i]] = (uint32_t)i + 1;
    for (size_t k = f->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        const uint32_t to = o->n_results ? home[o->results[0]] : 0;
        for (uint32_t i = 0; to && i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id v = f->origin[o->args[i].index];
            if (!is_inside(f, v) && !is_state(f, v)) continue;
            if (home[v] && home[v] != to) crosses[home[v] > to ? home[v] : to] = true;
            if (!home[v] || to < home[v]) home[v] = to;
        }
    }
    return home;
}
