/* The history of one value, for the terminal: from the line of the spec to the kernel that computes
 * it. */
#include <stdlib.h>
#include <string.h>

#include "inspect/facts.h"
#include "inspect/memory_plan.h"
#include "ir/text/text.h"
#include "report/report.h"

typedef struct teller {
    const report *r;
    const report_history *h;
    hd_diags *diags;
    hd_text *out;
} teller;

/* ---- finding the value or name --------------------------------------------------------------- */

/* The stage that `PASS:` names. If a pass ran several times, it is the last time that the pass
 * changed something. */
static const report_stage *stage_named(const teller *t, const char *name, size_t n) {
    const report_stage *found = NULL;
    for (size_t i = 0; i < t->h->stages.n; i++) {
        const report_stage *s = &t->h->stages.at[i];
        if (strlen(s->pass) == n && strncmp(s->pass, name, n) == 0 && (s->m || !found)) found = s;
    }
    return found;
}

/* The op that makes %`name` in a stage; HIR_NONE: no op does. */
static hir_id op_of_value(const report_stage *s, const char *name) {
    char *end;
    const unsigned long number = strtoul(name, &end, 10);
    const bool numbered = end != name && !*end;
    for (size_t i = 0; i < s->rows.n; i++) {
        const hir_op *o = hir_op_at(s->m, s->rows.at[i].op);
        for (uint32_t k = 0; k < o->n_results; k++) {
            const hir_value *v = hir_value_at(s->m, o->results[k]);
            if (v->name ? strcmp(v->name, name) == 0
                        : numbered && s->number[o->results[k]] == number)
                return s->rows.at[i].op;
        }
    }
    return HIR_NONE;
}

/* The op whose result is the output of this name; HIR_NONE: there is none. */
static hir_id op_of_output(const hir_module *m, const char *name) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_OUTPUT_OP && o->args[0].kind == HIR_REF_VALUE &&
            strcmp(hir_attr_string(o, HIR_A_NAME, ""), name) == 0)
            return hir_value_at(m, o->args[0].index)->op;
    }
    return HIR_NONE;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void print_op(const teller *t, const report_stage *s, hir_id op) {
    hir_print_numbered(s->m, op, s->number, t->out);
    hd_text_add(t->out, "\n");
}

static void print_row(const teller *t, const char *head, const report_stage *s, hir_id op) {
    hd_text_f(t->out, "  %-26s ", head);
    print_op(t, s, op);
}

/* Line `n` of a text. */
static const char *line_of(const char *text, uint32_t n, size_t *length) {
    for (uint32_t i = 1; text && i < n; i++) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    *length = text ? strcspn(text, "\n") : 0;
    return text;
}

static void print_place(const teller *t, const char *head, hd_loc loc) {
    if (!loc.file) return;
    hd_text_f(t->out, "%s %s:%u:%u\n", head, loc.file, loc.line, loc.column);
    for (size_t i = 0; i < t->r->files.n; i++) {
        size_t n;
        if (strcmp(t->r->files.at[i].path, loc.file) != 0) continue;
        const char *line = line_of(t->r->files.at[i].text, loc.line, &n);
        if (line) hd_text_f(t->out, "  %.*s\n  %*s^\n", (int)n, line, (int)loc.column - 1, "");
    }
    if (loc.call) print_place(t, "called from", *loc.call);
}

/* ---- an op through the passes ---------------------------------------------------------------- */

static hir_id op_at(const report_stage *s, uint32_t number) {
    const uint32_t row = report_find_row(s, number);
    return row == HIR_NONE ? HIR_NONE : s->rows.at[row].op;
}

static void tell_remarks(const teller *t, size_t stage, uint32_t number) {
    for (size_t i = 0; i < t->r->remarks.n; i++) {
        const report_remark *x = &t->r->remarks.at[i];
        const hir_remark *m = &x->remark;
        if (x->stage != stage) continue;
        const bool same_op = m->op != HIR_NONE && report_op_number(t->h, stage, m->op) == number;
        if (same_op)
            hd_text_f(t->out, "    %s by %s: %s\n", m->taken ? "applied" : "not applied", m->pass,
                      m->text);
    }
}

static const char *kernel_of(const report_stage *s, hir_id op) {
    const hir_id parent = hir_op_at(s->m, op)->parent;
    return parent == HIR_NONE ? NULL
                              : hir_attr_string(hir_op_at(s->m, parent), HIR_A_NAME, "a kernel");
}

static const char *what_happened(const teller *t, const report_stage *s, uint32_t row) {
    const char *kernel = kernel_of(s, s->rows.at[row].op);
    switch ((hir_diff_mark)s->rows.at[row].mark) {
    case HIR_DIFF_ADDED: return "made";
    case HIR_DIFF_CHANGED: return "changed";
    case HIR_DIFF_MOVED:
        return kernel ? hd_printf(t->out->arena, "moved, into %s", kernel) : "moved";
    case HIR_DIFF_SAME:
    case HIR_DIFF_REMOVED: break;
    }
    return NULL;
}

/* Prints the op from the first stage that has it on, and through its successors. Ends where an op
 * is removed without one. *number and *op are those of the last op printed. */
static const report_stage *tell_passes(const teller *t, uint32_t *number, hir_id *op) {
    const report_stage *last = NULL;
    hd_text_add(t->out, "\nthrough the passes\n");
    for (size_t i = 0; i < t->h->stages.n; i++) {
        const report_stage *s = &t->h->stages.at[i];
        if (!s->m) { /* a pass that changed nothing may have left a remark why */
            if (last) tell_remarks(t, i, *number);
            continue;
        }
        const uint32_t row = report_find_row(s, *number);
        const uint32_t successor =
            row == HIR_NONE && last ? report_find_successor(s, *number) : HIR_NONE;
        if (row == HIR_NONE && !last) continue;
        if (row == HIR_NONE) {
            tell_remarks(t, i, *number);
            if (successor == HIR_NONE) {
                hd_text_f(t->out, "  %-26s removed\n", s->pass);
                return NULL;
            }
            *number = successor;
            *op = op_at(s, successor);
            print_row(t, hd_printf(t->out->arena, "%s: replaced by", s->pass), s, *op);
            tell_remarks(t, i, *number);
            last = s;
            continue;
        }
        *op = s->rows.at[row].op;
        const char *what = last || i ? what_happened(t, s, row) : "as written";
        if (what) print_row(t, hd_printf(t->out->arena, "%s: %s", s->pass, what), s, *op);
        tell_remarks(t, i, *number);
        last = s;
    }
    return last;
}

/* ---- the compiled op ------------------------------------------------------------------------- */

static void tell_users(const teller *t, const report_stage *s, hir_id op) {
    const hir_op *o = hir_op_at(s->m, op);
    size_t n = 0;
    hd_text_add(t->out, "\nread by\n");
    for (size_t i = 0; i < s->rows.n; i++) {
        const hir_op *user = hir_op_at(s->m, s->rows.at[i].op);
        bool reads = false;
        for (uint32_t k = 0; k < user->n_args; k++)
            for (uint32_t j = 0; j < o->n_results; j++)
                reads |=
                    user->args[k].kind == HIR_REF_VALUE && user->args[k].index == o->results[j];
        if (reads && ++n <= 8)
            print_row(t, kernel_of(s, s->rows.at[i].op) ? kernel_of(s, s->rows.at[i].op) : "", s,
                      s->rows.at[i].op);
    }
    if (n > 8) hd_text_f(t->out, "  and %zu more\n", n - 8);
    if (n == 0) hd_text_add(t->out, "  nothing\n");
}

static void tell_memory(const teller *t, const report_stage *s, hir_id kernel) {
    memory_plan plan;
    memory_plan_find(s->m, t->out->arena, &plan);
    for (size_t i = 0; plan.placed && i < plan.rows.n; i++) {
        const memory_plan_row *row = &plan.rows.at[i];
        const hir_value *v = hir_value_at(s->m, row->value);
        if (v->op != kernel) continue;
        hd_text_add(t->out, "  leaves ");
        hir_print_ref(s->m, hir_value_ref(row->value), s->number, t->out);
        hd_text_f(t->out, " in %s[%llu], %llu byte%s%s, for kernels %u to %u of %u\n",
                  hir_place_name(v->place), (unsigned long long)v->offset,
                  (unsigned long long)row->bytes, hd_s(row->bytes),
                  v->type.rank && v->type.dim[0] < 0 ? " a token" : "", row->first, row->last,
                  plan.kernels);
    }
}

static void tell_ledger(const teller *t, const report_stage *s, hir_id kernel) {
    hir_traffic sum = {0};
    const hir_ledger *l = &s->ledger;
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *a = &l->accesses.at[i];
        if (a->op != kernel || !hir_phase_is_charged(a->phase)) continue;
        *(a->write ? &sum.written : &sum.read) += a->bytes;
    }
    if (sum.read || sum.written)
        hd_text_f(t->out,
                  "  moves %llu bytes a token for the residual mechanism (%llu read, %llu "
                  "written)\n",
                  (unsigned long long)(sum.read + sum.written), (unsigned long long)sum.read,
                  (unsigned long long)sum.written);
}

/* ---- machine code ---------------------------------------------------------------------------- */

static bool is_of_step(const report_step *s, const char *name) {
    return strcmp(s->function[0], name) == 0 || strcmp(s->function[1], name) == 0 ||
           strcmp(s->function[2], name) == 0;
}

static bool is_of_steps(const report_code *c, const char *name) {
    for (size_t i = 0; i < c->steps.n; i++)
        if (is_of_step(&c->steps.at[i], name)) return true;
    return false;
}

/* The line that an op of a kernel has in a function. Kernels with equal bodies share one function,
 * whose lines are those of the first of these kernels. */
static uint32_t line_in_function(const report_code *c, const char *name, uint32_t kernel,
                                 uint32_t line) {
    uint32_t first = kernel;
    for (size_t i = 0; i < c->steps.n; i++)
        if (is_of_step(&c->steps.at[i], name) && c->steps.at[i].line < first)
            first = c->steps.at[i].line;
    return line - kernel + first;
}

static uint64_t bytes_of_line(const report_function *f, uint32_t line) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < f->ranges.n; i++)
        if (f->ranges.at[i].line == line) bytes += f->ranges.at[i].bytes;
    return bytes;
}

/* Prints a function, and which of its bytes were made for a line. */
static void tell_function(const teller *t, const report_function *f, uint32_t line) {
    enum { MOST = 4 };
    size_t n = 0;
    const uint64_t bytes = bytes_of_line(f, line);
    hd_text_f(t->out, "  code in %s: %llu byte%s at 0x%llx of the object", f->name,
              (unsigned long long)f->bytes, hd_s(f->bytes), (unsigned long long)f->offset);
    if (bytes) hd_text_f(t->out, ", %llu of them for this op:", (unsigned long long)bytes);
    for (size_t i = 0; i < f->ranges.n; i++) {
        const report_range *r = &f->ranges.at[i];
        const unsigned long long at = f->offset + r->first;
        if (r->line == line && ++n <= MOST)
            hd_text_f(t->out, "%s 0x%llx to 0x%llx", n > 1 ? "," : "", at, at + r->bytes);
    }
    if (n > MOST) hd_text_f(t->out, " and %zu more", n - MOST);
    hd_text_add(t->out, "\n");
}

/* Prints the functions of the kernel, and of the functions that it calls, such as epilogues, those
 * that have code of the op. */
static void tell_code(const teller *t, uint32_t kernel, uint32_t line) {
    const report_code *c = t->r->code;
    const report_step *step = NULL;
    uint32_t shared = line;
    for (size_t i = 0; c && i < c->steps.n; i++)
        if (c->steps.at[i].line == kernel) step = &c->steps.at[i];
    for (size_t i = 0; step && i < c->functions.n; i++) {
        const report_function *f = &c->functions.at[i];
        if (!is_of_step(step, f->name)) continue;
        shared = line_in_function(c, f->name, kernel, line);
        tell_function(t, f, shared);
    }
    for (size_t i = 0; step && i < c->functions.n; i++) {
        const report_function *f = &c->functions.at[i];
        if (bytes_of_line(f, shared) && !is_of_steps(c, f->name)) tell_function(t, f, shared);
    }
}

static void tell_kernel(const teller *t, const report_stage *s, hir_id op) {
    const hir_op *o = hir_op_at(s->m, op);
    const hir_op_work work = hir_work_of(s->m, op);
    if (work.row_flops || work.pair_flops)
        hd_text_f(t->out, "\ncosts %llu FLOPs a token, %llu for each position that it looks at\n",
                  (unsigned long long)work.row_flops, (unsigned long long)work.pair_flops);
    const hir_id kernel = hir_is_kernel(o) ? op : o->parent;
    if (kernel == HIR_NONE) return;
    const hir_op *k = hir_op_at(s->m, kernel);
    hd_text_f(t->out, "\ncomputed by %s %s, line %u of the kernel IR\n", hir_info(k->code)->name,
              hir_attr_string(k, HIR_A_NAME, ""), s->line[kernel]);
    tell_memory(t, s, kernel);
    tell_ledger(t, s, kernel);
    tell_code(t, s->line[kernel], s->line[op]);
}

static bool explain_op(const teller *t, const report_stage *s, hir_id op) {
    uint32_t number = s->op_of[op];
    print_op(t, s, op);
    print_place(t, "\nwritten at", *hir_op_at(s->m, op)->loc);
    const report_stage *end = tell_passes(t, &number, &op);
    if (!end) return true;
    tell_users(t, end, op);
    tell_kernel(t, end, op);
    return true;
}

/* ---- weights and states ---------------------------------------------------------------------- */

static void tell_readers(const teller *t, const report_stage *s, hir_ref what) {
    size_t n = 0;
    hd_text_f(t->out, "\nread in %s by\n", s->pass);
    for (size_t i = 0; i < s->rows.n; i++) {
        const hir_op *o = hir_op_at(s->m, s->rows.at[i].op);
        bool reads = false;
        for (uint32_t k = 0; k < o->n_args; k++)
            reads |= hir_ref_equal(o->args[k], what);
        if (!reads) continue;
        const char *kernel = kernel_of(s, s->rows.at[i].op);
        print_row(t, kernel ? kernel : "", s, s->rows.at[i].op);
        n++;
    }
    if (!n) hd_text_add(t->out, "  nothing\n");
}

/* Prints the weights that passes have derived from this one. */
static void tell_derived(const teller *t, const hir_module *m, const char *name) {
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        bool of = false;
        for (uint32_t r = 0; r < w->n_rows; r++)
            for (uint32_t k = 0; k < w->rows[r].n; k++)
                of |= strcmp(w->rows[r].factor[k].name, name) == 0;
        if (!of) continue;
        hd_text_f(t->out, "\npart of @%s", w->name);
        hir_print_derived(t->out, w);
        hd_text_add(t->out, "\n");
        tell_readers(t, report_last(t->h), hir_weight_ref((uint32_t)i));
    }
}

static bool explain_weight(const teller *t, const report_stage *s, uint32_t index) {
    const report_stage *last = report_last(t->h);
    const hir_weight *w = &s->m->weights.at[index];
    const uint32_t now = hir_find_weight(last->m, w->name);
    hd_text_f(t->out, "weight @%s : ", w->name);
    hir_print_type(t->out, w->type);
    hir_print_derived(t->out, w);
    hd_text_add(t->out, "\n");
    print_place(t, "\nwritten at", w->loc);
    if (s != last) tell_readers(t, s, hir_weight_ref(index));
    if (now == HIR_NONE) return true;
    const hir_weight *stored = &last->m->weights.at[now];
    uint64_t bytes;
    hd_text_add(t->out, "\nstored as ");
    hir_print_type(t->out, stored->type);
    hd_text_f(t->out, " in %s", hir_layout_name(stored->layout));
    if (hir_weight_bytes(stored, &bytes))
        hd_text_f(t->out, ", %llu byte%s", (unsigned long long)bytes, hd_s(bytes));
    hd_text_add(t->out, stored->unused ? "; no op reads it\n" : "\n");
    tell_readers(t, last, hir_weight_ref(now));
    tell_derived(t, last->m, w->name);
    return true;
}

static bool explain_state(const teller *t, const report_stage *s, uint32_t index) {
    const hir_state *x = &s->m->states.at[index];
    hd_text_f(t->out, "state $%s : %s ", x->name, hir_state_kind_of(x->kind)->word);
    hir_print_type(t->out, x->type);
    hd_text_add(t->out, "\n");
    print_place(t, "\nwritten at", x->loc);
    tell_readers(t, s, hir_state_ref(index));
    return true;
}

/* ---- what the user named --------------------------------------------------------------------- */

typedef struct name_list {
    HD_VEC(const char *) list;
} name_list;

/* The nearest name in the model as loaded: of a weight, a state or an output. */
static const char *nearest_name(const teller *t, const char *what) {
    const hir_module *m = t->h->stages.at[0].m;
    hd_arena *a = t->out->arena;
    name_list names = {0};
    for (size_t i = 0; i < m->weights.n; i++)
        hd_push(a, &names.list, m->weights.at[i].name);
    for (size_t i = 0; i < m->states.n; i++)
        hd_push(a, &names.list, m->states.at[i].name);
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_OUTPUT_OP) hd_push(a, &names.list, hir_attr_string(o, HIR_A_NAME, ""));
    }
    return hd_nearest(what, names.list.at, names.list.n);
}

/* PASS:%N with the most similar name of a pass; NULL: no name is similar, or the pass exists. */
static const char *nearest_stage(const teller *t, const char *what, const char *colon) {
    hd_arena *a = t->out->arena;
    name_list passes = {0};
    if (stage_named(t, what, (size_t)(colon - what))) return NULL;
    for (size_t i = 0; i < t->h->stages.n; i++)
        hd_push(a, &passes.list, t->h->stages.at[i].pass);
    const char *near =
        hd_nearest(hd_strndup(a, what, (size_t)(colon - what)), passes.list.at, passes.list.n);
    return near ? hd_printf(a, "%s%s", near, colon) : NULL;
}

static bool unknown(const teller *t, const char *what) {
    const char *colon = strstr(what, ":%"), *near;
    if (colon)
        near = nearest_stage(t, what, colon);
    else if (what[strspn(what, "0123456789")] == 0)
        near = hd_printf(t->out->arena, "%%%s", what);
    else
        near = nearest_name(t, what);
    hd_err(t->diags, HD_E_NAME, HD_NOWHERE, "there is no \"%s\"", what)->hint =
        near ? hd_printf(t->out->arena, "did you mean \"%s\"?", near)
             : "%N is a value of the kernel IR, PASS:%N one of a dump, NAME a weight, a state or "
               "an output";
    return false;
}

static bool explain_name(const teller *t, const char *name) {
    const report_stage *stages[] = {&t->h->stages.at[0], report_last(t->h)};
    for (int i = 0; i < 2; i++) {
        const hir_module *m = stages[i]->m;
        uint32_t weight = hir_find_weight(m, name);
        if (weight == HIR_NONE) /* people leave the suffix out */
            weight = hir_find_weight(m, hd_printf(t->out->arena, "%s.weight", name));
        if (weight != HIR_NONE) return explain_weight(t, stages[i], weight);
        for (size_t k = 0; k < m->states.n; k++)
            if (strcmp(m->states.at[k].name, name) == 0)
                return explain_state(t, stages[i], (uint32_t)k);
        const hir_id made = op_of_output(m, name);
        if (made != HIR_NONE) return explain_op(t, stages[i], made);
    }
    return unknown(t, name);
}

bool report_explain(const report *r, const char *what, hd_diags *d, hd_text *out) {
    const teller t = {r, r->history, d, out};
    const report_stage *s = report_last(t.h);
    const char *value = strchr(what, '%');
    if (!value) return explain_name(&t, *what == '@' || *what == '$' ? what + 1 : what);
    if (value > what) {
        const report_stage *named =
            value[-1] == ':' ? stage_named(&t, what, (size_t)(value - what) - 1) : NULL;
        if (!named) return unknown(&t, what);
        /* a pass that changed nothing left the module as the pass before it did */
        while (!named->m)
            named--;
        s = named;
    }
    const hir_id op = op_of_value(s, value + 1);
    return op == HIR_NONE ? unknown(&t, what) : explain_op(&t, s, op);
}
