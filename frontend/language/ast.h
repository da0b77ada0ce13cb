/* The syntax tree of a spec. Names are interned per program, so equal names are equal pointers.
 * Nodes live in the arena and are never changed after parsing. */
#ifndef HFE_AST_H
#define HFE_AST_H

#include "frontend/language/language.h"

/* ---- expressions --------------------------------------------------------------------------- */
typedef enum hfe_expr_kind {
    HFE_X_NONE,
    HFE_X_BOOL,
    HFE_X_INT,
    HFE_X_FLOAT,
    HFE_X_STRING, /* its parts: text, expression, text ... */
    HFE_X_NAME,
    HFE_X_OP_NAME, /* op.NAME */
    HFE_X_LIST,
    HFE_X_COMPREHENSION,
    HFE_X_NEG,
    HFE_X_NOT,
    HFE_X_BINARY,
    HFE_X_IF,
    HFE_X_CALL,
    HFE_X_INDEX,
    HFE_X_SLICE,
    HFE_X_FIELD,
    HFE_X_ERROR, /* the text did not parse, and the error has been reported */
} hfe_expr_kind;

typedef enum hfe_binary {
    HFE_ADD,
    HFE_SUB,
    HFE_MUL,
    HFE_DIV,
    HFE_FLOOR_DIV,
    HFE_MOD,
    HFE_EQ,
    HFE_NE,
    HFE_LT,
    HFE_LE,
    HFE_GT,
    HFE_GE,
    HFE_AND,
    HFE_OR,
    HFE_RANGE,
    HFE_OR_ELSE, /* ?? */
} hfe_binary;
const char *hfe_binary_text(hfe_binary op);

typedef struct hfe_expr hfe_expr;

typedef struct hfe_exprs {
    HD_VEC(hfe_expr *) list;
} hfe_exprs;

typedef struct hfe_arg {
    const char *name; /* NULL: positional */
    hd_loc name_loc;
    hfe_expr *value;
} hfe_arg;

typedef struct hfe_piece { /* a part of a string: text, or an expression if `value` is set */
    const char *text;
    hfe_expr *value;
} hfe_piece;

struct hfe_expr {
    hfe_expr_kind kind;
    uint32_t depth; /* of the tree below this node */
    hd_loc loc;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *name; /* NAME, OP_NAME */
        struct {          /* STRING */
            HD_VEC(hfe_piece) pieces;
        } string;
        hfe_exprs list;
        struct { /* [value for name (, name) in over if condition] */
            hfe_expr *value, *over, *condition;
            const char *index_name, *name;
        } each;
        hfe_expr *operand; /* NEG, NOT */
        struct {
            hfe_binary op;
            hfe_expr *left, *right;
        } binary;
        struct {
            hfe_expr *condition, *yes, *no;
        } choice;
        struct {
            hfe_expr *callee;
            HD_VEC(hfe_arg) args;
        } call;
        struct {
            hfe_expr *base, *index;
        } index;
        struct {
            hfe_expr *base, *from, *to; /* either end may be NULL */
        } slice;
        struct {
            hfe_expr *base;
            const char *name;
            hd_loc name_loc;
        } field;
    };
};

/* ---- statements ---------------------------------------------------------------------------- */
typedef enum hfe_stmt_kind {
    HFE_S_EXPR,
    HFE_S_ASSIGN,       /* name = value */
    HFE_S_UNPACK,       /* a, b = value */
    HFE_S_ASSIGN_INDEX, /* name[index] = value */
    HFE_S_FOR,
    HFE_S_LOOP, /* loop pass in list: a FOR whose rounds have states of their own */
    HFE_S_IF,
    HFE_S_AT,
    HFE_S_RETURN,
    HFE_S_OUTPUT,
    /* In a config, use NAME(args) in "field" includes the fields and rules of another config. */
    HFE_S_INCLUDE,
} hfe_stmt_kind;

/* The word before `name = value` in a config (config/config.h). */
typedef enum hfe_mark {
    HFE_PLAIN,
    HFE_FIELD,  /* a field of config.json */
    HFE_PARAM,  /* becomes a parameter of the imported spec */
    HFE_OPTION, /* becomes one unless it has its default value */
} hfe_mark;

typedef struct hfe_stmt hfe_stmt;
typedef struct hfe_block {
    HD_VEC(hfe_stmt *) list;
} hfe_block;

typedef struct hfe_target {
    const char *name;
    hd_loc loc;
} hfe_target;

struct hfe_stmt {
    hfe_stmt_kind kind;
    hfe_mark mark; /* ASSIGN */
    hd_loc loc;
    HD_VEC(hfe_target) targets; /* ASSIGN, UNPACK, ASSIGN_INDEX; FOR, LOOP: one or two names */
    hfe_expr *index;            /* ASSIGN_INDEX */
    hfe_expr *name;             /* OUTPUT: a string; INCLUDE: the field that holds the object */
    /* the expression that is run, assigned, looped over, tested, entered or returned; may be
     * NULL */
    hfe_expr *value;
    hfe_block body, otherwise;
};

/* ---- definitions --------------------------------------------------------------------------- */
typedef struct hfe_param {
    const char *name;
    hd_loc loc;
    hfe_expr *otherwise; /* default, or NULL */
} hfe_param;

typedef struct hfe_input { /* an input of a model */
    const char *name;
    hd_loc loc;
    hir_dtype dtype;
    hfe_exprs dims;
} hfe_input;

typedef enum hfe_def_kind {
    HFE_D_FN,
    HFE_D_OBJECT,
    HFE_D_MODEL,
    HFE_D_CONSTANT,
    HFE_D_CONFIG, /* configs have names of their own, separate from all other names */
} hfe_def_kind;

typedef struct hfe_def hfe_def;
typedef struct hfe_file hfe_file;
struct hfe_def {
    hfe_def_kind kind;
    const char *name;
    hd_loc loc; /* of the name */
    hfe_file *file;
    HD_VEC(hfe_param) params;
    hfe_block body;
    HD_VEC(hfe_def *) methods; /* of OBJECT, CONFIG */
    hfe_def *object;           /* of a method: the object it belongs to */
    bool has_inputs;
    HD_VEC(hfe_input) inputs; /* MODEL */
    hfe_expr *value;          /* CONSTANT */
    hfe_target *locals;       /* all names that it can set (resolve.c), parameters first */
    size_t n_locals;
};

typedef struct hfe_use {
    const char *path;
    hd_loc loc;
    hfe_file *file; /* NULL: the file was not found, which has been reported */
} hfe_use;

struct hfe_file {
    const char *path; /* as diagnostics show it */
    const char *page; /* as `use` would name the file, where that is known (config/family.c) */
    const char *text;
    uint64_t device, inode; /* identify the file, whatever its path; 0: given as text */
    HD_VEC(hfe_use) uses;
    HD_VEC(hfe_def *) defs;
    bool loading, failed; /* the file is still being read; it did not parse */
};

/* ---- program ------------------------------------------------------------------------------- */
typedef struct hfe_names { /* a hash table of the interned names */
    const char **slot;
    size_t n, cap;
} hfe_names;

typedef struct hfe_unread { /* a variable that is set and never read */
    hfe_target target;
    const char *hint;
} hfe_unread;

typedef struct hfe_library_name { /* a name that a page of the library defines */
    const char *name, *page;
} hfe_library_name;

typedef struct hfe_program {
    hd_arena *arena;
    hd_diags *diags;
    const hfe_options *options;
    const struct hfe_config_words *words; /* the meaning of statements in configs (elaborate.h) */
    size_t errors;                        /* the number of errors before this program */
    hfe_names names;
    HD_VEC(hfe_file *) files;         /* the spec is the first */
    HD_VEC(const char *) pages;       /* pages of the library, listed at the first request */
    HD_VEC(hfe_library_name) library; /* names by page, listed at the first request */
    bool pages_known, library_known;
    HD_VEC(hfe_unread) unread; /* reported only if there are no errors */
} hfe_program;

const char *hfe_intern(hfe_program *p, const char *s, size_t n);

enum {
    HFE_MAX_NESTING = 200,        /* nesting of brackets, blocks and operators in the text */
    HFE_MAX_FILE = 1 << 20,       /* bytes */
    HFE_MAX_FILES = 1000,         /* files that use each other */
    HFE_MAX_CALLS = 200,          /* depth of calls */
    HFE_MAX_INCLUDED = 20,        /* depth of configs in configs; running a circle is an error */
    HFE_MAX_OPS = 3 << 18,        /* ops that one spec makes */
    HFE_MAX_OPERANDS = 1 << 24,   /* operands of these ops, all together */
    HFE_MAX_STATEMENTS = 1 << 22, /* statements that are run */
    HFE_MAX_LIST = 1 << 20,       /* elements */
    HFE_MAX_ELEMENTS = 1 << 23,   /* elements of all lists made */
    HFE_MAX_STRING = 1 << 16,     /* bytes */
    HFE_MAX_STRINGS = 256 << 20,  /* bytes of all strings made */
};

/* Reads and parses the file with everything that it uses. Returns NULL and diagnostics on error. */
hfe_file *hfe_read_program(hfe_program *p, const char *path, const char *text);
/* Parses the text of one file into `file`; returns false if there were errors. */
bool hfe_parse(hfe_program *p, hfe_file *file);
/* Returns the definition that `name` means in a file: one of the file's own, or else one of the
 * files that it uses. Models are not among them. */
hfe_def *hfe_find_def(const hfe_file *file, const char *name);
/* Does the same for configs. */
hfe_def *hfe_find_config(const hfe_file *file, const char *name);
/* Returns the config that `use NAME` in a config of `file` includes, or NULL. */
const hfe_def *hfe_included_config(const hfe_file *file, const hfe_stmt *s);
/* Returns a function of a config, or of a config that it includes, or NULL if there is none of this
 * name. */
const hfe_def *hfe_config_function(const hfe_def *config, const char *name);
/* Returns the text of a string that contains no expressions, else NULL. */
const char *hfe_literal(const hfe_expr *x);
/* Reports names without a meaning, and names with two. Fills `locals` of every definition. */
void hfe_resolve(hfe_program *p, hfe_file *file);
/* Every name that is known in `def`, for "did you mean". */
typedef struct hfe_candidates {
    HD_VEC(const char *) list;
} hfe_candidates;
void hfe_visible_names(hfe_program *p, const hfe_file *file, const hfe_def *def,
                       hfe_candidates *out);
/* The first function lists the pages of the library, as `use` names them; the second returns the
 * page that defines a name, or NULL. */
bool hfe_is_library(const hfe_program *p, const hfe_file *file);
void hfe_library_pages(hfe_program *p, hfe_candidates *out);
const char *hfe_library_page(hfe_program *p, const char *name);

#endif
