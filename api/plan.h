/* The steps of a program as `hadal plan` sees them: what type of matrix a kernel multiplies
 * with. */
#ifndef API_PLAN_H
#define API_PLAN_H

#include "codegen/program/program.h"
#include "inspect/plan.h"

plan_step api_plan_step(const hcg_program *p, size_t i);
/* Is the step part of an overlap of a collective with kernels? */
bool api_is_beside(const hcg_program *p, size_t step);

#endif
