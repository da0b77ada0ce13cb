/* What of the ledger falls to each block and to each kernel. */
#include <string.h>

#include "inspect/ledger.h"

const char *ledger_op_name(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    return hir_attr_string(o, HIR_A_NAME, hir_info(o->code)->name);
}

static void charge(hir_traffic *t, const hir_access *x) {
    *(x->write ? &t->written : &t->read) += x->bytes;
}

void ledger_count_blocks(ledger_report *r, hd_arena *a) {
    const hir_ledger *l = &r->compiled;
    if (l->flow.blocks < 2) return;
    r->by_block = hd_new_array(a, hir_traffic, l->flow.blocks + 1);
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *x = &l->accesses.at[i];
        if (!hir_phase_is_charged(x->phase) || x->block > l->flow.blocks) continue;
        charge(&r->by_block[x->phase == HIR_PHASE_OUTPUT ? 0 : x->block], x);
    }
}

static bool is_of(const ledger_group *g, const hir_access *x) {
    return g->phase == x->phase && g->kind == x->kind && g->write == x->write &&
           g->dtype == x->dtype;
}

static void count_access(ledger_kernel *k, const hir_access *x, hd_arena *a) {
    if (hir_phase_is_charged(x->phase)) charge(&k->each, x);
    for (size_t i = 0; i < k->groups.n; i++)
        if (is_of(&k->groups.at[i], x)) {
            k->groups.at[i].n++;
            return;
        }
    const ledger_group g = {1, x->write, x->phase, x->kind, x->dtype};
    hd_push(a, &k->groups, g);
}

static bool same_group(const ledger_group *a, const ledger_group *b) {
    return a->n == b->n && a->write == b->write && a->phase == b->phase && a->kind == b->kind &&
           a->dtype == b->dtype;
}

static bool does_the_same(const ledger_kernel *a, const ledger_kernel *b) {
    if (strcmp(a->name, b->name) != 0 || a->groups.n != b->groups.n) return false;
    for (size_t i = 0; i < a->groups.n; i++)
        if (!same_group(&a->groups.at[i], &b->groups.at[i])) return false;
    return a->each.read == b->each.read && a->each.written == b->each.written;
}

static void add_kernel(ledger_report *r, const ledger_kernel *new, hd_arena *a) {
    for (size_t i = 0; i < r->kernels.n; i++)
        if (does_the_same(&r->kernels.at[i], new)) {
            r->kernels.at[i].times++;
            return;
        }
    hd_push(a, &r->kernels, *new);
}

/* Accesses of a kernel stand next to each other. */
void ledger_count_kernels(ledger_report *r, hd_arena *a) {
    const hir_ledger *l = &r->compiled;
    for (size_t i = 0; i < l->accesses.n;) {
        const hir_id op = l->accesses.at[i].op;
        ledger_kernel new = {.name = ledger_op_name(r->compiled_module, op), .times = 1};
        for (; i < l->accesses.n && l->accesses.at[i].op == op; i++)
            count_access(&new, &l->accesses.at[i], a);
        add_kernel(r, &new, a);
    }
}
