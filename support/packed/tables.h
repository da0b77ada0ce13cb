/* Constant tables of what codes mean: HD_TABLE_16(F) and HD_TABLE_256(F) are F(0), F(1), .. */
#ifndef HD_PACKED_TABLES_H
#define HD_PACKED_TABLES_H

#define HD_TABLE_4(F, c) F((c)), F((c) + 1), F((c) + 2), F((c) + 3)
#define HD_TABLE_FROM(F, c)                                                                        \
    HD_TABLE_4(F, c), HD_TABLE_4(F, (c) + 4), HD_TABLE_4(F, (c) + 8), HD_TABLE_4(F, (c) + 12)
#define HD_TABLE_16(F) HD_TABLE_FROM(F, 0)
#define HD_TABLE_64(F, c)                                                                          \
    HD_TABLE_FROM(F, c), HD_TABLE_FROM(F, (c) + 16), HD_TABLE_FROM(F, (c) + 32),                   \
        HD_TABLE_FROM(F, (c) + 48)
#define HD_TABLE_256(F)                                                                            \
    HD_TABLE_64(F, 0), HD_TABLE_64(F, 64), HD_TABLE_64(F, 128), HD_TABLE_64(F, 192)

/* Bytes of two codes, the first one in the low half. */
#define HD_PAIR(F, c)                                                                              \
    { F((c)&15), F((c) >> 4) }

#endif
