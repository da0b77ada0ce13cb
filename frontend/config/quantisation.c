/* Reads `quantization_config` (quantisation.h). `quant_method` selects one of several formats of
 * this object: for FP8, for MXFP4 in blocks, for MXFP8, for GPTQ, for AWQ, that of
 * compressed-tensors, which has groups of modules with a quantised format each, and that of
 * ModelOpt, which may be in a file of its own next to config.json. Fields that are not in
 * quantisation.def are rejected, as everywhere in a config, since nobody knows what they change. */
#include "frontend/config/quantisation.h"

#include <string.h>

#include "frontend/config/config.h"
#include "support/file.h"
#include "support/packed.h"

enum { MOST_TILE = 1 << 20, MOST_GROUPS = 64, MOST_PATTERNS = 10000 };

#define TAKE_UNQUANTISED                                                                           \
    "take the unquantised checkpoint; --weights-dtype stores its weights in 4 or 8 bits"

typedef struct quant_reader {
    hfe_json *json;
    hd_quantisation *out;
    bool quiet; /* no warnings */
} quant_reader;

/* ---- fields ------------------------------------------------------------------------------------ */

/* Objects that have fields (quantisation.def), as bits. */
enum {
    FP8 = 1,
    MX = 2,
    COMPRESSED = 4,
    GROUP = 8,
    WEIGHTS = 16,
    GPTQ = 32,
    AWQ = 64,
    MODELOPT = 128,
    QUANTIZATION = 256,
    LAYER = 512
};

typedef enum field_kind {
    ADVICE,
    READ,
    FLAG,
    STRING,
    LIST,
    WORD,
    ONLY_FALSE,
    ONLY_TRUE,
    ONLY_EMPTY
} field_kind;

enum { MOST_WORDS = 4 };

static const struct known_field {
    unsigned objects;
    const char *name;
    field_kind kind;
    const char *why, *words[MOST_WORDS + 1];
} known_fields[] = {
#define FIELD(objects, name, kind, why, ...) {objects, #name, kind, why, {__VA_ARGS__}},
#include "frontend/config/quantisation.def"
};

static const struct known_field *find_field(unsigned object, const char *name) {
    for (size_t i = 0; i < sizeof known_fields / sizeof *known_fields; i++)
        if ((known_fields[i].objects & object) && strcmp(known_fields[i].name, name) == 0)
            return &known_fields[i];
    return NULL;
}

static bool is_empty(const json_t *v) {
    return json_is_null(v) || (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

static bool is_string_list(const json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i))) return false;
    return json_is_array(v) && json_array_size(v) <= MOST_PATTERNS;
}

static bool is_one_of(const json_t *v, const char *const *words) {
    for (; json_is_string(v) && *words; words++)
        if (strcmp(json_string_value(v), *words) == 0) return true;
    return false;
}

static const char *list_words(hd_arena *a, const char *const *words) {
    hd_text out;
    hd_text_init(&out, a);
    for (size_t i = 0; words[i]; i++)
        hd_text_f(&out, "%s\"%s\"", i > 0 ? ", " : "", words[i]);
    return out.at;
}

/* Returns what a value must be, or NULL if the value is allowed. */
static const char *wanted(hd_arena *a, const struct known_field *k, const json_t *v) {
    switch (k->kind) {
    case FLAG: return json_is_boolean(v) ? NULL : "true or false";
    case STRING: return json_is_string(v) || json_is_null(v) ? NULL : "a string";
    case LIST: return is_string_list(v) || json_is_null(v) ? NULL : "a list of strings";
    case WORD: return is_one_of(v, k->words) || json_is_null(v) ? NULL : list_words(a, k->words);
    case ONLY_FALSE: return json_is_false(v) || json_is_null(v) ? NULL : "false";
    case ONLY_TRUE: return json_is_true(v) ? NULL : "true";
    case ONLY_EMPTY: return is_empty(v) ? NULL : "null";
    default: return NULL;
    }
}

static bool check_field(quant_reader *r, const hfe_field *f, const json_t *v,
                        const struct known_field *k) {
    const char *want = wanted(r->json->arena, k, v);
    if (!want) return true;
    hfe_field_error(r->json, f, "%s cannot be honoured by this version", hfe_json_show(r->json, v))
        ->cause = k->why ? hd_printf(r->json->arena, "%s; allowed: %s", k->why, want)
                         : hd_printf(r->json->arena, "it must be %s", want);
    return false;
}

/* Checks that every field of an object is known and has a value of its kind. */
static bool check_fields(quant_reader *r, const hfe_field *f, unsigned object) {
    const char *name;
    json_t *v, *of = hfe_json_get(r->json, f);
    bool ok = true;
    if (!json_is_object(of)) {
        hfe_field_error(r->json, f, "this must be an object");
        return false;
    }
    json_object_foreach(of, name, v) {
        const hfe_field inner = {f, name};
        const struct known_field *k = find_field(object, name);
        if (k) {
            ok &= check_field(r, &inner, v, k);
            continue;
        }
        hd_err(r->json->diags, HD_E_CONFIG, hfe_json_key(r->json, &inner), "unknown field '%s'",
               hfe_json_path(r->json, &inner))
            ->cause = "what it changes is not known, so it cannot be left out of account";
        ok = false;
    }
    return ok;
}

static const char *string_of(quant_reader *r, const hfe_field *object, const char *name) {
    const hfe_field f = {object, name};
    return json_string_value(hfe_json_get(r->json, &f));
}

static bool is_given(quant_reader *r, const hfe_field *object, const char *name) {
    const hfe_field f = {object, name};
    const json_t *v = hfe_json_get(r->json, &f);
    return v && !json_is_null(v);
}

/* Reads how many elements share a scale. */
static bool read_size(quant_reader *r, const hfe_field *f, const json_t *v, uint64_t *out) {
    if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= MOST_TILE) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    hfe_field_error(r->json, f, "%s is no size of a group; it must be a whole number from 1 to %d",
                    hfe_json_show(r->json, v), MOST_TILE);
    return false;
}

/* Reads a list [rows, columns]. */
static bool read_block(quant_reader *r, const hfe_field *f, hd_tile *out) {
    const json_t *v = hfe_json_get(r->json, f);
    if (!json_is_array(v) || json_array_size(v) != 2) {
        hfe_field_error(r->json, f, "this must be a list of two sizes: rows and columns");
        return false;
    }
    return read_size(r, f, json_array_get(v, 0), &out->rows) &&
           read_size(r, f, json_array_get(v, 1), &out->cols);
}

/* Reads names of modules. A pattern that cannot be read is skipped with a warning: the tensors
 * themselves show which are quantised, and the pattern would only be checked against them. Returns
 * false if a pattern was skipped. */
static bool read_modules(quant_reader *r, const hfe_field *f, hd_module_list *out) {
    const json_t *v = hfe_json_get(r->json, f);
    bool all = true;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *text = json_string_value(json_array_get(v, i)), *why = NULL;
        if (!text || hd_add_modules(r->json->arena, out, text, &why)) continue;
        all = false;
        if (r->quiet) continue;
        hd_warn(r->json->diags, HD_E_CONFIG, hfe_json_value(r->json, f),
                "%s: %s is not held against the tensors", hfe_json_path(r->json, f),
                hfe_json_show(r->json, json_array_get(v, i)))
            ->cause = hd_printf(r->json->arena, "it has %s", why);
    }
    return all;
}

/* Reads the list of ignored modules, which has two names: a config has one of them, or the same
 * list under both. */
static bool read_ignored(quant_reader *r, const hfe_field *object, const char *name,
                         const char *or_name) {
    const hfe_field f = {object, is_given(r, object, name) || !or_name ? name : or_name};
    const hfe_field other = {object, or_name};
    if (!is_given(r, object, f.name)) return true;
    if (f.name == name && or_name && is_given(r, object, or_name) &&
        !json_equal(hfe_json_get(r->json, &f), hfe_json_get(r->json, &other))) {
        hfe_field_error(r->json, &other, "this is not what '%s' says", hfe_json_path(r->json, &f));
        return false;
    }
    r->out->ignore_loc = hfe_json_value(r->json, &f);
    r->out->ignore_field = hfe_json_path(r->json, &f);
    read_modules(r, &f, &r->out->ignore);
    return true;
}

static void add_group(quant_reader *r, const hd_quant_group *g) {
    hd_push(r->json->arena, &r->out->groups, *g);
}

/* ---- FP8 ----------------------------------------------------------------------------------- */

/* DeepSeek-V4 stores experts in MXFP4 next to the FP8 weights; the object does not mention them. */
static bool read_fp8(quant_reader *r, const hfe_field *q) {
    const hfe_field block = {q, "weight_block_size"};
    hd_quant_group g = {.format = "fp8", .packing = HD_PACKING_E4M3, .targets_known = true};
    const hd_quant_group pairs = {
        .format = "mxfp4", .packing = HD_PACKING_MXFP4, .targets_known = true};
    bool ok = true;
    if (is_given(r, q, "weight_block_size")) {
        g.tile_known = true;
        ok &= read_block(r, &block, &g.tile);
    }
    ok &= read_ignored(r, q, "modules_to_not_convert", "ignored_layers");
    r->out->rounds_cache = is_given(r, q, "kv_cache_scheme");
    add_group(r, &g);
    add_group(r, &pairs);
    return ok;
}

/* ---- MXFP4 in blocks, MXFP8 ----------------------------------------------------------------- */

static bool read_mx(quant_reader *r, const hfe_field *q, const char *format, hd_packing packing) {
    const hd_quant_group g = {.format = format,
                              .packing = packing,
                              .tile_known = true,
                              .tile = {1, 32},
                              .targets_known = true};
    add_group(r, &g);
    return read_ignored(r, q, "modules_to_not_convert", "ignored_layers");
}

static bool read_mxfp4(quant_reader *r, const hfe_field *q) {
    return read_mx(r, q, "mxfp4", HD_PACKING_MXFP4);
}

static bool read_mxfp8(quant_reader *r, const hfe_field *q) {
    return read_mx(r, q, "mxfp8", HD_PACKING_E4M3);
}

/* ---- compressed-tensors -------------------------------------------------------------------- */

static const struct compressed_format {
    const char *name;
    hd_packing packing;
    int bits;
    const char *type;
    int group_size; /* 0: the field `group_size` decides */
    bool zeros;     /* zero points are allowed */
    const char *strategies[MOST_WORDS + 1];
} compressed_formats[] = {
#define FORMAT(name, packing, bits, type, group_size, zeros, ...)                                  \
    {name, HD_PACKING_##packing, bits, type, group_size, zeros, {__VA_ARGS__}},
#include "frontend/config/quantisation.def"
};

enum { N_FORMATS = sizeof compressed_formats / sizeof *compressed_formats };

/* True if the previous row has the same name. */
static bool is_next_width(const struct compressed_format *c) {
    return c > compressed_formats && strcmp(c->name, c[-1].name) == 0;
}

static const struct compressed_format *find_format(quant_reader *r, const hfe_field *group,
                                                   const hfe_field *q) {
    const bool own = is_given(r, group, "format");
    const hfe_field f = {own ? group : q, "format"};
    const json_t *v = hfe_json_get(r->json, &f);
    hd_text names;
    hd_text_init(&names, r->json->arena);
    for (size_t i = 0; i < N_FORMATS; i++) {
        const struct compressed_format *c = &compressed_formats[i];
        if (json_is_string(v) && strcmp(json_string_value(v), c->name) == 0) return c;
        if (is_next_width(c)) continue;
        hd_text_f(&names, "%s\"%s\"", i > 0 ? ", " : "", c->name);
    }
    hd_diag *g = hfe_field_error(r->json, v ? &f : q, "%s is no format that is read",
                                 v ? hfe_json_show(r->json, v) : "a config without 'format'");
    g->cause = hd_printf(r->json->arena, "formats that are read: %s", names.at);
    return NULL;
}

/* Finds, among the rows of one name, the row with the bits and, if it is given, the type of these
 * weights. Returns NULL after an error if there is none. */
static const struct compressed_format *of_bits(quant_reader *r, const hfe_field *w,
                                               const struct compressed_format *first) {
    const hfe_field f = {w, "num_bits"};
    const json_t *v = hfe_json_get(r->json, &f);
    hd_text allowed;
    hd_text_init(&allowed, r->json->arena);
    const struct compressed_format *c = first, *end = compressed_formats + N_FORMATS, *found = NULL;
    const char *type = string_of(r, w, "type");
    do {
        const bool fits = json_is_integer(v) && json_integer_value(v) == c->bits;
        if (fits && type && strcmp(type, c->type) == 0) return c;
        found = fits && !found ? c : found;
        if (c == first || c->bits != c[-1].bits)
            hd_text_f(&allowed, "%s%d", c > first ? " or " : "", c->bits);
        c++;
    } while (c < end && is_next_width(c));
    if (found) return found;
    hfe_field_error(r->json, v ? &f : w, "%s cannot be honoured by this version",
                    v ? hfe_json_show(r->json, v) : "weights without 'num_bits'")
        ->cause = hd_printf(r->json->arena, "%s is read with num_bits %s", first->name, allowed.at);
    return NULL;
}

static bool expect_int(quant_reader *r, const hfe_field *w, const char *name, int want,
                       const char *format) {
    const hfe_field f = {w, name};
    const json_t *v = hfe_json_get(r->json, &f);
    if (json_is_integer(v) && json_integer_value(v) == want) return true;
    hfe_field_error(r->json, v ? &f : w, "%s cannot be honoured by this version",
                    v ? hfe_json_show(r->json, v)
                      : hd_printf(r->json->arena, "weights without '%s'", name))
        ->cause = hd_printf(r->json->arena, "%s is read with %s %d", format, name, want);
    return false;
}

/* Reads which part of a matrix shares a scale. */
static bool read_tile(quant_reader *r, const hfe_field *w, const struct compressed_format *c,
                      hd_quant_group *g) {
    const hfe_field size = {w, "group_size"}, block = {w, "block_structure"};
    const char *strategy = string_of(r, w, "strategy");
    g->tile_known = true;
    g->tile = (hd_tile){1, 0};
    if (c->group_size != 0 && is_given(r, w, "group_size") &&
        !expect_int(r, w, "group_size", c->group_size, c->name))
        return false;
    if (!strategy || strcmp(strategy, "channel") == 0) {
        g->tile_known = strategy;
        return true;
    }
    if (strcmp(strategy, "tensor") == 0) {
        g->tile.rows = 0;
        return true;
    }
    if (strcmp(strategy, "block") == 0) return read_block(r, &block, &g->tile);
    if (!is_given(r, w, "group_size")) {
        hfe_field_error(r->json, w, "the field 'group_size' is missing");
        return false;
    }
    return read_size(r, &size, hfe_json_get(r->json, &size), &g->tile.cols);
}

/* Checks a field whose allowed words depend on the format. */
static bool check_word(quant_reader *r, const hfe_field *w, const char *name,
                       const char *const *words, const char *what) {
    const hfe_field f = {w, name};
    const json_t *v = hfe_json_get(r->json, &f);
    if (!v || json_is_null(v) || is_one_of(v, words)) return true;
    hfe_field_error(r->json, &f, "%s cannot be honoured by this version", hfe_json_show(r->json, v))
        ->cause =
        hd_printf(r->json->arena, "%s; allowed: %s", what, list_words(r->json->arena, words));
    return false;
}

static bool read_weights(quant_reader *r, const hfe_field *w, const struct compressed_format *c,
                         hd_quant_group *g) {
    const char *const types[] = {c->type, NULL};
    const hfe_field symmetric = {w, "symmetric"};
    const json_t *flag = hfe_json_get(r->json, &symmetric);
    bool ok = check_fields(r, w, WEIGHTS);
    ok &= check_word(r, w, "type", types, hd_printf(r->json->arena, "codes of %s", c->name));
    ok &= check_word(r, w, "strategy", c->strategies, "what shares a scale");
    g->symmetric = !json_is_false(flag);
    if (!g->symmetric && !c->zeros) {
        hfe_field_error(r->json, &symmetric, "false cannot be honoured by this version")->cause =
            hd_printf(r->json->arena, "%s has no zero points", c->name);
        ok = false;
    }
    return ok && read_tile(r, w, c, g);
}

static bool read_group(quant_reader *r, const hfe_field *q, const hfe_field *group) {
    const hfe_field weights = {group, "weights"}, targets = {group, "targets"};
    hd_quant_group g = {0};
    if (!check_fields(r, group, GROUP)) return false;
    r->out->rounds_activations |=
        is_given(r, group, "input_activations") || is_given(r, group, "output_activations");
    if (!is_given(r, group, "weights")) return true; /* the group only has activations */
    const struct compressed_format *c = find_format(r, group, q);
    const struct compressed_format *wide = c ? of_bits(r, &weights, c) : NULL;
    if (!c || !read_weights(r, &weights, wide ? wide : c, &g) || !wide) return false;
    c = wide;
    g.format = c->name;
    g.packing = c->packing;
    g.targets_known = read_modules(r, &targets, &g.targets);
    add_group(r, &g);
    return true;
}

/* The object may report how many zeros there are, if they are stored like other weights
 * ("dense"). */
static bool check_sparsity(quant_reader *r, const hfe_field *q) {
    static const char *const formats[] = {"dense", NULL};
    const hfe_field f = {q, "sparsity_config"};
    const struct known_field empty = {
        .name = f.name, .kind = ONLY_EMPTY, .why = "weights would be stored without their zeros"};
    const json_t *v = hfe_json_get(r->json, &f);
    if (json_is_object(v) && json_object_get(v, "format"))
        return check_word(r, &f, "format", formats, "how zeros are stored");
    return !v || check_field(r, &f, v, &empty);
}

static bool read_compressed(quant_reader *r, const hfe_field *q) {
    const hfe_field groups = {q, "config_groups"};
    json_t *of = hfe_json_get(r->json, &groups), *v;
    const char *name;
    bool ok = read_ignored(r, q, "ignore", NULL) && check_sparsity(r, q);
    r->out->rounds_cache = is_given(r, q, "kv_cache_scheme");
    if (!json_is_object(of) || json_object_size(of) > MOST_GROUPS) {
        hfe_field_error(r->json, of ? &groups : q,
                        "'config_groups' must be an object with at most %d groups", MOST_GROUPS);
        return false;
    }
    json_object_foreach(of, name, v) {
        const hfe_field group = {&groups, name};
        ok &= read_group(r, q, &group);
    }
    return ok;
}

/* ---- GPTQ and AWQ --------------------------------------------------------------------------- */

/* Reads how many columns share a scale; -1 means all columns of a row. */
static bool read_columns(quant_reader *r, const hfe_field *q, hd_quant_group *g) {
    const hfe_field f = {q, "group_size"};
    const json_t *v = hfe_json_get(r->json, &f);
    g->tile_known = true;
    g->tile = (hd_tile){1, 0};
    if (!v) {
        hfe_field_error(r->json, q, "the field 'group_size' is missing");
        return false;
    }
    return (json_is_integer(v) && json_integer_value(v) == -1) ||
           read_size(r, &f, v, &g->tile.cols);
}

static bool read_bits(quant_reader *r, const hfe_field *q, const char *method, bool eight,
                      int *bits) {
    const hfe_field f = {q, "bits"};
    const json_t *v = hfe_json_get(r->json, &f);
    *bits = json_is_integer(v) ? (int)json_integer_value(v) : 0;
    if (*bits == 4 || (*bits == 8 && eight)) return true;
    hfe_field_error(r->json, v ? &f : q, "%s cannot be honoured by this version",
                    v ? hfe_json_show(r->json, v) : "an object without 'bits'")
        ->cause =
        hd_printf(r->json->arena, "%s is read with 4%s bits", method, eight ? " or 8" : "");
    return false;
}

/* Reads GPTQ. The field that says how zero points are stored has an older name, too. */
static bool read_gptq(quant_reader *r, const hfe_field *q) {
    const char *format = string_of(r, q, "checkpoint_format");
    hd_quant_group g = {.format = "gptq", .targets_known = true};
    int bits;
    bool ok = read_bits(r, q, "GPTQ", true, &bits) && read_columns(r, q, &g);
    ok &= read_ignored(r, q, "modules_to_not_convert", NULL);
    format = format ? format : string_of(r, q, "format");
    g.packing = bits == 8 ? HD_PACKING_GPTQ8 : HD_PACKING_GPTQ4;
    g.zeros_less_one = !format || strcmp(format, "gptq_v2") != 0;
    add_group(r, &g);
    return ok;
}

static bool read_awq(quant_reader *r, const hfe_field *q) {
    hd_quant_group g = {.format = "awq", .packing = HD_PACKING_AWQ, .targets_known = true};
    int bits;
    bool ok = read_bits(r, q, "AWQ", false, &bits) && read_columns(r, q, &g);
    ok &= read_ignored(r, q, "modules_to_not_convert", NULL);
    add_group(r, &g);
    return ok;
}

/* ---- ModelOpt ------------------------------------------------------------------------------ */

static const struct algorithm {
    const char *name;
    hd_packing packing;
    int bits, group_size; /* 0: one scale for a matrix */
    bool rounds;          /* inputs of its matrices are to be rounded, too */
} algorithms[] = {
#define ALGORITHM(name, packing, bits, group_size, rounds)                                         \
    {name, HD_PACKING_##packing, bits, group_size, rounds},
#include "frontend/config/quantisation.def"
};
enum { N_ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* Returns NULL after an error if the algorithm is not one that is read. */
static const struct algorithm *find_algorithm(quant_reader *r, const hfe_field *object,
                                              const char *name) {
    const hfe_field f = {object, name};
    const json_t *v = hfe_json_get(r->json, &f);
    hd_text names;
    hd_text_init(&names, r->json->arena);
    for (size_t i = 0; i < N_ALGORITHMS; i++) {
        if (json_is_string(v) && strcmp(json_string_value(v), algorithms[i].name) == 0)
            return &algorithms[i];
        hd_text_f(&names, "%s\"%s\"", i > 0 ? ", " : "", algorithms[i].name);
    }
    hd_diag *g = hfe_field_error(r->json, v ? &f : object, "%s, a format of ModelOpt, is not read",
                                 v ? hfe_json_show(r->json, v) : "an object without 'quant_algo'");
    g->cause = hd_printf(r->json->arena, "formats of ModelOpt that are read: %s", names.at);
    g->hint = TAKE_UNQUANTISED;
    return NULL;
}

/* Adds a group for all modules: the tensors themselves show which are in this format. */
static bool add_algorithm(quant_reader *r, const hfe_field *object, const char *name) {
    const struct algorithm *a = find_algorithm(r, object, name);
    if (!a) return false;
    const hd_quant_group g = {.format = a->name,
                              .packing = a->packing,
                              .tile_known = true,
                              .tile = {a->group_size != 0, (uint64_t)a->group_size},
                              .symmetric = true,
                              .targets_known = true};
    r->out->rounds_activations |= a->rounds;
    for (size_t i = 0; i < r->out->groups.n; i++)
        if (r->out->groups.at[i].packing == g.packing) return true;
    add_group(r, &g);
    return !is_given(r, object, "group_size") || a->group_size == 0 ||
           expect_int(r, object, "group_size", a->group_size, a->name);
}

/* Checks a group of ModelOpt's, which repeats what the algorithm says. */
static bool check_modelopt_group(quant_reader *r, const hfe_field *group) {
    const hfe_field w = {group, "weights"};
    if (!check_fields(r, group, GROUP)) return false;
    if (!is_given(r, group, "weights")) return true;
    const hfe_field bits = {&w, "num_bits"}, size = {&w, "group_size"}, even = {&w, "symmetric"};
    if (!check_fields(r, &w, WEIGHTS)) return false;
    const json_t *flag = hfe_json_get(r->json, &even);
    if (json_is_false(flag)) {
        hfe_field_error(r->json, &even, "false cannot be honoured by this version")->cause =
            "formats of ModelOpt that are read have no zero points";
        return false;
    }
    const json_t *n = hfe_json_get(r->json, &bits), *of = hfe_json_get(r->json, &size);
    const char *type = string_of(r, &w, "type");
    for (size_t i = 0; i < N_ALGORITHMS; i++) {
        const struct algorithm *a = &algorithms[i];
        const bool sized = json_is_integer(of) ? json_integer_value(of) == a->group_size
                                               : a->group_size == 0 && (!of || json_is_null(of));
        if (json_is_integer(n) && json_integer_value(n) == a->bits && sized &&
            (!type || strcmp(type, "float") == 0))
            return true;
    }
    hfe_field_error(r->json, &w,
                    "weights of %s bits, groups of %s and type %s are no format that "
                    "is read",
                    n ? hfe_json_show(r->json, n) : "no",
                    of ? hfe_json_show(r->json, of) : "no size", type ? type : "none")
        ->cause =
        "NVFP4 has \"float\", 4 bits and groups of 16; FP8 \"float\", 8 bits and no groups";
    return false;
}

/* Reads `quantized_layers`: an object for each module, with its own algorithm. */
static bool read_layers(quant_reader *r, const hfe_field *q) {
    const hfe_field layers = {q, "quantized_layers"};
    json_t *of = hfe_json_get(r->json, &layers), *v;
    const char *name;
    if (!json_is_object(of) || json_object_size(of) == 0) {
        hfe_field_error(r->json, of ? &layers : q,
                        "'quantized_layers' must be an object with an entry for each module");
        return false;
    }
    json_object_foreach(of, name, v) {
        const hfe_field layer = {&layers, name};
        if (!check_fields(r, &layer, LAYER) || !add_algorithm(r, &layer, "quant_algo"))
            return false;
    }
    return true;
}

static bool is_mixed(const char *algorithm) {
    return algorithm && strcmp(algorithm, "MIXED_PRECISION") == 0;
}

/* Reads the object of either file: the lists of modules that are left out have two names. */
static bool read_modelopt(quant_reader *r, const hfe_field *q) {
    const hfe_field groups = {q, "config_groups"};
    const char *algorithm = string_of(r, q, "quant_algo"), *name;
    json_t *of = hfe_json_get(r->json, &groups), *v;
    bool ok = read_ignored(r, q, is_given(r, q, "ignore") ? "ignore" : "exclude_modules", NULL);
    ok &= is_mixed(algorithm) ? read_layers(r, q) : add_algorithm(r, q, "quant_algo");
    if (is_given(r, q, "moe_quant_algo")) ok &= add_algorithm(r, q, "moe_quant_algo");
    r->out->rounds_cache =
        is_given(r, q, "kv_cache_scheme") || is_given(r, q, "kv_cache_quant_algo");
    if (!of || json_is_null(of)) return ok;
    if (!json_is_object(of) || json_object_size(of) > MOST_GROUPS) {
        hfe_field_error(r->json, &groups,
                        "'config_groups' must be an object with at most %d groups", MOST_GROUPS);
        return false;
    }
    json_object_foreach(of, name, v) {
        const hfe_field group = {&groups, name};
        ok &= check_modelopt_group(r, &group);
    }
    return ok;
}

/* ---- the field ----------------------------------------------------------------------------- */

static const struct method {
    const char *name;
    unsigned object;
    bool (*read)(quant_reader *r, const hfe_field *q); /* called after its fields are checked */
} methods[] = {
#define METHOD(name, object, read) {name, object, read},
#include "frontend/config/quantisation.def"
};

/* Reports that a method of quantisation, at its place in a file, is not supported. */
static bool reject_way(hfe_json *j, const hfe_field *f, const char *what) {
    hd_text names;
    hd_text_init(&names, j->arena);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        hd_text_f(&names, "%s\"%s\"", i > 0 ? ", " : "", methods[i].name);
    hd_diag *g = hfe_field_error(j, f, "%s", what);
    g->cause = hd_printf(j->arena, "ways of quantising that are read: %s", names.at);
    g->hint = TAKE_UNQUANTISED;
    return false;
}

/* ModelOpt's object. A format that is not read gives one error, whatever else it says. */
static bool read_modelopt_object(quant_reader *r, const hfe_field *q, const json_t *method) {
    const hfe_field f = {q, "quant_algo"};
    const char *algorithm = string_of(r, q, "quant_algo");
    if (method && !(json_is_string(method) && strcmp(json_string_value(method), "modelopt") == 0)) {
        hfe_field_error(r->json, &f, "%s, a format of ModelOpt, is not read with quant_method %s",
                        hfe_json_show(r->json, hfe_json_get(r->json, &f)),
                        hfe_json_show(r->json, method))
            ->hint = TAKE_UNQUANTISED;
        return false;
    }
    if (!is_mixed(algorithm) && !find_algorithm(r, q, "quant_algo")) return false;
    return check_fields(r, q, MODELOPT) && read_modelopt(r, q);
}

static bool read_method(quant_reader *r, const hfe_field *q) {
    const hfe_field f = {q, "quant_method"};
    const json_t *v = hfe_json_get(r->json, q), *method = json_object_get(v, "quant_method");
    if (!json_is_object(v)) {
        hfe_field_error(r->json, q, "this must be an object");
        return false;
    }
    if (json_is_string(json_object_get(v, "quant_algo"))) return read_modelopt_object(r, q, method);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const struct method *m = &methods[i];
        if (!json_is_string(method) || strcmp(json_string_value(method), m->name) != 0) continue;
        const bool known = check_fields(r, q, m->object);
        return m->read(r, q) && known;
    }
    return method ? reject_way(
                        r->json, &f,
                        hd_printf(r->json->arena, "%s is not read", hfe_json_show(r->json, method)))
                  : reject_way(r->json, q, "the field 'quant_method' is missing");
}

/* The file in which ModelOpt names the formats of a folder; NULL: there is none. */
static const char *file_of_modelopt(const hfe_json *config) {
    const char *path = hd_path_join(config->arena, hd_path_dir(config->arena, config->file),
                                    "hf_quant_config.json");
    return hd_exists(path) ? path : NULL;
}

/* Reads ModelOpt's file where config.json has no entry. Its places are in that file. */
static bool read_beside(const hfe_json *config, hd_quantisation *out, bool quiet) {
    const char *path = file_of_modelopt(config);
    const hfe_field object = {NULL, "quantization"};
    hfe_json *j = path ? hfe_json_open(config->arena, config->diags, path) : NULL;
    if (!j) return !path;
    quant_reader r = {.json = j, .out = out, .quiet = quiet};
    if (!is_given(&r, &object, "quant_algo")) return true;
    if (!is_mixed(string_of(&r, &object, "quant_algo")) &&
        !find_algorithm(&r, &object, "quant_algo"))
        return false;
    out->given = true;
    out->loc = hfe_json_key(j, &object);
    return check_fields(&r, &object, QUANTIZATION) && read_modelopt(&r, &object);
}

/* Does ModelOpt's file, if there is one, name the algorithm that config.json does? */
static bool agrees_beside(const hfe_json *config, const hfe_field *q) {
    const char *path = file_of_modelopt(config);
    const hfe_field object = {NULL, "quantization"}, inner = {&object, "quant_algo"};
    const hfe_field here = {q, "quant_algo"};
    const json_t *said = hfe_json_get(config, &here);
    if (!path || !said) return true;
    hfe_json *j = hfe_json_open(config->arena, config->diags, path);
    const json_t *there = j ? hfe_json_get(j, &inner) : NULL;
    if (!there || json_equal(said, there)) return j;
    hfe_field_error(j, &inner, "this is not what config.json says: %s",
                    hfe_json_show(config, said));
    return false;
}

bool hfe_read_quantisation(hfe_json *j, hd_quantisation *out) {
    static const char name[] = "quantization_config";
    hfe_field *found = NULL;
    hd_quantisation own = {0};
    for (size_t i = 0; i <= HFE_LANGUAGE_PARTS; i++) {
        hfe_field *part = hd_new(j->arena, hfe_field), *f = hd_new(j->arena, hfe_field);
        *part = (hfe_field){NULL, i > 0 ? hfe_language_parts[i - 1] : NULL};
        *f = (hfe_field){i > 0 ? part : NULL, name};
        const json_t *v = hfe_json_get(j, f);
        if (!v || json_is_null(v)) continue;
        if (found && !json_equal(v, hfe_json_get(j, found))) {
            hfe_field_error(j, f, "this is not what '%s' says", hfe_json_path(j, found));
            return false;
        }
        found = found ? found : f;
    }
    quant_reader r = {.json = j, .out = &own, .quiet = !out};
    if (found) {
        own.given = true;
        own.loc = hfe_json_key(j, found);
    }
    const bool ok =
        found ? read_method(&r, found) && agrees_beside(j, found) : read_beside(j, &own, !out);
    if (out) *out = own;
    return ok;
}

bool hfe_quantisation_of(hd_arena *a, hd_diags *d, const char *weights, hd_quantisation *out) {
    const char *folder = hd_is_directory(weights) ? weights : hd_path_dir(a, weights);
    const char *config = hd_path_join(a, folder, "config.json");
    *out = (hd_quantisation){0};
    if (!hd_exists(config)) return true;
    hfe_json *j = hfe_json_open(a, d, config);
    return j && hfe_read_quantisation(j, out);
}

hd_tensors hfe_tensors_beside(hd_arena *a, const char *config) {
    const char *folder = hd_path_dir(a, config);
    hd_tensors *stored = hd_new(a, hd_tensors), weights = {0};
    hd_quantisation how;
    hd_diags silent;
    hd_diags_init(&silent, a);
    if (!hd_safetensors_open(a, &silent, folder, stored)) return (hd_tensors){0};
    const bool read = hfe_quantisation_of(a, &silent, folder, &how) &&
                      hd_unpack(a, &silent, stored, &how, &weights);
    return read ? weights : *stored;
}
