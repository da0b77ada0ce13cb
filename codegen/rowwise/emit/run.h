/* Emission of a scheduled row program (private to emit/). */
#ifndef HCG_ROW_RUN_H
#define HCG_ROW_RUN_H

#include "codegen/rowwise/emit/emit_row.h"

/* A value at the lanes of the current loop: one scalar that is the same for all, or a vector for
 * each unrolled one. */
typedef struct row_pack {
    bool uniform;
    LLVMValueRef v[ROW_UNROLL];
} row_pack;

typedef struct row_memo { /* a value computed in the current scope */
    uint32_t node;
    row_index at[HIR_MAX_RANK];
    row_pack pack;
} row_memo;

typedef struct row_known { /* a remembered splat or row pointer, of which other values are made */
    uint32_t node;
    row_index index;
    LLVMValueRef from, value;
} row_known;

/* The current block of a nest with blocks (schedule.h: row_block). */
typedef struct row_block_at {
    LLVMValueRef kept; /* [elements of the domain without its last dim][sums][lanes], in scratch */
    LLVMValueRef from; /* first element of the block */
    int64_t length;    /* 0: the rest of the row, after which the sums are finished */
    int64_t done;      /* elements of earlier blocks, if length is 0 */
    LLVMValueRef next; /* elements to the next block, of this row or of the next token's; 0: none */
    bool interchanged;
} row_block_at;

/* A root's values that are kept for later nests of the token. */
typedef struct row_made {
    LLVMValueRef scalar; /* of a root of one element */
    LLVMValueRef whole;  /* in a small nest: all elements, row-major */
    LLVMValueRef terms;  /* of a reduction in a small nest: [elements][n_terms]; its readers add
                            the terms */
    uint32_t n_terms;
} row_made;

typedef struct row_size_value { /* a size that depends on N, and its value */
    row_size size;
    LLVMValueRef value;
} row_size_value;

typedef struct row_run {
    hcg_emit *e;
    row_graph *g;
    const row_schedule *s;
    const hcg_row_stage *stage; /* NULL: the program is the whole kernel */
    row_made *made;             /* per node */
    LLVMValueRef *frequencies;  /* per table of the graph */
    LLVMValueRef n;             /* N, once it is loaded */
    HD_VEC(row_size_value) sizes;
    LLVMValueRef token;    /* NULL outside the loop over tokens */
    LLVMValueRef more;     /* i64: 1 if a token follows, else 0 */
    LLVMValueRef position; /* the token's position, as f64 */
    LLVMValueRef head;     /* the head, in a prologue or epilogue that goes head by head */
    bool has_state;
    LLVMValueRef slot, cap;    /* for states: this token's position, and positions of a head */
    LLVMValueRef *state;       /* per buffer: the state of this token's session, ... */
    LLVMValueRef *row, *apart; /* ... the number of the token's row, and rows from head to head */
    LLVMValueRef *base;        /* per buffer: the argument's address */
    LLVMValueRef *pointer;     /* per buffer: the address of this token's row */
    LLVMValueRef *gathered;    /* per buffer: the token's row of a table, once looked up */
    LLVMValueRef *rows;        /* per node: table of row pointers of a ROW_MULTI */
    LLVMValueRef *shift;       /* per node: bytes to add to its row pointers for this token */
    /* the fields of the nest being emitted: */
    const row_nest *nest;
    const row_index *loops;     /* the dims of its roots, as functions of `var` */
    int lane_var;               /* vectors run along it; -1: scalars */
    unsigned unroll;            /* vectors at once */
    LLVMValueRef tail;          /* valid lanes, NULL: all */
    LLVMValueRef var[ROW_VARS]; /* NULL outside their loops; for lanes: the element in lane 0 */
    row_jam jam;                /* rows that this iteration takes */
    LLVMValueRef along;         /* distance in bytes of prefetches in `along_rows`; NULL: none */
    uint32_t along_rows;
    const row_block_at *block; /* NULL: loops along the lanes run over whole rows */
    bool streaming;            /* this version of the nest has non-temporal stores */
    bool has_streamed;         /* some nest has such a version */
    int64_t most_streamed;     /* bytes a token of the nest that so stores most */
    HD_VEC(row_memo) memo;
    HD_VEC(row_known) splats, pointers, next; /* next: rows that are prefetched */
} row_run;

static inline bool row_interchanged(const row_run *r) {
    return r->block && r->block->interchanged;
}

static inline row_made *row_made_of(const row_run *r, const row_node *n) {
    return &r->made[n - r->g->nodes.at];
}

/* Scopes: values computed inside a loop are forgotten at its end. */
typedef struct row_scope {
    size_t memo, splats, pointers, next;
} row_scope;
row_scope row_scope_begin(const row_run *r);
void row_scope_end(row_run *r, row_scope s);

/* The number that `at` is for lane `lane` (counted on through unrolled vectors). */
LLVMValueRef row_number(row_run *r, const row_index *at, int64_t lane);
void row_remember(row_run *r, uint32_t node, const row_index *at, row_pack pack);
/* The node that `ref` leads to, at an index over the loops. */
row_pack row_read(row_run *r, const row_ref *ref, const row_index *loops);
/* Computes a root other than a reduction along the lanes, at the loops' index. */
row_pack row_compute(row_run *r, uint32_t node);
/* Computes and remembers the sums that `n` roots are made of: innermost sums first, and each for
 * all roots before the next. So x0 is multiplied by its weights for all roots, then x1, and so on;
 * no element stays in a register from root to root. */
void row_sum_together(row_run *r, const uint32_t *roots, size_t n);
/* Computes whatever `ref` reads that does not depend on the loops still to be opened. */
void row_hoist(row_run *r, const row_ref *ref, const row_index *loops);
/* Adds an element of the reduction to acc[vector mod chains]; of a reduction along the lanes, where
 * lanes beyond the tail keep their value. `chains` 0: to acc[vector], of another reduction. */
void row_accumulate(row_run *r, const row_node *n, const row_index *loops, uint32_t chains,
                    LLVMValueRef *acc);
LLVMValueRef row_start(row_run *r, const row_node *n); /* what an accumulator starts from */
LLVMValueRef row_combine(row_run *r, const row_node *n, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef row_finish(row_run *r, const row_node *n, LLVMValueRef scalar_or_vector);
/* Makes the instructions that are built next belong to the op of the node. */
void row_at_op(row_run *r, const row_node *n);
/* Writes a root's value to its buffer. */
void row_write(row_run *r, const row_node *n, const row_index *at, const row_pack *pack);

/* ---- loops.c --------------------------------------------------------------------------------- */
typedef struct row_branch {       /* the branch around a nest that runs for some tokens only */
    LLVMBasicBlockRef from, past; /* NULL: the nest runs for all tokens */
    row_scope scope;
} row_branch;
row_branch row_when_begin(row_run *r);
/* Ends the branch: the nest's sums are 0 for tokens that skipped it. */
void row_when_end(row_run *r, const row_branch *b);

/* ---- sums.c ---------------------------------------------------------------------------------- */
/* The program of the tokens from .. to - 1. */
typedef void row_tokens_fn(row_run *r, LLVMValueRef from, LLVMValueRef to);
/* Calls it for parts of the tokens, and makes the sums over tokens of what it adds. */
void row_emit_parts(row_run *r, row_tokens_fn *each_token);

/* ---- lanes.c --------------------------------------------------------------------------------- */
/* All elements along the vectors' dim at the current index of the other loops, or the current block
 * of them, for r->jam rows. */
void row_emit_lanes(row_run *r);

/* ---- reduce.c -------------------------------------------------------------------------------- */
row_pack row_reduce(row_run *r, const row_node *n); /* a reduction that is not along the lanes, at
                                                       the loops' index */
/* Is the node a product that is computed on the spot, or in the present nest? Then what adds it adds
 * its factors' product unrounded, whether or not it is stored or read by others besides. */
bool row_may_fuse(const row_run *r, const row_node *n);
/* May a sum of two values be fused with a product that is one of them? Whether the product is at hand
 * depends on what the kernel stores. With gradients, where an op may be computed once more by another
 * kernel, and has the same bits there, it may not. */
static inline bool row_fuses_adds(const row_run *r) {
    return !hcg_has_gradients(r->e->p);
}
/* If `ref` reads such a product: its factors, for a fused add. */
bool row_product(row_run *r, const row_ref *ref, const row_index *loops, row_pack *a, row_pack *b);
unsigned row_width(const row_run *r, bool all_uniform);
LLVMValueRef row_vector(row_run *r, const row_pack *p, bool all_uniform, unsigned u);

/* ---- where.c --------------------------------------------------------------------------------- */
void row_find_bases(row_run *r);       /* addresses of all buffers, before the loop over tokens */
void row_make_tables(row_run *r);      /* tables of row pointers, where the same for all tokens */
LLVMValueRef row_position(row_run *r); /* the position of this token, i64 */
void row_find_states(row_run *r);      /* this token's, or its session's */
void row_find_rows(row_run *r);        /* the rows of this token, or of this head of it */
void row_advance_tables(row_run *r);
LLVMValueRef row_i64(row_run *r, row_size size);      /* the value of a shape, stride or offset */
LLVMValueRef row_scratch(row_run *r, row_size bytes); /* new scratch, of the greatest size it may
                                                         need */

/* ---- small.c --------------------------------------------------------------------------------- */
void row_emit_small(row_run *r, const row_nest *nest);

/* ---- selection.c ---------------------------------------------------------------------------- */
void row_emit_selection(row_run *r, const row_node *n);

/* ---- prefetch.c ------------------------------------------------------------------------------ */
/* The row to prefetch where iterations read row `at` of ROW_MULTI `node`, which begins at `row`;
 * found before the loop along the lanes. */
void row_prefetch_find(row_run *r, uint32_t node, const row_index *at, LLVMValueRef row);
/* Sets `along` for the loop of a team that is emitted next. */
void row_prefetch_along(row_run *r, const row_team *t);
/* Emits the prefetches that belong to the load of element `element` of row `at`, from `here`.
 */
void row_prefetch_issue(row_run *r, uint32_t node, const row_index *at, LLVMValueRef element,
                        LLVMValueRef here);

/* ---- nontemporal.c --------------------------------------------------------------------------- */
/* i1: shall the stores of this nest be non-temporal? NULL: never. */
LLVMValueRef row_stream_when(row_run *r, const row_nest *nest);
/* Stores all unrolled vectors non-temporally, from `p` on; false: plain stores are needed. */
bool row_stream_store(row_run *r, const row_node *n, LLVMValueRef p, const LLVMValueRef *v);
void row_stream_end(row_run *r); /* at the end of the kernel */

#endif
