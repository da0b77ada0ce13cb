/* Everything the command prints about its work: diagnostics, progress, times, remarks. */
#ifndef DRIVER_REPORT_H
#define DRIVER_REPORT_H

#include "driver/options.h"

void report_start(hadal_session *s,
                  const command_line *line); /* progress, if stderr is a terminal */
void report_step(const char *what); /* a new step of long work; --time-passes: time of the last */
void report_end(void); /* the progress line goes, if one is shown: before anything is printed */
/* Text to standard output, in place of the progress line. Not 0: nobody reads it any more. */
int report_text(const char *text, size_t n);
/* In a handler of signals: one line. `removed`: so are the files that this run had made. */
void report_interrupt(bool removed);
/* Prints all diagnostics of the session to stderr; the exit code they ask for. */
int report_diagnostics(hadal_session *s, const command_line *line);
void report_pass_time(void *context, const hadal_pass_event *event);
void report_code_time(void *has_head,
                      const hadal_code_event *event); /* has_head: bool, false at first */
/* Those from number `from` on; json: one object a line. */
void report_remarks(hadal_session *s, size_t from, bool json);

#endif
