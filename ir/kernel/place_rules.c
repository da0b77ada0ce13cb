/* The rules of kernel IR about where values lie: no result overwrites what is still read, what lies
 * in the area of a tile is read with the same tile, and in a pipeline stage with several layer ranges,
 * what one range leaves for another is kept (ir/kernel/rules.c). */
#include "ir/kernel/kernels.h"
#include "ir/kernel/layer_ranges.h"
#include "ir/kernel/rules.h"
#include "ir/kernel/tiled.h"

/* ---- memory -------------------------------------------------------------------------------- */
typedef struct span { /* the place of a value in an arena or the fixed area */
    hir_id value;
    uint64_t from, to;
    uint32_t dies;  /* number of the last kernel that reads it */
    uint32_t until; /* that of the last kernel that may not overwrite it */
    hir_place place;
} span;

typedef struct memory {
    hir_rules *r;
    uint32_t *last_read; /* by value */
    hir_tiled_list tiled;
    HD_VEC(span) alive;
} memory;

/* May result `i` of the kernel have the memory of `of`? The kernel has to be the last that
 * reads it, no other result may have it, and the kernel's kind must allow it
 * (hir_may_be_in_place). */
static bool takes_place(memory *m, uint32_t i, const span *of, uint32_t now) {
    return of->dies == now && of->from < of->to &&
           hir_in_place_of(m->r->m, m->r->kernel, i) == of->value;
}

/* Where kernels do tile after tile, the rows of a value are read again with the next tile: all that
 * one of them makes or reads is live until the last of them, but for what lies in the area of a
 * tile. */
static uint32_t live_until(const memory *m, const span *s) {
    const size_t i = hir_tiled_of(&m->tiled, s->dies);
    return i == m->tiled.list.n || s->place == HIR_PLACE_TILE ? s->dies
                                                              : m->tiled.list.at[i].end - 1;
}

static void check_overlap(memory *m, uint32_t i, uint32_t now) {
    const hir_id value = hir_op_at(m->r->m, m->r->kernel)->results[i];
    const hir_value *v = hir_value_at(m->r->m, value);
    const bool area = v->place == HIR_PLACE_ARENA || v->place == HIR_PLACE_LOCAL ||
                      v->place == HIR_PLACE_TILE || v->place == HIR_PLACE_FIXED;
    if (!area) return;
    uint64_t bytes = (uint64_t)hir_type_row_elements(v->type) * hir_dtype_bytes(v->type.dtype);
    span s = {value, v->offset, v->offset + bytes, m->last_read[value], 0, v->place};
    if (s.dies < now) s.dies = now;
    s.until = live_until(m, &s);
    for (size_t j = 0; j < m->alive.n; j++) {
        span *o = &m->alive.at[j];
        bool meets = o->place == v->place && o->from < s.to && s.from < o->to;
        if (meets && takes_place(m, i, o, now))
            o->until = now;
        else if (meets)
            hir_rules_reject(
                m->r, m->r->kernel, "a result overwrites a value that is still live",
                "plan-memory gives values that are live at the same time different places");
    }
    hd_push(m->r->d->arena, &m->alive, s);
}

static void drop_dead(memory *m, uint32_t now) {
    size_t kept = 0;
    for (size_t i = 0; i < m->alive.n; i++)
        if (m->alive.at[i].until >= now) m->alive.at[kept++] = m->alive.at[i];
    m->alive.n = kept;
}

static void note_last_reads(memory *m) {
    const hir_module *mod = m->r->m;
    uint32_t number = 0;
    HIR_EACH(mod, kernel, mod->first) {
        HIR_EACH(mod, op, hir_op_at(mod, kernel)->body_first) {
            const hir_op *o = hir_op_at(mod, op);
            for (uint32_t i = 0; i < o->n_args; i++)
                if (o->args[i].kind == HIR_REF_VALUE) m->last_read[o->args[i].index] = number;
        }
        number += hir_is_kernel(hir_op_at(mod, kernel));
    }
}

/* Does a value in the area of a tile belong to kernels that are done tile by tile, and to no other? */
static void check_tile(const memory *m, hir_id value, uint32_t now) {
    const size_t made = hir_tiled_of(&m->tiled, now);
    if (hir_value_at(m->r->m, value)->place != HIR_PLACE_TILE) return;
    const bool inside = made < m->tiled.list.n && m->last_read[value] < m->tiled.list.at[made].end;
    hir_rules_require(m->r, m->r->kernel, inside,
                      "a result lies in the area of a tile, and another kernel reads it");
}

void hir_check_places(hir_rules *r) {
    memory m = {.r = r,
                .last_read = hd_new_array(r->d->arena, uint32_t, r->m->values.n),
                .tiled = hir_find_tiled(r->d->arena, r->m)};
    uint32_t number = 0;
    note_last_reads(&m);
    HIR_EACH(r->m, kernel, r->m->first) {
        const hir_op *k = hir_op_at(r->m, kernel);
        if (!hir_is_kernel(k)) continue;
        const hir_id otherwise = hir_otherwise(r->m, kernel);
        r->kernel = kernel;
        drop_dead(&m, number);
        for (uint32_t i = 0; i < k->n_results; i++) {
            hir_place place = hir_value_at(r->m, k->results[i])->place;
            hir_rules_require(r, kernel, place != HIR_PLACE_NONE, "a result has no place");
            hir_rules_require(
                r, kernel, otherwise == HIR_NONE || hir_in_place_of(r->m, kernel, i) == otherwise,
                "the result of attention.expanded lies where `otherwise` does");
            check_overlap(&m, i, number);
            check_tile(&m, k->results[i], number);
        }
        number++;
    }
}

/* ---- layer ranges of a pipeline stage -------------------------------------------------------- */
typedef struct run_rules {
    hir_rules *r;
    hir_runs runs;
    uint32_t *number;   /* by op: number of the kernel */
    uint32_t *state_in; /* by state: 1 + the layer range that uses it; 0: none yet */
} run_rules;

static void check_message(const run_rules *x, hir_id kernel) {
    const uint32_t k = x->number[kernel];
    const hir_layer_range *run = &x->runs.list.at[hir_layer_range_of(&x->runs, k)];
    const hir_opcode message = hir_message_of(x->r->m, kernel);
    hir_rules_require(x->r, kernel, (message == HIR_COMM_RECV_OP) == (k < run->work),
                      "a run of layers receives at its beginning");
    hir_rules_require(x->r, kernel, (message == HIR_COMM_SEND_OP) == (k >= run->send),
                      "a run of layers sends at its end");
}

/* Chunk c + 1 may be in one layer range before chunk c is in the next. Then only rows of a cache,
 * which are addressed by position, are still intact, so every other state must be used in one
 * range. */
static void check_state(const run_rules *x, hir_id kernel, uint32_t state) {
    const uint32_t run = 1 + hir_layer_range_of(&x->runs, x->number[kernel]);
    const hir_state *s = &x->r->m->states.at[state];
    const bool by_position = hir_state_kind_of(s->kind)->rows == HIR_ROWS_PER_POSITION;
    hir_rules_require(x->r, kernel, by_position || !x->state_in[state] || x->state_in[state] == run,
                      "several runs of layers use a state that has no row for each position");
    x->state_in[state] = run;
}

static bool is_kept(const hir_module *m, const hir_value *v) {
    return v->offset < (v->place == HIR_PLACE_ARENA ? m->arena_kept : m->local_kept);
}

/* Checks a value that an op of the kernel reads from another layer range. */
static void check_kept(const run_rules *x, hir_id kernel, hir_id value) {
    const hir_module *m = x->r->m;
    const hir_value *v = hir_value_at(m, value);
    if (v->op == HIR_NONE || hir_op_at(m, v->op)->parent != HIR_NONE) return;
    const uint32_t made = x->number[v->op], read = x->number[kernel];
    const uint32_t run = hir_layer_range_of(&x->runs, made);
    const bool received = made < x->runs.list.at[run].work;
    const bool area = v->place == HIR_PLACE_ARENA || v->place == HIR_PLACE_LOCAL;
    if (!area || (!received && run == hir_layer_range_of(&x->runs, read))) return;
    hir_rules_require(
        x->r, kernel, is_kept(m, v),
        "what a run of layers receives, or leaves for a later one, lies in the part of the "
        "arena that is kept");
}

void hir_check_runs(hir_rules *r) {
    hd_arena *a = r->d->arena;
    run_rules x = {.r = r, .runs = hir_find_layer_ranges(a, r->m)};
    if (x.runs.list.n < 2) return;
    x.number = hd_new_array(a, uint32_t, r->m->ops.n);
    x.state_in = hd_new_array(a, uint32_t, r->m->states.n + 1);
    uint32_t n = 0;
    HIR_EACH(r->m, kernel, r->m->first)
    if (hir_is_kernel(hir_op_at(r->m, kernel))) x.number[kernel] = n++;
    HIR_EACH(r->m, kernel, r->m->first) {
        if (!hir_is_kernel(hir_op_at(r->m, kernel))) continue;
        check_message(&x, kernel);
        HIR_EACH(r->m, op, hir_op_at(r->m, kernel)->body_first) {
            const hir_op *o = hir_op_at(r->m, op);
            for (uint32_t i = 0; i < o->n_args; i++) {
                if (o->args[i].kind == HIR_REF_STATE) check_state(&x, kernel, o->args[i].index);
                if (o->args[i].kind != HIR_REF_VALUE) continue;
                const hir_value *v = hir_value_at(r->m, o->args[i].index);
                if (v->place == HIR_PLACE_STATE) check_state(&x, kernel, (uint32_t)v->offset);
                check_kept(&x, kernel, o->args[i].index);
            }
        }
    }
}
