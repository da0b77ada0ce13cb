/* Numbers for tokens whose texts are alike. N-gram tables of published models (Engram) do not tell
 * apart what differs in case, accents, compatible forms and white space at the ends. */
#ifndef TEXT_FOLDED_H
#define TEXT_FOLDED_H

#include "support/diag.h"

typedef struct text_folds {
    const int32_t *of; /* by id: its number, counted in the order of the ids */
    int32_t ids, numbers;
} text_folds;

/* Of all ids of the folder's tokenizer.json. False and diagnostics if it cannot be read. */
bool text_fold_tokens(hd_arena *a, hd_diags *d, const char *folder, text_folds *out);

#endif
