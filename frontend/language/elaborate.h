/* The state of elaboration, and the functions that its files offer to each other and to
 * frontend/config. */
#ifndef HFE_ELABORATE_H
#define HFE_ELABORATE_H

#include "frontend/language/value.h"

typedef struct hfe_frame { /* one call of a function */
    const hfe_def *def;
    hfe_value *locals; /* one per local of `def` */
    hfe_object *self;  /* of a method; otherwise NULL */
    hd_loc call;       /* where it was called from */
    struct hfe_frame *up;
    hfe_value result;
} hfe_frame;

typedef struct hfe_passed {
    const char *name; /* NULL: positional */
    hd_loc loc;       /* of the name, or of the value where there is no name */
    hd_loc value_loc;
    hfe_value value;
} hfe_passed;

typedef struct hfe_pass { /* of the loops that are running */
    const char *number;   /* counted from 0: "2"; of a loop in a loop "2_0"; NULL: no loop runs */
    bool again;           /* one of the loops is beyond its first pass */
} hfe_pass;

struct hfe_call { /* the evaluated arguments of a call */
    hd_loc loc;
    const char *name; /* name of the function */
    hfe_passed *args;
    size_t n_args;
    bool poisoned; /* some argument is poison */
};

typedef struct hfe_declared { /* a weight or state of the module */
    const char *name;
    hir_ref ref;
    hd_loc loc;
} hfe_declared;

/* Locals of open calls: a stack in chunks that never move. */
typedef struct hfe_locals_chunk {
    struct hfe_locals_chunk *before, *after;
    hfe_value *at;
    size_t n, cap;
} hfe_locals_chunk;

typedef struct hfe_known_constant {
    const hfe_def *def;
    hfe_value value;
    bool busy; /* the constant is being computed */
} hfe_known_constant;

struct hfe_elab {
    hfe_program *p;
    hd_arena *arena;
    hd_diags *diags;
    hir_module *m;
    hir_builder b;
    hd_diags trial; /* messages of the IR builder, before they get places and notes */
    const hfe_file *spec;
    hfe_frame *frame;
    const char *scope; /* "" or "a.b" */
    hfe_pass pass;
    bool stop;      /* a limit was reached, and every function returns */
    bool raised;    /* error() was called: the function that called it returns poison */
    uint32_t depth; /* depth of evaluation, in frames of the C stack */
    uint32_t calls;
    uint64_t statements, operands, strings, elements; /* how much was made so far */
    bool in_model;                                    /* tensors may be made */
    struct {
        hfe_declared *slot;
        size_t n, cap;
    } declared;
    const hd_loc *call;      /* the last call in the model that an op of a page has; NULL: none */
    HD_VEC(hd_loc) reported; /* places for which an error was reported */
    hfe_locals_chunk *locals;
    HD_VEC(hfe_known_constant) constants;
    /* NULL, or the config that is being run and its file; the functions of `words` know the
     * struct. */
    struct hfe_reading *import;
};

/* The parts of a declaration: expressions, and among them the name of a config. */
typedef struct hfe_parts {
    HD_VEC(const hfe_expr *) list;
    const hfe_expr *config; /* NULL: there is none */
} hfe_parts;

/* What a config of a family page contains beyond the language: rules, declarations of fields, and
 * included configs. The code that reads pages gives these functions to the program
 * (frontend/config). */
typedef struct hfe_config_words {
    /* For resolve.c. True for a call of a rule. Its faults are reported, except faults of its
     * arguments, which are expressions like others. */
    bool (*check_rule)(hfe_program *p, const hfe_expr *x);
    /* True for the declaration of a field. Its faults are reported, except faults of its parts. */
    bool (*check_declaration)(hfe_program *p, const hfe_stmt *s, hfe_parts *parts);
    /* For running a config. False: the expression is no rule. */
    bool (*run_rule)(hfe_elab *e, const hfe_expr *x, hfe_value *out);
    /* Returns the value of a marked assignment. */
    hfe_value (*run_marked)(hfe_elab *e, const hfe_stmt *s);
    void (*run_include)(hfe_elab *e, const hfe_stmt *s);
} hfe_config_words;

/* Reports an error once per place, with the chain of calls that led there, and returns poison.
 * `cause` and `hint` may be NULL. */
hfe_value hfe_fail(hfe_elab *e, hd_error code, hd_loc loc, const char *cause, const char *hint,
                   const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Does the same, and stops the elaboration. */
hfe_value hfe_halt(hfe_elab *e, hd_loc loc, const char *cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns "did you mean 'x'?", or NULL. */
const char *hfe_did_you_mean(hfe_elab *e, const char *word, const hfe_candidates *among);
/* elab_expr.c */
hfe_value hfe_eval(hfe_elab *e, const hfe_expr *x);
/* True if from..to counts upwards; otherwise an error has been reported. */
bool hfe_range_is_legal(hfe_elab *e, hd_loc loc, int64_t from, int64_t to);
hfe_value hfe_binary_value(hfe_elab *e, hd_loc loc, hfe_binary op, hfe_value a, hfe_value b);
/* Counts one more frame of the C stack; returns false after an error if there are too many. */
bool hfe_enter_eval(hfe_elab *e, hd_loc loc);
/* Sets the one or two variables of a loop for one element. */
void hfe_set_loop(hfe_elab *e, const char *index_name, const char *name, size_t i, hfe_value item);

/* elab_call.c */
hfe_value hfe_eval_call(hfe_elab *e, const hfe_expr *x);
hfe_value hfe_eval_field(hfe_elab *e, const hfe_expr *x);
hfe_value hfe_lookup(hfe_elab *e, const hfe_expr *x);
hfe_value *hfe_variable(hfe_elab *e, const char *name); /* returns a local or a field, or NULL */
hfe_value hfe_constant(hfe_elab *e, const hfe_def *def, hd_loc loc);
/* Returns unset locals for a call. They are given back in the opposite order. */
hfe_value *hfe_take_locals(hfe_elab *e, const hfe_def *def);
void hfe_give_locals(hfe_elab *e, const hfe_def *def);

/* elab_stmt.c */
typedef enum hfe_flow { HFE_GO_ON, HFE_RETURN } hfe_flow;
hfe_flow hfe_run_block(hfe_elab *e, const hfe_block *b);

/* elab_ops.c: ops of ir/ops.def as functions */
bool hfe_find_op(const char *name, hir_opcode *out);
hfe_value hfe_call_op(hfe_elab *e, hir_opcode code, const hfe_call *call);
hfe_value hfe_emit(hfe_elab *e, hd_loc loc, hir_opcode code, const hir_ref *args, uint32_t n_args,
                   const hir_attr *attrs, uint32_t n_attrs);
/* Makes an operand of a tensor, or of a number as a scalar constant. Returns false after an error,
 * or for poison. */
bool hfe_operand(hfe_elab *e, hd_loc loc, hfe_value v, const char *what, hir_ref *out);
hd_loc hfe_place_of_op(hfe_elab *e, hd_loc loc);
/* Makes a shape from a list of dims, of which the first may be `symbol`. Returns false after an
 * error, or for poison. */
bool hfe_shape(hfe_elab *e, hd_loc loc, hfe_value v, int64_t symbol, const char *what,
               hir_type *out);

/* builtins.c */
const hfe_builtin *hfe_find_builtin(const char *name);
extern const char *const hfe_builtin_names[]; /* NULL at the end */

/* Returns a none ref if the input does not exist. */
hir_ref hfe_find_input(const hfe_elab *e, const char *name);

/* elab_weights.c */
/* True for text that is not empty and has no control characters. */
bool hfe_is_name(const char *s);
hfe_value hfe_declare_weight(hfe_elab *e, hd_loc loc, const char *name, hfe_value shape,
                             bool unused);
/* Says how a weight begins; an error where something else was said before. */
hfe_value hfe_begin_weight(hfe_elab *e, hd_loc loc, hfe_value weight, hir_init init);
/* Declares that the model does not use tensors whose names begin with `prefix`. */
hfe_value hfe_declare_unused_below(hfe_elab *e, hd_loc loc, const char *prefix);
hfe_value hfe_declare_state(hfe_elab *e, hd_loc loc, const char *name, hfe_value shape,
                            hir_state_kind kind);
hfe_value hfe_declare_stacked(hfe_elab *e, hd_loc loc, const char *name, hfe_value shape);

#endif
