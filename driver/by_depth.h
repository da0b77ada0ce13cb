/* --by-depth of run and eval: how large things are at which depth, printed or drawn. */
#ifndef DRIVER_BY_DEPTH_H
#define DRIVER_BY_DEPTH_H

#include "driver/options.h"

/* Not 0, and a diagnostic: the option has a form that there is not. */
int check_by_depth(hadal_session *s, const command_line *line);
bool by_depth_is_picture(const command_line *line);
/* Prints the table or JSON of the last run, or writes the picture. */
int deliver_by_depth(hadal_session *s, const command_line *line);

#endif
