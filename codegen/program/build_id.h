/* Build ids show which library, header and weights were made together. */
#ifndef HCG_BUILD_ID_H
#define HCG_BUILD_ID_H

#include "codegen/program/program.h"

/* hcg_program.id: XXH3-128 of the version of Hadal and of the kernel IR, the same for all targets and
 * under every name of the module. Lowering computes it once, since it prints the whole IR. */
void hcg_program_id(hcg_program *p);
/* The build id of the library, in the format of runtime/build_id.h. It includes the values of the
 * weights if they have been packed (hcg_pack). */
const char *hcg_build_id(hcg_program *p);

#endif
