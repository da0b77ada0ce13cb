/* trainer.state: the bytes of a trainer, as it saves itself, and behind them their digest. */
#ifndef API_TRAIN_STATE_H
#define API_TRAIN_STATE_H

#include "api/session.h"

bool train_state_write(hd_arena *a, hd_diags *d, const char *path, hd_bytes state);
/* The bytes of a trainer that saves `n` of them, mapped. */
bool train_state_read(hadal_session *s, const char *path, size_t n, hd_bytes *out);
/* False, and a diagnostic: the run cannot go on from this file. */
bool train_bad_state(hadal_session *s, const char *path, const char *why);

#endif
