#include "frontend/frontend.h"
#include "tests/fuzz/fuzz.h"

static bool load(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    const hfe_options options = {.std_dir = HADAL_SOURCE "/frontend/std"};
    return hfe_load_spec(a, d, fuzz_write("fuzz.hadal", data, n), &options) != NULL;
}

int fuzz_spec(const uint8_t *data, size_t n) {
    fuzz_in_arena(load, data, n);
    return 0;
}
