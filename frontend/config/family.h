/* Families of models, each a page frontend/std/families/NAME.hadal: which there are, and one of
 * them applied to a config.json. */
#ifndef HFE_FAMILY_H
#define HFE_FAMILY_H

#include "frontend/config/config.h"

/* The spec of a folder's config by the page of its family. */
char *hfe_import_family(hfe_program *p, hfe_json *j, const char *name);
/* The same by this config. */
char *hfe_import_as(hfe_program *p, hfe_json *j, const hfe_def *config, const char *name);

typedef struct hfe_family {
    const char *name;
    const hfe_def *config;
} hfe_family;

typedef struct hfe_families {
    HD_VEC(hfe_family) list;
} hfe_families;

/* The family that a config is closest to, for a message; NULL: it fits none. `plainest`: the one
 * that is taken of equals. `near`, a family or NULL, becomes NULL unless it takes the
 * config as it is. */
const char *hfe_closest_family(hfe_program *p, const hfe_json *j, const hfe_families *families,
                               const char *plainest, const char **near);

/* The config of a page that has its name, with underscores for dashes; NULL: there is none. */
const hfe_def *hfe_page_config(hfe_program *p, const hfe_file *page, const char *name);
/* The model of a page: its own, or that of the first page it uses which has one; NULL: none has. */
const hfe_def *hfe_page_model(const hfe_file *page);

/* docs/families.md */
void hfe_families_text(hd_arena *a, hd_diags *d, const hfe_options *options, hd_text *out);

#endif
