/* Building the graph of a row program (private to graph/node.c, move.c, position.c and graph.c).
 * Functions that return bool return false after a diagnostic. */
#ifndef HCG_ROW_BUILD_H
#define HCG_ROW_BUILD_H

#include "codegen/rowwise/graph/graph.h"

bool row_unsupported(row_graph *g, const hir_op *op, const char *why); /* always false */

/* ---- rowwise/graph/node.c -------------------------------------------------------------------- */
uint32_t row_add_node(row_graph *g, row_kind kind, const hir_op *op, row_shape shape,
                      uint32_t n_args);
void row_set_arg(row_graph *g, uint32_t node, uint32_t i, row_ref ref);
uint32_t row_add_buffer(row_graph *g, row_buffer b);
uint32_t row_add_memory(row_graph *g, const hir_op *op, uint32_t buffer, bool token_free);
/* A copy of a view, computed where it is read unless it gets a buffer. */
uint32_t row_add_copy(row_graph *g, const hir_op *op, row_shape shape, row_ref of);
/* Makes a buffer of `shape` whose producers are still to be added; and adds a producer, which
 * writes its elements at `to`. */
uint32_t row_add_filled(row_graph *g, const hir_op *op, const row_shape *shape,
                        uint32_t n_producers);
void row_add_producer(row_graph *g, uint32_t memory, uint32_t producer, row_index to);
/* `ref`, which is over the dims of a view, as a reference over other dims: map[i] gives dim i of
 * the view. */
row_ref row_through(const row_graph *g, const row_ref *ref, const row_index *map);
/* Element number in the buffer of the node that `ref` reads. */
row_index row_linear(const row_graph *g, const row_ref *ref);

row_view row_make_view(const row_graph *g, hir_type type, row_ref ref);
row_view row_view_buffer(const row_graph *g, uint32_t memory,
                         hir_type type); /* its elements in order, as `type` */
row_view row_view_node(row_graph *g, uint32_t node, hir_type type);
/* The view of an operand, made at its first use if it comes from outside. */
bool row_view_of(row_graph *g, const hir_op *reader, hir_ref ref, row_view *out);

/* ---- rowwise/graph/move.c -------------------------------------------------------------------- */
/* x stretched to `type` by the rules of elementwise ops: dims aligned at the right. */
row_ref row_broadcast(row_graph *g, const row_view *x, hir_type type);
row_view row_transposed(row_graph *g, const hir_op *op, const row_view *x, hir_type type);
/* Elements from `start` on along `axis`, as many as `type` has. */
row_view row_sliced(row_graph *g, const row_view *x, uint32_t axis, row_size start, hir_type type);
/* x laid out in memory, its elements in order. */
row_view row_in_memory(row_graph *g, const hir_op *op, const row_view *x);
row_view row_strided(row_graph *g, const row_view *x, uint32_t axis, row_size start, int64_t step,
                     hir_type type); /* the same for elements `step` apart in x */
row_view row_reshaped(row_graph *g, const hir_op *op, row_view x, hir_type type);
bool row_side_by_side(row_graph *g, const hir_op *op, hir_type type,
                      row_view *out); /* stack, concat */

/* ---- rowwise/graph/graph.c ------------------------------------------------------------------- */
bool row_selection(row_graph *g, const hir_op *op, hir_type type, row_view *out);

/* ---- rowwise/graph/totals.c ------------------------------------------------------------------ */
/* Is what the op makes a sum over tokens? */
bool row_makes_total(const row_graph *g, const hir_op *op);
bool row_make_total(row_graph *g, const hir_op *op);
/* Gives `value`, a sum over tokens, out as `result`; with `adds` it is added to what is there. */
void row_give_total(row_graph *g, const hir_op *op, hir_id value, hir_ref result, bool adds);

/* ---- rowwise/graph/position.c ---------------------------------------------------------------- */
bool row_gather(row_graph *g, const hir_op *op, hir_type type, row_view *out);
bool row_rope_table(row_graph *g, const hir_op *op, hir_type type, row_view *out);
bool row_rope(row_graph *g, const hir_op *op, hir_type type, row_view *out);

#endif
