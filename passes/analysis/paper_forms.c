/* Table 1 of the Attention Residuals paper as functions of L, N, S and m (paper_forms.h). */
#include "passes/analysis/paper_forms.h"

typedef hir_paper_parameters P;

static double standard_read(P p) {
    (void)p;
    return 2;
}
static double standard_write(P p) {
    (void)p;
    return 1;
}

/* mHC: coefficients, read-out, write-in, mixing and merge of m streams. */
static double mhc_read(P p) {
    const double m = p.streams, coefficients = m, out = m, in = 1, mixing = m, merge = 2 * m;
    return coefficients + out + in + mixing + merge;
}
static double mhc_write(P p) {
    const double m = p.streams, out = 1, in = m, mixing = m, merge = m;
    return out + in + mixing + merge;
}
static double mhc_elements(P p) {
    const double m = p.streams;
    return 2 * m * m + 4 * m;
}

static double full_read(P p) {
    return (p.blocks - 1) + (p.per_block - 1);
}
static double two_writes(P p) {
    (void)p;
    return 2;
}

static double block_read(P p) {
    return p.blocks / p.per_block + 3;
}

/* The same, charged only with the sources that exist: n in block n, (N + 1)/2 on average. */
static double growing_read(P p) {
    return (p.blocks + 1) / (2 * p.per_block) + 3;
}

static const hir_paper_form forms[] = {
    {"standard", "standard residual", "3", standard_read, standard_write, NULL, PAPER_ANY},
    {"mhc", "mHC", "8m + 2", mhc_read, mhc_write, mhc_elements, PAPER_STREAMS},
    {"full", "AttnRes Full, two phases", "S + N", full_read, two_writes, NULL, PAPER_FULL},
    {"block", "AttnRes Block, two phases", "N/S + 5", block_read, two_writes, NULL, PAPER_BLOCK},
    {"block_exact", "Block n with n sources", "(N + 1)/2S + 5", growing_read, two_writes, NULL,
     PAPER_BLOCK},
};

size_t hir_paper_forms(const hir_paper_form **out) {
    *out = forms;
    return sizeof forms / sizeof *forms;
}
