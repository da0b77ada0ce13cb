/* Translation of Oniguruma's syntax (in Ruby's flavour, which the tokenizers library uses) to
 * PCRE2's.
 *
 * Most of the two is the same. The differences are written out: \s, \w, \d and \h are sets of their
 * own; classes may contain classes and intersections ([a&&[^b]]); (?m) lets the dot match newlines;
 * a bare (?i) reaches to the end of its group, alternatives included; {1,3}+ is a repetition of a
 * repetition and not possessive; \p{Han} is the script, not the script extensions. Unknown syntax
 * is rejected. Reference: doc/RE of Oniguruma 6.9; pcre2pattern(3). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "text/pattern.h"

enum { MOST_NESTED = 100 };

typedef struct translation {
    hd_arena *arena;
    const char *in;
    hd_text out;
    const char *why; /* not NULL: the reason why the pattern is rejected */
    int depth;
} translation;

static bool reject(translation *t, const char *why) {
    if (!t->why) t->why = why;
    return false;
}

/* Outside of classes Oniguruma also counts superscripts and fractions of Latin-1 among the
 * characters of words. */
#define WORD         "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_OUTSIDE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* Sets of characters by their letter, as content of a class. The complement of a set has the same
 * letter in upper case. */
static const struct {
    char letter;
    const char *set, *complement; /* NULL: it can only be written [^set] */
} sets[] = {
    {'s', "\\p{White_Space}", "\\P{White_Space}"},
    {'d', "\\p{Nd}", "\\P{Nd}"},
    {'w', WORD, NULL},
    {'h', "0-9A-Fa-f", NULL},
};

/* ---- single characters ----------------------------------------------------------------------- */

static size_t character_bytes(const char *p) {
    return (size_t)hd_utf8(p, strlen(p)); /* patterns come from JSON, which is UTF-8 */
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Appends a character in such a way that it stands for itself wherever it is put. */
static void add_character(hd_text *out, uint32_t code) {
    char bytes[4];
    if (code < 0x20 || code == 0x7f)
        hd_text_f(out, "\\x{%x}", code);
    else if (code < 0x80)
        hd_text_f(out, is_word((char)code) ? "%c" : "\\%c", (int)code);
    else
        hd_text_add_n(out, bytes, hd_utf8_put(code, bytes));
}

static int hex_digit(char c) {
    const char *digits = "0123456789abcdef",
               *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool read_hex(translation *t, int least, int most, uint32_t *code) {
    int n = 0;
    for (*code = 0; n < most && hex_digit(*t->in) >= 0; n++)
        *code = *code << 4 | (uint32_t)hex_digit(*t->in++);
    return n >= least && *code <= 0x10ffff ? true
                                           : reject(t, "it has a character code that is none");
}

/* Reads a character given by its code, at the letter after a backslash. Returns false if there is
 * none there; `why` is set if the code is wrong. */
static bool read_code(translation *t, uint32_t *code) {
    static const char letters[] = "tnrfvae", codes[] = "\t\n\r\f\v\a\x1b";
    const char c = *t->in, *at = c ? strchr(letters, c) : NULL;
    if (at) {
        t->in++;
        *code = (uint32_t)codes[at - letters];
        return true;
    }
    if (c != 'x' && c != 'u') return false;
    t->in++;
    if (c == 'u') return read_hex(t, 4, 4, code);
    if (*t->in != '{') return read_hex(t, 1, 2, code);
    t->in++;
    if (!read_hex(t, 1, 6, code)) return false;
    return *t->in++ == '}' ? true : reject(t, "a \\x{..} does not end");
}

/* ---- properties ------------------------------------------------------------------------------ */

static bool compiles(const char *text) {
    int code;
    size_t at;
    pcre2_code *p =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(p);
    return p != NULL;
}

/* Translates {Name} or {^Name}, after \p or \P. */
static bool add_property(translation *t, bool negated, hd_text *out) {
    char name[48] = "";
    if (*t->in != '{') return reject(t, "a \\p is not followed by {Name}");
    t->in++;
    if (*t->in == '^') negated = !negated, t->in++;
    const size_t n = strspn(t->in, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
    if (n == 0 || n >= sizeof name || t->in[n] != '}')
        return reject(t, "the name of a property is none");
    memcpy(name, t->in, n);
    t->in += n + 1;
    const char *script = hd_printf(t->arena, "\\p{sc:%s}", name);
    const char *plain = hd_printf(t->arena, "\\p{%s}", name);
    const char *property = compiles(script) ? script : plain;
    if (!compiles(property))
        return reject(t, hd_printf(t->arena, "the property %s is not known", plain));
    hd_text_f(out, "\\%c%s", negated ? 'P' : 'p', property + 2);
    return true;
}

/* ---- classes --------------------------------------------------------------------------------- */

static bool add_class(translation *t, hd_text *out);

/* One operand of &&: what fits into one class of PCRE2, and the alternatives which must stand
 * alongside that class. */
typedef struct operand {
    hd_text flat, beside; /* beside: "|alternative|alternative" */
} operand;

/* Reads an escape in a class, after the backslash. If true is returned and *single is set, it is
 * the character *code. */
static bool class_escape(translation *t, operand *o, uint32_t *code, bool *single) {
    *single = true;
    if (*t->in == 'b') {
        t->in++;
        *code = '\b';
        return true;
    }
    if (read_code(t, code)) return true;
    if (t->why) return false;
    const char c = *t->in;
    if (c && !is_word(c)) {
        *code = hd_utf8_code(t->in);
        t->in += character_bytes(t->in);
        return true;
    }
    *single = false;
    t->in += c != 0;
    if (c == 'p' || c == 'P') return add_property(t, c == 'P', &o->flat);
    for (size_t i = 0; c && i < sizeof sets / sizeof *sets; i++) {
        if (c == sets[i].letter || (c + 32 == sets[i].letter && sets[i].complement)) {
            hd_text_add(&o->flat, c == sets[i].letter ? sets[i].set : sets[i].complement);
            return true;
        }
        if (c + 32 == sets[i].letter) {
            hd_text_f(&o->beside, "|[^%s]", sets[i].set);
            return true;
        }
    }
    return reject(t, hd_printf(t->arena, "\\%c in a class is not known", c ? c : ' '));
}

/* Reads a character of a class, escaped or not. */
static bool class_character(translation *t, operand *o, uint32_t *code, bool *single) {
    if (*t->in == '\\') {
        t->in++;
        return class_escape(t, o, code, single);
    }
    *single = true;
    *code = hd_utf8_code(t->in);
    t->in += character_bytes(t->in);
    return true;
}

static bool class_item(translation *t, operand *o) {
    uint32_t from, to;
    bool single;
    if (*t->in == '[') {
        if (t->in[1] == ':') return reject(t, "names of classes, [:name:], are not known");
        hd_text_add(&o->beside, "|");
        return add_class(t, &o->beside);
    }
    if (!class_character(t, o, &from, &single)) return false;
    if (!single) return true;
    add_character(&o->flat, from);
    if (t->in[0] != '-' || !t->in[1] || t->in[1] == ']' || t->in[1] == '[') return true;
    t->in++;
    if (!class_character(t, o, &to, &single)) return false;
    if (!single || to < from) return reject(t, "a range of characters is none");
    hd_text_add(&o->flat, "-");
    add_character(&o->flat, to);
    return true;
}

static bool is_flat(const operand *o) {
    return o->beside.n == 0;
}

static void add_operand(const operand *o, hd_text *out) {
    if (is_flat(o))
        hd_text_f(out, "[%s]", o->flat.at);
    else if (o->flat.n)
        hd_text_f(out, "(?:[%s]%s)", o->flat.at, o->beside.at);
    else
        hd_text_f(out, "(?:%s)", o->beside.at + 1);
}

/* Reads an operand, up to && or the end of the class. */
static bool read_operand(translation *t, operand *o) {
    hd_text_init(&o->flat, t->arena);
    hd_text_init(&o->beside, t->arena);
    while (*t->in != ']' && strncmp(t->in, "&&", 2) != 0) {
        if (!*t->in) return reject(t, "a class does not end");
        if (!class_item(t, o)) return false;
    }
    return o->flat.n || o->beside.n ? true : reject(t, "a class is empty");
}

/* The class is its last operand, preceded by a lookahead for each of the other operands. */
static bool class_content(translation *t, bool negated, hd_text *out) {
    operand o;
    hd_text ahead;
    hd_text_init(&ahead, t->arena);
    for (;;) {
        if (!read_operand(t, &o)) return false;
        if (*t->in == ']') break;
        t->in += 2;
        hd_text_add(&ahead, "(?=");
        add_operand(&o, &ahead);
        hd_text_add(&ahead, ")");
    }
    t->in++;
    if (!ahead.n && negated && is_flat(&o)) {
        hd_text_f(out, "[^%s]", o.flat.at);
        return true;
    }
    if (ahead.n || negated) hd_text_add(out, negated ? "(?:(?!" : "(?:");
    if (ahead.n) hd_text_add(out, ahead.at);
    add_operand(&o, out);
    if (ahead.n || negated) hd_text_add(out, negated ? ")(?s:.))" : ")");
    return true;
}

static bool add_class(translation *t, hd_text *out) {
    const bool negated = t->in[1] == '^';
    t->in += 1 + negated;
    if (++t->depth > MOST_NESTED) return reject(t, "it is nested too deeply");
    const bool ok = class_content(t, negated, out);
    t->depth--;
    return ok;
}

/* ---- everything else ------------------------------------------------------------------------- */

static bool add_alternatives(translation *t);

static bool add_escape(translation *t) {
    uint32_t code;
    const char c = *++t->in, small = (char)(c | 32);
    if (read_code(t, &code)) {
        add_character(&t->out, code);
        return true;
    }
    if (t->why) return false;
    if (!c) return reject(t, "it ends in a backslash");
    if (!is_word(c)) {
        add_character(&t->out, hd_utf8_code(t->in));
        t->in += character_bytes(t->in);
        return true;
    }
    t->in++;
    if (small == 'p') return add_property(t, c == 'P', &t->out);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (small == sets[i].letter) {
            hd_text_f(&t->out, "[%s%s]", c == small ? "" : "^",
                      small == 'w' ? WORD_OUTSIDE : sets[i].set);
            return true;
        }
    const char *word = WORD_OUTSIDE;
    if (c == 'b')
        hd_text_f(&t->out, "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))", word, word, word, word);
    else if (c == 'B')
        hd_text_f(&t->out, "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))", word, word, word, word);
    else if (c == 'A' || c == 'z' || c == 'Z')
        hd_text_f(&t->out, "\\%c", c);
    else
        return reject(t, hd_printf(t->arena, "\\%c is not known", c));
    return true;
}

/* Translates options after "(?", up to ":" or ")". (?m) of Ruby is (?s) of PCRE2. */
static bool add_options(translation *t) {
    hd_text_add(&t->out, "(?");
    for (; *t->in && strchr("im-", *t->in); t->in++)
        hd_text_add_n(&t->out, *t->in == 'm' ? "s" : t->in, 1);
    hd_text_add(&t->out, ":");
    if (*t->in == ':') {
        t->in++;
    } else if (*t->in == ')') { /* the options hold for the rest of the enclosing group */
        t->in++;
        if (!add_alternatives(t)) return false;
        hd_text_add(&t->out, ")");
        return true;
    } else {
        return reject(t, "a group of this kind is not known");
    }
    if (!add_alternatives(t)) return false;
    if (*t->in++ != ')') return reject(t, "a group does not end");
    hd_text_add(&t->out, ")");
    return true;
}

static bool add_group(translation *t) {
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    size_t k = 0, n = 0;
    while (k < sizeof kinds / sizeof *kinds && strncmp(t->in, kinds[k], strlen(kinds[k])) != 0)
        k++;
    if (k < sizeof kinds / sizeof *kinds) {
        n = strlen(kinds[k]);
    } else if (t->in[1] == '?') {
        t->in += 2;
        return add_options(t);
    } else { /* a group need not capture where nothing refers to it */
        n = 1, k = 0;
    }
    t->in += n;
    hd_text_add(&t->out, kinds[k]);
    if (!add_alternatives(t)) return false;
    if (*t->in++ != ')') return reject(t, "a group does not end");
    hd_text_add(&t->out, ")");
    return true;
}

/* Reads {n}, {n,}, {,m} or {n,m}. Returns false if the brace at t->in begins none of these and
 * stands for itself. */
static bool read_interval(translation *t, char *out, size_t size, bool *exact) {
    const char *p = t->in + 1;
    const size_t least = strspn(p, "0123456789");
    const bool comma = p[least] == ',';
    const char *second = p + least + comma;
    const size_t most = comma ? strspn(second, "0123456789") : 0;
    if (second[most] != '}' || least + most == 0 || least > 5 || most > 5) return false;
    snprintf(out, size, "{%.*s%s%.*s}", least ? (int)least : 1, least ? p : "0", comma ? "," : "",
             (int)most, second);
    *exact = !comma;
    t->in = second + most + 1;
    return true;
}

static void insert(hd_text *out, size_t at, const char *what) {
    const size_t n = strlen(what), tail = out->n - at;
    hd_text_add_n(out, what, n);
    memmove(out->at + at + n, out->at + at, tail);
    memcpy(out->at + at, what, n);
}

/* Translates a quantifier of the atom that begins at `atom`. Where a second quantifier follows, its
 * atom is the first quantifier with the atom of that one. */
static bool add_quantifier(translation *t, size_t atom, bool *quantified) {
    char text[32];
    bool exact = false;
    if (atom == SIZE_MAX) return reject(t, "a quantifier has nothing to repeat");
    const bool interval = *t->in == '{';
    if (interval)
        (void)read_interval(t, text, sizeof text, &exact);
    else
        snprintf(text, sizeof text, "%c", *t->in++);
    if (*quantified) {
        insert(&t->out, atom, "(?:");
        hd_text_add(&t->out, ")");
    }
    hd_text_add(&t->out, text);
    *quantified = true;
    /* in Ruby {n}? means (?:..{n})?, and {..}+ repeats the repetition */
    if (interval ? *t->in == '?' && !exact : *t->in == '?' || *t->in == '+')
        hd_text_add_n(&t->out, t->in++, 1);
    return true;
}

static bool is_quantifier(translation *t) {
    char text[32];
    bool exact;
    if (*t->in == '*' || *t->in == '+' || *t->in == '?') return true;
    translation here = *t;
    return *t->in == '{' && read_interval(&here, text, sizeof text, &exact);
}

static bool add_atom(translation *t) {
    if (*t->in == '(') return add_group(t);
    if (*t->in == '[') return add_class(t, &t->out);
    if (*t->in == '\\') return add_escape(t);
    if (strchr(".^$", *t->in)) {
        hd_text_add_n(&t->out, t->in++, 1);
        return true;
    }
    add_character(&t->out, hd_utf8_code(t->in));
    t->in += character_bytes(t->in);
    return true;
}

/* Translates up to the end of the pattern, or to the parenthesis that ends the group. */
static bool add_alternatives(translation *t) {
    size_t atom = SIZE_MAX;
    bool quantified = false, ok = ++t->depth <= MOST_NESTED || reject(t, "it is nested too deeply");
    while (ok && *t->in && *t->in != ')') {
        if (*t->in == '|') {
            hd_text_add_n(&t->out, t->in++, 1);
            atom = SIZE_MAX;
        } else if (is_quantifier(t)) {
            ok = add_quantifier(t, atom, &quantified);
        } else {
            atom = t->out.n;
            quantified = false;
            ok = add_atom(t);
        }
    }
    t->depth--;
    return ok;
}

const char *pattern_translate(hd_arena *a, const char *text, const char **why) {
    translation t = {.arena = a, .in = text};
    hd_text_init(&t.out, a);
    bool ok = add_alternatives(&t);
    if (ok && *t.in) ok = reject(&t, "a parenthesis ends nothing");
    *why = t.why;
    return ok ? t.out.at ? t.out.at : "" : NULL;
}
