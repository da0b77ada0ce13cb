/* How fast kernels run on a host: the limits of the host times the shares that kernels reach of
 * them. The shares are measured on the host, or come from a table. */
#ifndef INSPECT_PLAN_RATES_H
#define INSPECT_PLAN_RATES_H

#include "inspect/plan.h"

/* Operations per second of a step, in a call of many rows or of one. */
double plan_rate(const plan_host *h, const plan_stage *stage, const plan_step *s, bool many);
/* The share of `memory read`, or of the rate of caches, that a step with a matrix of this type
 * reaches. */
double plan_read_share(const plan_host *h, hir_dtype matrix);
/* Seconds that a kernel takes besides its work: its start, and the barrier at its end. */
double plan_overhead(double barrier);

/* Kinds of products that are measured, and the fact of the host that holds the share of such a
 * product; PLAN_FACTS: it is not measured. */
typedef enum plan_calls {
    PLAN_CALLS_MANY,
    PLAN_CALLS_ATTENTION,
    PLAN_CALLS_ROW,
    PLAN_CALLS_READ
} plan_calls;
plan_fact plan_reached(plan_calls calls, hir_dtype matrix, bool rounded);
/* May activations be rounded for this type of matrix, given that rounding to bytes (`int8`) or to
 * bf16 is allowed? */
bool plan_may_round(hir_dtype matrix, bool int8, bool bf16);
/* How many of the shares are known of the host. */
int plan_reached_known(const plan_host *h);

#endif
