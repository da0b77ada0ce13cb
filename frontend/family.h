/* Families of models, each a page frontend/std/families/NAME.hadal: which there are, and one of
 * them applied to a config.json. */
#ifndef HFE_FAMILY_H
#define HFE_FAMILY_H

#include "frontend/config.h"

/* The spec of a folder's config by the page of its family. */
char *hfe_import_family(hfe_program *p, hfe_json *j, const char *name);

#endif
