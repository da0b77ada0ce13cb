#include <string.h>

#include "frontend/frontend.h"
#include "tests/fuzz/fuzz.h"

/* The config as a folder; the spec that is made of it must be a legal one. The same text is what
 * ModelOpt says beside it, which is read where the config says nothing of quantised weights. */
static bool import(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    static const char line[] = "\n%%\n";
    const char *split = memmem(data, n, line, sizeof line - 1);
    const size_t config = split ? (size_t)(split - data) : n;
    const char *page = split ? split + sizeof line - 1 : data + n;
    const char *include[] = {fuzz_folder()};
    const hfe_options options = {
        .include_dirs = include, .n_include_dirs = 1, .std_dir = HADAL_SOURCE "/frontend/std"};
    fuzz_write("config.json", data, config);
    fuzz_write("hf_quant_config.json", data, config);
    fuzz_write("fuzz.hadal", page, (size_t)(data + n - page));
    const char *spec = hfe_import(a, d, fuzz_folder(), &options);
    return spec && hfe_load_spec_text(a, d, "imported.hadal", spec, &options);
}

int fuzz_config(const uint8_t *data, size_t n) {
    fuzz_in_arena(import, data, n);
    return 0;
}
