/* What a tokenizer.json must not hold: each fault is named with its path and place. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "/tmp/hadal-tokenizer-XXXXXX"
#include "tests/unit/folder_fixture.h"
#include "text/tokenizer.h"

TestSuite(tokenizer_faults, .init = open_folder, .fini = close_folder, .timeout = 30);

static tokenizer *read_text(const char *text) {
    const char *path = in_folder("tokenizer.json");
    hd_diags_init(&diags, arena);
    cr_assert(hd_write_file(arena, &diags, path, text, strlen(text)));
    return tokenizer_read(arena, &diags, path);
}

#define MODEL "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"

static void rejected(const char *text, const char *words) {
    cr_expect_null(read_text(text), "%s", text);
    cr_expect(strstr(said(), words), "%s\n%swants: %s", text, said(), words);
}

/* With a good model. */
static void step_rejected(const char *steps, const char *words) {
    rejected(hd_printf(arena, "{%s,\n %s}", steps, MODEL), words);
}

static void model_rejected(const char *model, const char *words) {
    rejected(hd_printf(arena, "{\"model\": {%s}}", model), words);
}

Test(tokenizer_faults, models) {
    cr_assert(read_text("{" MODEL "}"), "%s", said());
    rejected("[]", "must be an object");
    rejected("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "git lfs pull");
    rejected("{}", "no model");
    rejected("{\"model\": 1}", "model: must be an object, not 1");
    rejected("{\"model\": {\"type\": \"Unigram\"}}", "1:20: error: model.type: only byte pair");
    rejected("{" MODEL ", \"modle\": 1}", "modle: a field that is not known");
    rejected("{" MODEL ", \"model\": 1}", "duplicate");
    rejected("{" MODEL, "not legal JSON");
    model_rejected("\"type\": \"BPE\", \"merges\": []", "model.vocab: is missing");
    model_rejected("\"type\": \"BPE\", \"vocab\": {}", "model.merges: is missing");
    model_rejected("\"vocab\": [], \"merges\": []", "model.vocab: must be an object");
    model_rejected("\"vocab\": {\"a\": -1}, \"merges\": []", "model.vocab.a: must be from 0");
    model_rejected("\"vocab\": {\"a\": 4194304}, \"merges\": []", "must be from 0 to 4194303");
    model_rejected("\"vocab\": {\"a\": 99999999999999999999}, \"merges\": []",
                   "model.vocab.a: must be a whole number");
    model_rejected("\"vocab\": {\"a\": \"0\"}, \"merges\": []", "a whole number, not \"0\"");
    model_rejected("\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []", "id 0 is that of another");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [\"a\"]", "model.merges[0]: must be two");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]", "must be two tokens");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]", "must be two tokens");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", 1]]", "must be two tokens");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]", "what it makes, \"aa\"");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [\"b a\"]", "its first part, \"b\"");
    model_rejected("\"vocab\": {\"a\": 0, \"\": 1}, \"merges\": [[\"\", \"a\"]]", "its first part");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"u\"",
                   "unk_token: it, \"u\"");
    model_rejected("\"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1",
                   "0.1 cannot be honoured");
    model_rejected("\"vocab\": {}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"",
                   "\"</w>\" cannot");
    model_rejected("\"vocab\": {}, \"merges\": [], \"fuse_unk\": 1",
                   "fuse_unk: must be true or false");
}

/* Two merges that would undo each other make the same token of two pairs, and end. */
Test(tokenizer_faults, merges_in_circles) {
    const tokenizer *t =
        read_text("{\"model\": {\"vocab\": {\"a\": 0, \"aa\": 1, \"aaa\": 2}, "
                  "\"merges\": [\"a a\", \"aa a\", \"a aa\", \"a a\", \"aa a\"]}}");
    id_list ids = {0};
    cr_assert(t, "%s", said());
    cr_assert(tokenizer_encode(t, arena, "aaaaa", 5, true, &ids));
    cr_assert_eq(ids.n, 2); /* a a a a a, aa aa a, aa aaa */
    cr_expect(ids.at[0] == 1 && ids.at[1] == 2);
}

Test(tokenizer_faults, added_tokens) {
    step_rejected("\"added_tokens\": {}", "added_tokens: must be a list");
    step_rejected("\"added_tokens\": [{\"id\": 3}]", "added_tokens[0].content: is missing");
    step_rejected("\"added_tokens\": [{\"content\": \"x\"}]", "added_tokens[0].id: is missing");
    step_rejected("\"added_tokens\": [{\"id\": 3, \"content\": \"\"}]", "content: is empty");
    step_rejected("\"added_tokens\": [{\"id\": 1, \"content\": \"x\"}]", "id 1 is that of another");
    step_rejected("\"added_tokens\": [{\"id\": 7, \"content\": \"a\"}]", "this token with id 0");
    step_rejected("\"added_tokens\": [{\"id\": 7, \"content\": \"x\", \"colour\": 1}]",
                  "colour: a field");
    step_rejected(
        "\"added_tokens\": [{\"id\": 7, \"content\": \"x\"}, {\"id\": 8, \"content\": \"x\"}]",
        "added_tokens[1].content: stands twice");
}

Test(tokenizer_faults, steps) {
    step_rejected("\"normalizer\": {\"type\": \"Lowercase\"}", "\"Lowercase\" is not known");
    step_rejected("\"normalizer\": {\"type\": \"Precompiled\"}", "normalizer.type");
    step_rejected("\"normalizer\": {\"type\": \"NFC\", \"form\": 1}", "normalizer.form: a field");
    step_rejected("\"normalizer\": {\"type\": \"Prepend\"}", "normalizer.prepend: is missing");
    step_rejected("\"normalizer\": 1", "normalizer: must be an object");
    step_rejected(
        "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, null]}",
        "normalizer.normalizers[1]: must be an object");
    step_rejected("\"normalizer\": {\"type\": \"Replace\", \"content\": \"\", \"pattern\": "
                  "{\"Regex\": \"(\"}}",
                  "pattern.Regex: this pattern cannot be used: a group does not end");
    step_rejected("\"normalizer\": {\"type\": \"Replace\", \"content\": \"\", \"pattern\": "
                  "{\"String\": \"\"}}",
                  "pattern.String: is empty");
    step_rejected("\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}", "pre_tokenizer.type");
    step_rejected("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}",
                  "replacement: must be one character");
    step_rejected("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", "
                  "\"prepend_scheme\": \"second\"}",
                  "\"second\" is not known");
    step_rejected("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", "
                  "\"prepend_scheme\": \"first\", \"add_prefix_space\": false}",
                  "contradicts prepend_scheme");
    step_rejected("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, "
                  "\"behavior\": \"Isolate\"}",
                  "hint: Removed, Isolated");
    step_rejected("\"decoder\": {\"type\": \"WordPiece\"}", "decoder.type");
    step_rejected(
        "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": "
        "\"ByteFallback\"}]}",
        "decoder.decoders[1]: this step is not known after");
    step_rejected("\"post_processor\": {\"type\": \"BertProcessing\"}", "post_processor.type");
}

Test(tokenizer_faults, templates) {
#define TEMPLATE "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
    step_rejected(TEMPLATE "[], \"special_tokens\": {}}", "the text itself");
    step_rejected(TEMPLATE "[{\"Sequence\": {\"id\": \"B\"}}], \"special_tokens\": {}}",
                  "that text");
    step_rejected(TEMPLATE "[{\"SpecialToken\": {\"id\": \"x\"}}], \"special_tokens\": {}}",
                  ".x: is missing");
    step_rejected(
        TEMPLATE
        "[{\"SpecialToken\": {\"id\": \"x\"}}], \"special_tokens\": {\"x\": {\"ids\": [9]}}}",
        "special_tokens.x.ids[0]: there is no token 9");
}

Test(tokenizer_faults, patterns) {
    static const struct {
        const char *regex, *why;
    } cases[] = {
        {"a)", "ends nothing"},
        {"[a", "class does not end"},
        {"[]", "empty"},
        {"a\\", "backslash"},
        {"*a", "nothing to repeat"},
        {"(?<n>a)", "of this kind"},
        {"(?x:a)", "this kind"},
        {"\\1", "\\1 is not known"},
        {"\\Ra", "\\R is not known"},
        {"\\p{Nobody}", "\\p{Nobody} is not known"},
        {"[[:alpha:]]", "names of classes"},
        {"[z-a]", "range"},
        {"[a-\\d]", "range"},
        {"\\x{110000}", "character code"},
        {"\\u12", "code"},
        {"(?<=a+)b", "lookbehind"},
        {"a{3,2}", "out of order"},
    };
    const char *why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        why = "";
        cr_expect_null(pattern_regex(arena, cases[i].regex, &why), "%s", cases[i].regex);
        cr_expect(strstr(why, cases[i].why), "%s: %s", cases[i].regex, why);
    }
    char deep[401] = "";
    memset(deep, '(', 200), memset(deep + 200, ')', 200);
    cr_expect_null(pattern_regex(arena, deep, &why));
    memset(deep, '[', 400);
    cr_expect_null(pattern_regex(arena, deep, &why));
}

/* Backtracking without end is an error of the text, not a hang. */
Test(tokenizer_faults, backtracking) {
    const tokenizer *t =
        read_text("{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
                  "\"(a+a+)+[bc]\"}, \"behavior\": \"Isolated\"}, " MODEL "}");
    char text[2001];
    id_list ids = {0};
    cr_assert(t, "%s", said());
    memset(text, 'a', sizeof text - 1);
    cr_expect_not(tokenizer_encode(t, arena, text, sizeof text - 1, true, &ids));
}

/* ---- tiktoken.model ---------------------------------------------------------------------------
 */

#define KIMI "\"auto_map\": {\"AutoTokenizer\": [\"tokenization_kimi.TikTokenTokenizer\", null]}"

static void write_text(const char *name, const char *text) {
    cr_assert(hd_write_file(arena, &diags, in_folder(name), text, strlen(text)));
}

static tokenizer *read_tiktoken(const char *model, const char *config) {
    hd_diags_init(&diags, arena);
    write_text("tiktoken.model", model);
    write_text("tokenizer_config.json", config);
    return tokenizer_read_tiktoken(arena, &diags, hd_path_dir(arena, in_folder("x")));
}

/* Every byte but the last `without` ones, 0 to 255, and then these lines. */
static const char *bytes_and(size_t without, const char *lines) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    hd_text t;
    hd_text_init(&t, arena);
    for (size_t i = 0; i < 256 - without; i++)
        hd_text_f(&t, "%c%c== %zu\n", letters[i >> 2], letters[(i & 3) << 4], i);
    hd_text_add(&t, lines);
    return t.at;
}

static void model_lines_rejected(size_t without, const char *lines, const char *words) {
    const char *config = "{" KIMI ", \"added_tokens_decoder\": {}}";
    cr_expect_null(read_tiktoken(bytes_and(without, lines), config), "%s", lines);
    cr_expect(strstr(said(), words), "%s\n%swants: %s", lines, said(), words);
}

static void config_rejected(const char *config, const char *words) {
    cr_expect_null(read_tiktoken(bytes_and(0, ""), config), "%s", config);
    cr_expect(strstr(said(), words), "%s\n%swants: %s", config, said(), words);
}

Test(tokenizer_faults, tiktoken_lines) {
    const tokenizer *t = read_tiktoken(bytes_and(0, "YWI= 256\r\n"), "{" KIMI "}");
    cr_assert_null(t);
    t = read_tiktoken(bytes_and(0, "YWI= 256\n"),
                      "{" KIMI ", \"added_tokens_decoder\": {\"257\": {\"content\": \"[EOS]\"}}}");
    cr_assert(t, "%s", said());
    cr_expect_eq(t->n_ids, 257 + 258);
    cr_expect_str_eq(t->tokens[257].at, "[EOS]");
    cr_expect_str_eq(t->tokens[258].at, "<|reserved_token_258|>");
    cr_expect_null(
        read_tiktoken("version https://git-lfs.github.com/spec/v1\nsize 9\n", "{" KIMI "}"));
    cr_expect(strstr(said(), "hint: this is a pointer of Git LFS"), "%s", said());
    model_lines_rejected(0, "YWI=\n", "257:1: error: this is no token in base64");
    model_lines_rejected(0, "YWI 256\n", "no token in base64");
    model_lines_rejected(0, "Y=I= 256\n", "no token in base64");
    model_lines_rejected(0, "Y*I= 256\n", "no token in base64");
    model_lines_rejected(0, "==== 256\n", "no token in base64");
    model_lines_rejected(0, " 256\n", "no token in base64");
    model_lines_rejected(0, "YWI= \n", "its rank is no number");
    model_lines_rejected(0, "YWI= 256 1\n", "its rank is no number");
    model_lines_rejected(0, "YWI= 2x\n", "its rank is no number");
    model_lines_rejected(0, "YWI= -1\n", "its rank is no number");
    model_lines_rejected(0, "YWI= 257\n", "its rank is not 256");
    model_lines_rejected(0, "YWI= 0\n", "its rank is not 256");
    model_lines_rejected(0, "YWI= 99999999999999999999\n", "its rank is no");
    model_lines_rejected(0, "YQ== 256\n", "this token stands there twice");
    model_lines_rejected(1, "", "the byte 0xff is no token");
    model_lines_rejected(256, "", "the byte 0x00 is no token");
}

Test(tokenizer_faults, tiktoken_config) {
    config_rejected("[]", "must be an object");
    config_rejected("{}", "it is not said which code cuts texts");
    config_rejected("{\"auto_map\": {\"AutoTokenizer\": [\"a.B\", null]}}",
                    "1:33: error: auto_map.AutoTokenizer[0]: the pattern that tokenizers of this");
    config_rejected("{" KIMI "}", "added_tokens_decoder: is missing");
    config_rejected("{" KIMI ", \"added_tokens_decoder\": []}", "must be an object");
    config_rejected("{" KIMI ", \"added_tokens_decoder\": {\"256\": 1}}", "must be an object");
    config_rejected("{" KIMI ", \"added_tokens_decoder\": {\"256\": {}}}", "content: is missing");
    config_rejected("{" KIMI ", \"added_tokens_decoder\": {\"256\": {\"content\": \"\"}}}",
                    "is empty");
    config_rejected("{" KIMI ", \"added_tokens_decoder\": {\"256\": {\"content\": \"a\"}, \"257\": "
                    "{\"content\": \"a\"}}}",
                    "257.content: stands twice");
    config_rejected("{" KIMI ", \"added_tokens_decoder\": {\"255\": {\"content\": \"a\"}}}",
                    "ids of special tokens are 256 to 513");
    config_rejected("{" KIMI ", \"added_tokens_decoder\": {\"514\": {\"content\": \"a\"}}}",
                    "ids of special tokens are 256 to 513");
    cr_assert_eq(unlink(in_folder("tokenizer_config.json")), 0);
    hd_diags_init(&diags, arena);
    cr_expect_null(
        tokenizer_read_tiktoken(arena, &diags, hd_path_dir(arena, in_folder("tiktoken.model"))));
    cr_expect(strstr(said(), "tokenizer_config.json'"), "%s", said());
}

/* Fields that the code of the tokenizer does not read. */
Test(tokenizer_faults, tiktoken_fields_that_are_noted) {
#define NOTED(more) "{" KIMI ", \"added_tokens_decoder\": {}" more "}"
    cr_assert(read_tiktoken(bytes_and(0, ""), NOTED("")), "%s", said());
    cr_expect_eq(diags.list.n, 0, "%s", said());
    cr_assert(read_tiktoken(bytes_and(0, ""), NOTED(", \"bos_token\": \"x\", \"chat_template\": "
                                                    "\"y\", \"add_bos_token\": false")));
    cr_expect_eq(diags.list.n, 0, "%s", said());
    cr_assert(read_tiktoken(bytes_and(0, ""), NOTED(", \"add_bos_token\": true, \"later\": 1")));
    cr_expect(strstr(said(), "note: add_bos_token: not read where the tokenizer is tiktoken.model"),
              "%s", said());
    cr_expect(strstr(said(), "note: later: not known, and not applied"), "%s", said());
}

/* The code that cuts texts is data here: where it is there, it must say the same. */
Test(tokenizer_faults, tiktoken_code) {
    const char *config = "{\"auto_map\": {\"AutoTokenizer\": "
                         "\"repo/name--tokenization_kimi.TikTokenTokenizer\"}, "
                         "\"added_tokens_decoder\": {}}";
    cr_assert(read_tiktoken(bytes_and(0, ""), config), "%s", said());
    write_text("tokenization_kimi.py", "pat_str = r'\\p{N}'\n");
    config_rejected(config, "it does not cut texts by the pattern that is known");
    cr_assert_eq(unlink(in_folder("tokenization_kimi.py")), 0);
}
