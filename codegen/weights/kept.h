/* Groups that keep the codes of the checkpoint: its integers of 4 and 8 bits, and MXFP4, stored in
 * a type that has codes like theirs (docs/weight-types.md). Nothing is searched and nothing is
 * rounded but scales.
 *
 *     checkpoint            stored as   w
 *     MXFP4                 mxfp4       as it is
 *     int4: (q - z) s       q4          s q + m, m = -z s
 *     int4, int8            q8          s (q - z)
 *
 * however they lie in the file (support/packed/integers.c), but for those whose columns are in
 * groups by an order of their own.
 *
 * s and m are those of the checkpoint to the nearest f16. A group of integers keeps its codes if
 * that moves no weight by more than a sixteenth of s; with scales in bf16 and zero points in the
 * middle nothing moves at all, from 2^-14 on. Others are rounded like any numbers (quant.h): q8
 * also where q - z is beyond 127 in size. */
#ifndef HCG_KEPT_H
#define HCG_KEPT_H

#include "codegen/weights/quant.h"
#include "support/tensorfile.h"

/* Do rows of t hold groups that may keep their codes in `dtype`? */
bool hcg_may_keep(const hd_tensor *t, hir_dtype dtype);
/* The group from element `first` of such a tensor of integers. False: it is rounded. */
bool hcg_keep_group(const hd_tensor *t, hir_dtype dtype, uint64_t first, hcg_group *out);
/* The panel of rows first .. of such a tensor, [N, K]. `rows`: room for HIR_PANEL groups. False: a
 * number that cannot be stored so; all of a panel in mxfp4 is to be rounded then. */
bool hcg_make_kept(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows, uint8_t *out);

#endif
