/* What reports are made of besides specs. */
#ifndef API_REPORT_H
#define API_REPORT_H

#include "api/session.h"
#include "report/report.h"

/* The text of a profile that `hadal run --profile=FILE.json` wrote of the module as it stands; NULL
 * and a diagnostic: it is no such profile. */
const char *api_read_profile(hadal_session *s, const char *path);

/* Functions and steps of the module as it stands, for one CPU level; NULL, and a diagnostic.
 * Functions have the ranges of their code, and `listings` if they are asked for. */
const report_code *api_report_code(hadal_session *s, const hadal_target *target, bool listings);

/* Is it the name of a dump of a pass, "07-fuse.hir"? Its parts. */
bool api_is_dump(const char *name, int *index, const char **pass);

#endif
