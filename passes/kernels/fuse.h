/* The fuse pass: grouping (fuse.c, fuse_groups.c) decides which op goes into which kernel; building
 * (fuse_build.c) creates the kernels; fuse_loss.c makes those of the loss. */
#ifndef HIR_PASSES_FUSE_H
#define HIR_PASSES_FUSE_H

#include "passes/util.h"

typedef enum fuse_kind {
    FUSE_NONE,   /* not a top-level op, or dead */
    FUSE_COPIED, /* const, reshape, and cheap values without T: rematerialised in every kernel that
                    uses them */
    FUSE_FIXED,  /* without T: in a row program that runs once */
    FUSE_ROW,
    FUSE_CONTRACT, /* linear, or an op of its epilogue */
    FUSE_BLOCKS,   /* block_linear */
    FUSE_COMM,     /* communication between ranks */
    FUSE_LOSS,     /* cross_entropy, its parts, their merge: fuse_loss.c makes their kernels */
    FUSE_SEQUENCE,
    FUSE_OUTPUT,
} fuse_kind;

enum { FUSE_TILE = -1 }; /* fuse_node.heads: its result goes through elementwise ops only */

typedef struct fuse_node { /* of an op */
    fuse_kind kind;
    uint32_t order; /* position in the program */
    uint32_t phase; /* see fuse.c */
    uint32_t group; /* index into fuse.groups */
    hir_id root;    /* op of a per-head epilogue: its linear op; else HIR_NONE */
    bool late;     /* FUSE_FIXED: it needs what an earlier kernel has summed over tokens; `after` */
    bool sum;      /* FUSE_ROW: a sum over tokens */
    int64_t heads; /* linear: heads of its per-head epilogue; 0: it has none */
} fuse_node;

typedef struct fuse_group { /* becomes a kernel */
    fuse_kind kind;
    uint32_t phase;
    uint32_t same_x;    /* contraction: an older group that reads the same value, HIR_NONE */
    hir_ref x;          /* contraction: the shared operand */
    hir_id gradient;    /* sequence of gradients: its first; else HIR_NONE */
    bool epilogue;      /* sequence: elementwise ops may follow */
    hir_id experts;     /* contraction of experts: its first product; else HIR_NONE */
    uint32_t mixes;     /* row program: mixes over depth in it */
    uint32_t after;     /* row program: the one that does the rest of its phase, HIR_NONE */
    HD_VEC(hir_id) ops; /* in program order; of a contraction: prologue, linear ops, epilogue */
} fuse_group;

/* How often each kernel reads a value: a hash table, since a residual stream that keeps all its
 * sublayers has values that all later ones read. Each value has a table of its own, so that a walk over
 * the program reads memory in order. */
typedef struct fuse_reader {
    uint32_t kernel;
    uint32_t n : 31, taken : 1;
} fuse_reader;
typedef struct fuse_kernels {
    fuse_reader *slot;
    uint32_t mask, taken; /* slots - 1; one of them at least is free, where a search ends */
} fuse_kernels;

typedef struct fuse_readers {
    fuse_kernels *by;    /* by value: the kernels that read it */
    uint32_t *all;       /* by value: its reads, outputs among them */
    uint32_t *first_arg; /* by op: where its operands begin in `times` */
    uint32_t *times; /* by operand: how often the op reads its value; 0: one before is the same */
} fuse_readers;

typedef struct fuse_left { /* a row op whose users are in one later row program */
    hir_id op;
    uint32_t from;  /* its kernel */
    uint32_t phase; /* of that program, where computing it does not pay */
} fuse_left;

typedef struct fuse {
    hir_pass_context *c;
    hir_module *m;
    size_t n_ops;           /* before kernels were created */
    HD_VEC(hir_id) program; /* ops in program order */
    bool gradients;         /* the module has its gradients: what takes targets is like any op */
    fuse_node *node;        /* by op */
    HD_VEC(fuse_group) groups;
    uint32_t front;           /* highest phase of a row op so far */
    uint32_t last;            /* the same of an op that runs once, after sums over tokens */
    uint32_t sent;            /* phase of the last send or recv so far */
    uint32_t *last_with_x;    /* by value: newest contraction group that reads it */
    bool *given_out;          /* by value: an output names it */
    hir_uses uses;            /* by base value: its users, looking through reshapes */
    fuse_readers readers;     /* how many of them each kernel has */
    HD_VEC(fuse_left) left;   /* by sinking */
    uint32_t *seen;           /* by value: 1 + the last row program found to read it */
    HD_VEC(uint32_t) kernels; /* groups, in the order of their kernels */
} fuse;

/* The value that a chain of reshapes views. */
hir_ref fuse_base(const fuse *f, hir_ref r);
/* The node of the op that defines a value; NULL for inputs, weights and states. */
fuse_node *fuse_node_of(const fuse *f, hir_ref r);

/* First phase whose row program can read a value. */
uint32_t fuse_phase_for_rows(const fuse *f, hir_ref r);
void fuse_place(fuse *f, hir_id op, fuse_kind kind, uint32_t phase, uint32_t group);
/* Moves an op into the row program of a phase, when the readers of each value are known. */
void fuse_move_to_rows(fuse *f, hir_id op, uint32_t phase);
/* Places an op without T: it runs once, before all that reads it, and after what it reads. */
void fuse_place_once(fuse *f, hir_id op);
uint32_t fuse_new_group(fuse *f, fuse_kind kind, uint32_t phase);
uint32_t *fuse_no_groups(fuse *f, uint32_t n);   /* n times HIR_NONE */
int64_t fuse_row_size(const fuse *f, hir_ref r); /* bytes of a row */
/* The consequence of a fusion that is not possible: `r` goes through memory. */
const char *fuse_through_memory(const fuse *f, hir_ref r);

void fuse_sink(fuse *f);
void fuse_make_groups(fuse *f);
bool fuse_build(fuse *f);

/* ---- fuse_gradients.c ---- */
/* Before anything is grouped: gradients in the form that their kernels make. */
bool fuse_gradients(hir_pass_context *c);

/* ---- fuse_sums.c ---- */
/* When all ops have sunk: sums over tokens move into row programs that have their rows. Do any? */
bool fuse_sums(fuse *f);
/* When the operands of a sum of sums have their row programs: if it has two, the sum is made after
 * them. */
void fuse_keep_sum_whole(fuse *f, hir_id op);

/* ---- fuse_loss.c ---- */
/* Gives the loss of a model, which is a kernel that reads its logits, kernels of its own. */
bool fuse_loss(hir_pass_context *c);

#endif
