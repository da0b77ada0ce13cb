/* Which options go together, by driver/together.def. */
#ifndef DRIVER_TOGETHER_H
#define DRIVER_TOGETHER_H

#include "driver/options.h"

/* Rejects an option that would be of no effect without others that are missing, or beside others that
 * are given. 0: there is none. */
int check_together(hadal_session *s, const command_line *line);
/* Is the option for the passes: does one read it, or is it about what they do? */
bool is_of_passes(option_id id);

#endif
