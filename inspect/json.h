/* JSON as the facts of a model are printed in. */
#ifndef INSPECT_JSON_H
#define INSPECT_JSON_H

#include "support/text.h"

void inspect_json_string(hd_text *out, const char *s);
void inspect_json_key(hd_text *out, const char *key); /* "key": */
/* Six digits, for pictures; null where there is no number, or none that JSON has. */
void inspect_json_rounded(hd_text *out, bool there, double x);

#endif
