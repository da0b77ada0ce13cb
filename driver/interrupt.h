/* What a command leaves when a signal ends it: complete files only. */
#ifndef DRIVER_INTERRUPT_H
#define DRIVER_INTERRUPT_H

#include <stdbool.h>

/* From now on every signal that ends the process (except SIGKILL) first removes unfinished files,
 * and reports the signal. Signals that were ignored stay so. */
void catch_interrupts(void);

/* Names a directory of outputs, or an output in it: on a signal the temporary files of this process
 * there (.hadal-PID-START-..) are removed. */
void clean_beside(const char *path);
void clean_in(const char *dir);

/* Between the two calls the command writes files that are only of use together (hadal_build). A
 * signal in between reports that none of them is left. */
void begin_outputs(void);
void end_outputs(void);
/* Between the two calls all signals are held back, while outputs get their final names. */
void hold_signals(void);
void let_signals(void);

/* Makes a temporary directory, as mkdtemp does (false: errno says why); a signal removes it with
 * all files in it. Signals are held back while it is made. There is one such directory at a time,
 * until it is forgotten. */
bool make_clean_folder(char *dir);
void forget_folder(void);

/* From now on the first SIGINT only sets what was_interrupted returns, which is false before; the
 * next one ends the command as described above. If SIGINT was ignored it stays so. */
void defer_interrupt(void);
void defer_ends(void); /* the same of SIGINT and SIGTERM */
bool was_interrupted(void);
int interrupted_by(void); /* which of them it was; 0: none */
void resume_interrupts(void); /* from now on the first SIGINT ends the command again */

#endif
