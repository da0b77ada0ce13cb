/* narrow-depth: values between the kernels of the residual mechanism are stored in a narrower type.
 *
 * Needs    phases 1 and 2 (batch-queries). Does nothing unless the options ask for it.
 * Does     inserts a `convert` after values that are written once and read from memory later:
 *            bank      a source that two mixes or more read: the embedding, finished blocks,
 *                      outputs under Full AttnRes. All mixes read the rounded value, so that phases
 *                      1 and 2 use the same source; sums stay f32.
 *            phase 1   a result of phase 1 that is stored for its member. Its log-sum-exp stays
 *                      f32.
 * Leaves   arithmetic: values are widened when read; layer inputs, sums that one mix reads, scores
 *          and statistics. This is the only pass that changes results: by the rounding of what it
 *          converts, at most 2^-9 of each element.
 */
#include "passes/depth/depth.h"

typedef struct narrower {
    hir_pass_context *c;
    hir_module *m;
    uint32_t *readers; /* by value: number of mixes that read it as a source */
    hir_ref *stored;   /* by value: the narrow value that mixes read instead, or the none ref */
    uint32_t banked, results;
    uint32_t alone;      /* number of sources that one mix reads */
    int64_t alone_bytes; /* bytes that narrow ones would have saved */
} narrower;

/* Index of the first operand that is a source; all later operands are sources, too. */
static uint32_t first_source(hir_opcode code) {
    switch ((int)code) {
    case HIR_DEPTH_ATTEND_OP:
    case HIR_DEPTH_WEIGHTS_OP: return ATTEND_SOURCES;
    case HIR_DEPTH_SCORES_OP: return 3;
    case HIR_DEPTH_MIX_OP: return 1;
    case HIR_DEPTH_INVERSE_RMS_OP: return 0;
    default: return HIR_NONE;
    }
}

static bool mixes(hir_opcode code) {
    return code == HIR_DEPTH_ATTEND_OP || code == HIR_DEPTH_MIX_OP;
}

static void count_readers(narrower *n) {
    HIR_EACH(n->m, op, n->m->first) {
        const hir_op *o = hir_op_at(n->m, op);
        for (uint32_t i = mixes(o->code) ? first_source(o->code) : o->n_args; i < o->n_args; i++)
            n->readers[o->args[i].index]++;
    }
}

/* Rounds x right after its definition; returns x itself if it is narrow already. */
static hir_ref narrowed(narrower *n, hir_ref x, hir_dtype dtype, uint32_t *count) {
    if (dtype == HIR_F32 || hir_ref_type(n->m, x).dtype != HIR_F32) return x;
    hir_ref *y = &n->stored[x.index];
    if (depth_is_given(*y)) return *y;
    hir_id made = pass_def(n->m, x);
    hir_id behind = made == HIR_NONE ? n->m->first : hir_op_at(n->m, made)->next;
    hir_builder b = hir_before(n->m, n->c->diags, behind);
    if (made != HIR_NONE) b.loc = *hir_op_at(n->m, made)->loc;
    hir_attr attr = hir_string(HIR_A_DTYPE, hir_dtype_name(dtype));
    *y = hir_emit(&b, HIR_CONVERT_OP, &x, 1, &attr, 1);
    (*count)++;
    n->c->changed = true;
    return *y;
}

/* Counts a source that one mix reads. It stays f32, since most often the kernel that computes it
 * also mixes it. */
static void count_alone(narrower *n, hir_ref x) {
    const hir_type t = hir_ref_type(n->m, x);
    const size_t kept = hir_dtype_bytes(HIR_F32),
                 wanted = hir_dtype_bytes(n->c->options->bank_dtype);
    if (t.dtype != HIR_F32 || wanted == kept) return;
    n->alone++;
    n->alone_bytes += 2 * (int64_t)(kept - wanted) * pass_elements(t); /* it is written and read */
}

static bool narrow_sources(narrower *n, hir_id op) {
    const hir_opcode code = hir_op_at(n->m, op)->code;
    for (uint32_t i = first_source(code); i < hir_op_at(n->m, op)->n_args; i++) {
        hir_ref x = pass_arg(n->m, op, i);
        if (n->readers[x.index] == 1 && mixes(code)) count_alone(n, x);
        if (n->readers[x.index] < 2) continue;
        hir_ref y = narrowed(n, x, n->c->options->bank_dtype, &n->banked);
        if (!depth_is_given(y)) return false;
        hir_op_at(n->m, op)->args[i] = y;
    }
    return true;
}

static bool narrow_result(narrower *n, hir_id op) {
    hir_ref o = pass_arg(n->m, op, ATTEND_PARTIAL);
    if (!depth_is_given(o)) return true;
    hir_ref y = narrowed(n, o, n->c->options->phase1_dtype, &n->results);
    if (!depth_is_given(y)) return false;
    hir_op_at(n->m, op)->args[ATTEND_PARTIAL] = y;
    return true;
}

static void remark_left(const narrower *n) {
    const hir_compile_options *o = n->c->options;
    const char *bank = hir_dtype_name(o->bank_dtype), *phase1 = hir_dtype_name(o->phase1_dtype);
    if (n->alone)
        hir_remark_add(n->c, false, HIR_NONE,
                       "%u source%s that one mix reads stay%s f32: as %s up to %lld bytes of each "
                       "token less would be written and read",
                       n->alone, hd_s(n->alone), n->alone == 1 ? "s" : "", bank,
                       (long long)n->alone_bytes);
    else if (o->bank_dtype != HIR_F32 && !n->banked)
        hir_remark_add(n->c, false, HIR_NONE,
                       "none is stored as %s: there is no mix over depth with sources to store, "
                       "nothing would have been gained",
                       bank);
    if (o->phase1_dtype != HIR_F32 && !n->results)
        hir_remark_add(n->c, false, HIR_NONE,
                       "no result of a phase 1 is stored for later: none is stored as %s, nothing "
                       "would have been gained",
                       phase1);
}

static void remark(const narrower *n) {
    const hir_compile_options *o = n->c->options;
    if (n->banked)
        hir_remark_add(n->c, true, HIR_NONE, "%u source%s that several mixes read %s stored as %s",
                       n->banked, hd_s(n->banked), n->banked == 1 ? "is" : "are",
                       hir_dtype_name(o->bank_dtype));
    if (n->results)
        hir_remark_add(n->c, true, HIR_NONE, "%u result%s of phase 1 %s stored as %s", n->results,
                       hd_s(n->results), n->results == 1 ? "is" : "are",
                       hir_dtype_name(o->phase1_dtype));
    remark_left(n);
}

bool pass_narrow_depth(hir_pass_context *c) {
    if (c->options->bank_dtype == HIR_F32 && c->options->phase1_dtype == HIR_F32) return true;
    const size_t values = c->m->values.n;
    narrower n = {.c = c, .m = c->m, .readers = hd_new_array(c->scratch, uint32_t, values)};
    n.stored = hd_new_array(c->scratch, hir_ref, values);
    count_readers(&n);
    HIR_EACH(n.m, op, n.m->first) {
        hir_opcode code = hir_op_at(n.m, op)->code;
        if (first_source(code) != HIR_NONE && !narrow_sources(&n, op)) return false;
        if (code == HIR_DEPTH_ATTEND_OP && !narrow_result(&n, op)) return false;
    }
    remark(&n);
    return true;
}
