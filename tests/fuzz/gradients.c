#include <string.h>

#include "passes/pass.h"
#include "tests/fuzz/fuzz.h"

/* A legal model with a loss is differentiated, or it is said why it is not; what comes of it is
 * legal, and is read again as it is printed. */
static bool differentiate(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    static const hir_pass_id passes[] = {
        HIR_PASS_CANONICALISE,  HIR_PASS_FOLD_CONSTANTS, HIR_PASS_CSE,
        HIR_PASS_DIFFERENTIATE, HIR_PASS_LOWER_TRACES,   HIR_PASS_CSE,
        HIR_PASS_DCE,
    };
    const hir_run run = {
        .passes = passes, .n_passes = sizeof passes / sizeof *passes, .stop_after = HIR_PASS_COUNT};
    const hir_compile_options options = {.matrix_dtype = HIR_F32, .chunk = 512};
    const char *text = hd_read_text(a, d, fuzz_write("fuzz.hir", data, n), n + 1, NULL);
    hir_module *m = text ? hir_parse(a, d, "fuzz.hir", text) : NULL;
    if (!m || !hir_verify(m, d) || !hir_add_loss(m, d) ||
        !hir_run_passes(m, &run, &options, NULL, d))
        return false;
    hd_text printed;
    hd_text_init(&printed, a);
    hir_print(m, (hir_print_options){0}, &printed);
    if (!hir_verify(m, d)) fuzz_fail("the gradients are not legal IR");
    if (!hir_parse(a, d, "printed.hir", printed.at)) fuzz_fail("what was printed cannot be read");
    return true;
}

int fuzz_gradients(const uint8_t *data, size_t n) {
    fuzz_in_arena(differentiate, data, n);
    return 0;
}
