/* Texts of the result codes, from errors.def. */
#include "runtime/hadal_rt.h"

const char *hrt_strerror(int code) {
    switch (code) {
#define R(id, value, text)                                                                         \
    case HRT_##id:                                                                                 \
        return text;
#include "runtime/errors.def"
#undef R
    default: return "unknown error code";
    }
}
