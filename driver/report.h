/* Everything that the command prints about its work: diagnostics, progress, times, remarks. */
#ifndef DRIVER_REPORT_H
#define DRIVER_REPORT_H

#include "driver/options.h"

void report_start(hadal_session *s,
                  const command_line *line); /* shows progress if stderr is a terminal */
void report_step(const char *what); /* ends the last step; --time-passes: prints its time */
/* The same for a step whose progress is in tokens: shows how many a second, and the time left. */
void report_tokens(const char *what);
/* Shows a text in place of the progress line, if there is one. */
void report_progress(const char *text);
/* Prints a line to stderr, unless the command is to be quiet, in place of the progress line. */
void report_line(const command_line *line, const char *text);
void report_end(void); /* removes the progress line, if one is shown: before anything is printed */
/* Prints text to standard output, in place of the progress line. Not 0: writing failed. */
int report_text(const char *text, size_t n);
/* Prints one line from within a signal handler. `removed`: the files that this execution had made
 * are removed. */
void report_interrupt(bool removed);
/* Prints those diagnostics of the session to stderr that have not been printed: what is noted about
 * a model, before one talks with it. */
void report_so_far(hadal_session *s, const command_line *line);
/* Prints all diagnostics of the session to stderr, and returns the exit code that they require. */
int report_diagnostics(hadal_session *s, const command_line *line);
/* Prints an error that is rendered already. Returns 1. */
int report_rendered(const char *error);
void report_pass_time(void *context, const hadal_pass_event *event);
void report_code_time(void *has_head,
                      const hadal_code_event *event); /* has_head: bool, false at first */
/* Prints the remarks from number `from` on; json: one object per line. */
typedef enum remarks_form { REMARKS_GROUPED, REMARKS_ALL, REMARKS_JSON } remarks_form;
void report_remarks(hadal_session *s, size_t from, remarks_form form);

#endif
