/* How each pass changed the ledger, as remarks. */
#include "inspect/ledger.h"

void ledger_watch_start(ledger_watch *w, const hir_module *m, hd_arena *a) {
    hir_ledger l;
    hir_ledger_find(m, a, &l);
    *w = (ledger_watch){m->stage, l.total};
}

void ledger_watch_pass(ledger_watch *w, const hir_module *m, const char *pass, hd_arena *a,
                       hir_remarks *remarks) {
    hir_ledger l;
    hir_ledger_find(m, a, &l);
    const ledger_watch old = *w;
    *w = (ledger_watch){m->stage, l.total};
    if (old.total.read == l.total.read && old.total.written == l.total.written) return;
    const bool kernels = old.stage != m->stage && m->stage == HIR_STAGE_KERNEL;
    const char *text = hd_printf(
        a, "ledger: %.3f d instead of %.3f d per token per sublayer%s (%.3f read, %.3f written)",
        hir_ledger_units(&l, l.total.read + l.total.written),
        hir_ledger_units(&l, old.total.read + old.total.written),
        kernels ? ", counted by kernels now" : "", hir_ledger_units(&l, l.total.read),
        hir_ledger_units(&l, l.total.written));
    hir_remark r = {.pass = pass, .taken = true, .op = HIR_NONE, .text = text};
    hd_push(remarks->arena, &remarks->list, r);
}
