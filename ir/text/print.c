/* Printer of the text form. docs/ir.md describes it; ir/text/parse.c reads it. */
#include <string.h>

#include "ir/signature.h"
#include "ir/text/text.h"

static const char *const place_names[] = {"",      "arena",  "local",    "tile", "fixed",
                                          "input", "output", "gradient", "state"};

const char *hir_place_name(hir_place place) {
    return place_names[place];
}

typedef struct printer {
    const hir_module *m;
    hd_text *out;
    hir_print_options options;
    const uint32_t *number; /* of each unnamed value, in order of definition */
} printer;

/* ---- names, types, operands ------------------------------------------------------------------ */
bool hir_plain_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-' || c == '/';
}

bool hir_is_word(const char *s) {
    if (!*s || (*s >= '0' && *s <= '9') || *s == '.' || strcmp(s, "_") == 0) return false;
    while (hir_plain_name_char(*s) && *s != '-' && *s != '/')
        s++;
    return *s == '\0';
}

static void print_name(hd_text *out, char sigil, const char *name) {
    size_t n = 0, digits = 0;
    for (; hir_plain_name_char(name[n]); n++)
        digits += name[n] >= '0' && name[n] <= '9';
    hd_text_add_n(out, &sigil, 1);
    /* a value called 7 is not value number 7 */
    if (n == 0 || name[n] || (sigil == '%' && digits == n))
        hd_text_quoted(out, name);
    else
        hd_text_add_n(out, name, n);
}

static void print_dim(hd_text *out, int64_t dim) {
    if (dim == HIR_T)
        hd_text_add(out, "T");
    else if (dim == HIR_C)
        hd_text_add(out, "C");
    else if (hir_is_length(dim))
        hd_text_f(out, "C/%lld", (long long)hir_rate(dim));
    else if (hir_is_row_share(dim))
        hd_text_f(out, "T/%lld", (long long)hir_row_ranks(dim));
    else
        hd_text_f(out, "%lld", (long long)dim);
}

static void print_dims(hd_text *out, const int64_t *dims, uint32_t n) {
    hd_text_add(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        hd_text_add(out, i ? ", " : "");
        print_dim(out, dims[i]);
    }
    hd_text_add(out, "]");
}

void hir_print_type(hd_text *out, hir_type t) {
    hd_text_add(out, hir_dtype_name(t.dtype));
    print_dims(out, t.dim, t.rank);
}

static void print_loc(const printer *p, hd_loc loc) {
    if (!p->options.locations || !loc.file) return;
    hd_text_add(p->out, " loc ");
    hd_text_quoted(p->out, loc.file);
    hd_text_f(p->out, ":%u:%u", loc.line, loc.column);
    if (!loc.call) return;
    hd_text_add(p->out, " from ");
    hd_text_quoted(p->out, loc.call->file);
    hd_text_f(p->out, ":%u:%u", loc.call->line, loc.call->column);
}

const char *hir_type_string(hd_arena *a, hir_type t) {
    hd_text text;
    hd_text_init(&text, a);
    hir_print_type(&text, t);
    return text.at;
}

void hir_print_place(hd_text *out, const hir_value *v) {
    if (v->place != HIR_PLACE_NONE)
        hd_text_f(out, " in %s[%llu]", place_names[v->place], (unsigned long long)v->offset);
}

static void print_value(const printer *p, hir_id v) {
    const char *name = hir_value_at(p->m, v)->name;
    if (name)
        print_name(p->out, '%', name);
    else
        hd_text_f(p->out, "%%%u", p->number[v]);
}

static void print_ref(const printer *p, hir_ref r) {
    switch ((hir_ref_kind)r.kind) {
    case HIR_REF_NONE: hd_text_add(p->out, "_"); break;
    case HIR_REF_VALUE: print_value(p, r.index); break;
    case HIR_REF_WEIGHT: print_name(p->out, '@', p->m->weights.at[r.index].name); break;
    case HIR_REF_STATE: print_name(p->out, '$', p->m->states.at[r.index].name); break;
    }
}

static void print_doubles(hd_text *out, const double *x, uint32_t n) {
    hd_text_add(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        hd_text_add(out, i ? ", " : "");
        hd_text_double(out, x[i]);
    }
    hd_text_add(out, "]");
}

void hir_print_attr(hd_text *out, const hir_attr *a) {
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: hd_text_f(out, "%lld", (long long)a->i); break;
    case HIR_ATTR_FLOAT: hd_text_double(out, a->f); break;
    case HIR_ATTR_STRING: hd_text_quoted(out, a->s); break;
    case HIR_ATTR_INTS: print_dims(out, a->ints, a->n); break;
    case HIR_ATTR_FLOATS: print_doubles(out, a->floats, a->n); break;
    }
}

/* ---- ops ----------------------------------------------------------------------------------- */
/* An op without its body. */
static void print_op_head(const printer *p, const hir_op *op) {
    for (uint32_t i = 0; i < op->n_results; i++) {
        hd_text_add(p->out, i ? ", " : "");
        print_value(p, op->results[i]);
    }
    hd_text_f(p->out, "%s%s", op->n_results ? " = " : "", hir_info(op->code)->name);
    for (uint32_t i = 0; i < op->n_args; i++) {
        hd_text_add(p->out, i ? ", " : " ");
        print_ref(p, op->args[i]);
    }
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        hd_text_add(p->out, i ? ", " : " {");
        hd_text_f(p->out, "%s = ", hir_attr_name(op->attrs[i].id));
        hir_print_attr(p->out, &op->attrs[i]);
    }
    hd_text_add(p->out, op->n_attrs ? "}" : "");
    for (uint32_t i = 0; i < op->n_results; i++) {
        const hir_value *v = hir_value_at(p->m, op->results[i]);
        hd_text_add(p->out, i ? ", " : " : ");
        hir_print_type(p->out, v->type);
        hir_print_place(p->out, v);
    }
    print_loc(p, *op->loc);
}

static bool wanted(const printer *p, const hir_op *op) {
    return !p->options.want || p->options.want(p->options.context, op);
}

static bool wanted_inside(const printer *p, const hir_op *op) {
    HIR_EACH(p->m, inner, op->body_first) {
        if (wanted(p, hir_op_at(p->m, inner))) return true;
    }
    return false;
}

static void print_op(const printer *p, hir_id id) {
    const hir_op *op = hir_op_at(p->m, id);
    const bool whole = wanted(p, op);
    if (!whole && !wanted_inside(p, op)) return;
    hd_text_add(p->out, "  ");
    print_op_head(p, op);
    if (!hir_is_kernel(op)) {
        hd_text_add(p->out, "\n");
        return;
    }
    hd_text_add(p->out, " {\n");
    HIR_EACH(p->m, inner, op->body_first) {
        if (!whole && !wanted(p, hir_op_at(p->m, inner))) continue;
        hd_text_add(p->out, "    ");
        print_op_head(p, hir_op_at(p->m, inner));
        hd_text_add(p->out, "\n");
    }
    hd_text_add(p->out, "  }\n");
}

static uint32_t number_results(const hir_module *m, const hir_op *op, uint32_t *number,
                               uint32_t next) {
    for (uint32_t i = 0; i < op->n_results; i++)
        if (!hir_value_at(m, op->results[i])->name) number[op->results[i]] = next++;
    return next;
}

/* Inputs, then results in program order, a kernel's before those of its body. */
uint32_t *hir_number_values(const hir_module *m, hd_arena *a) {
    uint32_t *number = hd_new_array(a, uint32_t, m->values.n), next = 0;
    for (size_t i = 0; i < m->inputs.n; i++)
        if (!hir_value_at(m, m->inputs.at[i])->name) number[m->inputs.at[i]] = next++;
    HIR_EACH(m, op, m->first) {
        next = number_results(m, hir_op_at(m, op), number, next);
        HIR_EACH(m, inner, hir_op_at(m, op)->body_first) {
            next = number_results(m, hir_op_at(m, inner), number, next);
        }
    }
    return number;
}

/* ---- tables -------------------------------------------------------------------------------- */
static void print_area(hd_text *out, const char *word, uint64_t bytes, uint64_t kept) {
    hd_text_f(out, "%s %llu per token", word, (unsigned long long)bytes);
    if (kept) hd_text_f(out, ", %llu kept", (unsigned long long)kept);
    hd_text_add(out, "\n");
}

static void print_header(const printer *p) {
    const hir_module *m = p->m;
    hd_text_f(p->out, "hir %d %s ", HIR_TEXT_VERSION, hir_stage_name(m->stage));
    print_name(p->out, '@', m->name);
    hd_text_add(p->out, "\n\n");
    for (size_t i = 0; i < m->options.n; i++) {
        const hir_option *o = &m->options.at[i];
        hd_text_add(p->out, "option ");
        if (hir_is_word(o->key))
            hd_text_add(p->out, o->key);
        else
            hd_text_quoted(p->out, o->key);
        hd_text_add(p->out, " = ");
        hd_text_quoted(p->out, o->value);
        hd_text_add(p->out, i + 1 == m->options.n ? "\n\n" : "\n");
    }
    if (m->ranks)
        hd_text_f(p->out, "ranks %u, rows divided from %lld tokens\n\n", m->ranks,
                  (long long)m->divide_from);
    if (m->stage == HIR_STAGE_KERNEL)
        print_area(p->out, "arena", m->arena_per_token, m->arena_kept);
    if (m->stage == HIR_STAGE_KERNEL && m->ranks)
        print_area(p->out, "local", m->local_per_token, m->local_kept);
    if (m->stage == HIR_STAGE_KERNEL && m->tile_per_token)
        print_area(p->out, "tile", m->tile_per_token, 0);
    if (m->stage == HIR_STAGE_KERNEL)
        hd_text_f(p->out, "fixed %llu\n\n", (unsigned long long)m->fixed_bytes);
}

/* @a, softmax(@a), softmax(@a)[0:3], transposed(@a[0:96]) */
static void print_factor(hd_text *out, const hir_derived_factor *f) {
    const bool slice_first = f->by == HIR_DERIVED_TRANSPOSED;
    if (f->by) hd_text_f(out, "%s(", hir_derived_by_name(f->by));
    print_name(out, '@', f->name);
    if (f->by && !slice_first) hd_text_add(out, ")");
    if (f->n) hd_text_f(out, "[%lld:%lld]", (long long)f->first, (long long)(f->first + f->n));
    if (slice_first) hd_text_add(out, ")");
}

/* = @a * @b, @c * @d */
void hir_print_derived(hd_text *out, const hir_weight *w) {
    for (uint32_t r = 0; r < w->n_rows; r++)
        for (uint32_t k = 0; k < w->rows[r].n; k++) {
            hd_text_add(out, k ? " * " : r ? ", " : " = ");
            print_factor(out, &w->rows[r].factor[k]);
        }
}

/* shard {dim = 0, groups = 2, units = 4, pad = "repeat"} */
static void print_init(hd_text *out, hir_init init) {
    hd_text_f(out, " init %s", hir_init_text(out->arena, init));
}

static void print_shard(hd_text *out, const hir_weight *w) {
    const hd_share *s = &w->share.share;
    if (!w->share.on) return;
    hd_text_f(out, " shard {dim = %u, groups = %lld, units = %lld, pad = \"%s\"}", w->share.dim,
              (long long)s->groups, (long long)s->units, s->repeat ? "repeat" : "zero");
}

static void print_tables(const printer *p) {
    const hir_module *m = p->m;
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        hd_text_add(p->out, "weight ");
        print_name(p->out, '@', w->name);
        hd_text_add(p->out, " : ");
        hir_print_type(p->out, hir_whole_type(w));
        print_shard(p->out, w);
        if (w->layout != HIR_LAYOUT_ROWS) hd_text_f(p->out, " %s", hir_layout_name(w->layout));
        hd_text_add(p->out, w->stacked ? " stacked" : "");
        hd_text_add(p->out, w->unused ? " unused" : "");
        if (!hir_same_init(w->init, (hir_init){0})) print_init(p->out, w->init);
        hir_print_derived(p->out, w);
        print_loc(p, w->loc);
        hd_text_add(p->out, i + 1 == m->weights.n ? "\n\n" : "\n");
    }
    for (size_t i = 0; i < m->unused_below.n; i++) {
        hd_text_add(p->out, "weights ");
        hd_text_quoted(p->out, m->unused_below.at[i]);
        hd_text_add(p->out, i + 1 == m->unused_below.n ? " unused\n\n" : " unused\n");
    }
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        hd_text_add(p->out, "state ");
        print_name(p->out, '$', s->name);
        hd_text_add(p->out, " : ");
        if (s->kind != HIR_STATE_CACHE) hd_text_f(p->out, "%s ", hir_state_kind_of(s->kind)->word);
        hir_print_type(p->out, s->type);
        print_loc(p, s->loc);
        hd_text_add(p->out, i + 1 == m->states.n ? "\n\n" : "\n");
    }
}

void hir_print(const hir_module *m, hir_print_options options, hd_text *out) {
    printer p = {m, out, options, hir_number_values(m, out->arena)};
    if (!options.want) {
        print_header(&p);
        print_tables(&p);
    }
    hd_text_add(out, "func(");
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hir_value *v = hir_value_at(m, m->inputs.at[i]);
        hd_text_add(out, i ? ", " : "");
        print_value(&p, m->inputs.at[i]);
        hd_text_add(out, ": ");
        hir_print_type(out, v->type);
        hir_print_place(out, v);
    }
    hd_text_add(out, ") {\n");
    HIR_EACH(m, op, m->first) {
        print_op(&p, op);
    }
    hd_text_add(out, "}\n");
}

void hir_print_numbered(const hir_module *m, hir_id op, const uint32_t *numbers, hd_text *out) {
    printer p = {m, out, {0}, numbers};
    print_op_head(&p, hir_op_at(m, op));
}

void hir_print_op(const hir_module *m, hir_id op, hd_text *out) {
    hir_print_numbered(m, op, hir_number_values(m, out->arena), out);
}

void hir_print_ref(const hir_module *m, hir_ref r, const uint32_t *numbers, hd_text *out) {
    printer p = {m, out, {0}, numbers};
    print_ref(&p, r);
}

/* The line of `func(`. */
static uint32_t header_lines(const hir_module *m, hd_arena *a) {
    hd_text text;
    hd_text_init(&text, a);
    hir_module head = *m;
    head.first = head.last = HIR_NONE;
    hir_print(&head, (hir_print_options){0}, &text);
    const char *body = strstr(text.at, "\nfunc(");
    uint32_t line = 1;
    for (const char *c = text.at; body && c <= body; c++)
        line += *c == '\n';
    return line;
}

uint32_t *hir_op_lines(const hir_module *m, hd_arena *a) {
    uint32_t *lines = hd_new_array(a, uint32_t, m->ops.n + 1), line = header_lines(m, a);
    HIR_EACH(m, id, m->first) {
        lines[id] = ++line;
        if (!hir_is_kernel(hir_op_at(m, id))) continue;
        HIR_EACH(m, inner, hir_op_at(m, id)->body_first) {
            lines[inner] = ++line;
        }
        line++;
    }
    return lines;
}
