/* The contract between the passes, which make kernel IR, and code generation, which emits it.
 *
 * hir_verify checks that a module is well formed; this checks that code generation can emit its
 * kernels, in time proportional to the ops (and, for memory, to the values live at once). It runs
 * after the pipeline and before code generation, so that a kernel written or edited by hand is
 * rejected with its location, and not by some later failure.
 *
 *   top level   kernels and outputs
 *   contract    (row op -> x)* linear+ (const | elementwise | row op)* [cross_entropy.parts] yield
 *               what stands in front of the linear ops makes x, and nothing else
 *               an elementwise op takes whole [T, N], a row op one head at a time
 *               (ir/kernel/heads.c)
 *   experts     (reshape of an outer value)* expert_linear+ (const | elementwise)* yield
 *               one x, ids and type for all; an elementwise op takes whole [T, k, N]
 *   sequence    [reshape of an outer value -> operand]* one op that makes a form (kernels.def), or
 *               several gradients of operands of one op
 *               (const | elementwise)* of forms that may have them, (reshape | cache_rows)* yield;
 *               each form has its rule for the op's operands
 *   row         primitives only; all results have T (or C: state), or none has; and sums over tokens,
 *               of rows or of products of two rows, which are reshaped, added to each other and yielded
 *   threads     the splits that the form may have
 *   rows        "last" and "loss" kernels are of a form that may be, and write no state; only such
 *               kernels and output 0 of a model read what "last" kernels make, and only "loss"
 *               kernels and the losses what "loss" kernels make
 *   in place_rules.c, once plan-memory has run:
 *   memory      results are inside their areas; values live at the same time do not overlap
 *   runs        layer ranges of a pipeline stage (ir/kernel/layer_ranges.h) receive first and send last;
 *               what one leaves for another is kept
 */
#include <string.h>

#include "ir/kernel/kernels.h"
#include "ir/kernel/rules.h"
#include "ir/kernel/tiled.h"

bool hir_rules_reject(hir_rules *r, hir_id op, const char *what, const char *hint) {
    const hir_op *o = hir_op_at(r->m, op);
    const hd_loc loc = hir_place_of(r->m, op);
    const char *kernel =
        r->kernel == HIR_NONE ? "" : hir_attr_string(hir_op_at(r->m, r->kernel), HIR_A_NAME, "");
    hd_diag *e = r->kernel == HIR_NONE
                     ? hd_err(r->d, HD_E_TYPE, loc, "%s: %s", hir_info(o->code)->name, what)
                     : hd_err(r->d, HD_E_TYPE, loc, "kernel '%s', %s: %s", kernel,
                              hir_info(o->code)->name, what);
    hd_text text;
    hd_text_init(&text, r->d->arena);
    if (!hir_is_kernel(o)) {
        hir_print_op(r->m, op, &text);
        e->cause = text.at;
    }
    e->hint = hint;
    r->ok = false;
    return false;
}

bool hir_rules_require(hir_rules *r, hir_id op, bool holds, const char *what) {
    return holds || hir_rules_reject(r, op, what, NULL);
}

/* ---- facts --------------------------------------------------------------------------------- */
static hir_id def_of(const hir_rules *r, hir_ref x) {
    return x.kind == HIR_REF_VALUE ? hir_value_at(r->m, x.index)->op : HIR_NONE;
}

static bool is_inner(const hir_rules *r, hir_ref x) {
    hir_id def = def_of(r, x);
    return def != HIR_NONE && hir_op_at(r->m, def)->parent == r->kernel;
}

static bool is_a(const hir_rules *r, hir_ref x, hir_opcode code) {
    hir_id def = def_of(r, x);
    return def != HIR_NONE && hir_op_at(r->m, def)->code == code;
}

static bool is_last(const hir_rules *r, hir_id kernel) {
    return hir_rows_of(hir_op_at(r->m, kernel)) != HIR_ROWS_ALL;
}

/* Does the kernel run in calls of NAME_loss alone? */
static bool is_of_loss(const hir_rules *r, hir_id kernel) {
    return hir_rows_of(hir_op_at(r->m, kernel)) == HIR_ROWS_LOSS;
}

/* ---- weights ------------------------------------------------------------------------------- */
/* Panels are read by the linear ops of contractions, and those that are not narrow also by gather;
 * all other ops read f32 rows. */
static void check_weights(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_WEIGHT) continue;
        const hir_weight *w = &r->m->weights.at[o->args[i].index];
        if (o->code == HIR_GATHER_OP && i == 0)
            hir_rules_require(r, op, w->layout != HIR_LAYOUT_NARROW,
                              "the table is stored as a narrow matrix");
        else if (hir_is_matrix(o->code, i))
            hir_rules_require(r, op, w->layout != HIR_LAYOUT_ROWS,
                              "the matrix is not stored in panels");
        else if (w->layout != HIR_LAYOUT_ROWS || w->type.dtype != HIR_F32)
            hir_rules_reject(r, op, "it reads elements of a weight that is not stored as f32 rows",
                             "the layout pass decides how weights are stored");
    }
}

/* ---- row ops -------------------------------------------------------------------------------- */
static bool is_primitive(hir_opcode code) {
    if (hir_has_trait(code, HIR_COMPOSITE)) return false;
    if (hir_has_trait(code, HIR_ELEMENTWISE | HIR_REDUCE | HIR_MOVE)) return true;
    if (hir_has_trait(code, HIR_WRITES_STATE)) return hir_has_trait(code, HIR_LOCAL);
    return code == HIR_CONST_OP || code == HIR_GATHER_OP || code == HIR_ROPE_TABLE_OP ||
           code == HIR_ROPE_OP || code == HIR_TOPK_OP || code == HIR_TO_IDS_OP ||
           code == HIR_PICK_OP || code == HIR_MARK_OP || code == HIR_SCATTER_OP ||
           code == HIR_YIELD_OP;
}

/* ---- caches -------------------------------------------------------------------------------- */
/* A value of cache length must be the result of cache_append, and may only be yielded. */
static void check_cache_use(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE || !hir_type_has_c(hir_ref_type(r->m, o->args[i])))
            continue;
        const bool is_state = hir_state_of_value(r->m, o->args[i]) != HIR_NONE;
        hir_rules_require(r, op, o->code == HIR_YIELD_OP && is_state,
                          "a value of cache length goes from cache_append to yield only");
    }
}

/* ---- contractions -------------------------------------------------------------------------- */
typedef enum part { HEAD, LINEARS, EPILOGUE, TAIL, NOWHERE } part;

static bool is_tile(hir_type t) {
    return t.dtype == HIR_F32 && t.rank == 2 && hir_is_tokens(t.dim[0]);
}

static void check_linear(hir_rules *r, hir_id op, hir_ref *x) {
    const hir_op *o = hir_op_at(r->m, op);
    hir_type t = hir_ref_type(r->m, o->args[0]);
    hir_rules_require(r, op, o->args[0].kind == HIR_REF_VALUE && is_tile(t), "x is not f32[T, K]");
    hir_rules_require(r, op, o->args[1].kind == HIR_REF_WEIGHT, "the matrix is not a weight");
    hir_rules_require(r, op, o->args[2].kind != HIR_REF_VALUE, "the bias is not a weight");
    hir_rules_require(r, op, x->kind == HIR_REF_NONE || hir_ref_equal(*x, o->args[0]),
                      "the linear ops of a kernel have one x");
    *x = o->args[0];
}

static bool is_number(hir_type t) {
    return t.rank == 0 || (t.rank == 1 && t.dim[0] == 1);
}

static void check_number(hir_rules *r, hir_id op) {
    hir_rules_require(r, op, is_number(hir_value_at(r->m, hir_op_at(r->m, op)->results[0])->type),
                      "a constant in an epilogue is not a scalar");
}

static void check_epilogue(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    hir_type tile = hir_value_at(r->m, o->results[0])->type;
    if (o->code == HIR_CONVERT_OP) tile.dtype = HIR_F32; /* it is computed in f32 */
    if (!hir_rules_require(r, op, is_tile(tile), "an epilogue makes f32[T, N]")) return;
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_ref x = o->args[i];
        hir_type t = hir_ref_type(r->m, x);
        bool fits = is_tile(t) && t.dim[1] == tile.dim[1];
        bool column = is_number(t) || (t.rank == 1 && t.dim[0] == tile.dim[1] && !is_inner(r, x));
        hir_rules_require(r, op, fits || column, "an operand is not a [T, N], [N] or scalar");
        hir_rules_require(r, op, !is_inner(r, x) || !is_a(r, x, HIR_RESHAPE_OP),
                          "an operand is reshaped in the kernel");
    }
}

/* Is the op in a per-head epilogue? Reshapes, which may be anywhere, do not count. */
static bool is_head_op(const hir_head_epilogue *epilogue, const hir_op *o) {
    if (o->n_results != 1 || o->code == HIR_LINEAR_OP || o->code == HIR_RESHAPE_OP) return false;
    return hir_find_head_op(epilogue, hir_value_ref(o->results[0])) != NULL;
}

/* The section of a contraction's body that an op belongs to: HEAD is the prologue, TAIL the
 * yield. */
static part part_of(const hir_rules *r, const hir_op *o) {
    if (o->code == HIR_LINEAR_OP) return LINEARS;
    if (o->code == HIR_CONST_OP || hir_has_trait(o->code, HIR_ELEMENTWISE)) return EPILOGUE;
    if (o->code == HIR_CROSS_ENTROPY_PARTS_OP || o->code == HIR_YIELD_OP) return TAIL;
    if (o->code == HIR_RESHAPE_OP) return is_inner(r, o->args[0]) ? TAIL : HEAD;
    if (hir_is_view_of_rows(r->m, o)) return is_inner(r, o->args[0]) ? TAIL : NOWHERE;
    return NOWHERE;
}

/* May the op be in the prologue of a contraction, which computes x? Every thread runs the prologue
 * for itself, so it must not matter how often an op is done. */
static bool makes_x(const hir_op *o) {
    return o->n_results == 1 && is_primitive(o->code) &&
           !hir_has_trait(o->code, HIR_EFFECT | HIR_POSITION);
}

static void check_front(hir_rules *r, hir_id op, const hir_id *front, size_t n) {
    const hir_op *o = hir_op_at(r->m, op);
    for (uint32_t i = 0; i < o->n_args; i++)
        for (size_t k = 0; k < n; k++)
            hir_rules_require(r, op,
                              o->args[i].kind != HIR_REF_VALUE || o->args[i].index != front[k],
                              "a value of the prologue is used after the linear ops");
}

/* It takes the tile that the linear op and the elementwise ops have made, and is all that leaves the
 * kernel: the tile is not stored. */
static void check_parts(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op), *k = hir_op_at(r->m, r->kernel);
    uint32_t linears = 0;
    HIR_EACH(r->m, id, k->body_first) linears += hir_op_at(r->m, id)->code == HIR_LINEAR_OP;
    hir_rules_require(r, op, linears == 1, "its kernel has one linear op");
    hir_rules_require(r, op, is_inner(r, o->args[0]) && !is_a(r, o->args[0], HIR_RESHAPE_OP),
                      "the logits are not made in the kernel itself");
    hir_rules_require(r, op, !is_inner(r, o->args[1]), "the targets are made in the kernel itself");
    hir_rules_require(r, op,
                      k->n_results == 1 && hir_ref_equal(hir_op_at(r->m, k->body_last)->args[0],
                                                         hir_value_ref(o->results[0])),
                      "its kernel yields its result and nothing else");
}

static void check_contraction(hir_rules *r) {
    part now = HEAD;
    hir_ref x = {HIR_REF_NONE, 0};
    HD_VEC(hir_id) front = {0};
    hir_head_epilogue epilogue;
    if (!hir_find_head_epilogue(r->m, r->d->arena, r->kernel, &epilogue))
        hir_rules_reject(r, epilogue.rejected, epilogue.why, NULL);
    HIR_EACH(r->m, op, hir_op_at(r->m, r->kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        part p = is_head_op(&epilogue, o) ? EPILOGUE : part_of(r, o);
        if (now == HEAD && makes_x(o)) {
            hd_push(r->d->arena, &front, o->results[0]);
            check_weights(r, op);
            continue;
        }
        if (!hir_rules_require(r, op, p <= TAIL, "it cannot stand in a contraction")) continue;
        if (p == TAIL && o->code == HIR_RESHAPE_OP) p = EPILOGUE;
        hir_rules_require(r, op, p >= now && p != HEAD,
                          "the order in a contraction is: prologue, linear ops, epilogue, yield");
        now = p;
        if (o->code == HIR_LINEAR_OP)
            check_linear(r, op, &x);
        else
            check_front(r, op, front.at, front.n);
        if (o->code == HIR_CONST_OP) check_number(r, op);
        if (is_head_op(&epilogue, o))
            check_cache_use(r, op);
        else if (hir_has_trait(o->code, HIR_ELEMENTWISE))
            check_epilogue(r, op);
        if (o->code == HIR_YIELD_OP) check_cache_use(r, op);
        if (o->code == HIR_CROSS_ENTROPY_PARTS_OP) check_parts(r, op);
        check_weights(r, op);
    }
    hir_rules_require(r, r->kernel, x.kind != HIR_REF_NONE, "a contraction has a linear op");
}

/* ---- experts ------------------------------------------------------------------------------- */
static void check_expert_linear(hir_rules *r, hir_id op, hir_id first) {
    const hir_op *o = hir_op_at(r->m, op), *f = hir_op_at(r->m, first);
    hir_rules_require(r, op, o->args[0].kind == HIR_REF_VALUE && o->args[2].kind == HIR_REF_VALUE,
                      "x and ids are values");
    hir_rules_require(r, op, hir_ref_type(r->m, o->args[0]).dtype == HIR_F32, "x is not f32");
    hir_rules_require(r, op, o->args[1].kind == HIR_REF_WEIGHT, "the matrices are not a weight");
    hir_rules_require(r, op, o->args[3].kind != HIR_REF_VALUE, "the biases are not a weight");
    hir_rules_require(r, op, !is_inner(r, o->args[2]), "ids are made in the kernel itself");
    hir_rules_require(r, op, !is_inner(r, o->args[0]) || is_a(r, o->args[0], HIR_RESHAPE_OP),
                      "x is made in the kernel itself");
    const bool alike = hir_ref_equal(o->args[0], f->args[0]) &&
                       hir_ref_equal(o->args[2], f->args[2]) &&
                       hir_type_equal(hir_value_at(r->m, o->results[0])->type,
                                      hir_value_at(r->m, f->results[0])->type);
    hir_rules_require(r, op, alike,
                      "the products of a kernel have one x, one selection and one size");
}

/* An elementwise op on tiles [T, k, N]. */
static void check_expert_epilogue(hir_rules *r, hir_id op, hir_type tile) {
    const hir_op *o = hir_op_at(r->m, op);
    hir_type own = hir_value_at(r->m, o->results[0])->type;
    own.dtype = HIR_F32; /* it is computed in f32 */
    hir_rules_require(r, op, hir_type_equal(own, tile),
                      "an epilogue of experts makes f32[T, k, N]");
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref x = o->args[i];
        const hir_type t = hir_ref_type(r->m, x);
        const bool column = t.rank == 1 && t.dim[0] == tile.dim[2] && !is_inner(r, x);
        hir_rules_require(r, op, hir_type_equal(t, tile) || is_number(t) || column,
                          "an operand is not a [T, k, N], [N] or scalar");
        hir_rules_require(r, op, !is_inner(r, x) || !is_a(r, x, HIR_RESHAPE_OP),
                          "an operand is reshaped in the kernel");
    }
}

static void check_experts(hir_rules *r) {
    const hir_id first = hir_form_op(r->m, r->kernel);
    const hir_type tile = hir_value_at(r->m, hir_result(r->m, first))->type;
    part now = HEAD;
    HIR_EACH(r->m, op, hir_op_at(r->m, r->kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        const bool product = o->code == HIR_EXPERT_LINEAR_OP;
        part p = product ? LINEARS : part_of(r, o);
        if (p == TAIL && o->code == HIR_RESHAPE_OP) p = EPILOGUE;
        if (!hir_rules_require(r, op, p <= TAIL && o->code != HIR_LINEAR_OP,
                               "it cannot stand in a contraction of experts"))
            continue;
        hir_rules_require(
            r, op, p >= now,
            "the order in a contraction of experts is: reshapes of what it reads, products, "
            "epilogue, yield");
        now = p;
        if (product) check_expert_linear(r, op, first);
        if (o->code == HIR_CONST_OP)
            hir_rules_require(r, op, is_number(hir_value_at(r->m, o->results[0])->type),
                              "a constant in an epilogue is not a scalar");
        if (hir_has_trait(o->code, HIR_ELEMENTWISE)) check_expert_epilogue(r, op, tile);
        check_cache_use(r, op);
        check_weights(r, op);
    }
}

/* ---- block contractions -------------------------------------------------------------------- */
static void check_blocks(hir_rules *r) {
    uint32_t products = 0;
    HIR_EACH(r->m, op, hir_op_at(r->m, r->kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        if (o->code == HIR_RESHAPE_OP || o->code == HIR_YIELD_OP) continue;
        if (!hir_rules_require(r, op, o->code == HIR_BLOCK_LINEAR_OP,
                               "it cannot stand in a block kernel"))
            continue;
        const hir_type x = hir_ref_type(r->m, o->args[0]);
        hir_rules_require(r, op, products++ == 0, "a block kernel has one block_linear");
        hir_rules_require(r, op, hir_type_has_t(x) && x.dtype == HIR_F32, "x is not f32[T, G, K]");
        hir_rules_require(r, op, o->args[1].kind == HIR_REF_WEIGHT,
                          "the matrices are not a weight");
        check_weights(r, op);
    }
    hir_rules_require(r, r->kernel, products > 0, "a block kernel has a block_linear");
}

/* ---- sequences ----------------------------------------------------------------------------- */
/* The body around the op that makes the form: `operands` is the form's rule for it. */
static void check_sequence(hir_rules *r, void (*operands)(hir_rules *r, hir_id op)) {
    part now = HEAD;
    uint32_t heads = 0;
    const hir_id first = hir_form_op(r->m, r->kernel);
    const bool epilogue = hir_has_form_trait(r->m, r->kernel, HIR_EPILOGUE);
    HIR_EACH(r->m, op, hir_op_at(r->m, r->kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        const hir_kernel_form form = hir_form_by_op(o->code);
        const bool forms = form != HIR_KERNEL_FORMS && hir_form(form)->kind == HIR_KERNEL_SEQUENCE;
        const part p = forms ? LINEARS : part_of(r, o);
        const bool may = (p != EPILOGUE || epilogue) && p <= TAIL && o->code != HIR_LINEAR_OP;
        if (!hir_rules_require(r, op, may, "it cannot stand in a sequence kernel")) continue;
        hir_rules_require(
            r, op, p >= now,
            "the order in a sequence kernel is: reshapes of its operands, the op that looks "
            "along the sequence, elementwise ops of its result, reshapes, yield");
        now = p;
        heads += p == HEAD;
        if (o->code == HIR_CONST_OP) check_number(r, op);
        if (hir_has_trait(o->code, HIR_ELEMENTWISE)) check_epilogue(r, op), check_weights(r, op);
        if (!forms) continue;
        hir_rules_require(r, op, heads <= 1 || hir_takes_views(o->code),
                          "only the first operand is reshaped in front");
        hir_rules_require(r, op, op == first || hir_are_gradients_of_one(r->m, first, op),
                          "a sequence kernel has one op that looks along the sequence, or the "
                          "gradients of the operands of one");
        operands(r, op);
    }
}

/* Checks that an operand is f32, and in memory when the kernel begins, perhaps under another shape.
 */
static void check_in_memory(hir_rules *r, hir_id op, uint32_t i, const char *name) {
    const hir_ref x = hir_op_at(r->m, op)->args[i];
    if (x.kind == HIR_REF_NONE) return;
    hir_rules_require(r, op, !is_inner(r, x) || is_a(r, x, HIR_RESHAPE_OP),
                      hd_printf(r->d->arena, "%s is made in the kernel itself", name));
    hir_rules_require(r, op, hir_ref_type(r->m, x).dtype == HIR_F32,
                      hd_printf(r->d->arena, "%s is not f32", name));
}

/* Ids are not made in the kernel that reads them. */
static void check_list(hir_rules *r, hir_id op, uint32_t i, const char *otherwise) {
    const hir_ref x = hir_op_at(r->m, op)->args[i];
    hir_rules_require(r, op, !is_inner(r, x) || is_a(r, x, HIR_RESHAPE_OP), otherwise);
}

static void check_cached_heads(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    check_in_memory(r, op, 0, "q");
    check_in_memory(r, op, 3, "sink");
    check_weights(r, op);
    for (uint32_t i = 1; i < 3; i++) {
        hir_id def = def_of(r, o->args[i]);
        bool outer = def != HIR_NONE && !is_inner(r, o->args[i]);
        hir_rules_require(r, op, outer && hir_type_has_c(hir_ref_type(r->m, o->args[i])),
                          "k and v are state, written by kernels before");
    }
}

static void check_attention_operands(hir_rules *r, hir_id op) {
    check_cached_heads(r, op);
    check_in_memory(r, op, 4, "bias");
}

static void check_carried(hir_rules *r) {
    check_sequence(r, check_cached_heads);
}

/* q, rows, q_shared and shared are operands `first` and on; `sink` is followed by the bias. */
static void check_latent_parts(hir_rules *r, hir_id op, uint32_t first, uint32_t sink) {
    const hir_op *o = hir_op_at(r->m, op);
    check_in_memory(r, op, first, "q");
    check_in_memory(r, op, first + 2, "q_shared");
    check_in_memory(r, op, sink, "sink");
    check_in_memory(r, op, sink + 1, "bias");
    for (uint32_t i = first + 1; i < first + 4; i += 2) {
        if (o->args[i].kind == HIR_REF_NONE) continue;
        const hir_id def = def_of(r, o->args[i]);
        hir_rules_require(r, op, def != HIR_NONE && !is_inner(r, o->args[i]),
                          "rows are state, written by kernels before");
    }
    check_weights(r, op);
}

static void check_latent_operands(hir_rules *r, hir_id op) {
    check_latent_parts(r, op, 0, 4);
}

static void check_latent(hir_rules *r) {
    check_sequence(r, check_latent_operands);
}

/* The two matrices are panels; `otherwise` has the memory of the result, and is its value where the
 * kernel is skipped. */
static void check_expanded_operands(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    check_latent_parts(r, op, 1, 7);
    for (uint32_t i = 5; i < 7; i++)
        hir_rules_require(r, op, o->args[i].kind == HIR_REF_WEIGHT, "the matrices are not weights");
    const hir_id other = def_of(r, o->args[0]);
    hir_rules_require(r, op, other != HIR_NONE && !is_inner(r, o->args[0]),
                      "otherwise is the result of a kernel before");
}

static void check_expanded(hir_rules *r) {
    check_sequence(r, check_expanded_operands);
}

static void check_attention(hir_rules *r) {
    check_sequence(r, check_attention_operands);
}

/* All operands but the state are f32 and outer values, weights or reshapes of these. */
static void check_views(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref x = o->args[i];
        if (x.kind == HIR_REF_NONE || x.kind == HIR_REF_STATE) continue;
        hir_rules_require(r, op, !is_inner(r, x) || is_a(r, x, HIR_RESHAPE_OP),
                          "an operand is made in the kernel itself");
        hir_rules_require(r, op, hir_ref_type(r->m, x).dtype == HIR_F32, "an operand is not f32");
    }
    check_weights(r, op);
}

/* Checks rows of a cache, which earlier kernels must have written. */
static void check_rows_operand(hir_rules *r, hir_id op, uint32_t i, const char *what) {
    const hir_ref x = hir_op_at(r->m, op)->args[i];
    if (x.kind == HIR_REF_NONE) return;
    const hir_id def = def_of(r, x);
    hir_rules_require(
        r, op, def != HIR_NONE && !is_inner(r, x) && hir_type_has_c(hir_ref_type(r->m, x)), what);
}

static void check_select_operands(hir_rules *r, hir_id op) {
    check_in_memory(r, op, 0, "q");
    check_in_memory(r, op, 2, "weights");
    check_list(r, op, 3, "blocks are selected in the kernel itself");
    check_rows_operand(r, op, 1, "keys are state, written by kernels before");
    check_weights(r, op);
}

static void check_select(hir_rules *r) {
    check_sequence(r, check_select_operands);
}

static void check_attention_selected_operands(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    const hir_ref entries = o->args[5];
    const hir_dtype dtype = hir_ref_type(r->m, o->args[1]).dtype;
    check_in_memory(r, op, 0, "q");
    check_in_memory(r, op, 4, "sink");
    check_weights(r, op);
    check_rows_operand(r, op, 1, "k and v are state, written by kernels before");
    check_rows_operand(r, op, 2, "k and v are state, written by kernels before");
    check_rows_operand(r, op, 5, "entries are state, written by kernels before");
    check_list(r, op, 3, "select is made in the kernel itself");
    if (entries.kind == HIR_REF_NONE) return;
    hir_rules_require(r, op,
                      hir_ref_type(r->m, entries).dtype == dtype &&
                          hir_ref_type(r->m, o->args[2]).dtype == dtype,
                      "entries, k and v are stored in different types");
}

static void check_attention_selected(hir_rules *r) {
    check_sequence(r, check_attention_selected_operands);
}

static void check_pool(hir_rules *r) {
    check_sequence(r, check_views);
}

static void check_short_conv(hir_rules *r) {
    check_sequence(r, check_views);
}

static void check_ngram_operands(hir_rules *r, hir_id op) {
    const hir_ref table = hir_op_at(r->m, op)->args[1];
    check_list(r, op, 0, "the ids are made in the kernel itself");
    hir_rules_require(r, op, table.kind == HIR_REF_WEIGHT, "the table is not a weight");
    check_weights(r, op);
}

static void check_ngram(hir_rules *r) {
    check_sequence(r, check_ngram_operands);
}

static void check_delta_rule(hir_rules *r) {
    check_sequence(r, check_views);
}

/* ---- gradients -------------------------------------------------------------------------------- */
/* Rows of a cache are state, written by kernels before; all else is in memory, perhaps under
 * another shape. */
static void check_gradient_operands(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref x = o->args[i];
        if (x.kind == HIR_REF_NONE) continue;
        hir_rules_require(r, op, x.kind != HIR_REF_STATE, "it reads a state");
        hir_rules_require(r, op, !is_inner(r, x) || is_a(r, x, HIR_RESHAPE_OP),
                          "an operand is made in the kernel itself");
        if (hir_type_has_c(hir_ref_type(r->m, x)))
            check_rows_operand(r, op, i, "rows of a cache are state, written by kernels before");
    }
    check_weights(r, op);
}

static void check_gradient_of(hir_rules *r, void (*operands)(hir_rules *r, hir_id op)) {
    check_sequence(r, operands);
    HIR_EACH(r->m, op, hir_op_at(r->m, r->kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        for (uint32_t i = 0; i < o->n_args && o->code == HIR_YIELD_OP; i++)
            hir_rules_require(r, op, !hir_type_has_c(hir_ref_type(r->m, o->args[i])),
                              "the gradient of a cache leaves its kernel by rows: cache_rows");
    }
}

static void check_gradient(hir_rules *r) {
    check_gradient_of(r, check_gradient_operands);
}

/* Both factors of the gradient of a matrix have rows in memory that follow each other. */
static void check_factors(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    check_gradient_operands(r, op);
    for (uint32_t i = 0; i < 2; i++) {
        const hir_type t = hir_ref_type(r->m, o->args[i]);
        hir_rules_require(r, op, t.dtype == HIR_F32, "a factor is not f32");
        hir_rules_require(r, op, !hir_type_has_c(t),
                          "a factor is a cache: it needs rows of tokens");
    }
}

static void check_linear_grad(hir_rules *r) {
    check_gradient_of(r, check_factors);
}

#define check_sum_tokens              check_gradient
#define check_scatter_rows            check_gradient
#define check_block_linear_grad       check_linear_grad
#define check_expert_linear_grad      check_linear_grad
#define check_attention_grad          check_gradient
#define check_attention_selected_grad check_gradient
#define check_pool_grad               check_gradient
#define check_short_conv_grad         check_gradient
#define check_ngram_grad              check_gradient
#define check_delta_rule_grad         check_gradient

/* Rejects a kernel of a kind whose forms are distinguished by an op, but which has no such op. */
static void reject_formless(hir_rules *r) {
    const hir_kernel_kind kind = hir_kind_of(hir_op_at(r->m, r->kernel)->code);
    hd_text names;
    hd_text_init(&names, r->d->arena);
    for (int i = 0; i < HIR_KERNEL_FORMS; i++)
        if (hir_form((hir_kernel_form)i)->kind == kind)
            hd_text_f(&names, "%s%s", names.n ? ", " : "it is one of ",
                      hir_info(hir_form((hir_kernel_form)i)->op)->name);
    hir_rules_reject(r, r->kernel, "a sequence kernel has an op that looks along the sequence",
                     names.at);
}

/* ---- communication between ranks ------------------------------------------------------------- */

/* The body is one comm op, of a value that another kernel has computed, and the yield. */
static void check_comm(hir_rules *r) {
    uint32_t n = 0;
    HIR_EACH(r->m, op, hir_op_at(r->m, r->kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        if (o->code == HIR_YIELD_OP || o->code == HIR_RESHAPE_OP) continue;
        hir_rules_require(r, op, hir_has_trait(o->code, HIR_COMM),
                          "it does not cross between ranks");
        hir_rules_require(r, op, n++ == 0, "a collective has one op");
    }
    hir_rules_require(r, r->kernel, n == 1, "a collective has one op");
}

/* ---- row programs -------------------------------------------------------------------------- */

/* Is it a sum over tokens that the kernel makes, as it is or of several? */
static bool is_total(const hir_rules *r, hir_ref x) {
    for (; is_inner(r, x); x = hir_op_at(r->m, def_of(r, x))->args[0]) {
        const hir_op *o = hir_op_at(r->m, def_of(r, x));
        if (hir_has_trait(o->code, HIR_REDUCES_TOKENS)) return true;
        if (o->code != HIR_RESHAPE_OP && o->code != HIR_ADD_OP) return false;
    }
    return false;
}

/* What a token adds to a sum is made in its row program: a row, or the products of two. */
static void check_total(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    const bool products = o->code == HIR_LINEAR_GRAD_OP;
    if (!hir_rules_require(r, op, products || o->code == HIR_SUM_TOKENS_OP,
                           "it cannot stand in a row program"))
        return;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_type t = hir_ref_type(r->m, o->args[i]);
        hir_rules_require(r, op, t.dtype == HIR_F32 && t.dim[0] == HIR_T,
                          "a sum in a row program is of f32[T, ..]");
        hir_rules_require(r, op, !products || t.rank == 2,
                          "a row program adds products of two rows f32[T, N] and f32[T, K]");
    }
}

/* Until the kernel ends, a sum over tokens is not complete. */
static void check_uses_of_totals(hir_rules *r, hir_id op) {
    const hir_op *o = hir_op_at(r->m, op);
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_args; i++)
        n += is_total(r, o->args[i]);
    const bool all = n == o->n_args && (o->code == HIR_RESHAPE_OP || o->code == HIR_ADD_OP);
    hir_rules_require(r, op, !n || all || o->code == HIR_YIELD_OP,
                      "it reads a sum over tokens, which is complete when the row program ends");
}

static void check_row_program(hir_rules *r) {
    const hir_op *k = hir_op_at(r->m, r->kernel), *yield = hir_op_at(r->m, k->body_last);
    bool once = hir_runs_once(r->m, r->kernel);
    for (uint32_t i = 0; i < k->n_results; i++) {
        hir_type t = hir_value_at(r->m, k->results[i])->type;
        hir_rules_require(r, r->kernel,
                          (hir_type_has_t(t) || hir_type_has_c(t)) == !once ||
                              is_total(r, yield->args[i]),
                          "results with and without T stand in kernels of their own");
    }
    HIR_EACH(r->m, op, k->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        check_uses_of_totals(r, op);
        if (hir_has_trait(o->code, HIR_REDUCES_TOKENS)) {
            check_total(r, op);
            continue;
        }
        if (!is_primitive(o->code)) {
            bool composite = hir_has_trait(o->code, HIR_COMPOSITE) || o->code == HIR_LINEAR_OP;
            hir_rules_reject(r, op, "it cannot stand in a row program",
                             composite ? "the expand pass replaces it by its parts" : NULL);
            continue;
        }
        bool with_t = o->n_results && hir_type_has_t(hir_value_at(r->m, o->results[0])->type);
        hir_rules_require(r, op, !once || !with_t, "a kernel that runs once makes a value with T");
        check_cache_use(r, op);
        check_weights(r, op);
    }
}

static void check_row_sums(hir_rules *r) {
    check_row_program(r);
}

/* ---- yields -------------------------------------------------------------------------------- */
/* A kernel yields only values that it computes: code generation stores results, it does not
 * copy. */
static void check_yield(hir_rules *r) {
    hir_id yield = hir_op_at(r->m, r->kernel)->body_last;
    const hir_op *y = hir_op_at(r->m, yield);
    for (uint32_t i = 0; i < y->n_args; i++) {
        hir_rules_require(r, yield, is_inner(r, y->args[i]),
                          "it yields a value that is not computed in the kernel");
        bool number = is_inner(r, y->args[i]) && is_a(r, y->args[i], HIR_CONST_OP) &&
                      hir_op_at(r->m, r->kernel)->code != HIR_KERNEL_ROW_OP;
        hir_rules_require(r, yield, !number, "it yields a constant");
    }
}

/* ---- rows and threads ---------------------------------------------------------------------- */
static void check_split(hir_rules *r, hir_attr_id attr, const hir_form_info *form) {
    const hir_op *k = hir_op_at(r->m, r->kernel);
    const unsigned may = attr == HIR_A_SPLIT_DECODE ? form->may_decode : form->may_prefill;
    const hir_split split = hir_split_of(k, attr);
    if (!(may & 1u << split)) {
        hd_text hint;
        hd_text_init(&hint, r->d->arena);
        hd_text_f(&hint, "%s of a kernel of form %s is one of: ", hir_attr_name(attr), form->name);
        hir_list_splits(&hint, may);
        hir_rules_reject(r, r->kernel, "this kind of kernel cannot be split among threads so",
                         hint.at);
    }
    hir_rules_require(r, r->kernel, !hir_runs_once(r->m, r->kernel) || split == HIR_SPLIT_NONE,
                      "a kernel without T runs on one thread");
}

static void check_rows(hir_rules *r, const hir_form_info *form) {
    const hir_op *k = hir_op_at(r->m, r->kernel);
    if (!is_last(r, r->kernel)) return;
    hir_rules_require(r, r->kernel, r->model, "only kernels of a model may do the last rows alone");
    hir_rules_require(r, r->kernel, form->traits & HIR_LAST_ROWS,
                      "a kernel of this form needs all rows to make the last");
    hir_rules_require(r, r->kernel, !hir_runs_once(r->m, r->kernel),
                      "a kernel without T has no last rows");
    HIR_EACH(r->m, op, k->body_first) {
        const hir_opcode code = hir_op_at(r->m, op)->code;
        const uint32_t state = hir_written_state(r->m, op);
        const bool own = state != HIR_NONE && hir_is_of_call(&r->m->states.at[state]);
        hir_rules_require(r, op, own || !hir_has_trait(code, HIR_WRITES_STATE),
                          "state is written for all rows, not for the last alone");
        hir_rules_require(r, op, code != HIR_COMM_SEND_OP && code != HIR_COMM_RECV_OP,
                          "stages send each other all rows, not the last alone");
    }
}

/* All tiles of a module have the same number of tokens: they share an area. */
static void check_tile(hir_rules *r) {
    const int64_t tokens = hir_attr_int(hir_op_at(r->m, r->kernel), HIR_A_TILE, 0);
    if (!tokens) return;
    const char *why = hir_why_not_tiled(r->m, r->kernel);
    if (why)
        hir_rules_reject(r, r->kernel, "the kernel cannot be done tile by tile",
                         hd_printf(r->d->arena, "leave out `tile`: %s", why));
    hir_rules_require(r, r->kernel, tokens == hir_find_tiled(r->d->arena, r->m).tokens,
                      "its tiles are not those of other kernels");
}

/* A kernel of all rows must read values that have all rows. */
static void check_reads_rows(hir_rules *r) {
    const bool last = is_last(r, r->kernel), loss = is_of_loss(r, r->kernel);
    HIR_EACH(r->m, op, hir_op_at(r->m, r->kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            hir_id def = def_of(r, o->args[i]);
            if (def == HIR_NONE || is_inner(r, o->args[i])) continue;
            hir_rules_require(r, op, last || !is_last(r, def),
                              "it reads rows that only exist for the last tokens");
            hir_rules_require(r, op, !last || loss || !is_of_loss(r, def),
                              "it reads rows that only exist in calls of NAME_loss");
        }
    }
}

static void check_output(hir_rules *r, hir_id op, size_t number) {
    hir_id def = def_of(r, hir_op_at(r->m, op)->args[0]);
    r->kernel = HIR_NONE;
    if (!hir_rules_require(r, op, def != HIR_NONE, "an output is the result of a kernel")) return;
    if (!r->model) return;
    if (op == hir_loss_output(r->m))
        hir_rules_require(r, op, is_of_loss(r, def),
                          "the losses come from a kernel with rows = \"loss\"");
    else if (number == 0)
        hir_rules_require(r, op, is_last(r, def) && !is_of_loss(r, def),
                          "the first output of a model comes from a kernel with rows = \"last\"");
    else
        hir_rules_require(
            r, op, !is_last(r, def),
            "outputs after the first have all rows: their kernels have rows = \"all\"");
}

static bool is_planned(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    for (uint32_t i = 0; i < hir_op_at(m, op)->n_results; i++)
        if (hir_value_at(m, hir_op_at(m, op)->results[i])->place != HIR_PLACE_NONE) return true;
    return false;
}

/* ---- the module ---------------------------------------------------------------------------- */
static void check_kernel(hir_rules *r, hir_id kernel) {
    static void (*const rule_of[])(hir_rules *) = {
#define K(id, name, noun, doc)
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column,    \
          doc)                                                                                     \
    check_##name,
#include "ir/kernel/kernels.def"
#undef K
#undef F
    };
    r->kernel = kernel;
    const hir_kernel_form form = hir_form_of(r->m, kernel);
    if (form == HIR_KERNEL_FORMS) {
        reject_formless(r);
        return;
    }
    rule_of[form](r);
    check_yield(r);
    check_rows(r, hir_form(form));
    check_tile(r);
    check_reads_rows(r);
    check_split(r, HIR_A_SPLIT_DECODE, hir_form(form));
    check_split(r, HIR_A_SPLIT_PREFILL, hir_form(form));
}

bool hir_verify_kernels(const hir_module *m, hd_diags *d) {
    hir_rules r = {.m = m, .d = d, .kernel = HIR_NONE, .model = hir_is_model(m), .ok = true};
    size_t outputs = 0;
    if (m->stage != HIR_STAGE_KERNEL) {
        hd_err(d, HD_E_TYPE, HD_NOWHERE, "the module is not at the kernel stage")->hint =
            "run the default pipeline";
        return false;
    }
    HIR_EACH(m, op, m->first) {
        hir_opcode code = hir_op_at(m, op)->code;
        r.kernel = HIR_NONE;
        if (code == HIR_OUTPUT_OP)
            check_output(&r, op, outputs++);
        else if (hir_has_trait(code, HIR_REGION)) {
            check_kernel(&r, op);
        } else
            hir_rules_reject(&r, op, "it stands outside of a kernel",
                             "the fuse pass puts ops into kernels");
    }
    if (is_planned(m)) {
        hir_check_places(&r);
        hir_check_runs(&r);
    }
    return r.ok;
}
