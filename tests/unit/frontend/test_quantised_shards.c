/* Quantised checkpoints in several files, of every form that is read: codes in one shard and their
 * scales in another are one weight; what is missing, twice, foreign or of another shape is named.
 */
#include <criterion/criterion.h>
#include <unistd.h>

#include "frontend/config/quantisation.h"
#include "support/packed.h"

#define FOLDER "/tmp/hadal-shards-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(quantised_shards, .init = open_folder, .fini = close_folder, .timeout = 120);

/* A folder of tests/published, and the codes and scales of a weight in it. */
static const struct {
    const char *folder, *codes, *scales, *weight;
} forms[] = {
    {"deepseek_v3-fp8", "model.layers.0.mlp.up_proj.weight",
     "model.layers.0.mlp.up_proj.weight_scale_inv", "model.layers.0.mlp.up_proj.weight"},
    {"deepseek_v4-fp8", "layers.0.attn.wq_b.weight", "layers.0.attn.wq_b.scale",
     "layers.0.attn.wq_b.weight"},
    {"deepseek_v4-fp8", "layers.1.ffn.experts.2.w1.weight", "layers.1.ffn.experts.2.w1.scale",
     "layers.1.ffn.experts.2.w1.weight"},
    {"gpt_oss-mxfp4", "model.layers.0.mlp.experts.down_proj_blocks",
     "model.layers.0.mlp.experts.down_proj_scales", "model.layers.0.mlp.experts.down_proj"},
    {"kimi_linear-mxfp4",
     "language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight_packed",
     "language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight_scale",
     "language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight"},
    {"llama-int4", "model.layers.0.mlp.down_proj.weight_packed",
     "model.layers.0.mlp.down_proj.weight_scale", "model.layers.0.mlp.down_proj.weight"},
    {"llama-int4channel", "model.layers.0.mlp.down_proj.weight_packed",
     "model.layers.0.mlp.down_proj.weight_scale", "model.layers.0.mlp.down_proj.weight"},
    {"qwen3-int4", "model.layers.0.mlp.down_proj.weight_packed",
     "model.layers.0.mlp.down_proj.weight_zero_point", "model.layers.0.mlp.down_proj.weight"},
    {"qwen3-int8", "model.layers.1.self_attn.q_proj.weight_packed",
     "model.layers.1.self_attn.q_proj.weight_zero_point", "model.layers.1.self_attn.q_proj.weight"},
    {"qwen3-w8a8", "model.layers.0.mlp.down_proj.weight",
     "model.layers.0.mlp.down_proj.weight_scale", "model.layers.0.mlp.down_proj.weight"},
    {"llama-gptq", "model.layers.0.mlp.down_proj.qweight", "model.layers.0.mlp.down_proj.scales",
     "model.layers.0.mlp.down_proj.weight"},
    {"llama-awq", "model.layers.0.mlp.down_proj.qweight", "model.layers.0.mlp.down_proj.qzeros",
     "model.layers.0.mlp.down_proj.weight"},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* How the two shards and their index are spoilt. */
typedef enum fault {
    NONE,
    MISSING_SHARD, /* the file with the scales is not there */
    NO_SCALES,     /* neither file nor index has them */
    NOT_IN_INDEX,  /* a file has them, the index does not */
    NOT_IN_FILE,   /* the index has them, no file does */
    FOREIGN,       /* the index has them in the other file */
    TWICE,         /* both files have them */
    SHORTER,       /* a row of scales is missing */
    OTHER_DTYPE,   /* the same bytes as other numbers */
    N_FAULTS
} fault;

/* What is said then; %s is the name of the scales as messages show it. */
static const char *const said_of[N_FAULTS] = {
    [MISSING_SHARD] = "the shard \"2.safetensors\" of the checkpoint is missing",
    [NO_SCALES] = "\"",
    [NOT_IN_INDEX] = "where the weight_map does not have it",
    [NOT_IN_FILE] = "is not in \"2.safetensors\", where the weight_map has it",
    [FOREIGN] = "is not in \"1.safetensors\", where the weight_map has it",
    [TWICE] = "where the weight_map does not have it",
    [SHORTER] = "\"",
    [OTHER_DTYPE] = "\"",
};

static const hd_tensor *the_tensor(const hd_tensors *t, const char *name) {
    const hd_tensor *x = hd_tensors_find(t, name);
    cr_assert(x, "%s", name);
    return x;
}

/* One dim less by one, or another dtype of the same width; the data stays. */
static hd_tensor spoilt(hd_tensor x, fault how) {
    if (how == OTHER_DTYPE) {
        x.dtype = x.dtype == HD_T_F32    ? HD_T_I32
                  : x.dtype == HD_T_BF16 ? HD_T_I16
                  : x.dtype == HD_T_I32  ? HD_T_F32
                                         : HD_T_BOOL;
    } else {
        uint32_t i = x.rank - 1;
        while (i > 0 && x.shape[i] == 1)
            i--;
        x.shape[i] += x.shape[i] > 1 ? -1 : 1;
        static uint8_t more[1 << 16];
        if (x.shape[i] == 2) x.data = more; /* of a single scale: one too many */
    }
    cr_assert(hd_tensor_measure(&x));
    return x;
}

/* The weights of a folder as two shards with an index; the scales in the second one. */
static void write_shards(int form, fault how) {
    const char *from = hd_printf(arena, "%s/published/%s", TEST_DATA, forms[form].folder);
    const char *names[] = {"1.safetensors", "2.safetensors"};
    hd_tensors all;
    hd_tensors shard[2] = {0};
    hd_text map;
    hd_text_init(&map, arena);
    cr_assert(
        hd_safetensors_open(arena, &diags, hd_path_join(arena, from, "model.safetensors"), &all),
        "%s", said());
    for (size_t i = 0; i < all.list.n; i++) {
        hd_tensor x = all.list.at[i];
        const bool scales = strcmp(x.name, forms[form].scales) == 0;
        const int in = scales ? 1 : strcmp(x.name, forms[form].codes) == 0 ? 0 : (int)(i % 2);
        if (scales && (how == SHORTER || how == OTHER_DTYPE)) x = spoilt(x, how);
        if (!scales || (how != NO_SCALES && how != NOT_IN_FILE && how != FOREIGN))
            hd_push(arena, &shard[in].list, x);
        if (scales && how == TWICE) hd_push(arena, &shard[0].list, x);
        if (scales && how == FOREIGN) hd_push(arena, &shard[1].list, x);
        if (!scales || (how != NO_SCALES && how != NOT_IN_INDEX))
            hd_text_f(&map, "%s\"%s\": \"%s\"", map.n ? ", " : "", x.name,
                      names[scales && how == FOREIGN ? 0 : in]);
    }
    for (int s = 0; s < 2; s++)
        cr_assert(hd_safetensors_write(arena, &diags, in_folder(names[s]), shard[s].list.at,
                                       shard[s].list.n),
                  "%s", said());
    if (how == MISSING_SHARD) unlink(in_folder(names[1]));
    const char *index = hd_printf(arena, "{\"weight_map\": {%s}}", map.at);
    cr_assert(hd_write_file(arena, &diags, in_folder("model.safetensors.index.json"), index,
                            strlen(index)));
    size_t n;
    const char *config =
        hd_read_text(arena, &diags, hd_path_join(arena, from, "config.json"), 1 << 20, &n);
    cr_assert(hd_write_file(arena, &diags, in_folder("config.json"), config, n));
}

/* As a compilation reads them. */
static bool read_weights(const char *path, const char *config, hd_tensors *out) {
    hd_tensors stored;
    hd_quantisation how;
    return hd_safetensors_open(arena, &diags, path, &stored) &&
           hfe_quantisation_of(arena, &diags, config, &how) &&
           hd_unpack(arena, &diags, &stored, &how, out);
}

Test(quantised_shards, codes_and_scales_in_two_files_are_one_weight) {
    for (int i = 0; i < N_FORMS; i++) {
        const char *from = hd_printf(arena, "%s/published/%s", TEST_DATA, forms[i].folder);
        hd_tensors one, two;
        write_shards(i, NONE);
        cr_assert(read_weights(folder, in_folder("config.json"), &two), "%s: %s", from, said());
        cr_assert(read_weights(from, hd_path_join(arena, from, "config.json"), &one));
        cr_assert_eq(one.list.n, two.list.n);
        const hd_tensor *a = the_tensor(&one, forms[i].weight);
        const hd_tensor *b = the_tensor(&two, forms[i].weight);
        cr_assert_eq(a->elements, b->elements);
        for (uint64_t k = 0; k < a->elements; k++)
            cr_assert_eq(hd_tensor_get(a, k), hd_tensor_get(b, k));
    }
}

Test(quantised_shards, what_is_wrong_with_them_is_named) {
    for (int i = 0; i < N_FORMS; i++)
        for (fault how = NONE + 1; how < N_FAULTS; how++) {
            const bool zeros = strstr(forms[i].scales, "zero_point") != NULL;
            hd_tensors t;
            write_shards(i, how);
            diags.errors = diags.list.n = 0;
            cr_expect_not(read_weights(folder, in_folder("config.json"), &t), "%s, fault %d",
                          forms[i].scales, how);
            cr_expect(strstr(said(), said_of[how]), "%s, fault %d: %s", forms[i].scales, how,
                      said());
            const char *module =
                hd_strndup(arena, forms[i].codes, strlen(forms[i].codes) - strlen("weight"));
            cr_expect(how == MISSING_SHARD || strstr(said(), forms[i].scales) ||
                          (zeros && strstr(said(), module)) || strstr(said(), forms[i].codes),
                      "%s, fault %d: the tensor is not named: %s", forms[i].scales, how, said());
        }
}
