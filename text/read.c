/* Reads tokenizer.json, the file of the tokenizers library. Content that is not known is rejected
 * with its place. */
#include "text/read.h"

#include <string.h>

/* Notes settings that truncate or pad results: programs that build prompts for models turn both off
 * for a single text. */
static void note_limits(const field *file) {
    const field cut = field_get(file, "truncation"), fill = field_get(file, "padding");
    if (!field_is_null(&cut)) field_note(&cut, "texts are read whole, and not cut off here");
    if (field_is_null(&fill)) return;
    const field how = field_get(&fill, "strategy");
    const char *name = json_string_value(how.value);
    if (name && strcmp(name, "BatchLongest") == 0) return; /* changes no single text */
    field_note(&fill, "texts are read as they are, and not filled up here");
}

static bool read_file(reader *r, const field *file, const config_files *beside) {
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
    note_limits(file);
    note_unread_fields(beside);
    if (!read_model(r, &model) || !read_normalizers(r, &normalizer) ||
        !read_added_tokens(r, &added) || !read_config_tokens(r, beside))
        return false;
    finish_added_tokens(r);
    if (!read_splitters(r, &splitter) || !read_config_prefix(r, beside)) return false;
    note_class(r, file, beside);
    return read_decoders(r, &decoder) && read_post_processor(r, &processor) &&
           read_config_ends(r, beside);
}

tokenizer *tokenizer_read(hd_arena *a, hd_diags *d, const char *path) {
    field file;
    config_files beside;
    if (!field_open(a, d, "tokenizer", path, &file) || !open_config_files(a, d, path, &beside))
        return NULL;
    reader r = {.t = hd_new(a, tokenizer), .arena = a};
    r.t->arena = a;
    const bool ok = read_file(&r, &file, &beside);
    field_close(&file); /* the parsed JSON is many times as large as the text */
    return ok ? r.t : NULL;
}
