/* What a config says about quantised weights: which modules, in which quantised format. The tensors
 * themselves decide what they are (packed.h); the config is checked against them, and gives the
 * sizes that the tensors leave open. frontend/config/quantisation.c reads it from a config.json. */
#ifndef HD_QUANTISATION_H
#define HD_QUANTISATION_H

#include "support/diag.h"

/* P(enum, name, codes, bits, lie): the quantised formats (packed.h). hd_codes_CODES decodes one;
 * for integer formats: the bits of a code, and the layout of codes (packed/integers.c). */
#define HD_PACKINGS(P)                                                                             \
    P(E4M3, "e4m3", e4m3, 0, ROWS)                                                                 \
    P(MXFP4, "mxfp4", mxfp4, 0, ROWS)                                                              \
    P(NVFP4, "nvfp4", mxfp4, 0, ROWS)                                                              \
    P(INT4, "int4", integers, 4, ROWS)                                                             \
    P(INT8, "int8", integers, 8, ROWS)                                                             \
    P(PLAIN8, "int8 in bytes", integers, 8, ROWS)                                                  \
    P(GPTQ4, "GPTQ int4", integers, 4, INPUTS)                                                     \
    P(GPTQ8, "GPTQ int8", integers, 8, INPUTS)                                                     \
    P(AWQ, "AWQ int4", integers, 4, OUTPUTS)
typedef enum hd_packing {
#define P(id, ...) HD_PACKING_##id,
    HD_PACKINGS(P)
#undef P
        HD_N_PACKINGS
} hd_packing;

const char *hd_packing_name(hd_packing p);

/* Rows and columns of a matrix that share a scale; 0: all of them. */
typedef struct hd_tile {
    uint64_t rows, cols;
} hd_tile;

/* A pattern for names of modules, as configs write it: a regular expression after "re:", which must
 * match from the beginning; else a name or some of its first or last components, with `*` for any
 * characters; else the name of a Python class, to which every module is assumed to belong. */
typedef struct hd_modules {
    const char *text; /* as written */
    void *regex;      /* regex_t; NULL: none */
    bool all;         /* a class */
} hd_modules;

typedef struct hd_module_list {
    HD_VEC(hd_modules) list;
} hd_module_list;

/* Adds a pattern. False: it is a regular expression with syntax that is not supported; it is not
 * added, and `why` names the syntax. */
bool hd_add_modules(hd_arena *a, hd_module_list *l, const char *text, const char **why);
/* The pattern that matches this module's name, or NULL. Classes are skipped: only a program that
 * has the model knows the class of a module. */
const hd_modules *hd_find_modules(const hd_module_list *l, const char *module);

typedef struct hd_quant_group {
    const char *format; /* as the config writes it */
    hd_packing packing;
    bool tile_known, symmetric;
    hd_tile tile;
    hd_module_list targets; /* empty: all modules */
    bool targets_known;     /* every pattern could be read */
    bool zeros_less_one;    /* the file stores each zero point minus one */
} hd_quant_group;

typedef struct hd_quantisation {
    bool given;
    hd_loc loc; /* place of the field */
    hd_loc ignore_loc;
    const char *ignore_field;
    bool rounds_cache;       /* keys and values are to be quantised */
    bool rounds_activations; /* and so are inputs or outputs of matrices */
    HD_VEC(hd_quant_group) groups;
    hd_module_list ignore;
} hd_quantisation;

/* The group that matches a module in this format, or NULL. If several match, the most specific: one
 * that has its name, before one with an expression for it, before one for a class. */
const hd_quant_group *hd_find_group(const hd_quantisation *q, hd_packing packing,
                                    const char *module);

#endif
