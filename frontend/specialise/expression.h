/* What specialise.c and expression.c share. */
#ifndef HFE_SPECIALISE_EXPRESSION_H
#define HFE_SPECIALISE_EXPRESSION_H

#include "frontend/specialise/specialise.h"

typedef struct hfe_inlined { /* a call of a config's function that is being written out */
    const hfe_def *def;
    hfe_object *self;
    const hfe_expr *call;
    struct hfe_inlined *outer; /* the context in which the arguments are read */
} hfe_inlined;

typedef struct hfe_special {
    hfe_elab *e; /* its frame is the model's, with the values of variables that have one */
    hfe_bindings *bound;
    hd_text out;
    bool *loose; /* per local of the model: it has no single value */
    hfe_inlined *inlined;
    HD_VEC(const char *) used; /* pages that the spec must `use` */
} hfe_special;

/* Returns the value of an expression that the config decides, or UNSET for any other. In a
 * condition the present value of a parameter is used; elsewhere parameters stay names. */
hfe_value hfe_static(hfe_special *sp, const hfe_expr *x, bool condition);
void hfe_add_expr(hfe_special *sp, const hfe_expr *x);
/* Writes an expression. A call that would exceed `width` is broken between arguments; its line
 * begins at `start` of sp->out. */
void hfe_add_wrapped(hfe_special *sp, const hfe_expr *x, size_t start, int indent, int width);
/* Writes a value in the syntax of the language. */
void hfe_add_value(hfe_value v, hd_text *out);

#endif
