/* RUN/log.jsonl: one object of JSON for each step, for each evaluation and for the magnitudes by
 * depth, in their order. */
#ifndef API_TRAIN_LOG_H
#define API_TRAIN_LOG_H

#include "api/session.h"

typedef struct train_log {
    hadal_session *s;
    const char *path;
    int fd;       /* -1: not open */
    hd_text line; /* a long one */
} train_log;

/* Opens the log, and cuts it after the lines of step `last`: a run goes on with the next one. What
 * is not a whole line at its end goes as well. False, and a diagnostic: it cannot be written, or has
 * a line that is none of a log. */
bool train_log_open(train_log *l, hadal_session *s, const char *path, int64_t last);
bool train_log_step(train_log *l, int64_t step, double loss, double lr, double norm);
bool train_log_evaluation(train_log *l, int64_t step, double loss);
/* `members` of the object, after its step. */
bool train_log_depth(train_log *l, int64_t step, const char *members);
bool train_log_sync(train_log *l); /* what was written is on the disk */
void train_log_close(train_log *l);

#endif
