/* A temporary folder with a model compiled for this machine, for commands that run it. */
#ifndef DRIVER_WORKPLACE_H
#define DRIVER_WORKPLACE_H

#include "driver/options.h"

typedef struct workplace {
    char dir[4096], library[4200], weights[4200];
} workplace;

int make_workplace(hadal_session *s, workplace *w);
/* Code for this machine, unless a level is asked for, and packed weights. */
int build_in_workplace(hadal_session *s, const command_line *line, const workplace *w);
void remove_workplace(const workplace *w);

#endif
