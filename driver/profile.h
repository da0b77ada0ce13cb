#ifndef DRIVER_PROFILE_H
#define DRIVER_PROFILE_H

#include "driver/commands.h"

/* Writes the profile to the file of --profile, in the format of its suffix; else to stderr. */
int deliver_profile(hadal_session *s, const command_line *line);

#endif
