/* Functions whose code two levels have in common: only the lesser level's is made. */
#ifndef HCG_SAME_CODE_H
#define HCG_SAME_CODE_H

#include "codegen/emit/emit.h"

/* Finds what each variant has in common with the next (variant.same). Which functions these are
 * depends on the program and the levels alone. */
void hcg_find_same_code(hcg_program *p, hcg_target *t);

#endif
