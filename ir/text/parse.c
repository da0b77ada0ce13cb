/* Parser of the text form: header, tables, function, line by line. docs/ir.md describes it. */
#include <string.h>

#include "ir/text/parser.h"
#include "ir/text/text.h"
#include "ir/verify.h"

enum { DEFAULT_ERROR_LIMIT = 20 };

/* ---- lines --------------------------------------------------------------------------------- */
static void skip_empty_lines(hir_parser *p) {
    while (p->t.kind == HIR_TOK_LINE)
        hir_advance(p);
}

static bool end_line(hir_parser *p) {
    if (p->t.kind != HIR_TOK_LINE && p->t.kind != HIR_TOK_END)
        return hir_expected(p, "the end of the line");
    skip_empty_lines(p);
    return true;
}

/* Skips the rest of the line without reporting errors; true if it ends with `{`. */
static bool skip_line(hir_parser *p) {
    bool opens = p->last_punct == '{' && p->last.line == p->t.loc.line;
    p->lx.quiet = true;
    while (p->t.kind != HIR_TOK_LINE && p->t.kind != HIR_TOK_END) {
        opens = hir_at_punct(p, '{');
        hir_advance(p);
    }
    p->lx.quiet = false;
    skip_empty_lines(p);
    return opens;
}

/* Skips the body of an op that failed, with its `}` line. */
static void skip_body(hir_parser *p) {
    size_t depth = 1;
    while (depth && p->t.kind != HIR_TOK_END) {
        depth -= hir_at_punct(p, '}');
        depth += skip_line(p);
    }
}

/* ---- header -------------------------------------------------------------------------------- */
static bool parse_stage(hir_parser *p) {
    const char *names[HIR_STAGE_COUNT];
    if (p->t.kind != HIR_TOK_WORD) return hir_expected(p, "a stage (graph, depth or kernel)");
    for (int i = 0; i < HIR_STAGE_COUNT; i++) {
        names[i] = hir_stage_name((hir_stage)i);
        if (hir_at_word(p, names[i])) {
            p->m->stage = (hir_stage)i;
            hir_advance(p);
            return true;
        }
    }
    return hir_parse_error(p, HD_E_NAME, p->t.loc,
                           hir_nearest_hint(p, p->t.text, names, HIR_STAGE_COUNT),
                           "there is no stage '%s'", p->t.text);
}

/* Two kinds of dumps cannot be parsed: that of a pass that changed nothing, and that of selected
 * ops. */
static const char *hint_without_header(const hir_parser *p) {
    if (p->t.kind == HIR_TOK_END)
        return "it begins like: hir 1 graph @name; the dump of a pass that changed nothing is "
               "empty: "
               "take the one before";
    if (hir_at_word(p, "func"))
        return "it begins like: hir 1 graph @name; a dump with --filter-ops has no header: make it "
               "without";
    return "it begins like: hir 1 graph @name";
}

static bool parse_header(hir_parser *p) {
    int64_t version;
    skip_empty_lines(p);
    if (p->t.kind == HIR_TOK_BAD) return false;
    if (!hir_at_word(p, "hir"))
        return hir_parse_error(p, HD_E_SYNTAX, p->t.loc, hint_without_header(p),
                               "this is no .hir text");
    hir_advance(p);
    if (p->t.kind != HIR_TOK_NUMBER) return hir_expected(p, "the version of the text form");
    if (!hir_parse_i64(p->t.text, &version) || version != HIR_TEXT_VERSION)
        return hir_parse_error(p, HD_E_UNSUPPORTED, p->t.loc, NULL,
                               "version '%s' of the text form is not known; this is version %d",
                               p->t.text, HIR_TEXT_VERSION);
    hir_advance(p);
    if (!parse_stage(p)) return false;
    if (p->t.kind != HIR_TOK_WEIGHT) return hir_expected(p, "the module's name (@name)");
    p->m->name = p->t.text;
    p->module_loc = p->t.loc;
    hir_advance(p);
    return end_line(p);
}

/* ---- tables -------------------------------------------------------------------------------- */
static bool parse_option(hir_parser *p) {
    const char *key = p->t.text;
    if (p->t.kind != HIR_TOK_WORD && p->t.kind != HIR_TOK_STRING)
        return hir_expected(p, "the option's name");
    for (size_t i = 0; i < p->m->options.n; i++)
        if (strcmp(p->m->options.at[i].key, key) == 0)
            return hir_parse_error(p, HD_E_NAME, p->t.loc, NULL, "option '%s' is given twice", key);
    hir_advance(p);
    if (!hir_expect(p, '=')) return false;
    if (p->t.kind != HIR_TOK_STRING) return hir_expected(p, "the option's value in quotes");
    hir_set_option(p->m, key, p->t.text);
    hir_advance(p);
    return true;
}

/* `, 256 kept`, or nothing */
static bool parse_kept(hir_parser *p, uint64_t *kept) {
    if (!hir_accept(p, ',')) return true;
    if (!hir_parse_u64(p, kept)) return false;
    if (!hir_at_word(p, "kept")) return hir_expected(p, "'kept'");
    hir_advance(p);
    return true;
}

/* `arena 1536 per token`, `local 512 per token, 256 kept`, `tile 4096 per token` and `fixed 64`: at
 * the kernel stage only, once each. */
static bool parse_area(hir_parser *p, const char *word) {
    const bool local = strcmp(word, "local") == 0, fixed = strcmp(word, "fixed") == 0;
    const bool tile = strcmp(word, "tile") == 0;
    bool *given = local   ? &p->local_given
                  : tile  ? &p->tile_given
                  : fixed ? &p->fixed_given
                          : &p->arena_given;
    uint64_t *size = local   ? &p->m->local_per_token
                     : tile  ? &p->m->tile_per_token
                     : fixed ? &p->m->fixed_bytes
                             : &p->m->arena_per_token;
    if (p->m->stage != HIR_STAGE_KERNEL)
        return hir_parse_error(p, HD_E_TYPE, p->last, NULL, "only kernel IR has %s",
                               fixed ? "a fixed area" : "an arena");
    if (local && !p->m->ranks)
        return hir_parse_error(p, HD_E_TYPE, p->last, NULL,
                               "only sharded modules have rows of a rank");
    if (*given) return hir_parse_error(p, HD_E_NAME, p->last, NULL, "'%s' is given twice", word);
    *given = true;
    if (!hir_parse_u64(p, size)) return false;
    if (fixed) return true;
    if (!hir_at_word(p, "per")) return hir_expected(p, "'per token'");
    hir_advance(p);
    if (!hir_at_word(p, "token")) return hir_expected(p, "'token'");
    hir_advance(p);
    return tile || parse_kept(p, local ? &p->m->local_kept : &p->m->arena_kept);
}

/* `softmax(` before a factor's name, or nothing */
static bool parse_derived_by(hir_parser *p, hir_derived_by *by) {
    const char *names[HIR_DERIVED_BYS];
    *by = HIR_DERIVED_AS_IS;
    if (p->t.kind != HIR_TOK_WORD) return true;
    for (int i = 0; i < HIR_DERIVED_BYS; i++) {
        names[i] = hir_derived_by_name((hir_derived_by)i);
        if (i && hir_at_word(p, names[i])) *by = (hir_derived_by)i;
    }
    if (!*by)
        return hir_parse_error(p, HD_E_NAME, p->t.loc,
                               hir_nearest_hint(p, p->t.text, names + 1, HIR_DERIVED_BYS - 1),
                               "'%s' is no function that a weight can be derived with", p->t.text);
    hir_advance(p);
    return hir_expect(p, '(');
}

/* [first:end], a slice of a factor's elements; nothing: all */
static bool parse_taken(hir_parser *p, hir_derived_factor *f) {
    uint64_t first, end;
    if (!hir_at_punct(p, '[')) return true;
    const hd_loc loc = p->t.loc;
    hir_advance(p);
    if (!hir_parse_u64(p, &first) || !hir_expect(p, ':') || !hir_parse_u64(p, &end) ||
        !hir_expect(p, ']'))
        return false;
    if (end <= first || end > HIR_MAX_DIM)
        return hir_parse_error(p, HD_E_VALUE, loc, NULL,
                               "elements %llu to %llu are an empty or too long slice",
                               (unsigned long long)first, (unsigned long long)end);
    f->first = (int64_t)first;
    f->n = (int64_t)(end - first);
    return true;
}

/* @a, softmax(@a), softmax(@a)[0:3], transposed(@a[0:96]) */
static bool parse_factor(hir_parser *p, hir_derived_factor *f) {
    *f = (hir_derived_factor){0};
    if (!parse_derived_by(p, &f->by)) return false;
    if (p->t.kind != HIR_TOK_WEIGHT) return hir_expected(p, "a weight (@name)");
    f->name = p->t.text;
    hir_advance(p);
    if (f->by == HIR_DERIVED_TRANSPOSED) return parse_taken(p, f) && hir_expect(p, ')');
    return (!f->by || hir_expect(p, ')')) && parse_taken(p, f);
}

/* `= @a * @b, @c * @d`: the blocks of rows of a derived weight. */
static bool parse_derived(hir_parser *p, hir_weight *w) {
    HD_VEC(hir_derived_row) rows = {0};
    do {
        HD_VEC(hir_derived_factor) factors = {0};
        do {
            hir_derived_factor f;
            hir_advance(p);
            if (!parse_factor(p, &f)) return false;
            hd_push(p->arena, &factors, f);
        } while (hir_at_punct(p, '*'));
        hd_push(p->arena, &rows, ((hir_derived_row){(uint32_t)factors.n, factors.at}));
    } while (hir_at_punct(p, ','));
    w->rows = rows.at;
    w->n_rows = (uint32_t)rows.n;
    return true;
}

/* `ranks 4, rows divided from 16 tokens`: before all types that have T/4 or are shards. */
static bool parse_ranks(hir_parser *p) {
    static const char *const words[] = {"rows", "divided", "from"};
    uint64_t ranks, from;
    const hd_loc loc = p->t.loc;
    if (p->m->ranks) return hir_parse_error(p, HD_E_NAME, p->last, NULL, "'ranks' is given twice");
    if (p->m->weights.n)
        return hir_parse_error(p, HD_E_SYNTAX, p->last, NULL, "'ranks' stands before all weights");
    if (!hir_parse_u64(p, &ranks) || !hir_expect(p, ',')) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!hir_at_word(p, words[i])) return hir_expected(p, "'rows divided from N tokens'");
        hir_advance(p);
    }
    if (!hir_parse_u64(p, &from)) return false;
    if (!hir_at_word(p, "tokens")) return hir_expected(p, "'tokens'");
    hir_advance(p);
    if (ranks < 2 || ranks > HIR_MAX_RANKS || from < ranks || from > HIR_MAX_DIM)
        return hir_parse_error(
            p, HD_E_VALUE, loc, "each of them has a row then",
            "there are 2 to %d ranks, and rows are divided from as many tokens on "
            "as there are ranks, or more",
            HIR_MAX_RANKS);
    p->m->ranks = (uint32_t)ranks;
    p->m->divide_from = (int64_t)from;
    return true;
}

static bool parse_share_number(hir_parser *p, const char *name, int64_t *out) {
    uint64_t n;
    if (!hir_at_word(p, name)) return hir_expected(p, hd_printf(p->arena, "'%s'", name));
    hir_advance(p);
    if (!hir_expect(p, '=') || !hir_parse_u64(p, &n)) return false;
    *out = (int64_t)n;
    return hir_expect(p, ',');
}

/* `shard {dim = 0, groups = 2, units = 4, pad = "repeat"}`; nothing: every rank has all. */
static bool parse_shard(hir_parser *p, hir_weight *w) {
    hd_share s = {.ranks = p->m->ranks};
    int64_t dim = 0;
    const hd_loc loc = p->t.loc;
    if (!hir_at_word(p, "shard")) return true;
    hir_advance(p);
    if (!hir_expect(p, '{') || !parse_share_number(p, "dim", &dim) ||
        !parse_share_number(p, "groups", &s.groups) || !parse_share_number(p, "units", &s.units))
        return false;
    if (!hir_at_word(p, "pad")) return hir_expected(p, "'pad'");
    hir_advance(p);
    if (!hir_expect(p, '=')) return false;
    s.repeat = p->t.kind == HIR_TOK_STRING && strcmp(p->t.text, "repeat") == 0;
    if (p->t.kind != HIR_TOK_STRING || (!s.repeat && strcmp(p->t.text, "zero") != 0))
        return hir_expected(p, "\"zero\" or \"repeat\"");
    hir_advance(p);
    if (!hir_expect(p, '}')) return false;
    if (!p->m->ranks)
        return hir_parse_error(p, HD_E_TYPE, loc,
                               "a module for 4 ranks says so: ranks 4, rows divided from 16 tokens",
                               "a shard of a weight, but the module is for one machine");
    if (dim >= w->type.rank)
        return hir_parse_error(p, HD_E_VALUE, loc, NULL, "dim %lld is none of the weight's %u",
                               (long long)dim, w->type.rank);
    s.whole = w->type.dim[dim];
    const char *why = hir_why_no_share(&s);
    if (why) return hir_parse_error(p, HD_E_VALUE, loc, NULL, "%s", why);
    hir_shard_weight(w, (uint32_t)dim, s);
    return true;
}

/* [1, 0, 0] */
static bool parse_init_numbers(hir_parser *p, hir_init *init) {
    HD_VEC(double) list = {0};
    hir_advance(p);
    do {
        double x = 0;
        if (list.n == UINT32_MAX)
            return hir_parse_error(p, HD_E_LIMIT, p->t.loc, NULL, "too many numbers");
        if (!hir_parse_double(p, &x)) return false;
        hd_push(p->arena, &list, x);
    } while (hir_accept(p, ','));
    *init = (hir_init){.n = (uint32_t)list.n, .numbers = list.at};
    return hir_expect(p, ']');
}

/* `init zero`, `init 0.02`, `init [1, 0]` */
static bool parse_init(hir_parser *p, hir_weight *w) {
    const char *words[HIR_INIT_COUNT];
    if (!hir_at_word(p, "init")) return true;
    hir_advance(p);
    if (hir_at_punct(p, '[')) return parse_init_numbers(p, &w->init);
    if (p->t.kind == HIR_TOK_NUMBER) {
        const hd_loc loc = p->t.loc;
        return hir_parse_double(p, &w->init.deviation) &&
               (hir_is_deviation(w->init.deviation) ||
                hir_parse_error(p, HD_E_VALUE, loc, NULL,
                                "the deviation of a normal distribution is above 0 and a number "
                                "that f32 has"));
    }
    for (int i = 0; i < HIR_INIT_COUNT; i++) {
        words[i] = hir_init_word((hir_init_kind)i);
        if (!hir_at_word(p, words[i])) continue;
        w->init.kind = (hir_init_kind)i;
        hir_advance(p);
        return true;
    }
    return hir_parse_error(p, HD_E_NAME, p->t.loc,
                           hir_nearest_hint(p, p->t.text, words, HIR_INIT_COUNT),
                           "weights do not begin as '%s'", p->t.text);
}

/* What may follow a weight's type: shard, layout, `stacked`, `unused`, `init`, derivation,
 * location. */
static bool parse_weight_words(hir_parser *p, hir_weight *w) {
    if (!parse_shard(p, w)) return false;
    for (int l = HIR_LAYOUT_ROWS + 1; l < HIR_LAYOUTS && w->layout == HIR_LAYOUT_ROWS; l++)
        if (hir_at_word(p, hir_layout_name((hir_layout)l))) {
            w->layout = (hir_layout)l;
            hir_advance(p);
        }
    if (hir_at_word(p, "stacked")) {
        w->stacked = true;
        hir_advance(p);
    }
    if (hir_at_word(p, "unused")) {
        w->unused = true;
        hir_advance(p);
    }
    if (!parse_init(p, w)) return false;
    if (hir_at_punct(p, '=') && !parse_derived(p, w)) return false;
    return hir_parse_loc(p, &w->loc);
}

/* Reads and declares the name of a table entry; a second definition is reported. The name stands
 * for HIR_NONE, broken, until the whole entry has been parsed. */
static bool declare(hir_parser *p, hir_names *table, hir_token *name) {
    *name = p->t;
    if (hir_names_add(table, name->text, HIR_NONE))
        return hir_parse_error(p, HD_E_NAME, name->loc, NULL, "'%s' is declared twice", name->text);
    hir_advance(p);
    return hir_expect(p, ':');
}

static bool parse_weight(hir_parser *p) {
    hir_token name;
    hir_weight w = {0};
    if (p->t.kind != HIR_TOK_WEIGHT) return hir_expected(p, "the weight's name (@name)");
    if (!declare(p, &p->weights, &name) || !hir_parse_type(p, &w.type) ||
        !parse_weight_words(p, &w))
        return false;
    uint32_t i = hir_add_derived_weight(p->m, name.text, w.type, w.rows, w.n_rows, w.loc);
    p->m->weights.at[i].share = w.share;
    p->m->weights.at[i].layout = w.layout;
    p->m->weights.at[i].stacked = w.stacked;
    p->m->weights.at[i].unused = w.unused;
    p->m->weights.at[i].init = w.init;
    hd_push(p->arena, &p->weight_locs, name.loc);
    *hir_names_find(&p->weights, name.text) = i;
    return true;
}

/* Is this the name of an element type? A kind of state stands in front of it. */
static bool at_dtype(const hir_parser *p) {
    for (int i = 0; i < HIR_DTYPE_COUNT; i++)
        if (hir_at_word(p, hir_dtype_name((hir_dtype)i))) return true;
    return false;
}

/* `window` or another word of states.def in front of the type; nothing: a cache. What is neither
 * such a word nor a type is left to the parser of types, but for a word before a type. */
static bool parse_state_kind(hir_parser *p, hir_state_kind *kind) {
    const char *names[HIR_STATE_KINDS];
    *kind = HIR_STATE_CACHE;
    if (p->t.kind != HIR_TOK_WORD || at_dtype(p)) return true;
    for (int i = 0; i < HIR_STATE_KINDS; i++) {
        names[i] = hir_state_kind_of((hir_state_kind)i)->word;
        if (!hir_at_word(p, names[i])) continue;
        *kind = (hir_state_kind)i;
        hir_advance(p);
        return true;
    }
    const char *word = p->t.text;
    const hd_loc loc = p->t.loc;
    const char *hint = hir_nearest_hint(p, word, names, HIR_STATE_KINDS);
    if (!hint) return true;
    return hir_parse_error(p, HD_E_NAME, loc, hint, "there is no kind of state '%s'", word);
}

/* `weights "vision." unused` */
static bool parse_unused_below(hir_parser *p) {
    if (p->t.kind != HIR_TOK_STRING) return hir_expected(p, "the beginning of names in quotes");
    if (*p->t.text == '\0')
        return hir_parse_error(p, HD_E_VALUE, p->t.loc, "name the part of the checkpoint",
                               "all names begin with nothing");
    if (hir_unused_below(p->m, p->t.text) < p->m->unused_below.n)
        return hir_parse_error(p, HD_E_NAME, p->t.loc, NULL,
                               "names that begin so are unused already");
    hir_add_unused_below(p->m, p->t.text);
    hir_advance(p);
    if (!hir_at_word(p, "unused")) return hir_expected(p, "'unused'");
    hir_advance(p);
    return true;
}

static bool parse_state(hir_parser *p) {
    hir_token name;
    hir_state_kind kind;
    hir_type type;
    hd_loc loc;
    if (p->t.kind != HIR_TOK_STATE) return hir_expected(p, "the state's name ($name)");
    if (!declare(p, &p->states, &name) || !parse_state_kind(p, &kind) ||
        !hir_parse_type(p, &type) || !hir_parse_loc(p, &loc))
        return false;
    uint32_t i = hir_add_state(p->m, name.text, kind, type, loc);
    hd_push(p->arena, &p->state_locs, name.loc);
    *hir_names_find(&p->states, name.text) = i;
    return true;
}

/* ---- function ------------------------------------------------------------------------------ */
static bool parse_input(hir_parser *p) {
    hir_token name = p->t;
    hir_type type;
    hir_place place;
    uint64_t offset;
    if (name.kind != HIR_TOK_VALUE) return hir_expected(p, "an input (%name: type)");
    hir_advance(p);
    if (!hir_expect(p, ':') || !hir_parse_type(p, &type) || !hir_parse_place(p, &place, &offset))
        return false;
    hir_id v = hir_add_input(p->m, NULL, type);
    hir_value_at(p->m, v)->place = place;
    hir_value_at(p->m, v)->offset = offset;
    hd_push(p->arena, &p->input_locs, name.loc);
    hir_define(p, &name, v);
    return true;
}

static bool parse_signature(hir_parser *p) {
    if (!hir_expect(p, '(')) return false;
    for (bool first = true; !hir_accept(p, ')'); first = false)
        if ((!first && !hir_expect(p, ',')) || !parse_input(p)) return false;
    return hir_expect(p, '{') && end_line(p);
}

/* All ops up to the `}` of the function, with those of kernel bodies. */
static void parse_body(hir_parser *p) {
    while (!hir_too_many_errors(p)) {
        if (p->t.kind == HIR_TOK_END) {
            if (!p->inputs_unclear)
                hir_expected(p, p->kernel == HIR_NONE ? "an op or '}'" : "an op or the body's '}'");
            return;
        }
        if (hir_accept(p, '}')) {
            if (!end_line(p)) skip_line(p);
            if (p->kernel == HIR_NONE) return;
            p->kernel = HIR_NONE;
        } else if (!hir_parse_op(p) || !end_line(p)) {
            bool opens = skip_line(p);
            if (opens && p->may_open) skip_body(p);
        }
    }
}

static bool parse_function(hir_parser *p) {
    if (!parse_signature(p)) {
        p->inputs_unclear = true;
        skip_line(p);
    }
    parse_body(p);
    if (!hir_too_many_errors(p) && p->t.kind != HIR_TOK_END)
        hir_expected(p, "nothing after the function");
    return true;
}

/* ---- module -------------------------------------------------------------------------------- */
static bool parse_declaration(hir_parser *p, const char *keyword) {
    if (strcmp(keyword, "option") == 0) return parse_option(p);
    if (strcmp(keyword, "weight") == 0) return parse_weight(p);
    if (strcmp(keyword, "state") == 0) return parse_state(p);
    if (strcmp(keyword, "weights") == 0) return parse_unused_below(p);
    if (strcmp(keyword, "ranks") == 0) return parse_ranks(p);
    return parse_area(p, keyword);
}

static bool keyword_known(hir_parser *p) {
    static const char *const keywords[] = {"option", "ranks",  "arena",   "local", "tile",
                                           "fixed",  "weight", "weights", "state", "func"};
    enum { KEYWORDS = sizeof keywords / sizeof *keywords };
    if (p->t.kind != HIR_TOK_WORD)
        return hir_expected(p, "a declaration (weight, state, option, func)");
    for (size_t i = 0; i < KEYWORDS; i++)
        if (hir_at_word(p, keywords[i])) return true;
    return hir_parse_error(p, HD_E_SYNTAX, p->t.loc,
                           hir_nearest_hint(p, p->t.text, keywords, KEYWORDS),
                           "there is no declaration '%s'", p->t.text);
}

static void parse_module(hir_parser *p) {
    if (!parse_header(p)) return;
    while (!hir_too_many_errors(p)) {
        if (p->t.kind == HIR_TOK_END) {
            hir_parse_error(p, HD_E_SYNTAX, p->t.loc, NULL, "the module has no function");
            return;
        }
        if (!keyword_known(p)) {
            skip_line(p);
            continue;
        }
        const char *keyword = p->t.text;
        hir_advance(p);
        if (strcmp(keyword, "func") == 0) {
            parse_function(p);
            return;
        }
        if (!parse_declaration(p, keyword) || !end_line(p)) skip_line(p);
    }
}

static void register_source(hd_diags *d, const char *file, const char *text) {
    for (size_t i = 0; i < d->sources.n; i++)
        if (d->sources.at[i].text == text) return;
    hd_diags_source(d, file, text);
}

hir_module *hir_parse(hd_arena *a, hd_diags *d, const char *file, const char *text) {
    hir_parser *p = hd_new(a, hir_parser);
    p->arena = a;
    p->d = d;
    p->lx = hir_lexer_on(a, d, hd_strdup(a, file), text);
    p->m = hir_module_new(a, "");
    p->first_error = d->errors;
    p->error_limit = d->limit ? d->limit : DEFAULT_ERROR_LIMIT;
    p->kernel = HIR_NONE;
    hir_names_init(&p->values, a);
    hir_names_init(&p->numbers, a);
    hir_names_init(&p->weights, a);
    hir_names_init(&p->states, a);
    register_source(d, p->lx.file, text);
    hir_advance(p);
    parse_module(p);
    if (d->errors > p->first_error) return NULL;
    hir_text_locs locs = {p->op_locs.at, p->input_locs.at, p->weight_locs.at, p->state_locs.at,
                          p->module_loc};
    p->m->text_locs = p->op_locs.at;
    p->m->n_text_locs = (uint32_t)p->op_locs.n;
    return hir_verify_at(p->m, d, &locs) ? p->m : NULL;
}
