/* Compile-time values. */
#ifndef HFE_VALUE_H
#define HFE_VALUE_H

#include "frontend/language/ast.h"

/* ---- values -------------------------------------------------------------------------------- */
typedef enum hfe_type {
    HFE_UNSET,  /* a variable that no statement has set yet */
    HFE_POISON, /* the value of an erroneous expression: its error is reported, and errors that
                   follow from it are not */
    HFE_NONE,
    HFE_BOOL,
    HFE_INT,
    HFE_FLOAT,
    HFE_STRING,
    HFE_LIST,
    HFE_DIM,    /* T or C */
    HFE_TENSOR, /* an op's result, a weight, a state */
    HFE_OBJECT,
    HFE_FUNCTION,
    HFE_TYPE_COUNT
} hfe_type;

typedef struct hfe_list hfe_list;
typedef struct hfe_object hfe_object;
typedef struct hfe_function hfe_function;

typedef struct hfe_value {
    hfe_type type;
    union {
        bool boolean;
        int64_t integer; /* INT, and DIM: HIR_T or HIR_C */
        double number;
        const char *string;
        const hfe_list *list;
        hir_ref tensor;
        hfe_object *object;
        const hfe_function *function;
    };
} hfe_value;

/* Elements are never changed in place, so lists are values although they share storage. A list that
 * ends where its buffer ends may be extended there, since no other list reads beyond its own
 * end. */
typedef struct hfe_buffer {
    HD_VEC(hfe_value) items;
} hfe_buffer;
struct hfe_list {
    hfe_buffer *buffer;
    size_t start, n;
    uint32_t depth; /* of lists in the list; it bounds the recursion of all code that walks them */
};
static inline hfe_value hfe_item(const hfe_list *l, size_t i) {
    return l->buffer->items.at[l->start + i];
}

struct hfe_object {
    const hfe_def *def;
    hfe_value *fields; /* one per local of `def` */
    bool broken;       /* a method failed half way, so every field and result is poison */
};

typedef struct hfe_elab hfe_elab;
typedef struct hfe_call hfe_call;
typedef struct hfe_builtin {
    const char *name;
    size_t least, most; /* number of arguments */
    const char *signature;
    hfe_value (*run)(hfe_elab *e, const hfe_call *call);
} hfe_builtin;

struct hfe_function { /* exactly one of `def`, `builtin` and `is_op` is set */
    const hfe_def *def;
    hfe_object *self; /* of a method */
    const hfe_builtin *builtin;
    bool is_op;
    hir_opcode op;
    const char *name;
};

static inline hfe_value hfe_poison(void) {
    return (hfe_value){.type = HFE_POISON};
}
static inline hfe_value hfe_none(void) {
    return (hfe_value){.type = HFE_NONE};
}
static inline hfe_value hfe_bool(bool b) {
    return (hfe_value){.type = HFE_BOOL, .boolean = b};
}
static inline hfe_value hfe_int(int64_t i) {
    return (hfe_value){.type = HFE_INT, .integer = i};
}
static inline hfe_value hfe_float(double f) {
    return (hfe_value){.type = HFE_FLOAT, .number = f};
}
static inline hfe_value hfe_string(const char *s) {
    return (hfe_value){.type = HFE_STRING, .string = s};
}
static inline hfe_value hfe_dim(int64_t d) {
    return d < 0 ? (hfe_value){.type = HFE_DIM, .integer = d} : hfe_int(d);
}
static inline hfe_value hfe_tensor(hir_ref r) {
    return (hfe_value){.type = HFE_TENSOR, .tensor = r};
}
static inline bool hfe_is(hfe_value v, hfe_type t) {
    return v.type == t;
}
static inline bool hfe_is_number(hfe_value v) {
    return v.type == HFE_INT || v.type == HFE_FLOAT;
}
static inline double hfe_as_number(hfe_value v) {
    return v.type == HFE_INT ? (double)v.integer : v.number;
}

const char *hfe_type_name(hfe_type t);         /* "int" */
const char *hfe_type_with_article(hfe_type t); /* "an int" */
bool hfe_equal(hfe_value a, hfe_value b);

/* Makes a string within the limits of size. */
hfe_value hfe_new_string(hfe_elab *e, hd_loc loc, const char *s, size_t n);
/* Makes a list within the limits of size; beyond them it returns poison after an error. */
hfe_value hfe_new_list(hfe_elab *e, hd_loc loc, const hfe_value *items, size_t n);
hfe_value hfe_append(hfe_elab *e, hd_loc loc, const hfe_list *l, hfe_value item);
/* Writes a value as interpolations and messages show it; returns false for values without text. */
bool hfe_show(hfe_value v, hd_text *out);

#endif
