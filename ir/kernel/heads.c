/* Per-head ops, and the per-head epilogues of contractions that they form (ir.h: heads). */
#include "ir/ir.h"

/* [T, heads, ..] */
static bool by_heads(hir_type t, int64_t heads) {
    return t.rank >= 2 && hir_is_tokens(t.dim[0]) && t.dim[1] == heads;
}

/* The same memory with heads and columns in one dim. */
static bool is_flat(hir_type t, int64_t heads) {
    return t.rank == 2 && hir_is_tokens(t.dim[0]) && t.dim[1] > 0 && t.dim[1] % heads == 0;
}

bool hir_is_by_heads(hir_type t, int64_t heads) {
    return t.rank >= 3 && by_heads(t, heads);
}

/* Is an operand without heads broadcast over them, so that it is the same for every head? */
static bool is_shared(hir_type t, hir_type result) {
    int64_t at = (int64_t)t.rank - (int64_t)result.rank + 1; /* the dim at the heads' place */
    return t.dtype == HIR_F32 && (at < 0 || t.dim[at] == 1);
}

/* Dims of the operands are aligned at the right. */
static const char *elementwise(const hir_module *m, const hir_op *o, int64_t heads,
                               const bool *inner) {
    hir_type y = hir_value_at(m, o->results[0])->type;
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_type t = hir_ref_type(m, o->args[i]);
        if (inner[i] ? t.rank != y.rank || !by_heads(t, heads) : !is_shared(t, y))
            return "an operand differs between heads";
    }
    return NULL;
}

/* An op along an axis must be along one after that of the heads. */
static const char *along_axis(const hir_op *o, const bool *inner) {
    for (uint32_t i = 0; i < o->n_args; i++)
        if (!inner[i]) return "an operand has no heads";
    return hir_attr_int(o, HIR_A_AXIS, 0) >= 2 ? NULL : "it goes across heads";
}

/* A norm over the last axis, with a gain or bias for all heads. */
static const char *norm(const hir_module *m, const hir_op *o, int64_t heads, const bool *inner) {
    hir_type t = hir_ref_type(m, o->args[0]);
    for (uint32_t i = 1; i < o->n_args; i++)
        if (inner[i]) return "its gain or bias differs between heads";
    return inner[0] && hir_is_by_heads(t, heads) ? NULL : "it goes across heads";
}

static const char *reshape(const hir_module *m, const hir_op *o, int64_t heads) {
    hir_type x = hir_ref_type(m, o->args[0]), y = hir_value_at(m, o->results[0])->type;
    bool fits =
        (by_heads(x, heads) || is_flat(x, heads)) && (by_heads(y, heads) || is_flat(y, heads));
    return fits ? NULL : "a reshape cuts through heads";
}

static const char *transpose(const hir_op *o, const bool *inner) {
    const hir_attr *perm = hir_find_attr(o, HIR_A_PERM);
    bool fits = inner[0] && perm && perm->n >= 2 && perm->ints[0] == 0 && perm->ints[1] == 1;
    return fits ? NULL : "it goes across heads";
}

static const char *by_code(const hir_module *m, const hir_op *o, int64_t heads, const bool *inner) {
    switch ((int)o->code) {
    case HIR_RMSNORM_OP:
    case HIR_LAYERNORM_OP: return norm(m, o, heads, inner);
    case HIR_ROPE_OP: return inner[0] && !inner[1] ? NULL : "the table differs between heads";
    case HIR_RESHAPE_OP: return inner[0] ? reshape(m, o, heads) : "it has no heads";
    case HIR_TRANSPOSE_OP: return transpose(o, inner);
    case HIR_SOFTMAX_OP:
    case HIR_LOGSUMEXP_OP:
    case HIR_SLICE_OP:
    case HIR_CONCAT_OP: return along_axis(o, inner);
    default: return "it looks at more than one head";
    }
}

const char *hir_why_not_by_heads(const hir_module *m, hir_id op, int64_t heads, const bool *inner) {
    const hir_op *o = hir_op_at(m, op);
    if (o->n_results != 1 || o->n_args == 0) return "it looks at more than one head";
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_type t = hir_ref_type(m, o->args[i]);
        bool flat = o->code == HIR_RESHAPE_OP && is_flat(t, heads);
        if (inner[i] && !by_heads(t, heads) && !flat)
            return "an operand is not a row of these heads";
    }
    if (hir_has_trait(o->code, HIR_ELEMENTWISE)) return elementwise(m, o, heads, inner);
    if (hir_has_trait(o->code, HIR_REDUCE)) return along_axis(o, inner);
    if (hir_has_trait(o->code, HIR_WRITES_STATE) && hir_has_trait(o->code, HIR_LOCAL))
        return inner[0] ? NULL : "what it appends has no heads";
    return by_code(m, o, heads, inner);
}

int64_t hir_head_panels(int64_t n) {
    int64_t a = n, b = HIR_PANEL;
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return n / a;
}

/* ---- per-head epilogues of a contraction ----------------------------------------------------- */
typedef struct finder {
    const hir_module *m;
    hd_arena *arena;
    hir_id kernel;
    hir_head_epilogue *out;
} finder;

const hir_head_op *hir_find_head_op(const hir_head_epilogue *r, hir_ref value) {
    for (size_t i = r->values.n; value.kind == HIR_REF_VALUE && i-- > 0;)
        if (r->values.at[i].value == value.index) return &r->values.at[i];
    return NULL;
}

static void note(finder *f, hir_id value, hir_id root, int64_t heads) {
    hd_push(f->arena, &f->out->values, ((hir_head_op){value, root, heads}));
}

static bool reject(finder *f, hir_id op, const char *why) {
    f->out->rejected = op;
    f->out->why = why;
    return false;
}

int64_t hir_epilogue_heads(const hir_head_epilogue *r, hir_id linear) {
    for (size_t i = 0; i < r->roots.n; i++)
        if (r->roots.at[i].root == linear) return r->roots.at[i].heads;
    return 0;
}

/* A reshape of a linear op's result or of a head op's: head ops may read it, and it may be
 * yielded. */
static void note_view(finder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    const hir_head_op *x = hir_find_head_op(f->out, o->args[0]);
    hir_type t = hir_value_at(f->m, o->results[0])->type;
    if (!x) return;
    int64_t heads = x->heads ? x->heads : t.rank >= 3 ? t.dim[1] : 0;
    note(f, o->results[0], x->root, heads);
}

static bool note_root(finder *f, hir_id op, hir_id root, int64_t heads) {
    int64_t known = hir_epilogue_heads(f->out, root);
    int64_t n = hir_value_at(f->m, hir_op_at(f->m, root)->results[0])->type.dim[1];
    if (known && known != heads)
        return reject(f, op, "an earlier op divides its columns into other heads");
    if (heads <= 0 || n % heads != 0 || hir_head_panels(n / heads) > HIR_HEAD_PANELS)
        return reject(f, op, "a whole number of its heads takes more than 16 panels of 16 columns");
    if (!known) hd_push(f->arena, &f->out->roots, ((hir_head_op){HIR_NONE, root, heads}));
    return true;
}

static bool note_op(finder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    bool *inner = hd_new_array(f->arena, bool, o->n_args + 1);
    const hir_head_op *first = NULL;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_head_op *x = hir_find_head_op(f->out, o->args[i]);
        if (x && x->heads && !first) first = x;
    }
    if (!first) return true; /* elementwise on the tile, or not computed from a linear op */
    const hir_head_op of = *first;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_head_op *x = hir_find_head_op(f->out, o->args[i]);
        inner[i] = x || hir_is_by_heads(hir_ref_type(f->m, o->args[i]), of.heads);
        if (x && (x->root != of.root || x->heads != of.heads))
            return reject(f, op, "an operand comes from another linear op, or has other heads");
    }
    const char *why = hir_why_not_by_heads(f->m, op, of.heads, inner);
    if (why) return reject(f, op, why);
    note(f, o->results[0], of.root, of.heads);
    return note_root(f, op, of.root, of.heads);
}

/* The epilogue of a linear op is elementwise or per head, never both. */
static bool check_tiles(finder *f) {
    HIR_EACH(f->m, op, hir_op_at(f->m, f->kernel)->body_first) {
        const hir_op *o = hir_op_at(f->m, op);
        bool head_op = o->n_results && hir_find_head_op(f->out, hir_value_ref(o->results[0]));
        for (uint32_t i = 0; !head_op && o->code != HIR_YIELD_OP && i < o->n_args; i++) {
            const hir_head_op *x = hir_find_head_op(f->out, o->args[i]);
            if (x && hir_epilogue_heads(f->out, x->root))
                return reject(f, op, "an operand has a per-head epilogue in this kernel");
        }
    }
    return true;
}

bool hir_find_head_epilogue(const hir_module *m, hd_arena *a, hir_id kernel,
                            hir_head_epilogue *out) {
    *out = (hir_head_epilogue){.rejected = HIR_NONE};
    finder f = {m, a, kernel, out};
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_LINEAR_OP)
            note(&f, o->results[0], op, 0);
        else if (o->code == HIR_RESHAPE_OP)
            note_view(&f, op);
        else if (o->code != HIR_YIELD_OP && !note_op(&f, op))
            return false;
    }
    return check_tiles(&f);
}
