/* Inputs of reports besides specs. */
#ifndef API_REPORT_H
#define API_REPORT_H

#include "api/session.h"
#include "report/report.h"

/* Reads a profile that `hadal run --profile=FILE.json` wrote for the module as it stands. The
 * result is its text; NULL, and a diagnostic: the file is no such profile. */
const char *api_read_profile(hadal_session *s, const char *path);

/* Functions and steps of the module as it stands, for one CPU level; NULL, and a diagnostic, on
 * failure. Functions have the ranges of their code, and their listings if `listings` is set. */
const report_code *api_report_code(hadal_session *s, const hadal_target *target, bool listings);

/* Is `name` the name of a pass's dump, such as "07-fuse.hir"? Fills its parts. */
bool api_is_dump(const char *name, int *index, const char **pass);

#endif
