/* The functions of commands.def. Each returns an exit code; errors are in the session. */
#ifndef DRIVER_COMMANDS_H
#define DRIVER_COMMANDS_H

#include "driver/options.h"

#define C(id, name, arguments, least, most, run, brief, text)                                      \
    int run(hadal_session *s, const command_line *line);
#include "driver/commands.def"
#undef C

#endif
