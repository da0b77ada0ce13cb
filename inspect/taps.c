/* Naming, choosing and showing taps. */
#include "inspect/taps.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[TAP_KINDS] = {
#define T(id, name, shows) [TAP_##id] = name,
#include "inspect/taps.def"
};

/* ---- which there are ------------------------------------------------------------------------- */

/* "output.3", without the part. */
static const char *place_name(const tap *t, hd_arena *a) {
    const size_t n = strlen(kinds[t->kind]) + 1;
    return hd_strndup(a, t->name, n + strcspn(t->name + n, "."));
}

/* Prints the taps of a kind as runs of consecutive places; false: there are none. */
static bool print_kind(const taps *x, tap_kind kind, hd_text *out) {
    const tap *first = NULL, *last = NULL;
    bool any = false;
    uint32_t parts = 1;
    for (size_t i = 0; i <= x->list.n; i++) {
        const tap *t = i < x->list.n && x->list.at[i].kind == kind ? &x->list.at[i] : NULL;
        if (t && t->parts > parts) parts = t->parts;
        if (t && last && t->at == last->at) continue; /* another part */
        const bool head = t && kind != TAP_SOURCE && t->at > x->sublayers;
        if (t && last && !head && t->at <= last->at + 1) {
            last = t;
            continue;
        }
        if (first) {
            hd_text_f(out, "%s%s", any ? ", " : "", place_name(first, out->arena));
            if (last->at != first->at) hd_text_f(out, " to %s", place_name(last, out->arena));
            any = true;
        }
        first = last = t;
    }
    if (parts > 1) hd_text_f(out, " (in up to %u parts, as %s.2.%u)", parts, kinds[kind], parts);
    return any;
}

const char *taps_text(const taps *x, hd_arena *a) {
    hd_text out;
    hd_text_init(&out, a);
    hd_text_add(&out, "");
    for (int kind = 0; kind < TAP_KINDS; kind++) {
        hd_text one;
        hd_text_init(&one, a);
        if (print_kind(x, (tap_kind)kind, &one)) hd_text_f(&out, "%s%s", out.n ? "; " : "", one.at);
    }
    return out.at;
}

/* ---- lists ----------------------------------------------------------------------------------- */

typedef struct item { /* of a list: places `first` to `last`, parts too */
    const char *text;
    tap_kind kind;
    uint32_t first, last; /* `last` UINT32_MAX: all that there are */
    uint32_t part;        /* 0: all parts */
} item;

static bool find_kind(const char *text, size_t n, tap_kind *out) {
    for (int i = 0; i < TAP_KINDS; i++)
        if (strlen(kinds[i]) == n && memcmp(kinds[i], text, n) == 0) {
            *out = (tap_kind)i;
            return true;
        }
    return false;
}

static bool take_number(const char **at, uint32_t *out) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    const unsigned long n = strtoul(*at, &end, 10);
    if (n >= UINT32_MAX - 1) return false;
    *out = (uint32_t)n;
    *at = end;
    return true;
}

/* The place of sublayer k: the one after the last is the head's, which numbers do not reach. */
static uint32_t sublayer_place(const taps *x, uint32_t k) {
    return k > x->sublayers ? k + 1 : k;
}

static const char *name_of_place(const taps *x, bool source, uint32_t at, hd_arena *a) {
    if (!source && at == x->sublayers + 1) return "head";
    return hd_printf(a, "%u", !source && at > x->sublayers ? at - 1 : at);
}

static bool take_place(const taps *x, bool source, const char **at, uint32_t *out) {
    if (!source && strncmp(*at, "head", 4) == 0) {
        *at += 4;
        *out = x->sublayers + 1;
        return true;
    }
    if (!take_number(at, out) || (!source && *out == 0)) return false;
    if (!source) *out = sublayer_place(x, *out);
    return true;
}

static bool take(const char **at, char c) {
    if (**at != c) return false;
    ++*at;
    return true;
}

/* The places behind the kind's name: "", ".*", ".3", ".1-4", ".3.2", ".1-4.2", ".head". */
static bool read_places(const taps *x, const char *at, item *out) {
    out->first = 0, out->last = UINT32_MAX, out->part = 0;
    if (!*at) return true;
    if (!take(&at, '.')) return false;
    const bool source = out->kind == TAP_SOURCE;
    if (!take(&at, '*')) {
        if (!take_place(x, source, &at, &out->first)) return false;
        out->last = out->first;
        if (take(&at, '-') && !take_place(x, source, &at, &out->last)) return false;
    }
    if (take(&at, '.') && (!take_number(&at, &out->part) || out->part == 0)) return false;
    const bool beyond = !source && out->first > x->sublayers + 1; /* which is said as such */
    return !*at && (out->first <= out->last || beyond);
}

static bool read_item(const taps *x, const char *text, item *out, hd_diags *d) {
    const size_t n = strcspn(text, ".");
    *out = (item){.text = text};
    if (!find_kind(text, n, &out->kind)) {
        hd_diag *e = hd_err(d, HD_E_USAGE, HD_NOWHERE, "\"%s\" is no tap", text);
        const char *near = hd_nearest(hd_strndup(d->arena, text, n), kinds, TAP_KINDS);
        hd_text all;
        hd_text_init(&all, d->arena);
        for (int i = 0; i < TAP_KINDS; i++)
            hd_text_f(&all, "%s%s", i ? ", " : "", kinds[i]);
        e->cause = hd_printf(d->arena, "the kinds of taps are %s", all.at);
        if (near) e->hint = hd_printf(d->arena, "did you mean %s%s?", near, text + n);
        if (strcmp(text, "head") == 0) e->hint = "what the head reads is input.head";
        return false;
    }
    if (read_places(x, text + n, out)) return true;
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "\"%s\" does not say which of the taps", text)->hint =
        "for example output.3, output.*, output.1-8, input.head, stream.4.2 (the second stream); "
        "sublayers count from 1";
    return false;
}

/* Why the model has no such tap, where there is more to say than that it ends before. */
static const char *why_none(const taps *x, const item *i) {
    if (i->kind == TAP_OUTPUT && i->first == x->sublayers + 1)
        return "what the head gives are the logits";
    if (i->first > x->sublayers + 1 && i->kind != TAP_SOURCE) return NULL;
    if (i->part) return NULL;
    switch (i->kind) {
    case TAP_NORMED: return "it reads without a norm of its own";
    case TAP_MIX: return "it reads no mix whose weights the spec traces as depth_weights";
    default: return NULL;
    }
}

static bool reject(const taps *x, const item *i, uint32_t at, hd_arena *a, hd_diags *d) {
    hd_diag *e;
    const bool all = i->last == UINT32_MAX;
    if (all)
        e = hd_err(d, HD_E_NAME, HD_NOWHERE, "%s has no %s", x->model, i->text);
    else
        e = hd_err(d, HD_E_NAME, HD_NOWHERE, "%s has no %s.%s%s", x->model, kinds[i->kind],
                   name_of_place(x, i->kind == TAP_SOURCE, at, a),
                   i->part ? hd_printf(a, ".%u", i->part) : "");
    e->cause = all ? NULL : why_none(x, i);
    e->hint = hd_printf(d->arena, "there are %s", taps_text(x, a));
    return false;
}

/* Marks what the item names. The ends of a range must be there; in between, sublayers may lack what
 * others have. */
static bool store_item(taps *x, const item *i, hd_arena *a, hd_diags *d) {
    bool first = false, last = false, any = false;
    for (size_t k = 0; k < x->list.n; k++) {
        tap *t = &x->list.at[k];
        if (t->kind != i->kind || t->at < i->first || t->at > i->last) continue;
        if (i->part && i->part != t->part) continue;
        t->stored = any = true;
        first |= t->at == i->first;
        last |= t->at == i->last;
    }
    if (i->last == UINT32_MAX) return any || reject(x, i, 0, a, d);
    if (!first) return reject(x, i, i->first, a, d);
    return last || reject(x, i, i->last, a, d);
}

bool taps_store(taps *x, const char *list, hd_arena *a, hd_diags *d) {
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        item i;
        if (n == 0) {
            hd_err(d, HD_E_USAGE, HD_NOWHERE, "the list of taps \"%s\" has an empty place", list)
                ->hint = hd_printf(d->arena, "there are %s", taps_text(x, a));
            return false;
        }
        if (!read_item(x, hd_strndup(a, at, n), &i, d) || !store_item(x, &i, a, d)) return false;
        at += n;
        if (!*at) return true;
    }
}

void taps_measure(taps *x) {
    for (size_t i = 0; i < x->list.n; i++) {
        const tap_kind k = x->list.at[i].kind;
        x->list.at[i].measured = k == TAP_INPUT || k == TAP_OUTPUT || k == TAP_STREAM;
    }
}

void taps_keep(taps *x, hd_arena *a) {
    size_t n = 0;
    for (size_t i = 0; i < x->list.n; i++) {
        tap t = x->list.at[i];
        if (!t.stored && !t.measured) continue;
        for (t.shown = 0; t.shown < x->values.n; t.shown++)
            if (hir_ref_equal(x->values.at[t.shown], t.value)) break;
        if (t.shown == x->values.n) hd_push(a, &x->values, t.value);
        x->list.at[n++] = t;
    }
    x->list.n = n;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Outputs of a spec are identifiers, and those of traces end with a number. */
#define PREFIX "tap."
#define SUFFIX ".value"

const char *taps_output_name(uint32_t i, hd_arena *a) {
    return hd_printf(a, PREFIX "%u" SUFFIX, i);
}

bool taps_is_output(const char *name) {
    return hd_begins_with(name, PREFIX) && hd_ends_with(name, SUFFIX);
}

bool taps_add_outputs(const taps *x, hir_module *m, hd_diags *d) {
    hir_builder b = hir_at_end(m, d);
    for (size_t i = 0; i < x->values.n; i++) {
        const hir_attr name = hir_string(HIR_A_NAME, taps_output_name((uint32_t)i, m->arena));
        if (hir_build(&b, HIR_OUTPUT_OP, &x->values.at[i], 1, &name, 1) == HIR_NONE) return false;
    }
    return true;
}

uint64_t taps_bytes(const taps *x, const hir_module *m, int64_t rows) {
    uint64_t row = 0;
    for (size_t i = 0; i < x->values.n; i++)
        row += (uint64_t)hir_type_row_elements(hir_ref_type(m, x->values.at[i]));
    return row * sizeof(float) * (uint64_t)rows;
}
