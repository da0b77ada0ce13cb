/* `quantization_config` of a config.json: what it says about the weights beside it. */
#ifndef HFE_QUANTISATION_H
#define HFE_QUANTISATION_H

#include "frontend/config/json.h"
#include "support/quantisation.h"
#include "support/tensorfile.h"

/* Reads and checks it, at the top of a config or in the part of it that is the language model.
 * False: every fault is reported at its place. Absent: out->given is false. `out` NULL: it is only
 * checked, and warnings are left to who reads the weights. */
bool hfe_read_quantisation(hfe_json *j, hd_quantisation *out);

/* The same for weights: of the config.json in the folder `weights`, or beside the file, if there is
 * one. */
bool hfe_quantisation_of(hd_arena *a, hd_diags *d, const char *weights, hd_quantisation *out);

/* The tensors in the folder of a config.json, quantised ones as the weights that they are: what a
 * page asks for has one name in whatever form it is stored. In silence, none if there are none:
 * what is wrong with the files is said when they are read. */
hd_tensors hfe_tensors_beside(hd_arena *a, const char *config);

#endif
