/* Lines that a user types: with an editor and a history on a terminal, as they are in a pipe. */
#ifndef DRIVER_LINES_H
#define DRIVER_LINES_H

#include <stdbool.h>

#include "hadal/hadal.h"

typedef struct line_reader line_reader;

/* NULL, and an error, if there is no memory. */
line_reader *open_lines(hadal_session *s);
void close_lines(line_reader *r);
bool is_edited(const line_reader *r); /* is there a terminal? */
/* The next line without its newline, valid until the next call; NULL: there is none. A line that
 * was ended by Ctrl-C is empty. `prompt`, at most 15 characters, is shown on a terminal. */
const char *next_line(line_reader *r, const char *prompt);
/* Not NULL after the last line: why the input could not be read. */
const char *line_error(const line_reader *r);

#endif
