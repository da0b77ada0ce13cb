/* Elements of statements: numbers, types, places, locations, attributes, operands, names. */
#include <math.h>
#include <string.h>

#include "ir/text/parser.h"
#include "ir/text/text.h"

/* ---- tokens -------------------------------------------------------------------------------- */
bool hir_parse_error(hir_parser *p, hd_error code, hd_loc loc, const char *hint, const char *format,
                     ...) {
    va_list args;
    va_start(args, format);
    const char *message = hd_vprintf(p->d->arena, format, args);
    va_end(args);
    hd_err(p->d, code, loc, "%s", message)->hint = hint;
    return false;
}

bool hir_too_many_errors(const hir_parser *p) {
    return p->d->errors - p->first_error >= p->error_limit;
}

void hir_advance(hir_parser *p) {
    p->last = p->t.loc;
    p->last_punct = p->t.punct;
    p->t = hir_next_token(&p->lx);
}

bool hir_at_punct(const hir_parser *p, char c) {
    return p->t.punct == c;
}

bool hir_at_word(const hir_parser *p, const char *word) {
    return p->t.kind == HIR_TOK_WORD && strcmp(p->t.text, word) == 0;
}

bool hir_accept(hir_parser *p, char c) {
    if (!hir_at_punct(p, c)) return false;
    hir_advance(p);
    return true;
}

bool hir_expect(hir_parser *p, char c) {
    return hir_accept(p, c) || hir_expected(p, hd_printf(p->arena, "'%c'", c));
}

bool hir_expected(hir_parser *p, const char *what) {
    static const char *const sigils[] = {
        [HIR_TOK_VALUE] = "%", [HIR_TOK_WEIGHT] = "@", [HIR_TOK_STATE] = "$"};
    switch (p->t.kind) {
    case HIR_TOK_BAD: return false;
    case HIR_TOK_END:
        return hir_parse_error(p, HD_E_SYNTAX, p->t.loc, NULL,
                               "expected %s, but the text ends here", what);
    case HIR_TOK_LINE:
        return hir_parse_error(p, HD_E_SYNTAX, p->t.loc, NULL,
                               "expected %s, but the line ends here", what);
    case HIR_TOK_VALUE:
    case HIR_TOK_WEIGHT:
    case HIR_TOK_STATE:
        return hir_parse_error(p, HD_E_SYNTAX, p->t.loc, NULL, "expected %s, found '%s%s'", what,
                               sigils[p->t.kind], p->t.text);
    default:
        return hir_parse_error(p, HD_E_SYNTAX, p->t.loc, NULL, "expected %s, found '%s'", what,
                               p->t.text);
    }
}

/* No hint for errors beyond those that are shown: the search for the nearest name is the slow step
 * of such an error. */
const char *hir_nearest_hint(hir_parser *p, const char *word, const char *const *words, size_t n) {
    const char *near = hd_nearest(word, words, n);
    return near ? hd_printf(p->d->arena, "did you mean '%s'?", near) : NULL;
}

/* ---- numbers ------------------------------------------------------------------------------- */
/* Decimal digits with an optional sign, in the range of int64. */
bool hir_parse_i64(const char *s, int64_t *out) {
    bool negative = *s == '-';
    s += negative || *s == '+';
    int64_t n = 0;
    if (!*s) return false;
    for (; *s; s++)
        if (*s < '0' || *s > '9' || hd_mul_overflow(n, (int64_t)10, &n) ||
            hd_add_overflow(n, (int64_t)(negative ? '0' - *s : *s - '0'), &n))
            return false;
    *out = n;
    return true;
}

bool hir_parse_u64(hir_parser *p, uint64_t *out) {
    int64_t n;
    if (p->t.kind != HIR_TOK_NUMBER) return hir_expected(p, "a number");
    if (!hir_parse_i64(p->t.text, &n) || n < 0)
        return hir_parse_error(p, HD_E_VALUE, p->t.loc, NULL, "'%s' is not an integer from 0 up",
                               p->t.text);
    *out = (uint64_t)n;
    hir_advance(p);
    return true;
}

/* ---- types, places, locations -------------------------------------------------------------- */
static bool parse_dtype(hir_parser *p, hir_dtype *out) {
    const char *names[HIR_DTYPE_COUNT];
    if (p->t.kind != HIR_TOK_WORD) return hir_expected(p, "a type such as f32[T, 4]");
    for (int i = 0; i < HIR_DTYPE_COUNT; i++) {
        names[i] = hir_dtype_name((hir_dtype)i);
        if (hir_at_word(p, names[i])) {
            *out = (hir_dtype)i;
            hir_advance(p);
            return true;
        }
    }
    return hir_parse_error(p, HD_E_NAME, p->t.loc,
                           "the element types are f32, bf16, f16, q8, q4, mxfp4, nvfp4 and i32",
                           "there is no element type '%s'", p->t.text);
}

/* Parses P of T/P; the parser stands after the slash. */
static bool parse_row_ranks(hir_parser *p, int64_t *out) {
    int64_t ranks;
    if (p->t.kind != HIR_TOK_NUMBER) return hir_expected(p, "the number of ranks");
    if (!hir_parse_i64(p->t.text, &ranks) || ranks < 2 || ranks != (int64_t)p->m->ranks)
        return hir_parse_error(p, HD_E_VALUE, p->t.loc,
                               "a module for 4 ranks says so: ranks 4, rows divided from 16 tokens",
                               "the rows of a rank of %s, but the module is for %u", p->t.text,
                               p->m->ranks ? p->m->ranks : 1);
    hir_advance(p);
    *out = hir_t_over(ranks);
    return true;
}

/* T, T/P, C or C/r; the parser is at its first letter. */
static bool parse_symbol(hir_parser *p, int64_t *out) {
    int64_t rate = 1;
    *out = hir_at_word(p, "T") ? HIR_T : HIR_C;
    hir_advance(p);
    if (!hir_accept(p, '/')) return true;
    if (*out == HIR_T) return parse_row_ranks(p, out);
    if (p->t.kind != HIR_TOK_NUMBER) return hir_expected(p, "the number of positions of a row");
    if (!hir_parse_i64(p->t.text, &rate) || rate < 2 || rate > HIR_MAX_RATE)
        return hir_parse_error(p, HD_E_VALUE, p->t.loc, NULL,
                               "a row cannot stand for %s positions; they are 2 to %d", p->t.text,
                               HIR_MAX_RATE);
    hir_advance(p);
    *out = hir_over_rate(rate);
    return true;
}

/* An integer or a symbol; symbols only where `first`. */
static bool parse_dim(hir_parser *p, bool first, int64_t *out) {
    bool t = hir_at_word(p, "T"), c = hir_at_word(p, "C");
    if (t || c) {
        if (!first)
            return hir_parse_error(p, HD_E_TYPE, p->t.loc, NULL, "%s can only be the first dim",
                                   p->t.text);
        return parse_symbol(p, out);
    } else if (p->t.kind != HIR_TOK_NUMBER) {
        return hir_expected(p, "a dim (a positive integer, T or C)");
    } else if (!hir_parse_i64(p->t.text, out) || *out < 1 || *out > HIR_MAX_DIM) {
        return hir_parse_error(p, HD_E_VALUE, p->t.loc, NULL,
                               "'%s' is no dim; dims are integers from 1 to %d", p->t.text,
                               HIR_MAX_DIM);
    }
    hir_advance(p);
    return true;
}

static bool parse_dims(hir_parser *p, int64_t *dims, uint32_t *rank) {
    *rank = 0;
    if (!hir_expect(p, '[')) return false;
    while (!hir_accept(p, ']')) {
        if (*rank && !hir_expect(p, ',')) return false;
        if (*rank == HIR_MAX_RANK)
            return hir_parse_error(p, HD_E_LIMIT, p->t.loc, NULL, "more than %d dims",
                                   HIR_MAX_RANK);
        if (!parse_dim(p, *rank == 0, &dims[*rank])) return false;
        ++*rank;
    }
    return true;
}

bool hir_parse_type(hir_parser *p, hir_type *out) {
    *out = (hir_type){0};
    return parse_dtype(p, &out->dtype) && parse_dims(p, out->dim, &out->rank);
}

bool hir_parse_place(hir_parser *p, hir_place *place, uint64_t *offset) {
    const char *names[HIR_PLACE_STATE];
    *place = HIR_PLACE_NONE;
    *offset = 0;
    if (!hir_at_word(p, "in")) return true;
    hir_advance(p);
    for (int i = HIR_PLACE_ARENA; i <= HIR_PLACE_STATE; i++) {
        names[i - 1] = hir_place_name((hir_place)i);
        if (hir_at_word(p, names[i - 1])) *place = (hir_place)i;
    }
    if (p->t.kind != HIR_TOK_WORD) return hir_expected(p, "a place such as arena[0]");
    if (*place == HIR_PLACE_NONE)
        return hir_parse_error(p, HD_E_NAME, p->t.loc,
                               hir_nearest_hint(p, p->t.text, names, HIR_PLACE_STATE),
                               "there is no place '%s'", p->t.text);
    hir_advance(p);
    return hir_expect(p, '[') && hir_parse_u64(p, offset) && hir_expect(p, ']');
}

static bool parse_u32(hir_parser *p, uint32_t *out) {
    hd_loc at = p->t.loc;
    uint64_t n = 0;
    if (!hir_parse_u64(p, &n)) return false;
    if (n > UINT32_MAX) return hir_parse_error(p, HD_E_VALUE, at, NULL, "the number is too large");
    *out = (uint32_t)n;
    return true;
}

static bool parse_place(hir_parser *p, const char **last_file, hd_loc *out) {
    hir_advance(p);
    if (p->t.kind != HIR_TOK_STRING) return hir_expected(p, "a file name in quotes");
    if (!*last_file || strcmp(*last_file, p->t.text) != 0) *last_file = p->t.text;
    out->file = *last_file;
    hir_advance(p);
    return hir_expect(p, ':') && parse_u32(p, &out->line) && hir_expect(p, ':') &&
           parse_u32(p, &out->column);
}

/* `loc "m.hadal":3:24`, and in a page of one's own ` from` the call in the model. */
bool hir_parse_loc(hir_parser *p, hd_loc *out) {
    *out = HD_NOWHERE;
    if (!hir_at_word(p, "loc")) return true;
    if (!parse_place(p, &p->loc_file, out)) return false;
    if (!hir_at_word(p, "from")) return true;
    hd_loc call = HD_NOWHERE;
    if (!parse_place(p, &p->call_file, &call)) return false;
    out->call = hd_kept_call(p->arena, p->last_call, call);
    p->last_call = out->call;
    return true;
}

/* ---- attributes ---------------------------------------------------------------------------- */
static bool parse_int_attr(hir_parser *p, hir_attr *a) {
    if (p->t.kind != HIR_TOK_NUMBER) return hir_expected(p, "an integer");
    if (!hir_parse_i64(p->t.text, &a->i))
        return hir_parse_error(p, HD_E_VALUE, p->t.loc, NULL, "'%s' is not an integer that fits",
                               p->t.text);
    hir_advance(p);
    return true;
}

bool hir_parse_double(hir_parser *p, double *out) {
    const char *s = p->t.text;
    bool word = hir_at_word(p, "inf") || hir_at_word(p, "nan");
    if (p->t.kind != HIR_TOK_NUMBER && !word) return hir_expected(p, "a number");
    bool plain = !word && strcmp(s, "-inf") != 0, decimal = true;
    for (const char *c = s; plain && *c; c++)
        decimal = decimal && strchr("0123456789+-.eE", *c);
    if (!decimal || !hd_read_double(s, strlen(s), out) || (plain && isinf(*out)))
        return hir_parse_error(p, HD_E_VALUE, p->t.loc, NULL, "'%s' is not a number that fits", s);
    hir_advance(p);
    return true;
}

static bool parse_ints_attr(hir_parser *p, hir_attr *a) {
    int64_t *ints = hd_new_array(p->arena, int64_t, HIR_MAX_RANK);
    a->ints = ints;
    if (!hir_expect(p, '[')) return false;
    while (!hir_accept(p, ']')) {
        if (a->n && !hir_expect(p, ',')) return false;
        if (a->n == HIR_MAX_RANK)
            return hir_parse_error(p, HD_E_LIMIT, p->t.loc, NULL, "more than %d entries",
                                   HIR_MAX_RANK);
        if (hir_at_word(p, "T") || hir_at_word(p, "C")) {
            if (!parse_symbol(p, &ints[a->n++])) return false;
            continue;
        }
        if (p->t.kind != HIR_TOK_NUMBER)
            return hir_expected(p, "an integer, T or C");
        else if (!hir_parse_i64(p->t.text, &ints[a->n]) || ints[a->n] < 0)
            return hir_parse_error(p, HD_E_VALUE, p->t.loc, NULL,
                                   "'%s' is not an integer from 0 up", p->t.text);
        hir_advance(p);
        a->n++;
    }
    return true;
}

static bool parse_floats_attr(hir_parser *p, hir_attr *a) {
    HD_VEC(double) list = {0};
    if (!hir_expect(p, '[')) return false;
    while (!hir_accept(p, ']')) {
        double x = 0;
        if (list.n && !hir_expect(p, ',')) return false;
        if (list.n == HIR_MAX_ATTR_FLOATS)
            return hir_parse_error(p, HD_E_LIMIT, p->t.loc, NULL, "more than %d entries",
                                   HIR_MAX_ATTR_FLOATS);
        if (!hir_parse_double(p, &x)) return false;
        hd_push(p->arena, &list, x);
    }
    *a = hir_floats(a->id, list.at, (uint32_t)list.n);
    return true;
}

static bool parse_attr_name(hir_parser *p, hir_opcode code, const hir_signature *s,
                            hir_attr_id *id) {
    const char *names[HIR_MAX_OP_ATTRS];
    if (p->t.kind != HIR_TOK_WORD) return hir_expected(p, "the name of an attribute");
    if (hir_attr_by_name(p->t.text, id) && hir_signature_attr(s, *id)) {
        hir_advance(p);
        return true;
    }
    for (uint32_t i = 0; i < s->n_attrs; i++)
        names[i] = hir_attr_name(s->attrs[i].id);
    const char *hint = hir_nearest_hint(p, p->t.text, names, s->n_attrs);
    if (!hint && *hir_info(code)->attrs)
        hint = hd_printf(p->d->arena, "its attributes are: %s", hir_info(code)->attrs);
    return hir_parse_error(p, HD_E_NAME, p->t.loc, hint, "%s has no attribute '%s'",
                           hir_info(code)->name, p->t.text);
}

static bool parse_attr(hir_parser *p, hir_opcode code, const hir_signature *s, hir_attr *a) {
    if (!parse_attr_name(p, code, s, &a->id) || !hir_expect(p, '=')) return false;
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: return parse_int_attr(p, a);
    case HIR_ATTR_FLOAT: return hir_parse_double(p, &a->f);
    case HIR_ATTR_INTS: return parse_ints_attr(p, a);
    case HIR_ATTR_FLOATS: return parse_floats_attr(p, a);
    case HIR_ATTR_STRING:
        if (p->t.kind != HIR_TOK_STRING) return hir_expected(p, "a string in quotes");
        a->s = p->t.text;
        hir_advance(p);
        return true;
    }
    return false;
}

bool hir_parse_attrs(hir_parser *p, hir_opcode code, hir_attr **out, uint32_t *n) {
    hir_signature s = hir_signature_of(code);
    *out = hd_new_array(p->arena, hir_attr, HIR_MAX_OP_ATTRS);
    *n = 0;
    if (!hir_accept(p, '{')) return true;
    while (!hir_accept(p, '}')) {
        hd_loc at = p->t.loc;
        if (*n && !hir_expect(p, ',')) return false;
        if (*n == HIR_MAX_OP_ATTRS)
            return hir_parse_error(p, HD_E_LIMIT, at, NULL, "more attributes than %s has",
                                   hir_info(code)->name);
        if (!parse_attr(p, code, &s, &(*out)[*n])) return false;
        for (uint32_t i = 0; i < *n; i++)
            if ((*out)[i].id == (*out)[*n].id)
                return hir_parse_error(p, HD_E_NAME, at, NULL, "attribute '%s' is given twice",
                                       hir_attr_name((*out)[i].id));
        ++*n;
    }
    return true;
}

/* ---- names --------------------------------------------------------------------------------- */
/* An unquoted %12 is value number 12; everything else is a name. */
static bool is_number(const hir_token *t) {
    return !t->quoted && t->text[strspn(t->text, "0123456789")] == '\0';
}

/* The key to look a name up by: %007 is value number 7. */
static const char *key_of(const hir_token *t) {
    const char *key = t->text;
    while (is_number(t) && key[0] == '0' && key[1])
        key++;
    return key;
}

static hir_names *table_of(hir_parser *p, const hir_token *t) {
    return is_number(t) ? &p->numbers : &p->values;
}

void hir_define(hir_parser *p, const hir_token *name, hir_id value) {
    hir_symbol symbol = {value, p->kernel, name->loc.line};
    uint32_t *old = hir_names_add(table_of(p, name), key_of(name), (uint32_t)p->symbols.n);
    if (old && p->symbols.at[*old].line) {
        if (value != HIR_NONE)
            hir_parse_error(p, HD_E_NAME, name->loc,
                            hd_printf(p->d->arena, "it is defined on line %u already",
                                      p->symbols.at[*old].line),
                            "%%%s is defined twice", name->text);
        return;
    }
    if (value != HIR_NONE && !is_number(name)) hir_value_at(p->m, value)->name = name->text;
    if (old)
        p->symbols.at[*old] = symbol;
    else
        hd_push(p->arena, &p->symbols, symbol);
}

/* A hint for %gain where a weight is called @gain. */
static const char *other_sign_hint(hir_parser *p, const hir_names *table) {
    hir_names *const tables[] = {&p->values, &p->weights, &p->states};
    static const char *const names[] = {"value is %", "weight is @", "state is $"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint32_t *found = tables[i] == table ? NULL : hir_names_find(tables[i], p->t.text);
        if (!found) continue;
        if ((i == 0 ? p->symbols.at[*found].value : *found) == HIR_NONE) continue;
        return hd_printf(p->arena, "the %s%s", names[i], p->t.text);
    }
    return NULL;
}

/* A hint for an unknown name: the same name with another sigil, or the nearest name of the
 * table. */
static const char *name_hint(hir_parser *p, const hir_names *table) {
    const char *other = other_sign_hint(p, table);
    if (other) return other;
    const char **names = hd_new_array(p->arena, const char *, table->n);
    size_t n = 0;
    for (size_t i = 0; i < table->cap; i++)
        if (table->slots[i].name) names[n++] = table->slots[i].name;
    return hir_nearest_hint(p, p->t.text, names, n);
}

static bool parse_value(hir_parser *p, hir_ref *out, bool *broken) {
    hir_names *table = table_of(p, &p->t);
    uint32_t *found = hir_names_find(table, key_of(&p->t));
    if (!found) {
        hir_symbol unknown = {HIR_NONE, HIR_NONE, 0}; /* report the name once */
        if (!p->inputs_unclear)
            hir_parse_error(p, HD_E_NAME, p->t.loc, name_hint(p, table),
                            "%%%s is not defined before its use", p->t.text);
        hir_names_add(table, key_of(&p->t), (uint32_t)p->symbols.n);
        hd_push(p->arena, &p->symbols, unknown);
        *broken = true;
        return true;
    }
    const hir_symbol *symbol = &p->symbols.at[*found];
    if (symbol->scope != HIR_NONE && symbol->scope != p->kernel)
        return hir_parse_error(p, HD_E_NAME, p->t.loc,
                               "a kernel's results are what the rest of the program sees",
                               "%%%s is inside the body of another kernel", p->t.text);
    *broken = *broken || symbol->value == HIR_NONE;
    *out = hir_value_ref(symbol->value);
    return true;
}

static bool parse_table_ref(hir_parser *p, hir_names *table, hir_ref *out, bool *broken) {
    bool weight = p->t.kind == HIR_TOK_WEIGHT;
    uint32_t *found = hir_names_find(table, p->t.text);
    if (!found) {
        hir_parse_error(p, HD_E_NAME, p->t.loc, name_hint(p, table), "there is no %s %c%s",
                        weight ? "weight" : "state", weight ? '@' : '$', p->t.text);
        hir_names_add(table, p->t.text, HIR_NONE);
    }
    if (!found || *found == HIR_NONE)
        *broken = true;
    else
        *out = weight ? hir_weight_ref(*found) : hir_state_ref(*found);
    return true;
}

bool hir_parse_ref(hir_parser *p, hir_ref *out, bool *broken) {
    bool ok;
    *out = hir_no_ref();
    if (p->t.kind == HIR_TOK_VALUE)
        ok = parse_value(p, out, broken);
    else if (p->t.kind == HIR_TOK_WEIGHT)
        ok = parse_table_ref(p, &p->weights, out, broken);
    else if (p->t.kind == HIR_TOK_STATE)
        ok = parse_table_ref(p, &p->states, out, broken);
    else
        ok = hir_at_word(p, "_") || hir_expected(p, "an operand (%value, @weight, $state or _)");
    if (ok) hir_advance(p);
    return ok;
}
