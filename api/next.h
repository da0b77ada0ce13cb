/* The likeliest next tokens. */
#ifndef API_NEXT_H
#define API_NEXT_H

#include "api/session.h"

/* For hadal_next_tokens: the `most` largest of n logits. False and a diagnostic if they are no
 * numbers. */
bool api_keep_next(hadal_session *s, const float *logits, size_t n, int64_t most);

#endif
