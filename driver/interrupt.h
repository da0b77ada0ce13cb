/* What a command leaves when a signal ends it: nothing that is not complete. */
#ifndef DRIVER_INTERRUPT_H
#define DRIVER_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE first remove what is unfinished, and say that
 * they came; those that were ignored stay so. */
void catch_interrupts(void);

/* The folder of an output, or a folder of outputs: its temporaries of this process (.hadal-PID-..)
 * are removed. */
void clean_beside(const char *path);
void clean_in(const char *dir);

/* Files that are of use together alone: from now on a signal removes this one, too, until all of
 * them are there (`complete`), or have failed and are removed. */
bool begin_output(const char *path); /* false: no memory */
void end_outputs(bool complete);
/* Of NAME.weights the shares of ranks as well, NAME.r0of4.weights and so on. */
void remove_output(const char *path);

/* Makes a temporary folder, as mkdtemp does (false: errno says why), which is removed with all
 * files in it. No signal comes between the two. There is one at a time, until it is forgotten. */
bool make_clean_folder(char *dir);
void forget_folder(void);

/* From now on the first SIGINT only sets what was_interrupted tells; the next one ends the command
 * as above. Where SIGINT was ignored it stays so. */
void defer_interrupt(void);
bool was_interrupted(void);

#endif
