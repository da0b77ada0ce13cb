/* config.json to hfe_config: every field by its row of import_fields.def, then what fields say
 * together. Nothing is guessed: a field that is not in the table, or has a value that would change
 * the maths in a way that is not built, is an error that names it. */
#include "frontend/import_config.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { SIZE, OPT_SIZE, NUMBER, FLAG, WORD, LATER, ONLY, IGNORED } kind;
enum { OPTIONAL, REQUIRED };

typedef struct field_rule {
    const char *name;
    unsigned families;
    kind kind;
    size_t member; /* offset in hfe_config */
    int need;
    const char *allowed, *meaning;
} field_rule;

static const field_rule rules[] = {
#define F(name, families, kind, member, need, allowed, meaning)                                    \
    {name, families, kind, offsetof(hfe_config, member), need, allowed, meaning},
#include "frontend/import_fields.def"
#undef F
};
enum { N_RULES = sizeof rules / sizeof *rules };

static const struct {
    const char *name;
    hfe_family family;
} families[] = {{"llama", LLAMA}, {"qwen2", QWEN2}, {"qwen3", QWEN3}};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* ---- single values ------------------------------------------------------------------------- */

hd_diag *hfe_field_error(hfe_json *j, hfe_field f, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *what = hd_vprintf(j->arena, format, args);
    va_end(args);
    return hd_err(j->diags, HD_E_CONFIG, hfe_json_value(j, f), "%s: %s", hfe_json_path(j, f), what);
}

void hfe_unknown_field(hfe_json *j, hfe_field f, const char *const *known, size_t n) {
    hd_diag *g = hd_err(j->diags, HD_E_CONFIG, hfe_json_key(j, f), "unknown field '%s'",
                        hfe_json_path(j, f));
    const char *near = hd_nearest(f.name, known, n);
    if (near)
        g->hint = hd_printf(j->arena, "did you mean '%s'?", near);
    else
        g->cause = "what it changes is not known, so it cannot be left out of account";
}

static hd_diag *expected(hfe_json *j, hfe_field f, const char *what) {
    return hfe_field_error(j, f, "must be %s, not %s", what, hfe_json_show(j, hfe_json_get(j, f)));
}

bool hfe_read_size(hfe_json *j, hfe_field f, int64_t *out) {
    const json_t *v = hfe_json_get(j, f);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX) {
        expected(j, f, "a whole number from 1 to 2147483647");
        return false;
    }
    *out = json_integer_value(v);
    return true;
}

bool hfe_read_number(hfe_json *j, hfe_field f, double *out) {
    const json_t *v = hfe_json_get(j, f);
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x > 0) || x > FLT_MAX) {
        expected(j, f, x > 0 ? "a number that f32 holds" : "a number above 0");
        return false;
    }
    *out = x;
    return true;
}

static void read_flag(hfe_json *j, hfe_field f, bool *out) {
    const json_t *v = hfe_json_get(j, f);
    if (json_is_boolean(v))
        *out = json_is_true(v);
    else
        expected(j, f, "true or false");
}

static void read_word(hfe_json *j, hfe_field f, const char **out) {
    const json_t *v = hfe_json_get(j, f);
    if (json_is_string(v))
        *out = hd_strdup(j->arena, json_string_value(v));
    else
        expected(j, f, "a string");
}

/* Is the value one of the JSON words in `allowed`, separated by spaces? */
static bool is_one_of(const json_t *v, const char *allowed) {
    while (*allowed) {
        size_t n = strcspn(allowed, " ");
        if (!strncmp(allowed, "null", n)) {
            if (json_is_null(v)) return true;
        } else if (!strncmp(allowed, "false", n)) {
            if (json_is_false(v)) return true;
        } else if (!strncmp(allowed, "{}", n)) {
            if (json_is_object(v) && json_object_size(v) == 0) return true;
        } else if (json_is_number(v) && json_number_value(v) == strtod(allowed, NULL)) {
            return true;
        }
        allowed += n + strspn(allowed + n, " ");
    }
    return false;
}

static void read_only(hfe_json *j, hfe_field f, const field_rule *rule) {
    const json_t *v = hfe_json_get(j, f);
    if (is_one_of(v, rule->allowed)) return;
    hd_diag *g =
        hfe_field_error(j, f, "%s cannot be honoured by this version", hfe_json_show(j, v));
    g->cause = hd_printf(j->arena, "%s; allowed: %s", rule->meaning, rule->allowed);
}

/* ---- the table ----------------------------------------------------------------------------- */

static void read_field(hfe_json *j, hfe_config *c, const field_rule *rule) {
    hfe_field f = {NULL, rule->name};
    void *member = (char *)c + rule->member;
    const json_t *value = hfe_json_get(j, f);
    if (!value) {
        if (rule->need == REQUIRED)
            hd_err(j->diags, HD_E_CONFIG, (hd_loc){.file = j->file},
                   "the field '%s' is missing: %s", rule->name, rule->meaning);
        return;
    }
    switch (rule->kind) {
    case OPT_SIZE:
        if (!json_is_null(value)) hfe_read_size(j, f, member);
        break;
    case SIZE: hfe_read_size(j, f, member); break;
    case NUMBER: hfe_read_number(j, f, member); break;
    case FLAG: read_flag(j, f, member); break;
    case WORD: read_word(j, f, member); break;
    case ONLY: read_only(j, f, rule); break;
    case LATER:
    case IGNORED: break;
    }
}

static const field_rule *find_rule(const char *name, hfe_family family) {
    for (size_t i = 0; i < N_RULES; i++)
        if (strcmp(rules[i].name, name) == 0)
            return rules[i].families & (unsigned)family ? &rules[i] : NULL;
    return NULL;
}

static void refuse_unknown_fields(hfe_json *j, hfe_family family) {
    const char *known[N_RULES], *name;
    size_t n = 0;
    json_t *value;
    for (size_t i = 0; i < N_RULES; i++)
        if (rules[i].families & (unsigned)family) known[n++] = rules[i].name;
    json_object_foreach(j->root, name, value) {
        if (!find_rule(name, family)) hfe_unknown_field(j, (hfe_field){NULL, name}, known, n);
    }
}

/* Families that people will try, and what of their layers is not there. */
static const struct {
    const char *name, *lacks;
} relatives[] = {
    {"kimi_linear", "linear attention (KDA), latent attention and experts"},
    {"kimi_k2", "latent attention and experts"},
    {"deepseek_v2", "latent attention and experts"},
    {"deepseek_v3", "latent attention and experts"},
    {"mixtral", "experts"},
    {"qwen2_moe", "experts"},
    {"qwen3_moe", "experts"},
    {"qwen3_next", "linear attention and experts"},
};

static void explain_family(hfe_json *j, const json_t *v, hd_diag *g) {
    const char *names[N_FAMILIES], *given = json_is_string(v) ? json_string_value(v) : "";
    g->cause = "the families that can are llama, qwen2 and qwen3, on every residual system";
    g->hint = "other models can be written in the model language, as far as the library has their "
              "layers: docs/language.md";
    for (size_t i = 0; i < sizeof relatives / sizeof *relatives; i++)
        if (strcmp(given, relatives[i].name) == 0) {
            g->cause = hd_printf(j->arena, "its layers need %s, which are not there yet",
                                 relatives[i].lacks);
            g->hint = "llama, qwen2 and qwen3 can be imported, with attn_res_block_size and every "
                      "other residual system: docs/importing.md";
            return;
        }
    for (size_t i = 0; i < N_FAMILIES; i++)
        names[i] = families[i].name;
    const char *near = hd_nearest(given, names, N_FAMILIES);
    if (near) g->hint = hd_printf(j->arena, "did you mean '%s'?", near);
}

static hfe_family read_family(hfe_json *j) {
    hfe_field f = {NULL, "model_type"};
    const json_t *v = hfe_json_get(j, f);
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), families[i].name) == 0)
            return families[i].family;
    if (!v) return ALL; /* reported as missing */
    explain_family(
        j, v, hfe_field_error(j, f, "%s cannot be imported by this version", hfe_json_show(j, v)));
    return ALL;
}

/* ---- what fields say together -------------------------------------------------------------- */

static void check_layers(hfe_json *j, const hfe_config *c) {
    enum { MOST = 10000 };
    if (c->layers <= MOST) return;
    hd_diag *g = hfe_field_error(j, (hfe_field){NULL, "num_hidden_layers"},
                                 "%lld layers are more than can be compiled", (long long)c->layers);
    g->cause = hd_printf(j->arena, "layers are unrolled into one graph, at most %d of them", MOST);
    g->hint = "published models have tens to hundreds of layers: is it another field's number?";
}

static void check_heads(hfe_json *j, hfe_config *c) {
    int64_t n = c->head_dim;
    const json_t *given = hfe_json_get(j, (hfe_field){NULL, "head_dim"});
    bool wrong = n == 0 && given && !json_is_null(given);
    if (c->heads == 0 || c->hidden == 0 || wrong) return; /* reported */
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->heads % c->kv_heads != 0)
        hfe_field_error(j, (hfe_field){NULL, "num_key_value_heads"},
                        "%lld does not divide the %lld query heads", (long long)c->kv_heads,
                        (long long)c->heads);
    if (n == 0 && c->hidden % c->heads != 0) {
        hd_diag *g = hfe_field_error(j, (hfe_field){NULL, "num_attention_heads"},
                                     "%lld does not divide the hidden_size %lld",
                                     (long long)c->heads, (long long)c->hidden);
        g->hint = "give head_dim if the heads are not hidden_size / num_attention_heads wide";
        return;
    }
    if (n == 0) n = c->hidden / c->heads;
    if (n % 2 != 0)
        hfe_field_error(j, (hfe_field){NULL, c->head_dim ? "head_dim" : "hidden_size"},
                        "heads of %lld entries cannot be rotated: an even number is needed",
                        (long long)n);
    if (c->heads * n > INT32_MAX)
        hfe_field_error(j, (hfe_field){NULL, "num_attention_heads"},
                        "%lld heads of %lld entries are more than 2147483647 in all",
                        (long long)c->heads, (long long)n);
}

static void check_act(hfe_json *j, hfe_config *c) {
    static const char *const known[] = {"silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh",
                                        "relu"};
    hfe_field f = {NULL, "hidden_act"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(c->act, known[i]) == 0) return;
    hd_diag *g = hfe_field_error(j, f, "the activation %s is not known",
                                 hfe_json_show(j, hfe_json_get(j, f)));
    g->cause = "known are silu (swish), gelu, gelu_new (gelu_pytorch_tanh) and relu";
}

/* layer_types, where it stands, is the last word on windows. */
static bool check_layer_types(hfe_json *j, const hfe_config *c) {
    hfe_field f = {NULL, "layer_types"};
    const json_t *list = hfe_json_get(j, f);
    if (!list || json_is_null(list)) return false;
    if (!json_is_array(list)) {
        expected(j, f, "a list of strings");
        return true;
    }
    if (c->layers && json_array_size(list) != (size_t)c->layers)
        hfe_field_error(j, f, "has %zu entries for %lld layers", json_array_size(list),
                        (long long)c->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *type = json_array_get(list, i);
        if (json_is_string(type) && strcmp(json_string_value(type), "full_attention") == 0)
            continue;
        hfe_field_error(j, f,
                        "%s of layer %zu cannot be honoured by this version, only "
                        "\"full_attention\"",
                        hfe_json_show(j, type), i);
        break; /* the other layers are like it */
    }
    return true;
}

/* Without layer_types: layers from max_window_layers on have the window, if it is in use. */
static void check_window(hfe_json *j, const hfe_config *c) {
    enum { DEFAULT_FIRST = 28 }; /* of Qwen2 and Qwen3 where max_window_layers is absent */
    const json_t *window = hfe_json_get(j, (hfe_field){NULL, "sliding_window"});
    hfe_field f = {NULL, "max_window_layers"};
    const json_t *first = hfe_json_get(j, f);
    if (!c->use_window || json_is_null(window)) return;
    if (first && !json_is_integer(first)) {
        expected(j, f, "a whole number");
        return;
    }
    if (c->layers <= (first ? json_integer_value(first) : DEFAULT_FIRST)) return;
    hd_diag *g = hfe_field_error(j, (hfe_field){NULL, "use_sliding_window"},
                                 "true cannot be honoured by this version");
    g->cause = hd_printf(j->arena, "layers from %lld on would attend to a window only",
                         first ? (long long)json_integer_value(first) : DEFAULT_FIRST);
}

bool hfe_read_config(hfe_json *j, hfe_config *c) {
    enum { ALL_FAULTS = 1 << 16 };
    size_t errors = j->diags->errors, limit = j->diags->limit;
    j->diags->limit = ALL_FAULTS;
    *c = (hfe_config){.act = "silu"};
    c->family = read_family(j);
    /* What another family's fields mean is not known; that it is another family has been said. */
    bool other = c->family == ALL && json_object_get(j->root, "model_type");
    if (!other) refuse_unknown_fields(j, c->family);
    for (size_t i = 0; i < N_RULES; i++)
        if (rules[i].families & (unsigned)c->family) read_field(j, c, &rules[i]);
    check_layers(j, c);
    check_heads(j, c);
    check_act(j, c);
    if (!check_layer_types(j, c)) check_window(j, c);
    hfe_read_rope(j, c);
    hfe_read_residual(j, c);
    j->diags->limit = limit;
    return j->diags->errors == errors;
}
