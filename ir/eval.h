/* The reference evaluator: any stage, float64, slow and obvious. It is the oracle for every pass
 * and every kernel. */
#ifndef HIR_EVAL_H
#define HIR_EVAL_H

#include "ir/ir.h"

/* Gives weight number w as doubles, already rounded to its storage dtype (row-major, whatever the
 * layout). Called once per weight and evaluator. False: the evaluation fails (diagnostic added). */
typedef bool (*hir_weight_source)(void *context, const hir_module *m, uint32_t w, double *out,
                                  hd_diags *d);
/* Seeded random weights of sensible size: normal / sqrt(fan in) for matrices, 1 + 0.1 normal for
 * vectors. The seed and the weight's name decide: the same at every stage and for every pass.
 * `context`: const uint64_t *seed. */
bool hir_random_weights(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d);

typedef struct hir_eval hir_eval; /* weights and state over time */
hir_eval *hir_eval_new(hd_arena *a, const hir_module *m, hir_weight_source source, void *context);

typedef struct hir_array { /* a result: row-major doubles, T and C already numbers */
    const char *name;
    hir_type type;
    double *at;
    int64_t n;
} hir_array;

typedef struct hir_results {
    HD_VEC(hir_array) outputs; /* ops `output`, in order */
    HD_VEC(hir_array) traces;  /* ops `trace`, named name.M */
} hir_results;

/* One call with `tokens` rows; inputs in the module's order (i32 ids as doubles). State advances by
 * `tokens`. Results live in `scratch`. Every value may be observed (NULL: none). */
typedef void (*hir_observer)(void *context, const hir_module *m, hir_id op, hir_id value,
                             const hir_array *a);
bool hir_eval_call(hir_eval *e, hd_arena *scratch, hd_diags *d, int64_t tokens,
                   const double *const *inputs, hir_results *out, hir_observer observe,
                   void *observe_context);
int64_t hir_eval_length(const hir_eval *e);
void hir_eval_rewind(hir_eval *e, int64_t length);

/* Compares two modules on seeded random inputs (two calls: a prefill and one token). True if all
 * outputs agree within `tolerance` (max |a-b| / max |a|); otherwise a diagnostic that names the
 * first output, its op with location, and the error. */
bool hir_same_answer(const hir_module *before, const hir_module *after, double tolerance,
                     uint64_t seed, hd_diags *d);

#endif
