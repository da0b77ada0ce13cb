/* The model of a family, written out for one config.json: a spec that a person could have written.
 *
 * Names of the config become their values, except those declared with `param` (and `option`), which
 * become parameters of the spec. What is decided by the config is decided here: branches that are
 * not taken, loops that run once, arguments that have their function's default, and parameters that
 * nothing uses are left out. A function of a config (`depth.start(x)`) is written out where it is
 * called. */
#ifndef HFE_SPECIALISE_H
#define HFE_SPECIALISE_H

#include "frontend/config/config.h"

/* The spec named `name`; NULL and errors if the page asks for what cannot be written out. */
char *hfe_specialise(hfe_elab *e, const hfe_def *model, const char *name);

#endif
