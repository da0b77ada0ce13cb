/* The editor is libedit. It sees Ctrl-C as a key: signals of the terminal are off while a line is
 * typed, so that nothing interrupts the editor halfway. */
#include "driver/lines.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct line_reader {
    EditLine *editor; /* NULL: lines come from a pipe or a file */
    FILE *screen;
    History *history;
    char prompt[16];
    bool cancelled; /* by Ctrl-C */
    char *text;
    size_t capacity;
    const char *error;
};

static char *shown_prompt(EditLine *e) {
    line_reader *r = NULL;
    el_get(e, EL_CLIENTDATA, &r);
    return r->prompt;
}

static unsigned char cancel(EditLine *e, int key) {
    line_reader *r = NULL;
    (void)key;
    el_get(e, EL_CLIENTDATA, &r);
    r->cancelled = true;
    return CC_NEWLINE;
}

/* The characters of a terminal are those of its locale; one without a locale is taken for UTF-8. */
static void take_locale(void) {
    (void)setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) (void)setlocale(LC_CTYPE, "C.UTF-8");
}

static bool open_editor(line_reader *r) {
    HistEvent event;
    take_locale();
    r->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    r->editor = el_init("hadal", stdin, r->screen, stderr);
    r->history = history_init();
    if (!r->editor || !r->history) return false;
    (void)history(r->history, &event, H_SETSIZE, 1000);
    (void)history(r->history, &event, H_SETUNIQUE, 1);
    el_set(r->editor, EL_CLIENTDATA, r);
    el_set(r->editor, EL_PROMPT, shown_prompt);
    el_set(r->editor, EL_EDITOR, "emacs");
    el_set(r->editor, EL_SIGNAL, 1); /* signals that end the command find the terminal as it was */
    el_set(r->editor, EL_HIST, history, r->history);
    el_set(r->editor, EL_ADDFN, "hadal-cancel", "give the line up", cancel);
    el_source(r->editor, NULL); /* ~/.editrc */
    el_set(r->editor, EL_SETTY, "-d", "-isig", NULL);
    el_set(r->editor, EL_BIND, "^C", "hadal-cancel", NULL);
    return true;
}

line_reader *open_lines(hadal_session *s) {
    line_reader *r = calloc(1, sizeof *r);
    if (r && (!isatty(STDIN_FILENO) || open_editor(r))) return r;
    close_lines(r);
    hadal_fail(s, "memory", "no memory for the editor of lines", NULL);
    return NULL;
}

void close_lines(line_reader *r) {
    if (!r) return;
    if (r->history) history_end(r->history);
    if (r->editor) el_end(r->editor);
    free(r->text);
    free(r);
}

bool is_edited(const line_reader *r) {
    return r->editor != NULL;
}

const char *line_error(const line_reader *r) {
    return r->error;
}

static const char *edited_line(line_reader *r) {
    HistEvent event;
    int n = 0;
    r->cancelled = false;
    el_set(r->editor, EL_PREP_TERM, 1); /* before the prompt: nothing typed is echoed twice */
    const char *line = el_gets(r->editor, &n);
    if (!line || n <= 0) return NULL;
    if (r->cancelled) fputs("\n", r->screen);
    free(r->text);
    r->text = strndup(r->cancelled ? "" : line, strcspn(line, "\n"));
    if (!r->text) r->error = "no memory for a line";
    if (r->text && *r->text) (void)history(r->history, &event, H_ENTER, r->text);
    return r->text;
}

const char *next_line(line_reader *r, const char *prompt) {
    snprintf(r->prompt, sizeof r->prompt, "%s", prompt);
    if (r->editor) return edited_line(r);
    errno = 0;
    const ssize_t n = getline(&r->text, &r->capacity, stdin);
    if (n < 0) {
        if (ferror(stdin) || errno == ENOMEM) r->error = strerror(errno);
        return NULL;
    }
    if (strlen(r->text) != (size_t)n) {
        r->error = "a line has the byte 0";
        return NULL;
    }
    r->text[strcspn(r->text, "\n")] = 0;
    return r->text;
}
