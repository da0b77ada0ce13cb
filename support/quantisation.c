/* Matches names of modules with the patterns of configs (quantisation.h). */
#include "support/quantisation.h"

#include <ctype.h>
#include <regex.h>
#include <string.h>

enum { MAX_PATTERN = 1000 }; /* bytes of a regular expression from a file */

const char *hd_packing_name(hd_packing p) {
    static const char *const names[] = {
#define P(id, name, ...) name,
        HD_PACKINGS(P)
#undef P
    };
    return names[p];
}

/* ---- regular expressions -----------------------------------------------------------------------
 *
 * Configs use Python's syntax. The part that POSIX extended expressions have as well is translated;
 * the rest is rejected: look-around and back references, which have no equivalent there, and
 * counts, by which a few bytes of a file could demand any amount of memory. */

static bool is_escape(char c, const char **class) {
    static const struct {
        char letter;
        const char *class;
    } classes[] = {{'d', "0-9"}, {'w', "A-Za-z0-9_"}, {'s', " \t"}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].letter == c) {
            *class = classes[i].class;
            return true;
        }
    return false;
}

/* Translates an escape at p[0] = '\\'; NULL: it is not a known escape. POSIX has no escapes inside
 * brackets, and a backslash before a character that needs none has another meaning in the C
 * library. */
static const char *translate_escape(hd_text *out, const char *p, bool in_class) {
    const char *class;
    if (is_escape(p[1], &class))
        hd_text_f(out, in_class ? "%s" : "[%s]", class);
    else if (!ispunct((unsigned char)p[1]) || (in_class && strchr("[]^-\\", p[1])))
        return NULL;
    else
        hd_text_f(out, !in_class && strchr(".[]()*+?{}|^$\\", p[1]) ? "\\%c" : "%c", p[1]);
    return p + 2;
}

/* Translates one character, escape or bracket outside of classes; NULL, with the reason in *why, if
 * it is rejected. */
static const char *translate_one(hd_text *out, const char *p, const char **why) {
    if (*p == '\\') {
        p = translate_escape(out, p, false);
        if (!p) *why = "an escape that is not known here";
        return p;
    }
    if (strncmp(p, "(?:", 3) == 0) {
        hd_text_add(out, "(");
        return p + 3;
    }
    if (*p == '{' || strncmp(p, "(?", 2) == 0) {
        *why = *p == '{' ? "a count in braces" : "a group that looks around or has options";
        return NULL;
    }
    if (strchr("*+?", *p) && (p[1] == '?' || p[1] == '+')) {
        hd_text_f(out, "%c", *p); /* lazy or possessive: ... */
        if (p[1] == '?') return p + 2;
        *why = "a possessive repetition"; /* ... only lazy ones match the same texts */
        return NULL;
    }
    hd_text_f(out, "%c", *p);
    return p + 1;
}

/* Translates a bracket expression; p points at its '['. */
static const char *translate_class(hd_text *out, const char *p, const char **why) {
    hd_text_add(out, "[");
    p++;
    if (*p == '^') hd_text_f(out, "%c", *p++);
    for (bool first = true; *p && (first || *p != ']'); first = false) {
        if (*p != '\\' && *p != '[') {
            hd_text_f(out, "%c", *p++);
            continue;
        }
        p = *p == '\\' ? translate_escape(out, p, true) : NULL;
        if (!p) {
            *why = "a bracket expression that is not known here";
            return NULL;
        }
    }
    if (*p != ']') *why = "a bracket that is not closed";
    hd_text_add(out, "]");
    return *p == ']' ? p + 1 : NULL;
}

static void free_regex(void *what) {
    regfree(what);
}

static regex_t *compile(hd_arena *a, const char *pattern, const char **why) {
    hd_text out;
    hd_text_init(&out, a);
    hd_text_add(&out, "^("); /* like Python's match(), anchored at the beginning only */
    if (strlen(pattern) > MAX_PATTERN) {
        *why = "more than 1000 bytes";
        return NULL;
    }
    for (const char *p = pattern; *p;) {
        p = *p == '[' ? translate_class(&out, p, why) : translate_one(&out, p, why);
        if (!p) return NULL;
    }
    hd_text_add(&out, ")");
    regex_t *regex = hd_new(a, regex_t);
    if (regcomp(regex, out.at, REG_EXTENDED | REG_NOSUB) != 0) {
        *why = "something that is no regular expression";
        return NULL;
    }
    hd_arena_defer(a, free_regex, regex);
    return regex;
}

/* ---- patterns ------------------------------------------------------------------------------- */

/* Is it the name of a class, such as "Linear"? It begins with an upper-case letter and has no dots.
 */
static bool is_class(const char *text) {
    return isupper((unsigned char)*text) && !strpbrk(text, ".*");
}

bool hd_add_modules(hd_arena *a, hd_module_list *l, const char *text, const char **why) {
    hd_modules m = {.text = hd_strdup(a, text), .all = is_class(text)};
    if (strncmp(text, "re:", 3) == 0) {
        m.regex = compile(a, text + 3, why);
        if (!m.regex) return false;
    }
    hd_push(a, &l->list, m);
    return true;
}

/* Glob match; `*` matches any characters. Backtracking to the last `*` is enough, since an earlier
 * `*` can always match the shortest text that works. */
static bool matches_glob(const char *pattern, const char *text, size_t n) {
    const char *end = text + n, *star = NULL, *from = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = ++pattern, from = text;
        } else if (*pattern == *text) {
            pattern++, text++;
        } else if (star) {
            pattern = star, text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* Does the pattern match the whole name, or some of its first or last components? */
static bool names(const char *pattern, const char *module) {
    const size_t n = strlen(module);
    if (matches_glob(pattern, module, n)) return true;
    for (const char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.'))
        if (matches_glob(pattern, module, (size_t)(dot - module)) ||
            matches_glob(pattern, dot + 1, strlen(dot + 1)))
            return true;
    return false;
}

/* How specifically a pattern matches a module: by its name, by a regular expression, by its class.
 */
typedef enum closeness { BY_NAME, BY_REGEX, BY_CLASS, NOT_AT_ALL } closeness;

static closeness speaks_of(const hd_modules *m, const char *module) {
    if (m->all) return BY_CLASS;
    if (m->regex) return regexec(m->regex, module, 0, NULL, 0) == 0 ? BY_REGEX : NOT_AT_ALL;
    return names(m->text, module) ? BY_NAME : NOT_AT_ALL;
}

const hd_modules *hd_find_modules(const hd_module_list *l, const char *module) {
    for (size_t i = 0; i < l->list.n; i++)
        if (speaks_of(&l->list.at[i], module) < BY_CLASS) return &l->list.at[i];
    return NULL;
}

/* The most specific of a group's targets that match the module; of equally specific ones the first
 * in the alphabet, as in compressed-tensors. A group without targets matches every module. */
static closeness target_of(const hd_quant_group *g, const char *module, const char **text) {
    closeness best = g->targets_known && g->targets.list.n > 0 ? NOT_AT_ALL : BY_CLASS;
    *text = "";
    for (size_t i = 0; i < g->targets.list.n; i++) {
        const hd_modules *m = &g->targets.list.at[i];
        const closeness c = speaks_of(m, module);
        if (c < best || (c == best && c != NOT_AT_ALL && strcmp(m->text, *text) < 0))
            best = c, *text = m->text;
    }
    return best;
}

const hd_quant_group *hd_find_group(const hd_quantisation *q, hd_packing packing,
                                    const char *module) {
    const hd_quant_group *found = NULL;
    const char *found_text = "", *text;
    closeness best = NOT_AT_ALL;
    for (size_t i = 0; i < q->groups.n; i++) {
        const hd_quant_group *g = &q->groups.at[i];
        if (g->packing != packing) continue;
        const closeness c = target_of(g, module, &text);
        if (c < best || (found && c == best && strcmp(text, found_text) < 0))
            found = g, best = c, found_text = text;
    }
    return found;
}
