/* What the printer and the parser of the text form agree on. */
#ifndef HIR_TEXT_H
#define HIR_TEXT_H

#include "ir/ir.h"

enum { HIR_TEXT_VERSION = 1 };

const char *hir_stage_name(hir_stage stage);
const char *hir_place_name(hir_place place);
/* Letters, digits and _ . - /: what a name may hold without quotes. */
bool hir_plain_name_char(char c);
/* Letters, digits, _ and . and no digit in front: words such as op names and option keys. */
bool hir_is_word(const char *s);

#endif
