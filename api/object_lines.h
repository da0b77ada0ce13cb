/* Which line of the kernel IR each byte of machine code was made for: the line table (DWARF) of an
 * object, as gdb and perf read it. */
#ifndef API_OBJECT_LINES_H
#define API_OBJECT_LINES_H

#include "support/arena.h"
#include "support/text.h"

typedef struct object_row { /* code from `address` up to the next row belongs to `line` */
    uint64_t address;       /* in the object's text section */
    uint32_t line;          /* 0: none */
    bool ends;              /* the end of a sequence: no code follows, and the row has no line */
} object_row;

typedef struct object_function {
    const char *name; /* as the object has it */
    uint64_t offset, bytes;
} object_function;

typedef struct object_lines {
    HD_VEC(object_row) rows;           /* in the order in which the code was written */
    HD_VEC(object_function) functions; /* in the order of the symbols */
} object_lines;

/* Reads a relocatable ELF object for a 64-bit little-endian machine whose code is in one section.
 * False: it is no such object, or its line table is incomplete. */
bool api_read_object(hd_arena *a, const hd_text *object, object_lines *out);

#endif
