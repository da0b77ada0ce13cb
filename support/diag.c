/* Diagnostics: the list that collects them, and their rendering as text. */
#include "support/diag.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_LIMIT = 20 };

static const struct {
    const char *name;
    int exit_code;
} errors[] = {
#define E(id, name, exit_code, when) {name, exit_code},
#include "support/errors.def"
#undef E
};

const char *hd_error_name(hd_error e) {
    return (unsigned)e < HD_E_COUNT ? errors[e].name : "unknown";
}

int hd_error_exit_code(hd_error e) {
    return (unsigned)e < HD_E_COUNT ? errors[e].exit_code : 4;
}

void hd_diags_init(hd_diags *d, hd_arena *a) {
    memset(d, 0, sizeof *d);
    d->arena = a;
}

void hd_diags_source(hd_diags *d, const char *file, const char *text) {
    __typeof__(*d->sources.at) source = {.file = file, .text = text};
    hd_push(d->arena, &d->sources, source);
}

hd_error hd_diags_first(const hd_diags *d) {
    for (size_t i = 0; i < d->list.n; i++)
        if (d->list.at[i].severity == HD_ERROR) return d->list.at[i].code;
    return HD_E_OK;
}

/* ---- adding -------------------------------------------------------------------------------- */
const hd_loc *hd_kept_call(hd_arena *a, const hd_loc *last, hd_loc call) {
    if (last && last->file == call.file && last->line == call.line && last->column == call.column)
        return last;
    hd_loc *kept = hd_new(a, hd_loc);
    *kept = call;
    return kept;
}

/* A copy of line number loc.line of the source registered last under loc.file, or NULL. */
static const char *source_line(const hd_diags *d, hd_loc loc) {
    const char *text = NULL;
    if (!loc.file || !loc.line) return NULL;
    for (size_t i = d->sources.n; i-- && !text;)
        if (d->sources.at[i].file && strcmp(d->sources.at[i].file, loc.file) == 0)
            text = d->sources.at[i].text;
    for (uint32_t line = 1; text && line < loc.line; line++) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return text ? hd_strndup(d->arena, text, strcspn(text, "\r\n")) : NULL;
}

/* Has the same error been reported at the same place? A loop of a spec that is elaborated more than
 * once would repeat it. */
static bool said_before(const hd_diags *d, const hd_diag *diag) {
    for (size_t i = 0; diag->loc.file && i < d->list.n; i++) {
        const hd_diag *other = &d->list.at[i];
        if (other->severity == HD_ERROR && other->loc.file && other->loc.line == diag->loc.line &&
            other->loc.column == diag->loc.column && strcmp(other->message, diag->message) == 0 &&
            strcmp(other->loc.file, diag->loc.file) == 0)
            return true;
    }
    return false;
}

static hd_diag *add(hd_diags *d, hd_severity severity, hd_error code, hd_loc loc,
                    const char *format, va_list args) {
    hd_diag diag = {.severity = severity, .code = code, .loc = loc};
    size_t limit = d->limit ? d->limit : DEFAULT_LIMIT;
    bool keep = severity != HD_ERROR || d->errors < limit;
    diag.message = hd_vprintf(d->arena, format, args);
    if (severity == HD_ERROR) {
        if (said_before(d, &diag)) keep = false;
        d->errors++;
    }
    if (!keep) { /* counted only; the caller still gets something to fill */
        hd_diag *spare = hd_new(d->arena, hd_diag);
        *spare = diag;
        return spare;
    }
    diag.source_line = source_line(d, loc);
    hd_push(d->arena, &d->list, diag);
    return &d->list.at[d->list.n - 1];
}

hd_diag *hd_err(hd_diags *d, hd_error code, hd_loc loc, const char *format, ...) {
    va_list args;
    va_start(args, format);
    hd_diag *diag = add(d, HD_ERROR, code, loc, format, args);
    va_end(args);
    return diag;
}

hd_diag *hd_warn(hd_diags *d, hd_error code, hd_loc loc, const char *format, ...) {
    va_list args;
    va_start(args, format);
    hd_diag *diag = add(d, HD_WARNING, code, loc, format, args);
    va_end(args);
    return diag;
}

hd_diag *hd_note(hd_diags *d, hd_loc loc, const char *format, ...) {
    va_list args;
    va_start(args, format);
    hd_diag *diag = add(d, HD_NOTE, HD_E_OK, loc, format, args);
    va_end(args);
    return diag;
}

/* ---- rendering ----------------------------------------------------------------------------- */
enum { WINDOW = 160, BEFORE_CARET = 100 }; /* bytes of a long line that are shown */

static const char *const severity_name[] = {"error", "warning", "note"};
static const char *const severity_colour[] = {"\x1b[1;31m", "\x1b[1;35m", "\x1b[1;36m"};
#define BOLD  (colour ? "\x1b[1m" : "")
#define GREEN (colour ? "\x1b[1;32m" : "")
#define PLAIN (colour ? "\x1b[0m" : "")

static bool continues_character(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Adds one byte of source; control characters are replaced, so that none reaches the terminal. */
static void add_visible(hd_text *out, char c) {
    if (c != '\t' && ((unsigned char)c < 0x20 || c == 0x7f)) c = '?';
    hd_text_add_n(out, &c, 1);
}

/* The line and a caret range below it; a long line is shown around the caret. */
static void render_source(const hd_diag *diag, bool colour, hd_text *out) {
    const char *line = diag->source_line;
    size_t n = strlen(line), caret = diag->loc.column ? diag->loc.column - 1 : 0, from = 0;
    if (caret > n) caret = n;
    size_t end = diag->loc.end_column > diag->loc.column ? diag->loc.end_column - 1 : caret + 1;
    if (n > WINDOW && caret > BEFORE_CARET) from = caret - BEFORE_CARET;
    while (from > 0 && continues_character(line[from]))
        from--;
    size_t to = n - from > WINDOW ? from + WINDOW : n;
    while (to < n && continues_character(line[to]))
        to++;
    hd_text_f(out, "%5u | %s", diag->loc.line, from ? "..." : "");
    for (size_t i = from; i < to; i++)
        add_visible(out, line[i]);
    hd_text_f(out, "%s\n      | %s%s", to < n ? "..." : "", from ? "   " : "", GREEN);
    for (size_t i = from; i < caret; i++)
        if (!continues_character(line[i])) hd_text_add(out, line[i] == '\t' ? "\t" : " ");
    hd_text_add(out, "^");
    for (size_t i = caret + 1; i < end && i < to; i++)
        if (!continues_character(line[i])) hd_text_add(out, "~");
    hd_text_f(out, "%s\n", PLAIN);
}

void hd_diag_render(const hd_diag *diag, bool colour, hd_text *out) {
    hd_text_add(out, BOLD);
    if (diag->loc.file && diag->loc.line && diag->loc.column)
        hd_text_f(out, "%s:%u:%u: ", diag->loc.file, diag->loc.line, diag->loc.column);
    else if (diag->loc.file && diag->loc.line)
        hd_text_f(out, "%s:%u: ", diag->loc.file, diag->loc.line);
    else if (diag->loc.file)
        hd_text_f(out, "%s: ", diag->loc.file);
    if (diag->loc.file && diag->loc.call)
        hd_text_f(out, "called from %s:%u:%u: ", diag->loc.call->file, diag->loc.call->line,
                  diag->loc.call->column);
    hd_text_f(out, "%s%s:%s %s%s%s", colour ? severity_colour[diag->severity] : "",
              severity_name[diag->severity], PLAIN, BOLD, diag->message, PLAIN);
    if (diag->code != HD_E_OK) hd_text_f(out, " [%s]", hd_error_name(diag->code));
    hd_text_add(out, "\n");
    if (diag->source_line) render_source(diag, colour, out);
    if (diag->cause) hd_text_f(out, "  cause: %s\n", diag->cause);
    if (diag->hint) hd_text_f(out, "  hint: %s\n", diag->hint);
}
