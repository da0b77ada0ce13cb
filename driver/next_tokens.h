/* hadal run: what the model would say next. */
#ifndef DRIVER_NEXT_TOKENS_H
#define DRIVER_NEXT_TOKENS_H

#include "driver/prompt.h"

/* A table of what the last hadal_run found, to standard output. */
int print_next_tokens(hadal_session *s, const prompt *p);

#endif
