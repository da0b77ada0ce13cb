/* Quantised tensors of published checkpoints, as tensors of numbers.
 *
 * A checkpoint stores a quantised weight as several tensors: small codes, and scales that many
 * codes share. `hd_unpack` puts one tensor in the place of each such set: it has the name and the
 * shape that the weight has in an unquantised checkpoint, and hd_tensor_get and its relatives
 * decode what they are asked for, from the mapped file, so that nothing is ever held decoded. An
 * element is
 *
 *     (code - zero) scale
 *
 * exactly; the formats are told in docs/quantised-checkpoints.md and at the head of each reader. */
#ifndef HD_PACKED_H
#define HD_PACKED_H

#include "support/quantisation.h"
#include "support/tensorfile.h"

typedef struct hd_packed {
    hd_packing packing;
    const hd_tensor *codes, *scales;
    const hd_tensor *zeros; /* NULL: the zero points are in the middle of the codes */
    uint64_t rows, cols;    /* of a matrix as it is stored; there may be several */
    hd_tile tile;           /* elements that share a scale; not 0 */
    bool transposed;        /* each matrix of the tensor is that of the file, transposed */
    /* Of integers: */
    const hd_tensor *order; /* I32 [cols], the group of each column; NULL: they are in order */
    bool down;              /* scales and zero points are [groups, rows], not [rows, groups] */
    bool zeros_less_one;    /* zero points are stored with one taken off */
} hd_packed;

/* Is any of the tensors quantised, or a part of one that is? */
bool hd_holds_packed(const hd_tensors *stored);
/* Replaces the parts of quantised tensors by the tensors that they are. Every fault is reported: a
 * part that is missing or has the wrong shape, and what contradicts `q`. The stored tensors are
 * kept in use. */
bool hd_unpack(hd_arena *a, hd_diags *d, const hd_tensors *stored, const hd_quantisation *q,
               hd_tensors *out);

/* Elements first .. first+n-1 of a tensor that has `packed`: f64 is exact, f32 rounded once. */
void hd_packed_to_f64(const hd_tensor *t, uint64_t first, uint64_t n, double *out);
void hd_packed_to_f32(const hd_tensor *t, uint64_t first, uint64_t n, float *out);
/* Are rows of the matrix t whole rows of the file's matrices? */
bool hd_packed_in_rows(const hd_tensor *t);
/* Which scale an element has, whose row is counted through all matrices; the next tile of the row
 * has the one that is a step further. */
uint64_t hd_packed_scale_index(const hd_packed *p, uint64_t row, uint64_t col);
uint64_t hd_packed_scale_step(const hd_packed *p);
float hd_packed_scale(const hd_packed *p, uint64_t i);
/* Of a tensor of integers in few bits: those of a row, counted through all matrices, from a column
 * on that begins a byte, as far as its tile goes. An element is (code - zero) scale. */
typedef struct hd_integers {
    const uint8_t *codes; /* the first in the lowest bits; NULL: they do not lie side by side */
    uint32_t bits;        /* of a code: 4 or 8; 0: no integers */
    uint8_t flip;         /* bits of each byte that are the other way round */
    int32_t zero;
    float scale; /* NaN where there is none, or no zero point */
} hd_integers;
hd_integers hd_packed_integers(const hd_packed *p, uint64_t row, uint64_t col);
/* Their codes wherever they lie, n of a row from a column on, as bytes or two in a byte: both are
 * even then. */
void hd_packed_codes(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, uint8_t *out);
uint32_t hd_integer_bits(hd_packing packing); /* 0: no integers */
/* Where in its word a row of AWQ is, by row mod 8: words hold rows 0, 2, 4, 6, 1, 3, 5, 7 from the
 * lowest bits up. */
extern const uint8_t hd_awq_place[8];
/* What makes an element that is no finite number so, for a message. */
const char *hd_packed_fault(hd_arena *a, const hd_tensor *t, uint64_t i);

/* Numbers in few bits (OCP Microscaling Formats 1.0, section 5). */
float hd_from_e4m3(uint8_t code); /* -448 .. 448; no infinities, NaN in 127 and 255 */
float hd_from_e2m1(uint8_t code); /* the low half: -6 .. 6 */
float hd_from_e8m0(uint8_t code); /* 2^(code - 127); NaN in 255 */

#endif
