/* Integers as the programs of GPTQ and AWQ store them. Both store the weight transposed, [in, out],
 * under the same names. A word holds n = 32 / bits codes, the first in its lowest bits:
 *
 *     GPTQ, 4 or 8 bits                          AWQ ("gemm"), 4 bits
 *     NAME.qweight  I32 [in/n, out]              I32 [in, out/8]
 *     NAME.qzeros   I32 [groups, out/n]          I32 [groups, out/8]
 *     NAME.scales   F16, BF16, F32 [groups, out]
 *     NAME.g_idx    I32 [in]: the group of each input; may be absent
 *
 * A word of AWQ holds outputs 0, 2, 4, 6, 1, 3, 5, 7 of its eight. GPTQ's first format
 * (checkpoint_format "gptq") stores each zero point minus one, its second ("gptq_v2") stores it
 * unchanged; only the config says which format a file has.
 *
 * W[out, in] = (q - z) scales[group, out] (integers.c). */
#include "support/packed/reader.h"

enum { WORD = 32, AWQ_IN_WORD = 8 };

/* ---- GPTQ or AWQ ---------------------------------------------------------------------------- */

static const hd_quant_group *said_of(hd_unpacking *u, const char *module, hd_packing *packing) {
    static const hd_packing all[] = {HD_PACKING_GPTQ4, HD_PACKING_GPTQ8, HD_PACKING_AWQ};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const hd_quant_group *g = hd_find_group(u->config, all[i], module);
        *packing = all[i];
        if (g) return g;
    }
    return NULL;
}

/* The config states the format. Without a config the shapes tell GPTQ and AWQ from each other, but
 * not how GPTQ stores its zero points. */
static bool find_packing(hd_unpacking *u, hd_packed *p, const char *module) {
    const hd_tensor *t = p->codes, *s = p->scales;
    const hd_quant_group *group = said_of(u, module, &p->packing);
    p->zeros_less_one = group && group->zeros_less_one;
    if (group) return true;
    const uint64_t out = s->rank == 2 ? (uint64_t)s->shape[1] : 0;
    const bool awq = (uint64_t)t->shape[1] == out / AWQ_IN_WORD && out % AWQ_IN_WORD == 0;
    p->packing = awq ? HD_PACKING_AWQ : HD_PACKING_GPTQ4;
    if (awq || u->config->given) return true; /* hd_ask_config reports this case */
    hd_part_fault(u, t,
                  "is of GPTQ, and there is no config that says how its zero points are stored")
        ->hint = "'quantization_config' of config.json has it: quant_method, bits, group_size, "
                 "checkpoint_format";
    return false;
}

/* ---- shapes --------------------------------------------------------------------------------- */

static bool is_shape(const hd_tensor *t, uint64_t rows, uint64_t cols) {
    return t->rank == 2 && (uint64_t)t->shape[0] == rows && (uint64_t)t->shape[1] == cols;
}

static bool check_shape(hd_unpacking *u, const hd_tensor *t, const char *dtype, uint64_t rows,
                        uint64_t cols) {
    if (is_shape(t, rows, cols) && (*dtype == 0 || t->dtype == HD_T_I32)) return true;
    hd_part_fault(u, t, "is %s, not %s[%llu, %llu]", hd_type_text(u, t), dtype,
                  (unsigned long long)rows, (unsigned long long)cols);
    return false;
}

/* Rows and columns of the weight. The shape of the codes determines them, since no word is padded.
 */
static void find_size(hd_packed *p) {
    const uint64_t in_a_word = WORD / hd_integer_bits(p->packing);
    const uint64_t a = (uint64_t)p->codes->shape[0], b = (uint64_t)p->codes->shape[1];
    const bool awq = p->packing == HD_PACKING_AWQ;
    p->rows = awq ? b * in_a_word : b;
    p->cols = awq ? a : a * in_a_word;
}

static bool find_groups(hd_unpacking *u, hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *s = p->scales;
    const uint64_t in_a_word = WORD / hd_integer_bits(p->packing);
    const uint64_t groups = s->rank == 2 ? (uint64_t)s->shape[0] : 0;
    p->tile = hd_row_tile(p, group, groups);
    if (p->rows % in_a_word) {
        hd_part_fault(u, p->codes,
                      "has %llu outputs, no multiple of the %llu zero points of a word",
                      (unsigned long long)p->rows, (unsigned long long)in_a_word);
        return false;
    }
    return hd_check_integer_scales(u, s) && check_shape(u, s, "", hd_packed_groups(p), p->rows) &&
           check_shape(u, p->zeros, "I32 ", hd_packed_groups(p), p->rows / in_a_word);
}

/* ---- a weight ------------------------------------------------------------------------------- */

/* GPTQ's first programs wrote a bias of zeros for every module. */
static void find_optional_bias(hd_unpacking *u, const char *module) {
    const hd_tensor *t = hd_tensors_find(u->stored, hd_printf(u->a, "%s.bias", module));
    if (t && hd_are_zeros(t)) u->optional[t - u->stored->list.at] = true;
}

bool hd_read_gptq(hd_unpacking *u, const hd_tensor *t) {
    const char *end = ".qweight";
    const hd_quant_group *group;
    if (t->dtype != HD_T_I32 || !hd_has_suffix(t->name, end)) return false;
    const char *module = hd_stem(u, t, end);
    hd_packed p = {.codes = t, .down = true};
    p.scales = hd_part(u, module, ".scales");
    p.zeros = hd_part(u, module, ".qzeros");
    const hd_tensor *order = hd_part(u, module, ".g_idx");
    if (!p.scales) return hd_reject_missing(u, t, "its scales", module, ".scales");
    if (!p.zeros) return hd_reject_missing(u, t, "its zero points", module, ".qzeros");
    if (t->rank != 2 || t->elements == 0 || t->shape[0] > INT32_MAX || t->shape[1] > INT32_MAX) {
        hd_part_fault(u, t, "is %s; packed weights are a matrix", hd_type_text(u, t));
        return true;
    }
    if (!find_packing(u, &p, module) || !hd_ask_config(u, t, module, p.packing, &group))
        return true;
    find_size(&p);
    find_optional_bias(u, module);
    if (find_groups(u, &p, group) && hd_check_order(u, &p, order))
        hd_add_packed(u, hd_printf(u->a, "%s.weight", module), &p, 0, hd_integers_dtype(&p));
    return true;
}
