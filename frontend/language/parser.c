/* What the whole parser uses: the tokens, errors, and recovery. The rest of a statement with an
 * error is skipped, so that one slip is one message and later errors are still found. */
#include "frontend/language/parser.h"

#include <string.h>

/* ---- tokens and errors --------------------------------------------------------------------- */
const hfe_token *hfe_next(hfe_parser *ps) {
    ps->last = ps->at;
    if (ps->at->kind != HFE_T_END) ps->at++;
    return ps->last;
}

bool hfe_accept(hfe_parser *ps, hfe_token_kind kind) {
    if (!hfe_at(ps, kind)) return false;
    hfe_next(ps);
    return true;
}

void hfe_skip_lines(hfe_parser *ps) {
    while (hfe_accept(ps, HFE_T_LINE)) {
    }
}

hd_diag *hfe_trouble(hfe_parser *ps, hd_loc loc, const char *format, ...) {
    ps->failed = true;
    if (ps->panic) return NULL;
    ps->panic = true;
    va_list args;
    va_start(args, format);
    const char *message = hd_vprintf(ps->p->arena, format, args);
    va_end(args);
    return hd_err(ps->p->diags, HD_E_SYNTAX, loc, "%s", message);
}

/* Returns the place directly after the last token, where something is missing. */
static hd_loc behind(const hfe_parser *ps) {
    hd_known(ps->last);
    hd_loc loc = ps->last->loc;
    loc.column = loc.end_column;
    loc.end_column = loc.column + 1;
    return loc;
}

/* Returns a hint if the next token is a word or sign of another language, or completes one, as '='
 * does in "x += 1"; otherwise NULL. */
static const char *foreign_hint(const hfe_parser *ps) {
    const hfe_token *t = ps->at, *before = ps->last;
    /* True if the next token follows without a space. */
    const bool joined = t->kind != HFE_T_END && t[1].begin == t->end;
    const char *end = joined ? t[1].end : t->end;
    const char *hint = hfe_foreign_word(t->name);
    if (!hint && before && before->end == t->begin) hint = hfe_foreign_sign(before->begin, t->end);
    return hint ? hint : hfe_foreign_sign(t->begin, end);
}

hd_diag *hfe_expected(hfe_parser *ps, const char *what) {
    if (hfe_at(ps, HFE_T_BAD)) { /* the lexer has reported what is wrong */
        ps->panic = ps->failed = true;
        return NULL;
    }
    if (ps->in_string && hfe_at(ps, HFE_T_END))
        return hfe_trouble(ps, ps->at->loc, "expected %s before '}'", what);
    bool name = hfe_at(ps, HFE_T_NAME);
    bool next_line = ps->last && ps->at->loc.line != ps->last->loc.line;
    if ((ps->last && hfe_at(ps, HFE_T_LINE)) || (next_line && hfe_at(ps, HFE_T_END)))
        return hfe_trouble(ps, behind(ps), "expected %s before %s", what,
                           hfe_token_name(ps->at->kind));
    hd_diag *d =
        hfe_trouble(ps, ps->at->loc, name ? "expected %s, found '%s'" : "expected %s, found %s",
                    what, name ? ps->at->name : hfe_token_name(ps->at->kind));
    if (d) d->hint = foreign_hint(ps);
    return d;
}

const hfe_token *hfe_expect(hfe_parser *ps, hfe_token_kind kind, const char *what) {
    if (hfe_at(ps, kind)) return hfe_next(ps);
    hd_diag *d = hfe_expected(
        ps, hd_printf(ps->p->arena, "%s %s %s", hfe_token_name(kind),
                      kind == HFE_T_NAME || kind == HFE_T_STRING ? "after" : "for", what));
    if (d && kind == HFE_T_NAME && ps->at->name && !hfe_at(ps, HFE_T_NAME))
        d->hint = hd_printf(ps->p->arena, "'%s' is a word of the language, take another name",
                            ps->at->name);
    return NULL;
}

/* A word of configs is recognised only where no variable can be meant. */
bool hfe_at_word(const hfe_parser *ps, const char *word) {
    return hfe_at(ps, HFE_T_NAME) && ps->at[1].kind == HFE_T_NAME &&
           strcmp(ps->at->name, word) == 0;
}

bool hfe_at_config(const hfe_parser *ps) {
    return hfe_at_word(ps, "config");
}

/* True for a definition that begins a line in the middle of a block: the block was not closed. */
bool hfe_at_definition(const hfe_parser *ps) {
    return ps->at->loc.column == 1 &&
           (hfe_at(ps, HFE_K_FN) || hfe_at(ps, HFE_K_OBJECT) || hfe_at(ps, HFE_K_MODEL) ||
            hfe_at(ps, HFE_K_USE) || hfe_at_config(ps));
}

bool hfe_close(hfe_parser *ps, hfe_token_kind kind, hd_loc open) {
    if (hfe_accept(ps, kind)) return true;
    if (hfe_at(ps, HFE_T_BAD)) {
        ps->panic = ps->failed = true;
        return false;
    }
    if (ps->unclosed == ps->at) { /* the inner blocks have reported it */
        ps->panic = ps->failed = true;
        return false;
    }
    if (kind == HFE_P_RBRACE && hfe_at_definition(ps)) {
        ps->unclosed = ps->at;
        hd_diag *d = hfe_trouble(ps, open, "this '{' is not closed");
        if (d)
            d->cause = hd_printf(ps->p->arena, "%s follows in line %u",
                                 hfe_token_name(ps->at->kind), ps->at->loc.line);
        return false;
    }
    bool same_line = !ps->last || ps->at->loc.line == ps->last->loc.line;
    hd_loc loc =
        same_line && !hfe_at(ps, HFE_T_LINE) && !hfe_at(ps, HFE_T_END) ? ps->at->loc : behind(ps);
    hd_diag *d = hfe_trouble(ps, loc, kind == HFE_P_RBRACE ? "expected %s" : "expected ',' or %s",
                             hfe_token_name(kind));
    if (d && open.line != loc.line)
        d->cause = hd_printf(ps->p->arena, "the bracket opened in line %u, column %u is not closed",
                             open.line, open.column);
    return false;
}

bool hfe_enter(hfe_parser *ps) {
    if (ps->depth >= HFE_MAX_NESTING) {
        if (!ps->too_deep) {
            ps->too_deep = true;
            hd_diag *d = hd_err(ps->p->diags, HD_E_LIMIT, ps->at->loc, "this nests too deeply");
            d->cause = hd_printf(ps->p->arena, "at most %d levels are read", HFE_MAX_NESTING);
        }
        ps->panic = ps->failed = true;
        return false;
    }
    ps->depth++;
    return true;
}

void hfe_leave(hfe_parser *ps) {
    ps->depth--;
}

hd_loc hfe_span(const hfe_parser *ps, hd_loc from) {
    if (ps->last && ps->last->loc.line == from.line) from.end_column = ps->last->loc.end_column;
    return from;
}

/* Skips to the end of the statement: the end of a line, or a closing brace, of this block. */
void hfe_recover(hfe_parser *ps) {
    int open = 0;
    while (!hfe_at(ps, HFE_T_END)) {
        if ((open == 0 && (hfe_at(ps, HFE_T_LINE) || hfe_at(ps, HFE_P_RBRACE))) ||
            hfe_at_definition(ps))
            break;
        open += hfe_at(ps, HFE_P_LBRACE) - hfe_at(ps, HFE_P_RBRACE);
        hfe_next(ps);
    }
    ps->panic = false;
}
