/* Row programs between body and loops (private to emit_row*.c).
 *
 *   row/graph/index.c   affine index maps: every view is one, none is a copy
 *   row/graph/graph.c   body ops become nodes; what is yielded gets its place
 *   row/graph/node.c    nodes, buffers, views
 *   row/graph/move.c    reshape, slice, transpose, broadcast vanish into maps, stacks into pointers
 *   row/graph/position.c  gather, rope_table, rope
 *   row/schedule/nests.c    what is kept where, and which nodes share one loop nest
 *   row/emit/value.c   a node at an index: loads, arithmetic, reductions inside a loop
 *   row/part.c    some ops of another kernel's body, over rows that lie in its scratch
 *   row/schedule/in_place.c   results that lie over what they replace
 *   row/emit/prefetch.c   sources of the next turn are asked for while those of this one are read
 *   row/emit/nontemporal.c  stores past the caches, where a kernel leaves more than they hold
 *   row/emit/small.c   nests of a few elements: whole values in registers, indices as shuffles
 *   row/emit/when.c    sums that are taken for some tokens only
 *   row/emit/size.c    sizes that are arguments
 *   row/emit/where.c   arguments, rows of a token, tables of row pointers
 *   row/emit/loops.c   loop nests with vectors along the last dim, and the loop over tokens
 *
 * All shapes here are shapes of one token's row: without T, and without dims of size 1.
 */
#ifndef HCG_EMIT_ROW_H
#define HCG_EMIT_ROW_H

#include "codegen/row/part.h"

/* ---- index maps ------------------------------------------------------------------------------ */
/* Variables: 0 .. HIR_MAX_RANK-1 run over dims, ROW_INNER over a reduction inside a loop. */
enum { ROW_INNER = HIR_MAX_RANK, ROW_VARS = HIR_MAX_RANK + 1 };

typedef struct row_index { /* constant + sum of by[v] * variable v */
    int64_t constant, by[ROW_VARS];
} row_index;

typedef struct row_shape {
    uint32_t rank;
    int64_t dim[HIR_MAX_RANK];
} row_shape;

row_index row_var(unsigned v);
row_index row_fixed(int64_t c);
bool row_index_equal(const row_index *a, const row_index *b);
row_index row_scaled_sum(row_index a, int64_t scale, const row_index *b); /* a + scale b */
row_index row_substitute(const row_index *f, const row_index *g);         /* f(g[0], g[1], ...) */
int64_t row_elements(const row_shape *s);
bool row_shape_equal(const row_shape *a, const row_shape *b);
row_index row_major(const row_shape *s); /* element number of (v0, v1, ...) */
/* `old` dims as functions of the dims `new` of a reshape. False where one dim of `old` would be a
 * quotient or remainder. */
bool row_split(const row_shape *old, const row_shape *new, row_index *out);
/* f, affine over the dims `old`, as a function of the dims `new` of a reshape; false when it is not
 * affine there. */
bool row_reshape(const row_index *f, const row_shape *old, const row_shape *new, row_index *out);

/* Row shape of a type; place[i] is the row dim of type dim i, or -1 (T, or size 1). */
row_shape row_squeeze(hir_type type, int *place);

/* ---- memory ---------------------------------------------------------------------------------- */
typedef enum row_where {
    ROW_SCRATCH, /* a piece of the thread's scratch */
    ROW_ARG,     /* a kernel argument, at this token's row if it has T */
    ROW_STATE,   /* the rows of a state, one in each head, that this token's position has */
    ROW_GATHER,  /* the row of a table that this token's id names */
    ROW_BLOCK,   /* a row of the block that the kernel around has in scratch */
} row_where;

typedef struct row_buffer {
    row_where where;
    hir_ref ref; /* argument; gather: the table */
    hir_ref ids; /* gather */
    hir_dtype dtype;
    bool has_t;
    int64_t elements;       /* of one row */
    int64_t step;           /* elements from one to the next: 1, or HIR_PANEL in a panel table */
    int64_t head;           /* state: elements of one head; heads are cap positions apart */
    bool by_head;           /* it holds one head; a row has as many as the part */
    LLVMValueRef block, ld; /* block: its row 0, and elements from one row to the next */
    bool in_place;          /* a result: it has the place of the value `over` ... */
    hir_id over;            /* ... which the kernel reads */
    bool used;              /* anything reads or writes it ... */
    bool direct;            /* ... other than through a table of row pointers */
} row_buffer;

/* ---- nodes ----------------------------------------------------------------------------------- */
typedef enum row_kind {
    ROW_CONST,
    ROW_MEMORY, /* elements of a buffer, seen as one dim */
    ROW_MULTI,  /* rows side by side along dim `axis`, each where it is: stack without a copy */
    ROW_COPY,
    ROW_MAP,    /* an elementwise op */
    ROW_ROTATE, /* args a, c, b, s: a c + sign b s */
    ROW_TRIG,   /* cos or sin of position times frequency */
    ROW_REDUCE, /* args[0] is indexed by the node's dims and ROW_INNER; args[1], if it is there:
                   the sum is 0, and nothing is read for it, unless this number is above 0 */
} row_kind;

#define ROW_NO_BUFFER UINT32_MAX
#define ROW_NO_NEST   UINT32_MAX

typedef struct row_ref { /* node at an index: one map per dim of the node, over the reader's dims */
    uint32_t node;
    row_index at[HIR_MAX_RANK];
} row_ref;

typedef struct row_entry { /* of ROW_MULTI */
    uint32_t node;         /* ROW_MEMORY or a stored node */
    int64_t offset;        /* into its buffer */
} row_entry;

typedef struct row_node {
    row_kind kind;
    const hir_op *op; /* for its code, attributes and location */
    row_shape shape;
    bool token_free;
    uint32_t n_args;
    row_ref *args;
    double value;         /* const; rotate: the sign */
    bool is_sine;         /* trig */
    uint32_t sibling;     /* trig: cos of this sin, sin of this cos */
    uint32_t frequencies; /* trig: number of the table in row_graph.tables */
    int64_t extent;       /* reduce: size of the reduced dim */
    bool last;            /* reduce: that dim comes after all others, vectors run along it */
    uint32_t axis;        /* multi */
    hir_dtype dtype;      /* multi: of all its rows in memory */
    row_index within;     /* multi: element of an entry, over the node's dims without `axis` */
    uint32_t n_entries;
    row_entry *entries;
    const hcg_run *run;   /* multi: its rows are these arguments; there are no entries */
    uint32_t n_producers; /* memory: nodes that fill the buffer */
    uint32_t *producers;
    uint32_t fills; /* the memory node that this one is a producer of, or HIR_NONE */
    /* storage: element (v0, v1, ...) is at buffer[to(v0, v1, ...)] */
    uint32_t buffer;
    row_index to;
    /* plan */
    uint32_t uses, depth;
    uint32_t direct; /* reads that are not by way of a ROW_MULTI */
    bool wide_use;   /* read once for several elements of the reader */
    bool costly;     /* holds more than additions and multiplications */
    bool root;       /* computed in a nest of its own or with others, not where it is read */
    uint32_t nest, limit, reader;
    bool at_the_end;  /* in nests behind all that have no such roots */
    bool far_read;    /* read elsewhere than at the same index of the same nest */
    bool chained;     /* reads other roots at its own index: not before they are there */
    bool small;       /* its nest is (row/emit/small.c) */
    bool from_memory; /* read by a nest that is not */
    /* emission */
    LLVMValueRef scalar; /* the value of a root of one element */
    LLVMValueRef whole;  /* of a root in a small nest: all elements, row-major */
    LLVMValueRef terms;  /* of such a reduction: [elements][n_terms], still to be combined */
    uint32_t n_terms;
} row_node;

typedef struct row_table { /* of frequencies in f64 */
    const double *at;
    int64_t n, padded;
    LLVMValueRef global;
} row_table;

typedef struct row_nest {
    row_shape domain;
    row_index loops[ROW_VARS]; /* dims of its roots as functions of the loops */
    HD_VEC(uint32_t) roots;    /* later ones first */
    uint32_t reductions;
    const row_ref *when; /* it runs for tokens where this number is above 0; NULL: for all */
    bool small;          /* its roots are computed whole, in registers */
} row_nest;

typedef struct row_nests {
    HD_VEC(row_nest) list; /* the one that runs last comes first */
} row_nests;

typedef struct row_view { /* a value of the body */
    hir_type type;
    row_shape shape;
    row_ref ref; /* over the dims of `shape` */
} row_view;

typedef struct row_graph {
    hd_arena *arena;
    hd_diags *diags;
    const hir_module *m;     /* k->any, or the program's, */
    const hir_module *whole; /* which alone has all operands of k->op */
    const hcg_kernel *k;
    HD_VEC(row_node) nodes;
    HD_VEC(row_buffer) buffers;
    HD_VEC(row_table) tables;
    row_view **views;  /* per value of the module; outer ones are made when first read */
    uint32_t *weights; /* per weight of the module: its node, or HIR_NONE */
    row_nests once, per_token;
    bool has_t;               /* the kernel runs over tokens */
    unsigned lanes;           /* of the level's vectors */
    bool apart;               /* what lies over another value is made in scratch, then copied */
    uint32_t behind;          /* nests of roots that are at the end */
    const hcg_row_part *part; /* NULL: the whole body */
} row_graph;

static inline row_node *row_at(const row_graph *g, uint32_t node) {
    return &g->nodes.at[node];
}

/* Body, or part of one, to nodes; every value that leaves it gets a producer that stores it. */
bool row_build(row_graph *g);
/* The type that a value has in the part: of one head, where it is made of heads. */
hir_type row_type_of(const row_graph *g, hir_ref r);
bool row_is_by_head(const row_graph *g, hir_ref r);
/* A buffer for a node's own elements, in row-major order, if it has none yet. */
void row_store(row_graph *g, uint32_t node);
/* Roots, nests and their order. */
void row_plan(row_graph *g);
/* Which nests are small, and whose roots need memory all the same. */
void row_small_choose(row_graph *g);
/* The loops a root wants: its dims, or its dims and the reduced one. */
row_shape row_domain(const row_node *n);
/* The number that decides whether a sum is taken; NULL: it always is. */
static inline const row_ref *row_when(const row_node *n) {
    return n->kind == ROW_REDUCE && n->n_args > 1 ? &n->args[1] : NULL;
}

/* Neighbours in the two loops around the innermost that go together. */
typedef struct row_jam {
    uint32_t outer, inner;
} row_jam;
row_jam row_jam_of(const hcg_level *level, const row_graph *g, const row_nest *nest);

/* May the planned nests write results to where other values lie, as they are? */
bool row_may_be_in_place(const hcg_level *level, const row_graph *g);
bool row_writes_over(const row_graph *g, const row_nest *nest);
void row_emit_loops(hcg_emit *e, row_graph *g);

#endif
