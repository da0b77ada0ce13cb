/* fuse: ops that sink into the row program of their users.
 *
 * A backward walk sinks a row op (or the last op of an epilogue) into the row program that holds all
 * its users, if that costs no more bytes per token than it saves; operands that only it uses follow.
 * Values with users in several kernels stay, so that equal layers stay equal.
 *
 * Streams that are mixed one by one read the same rows: one of them does not pay for reading these
 * again in the row program of its users, all of them do. So what the walk has left is tried once more,
 * with all that would go the same way.
 */
#include <stdlib.h>

#include "passes/kernels/fuse.h"
#include "support/known.h"

enum { FOLLOWERS = 4 }; /* longest chain of operands that follow an op that sinks */

/* ---- who reads what -------------------------------------------------------------------------- */
/* A number that identifies the kernel that an op is in. */
static uint32_t kernel_of(const fuse_node *n) {
    if (n->kind == FUSE_ROW) return n->phase << 1;
    return n->group << 1 | 1;
}

static fuse_reader *reader(const fuse_kernels *by, uint32_t kernel) {
    uint32_t i = (kernel * UINT32_C(0x9e3779b9) >> 7) & by->mask;
    while (by->slot[i].taken && by->slot[i].kernel != kernel)
        i = (i + 1) & by->mask;
    return &by->slot[i];
}

static void set_slots(hd_arena *a, fuse_kernels *by, uint32_t slots) {
    by->slot = hd_new_array(a, fuse_reader, slots);
    by->mask = slots - 1;
}

/* Adds n reads; -1 takes one off. */
static void count_reads(fuse *f, uint32_t value, uint32_t kernel, int n) {
    fuse_kernels *by = &f->readers.by[value];
    fuse_reader *r = reader(by, kernel);
    if (!r->taken && by->taken++ == by->mask) {
        const fuse_kernels old = *by;
        set_slots(f->c->scratch, by, 2 * old.mask + 2);
        for (uint32_t i = 0; i <= old.mask; i++)
            if (old.slot[i].taken) *reader(by, old.slot[i].kernel) = old.slot[i];
        r = reader(by, kernel);
    }
    *r = (fuse_reader){kernel, (r->n + (unsigned)n) & INT32_MAX, true};
}

static bool is_counted(const fuse *f, hir_id op) {
    const fuse_node *n = &f->node[op];
    return n->kind != FUSE_NONE &&
           !(n->kind == FUSE_COPIED && hir_op_at(f->m, op)->code == HIR_RESHAPE_OP);
}

/* Room for the kernels that read a value now, and for as many again, as ops sink. */
static void make_tables(fuse *f) {
    hd_arena *a = f->c->scratch;
    const size_t n = f->m->values.n;
    f->readers.by = hd_new_array(a, fuse_kernels, n);
    for (size_t v = 0; v < n; v++) {
        uint32_t slots = 1;
        while (slots <= 2 * f->uses.count[v])
            slots *= 2;
        set_slots(a, &f->readers.by[v], slots);
    }
}

static void find_readers(fuse *f) {
    hd_arena *a = f->c->scratch;
    fuse_readers *r = &f->readers;
    const size_t n = f->m->values.n;
    uint32_t *last = hd_new_array(a, uint32_t, n), *at = hd_new_array(a, uint32_t, n), reads = 0;
    make_tables(f);
    r->all = hd_new_array(a, uint32_t, n);
    r->first_arg = hd_new_array(a, uint32_t, f->n_ops);
    for (size_t k = 0; k < f->program.n; k++) {
        r->first_arg[f->program.at[k]] = reads;
        reads += hir_op_at(f->m, f->program.at[k])->n_args;
    }
    r->times = hd_new_array(a, uint32_t, reads);
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_id op = f->program.at[k];
        const hir_op *o = hir_op_at(f->m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_ref base = fuse_base(f, o->args[i]);
            if (base.kind != HIR_REF_VALUE) continue;
            const uint32_t v = base.index;
            if (last[v] != k + 1) {
                last[v] = (uint32_t)k + 1;
                at[v] = r->first_arg[op] + i;
            }
            r->times[at[v]]++;
            if (!is_counted(f, op)) continue;
            r->all[v]++;
            if (f->node[op].kind != FUSE_OUTPUT) count_reads(f, v, kernel_of(&f->node[op]), 1);
        }
    }
}

/* A user of a value, to which it is an operand so many times. */
typedef struct fuse_user {
    hir_id op;
    uint32_t times;
} fuse_user;

/* Does the value have a live user other than `by` in the kernel (`in`), or outside of it (not
 * `in`)? */
static bool used_in(const fuse *f, uint32_t value, uint32_t kernel, fuse_user by, bool in) {
    hd_known(f->node);
    const bool inside = kernel_of(&f->node[by.op]) == kernel;
    const uint32_t here = reader(&f->readers.by[value], kernel)->n;
    const uint32_t n = in ? here : f->readers.all[value] - here;
    return n > (inside == in ? by.times : 0);
}

/* The phase of the row program that holds all users; HIR_NONE: there is none. */
static uint32_t phase_of_users(const fuse *f, uint32_t value) {
    uint32_t phase = HIR_NONE;
    for (uint32_t i = 0; i < f->uses.count[value]; i++) {
        const fuse_node *n = &f->node[f->uses.user[f->uses.first[value] + i]];
        if (n->kind == FUSE_NONE) continue;
        if (n->kind != FUSE_ROW || (phase != HIR_NONE && phase != n->phase)) return HIR_NONE;
        phase = n->phase;
    }
    return phase;
}

static bool may_sink(const fuse *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    const fuse_node *n = &f->node[op];
    if (hir_has_trait(o->code, HIR_EFFECT)) return false;
    if (n->kind == FUSE_SEQUENCE) return hir_has_trait(o->code, HIR_ELEMENTWISE);
    return n->kind == FUSE_ROW || (n->kind == FUSE_CONTRACT && !hir_is_linear(o->code));
}

/* ---- one at a time --------------------------------------------------------------------------- */
static int64_t cost_of_operands(const fuse *f, hir_id op, uint32_t from, uint32_t to, int deep);

/* Is `op` the only user of row op `made`, so that it can sink together with op? */
static bool can_follow(const fuse *f, hir_id made, hir_ref base, fuse_user op, uint32_t from) {
    return f->node[made].kind == FUSE_ROW && may_sink(f, made) &&
           !used_in(f, base.index, from, op, true) && !used_in(f, base.index, from, op, false);
}

/* The cost, in bytes per token, of reading the operand in kernel `to` instead of `from`. If it is
 * computed in `from` for this user only (such as the products of a sum), it sinks too if that is
 * cheaper.
 */
static int64_t cost_of_operand(const fuse *f, fuse_user op, hir_ref base, uint32_t from,
                               uint32_t to, int deep) {
    const fuse_node *made = fuse_node_of(f, base);
    int64_t size = fuse_row_size(f, base), cost = 0;
    bool made_here = made && made->kind != FUSE_FIXED && kernel_of(made) == from;
    if (!made_here && !used_in(f, base.index, from, op, true))
        cost -= size;                                        /* no longer read in `from` */
    if (!used_in(f, base.index, to, op, true)) cost += size; /* but in `to` */
    if (made_here && !used_in(f, base.index, from, op, false)) cost += size; /* and now stored */
    hir_id maker = pass_def(f->m, base);
    if (!made_here || deep == 0 || !can_follow(f, maker, base, op, from)) return cost;
    int64_t together = cost_of_operands(f, maker, from, to, deep - 1);
    return together < cost ? together : cost;
}

static int64_t cost_of_operands(const fuse *f, hir_id op, uint32_t from, uint32_t to, int deep) {
    const hir_op *o = hir_op_at(f->m, op);
    int64_t cost = 0;
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_ref base = fuse_base(f, o->args[i]);
        if (base.kind != HIR_REF_VALUE || !hir_type_has_t(hir_ref_type(f->m, base))) continue;
        if (fuse_node_of(f, base) && fuse_node_of(f, base)->kind == FUSE_COPIED) continue;
        const fuse_user by = {op, f->readers.times[f->readers.first_arg[op] + i]};
        if (by.times) cost += cost_of_operand(f, by, base, from, to, deep);
    }
    return cost;
}

void fuse_move_to_rows(fuse *f, hir_id op, uint32_t phase) {
    const hir_op *o = hir_op_at(f->m, op);
    const uint32_t from = kernel_of(&f->node[op]), to = phase << 1;
    fuse_place(f, op, FUSE_ROW, phase, HIR_NONE);
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref base = fuse_base(f, o->args[i]);
        if (base.kind != HIR_REF_VALUE) continue;
        count_reads(f, base.index, from, -1);
        count_reads(f, base.index, to, 1);
    }
}

static int64_t saved_by(const fuse *f, hir_id op) {
    return 2 * fuse_row_size(f, hir_value_ref(hir_op_at(f->m, op)->results[0])); /* write, read */
}

static void sink(fuse *f, hir_id op) {
    fuse_node *n = &f->node[op];
    if (!may_sink(f, op)) return;
    const hir_op *o = hir_op_at(f->m, op);
    uint32_t phase = phase_of_users(f, o->results[0]);
    if (phase == HIR_NONE || phase <= n->phase) return;
    uint32_t from = kernel_of(n), to = phase << 1;
    int64_t saved = saved_by(f, op), cost = cost_of_operands(f, op, from, to, FOLLOWERS);
    bool from_rows = n->kind == FUSE_ROW;
    if (from_rows ? cost > saved : cost >= saved) {
        const fuse_left left = {op, from, phase};
        if (from_rows && !n->sum) hd_push(f->c->scratch, &f->left, left);
        return;
    }
    hir_remark_add(f->c, true, op, "sinks into the row program of its users: %s",
                   cost == saved ? "as many bytes are moved, and one kernel less leaves a value"
                                 : hd_printf(f->c->scratch, "%lld bytes less are moved per token",
                                             (long long)(saved - cost)));
    fuse_move_to_rows(f, op, phase);
}

static void sink_all(fuse *f) {
    f->left.n = 0;
    for (size_t k = f->program.n; k-- > 0;)
        sink(f, f->program.at[k]);
}

/* The row that an epilogue makes for a sum sinks before others: what else the epilogue makes of the same
 * operands can follow. */
static void sink_into_sums(fuse *f) {
    for (size_t k = f->program.n; k-- > 0;) {
        const hir_id op = f->program.at[k];
        if (!f->node[op].sum) continue;
        for (uint32_t i = 0; i < hir_op_at(f->m, op)->n_args; i++) {
            const hir_id made = pass_def(f->m, fuse_base(f, pass_arg(f->m, op, i)));
            if (made != HIR_NONE && f->node[made].kind == FUSE_CONTRACT) sink(f, made);
        }
    }
}

/* ---- together -------------------------------------------------------------------------------- */
typedef struct moved {
    hir_id op;
    uint32_t before; /* its phase */
} moved;

typedef HD_VEC(moved) moved_list;

static void move_back(fuse *f, moved_list *list, size_t n) {
    while (list->n > n) {
        const moved *last = &list->at[--list->n];
        fuse_move_to_rows(f, last->op, last->before);
    }
}

/* Moves the op, and of its operands those that are made for it alone: all of them, or those of which
 * that costs no more than reading them. Returns what reading the others costs. */
static int64_t move_with_operands(fuse *f, hir_id op, const fuse_left *left, bool all, int deep,
                                  moved_list *list) {
    enum { DEEPEST = 200 };
    const hir_op *o = hir_op_at(f->m, op);
    struct follower {
        hir_id op;
        int64_t cost;
    } *may = hd_new_array(f->c->scratch, struct follower, o->n_args + 1);
    uint32_t n = 0;
    int64_t cost = 0;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref base = fuse_base(f, o->args[i]);
        const fuse_user by = {op, f->readers.times[f->readers.first_arg[op] + i]};
        if (base.kind != HIR_REF_VALUE || !by.times || !hir_type_has_t(hir_ref_type(f->m, base)))
            continue;
        const fuse_node *made = fuse_node_of(f, base);
        if (made && made->kind == FUSE_COPIED) continue;
        const int64_t read = cost_of_operand(f, by, base, left->from, left->phase << 1, 0);
        const hir_id maker = pass_def(f->m, base);
        if (made && !made->sum && deep < DEEPEST && kernel_of(made) == left->from &&
            can_follow(f, maker, base, by, left->from))
            may[n++] = (struct follower){maker, read};
        else
            cost += read;
    }
    hd_push(f->c->scratch, list, ((moved){op, f->node[op].phase}));
    fuse_move_to_rows(f, op, left->phase);
    for (uint32_t i = 0; i < n; i++) {
        const size_t mark = list->n;
        const int64_t together = move_with_operands(f, may[i].op, left, all, deep + 1, list);
        const bool follows = all || together <= may[i].cost;
        if (!follows) move_back(f, list, mark);
        cost += follows ? together : may[i].cost;
    }
    return cost;
}

static int by_kernels(const void *a, const void *b) {
    const fuse_left *x = a, *y = b;
    if (x->phase != y->phase) return x->phase < y->phase ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

/* The n ops go the same way, or stay. */
static bool try_together(fuse *f, const fuse_left *left, size_t n, bool all) {
    moved_list list = {0};
    int64_t cost = 0;
    for (size_t i = 0; i < n; i++)
        cost += move_with_operands(f, left[i].op, left, all, 0, &list) - saved_by(f, left[i].op);
    if (cost > 0) {
        move_back(f, &list, 0);
        return false;
    }
    hir_remark_add(
        f->c, true, left->op,
        "sinks into the row program of its users, with %zu other%s that read%s the same: "
        "%lld bytes less are moved per token",
        n - 1, hd_s(n - 1), n == 2 ? "s" : "", (long long)-cost);
    return true;
}

static void sink_together(fuse *f) {
    if (f->left.n) qsort(f->left.at, f->left.n, sizeof *f->left.at, by_kernels);
    for (size_t i = 0, n; i < f->left.n; i += n) {
        const fuse_left *left = &f->left.at[i];
        n = 1;
        while (i + n < f->left.n && left[n].phase == left->phase && left[n].from == left->from)
            n++;
        if (n > 1 && !try_together(f, left, n, true)) try_together(f, left, n, false);
    }
}

void fuse_sink(fuse *f) {
    find_readers(f);
    sink_all(f);
    if (fuse_sums(f)) {
        sink_into_sums(f);
        sink_all(f);
    }
    sink_together(f);
}
