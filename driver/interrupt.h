/* What a command leaves when a signal ends it: nothing that is not complete. */
#ifndef DRIVER_INTERRUPT_H
#define DRIVER_INTERRUPT_H

#include <stdbool.h>

/* From now on every signal that ends the process (but SIGKILL) first removes what is unfinished, and
 * says that it came; those that were ignored stay so. */
void catch_interrupts(void);

/* The folder of an output, or a folder of outputs: its temporaries of this process (.hadal-PID-..)
 * are removed. */
void clean_beside(const char *path);
void clean_in(const char *dir);

/* Between the two the command has files that are of use together alone (hadal_build): whom a signal
 * ends, it tells that none is left. */
void begin_outputs(void);
void end_outputs(void);
/* Between the two no signal comes: they get their names. */
void hold_signals(void);
void let_signals(void);

/* Makes a temporary folder, as mkdtemp does (false: errno says why), which is removed with all
 * files in it. No signal comes between the two. There is one at a time, until it is forgotten. */
bool make_clean_folder(char *dir);
void forget_folder(void);

/* From now on the first SIGINT only sets what was_interrupted tells; the next one ends the command
 * as above. Where SIGINT was ignored it stays so. */
void defer_interrupt(void);
bool was_interrupted(void);

#endif
