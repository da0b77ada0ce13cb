/* Memory while weights are packed, of checkpoints that are files of zeros without blocks on the
 * disk. What counts is memory of the process itself (RLIMIT_DATA: heap, stacks, private maps);
 * pages of the mapped checkpoint belong to the file.
 *
 * The promise is 300 MB over the largest tensor. What is held is less and has nothing to do with
 * tensors: 4 MB of panels and 4 MB of made rows, 1.3 MB and a stack of 8 MB for each thread, and
 * names. So 100 MB are allowed here, with two threads. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "codegen/program/program.h"

#define FOLDER "/tmp/hadal-memory-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(pack_memory, .init = open_folder, .fini = close_folder);

static const uint64_t allowed = 100u << 20;

static uint64_t data_now(void) {
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *f = fopen("/proc/self/status", "r");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmData: %llu kB", &kilobytes) == 1) break;
    fclose(f);
    cr_assert_gt(kilobytes, 0);
    return kilobytes << 10;
}

/* From here on no more than `allowed` beyond what there is. */
static void limit_memory(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip_test("sanitizers have memory of their own");
#endif
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = data_now() + allowed;
    cr_assert_eq(setrlimit(RLIMIT_DATA, &limit), 0);
}

/* A checkpoint of zeros, mapped. */
static hd_tensors zeros(hd_tensor *list, size_t n) {
    const char *path = in_folder("zeros.safetensors");
    uint64_t bytes = 0;
    hd_tensors t;
    hd_output *o = hd_output_open(arena, &diags, path);
    for (size_t i = 0; i < n; i++) {
        cr_assert(hd_tensor_measure(&list[i]));
        bytes += list[i].bytes;
    }
    cr_assert(o && hd_safetensors_write_header(o, &diags, list, n) && hd_output_commit(o), "%s",
              diags.list.n ? diags.list.at[0].message : "");
    FILE *f = fopen(path, "r+");
    cr_assert(f && fseek(f, 0, SEEK_END) == 0);
    cr_assert_eq(ftruncate(fileno(f), ftell(f) + (off_t)bytes), 0);
    fclose(f);
    cr_assert(hd_safetensors_open(arena, &diags, path, &t), "%s", diags.list.at[0].message);
    return t;
}

static void pack(hir_module *m, const hd_tensors *t) {
    hcg_program *p = hd_new(arena, hcg_program);
    *p = (hcg_program){.arena = arena, .m = m, .options.threads = 2};
    for (size_t i = 0; i < m->weights.n; i++) {
        uint64_t bytes;
        cr_assert(hir_weight_bytes(&m->weights.at[i], &bytes));
        const bool read = hir_is_derived(&m->weights.at[i]) || m->weights.at[i].stacked;
        hd_push(arena, &p->weight_offsets, read ? p->weights_bytes : HCG_UNREAD);
        if (read) p->weights_bytes += (bytes + 63) / 64 * 64;
    }
    cr_assert(hcg_pack(p, &diags, t, in_folder("zeros.weights")), "%s",
              diags.list.n ? diags.list.at[0].message : "");
}

/* Experts as factors on the right, [E, K, N]: 67 MB in the checkpoint, 134 MB in f32. */
Test(pack_memory, a_stack_that_is_transposed) {
    enum { E = 4, N = 4096, K = 2048 };
    hir_module *m = hir_module_new(arena, "m");
    hd_tensor stack = {.name = "experts", .dtype = HD_T_BF16, .rank = 3, .shape = {E, K, N}};
    const hd_tensors t = zeros(&stack, 1);
    hir_derived_factor factor[E];
    hir_derived_row rows[E];
    hir_add_weight(m, "experts", hir_make_type(HIR_F32, 3, stack.shape), HD_NOWHERE);
    for (int64_t e = 0; e < E; e++) {
        factor[e] = (hir_derived_factor){
            .name = "experts", .by = HIR_DERIVED_TRANSPOSED, .first = e * K * N, .n = K * N};
        rows[e] = (hir_derived_row){1, &factor[e]};
    }
    const uint32_t w = hir_add_derived_weight(
        m, "made", hir_make_type(HIR_BF16, 3, (const int64_t[]){E, N, K}), rows, E, HD_NOWHERE);
    m->weights.at[w].layout = HIR_LAYOUT_PANEL;
    cr_assert(hir_verify(m, &diags));
    limit_memory();
    pack(m, &t);
}

/* 27 layers of a published model: 256 experts with three matrices in each but the first. */
Test(pack_memory, experts_by_the_thousand) {
    enum { LAYERS = 26, EXPERTS = 256, MAPS = 3, N = 16, K = 32, ALL = LAYERS * EXPERTS * MAPS };
    hir_module *m = hir_module_new(arena, "m");
    hd_tensor *list = hd_new_array(arena, hd_tensor, ALL);
    size_t n = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < MAPS; i++) {
            const char *name = hd_printf(
                arena, "model.layers.%d.block_sparse_moe.experts.*.w%d.weight", l + 1, i + 1);
            const uint32_t w = hir_add_weight(
                m, name, hir_make_type(HIR_Q4, 3, (const int64_t[]){EXPERTS, N, K}), HD_NOWHERE);
            m->weights.at[w].layout = HIR_LAYOUT_PANEL;
            m->weights.at[w].stacked = true;
            for (int64_t e = 0; e < EXPERTS; e++)
                list[n++] = (hd_tensor){.name = hir_part_name(arena, &m->weights.at[w], e),
                                        .dtype = HD_T_BF16,
                                        .rank = 2,
                                        .shape = {N, K}};
        }
    limit_memory();
    const hd_tensors t = zeros(list, ALL);
    pack(m, &t);
}
