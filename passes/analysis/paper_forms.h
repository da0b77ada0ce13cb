/* The closed forms of the Attention Residuals paper (arXiv 2603.15031, Table 1): memory traffic of
 * the residual mechanism per token per sublayer, for comparison with the ledger. The paper charges
 * every block with all N sources, and for Full AttnRes it counts the keys and the values of a
 * source separately, though they are the same; it omits the layer inputs and the output's mix. One
 * row here is not in the paper's table: Block AttnRes charged with the sources that a block really
 * has.
 */
#ifndef HIR_PASSES_PAPER_FORMS_H
#define HIR_PASSES_PAPER_FORMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hir_paper_parameters {
    double sublayers, blocks, per_block, streams; /* L, N, S, m */
} hir_paper_parameters;

typedef enum hir_paper_kind { /* of model */
                              PAPER_ANY,
                              PAPER_STREAMS,
                              PAPER_FULL,
                              PAPER_BLOCK
} hir_paper_kind;

typedef struct hir_paper_form {
    const char *key, *name;
    const char *formula; /* formula of the total, in units of d */
    /* read and write: traffic in units of d; elements: the traffic that does not grow with d, in
     * elements */
    double (*read)(hir_paper_parameters p);
    double (*write)(hir_paper_parameters p);
    double (*elements)(hir_paper_parameters p); /* NULL: there is none */
    hir_paper_kind of;
} hir_paper_form;

size_t hir_paper_forms(const hir_paper_form **out);

#endif
