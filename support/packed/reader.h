/* What the readers of packed tensors share (support/packed.h). */
#ifndef HD_PACKED_READER_H
#define HD_PACKED_READER_H

#include "support/packed.h"

typedef struct hd_unpacking {
    hd_arena *a;
    hd_diags *d;
    const hd_tensors *stored;
    const hd_quantisation *config;
    bool *taken;    /* marks stored tensors that are a part of another */
    bool *optional; /* marks those that a model may lack: hd_tensor's `optional` */
    struct {
        size_t n;
        const char *first;
    } of_activations, of_cache; /* scales left out: they only round activations or the cache */
    hd_tensors *out;
} hd_unpacking;

/* A reader: does this stored tensor hold the codes of a packed one? If so, the packed tensor is
 * added or rejected, and its parts are marked as taken; true in both cases. */
typedef bool hd_reader(hd_unpacking *u, const hd_tensor *t);
hd_reader hd_read_e4m3, hd_read_mxfp4_blocks, hd_read_mxfp4, hd_read_mxfp4_pairs, hd_read_nvfp4,
    hd_read_integers, hd_read_plain_integers, hd_read_gptq;

/* Decodes columns col .. col+n-1 of a row (counted through all matrices), all in one tile: (code -
 * zero point) times `scale`. */
typedef void hd_codes(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float scale,
                      float *out);
hd_codes hd_codes_e4m3, hd_codes_mxfp4, hd_codes_integers;
/* The same as hd_packed_integers, but without the scale. */
hd_integers hd_integers_at(const hd_packed *p, uint64_t row, uint64_t col);
/* For integers whose columns have an explicit order of groups: code minus zero point, and scale, of
 * n columns of a row. */
void hd_ordered_integers(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float *codes,
                         float *scales);
bool hd_has_no_zero(const hd_packed *p, uint64_t row, uint64_t col);
uint64_t hd_words_for(uint64_t n, uint32_t bits);
/* The group that a column is in, the number of groups in a row, and the index of a group's scale.
 */
uint64_t hd_packed_group(const hd_packed *p, uint64_t col);
uint64_t hd_packed_groups(const hd_packed *p);
uint64_t hd_packed_scale_of(const hd_packed *p, uint64_t row, uint64_t group);
/* Decodes columns col .. col+n-1 of a row of 4-bit codes, two in a byte, the even column in the low
 * half. `pairs`: the two numbers of each byte. */
void hd_codes_of_halves(const uint8_t *row, uint64_t col, uint64_t n, const float pairs[256][2],
                        float *out);

bool hd_has_suffix(const char *name, const char *suffix);
/* The name of `t` without its suffix. */
char *hd_stem(hd_unpacking *u, const hd_tensor *t, const char *suffix);
/* Finds the stored tensor STEM SUFFIX and marks it as taken; NULL: there is none. */
const hd_tensor *hd_part(hd_unpacking *u, const char *stem, const char *suffix);
/* Marks as taken the tensors by which a module rounds its activations; they do not concern the
 * weight. */
void hd_drop_activations(hd_unpacking *u, const char *module);
/* Adds an error at the file of `t`. */
hd_diag *hd_part_fault(hd_unpacking *u, const hd_tensor *t, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "U8 [4, 32]" */
const char *hd_type_text(hd_unpacking *u, const hd_tensor *t);
bool hd_reject_missing(hd_unpacking *u, const hd_tensor *t, const char *what, const char *stem,
                       const char *suffix);

static inline bool hd_is_e8m0(const hd_tensor *scales) {
    return scales->dtype == HD_T_U8 || scales->dtype == HD_T_F8_E8M0;
}

/* Looks up what the config says about this tensor: *group is NULL if there is no config. False: the
 * config contradicts the file, and a diagnostic was added. */
bool hd_ask_config(hd_unpacking *u, const hd_tensor *t, const char *module, hd_packing packing,
                   const hd_quant_group **group);
/* Is there one scale for each tile? The `leading` dims of codes and scales count matrices. */
bool hd_check_scales(hd_unpacking *u, const hd_packed *p, uint32_t leading);
/* Is there a single scale for the whole tensor? It may be written as [] or [1]; [1, 1] fits as one
 * tile. */
bool hd_is_single(const hd_tensor *scales, const hd_quant_group *group);
/* The tile of columns of a row that share a scale: the config's, or else the one that gives this
 * number of groups. */
hd_tile hd_row_tile(const hd_packed *p, const hd_quant_group *group, uint64_t groups);
bool hd_are_zeros(const hd_tensor *t); /* are all bytes 0? */
/* If the file states the shape of a matrix of packed halves, it must be the one that follows from
 * the codes. */
bool hd_check_halves(hd_unpacking *u, const hd_packed *p, const hd_tensor *shape);
bool hd_check_integer_scales(hd_unpacking *u, const hd_tensor *scales);
/* For integer formats: checks the group of each column, and sets p->order unless groups are
 * consecutive columns. `order` NULL: they are. */
bool hd_check_order(hd_unpacking *u, hd_packed *p, const hd_tensor *order);
hd_tensor_dtype hd_integers_dtype(const hd_packed *p);
/* Adds the tensor `name`; its shape is the first `leading` dims of the codes, then rows and
 * columns. `dtype`: the narrowest in which all of its numbers are exact. */
void hd_add_packed(hd_unpacking *u, const char *name, const hd_packed *p, uint32_t leading,
                   hd_tensor_dtype dtype);

/* Constant tables of the numbers that codes stand for: HD_TABLE_16(F) and HD_TABLE_256(F) are F(0),
 * F(1), .. */
#define HD_TABLE_4(F, c) F((c)), F((c) + 1), F((c) + 2), F((c) + 3)
#define HD_TABLE_FROM(F, c)                                                                        \
    HD_TABLE_4(F, c), HD_TABLE_4(F, (c) + 4), HD_TABLE_4(F, (c) + 8), HD_TABLE_4(F, (c) + 12)
#define HD_TABLE_16(F) HD_TABLE_FROM(F, 0)
#define HD_TABLE_64(F, c)                                                                          \
    HD_TABLE_FROM(F, c), HD_TABLE_FROM(F, (c) + 16), HD_TABLE_FROM(F, (c) + 32),                   \
        HD_TABLE_FROM(F, (c) + 48)
#define HD_TABLE_256(F)                                                                            \
    HD_TABLE_64(F, 0), HD_TABLE_64(F, 64), HD_TABLE_64(F, 128), HD_TABLE_64(F, 192)

/* The two numbers of a byte of two codes, the first code in the low half. */
#define HD_PAIR(F, c)                                                                              \
    { F((c)&15), F((c) >> 4) }

#endif
