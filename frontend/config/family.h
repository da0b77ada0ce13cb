/* Families of models, each a page frontend/std/families/NAME.hadal: which families there are, and
 * one of them applied to a config.json. */
#ifndef HFE_FAMILY_H
#define HFE_FAMILY_H

#include "frontend/config/config.h"

/* Returns the spec of a folder's config, made by the page of its family. */
char *hfe_import_family(hfe_program *p, hfe_json *j, const char *name);
/* Does the same with the given config. */
char *hfe_import_as(hfe_program *p, hfe_json *j, const hfe_def *config, const char *name);

typedef struct hfe_family {
    const char *name;
    const hfe_def *config;
} hfe_family;

typedef struct hfe_families {
    HD_VEC(hfe_family) list;
} hfe_families;

/* Returns the family that a config is closest to, for a message, or NULL if no family fits. Of
 * equal families, `plainest` is preferred. `*near`, a family or NULL, becomes NULL unless that
 * family accepts the config as it is. */
const char *hfe_closest_family(hfe_program *p, const hfe_json *j, const hfe_families *families,
                               const char *plainest, const char **near);

/* Returns the config that has the page's name, with underscores for dashes, or NULL. */
const hfe_def *hfe_page_config(hfe_program *p, const hfe_file *page, const char *name);
/* Returns the page's own model, or else that of the first used page which has one, or NULL. */
const hfe_def *hfe_page_model(const hfe_file *page);

/* Writes docs/families.md. */
void hfe_families_text(hd_arena *a, hd_diags *d, const hfe_options *options, hd_text *out);

#endif
