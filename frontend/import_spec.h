/* A checked config as the text of a spec. */
#ifndef HFE_IMPORT_SPEC_H
#define HFE_IMPORT_SPEC_H

#include "frontend/import_config.h"

/* `name`: a C identifier. */
void hfe_write_spec(hd_text *out, const hfe_config *c, const char *name);

#endif
