/* The residual system of a config: none named (the standard stream), attn_res_block_size alone (a
 * published form of Block AttnRes, sizes in transformer layers), or the object `residual`:
 *
 *     {"type": "standard"}
 *     {"type": "attnres", "block_size_sublayers": S, "normalization": "softmax", "key_norm": true,
 *      "window": null, "num_heads": 1, "query": "learned"}
 *
 * Where both size fields stand, attn_res_block_size = S / 2.
 */
#include <string.h>

#include "frontend/import_config.h"

#define OBJECT "residual"

/* Fields of type attnres with the one value that is honoured, R(name, JSON test, "value"). */
#define CHOICES(R)                                                                                 \
    R("normalization", json_is_string(v) && !strcmp(json_string_value(v), "softmax"),              \
      "\"softmax\"")                                                                               \
    R("key_norm", json_is_true(v), "true")                                                         \
    R("window", json_is_null(v), "null")                                                           \
    R("num_heads", json_is_integer(v) && json_integer_value(v) == 1, "1")                          \
    R("query", json_is_string(v) && !strcmp(json_string_value(v), "learned"), "\"learned\"")

static const char *const attnres_fields[] = {"type", "block_size_sublayers",
#define R(name, test, only) name,
                                             CHOICES(R)
#undef R
};
enum { N_ATTNRES = sizeof attnres_fields / sizeof *attnres_fields };

static void refuse_other_fields(hfe_json *j, const char *const *known, size_t n) {
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(j->root, OBJECT), name, value) {
        bool found = false;
        for (size_t i = 0; i < n; i++)
            found |= strcmp(name, known[i]) == 0;
        if (!found) hfe_unknown_field(j, (hfe_field){OBJECT, name}, known, n);
    }
}

static void check_choice(hfe_json *j, const char *name, bool honoured, const char *only) {
    hfe_field f = {OBJECT, name};
    const json_t *v = hfe_json_get(j, f);
    if (!v || honoured) return; /* absent: as in the form with attn_res_block_size alone */
    hfe_field_error(j, f, "%s cannot be honoured by this version, only %s", hfe_json_show(j, v),
                    only);
}

static void read_attnres(hfe_json *j, hfe_config *c) {
    hfe_field size = {OBJECT, "block_size_sublayers"};
    refuse_other_fields(j, attnres_fields, N_ATTNRES);
#define R(name, test, only)                                                                        \
    {                                                                                              \
        const json_t *v = hfe_json_get(j, (hfe_field){OBJECT, name});                              \
        check_choice(j, name, test, only);                                                         \
    }
    CHOICES(R)
#undef R
    if (!hfe_json_get(j, size)) {
        if (c->block_layers == 0)
            hfe_field_error(j, (hfe_field){NULL, OBJECT},
                            "the field 'block_size_sublayers' is missing");
        return;
    }
    if (!hfe_read_size(j, size, &c->block_sublayers) || c->block_layers == 0) return;
    if (c->block_sublayers != 2 * c->block_layers) {
        hd_diag *g = hfe_field_error(j, size,
                                     "%lld sublayers contradict an attn_res_block_size of "
                                     "%lld layers",
                                     (long long)c->block_sublayers, (long long)c->block_layers);
        g->cause = "a layer is two sublayers, attention and MLP";
    }
    c->block_sublayers = 0; /* said in layers, which is the friendlier number */
}

static void read_standard(hfe_json *j, const hfe_config *c) {
    static const char *const only[] = {"type"};
    refuse_other_fields(j, only, 1);
    if (c->block_layers)
        hfe_field_error(j, (hfe_field){NULL, "attn_res_block_size"},
                        "contradicts the residual type standard");
}

void hfe_read_residual(hfe_json *j, hfe_config *c) {
    hfe_field whole = {NULL, OBJECT}, type = {OBJECT, "type"};
    const json_t *v = hfe_json_get(j, whole), *name = json_object_get(v, "type");
    if (!v) return;
    if (!json_is_object(v)) {
        hfe_field_error(j, whole, "must be an object, not %s", hfe_json_show(j, v));
    } else if (!name) {
        hfe_field_error(j, whole, "the field 'type' is missing");
    } else if (json_is_string(name) && strcmp(json_string_value(name), "standard") == 0) {
        read_standard(j, c);
    } else if (json_is_string(name) && strcmp(json_string_value(name), "attnres") == 0) {
        read_attnres(j, c);
    } else {
        hd_diag *g = hfe_field_error(j, type, "%s cannot be honoured by this version",
                                     hfe_json_show(j, name));
        g->cause = "the residual systems that can be imported are standard and attnres";
        g->hint = "other systems can be written in the model language";
    }
}
