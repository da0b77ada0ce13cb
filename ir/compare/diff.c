/* The difference of two matched modules, op by op.
 *
 *   -  removed      +  added      ~  changed, with what changed below      >  moved
 *
 * Values are printed with the numbers they have in their module; another number alone is no
 * difference. */
#include "ir/compare/diff.h"

#include <string.h>

#include "ir/names.h"
#include "ir/text/text.h"

typedef struct differ {
    hir_diff_side a, b;
    uint32_t *number_a, *number_b;
    uint8_t *mark_a, *mark_b; /* hir_diff_mark, by op */
    hir_diff_counts counts;
    hd_text *out;
    const char *heading; /* still to be printed, or NULL */
    int indent;
} differ;

/* ---- lines ----------------------------------------------------------------------------------- */
static void indent(differ *d, int more) {
    hd_text_f(d->out, "%*s", d->indent + more, "");
}

static void start_line(differ *d, char sign) {
    if (d->heading) hd_text_f(d->out, "%s\n", d->heading);
    d->heading = NULL;
    indent(d, 0);
    hd_text_f(d->out, "%c ", sign);
}

static void print_op(differ *d, bool in_a, hir_id op) {
    hir_print_numbered(in_a ? d->a.m : d->b.m, op, in_a ? d->number_a : d->number_b, d->out);
}

/* An op that one side alone has. */
static void whole_op(differ *d, bool in_a, hir_id op) {
    start_line(d, in_a ? '-' : '+');
    print_op(d, in_a, op);
    hd_text_add(d->out, "\n");
    if (in_a) {
        d->mark_a[op] = HIR_DIFF_REMOVED;
        d->counts.removed++;
    } else {
        d->mark_b[op] = HIR_DIFF_ADDED;
        d->counts.added++;
    }
}

/* The changes in one op, weight etc. Its own line is printed before the first change. */
typedef struct changes {
    differ *d;
    void (*title)(differ *d, const void *what);
    const void *what;
    const char *moved; /* from where; its line is then printed even if nothing else changed. NULL:
                          not moved */
    bool titled, any;
    uint8_t *mark; /* of an op or a kernel; NULL: it is none */
} changes;

static void print_title(changes *c) {
    start_line(c->d, c->moved ? '>' : '~');
    c->title(c->d, c->what);
    if (c->moved) hd_text_f(c->d->out, "  (%s)", c->moved);
    hd_text_add(c->d->out, "\n");
    c->titled = true;
}

static hd_text *change(changes *c, const char *name) {
    if (!c->titled) print_title(c);
    c->any = true;
    indent(c->d, 4);
    hd_text_f(c->d->out, "%s: ", name);
    return c->d->out;
}

static void changed_text(changes *c, const char *name, const char *from, const char *to) {
    if (strcmp(from, to) == 0) return;
    hd_text_f(change(c, name), "%s -> %s\n", from, to);
}

static void changed_number(changes *c, const char *name, uint64_t from, uint64_t to) {
    if (from == to) return;
    hd_text_f(change(c, name), "%llu -> %llu\n", (unsigned long long)from, (unsigned long long)to);
}

static void changed_type(changes *c, const char *name, hir_type from, hir_type to) {
    if (hir_type_equal(from, to)) return;
    hd_text *out = change(c, name);
    hir_print_type(out, from);
    hd_text_add(out, " -> ");
    hir_print_type(out, to);
    hd_text_add(out, "\n");
}

/* Ends the report on one op, weight etc., and counts it. */
static void finish(changes *c) {
    hir_diff_counts *counts = &c->d->counts;
    if (c->moved && !c->titled) print_title(c);
    if (c->mark) *c->mark = c->any ? HIR_DIFF_CHANGED : c->moved ? HIR_DIFF_MOVED : HIR_DIFF_SAME;
    if (c->any)
        counts->changed++;
    else if (c->moved)
        counts->moved++;
    else
        counts->same++;
}

/* ---- the module itself ----------------------------------------------------------------------- */
static void title_text(differ *d, const void *what) {
    hd_text_add(d->out, what);
}

static const char *option_value(const hir_module *m, const char *key) {
    for (size_t i = 0; i < m->options.n; i++)
        if (strcmp(m->options.at[i].key, key) == 0) return m->options.at[i].value;
    return NULL;
}

static void diff_options(differ *d) {
    const hir_module *a = d->a.m, *b = d->b.m;
    for (size_t i = 0; i < a->options.n; i++) {
        const hir_option *o = &a->options.at[i];
        const char *other = option_value(b, o->key);
        if (other && strcmp(other, o->value) == 0) {
            d->counts.same++;
            continue;
        }
        start_line(d, other ? '~' : '-');
        hd_text_f(d->out, "option %s = \"%s\"", o->key, o->value);
        if (other) hd_text_f(d->out, " -> \"%s\"", other);
        hd_text_add(d->out, "\n");
        if (other)
            d->counts.changed++;
        else
            d->counts.removed++;
    }
    for (size_t i = 0; i < b->options.n; i++) {
        const hir_option *o = &b->options.at[i];
        if (option_value(a, o->key)) continue;
        start_line(d, '+');
        hd_text_f(d->out, "option %s = \"%s\"\n", o->key, o->value);
        d->counts.added++;
    }
}

static void diff_unused_below(differ *d, const hir_module *m, const hir_module *other, char mark) {
    for (size_t i = 0; i < m->unused_below.n; i++) {
        bool both = false;
        for (size_t k = 0; k < other->unused_below.n; k++)
            both |= strcmp(m->unused_below.at[i], other->unused_below.at[k]) == 0;
        d->counts.same += both && mark == '-';
        if (both) continue;
        start_line(d, mark);
        hd_text_f(d->out, "weights \"%s\" unused\n", m->unused_below.at[i]);
        d->counts.removed += mark == '-';
        d->counts.added += mark == '+';
    }
}

static void diff_heads(differ *d) {
    const hir_module *a = d->a.m, *b = d->b.m;
    changes c = {.d = d, .title = title_text, .what = "module"};
    changed_text(&c, "name", a->name, b->name);
    changed_text(&c, "stage", hir_stage_name(a->stage), hir_stage_name(b->stage));
    if (a->stage == HIR_STAGE_KERNEL && b->stage == HIR_STAGE_KERNEL) {
        changed_number(&c, "arena per token", a->arena_per_token, b->arena_per_token);
        changed_number(&c, "of that kept", a->arena_kept, b->arena_kept);
        changed_number(&c, "fixed", a->fixed_bytes, b->fixed_bytes);
    }
    finish(&c);
    diff_options(d);
    diff_unused_below(d, a, b, '-');
    diff_unused_below(d, b, a, '+');
}

/* ---- tables ---------------------------------------------------------------------------------- */
typedef struct table_row { /* a weight, a state or an input */
    const char *name;
    hir_type type;
    const hir_weight *weight; /* NULL: a state or an input */
    const hir_state *state;   /* NULL: a weight or an input */
} table_row;
static table_row weight_row(const hir_module *m, size_t i) {
    const hir_weight *w = &m->weights.at[i];
    return (table_row){w->name, w->type, w, NULL};
}

static table_row state_row(const hir_module *m, size_t i) {
    const hir_state *s = &m->states.at[i];
    return (table_row){s->name, s->type, NULL, s};
}

static void table_line(differ *d, char sign, const char *kind, const table_row *row) {
    start_line(d, sign);
    hd_text_f(d->out, "%s%s : ", kind, row->name);
    if (row->state && row->state->kind != HIR_STATE_CACHE)
        hd_text_f(d->out, "%s ", hir_state_kind_of(row->state->kind)->word);
    hir_print_type(d->out, row->type);
    hd_text_add(d->out, "\n");
}

static const char *derived_text(differ *d, const hir_weight *w) {
    hd_text text;
    hd_text_init(&text, d->out->arena);
    hir_print_derived(&text, w);
    return text.at ? text.at + 3 : "none"; /* without " = " */
}

static void diff_weight(changes *c, const hir_weight *x, const hir_weight *y) {
    static const char *const used[] = {"read", "unused"};
    static const char *const parts[] = {"one tensor", "a tensor for each entry"};
    changed_text(c, "layout", hir_layout_name(x->layout), hir_layout_name(y->layout));
    changed_text(c, "use", used[x->unused], used[y->unused]);
    changed_text(c, "stored as", parts[x->stacked], parts[y->stacked]);
    changed_text(c, "init", hir_init_text(c->d->out->arena, x->init),
                 hir_init_text(c->d->out->arena, y->init));
    changed_text(c, "derived from", derived_text(c->d, x), derived_text(c->d, y));
}

static void diff_row(differ *d, const char *kind, const table_row *x, const table_row *y) {
    const char *title = hd_printf(d->out->arena, "%s%s", kind, x->name);
    changes c = {.d = d, .title = title_text, .what = title};
    changed_type(&c, "type", x->type, y->type);
    if (x->weight && y->weight) diff_weight(&c, x->weight, y->weight);
    if (x->state && y->state)
        changed_text(&c, "kind", hir_state_kind_of(x->state->kind)->word,
                     hir_state_kind_of(y->state->kind)->word);
    finish(&c);
}

/* Rows of a table are matched by name. */
static void diff_table(differ *d, const char *kind, table_row (*row)(const hir_module *, size_t),
                       size_t na, size_t nb) {
    hir_names seen;
    hir_names_init(&seen, d->out->arena);
    bool *found = hd_new_array(d->out->arena, bool, na);
    for (size_t i = 0; i < na; i++)
        hir_names_add(&seen, row(d->a.m, i).name, (uint32_t)i);
    for (size_t i = 0; i < nb; i++) {
        const uint32_t *at = hir_names_find(&seen, row(d->b.m, i).name);
        if (at) found[*at] = true;
    }
    for (size_t i = 0; i < na; i++) {
        const table_row gone = row(d->a.m, i);
        if (found[i]) continue;
        table_line(d, '-', kind, &gone);
        d->counts.removed++;
    }
    for (size_t i = 0; i < nb; i++) {
        const table_row here = row(d->b.m, i);
        const uint32_t *at = hir_names_find(&seen, here.name);
        if (at) {
            const table_row there = row(d->a.m, *at);
            diff_row(d, kind, &there, &here);
            continue;
        }
        table_line(d, '+', kind, &here);
        d->counts.added++;
    }
}

static table_row input_row(const hir_module *m, size_t i) {
    const hir_value *v = hir_value_at(m, m->inputs.at[i]);
    return (table_row){v->name ? v->name : "", v->type, NULL, NULL};
}

/* Inputs are matched by position. */
static void diff_inputs(differ *d) {
    const size_t na = d->a.m->inputs.n, nb = d->b.m->inputs.n;
    for (size_t i = 0; i < na || i < nb; i++) {
        const table_row x = i < na ? input_row(d->a.m, i) : (table_row){0};
        const table_row y = i < nb ? input_row(d->b.m, i) : (table_row){0};
        if (i < na && i < nb) {
            const char *title = hd_printf(d->out->arena, "input %zu", i);
            changes c = {.d = d, .title = title_text, .what = title};
            changed_text(&c, "name", x.name, y.name);
            changed_type(&c, "type", x.type, y.type);
            finish(&c);
        } else if (i < na) {
            table_line(d, '-', "input %", &x);
            d->counts.removed++;
        } else {
            table_line(d, '+', "input %", &y);
            d->counts.added++;
        }
    }
}

/* ---- ops ------------------------------------------------------------------------------------- */
typedef struct op_pair {
    hir_id a, b;
} op_pair;

static void title_ops(differ *d, const void *what) {
    const op_pair *p = what;
    print_op(d, false, p->b);
}

/* An operand, with the op that computes it. */
static void print_operand(differ *d, bool in_a, hir_ref r) {
    const hir_diff_side *s = in_a ? &d->a : &d->b;
    hir_print_ref(s->m, r, in_a ? d->number_a : d->number_b, d->out);
    const hir_diff_origin from = hir_diff_source(s, r);
    if (from.kind == HIR_FROM_OP)
        hd_text_f(d->out, " (%s)", hir_info(hir_op_at(s->m, s->op[from.index])->code)->name);
}

static bool same_operand(const differ *d, hir_ref x, hir_ref y) {
    const hir_diff_origin p = hir_diff_source(&d->a, x), q = hir_diff_source(&d->b, y);
    if (p.kind != q.kind) return false;
    switch (p.kind) {
    case HIR_FROM_NOTHING: return true;
    case HIR_FROM_OP:
        return p.result == q.result &&
               (d->a.match[p.index] == q.index || d->a.deep[p.index] == d->b.deep[q.index]);
    case HIR_FROM_INPUT: return p.index == q.index;
    case HIR_FROM_WEIGHT:
        return strcmp(d->a.m->weights.at[p.index].name, d->b.m->weights.at[q.index].name) == 0;
    case HIR_FROM_STATE:
        return strcmp(d->a.m->states.at[p.index].name, d->b.m->states.at[q.index].name) == 0;
    }
    return false;
}

static void diff_operands(changes *c, const hir_op *x, const hir_op *y) {
    for (uint32_t i = 0; i < x->n_args || i < y->n_args; i++) {
        const hir_ref none = hir_no_ref();
        const hir_ref from = i < x->n_args ? x->args[i] : none;
        const hir_ref to = i < y->n_args ? y->args[i] : none;
        if (same_operand(c->d, from, to)) continue;
        hd_text *out = change(c, hd_printf(c->d->out->arena, "operand %u", i));
        print_operand(c->d, true, from);
        hd_text_add(out, " -> ");
        print_operand(c->d, false, to);
        hd_text_add(out, "\n");
    }
}

static void print_attr_or_none(hd_text *out, const hir_attr *a) {
    if (a)
        hir_print_attr(out, a);
    else
        hd_text_add(out, "none");
}

static const char *attr_text(differ *d, const hir_attr *a) {
    hd_text text;
    hd_text_init(&text, d->out->arena);
    print_attr_or_none(&text, a);
    return text.at;
}

static void diff_attrs(changes *c, const hir_op *x, const hir_op *y) {
    for (int id = 0; id < HIR_A_COUNT; id++) {
        const hir_attr *p = hir_find_attr(x, (hir_attr_id)id);
        const hir_attr *q = hir_find_attr(y, (hir_attr_id)id);
        if (p || q)
            changed_text(c, hir_attr_name((hir_attr_id)id), attr_text(c->d, p), attr_text(c->d, q));
    }
}

static void diff_op(differ *d, hir_id a, hir_id b, const char *moved) {
    const op_pair pair = {a, b};
    changes c = {.d = d, .title = title_ops, .what = &pair, .moved = moved, .mark = &d->mark_b[b]};
    const hir_op *x = hir_op_at(d->a.m, a), *y = hir_op_at(d->b.m, b);
    diff_attrs(&c, x, y);
    diff_operands(&c, x, y);
    for (uint32_t i = 0; i < x->n_results && i < y->n_results; i++)
        changed_type(&c, "type", hir_value_at(d->a.m, x->results[i])->type,
                     hir_value_at(d->b.m, y->results[i])->type);
    finish(&c);
}

/* ---- lists: the top level, or the bodies of two kernels -------------------------------------- */
static bool listed(const hir_module *m, hir_id op) {
    return hir_op_at(m, op)->code != HIR_YIELD_OP;
}

/* The op of the other side that an op or a kernel was matched with. */
static hir_id partner(const hir_diff_side *s, const hir_diff_side *other, const uint32_t *position,
                      hir_id op) {
    if (hir_is_kernel(hir_op_at(s->m, op))) return s->kernel_match[op];
    const uint32_t match = s->match[position[op]];
    return match == HIR_NONE ? HIR_NONE : other->op[match];
}

typedef struct list { /* one op list of each side, and their common order */
    hir_id parent_a, parent_b;
    const uint32_t *position_a, *position_b; /* of ops in side.op */
    bool *in_order;                          /* [ops of b] not moved: in the longest common order */
    uint32_t *rank;                          /* [ops of a] position in its list */
} list;

static hir_id first_of(const hir_module *m, hir_id parent) {
    return parent == HIR_NONE ? m->first : hir_op_at(m, parent)->body_first;
}

/* Marks the longest subsequence of matched ops that has the same order in both lists; the others
 * have moved. (Longest increasing subsequence by patience sorting, O(n log n).) */
static void find_order(differ *d, list *l) {
    hd_arena *a = d->out->arena;
    uint32_t next = 0;
    HIR_EACH(d->a.m, op, first_of(d->a.m, l->parent_a)) {
        l->rank[op] = next++;
    }
    HD_VEC(hir_id) ops = {0}; /* of b, matched within these two lists */
    HIR_EACH(d->b.m, op, first_of(d->b.m, l->parent_b)) {
        if (!listed(d->b.m, op)) continue;
        const hir_id from = partner(&d->b, &d->a, l->position_b, op);
        if (from != HIR_NONE && hir_op_at(d->a.m, from)->parent == l->parent_a)
            hd_push(a, &ops, op);
    }
    uint32_t *tail = hd_new_array(a, uint32_t, ops.n), *before = hd_new_array(a, uint32_t, ops.n);
    uint32_t length = 0;
    for (uint32_t i = 0; i < ops.n; i++) {
        const uint32_t r = l->rank[partner(&d->b, &d->a, l->position_b, ops.at[i])];
        uint32_t lo = 0, hi = length;
        while (lo < hi) {
            const uint32_t mid = (lo + hi) / 2;
            if (l->rank[partner(&d->b, &d->a, l->position_b, ops.at[tail[mid]])] < r)
                lo = mid + 1;
            else
                hi = mid;
        }
        before[i] = lo ? tail[lo - 1] : HIR_NONE;
        tail[lo] = i;
        if (lo == length) length++;
    }
    for (uint32_t i = length ? tail[length - 1] : HIR_NONE; i != HIR_NONE; i = before[i])
        l->in_order[ops.at[i]] = true;
}

static const char *kernel_name(const hir_module *m, hir_id kernel) {
    return kernel == HIR_NONE ? "the top level"
                              : hir_attr_string(hir_op_at(m, kernel), HIR_A_NAME, "a kernel");
}

static void removed_op(differ *d, const list *l, hir_id op) {
    whole_op(d, true, op);
    d->indent += 2;
    HIR_EACH(d->a.m, inner, hir_op_at(d->a.m, op)->body_first) {
        if (listed(d->a.m, inner) && partner(&d->a, &d->b, l->position_a, inner) == HIR_NONE)
            removed_op(d, l, inner);
    }
    d->indent -= 2;
}

static void removed_until(differ *d, const list *l, hir_id *next, hir_id end) {
    for (; *next != HIR_NONE && *next != end; *next = hir_op_at(d->a.m, *next)->next) {
        if (!listed(d->a.m, *next)) continue;
        if (partner(&d->a, &d->b, l->position_a, *next) == HIR_NONE) removed_op(d, l, *next);
    }
}

static void diff_kernel(differ *d, const list *outer, hir_id a, hir_id b, const char *moved);
static void added_kernel(differ *d, const list *outer, hir_id b);

static void diff_one(differ *d, const list *l, hir_id from, hir_id op) {
    const bool kernel = hir_is_kernel(hir_op_at(d->b.m, op));
    if (from == HIR_NONE) {
        if (kernel) {
            added_kernel(d, l, op);
        } else {
            whole_op(d, false, op);
        }
        return;
    }
    const hir_id parent = hir_op_at(d->a.m, from)->parent;
    const char *moved = NULL;
    if (parent != l->parent_a)
        moved = hd_printf(d->out->arena, "from %s", kernel_name(d->a.m, parent));
    else if (!l->in_order[op])
        moved = "another order";
    if (kernel)
        diff_kernel(d, l, from, op, moved);
    else
        diff_op(d, from, op, moved);
}

static void diff_lists(differ *d, list *l) {
    hir_id next = first_of(d->a.m, l->parent_a);
    HIR_EACH(d->b.m, op, first_of(d->b.m, l->parent_b)) {
        if (!listed(d->b.m, op)) continue;
        const hir_id from = partner(&d->b, &d->a, l->position_b, op);
        /* removed ops are printed where they were */
        if (from != HIR_NONE && l->in_order[op]) removed_until(d, l, &next, from);
        diff_one(d, l, from, op);
    }
    removed_until(d, l, &next, HIR_NONE);
}

/* ---- kernels --------------------------------------------------------------------------------- */
/* Results are the same when they yield the same. */
static bool same_yield(const differ *d, hir_id ra, hir_id rb) {
    return same_operand(d, hir_value_ref(ra), hir_value_ref(rb));
}

static void result_line(changes *c, const char *what, bool in_a, hir_id value) {
    const hir_module *m = in_a ? c->d->a.m : c->d->b.m;
    hd_text *out = change(c, what);
    print_operand(c->d, in_a, hir_value_ref(value));
    hd_text_add(out, " : ");
    hir_print_type(out, hir_value_at(m, value)->type);
    hir_print_place(out, hir_value_at(m, value));
    hd_text_add(out, "\n");
}

static const char *place_text(differ *d, const hir_value *v) {
    hd_text text;
    hd_text_init(&text, d->out->arena);
    hir_print_place(&text, v);
    return text.at ? text.at + 4 : "none"; /* without " in " */
}

static void diff_results(changes *c, const hir_op *x, const hir_op *y) {
    differ *d = c->d;
    bool *taken = hd_new_array(d->out->arena, bool, x->n_results);
    for (uint32_t j = 0; j < y->n_results; j++) {
        uint32_t i = 0;
        while (i < x->n_results && (taken[i] || !same_yield(d, x->results[i], y->results[j])))
            i++;
        if (i == x->n_results) {
            result_line(c, "new result", false, y->results[j]);
            continue;
        }
        taken[i] = true;
        const hir_value *p = hir_value_at(d->a.m, x->results[i]);
        const hir_value *q = hir_value_at(d->b.m, y->results[j]);
        changed_type(c, hd_printf(d->out->arena, "type of result %u", j), p->type, q->type);
        changed_text(c, hd_printf(d->out->arena, "place of result %u", j), place_text(d, p),
                     place_text(d, q));
    }
    for (uint32_t i = 0; i < x->n_results; i++)
        if (!taken[i]) result_line(c, "lost result", true, x->results[i]);
}

static void diff_body(differ *d, const list *outer, hir_id a, hir_id b) {
    const char *kept = d->heading;
    hd_text head;
    hd_text_init(&head, d->out->arena);
    if (kept) hd_text_f(&head, "%s\n", kept);
    hd_text_f(&head, "%*sin %s:", d->indent, "", kernel_name(d->b.m, b));
    list l = *outer;
    l.parent_a = a;
    l.parent_b = b;
    find_order(d, &l);
    d->heading = head.at;
    d->indent += 2;
    diff_lists(d, &l);
    d->indent -= 2;
    if (d->heading) d->heading = kept; /* no difference was printed */
}

static void diff_kernel(differ *d, const list *outer, hir_id a, hir_id b, const char *moved) {
    const op_pair pair = {a, b};
    changes c = {.d = d, .title = title_ops, .what = &pair, .moved = moved, .mark = &d->mark_b[b]};
    const hir_op *x = hir_op_at(d->a.m, a), *y = hir_op_at(d->b.m, b);
    diff_attrs(&c, x, y);
    diff_results(&c, x, y);
    finish(&c);
    diff_body(d, outer, a, b);
}

/* Prints the ops of a new kernel that are new themselves; the others were elsewhere before. */
static void added_kernel(differ *d, const list *outer, hir_id b) {
    whole_op(d, false, b);
    size_t old = 0;
    d->indent += 2;
    HIR_EACH(d->b.m, op, hir_op_at(d->b.m, b)->body_first) {
        if (!listed(d->b.m, op)) continue;
        const hir_id from = partner(&d->b, &d->a, outer->position_b, op);
        if (from == HIR_NONE) {
            whole_op(d, false, op);
        } else {
            old++;
            diff_op(d, from, op, NULL);
            if (d->mark_b[op] == HIR_DIFF_SAME) d->mark_b[op] = HIR_DIFF_MOVED;
        }
    }
    if (old) {
        indent(d, 0);
        hd_text_f(d->out, "> %zu ops that were elsewhere\n", old);
        d->counts.moved += old;
    }
    d->indent -= 2;
}

/* ---- all ------------------------------------------------------------------------------------- */
static uint32_t *positions(const hir_diff_side *s, hd_arena *a) {
    uint32_t *at = hd_new_array(a, uint32_t, s->m->ops.n);
    for (uint32_t i = 0; i < s->n; i++)
        at[s->op[i]] = i;
    return at;
}

void hir_diff_find(const hir_module *a, const hir_module *b, hd_text *out, hir_diff_found *found) {
    hd_arena *arena = out->arena;
    differ d = {.out = out,
                .mark_a = hd_new_array(arena, uint8_t, a->ops.n + 1),
                .mark_b = hd_new_array(arena, uint8_t, b->ops.n + 1)};
    hir_diff_match(a, b, arena, &d.a, &d.b);
    d.number_a = hir_number_values(a, arena);
    d.number_b = hir_number_values(b, arena);
    diff_heads(&d);
    diff_table(&d, "weight @", weight_row, a->weights.n, b->weights.n);
    diff_table(&d, "state $", state_row, a->states.n, b->states.n);
    diff_inputs(&d);
    list top = {HIR_NONE,
                HIR_NONE,
                positions(&d.a, arena),
                positions(&d.b, arena),
                hd_new_array(arena, bool, b->ops.n),
                hd_new_array(arena, uint32_t, a->ops.n)};
    find_order(&d, &top);
    diff_lists(&d, &top);
    *found = (hir_diff_found){d.a, d.b, d.mark_a, d.mark_b, d.counts};
}

hir_diff_counts hir_diff(const hir_module *a, const hir_module *b, hd_text *out) {
    hir_diff_found found;
    hir_diff_find(a, b, out, &found);
    return found.counts;
}
