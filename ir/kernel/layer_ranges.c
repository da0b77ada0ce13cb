#include "ir/kernel/layer_ranges.h"

hir_opcode hir_message_of(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        const hir_opcode code = hir_op_at(m, op)->code;
        if (code == HIR_COMM_SEND_OP || code == HIR_COMM_RECV_OP) return code;
    }
    return HIR_OPCODE_COUNT;
}

hir_runs hir_find_layer_ranges(hd_arena *a, const hir_module *m) {
    hir_runs out = {0};
    hir_layer_range r = {0};
    bool sends = false, works = false;
    uint32_t k = 0;
    HIR_EACH(m, id, m->first) {
        if (!hir_is_kernel(hir_op_at(m, id))) continue;
        const hir_opcode message = hir_message_of(m, id);
        if (message == HIR_COMM_RECV_OP && sends) {
            r.end = k;
            hd_push(a, &out.list, r);
            r = (hir_layer_range){.first = k};
            sends = works = false;
        }
        if (message == HIR_COMM_SEND_OP && !sends) r.send = k, sends = true;
        if (message != HIR_COMM_RECV_OP && !works) r.work = k, works = true;
        k++;
    }
    if (!works) r.work = k;
    if (!sends) r.send = k;
    r.end = k;
    hd_push(a, &out.list, r);
    return out;
}

uint32_t hir_layer_range_of(const hir_runs *runs, uint32_t kernel) {
    uint32_t run = 0;
    while (run + 1 < runs->list.n && kernel >= runs->list.at[run].end)
        run++;
    return run;
}
