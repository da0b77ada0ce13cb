/* Diagnostics as tests show and search them. */
#ifndef DIAGS_TEXT_H
#define DIAGS_TEXT_H

#include "support/diag.h"

/* All of them as a user sees them; lives as long as `a`. */
static inline const char *diags_text(hd_arena *a, const hd_diags *d) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_add(&t, "");
    for (size_t i = 0; i < d->list.n; i++)
        hd_diag_render(&d->list.at[i], false, &t);
    return t.at;
}

#endif
