/* What is asked of a model whose gradients are wanted. */
#ifndef API_GRADIENTS_H
#define API_GRADIENTS_H

#include "api/session.h"

/* Always false: a diagnostic says why something is not done for gradients. */
bool api_reject_gradients(hadal_session *s, const char *why, const char *hint);
/* False, and a diagnostic: an option asks for what gradients do not have, or weights are stored as
 * codes. Sets the longest sequence where it is not given. */
bool api_may_differentiate(hadal_session *s, const hadal_pipeline *p);

/* The outputs of sublayers, as measured taps, each value once; NULL, and a diagnostic: there are
 * none. */
struct taps *api_output_taps(hadal_session *s);

/* ---- trainer_memory.c ---- */
/* Sets what the values of a sequence may take where memory is bounded. False, and a diagnostic: what
 * is compiled are no gradients, or they cannot be. */
bool api_bound_memory(hadal_session *s, const hadal_pipeline *p);
/* After the passes: false, and a diagnostic, if the bound is not held. */
bool api_holds_bound(hadal_session *s);
/* Adds a note on the memory of a trainer, when code has been generated. */
void api_tell_trainer_memory(hadal_session *s);

#endif
