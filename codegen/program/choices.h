/* Steps that run in some calls only. */
#ifndef HCG_CHOICES_H
#define HCG_CHOICES_H

#include "ir/ir.h"
#include "runtime/hadal_rt.h"

/* By op: of kernels, those of other ops are zero. The module is planned kernel IR. */
const hrt_choice *hcg_find_choices(hd_arena *a, const hir_module *m);

#endif
