/* The names and shapes of the checkpoint, in loops where they repeat from layer to layer. */
#include <string.h>

#include "torch/program.h"

typedef struct entry { /* names that differ in their first number alone */
    hpt_name name;
    HD_VEC(const hir_weight *) weights;
    HD_VEC(double) number; /* the first numbers; empty: the name has none */
    bool done;
} entry;
typedef HD_VEC(entry) entries;

static bool same_but_for_first(const hpt_name *a, const hpt_name *b) {
    if (!a->n || !b->n || strcmp(a->pattern, b->pattern) != 0) return false;
    for (uint32_t i = 1; i < a->n; i++)
        if (!hpt_same_number(a->number[i], b->number[i])) return false;
    return true;
}

static entries collect(const hpt_program *p) {
    entries all = {0};
    for (size_t i = 0; i < p->m->weights.n; i++) {
        const hir_weight *w = &p->m->weights.at[i];
        if (w->unused || hir_is_derived(w)) continue;
        const hpt_name name = hpt_make_name(p->a, w->name);
        size_t e = 0;
        while (e < all.n && !(same_but_for_first(&all.at[e].name, &name) &&
                              all.at[e].weights.at[0]->type.rank == w->type.rank &&
                              all.at[e].weights.at[0]->stacked == w->stacked))
            e++;
        if (e == all.n) {
            const entry new = {.name = name};
            hd_push(p->a, &all, new);
        }
        hd_push(p->a, &all.at[e].weights, w);
        if (name.n) hd_push(p->a, &all.at[e].number, name.number[0].at);
    }
    return all;
}

static bool same_numbers(const entry *a, const entry *b) {
    if (a->number.n != b->number.n) return false;
    for (size_t i = 0; i < a->number.n; i++)
        if (a->number.at[i] != b->number.at[i]) return false;
    return true;
}

static bool same_shape(const hir_weight *a, const hir_weight *b) {
    for (uint32_t d = 0; d < a->type.rank; d++)
        if (a->type.dim[d] != b->type.dim[d]) return false;
    return true;
}

/* Does the number give a size that differs? */
static const char *size_by_number(const hpt_program *p, const entry *e, uint32_t dim) {
    double *size = hd_new_array(p->a, double, e->weights.n + 1);
    for (size_t i = 0; i < e->weights.n; i++)
        size[i] = (double)e->weights.at[i]->type.dim[dim];
    return e->weights.n < 3 ? NULL
                            : hpt_linear(p->a, "l", e->number.at, size, (uint32_t)e->weights.n);
}

static bool is_uniform(const hpt_program *p, const entry *e) {
    for (uint32_t d = 0; d < e->weights.at[0]->type.rank; d++)
        for (size_t i = 1; i < e->weights.n; i++)
            if (e->weights.at[i]->type.dim[d] != e->weights.at[0]->type.dim[d] &&
                !size_by_number(p, e, d))
                return false;
    return true;
}

/* Entries whose sizes no expression gives become one for each shape. */
static entries by_shape(const hpt_program *p, const entries *all) {
    entries out = {0};
    for (size_t i = 0; i < all->n; i++) {
        const entry *e = &all->at[i];
        if (is_uniform(p, e)) {
            hd_push(p->a, &out, *e);
            continue;
        }
        const size_t first = out.n;
        for (size_t k = 0; k < e->weights.n; k++) {
            size_t o = first;
            while (o < out.n && !same_shape(out.at[o].weights.at[0], e->weights.at[k]))
                o++;
            const entry new = {.name = e->name};
            if (o == out.n) hd_push(p->a, &out, new);
            hd_push(p->a, &out.at[o].weights, e->weights.at[k]);
            hd_push(p->a, &out.at[o].number, e->number.at[k]);
        }
    }
    return out;
}

static void print_dim(const hpt_program *p, const entry *e, uint32_t dim, hd_text *out) {
    bool same = true;
    for (size_t i = 1; i < e->weights.n; i++)
        same = same && e->weights.at[i]->type.dim[dim] == e->weights.at[0]->type.dim[dim];
    if (same)
        hd_text_f(out, "%lld", (long long)e->weights.at[0]->type.dim[dim]);
    else
        hd_text_add(out, size_by_number(p, e, dim));
}

static void print_entry(const hpt_program *p, const entry *e, int indent, hd_text *out) {
    const hir_weight *w = e->weights.at[0];
    const char *part = w->stacked ? "{e}" : NULL;
    if (part) {
        hd_text_f(out, "%*sfor e in range(%lld):\n", indent, "", (long long)w->type.dim[0]);
        indent += 4;
    }
    hd_text_f(out, "%*syield %s\"", indent, "", e->number.n || part ? "f" : "");
    uint32_t number = 0;
    for (const char *at = e->name.pattern; *at; at++) {
        const bool here =
            *at == '#' && (at == e->name.pattern || at[-1] == '.') && (!at[1] || at[1] == '.');
        if (here && number++ == 0)
            hd_text_add(out, "{l}");
        else if (here)
            hd_text_f(out, "%.0f", e->name.number[number - 1].at);
        else if (*at == '*' && part)
            hd_text_add(out, part);
        else
            hpt_add_in_name(out, *at, e->number.n || part);
    }
    hd_text_add(out, "\", (");
    for (uint32_t d = part ? 1 : 0; d < w->type.rank; d++) {
        print_dim(p, e, d, out);
        hd_text_add(out, d + 1 < w->type.rank ? ", " : w->type.rank - !!part == 1 ? "," : "");
    }
    hd_text_add(out, ")\n");
}

static void print_numbers(const entry *e, hd_text *out) {
    const size_t n = e->number.n;
    const double first = e->number.at[0], step = n > 1 ? e->number.at[1] - first : 1;
    bool range = step >= 1 && (n > 2 || first == 0);
    for (size_t i = 0; i < n; i++)
        range = range && e->number.at[i] == first + step * (double)i;
    if (range && step == 1 && first == 0)
        hd_text_f(out, "range(%zu)", n);
    else if (range && step == 1)
        hd_text_f(out, "range(%.0f, %.0f)", first, first + (double)n);
    else if (range)
        hd_text_f(out, "range(%.0f, %.0f, %.0f)", first, first + step * (double)(n - 1) + 1, step);
    for (size_t i = 0; !range && i < n; i++)
        hd_text_f(out, "%s%.0f%s", i ? ", " : "(", e->number.at[i],
                  i + 1 < n ? ""
                  : n == 1  ? ",)"
                            : ")");
}

static void print_unused(const hpt_program *p, hd_text *out) {
    HD_VEC(const char *) seen = {0};
    for (size_t i = 0; i < p->m->weights.n + p->m->unused_below.n; i++) {
        const bool weight = i < p->m->weights.n;
        if (weight && !p->m->weights.at[i].unused) continue;
        hd_text text;
        hd_text_init(&text, p->a);
        const char *name = weight ? hpt_make_name(p->a, p->m->weights.at[i].name).pattern
                                  : p->m->unused_below.at[i - p->m->weights.n];
        for (const char *at = name; *at; at++)
            hd_text_add_n(&text, *at == '#' ? "*" : at, 1);
        if (!weight) hd_text_add(&text, "*");
        size_t k = 0;
        while (k < seen.n && strcmp(seen.at[k], text.at) != 0)
            k++;
        if (k == seen.n) hd_push(p->a, &seen, text.at);
    }
    hd_text_add(out, "# What a checkpoint may hold and the model does not read.\nUNUSED = (");
    for (size_t i = 0; i < seen.n; i++) {
        if (i) hd_text_add(out, seen.n > 3 ? ",\n          " : ", ");
        hd_text_quoted(out, seen.at[i]);
    }
    hd_text_add(out, seen.n == 1 ? ",)\n" : ")\n");
}

void hpt_print_parameters(const hpt_program *p, hd_text *out) {
    const entries collected = collect(p);
    entries all = by_shape(p, &collected);
    print_unused(p, out);
    hd_text_add(out, "\n\ndef names():\n    # the tensors of the checkpoint and their shapes\n");
    if (!all.n) hd_text_add(out, "    return ()\n");
    for (size_t i = 0; i < all.n; i++) {
        if (all.at[i].done) continue;
        if (!all.at[i].number.n) {
            print_entry(p, &all.at[i], 4, out);
            continue;
        }
        hd_text_add(out, "    for l in ");
        print_numbers(&all.at[i], out);
        hd_text_add(out, ":\n");
        for (size_t k = i; k < all.n; k++) {
            if (all.at[k].done || !all.at[k].number.n || !same_numbers(&all.at[i], &all.at[k]))
                continue;
            print_entry(p, &all.at[k], 8, out);
            all.at[k].done = true;
        }
    }
}
