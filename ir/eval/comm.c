/* Communication between ranks. All ranks reach such an op together (run_op in eval.c), so that each
 * rule reads the operands of the others; what a send passes on waits in a queue for its recv. */
#include <string.h>

#include "ir/eval/private.h"
#include "ir/eval/random.h"

static hir_dtype crossing(const hir_op *op) {
    hir_dtype t = HIR_F32;
    hir_value_dtype_by_name(hir_attr_string(op, HIR_A_DTYPE, "f32"), &t);
    return t;
}

static int64_t elements_of_row(const hir_array *a) {
    int64_t n = 1;
    for (uint32_t i = 1; i < a->type.rank; i++)
        n *= a->type.dim[i];
    return n;
}

static int64_t first_row(const eval_call *c, int64_t rank) {
    return hd_first_row(c->T, rank, c->m->ranks, c->m->divide_from);
}

/* y = the sum over ranks, in their order, of the rows from `first` on. */
static void add_ranks(const eval_call *c, const hir_op *op, int64_t first, hir_array *y) {
    const int64_t from = first * elements_of_row(y);
    const hir_dtype t = crossing(op);
    for (int64_t i = 0; i < y->n; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < c->m->ranks; r++)
            sum += hir_rounded(t, c->group[r].operand.at[from + i]);
        y->at[i] = sum;
    }
}

bool eval_comm_all_reduce(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)x;
    add_ranks(c, op, 0, y);
    return true;
}

bool eval_comm_reduce_scatter(eval_call *c, const hir_op *op, const hir_array *const *x,
                              hir_array *y) {
    (void)x;
    add_ranks(c, op, first_row(c, c->e->rank), y);
    return true;
}

static void gather_rows(const eval_call *c, const hir_op *op, hir_array *y) {
    const int64_t row = elements_of_row(y);
    const hir_dtype t = crossing(op);
    for (uint32_t r = 0; r < c->m->ranks; r++) {
        const hir_array *x = &c->group[r].operand;
        double *at = y->at + first_row(c, r) * row;
        for (int64_t i = 0; i < x->n; i++)
            at[i] = hir_rounded(t, x->at[i]);
    }
}

/* Copies units of `inner` elements of an axis. */
typedef struct unit_copy {
    int64_t outer, x_units, y_units, inner;
} unit_copy;

static unit_copy copy_of(const hir_array *x, const hir_array *y, int64_t axis, int64_t unit) {
    const eval_cut from = eval_cut_at(x->type, axis), to = eval_cut_at(y->type, axis);
    return (unit_copy){from.outer, from.n / unit, to.n / unit, from.inner * unit};
}

static void copy_unit(const unit_copy *k, const double *x, int64_t from, double *y, int64_t to,
                      hir_dtype t) {
    for (int64_t o = 0; o < k->outer; o++)
        for (int64_t i = 0; i < k->inner; i++)
            y[(o * k->y_units + to) * k->inner + i] =
                hir_rounded(t, x[(o * k->x_units + from) * k->inner + i]);
}

bool eval_comm_all_gather(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    hd_share s;
    if (!hir_share_of_op(c->m, op, hir_attr_int(op, HIR_A_LENGTH, 0), &s)) {
        if (c->T < c->m->divide_from) /* every rank has all rows */
            memcpy(y->at, x[0]->at, (size_t)y->n * sizeof *y->at);
        else
            gather_rows(c, op, y);
        return true;
    }
    const unit_copy k = copy_of(x[0], y, hir_attr_int(op, HIR_A_AXIS, 0), hd_unit_elements(&s));
    for (int64_t unit = 0; unit < k.y_units; unit++) {
        int64_t local;
        const int64_t rank = hd_owner_of(&s, unit, &local);
        copy_unit(&k, c->group[rank].operand.at, local, y->at, unit, crossing(op));
    }
    return true;
}

bool eval_comm_part(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    hd_share s;
    const int64_t axis = hir_attr_int(op, HIR_A_AXIS, 0);
    if (!hir_share_of_op(c->m, op, axis < x[0]->type.rank ? x[0]->type.dim[axis] : 0, &s)) {
        const int64_t from = first_row(c, c->e->rank) * elements_of_row(y);
        memcpy(y->at, x[0]->at + from, (size_t)y->n * sizeof *y->at);
        return true;
    }
    const unit_copy k = copy_of(x[0], y, axis, hd_unit_elements(&s));
    for (int64_t i = 0; i < k.y_units; i++) { /* padding: y is zeros */
        const int64_t unit = hd_unit_of(&s, c->e->rank, i);
        if (unit >= 0) copy_unit(&k, x[0]->at, unit, y->at, i, HIR_F32);
    }
    return true;
}

/* ---- between pipeline stages ----------------------------------------------------------------- */
bool eval_message_waits(const eval_call *c, int64_t from) {
    const eval_mail *mail = c->mail;
    for (size_t i = 0; mail && i < mail->messages.n; i++) {
        const eval_message *m = &mail->messages.at[i];
        if (!m->taken && m->from == from && m->to == c->e->stage && m->rank == c->e->rank)
            return true;
    }
    return false;
}

/* What a stage that is evaluated alone sends is compared like an output. */
static bool give_out_sent(eval_call *c, const hir_op *op, const hir_array *x) {
    hir_array sent = *x;
    sent.name = hd_printf(c->scratch, "sent.%u", c->sent++);
    sent.type.dim[0] = c->T;
    sent.n = c->T * elements_of_row(x);
    sent.at = eval_take(c, sent.n);
    if (!sent.at) return eval_too_large(c, *op->loc, sent.name, sent.type);
    const bool part = hir_is_row_share(hir_ref_type(c->m, op->args[0]).dim[0]);
    for (uint32_t r = 0; r < (part ? c->m->ranks : 1); r++) {
        const hir_array *from = part ? &c->group[r].operand : x;
        const int64_t at = part ? first_row(c, r) * elements_of_row(x) : 0;
        memcpy(sent.at + at, from->at, (size_t)from->n * sizeof *from->at);
    }
    hd_push(c->scratch, &c->out->outputs, sent);
    return true;
}

bool eval_comm_send(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t to = hir_attr_int(op, HIR_A_TO, 0);
    memcpy(y->at, x[0]->at, (size_t)y->n * sizeof *y->at);
    if (!c->mail && c->e->alone) return give_out_sent(c, op, x[0]);
    if (!c->mail || to == c->e->stage || to >= c->mail->stages) {
        hd_err(c->d, HD_E_VALUE, *op->loc, "comm.send: there is no stage %lld to send to",
               (long long)to);
        return false;
    }
    double *at = hd_new_array(c->scratch, double, (size_t)x[0]->n);
    for (int64_t i = 0; i < x[0]->n; i++)
        at[i] = hir_rounded(crossing(op), x[0]->at[i]);
    hd_push(c->scratch, &c->mail->messages,
            ((eval_message){
                .from = c->e->stage, .to = to, .rank = c->e->rank, .n = x[0]->n, .at = at}));
    return true;
}

/* Receives random numbers for all rows of the call, of which a rank keeps its own. */
static bool receive_random(eval_call *c, const hir_op *op, hir_array *y) {
    const uint64_t seed = (uint64_t)c->e->length;
    hir_random r = hir_random_stream(seed, hd_printf(c->scratch, "received %u", c->received++));
    const bool part = hir_is_row_share(hir_value_at(c->m, op->results[0])->type.dim[0]);
    const int64_t row = elements_of_row(y), first = part ? first_row(c, c->e->rank) * row : 0;
    for (int64_t i = 0; i < first; i++)
        hir_random_normal(&r);
    for (int64_t i = 0; i < y->n; i++)
        y->at[i] = hir_random_normal(&r);
    return true;
}

bool eval_comm_recv(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t from = hir_attr_int(op, HIR_A_FROM, 0);
    (void)x;
    for (size_t i = 0; c->mail && i < c->mail->messages.n; i++) {
        eval_message *m = &c->mail->messages.at[i];
        if (m->taken || m->from != from || m->to != c->e->stage || m->rank != c->e->rank) continue;
        if (m->n != y->n) {
            hd_err(c->d, HD_E_TYPE, *op->loc,
                   "comm.recv: stage %lld sent %lld elements, but %lld are expected",
                   (long long)from, (long long)m->n, (long long)y->n);
            return false;
        }
        memcpy(y->at, m->at, (size_t)y->n * sizeof *y->at);
        m->taken = true;
        return true;
    }
    if (!c->mail && c->e->alone) return receive_random(c, op, y);
    hd_err(c->d, HD_E_VALUE, *op->loc, "comm.recv: stage %lld has sent nothing", (long long)from);
    return false;
}
