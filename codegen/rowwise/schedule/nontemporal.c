/* Stores that may be non-temporal: whole lines of rows that begin on a line, which the kernel
 * itself does not read again. Whether they are depends on how much a call stores
 * (emit/nontemporal.c). */
#include "codegen/rowwise/schedule/steps.h"

int64_t row_store_unit(const hd_machine *m) {
    int64_t bytes = HRT_ALIGN;
    while (bytes < m->line)
        bytes *= 2;
    return bytes;
}

/* Elements of so many bytes: do they fill units? */
static bool fills(row_size elements, int64_t bytes, int64_t unit) {
    return row_size_divisible(row_size_scale(elements, bytes), row_int(unit));
}

static bool may_be(const row_schedule *s, const row_nest *nest, const row_node *n) {
    if (n->buffer == ROW_NO_BUFFER || row_of(s, n)->far_read) return false;
    const row_buffer *b = &s->g->buffers.at[n->buffer];
    const int64_t bytes = (int64_t)hir_dtype_bytes(b->dtype);
    const int64_t unit = row_store_unit(&s->target.machine);
    const int lanes = (int)nest->domain.rank - 1;
    if (b->in_place) return false;                             /* its lines have just been read */
    if (row_is_dynamic(row_elements(&n->shape))) return false; /* nobody knows how much */
    bool aligned = fills(n->to.constant, bytes, unit) && fills(b->elements, bytes, unit);
    for (int v = 0; v < ROW_VARS; v++)
        aligned &= v == lanes ? row_size_is(n->to.by[v], 1) : fills(n->to.by[v], bytes, unit);
    return aligned && b->where == ROW_ARG && b->has_t;
}

void row_choose_nontemporal(row_schedule *s) {
    for (size_t i = 0; s->target.nontemporal && i < s->per_token.list.n; i++) {
        const row_nest *nest = &s->per_token.list.at[i];
        for (size_t k = 0; !nest->small && !nest->choice && nest->domain.rank && k < nest->roots.n;
             k++) {
            const row_node *n = row_at(s->g, nest->roots.at[k]);
            row_of(s, n)->nontemporal = may_be(s, nest, n);
        }
    }
}
