/* The depth map: which sublayer reads which sources, where the residual blocks begin, and which
 * kernels do the reading. */
#ifndef INSPECT_DEPTH_MAP_H
#define INSPECT_DEPTH_MAP_H

#include "inspect/views.h"
#include "passes/analysis/depth_flow.h"

typedef struct depth_map_reads {       /* how a kernel makes a sublayer's input */
    hir_id kernel;                     /* HIR_NONE: not known */
    uint32_t direct, partial, phase_1; /* reads of sources, of partial mixes, in phase 1 */
    uint32_t streams;                  /* of mixes that go on past a sublayer */
} depth_map_reads;

typedef struct depth_map_phase_1 { /* phase 1 of one residual block */
    hir_id kernel;                 /* HIR_NONE: the block has no phase 1 */
    uint32_t sources, mixes;
} depth_map_phase_1;

typedef struct depth_map_row { /* a sublayer, or the output of the model */
    uint32_t sublayer;         /* counted from 1; 0: the output of the model */
    uint32_t block;
    const char *name;
    const char **sources;     /* "e" (the embedding), "3", "1-4", in order of making */
    size_t n_sources, shared; /* all sublayers of the block read the first `shared` ones */
    depth_map_reads reads;
} depth_map_row;

typedef struct depth_map {
    const hir_module *module; /* the module that has the kernels */
    const char *name;
    const char *passes;  /* sublayers by pass; NULL: every layer runs once */
    size_t sublayers;    /* 0: the model has no residual stream */
    size_t longest_name; /* of all names of sublayers, in bytes */
    uint32_t n_blocks, longest_block;
    hir_flow_reads source_reads;
    bool scheduled;             /* the kernels are known: `reads` of rows and `phase_1` are set */
    depth_map_phase_1 *phase_1; /* by residual block, from 1 */
    HD_VEC(depth_map_row) rows;
} depth_map;

bool depth_map_collect(const inspect_subject *s, depth_map *out);
void depth_map_text(const depth_map *x, hd_text *out);
void depth_map_json(const depth_map *x, hd_text *out);

#endif
