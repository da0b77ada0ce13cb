/* The model language: from the text of a spec to graph IR.
 *
 *     text -- lexer --> tokens -- parser --> tree -- resolve --> checked names -- elaborate --> IR
 *
 * The language is described in docs/language.md. A spec is untrusted input: every limit it can run
 * into is a diagnostic, and nothing it says makes the compiler abort.
 *
 * Pages of families also contain configs, which describe a config.json. Their syntax and their
 * names belong to the language. The meaning of their statements is passed in (hfe_config_words,
 * elaborate.h) by frontend/config, which builds on the language. */
#ifndef HFE_LANGUAGE_H
#define HFE_LANGUAGE_H

#include "ir/ir.h"

typedef struct hfe_define { /* -D name=value */
    const char *name, *value;
} hfe_define;

typedef struct hfe_options {
    const char *name; /* name of the module, a C identifier; NULL: the model's own name */
    const hfe_define *defines;
    size_t n_defines;
    const char *const *include_dirs; /* searched by `use` after the directory of the file itself */
    size_t n_include_dirs;
    const char *std_dir; /* the library, searched last; NULL: none */
} hfe_options;

/* Returns the verified module of the model in a file, or, if `text` is not NULL, in this text, for
 * which `path` is only a name. Returns NULL and diagnostics on error. */
struct hfe_program;
hir_module *hfe_load(struct hfe_program *p, const char *path, const char *text);

#endif
