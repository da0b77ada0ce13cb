#ifndef API_REPORT_CODE_H
#define API_REPORT_CODE_H

#include "api/session.h"
#include "report/report.h"

/* Functions and steps of the module as it stands, for one CPU level; NULL, and a diagnostic.
 * Functions have the ranges of their code, and `listings` if they are asked for. */
const report_code *api_report_code(hadal_session *s, const hadal_target *target, bool listings);

#endif
