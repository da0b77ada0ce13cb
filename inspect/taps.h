/* Taps: the values of a residual system that a run can store, found by the data flow of the graph
 * (depth_flow.h) and named by their place over depth, "output.3". Sublayers are counted from 1, as
 * in the depth map; what the head reads is "input.head". */
#ifndef INSPECT_TAPS_H
#define INSPECT_TAPS_H

#include "passes/analysis/depth_flow.h"

typedef enum tap_kind {
#define T(id, name, shows) TAP_##id,
#include "inspect/taps.def"
    TAP_KINDS
} tap_kind;

typedef struct tap {
    tap_kind kind;
    uint32_t at;          /* a sublayer, from 1; the number of sublayers + 1: the head. Of a source:
                           * its number, from 0 */
    uint32_t part, parts; /* part 1 to `parts` of what has several, such as streams; 1 of 1 */
    const char *name;     /* "output.3", "stream.3.2", "input.head", "source.0" */
    const char *label;    /* of a source: what is in it, "e", "1-4"; else NULL */
    hir_ref value;
    /* Its elements in a row of the value: n of them, every `stride`-th from `first` on. All of the
     * row if parts is 1. */
    int64_t first, stride, n;
    uint32_t shown;        /* index in taps.values */
    bool stored, measured; /* which results are made of it */
} tap;

typedef struct taps {
    const char *model;
    uint32_t sublayers;
    const char **names;     /* of sublayers, by sublayer - 1; then that of the head */
    HD_VEC(tap) list;       /* by kind, then by depth, then by part */
    HD_VEC(hir_ref) values; /* set by taps_keep: each value once */
} taps;

/* Finds all taps of a graph. False, and a diagnostic: it has no residual stream, or passes have
 * lowered it. */
bool taps_find(const hir_module *m, hd_arena *a, hd_diags *d, taps *out);

/* Marks as stored the taps that a list names, such as "output.*,stream.1-4,mix.head". False, and a
 * diagnostic: the list has an error, or names what the model lacks. */
bool taps_store(taps *x, const char *list, hd_arena *a, hd_diags *d);
void taps_measure(taps *x);           /* marks those whose RMS by depth is shown */
void taps_keep(taps *x, hd_arena *a); /* drops the taps without a mark, and lists the values */

/* Adds the values as outputs of the module (or of a clone of it), after the others. Value i is
 * called taps_output_name(i); no output or trace of a spec can have such a name. */
bool taps_add_outputs(const taps *x, hir_module *m, hd_diags *d);
const char *taps_output_name(uint32_t i, hd_arena *a);
bool taps_is_output(const char *name);

/* Which taps there are, "input.1 to input.24, input.head; output.1 to output.24; ..". */
const char *taps_text(const taps *x, hd_arena *a);
uint64_t taps_bytes(const taps *x, const hir_module *m, int64_t rows); /* of the values, in f32 */

#endif
