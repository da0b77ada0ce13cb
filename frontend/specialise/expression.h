/* What specialise.c and expression.c share. */
#ifndef HFE_SPECIALISE_EXPRESSION_H
#define HFE_SPECIALISE_EXPRESSION_H

#include "frontend/specialise/specialise.h"

typedef struct hfe_inlined { /* a call of a config's function: its parameters are the arguments */
    const hfe_def *def;
    hfe_object *self;
    const hfe_expr *call;
    struct hfe_inlined *outer; /* where the arguments are to be read */
} hfe_inlined;

typedef struct hfe_special {
    hfe_elab *e; /* its frame: the model's, with the values of variables that have one */
    hfe_bindings *bound;
    hd_text out;
    bool *loose; /* per local of the model: has no single value */
    hfe_inlined *inlined;
    HD_VEC(const char *) used; /* pages that the spec uses */
} hfe_special;

/* The value of an expression that the config decides, UNSET for any other. In a condition the
 * present value of a parameter counts; elsewhere parameters stay names. */
hfe_value hfe_static(hfe_special *sp, const hfe_expr *x, bool condition);
void hfe_add_expr(hfe_special *sp, const hfe_expr *x);
/* The same, a call that would pass `width` being broken between arguments; the line begins at
 * `start` of sp->out. */
void hfe_add_wrapped(hfe_special *sp, const hfe_expr *x, size_t start, int indent, int width);
/* A value as it is written in the language. */
void hfe_add_value(hfe_value v, hd_text *out);

#endif
