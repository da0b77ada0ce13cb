/* Rotary positions as configs write them. transformers 4: rope_theta beside rope_scaling, which is
 * null or an object with rope_type (before 4.43: type). transformers 5: all in rope_parameters. The
 * kinds honoured:
 *
 *     default   f_j = theta^(-2j / head_dim)
 *     linear    f_j / factor
 *     llama3    f_j, f_j / factor, or between, by wavelength (ir/ops.def, rope_table)
 */
#include <string.h>

#include "frontend/import_config.h"

/* Fields of the object. One that means nothing to the kind at hand is allowed: transformers writes
 * some of them always. */
static const char *const known[] = {"rope_type",
                                    "type",
                                    "rope_theta",
                                    "factor",
                                    "low_freq_factor",
                                    "high_freq_factor",
                                    "original_max_position_embeddings",
                                    "partial_rotary_factor",
                                    "attention_factor"};
enum { N_KNOWN = sizeof known / sizeof *known };

static const struct {
    const char *name;
    hfe_rope rope;
} types[] = {
    {"default", HFE_ROPE_DEFAULT}, {"linear", HFE_ROPE_LINEAR}, {"llama3", HFE_ROPE_LLAMA3}};

static bool is_known(const char *name) {
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(known[i], name) == 0) return true;
    return false;
}

static bool read_type(hfe_json *j, hfe_config *c, hfe_field f) {
    const json_t *v = hfe_json_get(j, f);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!json_is_string(v) || strcmp(json_string_value(v), types[i].name) != 0) continue;
        c->rope = types[i].rope;
        return true;
    }
    hd_diag *g =
        hfe_field_error(j, f, "%s cannot be honoured by this version", hfe_json_show(j, v));
    g->cause = "the kinds that can are default, linear and llama3";
    return false;
}

/* A number that the kind cannot do without. */
static void need_number(hfe_json *j, const char *object, const char *name, double *out) {
    hfe_field f = {object, name};
    if (hfe_json_get(j, f)) {
        hfe_read_number(j, f, out);
        return;
    }
    hfe_field_error(j, (hfe_field){NULL, object}, "the field '%s' is missing", name);
}

static void read_llama3(hfe_json *j, hfe_config *c, const char *object) {
    hfe_field f = {object, "original_max_position_embeddings"};
    need_number(j, object, "low_freq_factor", &c->low_freq_factor);
    need_number(j, object, "high_freq_factor", &c->high_freq_factor);
    if (hfe_json_get(j, f))
        hfe_read_size(j, f, &c->original_positions);
    else
        hfe_field_error(j, (hfe_field){NULL, object}, "the field '%s' is missing", f.name);
    if (c->low_freq_factor > 0 && c->high_freq_factor > 0 &&
        c->low_freq_factor >= c->high_freq_factor)
        hfe_field_error(j, (hfe_field){object, "low_freq_factor"},
                        "must be below high_freq_factor");
}

/* Two fields that may both be there must then agree. */
static void read_kind(hfe_json *j, hfe_config *c, const char *object) {
    hfe_field now = {object, "rope_type"}, before = {object, "type"};
    const json_t *x = hfe_json_get(j, now), *y = hfe_json_get(j, before);
    if (x && y && !json_equal(x, y)) {
        hfe_field_error(j, before, "contradicts rope_type");
        return;
    }
    if (!x && !y) {
        if (strcmp(object, "rope_scaling") == 0)
            hfe_field_error(j, (hfe_field){NULL, object}, "the field 'rope_type' is missing");
        return; /* rope_parameters without a type: default */
    }
    if (!read_type(j, c, x ? now : before)) return;
    if (c->rope != HFE_ROPE_DEFAULT) need_number(j, object, "factor", &c->factor);
    if (c->rope == HFE_ROPE_LLAMA3) read_llama3(j, c, object);
}

static void refuse_factor(hfe_json *j, const char *object, const char *name, double harmless) {
    hfe_field f = {object, name};
    const json_t *v = hfe_json_get(j, f);
    if (!v || json_is_null(v) || (json_is_number(v) && json_number_value(v) == harmless)) return;
    hfe_field_error(j, f, "%s cannot be honoured by this version", hfe_json_show(j, v));
}

static void read_theta(hfe_json *j, hfe_config *c, const char *object) {
    hfe_field f = {object, "rope_theta"};
    double theta = c->theta;
    if (!hfe_json_get(j, f) || !hfe_read_number(j, f, &theta)) return;
    if (c->theta > 0 && c->theta != theta)
        hfe_field_error(j, f, "contradicts the rope_theta outside");
    c->theta = theta;
}

static bool read_object(hfe_json *j, hfe_config *c, const char *object) {
    hfe_field whole = {NULL, object};
    json_t *v = hfe_json_get(j, whole), *value;
    const char *name;
    if (!v || json_is_null(v)) return false;
    if (!json_is_object(v)) {
        hfe_field_error(j, whole, "must be null or an object, not %s", hfe_json_show(j, v));
        return true;
    }
    json_object_foreach(v, name, value) {
        if (!is_known(name)) hfe_unknown_field(j, (hfe_field){object, name}, known, N_KNOWN);
    }
    read_kind(j, c, object);
    read_theta(j, c, object);
    refuse_factor(j, object, "partial_rotary_factor", 1);
    refuse_factor(j, object, "attention_factor", 1);
    return true;
}

void hfe_read_rope(hfe_json *j, hfe_config *c) {
    bool now = read_object(j, c, "rope_parameters");
    bool before = read_object(j, c, "rope_scaling");
    json_t *x = json_object_get(j->root, "rope_parameters");
    json_t *y = json_object_get(j->root, "rope_scaling");
    if (now && before && !json_equal(x, y))
        hfe_field_error(j, (hfe_field){NULL, "rope_scaling"},
                        "differs from rope_parameters, which says the same thing in newer files");
    if (c->theta == 0 && !hfe_json_get(j, (hfe_field){NULL, "rope_theta"})) c->theta = 10000;
}
