/* Tensors in files: safetensors (single, or sharded by an index file) and .npy.
 * Reading is strict; every rule of the format that is broken is a diagnostic that names it. */
#ifndef HD_TENSORFILE_H
#define HD_TENSORFILE_H

#include "support/file.h"
#include "support/halves.h"

#define HD_TENSOR_MAX_RANK 8

/* dtypes of the formats; T(enum, safetensors name, bits, npy descr or NULL) */
/* clang-format off */
#define HD_TENSOR_DTYPES(T)          \
    T(BOOL, "BOOL", 8, "|b1")        \
    T(U8, "U8", 8, "|u1")            \
    T(I8, "I8", 8, "|i1")            \
    T(I16, "I16", 16, "<i2")         \
    T(U16, "U16", 16, "<u2")         \
    T(I32, "I32", 32, "<i4")         \
    T(U32, "U32", 32, "<u4")         \
    T(I64, "I64", 64, "<i8")         \
    T(U64, "U64", 64, "<u8")         \
    T(F16, "F16", 16, "<f2")         \
    T(BF16, "BF16", 16, NULL)        \
    T(F32, "F32", 32, "<f4")         \
    T(F64, "F64", 64, "<f8")         \
    T(F8_E4M3, "F8_E4M3", 8, NULL)   \
    T(F8_E5M2, "F8_E5M2", 8, NULL)   \
    T(F8_E8M0, "F8_E8M0", 8, NULL)
/* clang-format on */
typedef enum hd_tensor_dtype {
#define T(id, name, bits, npy) HD_T_##id,
    HD_TENSOR_DTYPES(T)
#undef T
        HD_T_COUNT
} hd_tensor_dtype;

const char *hd_tensor_dtype_name(hd_tensor_dtype t);
unsigned hd_tensor_dtype_bits(hd_tensor_dtype t);

typedef struct hd_tensor {
    const char *name;
    hd_tensor_dtype dtype;
    uint32_t rank;
    int64_t shape[HD_TENSOR_MAX_RANK];
    const uint8_t *data; /* little endian, row-major, alignment not guaranteed */
    uint64_t bytes, elements;
    const char *file; /* where it came from, for messages */
    /* Set for quantised tensors (packed.h): their elements are decoded when they are read, and
     * there is no `data`. `dtype` is then the narrowest that holds all elements exactly. NULL: the
     * elements are in `data`. */
    const struct hd_packed *packed;
    uint64_t packed_first; /* index in `packed` of element 0 */
    bool optional;         /* it is all zeros: a model without such a weight may ignore it */
} hd_tensor;

typedef struct hd_tensors {
    HD_VEC(hd_tensor) list; /* sorted by name */
} hd_tensors;

/* `path`: a .safetensors file, a model.safetensors.index.json, or a folder that holds one of
 * them (model.safetensors, then model.safetensors.index.json, then the only *.safetensors). */
bool hd_safetensors_open(hd_arena *a, hd_diags *d, const char *path, hd_tensors *out);
/* Is there anything to open at `path`? */
bool hd_safetensors_exist(hd_arena *a, const char *path);
const hd_tensor *hd_tensors_find(const hd_tensors *t, const char *name); /* NULL if absent */
/* Tensors in the order given, 64-byte aligned data. */
bool hd_safetensors_write(hd_arena *a, hd_diags *d, const char *path, const hd_tensor *list,
                          size_t n);
/* Writes the header alone, for data that the caller writes afterwards, in the order of the list
 * (`data` is not read). False and a diagnostic if a file cannot hold the list: a name is repeated,
 * or a size is too large.
 */
bool hd_safetensors_write_header(hd_output *o, hd_diags *d, const hd_tensor *list, size_t n);

/* Sets elements and bytes from shape and dtype; false when they do not fit, or a dim is negative.
 */
bool hd_tensor_measure(hd_tensor *t);
void hd_tensor_print_type(hd_text *out, const hd_tensor *t); /* F32 [4, 32] */

bool hd_npy_read(hd_arena *a, hd_diags *d, const char *path, hd_tensor *out);
bool hd_npy_write(hd_arena *a, hd_diags *d, const char *path, const hd_tensor *t);

/* Element i along the first dim: a tensor with one dim less. */
hd_tensor hd_tensor_at(const hd_tensor *t, int64_t i);

/* Element i of a tensor as a number. Callers reject integers beyond 2^53 and F8 with
 * hd_tensor_is_number first. bf16 and f16 convert exactly. */
bool hd_tensor_is_number(const hd_tensor *t);
double hd_tensor_get(const hd_tensor *t, uint64_t i);
/* Elements first .. first+n-1 as float32 (rounded to nearest even from F64), or as float64. */
void hd_tensor_to_f32(const hd_tensor *t, uint64_t first, uint64_t n, float *out);
void hd_tensor_to_f64(const hd_tensor *t, uint64_t first, uint64_t n, double *out);

/* Round to nearest even; NaN stays NaN. From and to bf16 and f32: support/halves.h. */
uint16_t hd_bf16_from_f64(double x); /* rounded once, not by way of f32 */
uint16_t hd_f16_from_f32(float x);
uint16_t hd_f16_from_f64(double x); /* likewise */
float hd_f16_to_f32(uint16_t x);

#endif
