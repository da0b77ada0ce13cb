/* The model of a family, written out for one config.json: a spec that a person could have written.
 *
 * Names of the config become their values, except those declared with `param` (and `option`), which
 * become parameters of the spec. What the config decides is decided here: untaken branches, loops
 * that run once, arguments equal to their function's default, and unused parameters are left out. A
 * function of a config (`depth.start(x)`) is written out where it is called. */
#ifndef HFE_SPECIALISE_H
#define HFE_SPECIALISE_H

#include "frontend/language/elaborate.h"

typedef struct hfe_parameter { /* a parameter of the spec */
    const hfe_object *of;      /* the config that declares it */
    const char *name;
    bool used;
} hfe_parameter;

/* The meaning of the names in a family's model. */
typedef struct hfe_bindings {
    hfe_object *config;           /* its variables, among them the configs of parts of the file */
    HD_VEC(hfe_parameter) params; /* variables that stay names, in the order of their declaration */
    HD_VEC(const char *) remarks; /* comments for the head of the spec */
} hfe_bindings;

/* Returns the text of the spec called `name`, or NULL and errors if the page requires what cannot
 * be written out. */
char *hfe_specialise(hfe_elab *e, const hfe_def *model, hfe_bindings *bound, const char *name);

#endif
