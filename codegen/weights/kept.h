/* Groups that keep the codes of the checkpoint: its integers of 4 and 8 bits, MXFP4 and NVFP4 are
 * stored in a type that has equivalent codes (docs/weight-types.md). Nothing is searched, and only
 * scales are rounded.
 *
 *     checkpoint            stored as   w
 *     MXFP4                 mxfp4       as it is
 *     NVFP4                 nvfp4       as it is, the factor in f32
 *     int4: (q - z) s       q4          s q + m, m = -z s
 *     int4, int8            q8          s (q - z)
 *
 * The layout in the file does not matter (support/packed/integers.c), except that integers whose
 * columns are assigned to groups by an explicit order are not kept.
 *
 * s and m are those of the checkpoint, rounded to the nearest f16. A group of integers keeps its
 * codes if that changes no weight by more than a sixteenth of s; with scales in bf16 and zero
 * points in the middle nothing changes at all, for scales from 2^-14 on. Other groups are rounded
 * like any numbers (quant.h), as are groups in q8 where |q - z| exceeds 127. */
#ifndef HCG_KEPT_H
#define HCG_KEPT_H

#include "codegen/weights/quant.h"
#include "support/tensorfile.h"

/* May rows of t hold groups that keep their codes in `dtype`? */
bool hcg_may_keep(const hd_tensor *t, hir_dtype dtype);
/* The group from element `first` of such a tensor of integers or NVFP4. False: the group has to be
 * rounded; of NVFP4 the whole panel. */
bool hcg_keep_group(const hd_tensor *t, hir_dtype dtype, uint64_t first, hcg_group *out);
/* Makes the panel of rows first .. of such a tensor, [N, K]. `rows`: memory for HIR_PANEL groups.
 * False: a number cannot be stored; a panel in mxfp4 or nvfp4 must then be rounded as a whole.
 */
bool hcg_make_kept(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows, uint8_t *out);

#endif
