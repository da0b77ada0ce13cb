/* `quantization_config` of a config.json: how the weights next to the file are quantised. */
#ifndef HFE_QUANTISATION_H
#define HFE_QUANTISATION_H

#include "frontend/config/json.h"
#include "support/quantisation.h"
#include "support/tensorfile.h"

/* Reads and checks it, at the top of a config or in the part of it that is the language model.
 * Returns false after every fault has been reported at its place. If it is absent, out->given is
 * false. If `out` is NULL, it is only checked, and warnings are left to the code that reads the
 * weights. */
bool hfe_read_quantisation(hfe_json *j, hd_quantisation *out);

/* Does the same for weights: the config.json is in the folder `weights`, or next to the file
 * `weights`. It may be absent. */
bool hfe_quantisation_of(hd_arena *a, hd_diags *d, const char *weights, hd_quantisation *out);

/* Returns the tensors in the folder of a config.json. Quantised tensors appear as the weights that
 * they stand for, so that a weight has one name however it is stored. Nothing is reported, and an
 * unreadable folder has no tensors: faults of the files are reported when they are read for
 * compilation. */
hd_tensors hfe_tensors_beside(hd_arena *a, const char *config);

#endif
