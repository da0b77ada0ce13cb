/* Steps of the runtime that exchange values between ranks: they are no code, but rows of a table.
 */
#ifndef HCG_EXCHANGES_H
#define HCG_EXCHANGES_H

#include "codegen/program/program.h"

static inline bool hcg_is_exchange(const hir_module *m, hir_id kernel) {
    return hir_kind_of(hir_op_at(m, kernel)->code) == HIR_KERNEL_COMM;
}
/* False, and a diagnostic: the runtime cannot make it. */
bool hcg_make_exchange(hd_diags *d, const hir_module *m, hir_id kernel, hrt_exchange *out);
/* Does the kernel go over the rows of a rank? */
bool hcg_is_local(const hir_module *m, hir_id kernel);

#endif
