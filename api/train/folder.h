/* The folder of a run: its lock, and its checkpoints by their names. */
#ifndef API_TRAIN_FOLDER_H
#define API_TRAIN_FOLDER_H

#include "api/session.h"

typedef struct train_folder {
    hadal_session *s;
    const char *path, *record, *log; /* RUN, RUN/run.json, RUN/log.jsonl */
    int fd, lock;                    /* -1: not open */
    bool made;                       /* by train_folder_open */
    bool has_run;                    /* there is a run.json */
} train_folder;

/* Makes the folder, if it is not there, and takes its lock. False, and a diagnostic: it cannot be
 * made, another process trains in it, or it has other files and no run. What processes that were
 * killed have left is removed. */
bool train_folder_open(train_folder *f, hadal_session *s, const char *path);
/* Gives the lock back. A folder that was made for a run that has not begun is removed. */
void train_folder_close(train_folder *f);

/* RUN/checkpoint-STEP */
const char *train_checkpoint_path(hd_arena *a, const train_folder *f, int64_t step);
/* The step of the last checkpoint; 0: there is none. -1, and a diagnostic: the folder cannot be
 * read. */
int64_t train_last_checkpoint(const train_folder *f);
/* For a run that is named where a model is wanted: which of its checkpoints to name. NULL: it is no
 * run, or has none. */
const char *train_hint_at_checkpoint(hd_arena *a, const char *path);
/* Removes all checkpoints but the last `keep`; 0: none is removed. */
void train_remove_old(const train_folder *f, int64_t keep);
/* Reports an error of the system on a file of the run. Returns false. */
bool train_io_error(hadal_session *s, const char *doing, const char *path, int error);

#endif
