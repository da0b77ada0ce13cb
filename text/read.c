/* Reading tokenizer.json, the file of the tokenizers library. What it holds and is not known is
 * refused, with its place. */
#include "text/read.h"

#include <string.h>

#include "support/file.h"

enum { MAX_FILE = 256 << 20 }; /* published ones have up to 35 MB */

static void drop(void *what) {
    json_decref(*(json_t **)what);
    *(json_t **)what = NULL;
}

/* What cuts or fills up results would change them; they are null in files of language models. */
static bool refuse_limits(const field *file) {
    const field cut = field_get(file, "truncation"), fill = field_get(file, "padding");
    if (!field_is_null(&cut)) {
        field_error(&cut, HD_E_UNSUPPORTED, "texts are not truncated here")->hint =
            "null takes texts of any length";
        return false;
    }
    if (field_is_null(&fill)) return true;
    const field how = field_get(&fill, "strategy");
    const char *name = json_string_value(how.value);
    if (name && strcmp(name, "BatchLongest") == 0) return true; /* changes no single text */
    field_error(&fill, HD_E_UNSUPPORTED, "texts are not filled up here")->hint =
        "null, or the strategy BatchLongest, leaves a single text as it is";
    return false;
}

static bool read_file(reader *r, const field *file) {
    static const char known[] = "version truncation padding added_tokens normalizer pre_tokenizer "
                                "post_processor decoder model";
    if (!field_is_object(file)) return false;
    const field model = field_get(file, "model");
    if (!model.value) {
        field_error(file, HD_E_FORMAT, "it has no model: this is no tokenizer.json")->hint =
            "the file of the tokenizers library, which is not tokenizer_config.json";
        return false;
    }
    if (!field_known(file, known)) return false;
    const field normalizer = field_get(file, "normalizer"),
                splitter = field_get(file, "pre_tokenizer"), decoder = field_get(file, "decoder"),
                added = field_get(file, "added_tokens"),
                processor = field_get(file, "post_processor");
    return refuse_limits(file) && read_model(r, &model) && read_normalizers(r, &normalizer) &&
           read_added_tokens(r, &added) && read_splitters(r, &splitter) &&
           read_decoders(r, &decoder) && read_post_processor(r, &processor);
}

tokenizer *tokenizer_read(hd_arena *a, hd_diags *d, const char *path) {
    json_t **root = hd_new(a, json_t *);
    hd_arena_defer(a, drop, root);
    size_t n;
    const char *text = hd_read_text(a, d, path, MAX_FILE, &n);
    if (!text) return NULL;
    *root = hd_json_parse(d, "tokenizer", hd_strdup(a, path), text, n);
    if (!*root) return NULL;
    const json_file file = {d->arena, d, hd_strdup(d->arena, path), text};
    reader r = {hd_new(a, tokenizer), a};
    r.t->arena = a;
    const bool ok = read_file(&r, &(field){.json = &file, .value = *root});
    drop(root);
    return ok ? r.t : NULL;
}
