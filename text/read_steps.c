/* The steps of a tokenizer.json: what all steps share, and the steps on texts. */
#include "text/read.h"

#include <string.h>

/* ---- what steps share ------------------------------------------------------------------------ */

bool read_choice(const field *f, const char *const *names, size_t n, size_t *out) {
    const char *text;
    if (!field_string(f, &text)) return false;
    for (*out = 0; *out < n; ++*out)
        if (strcmp(text, names[*out]) == 0) return true;
    hd_text all;
    hd_text_init(&all, f->json->arena);
    for (size_t i = 0; i < n; i++)
        hd_text_f(&all, "%s%s", i ? ", " : "", names[i]);
    field_error(f, HD_E_UNSUPPORTED, "%s is not known", hd_json_show(f->json->arena, f->value))
        ->hint = all.at;
    return false;
}

bool read_text(reader *r, const field *f, string *out) {
    const char *text;
    if (!field_string(f, &text)) return false;
    out->n = strlen(text);
    out->at = hd_strndup(r->arena, text, out->n);
    return true;
}

bool read_character(reader *r, const field *f, string *out) {
    if (!read_text(r, f, out)) return false;
    if (out->n && (size_t)hd_utf8(out->at, out->n) == out->n) return true;
    field_error(f, HD_E_FORMAT, "must be one character");
    return false;
}

bool read_pattern(reader *r, const field *f, const pattern **out) {
    if (!field_known(f, "String Regex")) return false;
    const field literal = field_get(f, "String"), regex = field_get(f, "Regex");
    const field *given = literal.value ? &literal : &regex;
    const char *text, *why = NULL;
    if (!field_string(given, &text)) return false;
    if (literal.value && regex.value) {
        field_error(&regex, HD_E_FORMAT, "a pattern is a String or a Regex");
        return false;
    }
    if (!*text) {
        field_error(given, HD_E_FORMAT, "is empty");
        return false;
    }
    *out = literal.value ? pattern_literal(r->arena, text) : pattern_regex(r->arena, text, &why);
    if (*out) return true;
    field_error(given, HD_E_UNSUPPORTED, "this pattern cannot be used: %s", why);
    return false;
}

static bool read_sequence(reader *r, const field *f, const step_kind *kinds, size_t n,
                          const char *members, read_step *read) {
    const field list = field_get(f, members);
    if (!field_known(f, hd_printf(r->arena, "type %s", members)) || !field_is_list(&list))
        return false;
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        const field member = field_element(&list, i);
        if (!field_is_object(&member) || !read_steps(r, &member, kinds, n, members, read))
            return false;
    }
    return true;
}

bool read_steps(reader *r, const field *f, const step_kind *kinds, size_t n, const char *members,
                read_step *read) {
    if (field_is_null(f)) return true;
    if (!field_is_object(f)) return false;
    const field type = field_get(f, "type");
    const char *name = json_string_value(type.value);
    if (name && strcmp(name, "Sequence") == 0) return read_sequence(r, f, kinds, n, members, read);
    const char **names = hd_new_array(r->arena, const char *, n);
    for (size_t i = 0; i < n; i++)
        names[i] = kinds[i].type;
    size_t kind;
    return read_choice(&type, names, n, &kind) &&
           field_known(f, hd_printf(r->arena, "type %s", kinds[kind].fields)) && read(r, f, kind);
}

/* Files of older versions have add_prefix_space in place of prepend_scheme, and str_rep, which
 * repeats the replacement. */
bool read_metaspace(reader *r, const field *f, string *replacement, prepend_scheme *scheme,
                    bool *split) {
    static const char *const schemes[] = {"always", "first", "never"};
    const field by = field_get(f, "replacement"), how = field_get(f, "prepend_scheme"),
                old = field_get(f, "add_prefix_space");
    size_t choice = PREPEND_ALWAYS;
    bool prefix = true;
    if (!read_character(r, &by, replacement) || !field_optional_bool(f, "split", split) ||
        !field_optional_bool(f, "add_prefix_space", &prefix))
        return false;
    if (!field_is_null(&how) && !read_choice(&how, schemes, 3, &choice)) return false;
    if (field_is_null(&how) && !prefix) choice = PREPEND_NEVER;
    *scheme = (prepend_scheme)choice;
    if (prefix || choice == PREPEND_NEVER) return true;
    field_error(&old, HD_E_FORMAT, "contradicts prepend_scheme");
    return false;
}

/* ---- normalizers ----------------------------------------------------------------------------- */

static bool read_normalizer(reader *r, const field *f, size_t kind) {
    normalizer n = {.kind = (normalizer_kind)kind, .left = true, .right = true};
    const field content = field_get(f, kind == NORMALIZER_PREPEND ? "prepend" : "content"),
                pattern = field_get(f, "pattern");
    const bool has_content = kind == NORMALIZER_PREPEND || kind == NORMALIZER_REPLACE;
    if (has_content && !read_text(r, &content, &n.content)) return false;
    if (kind == NORMALIZER_REPLACE && !read_pattern(r, &pattern, &n.pattern)) return false;
    if (kind == NORMALIZER_STRIP && (!field_optional_bool(f, "strip_left", &n.left) ||
                                     !field_optional_bool(f, "strip_right", &n.right)))
        return false;
    hd_push(r->arena, &r->t->normalizers, n);
    return true;
}

bool read_normalizers(reader *r, const field *f) {
    static const step_kind kinds[] = {
#define NORMALIZER(id, type, fields) {type, fields},
#include "text/kinds.def"
    };
    return read_steps(r, f, kinds, NORMALIZER_KINDS, "normalizers", read_normalizer);
}

/* ---- splitters ------------------------------------------------------------------------------- */

/* The set \w of Rust's regular expressions, which this step uses. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}"

/* The pattern of GPT-2: contractions, words, numbers, and the rest, each with the space before
 * it. */
static const char byte_level_pattern[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool own_pattern(reader *r, const field *f, splitter *s, const char *text, behaviour b) {
    const char *why = NULL;
    s->pattern = pattern_regex(r->arena, text, &why);
    s->behaviour = b;
    if (!s->pattern) field_error(f, HD_E_INTERNAL, "its pattern cannot be used: %s", why);
    return s->pattern != NULL;
}

static bool read_behaviour(const field *f, behaviour *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    size_t choice;
    if (!read_choice(f, names, 5, &choice)) return false;
    *out = (behaviour)choice;
    return true;
}

static bool read_split(reader *r, const field *f, splitter *s) {
    const field pattern = field_get(f, "pattern"), how = field_get(f, "behavior");
    return read_pattern(r, &pattern, &s->pattern) && read_behaviour(&how, &s->behaviour) &&
           field_optional_bool(f, "invert", &s->invert);
}

static bool read_byte_level(reader *r, const field *f, splitter *s) {
    bool trim = true, regex = true;
    s->add_prefix_space = true;
    return field_optional_bool(f, "add_prefix_space", &s->add_prefix_space) &&
           field_optional_bool(f, "trim_offsets", &trim) &&
           field_optional_bool(f, "use_regex", &regex) &&
           (!regex || own_pattern(r, f, s, byte_level_pattern, ISOLATED));
}

static bool read_spaces(reader *r, const field *f, splitter *s) {
    bool apart = true;
    if (!read_metaspace(r, f, &s->replacement, &s->scheme, &apart)) return false;
    if (apart) s->pattern = pattern_literal(r->arena, s->replacement.at);
    s->behaviour = MERGED_WITH_NEXT;
    return true;
}

static bool read_digits(reader *r, const field *f, splitter *s) {
    bool each = false;
    return field_optional_bool(f, "individual_digits", &each) &&
           own_pattern(r, f, s, "\\p{N}", each ? ISOLATED : CONTIGUOUS);
}

static bool read_punctuation(reader *r, const field *f, splitter *s) {
    const field how = field_get(f, "behavior");
    return own_pattern(r, f, s, "[!-/:-@\\[-`{-~\\p{P}]", ISOLATED) &&
           (field_is_null(&how) || read_behaviour(&how, &s->behaviour));
}

static bool read_splitter(reader *r, const field *f, size_t kind) {
    splitter s = {.kind = (splitter_kind)kind};
    bool ok = true;
    switch (s.kind) {
    case SPLITTER_SPLIT: ok = read_split(r, f, &s); break;
    case SPLITTER_BYTE_LEVEL: ok = read_byte_level(r, f, &s); break;
    case SPLITTER_METASPACE: ok = read_spaces(r, f, &s); break;
    case SPLITTER_DIGITS: ok = read_digits(r, f, &s); break;
    case SPLITTER_PUNCTUATION: ok = read_punctuation(r, f, &s); break;
    case SPLITTER_WHITESPACE:
        s.invert = true;
        ok = own_pattern(r, f, &s, "[" WORD "]+|[^" WORD "\\s]+", REMOVED);
        break;
    case SPLITTER_WHITESPACE_SPLIT: ok = own_pattern(r, f, &s, "\\s", REMOVED); break;
    case SPLITTER_KINDS: ok = false;
    }
    if (ok) hd_push(r->arena, &r->t->splitters, s);
    return ok;
}

bool read_splitters(reader *r, const field *f) {
    static const step_kind kinds[] = {
#define SPLITTER(id, type, fields) {type, fields},
#include "text/kinds.def"
    };
    return read_steps(r, f, kinds, SPLITTER_KINDS, "pretokenizers", read_splitter);
}
