/* What the files beside a tokenizer.json say: ids as the fast tokenizers of transformers give them
 * (tests/tools/tokenizer_folders.py compares many more folders with those). */
#include <unistd.h>

#define FOLDER "/tmp/hadal-beside-XXXXXX"
#include "tests/unit/folder_fixture.h"
#include "text/tokenizer.h"

TestSuite(tokenizer_config, .init = open_folder, .fini = close_folder);

static void put(const char *name, const char *text) {
    cr_assert(hd_write_file(arena, &diags, in_folder(name), text, strlen(text)));
}

/* Ids 0 to 3 are of the vocabulary, 4 to 6 are added. */
#define FILE_WITH(more)                                                                            \
    "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \" \": 3}, \"merges\": [\"a b\"]}, "  \
    "\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true}, {\"id\": 5, "        \
    "\"content\": \"</s>\", \"special\": true}, {\"id\": 6, \"content\": \"[x]\"}]" more "}"
#define AROUND(before, after)                                                                      \
    ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" before                \
    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}" after "], \"special_tokens\": {\"<s>\": "    \
    "{\"id\": \"<s>\", \"ids\": [4], \"tokens\": [\"<s>\"]}, \"</s>\": {\"id\": \"</s>\", "        \
    "\"ids\": "                                                                                    \
    "[5], \"tokens\": [\"</s>\"]}}}"
#define BOS "{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
#define EOS ", {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}"

static const tokenizer *opened(const char *config) {
    diags.list.n = diags.errors = 0;
    if (config) put("tokenizer_config.json", config);
    return tokenizer_read(arena, &diags, in_folder("tokenizer.json"));
}

static const char *encoded(const tokenizer *t, const char *text) {
    id_list ids = {0};
    hd_text out;
    hd_text_init(&out, arena);
    hd_text_add(&out, "");
    cr_assert(t, "%s", said());
    cr_assert(tokenizer_encode(t, arena, text, strlen(text), true, &ids));
    for (size_t i = 0; i < ids.n; i++)
        hd_text_f(&out, "%s%d", i ? " " : "", ids.at[i]);
    return out.at;
}

static void expect_ids(const char *config, const char *text, const char *ids) {
    const char *got = encoded(opened(config), text);
    cr_expect_str_eq(got, ids, "%s\n'%s': %s, not %s\n%s", config, text, got, ids, said());
}

/* How many notes there are but the one on a class: the small files here have no class's steps. */
static size_t notes(void) {
    size_t n = 0;
    for (size_t i = 0; i < diags.list.n; i++)
        n += !strstr(diags.list.at[i].message, "has steps of its own for the class");
    return n;
}

static void expect_fault(const char *config, const char *part) {
    cr_expect_null(opened(config), "%s", config);
    cr_expect(strstr(said(), part), "%s\nis not said of\n%s\n%s", part, config, said());
}

/* ---- what stands around a text --------------------------------------------------------------- */

#define NAMES "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", "

Test(tokenizer_config, fields_decide_what_stands_around_a_text) {
    static const char *const files[] = {FILE_WITH(""), FILE_WITH(", \"post_processor\": null"),
                                        FILE_WITH(AROUND(BOS, "")), FILE_WITH(AROUND("", EOS)),
                                        FILE_WITH(AROUND(BOS, EOS))};
    static const char *const classes[] = {"", "\"tokenizer_class\": \"LlamaTokenizer\", ",
                                          "\"tokenizer_class\": \"LlamaTokenizerFast\", ",
                                          "\"tokenizer_class\": \"GemmaTokenizer\", ",
                                          "\"tokenizer_class\": \"CohereTokenizerFast\", "};
    static const struct {
        const char *fields, *ids;
    } cases[] = {
        {"\"add_bos_token\": true", "4 2"},
        {"\"add_bos_token\": false", "2"},
        {"\"add_bos_token\": null", "2"},
        {"\"add_eos_token\": true", "4 2 5"}, /* the other is true where it is absent */
        {"\"add_eos_token\": false", "4 2"},
        {"\"add_bos_token\": true, \"add_eos_token\": true", "4 2 5"},
        {"\"add_bos_token\": false, \"add_eos_token\": true", "2 5"},
        {"\"add_bos_token\": null, \"add_eos_token\": null", "2"},
        {"\"add_bos_token\": true, \"add_eos_token\": false", "4 2"},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        put("tokenizer.json", files[f]);
        for (size_t c = 0; c < sizeof classes / sizeof *classes; c++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                expect_ids(hd_printf(arena, "{" NAMES "%s%s}", classes[c], cases[i].fields), "ab",
                           cases[i].ids);
    }
}

/* Classes that do not read the fields go by tokenizer.json, with a note where that differs. */
Test(tokenizer_config, other_classes_go_by_tokenizer_json) {
    static const char *const classes[] = {"PreTrainedTokenizerFast", "TokenizersBackend",
                                          "Qwen2Tokenizer", "GPT2TokenizerFast", "MyTokenizer"};
    for (size_t c = 0; c < sizeof classes / sizeof *classes; c++) {
        const char *of = hd_printf(arena, "{" NAMES "\"tokenizer_class\": \"%s\", ", classes[c]);
        put("tokenizer.json", FILE_WITH(AROUND(BOS, "")));
        expect_ids(hd_printf(arena, "%s\"add_bos_token\": true}", of), "ab", "4 2");
        cr_expect_eq(notes(), 0, "%s", said());
        expect_ids(hd_printf(arena, "%s\"add_bos_token\": false}", of), "ab", "4 2");
        cr_expect(strstr(said(), "note: add_bos_token: not read for"), "%s", said());
        put("tokenizer.json", FILE_WITH(""));
        expect_ids(hd_printf(arena, "%s\"add_eos_token\": true}", of), "ab", "2");
        cr_expect(strstr(said(), "note: add_eos_token: not read for"), "%s", said());
    }
    put("tokenizer.json", FILE_WITH(AROUND(BOS, EOS)));
    expect_ids("{\"tokenizer_class\": \"LlamaTokenizer\"}", "ab", "4 2 5");
    expect_ids("{\"tokenizer_class\": \"GPTNeoXTokenizer\"}", "ab", "2");
    expect_ids("{\"tokenizer_class\": \"CodeLlamaTokenizer\"}", "ab", "4 2");
    put("tokenizer.json", FILE_WITH(""));
    expect_ids("{\"tokenizer_class\": \"CodeLlamaTokenizerFast\"}", "ab", "4 2");
}

Test(tokenizer_config, the_token_that_is_added) {
    put("tokenizer.json", FILE_WITH(""));
    expect_ids("{\"add_bos_token\": true, \"bos_token\": {\"__type\": \"AddedToken\", "
               "\"content\": \"</s>\", \"normalized\": true}}",
               "ab", "5 2");
    expect_ids("{\"add_bos_token\": true, \"bos_token\": \"b\"}", "ab", "1 0 1");
    expect_ids("{\"add_bos_token\": true}", "ab", "4 2"); /* Llama's own name */
    expect_ids("{\"add_bos_token\": true, \"bos_token\": \"new\"}", "ab", "7 2");
    expect_ids("{\"add_bos_token\": true, \"bos_token\": null}", "ab", "2");
    cr_expect(strstr(said(), "note: add_bos_token: there is no bos_token"), "%s", said());
    expect_fault("{\"add_bos_token\": true, \"tokenizer_class\": \"GemmaTokenizer\"}",
                 "there is no token \"<bos>\" to add");
    expect_fault("{\"add_bos_token\": 1}", "add_bos_token: must be true or false, not 1");
    expect_fault("{\"add_bos_token\": true, \"bos_token\": 4}", "bos_token: must be a string");
    expect_fault("[]", "must be an object");
    expect_fault("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull");
    /* an older file comes first, where added_tokens_decoder does not replace it */
    put("special_tokens_map.json", "{\"bos_token\": {\"content\": \"</s>\"}}");
    expect_ids("{\"add_bos_token\": true, \"bos_token\": \"<s>\"}", "ab", "5 2");
    expect_ids("{\"add_bos_token\": true, \"bos_token\": \"<s>\", \"added_tokens_decoder\": {}}",
               "ab", "4 2");
}

/* ---- tokens ---------------------------------------------------------------------------------- */

#define CLASS "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "

Test(tokenizer_config, tokens_that_only_the_config_lists) {
    put("tokenizer.json", FILE_WITH(""));
    expect_ids(CLASS "\"added_tokens_decoder\": {\"7\": {\"content\": \"[y]\"}}}", "a[y]b",
               "0 7 1");
    cr_expect_eq(diags.list.n, 0, "%s", said());
    /* one after the other behind all others, by their ids, whatever these are */
    expect_ids(CLASS "\"added_tokens_decoder\": {\"11\": {\"content\": \"[y]\"}, "
                     "\"9\": {\"content\": \"[z]\"}}}",
               "[y][z]", "8 7");
    cr_expect(strstr(said(), "note: added_tokens_decoder.9: the token \"[z]\" has the id 7"), "%s",
              said());
    expect_ids(CLASS "\"added_tokens_decoder\": {\"2\": {\"content\": \"b\"}}}", "ab", "0 1");
    expect_ids(CLASS "\"pad_token\": \"b\"}", "ab", "0 1");
    expect_ids(CLASS "\"image_token\": \"[y]\"}", "[y]", "7");
    expect_ids(CLASS "\"additional_special_tokens\": [\"[y]\", {\"content\": \"[z]\"}]}", "[z][y]",
               "8 7");
    expect_ids(CLASS "\"extra_special_tokens\": {\"one\": \"[y]\"}}", "[y]", "7");
    expect_ids(CLASS "\"pad_token\": null, \"unk_token\": \"<s>\"}", "ab", "2");
    expect_fault(CLASS "\"added_tokens_decoder\": {\"x\": {\"content\": \"[y]\"}}}",
                 "added_tokens_decoder.x: its name is no token id");
    expect_fault(CLASS "\"added_tokens_decoder\": {\"7\": \"[y]\"}}", "must be an object");
    expect_fault(CLASS "\"added_tokens_decoder\": {\"7\": {}}}", "7.content: is missing");
    expect_fault(CLASS "\"added_tokens_decoder\": {\"99999999\": {\"content\": \"[y]\"}}}",
                 "is no token id");
    expect_fault(CLASS "\"pad_token\": [1]}", "pad_token: must be a string");
    put("added_tokens.json", "{\"[y]\": 7}");
    put("special_tokens_map.json", "{\"additional_special_tokens\": [\"[z]\"]}");
    expect_ids(CLASS "\"pad_token\": null}", "[y][z]", "7 8");
    cr_assert_eq(remove(in_folder("tokenizer_config.json")), 0);
    expect_ids(NULL, "[y][z]", "7 8");
    put("added_tokens.json", "{\"[y]\": \"7\"}");
    expect_fault(NULL, "added_tokens.json");
}

/* Names, then names of a kind of model, then lists; the older file is read over the other. Tokens
 * p, q and r are new, 7 is the next id. */
Test(tokenizer_config, which_fields_name_tokens) {
    static const struct {
        const char *config, *map, *text, *ids;
    } cases[] = {
        {"\"extra_special_tokens\": [\"p\"], \"image_token\": \"q\", \"pad_token\": \"r\"", NULL,
         "pqr", "9 8 7"},
        {"\"model_specific_special_tokens\": {\"a_token\": \"p\"}", NULL, "ap", "0 7"},
        {"\"model_specific_special_tokens\": {\"a_token\": \"p\"}, \"image_token\": \"q\"", NULL,
         "aq", "0 7"},
        {"\"model_specific_special_tokens\": {\"a_token\": \"p\"}, \"image_token\": \"q\"", NULL,
         "ap", "0"},
        {"\"image_token\": {\"__type\": \"AddedToken\", \"content\": \"p\"}", NULL, "ap", "0 7"},
        {"\"image_token\": {\"content\": \"p\"}, \"pad_token\": \"q\"", NULL, "apq", "0 7"},
        {"\"extra_special_tokens\": [\"p\"], \"additional_special_tokens\": [\"q\"]", NULL, "apaq",
         "0 7 0"},
        {"\"extra_special_tokens\": [], \"additional_special_tokens\": [\"q\"]", NULL, "aq", "0 7"},
        {"\"extra_special_tokens\": {\"x\": \"p\"}, \"additional_special_tokens\": [\"q\"]", NULL,
         "pq", "7 8"},
        {"\"pad_token\": \"p\"", "\"pad_token\": \"q\"", "apaq", "0 0 7"},
        {"\"pad_token\": \"p\"", "\"pad_token\": null", "ap", "0"},
        {"\"pad_token\": null", "\"image_token\": \"q\"", "aq", "0 7"},
        {"\"pad_token\": null", "\"image_token\": {\"content\": \"q\", \"lstrip\": true}", "a q",
         "0 7"},
        {"\"pad_token\": null", "\"extra_special_tokens\": [\"q\"]", "aq", "0 7"},
        {"\"extra_special_tokens\": [\"p\"]", "\"extra_special_tokens\": [\"q\"]", "pq", "7 8"},
        {"\"extra_special_tokens\": [\"p\"]", "\"extra_special_tokens\": {\"x\": \"q\"}", "apaq",
         "0 0 7"},
        {"\"extra_special_tokens\": [\"p\"]", "\"additional_special_tokens\": [\"q\"]", "apaq",
         "0 7 0"},
        {"\"pad_token\": null", "\"additional_special_tokens\": [\"q\"]", "aq", "0 7"},
        {"\"pad_token\": null", "\"split_special_tokens\": true", "a</s>", "0"},
        {"\"split_special_tokens\": true", "\"split_special_tokens\": false", "a</s>", "0 5"},
        {"\"added_tokens_decoder\": {}", "\"pad_token\": \"p\"", "ap", "0"},
    };
    put("tokenizer.json", FILE_WITH(""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unlink(in_folder("special_tokens_map.json"));
        if (cases[i].map) put("special_tokens_map.json", hd_printf(arena, "{%s}", cases[i].map));
        expect_ids(hd_printf(arena, CLASS "%s}", cases[i].config), cases[i].text, cases[i].ids);
    }
    put("special_tokens_map.json", "{\"dropout\": 0.5}");
    expect_ids(CLASS "\"pad_token\": null}", "a", "0");
    cr_expect(strstr(said(), "special_tokens_map.json:1:13: note: dropout: not known"), "%s",
              said());
}

Test(tokenizer_config, flags_of_the_config_come_first) {
    put("tokenizer.json", FILE_WITH(""));
    expect_ids(CLASS "\"pad_token\": null}", "a [x] b", "0 3 6 3 1");
    expect_ids(CLASS "\"added_tokens_decoder\": {\"6\": {\"content\": \"[x]\", \"lstrip\": true, "
                     "\"rstrip\": true}}}",
               "a [x] b", "0 6 1");
    expect_ids(CLASS "\"pad_token\": {\"content\": \"[x]\", \"lstrip\": true}}", "a [x]", "0 3 6");
    expect_ids(CLASS "\"pad_token\": {\"content\": \"b\", \"lstrip\": true}}", "a b", "0 1");
    expect_ids(CLASS "\"split_special_tokens\": true, \"pad_token\": \"b\"}", "ab[x]", "2 6");
    cr_expect(strstr(said(), "note: split_special_tokens"), "%s", said());
}

#define BYTES(prefix)                                                                              \
    "{\"model\": {\"vocab\": {\"a\": 0, \"\xc4\xa0\": 1}, \"merges\": []}, \"pre_tokenizer\": "    \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": " prefix "}}"

Test(tokenizer_config, a_space_before_a_text) {
    static const char *const classes[] = {"GPT2Tokenizer", "Qwen2TokenizerFast"};
    for (size_t c = 0; c < 2; c++) {
        const char *of = hd_printf(arena, "{\"tokenizer_class\": \"%s\"", classes[c]);
        put("tokenizer.json", BYTES("false"));
        expect_ids(hd_printf(arena, "%s, \"add_prefix_space\": true}", of), "a", "1 0");
        put("tokenizer.json", BYTES("true"));
        expect_ids(hd_printf(arena, "%s, \"add_prefix_space\": false}", of), "a", "0");
        expect_ids(hd_printf(arena, "%s}", of), "a", "0");
        expect_ids(hd_printf(arena, "%s, \"add_prefix_space\": null}", of), "a", "1 0");
    }
    expect_ids("{\"add_prefix_space\": false}", "a", "1 0");
    cr_expect(strstr(said(), "tokenizer.json decides"), "%s", said());
    expect_fault("{\"add_prefix_space\": \"no\"}", "add_prefix_space: must be true or false");
}

/* Other classes go by tokenizer.json, whatever step of it puts the space there. */
Test(tokenizer_config, a_space_that_tokenizer_json_decides) {
#define SPACES(steps) "{\"model\": {\"vocab\": {\"a\": 0, \"_\": 1}, \"merges\": []}, " steps "}"
#define METASPACE(scheme)                                                                          \
    "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", "                        \
    "\"prepend_scheme\": \"" scheme "\"}"
    static const struct {
        const char *file, *ids;
        bool prefixed;
    } cases[] = {
        {SPACES(METASPACE("always")), "1 0", true},
        {SPACES(METASPACE("first")), "1 0", true},
        {SPACES(METASPACE("never")), "0", false},
        {SPACES("\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"_\"}"), "1 0", true},
        {SPACES("\"normalizer\": null"), "0", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("tokenizer.json", cases[i].file);
        for (int wanted = 0; wanted < 2; wanted++) {
            expect_ids(hd_printf(arena,
                                 "{\"tokenizer_class\": \"LlamaTokenizer\", "
                                 "\"add_prefix_space\": %s}",
                                 wanted ? "true" : "false"),
                       "a", cases[i].ids);
            cr_expect_eq(notes(), wanted != cases[i].prefixed, "%s\n%s", cases[i].file, said());
            if (notes())
                cr_expect(strstr(said(), cases[i].prefixed ? "a space is put before a text"
                                                           : "no space is put before a text"),
                          "%s", said());
        }
        expect_ids("{\"add_prefix_space\": null}", "a", cases[i].ids);
        cr_expect_eq(notes(), 0, "%s", said());
    }
}

/* Other programs take another tokenizer for these than tokenizer.json has. */
Test(tokenizer_config, what_is_not_read_is_noted) {
    static const struct {
        const char *field, *note; /* NULL: it says nothing */
    } cases[] = {
        {"\"auto_map\": {\"AutoTokenizer\": [\"tokenization_my.MyTokenizer\", null]}",
         "note: auto_map.AutoTokenizer: code of a model's own is not run"},
        {"\"auto_map\": {\"AutoTokenizer\": null}", NULL},
        {"\"auto_map\": {\"AutoModel\": \"modeling_my.MyModel\"}", NULL},
        {"\"auto_map\": 7", NULL},
        {"\"fix_mistral_regex\": true", "note: fix_mistral_regex: the pattern is not replaced"},
        {"\"fix_mistral_regex\": false", NULL},
        {"\"fast_tokenizer_files\": [\"tokenizer.json\", \"tokenizer.4.0.0.json\"]",
         "note: fast_tokenizer_files[1]: files for versions"},
        {"\"fast_tokenizer_files\": [\"tokenizer.json\"]", NULL},
        {"\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\": true, "
         "\"clean_up_tokenization_spaces\": true",
         "spaces before punctuation are not taken out of texts"},
        {"\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\": true", NULL},
        {"\"dropout\": 0.1", "note: dropout: not known, and not applied"},
        {"\"dropout\": null, \"later\": false, \"last\": {}, \"least\": \"\"", NULL},
        {"\"image_token\": null, \"video_token\": 3", NULL},
        {"\"model_max_length\": 1000000000000000019884624838656, \"padding_side\": \"left\", "
         "\"truncation_side\": \"left\", \"clean_up_tokenization_spaces\": true, "
         "\"chat_template\": \"{}\"",
         NULL},
    };
    put("tokenizer.json", FILE_WITH(""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_ids(hd_printf(arena, CLASS "%s}", cases[i].field), "ab", "2");
        if (cases[i].note)
            cr_expect(strstr(said(), cases[i].note), "%s\n%s", cases[i].field, said());
        else
            cr_expect_eq(diags.list.n, 0, "%s\n%s", cases[i].field, said());
    }
}

/* ---- steps that a class has of its own --------------------------------------------------------- */

#define PIECES(steps)                                                                              \
    "{\"model\": {\"vocab\": {\"a\": 0, \"\u2581\": 1, \"<unk>\": 2}, \"merges\": [], "            \
    "\"byte_fallback\": true, \"fuse_unk\": true, \"unk_token\": \"<unk>\"}, " steps "}"
#define SPACE(scheme)                                                                              \
    "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "                   \
    "\"prepend_scheme\": \"" scheme "\", \"split\": false}"
#define LETTERS(model, steps)                                                                      \
    "{\"model\": {\"vocab\": {\"a\": 0, \"\u0120\": 1}, \"merges\": []" model "}, " steps "}"
#define LEVEL(regex)                                                                               \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " regex "}"
#define OF_QWEN                                                                                    \
    "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "            \
    "\"pretokenizers\": [{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "          \
    "{\"Regex\": "                                                                                 \
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "            \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},"      \
    " " LEVEL("false") "]}"
#define OF_DIGITS(each)                                                                            \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "      \
    "\"individual_digits\": " each "}, " LEVEL("true") "]}"

/* Transformers 5 makes them without tokenizer.json; a note names the parts that differ. */
Test(tokenizer_config, steps_of_a_class) {
    static const struct {
        const char *file, *config, *type, *parts; /* NULL: nothing is said */
    } cases[] = {
        {PIECES(SPACE("first")), "\"tokenizer_class\": \"LlamaTokenizer\"", "llama", NULL},
        {PIECES(SPACE("always")), "\"tokenizer_class\": \"LlamaTokenizer\"", "llama",
         "(pre_tokenizer)"},
        {PIECES(SPACE("always")), "\"tokenizer_class\": \"LlamaTokenizer\", \"legacy\": true",
         "llama", NULL},
        {PIECES(SPACE("always")), "\"tokenizer_class\": \"CodeLlamaTokenizer\"", "llama",
         "(pre_tokenizer)"},
        {PIECES("\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"\u2581\"}"),
         "\"tokenizer_class\": \"LlamaTokenizerFast\", \"legacy\": true", "llama",
         "(normalizer, pre_tokenizer)"},
        {PIECES(SPACE("first")), "\"tokenizer_class\": \"LlamaTokenizer\"", "mistral", NULL},
        {PIECES(SPACE("always")), "\"tokenizer_class\": \"LlamaTokenizer\"", "mixtral", NULL},
        {PIECES(SPACE("always")), "\"legacy\": true", "zaya",
         "GemmaTokenizer (normalizer, pre_tokenizer)"},
        {PIECES(SPACE("always")), "\"tokenizer_class\": \"PreTrainedTokenizerFast\"", "llama",
         NULL},
        {PIECES(SPACE("always")), "\"legacy\": true", "llama", NULL},
        {LETTERS("", "\"pre_tokenizer\": " LEVEL("true")), "\"tokenizer_class\": \"GPT2Tokenizer\"",
         "llama", NULL},
        {LETTERS("", "\"pre_tokenizer\": " LEVEL("true")),
         "\"tokenizer_class\": \"LlamaTokenizer\"", "llama", NULL},
        {LETTERS("", "\"pre_tokenizer\": " LEVEL("false")),
         "\"tokenizer_class\": \"GPT2Tokenizer\"", "llama", "(pre_tokenizer)"},
        {LETTERS("", OF_DIGITS("true")), "\"tokenizer_class\": \"GPT2Tokenizer\"", "llama",
         "(pre_tokenizer)"},
        {LETTERS("", OF_DIGITS("true")), "\"tokenizer_class\": \"GPT2Tokenizer\"", "olmo2", NULL},
        {LETTERS("", OF_DIGITS("true")), "\"tokenizer_class\": \"CohereTokenizer\"", "llama",
         "(normalizer)"},
        {LETTERS("", OF_QWEN), "\"tokenizer_class\": \"Qwen2Tokenizer\"", "qwen3", NULL},
        {LETTERS("", OF_QWEN), "\"errors\": \"replace\"", "qwen3", NULL},
        {LETTERS("", OF_QWEN), "\"tokenizer_class\": \"LlamaTokenizer\"", "qwen2", NULL},
        {LETTERS("", OF_QWEN), "\"tokenizer_class\": \"Qwen2Tokenizer\"", "qwen4_exp",
         "Qwen3_5Tokenizer (pre_tokenizer)"},
        {LETTERS(", \"ignore_merges\": true", OF_QWEN), "\"errors\": \"replace\"", "qwen3_moe",
         "Qwen2Tokenizer (model)"},
        {LETTERS("", OF_DIGITS("false")), "\"auto_map\": {\"AutoTokenizer\": [\"a.B\", null]}",
         "qwen3", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("tokenizer.json", cases[i].file);
        put("config.json", hd_printf(arena, "{\"model_type\": \"%s\"}", cases[i].type));
        cr_assert(opened(hd_printf(arena, "{%s}", cases[i].config)), "%s", said());
        if (cases[i].parts)
            cr_expect(strstr(said(), cases[i].parts), "case %zu: %s", i, said());
        else
            cr_expect_eq(diags.list.n, notes(), "case %zu: %s", i, said());
    }
    /* The class may stand in config.json, which is for others to complain about. */
    put("tokenizer.json", LETTERS("", OF_DIGITS("true")));
    put("config.json", "{\"model_type\": \"llama\", \"tokenizer_class\": \"GPT2Tokenizer\"}");
    cr_assert(opened("{}"), "%s", said());
    cr_expect(strstr(said(), "config.json:1:44: note: tokenizer_class: transformers 5"), "%s",
              said());
    put("config.json", "{\"model_type\": ");
    cr_assert(opened("{}"), "%s", said());
    cr_expect_eq(diags.list.n, 0, "%s", said());
}

/* ---- what is documented ------------------------------------------------------------------------ */

/* The table in docs/text.md is that of tokenizer_config.def. */
Test(tokenizer_config, fields_as_documented) {
    static const struct {
        const char *group, *name;
    } fields[] = {
#define FIELD(group, name) {#group, #name},
#include "text/tokenizer_config.def"
    };
    static const char *const groups[][2] = {
#define GROUP(id, happens) {#id, happens},
#include "text/tokenizer_config.def"
    };
    const char *page = hd_read_text(arena, &diags, TEST_DATA "/../docs/text.md", 1 << 20, NULL);
    cr_assert(page, "%s", said());
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        hd_text row;
        hd_text_init(&row, arena);
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (strcmp(fields[i].group, groups[g][0]) == 0)
                hd_text_f(&row, "%s`%s`", row.n ? ", " : "| ", fields[i].name);
        hd_text_f(&row, " | %s |\n", groups[g][1]);
        cr_expect(strstr(page, row.at), "docs/text.md lacks:\n%s", row.at);
    }
}

/* ---- what means nothing for one text --------------------------------------------------------- */

Test(tokenizer_config, limits_of_other_programs_mean_nothing) {
    put("tokenizer.json",
        FILE_WITH(", \"truncation\": {\"direction\": \"Right\", \"max_length\": 1, \"strategy\": "
                  "\"LongestFirst\", \"stride\": 0}, \"padding\": {\"strategy\": {\"Fixed\": 9}, "
                  "\"direction\": \"Left\", \"pad_to_multiple_of\": 8, \"pad_id\": 1, "
                  "\"pad_type_id\": 0, \"pad_token\": \"b\"}"));
    cr_expect_str_eq(encoded(opened(NULL), "abab"), "2 2");
    cr_expect(strstr(said(), "note: truncation: texts are read whole"), "%s", said());
    cr_expect(strstr(said(), "note: padding: texts are read as they are"), "%s", said());
}

#define TWICE(id, more)                                                                            \
    "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}, \"added_tokens\": [{\"id\": 1, "         \
    "\"content\": \"x\", \"special\": true}, {\"id\": " id                                         \
    ", \"content\": \"x\", \"special\": true" more "}]}"

Test(tokenizer_config, a_token_listed_twice) {
    put("tokenizer.json", TWICE("1", ""));
    cr_expect_str_eq(encoded(opened(NULL), "ax"), "0 1");
    put("tokenizer.json", TWICE("1", ", \"lstrip\": false"));
    cr_expect_str_eq(encoded(opened(NULL), "ax"), "0 1");
    static const char *const others[] = {
        TWICE("2", ""), TWICE("1", ", \"lstrip\": true"), TWICE("1", ", \"rstrip\": true"),
        TWICE("1", ", \"single_word\": true"), TWICE("1", ", \"normalized\": true")};
    static const char *const what[] = {"id", "value of lstrip", "value of rstrip",
                                       "value of single_word", "value of normalized"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put("tokenizer.json", others[i]);
        expect_fault(NULL, hd_printf(arena, "stands twice, with another %s", what[i]));
    }
}
