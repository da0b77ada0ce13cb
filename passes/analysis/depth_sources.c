/* Finds the inputs of sublayers, the sources of each input, and the blocks that inputs form.
 *
 * Sources are found by walking back from an input through mixes, along operands as wide as the
 * stream (the weights of a mix are narrower), to the embedding, an output, or a sum of these.
 *
 * Blocks. A source that the next input reads too is finished; one that only this input reads is
 * live. Consecutive inputs with the same finished sources are a block: one pass over the finished
 * sources (phase 1) can serve them all. In Block AttnRes these are the blocks of the model; in Full
 * AttnRes each sublayer is a block; in a plain residual nothing is shared, and there is one block.
 */
#include <stdlib.h>
#include <string.h>

#include "passes/analysis/depth_flow_private.h"
#include "passes/util.h"

/* ---- sources --------------------------------------------------------------------------------- */

typedef struct walker {
    flow_finder *f;
    uint32_t *seen; /* by value: the last walk that visited it */
    uint32_t walk;
    bool again; /* a value was met again */
    HD_VEC(hir_id) stack, found;
    uint32_t *first, *count; /* by value: 1 + where its operands begin (0: not listed), how many */
    HD_VEC(hir_id) operands; /* that walks go on to */
} walker;

static void push(walker *w, hir_id v) {
    if (v == HIR_NONE) return;
    if (w->seen[v] == w->walk) {
        w->again = true;
        return;
    }
    w->seen[v] = w->walk;
    hd_push(w->f->arena, &w->stack, v);
}

/* The operand of a stack that a slice selects; HIR_NONE if it is not exactly one. */
static hir_id sliced_operand(const flow_finder *f, const hir_op *slice) {
    const hir_module *m = f->out->m;
    hir_id v = flow_operand(f, slice, 0);
    hir_id made = v == HIR_NONE ? HIR_NONE : hir_value_at(m, v)->op;
    if (made == HIR_NONE || hir_op_at(m, made)->code != HIR_STACK_OP) return HIR_NONE;
    const hir_op *stack = hir_op_at(m, made);
    int64_t axis = hir_attr_int(slice, HIR_A_AXIS, 0), start = hir_attr_int(slice, HIR_A_START, 0);
    bool same = axis == hir_attr_int(stack, HIR_A_AXIS, -1) &&
                hir_attr_int(slice, HIR_A_LENGTH, 0) == 1 && slice->args[0].index == v;
    return same && start < stack->n_args ? flow_operand(f, stack, (uint32_t)start) : HIR_NONE;
}

/* Operands of a mix that are as wide as the stream are sources, except the query. */
static bool is_mixed(const flow_finder *f, const hir_op *o, uint32_t i) {
    if (o->code == HIR_DEPTH_ATTEND_OP && i == 0) return false;
    hir_id x = flow_operand(f, o, i);
    return x != HIR_NONE && f->out->kind[x] != HIR_FLOW_NUMBERS;
}

/* Lists what a walk goes on to from v, once: the walks from all inputs pass the same values. */
static void list_operands(walker *w, hir_id v) {
    const flow_finder *f = w->f;
    w->first[v] = (uint32_t)w->operands.n + 1;
    const hir_id op = hir_value_at(f->out->m, v)->op;
    const hir_op *o = op == HIR_NONE ? NULL : hir_op_at(f->out->m, op);
    if (!o || hir_flow_is_border(f->out, o)) return;
    /* a narrow input goes on to all, up to the rows that it is made of */
    const bool narrow = f->out->kind[v] == HIR_FLOW_NUMBERS;
    const hir_id only = !narrow && o->code == HIR_SLICE_OP ? sliced_operand(f, o) : HIR_NONE;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id x = only != HIR_NONE ? only : flow_operand(f, o, i);
        if (x != HIR_NONE && (narrow || is_mixed(f, o, i))) hd_push(f->arena, &w->operands, x);
    }
    w->count[v] = (uint32_t)w->operands.n + 1 - w->first[v];
}

static void step(walker *w, hir_id v) {
    flow_finder *f = w->f;
    if (hir_flow_is_stream(f->out->kind[v])) {
        hir_id root = f->out->root[v];
        if (root != v && w->seen[root] == w->walk) {
            w->again = true;
            return;
        }
        w->seen[root] = w->walk;
        hd_push(f->arena, &w->found, root);
        return;
    }
    if (!w->first[v]) list_operands(w, v);
    for (uint32_t i = 0; i < w->count[v]; i++)
        push(w, w->operands.at[w->first[v] - 1 + i]);
}

static void start_walk(walker *w) {
    w->walk++;
    w->stack.n = w->found.n = 0;
}

static void walk_from(walker *w, hir_id input) {
    push(w, input);
    while (w->stack.n)
        step(w, w->stack.at[--w->stack.n]);
}

/* ---- contents of a source -------------------------------------------------------------------- */

typedef struct contents { /* which outputs a value of the stream is the sum of */
    bool known;
    uint32_t first, last, count;
} contents;

/* The walk is iterative, as the sums of a plain residual form a chain as long as the model. */
static contents contents_of(const flow_finder *f, contents *memo, const uint32_t *number,
                            hir_id v) {
    HD_VEC(hir_id) stack = {0};
    hd_push(f->arena, &stack, v);
    while (stack.n) {
        hir_id at = stack.at[stack.n - 1];
        contents *c = &memo[at];
        hir_id op = hir_value_at(f->out->m, at)->op;
        if (c->known || f->out->kind[at] != HIR_FLOW_SUM || op == HIR_NONE) {
            uint32_t n = f->out->kind[at] == HIR_FLOW_OUTPUT ? number[at] : 0;
            if (!c->known) *c = (contents){true, n, n, 1};
            stack.n--;
            continue;
        }
        const hir_op *o = hir_op_at(f->out->m, op);
        contents all = {true, UINT32_MAX, 0, 0};
        size_t before = stack.n;
        for (uint32_t i = 0; i < o->n_args; i++) {
            hir_id x = flow_operand(f, o, i);
            if (x == HIR_NONE) continue;
            x = f->out->root[x];
            if (!memo[x].known) {
                hd_push(f->arena, &stack, x);
                continue;
            }
            if (memo[x].first < all.first) all.first = memo[x].first;
            if (memo[x].last > all.last) all.last = memo[x].last;
            all.count += memo[x].count;
        }
        if (stack.n > before) continue;
        *c = all;
        stack.n--;
    }
    return memo[v];
}

void hir_flow_print_source(const hir_source *s, hd_text *out) {
    if (s->first == 0)
        hd_text_add(out, "e");
    else
        hd_text_f(out, "%u", s->first);
    if (s->last == s->first) return;
    hd_text_f(out, "%s%u", s->count == s->last - s->first + 1 ? "-" : "..", s->last);
}

/* ---- outputs and inputs ---------------------------------------------------------------------- */

/* Of what is made inside sublayers, that which leads to an output. The rest, such as the query of a
 * mix, is made for the mechanism: numbers of it. */
static void find_own(const flow_finder *f, const bool *reached) {
    hir_flow *out = f->out;
    for (size_t k = 0; k < out->program.n; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        const hir_id v = o->n_results ? o->results[0] : HIR_NONE;
        if (v == HIR_NONE || !out->inside[v]) continue;
        const hir_id root = out->root[v];
        out->own[v] = reached[f->into[root] == HIR_NONE ? root : f->into[root]];
        if (!out->own[v] && out->kind[v] == HIR_FLOW_OUTPUT) out->kind[v] = HIR_FLOW_NUMBERS;
    }
}

/* Keeps those outputs that reach an input, as a source or in a sum, or another pipeline stage;
 * others, such as the query of a mix, are not outputs of sublayers. */
static void find_outputs(flow_finder *f, walker *w, bool *reached) {
    hir_flow *out = f->out;
    start_walk(w); /* one for all: only the union of their sources counts */
    for (size_t i = 0; i < out->inputs.n; i++)
        walk_from(w, out->inputs.at[i].value);
    for (size_t k = 0; k < out->program.n; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        const hir_id sent = o->code == HIR_COMM_SEND_OP ? flow_operand(f, o, 0) : HIR_NONE;
        if (sent != HIR_NONE && f->member[sent]) walk_from(w, sent);
    }
    for (size_t k = 0; k < w->found.n; k++)
        reached[w->found.at[k]] = true;
    for (size_t k = out->program.n; k-- > 0;) { /* through sums, in reverse order */
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        if (!o->n_results || !reached[o->results[0]]) continue;
        if (out->kind[o->results[0]] != HIR_FLOW_SUM) continue;
        for (uint32_t i = 0; i < o->n_args; i++) {
            hir_id x = flow_operand(f, o, i);
            if (x != HIR_NONE) reached[f->out->root[x]] = true;
        }
    }
    for (size_t k = 0; k < out->program.n; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        if (!o->n_results || !reached[o->results[0]]) continue;
        if (out->kind[o->results[0]] == HIR_FLOW_OUTPUT &&
            f->out->root[o->results[0]] == o->results[0])
            hd_push(f->arena, &out->outputs, o->results[0]);
    }
    find_own(f, reached);
}

/* Is it a number of the mechanism that has become a result, as of a head with few columns, and not
 * only its weights, which are traced? */
static bool ends_in_numbers(const flow_finder *f) {
    for (size_t k = 0; k < f->out->program.n; k++) {
        const hir_op *o = hir_op_at(f->out->m, f->out->program.at[k]);
        if (o->code != HIR_OUTPUT_OP) continue;
        const hir_id v = flow_operand(f, o, 0);
        if (v != HIR_NONE && f->out->kind[v] != HIR_FLOW_NUMBERS) return false;
    }
    return true;
}

static bool takes_rows(const hir_op *o) {
    return hir_is_linear(o->code) || hir_has_trait(o->code, HIR_SEQUENCE) ||
           hir_has_trait(o->code, HIR_WRITES_STATE);
}

static void add_input(flow_finder *f, const hir_op *reader, hir_id v, bool narrow) {
    hir_flow *out = f->out;
    if (v == HIR_NONE || !f->member[v] || out->input[v] != HIR_NONE) return;
    if (out->kind[v] == HIR_FLOW_NUMBERS && (!narrow || out->inside[v])) return;
    out->input[v] = (uint32_t)out->inputs.n;
    hir_flow_input input = {.value = v, .sublayer = HIR_NONE, .loc = *reader->loc};
    hd_push(f->arena, &out->inputs, input);
}

static void list_inputs(flow_finder *f) {
    const bool narrow_result = ends_in_numbers(f);
    for (size_t k = 0; k < f->out->program.n; k++) {
        const hir_op *o = hir_op_at(f->out->m, f->out->program.at[k]);
        if (o->code != HIR_OUTPUT_OP && !hir_flow_is_border(f->out, o)) continue;
        for (uint32_t i = 0; i < o->n_args; i++)
            add_input(f, o, flow_operand(f, o, i),
                      o->code == HIR_OUTPUT_OP ? narrow_result : takes_rows(o));
    }
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* For each value: the first sublayer whose output depends on it other than through the
 * mechanism. */
static void assign_sublayers(flow_finder *f, const uint32_t *number) {
    const hir_flow *out = f->out;
    uint32_t *leads = hd_new_array(f->arena, uint32_t, out->m->values.n);
    for (size_t i = 0; i < out->m->values.n; i++)
        leads[i] = HIR_NONE;
    for (size_t k = out->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        uint32_t to = o->code == HIR_OUTPUT_OP ? HIR_FLOW_RESULT : HIR_NONE;
        if (o->n_results) {
            hir_id v = o->results[0];
            bool border = hir_flow_is_border(out, o);
            if (f->member[v] && !border && !out->inside[v]) continue;
            hir_id whole = f->member[v] || f->into[v] == HIR_NONE ? v : f->into[v];
            to = number[whole] ? number[whole] : leads[v];
        }
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            hir_id x = out->origin[o->args[i].index];
            if (out->input[x] != HIR_NONE) {
                hir_flow_input *input = &out->inputs.at[out->input[x]];
                input->sublayer = least(input->sublayer, to);
            } else if (!f->member[x]) {
                leads[x] = least(leads[x], to);
            }
        }
    }
}

static int by_place(const void *a, const void *b) {
    const hir_source *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Is it narrower than the stream? Only sublayers that read no row of the stream have such inputs,
 * as those of a stream that is a matrix; for others it is a coefficient. */
static bool is_narrow(const hir_flow *out, const hir_flow_input *input) {
    return out->kind[input->value] == HIR_FLOW_NUMBERS;
}

/* By sublayer, the program's output at 0: does it read a row of the stream? */
static bool *find_readers_of_rows(const flow_finder *f) {
    const hir_flow *out = f->out;
    bool *reads = hd_new_array(f->arena, bool, out->outputs.n + 1);
    for (size_t i = 0; i < out->inputs.n; i++) {
        const hir_flow_input *input = &out->inputs.at[i];
        if (input->sublayer == HIR_NONE || is_narrow(out, input)) continue;
        reads[input->sublayer == HIR_FLOW_RESULT ? 0 : input->sublayer] = true;
    }
    return reads;
}

/* Drops inputs that lead to no output, such as the input of a query's contraction. */
static void drop_strays(flow_finder *f) {
    hir_flow *out = f->out;
    const bool *reads = find_readers_of_rows(f);
    size_t n = 0;
    for (size_t i = 0; i < out->inputs.n; i++) {
        hir_flow_input input = out->inputs.at[i];
        bool stray = input.sublayer == HIR_NONE;
        if (!stray && is_narrow(out, &input))
            stray = reads[input.sublayer == HIR_FLOW_RESULT ? 0 : input.sublayer];
        out->input[input.value] = stray ? HIR_NONE : (uint32_t)n;
        if (!stray) out->inputs.at[n++] = input;
    }
    out->inputs.n = n;
}

/* Where every input reads all outputs before it, the lists of sources are together as long as the
 * square of the layers, unless an input shares the list of the input before it and adds to it.
 * There may be others that are its own, such as the second stream of SiameseNorm, whose sum is
 * another one in each sublayer. */
enum { MOST_OWN = 4 };

typedef HD_VEC(hir_source) source_list;

typedef struct lister {
    flow_finder *f;
    walker *w;
    const uint32_t *number; /* by value: of the output */
    contents *memo;
    /* by value: 1 + the input whose sources are all that it is made of, or whose list without its
     * own sources is; 0: unknown */
    uint32_t *whole, *rest;
    source_list longest; /* the list that the last inputs share */
} lister;

typedef struct known_part {   /* of the sources of an input */
    const hir_flow_input *of; /* an earlier input, whose sources are among them; NULL: none */
    bool all;                 /* its own, too */
    size_t own;               /* the first `own` that the walk has found are the input's own */
} known_part;

/* Walks to the sources of an input, up to a value that is made of all the sources of an earlier
 * input, or of those in its list. A value that is passed when nothing else is left to be visited is
 * such a one for later inputs: after a few sources were found, if none of them is met again, and if
 * the walk does not come to all sources of an earlier input, which shares its list as it is. */
static known_part walk_to_known(lister *l, size_t input) {
    walker *w = l->w;
    const hir_flow_input *inputs = l->f->out->inputs.at;
    known_part known = {0};
    hir_id rest = HIR_NONE;
    start_walk(w);
    push(w, inputs[input].value);
    while (w->stack.n) {
        const hir_id v = w->stack.at[--w->stack.n];
        const uint32_t of = l->whole[v] ? l->whole[v] : l->rest[v];
        if (of && (!known.of || known.of == &inputs[of - 1])) { /* one, which may be met again */
            known.of = &inputs[of - 1];
            known.all |= l->whole[v] != 0;
            continue;
        }
        const bool last = !w->stack.n && !known.of;
        if (last && !w->found.n) l->whole[v] = (uint32_t)input + 1;
        if (last && w->found.n && w->found.n <= MOST_OWN && rest == HIR_NONE) {
            rest = v;
            known.own = w->found.n;
            w->again = false;
        }
        step(w, v);
    }
    if (w->again || known.all) known.own = 0;
    if (known.own) l->rest[rest] = (uint32_t)input + 1;
    return known;
}

static bool is_listed(const source_list *list, const hir_source *s) {
    return list->n && bsearch(s, list->at, list->n, sizeof *s, by_place);
}

/* The sources `known` and `more`, both in order, in a list of their own. */
static source_list merged(hd_arena *a, const source_list *known, const source_list *more) {
    source_list all = {.cap = known->n + more->n};
    all.at = hd_new_array(a, hir_source, all.cap + 1);
    size_t k = 0;
    hd_known((known->at || !known->n) && (more->at || !more->n));
    for (size_t i = 0; i < known->n; i++) {
        while (k < more->n && by_place(&more->at[k], &known->at[i]) < 0)
            all.at[all.n++] = more->at[k++];
        all.at[all.n++] = known->at[i];
    }
    while (k < more->n)
        all.at[all.n++] = more->at[k++];
    return all;
}

/* Puts the sources that no list has in a list with the others, in order. */
static void take_own(hd_arena *a, hir_flow_input *x) {
    const source_list list = {.at = x->sources.at, .n = x->sources.n};
    const source_list own = {.at = x->own.at, .n = x->own.n};
    if (!own.n) return;
    const source_list all = merged(a, &list, &own);
    x->sources.at = all.at;
    x->sources.n = x->sources.cap = all.n;
    x->own.n = 0;
}

static hir_source found_source(const lister *l, size_t k) {
    const hir_id v = l->w->found.at[k];
    const contents c = contents_of(l->f, l->memo, l->number, v);
    return (hir_source){v, c.first, c.last, c.count};
}

/* The sources that are found and not known, in order. */
static source_list find_more(const lister *l, const known_part *known, const source_list *list) {
    hd_known(known->of || !known->all);
    const size_t n_own = known->all ? known->of->own.n : 0;
    source_list more = {.cap = l->w->found.n + n_own};
    more.at = hd_new_array(l->f->arena, hir_source, more.cap + 1);
    for (size_t k = l->w->found.n; k-- > known->own;) { /* a walk finds the last ones first */
        const hir_source s = found_source(l, k);
        if (!is_listed(list, &s)) more.at[more.n++] = s;
    }
    for (size_t k = 0; k < n_own; k++) {
        const hir_source *s = &known->of->own.at[k];
        bool found = false;
        for (size_t i = 0; i < more.n; i++)
            found |= more.at[i].value == s->value;
        if (!found) more.at[more.n++] = *s;
    }
    if (more.n > 1) qsort(more.at, more.n, sizeof *more.at, by_place);
    return more;
}

/* Adds those that are found to the sources that are known: to the shared list, if they come after
 * them. */
static void set_sources(lister *l, const known_part *known, hir_flow_input *x) {
    hd_arena *a = l->f->arena;
    source_list list = {0};
    if (known->of) list.at = known->of->sources.at, list.n = known->of->sources.n;
    const source_list more = find_more(l, known, &list);
    const bool after = !list.n || !more.n || by_place(&list.at[list.n - 1], more.at) < 0;
    const bool shares = list.n && list.at == l->longest.at && list.n == l->longest.n && after;
    if (!list.n)
        l->longest = more;
    else if (!shares)
        l->longest = merged(a, &list, &more);
    for (size_t k = 0; shares && k < more.n; k++)
        hd_push(a, &l->longest, more.at[k]);
    x->sources.at = l->longest.at;
    x->sources.n = x->sources.cap = l->longest.n;
    for (size_t k = known->own; k-- > 0;) {
        const hir_source s = found_source(l, k);
        if (!is_listed(&l->longest, &s)) hd_push(a, &x->own, s);
    }
    if (x->own.n > 1) qsort(x->own.at, x->own.n, sizeof *x->own.at, by_place);
}

/* All sources of each input, in order. */
static void list_sources(flow_finder *f, walker *w, const uint32_t *number) {
    hir_flow *out = f->out;
    lister l = {.f = f, .w = w, .number = number};
    l.memo = hd_new_array(f->arena, contents, out->m->values.n);
    l.whole = hd_new_array(f->arena, uint32_t, out->m->values.n);
    l.rest = hd_new_array(f->arena, uint32_t, out->m->values.n);
    for (size_t i = 0; i < out->inputs.n; i++) {
        const known_part known = walk_to_known(&l, i);
        set_sources(&l, &known, &out->inputs.at[i]);
    }
}

typedef struct pair { /* of sources, HIR_NONE: there are fewer */
    hir_id a, b;
} pair;

static void add_source(pair *p, hir_id v) {
    if (v == HIR_NONE || v == p->a || v == p->b) return;
    if (p->a == HIR_NONE)
        p->a = v;
    else if (p->b == HIR_NONE)
        p->b = v;
}

/* Two of the sources of each input, if there are two: in one pass over the program. */
static void list_two_sources(flow_finder *f) {
    hir_flow *out = f->out;
    pair *of = hd_new_array(f->arena, pair, out->m->values.n);
    for (size_t v = 0; v < out->m->values.n; v++) {
        of[v] = (pair){HIR_NONE, HIR_NONE};
        if (hir_flow_is_stream(out->kind[v])) of[v].a = out->root[v];
    }
    for (size_t k = 0; k < out->program.n; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        const hir_id y = o->n_results ? o->results[0] : HIR_NONE;
        if (y == HIR_NONE || hir_flow_is_stream(out->kind[y]) || hir_flow_is_border(out, o))
            continue;
        const hir_id only = o->code == HIR_SLICE_OP ? sliced_operand(f, o) : HIR_NONE;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id x = only != HIR_NONE ? only : flow_operand(f, o, i);
            if (x == HIR_NONE || (out->kind[y] != HIR_FLOW_NUMBERS && !is_mixed(f, o, i))) continue;
            add_source(&of[y], of[x].a);
            add_source(&of[y], of[x].b);
        }
    }
    for (size_t i = 0; i < out->inputs.n; i++) {
        hir_flow_input *input = &out->inputs.at[i];
        const pair *p = &of[input->value];
        if (p->a != HIR_NONE) hd_push(f->arena, &input->sources, (hir_source){.value = p->a});
        if (p->b != HIR_NONE) hd_push(f->arena, &input->sources, (hir_source){.value = p->b});
    }
}

void flow_find_inputs(flow_finder *f) {
    hir_flow *out = f->out;
    const size_t n = out->m->values.n;
    list_inputs(f);
    walker w = {.f = f,
                .seen = hd_new_array(f->arena, uint32_t, n),
                .first = hd_new_array(f->arena, uint32_t, n),
                .count = hd_new_array(f->arena, uint32_t, n)};
    find_outputs(f, &w, hd_new_array(f->arena, bool, n));
    uint32_t *number = hd_new_array(f->arena, uint32_t, n);
    for (size_t i = 0; i < out->outputs.n; i++)
        number[out->outputs.at[i]] = (uint32_t)i + 1;
    assign_sublayers(f, number);
    drop_strays(f);
    if (f->brief)
        list_two_sources(f);
    else
        list_sources(f, &w, number);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Is it a source of an input whose list is in order? */
static bool is_source(const hir_flow_input *x, const hir_source *s) {
    bool own = false;
    for (size_t k = 0; k < x->own.n; k++)
        own |= x->own.at[k].value == s->value;
    return own || (x->sources.n && bsearch(s, x->sources.at, x->sources.n, sizeof *s, by_place));
}

/* Does the next input have all sources in the list of x at the beginning of its own, in a list that
 * both share, and none of the others? */
static bool all_finished(const hir_flow_input *x, const hir_flow_input *next) {
    if (!next || x->sources.at != next->sources.at || x->sources.n > next->sources.n) return false;
    for (size_t k = 0; k < x->own.n; k++)
        if (is_source(next, &x->own.at[k])) return false;
    return true;
}

/* Puts finished sources first and returns their number. `stamp`, by value: `next` if the next input
 * reads it. `alone`: no other input has the list. */
static uint32_t finished_first(hd_arena *a, hir_flow_input *x, const uint32_t *stamp, uint32_t next,
                               bool alone) {
    const size_t n = x->sources.n;
    const hir_source *from = x->sources.at;
    uint32_t finished = 0, live = 0;
    hd_known(from || !n);
    for (size_t i = 0; i < n; i++)
        live += stamp[from[i].value] != next;
    hir_source *list = alone ? x->sources.at : hd_new_array(a, hir_source, n + 1);
    hir_source *last = hd_new_array(a, hir_source, live + 1);
    live = 0;
    for (size_t i = 0; i < n; i++)
        if (stamp[from[i].value] == next)
            list[finished++] = from[i];
        else
            last[live++] = from[i];
    memcpy(list + finished, last, live * sizeof *last);
    x->sources.at = list;
    return finished;
}

static bool same_bank(const hir_flow_input *a, const hir_flow_input *b) {
    if (a->shared != b->shared) return false;
    if (a->sources.at == b->sources.at) return true;
    for (uint32_t i = 0; i < a->shared; i++)
        if (a->sources.at[i].value != b->sources.at[i].value) return false;
    return true;
}

void flow_find_blocks(flow_finder *f) {
    hir_flow *out = f->out;
    uint32_t *stamp = hd_new_array(f->arena, uint32_t, out->m->values.n);
    uint32_t first = 1;                           /* first sublayer of the block */
    const hir_source *before = NULL, *own = NULL; /* the lists of an input and of the one before */
    for (size_t i = 0; i < out->inputs.n; i++) {
        hir_flow_input *x = &out->inputs.at[i];
        before = own, own = x->sources.at; /* inputs that share a list follow each other */
        if (x->sublayer == HIR_FLOW_RESULT) {
            x->block = out->blocks;
            take_own(f->arena, x);
            continue;
        }
        const uint32_t number = (uint32_t)i + 2;
        const hir_flow_input *next = i + 1 < out->inputs.n ? x + 1 : NULL;
        if (all_finished(x, next)) {
            x->shared = (uint32_t)x->sources.n;
        } else {
            for (size_t k = 0; next && k < hir_flow_sources(next); k++)
                stamp[hir_flow_source(next, k)->value] = number;
            const bool alone = own != before && (!next || next->sources.at != own);
            take_own(f->arena, x);
            x->shared = finished_first(f->arena, x, stamp, number, alone);
        }
        if (i == 0 || !same_bank(x, x - 1)) {
            out->blocks++;
            first = x->sublayer;
        }
        x->block = out->blocks;
        if (x->sublayer - first + 1 > out->longest_block)
            out->longest_block = x->sublayer - first + 1;
    }
}
