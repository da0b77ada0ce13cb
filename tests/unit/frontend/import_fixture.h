/* Imports of configs in a folder that is there for one test, and what is in the specs. FOLDER is
 * its name, as for folder_fixture.h. */
#ifndef TEST_IMPORT_FIXTURE_H
#define TEST_IMPORT_FIXTURE_H

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "tests/unit/folder_fixture.h"

static const hfe_options options = {.std_dir = TEST_DATA "/../frontend/std"};

static inline char *import_folder(const char *path) {
    return hfe_import(arena, &diags, path, &options);
}

static inline char *saved(int version, const char *name) {
    return hd_printf(arena, "%s/import/transformers-%d/%s", TEST_DATA, version, name);
}

static inline char *import_text(const char *json) {
    cr_assert(hd_write_file(arena, &diags, in_folder("config.json"), json, strlen(json)));
    return import_folder(folder);
}

static inline void expect_has(const char *text, const char *part) {
    cr_assert(text, "%s", said());
    cr_expect(strstr(text, part), "'%s' is not in:\n%s", part, text);
}

static inline void expect_lacks(const char *text, const char *part) {
    cr_assert(text, "%s", said());
    cr_expect(!strstr(text, part), "'%s' is in:\n%s", part, text);
}

#define BASE(family)                                                                               \
    "{\"model_type\": \"" family "\", \"vocab_size\": 96, \"hidden_size\": 48,"                    \
    " \"intermediate_size\": 80, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"            \
    " \"rms_norm_eps\": 1e-6"

/* The value of "residual" for Attention Residuals as in the paper, but for the size of a block. */
#define ATTNRES(size)                                                                              \
    "{\"type\": \"attnres\", \"block_size_sublayers\": " size ", \"normalization\": \"softmax\","  \
    " \"key_norm\": true, \"window\": null, \"num_heads\": 1, \"query\": \"learned\"}"

/* The config, which is given back, with one field set; the path is FIELD, or OBJECT.FIELD, and an
 * object that is not there is made. */
static inline char *import_changed(json_t *root, const char *path, const char *value) {
    json_error_t error;
    json_t *v = json_loads(value, JSON_DECODE_ANY, &error), *object = root;
    cr_assert(root && v, "%s", value);
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(path, '.')) {
        const char *name = hd_strndup(arena, path, (size_t)(dot - path));
        json_t *inner = json_object_get(object, name);
        if (!inner) json_object_set_new(object, name, inner = json_object());
        object = inner;
        path = dot + 1;
    }
    cr_assert(json_object_set_new(object, path, v) == 0, "%s", path);
    char *text = json_dumps(root, JSON_INDENT(2)), *kept = hd_strdup(arena, text);
    free(text);
    json_decref(root);
    return import_text(kept);
}

/* A small legal config with one field set. */
static inline char *import_with(const char *family, const char *path, const char *value) {
    json_error_t error;
    json_t *root = json_loads(hd_printf(arena, BASE("%s") "}", family), 0, &error);
    return import_changed(root, path, value);
}

#endif
