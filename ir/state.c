/* State: its kinds, how it lies in memory, and what ops and kernels do to it. */
#include <string.h>

#include "ir/ir.h"

static const hir_state_kind_info kinds[] = {
#define S(id, word, rows, rewind, dims, growth, rewinding, saved, address, doc)                    \
    {word, HIR_ROWS_##rows, HIR_REWIND_##rewind, dims, growth, rewinding, saved, address, doc},
#include "ir/states.def"
#undef S
};

const hir_state_kind_info *hir_state_kind_of(hir_state_kind kind) {
    return &kinds[kind];
}

bool hir_is_of_call(const hir_state *s) {
    return kinds[s->kind].rows == HIR_ROWS_PER_PAIR;
}

bool hir_state_kind_by_word(const char *word, hir_state_kind *out) {
    for (int i = 0; i < HIR_STATE_KINDS; i++)
        if (strcmp(kinds[i].word, word) == 0) {
            *out = (hir_state_kind)i;
            return true;
        }
    return false;
}

static bool is_length(int64_t dim) {
    return dim >= 1 && dim <= HIR_MAX_DIM;
}

const char *hir_why_no_state(hir_state_kind kind, hir_type type) {
    const bool pairs = kinds[kind].rows == HIR_ROWS_PER_PAIR;
    const bool grows = pairs || kinds[kind].rows == HIR_ROWS_PER_POSITION;
    const char *numbers = pairs   ? "scores are f32[C, heads]"
                          : grows ? "a cache is f32, bf16 or f16 [C, ..], with integers after C"
                                  : "only a cache has C; all dims of another state are integers";
    int64_t elements, bytes;
    if (!hir_stores_values(type.dtype)) return "a state is f32, bf16 or f16";
    if (type.rank == 0 || type.rank > HIR_MAX_RANK) return "a state has at least one dim";
    if (grows != hir_is_length(type.dim[0])) return numbers;
    if (pairs && (type.rank != 2 || type.dim[0] != HIR_C || type.dtype != HIR_F32)) return numbers;
    for (uint32_t i = grows; i < type.rank; i++)
        if (!is_length(type.dim[i])) return numbers;
    elements = hir_type_row_elements(type);
    if (elements < 0 || hd_mul_overflow(elements, (int64_t)sizeof(double), &bytes))
        return "it has more elements than can be counted";
    return NULL;
}

hir_state_shape hir_shape_of_state(const hir_state *s) {
    const int64_t all = hir_type_row_elements(s->type);
    const hir_state_rows rows = kinds[s->kind].rows;
    hir_state_shape shape = {.rate = rows == HIR_ROWS_PER_POSITION ? hir_rate(s->type.dim[0]) : 1,
                             .rows = rows == HIR_ROWS_ONE         ? 1
                                     : rows == HIR_ROWS_FIRST_DIM ? s->type.dim[0]
                                                                  : 0,
                             .heads = 1};
    if (rows != HIR_ROWS_ONE && s->type.rank == 3) shape.heads = s->type.dim[1];
    shape.width = all / (shape.rows ? shape.rows : 1) / shape.heads;
    return shape;
}

uint64_t hir_state_bytes(const hir_state *s) {
    const int64_t n = hir_type_row_elements(s->type);
    const uint64_t rate = (uint64_t)hir_shape_of_state(s).rate;
    if (n < 0) return UINT64_MAX;
    return hd_capped_add(hd_capped_mul((uint64_t)n, hir_dtype_bytes(s->type.dtype)), rate - 1) /
           rate;
}

uint64_t hir_all_state_bytes(const hir_module *m, bool grow) {
    uint64_t sum = 0;
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        if (kinds[s->kind].rows == HIR_ROWS_PER_PAIR) continue; /* it is no state of a session */
        if ((kinds[s->kind].rows == HIR_ROWS_PER_POSITION) == grow)
            sum = hd_capped_add(sum, hir_state_bytes(s));
    }
    return sum;
}

/* ---- the table of states ------------------------------------------------------------------- */
uint32_t hir_add_state(hir_module *m, const char *name, hir_state_kind kind, hir_type type,
                       hd_loc loc) {
    hir_state s = {.name = hd_strdup(m->arena, name), .kind = kind, .type = type, .loc = loc};
    hd_push(m->arena, &m->states, s);
    return (uint32_t)(m->states.n - 1);
}

uint32_t hir_find_state(const hir_module *m, const char *name) {
    for (size_t i = 0; i < m->states.n; i++)
        if (strcmp(m->states.at[i].name, name) == 0) return (uint32_t)i;
    return HIR_NONE;
}

/* ---- what changes it ----------------------------------------------------------------------- */
uint32_t hir_written_state(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    if (!hir_has_trait(o->code, HIR_WRITES_STATE)) return HIR_NONE;
    const uint32_t i = hir_state_operand(o->code);
    const bool given = i < o->n_args && o->args[i].kind == HIR_REF_STATE;
    return given ? o->args[i].index : HIR_NONE;
}

uint32_t hir_state_of_value(const hir_module *m, hir_ref value) {
    if (value.kind != HIR_REF_VALUE) return HIR_NONE;
    const hir_id op = hir_value_at(m, value.index)->op;
    if (op == HIR_NONE || !hir_has_trait(hir_op_at(m, op)->code, HIR_VIEW)) return HIR_NONE;
    return hir_written_state(m, op);
}

bool hir_writes_state(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first)
    if (hir_has_trait(hir_op_at(m, op)->code, HIR_WRITES_STATE)) return true;
    return false;
}

bool hir_reduces_tokens(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first)
    if (hir_has_trait(hir_op_at(m, op)->code, HIR_REDUCES_TOKENS)) return true;
    return false;
}

bool hir_runs_once(const hir_module *m, hir_id kernel) {
    const hir_op *k = hir_op_at(m, kernel);
    if (hir_reduces_tokens(m, kernel)) return false;
    for (uint32_t i = 0; i < k->n_results; i++) {
        const hir_type t = hir_value_at(m, k->results[i])->type;
        if (hir_type_has_t(t) || hir_type_has_c(t)) return false;
    }
    return !hir_writes_state(m, kernel);
}

/* Is the kernel a message between pipeline stages? The next stage needs the rows of all tokens, so
 * all are sent and received. */
static bool is_between_stages(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_opcode code = hir_op_at(m, id)->code;
        if (code == HIR_COMM_SEND_OP || code == HIR_COMM_RECV_OP) return true;
    }
    return false;
}

/* Does the kernel write a state of which other tokens read something? */
static bool writes_for_others(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        const uint32_t state = hir_written_state(m, op);
        const bool writes = hir_has_trait(hir_op_at(m, op)->code, HIR_WRITES_STATE);
        if (writes && (state == HIR_NONE || !hir_is_of_call(&m->states.at[state]))) return true;
    }
    return false;
}

bool hir_may_skip_rows(const hir_module *m, hir_id kernel) {
    return !writes_for_others(m, kernel) && !hir_runs_once(m, kernel) &&
           !hir_reduces_tokens(m, kernel) && !is_between_stages(m, kernel);
}
