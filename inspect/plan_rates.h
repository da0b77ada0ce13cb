/* How fast kernels are on a host: its limits times the shares that they reach, which the host has
 * been measured for, or which a table has. */
#ifndef INSPECT_PLAN_RATES_H
#define INSPECT_PLAN_RATES_H

#include "inspect/plan.h"

/* Operations per second of a step, in a call of many rows or of one. */
double plan_rate(const plan_host *h, const plan_stage *stage, const plan_step *s, bool many);
/* The share of `memory read`, or of what caches give, that a step of one type of matrix reaches. */
double plan_read_share(const plan_host *h, hir_dtype matrix);
/* Seconds that a kernel takes besides its work: it begins, and the threads meet at its end. */
double plan_overhead(double barrier);

/* What is measured of products with a matrix: the fact of the host; PLAN_FACTS: nothing is. */
typedef enum plan_calls {
    PLAN_CALLS_MANY,
    PLAN_CALLS_ATTENTION,
    PLAN_CALLS_ROW,
    PLAN_CALLS_READ
} plan_calls;
plan_fact plan_reached(plan_calls calls, hir_dtype matrix, bool rounded);
/* Are activations rounded for this type of matrix, where they may be to bytes, and to bf16? */
bool plan_may_round(hir_dtype matrix, bool int8, bool bf16);
/* How many of them are known of the host. */
int plan_reached_known(const plan_host *h);

#endif
