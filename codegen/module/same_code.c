/* Functions whose code two levels have in common (same_code.h).
 *
 * A level that adds instructions which only some kernels use repeats all others: with matrices in
 * f32, half of what LLVM is given for level amx is what it is given for level avx512. Before code is
 * made, the functions of such levels are built once without being translated, and their texts are
 * compared: building takes some hundredths of the time of translating. */
#include "codegen/module/same_code.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/module/module.h"
#include "support/workers.h"

typedef struct function {
    const char *name; /* without the level */
    const char *text; /* without levels; NULL: no other level may have it */
    HD_VEC(const char *) calls;
} function;

typedef struct level_code {
    const hcg_variant *variant;
    hd_arena *arena;
    HD_VEC(function) functions; /* in the order of their names */
    bool done;
} level_code;

typedef struct work {
    hcg_program *p;
    const hcg_target *t;
    level_code *levels;
    size_t n;
} work;

/* ---- texts ----------------------------------------------------------------------------------- */
static bool in_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.';
}

/* What the instructions that a level adds could make faster, whatever the level: LLVM may choose
 * them for products of small integers and for bf16. */
static bool may_gain(const char *text) {
    return strstr(text, "bfloat") || strstr(text, " x i16>") || strstr(text, " x i8>");
}

/* Copies a function's text without the level in its symbols, places in the source, and the number
 * of its attributes. */
static const char *without_level(hd_arena *a, const char *text, const char *suffix, function *f) {
    const size_t n = strlen(suffix);
    char *out = hd_new_array(a, char, strlen(text) + 1), *to = out;
    for (const char *from = text; *from;) {
        if (*from == '#') {
            from++;
            while (*from >= '0' && *from <= '9')
                from++;
        } else if (*from == '@') {
            const char *end = from + 1;
            while (in_name(*end))
                end++;
            size_t length = (size_t)(end - from);
            if (length > n && strncmp(end - n, suffix, n) == 0) {
                length -= n;
                const char *called = hd_strndup(a, from + 1, length - 1);
                if (f->name && strcmp(called, f->name) != 0) hd_push(a, &f->calls, called);
            }
            memcpy(to, from, length);
            to += length;
            from = end;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    return out;
}

static void take_function(level_code *l, LLVMValueRef fn, const char *suffix) {
    hd_arena *a = l->arena;
    size_t n, m = strlen(suffix);
    const char *symbol = LLVMGetValueName2(fn, &n);
    if (n <= m || strcmp(symbol + n - m, suffix) != 0) return;
    function f = {.name = hd_strndup(a, symbol, n - m)};
    char *text = LLVMPrintValueToString(fn);
    f.text = may_gain(text) ? NULL : without_level(a, text, suffix, &f);
    LLVMDisposeMessage(text);
    hd_push(a, &l->functions, f);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const function *)a)->name, ((const function *)b)->name);
}

static const function *find(const level_code *l, const char *name) {
    const function key = {.name = name};
    return l->functions.n ? bsearch(&key, l->functions.at, l->functions.n, sizeof key, by_name)
                          : NULL;
}

static bool build_level(work *w, level_code *l) {
    hd_diags d;
    hd_diags_init(&d, l->arena);
    hcg_llvm *llvm = hcg_llvm_new(l->arena, &d, w->t, w->p->m->name, LLVMCodeGenLevelLess);
    if (!llvm) return false;
    const hcg_unit unit = {.variant = l->variant, .n = w->p->kernels.n, .no_lines = true};
    LLVMValueRef *functions = hd_new_array(l->arena, LLVMValueRef, unit.n + 1);
    hcg_scratch_needs scratch = {0};
    const bool ok = hcg_emit_unit(w->p, llvm, l->arena, &unit, functions, &scratch);
    char *suffix = hd_printf(l->arena, "_%s", l->variant->level.name);
    for (char *c = suffix; *c; c++)
        if (*c == '-') *c = '_';
    for (LLVMValueRef f = ok ? LLVMGetFirstFunction(llvm->mod) : NULL; f;
         f = LLVMGetNextFunction(f))
        if (!LLVMIsDeclaration(f)) take_function(l, f, suffix);
    hcg_llvm_free(llvm);
    if (l->functions.n) qsort(l->functions.at, l->functions.n, sizeof(function), by_name);
    return ok;
}

/* A level that cannot be built has no code in common with others; its units say why. */
static void do_level(void *context, size_t worker, size_t item) {
    work *w = context;
    level_code *l = &w->levels[item];
    (void)worker;
    jmp_buf here;
    hd_arena_guard(l->arena, &here);
    if (setjmp(here)) return;
    l->done = build_level(w, l);
}

/* ---- what is in common ----------------------------------------------------------------------- */
static bool is_same(const level_code *b, const function *f) {
    const function *g = find(b, f->name);
    return f->text && g && g->text && strcmp(f->text, g->text) == 0;
}

/* Names of functions that level a has as b has them, and which call only such functions. */
static void compare(work *w, const level_code *a, const level_code *b, hcg_same_code *out) {
    const size_t n = a->functions.n;
    bool *same = hd_new_array(w->p->arena, bool, n + 1), changed = true;
    for (size_t i = 0; i < n; i++)
        same[i] = is_same(b, &a->functions.at[i]);
    while (changed) {
        changed = false;
        for (size_t i = 0; i < n; i++) {
            const function *f = &a->functions.at[i];
            for (size_t k = 0; same[i] && k < f->calls.n; k++) {
                const function *g = find(a, f->calls.at[k]);
                if (g && same[g - a->functions.at]) continue;
                same[i] = false, changed = true;
            }
        }
    }
    for (size_t i = 0; i < n; i++)
        if (same[i])
            hd_push(w->p->arena, &out->names, hd_strdup(w->p->arena, a->functions.at[i].name));
}

/* Does level a do all that b does, with the same vectors? */
static bool extends(const hcg_variant *a, const hcg_variant *b) {
    return a->level.lanes == b->level.lanes && a->level.registers == b->level.registers &&
           a->level.fma == b->level.fma && (b->features & ~a->features) == 0;
}

static void free_levels(void *what) {
    work *w = what;
    for (size_t i = 0; i < w->n; i++) {
        hd_arena_free(w->levels[i].arena);
        w->levels[i].arena = NULL;
    }
}

void hcg_find_same_code(hcg_program *p, hcg_target *t) {
    const size_t n = t->variants.n;
    bool any = false;
    for (size_t i = 0; i + 1 < n; i++)
        any |= extends(&t->variants.at[i], &t->variants.at[i + 1]);
    if (!any) return;
    work *w = hd_new(p->arena, work);
    *w = (work){p, t, hd_new_array(p->arena, level_code, n), 0};
    hd_arena_defer(p->arena, free_levels, w);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const bool first = i + 1 < n && extends(&t->variants.at[i], &t->variants.at[i + 1]);
        const bool last = i > 0 && extends(&t->variants.at[i - 1], &t->variants.at[i]);
        if (!first && !last) continue;
        w->levels[m] = (level_code){.variant = &t->variants.at[i], .arena = hd_arena_new()};
        if (w->levels[m].arena) w->n = ++m;
    }
    hcg_each_item(hcg_workers(p->options.threads), m, do_level, w);
    for (size_t i = m; i-- > 1;) { /* the level before it has what the last has in common */
        level_code *a = &w->levels[i - 1], *b = &w->levels[i];
        if (!a->done || !b->done || !extends(a->variant, b->variant)) continue;
        hcg_same_code *s = hd_new(p->arena, hcg_same_code);
        *s = (hcg_same_code){.as = b->variant};
        compare(w, a, b, s);
        ((hcg_variant *)a->variant)->same = s;
    }
    free_levels(w);
}
