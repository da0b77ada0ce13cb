/* What is asked of a model whose gradients are wanted. */
#ifndef API_GRADIENTS_H
#define API_GRADIENTS_H

#include "api/session.h"

/* Always false: a diagnostic says why something is not done for gradients. */
bool api_reject_gradients(hadal_session *s, const char *why, const char *hint);
/* False, and a diagnostic: an option asks for what gradients do not have, or weights are stored as
 * codes. Sets the longest sequence where it is not given. */
bool api_may_differentiate(hadal_session *s, const hadal_pipeline *p);

#endif
