/* The values of the options of a compilation, and their text in reports. */
#include "ir/compile_options.h"

#include <stdlib.h>
#include <string.h>

typedef enum option_type { TEXT, DTYPE, STATE_DTYPE, WORD, NUMBER, TILES, BYTES } option_type;

/* clang-format off */
#define TYPE_TEXT(missing)                .type = TEXT, .text = (missing)
#define TYPE_DTYPE(rejection)               .type = DTYPE, .text = (rejection)
#define TYPE_STATE_DTYPE(rejection)         .type = STATE_DTYPE, .text = (rejection)
#define TYPE_WORD(rejection)                .type = WORD, .text = (rejection)
#define TYPE_NUMBER(least_, most_, missing_) .type = NUMBER, .least = (least_), .most = (most_), .missing = (missing_)
#define TYPE_TILES                        .type = TILES
#define TYPE_BYTES                        .type = BYTES
#define INFO(place_, key_, when)          .place = (place_), .key = (key_)
#define NOT_IN_INFO                       .place = 0
static const struct {
    const char *name, *argument;
    size_t offset; /* of the member */
    option_type type;
    const char *text; /* what an absent text reads as; what precedes a rejected one */
    int64_t least, most, missing;
    int place; /* in info; 0: none */
    const char *key;
} options[HIR_OPTIONS] = {
#define P(id, member, name, group, type, argument, commands, info, ...) \
    {name, argument, offsetof(hir_compile_options, member), TYPE_##type, info},
#include "support/compile_options.def"
#undef P
};
/* clang-format on */
#undef INFO
#undef NOT_IN_INFO

const hir_compile_options hir_default_options = {
#define MISSING_TEXT(missing)    NULL
#define MISSING_DTYPE(rejection) HIR_F32
#define MISSING_STATE_DTYPE(rejection)                                                             \
    { false, HIR_F32 }
#define MISSING_WORD(rejection)               0
#define MISSING_NUMBER(least, most, missing)  missing
#define MISSING_TILES                         HIR_OVERLAP_AUTO
#define MISSING_BYTES                         0
#define P(id, member, name, group, type, ...) .member = MISSING_##type,
#include "support/compile_options.def"
#undef P
};

const char *hir_compile_option_name(hir_compile_option id) {
    return options[id].name;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Finds the next word of "dots|row"; false: there is none left. */
static bool next_word(const char **list, const char **word, size_t *n) {
    if (!**list) return false;
    *word = *list;
    *n = strcspn(*list, "|");
    *list += *n + ((*list)[*n] == '|');
    return true;
}

/* The number of a word in such a list; -1: it is not one of them. */
static int word_number(const char *list, const char *text) {
    const char *word;
    size_t n;
    for (int i = 0; next_word(&list, &word, &n); i++)
        if (strlen(text) == n && strncmp(word, text, n) == 0) return i;
    return -1;
}

/* "f32, bf16 or f16". */
static const char *words_or(hd_arena *a, const char *list) {
    const char *word;
    size_t n;
    hd_text out;
    hd_text_init(&out, a);
    while (next_word(&list, &word, &n)) {
        if (out.n) hd_text_add(&out, *list ? ", " : " or ");
        hd_text_add_n(&out, word, n);
    }
    return out.at;
}

static bool read_word(hir_compile_option id, const char *text, int *out, hd_diags *d) {
    const char *list = options[id].argument;
    *out = word_number(list, text);
    if (*out >= 0) return true;
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "%s \"%s\"", options[id].text, text)->hint =
        words_or(d->arena, list);
    return false;
}

static bool read_dtype(hir_compile_option id, const char *text, hir_dtype *out, hd_diags *d) {
    int word;
    return read_word(id, text, &word, d) && hir_value_dtype_by_name(text, out);
}

static bool read_tiles(const char *text, int64_t *out, hd_diags *d) {
    char *end = NULL;
    *out = HIR_OVERLAP_AUTO;
    if (strcmp(text, "auto") == 0) return true;
    *out = HIR_OVERLAP_OFF;
    if (strcmp(text, "off") == 0) return true;
    const bool digit = *text >= '0' && *text <= '9';
    *out = digit ? strtoll(text, &end, 10) : 0;
    if (digit && !*end && *out >= 2 && *out <= HIR_MOST_TILES) return true;
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "collectives cannot overlap in \"%s\" tiles", text)->hint =
        hd_printf(d->arena, "auto, off, or 2 to %d", HIR_MOST_TILES);
    return false;
}

static bool read_bytes(hir_compile_option id, const char *text, int64_t *out, hd_diags *d) {
    const uint64_t bytes = hd_read_size(text, strlen(text));
    *out = bytes <= INT64_MAX ? (int64_t)bytes : 0;
    if (*out > 0) return true;
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "%s is a number of bytes, not \"%s\"", options[id].name, text)
        ->hint = "a whole number from 1 on; K, M and G may stand after it, as in 600M";
    return false;
}

bool hir_compile_option_read_text(hir_compile_options *o, hir_compile_option id, const char *text,
                                  hd_diags *d) {
    void *member = (char *)o + options[id].offset;
    const void *missing = (const char *)&hir_default_options + options[id].offset;
    switch (options[id].type) {
    case TEXT: *(const char **)member = text ? hd_strdup(d->arena, text) : NULL; return true;
    case DTYPE:
        *(hir_dtype *)member = *(const hir_dtype *)missing;
        return !text || read_dtype(id, text, member, d);
    case STATE_DTYPE: {
        hir_state_dtype *s = member;
        *s = (hir_state_dtype){.given = text != NULL};
        return !text || read_dtype(id, text, &s->dtype, d);
    }
    case WORD: *(int *)member = 0; return !text || read_word(id, text, member, d);
    case TILES: return read_tiles(text ? text : "auto", member, d);
    case BYTES: *(int64_t *)member = 0; return !text || read_bytes(id, text, member, d);
    case NUMBER: break;
    }
    return false;
}

bool hir_compile_option_read_number(hir_compile_options *o, hir_compile_option id, int64_t number,
                                    hd_diags *d) {
    int64_t *member = (int64_t *)((char *)o + options[id].offset);
    *member = number ? number : options[id].missing;
    if (*member >= options[id].least && *member <= options[id].most) return true;
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "%s is a number from %lld to %lld, not %lld",
           options[id].name, (long long)options[id].least, (long long)options[id].most,
           (long long)number);
    return false;
}

/* ---- their text in reports ------------------------------------------------------------------- */

static void print_word(hir_compile_option id, int number, hd_text *out) {
    const char *list = options[id].argument, *word = "";
    size_t n = 0;
    while (number-- >= 0 && next_word(&list, &word, &n)) {
    }
    hd_text_add_n(out, word, n);
}

void hir_compile_option_print(const hir_compile_options *o, hir_compile_option id, hd_text *out) {
    const void *member = (const char *)o + options[id].offset;
    switch (options[id].type) {
    case TEXT: {
        const char *text = *(const char *const *)member;
        hd_text_add(out, text ? text : options[id].text);
        break;
    }
    case DTYPE: hd_text_add(out, hir_dtype_name(*(const hir_dtype *)member)); break;
    case STATE_DTYPE:
        hd_text_add(out, hir_dtype_name(((const hir_state_dtype *)member)->dtype));
        break;
    case WORD: print_word(id, *(const int *)member, out); break;
    case TILES:
        if (*(const int64_t *)member <= HIR_OVERLAP_OFF) {
            hd_text_add(out, *(const int64_t *)member == HIR_OVERLAP_OFF ? "off" : "auto");
            break;
        }
        /* fall through */
    case BYTES: hd_text_add_size(out, *(const uint64_t *)member); break;
    case NUMBER: hd_text_f(out, "%lld", (long long)*(const int64_t *)member); break;
    }
}

static void print_string(const hir_compile_options *o, hir_compile_option id, hd_text *out) {
    hd_text text;
    hd_text_init(&text, out->arena);
    hir_compile_option_print(o, id, &text);
    hd_text_add_json(out, text.at);
}

void hir_options_print_info(const hir_compile_options *o, hd_text *out) {
#define INFO(place, key, when)                                          when
#define NOT_IN_INFO                                                     false
#define P(id, member, name, group, type, argument, commands, info, ...) info,
    const bool there[HIR_OPTIONS] = {
#include "support/compile_options.def"
    };
#undef P
    for (int place = 1, found = 1; found; place++) {
        found = 0;
        for (int i = 0; i < HIR_OPTIONS; i++) {
            if (options[i].place != place) continue;
            found = 1;
            if (!there[i]) continue;
            const option_type type = options[i].type;
            const bool number = type == NUMBER || type == TILES || type == BYTES;
            hd_text_f(out, ", \"%s\": ", options[i].key);
            if (number)
                hd_text_f(out, "%lld",
                          (long long)*(const int64_t *)((const char *)o + options[i].offset));
            else
                print_string(o, (hir_compile_option)i, out);
        }
    }
}

void hir_options_print_settings(const hir_compile_options *o, hd_text *out) {
#define P(id, member, name, group, type, argument, commands, info, shown, help) shown,
    const bool is_shown[HIR_OPTIONS] = {
#include "support/compile_options.def"
    };
#undef P
    const char *separator = "{";
    for (int i = 0; i < HIR_OPTIONS; i++) {
        if (!is_shown[i]) continue;
        hd_text_f(out, "%s\"%s\": ", separator, options[i].name);
        print_string(o, (hir_compile_option)i, out);
        separator = ", ";
    }
    hd_text_add(out, "}");
}
