/* The residual system of a config: none named (the standard stream), attn_res_block_size alone (a
 * published form of Block AttnRes, sizes in transformer layers), or the object `residual`:
 *
 *     {"type": "standard"}
 *     {"type": "deepnorm", "alpha": 2.5}
 *     {"type": "attnres", "block_size_sublayers": S, "normalization": "softmax", "key_norm": true,
 *      "window": null, "num_heads": 1, "query": "learned"}
 *
 * Types and fields are those of import_residual.def. Where both sizes of a block stand,
 * attn_res_block_size = S / 2.
 */
#include "frontend/import_residual.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/import_config.h"

#define OBJECT "residual"

const hfe_system hfe_systems[] = {
#define S(enum_, type, title, page, function, attention, mlp, result, traits)                      \
    [HFE_##enum_] = {type, title, page, function, attention, mlp, result, traits},
#include "frontend/import_residual.def"
};

static const hfe_parameter parameters[] = {
#define P(type, field, kind, allowed, none, name, argument)                                        \
    {HFE_##type, field, HFE_##kind, allowed, none, name, argument},
#include "frontend/import_residual.def"
};
enum { N_PARAMETERS = sizeof parameters / sizeof *parameters };

const hfe_parameter *hfe_parameters_of(hfe_residual_type type, size_t *n) {
    const hfe_parameter *first = NULL;
    *n = 0;
    for (size_t i = 0; i < N_PARAMETERS; i++) {
        if (parameters[i].type != type) continue;
        if (!first) first = &parameters[i];
        ++*n;
    }
    return first;
}

const hfe_value *hfe_residual_value(const hfe_residual *r, const char *field) {
    static const hfe_value absent = {0};
    size_t n;
    const hfe_parameter *p = hfe_parameters_of(r->type, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(p[i].field, field) == 0) return &r->value[i];
    return &absent;
}

void hfe_add_float(hd_text *out, double x) {
    size_t before = out->n;
    hd_text_double(out, x);
    if (!strpbrk(out->at + before, ".e")) hd_text_add(out, ".0");
}

/* ---- fields -------------------------------------------------------------------------------- */

static void refuse_other_fields(hfe_json *j, hfe_residual_type type) {
    const char *known[HFE_MAX_PARAMETERS + 1] = {"type"}, *name;
    size_t n;
    const hfe_parameter *p = hfe_parameters_of(type, &n);
    json_t *value;
    for (size_t i = 0; i < n; i++)
        known[i + 1] = p[i].field;
    json_object_foreach(json_object_get(j->root, OBJECT), name, value) {
        bool found = false;
        for (size_t i = 0; i <= n; i++)
            found |= strcmp(name, known[i]) == 0;
        if (!found) hfe_unknown_field(j, (hfe_field){OBJECT, name}, known, n + 1);
    }
}

static void expected(hfe_json *j, hfe_field f, const char *what) {
    hfe_field_error(j, f, "must be %s, not %s", what, hfe_json_show(j, hfe_json_get(j, f)));
}

static void read_whole(hfe_json *j, const hfe_parameter *p, int64_t least, hfe_value *out) {
    hfe_field f = {OBJECT, p->field};
    const json_t *v = hfe_json_get(j, f);
    const int64_t most = p->allowed ? strtol(p->allowed, NULL, 10) : INT32_MAX;
    if (json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= most)
        *out = (hfe_value){hd_printf(j->arena, "%lld", (long long)json_integer_value(v)),
                           json_integer_value(v)};
    else
        expected(j, f,
                 hd_printf(j->arena, "a whole number from %lld to %lld", (long long)least,
                           (long long)most));
}

static void read_real(hfe_json *j, hfe_field f, bool negative, hfe_value *out) {
    const json_t *v = hfe_json_get(j, f);
    double x = json_number_value(v);
    if (!json_is_number(v) || !(fabs(x) <= FLT_MAX) || (x < 0 && !negative)) {
        expected(j, f,
                 negative ? "a number that f32 holds" : "a number that f32 holds, 0 or above");
        return;
    }
    hd_text t;
    hd_text_init(&t, j->arena);
    hfe_add_float(&t, x);
    out->text = t.at;
}

static void read_word(hfe_json *j, hfe_field f, const char *words, hfe_value *out) {
    const json_t *v = hfe_json_get(j, f);
    const char *given = json_is_string(v) ? json_string_value(v) : "";
    const char *w = words;
    for (int64_t i = 0; *w; i++) {
        size_t n = strcspn(w, " ");
        if (n == strlen(given) && strncmp(w, given, n) == 0) {
            *out = (hfe_value){hd_printf(j->arena, "\"%s\"", given), i};
            return;
        }
        w += n + strspn(w + n, " ");
    }
    hfe_field_error(j, f, "%s cannot be honoured by this version", hfe_json_show(j, v))->cause =
        hd_printf(j->arena, "allowed: %s", words);
}

static void read_parameter(hfe_json *j, const hfe_parameter *p, hfe_value *out) {
    hfe_field f = {OBJECT, p->field};
    const json_t *v = hfe_json_get(j, f);
    if (!v && !p->none)
        hfe_field_error(j, (hfe_field){NULL, OBJECT}, "the field '%s' is missing", p->field);
    if (!v) return;
    switch (p->kind) {
    case HFE_OPT_SIZE:
        if (!json_is_null(v)) read_whole(j, p, 1, out);
        break;
    case HFE_SIZE: read_whole(j, p, 1, out); break;
    case HFE_COUNT: read_whole(j, p, 0, out); break;
    case HFE_REAL: read_real(j, f, true, out); break;
    case HFE_POSITIVE: read_real(j, f, false, out); break;
    case HFE_WORD: read_word(j, f, p->allowed, out); break;
    case HFE_FLAG:
        if (json_is_boolean(v))
            *out = (hfe_value){json_is_true(v) ? "true" : "false", json_is_true(v)};
        else
            expected(j, f, "true or false");
    }
    if (p->none && out->text && strcmp(out->text, p->none) == 0) out->text = NULL;
}

/* ---- what fields say together -------------------------------------------------------------- */

static int64_t number(const hfe_config *c, const char *field) {
    return hfe_residual_value(&c->residual, field)->number;
}

static void read_block_size(hfe_json *j, hfe_config *c) {
    hfe_field size = {OBJECT, "block_size_sublayers"};
    c->block_sublayers = number(c, size.name);
    if (!hfe_json_get(j, size) && c->block_layers == 0)
        hfe_field_error(j, (hfe_field){NULL, OBJECT},
                        "the field 'block_size_sublayers' is missing");
    if (c->block_sublayers == 0 || c->block_layers == 0) return;
    if (c->block_sublayers != 2 * c->block_layers) {
        hd_diag *g = hfe_field_error(j, size,
                                     "%lld sublayers contradict an attn_res_block_size of "
                                     "%lld layers",
                                     (long long)c->block_sublayers, (long long)c->block_layers);
        g->cause = "a layer is two sublayers, attention and MLP";
    }
    c->block_sublayers = 0; /* said in layers, which is the friendlier number */
}

static void check_attnres(hfe_json *j, hfe_config *c) {
    enum { LEARNED, INPUT, NONE };
    int64_t heads = number(c, "num_heads"), query = number(c, "query");
    const json_t *key_norm = hfe_json_get(j, (hfe_field){OBJECT, "key_norm"});
    read_block_size(j, c);
    if (heads > 1 && c->hidden % heads != 0)
        hfe_field_error(j, (hfe_field){OBJECT, "num_heads"},
                        "%lld does not divide the hidden_size %lld", (long long)heads,
                        (long long)c->hidden);
    if (heads > 1 && query != LEARNED)
        hfe_field_error(j, (hfe_field){OBJECT, "num_heads"}, "several heads need a learned query");
    if (query == NONE && !json_is_false(key_norm))
        hfe_field_error(j, (hfe_field){OBJECT, key_norm ? "key_norm" : "query"},
                        "without a query there are no keys to norm: key_norm must be false");
    if (number(c, "window") > 0 && c->block_sublayers != 1)
        hfe_field_error(j, (hfe_field){OBJECT, "window"},
                        "a window needs a block_size_sublayers of 1");
}

static void check_ddl(hfe_json *j, const hfe_config *c) {
    int64_t channels = number(c, "value_channels"), kernel = number(c, "conv_kernel");
    hfe_field f = {OBJECT, "conv_kernel"};
    if (channels == 1 && kernel > 0)
        hfe_field_error(j, f, "a single value channel has no convolution");
    if (channels > 1 && kernel == 0)
        hfe_field_error(j, (hfe_field){NULL, OBJECT},
                        "the field 'conv_kernel' is missing: %lld "
                        "value channels are read through a convolution",
                        (long long)channels);
    if (channels > 1 && kernel > channels)
        hfe_field_error(j, f, "%lld is more than the %lld value channels", (long long)kernel,
                        (long long)channels);
}

/* n streams have n! permutations, and as many outputs of a contraction. */
static void check_mhc_lite(hfe_json *j, const hfe_config *c) {
    enum { MOST = 6 };
    if (number(c, "num_streams") > MOST)
        hfe_field_error(j, (hfe_field){OBJECT, "num_streams"},
                        "more than %d streams cannot be honoured by this version", MOST)
            ->cause = "the mixing matrix is a sum over all permutations of the streams";
}

static void check_depth_attention(hfe_json *j, const hfe_config *c) {
    hfe_field f = {OBJECT, "k_norm_after_rope"}, stride = {OBJECT, "stride"};
    if (c->layers && number(c, stride.name) > c->layers) {
        hd_diag *g = hfe_field_error(j, stride, "%lld is beyond the %lld layers",
                                     (long long)number(c, stride.name), (long long)c->layers);
        g->cause = "a layer reads those before it whose number is a multiple of the stride";
        g->hint = hd_printf(j->arena, "with a stride of %lld only the first layer is read",
                            (long long)c->layers);
    }
    if (number(c, f.name) && c->family != QWEN3)
        hfe_field_error(j, f, "true cannot be honoured: keys have no norm in this family");
}

static void check_together(hfe_json *j, hfe_config *c) {
    switch (c->residual.type) {
    case HFE_ATTNRES: check_attnres(j, c); return;
    case HFE_DDL: check_ddl(j, c); break;
    case HFE_MHC_LITE: check_mhc_lite(j, c); break;
    case HFE_DEPTH_ATTENTION: check_depth_attention(j, c); break;
    default: break;
    }
    if (c->block_layers)
        hfe_field_error(j, (hfe_field){NULL, "attn_res_block_size"},
                        "contradicts the residual type %s", hfe_systems[c->residual.type].type);
}

/* ---- the object ---------------------------------------------------------------------------- */

static bool find_type(hfe_json *j, const json_t *name, hfe_residual_type *out) {
    const char *names[HFE_N_RESIDUALS];
    for (int i = 0; i < HFE_N_RESIDUALS; i++) {
        names[i] = hfe_systems[i].type;
        if (!json_is_string(name) || strcmp(json_string_value(name), names[i]) != 0) continue;
        *out = (hfe_residual_type)i;
        return true;
    }
    hd_diag *g = hfe_field_error(j, (hfe_field){OBJECT, "type"},
                                 "%s cannot be honoured by this version", hfe_json_show(j, name));
    const char *near =
        json_is_string(name) ? hd_nearest(json_string_value(name), names, HFE_N_RESIDUALS) : NULL;
    g->cause = "docs/importing.md lists the residual systems that can be imported";
    g->hint = near ? hd_printf(j->arena, "did you mean '%s'?", near)
                   : "other systems can be written in the model language";
    return false;
}

void hfe_read_residual(hfe_json *j, hfe_config *c) {
    hfe_field whole = {NULL, OBJECT};
    const json_t *v = hfe_json_get(j, whole), *name = json_object_get(v, "type");
    c->residual.type = c->block_layers ? HFE_ATTNRES : HFE_STANDARD;
    if (!v) return;
    if (!json_is_object(v)) {
        hfe_field_error(j, whole, "must be an object, not %s", hfe_json_show(j, v));
        return;
    }
    if (!name) {
        hfe_field_error(j, whole, "the field 'type' is missing");
        return;
    }
    if (!find_type(j, name, &c->residual.type)) return;
    refuse_other_fields(j, c->residual.type);
    size_t n, errors = j->diags->errors;
    const hfe_parameter *p = hfe_parameters_of(c->residual.type, &n);
    for (size_t i = 0; i < n; i++)
        read_parameter(j, &p[i], &c->residual.value[i]);
    if (j->diags->errors == errors) check_together(j, c);
}
