/* Row programs as a graph: the first of three steps, graph → schedule → emit
 * (docs/row-programs.md).
 *
 * The body of a kernel becomes nodes (what is computed), views (which elements of a node a value of
 * the body is, as affine index maps) and buffers (memory). Nothing here knows a CPU level or LLVM.
 *
 *   graph/index.c     affine index maps: every view is one, none is a copy
 *   graph/node.c      nodes, buffers, views
 *   graph/graph.c     body ops become nodes; yielded values get their places; topk, pick, mark, scatter
 *   graph/totals.c    sums over tokens: what a token adds to them
 *   graph/move.c      reshape, slice, transpose, broadcast become maps, stacks become pointers
 *   graph/position.c  gather, rope_table, rope
 */
#ifndef HCG_ROW_GRAPH_H
#define HCG_ROW_GRAPH_H

#include "codegen/program/contraction.h"
#include "codegen/rowwise/graph/index.h"

/* ---- what a program is made of --------------------------------------------------------------- */

/* The prologue or epilogue of a contraction as a row program: some ops of the kernel's body, on
 * rows in the contraction's scratch. With `heads`, every value is [T, heads, ..] or [T, heads n]
 * (ir/kernel/heads.c), and the ops run head by head, since a block of columns holds some heads
 * only. */
typedef struct row_stage_ops {
    const hir_id *ops; /* in order */
    size_t n_ops;
    hir_id given;            /* a value in scratch that they read; HIR_NONE: none */
    hir_id left;             /* a value that they write to scratch; HIR_NONE: none */
    const hcg_yield *yields; /* their values that are results of the kernel */
    size_t n_yields;
    int64_t heads; /* 0: rows are not divided into heads */
} row_stage_ops;

/* ---- memory ---------------------------------------------------------------------------------- */
typedef enum row_where {
    ROW_SCRATCH, /* bytes of the thread's scratch */
    ROW_ARG,     /* a kernel argument, at this token's row if it has T */
    ROW_STATE,   /* the rows of a state at this token's position, one in each head */
    ROW_GATHER,  /* the row of a table that this token's id names */
    ROW_SUM,     /* what a part of the tokens adds up, of a result that is a sum over them */
    ROW_GIVEN,   /* in a prologue or epilogue: a row of the block in scratch that it reads, */
    ROW_LEFT,    /* or of the block that it writes */
} row_where;

typedef struct row_buffer {
    row_where where;
    hir_ref ref;    /* argument; gather: the table */
    hir_ref ids;    /* gather */
    int64_t beyond; /* the row for ids beyond the table's end; -1: there are no such ids */
    hir_dtype dtype;
    bool has_t;
    row_size elements; /* elements of one row */
    int64_t step;      /* distance between elements: 1, or HIR_PANEL in a table of panels */
    int64_t head;      /* state: elements of one head; heads are cap positions apart */
    int64_t heads;     /* state: how many */
    int64_t rate;      /* state: how many positions a row stands for; the last of them writes it */
    bool by_head;      /* elements are those of one head of a row */
    bool adds;         /* a gradient or a sum: what is stored is added to what is there */
    bool in_place;     /* a result that overwrites the value `over` ... */
    hir_id over;       /* ... which the kernel reads */
    bool used;         /* something reads or writes it ... */
    bool direct;       /* ... other than through a table of row pointers */
} row_buffer;

static inline bool row_in_block(const row_buffer *b) {
    return b->where == ROW_GIVEN || b->where == ROW_LEFT;
}

/* ---- nodes ----------------------------------------------------------------------------------- */
typedef enum row_kind {
    ROW_CONST,
    ROW_MEMORY, /* elements of a buffer, seen as one dim */
    ROW_MULTI,  /* a stack of rows along dim `axis` without a copy, by pointers to them */
    ROW_COPY,
    ROW_MAP,    /* an elementwise op */
    ROW_ROTATE, /* args a, c, b, s: a c + sign b s */
    ROW_TRIG,   /* cos or sin of position times frequency */
    ROW_SELECTION, /* topk, pick, mark or scatter: args are nodes in memory, whose elements it reads from the
                   first one on, row after row; it fills a buffer, in its own loop nest */
    ROW_REDUCE, /* args[0] is indexed by the node's dims and ROW_INNER; args[1], if it is there:
                   the sum is 0, and nothing is read for it, unless this number is above 0 */
} row_kind;

#define ROW_NO_BUFFER UINT32_MAX
#define ROW_NO_NEST   UINT32_MAX

typedef struct row_ref { /* node at an index: one map per dim of the node, over the reader's dims */
    uint32_t node;
    row_index at[HIR_MAX_RANK];
} row_ref;

typedef struct row_entry { /* an entry of a ROW_MULTI */
    uint32_t node;         /* ROW_MEMORY or a stored node */
    row_size offset;       /* into its buffer */
} row_entry;

typedef struct row_node {
    row_kind kind;
    const hir_op *op; /* for its code and attributes */
    hir_id at;        /* the op of its location */
    row_shape shape;
    bool token_free;
    uint32_t n_args;
    row_ref *args;
    double value;         /* const; rotate: the sign */
    bool is_sine;         /* trig */
    uint32_t sibling;     /* trig: the cos of this sin, or the sin of this cos */
    uint32_t frequencies; /* trig: number of the table in row_graph.tables */
    row_size extent;      /* reduce: size of the reduced dim */
    bool last;            /* reduce: that dim comes after all others, vectors run along it */
    uint32_t axis;        /* multi */
    hir_dtype dtype;      /* multi: of all its rows in memory */
    row_index within;     /* multi: element of an entry, over the node's dims without `axis` */
    uint32_t n_entries;
    row_entry *entries;
    const hcg_run *run;   /* multi: its rows are these arguments; there are no entries */
    uint32_t n_producers; /* memory: nodes that fill the buffer */
    uint32_t *producers;
    uint32_t fills;  /* the memory node that this one is a producer of, or HIR_NONE */
    bool at_the_end; /* computed after everything else of the token */
    /* storage: element (v0, v1, ...) is at buffer[to(v0, v1, ...)] */
    uint32_t buffer;
    row_index to;
} row_node;

typedef struct row_table { /* a table of frequencies in f64 */
    const double *at;
    int64_t n, padded;
    double scale;   /* factor of cos and sin */
    int64_t beyond; /* > 0: from this position on, the frequencies from at[padded] on are used */
    int64_t offset; /* from the token's position to the one that the table is used with */
} row_table;

/* A value of the body that is a sum over tokens: the rows that a token adds, all of one shape. */
typedef struct row_total {
    HD_VEC(uint32_t) rows;
} row_total;

typedef struct row_sum { /* a result of the kernel that is one */
    hir_ref result;
    int64_t rows, width; /* of the result: the last dim, and all others */
    int64_t apart;       /* from row to row in the buffer */
    uint32_t buffer;     /* ROW_SUM */
    bool adds;           /* to what is there */
} row_sum;

typedef struct row_view { /* a value of the body */
    hir_type type;
    row_shape shape;
    row_ref ref; /* over the dims of `shape` */
} row_view;

typedef struct row_graph {
    hd_arena *arena;
    hd_diags *diags;
    const hir_module *m;     /* k->any, or the program's module, */
    const hir_module *whole; /* which alone has all operands of k->op */
    const hcg_kernel *k;
    const row_stage_ops *stage; /* a prologue or epilogue; NULL: the whole body */
    bool apart; /* results that overwrite an input are computed in scratch, then copied */
    HD_VEC(row_node) nodes;
    HD_VEC(row_buffer) buffers;
    HD_VEC(row_table) tables;
    HD_VEC(row_sum) sums;
    row_view **views;   /* per value of the module; those from outside are made when first read */
    row_total **totals; /* per value of the module; NULL: it is no sum over tokens */
    uint32_t *weights;  /* per weight of the module: its node, or HIR_NONE */
    bool has_t;         /* the kernel runs over tokens */
} row_graph;

static inline row_node *row_at(const row_graph *g, uint32_t node) {
    return &g->nodes.at[node];
}

/* Makes nodes of a body, or of a prologue or epilogue of one; each value that leaves it gets a
 * producer that stores it. False after a diagnostic. */
bool row_build(row_graph *g);
/* A dim of a type, or the start of a slice, as a size. */
row_size row_dim(const row_graph *g, int64_t dim);
/* The row shape of a type. place[i] is the row dim of type dim i; -1 for T and dims of size 1. */
row_shape row_squeeze(const row_graph *g, hir_type type, int *place);
row_size row_type_elements(const row_graph *g, hir_type type); /* number of elements of a row */
/* The type of a value in a prologue or epilogue: that of one head, if it is made of heads. */
hir_type row_type_of(const row_graph *g, hir_ref r);
bool row_is_by_head(const row_graph *g, hir_ref r);
/* A buffer for a node's own elements, in row-major order, if it has none yet. */
void row_store(row_graph *g, uint32_t node);
/* The number that decides whether a sum is computed; NULL: it always is. */
static inline const row_ref *row_when(const row_node *n) {
    return n->kind == ROW_REDUCE && n->n_args > 1 ? &n->args[1] : NULL;
}
/* A reduction that vectors run along: its lanes are partial sums. */
static inline bool row_along_lanes(const row_node *n) {
    return n->kind == ROW_REDUCE && n->last;
}

#endif
