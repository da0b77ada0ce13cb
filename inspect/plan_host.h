/* A host as `hadal plan` sees it: a few rates and sizes. */
#ifndef INSPECT_PLAN_HOST_H
#define INSPECT_PLAN_HOST_H

#include "support/diag.h"

typedef enum plan_fact {
#define F(id, name, key, unit, needed, text) PLAN_##id,
#include "inspect/plan_facts.def"
#undef F
#define R(id, key, matrix, calls, activations, text) PLAN_##id,
#include "inspect/plan_reached.def"
#undef R
    PLAN_FACTS
} plan_fact;
enum {
    PLAN_REACHED = PLAN_MANY_F32
}; /* the rest are the shares that kernels reach, inspect/plan_reached.def */

typedef struct plan_host {
    double fact[PLAN_FACTS]; /* bytes, per second, seconds, shares; 0: not known, or no such unit */
} plan_host;

/* Parses "FILE.json,name=value,..": facts from a file of `hadal machine --json`, and single facts,
 * which replace those of the file. False, and a diagnostic, where one is wrong. */
bool plan_host_parse(hd_diags *d, const char *text, plan_host *out);
/* False, and a diagnostic that names them, if facts that `most_hosts` hosts need are missing. */
bool plan_host_check(hd_diags *d, const plan_host *h, int64_t most_hosts);

const char *plan_fact_name(plan_fact f); /* "flops", "reached.f32" */
const char *plan_fact_key(plan_fact f);  /* in the file of a machine: "f32 multiply-add", "f32" */

#endif
