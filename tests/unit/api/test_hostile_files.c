/* Files that nobody foresaw: thousands of seeded mutations of good ones, none of which may do more
 * than add diagnostics; and memory that runs out at every single allocation, which must leave
 * neither files nor descriptors behind. Meant to be run under the sanitizers as well. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/program/program.h"
#include "frontend/config/quantisation.h"
#include "frontend/frontend.h"
#include "ir/eval/random.h"
#include "support/packed.h"
#include "tests/tools/full.h"
#include "text/tokenizer.h"

#define FOLDER "/tmp/hadal-hostile-XXXXXX"
#include "tests/unit/folder_fixture.h"

static const hfe_options options = {.std_dir = TEST_DATA "/../frontend/std"};

TestSuite(hostile, .init = open_folder, .fini = close_folder, .timeout = 120);

static int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* ---- mutations ----------------------------------------------------------------------------- */

/* Pieces that steer towards the odd corners of the formats. */
static const char *const pieces[] = {
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "-1",
    "0",
    "1e9",
    "99999999999999999999",
    "null",
    "true",
    "0.5",
    "\\u0000",
    "\\",
    "\n",
    "\xff",
    "4294967296",
    "\"F32\"",
    "\"type\": ",
    "\"a\"",
    "9223372036854775807",
    "()",
    "'",
};

static size_t mutate(hir_random *r, char *text, size_t n, size_t capacity) {
    uint64_t changes = 1 + hir_random_below(r, 3);
    for (uint64_t i = 0; i < changes && n > 1; i++) {
        size_t at = (size_t)hir_random_below(r, n);
        const char *piece = pieces[hir_random_below(r, sizeof pieces / sizeof *pieces)];
        size_t k = strlen(piece), cut = (size_t)hir_random_below(r, 12);
        switch (hir_random_below(r, 5)) {
        case 0: text[at] = (char)hir_random_next(r); break;
        case 1: text[at] ^= (char)(1 << hir_random_below(r, 8)); break;
        case 2: n = at; break; /* truncate */
        case 3:                /* insert a piece */
            if (n + k > capacity) break;
            memmove(text + at + k, text + at, n - at);
            memcpy(text + at, piece, k);
            n += k;
            break;
        default: /* cut some bytes */
            if (cut > n - at) cut = n - at;
            memmove(text + at, text + at + cut, n - at - cut);
            n -= cut;
        }
    }
    return n;
}

typedef bool reader(hd_arena *a, hd_diags *d, const char *path);

static bool read_safetensors(hd_arena *a, hd_diags *d, const char *path) {
    hd_tensors t;
    if (!hd_safetensors_open(a, d, path, &t)) return false;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < t.list.n; i++) /* all of the data that it promised is there */
        for (uint64_t j = 0; j < t.list.at[i].bytes; j++)
            sum = (uint8_t)(sum + t.list.at[i].data[j]);
    return true;
}

static bool read_npy(hd_arena *a, hd_diags *d, const char *path) {
    hd_tensor t;
    if (!hd_npy_read(a, d, path, &t)) return false;
    volatile double sum = 0;
    for (uint64_t j = 0; j < t.elements; j++)
        sum = sum + hd_tensor_get(&t, j);
    return true;
}

/* With what the config beside it says, every element. */
static bool read_quantised(hd_arena *a, hd_diags *d, const char *path) {
    hd_tensors stored, t;
    hd_quantisation how;
    const char *weights = hd_path_join(a, hd_path_dir(a, path), "model.safetensors");
    if (!hd_safetensors_open(a, d, weights, &stored) || !hfe_quantisation_of(a, d, path, &how) ||
        !hd_unpack(a, d, &stored, &how, &t))
        return false;
    volatile double sum = 0;
    for (size_t i = 0; i < t.list.n; i++)
        for (uint64_t j = 0; j < t.list.at[i].elements; j++)
            sum = sum + hd_tensor_get(&t.list.at[i], j);
    return true;
}

static bool read_config(hd_arena *a, hd_diags *d, const char *path) {
    return hfe_import(a, d, hd_path_dir(a, path), &options) != NULL;
}

/* Reads mutations of a file, `rounds` in the full set and the first quarter of them in the short one; each
 * is either taken or rejected with a diagnostic. */
static void try_mutations(reader *read, const char *name, const char *good, size_t n, int rounds) {
    if (!full_set()) rounds /= 4;
    hir_random r = hir_random_stream(1, name);
    size_t capacity = n + 256;
    char *text = malloc(capacity);
    int taken = 0;
    for (int i = 0; i <= rounds; i++) {
        hd_arena *a = hd_arena_new();
        hd_diags d;
        hd_diags_init(&d, a);
        memcpy(text, good, n);
        size_t size = i ? mutate(&r, text, n, capacity) : n;
        const char *path = hd_path_join(a, folder, name);
        FILE *f = fopen(path, "wb");
        cr_assert(f && fwrite(text, 1, size, f) == size);
        fclose(f);
        bool ok = read(a, &d, path);
        cr_assert(i || ok, "the file is good before it is changed");
        cr_assert(ok == (d.errors == 0), "%s, round %d: it is %s, with %zu errors", name, i,
                  ok ? "read" : "rejected", (size_t)d.errors);
        for (size_t k = 0; k < d.list.n; k++) {
            hd_text shown;
            hd_text_init(&shown, a);
            hd_diag_render(&d.list.at[k], false, &shown);
        }
        taken += ok;
        hd_arena_free(a);
    }
    cr_expect_lt(taken, rounds, "%s: some mutations are rejected", name);
    free(text);
}

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    cr_assert(f);
    char *text = malloc(1 << 20);
    *n = fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

Test(hostile, mutated_safetensors) {
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
        "\"c\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[32,33]}}   ";
    char file[8 + sizeof header - 1 + 33] = {(char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    try_mutations(read_safetensors, "x.safetensors", file, sizeof file, 1500);
}

Test(hostile, mutated_index) {
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_diags_init(&d, a);
    float x = 1;
    for (int i = 1; i <= 2; i++) {
        hd_tensor t = {.name = i == 1 ? "a" : "b", .dtype = HD_T_F32, .data = (uint8_t *)&x};
        const char *path = hd_path_join(a, folder, hd_printf(a, "%d.safetensors", i));
        cr_assert(hd_safetensors_write(a, &d, path, &t, 1));
    }
    static const char index[] =
        "{\"metadata\": {\"total_size\": 8},\n \"weight_map\": {\"a\": \"1.safetensors\",\n"
        "  \"b\": \"2.safetensors\"}}\n";
    try_mutations(read_safetensors, "model.safetensors.index.json", index, sizeof index - 1, 800);
    hd_arena_free(a);
}

Test(hostile, mutated_npy) {
    static const char header[] = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n";
    char file[10 + sizeof header - 1 + 24] = "\x93NUMPY\1\0";
    file[8] = (char)(sizeof header - 1);
    memcpy(file + 10, header, sizeof header - 1);
    try_mutations(read_npy, "x.npy", file, sizeof file, 1500);
}

Test(hostile, mutated_configs) {
    static const char *const configs[] = {"transformers-4/llama3", "transformers-5/qwen3",
                                          "../golden/attnres-block"};
    for (int i = 0; i < 3; i++) {
        char path[512];
        size_t n;
        snprintf(path, sizeof path, "%s/import/%s/config.json", TEST_DATA, configs[i]);
        char *text = slurp(path, &n);
        try_mutations(read_config, "config.json", text, n, 500);
        free(text);
    }
}

/* Read, a text encoded, and all of its tokens decoded. */
static bool read_tokenizer(hd_arena *a, hd_diags *d, const char *path) {
    static const char text[] = "Hello  w\u00f6rld <s> 123\n";
    id_list ids = {0};
    const tokenizer *t = tokenizer_read(a, d, path);
    if (!t) return false;
    if (tokenizer_encode(t, a, text, sizeof text - 1, true, &ids)) {
        text_stream *s = text_stream_new(a, t, false, false);
        for (size_t i = 0; i < ids.n; i++)
            text_stream_add(s, ids.at[i]);
        text_stream_end(s);
    }
    return true;
}

/* Small ones, so that every part of them is hit. */
Test(hostile, mutated_tokenizers) {
    static const char *const good[] = {
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":5,"
        "\"content\":\"<s>\",\"single_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":"
        "true,\"special\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
        "\"NFC\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        "\"(?i:[a-z&&[^l]])+|\\\\p{L}{1,2}+\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
        "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[5],\"tokens\":[\"<s>\"]}}},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":"
        "\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},\"model\":"
        "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"l\",\"fuse_unk\":true,\"byte_"
        "fallback\":"
        "true,\"vocab\":{\"l\":0,\"o\":1,\"ll\":2,\"lo\":3,\"<0x0A>\":4,\"llo\":6},\"merges\":"
        "[\"l l\",[\"l\",\"o\"],\"ll o\"]}}",
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
        "\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]},"
        "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
    };
    for (int i = 0; i < 2; i++)
        try_mutations(read_tokenizer, "tokenizer.json", good[i], strlen(good[i]), 3000);
}

/* One tensor of each packed form, so that their headers meet in mutated files; then their config.
 */
Test(hostile, mutated_quantised_files) {
    static const char header[] =
        "{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,5],\"data_offsets\":[0,15]},"
        "\"a.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[15,19]},"
        "\"b_blocks\":{\"dtype\":\"U8\",\"shape\":[1,2,1,16],\"data_offsets\":[19,51]},"
        "\"b_scales\":{\"dtype\":\"U8\",\"shape\":[1,2,1],\"data_offsets\":[51,53]},"
        "\"c.weight_packed\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[53,69]},"
        "\"c.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[69,73]},"
        "\"c.weight_shape\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[73,89]},"
        "\"c.weight_zero_point\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[89,93]},"
        "\"d.weight_packed\":{\"dtype\":\"U8\",\"shape\":[1,16],\"data_offsets\":[93,109]},"
        "\"d.weight_scale\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[109,110]},"
        "\"e.w2_weight\":{\"dtype\":\"U8\",\"shape\":[1,1,8],\"data_offsets\":[110,118]},"
        "\"e.w2_weight_amax\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[118,122]},"
        "\"e.w2_weight_outer_scale_denominator\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[122,126]},"
        "\"e.w2_weight_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1,1],"
        "\"data_offsets\":[126,127]}}   ";
    enum { N = sizeof header - 1, DATA = 127 };
    char file[8 + N + DATA] = {(char)(N & 255), (char)(N >> 8)};
    memcpy(file + 8, header, N);
    file[8 + N + 73] = 2, file[8 + N + 81] = 9;
    file[8 + N + 125] = 0x40; /* a divisor of 2 */
    try_mutations(read_quantised, "model.safetensors", file, sizeof file, 3000);
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_diags_init(&d, a);
    cr_assert(
        hd_write_file(a, &d, hd_path_join(a, folder, "model.safetensors"), file, sizeof file));
    static const char config[] =
        "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
        "\"mixed-precision\", \"config_groups\": {\"x\": {\"format\": \"float-quantized\", "
        "\"targets\": [\"re:[ab].*\"], \"weights\": {\"num_bits\": 8, \"type\": \"float\", "
        "\"strategy\": \"block\", \"block_structure\": [128, 128]}}, \"y\": {\"format\": "
        "\"pack-quantized\", \"targets\": [\"c\"], \"weights\": {\"num_bits\": 4, \"type\": "
        "\"int\", \"symmetric\": false, \"strategy\": \"channel\"}}, \"z\": {\"format\": "
        "\"mxfp4-pack-quantized\", \"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, "
        "\"type\": \"float\", \"strategy\": \"group\", \"group_size\": 32}}, \"w\": {\"format\": "
        "\"nvfp4-pack-quantized\", \"targets\": [\"e.w2_weight\"], \"weights\": "
        "{\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16}}}, \"ignore\": "
        "[\"lm_head\", \"re:.*\\\\.gate$\"]}}";
    try_mutations(read_quantised, "config.json", config, sizeof config - 1, 3000);
    hd_arena_free(a);
}

/* The same of forms that only their config tells apart. */
static const struct {
    const char *header;
    size_t bytes;
    const char *config;
} told_apart[] = {
    {"{\"b.qweight\":{\"dtype\":\"I32\",\"shape\":[1,8],\"data_offsets\":[0,32]},"
     "\"b.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[32,36]},"
     "\"b.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[36,52]},"
     "\"b.g_idx\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[52,84]},"
     "\"b.bias\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[84,100]}}",
     100,
     "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -1, "
     "\"desc_act\": true, \"sym\": true, \"checkpoint_format\": \"gptq_v2\", \"dynamic\": {}, "
     "\"modules_to_not_convert\": [\"lm_head\"]}}"},
    {"{\"b.qweight\":{\"dtype\":\"I32\",\"shape\":[8,1],\"data_offsets\":[0,32]},"
     "\"b.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[32,36]},"
     "\"b.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[36,52]}}",
     52,
     "{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 8, "
     "\"version\": \"gemm\", \"zero_point\": true, \"modules_to_not_convert\": null}}"},
    {"{\"a.weight\":{\"dtype\":\"I8\",\"shape\":[3,5],\"data_offsets\":[0,15]},"
     "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[15,27]},"
     "\"a.weight_zero_point\":{\"dtype\":\"I8\",\"shape\":[3,1],\"data_offsets\":[27,30]},"
     "\"a.weight_g_idx\":{\"dtype\":\"I32\",\"shape\":[5],\"data_offsets\":[30,50]},"
     "\"k_proj.weight\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[50,52]},"
     "\"l.k_scale\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[52,54]}}",
     54,
     "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
     "\"int-quantized\", \"kv_cache_scheme\": {\"num_bits\": 8}, \"config_groups\": {\"x\": "
     "{\"input_activations\": {}, \"weights\": {\"num_bits\": 8, \"type\": \"int\", "
     "\"symmetric\": true, \"strategy\": \"channel\"}}}}}"},
    {"{\"a.weight\":{\"dtype\":\"U8\",\"shape\":[2,8],\"data_offsets\":[0,16]},"
     "\"a.weight_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,1],\"data_offsets\":[16,18]},"
     "\"a.weight_scale_2\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[18,22]},"
     "\"b.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[22,28]},"
     "\"b.weight_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[28,32]}}",
     32,
     "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": "
     "\"MIXED_PRECISION\", \"quantized_layers\": {\"a\": {\"quant_algo\": \"NVFP4\", "
     "\"group_size\": 16}, \"b\": {\"quant_algo\": \"FP8\"}}, \"config_groups\": {\"x\": "
     "{\"weights\": {\"num_bits\": 4, \"group_size\": 16}}}, \"ignore\": [\"lm_head\"]}}"},
};

Test(hostile, mutated_files_of_gptq_awq_and_bytes) {
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_diags_init(&d, a);
    for (size_t i = 0; i < sizeof told_apart / sizeof *told_apart; i++) {
        const char *config = told_apart[i].config;
        const size_t n = strlen(told_apart[i].header), size = 8 + n + told_apart[i].bytes;
        char *file = hd_alloc(a, size, 1);
        memset(file, 0, size);
        file[0] = (char)(n & 255), file[1] = (char)(n >> 8);
        memcpy(file + 8, told_apart[i].header, n);
        const char *path = hd_path_join(a, folder, "config.json");
        cr_assert(hd_write_file(a, &d, path, config, strlen(config)));
        try_mutations(read_quantised, "model.safetensors", file, size, 2000);
        path = hd_path_join(a, folder, "model.safetensors");
        cr_assert(hd_write_file(a, &d, path, file, size));
        try_mutations(read_quantised, "config.json", config, strlen(config), 2000);
    }
    hd_arena_free(a);
}

/* ---- memory that runs out ------------------------------------------------------------------ */

typedef bool job(hd_arena *a, hd_diags *d);

/* True if the job was done although allocation n was to fail: it needs fewer than n. */
static bool done_in_spite_of(size_t n, job *work, hd_arena *a) {
    jmp_buf here;
    hd_arena_guard(a, &here);
    if (setjmp(here)) return false;
    hd_diags *d = hd_new(a, hd_diags);
    hd_diags_init(d, a);
    hd_arena_fail_after(a, n);
    bool ok = work(a, d);
    cr_expect(ok || d->errors > 0);
    return ok;
}

/* Runs `work` with allocation n failing, for n = 1, 1 + step, .. until it gets through. Of work that makes
 * thousands of allocations (step > 1), the short set has steps of three times the size. */
static void fail_allocations(job *work, size_t step) {
    if (step > 1 && !full_set()) step *= 3;
    int descriptors = entries("/proc/self/fd");
    bool done = false;
    size_t n = 1;
    for (; !done && n < 100000; n += step) {
        hd_arena *a = hd_arena_new();
        done = done_in_spite_of(n, work, a);
        hd_arena_free(a);
        cr_assert_eq(entries("/proc/self/fd"), descriptors, "allocation %zu", n);
        /* ".", "..", and the output if it was written */
        cr_assert_leq(entries(folder), done ? 3 : 2, "allocation %zu", n);
    }
    cr_expect(done);
    cr_expect_gt(n, 3);
}

static void fail_every_allocation(job *work) {
    fail_allocations(work, 1);
}

static bool import_one(hd_arena *a, hd_diags *d) {
    return hfe_import(a, d, TEST_DATA "/golden/attnres-block", &options) != NULL;
}

static bool open_sharded(hd_arena *a, hd_diags *d) {
    hd_tensors t;
    return hd_safetensors_open(a, d, TEST_DATA "/golden/llama3-sharded", &t);
}

static bool open_quantised(hd_arena *a, hd_diags *d) {
    hd_tensors stored, t;
    hd_quantisation how;
    const char *path = TEST_DATA "/published/qwen3-int4";
    return hd_safetensors_open(a, d, path, &stored) && hfe_quantisation_of(a, d, path, &how) &&
           hd_unpack(a, d, &stored, &how, &t);
}

static bool open_tokenizer(hd_arena *a, hd_diags *d) {
    return read_tokenizer(a, d, TEST_DATA "/text/llama2.json");
}

static bool write_one(hd_arena *a, hd_diags *d) {
    static const float x[3] = {1, 2, 3};
    hd_tensor t = {.name = "x", .dtype = HD_T_F32, .rank = 1, .shape = {3}};
    t.data = (const uint8_t *)x;
    return hd_safetensors_write(a, d, hd_path_join(a, folder, "x.safetensors"), &t, 1);
}

static bool pack_one(hd_arena *a, hd_diags *d) {
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    int64_t dims[] = {2, 3};
    hd_tensor t = {.name = "x", .dtype = HD_T_F32, .rank = 2, .shape = {2, 3}};
    t.data = (const uint8_t *)x;
    hd_tensor_measure(&t);
    hir_module *m = hir_module_new(a, "m");
    hir_add_weight(m, "x", hir_make_type(HIR_F32, 2, dims), HD_NOWHERE);
    hcg_program *p = hd_new(a, hcg_program);
    p->arena = a;
    p->m = m;
    p->weights_bytes = 64;
    hd_push(a, &p->weight_offsets, 0);
    hd_tensors weights = {0};
    hd_push(a, &weights.list, t);
    return hcg_pack(p, d, &weights, hd_path_join(a, folder, "x.weights"));
}

Test(hostile, out_of_memory_while_importing) {
    fail_allocations(import_one, 7); /* an import reads pages: thousands of allocations */
}
Test(hostile, out_of_memory_while_opening) {
    fail_every_allocation(open_sharded);
}
Test(hostile, out_of_memory_while_opening_quantised_weights) {
    fail_allocations(open_quantised, 5);
}
Test(hostile, out_of_memory_while_reading_a_tokenizer) {
    fail_allocations(open_tokenizer, 7);
}
Test(hostile, out_of_memory_while_writing) {
    fail_every_allocation(write_one);
}
Test(hostile, out_of_memory_while_packing) {
    fail_every_allocation(pack_one);
}
