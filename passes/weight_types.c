/* Reads `--weights-dtype` (weight_types.h). */
#include "passes/weight_types.h"

#include <string.h>

/* ---- patterns -------------------------------------------------------------------------------- */

/* Greedy match that backtracks to the last `*` only: O(pattern * name). */
static bool matches(const char *pattern, const char *name, size_t n) {
    const char *end = name + n, *star = NULL, *from = NULL;
    while (name < end) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern && (*pattern == '?' || *pattern == *name)) {
            pattern++, name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

bool hir_rule_matches(const hir_weight_rule *r, const char *name) {
    static const char suffix[] = ".weight";
    size_t n = strlen(name), end = sizeof suffix - 1;
    if (matches(r->pattern, name, n)) return true;
    return n > end && strcmp(name + n - end, suffix) == 0 && matches(r->pattern, name, n - end);
}

/* ---- the text -------------------------------------------------------------------------------- */

static bool parse_dtype(hd_arena *a, hd_diags *d, const char *name, hir_dtype *out) {
    const char *names[HIR_DTYPE_COUNT];
    size_t n = 0;
    hd_text list;
    hd_text_init(&list, a);
    for (int t = 0; t < HIR_DTYPE_COUNT; t++) {
        if (t == HIR_I32) continue;
        names[n] = hir_dtype_name((hir_dtype)t);
        if (strcmp(name, names[n]) == 0) {
            *out = (hir_dtype)t;
            return true;
        }
        hd_text_f(&list, "%s%s", n ? ", " : "", names[n]);
        n++;
    }
    const char *near = hd_nearest(name, names, n);
    hd_diag *e = hd_err(d, HD_E_USAGE, HD_NOWHERE, "weights cannot be stored as \"%s\"", name);
    e->cause = hd_printf(a, "the types are %s", list.at);
    if (near) e->hint = hd_printf(a, "did you mean \"%s\"?", near);
    return false;
}

static bool reject(hd_diags *d, const char *message, const char *what) {
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "%s: \"%s\"", message, what)->hint =
        "a type for matrices, and PATTERN=TYPE, with commas between: q4,lm_head=q8,*norm*=f32";
    return false;
}

static bool add_rule(hd_arena *a, hd_diags *d, const char *item, const char *equals,
                     hir_weight_types *out) {
    hir_weight_rule rule = {.pattern = hd_strndup(a, item, (size_t)(equals - item))};
    if (!*rule.pattern) return reject(d, "a weight type without a pattern", item);
    if (!parse_dtype(a, d, equals + 1, &rule.dtype)) return false;
    for (size_t i = 0; i < out->rules.n; i++)
        if (strcmp(out->rules.at[i].pattern, rule.pattern) == 0 &&
            out->rules.at[i].dtype != rule.dtype) {
            hd_err(d, HD_E_USAGE, HD_NOWHERE, "the weights \"%s\" are to be both %s and %s",
                   rule.pattern, hir_dtype_name(out->rules.at[i].dtype),
                   hir_dtype_name(rule.dtype));
            return false;
        }
    hd_push(a, &out->rules, rule);
    return true;
}

bool hir_parse_weight_types(hd_arena *a, hd_diags *d, const char *text, hir_weight_types *out) {
    *out = (hir_weight_types){.matrices = HIR_F32};
    if (!text) return true;
    bool has_default = false;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        const char *item = hd_strndup(a, at, n), *equals = strrchr(item, '=');
        if (!*item) return reject(d, "an empty item among the weight types", text);
        if (equals) {
            if (!add_rule(a, d, item, equals, out)) return false;
        } else if (has_default) {
            return reject(d, "two types for all matrices", text);
        } else {
            if (!parse_dtype(a, d, item, &out->matrices)) return false;
            has_default = out->given = true;
        }
        at += n;
        if (!*at) return true;
    }
}
