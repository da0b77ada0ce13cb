/* Rounding weights to groups, in one variant for each vector width (forms.def). */
#ifndef HCG_LANES_FORMS_H
#define HCG_LANES_FORMS_H

#include "codegen/weights/quant.h"

#define F(name, runs) hcg_quantiser hcg_quantise_##name;
#include "codegen/weights/lanes/forms.def"
#undef F

#endif
