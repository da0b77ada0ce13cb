/* fuse: the ops of the graph are grouped into kernels.
 *
 * Needs    a graph whose linear ops are either [T, K] times a weight or row operations
 *          (split-small-contractions), no traces.
 * Does     makes kernel IR: row programs, contractions with prologues and epilogues, and sequence
 *          kernels, as ir/kernel/rules.c allows. As few kernels as the dependencies allow, and
 *          values that only one row program reads are not stored.
 * Leaves   composites: expand lowers them when it is known which are in row programs.
 *
 * Grouping. Think of the program as a sequence of phases (of this pass, not of AttnRes): phase P is
 * one row program, followed by contractions and sequence kernels that need nothing but it and each
 * other in order of creation. So
 *
 *     row op            phase = max over operands of (made by a row op: its phase;
 *                                                     made by a contraction: its phase + 1)
 *     op without T      before its first user; after sums over tokens that it reads: as a row op
 *     linear, attention phase = that of its operands, after everything placed in the phase so far
 *     elementwise op    on the [T, N] result of a contraction, or of a sequence kernel whose form
 *                       may have one, all other operands older: its epilogue
 *     per-head op       on such a result (q/k norm, rope, the write to the cache), all other
 *                       operands older: its per-head epilogue
 *
 * and every dependency points forward in the order (phase; row program, then contractions by
 * number). linear ops of one x join one kernel, unless they are far apart in the program and early
 * results would occupy memory for long: then they are placed one phase before the present one.
 *
 * Each op is now as early as possible, so values are stored that a later row program could compute
 * itself: some ops sink (fuse_sink.c).
 *
 * Sums over tokens are kernels of their own, unless a row program has their rows (fuse_sums.c); then
 * what makes these rows may sink as well.
 * Then row programs that are too long are divided, and some become prologues (fuse_groups.c).
 */
#include "passes/kernels/fuse.h"
#include "support/known.h"

enum {
    CHEAP_ELEMENTS = 256,      /* ops on values of up to this size may be repeated per token */
    CHEAP_ELEMENTWISE = 65536, /* and so may one elementwise op or move of up to this size */
};

/* ---- reading the graph --------------------------------------------------------------------- */
hir_ref fuse_base(const fuse *f, hir_ref r) {
    for (hir_id op; (op = pass_def_if(f->m, r, HIR_RESHAPE_OP)) != HIR_NONE;) {
        if (f->node[op].kind != FUSE_COPIED && f->node[op].kind != FUSE_NONE)
            break; /* rematerialised instead */
        r = pass_arg(f->m, op, 0);
    }
    return r;
}

fuse_node *fuse_node_of(const fuse *f, hir_ref r) {
    hir_id op = pass_def(f->m, r);
    return op == HIR_NONE ? NULL : &f->node[op];
}

/* Position of a value in the order of kernels; 0: available before all of them. */
static uint64_t position(const fuse *f, hir_ref base) {
    const fuse_node *n = fuse_node_of(f, base);
    if (!n || n->kind == FUSE_COPIED || !hir_type_has_t(hir_ref_type(f->m, base))) return 0;
    uint64_t in_phase = n->kind == FUSE_ROW ? 1 : (uint64_t)n->group + 2;
    return (uint64_t)(n->phase + 1) << 32 | in_phase;
}

uint32_t fuse_phase_for_rows(const fuse *f, hir_ref r) {
    const fuse_node *n = fuse_node_of(f, fuse_base(f, r));
    if (!n) return 0;
    if (n->sum) return n->phase + 1;
    if (n->kind == FUSE_ROW || n->late) return n->phase;
    return n->kind >= FUSE_CONTRACT && n->kind <= FUSE_SEQUENCE ? n->phase + 1 : 0;
}

/* First phase whose contractions can read a value. */
static uint32_t phase_for_contractions(const fuse *f, hir_ref r) {
    const fuse_node *n = fuse_node_of(f, fuse_base(f, r));
    bool made = n && ((n->kind >= FUSE_ROW && n->kind <= FUSE_SEQUENCE) || n->late);
    return made ? n->phase : 0;
}

/* ---- groups -------------------------------------------------------------------------------- */
uint32_t fuse_new_group(fuse *f, fuse_kind kind, uint32_t phase) {
    fuse_group g = {.kind = kind, .phase = phase};
    g.same_x = g.experts = g.gradient = g.after = HIR_NONE;
    hd_push(f->c->scratch, &f->groups, g);
    return (uint32_t)f->groups.n - 1;
}

uint32_t *fuse_no_groups(fuse *f, uint32_t n) {
    uint32_t *at = hd_new_array(f->c->scratch, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        at[i] = HIR_NONE;
    return at;
}

void fuse_place(fuse *f, hir_id op, fuse_kind kind, uint32_t phase, uint32_t group) {
    hd_known(f->node); /* the module has ops */
    fuse_node *n = &f->node[op];
    n->kind = kind;
    n->phase = phase;
    n->group = group;
    n->root = HIR_NONE;
    n->sum = false;
}

static void place_row(fuse *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    uint32_t phase = 0;
    for (uint32_t i = 0; i < o->n_args; i++) {
        uint32_t p = fuse_phase_for_rows(f, o->args[i]);
        if (p > phase) phase = p;
    }
    if (phase > f->front) f->front = phase;
    fuse_place(f, op, FUSE_ROW, phase, HIR_NONE);
}

static bool is_contraction(const fuse *f, const hir_op *o) {
    hir_type x = hir_ref_type(f->m, o->args[0]);
    return o->args[1].kind == HIR_REF_WEIGHT && x.rank == 2 && hir_is_tokens(x.dim[0]) &&
           (o->n_args < 3 || o->args[2].kind != HIR_REF_VALUE);
}

/* The phase of a linear op: at most one before that of the last row op placed. */
static uint32_t contraction_phase(const fuse *f, hir_ref x) {
    uint32_t phase = phase_for_contractions(f, x);
    return f->front > phase + 1 ? f->front - 1 : phase;
}

/* The same value with the same shape, possibly through different reshapes. */
static bool same_view(const fuse *f, hir_ref a, hir_ref b) {
    return hir_ref_equal(fuse_base(f, a), fuse_base(f, b)) &&
           hir_type_equal(hir_ref_type(f->m, a), hir_ref_type(f->m, b));
}

/* Places a linear op in a new contraction, which others of the same x may join. `experts`: the op,
 * if it multiplies by experts. */
static void begin_contraction(fuse *f, hir_id op, hir_ref x, hir_id experts, uint32_t phase) {
    const uint32_t base = fuse_base(f, x).index, g = fuse_new_group(f, FUSE_CONTRACT, phase);
    f->groups.at[g].x = x;
    f->groups.at[g].experts = experts;
    f->groups.at[g].same_x = f->last_with_x[base];
    f->last_with_x[base] = g;
    fuse_place(f, op, FUSE_CONTRACT, phase, g);
}

static void place_linear(fuse *f, hir_id op) {
    hir_ref x = pass_arg(f->m, op, 0);
    uint32_t base = fuse_base(f, x).index, phase = contraction_phase(f, x);
    for (uint32_t g = f->last_with_x[base]; g != HIR_NONE; g = f->groups.at[g].same_x) {
        const fuse_group *group = &f->groups.at[g];
        if (group->kind != FUSE_CONTRACT || group->phase < phase || group->experts != HIR_NONE ||
            !same_view(f, group->x, x))
            continue;
        fuse_place(f, op, FUSE_CONTRACT, group->phase, g);
        hir_remark_add(f->c, true, op, "joins the contraction of the same x");
        return;
    }
    begin_contraction(f, op, x, HIR_NONE, phase);
}

/* Products with selected matrices join those of the same x, selection and size: gate and up. */
static void place_experts(fuse *f, hir_id op) {
    const hir_ref x = pass_arg(f->m, op, 0), ids = pass_arg(f->m, op, 2);
    const uint32_t base = fuse_base(f, x).index;
    const uint32_t of_ids = phase_for_contractions(f, ids);
    uint32_t phase = contraction_phase(f, x);
    if (of_ids > phase) phase = of_ids;
    for (uint32_t g = f->last_with_x[base]; g != HIR_NONE; g = f->groups.at[g].same_x) {
        const fuse_group *group = &f->groups.at[g];
        const hir_op *first = group->experts == HIR_NONE ? NULL : hir_op_at(f->m, group->experts);
        if (!first || group->phase < phase || !same_view(f, group->x, x)) continue;
        if (!hir_ref_equal(first->args[2], ids) ||
            !hir_type_equal(pass_result_type(f->m, group->experts), pass_result_type(f->m, op)))
            continue;
        fuse_place(f, op, FUSE_CONTRACT, group->phase, g);
        hir_remark_add(f->c, true, op, "joins the experts of the same x");
        return;
    }
    begin_contraction(f, op, x, op, phase);
}

/* A kernel of one op. */
static void place_alone(fuse *f, hir_id op, fuse_kind kind) {
    uint32_t phase = 0;
    for (uint32_t i = 0; i < hir_op_at(f->m, op)->n_args; i++) {
        uint32_t p = phase_for_contractions(f, pass_arg(f->m, op, i));
        if (p > phase) phase = p;
    }
    fuse_place(f, op, kind, phase, fuse_new_group(f, kind, phase));
    f->groups.at[f->node[op].group].epilogue = hir_takes_epilogue(hir_op_at(f->m, op)->code);
}

/* ---- gradients ----------------------------------------------------------------------------- */
/* A sum over tokens; it joins the kernel of another gradient of the same operands. */
static void place_gradient(fuse *f, hir_id op) {
    const uint32_t base = fuse_base(f, pass_arg(f->m, op, 0)).index;
    for (uint32_t g = f->last_with_x[base]; g != HIR_NONE; g = f->groups.at[g].same_x) {
        const hir_id other = f->groups.at[g].gradient;
        if (other == HIR_NONE || !hir_are_gradients_of_one(f->m, other, op)) continue;
        fuse_place(f, op, FUSE_SEQUENCE, f->groups.at[g].phase, g);
        hir_remark_add(f->c, true, op, "joins the kernel of the other gradients of its operands");
        return;
    }
    place_alone(f, op, FUSE_SEQUENCE);
    const uint32_t g = f->node[op].group;
    f->groups.at[g].gradient = op;
    f->groups.at[g].same_x = f->last_with_x[base];
    f->last_with_x[base] = g;
}

/* The rows of a gradient that its kernel gives by token. */
static bool place_rows_of(fuse *f, hir_id op) {
    if (!hir_is_view_of_rows(f->m, hir_op_at(f->m, op))) return false;
    const hir_ref x = fuse_base(f, pass_arg(f->m, op, 0));
    const fuse_node *n = fuse_node_of(f, x);
    if (!n || n->kind != FUSE_SEQUENCE || f->groups.at[n->group].gradient == HIR_NONE) return false;
    fuse_place(f, op, FUSE_SEQUENCE, n->phase, n->group);
    return true;
}

void fuse_place_once(fuse *f, hir_id op) {
    uint32_t phase = 0;
    bool late = false;
    for (uint32_t i = 0; i < hir_op_at(f->m, op)->n_args; i++) {
        const hir_ref x = fuse_base(f, pass_arg(f->m, op, i));
        const fuse_node *n = fuse_node_of(f, x);
        if (!n || (n->kind != FUSE_SEQUENCE && !n->late && !n->sum)) continue;
        const uint32_t p = fuse_phase_for_rows(f, x);
        late = true;
        if (p > phase) phase = p;
    }
    fuse_place(f, op, FUSE_FIXED, phase, HIR_NONE);
    f->node[op].late = late;
    if (phase > f->last) f->last = phase;
}

/* Places a send or a recv. They stay in the order of the program, since two pipeline stages match
 * their messages by nothing but this order. */
static void place_comm(fuse *f, hir_id op) {
    const bool ordered = hir_has_trait(hir_op_at(f->m, op)->code, HIR_EFFECT);
    place_alone(f, op, FUSE_COMM);
    fuse_node *n = &f->node[op];
    if (!ordered) return;
    if (n->phase < f->sent) n->phase = f->groups.at[n->group].phase = f->sent;
    f->sent = n->phase;
    if (f->sent > f->front) f->front = f->sent;
}

/* ---- what is computed anew ------------------------------------------------------------------ */
/* The value that `after` gives; r itself if it is no result of one. */
static hir_ref what_comes_after(const fuse *f, hir_ref r) {
    for (hir_id op; (op = pass_def_if(f->m, r, HIR_AFTER_OP)) != HIR_NONE;)
        r = pass_arg(f->m, op, 0);
    return r;
}

/* What is computed from `after` comes no earlier than in the phase that has both of its operands. */
static void place_after(fuse *f, hir_id op) {
    uint32_t phase = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t p = fuse_phase_for_rows(f, pass_arg(f->m, op, i));
        if (p > phase) phase = p;
    }
    if (phase > f->front) f->front = phase;
    fuse_place(f, op, FUSE_COPIED, phase, HIR_NONE);
    f->node[op].late = true;
}

/* When every op has its phase, what `after` gives is its operand. */
static void take_out_after(fuse *f) {
    for (size_t k = 0; k < f->program.n; k++) {
        hir_op *o = hir_op_at(f->m, f->program.at[k]);
        if (o->code == HIR_AFTER_OP) f->node[f->program.at[k]].kind = FUSE_NONE;
        for (uint32_t i = 0; i < o->n_args; i++)
            o->args[i] = what_comes_after(f, o->args[i]);
    }
    for (size_t g = 0; g < f->groups.n; g++)
        f->groups.at[g].x = what_comes_after(f, f->groups.at[g].x);
}

/* ---- epilogues ----------------------------------------------------------------------------- */
/* An operand without T that an epilogue can read: a scalar, or a vector over the columns. */
static bool is_column_operand(const fuse *f, hir_ref r, hir_type tile) {
    hir_type t = hir_ref_type(f->m, r);
    double value;
    bool fits = pass_is_scalar(t) || (t.rank == 1 && t.dim[0] == tile.dim[tile.rank - 1]);
    if (!fits) return false;
    if (pass_const(f->m, r, &value)) return t.rank == 0;
    return r.kind == HIR_REF_WEIGHT || pass_def(f->m, r) == HIR_NONE;
}

/* The operand computed last in the order of kernels; none: all are available before any kernel. */
static hir_ref newest_operand(const fuse *f, const hir_op *o) {
    uint64_t newest = 0;
    hir_ref last = hir_no_ref();
    for (uint32_t i = 0; i < o->n_args; i++) {
        uint64_t at = position(f, fuse_base(f, o->args[i]));
        if (at <= newest) continue;
        newest = at;
        last = o->args[i];
    }
    return last;
}

/* A constant, or a view of an input or weight: it is not in memory with the shape of the
 * operand. */
static bool is_not_in_memory(const fuse *f, hir_ref r) {
    r = what_comes_after(f, r);
    const fuse_node *made = fuse_node_of(f, fuse_base(f, r));
    bool view = !hir_ref_equal(fuse_base(f, r), r);
    return (view && !made) || (made && made->kind == FUSE_COPIED);
}

/* Is the value made in the group, a contraction or a sequence kernel? */
static bool is_in_group(const fuse *f, hir_ref r, uint32_t group) {
    const fuse_node *n = fuse_node_of(f, fuse_base(f, r));
    return n && (n->kind == FUSE_CONTRACT || n->kind == FUSE_SEQUENCE) && n->group == group;
}

/* Is the op in a kernel that may have an elementwise epilogue? */
static bool has_epilogue(const fuse *f, const fuse_node *n) {
    return n->kind == FUSE_CONTRACT ||
           (n->kind == FUSE_SEQUENCE && f->groups.at[n->group].epilogue);
}

/* Is it the result of a per-head op, or does its linear op have a per-head epilogue? */
static bool is_of_heads(const fuse *f, hir_ref r) {
    const fuse_node *n = fuse_node_of(f, fuse_base(f, r));
    return n->root != HIR_NONE || n->heads > 0;
}

/* NULL: the op can be in the epilogue of the group that computes its newest operand, *group; else
 * the reason why not. */
static const char *epilogue(const fuse *f, hir_id op, uint32_t *group) {
    const hir_op *o = hir_op_at(f->m, op);
    hir_type tile = pass_result_type(f->m, op);
    tile.dtype = HIR_F32; /* it is computed in f32, and operands must be f32 */
    if (!hir_has_trait(o->code, HIR_ELEMENTWISE)) return "not elementwise";
    const fuse_node *n = fuse_node_of(f, newest_operand(f, o));
    if (!n || !has_epilogue(f, n)) return "its newest operand is not computed by a contraction";
    *group = n->group;
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_ref r = o->args[i];
        if (!hir_type_has_t(hir_ref_type(f->m, r))) {
            if (!is_column_operand(f, r, tile))
                return "an operand is not a tile, column vector or scalar";
            continue;
        }
        if (!hir_type_equal(hir_ref_type(f->m, r), tile)) return "an operand has another shape";
        if (is_not_in_memory(f, r)) return "an operand is a constant tile or a view of an input";
        if (!is_in_group(f, r, *group)) continue;
        if (!hir_ref_equal(fuse_base(f, r), r)) return "an operand is reshaped in between";
        if (is_of_heads(f, r)) return "an operand has a per-head epilogue";
    }
    return NULL;
}

/* Marks linear ops that have an elementwise epilogue: they cannot have a per-head epilogue. */
static void take_as_tiles(fuse *f, hir_id op, uint32_t group) {
    const hir_op *o = hir_op_at(f->m, op);
    for (uint32_t i = 0; i < o->n_args; i++)
        if (is_in_group(f, o->args[i], group)) fuse_node_of(f, o->args[i])->heads = FUSE_TILE;
}

/* ---- per-head epilogues -------------------------------------------------------------------- */
typedef struct head_op {
    uint32_t group;
    hir_id root;
    int64_t heads;
} head_op;

/* Finds the linear op that an operand in a contraction is computed from, and its heads. NULL, or
 * why it has none. */
static const char *find_heads(const fuse *f, hir_ref r, head_op *out) {
    const fuse_node *n = fuse_node_of(f, fuse_base(f, r));
    hir_id made = pass_def(f->m, fuse_base(f, r));
    hir_type view = hir_ref_type(f->m, r);
    bool linear = hir_op_at(f->m, made)->code == HIR_LINEAR_OP;
    *out = (head_op){n->group, linear ? made : n->root, 0};
    if (out->root == HIR_NONE || f->node[out->root].heads == FUSE_TILE)
        return "its columns are those of an elementwise epilogue";
    int64_t columns = pass_elements(pass_result_type(f->m, out->root));
    out->heads = f->node[out->root].heads;
    if (out->heads == 0 && view.rank >= 3) out->heads = view.dim[1];
    if (out->heads <= 0 || columns % out->heads != 0) return "it needs the whole row";
    if (hir_head_panels(columns / out->heads) > HIR_HEAD_PANELS) return "its heads are too wide";
    return NULL;
}

/* Can a per-head epilogue read the operand, which is computed elsewhere, from memory? */
static bool is_outer_operand(const fuse *f, hir_ref r, int64_t heads, bool *inner) {
    hir_type t = hir_ref_type(f->m, r);
    double value;
    *inner = hir_is_by_heads(t, heads);
    if (hir_type_has_t(t)) return !is_not_in_memory(f, r);
    return r.kind != HIR_REF_VALUE || pass_def(f->m, r) == HIR_NONE || pass_const(f->m, r, &value);
}

/* NULL: the op can be in the per-head epilogue of the contraction that computes its newest operand,
 * *out; else the reason why not. */
static const char *head_epilogue(const fuse *f, hir_id op, head_op *out) {
    const hir_op *o = hir_op_at(f->m, op);
    bool *inner = hd_new_array(f->c->scratch, bool, o->n_args + 1);
    const char *why_not = find_heads(f, newest_operand(f, o), out);
    if (why_not) return why_not;
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_ref r = o->args[i], base = fuse_base(f, r);
        if (r.kind == HIR_REF_NONE || r.kind == HIR_REF_STATE) continue;
        if (!is_in_group(f, r, out->group)) {
            if (!is_outer_operand(f, r, out->heads, &inner[i]))
                return "an operand is a constant row or computed from weights";
            continue;
        }
        hir_id made = pass_def(f->m, base);
        if (made != out->root && f->node[made].root != out->root)
            return "an operand comes from another linear op";
        inner[i] = true;
    }
    int64_t most = HIR_HEAD_PANELS * HIR_PANEL * out->heads;
    hir_type y = pass_result_type(f->m, op);
    if (hir_type_has_t(y) && pass_elements(y) > most) return "its result is wider than a head";
    return hir_why_not_by_heads(f->m, op, out->heads, inner);
}

int64_t fuse_row_size(const fuse *f, hir_ref r) {
    hir_type t = hir_ref_type(f->m, r);
    int64_t n = pass_elements(t);
    if (n > INT32_MAX) n = INT32_MAX; /* so that sums do not overflow */
    return n * (int64_t)hir_dtype_bytes(t.dtype);
}

const char *fuse_through_memory(const fuse *f, hir_ref r) {
    if (!hir_type_has_t(hir_ref_type(f->m, r)))
        return "; nothing of a token would have been saved: the value is the same for all of them";
    return hd_printf(f->c->scratch, "; %lld bytes of each token are written and read for it",
                     (long long)fuse_row_size(f, r));
}

/* Places the op in the per-head epilogue of its newest operand's contraction, if possible. */
static bool place_head_op(fuse *f, hir_id op) {
    hir_ref last = newest_operand(f, hir_op_at(f->m, op));
    const fuse_node *n = fuse_node_of(f, fuse_base(f, last));
    head_op r;
    if (!n || n->kind != FUSE_CONTRACT) return false;
    const char *why_not = head_epilogue(f, op, &r);
    if (why_not) {
        if (hir_ref_type(f->m, last).rank >= 3)
            hir_remark_add(f->c, false, op, "no per-head epilogue of the contraction: %s%s",
                           why_not, fuse_through_memory(f, last));
        return false;
    }
    fuse_place(f, op, FUSE_CONTRACT, f->groups.at[r.group].phase, r.group);
    f->node[op].root = r.root;
    f->node[r.root].heads = r.heads;
    hir_remark_add(f->c, true, op, "becomes a per-head epilogue of the contraction");
    return true;
}

static void place_elementwise(fuse *f, hir_id op) {
    uint32_t group = HIR_NONE;
    const char *why_not = epilogue(f, op, &group);
    if (!why_not) {
        const fuse_group *g = &f->groups.at[group];
        if (g->kind == FUSE_CONTRACT) take_as_tiles(f, op, group);
        fuse_place(f, op, g->kind, g->phase, group);
        return;
    }
    if (place_head_op(f, op)) return;
    if (group != HIR_NONE)
        hir_remark_add(f->c, false, op, "no elementwise epilogue: %s%s", why_not,
                       fuse_through_memory(f, newest_operand(f, hir_op_at(f->m, op))));
    place_row(f, op);
}

/* ---- first walk: as early as possible -------------------------------------------------------- */
/* Views of inputs, weights and constants are free, unless an output names them: then some kernel
 * has to write them.
 */
static bool is_free_view(const fuse *f, hir_id op) {
    if (!f->given_out[hir_result(f->m, op)]) return true;
    const fuse_node *n = fuse_node_of(f, fuse_base(f, pass_arg(f->m, op, 0)));
    return n && n->kind >= FUSE_FIXED && n->kind <= FUSE_SEQUENCE;
}

static bool place_op(fuse *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    if (o->code == HIR_OUTPUT_OP) {
        fuse_place(f, op, FUSE_OUTPUT, 0, HIR_NONE);
        return true;
    }
    if (o->code == HIR_TRACE_OP) {
        hd_err(f->c->diags, HD_E_UNSUPPORTED, *o->loc, "a trace cannot stand in a kernel")->hint =
            "run lower-traces before";
        return false;
    }
    hir_type t = pass_result_type(f->m, op);
    bool given_out = f->given_out[hir_result(f->m, op)];
    if (o->code == HIR_CONST_OP && !given_out)
        fuse_place(f, op, FUSE_COPIED, 0, HIR_NONE);
    else if (o->code == HIR_RESHAPE_OP && is_free_view(f, op))
        fuse_place(f, op, FUSE_COPIED, 0, HIR_NONE);
    else if (o->code == HIR_AFTER_OP)
        place_after(f, op);
    else if (hir_has_trait(o->code, HIR_REDUCES_TOKENS))
        place_gradient(f, op);
    else if (hir_has_trait(o->code, HIR_SEQUENCE))
        place_alone(f, op, FUSE_SEQUENCE);
    else if (o->code == HIR_BLOCK_LINEAR_OP)
        place_alone(f, op, FUSE_BLOCKS);
    else if (hir_has_trait(o->code, HIR_COMM))
        place_comm(f, op);
    else if (!f->gradients && (hir_takes_targets(o->code) || o->code == HIR_CROSS_ENTROPY_MERGE_OP))
        place_alone(f, op, FUSE_LOSS);
    else if (o->code == HIR_LINEAR_OP && is_contraction(f, o))
        place_linear(f, op);
    else if (o->code == HIR_EXPERT_LINEAR_OP)
        place_experts(f, op);
    else if (!hir_type_has_t(t) && !pass_type_has_c(t) && !hir_has_trait(o->code, HIR_WRITES_STATE))
        fuse_place_once(f, op);
    else if (place_rows_of(f, op))
        return true;
    else if (hir_has_trait(o->code, HIR_ELEMENTWISE))
        place_elementwise(f, op);
    else if (!place_head_op(f, op))
        place_row(f, op);
    return true;
}

/* ---- second walk: users -------------------------------------------------------------------- */
/* Users of each value, looking through reshapes; an op that uses a value twice is listed twice. */
static void find_uses(fuse *f) {
    size_t n = f->m->values.n;
    hir_uses *u = &f->uses;
    u->count = hd_new_array(f->c->scratch, uint32_t, n);
    u->first = hd_new_array(f->c->scratch, uint32_t, n);
    uint32_t *filled = hd_new_array(f->c->scratch, uint32_t, n), total = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t k = 0; k < f->program.n; k++) {
            hir_id op = f->program.at[k];
            const hir_op *o = hir_op_at(f->m, op);
            if (f->node[op].kind == FUSE_COPIED && o->code == HIR_RESHAPE_OP) continue;
            for (uint32_t i = 0; i < o->n_args; i++) {
                hir_ref base = fuse_base(f, o->args[i]);
                if (base.kind != HIR_REF_VALUE) continue;
                if (round == 0)
                    u->count[base.index]++;
                else
                    u->user[u->first[base.index] + filled[base.index]++] = op;
            }
        }
        if (round == 1) return;
        for (size_t v = 0; v < n; v++) {
            u->first[v] = total;
            total += u->count[v];
        }
        u->user = hd_new_array(f->c->scratch, hir_id, total);
    }
}

/* Leaves out dead ops. */
static void drop_dead(fuse *f) {
    bool *live = hd_new_array(f->c->scratch, bool, f->m->values.n);
    for (size_t k = f->program.n; k-- > 0;) {
        hir_id op = f->program.at[k];
        const hir_op *o = hir_op_at(f->m, op);
        bool wanted = hir_has_trait(o->code, HIR_EFFECT);
        for (uint32_t i = 0; i < o->n_results; i++)
            wanted |= live[o->results[i]];
        if (!wanted) f->node[op].kind = FUSE_NONE;
        for (uint32_t i = 0; wanted && i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) live[o->args[i].index] = true;
    }
}

/* ---- third walk: values without T --------------------------------------------------------- */
/* Is it cheap enough to be computed again for each token, instead of once in a kernel of its
 * own? */
static bool is_cheap(const fuse *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    int64_t largest = pass_elements(pass_result_type(f->m, op));
    for (uint32_t i = 0; i < o->n_args; i++) {
        int64_t n = pass_elements(hir_ref_type(f->m, o->args[i]));
        if (n > largest) largest = n;
    }
    bool simple = hir_has_trait(o->code, HIR_ELEMENTWISE | HIR_MOVE);
    return largest <= (simple ? CHEAP_ELEMENTWISE : CHEAP_ELEMENTS);
}

/* Cheap values are rematerialised where they are used; others are computed just before the first
 * user. */
static void place_fixed(fuse *f, hir_id op) {
    fuse_node *n = &f->node[op];
    if (n->kind != FUSE_FIXED || n->late) return;
    uint32_t v = hir_result(f->m, op), phase = HIR_NONE;
    bool needs_place = !is_cheap(f, op);
    for (uint32_t i = 0; i < f->uses.count[v]; i++) {
        const fuse_node *user = &f->node[f->uses.user[f->uses.first[v] + i]];
        if (user->kind == FUSE_OUTPUT) needs_place = true;
        if (user->kind == FUSE_OUTPUT || user->kind == FUSE_NONE) continue;
        if (user->kind == FUSE_CONTRACT || user->kind == FUSE_SEQUENCE) needs_place = true;
        if (user->phase < phase) phase = user->phase;
    }
    n->phase = phase == HIR_NONE ? 0 : phase;
    if (!needs_place)
        n->kind = FUSE_COPIED;
    else
        hir_remark_add(f->c, true, op, "is the same for every token: computed once per call");
}

/* ---- the pass ------------------------------------------------------------------------------ */
static fuse new_fuse(hir_pass_context *c) {
    fuse f = {.c = c, .m = c->m, .n_ops = c->m->ops.n, .gradients = hir_has_gradients(c->m)};
    f.node = hd_new_array(c->scratch, fuse_node, c->m->ops.n);
    f.given_out = hd_new_array(c->scratch, bool, c->m->values.n);
    f.last_with_x = fuse_no_groups(&f, (uint32_t)c->m->values.n);
    HIR_EACH(c->m, op, c->m->first) {
        f.node[op].order = (uint32_t)f.program.n;
        hd_push(c->scratch, &f.program, op);
        hir_ref x = what_comes_after(&f, pass_arg(c->m, op, 0));
        if (hir_op_at(c->m, op)->code == HIR_OUTPUT_OP && x.kind == HIR_REF_VALUE)
            f.given_out[x.index] = true;
    }
    return f;
}

bool pass_fuse(hir_pass_context *c) {
    if (!fuse_gradients(c)) return false;
    fuse f = new_fuse(c);
    for (size_t k = 0; k < f.program.n; k++)
        if (!place_op(&f, f.program.at[k])) return false;
    take_out_after(&f);
    drop_dead(&f);
    find_uses(&f);
    fuse_sink(&f);
    for (size_t k = f.program.n; k-- > 0;)
        place_fixed(&f, f.program.at[k]);
    fuse_make_groups(&f);
    c->changed = true;
    return fuse_build(&f) && fuse_loss(c);
}
