/* Sizes for people. */
#ifndef INSPECT_UNITS_H
#define INSPECT_UNITS_H

#include "support/text.h"

const char *inspect_bytes(hd_arena *a, uint64_t bytes); /* "1.50 MiB" */

#endif
