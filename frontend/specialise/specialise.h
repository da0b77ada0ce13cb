/* The model of a family, written out for one config.json: a spec that a person could have written.
 *
 * Names of the config become their values, except those declared with `param` (and `option`), which
 * become parameters of the spec. What is decided by the config is decided here: branches that are
 * not taken, loops that run once, arguments that have their function's default, and parameters that
 * nothing uses are left out. A function of a config (`depth.start(x)`) is written out where it is
 * called. */
#ifndef HFE_SPECIALISE_H
#define HFE_SPECIALISE_H

#include "frontend/language/elaborate.h"

typedef struct hfe_parameter { /* of the spec */
    const hfe_object *of;      /* the config that declares it */
    const char *name;
    bool used;
} hfe_parameter;

/* What the names of a family's model stand for. */
typedef struct hfe_bindings {
    hfe_object *config;           /* its variables, and in them the configs of parts of the file */
    HD_VEC(hfe_parameter) params; /* variables that stay names, in the order of declaration */
    HD_VEC(const char *) remarks; /* for the head of the spec */
} hfe_bindings;

/* The spec named `name`; NULL and errors if the page asks for what cannot be written out. */
char *hfe_specialise(hfe_elab *e, const hfe_def *model, hfe_bindings *bound, const char *name);

#endif
