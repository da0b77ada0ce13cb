/* The parts of the Jinja interpreter: tokens (jinja_lex.c), syntax (jinja_parse.c), values
 * (jinja_value.c, jinja_show.c), execution (jinja_run.c, jinja_eval.c) and what templates call
 * (jinja_filters.c, jinja_tests.c, jinja_methods.c, jinja_format.c). */
#ifndef TEXT_JINJA_TREE_H
#define TEXT_JINJA_TREE_H

#include "text/jinja.h"
#include "text/tokenizer.h"

/* ---- values ---------------------------------------------------------------------------------- */

typedef enum jinja_kind {
    J_ABSENT, /* an argument that was not given; never a value of a template */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STRING,
    J_SEQUENCE,
    J_DICT,
    J_NAMESPACE,
    J_LOOP,
    J_CALLABLE,
} jinja_kind;

typedef struct jinja_value {
    jinja_kind kind;
    union {
        bool truth;
        int64_t number;
        double real;
        const jinja_string *string;
        struct jinja_sequence *sequence;
        struct jinja_dict *dict; /* also of a namespace */
        struct jinja_loop *loop;
        const struct jinja_callable *callable;
        const char *why; /* of an undefined value: what an error says of it */
    };
} jinja_value;

typedef enum sequence_kind {
    SEQ_LIST,
    SEQ_TUPLE,
    SEQ_VIEW,     /* keys, values or items of a dict: no element by number */
    SEQ_ITERATOR, /* the result of map, select and others: read once, without a length */
} sequence_kind;

typedef struct jinja_sequence {
    sequence_kind kind;
    jinja_value *at;
    size_t n, next; /* next: elements of an iterator that were read */
} jinja_sequence;

typedef struct jinja_dict { /* in the order of insertion */
    jinja_value *keys, *values;
    size_t n, capacity;
} jinja_dict;

typedef struct jinja_arguments {
    jinja_value *at; /* by position */
    size_t n;
    const jinja_string **names; /* of those given by name */
    jinja_value *named;
    size_t n_named;
} jinja_arguments;

typedef struct jinja jinja; /* one rendering */

typedef jinja_value jinja_function(jinja *j, jinja_value self, const jinja_value *a,
                                   const jinja_arguments *all);
/* A filter, a method or a global function. `parameters`: names with spaces between them, "!" after
 * those that must be given; "*": the function reads `all`. */
typedef struct jinja_builtin {
    const char *name;
    jinja_function *call;
    const char *parameters;
} jinja_builtin;

typedef struct jinja_callable {
    const jinja_builtin
        *builtin;     /* NULL: a macro, the caller of a call block, or a recursive loop */
    jinja_value self; /* of a method, or a loop */
    const struct jinja_node *macro;
    struct jinja_scope *scope; /* in which the macro was defined */
    bool *used;                /* of a joiner */
} jinja_callable;

/* ---- syntax ---------------------------------------------------------------------------------- */

typedef enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_OUTPUT_BEGIN,
    TOKEN_OUTPUT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
} token_kind;

#define OPERATOR(first, second) ((unsigned)(first) | (unsigned)(second) << 8)

typedef struct token {
    token_kind kind;
    unsigned line, op;
    string text; /* of text, names and strings */
    int64_t number;
    double real;
} token;
typedef HD_VEC(token) token_list;

typedef enum node_kind {
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT, /* list: keys and values by turns */
    N_COND, /* a if b else c */
    N_AND,
    N_OR,
    N_NOT,
    N_COMPARE, /* a, then for each N_OPERAND of the list: op, a */
    N_OPERAND,
    N_CONCAT,
    N_BINARY,
    N_MINUS,
    N_PLUS,
    N_ATTRIBUTE, /* a.name */
    N_ITEM,      /* a[b] */
    N_SLICE,     /* a:b:c */
    N_CALL,      /* a(list); a member of the list with a name is N_KEYWORD, *a is N_STAR */
    N_KEYWORD,
    N_STAR,
    N_FILTER, /* a|name(list); a NULL: of a filter block */
    N_TEST,   /* a is name(list) */
    N_TEXT,
    N_OUTPUT,
    N_IF,  /* list: conditions and N_BODY by turns; b: else */
    N_FOR, /* a: target, b: iterable, c: test; list: body; d: else */
    N_BODY,
    N_SET,      /* a: target, b: value */
    N_CAPTURE,  /* set block. a: target, b: filters, list: body */
    N_MEMBER,   /* name.name as a target: a N_NAME, value the attribute */
    N_MACRO,    /* name, parameters: N_KEYWORD with a default or NULL; list: body */
    N_CALLER,   /* call block. a: call, b: N_MACRO */
    N_FILTERED, /* filter block. b: filters, list: body */
    N_WITH,     /* parameters: N_SET; list: body */
    N_SCOPE,    /* generation block */
    N_BREAK,
    N_CONTINUE,
} node_kind;

typedef struct jinja_node jinja_node;
typedef HD_VEC(jinja_node *) node_list;
struct jinja_node {
    node_kind kind;
    unsigned line, op; /* op: OPERATOR, or 'i' in, 'n' not in */
    bool flag;         /* of a test: negated; of a loop: recursive */
    int32_t name;      /* a variable; -1: none */
    const jinja_string *text;
    jinja_value value;
    jinja_node *a, *b, *c, *d;
    node_list list, parameters;
};

struct jinja_template {
    hd_arena *arena;
    node_list body;
    string_map ids; /* of names */
    HD_VEC(const jinja_string *) names;
    HD_VEC(string) literals;
    int32_t loop, caller; /* names */
};

enum {
    JINJA_MOST_SOURCE = 1 << 20, /* bytes of a template */
    JINJA_MOST_NESTING = 200,    /* of its syntax */
};

/* Parsing stops with an error by jumping to the entry. */
typedef struct jinja_syntax {
    hd_arena *arena;
    jinja_error *error;
    jmp_buf entry;
    unsigned line;
} jinja_syntax;
_Noreturn void jinja_reject(jinja_syntax *s, unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void jinja_lex(jinja_syntax *s, const char *source, size_t n, token_list *out);

/* ---- a rendering ----------------------------------------------------------------------------- */

typedef struct jinja_bound { /* a variable that has a value in a scope */
    int32_t name;
    jinja_value value;
} jinja_bound;

typedef struct jinja_scope {
    struct jinja_scope *outer;
    HD_VEC(jinja_bound) variables;
} jinja_scope;

typedef struct jinja_output {
    char *at;
    uint8_t *mask; /* NULL: no byte is a message's */
    size_t n, capacity;
} jinja_output;

typedef struct jinja_loop {
    jinja_value *at;
    size_t n, i, depth;
    const jinja_node *recursive; /* NULL: loop() is an error */
    jinja_scope *scope;
    jinja_value changed; /* the last argument of loop.changed */
} jinja_loop;

struct jinja {
    hd_arena *arena;
    const jinja_template *t;
    const jinja_input *in;
    jinja_limits limits;
    jinja_error *error;
    jmp_buf entry;
    unsigned line;
    uint64_t steps, memory;
    uint32_t depth;
    jinja_scope *scope;
    jinja_output *out;
};

/* Ends the rendering with an error. */
_Noreturn void jinja_fail(jinja *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void jinja_exceed(jinja *j, const char *what);
/* Each counts against a bound, and ends the rendering where it is exceeded. */
void *jinja_alloc(jinja *j, size_t n, size_t size);
void jinja_step(jinja *j, uint64_t n);
void jinja_enter(jinja *j);
static inline void jinja_leave(jinja *j) {
    j->depth--;
}

void jinja_put(jinja *j, jinja_output *o, const jinja_string *s);
void jinja_put_text(jinja *j, jinja_output *o, const char *text, size_t n, bool content);
const jinja_string *jinja_taken(jinja *j, jinja_output *o); /* what was put, as a string */

/* Values (jinja_value.c). */
jinja_value jinja_none(void);
jinja_value jinja_bool(bool b);
jinja_value jinja_int(int64_t n);
jinja_value jinja_real(double d);
jinja_value jinja_undefined(const char *why);
jinja_value jinja_of(const jinja_string *s);
jinja_value jinja_text(jinja *j, const char *text, size_t n, bool content); /* copied */
jinja_value jinja_literal(jinja *j, const char *text); /* a text that outlives the rendering */
jinja_value jinja_list(jinja *j, sequence_kind kind, size_t n);
void jinja_append(jinja *j, jinja_sequence *s, size_t *capacity, jinja_value v);
jinja_value jinja_new_dict(jinja *j);
const jinja_value *jinja_find(jinja *j, const jinja_dict *d, jinja_value key);
void jinja_assign(jinja *j, jinja_dict *d, jinja_value key, jinja_value v);
jinja_value jinja_from_json(jinja *j, const json_t *v, bool content);
const char *jinja_type(jinja_value v); /* as Python calls it */
bool jinja_true(jinja_value v);
bool jinja_is_number(jinja_value v); /* bool, int or float */
double jinja_double(jinja_value v);
int64_t jinja_integer(jinja *j, jinja_value v, const char *what); /* an error if it is none */
bool jinja_equal(jinja *j, jinja_value x, jinja_value y);
int jinja_order(jinja *j, jinja_value x, jinja_value y); /* an error where Python has none */
bool jinja_contains(jinja *j, jinja_value whole, jinja_value part);
int64_t jinja_length(jinja *j, jinja_value v);
/* The elements that a loop over the value has; an iterator has none afterwards. */
jinja_value jinja_elements(jinja *j, jinja_value v);

/* Strings. Offsets are bytes, lengths and indices characters. */
jinja_string jinja_part(const jinja_string *s, size_t begin, size_t end);
bool jinja_content(const jinja_string *s); /* is any byte a message's? */
size_t jinja_characters(const jinja_string *s);
size_t jinja_offset(const jinja_string *s, size_t index); /* of a character */
int64_t jinja_search(const jinja_string *s, const jinja_string *part, size_t from); /* -1: none */
int64_t jinja_search_last(const jinja_string *s, const jinja_string *part, size_t end);
jinja_value jinja_part_value(jinja *j, const jinja_string *s, size_t begin, size_t end);
bool jinja_is_space(uint32_t code); /* str.isspace of Python */
jinja_string jinja_strip(const jinja_string *s, const jinja_string *set, bool left, bool right);
uint32_t jinja_before(const char *at, size_t n, size_t *begin); /* the character that ends at n */

/* Text of values (jinja_show.c). */
const jinja_string *jinja_str(jinja *j, jinja_value v);
const jinja_string *jinja_repr(jinja *j, jinja_value v);
void jinja_put_real(jinja *j, jinja_output *o, double d);
jinja_value jinja_tojson(jinja *j, jinja_value v, const jinja_value *a);

/* Expressions (jinja_eval.c). */
jinja_value jinja_eval(jinja *j, const jinja_node *n);
jinja_value jinja_attribute(jinja *j, jinja_value v, const jinja_string *name);
jinja_value jinja_item(jinja *j, jinja_value v, jinja_value key);
jinja_value jinja_call(jinja *j, jinja_value f, const jinja_arguments *a);
jinja_value jinja_call_builtin(jinja *j, const jinja_builtin *b, jinja_value self,
                               const jinja_arguments *a);
jinja_value jinja_operate(jinja *j, unsigned op, jinja_value x, jinja_value y);
jinja_value jinja_filter(jinja *j, const jinja_string *name, jinja_value v,
                         const jinja_arguments *a);
bool jinja_test(jinja *j, const jinja_string *name, jinja_value v, const jinja_arguments *a);
jinja_value jinja_filters_of(jinja *j, const jinja_node *filters, jinja_value v);

/* Statements (jinja_run.c). */
jinja_value jinja_lookup(jinja *j, int32_t name);
jinja_value jinja_call_macro(jinja *j, const jinja_callable *f, const jinja_arguments *a);
jinja_value jinja_recurse(jinja *j, const jinja_loop *l, jinja_value over);

/* What templates call; NULL: there is none of the name. */
const jinja_builtin *jinja_find_builtin(const jinja_builtin *table, size_t n,
                                        const jinja_string *name);
const jinja_builtin *jinja_filter_named(const jinja_string *name);
const jinja_builtin *jinja_method(jinja_value self, const jinja_string *name, const char **unsafe);
const jinja_builtin *jinja_global(const jinja_string *name);

/* printf of Python and str.format (jinja_format.c). */
jinja_value jinja_percent(jinja *j, const jinja_string *format, jinja_value values);
jinja_value jinja_braces(jinja *j, const jinja_string *format, const jinja_arguments *a);

#endif
