/* plan-memory: a place for every value that leaves a kernel.
 *
 * Needs    kernels in final order; outputs that name results of kernels, each once (schedule
 *          ensures both).
 * Does     inputs, outputs and state are in memory of the caller or the session; to an output that is
 *          a gradient its kernel adds. Other results with
 *          T share one arena: offsets are bytes per token, multiples of 64, so that they are
 *          aligned for any number of rows; some rows are padded by a line. Results without T share
 *          the fixed area in the same way. A value is live from the kernel that defines it to the
 *          last that reads it, both included, and values whose live ranges do not overlap may share
 *          bytes. A result of a row program may alias, row by row, a long value of the same size
 *          whose last reader the row program is: the streams of a residual system are updated in
 *          place, in half of the memory. Otherwise the values that a kernel reads and those that it
 *          writes never overlap. Kernels that go tile by tile while collectives are under way
 *          (ir/kernel/overlap.h) run at the same time as far as memory is concerned: what one of
 *          them reads or writes is live from the first of them to the last. So it is of kernels that
 *          do tile after tile of the tokens (ir/kernel/tiled.h), but for what no other kernel reads:
 *          that has an area for the rows of one tile. A pipeline stage with
 *          several layer ranges (ir/kernel/layer_ranges.h) has several chunks in flight, whose ranges take
 *          turns: what a range receives or leaves for a later one is kept at the beginning of the
 *          arena, in a part that each chunk in flight has for itself; they share the rest. A result
 *          without T that several ranges read shares its bytes with none.
 * Leaves   the kernels.
 *
 * Packing rectangles (live range x size) into the least height is NP-hard, but greedy orders do
 * well on models: three (by start, by size, by live range times size), each with first fit and with
 * best fit, are tried and the lowest plan is kept. The remark compares it with the lower bound, the
 * most bytes live at once.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/kernel/layer_ranges.h"
#include "ir/kernel/overlap.h"
#include "ir/kernel/tiled.h"
#include "passes/util.h"

/* Rows whose lines are a multiple of FACTOR are padded by a line: otherwise equal columns of several
 * values, which a mix reads and writes together, would often be the same line of a page
 * (support/arena_rows.h). Padding of shorter rows costs more than it gains. */
enum { ALIGNMENT = 64, FACTOR = 4, LEAST_PADDED = 2048 };

/* Shorter rows are not updated in place, unless they have to be: aliasing restricts the code of a
 * kernel. */
enum { LONG_ROW = 1024 };

/* Kernels with more long results are mixes of the same rows (phase 1 of a block) that compute a few
 * results at a time, each time from all rows: no row may be overwritten before the end. */
enum { MOST_OVER = 8 };

typedef struct buffer {
    hir_id value;
    uint32_t born, dies; /* kernels by number, both included */
    uint64_t size, offset;
} buffer;

typedef HD_VEC(buffer) buffer_list;

typedef struct alias { /* `value` is stored in the place of `first` */
    hir_id value, first;
} alias;

typedef struct planner {
    hir_pass_context *c;
    hir_module *m;
    uint32_t n_kernels;
    hir_runs runs;
    hir_tiled_list tiled;
    uint32_t *last_read;                   /* by value: number of the last kernel that reads it */
    buffer_list arena, local, tile, fixed; /* local: of the rows of a rank */
    HD_VEC(alias) aliases;
    hir_id *first;    /* by value: the first value in its place */
    uint32_t *number; /* by value that is the first in its place: of its buffer in the list */
} planner;

/* ---- places outside the arena ---------------------------------------------------------------- */
static void set_place(planner *p, hir_id value, hir_place place, uint64_t offset) {
    hir_value *v = hir_value_at(p->m, value);
    p->c->changed |= v->place != place || v->offset != offset;
    v->place = place;
    v->offset = offset;
}

static bool place_outputs(planner *p) {
    uint64_t number = 0;
    HIR_EACH(p->m, op, p->m->first) {
        if (hir_op_at(p->m, op)->code != HIR_OUTPUT_OP) continue;
        hir_ref x = pass_arg(p->m, op, 0);
        hir_value *v = x.kind == HIR_REF_VALUE ? hir_value_at(p->m, x.index) : NULL;
        if (!v || v->op == HIR_NONE || v->place != HIR_PLACE_NONE) {
            hd_err(p->c->diags, HD_E_PASS, *hir_op_at(p->m, op)->loc,
                   "output '%s' is not the result of a kernel of its own",
                   hir_attr_string(hir_op_at(p->m, op), HIR_A_NAME, ""))
                ->hint = "run schedule first";
            return false;
        }
        const bool adds = hir_is_gradient(hir_op_at(p->m, op));
        set_place(p, x.index, adds ? HIR_PLACE_GRADIENT : HIR_PLACE_OUTPUT, number++);
    }
    return true;
}

/* Sets the place of result i of a kernel that is a state: the yielded value is the state that an op
 * has written. */
static bool place_state(planner *p, hir_id kernel, uint32_t i) {
    const hir_op *k = hir_op_at(p->m, kernel);
    hir_ref x = hir_no_ref();
    if (k->body_last != HIR_NONE) x = pass_arg(p->m, k->body_last, i);
    const uint32_t state = hir_state_of_value(p->m, x);
    if (state == HIR_NONE) {
        hd_err(p->c->diags, HD_E_UNSUPPORTED, *k->loc,
               "a result of cache length that is not made by cache_append has no place");
        return false;
    }
    set_place(p, k->results[i], HIR_PLACE_STATE, state);
    return true;
}

/* ---- buffers ------------------------------------------------------------------------------- */
static bool buffer_size(planner *p, hir_id value, uint64_t *size) {
    hir_value *v = hir_value_at(p->m, value);
    int64_t n = hir_type_row_elements(v->type);
    uint64_t bytes;
    bool fits = n >= 0 && !hd_mul_overflow((uint64_t)n, hir_dtype_bytes(v->type.dtype), &bytes) &&
                bytes <= UINT64_MAX / 2;
    if (!fits) {
        hd_err(p->c->diags, HD_E_LIMIT, *hir_op_at(p->m, v->op)->loc,
               "value %s is too large for memory",
               pass_value_name(p->m, value, p->c->diags->arena));
        return false;
    }
    *size = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (*size >= LEAST_PADDED && *size % (FACTOR * ALIGNMENT) == 0) *size += ALIGNMENT;
    return true;
}

static bool has_many_rows(const planner *p, hir_id kernel) {
    const hir_op *k = hir_op_at(p->m, kernel);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < k->n_results; i++) {
        const hir_type type = hir_value_at(p->m, k->results[i])->type;
        rows += hir_type_has_t(type) && hir_type_row_elements(type) * 4 >= LONG_ROW;
    }
    return rows > MOST_OVER;
}

/* The buffer of a value that is the first in its place; NULL: it is in another list. */
static buffer *buffer_in(const planner *p, const buffer_list *list, hir_id first) {
    const uint32_t i = p->number[first];
    return i < list->n && list->at[i].value == first ? &list->at[i] : NULL;
}

/* Finds a value that result `b` of the kernel may alias, as the kernel is its last reader; returns
 * its buffer. */
static buffer *find_aliased(planner *p, buffer_list *list, hir_id kernel, const buffer *b) {
    const hir_op *k = hir_op_at(p->m, kernel);
    const hir_dtype dtype = hir_value_at(p->m, b->value)->type.dtype;
    bool can = b->dies > b->born;
    const bool must = hir_otherwise(p->m, kernel) != HIR_NONE;
    if (!can || (!must && (b->size < LONG_ROW || has_many_rows(p, kernel)))) return NULL;
    HIR_EACH(p->m, op, k->body_first) {
        const hir_op *o = hir_op_at(p->m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            if (p->last_read[o->args[i].index] != b->born) continue; /* cheapest test first */
            if (p->first[o->args[i].index] == HIR_NONE) continue;    /* a value of the body */
            const hir_value *x = hir_value_at(p->m, o->args[i].index);
            buffer *of = buffer_in(p, list, p->first[o->args[i].index]);
            const bool same = hir_type_row_elements(x->type) ==
                              hir_type_row_elements(hir_value_at(p->m, b->value)->type);
            if (of && of->dies == b->born && same && x->type.dtype == dtype &&
                hir_may_be_in_place(p->m, kernel, o->args[i].index))
                return of;
        }
    }
    return NULL;
}

/* The area of a result of kernel `number` that is read up to kernel `dies`. */
static buffer_list *list_of(planner *p, hir_type t, uint32_t number, uint32_t dies) {
    const size_t tiled = hir_tiled_of(&p->tiled, number);
    if (!hir_type_has_t(t)) return &p->fixed;
    if (hir_is_row_share(t.dim[0])) return &p->local;
    return tiled < p->tiled.list.n && dies < p->tiled.list.at[tiled].end ? &p->tile : &p->arena;
}

static bool place_result(planner *p, hir_id kernel, uint32_t i, uint32_t number) {
    hir_id value = hir_op_at(p->m, kernel)->results[i];
    const hir_value *v = hir_value_at(p->m, value);
    if (pass_type_has_c(v->type)) return place_state(p, kernel, i);
    if (v->place != HIR_PLACE_NONE) return true; /* an output */
    buffer b = {.value = value, .born = number, .dies = p->last_read[value]};
    if (b.dies < number) b.dies = number; /* also if it has no reader */
    if (!buffer_size(p, value, &b.size)) return false;
    buffer_list *list = list_of(p, v->type, number, b.dies);
    buffer *aliased = list != &p->fixed ? find_aliased(p, list, kernel, &b) : NULL;
    p->first[value] = aliased ? aliased->value : value;
    if (aliased) {
        aliased->dies = b.dies;
        hd_push(p->c->scratch, &p->aliases, ((alias){value, aliased->value}));
        return true;
    }
    p->number[value] = (uint32_t)list->n;
    hd_push(p->c->scratch, list, b);
    return true;
}

static void find_last_reads(planner *p) {
    p->last_read = hd_new_array(p->c->scratch, uint32_t, p->m->values.n);
    HIR_EACH(p->m, kernel, p->m->first) {
        if (hir_op_at(p->m, kernel)->code == HIR_OUTPUT_OP) continue;
        HIR_EACH(p->m, op, hir_op_at(p->m, kernel)->body_first) {
            const hir_op *o = hir_op_at(p->m, op);
            for (uint32_t i = 0; i < o->n_args; i++)
                if (o->args[i].kind == HIR_REF_VALUE) p->last_read[o->args[i].index] = p->n_kernels;
        }
        p->n_kernels++;
    }
}

static bool place_results(planner *p) {
    uint32_t number = 0;
    p->first = hd_new_array(p->c->scratch, hir_id, p->m->values.n + 1);
    p->number = hd_new_array(p->c->scratch, uint32_t, p->m->values.n + 1);
    memset(p->first, 0xff, (p->m->values.n + 1) * sizeof *p->first);
    HIR_EACH(p->m, kernel, p->m->first) {
        if (hir_op_at(p->m, kernel)->code == HIR_OUTPUT_OP) continue;
        for (uint32_t i = 0; i < hir_op_at(p->m, kernel)->n_results; i++)
            if (!place_result(p, kernel, i, number)) return false;
        number++;
    }
    return true;
}

/* ---- kernels that go tile by tile ------------------------------------------------------------ */
/* The buffer that has the value; NULL: it has a place outside of the arenas. */
static buffer *buffer_of(planner *p, hir_id value) {
    const hir_type t = hir_value_at(p->m, value)->type;
    const hir_id first = p->first[value];
    if (first == HIR_NONE || !hir_type_has_t(t)) return NULL;
    return buffer_in(p, hir_is_row_share(t.dim[0]) ? &p->local : &p->arena, first);
}

static void keep_during(planner *p, hir_id value, const hir_tiled *o) {
    buffer *b = buffer_of(p, value);
    if (!b) return;
    if (b->born > o->first) b->born = o->first;
    if (b->dies < o->end - 1) b->dies = o->end - 1;
}

static void keep_operands(planner *p, hir_id kernel, const hir_tiled *o) {
    const hir_op *k = hir_op_at(p->m, kernel);
    for (uint32_t i = 0; i < k->n_results; i++)
        keep_during(p, k->results[i], o);
    HIR_EACH(p->m, op, k->body_first) {
        const hir_op *at = hir_op_at(p->m, op);
        for (uint32_t i = 0; i < at->n_args; i++)
            if (at->args[i].kind == HIR_REF_VALUE) keep_during(p, at->args[i].index, o);
    }
}

static void keep_disjoint(planner *p, const hir_tiled_list *all) {
    uint32_t number = 0;
    size_t at = 0;
    HIR_EACH(p->m, kernel, p->m->first) {
        if (hir_op_at(p->m, kernel)->code == HIR_OUTPUT_OP) continue;
        while (at < all->list.n && number >= all->list.at[at].end)
            at++;
        if (at < all->list.n && number >= all->list.at[at].first)
            keep_operands(p, kernel, &all->list.at[at]);
        number++;
    }
}

static void keep_overlaps_disjoint(planner *p) {
    const hir_overlaps all = hir_find_overlaps(p->c->scratch, p->m);
    hir_tiled_list tiled = {0};
    for (size_t i = 0; i < all.list.n; i++)
        hd_push(p->c->scratch, &tiled.list,
                ((hir_tiled){all.list.at[i].front, all.list.at[i].end}));
    keep_disjoint(p, &tiled);
    if (all.list.n)
        hir_remark_add(p->c, true, HIR_NONE,
                       "%zu sequence%s of kernels may go on during their collectives, tile by tile",
                       all.list.n, hd_s(all.list.n));
}

/* ---- chunks in flight ------------------------------------------------------------------------ */
static bool is_kept(const planner *p, const buffer *b) {
    const uint32_t run = hir_layer_range_of(&p->runs, b->born);
    const bool received = p->runs.list.n > 1 && b->born < p->runs.list.at[run].work;
    return received || run != hir_layer_range_of(&p->runs, b->dies);
}

/* All chunks compute the same values without T, but each computes them again: nothing else may use
 * their bytes meanwhile. */
static void hold_fixed(planner *p) {
    for (size_t i = 0; i < p->fixed.n; i++) {
        buffer *b = &p->fixed.at[i];
        if (!is_kept(p, b)) continue;
        b->born = 0;
        b->dies = p->n_kernels - 1;
    }
}

/* ---- packing ------------------------------------------------------------------------------- */
/* The placed buffers, to be found by the kernels at which they are live, so that a plan takes a
 * time that grows with the buffers that are live at once and not with all of them. In order of
 * birth those that have died are dropped. In other orders, those that are live at a kernel are
 * those of the nodes between a leaf of a binary tree over the kernels and its root, as each buffer
 * is in the few nodes that make up its live range; they are sorted by offset. Where most buffers
 * overlap, as those of values that are kept to the end do, all placed ones are kept in order and
 * gone through instead: that takes as many steps as there are buffers, and no sorting. */
typedef struct node { /* a list of buffers */
    struct node *next;
    const buffer *of;
} node;

typedef struct packer {
    hd_arena *arena;
    bool by_birth;          /* the order in which buffers are placed */
    uint32_t leaves;        /* a power of two */
    node **live, **born;    /* by node of the tree, the root is 1; by kernel */
    HD_VEC(buffer) overlap; /* with the buffer that is being placed, by offset */
    HD_VEC(buffer) placed; /* all; the first `n_sorted` by offset, the others as they were placed */
    size_t n_sorted;
    bool crowded; /* an eighth of the placed buffers overlapped with the last one, or more */
} packer;

static packer packer_new(const planner *p, bool by_birth) {
    packer x = {.arena = p->c->scratch, .by_birth = by_birth, .leaves = 1};
    if (by_birth) return x;
    while (x.leaves < p->n_kernels)
        x.leaves *= 2;
    x.live = hd_new_array(x.arena, node *, 2 * (size_t)x.leaves);
    x.born = hd_new_array(x.arena, node *, x.leaves);
    return x;
}

static void note(packer *x, node **list, const buffer *b) {
    node *n = hd_new(x->arena, node);
    *n = (node){*list, b};
    *list = n;
}

/* Brings the buffer after the first n, which are sorted by offset, to its place among them. */
static void insert(buffer *list, size_t n) {
    const buffer b = list[n];
    size_t at = n;
    while (at > 0 && list[at - 1].offset > b.offset)
        at--;
    memmove(&list[at + 1], &list[at], (n - at) * sizeof b);
    list[at] = b;
}

static void note_placed(packer *x, const buffer *b) {
    if (x->by_birth) {
        hd_push(x->arena, &x->overlap, *b);
        insert(x->overlap.at, x->overlap.n - 1);
        return;
    }
    hd_push(x->arena, &x->placed, *b);
    note(x, &x->born[b->born], b);
    for (uint32_t from = b->born + x->leaves, to = b->dies + x->leaves + 1; from < to;) {
        if (from % 2) note(x, &x->live[from++], b);
        if (to % 2) note(x, &x->live[--to], b);
        from /= 2;
        to /= 2;
    }
}

static void add_overlap(packer *x, const node *list) {
    for (; list; list = list->next)
        hd_push(x->arena, &x->overlap, *list->of);
}

static int by_offset(const void *x, const void *y) {
    const buffer *a = x, *b = y;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static void drop_dead(packer *x, uint32_t now) {
    size_t kept = 0;
    for (size_t i = 0; i < x->overlap.n; i++)
        if (x->overlap.at[i].dies >= now) x->overlap.at[kept++] = x->overlap.at[i];
    x->overlap.n = kept;
}

static void sort_by_offset(buffer *list, size_t n) {
    if (n) qsort(list, n, sizeof *list, by_offset);
}

/* Those of all placed buffers that overlap with b. */
static void go_through_placed(packer *x, const buffer *b) {
    enum { FEW = 32 };
    if (x->placed.n - x->n_sorted > FEW) {
        sort_by_offset(x->placed.at, x->placed.n);
        x->n_sorted = x->placed.n;
    }
    for (; x->n_sorted < x->placed.n; x->n_sorted++)
        insert(x->placed.at, x->n_sorted);
    for (size_t i = 0; i < x->placed.n; i++) {
        const buffer *o = &x->placed.at[i];
        if (o->born <= b->dies && o->dies >= b->born) hd_push(x->arena, &x->overlap, *o);
    }
}

/* Those that are live when b begins, and those that begin later in its live range. */
static void gather_overlap(packer *x, const buffer *b) {
    for (uint32_t at = b->born + x->leaves; at > 0; at /= 2)
        add_overlap(x, x->live[at]);
    for (uint32_t k = b->born + 1; k <= b->dies; k++)
        add_overlap(x, x->born[k]);
    sort_by_offset(x->overlap.at, x->overlap.n);
}

static void find_overlap(packer *x, const buffer *b) {
    if (x->by_birth) {
        drop_dead(x, b->born);
        return;
    }
    x->overlap.n = 0;
    if (x->crowded)
        go_through_placed(x, b);
    else
        gather_overlap(x, b);
    x->crowded = x->overlap.n * 8 > x->placed.n;
}

/* The lowest offset, or that of the tightest gap, where b overlaps none of the placed buffers. */
static uint64_t find_offset(packer *x, const buffer *b, bool best_fit) {
    uint64_t end = 0, found = UINT64_MAX, tightest = UINT64_MAX;
    find_overlap(x, b);
    for (size_t i = 0; i < x->overlap.n; i++) {
        const buffer *o = &x->overlap.at[i];
        if (o->offset >= end && o->offset - end >= b->size) {
            if (!best_fit) return end;
            if (o->offset - end < tightest) {
                tightest = o->offset - end;
                found = end;
            }
        }
        if (o->offset + o->size > end) end = o->offset + o->size;
    }
    return found != UINT64_MAX ? found : end;
}

/* Places the buffers in their order; returns the height. */
static uint64_t fit(const planner *p, buffer *list, size_t n, bool by_birth, bool best_fit) {
    packer x = packer_new(p, by_birth);
    uint64_t peak = 0;
    for (size_t i = 0; i < n; i++) {
        list[i].offset = find_offset(&x, &list[i], best_fit);
        uint64_t end = list[i].offset + list[i].size;
        if (end > peak) peak = end;
        note_placed(&x, &list[i]);
    }
    return peak;
}

static int compare(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_birth(const void *x, const void *y) {
    const buffer *a = x, *b = y;
    int c = compare(a->born, b->born);
    if (!c) c = compare(b->dies, a->dies);
    return c ? c : compare(a->value, b->value);
}

static int by_size(const void *x, const void *y) {
    const buffer *a = x, *b = y;
    int c = compare(b->size, a->size);
    return c ? c : by_birth(x, y);
}

static int by_area(const void *x, const void *y) {
    const buffer *a = x, *b = y;
    double p = (double)a->size * (a->dies - a->born + 1),
           q = (double)b->size * (b->dies - b->born + 1);
    return p > q ? -1 : p < q ? 1 : by_birth(x, y);
}

/* The most bytes live at one kernel, a lower bound of any plan. */
static uint64_t lower_bound(const planner *p, const buffer_list *list) {
    uint64_t *change = hd_new_array(p->c->scratch, uint64_t, (size_t)p->n_kernels + 1);
    uint64_t now = 0, most = 0;
    for (size_t i = 0; i < list->n; i++) {
        change[list->at[i].born] += list->at[i].size;
        change[list->at[i].dies + 1] -= list->at[i].size; /* wraps and unwraps */
    }
    for (uint32_t k = 0; k < p->n_kernels; k++) {
        now += change[k];
        if (now > most) most = now;
    }
    return most;
}

/* Tries every greedy order until one meets the bound; the buffers get the offsets of the best. */
static uint64_t plan(planner *p, buffer_list *list, uint64_t bound) {
    int (*const orders[])(const void *, const void *) = {by_birth, by_size, by_area};
    uint64_t best = UINT64_MAX;
    if (!list->n) return 0;
    buffer *trial = hd_new_array(p->c->scratch, buffer, list->n);
    memcpy(trial, list->at, list->n * sizeof *trial);
    for (int i = 0; i < 6 && best > bound; i++) {
        qsort(trial, list->n, sizeof *trial, orders[i / 2]);
        uint64_t peak = fit(p, trial, list->n, i < 2, i % 2 == 0);
        if (peak >= best) continue;
        best = peak;
        memcpy(list->at, trial, list->n * sizeof *trial);
    }
    return best;
}

/* Plans an area from `base` on; returns its end. */
static uint64_t plan_area(planner *p, buffer_list *list, uint64_t base, hir_place place,
                          const char *what) {
    uint64_t bound = lower_bound(p, list), peak = plan(p, list, bound), sum = 0;
    for (size_t i = 0; i < list->n; i++) {
        sum += list->at[i].size;
        set_place(p, list->at[i].value, place, base + list->at[i].offset);
    }
    if (list->n)
        hir_remark_add(
            p->c, true, HIR_NONE,
            "%s: %zu buffer%s in %llu bytes (most live at once %llu, without sharing %llu)", what,
            list->n, hd_s(list->n), (unsigned long long)peak, (unsigned long long)bound,
            (unsigned long long)sum);
    return base + peak;
}

static void set_size(planner *p, uint64_t *size, uint64_t bytes) {
    p->c->changed |= *size != bytes;
    *size = bytes;
}

/* Plans an arena: first the values that are kept for each chunk in flight, then those that chunks
 * share. */
static void plan_arena(planner *p, const buffer_list *list, hir_place place, const char *what,
                       uint64_t *kept, uint64_t *all) {
    buffer_list parts[2] = {0};
    for (size_t i = 0; i < list->n; i++)
        hd_push(p->c->scratch, &parts[!is_kept(p, &list->at[i])], list->at[i]);
    const char *keeps = hd_printf(p->c->scratch, "%s, kept for each chunk in flight", what);
    set_size(p, kept, plan_area(p, &parts[0], 0, place, keeps));
    set_size(p, all, plan_area(p, &parts[1], *kept, place, what));
}

bool pass_plan_memory(hir_pass_context *c) {
    planner p = {.c = c, .m = c->m};
    for (size_t v = 0; v < c->m->values.n; v++) /* discards a previous plan */
        c->m->values.at[v].place = HIR_PLACE_NONE;
    for (size_t i = 0; i < c->m->inputs.n; i++)
        set_place(&p, c->m->inputs.at[i], HIR_PLACE_INPUT, i);
    p.runs = hir_find_layer_ranges(c->scratch, c->m);
    p.tiled = hir_find_tiled(c->scratch, c->m);
    find_last_reads(&p);
    if (!place_outputs(&p) || !place_results(&p)) return false;
    if (c->options->overlap != HIR_OVERLAP_OFF) keep_overlaps_disjoint(&p);
    keep_disjoint(&p, &p.tiled);
    hold_fixed(&p);
    plan_arena(&p, &p.arena, HIR_PLACE_ARENA, "arena per token", &c->m->arena_kept,
               &c->m->arena_per_token);
    plan_arena(&p, &p.local, HIR_PLACE_LOCAL, "arena per token of the rows of a rank",
               &c->m->local_kept, &c->m->local_per_token);
    set_size(&p, &c->m->tile_per_token,
             plan_area(&p, &p.tile, 0, HIR_PLACE_TILE, "arena per token of a tile"));
    set_size(&p, &c->m->fixed_bytes, plan_area(&p, &p.fixed, 0, HIR_PLACE_FIXED, "fixed area"));
    for (size_t i = 0; i < p.aliases.n; i++)
        set_place(&p, p.aliases.at[i].value, hir_value_at(c->m, p.aliases.at[i].first)->place,
                  hir_value_at(c->m, p.aliases.at[i].first)->offset);
    if (p.aliases.n)
        hir_remark_add(c, true, HIR_NONE, "%zu result%s computed in place", p.aliases.n,
                       p.aliases.n == 1 ? " is" : "s are");
    return true;
}
