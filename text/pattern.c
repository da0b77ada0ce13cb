/* Searching for patterns, by PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>
#include <string.h>

enum {
    MATCH_LIMIT = 20 << 20, /* steps of backtracking at one start: 0.1 s */
    HEAP_LIMIT = 256 << 10, /* KiB */
    JIT_STACK = 8 << 20,
};

struct pattern {
    pcre2_code *code;    /* NULL: the pattern is a literal string, */
    const char *literal; /* namely this one */
    size_t n;
};

struct search {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static void free_code(void *what) {
    pcre2_code_free(((pattern *)what)->code);
}

static const char *message(hd_arena *a, int code) {
    PCRE2_UCHAR text[128] = "";
    pcre2_get_error_message(code, text, sizeof text);
    return hd_strdup(a, (const char *)text);
}

pattern *pattern_regex(hd_arena *a, const char *text, const char **why) {
    const char *translated = pattern_translate(a, text, why);
    if (!translated) return NULL;
    pattern *p = hd_new(a, pattern);
    hd_arena_defer(a, free_code, p);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int code = 0;
    size_t at = 0;
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        p->code = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, options, &code, &at,
                                context);
        pcre2_compile_context_free(context);
    }
    if (!p->code) {
        *why = context ? message(a, code) : "there is no memory for it";
        return NULL;
    }
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    return p;
}

pattern *pattern_literal(hd_arena *a, const char *text) {
    pattern *p = hd_new(a, pattern);
    *p = (pattern){.literal = hd_strdup(a, text), .n = strlen(text)};
    return p;
}

static void free_search(void *what) {
    search *s = what;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
}

search *search_new(hd_arena *a) {
    search *s = hd_new(a, search);
    hd_arena_defer(a, free_search, s);
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK, NULL);
    if (!s->context) return s;
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    pcre2_set_heap_limit(s->context, HEAP_LIMIT);
    if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s;
}

static found find_regex(const pattern *p, search *s, const char *text, size_t n, size_t from,
                        span *out) {
    if (!s->data || !s->context) return FOUND_LIMIT;
    const int code =
        pcre2_match(p->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, s->data, s->context);
    if (code == PCRE2_ERROR_NOMATCH) return NOT_FOUND;
    if (code < 0) return FOUND_LIMIT;
    const size_t *at = pcre2_get_ovector_pointer(s->data);
    *out = (span){at[0], at[1]};
    return FOUND;
}

static found find_literal(const pattern *p, const char *text, size_t n, size_t from, span *out) {
    const char *at = memmem(text + from, n - from, p->literal, p->n);
    if (!at) return NOT_FOUND;
    *out = (span){(size_t)(at - text), (size_t)(at - text) + p->n};
    return FOUND;
}

found pattern_next(const pattern *p, search *s, const char *text, size_t n, matches *state,
                   span *out) {
    while (state->at <= n) {
        const found f = p->code ? find_regex(p, s, text, n, state->at, out)
                                : find_literal(p, text, n, state->at, out);
        if (f != FOUND) return f;
        if (out->from == out->to && state->any && out->to == state->last_end) {
            state->at += state->at < n ? (size_t)hd_utf8(text + state->at, n - state->at) : 1;
            continue;
        }
        state->at = state->last_end = out->to;
        state->any = true;
        return FOUND;
    }
    return NOT_FOUND;
}
