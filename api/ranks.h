/* A divided library among its ranks: what they tell each other beside what the model exchanges. */
#ifndef API_RANKS_H
#define API_RANKS_H

#include "api/library.h"

/* How many processes run the library together; 1: it is not divided. */
int32_t api_ranks(const api_library *l);
/* Stages of the pipeline that it is a stage of; 1: of none. */
int32_t api_stages(const api_library *l);
/* Is this the process that tells what came of it: the first rank of those that have logits, which
 * of a pipeline are the last stage's? */
bool api_is_speaker(const api_library *l);
int32_t api_speaker(const api_library *l);
bool api_has_logits(const api_library *l);
/* Has this rank the first share of its stage? One such rank of each stage is one whole model. */
bool api_is_first_of_stage(const api_library *l, int32_t rank);
/* False and a diagnostic if it is divided and this process is alone. */
bool api_need_ranks(const api_library *l);
int32_t api_ranks_here(const api_library *l); /* processes that there are */
/* all[i] = `mine` of rank i, `size` bytes each; all ranks have to be here. False and a diagnostic
 * if they do not come together. */
bool api_all_gather(api_library *l, const void *mine, void *all, size_t size);
/* The largest of all ranks' numbers: what they decide together. */
bool api_most_of_ranks(api_library *l, int64_t mine, int64_t *most);

#endif
