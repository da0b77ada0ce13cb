/* The importer's entry: a folder in, spec text out. */
#include "frontend/import.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/import_spec.h"
#include "support/file.h"

bool hfe_is_folder_model(const char *path) {
    char config[PATH_MAX];
    return hd_is_directory(path) &&
           snprintf(config, sizeof config, "%s/config.json", path) < (int)sizeof config &&
           hd_exists(config);
}

/* Names that the model cannot have: words of the language (docs/language.md), and what the spec
 * itself calls. */
static bool is_taken(const char *name) {
    static const char *const names[] = {"and",
                                        "at",
                                        "else",
                                        "false",
                                        "fn",
                                        "for",
                                        "if",
                                        "in",
                                        "model",
                                        "none",
                                        "not",
                                        "object",
                                        "op",
                                        "or",
                                        "output",
                                        "return",
                                        "true",
                                        "use",
                                        "attention",
                                        "embed",
                                        "attnres_full",
                                        "rmsnorm",
                                        "swiglu",
                                        "gated_mlp",
                                        "linear",
                                        "head",
                                        "tied_head",
                                        "gelu",
                                        "gelu_tanh",
                                        "relu",
                                        "dim",
                                        "linear_scaling",
                                        "llama3_scaling"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    for (size_t i = 0; i < HFE_N_RESIDUALS; i++)
        if (strcmp(name, hfe_systems[i].function) == 0) return true;
    return false;
}

/* The folder's name as a C identifier. */
static const char *name_of(hd_arena *a, const char *folder) {
    char real[PATH_MAX];
    char *name = hd_strdup(a, hd_path_base(realpath(folder, real) ? real : folder));
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) || (unsigned char)*p > 127) *p = '_';
    if (!isalpha((unsigned char)name[0])) return hd_printf(a, "m_%s", name);
    return is_taken(name) ? hd_printf(a, "%s_model", name) : name;
}

char *hfe_import(hd_arena *a, hd_diags *d, const char *folder) {
    hfe_config config;
    if (hd_is_directory(folder) && !hfe_is_folder_model(folder)) {
        hd_err(d, HD_E_IO, HD_NOWHERE, "the folder '%s' holds no config.json", folder)->hint =
            "a model is a .hadal file, a .hir file, or a folder with a config.json";
        return NULL;
    }
    if (hd_exists(folder) && !hd_is_directory(folder)) {
        const bool config = strcmp(hd_path_base(folder), "config.json") == 0;
        hd_err(d, HD_E_USAGE, HD_NOWHERE, "'%s' is no folder", folder)->hint =
            config ? hd_printf(a, "name the folder that it is in: %s", hd_path_dir(a, folder))
                   : "what is imported is a folder with a config.json";
        return NULL;
    }
    hfe_json *j = hfe_json_open(a, d, hd_path_join(a, folder, "config.json"));
    if (!j || !hfe_read_config(j, &config)) return NULL;
    hd_text out;
    hd_text_init(&out, a);
    hfe_write_spec(&out, &config, name_of(a, folder));
    return out.at;
}
