/* The reference evaluator: runs a module of any stage in float64, simply and slowly. Every pass and
 * every kernel is tested against it.
 *
 * Its modules have been verified (hir_verify). What depends on the arguments of a call (token ids,
 * sizes with T and C) is checked here; errors are diagnostics.
 */
#ifndef HIR_EVAL_H
#define HIR_EVAL_H

#include "ir/ir.h"

/* Most elements (of 8 bytes) of all values of one call; more is a diagnostic, so that the machine
 * does not run out of memory. */
#define HIR_EVAL_MAX_ELEMENTS ((int64_t)1 << 30)

/* Writes weight number w to `out` as doubles, already rounded to its storage dtype if that is
 * narrower than f32 (row-major, whatever the layout). Called once per weight and evaluator. Of
 * derived weights only those that are stored in groups come here: `out` holds their numbers
 * already, which are to be rounded. False: the evaluation fails (diagnostic added). */
typedef bool (*hir_weight_source)(void *context, const hir_module *m, uint32_t w, double *out,
                                  hd_diags *d);
/* Seeded random weights of ordinary size: normal / sqrt(fan in) for matrices, 1 + 0.1 normal for
 * vectors and scalars. They depend on the seed and the weight's name only, so they are the same at
 * every stage. All values are exact in bf16 and in f16, so that narrower storage changes no result.
 * `context`: const uint64_t *seed. */
bool hir_random_weights(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d);

typedef struct hir_eval hir_eval; /* weights and state over time */
hir_eval *hir_eval_new(hd_arena *a, const hir_module *m, hir_weight_source source, void *context);
/* A sharded module is evaluated for all its ranks side by side, op by op. Results and observed
 * values are those of rank 0; it is an error of the call if another rank has other results. The
 * stages of a pipeline run side by side, too, each until it waits for what another has to send; all
 * take the same inputs, and their results are put together. */
hir_eval *hir_eval_new_pipeline(hd_arena *a, const hir_module *const *stages, size_t n,
                                hir_weight_source source, void *context);

/* For comparing one pipeline stage with the same stage: what it receives is random, numbered in the
 * order of its receives, and what it sends is among its outputs. */
void hir_eval_alone(hir_eval *e);

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

/* The output called `name`; NULL: there is none. */
const hir_array *hir_find_output(const hir_results *results, const char *name);

/* One call with `tokens` rows (at least 1); inputs in the module's order (i32 ids as doubles).
 * State advances by `tokens`; if the call fails it is unchanged. Results are allocated in
 * `scratch`. `observe` (NULL: none) is called for every result of an op, for those of a kernel
 * after its body; the arrays it is given are in `scratch` too, except the contents of state, which
 * the next call may overwrite. It may change the numbers of what an op makes (of a view it would
 * change the operand's): the ops after it read what it leaves. */
typedef void (*hir_observer)(void *context, const hir_module *m, hir_id op, hir_id value,
                             const hir_array *a);
bool hir_eval_call(hir_eval *e, hd_arena *scratch, hd_diags *d, int64_t tokens,
                   const double *const *inputs, hir_results *out, hir_observer observe,
                   void *observe_context);
int64_t hir_eval_length(const hir_eval *e);
/* Back to an earlier length. False, and no change, for a negative length, for one above the present
 * length, and for one between 0 and the present where a state can only be cleared (states.def). */
bool hir_eval_rewind(hir_eval *e, int64_t length);

/* ---- comparing modules ----------------------------------------------------------------------- */

typedef struct hir_difference {
    bool found;
    int call;             /* which call showed it, from 0 */
    int64_t tokens;       /* of that call */
    const char *name;     /* first output or trace that differs */
    hir_id output;        /* its op in `after` */
    double error;         /* max |a-b| / max |a| */
    double before, after; /* the two elements with the largest difference, */
    int64_t at;           /* their row-major index */
    /* The first value of `after`, in program order, that differs from the value with the same
     * number, op and type in `before` (passes do not renumber values they keep); HIR_NONE: none. */
    hir_id first_value, first_op;
    double first_error;
} hir_difference;

/* Evaluates both on the same seeded random weights and inputs, in three calls (a prefill, one
 * token, another chunk), and compares outputs by name, and the traces that both have. Results that
 * rounding alone changes by more than `tolerance` may differ so much. False: one of them could not be
 * evaluated (diagnostic); else *out says whether they differ. */
bool hir_first_difference(const hir_module *before, const hir_module *after, double tolerance,
                          uint64_t seed, hd_diags *d, hir_difference *out);

/* The same, with the result as diagnostics: true if all outputs agree within `tolerance` (max |a-b|
 * / max |a|); otherwise an error with the first output that differs, its op and location, the size
 * of the difference, and the first value known to differ. */
bool hir_same_answer(const hir_module *before, const hir_module *after, double tolerance,
                     uint64_t seed, hd_diags *d);
/* Are the gradients of `after` those of the losses of `before`, of which differentiate has made it?
 * Along one random direction, within `tolerance` of the sum of what each weight has to do with it. */
bool hir_right_gradients(const hir_module *before, const hir_module *after, double tolerance,
                         uint64_t seed, hd_arena *scratch, hd_diags *d);
/* The number of ids that are legal for input `i`, ids: of the smallest table, or choice, that they
 * index. */
int64_t hir_fewest_ids(const hir_module *m, size_t i);
/* The same as hir_same_answer for a module and the stages of a pipeline, which are evaluated together. */
bool hir_same_answer_of_stages(const hir_module *before, const hir_module *const *stages, size_t n,
                               double tolerance, uint64_t seed, hd_diags *d);

#endif
