/* The taps of a run: which are wanted, and what becomes of the values. */
#ifndef API_TAPS_H
#define API_TAPS_H

#include "api/session.h"

/* Sets s->taps to those that the options of the passes ask for, or to NULL; false, and a
 * diagnostic, if the model lacks one. They are found in the graph as loaded. */
bool api_choose_taps(hadal_session *s, const hadal_pipeline *p);
/* Adds the values of s->taps, if there are any, as outputs of a clone of the graph. */
bool api_add_taps(hadal_session *s, hir_module *m);

/* How many bytes a run of so many rows holds for the taps. False, and a diagnostic, if that is more
 * than `memory` bytes (api_memory: of this machine); a note if it is much. */
bool api_check_taps(hadal_session *s, int64_t rows, uint64_t memory);
uint64_t api_memory(void);

/* Rows of the values of the taps, by their index (taps.values). */
typedef struct api_tapped {
    const float **at;
    int64_t rows;
} api_tapped;
/* Writes the stored taps to a .safetensors file (NULL: none). */
bool api_write_taps(hadal_session *s, const api_tapped *x, const char *path);
/* Sets s->by_depth to the RMS of the measured taps, of no tokens yet, or to NULL if none are. */
void api_start_measuring(hadal_session *s);
/* Adds the rows to s->by_depth, if it is there. */
void api_measure_taps(hadal_session *s, const api_tapped *x);
/* By output of the module m: the index of the value of a tap that it shows; HIR_NONE: of none. */
uint32_t *api_tapped_outputs(hadal_session *s, size_t *n);

#endif
