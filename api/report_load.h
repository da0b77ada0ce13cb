/* What reports are made of besides specs. */
#ifndef API_REPORT_LOAD_H
#define API_REPORT_LOAD_H

#include "api/session.h"

/* The text of a profile that `hadal run --profile=FILE.json` wrote of the module as it stands; NULL
 * and a diagnostic: it is no such profile. */
const char *api_read_profile(hadal_session *s, const char *path);

#endif
