/* The evaluator's states, by kind. A cache grows with the sequence, and a call that fails leaves
 * rows in it that do not count as valid. Scores are zeros at the beginning of each call. A state of fixed size is written in place, so it is copied
 * before each call. */
#include <string.h>

#include "ir/eval/private.h"

static bool grows(const hir_state *s) {
    return hir_state_kind_of(s->kind)->rows == HIR_ROWS_PER_POSITION;
}

/* Elements of scores in this call: for each position and token. */
static int64_t elements_of_call(const eval_call *c, const hir_state *s) {
    return hir_type_row_elements(s->type) * c->C * c->T;
}

static size_t fixed_bytes(const hir_state *s) {
    return (size_t)hir_type_row_elements(s->type) * sizeof(double);
}

void eval_new_states(hir_eval *e) {
    e->states = hd_new_array(e->arena, eval_state, e->m->states.n);
}

static bool may_rewind(const hir_eval *e, int64_t length) {
    for (size_t i = 0; length > 0 && i < e->m->states.n; i++)
        if (hir_state_kind_of(e->m->states.at[i].kind)->rewind == HIR_REWIND_CLEAR) return false;
    return true;
}

static void rewind_rank(hir_eval *e, int64_t length) {
    for (size_t i = 0; length == 0 && i < e->m->states.n; i++)
        if (!grows(&e->m->states.at[i]) && e->states[i].kept)
            memset(e->states[i].at, 0, fixed_bytes(&e->m->states.at[i]));
    e->length = length;
}

bool hir_eval_rewind(hir_eval *e, int64_t length) {
    if (length < 0 || length > e->length) return false;
    if (length == e->length) return true;
    for (const hir_eval *s = e; s; s = s->next_stage)
        if (!may_rewind(s, length)) return false;
    for (hir_eval *s = e; s; s = s->next_stage)
        for (hir_eval *r = s; r; r = r->next_rank)
            rewind_rank(r, length);
    return true;
}

void eval_state_array(const eval_call *c, uint32_t s, hir_array *out) {
    const hir_state *state = &c->m->states.at[s];
    *out = (hir_array){.name = state->name, .type = eval_concrete(c, state->type)};
    out->n = hir_type_row_elements(state->type);
    if (grows(state)) out->n *= c->C / c->e->states[s].rate;
    if (hir_is_of_call(state)) out->n = elements_of_call(c, state);
    out->at = c->e->states[s].at;
}

static void grow(eval_call *c, eval_state *state) {
    const int64_t held = c->e->length / state->rate, rows = c->C / state->rate;
    if (c->C > state->cap) {
        int64_t cap = c->C > 2 * state->cap ? c->C : 2 * state->cap;
        double *at = hd_new_array(c->e->arena, double, (size_t)(cap / state->rate * state->row));
        if (state->at) memcpy(at, state->at, (size_t)(held * state->row) * sizeof *at);
        state->at = at;
        state->cap = cap;
    }
    const size_t more = (size_t)((rows - held) * state->row);
    memset(state->at + held * state->row, 0, more * sizeof *state->at);
}

static void keep(hir_eval *e, const hir_state *info, eval_state *state) {
    const size_t n = (size_t)hir_type_row_elements(info->type);
    if (!state->at) {
        state->at = hd_new_array(e->arena, double, n);
        state->kept = hd_new_array(e->arena, double, n);
    }
    memcpy(state->kept, state->at, n * sizeof *state->at);
}

bool eval_begin_states(eval_call *c) {
    for (size_t s = 0; s < c->m->states.n; s++) {
        const hir_state *info = &c->m->states.at[s];
        const char *what = hd_printf(c->scratch, "state $%s", info->name);
        hir_array whole;
        if (!eval_shape_array(c, info->loc, what, info->type, &whole)) return false;
        if (hir_is_of_call(info) && hd_mul_overflow(whole.n, c->T, &whole.n))
            return eval_too_large(c, info->loc, what, whole.type);
        if (whole.n > HIR_EVAL_MAX_ELEMENTS - c->elements)
            return eval_too_large(c, info->loc, what, whole.type);
        c->elements += whole.n;
        c->e->states[s].row = grows(info) ? hir_type_row_elements(info->type) : 0;
        c->e->states[s].rate = hir_shape_of_state(info).rate;
    }
    for (size_t s = 0; s < c->m->states.n; s++) {
        const hir_state *info = &c->m->states.at[s];
        if (grows(info))
            grow(c, &c->e->states[s]);
        else if (hir_is_of_call(info))
            c->e->states[s].at =
                hd_new_array(c->scratch, double, (size_t)elements_of_call(c, info));
        else
            keep(c->e, info, &c->e->states[s]);
    }
    return true;
}

void eval_undo_states(hir_eval *e) {
    for (size_t s = 0; s < e->m->states.n; s++)
        if (e->states[s].kept)
            memcpy(e->states[s].at, e->states[s].kept, fixed_bytes(&e->m->states.at[s]));
}
