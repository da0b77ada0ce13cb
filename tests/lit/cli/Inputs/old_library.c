/* What is left of a library of an earlier Hadal: NAME_info() of a model called "old", whose struct
 * ends before step_size. */
#include <stddef.h>

static const struct {
    size_t struct_size;
    const char *version;
    size_t rest[17];
} info = {sizeof info, "0.0.9", {0}};

const void *old_info(void) {
    return &info;
}
