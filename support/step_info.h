/* What hadal_info tells of each step of a compiled model: the compiler writes it into libraries and
 * reads it from those it opens. What a field means stands in every generated header, at
 * hadal_info_step (codegen/module/header.c). All fields have 8 bytes. */
#ifndef HD_STEP_INFO_H
#define HD_STEP_INFO_H

#include <stdint.h>

#define HD_STEP_INFO(TEXT, NUMBER)                                                                 \
    TEXT(name)                                                                                     \
    TEXT(kind)                                                                                     \
    TEXT(scope)                                                                                    \
    NUMBER(line)                                                                                   \
    NUMBER(last_rows)                                                                              \
    NUMBER(row_flops)                                                                              \
    NUMBER(pair_flops)                                                                             \
    NUMBER(pass_bytes)                                                                             \
    NUMBER(row_bytes)                                                                              \
    NUMBER(position_bytes)                                                                         \
    NUMBER(expert_bytes)                                                                           \
    NUMBER(experts)                                                                                \
    NUMBER(chosen)                                                                                 \
    NUMBER(window)                                                                                 \
    NUMBER(state_bytes)                                                                            \
    NUMBER(when)                                                                                   \
    NUMBER(few_pair)                                                                               \
    NUMBER(many_pair)                                                                              \
    NUMBER(few_row)                                                                                \
    NUMBER(many_position)                                                                          \
    NUMBER(many_most)

typedef struct hd_step_info {
#define TEXT(field)   const char *field;
#define NUMBER(field) uint64_t field;
    HD_STEP_INFO(TEXT, NUMBER)
#undef TEXT
#undef NUMBER
} hd_step_info;

#endif
