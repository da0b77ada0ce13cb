/* Seeded weights for any module as they are before training, in memory or as a checkpoint: to train
 * from, for trying a spec before there is a trained one, for tests and for timing. Sizes are such
 * that activations keep their scale:
 *
 *                              before training   all drawn
 *     matrices                 normal / sqrt(fan in)
 *     gains (rank 1, not bias) 1                 1 + 0.1 normal
 *     all else                 0                 0.1 normal
 *
 * where the model does not say how a weight begins; with all drawn it is not asked.
 * Each weight has a random stream of its own, seeded from the seed and its name and generated with
 * integer arithmetic and one correctly rounded square root: every machine writes the same bytes.
 */
#include <math.h>
#include <string.h>

#include "codegen/codegen.h"
#include "ir/eval/random.h"
#include "support/text.h"

enum { BLOCK = 8192 };

typedef struct distribution {
    double mean, deviation;
    hir_init given; /* .n > 0: these numbers, and nothing is drawn */
} distribution;

/* Of one tensor. docs/formats.md has it for users. */
static distribution distribution_of(const hir_weight *w, bool draw_all) {
    const double spread = draw_all ? 0.1 : 0;
    if (w->init.n > 0 && !draw_all) return (distribution){.given = w->init};
    if (w->init.kind != HIR_INIT_RANDOM && !draw_all)
        return (distribution){.mean = hir_init_number(w->init.kind)};
    if (w->init.deviation > 0 && !draw_all) return (distribution){.deviation = w->init.deviation};
    if (w->type.rank == 1 && !hd_ends_with(w->name, "bias"))
        return (distribution){.mean = 1, .deviation = spread};
    if (w->type.rank < 2) return (distribution){.deviation = spread};
    const double fan_in = (double)w->type.dim[w->type.rank - 1];
    return (distribution){.deviation = 1 / sqrt(fan_in)};
}

static double next(const distribution *q, hir_random *r, uint64_t i) {
    const hir_init *given = &q->given;
    if (given->n > 0) return given->numbers[given->n > 1 ? i : 0];
    return q->mean + q->deviation * hir_random_normal(r);
}

static void store(uint8_t *out, uint64_t i, double x, hd_tensor_dtype dtype) {
    float f32 = (float)x;
    uint16_t half;
    switch (dtype) {
    case HD_T_F32: memcpy(out + 4 * i, &f32, 4); return;
    case HD_T_F64: memcpy(out + 8 * i, &x, 8); return;
    case HD_T_BF16: half = hd_bf16_from_f64(x); break;
    default: half = hd_f16_from_f64(x);
    }
    memcpy(out + 2 * i, &half, 2);
}

static void put_weight(hd_output *o, const hir_weight *w, const hd_tensor *t, uint64_t seed,
                       bool draw_all, uint8_t *block) {
    hir_random r = hir_random_stream(seed, w->name);
    distribution q = distribution_of(w, draw_all);
    unsigned bytes = hd_tensor_dtype_bits(t->dtype) / 8;
    for (uint64_t i = 0; i < t->elements; i += BLOCK) {
        uint64_t n = t->elements - i < BLOCK ? t->elements - i : BLOCK;
        for (uint64_t j = 0; j < n; j++)
            store(block, j, next(&q, &r, i + j), t->dtype);
        if (!hd_output_write(o, block, (size_t)n * bytes)) return;
    }
}

void hcg_begin_weight(const hir_weight *part, uint64_t seed, float *out) {
    hir_random r = hir_random_stream(seed, part->name);
    const distribution q = distribution_of(part, false);
    const int64_t n = hir_type_row_elements(part->type);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)next(&q, &r, (uint64_t)i);
}

bool hcg_init_weights(const hir_module *m, hd_diags *d, uint64_t seed, bool draw_all,
                      hd_tensor_dtype dtype, const char *path) {
    hd_arena *a = d->arena;
    uint64_t done = 0, total = 0;
    if (dtype != HD_T_F32 && dtype != HD_T_BF16 && dtype != HD_T_F16 && dtype != HD_T_F64) {
        hd_err(d, HD_E_VALUE, HD_NOWHERE, "weights cannot be made in the dtype %s",
               hd_tensor_dtype_name(dtype));
        return false;
    }
    const hir_weight_list weights = hir_checkpoint_tensors(a, m);
    hd_tensor *list = hd_new_array(a, hd_tensor, weights.n + 1);
    for (size_t i = 0; i < weights.n; i++) {
        const hir_weight *w = &weights.at[i];
        list[i] = (hd_tensor){.name = w->name, .dtype = dtype, .rank = w->type.rank};
        memcpy(list[i].shape, w->type.dim, w->type.rank * sizeof *w->type.dim);
        if (hd_tensor_measure(&list[i])) total += list[i].bytes; /* else the header reports it */
    }
    hd_output *o = hd_output_open(a, d, path);
    if (!o) return false;
    size_t errors = d->errors;
    hd_safetensors_write_header(o, d, list, weights.n);
    if (d->errors != errors) {
        hd_output_discard(o);
        return false;
    }
    uint8_t *block = hd_alloc(a, BLOCK, 8);
    for (size_t i = 0; i < weights.n; i++) {
        put_weight(o, &weights.at[i], &list[i], seed, draw_all, block);
        done += list[i].bytes;
        hd_progress(d, "writing weights", done, total);
    }
    return hd_output_commit(o);
}
