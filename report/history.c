#include "report/history.h"

#include <string.h>

#include "ir/text/text.h"
#include "passes/pass.h"

/* ---- strings --------------------------------------------------------------------------------- */

uint32_t report_string(report_strings *s, const char *text) {
    const uint32_t *old = hir_names_find(&s->index, text);
    if (old) return *old;
    const char *kept = hd_strdup(s->arena, text);
    hir_names_add(&s->index, kept, (uint32_t)s->list.n);
    hd_push(s->arena, &s->list, kept);
    return (uint32_t)s->list.n - 1;
}

report_history *report_history_new(hd_arena *a) {
    report_history *h = hd_new(a, report_history);
    h->arena = h->strings.arena = a;
    hir_names_init(&h->strings.index, a);
    report_string(&h->strings, "");
    return h;
}

/* ---- numbers of ops and values --------------------------------------------------------------- */

typedef struct builder { /* for one stage */
    report_history *h;
    report_stage *stage;
    const hir_module *m;
    uint32_t *value_of; /* by value of the module */
    hd_text text;       /* memory for one string at a time */
    HD_VEC(uint32_t) words;
} builder;

static uint32_t new_op(report_history *h) {
    hd_push(h->arena, &h->ops, (report_op){0});
    return (uint32_t)h->ops.n - 1;
}

static uint32_t new_value(report_history *h, const char *name, uint32_t op) {
    const report_value v = {name, op};
    hd_push(h->arena, &h->values, v);
    return (uint32_t)h->values.n - 1;
}

static void name_value(builder *b, uint32_t number, const char *name) {
    report_value *v = &b->h->values.at[number];
    if (name && !v->name) v->name = name;
}

/* Inputs are matched by their position. */
static void number_inputs(builder *b) {
    for (size_t i = 0; i < b->m->inputs.n; i++) {
        const hir_id v = b->m->inputs.at[i];
        if (i == b->h->inputs.n)
            hd_push(b->h->arena, &b->h->inputs, new_value(b->h, NULL, HIR_NONE));
        b->value_of[v] = b->h->inputs.at[i];
        name_value(b, b->value_of[v], hir_value_at(b->m, v)->name);
    }
}

static void number_results(builder *b, hir_id op) {
    const hir_op *o = hir_op_at(b->m, op);
    const uint32_t number = b->stage->op_of[op];
    for (uint32_t i = 0; i < o->n_results; i++) {
        report_op *known = &b->h->ops.at[number];
        if (i == known->values.n)
            hd_push(b->h->arena, &known->values, new_value(b->h, NULL, number));
        b->value_of[o->results[i]] = known->values.at[i];
        name_value(b, known->values.at[i], hir_value_at(b->m, o->results[i])->name);
    }
}

/* Numbers the yield of a kernel. A kernel has one, which `hadal diff` does not match. */
static uint32_t number_yield(builder *b, hir_id op) {
    report_history *h = b->h;
    const hir_id kernel = hir_op_at(b->m, op)->parent;
    const uint32_t owner = kernel == HIR_NONE ? HIR_NONE : b->stage->op_of[kernel];
    if (owner == HIR_NONE) return new_op(h);
    if (!h->ops.at[owner].yield) {
        const uint32_t yield = new_op(h) + 1; /* the call may move h->ops */
        h->ops.at[owner].yield = yield;
    }
    return h->ops.at[owner].yield - 1;
}

static void number_op(builder *b, hir_id op) {
    uint32_t *number = &b->stage->op_of[op];
    const hir_opcode code = hir_op_at(b->m, op)->code;
    if (*number == HIR_NONE) *number = code == HIR_YIELD_OP ? number_yield(b, op) : new_op(b->h);
    number_results(b, op);
    const report_row row = {.op = op};
    hd_push(b->h->arena, &b->stage->rows, row);
}

static void number_ops(builder *b) {
    HIR_EACH(b->m, op, b->m->first) {
        number_op(b, op);
        HIR_EACH(b->m, inner, hir_op_at(b->m, op)->body_first) {
            number_op(b, inner);
        }
    }
}

/* ---- row forms ------------------------------------------------------------------------------- */

static void word(builder *b, uint32_t w) {
    hd_push(b->h->arena, &b->words, w);
}

static void text_begin(builder *b) {
    b->text.n = 0;
    hd_text_add(&b->text, "");
}

static uint32_t text_end(builder *b) {
    return report_string(&b->h->strings, b->text.at);
}

static uint32_t attrs_text(builder *b, const hir_op *o) {
    text_begin(b);
    for (uint32_t i = 0; i < o->n_attrs; i++) {
        hd_text_f(&b->text, "%s%s = ", i ? ", " : "", hir_attr_name(o->attrs[i].id));
        hir_print_attr(&b->text, &o->attrs[i]);
    }
    return text_end(b);
}

static uint32_t type_text(builder *b, hir_type t) {
    text_begin(b);
    hir_print_type(&b->text, t);
    return text_end(b);
}

static uint32_t place_text(builder *b, const hir_value *v) {
    if (v->place == HIR_PLACE_NONE) return 0;
    text_begin(b);
    hir_print_place(&b->text, v);
    return report_string(&b->h->strings, b->text.at + strlen(" in "));
}

static uint32_t operand(builder *b, hir_ref r) {
    report_strings *s = &b->h->strings;
    switch ((hir_ref_kind)r.kind) {
    case HIR_REF_NONE: break;
    case HIR_REF_VALUE: return b->value_of[r.index] * REPORT_OPERAND_KINDS + REPORT_OPERAND_VALUE;
    case HIR_REF_WEIGHT:
        return report_string(s, b->m->weights.at[r.index].name) * REPORT_OPERAND_KINDS +
               REPORT_OPERAND_WEIGHT;
    case HIR_REF_STATE:
        return report_string(s, b->m->states.at[r.index].name) * REPORT_OPERAND_KINDS +
               REPORT_OPERAND_STATE;
    }
    return REPORT_OPERAND_NONE;
}

static void write_words(builder *b, hir_id op) {
    const hir_op *o = hir_op_at(b->m, op);
    b->words.n = 0;
    word(b, b->stage->op_of[op]);
    word(b, report_string(&b->h->strings, hir_info(o->code)->name));
    word(b, attrs_text(b, o));
    word(b, o->loc->file ? report_string(&b->h->strings, o->loc->file) : 0);
    word(b, o->loc->file ? o->loc->line : 0);
    word(b, o->loc->file ? o->loc->column : 0);
    word(b, o->parent == HIR_NONE ? 0 : b->stage->op_of[o->parent] + 1);
    word(b, o->n_results);
    for (uint32_t i = 0; i < o->n_results; i++) {
        const hir_value *v = hir_value_at(b->m, o->results[i]);
        word(b, b->value_of[o->results[i]]);
        word(b, type_text(b, v->type));
        word(b, place_text(b, v));
    }
    for (uint32_t i = 0; i < o->n_args; i++)
        word(b, operand(b, o->args[i]));
}

/* The number of the op's row form. Most rows are as they were after the pass before, and keep
 * theirs. */
static uint32_t form_of(builder *b, hir_id op) {
    report_history *h = b->h;
    report_op *known = &h->ops.at[b->stage->op_of[op]];
    write_words(b, op);
    if (known->formed) {
        const report_form *last = &h->forms.at[known->form];
        if (last->n == b->words.n &&
            memcmp(last->word, b->words.at, last->n * sizeof *last->word) == 0)
            return known->form;
    }
    uint32_t *kept = hd_new_array(h->arena, uint32_t, b->words.n);
    memcpy(kept, b->words.at, b->words.n * sizeof *kept);
    const report_form form = {kept, (uint32_t)b->words.n};
    hd_push(h->arena, &h->forms, form);
    const hd_loc *call = hir_op_at(b->m, op)->loc->call;
    if (call && !known->formed) {
        const report_call at = {b->stage->op_of[op], report_string(&h->strings, call->file),
                                call->line, call->column};
        hd_push(h->arena, &h->calls, at);
    }
    known->formed = true;
    return known->form = (uint32_t)h->forms.n - 1;
}

/* ---- from stage to stage --------------------------------------------------------------------- */

static uint32_t *all_none(hd_arena *a, size_t n) {
    uint32_t *list = hd_new_array(a, uint32_t, n + 1);
    memset(list, 0xff, (n + 1) * sizeof *list);
    return list;
}

/* Ops that are matched keep their numbers. */
static void inherit_numbers(const hir_diff_found *d, const report_stage *before,
                            report_stage *now) {
    for (uint32_t i = 0; i < d->b.n; i++)
        if (d->b.match[i] != HIR_NONE)
            now->op_of[d->b.op[i]] = before->op_of[d->a.op[d->b.match[i]]];
    for (size_t i = 0; i < d->b.kernels.n; i++) {
        const hir_id kernel = d->b.kernels.at[i], was = d->b.kernel_match[kernel];
        if (was != HIR_NONE) now->op_of[kernel] = before->op_of[was];
    }
}

/* The successor of a removed op: what the readers of its result read now. If a reader was removed
 * too, the op has the reader's successor. Ops are indices in the two sides. */
static uint32_t successor_of(const hir_diff_found *d, const uint32_t *successors, uint32_t op) {
    const hir_diff_side *a = &d->a, *b = &d->b;
    uint32_t inherited = HIR_NONE;
    for (uint32_t k = 0; k < a->user_count[op]; k++) {
        const hir_diff_user user = a->user[a->user_first[op] + k];
        const uint32_t now = a->match[user.op];
        if (now == HIR_NONE) {
            if (inherited == HIR_NONE) inherited = successors[user.op];
            continue;
        }
        const hir_op *reader = hir_op_at(b->m, b->op[now]);
        if (user.operand >= reader->n_args) continue;
        const hir_diff_origin from = hir_diff_source(b, reader->args[user.operand]);
        if (from.kind == HIR_FROM_OP) return from.index;
    }
    return inherited;
}

static void find_successors(report_history *h, const hir_diff_found *d, const report_stage *before,
                            report_stage *now) {
    uint32_t *successors = all_none(h->arena, d->a.n);
    for (uint32_t i = d->a.n; i-- > 0;) {
        if (d->a.match[i] != HIR_NONE) continue;
        successors[i] = successor_of(d, successors, i);
        if (successors[i] == HIR_NONE) continue;
        const report_successor successor = {before->op_of[d->a.op[i]],
                                            now->op_of[d->b.op[successors[i]]]};
        hd_push(h->arena, &now->successors, successor);
    }
}

static void list_removed(report_history *h, const hir_diff_found *d, const report_stage *before,
                         report_stage *now) {
    for (size_t i = 0; i < before->rows.n; i++) {
        const hir_id op = before->rows.at[i].op, parent = hir_op_at(before->m, op)->parent;
        bool gone = d->mark_a[op] == HIR_DIFF_REMOVED;
        if (hir_op_at(before->m, op)->code == HIR_YIELD_OP && parent != HIR_NONE)
            gone = d->mark_a[parent] == HIR_DIFF_REMOVED;
        if (gone) hd_push(h->arena, &now->removed, (uint32_t)i);
    }
}

/* Sets the marks of rows. A yield is new if its kernel is. */
static void mark_rows(const hir_diff_found *d, report_stage *now) {
    for (size_t i = 0; i < now->rows.n; i++) {
        report_row *row = &now->rows.at[i];
        const hir_op *o = hir_op_at(now->m, row->op);
        row->mark = d->mark_b[row->op];
        if (o->code == HIR_YIELD_OP && o->parent != HIR_NONE)
            row->mark = d->mark_b[o->parent] == HIR_DIFF_ADDED ? HIR_DIFF_ADDED : HIR_DIFF_SAME;
    }
}

static void build(report_history *h, report_stage *now, const report_stage *before) {
    builder b = {.h = h, .stage = now, .m = now->m};
    hir_diff_found d;
    hd_text_init(&b.text, h->arena);
    b.value_of = all_none(h->arena, now->m->values.n);
    now->op_of = all_none(h->arena, now->m->ops.n);
    if (before) {
        hd_text unread;
        hd_text_init(&unread, h->arena);
        hir_diff_find(before->m, now->m, &unread, &d);
        now->counts = d.counts;
        inherit_numbers(&d, before, now);
    }
    number_inputs(&b);
    number_ops(&b);
    for (size_t i = 0; i < now->rows.n; i++)
        now->rows.at[i].form = form_of(&b, now->rows.at[i].op);
    now->number = hir_number_values(now->m, h->arena);
    now->line = hir_op_lines(now->m, h->arena);
    hir_ledger_find(now->m, h->arena, &now->ledger);
    const bool one_stage = !strcmp(now->pass, hir_pass(HIR_PASS_SHARD_PIPELINE)->name);
    if (before && !one_stage) hir_ledger_count_as(&now->ledger, &before->ledger);
    if (!before) return;
    mark_rows(&d, now);
    list_removed(h, &d, before, now);
    find_successors(h, &d, before, now);
}

void report_history_add(report_history *h, const char *pass, int index, const hir_module *m,
                        bool changed, double seconds) {
    report_stage now = {.pass = hd_strdup(h->arena, pass),
                        .index = index,
                        .ir = m->stage,
                        .changed = changed || h->stages.n == 0,
                        .seconds = seconds};
    if (now.changed) {
        now.m = hir_module_clone(m, h->arena);
        build(h, &now, h->stages.n ? report_last(h) : NULL);
        h->last = (uint32_t)h->stages.n;
    }
    hd_push(h->arena, &h->stages, now);
}

/* ---- looking up ------------------------------------------------------------------------------ */

static const report_stage *stage_at_or_before(const report_history *h, size_t *stage) {
    for (size_t i = *stage + 1; i-- > 0;)
        if (h->stages.at[i].m) {
            *stage = i;
            return &h->stages.at[i];
        }
    return NULL;
}

uint32_t report_op_number(const report_history *h, size_t stage, hir_id op) {
    for (int looked = 0; op != HIR_NONE && looked < 2; looked++) {
        const report_stage *s = stage_at_or_before(h, &stage);
        if (!s) return HIR_NONE;
        if (op < s->m->ops.n && s->op_of[op] != HIR_NONE) return s->op_of[op];
        if (stage-- == 0) return HIR_NONE;
    }
    return HIR_NONE;
}

uint32_t report_find_row(const report_stage *s, uint32_t op) {
    for (size_t i = 0; i < s->rows.n; i++)
        if (s->op_of[s->rows.at[i].op] == op) return (uint32_t)i;
    return HIR_NONE;
}

uint32_t report_find_successor(const report_stage *s, uint32_t op) {
    for (size_t i = 0; i < s->successors.n; i++)
        if (s->successors.at[i].op == op) return s->successors.at[i].successor;
    return HIR_NONE;
}
