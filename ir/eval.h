/* The reference evaluator: any stage, float64, slow and obvious. It is the oracle for every pass
 * and every kernel.
 *
 * Modules given to it have been verified (hir_verify). What depends on the numbers of a call (token
 * ids, sizes with T and C) is checked here; failures are diagnostics.
 */
#ifndef HIR_EVAL_H
#define HIR_EVAL_H

#include "ir/ir.h"

/* Elements (of 8 bytes) that the values of one call may have in all: what is beyond is a diagnostic
 * and not a machine out of memory. */
#define HIR_EVAL_MAX_ELEMENTS ((int64_t)1 << 30)

/* Gives weight number w as doubles, already rounded to its storage dtype (row-major, whatever the
 * layout). Called once per weight and evaluator. False: the evaluation fails (diagnostic added). */
typedef bool (*hir_weight_source)(void *context, const hir_module *m, uint32_t w, double *out,
                                  hd_diags *d);
/* Seeded random weights of sensible size: normal / sqrt(fan in) for matrices, 1 + 0.1 normal for
 * vectors and scalars. The seed and the weight's name decide: the same at every stage and for every
 * pass. All values are exact in bf16 and in f16, so that narrowing the storage changes nothing.
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

/* One call with `tokens` rows (at least 1); inputs in the module's order (i32 ids as doubles).
 * State advances by `tokens`, or stays as it was when the call fails. Results live in `scratch`.
 * Every value that an op makes may be observed (NULL: none), kernel results after their bodies;
 * what the observer is shown lives in `scratch` too, but for the contents of state, which the next
 * call may overwrite. */
typedef void (*hir_observer)(void *context, const hir_module *m, hir_id op, hir_id value,
                             const hir_array *a);
bool hir_eval_call(hir_eval *e, hd_arena *scratch, hd_diags *d, int64_t tokens,
                   const double *const *inputs, hir_results *out, hir_observer observe,
                   void *observe_context);
int64_t hir_eval_length(const hir_eval *e);
/* Back to an earlier length. A length that state does not reach, or a negative one, changes nothing
 * and returns false; so does one between 0 and the present where a state can only be cleared
 * (states.def). */
bool hir_eval_rewind(hir_eval *e, int64_t length);

/* ---- comparing modules ----------------------------------------------------------------------- */

typedef struct hir_difference {
    bool found;
    int call;             /* which call showed it, from 0 */
    int64_t tokens;       /* of that call */
    const char *name;     /* first output or trace that differs */
    hir_id output;        /* its op in `after` */
    double error;         /* max |a-b| / max |a| */
    double before, after; /* the two numbers that are farthest apart, */
    int64_t at;           /* and their row-major index */
    /* The earliest value of `after` that differs from the value of the same number, op and type in
     * `before` (passes keep the numbers of what they leave alone); HIR_NONE: there is none. */
    hir_id first_value, first_op;
    double first_error;
} hir_difference;

/* Evaluates both on the same seeded random weights and inputs, in three calls (a prefill, one
 * token, another chunk), and compares outputs by name, and traces that both have. False: it cannot
 * be done (diagnostic); else *out says whether they differ. */
bool hir_first_difference(const hir_module *before, const hir_module *after, double tolerance,
                          uint64_t seed, hd_diags *d, hir_difference *out);

/* The same with its verdict as diagnostics: true if all outputs agree within `tolerance`
 * (max |a-b| / max |a|); otherwise an error that names the first output, its op with location, the
 * error, and the earliest value known to differ. */
bool hir_same_answer(const hir_module *before, const hir_module *after, double tolerance,
                     uint64_t seed, hd_diags *d);

#endif
