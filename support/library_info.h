/* What hadal_info states about a compiled model (library_info.def has the fields). */
#ifndef HD_LIBRARY_INFO_H
#define HD_LIBRARY_INFO_H

#include <stdint.h>

/* clang-format off */
#define STRUCT(name)              typedef struct name {
#define END(name)                 } name;
#define TEXT(field)               const char *field;
#define U64(field)                uint64_t field;
#define TEXTS(field, count)       const char *const *field;
#define TABLE(type, field, count) const type *field;
/* clang-format on */
#include "support/library_info.def"
#undef STRUCT
#undef END
#undef TEXT
#undef U64
#undef TEXTS
#undef TABLE

#endif
