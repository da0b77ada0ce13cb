/* Row programs that differ in one size (program/row_family.h).
 *
 * The sizes that depend on N are found by comparing two forms, not by following N through the body.
 * A size that is equal in both does not depend on N; one whose difference is b times that of N is a
 * + b N. Every further form is checked against this model. */
#include "codegen/program/row_family.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 4096,            /* largest size that may depend on N: no row is wider */
    MOST_ELEMENTS = 1 << 24 /* of a row, at most */
};

typedef struct walk {
    hir_canonical *c; /* the key: it has numbers of sizes in the place of sizes */
    hd_arena *arena;
    const hir_module *m;
    hir_id kernel;
    hcg_row_form *form;
} walk;

/* ---- the key --------------------------------------------------------------------------------- */
static void add_number(walk *w, int64_t number) {
    hd_push(w->arena, &w->form->numbers, number);
}

static bool add_type(walk *w, hir_ref ref, hir_type t) {
    const hcg_row_place place = {.ref = ref, .op = HIR_NONE, .first = w->form->numbers.n};
    hd_push(w->arena, &w->form->places, place);
    hir_canonical_number(w->c, (uint64_t)t.dtype << 32 | t.rank);
    for (uint32_t i = 0; i < t.rank; i++)
        add_number(w, t.dim[i]);
    return t.dtype != HIR_I32 && hir_type_row_elements(t) <= MOST_ELEMENTS;
}

/* Adds a reference to the key; at its first use an operand's kind and type follow. */
static bool add_ref(walk *w, hir_ref r) {
    const size_t known = w->c->operands.list.n;
    hir_canonical_ref(w->c, r);
    if (w->c->operands.list.n == known) return true;
    hir_canonical_number(w->c, r.kind);
    if (r.kind == HIR_REF_WEIGHT && w->m->weights.at[r.index].layout != HIR_LAYOUT_ROWS)
        return false;
    return add_type(w, r, hir_ref_type(w->m, r));
}

/* ---- ranges of stacked operands -------------------------------------------------------------- */
static uint32_t axis_of(const hir_op *op) {
    return (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0);
}

/* The outer value of which `r` is rows; none: the kernel makes `r`. */
static hir_ref outer_rows(const hir_module *m, hir_id kernel, hir_ref r) {
    while (r.kind == HIR_REF_VALUE) {
        const hir_id def = hir_value_at(m, r.index)->op;
        if (def == HIR_NONE || hir_op_at(m, def)->parent != kernel) break;
        const hir_op *op = hir_op_at(m, def);
        r = op->code == HIR_RESHAPE_OP ? op->args[0] : hir_no_ref();
    }
    return r;
}

/* How many operands from number `from` on are rows of one type that come from outside. */
static uint32_t run_length(const hir_module *m, const hir_op *op, uint32_t from) {
    const hir_type first = hir_ref_type(m, op->args[from]);
    const bool stack = op->code == HIR_STACK_OP;
    uint32_t n = 0;
    if (axis_of(op) == 0 || !hir_type_has_t(first)) return 0;
    if (!stack && first.dim[axis_of(op)] != 1) return 0;
    for (; from + n < op->n_args; n++) {
        const hir_ref r = op->args[from + n], outer = outer_rows(m, op->parent, r);
        if (outer.kind != HIR_REF_VALUE || !hir_type_has_t(hir_ref_type(m, outer))) break;
        if (!hir_type_equal(hir_ref_type(m, r), first)) break;
    }
    return n;
}

static hir_type run_type(const hir_op *op, hir_type one, uint32_t n) {
    const uint32_t axis = axis_of(op);
    hir_type t = one;
    if (op->code == HIR_STACK_OP) {
        t.rank++;
        for (uint32_t i = t.rank - 1; i > axis; i--)
            t.dim[i] = one.dim[i - 1];
    }
    t.dim[axis] = n;
    return t;
}

static bool same_list(const hcg_row_list *a, const hcg_row_list *b) {
    bool same = a->code == b->code && a->axis == b->axis && a->n == b->n &&
                hir_type_equal(a->type, b->type);
    for (uint32_t i = 0; same && i < a->n; i++)
        same = hir_ref_equal(a->at[i], b->at[i]);
    return same;
}

static bool add_run(walk *w, const hir_op *op, uint32_t from, uint32_t n, hir_ref *as) {
    hcg_row_form *f = w->form;
    const hir_type one = hir_ref_type(w->m, op->args[from]);
    hir_ref *rows = hd_new_array(w->arena, hir_ref, n);
    uint32_t i = 0;
    for (uint32_t j = 0; j < n; j++)
        rows[j] = outer_rows(w->m, w->kernel, op->args[from + j]);
    const hcg_row_list list = {
        .code = op->code, .axis = axis_of(op), .type = run_type(op, one, n), .at = rows, .n = n};
    while (i < f->lists.n && !same_list(&f->lists.at[i], &list))
        i++;
    const bool fresh = i == f->lists.n;
    if (fresh) hd_push(w->arena, &f->lists, list);
    hir_canonical_number(w->c, HIR_CANONICAL_OTHER | (uint64_t)i << 8);
    *as = hir_value_ref((hir_id)w->m->values.n + i);
    return !fresh || (one.rank < HIR_MAX_RANK && add_type(w, *as, list.type));
}

/* Contiguous elements of an operand of a stack or concat. */
static int64_t operand_elements(const walk *w, const hir_op *op) {
    const hir_type t = hir_value_at(w->m, op->results[0])->type;
    int64_t n = 1;
    for (uint32_t i = axis_of(op) + 1; i < t.rank; i++)
        n *= t.dim[i];
    return n;
}

/* Adds the operands of a stack or concat, each range of alike ones as one. False for a range of
 * long rows alongside other operands: a table of pointers to rows can hold one range and nothing
 * else. */
static bool add_operands(walk *w, hir_id id) {
    const hir_op *op = hir_op_at(w->m, id);
    hcg_row_args args = {.op = id, .at = hd_new_array(w->arena, hir_ref, op->n_args)};
    bool runs = false;
    for (uint32_t i = 0, n; i < op->n_args; i += n) {
        hir_ref *as = &args.at[args.n++];
        n = run_length(w->m, op, i);
        const bool run = n > 1;
        if (!run) n = 1;
        *as = op->args[i];
        if (!(run ? add_run(w, op, i, n, as) : add_ref(w, *as))) return false;
        runs |= run;
    }
    if (runs) hd_push(w->arena, &w->form->args, args);
    return !runs || args.n == 1 || operand_elements(w, op) < HCG_SMALL_ROW;
}

/* ---- the body -------------------------------------------------------------------------------- */
static bool can_be_any(hir_opcode code) {
    switch (code) {
    case HIR_CONST_OP:
    case HIR_STACK_OP:
    case HIR_CONCAT_OP:
    case HIR_RESHAPE_OP:
    case HIR_TRANSPOSE_OP:
    case HIR_BROADCAST_OP:
    case HIR_SLICE_OP:
    case HIR_YIELD_OP: return true;
    default: return hir_has_trait(code, HIR_ELEMENTWISE | HIR_REDUCE | HIR_WRITES_STATE);
    }
}

/* Adds an attribute. Shapes and lengths are omitted, since the types have them. */
static void add_attr(walk *w, hir_id op, const hir_attr *a) {
    if (a->id == HIR_A_SHAPE || a->id == HIR_A_LENGTH) return;
    if (a->id != HIR_A_START) {
        hir_canonical_attr(w->c, a);
        return;
    }
    const hcg_row_place place = {.op = op, .first = w->form->numbers.n};
    hir_canonical_number(w->c, a->id);
    hd_push(w->arena, &w->form->places, place);
    add_number(w, a->i);
}

static bool add_op(walk *w, hir_id id) {
    const hir_op *op = hir_op_at(w->m, id);
    bool ok = can_be_any(op->code);
    hir_canonical_number(w->c, op->code);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        add_attr(w, id, &op->attrs[i]);
    if (ok && (op->code == HIR_STACK_OP || op->code == HIR_CONCAT_OP))
        ok = add_operands(w, id);
    else
        for (uint32_t i = 0; ok && i < op->n_args; i++)
            ok = add_ref(w, op->args[i]);
    hir_canonical_number(w->c, UINT64_MAX);
    for (uint32_t i = 0; ok && i < op->n_results; i++) {
        const hir_id v = op->results[i];
        hir_canonical_make(w->c, v);
        ok = add_type(w, hir_value_ref(v), hir_value_at(w->m, v)->type);
    }
    return ok;
}

/* Marks the lists that contain row `over`, which a result overwrites. */
static void mark_lists(walk *w, hir_ref over) {
    for (size_t i = 0; i < w->form->lists.n; i++) {
        hcg_row_list *list = &w->form->lists.at[i];
        bool holds = false;
        for (uint32_t j = 0; j < list->n; j++)
            holds |= hir_ref_equal(list->at[j], over);
        list->replaced |= holds;
        hir_canonical_number(w->c, holds);
    }
}

static bool add_result(walk *w, uint32_t i, hir_id over) {
    const hir_id v = hir_op_at(w->m, w->kernel)->results[i];
    const bool state = hir_value_at(w->m, v)->place == HIR_PLACE_STATE;
    const hir_ref there =
        state ? hir_state_ref((uint32_t)hir_value_at(w->m, v)->offset) : hir_value_ref(over);
    uint32_t number;
    if (state && there.index >= w->m->states.n) return false;
    if (state || over != HIR_NONE) {
        const bool alone = hir_canonical_find(w->c, there, &number);
        hir_canonical_number(w->c, alone ? HIR_CANONICAL_OPERAND | (uint64_t)number << 8
                                         : HIR_CANONICAL_OTHER);
        mark_lists(w, there);
    } else {
        hir_canonical_number(w->c, HIR_CANONICAL_NOTHING);
    }
    if (state) return true;
    hir_canonical_number(w->c, hir_value_at(w->m, v)->place == HIR_PLACE_GRADIENT);
    hd_push(w->arena, &w->c->operands.list, hir_value_ref(v));
    return add_type(w, hir_value_ref(v), hir_value_at(w->m, v)->type);
}

/* ---- views ----------------------------------------------------------------------------------- */
/* Counts who reads the values of a body, and in `run` those that are ranges. */
static void count_readers(const hir_module *m, const hir_op *kernel, uint32_t *all, uint32_t *run) {
    HIR_EACH(m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(m, id);
        const bool joins = op->code == HIR_STACK_OP || op->code == HIR_CONCAT_OP;
        for (uint32_t i = 0, n; i < op->n_args; i += n) {
            const uint32_t length = joins ? run_length(m, op, i) : 0;
            n = length > 1 ? length : 1;
            for (uint32_t j = i; j < i + n; j++) {
                if (op->args[j].kind != HIR_REF_VALUE) continue;
                all[op->args[j].index]++;
                run[op->args[j].index] += length > 1;
            }
        }
    }
}

const bool *hcg_find_row_views(hd_arena *arena, const hir_module *m) {
    bool *views = hd_new_array(arena, bool, m->ops.n + 1);
    uint32_t *all = hd_new_array(arena, uint32_t, m->values.n + 1);
    uint32_t *run = hd_new_array(arena, uint32_t, m->values.n + 1);
    HIR_EACH(m, kernel, m->first) {
        const hir_op *k = hir_op_at(m, kernel);
        if (k->code != HIR_KERNEL_ROW_OP) continue;
        count_readers(m, k, all, run);
        HIR_EACH(m, id, k->body_first) {
            const hir_op *op = hir_op_at(m, id);
            if (op->code != HIR_RESHAPE_OP) continue;
            const hir_id v = op->results[0];
            views[id] = run[v] && run[v] == all[v] &&
                        hir_ref_equal(outer_rows(m, kernel, hir_value_ref(v)), op->args[0]);
        }
    }
    return views;
}

/* ---- the form -------------------------------------------------------------------------------- */
bool hcg_find_row_form(hir_canonical *c, const bool *views, hir_id kernel, hcg_row_form *form) {
    const hir_op *op = hir_op_at(c->m, kernel);
    walk w = {.c = c, .arena = c->arena, .m = c->m, .kernel = kernel, .form = form};
    *form = (hcg_row_form){0};
    if (op->code != HIR_KERNEL_ROW_OP) return false;
    hir_canonical_begin(c, kernel);
    HIR_EACH(c->m, id, op->body_first) {
        if (views[id])
            hd_push(w.arena, &form->views, id);
        else if (!add_op(&w, id))
            return false;
    }
    c->operands.n_inputs = (uint32_t)c->operands.list.n;
    const hir_id *in_place = hir_in_place(c->m, kernel, c->arena);
    for (uint32_t i = 0; i < op->n_results; i++)
        if (!add_result(&w, i, in_place[i])) return false;
    form->operands = c->operands;
    return true;
}

/* ---- families -------------------------------------------------------------------------------- */
static uint32_t sizes_at(const hcg_row_form *x, size_t place) {
    const size_t end = place + 1 < x->places.n ? x->places.at[place + 1].first : x->numbers.n;
    return (uint32_t)(end - x->places.at[place].first);
}

/* Can the sizes of this form be computed from N? A dim that depends on N must be more than 1, since
 * rows leave out dims of 1, and the only such dim of its type, so that numbers of elements are a +
 * b N. */
static bool is_usable(const hcg_row_model *model, const hcg_row_form *x) {
    for (size_t i = 0; i < x->places.n; i++) {
        uint32_t dynamic = 0;
        for (uint32_t d = 0; d < sizes_at(x, i); d++) {
            const size_t at = x->places.at[i].first + d;
            const int64_t size = x->numbers.at[at];
            if (!model->b[at]) continue;
            dynamic++;
            if (size > MOST || (x->places.at[i].op == HIR_NONE && size < 2)) return false;
            if (x->places.at[i].ref.kind == HIR_REF_STATE) return false;
        }
        if (dynamic > 1) return false;
    }
    return true;
}

bool hcg_fits_row_model(const hcg_row_model *model, const hcg_row_form *x) {
    for (size_t i = 0; i < x->numbers.n; i++)
        if (x->numbers.at[i] != model->a[i] + model->b[i] * x->numbers.at[model->n]) return false;
    return is_usable(model, x);
}

/* Chooses as N the size whose difference between the two forms is least. */
static bool choose_n(const hcg_row_form *x, const hcg_row_form *y, size_t *n) {
    int64_t least = 0;
    for (size_t i = 0; i < x->numbers.n; i++) {
        const int64_t by = llabs(y->numbers.at[i] - x->numbers.at[i]);
        if (by == 0 || (least && by >= least)) continue;
        least = by;
        *n = i;
    }
    return least > 0;
}

bool hcg_find_row_model(hd_arena *arena, const hcg_row_form *x, const hcg_row_form *y,
                        hcg_row_model *model) {
    if (x->numbers.n != y->numbers.n || !choose_n(x, y, &model->n)) return false;
    const int64_t step = y->numbers.at[model->n] - x->numbers.at[model->n];
    int64_t *a = hd_new_array(arena, int64_t, x->numbers.n);
    int64_t *b = hd_new_array(arena, int64_t, x->numbers.n);
    for (size_t i = 0; i < x->numbers.n; i++) {
        b[i] = (y->numbers.at[i] - x->numbers.at[i]) / step;
        a[i] = x->numbers.at[i] - b[i] * x->numbers.at[model->n];
    }
    model->a = a;
    model->b = b;
    return hcg_fits_row_model(model, x) && hcg_fits_row_model(model, y);
}

/* ---- the function of a family ---------------------------------------------------------------- */
/* Size number `i` of the form as a dim in the shared types: the size itself or, if it depends on N,
 * HCG_DYNAMIC plus the number of its pair a + b N. */
static int64_t any_number(hd_arena *arena, hcg_kernel *k, const hcg_row_model *model, size_t i) {
    const hcg_affine size = {model->a[i], model->b[i]};
    size_t number = 0;
    if (size.b == 0) return size.a;
    while (number < k->dynamic.n &&
           (k->dynamic.at[number].a != size.a || k->dynamic.at[number].b != size.b))
        number++;
    if (number == k->dynamic.n) hd_push(arena, &k->dynamic, size);
    return HCG_DYNAMIC + (int64_t)number;
}

/* A copy of the module with its own tables of types, and with one value for each list. */
static hir_module *copy_module(hd_arena *a, const hir_module *m, const hcg_row_form *x) {
    hir_module *any = hd_new(a, hir_module);
    *any = *m;
    any->values.at = hd_new_array(a, hir_value, m->values.n + x->lists.n);
    any->weights.at = hd_new_array(a, hir_weight, m->weights.n + 1);
    any->ops.at = hd_new_array(a, hir_op, m->ops.n);
    memcpy(any->values.at, m->values.at, m->values.n * sizeof *m->values.at);
    if (m->weights.n) memcpy(any->weights.at, m->weights.at, m->weights.n * sizeof *m->weights.at);
    memcpy(any->ops.at, m->ops.at, m->ops.n * sizeof *m->ops.at);
    for (size_t i = 0; i < x->lists.n; i++)
        any->values.at[any->values.n++] = (hir_value){.type = x->lists.at[i].type, .op = HIR_NONE};
    any->values.cap = any->values.n;
    return any;
}

/* Takes an op out of the body of a kernel. */
static void leave_out(hir_module *any, hir_id kernel, hir_id id) {
    const hir_op *op = &any->ops.at[id];
    hir_op *k = &any->ops.at[kernel];
    *(op->prev == HIR_NONE ? &k->body_first : &any->ops.at[op->prev].next) = op->next;
    *(op->next == HIR_NONE ? &k->body_last : &any->ops.at[op->next].prev) = op->prev;
}

static void set_start(hd_arena *a, hir_op *op, int64_t start) {
    hir_attr *attrs = hd_new_array(a, hir_attr, op->n_attrs);
    memcpy(attrs, op->attrs, op->n_attrs * sizeof *attrs);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (attrs[i].id == HIR_A_START) attrs[i].i = start;
    op->attrs = attrs;
}

static void set_sizes(hd_arena *a, hcg_kernel *k, const hcg_row_model *model, const hcg_row_form *x,
                      size_t place, hir_module *any) {
    const hcg_row_place *p = &x->places.at[place];
    if (p->op != HIR_NONE) {
        set_start(a, &any->ops.at[p->op], any_number(a, k, model, p->first));
        return;
    }
    if (p->ref.kind == HIR_REF_STATE) return; /* its size is the same in all forms */
    hir_type *t = p->ref.kind == HIR_REF_WEIGHT ? &any->weights.at[p->ref.index].type
                                                : &any->values.at[p->ref.index].type;
    for (uint32_t d = 0; d < t->rank; d++)
        t->dim[d] = any_number(a, k, model, p->first + d);
}

void hcg_make_row_family(hcg_program *p, const hcg_row_model *model, const hcg_row_form *x,
                         hcg_kernel *k) {
    hir_module *any = copy_module(p->arena, p->m, x);
    for (size_t i = 0; i < x->places.n; i++)
        set_sizes(p->arena, k, model, x, i, any);
    for (size_t i = 0; i < x->views.n; i++)
        leave_out(any, k->op, x->views.at[i]);
    for (size_t i = 0; i < x->args.n; i++) {
        any->ops.at[x->args.at[i].op].args = x->args.at[i].at;
        any->ops.at[x->args.at[i].op].n_args = x->args.at[i].n;
    }
    hcg_affine first = {.a = (int64_t)k->operands.n + k->n_sizes};
    for (size_t i = 0; i < x->lists.n; i++) {
        const hir_id value = (hir_id)(p->m->values.n + i);
        const uint32_t axis = x->lists.at[i].axis;
        const hcg_run run = {
            .value = value, .axis = axis, .first = first, .replaced = x->lists.at[i].replaced};
        hd_push(p->arena, &k->runs, run);
        const int64_t rows = any->values.at[value].type.dim[axis];
        const hcg_affine n =
            rows < HCG_DYNAMIC ? (hcg_affine){.a = rows} : k->dynamic.at[rows - HCG_DYNAMIC];
        first.a += n.a, first.b += n.b;
    }
    k->any = any;
}
