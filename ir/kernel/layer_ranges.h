/* The layer ranges (`runs`) of a pipeline stage (passes/shard/shard_pipeline.c): the messages that
 * each receives, what it computes from them, and the messages that it sends on.
 *
 * With several ranges the stage has several chunks of a call in flight at once, each between two of
 * its ranges (runtime/pipeline.h). A value that one range leaves for a later one is *kept*: each
 * chunk in flight has a place for it. So is what is received, since a stage may receive for one
 * chunk before it has sent the result of another. */
#ifndef HIR_LAYER_RANGES_H
#define HIR_LAYER_RANGES_H

#include "ir/ir.h"

/* Kernels by number, in the order of the text without outputs. In a module of kernel IR that the
 * schedule pass has made, [first, work) receive, [send, end) send, and no other kernel does. */
typedef struct hir_layer_range {
    uint32_t first, work, send, end;
} hir_layer_range;

typedef struct hir_runs {
    HD_VEC(hir_layer_range) list; /* in order, of all kernels; one where nothing is received */
} hir_runs;

/* HIR_COMM_SEND_OP or HIR_COMM_RECV_OP if the kernel is such a message; else HIR_OPCODE_COUNT. */
hir_opcode hir_message_of(const hir_module *m, hir_id kernel);

/* Finds the layer ranges. One begins with the first message that is received after one was sent. */
hir_runs hir_find_layer_ranges(hd_arena *a, const hir_module *m);

/* The layer range of a kernel. */
uint32_t hir_layer_range_of(const hir_runs *runs, uint32_t kernel);

#endif
