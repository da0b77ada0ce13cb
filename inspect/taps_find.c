/* Finding taps: inputs, outputs and sources come from the data flow; norms are looked through; the
 * stream between two sublayers is the narrowest place between them.
 *
 *   stream.k   After the output of sublayer k-1, and before sublayer k reads, there are points in
 *              the program with few live values of the mechanism. At the narrowest of these points,
 *              the stream is what was made since that before sublayer k-1. (The others, such as
 *              finished sums of blocks, are sources that were there before.) So nothing needs to
 *              know where a system's `write` ends. Before the head, where nothing else is live, the
 *              stream is what is at least as wide as before the last sublayer.
 */
#include "inspect/mixes.h"
#include "inspect/taps.h"
#include "ir/text/text.h"

typedef HD_VEC(hir_id) value_list;

typedef struct reading { /* the walk from what a sublayer gives back to what it reads */
    value_list stack;
    uint32_t *seen; /* by origin: the last walk that came by */
    uint32_t walk;
} reading;

typedef struct finder {
    taps *x;
    hd_arena *arena;
    hir_flow flow;
    uint32_t *home;
    size_t *made, *last; /* by origin: index in the program of the op that makes it, and of the last
                          * op that reads it */
    uint32_t *readers;   /* by origin: ops that read it */
    bool *passes_on;     /* by origin: the mechanism computes with it, beside what sublayers read */
    bool *output;        /* by origin: it is the output of a sublayer */
    reading reading;
    bool *head; /* by origin: the first output of the model is made of it, the logits */
} finder;

/* ---- uses ------------------------------------------------------------------------------------ */

static hir_id origin_of(const finder *f, hir_ref r) {
    return r.kind == HIR_REF_VALUE ? f->flow.origin[r.index] : HIR_NONE;
}

static const hir_op *first_output(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    if (hir_op_at(m, op)->code == HIR_OUTPUT_OP) return hir_op_at(m, op);
    return NULL;
}

static void note_uses(finder *f) {
    const hir_module *m = f->flow.m;
    const size_t n = m->values.n;
    f->made = hd_new_array(f->arena, size_t, n + 1);
    f->last = hd_new_array(f->arena, size_t, n + 1);
    f->readers = hd_new_array(f->arena, uint32_t, n + 1);
    f->passes_on = hd_new_array(f->arena, bool, n + 1);
    f->output = hd_new_array(f->arena, bool, n + 1);
    for (size_t i = 0; i < f->flow.outputs.n; i++)
        f->output[f->flow.outputs.at[i]] = true;
    const hir_op *logits = first_output(m);
    for (size_t k = 0; k < f->flow.program.n; k++) {
        const hir_op *o = hir_op_at(m, f->flow.program.at[k]);
        const hir_id y = o->n_results ? o->results[0] : HIR_NONE;
        /* nothing depends on who watches */
        if (o->code == HIR_TRACE_OP || (o->code == HIR_OUTPUT_OP && o != logits)) continue;
        if (y != HIR_NONE) f->made[y] = k;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id v = origin_of(f, o->args[i]);
            if (v == HIR_NONE) continue;
            f->last[v] = k;
            f->readers[v]++;
            if (y != HIR_NONE && f->flow.kind[y] != HIR_FLOW_NONE && !f->flow.inside[y])
                f->passes_on[v] = true;
        }
    }
}

static const hir_op *maker(const finder *f, hir_id v) {
    const hir_id op = v == HIR_NONE ? HIR_NONE : hir_value_at(f->flow.m, v)->op;
    return op == HIR_NONE ? NULL : hir_op_at(f->flow.m, op);
}

static int64_t row_of(const finder *f, hir_id v) {
    return hir_type_row_elements(hir_value_at(f->flow.m, v)->type);
}

/* The operand of the norm that makes v; HIR_NONE: no norm makes it. */
static hir_id norm_operand(const finder *f, hir_id v) {
    const hir_op *o = maker(f, v);
    if (!o || (o->code != HIR_RMSNORM_OP && o->code != HIR_LAYERNORM_OP)) return HIR_NONE;
    return origin_of(f, o->args[0]);
}

/* ---- the list -------------------------------------------------------------------------------- */

static const char *place(const taps *x, uint32_t at, bool source, hd_arena *a) {
    return !source && at > x->sublayers ? "head" : hd_printf(a, "%u", at);
}

static void add(finder *f, tap t) {
    static const char *const kinds[TAP_KINDS] = {
#define T(id, name, shows) [TAP_##id] = name,
#include "inspect/taps.def"
    };
    const char *at = place(f->x, t.at, t.kind == TAP_SOURCE, f->arena);
    t.name = t.parts > 1 ? hd_printf(f->arena, "%s.%s.%u", kinds[t.kind], at, t.part)
                         : hd_printf(f->arena, "%s.%s", kinds[t.kind], at);
    hd_push(f->arena, &f->x->list, t);
}

/* A tap of all of v, without its name: part `part` of `parts`. */
static tap whole(const finder *f, tap_kind kind, uint32_t at, uint32_t part, uint32_t parts,
                 hir_id v) {
    return (tap){.kind = kind,
                 .at = at,
                 .part = part,
                 .parts = parts,
                 .value = hir_value_ref(v),
                 .stride = 1,
                 .n = row_of(f, v)};
}

static bool has(const value_list *l, hir_id v) {
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i] == v) return true;
    return false;
}

static void add_values(finder *f, tap_kind kind, uint32_t at, const value_list *l) {
    for (size_t i = 0; i < l->n; i++)
        add(f, whole(f, kind, at, (uint32_t)i + 1, (uint32_t)l->n, l->at[i]));
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The inputs of which v is made, by the inside of sublayer `sublayer` (of the head: 0). Of what
 * several sublayers read side by side, the data flow tells the first alone. */
static value_list inputs_of(finder *f, hir_id v, uint32_t sublayer) {
    reading *r = &f->reading;
    value_list found = {0};
    r->walk++;
    r->stack.n = 0;
    if (v != HIR_NONE) hd_push(f->arena, &r->stack, v);
    while (r->stack.n) {
        const hir_id x = r->stack.at[--r->stack.n];
        const hir_op *o = maker(f, x);
        if (r->seen[x] == r->walk) continue;
        r->seen[x] = r->walk;
        if (f->flow.input[x] != HIR_NONE) hd_push(f->arena, &found, x);
        const bool others = sublayer && f->home[x] && f->home[x] != sublayer;
        for (uint32_t i = 0; o && !others && f->flow.input[x] == HIR_NONE && i < o->n_args; i++)
            if (origin_of(f, o->args[i]) != HIR_NONE)
                hd_push(f->arena, &r->stack, origin_of(f, o->args[i]));
    }
    return found;
}

/* Marks the inputs of the head: of what the first output is made. (A spec may give other values as
 * further outputs.) */
static void find_head(finder *f) {
    const hir_op *logits = first_output(f->flow.m);
    f->reading.seen = hd_new_array(f->arena, uint32_t, f->flow.m->values.n + 1);
    f->head = hd_new_array(f->arena, bool, f->flow.m->values.n + 1);
    const value_list l = inputs_of(f, logits ? origin_of(f, logits->args[0]) : HIR_NONE, 0);
    for (size_t i = 0; i < l.n; i++)
        f->head[l.at[i]] = true;
}

/* The sublayer that reads an input, the head being the last; 0: another output. */
static uint32_t reader(const finder *f, const hir_flow_input *input) {
    if (input->sublayer != HIR_FLOW_RESULT) return input->sublayer;
    return f->head[input->value] ? f->x->sublayers + 1 : 0;
}

/* What a sublayer reads before its own norm. A norm whose result the mechanism goes on with, in
 * place of its operand (as in DeepNorm), belongs to the residual system and is kept. */
static hir_id before_norm(const finder *f, const hir_flow_input *input) {
    const hir_id v = input->value, raw = norm_operand(f, v);
    if (raw == HIR_NONE || f->flow.kind[raw] == HIR_FLOW_NONE) return v;
    const bool head = input->sublayer == HIR_FLOW_RESULT;
    return !head && f->passes_on[v] && f->readers[raw] == 1 ? v : raw;
}

static void add_input(finder *f, tap_kind kind, const hir_flow_input *input, value_list *l) {
    const hir_id raw = before_norm(f, input), v = kind == TAP_INPUT ? raw : input->value;
    if ((kind == TAP_INPUT || raw != input->value) && !has(l, v)) hd_push(f->arena, l, v);
}

static void add_inputs(finder *f, tap_kind kind, uint32_t sublayer) {
    value_list l = {0};
    for (size_t i = 0; i < f->flow.inputs.n; i++)
        if (reader(f, &f->flow.inputs.at[i]) == sublayer)
            add_input(f, kind, &f->flow.inputs.at[i], &l);
    if (!l.n && sublayer <= f->x->sublayers) {
        const value_list beside = inputs_of(f, f->flow.outputs.at[sublayer - 1], sublayer);
        for (size_t i = 0; i < beside.n; i++)
            add_input(f, kind, &f->flow.inputs.at[f->flow.input[beside.at[i]]], &l);
    }
    add_values(f, kind, sublayer, &l);
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Is v computed token by token of y alone? Weights may take part. */
static bool is_of(const finder *f, hir_id v, hir_id y) {
    const hir_op *o = maker(f, v);
    if (v == y) return true;
    if (!o || hir_flow_is_border(&f->flow, o)) return false;
    bool any = false;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id x = origin_of(f, o->args[i]);
        if (x == HIR_NONE || !hir_type_has_t(hir_value_at(f->flow.m, x)->type)) continue;
        if (!is_of(f, x, y)) return false;
        any = true;
    }
    return any;
}

/* What the sublayer itself gives: the output before a norm on its way into the stream, whether an
 * op or written out, as a product of the value and a number of each token that is made of it. */
static hir_id before_own_norm(const finder *f, hir_id v) {
    const hir_id raw = norm_operand(f, v);
    if (raw != HIR_NONE && f->readers[raw] == 1 && row_of(f, raw) == row_of(f, v)) return raw;
    const hir_op *o = maker(f, v);
    if (!o || (o->code != HIR_MUL_OP && o->code != HIR_DIV_OP)) return v;
    for (int i = 0; i < 2; i++) {
        const hir_id y = origin_of(f, o->args[i]), number = origin_of(f, o->args[1 - i]);
        if (y == HIR_NONE || number == HIR_NONE || y == number || (i && o->code == HIR_DIV_OP))
            continue;
        if (row_of(f, y) != row_of(f, v) || row_of(f, number) >= row_of(f, v)) continue;
        if (is_of(f, number, y)) return y;
    }
    return v;
}

/* A system may take an output by several maps, as keys and values (MRLA): the sublayer itself gives
 * what all of them read. */
static hir_id before_maps(const finder *f, hir_id v) {
    const hir_op *o = maker(f, v);
    const hir_id y = o && o->code == HIR_LINEAR_OP ? origin_of(f, o->args[0]) : HIR_NONE;
    if (y == HIR_NONE || f->flow.input[y] != HIR_NONE || f->readers[y] < 2) return v;
    for (size_t k = 0; k < f->flow.program.n; k++) {
        const hir_op *other = hir_op_at(f->flow.m, f->flow.program.at[k]);
        for (uint32_t i = 0; i < other->n_args; i++)
            if (origin_of(f, other->args[i]) == y && (i > 0 || other->code != HIR_LINEAR_OP))
                return v;
    }
    return y;
}

static void add_outputs(finder *f) {
    for (uint32_t k = 1; k <= f->x->sublayers; k++) {
        const hir_id v = before_maps(f, before_own_norm(f, f->flow.outputs.at[k - 1]));
        add(f, whole(f, TAP_OUTPUT, k, 1, 1, v));
    }
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* Can the value hold what goes from sublayer to sublayer? */
static bool is_carried(const finder *f, hir_id v) {
    const hir_flow_kind kind = f->flow.kind[v];
    const bool wide = hir_flow_is_stream(kind) || kind == HIR_FLOW_MIX;
    return wide && (!f->flow.inside[v] || f->output[v]);
}

/* By sublayer, the last being the head: the first op that reads its input, or makes it by its own
 * norm; the length of the program if there is none. */
static size_t *first_readers(const finder *f) {
    const uint32_t n = f->x->sublayers + 1;
    size_t *first = hd_new_array(f->arena, size_t, n + 1);
    for (uint32_t k = 1; k <= n; k++)
        first[k] = f->flow.program.n;
    for (size_t k = f->flow.program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(f->flow.m, f->flow.program.at[k]);
        if (o->code != HIR_OUTPUT_OP && !hir_flow_is_border(&f->flow, o)) continue;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id v = origin_of(f, o->args[i]);
            const uint32_t input = v == HIR_NONE ? HIR_NONE : f->flow.input[v];
            if (input == HIR_NONE) continue;
            const hir_flow_input *read = &f->flow.inputs.at[input];
            first[reader(f, read)] = before_norm(f, read) != v ? f->made[v] : k;
        }
    }
    return first;
}

/* A point in the program, behind op `at`, by what is live there of the mechanism. */
typedef struct point {
    size_t at;
    int64_t live, fresh; /* elements; of these, elements of values that are made since `since` */
    bool waits;          /* the output before has not yet gone into something else */
} point;

/* Of equally narrow points the later one counts: a scale or a norm that replaces the stream belongs
 * to what the sublayer before leaves. */
static bool is_narrower(const point *a, const point *b) {
    if (a->live != b->live) return a->live < b->live;
    return a->fresh != b->fresh ? a->fresh < b->fresh : a->waits <= b->waits;
}

static void count(const finder *f, hir_id v, size_t since, int sign, point *p) {
    p->live += sign * row_of(f, v);
    if (f->made[v] >= since) p->fresh += sign * row_of(f, v);
}

/* The narrowest point from `from` on and before `to`, both indices in the program,
 * with at least `bound` elements live. */
static point narrowest(const finder *f, size_t since, size_t from, size_t to, hir_id output,
                       int64_t bound) {
    point p = {0}, best = {from, INT64_MAX, INT64_MAX, true};
    for (size_t v = 0; v < f->flow.m->values.n; v++)
        if (is_carried(f, (hir_id)v) && f->made[v] < from && f->last[v] >= from)
            count(f, (hir_id)v, since, 1, &p);
    for (size_t k = from; k < to; k++) {
        const hir_op *o = hir_op_at(f->flow.m, f->flow.program.at[k]);
        if (o->n_results && is_carried(f, o->results[0]) && f->last[o->results[0]] > k)
            count(f, o->results[0], since, 1, &p);
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id v = origin_of(f, o->args[i]);
            bool again = v == HIR_NONE || f->last[v] != k || !is_carried(f, v);
            for (uint32_t j = 0; j < i && !again; j++)
                again = origin_of(f, o->args[j]) == v;
            if (!again) count(f, v, since, -1, &p);
        }
        p.at = k;
        p.waits = output != HIR_NONE && f->last[output] > k;
        if (p.live >= bound && is_narrower(&p, &best)) best = p;
    }
    return best;
}

/* Streams that lie in one value, [T, streams, d] or [T, d, streams], are parts of their own. */
static uint32_t streams_in(const finder *f, hir_id v) {
    const int64_t n = row_of(f, v), width = (int64_t)f->flow.width;
    return n > width && n % width == 0 ? (uint32_t)(n / width) : 1;
}

static void add_streams(finder *f, uint32_t sublayer, const value_list *l) {
    uint32_t parts = 0, part = 0;
    for (size_t i = 0; i < l->n; i++)
        parts += streams_in(f, l->at[i]);
    for (size_t i = 0; i < l->n; i++) {
        const hir_type t = hir_value_at(f->flow.m, l->at[i])->type;
        const uint32_t n = streams_in(f, l->at[i]);
        const bool last = n > 1 && t.dim[t.rank - 1] != (int64_t)f->flow.width;
        for (uint32_t s = 0; s < n; s++) {
            tap x = whole(f, TAP_STREAM, sublayer, ++part, parts, l->at[i]);
            x.n /= n;
            x.first = last ? s : s * x.n;
            x.stride = last ? n : 1;
            add(f, x);
        }
    }
}

/* Where in the program the stream begins. */
static size_t beginning(const finder *f) {
    for (size_t k = 0; k < f->flow.program.n; k++) {
        const hir_op *o = hir_op_at(f->flow.m, f->flow.program.at[k]);
        if (o->n_results && f->flow.kind[o->results[0]] == HIR_FLOW_EMBEDDING) return k;
    }
    return 0;
}

static void add_stream(finder *f) {
    const size_t *first = first_readers(f);
    int64_t before = 0; /* elements live at the point before */
    size_t since = 0;   /* values made from here on are of this stream, not of the one before */
    for (uint32_t k = 1; k <= f->x->sublayers + 1; k++) {
        const hir_id output = k > 1 ? f->flow.outputs.at[k - 2] : HIR_NONE;
        const size_t from = k > 1 ? f->made[output] : beginning(f);
        if (first[k] <= from || first[k] == f->flow.program.n) continue; /* nobody reads here */
        const int64_t bound = k > f->x->sublayers ? before : 0;
        const point narrow = narrowest(f, since, from, first[k], output, bound);
        const size_t at = narrow.at;
        before = narrow.live;
        value_list l = {0};
        for (size_t i = since; i <= at; i++) {
            const hir_op *o = hir_op_at(f->flow.m, f->flow.program.at[i]);
            if (o->n_results && is_carried(f, o->results[0]) && f->last[o->results[0]] > at)
                hd_push(f->arena, &l, o->results[0]);
        }
        add_streams(f, k, &l);
        since = at + 1;
    }
}

/* ---- sources and mixes ----------------------------------------------------------------------- */

static void add_sources(finder *f) {
    const hir_source **of = hd_new_array(f->arena, const hir_source *, f->flow.m->values.n + 1);
    for (size_t i = 0; i < f->flow.inputs.n; i++)
        for (size_t k = 0; k < hir_flow_sources(&f->flow.inputs.at[i]); k++) {
            const hir_source *s = hir_flow_source(&f->flow.inputs.at[i], k);
            of[s->value] = s;
        }
    uint32_t n = 0;
    for (size_t k = 0; k < f->flow.program.n; k++) {
        const hir_op *o = hir_op_at(f->flow.m, f->flow.program.at[k]);
        if (!o->n_results || !of[o->results[0]]) continue;
        hd_text label;
        hd_text_init(&label, f->arena);
        hir_flow_print_source(of[o->results[0]], &label);
        tap t = whole(f, TAP_SOURCE, n++, 1, 1, o->results[0]);
        t.label = label.at;
        add(f, t);
    }
}

static void add_mixes(finder *f) {
    depth_mixes mixes;
    depth_mixes_find(&f->flow, f->home, f->arena, &mixes);
    for (uint32_t k = 1; k <= f->x->sublayers + 1; k++) {
        value_list l = {0};
        for (size_t i = 0; i < mixes.list.n; i++) {
            const depth_mix *mix = &mixes.list.at[i];
            const bool here = (mix->sublayer ? mix->sublayer : f->x->sublayers + 1) == k;
            const bool rows = hir_type_has_t(hir_ref_type(f->flow.m, mix->weights));
            if (here && rows && mix->weights.kind == HIR_REF_VALUE)
                hd_push(f->arena, &l, mix->weights.index);
        }
        add_values(f, TAP_MIX, k, &l);
    }
}

/* ---- all taps -------------------------------------------------------------------------------- */

static bool is_fit(const hir_module *m, const hir_flow *f, hd_diags *d) {
    if (f->width && f->outputs.n) return true;
    hd_diag *e = hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE,
                        "%s has no residual stream, so it has no taps", m->name);
    e->cause = "a stream begins at an embedding, and outputs of sublayers are added to it or mixed";
    e->hint = "output h = ... or trace(h, \"h\") in the spec shows any value";
    return false;
}

bool taps_find(const hir_module *m, hd_arena *a, hd_diags *d, taps *out) {
    *out = (taps){.model = m->name};
    if (m->stage != HIR_STAGE_GRAPH) {
        hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "%s is %s IR, and taps are values of the graph",
               m->name, hir_stage_name(m->stage))
            ->hint = "take the spec, or IR that no pass has lowered";
        return false;
    }
    finder f = {.x = out, .arena = a};
    hir_flow_find(m, a, &f.flow);
    if (!is_fit(m, &f.flow, d)) return false;
    const uint32_t n = out->sublayers = (uint32_t)f.flow.outputs.n;
    f.home = hir_flow_homes(&f.flow, a, hd_new_array(a, bool, n + 1));
    out->names = hd_new_array(a, const char *, n + 1);
    const hir_flow_label *labels = hir_flow_labels(&f.flow, a);
    for (uint32_t k = 0; k < n; k++)
        out->names[k] = labels[k].name;
    out->names[n] = "head";
    note_uses(&f);
    find_head(&f);
    for (uint32_t k = 1; k <= n + 1; k++)
        add_inputs(&f, TAP_INPUT, k);
    for (uint32_t k = 1; k <= n + 1; k++)
        add_inputs(&f, TAP_NORMED, k);
    add_outputs(&f);
    add_stream(&f);
    add_sources(&f);
    add_mixes(&f);
    return true;
}
