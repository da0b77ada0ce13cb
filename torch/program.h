/* The Python program that a module becomes: bodies of nodes, functions that nodes call, loops.
 *
 * Nodes are made of the ops of the graph (nodes.c), what is computed of weights alone becomes
 * properties (derived.c). Runs of nodes that occur again, layers and
 * their sublayers, become functions with a node for each call (outline.c); what then follows itself
 * again and again in a body becomes a loop (roll.c). Both compare nodes as they stand, operand by
 * operand, so that the program computes the graph, whatever was found. print.c writes it. */
#ifndef HPT_PROGRAM_H
#define HPT_PROGRAM_H

#include "ir/ir.h"

/* A number of an op, of a name or an argument of a call. Where it differs among the runs of nodes
 * that became one, `text` is the expression for it. */
typedef struct hpt_number {
    double at;
    const char *text;   /* NULL: the number itself */
    const double *many; /* numbers that are stacked, instead of `at` */
    uint32_t n;         /* how many; 0: one */
} hpt_number;
/* Is it a whole number that an int64 holds? */
bool hpt_is_whole(double x);
bool hpt_same_number(hpt_number a, hpt_number b);
void hpt_print_number(hpt_number n, hd_text *out);

/* A dotted name, "model.layers.#.norm.weight" with the number in place of the #. */
typedef struct hpt_name {
    const char *pattern;
    hpt_number *number;
    uint32_t n;
} hpt_name;

/* What an operand is: a variable (the result of a node, or an argument or a variable of a loop),
 * a list as a whole, an element of a list, a weight, a scope of weights, or a number. */
typedef enum hpt_kind {
    HPT_NONE,
    HPT_VARIABLE,
    HPT_LIST, /* as a whole; with a number above 0 its first so many elements */
    HPT_ELEMENT,
    HPT_WEIGHT,
    HPT_SCOPE,
    HPT_NUMBER
} hpt_kind;
typedef struct hpt_ref {
    hpt_kind kind;
    uint32_t variable; /* of VARIABLE, LIST, ELEMENT */
    hpt_name name;     /* of WEIGHT, SCOPE */
    hpt_number number; /* of NUMBER, ELEMENT, LIST */
    int64_t parts;     /* of a stacked WEIGHT: how many there are */
    bool derived;      /* WEIGHT: its last component is a property (derived.c) */
} hpt_ref;
bool hpt_same_ref(const hpt_ref *a, const hpt_ref *b);

typedef struct hpt_operand {
    bool many; /* a list written element by element, with lists spliced in */
    uint32_t n;
    hpt_ref *at;
} hpt_operand;

typedef struct hpt_variable {
    hir_type type;
    const char *noun; /* what to call it */
    bool list;
} hpt_variable;

typedef struct hpt_function hpt_function;
typedef struct hpt_loop hpt_loop;

typedef struct hpt_node { /* an op, a call or a loop */
    hir_opcode code;
    const hir_op *op;
    hpt_function *call;
    hpt_loop *loop;
    uint32_t n_in, n_out, n_numbers;
    hpt_operand *in;
    hpt_number
        *number;   /* of an op those of its attributes in their order; of a call its arguments */
    uint32_t *out; /* variables; HIR_NONE: nobody reads it */
    const char *shape; /* what nodes must have in common to be the same but for numbers and names */
} hpt_node;

typedef HD_VEC(hpt_node) hpt_body;

typedef struct hpt_carried { /* a variable that goes from iteration to iteration */
    uint32_t variable;
    hpt_ref first, next;    /* before the loop, and at the end of its body */
    bool is_first, is_next; /* it has the name of that variable, which nobody reads any more */
} hpt_carried;
typedef struct hpt_growing { /* a list that does */
    uint32_t list;
    hpt_operand first; /* before the loop */
    uint32_t drop;     /* at the end of the body so many last elements make way */
    hpt_operand push;  /* for these */
} hpt_growing;

struct hpt_loop {
    const char *counter;
    int64_t first, step, times;
    hpt_body body;
    HD_VEC(hpt_carried) carried;
    HD_VEC(hpt_growing) lists;
};

struct hpt_function {
    const char *name;
    const char *about;   /* where it stands in the model */
    bool scoped;         /* the first argument is a scope of weights */
    HD_VEC(uint32_t) in; /* variables and lists */
    HD_VEC(const char *) numbers;
    HD_VEC(hpt_ref) out;
    hpt_body body;
    const char *text; /* what it returns, in the place of body and out; NULL: they say it */
    bool takes_rows; /* the last argument is a tensor with a row for each token */
    hpt_ref rows;    /* such a tensor that it has anyway; NONE: it has none */
};

typedef struct hpt_output {
    const char *name;
    hpt_ref at;
} hpt_output;

typedef struct hpt_program {
    const hir_module *m;
    hd_arena *a;
    hd_diags *d;
    HD_VEC(hpt_variable) variables; /* the values of the module, and what was added */
    HD_VEC(hpt_function *) functions, derived; /* derived weights: functions of their scope */
    const hpt_ref *property; /* by weight of the module: of derived ones */
    hpt_body body;
    HD_VEC(hpt_output) outputs;
    HD_VEC(const char *) tables; /* tuples of numbers: NUMBERS_1 and so on, if the text has them */
} hpt_program;

/* How an op is written: python.def. */
typedef enum hpt_form {
    HPT_CALL,
    HPT_TOKENS,
    HPT_SUM,
    HPT_PRODUCT,
    HPT_ATOM,
    HPT_VANISHES
} hpt_form;
typedef struct hpt_python {
    hpt_form form;
    const char *noun, *text;
} hpt_python;
const hpt_python *hpt_python_of(hir_opcode code); /* NULL: it is no graph op */

/* A character of a name, within quotes; `formatted`: of an f-string. */
void hpt_add_in_name(hd_text *out, char c, bool formatted);
hpt_name hpt_make_name(hd_arena *a, const char *dotted);
/* The name after the components of `scope`; false: it is not in that scope. */
bool hpt_within(hd_arena *a, const hpt_name *name, const hpt_name *scope, hpt_name *out);
uint32_t hpt_add_variable(hpt_program *p, hir_type type, const char *noun);
hpt_node hpt_copy_node(hd_arena *a, const hpt_node *n);
/* One text for the numbers of a list that a loop or a call goes through; NULL: no expression in
 * `counter` gives them. */
const char *hpt_linear(hd_arena *a, const char *counter, const double *at, const double *number,
                       uint32_t n);

/* May nothing of a model have this name, because Python or the file has it? */
bool hpt_is_taken(const char *name);
bool hpt_make_nodes(hpt_program *p);
/* Does the text of a node name a tensor with a row for each token? */
bool hpt_needs_rows(const hpt_node *n);
const char *hpt_number_name(const hpt_node *n, uint32_t i); /* of n->number[i] */
void hpt_derive_weights(hpt_program *p); /* before there are nodes */
void hpt_derive(hpt_program *p);
void hpt_outline(hpt_program *p);
void hpt_roll(hpt_program *p);
void hpt_print_function(const hpt_program *p, const hpt_function *f, hd_text *out);
const char *hpt_weight_text(const hpt_program *p, const hpt_ref *ref); /* in the scope `w` */
void hpt_print_sequence(const hpt_program *p, hd_text *out);
/* Which ops does the program call by functions of ops.py? */
void hpt_mark_called(const hpt_program *p, bool called[HIR_OPCODE_COUNT]);
void hpt_print_parameters(const hpt_program *p, hd_text *out);

/* ops.py and module.py. */
typedef struct hpt_source {
    const char *name, *text;
} hpt_source;
extern const hpt_source hpt_sources[];

#endif
