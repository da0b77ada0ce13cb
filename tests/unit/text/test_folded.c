/* Numbers of tokens whose texts are alike: those that the tokenizers library gives with the steps of
 * published code (tests/tools/make_folded.py made folded.json). */
#include <criterion/criterion.h>
#include <string.h>

#include "support/file.h"
#include "support/json.h"
#include "support/tensorfile.h"
#include "text/folded.h"

#define FOLDER "/tmp/hadal-folded-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(folded, .init = open_folder, .fini = close_folder, .timeout = 60);

static void put(const char *from) {
    size_t n;
    char *text = hd_read_text(arena, &diags, from, 1 << 22, &n);
    cr_assert(text, "%s", said());
    cr_assert(hd_write_file(arena, &diags, in_folder("tokenizer.json"), text, n));
}

Test(folded, as_the_tokenizers_library_does) {
    json_error_t error;
    json_t *all = json_load_file(TEST_DATA "/text/folded.json", 0, &error), *of;
    const char *name;
    cr_assert(all, "%s", error.text);
    json_object_foreach(all, name, of) {
        text_folds folds;
        int32_t most = -1;
        put(hd_printf(arena, TEST_DATA "/text/%s.json", name));
        cr_assert(text_fold_tokens(arena, &diags, folder, &folds), "%s", said());
        cr_assert_eq((size_t)folds.ids, json_array_size(of), "%s: %d ids", name, folds.ids);
        for (int32_t id = 0; id < folds.ids; id++) {
            const json_int_t want = json_integer_value(json_array_get(of, (size_t)id));
            cr_expect_eq(folds.of[id], want, "%s: %d has %d, not %d", name, id, folds.of[id],
                         (int)want);
            if (folds.of[id] > most) most = folds.of[id];
        }
        cr_expect_eq(folds.numbers, most + 1);
    }
    json_decref(all);
}

/* A folder of DeepSeek-V4.1, whose tokens are alike in as many ways. */
Test(folded, as_published_code_does) {
    const char *published = TEST_DATA "/published/deepseek_v41";
    text_folds folds;
    hd_tensors tensors = {0};
    cr_assert(text_fold_tokens(arena, &diags, published, &folds), "%s", said());
    cr_assert(hd_safetensors_open(arena, &diags,
                                  hd_path_join(arena, published, "engram.safetensors"), &tensors));
    const hd_tensor *map = hd_tensors_find(&tensors, "token_map");
    cr_assert(map && map->elements == (uint64_t)folds.ids);
    for (int32_t id = 0; id < folds.ids; id++)
        cr_expect_eq(folds.of[id], (int32_t)hd_tensor_get(map, (uint64_t)id), "%d", id);
    cr_expect_eq(folds.numbers, 52);
}

Test(folded, rejected) {
    text_folds folds;
    cr_expect_not(text_fold_tokens(arena, &diags, in_folder("nowhere"), &folds));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_assert(hd_write_file(arena, &diags, in_folder("tokenizer.json"), "{", 1));
    cr_expect_not(text_fold_tokens(arena, &diags, folder, &folds));
}
