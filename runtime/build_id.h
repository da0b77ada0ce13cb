/* Build ids. A library and weights that were made together have the same build id.
 *
 * A build id has two parts of 16 hex digits each: the program (kernel IR and version of Hadal,
 * whatever the target) and the values of the weights. A library that was compiled without weights
 * has the first part alone, and so fits weights of any values. */
#ifndef HRT_BUILD_ID_H
#define HRT_BUILD_ID_H

#include <stddef.h>
#include <stdint.h>

enum { HRT_BUILD_ID_PART = 16, HRT_BUILD_ID = 2 * HRT_BUILD_ID_PART + 2 };

static inline void hrt_build_id(char out[HRT_BUILD_ID], const uint8_t program[16],
                                const uint8_t *values) {
    static const char digits[] = "0123456789abcdef";
    const uint8_t *const parts[] = {program, values};
    size_t n = 0;
    for (int k = 0; k < 2 && parts[k]; k++) {
        if (k) out[n++] = '-';
        for (int i = 0; i < HRT_BUILD_ID_PART / 2; i++) {
            out[n++] = digits[parts[k][i] >> 4];
            out[n++] = digits[parts[k][i] & 15];
        }
    }
    out[n] = 0;
}

#endif
