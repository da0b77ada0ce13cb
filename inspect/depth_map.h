/* The depth map: which sublayer reads which sources, where the blocks begin, and which kernels do
 * it. */
#ifndef INSPECT_DEPTH_MAP_H
#define INSPECT_DEPTH_MAP_H

#include "inspect/views.h"
#include "passes/analysis/depth_flow.h"

typedef struct depth_map_reads {       /* of the kernel that makes a sublayer's input */
    hir_id kernel;                     /* HIR_NONE: not known */
    uint32_t direct, partial, phase_1; /* sources alone, partial mixes, sources with phase 1 */
} depth_map_reads;

typedef struct depth_map_phase_1 { /* of one block */
    hir_id kernel;                 /* HIR_NONE: there is none */
    uint32_t sources, mixes;
} depth_map_phase_1;

typedef struct depth_map_row { /* a sublayer, or the output */
    uint32_t sublayer;         /* from 1; 0: the output */
    uint32_t block;
    const char *name;
    const char **sources;     /* "e", "3", "1-4", in order of making */
    size_t n_sources, shared; /* the first `shared` are read by all of the block */
    depth_map_reads reads;
} depth_map_row;

typedef struct depth_map {
    const hir_module *module; /* whose kernels they are */
    const char *name;
    size_t sublayers;    /* 0: there is no stream */
    size_t longest_name; /* of a sublayer, in bytes */
    uint32_t n_blocks, longest_block;
    hir_flow_reads source_reads;
    bool scheduled;             /* the kernels are known: `reads` of rows, and `phase_1` */
    depth_map_phase_1 *phase_1; /* by block, from 1 */
    HD_VEC(depth_map_row) rows;
} depth_map;

bool depth_map_collect(const inspect_subject *s, depth_map *out);
void depth_map_text(const depth_map *x, hd_text *out);
void depth_map_json(const depth_map *x, hd_text *out);

#endif
