/* The entries of the frontend: a spec becomes a module, and a model folder becomes the text of a
 * spec. */
#include "frontend/frontend.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/config/family.h"
#include "frontend/config/quantisation.h"
#include "frontend/language/lexer.h"
#include "support/file.h"

/* ---- folders ------------------------------------------------------------------------------- */

bool hfe_is_folder_model(const char *path) {
    char config[PATH_MAX];
    return hd_is_directory(path) &&
           snprintf(config, sizeof config, "%s/config.json", path) < (int)sizeof config &&
           hd_exists(config);
}

/* True for names that the model cannot have: words of the language, and names that the library
 * defines, since a spec may call those. */
static bool is_taken(hfe_program *p, const char *name) {
    static const char *const words[] = {
#define K(id, word) word,
        HFE_KEYWORDS(K)
#undef K
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i]) == 0) return true;
    return hfe_find_builtin(name) || hfe_find_op(name, &(hir_opcode){0}) ||
           hfe_library_page(p, name);
}

/* Returns the folder's name as a C identifier. */
static const char *name_of(hfe_program *p, const char *folder) {
    hd_arena *a = p->arena;
    char real[PATH_MAX];
    char *name = hd_strdup(a, hd_path_base(realpath(folder, real) ? real : folder));
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) || (unsigned char)*p > 127) *p = '_';
    if (!isalpha((unsigned char)name[0])) return hd_printf(a, "m_%s", name);
    return is_taken(p, name) ? hd_printf(a, "%s_model", name) : name;
}

/* Returns the only spec in the folder, or NULL if there are none or several. */
static const char *only_spec_in(hd_arena *a, const char *folder) {
    DIR *open = opendir(folder);
    const char *found = NULL;
    size_t n = 0, end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    for (const struct dirent *e = open ? readdir(open) : NULL; e; e = readdir(open)) {
        const size_t length = strlen(e->d_name), tail = strlen(".hadal");
        if (length <= tail || strcmp(e->d_name + length - tail, ".hadal") != 0) continue;
        found = hd_printf(a, "%.*s/%s", (int)end, folder, e->d_name);
        n++;
    }
    if (open) closedir(open);
    return n == 1 ? found : NULL;
}

/* An adapter says in its config for which model it was trained. */
bool hfe_reject_adapter(hd_arena *a, hd_diags *d, const char *folder) {
    if (hfe_is_folder_model(folder)) return false;
    const char *config = hd_path_join(a, folder, "adapter_config.json"), *base = NULL;
    const bool told = hd_exists(config);
    if (!told && !hd_exists(hd_path_join(a, folder, "adapter_model.safetensors"))) return false;
    hd_diags silent;
    hd_diags_init(&silent, a);
    hfe_json *j = told ? hfe_json_open(a, &silent, config) : NULL;
    if (j) base = json_string_value(json_object_get(j->root, "base_model_name_or_path"));
    hd_diag *e = hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE,
                        "'%s' holds an adapter (LoRA), and no model", folder);
    e->cause = base && *base
                   ? hd_printf(a, "its matrices are added to those of \"%s\"", base)
                   : "its matrices are added to those of the model that it was trained for";
    e->hint =
        hd_printf(a,
                  "merge them: python3 -c 'from peft import AutoPeftModelForCausalLM as M; "
                  "M.from_pretrained(\"%s\").merge_and_unload().save_pretrained(\"merged\")', "
                  "with the tokenizer's files beside, and take merged",
                  folder);
    return true;
}

/* True if the path is a folder with a config.json; otherwise an error has been reported. */
static bool has_config(hd_arena *a, hd_diags *d, const char *folder) {
    if (hd_is_directory(folder) && !hfe_is_folder_model(folder)) {
        const char *spec = only_spec_in(a, folder);
        if (hfe_reject_adapter(a, d, folder)) return false;
        hd_err(d, HD_E_IO, HD_NOWHERE, "the folder '%s' holds no config.json", folder)->hint =
            spec ? hd_printf(a, "did you mean \"%s\"?", spec)
                 : "a model is a .hadal file, a .hir file, or a folder with a config.json";
        return false;
    }
    if (hd_exists(folder) && !hd_is_directory(folder)) {
        const bool config = strcmp(hd_path_base(folder), "config.json") == 0;
        hd_err(d, HD_E_USAGE, HD_NOWHERE, "'%s' is no folder", folder)->hint =
            config ? hd_printf(a, "name the folder that it is in: %s", hd_path_dir(a, folder))
                   : "what is imported is a folder with a config.json";
        return false;
    }
    return true;
}

/* transformers adds an adapter that lies next to a whole model to it, where peft is installed. */
static void note_adapter(hd_arena *a, hd_diags *d, const char *folder) {
    const char *file = hd_path_join(a, folder, "adapter_config.json");
    if (hd_exists(file))
        hd_note(
            d, (hd_loc){.file = file},
            "the adapter (LoRA) next to the model is not applied: to have it in the model, merge "
            "it (peft: merge_and_unload)");
}

char *hfe_import_with(hfe_program *p, const char *folder) {
    enum { ALL_FAULTS = 1 << 16 };
    hd_diags *d = p->diags;
    if (!has_config(p->arena, d, folder)) return NULL;
    hfe_json *j = hfe_json_open(p->arena, d, hd_path_join(p->arena, folder, "config.json"));
    if (!j) return NULL;
    note_adapter(p->arena, d, folder);
    p->errors = d->errors;
    const size_t limit = d->limit;
    d->limit = ALL_FAULTS;
    const bool readable = hfe_read_quantisation(j, NULL);
    char *text = hfe_import_family(p, j, name_of(p, folder));
    d->limit = limit;
    return readable ? text : NULL;
}

/* ---- programs ------------------------------------------------------------------------------ */

static hfe_program program_of(hd_arena *a, hd_diags *d, const hfe_options *options) {
    static const hfe_options defaults = {0};
    return (hfe_program){.arena = a,
                         .diags = d,
                         .options = options ? options : &defaults,
                         .words = &hfe_words_of_configs,
                         .errors = d->errors};
}

char *hfe_import(hd_arena *a, hd_diags *d, const char *folder, const hfe_options *options) {
    hfe_program p = program_of(a, d, options);
    return hfe_import_with(&p, folder);
}

hir_module *hfe_load_spec(hd_arena *a, hd_diags *d, const char *path, const hfe_options *options) {
    hfe_program p = program_of(a, d, options);
    return hfe_load(&p, path, NULL);
}

hir_module *hfe_load_spec_text(hd_arena *a, hd_diags *d, const char *file, const char *text,
                               const hfe_options *options) {
    hfe_program p = program_of(a, d, options);
    return hfe_load(&p, file, text);
}
