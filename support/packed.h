/* Quantised tensors of published checkpoints, as tensors of numbers.
 *
 * A checkpoint stores a quantised weight as several tensors: small codes, and scales that many
 * codes share. `hd_unpack` replaces each such set by one tensor: it has the name and the shape that
 * the weight has in an unquantised checkpoint, and hd_tensor_get and its relatives decode the
 * requested elements from the mapped file, so that no decoded copy is kept. An element is
 *
 *     (code - zero) scale
 *
 * exactly (NVFP4: code scale factor / divisor, in f64); docs/quantised-checkpoints.md and the head
 * of each reader describe the formats. "Packed" is used here and in packed/ for a tensor in such a
 * quantised format. */
#ifndef HD_PACKED_H
#define HD_PACKED_H

#include "support/quantisation.h"
#include "support/tensorfile.h"

typedef struct hd_packed {
    hd_packing packing;
    const hd_tensor *codes, *scales;
    const hd_tensor *zeros; /* NULL: the zero point is in the middle of the range of codes */
    uint64_t rows, cols;    /* of one matrix as stored; the tensor may hold several */
    hd_tile tile;           /* elements that share a scale; not 0 */
    bool transposed;        /* each matrix of the tensor is the file's matrix, transposed */
    /* For NVFP4 only, F32, one number for each matrix or one for all; NULL: 1. Its scales are
     * multiplied by `factor` and divided by `divisor`. */
    const hd_tensor *factor, *divisor;
    /* For integer formats only: */
    const hd_tensor *order; /* I32 [cols], the group of each column; NULL: groups are in order */
    bool down;              /* scales and zero points are [groups, rows], not [rows, groups] */
    bool zeros_less_one;    /* the file stores each zero point minus one */
} hd_packed;

/* Is any of the tensors quantised, or a part of a quantised tensor? */
bool hd_holds_packed(const hd_tensors *stored);
/* Replaces the parts of each quantised tensor by that tensor. Every fault is reported: a part that
 * is missing or has the wrong shape, and a tensor that contradicts `q`. `out` refers to the stored
 * tensors, so they must live as long. */
bool hd_unpack(hd_arena *a, hd_diags *d, const hd_tensors *stored, const hd_quantisation *q,
               hd_tensors *out);

/* Decodes elements first .. first+n-1 of a tensor whose `packed` is set: f64 is exact, f32 rounded
 * once. */
void hd_packed_to_f64(const hd_tensor *t, uint64_t first, uint64_t n, double *out);
void hd_packed_to_f32(const hd_tensor *t, uint64_t first, uint64_t n, float *out);
/* Is each row of t, a matrix or several, a whole row of one of the file's matrices? */
bool hd_packed_in_rows(const hd_tensor *t);
/* hd_packed_scale_index: the index of an element's scale; `row` is counted through all matrices.
 * hd_packed_scale_step: how much greater the index of the next tile in the row is. */
uint64_t hd_packed_scale_index(const hd_packed *p, uint64_t row, uint64_t col);
uint64_t hd_packed_scale_step(const hd_packed *p);
/* A scale, without the factor of NVFP4. NaN: there is none that counts. */
float hd_packed_scale(const hd_packed *p, uint64_t i);
/* What the products of codes and scales of a matrix are multiplied by: 1, except for NVFP4. */
double hd_packed_factor(const hd_packed *p, uint64_t matrix);
/* Codes of a tensor of 4-bit or 8-bit integers: those of one row (counted through all matrices),
 * from a column that begins a byte up to the end of its tile. An element is (code - zero) scale. */
typedef struct hd_integers {
    const uint8_t *codes; /* the first in the lowest bits; NULL: a row's codes are not contiguous */
    uint32_t bits;        /* bits of a code: 4 or 8; 0: not an integer format */
    uint8_t flip;         /* XORed with each byte to get the codes */
    int32_t zero;
    float scale; /* NaN if the element has no scale or no zero point */
} hd_integers;
hd_integers hd_packed_integers(const hd_packed *p, uint64_t row, uint64_t col);
/* Copies n codes of a row, from a column on, in any layout of the file: 8-bit codes as bytes, 4-bit
 * codes two in a byte (`col` and `n` must be even then). */
void hd_packed_codes(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, uint8_t *out);
uint32_t hd_integer_bits(hd_packing packing); /* 0: not an integer format */
/* The place of an AWQ row in its word, by row mod 8: words hold rows 0, 2, 4, 6, 1, 3, 5, 7 from
 * the lowest bits up. */
extern const uint8_t hd_awq_place[8];
/* Why an element is not a finite number, for a message. */
const char *hd_packed_fault(hd_arena *a, const hd_tensor *t, uint64_t i);

/* Numbers in few bits (OCP Microscaling Formats 1.0, section 5). */
float hd_from_e4m3(uint8_t code); /* -448 .. 448; no infinities, NaN in 127 and 255 */
float hd_from_e2m1(uint8_t code); /* the low half: -6 .. 6 */
float hd_from_e8m0(uint8_t code); /* 2^(code - 127); NaN in 255 */

#endif
