/* What a command leaves when a signal ends it: nothing that is not complete. */
#ifndef DRIVER_INTERRUPT_H
#define DRIVER_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE first remove what is unfinished; those that were
 * ignored stay so. */
void catch_interrupts(void);

/* The folder of an output: its temporaries of this process (.hadal-PID-..) are removed. */
void clean_beside(const char *path);
/* Makes a temporary folder, as mkdtemp does (false: errno says why), which is removed with all
 * files in it. No signal comes between the two. There is one at a time, until it is forgotten. */
bool make_clean_folder(char *dir);
void forget_folder(void);

/* From now on the first SIGINT only sets what was_interrupted tells; the next one ends the command
 * as above. Where SIGINT was ignored it stays so. */
void defer_interrupt(void);
bool was_interrupted(void);

#endif
