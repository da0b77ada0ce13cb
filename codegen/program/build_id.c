#include "codegen/program/build_id.h"

#include <string.h>
#include <xxhash.h>

#include "runtime/build_id.h"

void hcg_program_id(hcg_program *p) {
    XXH128_canonical_t hash;
    hd_text text;
    hir_module module = *p->m;
    module.name = "program";
    hd_text_init(&text, p->arena);
    hd_text_add(&text, HADAL_VERSION "\n");
    hir_print(&module, (hir_print_options){0}, &text);
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text.at, text.n));
    memcpy(p->id, hash.digest, sizeof p->id);
}

const char *hcg_build_id(hcg_program *p) {
    char *text = hd_alloc(p->arena, HRT_BUILD_ID, 1);
    hrt_build_id(text, p->id, p->packed ? p->values : NULL);
    return text;
}
