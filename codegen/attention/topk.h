/* Top-k selection: the k best of a stream of scores, without storing all of them.
 *
 * Scores become keys, i32 in the same order: the bits of x + 0 (so that -0 is 0), those of a
 * negative number inverted but for the sign, NaN the least of all. Candidates are kept with their
 * rows in rising order. When there are 2 k of them or more, all but the k best are dropped, and
 * from then on only keys greater than the least of these are taken: of equal keys the earlier row
 * stays.
 *
 * The least key that is kept begins with the bits that all candidates begin with, and its other
 * bits are found one by one: t becomes t + 2^b if at least k keys are not less than that. So a
 * selection costs at most 32 passes of comparisons of vectors, whatever the scores are, and it does
 * not depend on how the stream was cut. Candidates are taken and kept as vectors where the level
 * can compress selected lanes; elsewhere one by one, except for vectors of which none is taken.
 */
#ifndef HCG_TOPK_H
#define HCG_TOPK_H

#include "codegen/emit/emit.h"

enum { HCG_OFFERED = 256 }; /* the most scores that are offered at once */

typedef struct hcg_best {
    int64_t k;
    LLVMValueRef keys, rows; /* scratch, i32: keys and rows of the candidates */
    LLVMValueRef state;      /* scratch, i64: how many; the least key that is taken */
} hcg_best;

hcg_best hcg_new_best(hcg_emit *e, int64_t k); /* takes scratch */
void hcg_best_start(hcg_emit *e, const hcg_best *c);
/* Offers scores[0 .. count) of the rows from `first` on; count <= HCG_OFFERED. They may be read up
 * to whole vectors. */
void hcg_best_offer(hcg_emit *e, const hcg_best *c, LLVMValueRef scores, LLVMValueRef first,
                    LLVMValueRef count);
/* Selects the rows first .. first + count - 1, count <= k, whatever their scores are. */
void hcg_best_all(hcg_emit *e, const hcg_best *c, LLVMValueRef first, LLVMValueRef count);
/* Drops all but the k best; returns how many are selected, in c->rows. */
LLVMValueRef hcg_best_end(hcg_emit *e, const hcg_best *c);

/* hrt_list_range */
LLVMValueRef hcg_list_range(hcg_emit *e, LLVMValueRef rows);
/* A loop that runs once if the i1 holds, else never. */
hcg_loop hcg_once_if(hcg_emit *e, LLVMValueRef condition, const char *name);

#endif
