/* The rows of a table that hashes of the last tokens name: read by ngram, added to by its gradient.
 */
#ifndef HCG_NGRAM_H
#define HCG_NGRAM_H

#include "codegen/emit/emit.h"

enum { HCG_MOST_IDS = 16 }; /* of a context, as the op's type rule has it */

typedef struct hcg_ngram {
    LLVMValueRef ids, window; /* window NULL: the call is the whole sequence */
    const hir_attr *halves, *sizes, *offsets;
    int64_t n, heads;  /* ids of the longest context; rows of a token */
    int64_t end;       /* the id before the start */
    bool ends;         /* a token with that id ends the context, too */
    LLVMValueRef past; /* position of the first token */
} hcg_ngram;

/* All but the operands. */
hcg_ngram hcg_ngram_of(hcg_emit *e, const hir_op *op);
/* The number of each row that token t names, i64 [heads]. */
void hcg_ngram_rows(hcg_emit *e, const hcg_ngram *g, LLVMValueRef t, LLVMValueRef *rows);
LLVMValueRef hcg_ngram_id(hcg_emit *e, const hcg_ngram *g, LLVMValueRef t);

#endif
