/* Which CPU levels a machine runs, and what keeps it from the others. */
#ifndef API_MACHINE_LEVELS_H
#define API_MACHINE_LEVELS_H

#include "api/session.h"
#include "codegen/target/target.h"

typedef struct machine_levels {
    const char *arch;
    uint64_t permitted;  /* features of the CPU that the operating system lets this process use */
    hd_machine facts;    /* as far as they were detected; 0: not known */
    const hcg_level *at; /* the levels of all architectures, of which those of `arch` count */
    size_t n;
} machine_levels;

/* The levels of an architecture on a machine with these features and facts. */
machine_levels machine_levels_of(const char *arch, uint64_t permitted, hd_machine facts);
bool machine_is_of(const machine_levels *x, const hcg_level *level); /* its architecture */
/* Features of the level that the machine lacks, or that its operating system does not permit; 0: the
 * machine runs the level. */
uint64_t machine_lacks(const machine_levels *x, const hcg_level *level);
/* The level of this name that the machine runs; NULL, and a diagnostic: there is none, or the machine
 * lacks something. */
const hcg_level *machine_find_level(hadal_session *s, const machine_levels *x, const char *name);
/* Is bf16 slower than the code of the level assumes? Then libraries pass the level over for a lower
 * one, unless they are told to run it. */
bool machine_passes_over(const machine_levels *x, const hcg_level *level);

void machine_levels_text(const machine_levels *x, hd_text *out);
void machine_levels_json(const machine_levels *x, hd_text *out); /* the member "levels" */

#endif
