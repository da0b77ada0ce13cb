/* The model language: text of a spec to graph IR.
 *
 *     text -- lexer --> tokens -- parser --> tree -- resolve --> checked names -- elaborate --> IR
 *
 * The language is described in docs/language.md. A spec is untrusted input: every limit it can run
 * into is a diagnostic, and nothing it says makes the compiler abort.
 *
 * Pages of families hold configs, too, which say what a config.json holds. Their syntax and their
 * names are the language's; what their statements mean is handed in (hfe_config_words, elaborate.h) by
 * frontend/config, which stands above. */
#ifndef HFE_LANGUAGE_H
#define HFE_LANGUAGE_H

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

/* The module of the model in a file, or (`text` not NULL) in a text that is named like a file;
 * verified. NULL and diagnostics when there is none to be had. */
struct hfe_program;
hir_module *hfe_load(struct hfe_program *p, const char *path, const char *text);

#endif
