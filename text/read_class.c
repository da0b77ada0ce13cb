/* What transformers 5 makes of a tokenizer's class. For some classes it does not take the steps of
 * tokenizer.json but makes those of the class, with vocabulary and merges of the file. Here
 * tokenizer.json decides, as in transformers 4, and a note says where the two differ: a Llama 2
 * whose file prepends a space, a GPT2Tokenizer whose file splits digits. Source: transformers 5.24. */
#include <string.h>

#include "support/file.h"
#include "text/read.h"

/* ---- the class ------------------------------------------------------------------------------- */

#define BACKEND "TokenizersBackend" /* goes by tokenizer.json */

/* The class that a model type has: for those that Hadal imports. `wrong`: published configs name
 * another one, which does not count. Of others the config's class counts alone. */
static const struct class_of_type {
    const char *type, *class;
    bool wrong;
} types[] = {
    {"beam", BACKEND, false},
    {"gemma3n", "GemmaTokenizer", false},
    {"gemma3n_text", "GemmaTokenizer", false},
    {"glm4_moe", BACKEND, false},
    {"granite", BACKEND, false},
    {"kimi_k25", BACKEND, false},
    {"kimi_linear", BACKEND, false},
    {"mistral", BACKEND, false},
    {"mixtral", BACKEND, false},
    {"olmo2", BACKEND, false},
    {"olmo3", BACKEND, false},
    {"olmo_hybrid", BACKEND, false},
    {"phi3", BACKEND, true},
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen3", "Qwen2Tokenizer", false},
    {"qwen3_moe", "Qwen2Tokenizer", false},
    {"qwen3_next", "Qwen2Tokenizer", false},
    {"qwen4_exp", "Qwen3_5Tokenizer", true},
    {"zaya", "GemmaTokenizer", false},
};

static const struct class_of_type *find_type(const char *type) {
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, type) == 0) return &types[i];
    return NULL;
}

bool is_class(const char *name, const char *class) {
    const size_t n = strlen(class);
    return strncmp(name, class, n) == 0 && (!name[n] || strcmp(name + n, "Fast") == 0);
}

static bool has_byte_level(const tokenizer *t) {
    for (size_t i = 0; i < t->splitters.n; i++)
        if (t->splitters.at[i].kind == SPLITTER_BYTE_LEVEL) return true;
    return false;
}

/* The class that is made, of the one that the files name, or NULL, and the type of the model. */
static const char *class_made(const tokenizer *t, const char *named, const char *type) {
    const struct class_of_type *of = find_type(type);
    const bool mistral = type && (strcmp(type, "mistral") == 0 || strcmp(type, "mixtral") == 0);
    if (!named) return of ? of->class : BACKEND;
    if (is_class(named, "LlamaTokenizer") && !mistral && !(of && of->wrong) && has_byte_level(t))
        return BACKEND;
    if (!of || is_class(named, of->class)) return named;
    return of->wrong || strcmp(of->class, BACKEND) == 0 ? of->class : named;
}

/* ---- its steps ------------------------------------------------------------------------------- */

#define QWEN(letter)                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letter "+|\\p{N}| ?[^\\s\\p{L}"

/* Steps by their types, with blanks between them. */
static const struct class_steps {
    const char *class, *normalizers, *splitters;
    bool pieces;         /* of sentencepiece: with bytes, unknown characters together */
    const char *pattern; /* of Split, if the class has one of its own */
} classes[] = {
    {"LlamaTokenizer", "", "Metaspace", true, NULL},
    {"CodeLlamaTokenizer", "", "Metaspace", true, NULL},
    {"GemmaTokenizer", "Replace", "Split", true, NULL},
    {"CohereTokenizer", "NFC", "Digits ByteLevel", false, NULL},
    {"GPTNeoXTokenizer", "NFC", "ByteLevel", false, NULL},
    {"GPT2Tokenizer", "", "ByteLevel", false, NULL},
    {"Qwen2Tokenizer", "NFC", "Split ByteLevel", false,
     QWEN("\\p{L}") "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"Qwen3_5Tokenizer", "NFC", "Split ByteLevel", false,
     QWEN("[\\p{L}\\p{M}]") "\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

static const struct class_steps *find_steps(const char *class) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (is_class(class, classes[i].class)) return &classes[i];
    return NULL;
}

static const char *normalizers_of(hd_arena *a, const tokenizer *t) {
    static const char *const names[] = {
#define NORMALIZER(id, type, fields) type,
#include "text/kinds.def"
    };
    hd_text out;
    hd_text_init(&out, a);
    hd_text_add(&out, "");
    for (size_t i = 0; i < t->normalizers.n; i++)
        hd_text_f(&out, "%s%s", i ? " " : "", names[t->normalizers.at[i].kind]);
    return out.at;
}

static const char *splitters_of(hd_arena *a, const tokenizer *t) {
    static const char *const names[] = {
#define SPLITTER(id, type, fields) type,
#include "text/kinds.def"
    };
    hd_text out;
    hd_text_init(&out, a);
    hd_text_add(&out, "");
    for (size_t i = 0; i < t->splitters.n; i++)
        hd_text_f(&out, "%s%s", i ? " " : "", names[t->splitters.at[i].kind]);
    return out.at;
}

/* The first pattern of a pre_tokenizer in the file: that of a Split, or of the first in a Sequence. */
static const char *first_pattern(const json_t *step) {
    const json_t *list = json_object_get(step, "pretokenizers");
    const json_t *pattern = json_object_get(list ? json_array_get(list, 0) : step, "pattern");
    return json_string_value(json_object_get(pattern, "Regex"));
}

/* What the class puts before a text: Llama, after every special token or before the first piece. */
static prepend_scheme scheme_of(const config_files *b, const struct class_steps *c, bool space) {
    const field legacy = joined_field(b, "legacy");
    if (!space) return PREPEND_NEVER;
    return is_class(c->class, "LlamaTokenizer") && json_is_true(legacy.value) ? PREPEND_ALWAYS
                                                                              : PREPEND_FIRST;
}

/* Steps of the same types, but with other settings. A space before a text that the config asks for
 * has a note of its own. */
static bool has_other_settings(const tokenizer *t, const config_files *b,
                               const struct class_steps *c) {
    const field prefix = joined_field(b, "add_prefix_space");
    const bool space = json_is_boolean(prefix.value) ? json_is_true(prefix.value) : c->pieces;
    for (size_t i = 0; i < t->splitters.n; i++) {
        const splitter *s = &t->splitters.at[i];
        if (s->kind == SPLITTER_METASPACE && (s->pattern || s->scheme != scheme_of(b, c, space)))
            return true;
        if (s->kind == SPLITTER_BYTE_LEVEL && !prefix.value && s->add_prefix_space) return true;
        if (s->kind == SPLITTER_BYTE_LEVEL && (s->pattern == NULL) != (c->pattern != NULL))
            return true;
    }
    return false;
}

static void add_part(hd_text *out, bool differs, const char *part) {
    if (differs) hd_text_f(out, "%s%s", out->n ? ", " : "", part);
}

/* The config.json next to the file; its value is NULL if it cannot be read, which is for the importer of
 * models to complain about. */
static field config_beside(hd_arena *a, const field *file) {
    const char *path = hd_path_join(a, hd_path_dir(a, file->json->file), "config.json");
    hd_diags silent;
    field out = {0};
    hd_diags_init(&silent, a);
    if (!hd_exists(path) || !field_open(a, &silent, "model", path, &out)) return (field){0};
    field_close(&out);
    return field_open(a, file->json->diags, "model", path, &out) ? out : (field){0};
}

void note_class(reader *r, const field *file, const config_files *b) {
    const tokenizer *t = r->t;
    const field class = field_get(&b->config, "tokenizer_class"),
                map = field_get(&b->config, "auto_map"), code = field_get(&map, "AutoTokenizer"),
                model = config_beside(r->arena, file), type = field_get(&model, "model_type"),
                of_model = field_get(&model, "tokenizer_class"),
                *at = class.value      ? &class
                      : of_model.value ? &of_model
                                       : &type;
    const char *named = json_string_value(class.value ? class.value : of_model.value);
    const char *made = class_made(t, named, json_string_value(type.value));
    const struct class_steps *c = find_steps(made);
    if (!c || !field_is_null(&code)) return;
    const field step = field_get(file, "pre_tokenizer");
    const char *pattern = first_pattern(step.value);
    hd_text parts;
    hd_text_init(&parts, r->arena);
    add_part(&parts, strcmp(normalizers_of(r->arena, t), c->normalizers) != 0, "normalizer");
    add_part(&parts,
             strcmp(splitters_of(r->arena, t), c->splitters) != 0 || has_other_settings(t, b, c) ||
                 (c->pattern && (!pattern || strcmp(pattern, c->pattern) != 0)),
             "pre_tokenizer");
    add_part(&parts,
             t->bpe.ignore_merges || t->bpe.byte_fallback != c->pieces ||
                 t->bpe.fuse_unk != c->pieces,
             "model");
    if (parts.n)
        field_note(at,
                   "transformers 5 has steps of its own for the class %s (%s), and other ids for "
                   "some texts: tokenizer.json decides",
                   c->class, parts.at);
}
