/* A divided library on its ranks: what the ranks communicate besides the collectives of the
 * model. */
#ifndef API_RANKS_H
#define API_RANKS_H

#include "api/library.h"
#include "hadal/hadal_comm.h"

/* How many processes run the library together; 1: it is not divided. */
int32_t api_ranks(const api_library *l);
/* Number of pipeline stages, if the library is one of them; 1: it is no pipeline stage. */
int32_t api_stages(const api_library *l);
/* Is this process the speaker, which reports the results? It is the first of the ranks that have
 * logits; in a pipeline only the last stage has them. */
bool api_is_speaker(const api_library *l);
int32_t api_speaker(const api_library *l);
bool api_has_logits(const api_library *l);
/* Has this rank the first share of its pipeline stage? One such rank of each stage together make
 * one whole model. */
bool api_is_first_of_stage(const api_library *l, int32_t rank);
/* False, and a diagnostic, if the library is divided and this process is alone. */
bool api_need_ranks(const api_library *l);
int32_t api_ranks_here(const api_library *l); /* number of processes in the job */
/* An all-gather: all[i] = `mine` of rank i, `size` bytes each. All ranks have to call it. False,
 * and a diagnostic, if the collective fails. */
bool api_all_gather(api_library *l, const void *mine, void *all, size_t size);
/* Ranks that train together (hadal_use_ranks); 1 where there is one process. */
int32_t api_training_ranks(const hadal_session *s);
static inline int32_t api_training_rank(const hadal_session *s) {
    return s->comm ? s->comm->rank : 0;
}
static inline bool api_is_first_rank(const hadal_session *s) {
    return api_training_rank(s) == 0;
}
/* An all-gather of what ranks that train together say. False, and a diagnostic: it fails. */
bool api_gather_training(hadal_session *s, const void *mine, void *all, size_t size);
/* Has each of them done what it had to? False, and a diagnostic: one has not, which tells why itself.
 * All call it. */
bool api_all_did(hadal_session *s, bool did);
/* An all-reduce to the maximum: the largest of all ranks' numbers, by which they decide
 * together. */
bool api_most_of_ranks(api_library *l, int64_t mine, int64_t *most);

#endif
