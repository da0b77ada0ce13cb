/* The ledger: reads and writes of the residual mechanism, per token, counted from the IR itself.
 *
 * In kernel IR each kernel is charged with its access set: the values of the mechanism that it
 * reads from other kernels, and those that it writes, each once per token. At earlier IR stages
 * each op is charged with its operands and its result, as if it ran alone. Views are free; values
 * that are the same for every token (pseudo-queries, gains) are counted separately, per call. The
 * sublayers' own traffic is excluded: layer inputs as contractions read them, and the one write of
 * the output of a sublayer or of the embedding (if the contraction adds to a sum in its epilogue,
 * the write of the sum).
 *
 * The unit is d: a row of the stream in f32.
 */
#ifndef HIR_PASSES_LEDGER_H
#define HIR_PASSES_LEDGER_H

#include "passes/analysis/depth_flow.h"

typedef enum hir_phase {
#define L(id, name, charged, paper, meaning) HIR_PHASE_##id,
#include "passes/analysis/ledger_phases.def"
#undef L
    HIR_PHASE_COUNT
} hir_phase;
const char *hir_phase_name(hir_phase p);
bool hir_phase_is_charged(hir_phase p);
bool hir_phase_is_in_paper(hir_phase p); /* Table 1 of the paper (paper_forms.h) counts it */

typedef struct hir_access {
    hir_id op;    /* a kernel, or before the kernel stage an op */
    hir_id value; /* as the operand or result of the op */
    bool write;
    hir_phase phase;
    hir_flow_kind kind;
    hir_dtype dtype;
    uint64_t bytes;    /* per token */
    uint32_t sublayer; /* sublayer that it belongs to; HIR_FLOW_RESULT: the output */
    uint32_t block;
} hir_access;

typedef struct hir_traffic {
    uint64_t read, written; /* bytes per token */
} hir_traffic;

typedef struct hir_ledger {
    hir_flow flow;
    uint32_t sublayers;
    uint64_t unit; /* bytes of a row of the stream in f32 */
    HD_VEC(hir_access) accesses;
    hir_traffic phase[HIR_PHASE_COUNT];
    hir_traffic total; /* all that is charged */
    hir_traffic paper; /* what Table 1 of the paper charges: without layer inputs and the output */
    uint64_t fixed_bytes; /* weights that the mechanism reads once per call */
} hir_ledger;

void hir_ledger_find(const hir_module *m, hd_arena *a, hir_ledger *out);
/* The same bytes in a time that grows with the operands of the program: blocks and lists of sources
 * are left out (hir_flow_find_brief). */
void hir_ledger_find_totals(const hir_module *m, hd_arena *a, hir_ledger *out);
/* Sets the unit and the number of sublayers of l to those of the model as it was loaded; l is the
 * same model after some passes. Small matrices that became row operations are no longer borders of
 * sublayers, but the model still has as many sublayers. */
void hir_ledger_count_as(hir_ledger *l, const hir_ledger *loaded);

/* Before the kernel stage: what Table 1 of the paper charges if a multiplication and the sum over
 * its products count as one operation (ledger_products.c). */
typedef struct hir_products {
    hir_traffic rows;    /* rows of the stream */
    hir_traffic between; /* of these, the traffic between two sublayers: without what comes before
                            the first */
    hir_traffic numbers; /* traffic that does not grow with d */
} hir_products;
hir_products hir_ledger_products(const hir_ledger *l, const hir_module *m, hd_arena *a);

/* `bytes` in units of d per sublayer */
double hir_ledger_units(const hir_ledger *l, uint64_t bytes);

#endif
