#include <string.h>

#include "frontend/config/generation.h"
#include "tests/fuzz/fuzz.h"

/* A generation_config.json; behind a NUL the config.json beside it. Ids that end a text are ids. */
static bool read_files(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    const char *nul = memchr(data, 0, n);
    const size_t first = nul ? (size_t)(nul - data) : n;
    hfe_token_ids stops = {0};
    fuzz_write("generation_config.json", data, first);
    fuzz_write("config.json", nul ? nul + 1 : "{}", nul ? n - first - 1 : 2);
    if (!hfe_read_generation(a, d, fuzz_folder(), &stops)) return false;
    for (size_t i = 0; i < stops.n; i++)
        if (stops.at[i] < 0) fuzz_fail("an id is below 0");
    return true;
}

int fuzz_generation(const uint8_t *data, size_t n) {
    fuzz_in_arena(read_files, data, n);
    return 0;
}
