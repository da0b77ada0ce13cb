/* The tables of ops.def, attrs.def and dtypes.def, and the reading of their columns. */
#include <string.h>

#include "ir/signature.h"
#include "support/tensorfile.h"

enum {
    ELEMENTWISE = HIR_ELEMENTWISE,
    REDUCE = HIR_REDUCE,
    MOVE = HIR_MOVE,
    LOCAL = HIR_LOCAL,
    EFFECT = HIR_EFFECT,
    PURE_CONST = HIR_PURE_CONST,
    REGION = HIR_REGION,
    COMPOSITE = HIR_COMPOSITE,
    POSITION = HIR_POSITION,
    VIEW = HIR_VIEW,
    SEQUENCE = HIR_SEQUENCE,
    WRITES_STATE = HIR_WRITES_STATE,
    COMM = HIR_COMM,
    REDUCES_TOKENS = HIR_REDUCES_TOKENS,
};

static const hir_op_info op_table[] = {
#define OP(id, name, stage, traits, operands, attrs, rule, doc)                                    \
    {name, HIR_STAGE_##stage, (traits), operands, attrs, doc},
#include "ir/ops.def"
#undef OP
};

static const struct {
    const char *name;
    hir_attr_kind kind;
} attr_table[] = {
#define A(id, name, kind) {name, HIR_ATTR_##kind},
#include "ir/attrs.def"
#undef A
};

static const struct {
    const char *name;
    size_t bytes, elements, row, depth;
    enum { FLOAT, WEIGHT, IDS } use;
} dtype_table[] = {
#define D(id, name, bytes, elements, row, depth, use) {name, bytes, elements, row, depth, use},
#include "ir/dtypes.def"
#undef D
};

static const struct {
    const char *name, *legal;
} stage_table[] = {
#define S(id, name, legal) {name, legal},
    HIR_STAGES(S)
#undef S
};

const char *hir_stage_name(hir_stage stage) {
    return stage_table[stage].name;
}

const char *hir_stage_legal(hir_stage stage) {
    return stage_table[stage].legal;
}

const hir_op_info *hir_info(hir_opcode code) {
    return &op_table[code];
}

bool hir_opcode_by_name(const char *name, hir_opcode *out) {
    for (int i = 0; i < HIR_OPCODE_COUNT; i++)
        if (strcmp(op_table[i].name, name) == 0) {
            *out = (hir_opcode)i;
            return true;
        }
    return false;
}

const char *hir_attr_name(hir_attr_id id) {
    return attr_table[id].name;
}

hir_attr_kind hir_attr_kind_of(hir_attr_id id) {
    return attr_table[id].kind;
}

bool hir_attr_by_name(const char *name, hir_attr_id *out) {
    for (int i = 0; i < HIR_A_COUNT; i++)
        if (strcmp(attr_table[i].name, name) == 0) {
            *out = (hir_attr_id)i;
            return true;
        }
    return false;
}

size_t hir_dtype_bytes(hir_dtype t) {
    return dtype_table[t].elements == 1 ? dtype_table[t].bytes : 0;
}

bool hir_is_quantised(hir_dtype t) {
    return dtype_table[t].elements > 1;
}

unsigned hir_panel_depth(hir_dtype t) {
    return (unsigned)dtype_table[t].depth;
}

bool hir_stores_values(hir_dtype t) {
    return dtype_table[t].use == FLOAT;
}

bool hir_value_dtype_by_name(const char *name, hir_dtype *out) {
    for (int i = 0; i < HIR_DTYPE_COUNT; i++) {
        if (!hir_stores_values((hir_dtype)i) || strcmp(name, dtype_table[i].name) != 0) continue;
        *out = (hir_dtype)i;
        return true;
    }
    return false;
}

double hir_rounded(hir_dtype t, double x) {
    static float (*const widen[HIR_DTYPE_COUNT])(uint16_t) = {
        [HIR_BF16] = hd_bf16_to_f32, [HIR_F16] = hd_f16_to_f32};
    static uint16_t (*const narrow[HIR_DTYPE_COUNT])(double) = {
        [HIR_BF16] = hd_bf16_from_f64, [HIR_F16] = hd_f16_from_f64};
    return narrow[t] ? widen[t](narrow[t](x)) : x;
}

static uint64_t rounded_up(int64_t n, uint64_t to) {
    return ((uint64_t)n + to - 1) / to * to;
}

bool hir_weight_bytes(const hir_weight *w, uint64_t *bytes) {
    uint64_t elements = 1, n = 1, group = dtype_table[w->type.dtype].elements, along_k = group;
    bool panel = w->layout != HIR_LAYOUT_ROWS && hir_has_matrices(w->type);
    const uint64_t rows = panel ? (uint64_t)hir_panel_rows(w->layout) : 1;
    uint64_t besides; /* bytes of the n rows besides their elements */
    if (panel) along_k = dtype_table[w->type.dtype].depth;
    for (uint32_t i = 0; i < w->type.rank; i++) {
        const bool last = i + 1 == w->type.rank, rows_dim = i + 2 == w->type.rank;
        uint64_t dim = rounded_up(w->type.dim[i], panel && rows_dim ? rows : last ? along_k : 1);
        if (hd_mul_overflow(elements, dim, &elements)) return false;
        if (!last) n *= dim;
    }
    return !hd_mul_overflow(elements / group, dtype_table[w->type.dtype].bytes, bytes) &&
           !hd_mul_overflow(n, dtype_table[w->type.dtype].row, &besides) &&
           !hd_add_overflow(*bytes, besides, bytes) && *bytes <= INT64_MAX;
}

const char *hir_layout_name(hir_layout l) {
    static const char *const names[HIR_LAYOUTS] = {"rows", "panel", "narrow"};
    return names[l];
}

int64_t hir_panel_rows(hir_layout l) {
    static const int64_t rows[HIR_LAYOUTS] = {1, HIR_PANEL, HIR_PANEL / 2};
    return rows[l];
}

bool hir_fits_narrow(hir_type t) {
    enum { FEW = 40, MANY = 72, LONG = 128 };
    if (t.rank != 2 || t.dtype != HIR_F32 || t.dim[1] < LONG || t.dim[1] % 2) return false;
    const bool half_empty = (t.dim[0] - 1) % HIR_PANEL < HIR_PANEL / 2;
    return t.dim[0] <= FEW || (half_empty && t.dim[0] <= MANY);
}

const char *hir_dtype_name(hir_dtype t) {
    return dtype_table[t].name;
}

/* ---- columns ------------------------------------------------------------------------------- */
/* The next word of a column without its mark (`?`, `*`, `$`, or 0); NULL at the end. */
static const char *next_word(const char *column, char word[32], char *mark) {
    column += strspn(column, " ");
    size_t n = strcspn(column, " ");
    if (n == 0 || n >= 32) return NULL;
    const char *next = column + n;
    char last = column[n - 1];
    *mark = last == '?' || last == '*' || last == '$' ? last : '\0';
    n -= *mark != '\0';
    memcpy(word, column, n);
    word[n] = '\0';
    return next;
}

hir_signature hir_signature_of(hir_opcode code) {
    hir_signature s = {0};
    char word[32], mark;
    for (const char *p = op_table[code].operands;
         (p = next_word(p, word, &mark)) && s.n_operands < HIR_MAX_OPERANDS;) {
        hir_operand_spec *operand = &s.operands[s.n_operands++];
        memcpy(operand->name, word, sizeof operand->name - 1);
        operand->optional = mark == '?';
        operand->rest = mark == '*';
        operand->state = mark == '$';
    }
    for (const char *p = op_table[code].attrs;
         (p = next_word(p, word, &mark)) && s.n_attrs < HIR_MAX_OP_ATTRS;) {
        hir_attr_spec *attr = &s.attrs[s.n_attrs];
        attr->optional = mark == '?';
        s.n_attrs += hir_attr_by_name(word, &attr->id);
    }
    return s;
}

uint32_t hir_state_operand(hir_opcode code) {
    const char *mark = strchr(op_table[code].operands, '$');
    uint32_t number = 0;
    if (!mark) return HIR_NONE;
    for (const char *p = op_table[code].operands; p < mark; p++)
        number += *p == ' ';
    return number;
}

const hir_attr_spec *hir_signature_attr(const hir_signature *s, hir_attr_id id) {
    for (uint32_t i = 0; i < s->n_attrs; i++)
        if (s->attrs[i].id == id) return &s->attrs[i];
    return NULL;
}

const char *hir_operand_name(const hir_signature *s, uint32_t i, hd_arena *a) {
    if (s->n_operands == 0) return "?";
    uint32_t last = s->n_operands - 1;
    const hir_operand_spec *spec = &s->operands[i < last ? i : last];
    return spec->rest ? hd_printf(a, "%s[%u]", spec->name, i - last) : hd_strdup(a, spec->name);
}

uint32_t hir_result_count(hir_opcode code) {
    return code != HIR_OUTPUT_OP && code != HIR_TRACE_OP && code != HIR_YIELD_OP;
}
