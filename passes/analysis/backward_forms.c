/* The closed forms of the backward half as functions of L, N and S (backward_forms.h). */
#include "passes/analysis/backward_forms.h"

typedef hir_paper_parameters P;

static double standard(P p) {
    (void)p;
    return 3;
}
static double block_single(P p) {
    return 3 * p.blocks + 4;
}
static double block(P p) {
    return 3 * p.blocks / p.per_block + 6;
}
/* With the sources that exist: n in block n, (N + 1)/2 on average. */
static double growing_single(P p) {
    return 3 * (p.blocks + 1) / 2 + 4;
}
static double growing(P p) {
    return 3 * (p.blocks + 1) / (2 * p.per_block) + 6;
}
static double full_single(P p) {
    return 3 * p.sublayers / 2 + 1;
}
static double full(P p) {
    return 3 * (p.blocks + p.per_block - 2) / 2 + 3;
}

static const hir_back_form forms[] = {
    {"standard", "standard residual", "3", standard, PAPER_ANY},
    {"full_single", "AttnRes Full, one sublayer at a time", "3L/2 + 1", full_single, PAPER_FULL},
    {"full", "AttnRes Full, two phases", "3(N + S - 2)/2 + 3", full, PAPER_FULL},
    {"block_single", "AttnRes Block, one at a time", "3N + 4", block_single, PAPER_BLOCK},
    {"block_single_exact", "Block n with n sources", "3(N + 1)/2 + 4", growing_single, PAPER_BLOCK},
    {"block", "AttnRes Block, two phases", "3N/S + 6", block, PAPER_BLOCK},
    {"block_exact", "Block n with n sources", "3(N + 1)/2S + 6", growing, PAPER_BLOCK},
};

size_t hir_back_forms(const hir_back_form **out) {
    *out = forms;
    return sizeof forms / sizeof *forms;
}

double hir_back_kept(P p) {
    return p.sublayers + p.blocks + 1;
}

double hir_back_kept_again(P p) {
    return p.blocks + 1;
}
