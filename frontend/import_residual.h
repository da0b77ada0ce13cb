/* Residual systems as configs name them, from the table import_residual.def. */
#ifndef HFE_IMPORT_RESIDUAL_H
#define HFE_IMPORT_RESIDUAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum hfe_residual_type {
#define S(type, ...) HFE_##type,
#include "frontend/import_residual.def"
    HFE_N_RESIDUALS,
} hfe_residual_type;

enum { /* traits of a system */
       NO_PRE_NORM = 1,
       ATTENTION_INPUT = 2,
       MLP_INPUT = 4,
       WAYS = 8,
       VALUES = 16,
       TAKES_LAYERS = 32,
       TAKES_EPS = 64,
};

typedef struct hfe_system {
    const char *type, *title, *page, *function;
    const char *attention, *mlp, *result; /* places; "": the system has no weights there */
    unsigned traits;
} hfe_system;

typedef enum hfe_parameter_kind {
    HFE_SIZE,
    HFE_COUNT,
    HFE_OPT_SIZE,
    HFE_REAL,
    HFE_POSITIVE,
    HFE_FLAG,
    HFE_WORD,
} hfe_parameter_kind;

typedef struct hfe_parameter {
    hfe_residual_type type;
    const char *field;
    hfe_parameter_kind kind;
    const char *allowed;  /* words of HFE_WORD; the largest whole number, NULL: 2^31-1 */
    const char *none;     /* what stands for an absent field; NULL: it is required */
    const char *name;     /* of the model's parameter, "": it has none */
    const char *argument; /* of the system's function, "": it takes none */
} hfe_parameter;

/* At least the parameters of any one type; a test counts them. */
enum { HFE_MAX_PARAMETERS = 8 };

extern const hfe_system hfe_systems[HFE_N_RESIDUALS];

/* The parameters of a type are neighbours: the first one, and their number. */
const hfe_parameter *hfe_parameters_of(hfe_residual_type type, size_t *n);

typedef struct hfe_value {
    const char *text; /* in the model language; NULL: not to be said, it is the library's default */
    int64_t number;   /* sizes and counts; 1 for true; number of the word */
} hfe_value;

typedef struct hfe_residual {
    hfe_residual_type type;
    hfe_value value[HFE_MAX_PARAMETERS]; /* in the order of hfe_parameters_of */
} hfe_residual;

/* The value of a field of the type at hand. */
const hfe_value *hfe_residual_value(const hfe_residual *r, const char *field);

#endif
