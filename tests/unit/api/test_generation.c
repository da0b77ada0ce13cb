/* What generation_config.json says: tokens that end a text, and what else it asks for, which nothing
 * here does and a note names. */
#include "hadal/hadal.h"

#include <unistd.h>

#define FOLDER "/tmp/hadal-generation-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(generation, .init = open_folder, .fini = close_folder, .timeout = 60);

static void put(const char *name, const char *text) {
    cr_assert(hd_write_file(arena, &diags, in_folder(name), text, strlen(text)));
}

/* The ids, and what is said, each behind another. */
static const char *read_files(const char **said_of) {
    hadal_session *s = hadal_open();
    const int32_t *ids;
    size_t n = 0;
    hd_text out, said_text;
    hd_text_init(&out, arena);
    hd_text_init(&said_text, arena);
    hd_text_add(&out, "");
    hd_text_add(&said_text, "");
    const bool failed = hadal_stop_tokens(s, folder, &ids, &n) != 0;
    for (size_t i = 0; !failed && i < n; i++)
        hd_text_f(&out, "%s%d", i ? " " : "", ids[i]);
    for (size_t i = 0; i < hadal_diagnostics(s); i++)
        hd_text_add(&said_text, hadal_diagnostic_text(s, i, 0));
    *said_of = said_text.at;
    hadal_close(s);
    return failed ? "failed" : out.at;
}

/* `part` NULL: nothing is said. */
static void expect(const char *file, const char *ids, const char *part) {
    const char *text;
    put("generation_config.json", file);
    cr_expect_str_eq(read_files(&text), ids, "%s\n%s", file, text);
    if (part)
        cr_expect(strstr(text, part), "%s\ndoes not say '%s' but\n%s", file, part, text);
    else
        cr_expect_str_eq(text, "", "%s\n%s", file, text);
}

Test(generation, tokens_that_end_a_text) {
    expect("{}", "", NULL);
    expect("{\"eos_token_id\": 2}", "2", NULL);
    expect("{\"eos_token_id\": [2, 0, 7]}", "2 0 7", NULL);
    expect("{\"eos_token_id\": [], \"pad_token_id\": 1, \"bos_token_id\": 3}", "", NULL);
    expect("{\"eos_token_id\": \"2\"}", "failed", "eos_token_id: must be token ids, not \"2\"");
    expect("{\"eos_token_id\": [2, 1.5]}", "failed", "must be token ids, not 1.5");
    expect("{\"eos_token_id\": [[2]]}", "failed", "must be token ids");
    expect("{\"eos_token_id\": -1}", "failed", "must be token ids, not -1");
    expect("{\"eos_token_id\": 1e999}", "failed", "must be token ids");
    expect("[]", "failed", "generation_config.json");
    expect("{\"a\": 1, \"a\": 2}", "failed", "duplicate");
    expect("version https://git-lfs.github.com/spec/v1\n", "failed", "git lfs pull");
    put("config.json", "{\"eos_token_id\": 9}");
    expect("{\"eos_token_id\": 2}", "2", NULL);
    expect("{\"eos_token_id\": null}", "9", NULL);
    put("config.json", "{\"text_config\": {\"eos_token_id\": [9, 8]}}");
    expect("{}", "9 8", NULL);
}

Test(generation, what_is_asked_for_and_not_done) {
    static const char *const asked[] = {"\"repetition_penalty\": 1.05",
                                        "\"encoder_repetition_penalty\": 2",
                                        "\"no_repeat_ngram_size\": 3",
                                        "\"encoder_no_repeat_ngram_size\": 3",
                                        "\"suppress_tokens\": [1]",
                                        "\"begin_suppress_tokens\": [220, 50256]",
                                        "\"bad_words_ids\": [[1]]",
                                        "\"force_words_ids\": [[1]]",
                                        "\"constraints\": [{}]",
                                        "\"forced_bos_token_id\": 0",
                                        "\"forced_eos_token_id\": [2]",
                                        "\"sequence_bias\": [[[1], -1.0]]",
                                        "\"token_healing\": true",
                                        "\"min_length\": 5",
                                        "\"min_new_tokens\": 5",
                                        "\"max_time\": 1.5",
                                        "\"stop_strings\": [\"###\"]",
                                        "\"stop_strings\": \"###\"",
                                        "\"num_beams\": 4",
                                        "\"guidance_scale\": 1.5",
                                        "\"penalty_alpha\": 0.6",
                                        "\"dola_layers\": \"high\"",
                                        "\"watermarking_config\": {\"bias\": 2.0}",
                                        "\"num_return_sequences\": 2",
                                        "\"cache_implementation\": \"quantized\"",
                                        "\"repetition_penalty\": 1e999"};
    static const char *const nothing[] = {"\"repetition_penalty\": 1.0",
                                          "\"repetition_penalty\": 1",
                                          "\"no_repeat_ngram_size\": 0",
                                          "\"suppress_tokens\": []",
                                          "\"suppress_tokens\": null",
                                          "\"num_beams\": 1",
                                          "\"sequence_bias\": {}",
                                          "\"token_healing\": false",
                                          "\"min_length\": 0",
                                          "\"guidance_scale\": 1.0",
                                          "\"max_new_tokens\": 9",
                                          "\"use_cache\": false",
                                          "\"cache_implementation\": \"static\"",
                                          "\"length_penalty\": 2.0",
                                          "\"num_return_sequences\": 1",
                                          "\"prompt_lookup_num_tokens\": 10",
                                          "\"chat_format\": null, \"later\": false",
                                          "\"later\": [], \"\": {}",
                                          "\"max_length\": 4096",
                                          "\"pad_token_id\": 0",
                                          "\"transformers_version\": \"5\"",
                                          "\"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20, "
                                          "\"min_p\": 0.1", /* nothing is drawn */
                                          "\"do_sample\": false, \"temperature\": 0.6, "
                                          "\"typical_p\": 0.9",
                                          "\"do_sample\": true, \"temperature\": 0",
                                          "\"do_sample\": null, \"temperature\": NaN"};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const char *name = hd_printf(arena, "note: %.*s: nothing here does what this asks for",
                                     (int)strcspn(asked[i] + 1, "\""), asked[i] + 1);
        expect(hd_printf(arena, "{%s}", asked[i]), "", name);
    }
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        expect(hd_printf(arena, "{%s}", nothing[i]), "", NULL);
    expect("{\"min_length\": 3, \"num_beams\": 2, \"eos_token_id\": 2}", "2",
           "note: min_length, num_beams: nothing here");
}

Test(generation, fields_that_are_not_known) {
    expect("{\"chat_format\": \"chatml\"}", "", "note: chat_format: not known, and not applied");
    expect("{\"eos_token_id\": 2, \"later\": 0, \"pad_token_id\": 1, \"last\": {\"a\": 1}}", "2",
           "note: later, last: not known, and not applied");
    const char *text;
    cr_assert(unlink(in_folder("generation_config.json")) == 0);
    put("config.json", "{\"eos_token_id\": 2, \"later\": 1}"); /* the importer's to reject */
    cr_expect_str_eq(read_files(&text), "2");
    cr_expect_str_eq(text, "");
}

/* The table in docs/text.md is that of generation.def. */
Test(generation, fields_as_documented) {
    static const struct {
        const char *group, *name;
    } fields[] = {
#define FIELD(group, name, nothing) {#group, #name},
#include "frontend/config/generation.def"
    };
    static const char *const groups[][2] = {
#define GROUP(id, happens) {#id, happens},
#include "frontend/config/generation.def"
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

Test(generation, drawing_is_for_the_user_to_say) {
    expect(
        "{\"do_sample\": true}", "",
        "note: do_sample: tokens are drawn only where options say so: --temperature 1 --top-k 50 "
        "--top-p 1");
    expect("{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20}", "",
           "options say so: --temperature 0.6 --top-k 20 --top-p 0.95");
    expect("{\"do_sample\": true, \"min_p\": 0.05, \"typical_p\": 1.0}", "",
           "note: min_p: nothing here does");
    expect("{\"do_sample\": true, \"top_k\": null, \"temperature\": \"hot\"}", "",
           "--temperature 1 --top-k 50");
    expect("{\"do_sample\": true, \"temperature\": -1}", "",
           "note: temperature: no token can be drawn with -1");
    expect("{\"do_sample\": true, \"top_p\": 1.5, \"top_k\": -2}", "",
           "--temperature 1 --top-k 50 --top-p 1");
}

/* Older folders have settings in config.json, which count where there is no other file. */
Test(generation, settings_of_config_json) {
    const char *text;
    put("config.json", "{\"eos_token_id\": 2, \"repetition_penalty\": 1.1}");
    cr_expect_str_eq(read_files(&text), "2");
    cr_expect(strstr(text, "config.json:1:21: note: repetition_penalty"), "%s", text);
    put("config.json", "{\"text_config\": {\"eos_token_id\": 2, \"do_sample\": true}}");
    cr_expect_str_eq(read_files(&text), "2");
    cr_expect(strstr(text, "note: do_sample: tokens are drawn only"), "%s", text);
    expect("{}", "2", NULL);
}

/* ---- memory of sessions ---------------------------------------------------------------------- */
/* Bytes of anonymous maps for which huge pages are requested. */
static size_t bytes_in_huge_maps(void) {
    char line[512];
    size_t bytes = 0;
    unsigned long from = 0, to = 0, inode = 0, number;
    FILE *f = fopen("/proc/self/smaps", "r");
    cr_assert(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx %*s %*x %*s %lu", &from, &to, &number) == 3) inode = number;
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " hg") && !inode) bytes += to - from;
    }
    fclose(f);
    return bytes;
}

static int look_and_stop(void *huge, int32_t id) {
    (void)id;
    *(size_t *)huge = bytes_in_huge_maps();
    return 1;
}

static void compile_jargon(hadal_session *s) {
    const hadal_pipeline pipeline = {.struct_size = sizeof pipeline};
    const hadal_target target = {
        .struct_size = sizeof target, .cpu = "native", .runtime = HADAL_BUILD "/lib/libhadalrt.a"};
    cr_assert(!hadal_include_path(s, HADAL_SOURCE "/frontend/std"));
    cr_assert(!hadal_load(s, HADAL_SOURCE "/examples/jargon/jargon.hadal", "jargon"));
    cr_assert(!hadal_weights(s, HADAL_SOURCE "/examples/jargon/model.safetensors"));
    cr_assert(!hadal_run_passes(s, &pipeline));
    cr_assert(!hadal_emit(s, &target, "so", in_folder("libjargon.so")));
    cr_assert(!hadal_emit(s, &target, "weights", in_folder("jargon.weights")));
}

/* A session that is at least half full lies in huge pages. One that may stay short, with a long
 * rest of a text or of a chat, does not: each of them would be resident as a whole. */
Test(generation, huge_pages_for_sessions_that_are_filled) {
    enum { MANY = 3000 }; /* tokens: 9 MB of keys and values */
    static const int32_t prompt[MANY] = {1, 2, 3};
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK)) cr_skip_test("no huge pages");
    hadal_session *s = hadal_open();
    compile_jargon(s);
    size_t huge = 0;
    hadal_generated out;
    hadal_generate_options o = {.struct_size = sizeof o,
                                .library = in_folder("libjargon.so"),
                                .packed = in_folder("jargon.weights"),
                                .max_tokens = 8,
                                .top_p = 1,
                                .token = look_and_stop,
                                .context = &huge};
    const size_t before = bytes_in_huge_maps();
    cr_assert_eq(hadal_generate(s, &o, prompt, MANY, &out), 0);
    cr_expect_geq(huge - before, 4u << 20);
    o.max_tokens = MANY;
    cr_assert_eq(hadal_generate(s, &o, prompt, 3, &out), 0);
    cr_expect_eq(huge, before, "of a text that may end early");
    hadal_generation *g = hadal_generation_open(s, &o, MANY);
    cr_assert(g);
    huge = 1;
    cr_assert_eq(hadal_generation_continue(g, prompt, 3, &out), 0);
    cr_expect_eq(huge, before, "of a chat");
    hadal_generation_close(g);
    hadal_close(s);
}
