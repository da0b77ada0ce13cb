/* All printing about the command's work is done here. */
#include "driver/report.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/utf8.h"

static bool show_progress, show_times;
static volatile sig_atomic_t is_shown; /* is a progress line shown? It goes before other output */
/* Standard output has ended within a line of the terminal, which a progress line would erase. */
static volatile sig_atomic_t in_text;
static char current[64];    /* the current step of the work */
static double pass_seconds; /* sum over the passes in this step */
static double step_began;
static bool counts_tokens; /* in this step */

/* "412.0 tokens/s, 1:05 left" */
static void print_rate(uint64_t done, uint64_t total) {
    const double seconds = hd_seconds() - step_began;
    if (done == 0 || seconds <= 0) return;
    const double rate = (double)done / seconds, left = (double)(total - done) / rate;
    fprintf(stderr, "  %.1f tokens/s, %lld:%02lld left", rate, (long long)left / 60,
            (long long)left % 60);
}

static void progress(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context;
    if (!show_progress || in_text) return;
    is_shown = true;
    if (total)
        fprintf(stderr, "\r\033[K%s %3u%%", what, (unsigned)(done * 100 / total));
    else
        fprintf(stderr, "\r\033[K%s", what);
    if (counts_tokens) print_rate(done, total);
    fflush(stderr);
}

static void end_step(void) {
    if (show_times && *current) {
        const double seconds = hd_seconds() - step_began;
        report_end();
        if (pass_seconds > 0)
            fprintf(stderr, "   %-26s %9.3f ms\n", "verification, remarks",
                    (seconds - pass_seconds) * 1e3);
        fprintf(stderr, "%-29s %9.3f ms\n", current, seconds * 1e3);
    }
    pass_seconds = 0;
    *current = 0;
}

void report_start(hadal_session *s, const command_line *line) {
    show_times = option_given(line, OPTION_TIME);
    show_progress = isatty(STDERR_FILENO) && !option_given(line, OPTION_QUIET);
    if (show_progress) hadal_progress(s, progress, NULL);
}

void report_step(const char *what) {
    end_step();
    snprintf(current, sizeof current, "%s", what);
    step_began = hd_seconds();
    counts_tokens = false;
    progress(NULL, what, 0, 0);
}

void report_tokens(const char *what) {
    report_step(what);
    counts_tokens = true;
}

void report_progress(const char *text) {
    if (!show_progress || in_text) return;
    is_shown = true;
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void report_line(const command_line *line, const char *text) {
    if (option_given(line, OPTION_QUIET)) return;
    report_end();
    fprintf(stderr, "%s\n", text);
}

void report_end(void) {
    if (!is_shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr); /* before anything else is written to the same terminal */
    is_shown = false;
}

int report_text(const char *text, size_t n) {
    if (n == 0) return 0;
    report_end();
    fwrite(text, 1, n, stdout);
    in_text = text[n - 1] != '\n' && isatty(STDOUT_FILENO);
    return fflush(stdout) != 0;
}

static void say(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* there is nowhere to report this */
}

void report_interrupt(bool removed) {
    say(is_shown ? "\r\033[K" : in_text ? "\n" : "");
    say(removed ? "hadal: interrupted, and no file of this run is left\n" : "hadal: interrupted\n");
}

static bool want_colour(const command_line *line) {
    const char *when = option_get(line, OPTION_COLOUR);
    if (when && strcmp(when, "always") == 0) return true;
    if (when && strcmp(when, "never") == 0) return false;
    return isatty(STDERR_FILENO);
}

/* Of which session so many diagnostics have been printed. */
static const hadal_session *session_so_far;
static size_t printed_so_far;

void report_so_far(hadal_session *s, const command_line *line) {
    report_end();
    const int colour = want_colour(line);
    const bool quiet = option_given(line, OPTION_QUIET);
    for (size_t i = s == session_so_far ? printed_so_far : 0; i < hadal_diagnostics(s); i++)
        if (!quiet || hadal_diagnostic_at(s, i).severity == 0)
            fputs(hadal_diagnostic_text(s, i, colour), stderr);
    session_so_far = s, printed_so_far = hadal_diagnostics(s);
}

int report_diagnostics(hadal_session *s, const command_line *line) {
    end_step();
    report_so_far(s, line);
    session_so_far = NULL; /* another session may get its address */
    return hadal_exit_code(s);
}

int report_rendered(const char *error) {
    report_end();
    fprintf(stderr, "%s%s", error, *error && error[strlen(error) - 1] == '\n' ? "" : "\n");
    return 1;
}

void report_pass_time(void *context, const hadal_pass_event *event) {
    (void)context;
    report_end();
    pass_seconds += event->seconds;
    fprintf(stderr, "%2d %-26s %9.3f ms%s\n", event->index, event->pass, event->seconds * 1e3,
            event->changed ? "" : "  (unchanged)");
}

void report_code_time(void *context, const hadal_code_event *e) {
    bool *has_head = context;
    report_end();
    if (!*has_head)
        fprintf(stderr, "%-39s functions  instructions   bytes   to IR, ms  to code, ms\n",
                "code, in CPU time");
    *has_head = true;
    fprintf(stderr, "%-12s %-26s %9zu %13zu %7zu %11.3f %12.3f\n", e->level, e->part, e->functions,
            e->instructions, e->bytes, e->build * 1e3, e->translate * 1e3);
}

/* Prints a JSON string. Bytes that are not UTF-8, which a path may have, become U+FFFD, as decoders
 * have it. */
static void print_json_string(FILE *out, const char *text) {
    fputc('"', out);
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        const unsigned char c = (unsigned char)*text;
        const int bytes = hd_utf8(text, left);
        n = bytes > 0 ? (size_t)bytes : 1;
        if (bytes <= 0)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fwrite(text, 1, n, out);
    }
    fputc('"', out);
}

static void print_remark_json(const hadal_remark *r) {
    fputs("{\"pass\": ", stderr);
    print_json_string(stderr, r->pass);
    fprintf(stderr, ", \"taken\": %s", r->taken ? "true" : "false");
    if (r->op) {
        fputs(", \"op\": ", stderr);
        print_json_string(stderr, r->op);
    }
    if (r->file) {
        fputs(", \"file\": ", stderr);
        print_json_string(stderr, r->file);
        fprintf(stderr, ", \"line\": %u, \"column\": %u", r->line, r->column);
    }
    if (r->call_file) {
        fputs(", \"call\": {\"file\": ", stderr);
        print_json_string(stderr, r->call_file);
        fprintf(stderr, ", \"line\": %u, \"column\": %u}", r->call_line, r->call_column);
    }
    if (r->weight) {
        fputs(", \"weight\": ", stderr);
        print_json_string(stderr, r->weight);
    }
    if (r->layer_pass) fprintf(stderr, ", \"layer_pass\": %u", r->layer_pass);
    if (r->value) {
        fputs(", \"value\": ", stderr);
        print_json_string(stderr, r->value);
    }
    fputs(", \"text\": ", stderr);
    print_json_string(stderr, r->text);
    fputs("}\n", stderr);
}

static void print_remark(const hadal_remark *r) {
    if (r->file) fprintf(stderr, "%s:%u:%u: ", r->file, r->line, r->column);
    if (r->call_file)
        fprintf(stderr, "called from %s:%u:%u: ", r->call_file, r->call_line, r->call_column);
    fprintf(stderr, "%s: %s: %s%s%s", r->pass, r->taken ? "applied" : "not applied",
            r->op ? r->op : "", r->op ? ": " : "", r->text);
    if (r->weight && r->layer_pass)
        fprintf(stderr, " (@%s, pass %u)", r->weight, r->layer_pass);
    else if (r->weight)
        fprintf(stderr, " (@%s)", r->weight);
    if (r->value) fprintf(stderr, " [%s:%s]", r->pass, r->value); /* the form of `hadal explain` */
    fputc('\n', stderr);
}

/* ---- remarks of many layers in the same words are one, as in the page of a report --------------- */

/* Is one of the texts the other with other numbers? */
static bool same_words(const char *a, const char *b) {
    if (!a || !b) return a == b;
    for (;;) {
        const size_t m = strspn(a, "0123456789"), n = strspn(b, "0123456789");
        if (!m != !n) return false;
        a += m;
        b += n;
        if (*a != *b) return false;
        if (!*a) return true;
        a++;
        b++;
    }
}

static bool alike(const hadal_remark *a, const hadal_remark *b) {
    return a->taken == b->taken && same_words(a->op, b->op) && same_words(a->weight, b->weight) &&
           same_words(a->text, b->text);
}

/* Prints the remarks [from, to), which are of one pass: the first of each kind, and how many more of
 * it there are. */
static bool print_groups(hadal_session *s, size_t from, size_t to) {
    size_t *first = malloc((to - from) * sizeof *first), *more = calloc(to - from, sizeof *more);
    size_t n = 0;
    for (size_t i = from; first && more && i < to; i++) {
        const hadal_remark r = hadal_remark_at(s, i);
        size_t k = 0;
        for (; k < n; k++) {
            const hadal_remark other = hadal_remark_at(s, first[k]);
            if (alike(&r, &other)) break;
        }
        if (k < n)
            more[k]++;
        else
            first[n++] = i;
    }
    for (size_t k = 0; k < n; k++) {
        const hadal_remark r = hadal_remark_at(s, first[k]);
        print_remark(&r);
        if (more[k]) fprintf(stderr, "  and %zu more like it (--remarks=all)\n", more[k]);
    }
    const bool ok = first && more;
    free(first);
    free(more);
    return ok;
}

void report_remarks(hadal_session *s, size_t from, remarks_form form) {
    report_end();
    for (size_t i = from, to; i < hadal_remarks(s); i = to) {
        const hadal_remark r = hadal_remark_at(s, i);
        to = i + 1;
        if (form == REMARKS_JSON)
            print_remark_json(&r);
        else if (form == REMARKS_ALL)
            print_remark(&r);
        else {
            while (to < hadal_remarks(s) && !strcmp(hadal_remark_at(s, to).pass, r.pass))
                to++;
            if (!print_groups(s, i, to)) fputs("hadal: out of memory\n", stderr);
        }
    }
}
