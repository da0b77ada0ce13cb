/* Profiling the session of an open library. */
#ifndef API_PROFILE_H
#define API_PROFILE_H

#include "api/library.h"
#include "inspect/profile.h"

/* For the open session of a library. */
profile *api_profile_new(hd_arena *a, const api_library *l, int threads);
/* Before and after a call of n tokens behind `past` others, n rows of logits wanted. */
bool api_profile_start(profile *p, api_library *l, int64_t n);
void api_profile_end(profile *p, int64_t n, int64_t past);

#endif
