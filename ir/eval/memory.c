/* Memory of a call: values reuse the memory of dead values of the same size.
 *
 * Which value's memory a value shares, and the last op that reads it, are the same in every call
 * and computed once. Views (reshape, kernel results) share the memory of the value they view.
 * Nothing is freed while there is an observer, which may look at any value until the call ends.
 */
#include <string.h>

#include "ir/eval/private.h"

/* ---- liveness, once per evaluator ------------------------------------------------------------ */

static hir_id memory_of(const hir_eval *e, hir_ref ref) {
    return ref.kind == HIR_REF_VALUE ? e->memory[ref.index] : HIR_NONE;
}

/* Sets the memory of an op's results. */
static void place_results(hir_eval *e, const hir_op *op) {
    if (op->code == HIR_YIELD_OP) {
        const hir_op *kernel = hir_op_at(e->m, op->parent);
        for (uint32_t i = 0; i < op->n_args && i < kernel->n_results; i++)
            e->memory[kernel->results[i]] = memory_of(e, op->args[i]);
    } else if (hir_has_trait(op->code, HIR_VIEW)) {
        const uint32_t state = hir_state_operand(op->code);
        e->memory[op->results[0]] = memory_of(e, op->args[state == HIR_NONE ? 0 : state]);
    } else if (!hir_is_kernel(op)) {
        for (uint32_t i = 0; i < op->n_results; i++)
            e->memory[op->results[i]] = op->results[i];
    }
}

/* Numbers the ops from `first` on in the order in which run_list in eval.c runs them. */
static uint32_t follow(hir_eval *e, hir_id first, uint32_t step) {
    HIR_EACH(e->m, id, first) {
        const hir_op *op = hir_op_at(e->m, id);
        uint32_t now = step++;
        step = follow(e, op->body_first, step);
        place_results(e, op);
        for (uint32_t i = 0; i < op->n_args; i++) {
            hir_id memory = memory_of(e, op->args[i]);
            if (memory != HIR_NONE) e->last[memory] = now;
        }
        for (uint32_t i = 0; i < op->n_results; i++)
            if (e->memory[op->results[i]] == op->results[i]) e->last[op->results[i]] = now;
    }
    return step;
}

void eval_find_lives(hir_eval *e) {
    e->memory = hd_new_array(e->arena, hir_id, e->m->values.n);
    e->last = hd_new_array(e->arena, uint32_t, e->m->values.n);
    for (size_t i = 0; i < e->m->values.n; i++)
        e->memory[i] = HIR_NONE; /* inputs and states have no memory of the call */
    follow(e, e->m->first, 0);
}

/* ---- allocating and freeing, in a call ------------------------------------------------------- */

static eval_pool *pool_of(eval_call *c, int64_t n) {
    for (size_t i = 0; i < c->pools.n; i++)
        if (c->pools.at[i].n == n) return &c->pools.at[i];
    hd_push(c->scratch, &c->pools, ((eval_pool){.n = n}));
    return &c->pools.at[c->pools.n - 1];
}

double *eval_take(eval_call *c, int64_t n) {
    eval_pool *pool = pool_of(c, n);
    if (pool->free.n) {
        double *at = pool->free.at[--pool->free.n];
        return memset(at, 0, (size_t)n * sizeof *at);
    }
    if (n > HIR_EVAL_MAX_ELEMENTS - c->elements) return NULL;
    c->elements += n;
    return hd_new_array(c->scratch, double, (size_t)n);
}

static void give(eval_call *c, hir_id memory, uint32_t step) {
    if (memory == HIR_NONE || c->e->last[memory] != step) return;
    hir_array *a = &c->values[memory];
    if (!a->at) return; /* an operand named twice */
    eval_pool *pool = pool_of(c, a->n);
    hd_push(c->scratch, &pool->free, a->at);
    a->at = NULL;
}

void eval_give_dead(eval_call *c, const hir_op *op, uint32_t step) {
    if (c->observe) return;
    for (uint32_t i = 0; i < op->n_args; i++)
        give(c, memory_of(c->e, op->args[i]), step);
    for (uint32_t i = 0; i < op->n_results; i++)
        give(c, c->e->memory[op->results[i]], step);
}
