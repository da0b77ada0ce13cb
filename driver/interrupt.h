/* What a command leaves when a signal ends it: nothing that is not complete. */
#ifndef DRIVER_INTERRUPT_H
#define DRIVER_INTERRUPT_H

/* From now on SIGINT, SIGTERM and SIGHUP first remove what is unfinished; those that were ignored
 * stay so. */
void catch_interrupts(void);

/* The folder of an output: its temporaries of this process (.hadal-PID-..) are removed. */
void clean_beside(const char *path);
/* A temporary folder: it is removed with all files in it. NULL: there is none any more. */
void clean_folder(const char *dir);

#endif
