/* The model language: text of a spec to graph IR.
 *
 *     text -- lexer --> tokens -- parser --> tree -- resolve --> checked names -- elaborate --> IR
 *
 * The language is described in docs/language.md. A spec is untrusted input: every limit it can run
 * into is a diagnostic, and nothing it says makes the compiler abort.
 */
#ifndef HFE_FRONTEND_H
#define HFE_FRONTEND_H

#include "ir/ir.h"

typedef struct hfe_define { /* -D name=value */
    const char *name, *value;
} hfe_define;

typedef struct hfe_options {
    const char *name; /* of the module: a C identifier; NULL: the model's own */
    const hfe_define *defines;
    size_t n_defines;
    const char *const *include_dirs; /* searched by `use` after the file's own folder */
    size_t n_include_dirs;
    const char *std_dir; /* the library, searched last; NULL: none */
} hfe_options;

/* The module of the model in a file, verified; NULL and diagnostics when there is none to be had.
 * Everything lives in `a`. `options` NULL: all defaults. */
hir_module *hfe_load_spec(hd_arena *a, hd_diags *d, const char *path, const hfe_options *options);

/* The same from text; `file` names it in diagnostics, and its folder is where `use` looks first. */
hir_module *hfe_load_spec_text(hd_arena *a, hd_diags *d, const char *file, const char *text,
                               const hfe_options *options);

#endif
