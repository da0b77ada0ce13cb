/* The contents of a session, shown through the views of inspect/. */
#ifndef API_LOOK_H
#define API_LOOK_H

#include "api/session.h"
#include "inspect/views.h"

/* A view of the module, of the last profile or of the benchmark, in an output form. NULL: what the
 * view needs is not there, or it failed (with a diagnostic), or it has no such form. */
const char *api_look(hadal_session *s, inspect_view view, inspect_form form);
/* The same for a view that evaluates the model, on these tokens. */
const char *api_look_at_work(hadal_session *s, inspect_view view, inspect_form form,
                             const int32_t *tokens, int64_t n);

#endif
