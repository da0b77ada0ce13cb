/* libFuzzer's entry; FUZZ_TARGET is the function of one target. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    return FUZZ_TARGET(data, n);
}
