/* What the importer takes from a config.json, checked and with its defaults. */
#ifndef HFE_IMPORT_CONFIG_H
#define HFE_IMPORT_CONFIG_H

#include "frontend/import_json.h"
#include "frontend/import_residual.h"

typedef enum hfe_family { LLAMA = 1, QWEN2 = 2, QWEN3 = 4, ALL = 7 } hfe_family;
typedef enum hfe_rope { HFE_ROPE_DEFAULT, HFE_ROPE_LINEAR, HFE_ROPE_LLAMA3 } hfe_rope;

typedef struct hfe_config {
    hfe_family family; /* ALL: model_type was wrong, the rest is still checked */
    int64_t vocab, hidden, ff, layers, heads;
    int64_t kv_heads; /* as many as heads when not given */
    int64_t head_dim; /* 0: hidden / heads */
    double eps;
    const char *act; /* "silu" when not given */
    bool tied, attention_bias, mlp_bias, use_window;

    double theta;
    hfe_rope rope;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_positions;

    /* The residual system, and where it is Attention Residuals the size of a block, in layers or in
     * sublayers, whichever the config named. */
    hfe_residual residual;
    int64_t block_layers, block_sublayers;
    bool none; /* for fields that are read by rules of their own */
} hfe_config;

/* False: the config has faults, all of which are in the diagnostics. */
bool hfe_read_config(hfe_json *j, hfe_config *c);

/* ---- shared by the rules (import_config.c) ------------------------------------------------- */

/* Each reads the value of a field, and adds a diagnostic if it is not what it must be. */
bool hfe_read_size(hfe_json *j, hfe_field f, int64_t *out);
bool hfe_read_number(hfe_json *j, hfe_field f, double *out);
/* An error at the value of a field: "rope_scaling.factor: <text>". */
hd_diag *hfe_field_error(hfe_json *j, hfe_field f, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* An error at the name of a field that nothing knows, with the nearest of the names that are known.
 */
void hfe_unknown_field(hfe_json *j, hfe_field f, const char *const *known, size_t n);

/* rope_theta, rope_scaling, rope_parameters (import_rope.c). */
void hfe_read_rope(hfe_json *j, hfe_config *c);
/* attn_res_block_size and residual (import_residual.c). */
void hfe_read_residual(hfe_json *j, hfe_config *c);
/* Appends a float of the language: it has a point or an exponent. */
void hfe_add_float(hd_text *out, double x);

#endif
