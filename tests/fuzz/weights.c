#include <string.h>

#include "runtime/internal.h"
#include "tests/fuzz/fuzz.h"

/* A model with 64 bytes of weights, whose digest is 1, 2, 3 ... A file is mapped, and read. */
int fuzz_weights(const uint8_t *data, size_t n) {
    hrt_model model = {.weights_bytes = 64};
    hrt_weights *w = NULL;
    for (size_t i = 0; i < sizeof model.digest; i++)
        model.digest[i] = (uint8_t)(i + 1);
    const char *path = fuzz_write("fuzz.weights", data, n);
    const int code = hrt_weights_open(&model, path, &w);
    if ((code == HRT_OK) != (w != NULL)) fuzz_fail("the code and the result do not agree");
    if (w) fuzz_touch(w->data, model.weights_bytes);
    hrt_weights_close(w);
    if (hrt_weights_read(&model, path, &w) != code) fuzz_fail("reading is not as mapping");
    if (w) fuzz_touch(w->data, model.weights_bytes);
    hrt_weights_close(w);
    return 0;
}
