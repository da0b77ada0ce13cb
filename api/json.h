/* JSON as the facts of a model are printed in. */
#ifndef API_JSON_H
#define API_JSON_H

#include "support/text.h"

void api_json_string(hd_text *out, const char *s);
void api_json_key(hd_text *out, const char *key); /* "key": */

#endif
