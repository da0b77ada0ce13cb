#include <string.h>

#include "ir/ir.h"
#include "tests/fuzz/fuzz.h"

/* What is read and legal is printed, read again, and printed as the same. */
static bool parse(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    const char *text = hd_read_text(a, d, fuzz_write("fuzz.hir", data, n), n + 1, NULL);
    const hir_module *m = text ? hir_parse(a, d, "fuzz.hir", text) : NULL;
    if (!m || !hir_verify(m, d) || !hir_verify_kernels(m, d)) return false;
    hd_text once, twice;
    hd_text_init(&once, a);
    hd_text_init(&twice, a);
    hir_print(m, (hir_print_options){.locations = true}, &once);
    const hir_module *again = hir_parse(a, d, "printed.hir", once.at);
    if (!again) fuzz_fail("what was printed cannot be read");
    hir_print(again, (hir_print_options){.locations = true}, &twice);
    if (strcmp(once.at, twice.at) != 0) fuzz_fail("it is printed as something else");
    return true;
}

int fuzz_ir(const uint8_t *data, size_t n) {
    fuzz_in_arena(parse, data, n);
    return 0;
}
