/* Looking at what a session holds, through the views of inspect/. */
#ifndef API_LOOK_H
#define API_LOOK_H

#include "api/session.h"
#include "inspect/views.h"

/* A view of the module, of the last profile or of the benchmark, in a form. NULL: what it needs is
 * not there, or it failed (a diagnostic tells), or it has no such form. */
const char *api_look(hadal_session *s, inspect_view view, inspect_form form);
/* The same of a view that looks at the model at work, on these tokens. */
const char *api_look_at_work(hadal_session *s, inspect_view view, inspect_form form,
                             const int32_t *tokens, int64_t n);

#endif
