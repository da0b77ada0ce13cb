/* Reads tiktoken.model, a vocabulary that comes with a tokenizer in Python code. A line holds one
 * token: its bytes in base64 and its rank, which is also its id. The Python code adds a pattern,
 * and the names of special tokens. The names are in the tokenizer_config.json next to the file; the
 * patterns of the known codes are in a table here. Source: tokenization_kimi.py of
 * moonshotai/Kimi-Linear-48B-A3B-Instruct, and CoreBPE of the tiktoken library. */
#include <string.h>

#include "support/file.h"
#include "text/read.h"

enum { MAX_FILE = 64 << 20, LONGEST_TOKEN = 512 }; /* the longest published token has 128 bytes */

/* A known tokenizer in Python code: its class, the file that defines the class, the patterns that
 * split a text, the number of special tokens after the tokens of the file, and how special tokens
 * are called that the config does not name. */
typedef struct code {
    const char *class, *file;
    const char *patterns[9]; /* alternatives in order of precedence, up to the first NULL */
    int64_t specials;
    const char *unnamed[2]; /* the text before and after the id */
} code;

#define WORD_START  "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const code codes[] = {
    {"tokenization_kimi.TikTokenTokenizer",
     "tokenization_kimi.py",
     {"[\\p{Han}]+", WORD_START UPPER "*" LOWER "+" CONTRACTION,
      WORD_START UPPER "+" LOWER "*" CONTRACTION, "\\p{N}{1,3}", " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*",
      "\\s*[\\r\\n]+", "\\s+(?!\\S)", "\\s+"},
     258,
     {"<|reserved_token_", "|>"}},
};

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef HD_VEC(merge) merge_list;

typedef struct lines {
    reader *r;
    hd_diags *diags;
    const char *file, *text; /* `text`: all of the file */
    uint32_t line;
} lines;

static bool reject_line(const lines *l, const char *what) {
    const char *pointer = hd_pointer_hint(l->text, strlen(l->text));
    hd_err(l->diags, HD_E_FORMAT, (hd_loc){.file = l->file, .line = l->line, .column = 1}, "%s",
           what)
        ->hint =
        pointer ? pointer : "a line has the bytes of a token in base64, a space, and its rank";
    return false;
}

static int sextet(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes text[0..n) and returns the number of bytes; 0 if it is not base64, or is empty. */
static size_t from_base64(const char *text, size_t n, char *out) {
    const size_t padding = n && text[n - 1] == '=' ? (n > 1 && text[n - 2] == '=' ? 2 : 1) : 0;
    size_t bytes = 0;
    uint32_t bits = 0;
    if (n % 4 || n / 4 * 3 > LONGEST_TOKEN) return 0;
    for (size_t i = 0; i < n; i++) {
        const int six = i < n - padding ? sextet(text[i]) : 0;
        if (six < 0) return 0;
        bits = bits << 6 | (uint32_t)six;
        if (i % 4 != 3) continue;
        for (int shift = 16; shift >= 0; shift -= 8)
            out[bytes++] = (char)(bits >> shift);
    }
    return bytes - padding;
}

/* Reads one line. Ranks must be 0, 1, 2 ..., since each is the id of its token. */
static bool read_line(lines *l, const char *at, size_t n) {
    tokenizer *t = l->r->t;
    char bytes[LONGEST_TOKEN];
    const char *space = memchr(at, ' ', n);
    const size_t length = space ? from_base64(at, (size_t)(space - at), bytes) : 0;
    if (!length) return reject_line(l, "this is no token in base64");
    size_t rank = 0;
    const char *digit = space + 1;
    for (; digit < at + n && *digit >= '0' && *digit <= '9' && rank < MOST_IDS; digit++)
        rank = 10 * rank + (size_t)(*digit - '0');
    if (digit == space + 1 || digit != at + n) return reject_line(l, "its rank is no number");
    if (rank != t->n_ids)
        return reject_line(l, hd_printf(l->diags->arena, "its rank is not %zu", t->n_ids));
    const string token = as_byte_characters(l->r->arena, bytes, length);
    if (!string_map_add(&t->bpe.vocab, token.at, token.n, (int32_t)rank))
        return reject_line(l, "this token stands there twice");
    t->tokens[t->n_ids++] = token;
    return true;
}

static bool read_tokens(lines *l, const char *text, int64_t specials) {
    tokenizer *t = l->r->t;
    size_t most = 1;
    l->text = text;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        most++;
    if (most > (size_t)(MOST_IDS - specials)) return reject_line(l, "there are too many tokens");
    string_map_init(&t->bpe.vocab, l->r->arena, most);
    t->tokens = hd_new_array(l->r->arena, string, most + (size_t)specials);
    t->special = hd_new_array(l->r->arena, bool, most + (size_t)specials);
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        l->line++;
        if (end > at && !read_line(l, at, (size_t)(end - at))) return false;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        const char one = (char)byte;
        const string token = as_byte_characters(l->r->arena, &one, 1);
        if (string_map_find(&t->bpe.vocab, token.at, token.n) < 0)
            return reject_line(l, hd_printf(l->diags->arena, "the byte 0x%02x is no token", byte));
    }
    return true;
}

/* Lists the ways to cut token `id` into two tokens. */
static void add_cuts(const reader *r, hd_arena *a, size_t id, merge_list *out) {
    const string_map *vocab = &r->t->bpe.vocab;
    const string s = r->t->tokens[id];
    for (size_t cut = 1; cut < s.n; cut++) {
        if (((uint8_t)s.at[cut] & 0xc0) == 0x80) continue; /* not within a character */
        const int32_t left = string_map_find(vocab, s.at, cut);
        const int32_t right = left < 0 ? -1 : string_map_find(vocab, s.at + cut, s.n - cut);
        const merge m = {(uint32_t)left, (uint32_t)right, (uint32_t)id, (int32_t)id};
        if (right >= 0) hd_push(a, out, m);
    }
}

/* Any two tokens whose concatenation is a third token may be merged, at the rank of the third. */
static void add_merges(reader *r, hd_arena *a) {
    merge_list all = {0};
    for (size_t id = 0; id < r->t->n_ids; id++)
        add_cuts(r, a, id, &all);
    bpe_merges_init(&r->t->bpe, r->arena, all.n);
    for (size_t i = 0; i < all.n; i++)
        bpe_add_merge(&r->t->bpe, all.at[i].left, all.at[i].right, all.at[i].rank, all.at[i].id);
}

/* ---- special tokens -------------------------------------------------------------------------- */

static bool add_special(reader *r, const field *at, string content, bool special) {
    tokenizer *t = r->t;
    const int32_t id = (int32_t)t->n_ids;
    if (!content.n || !string_map_add(&t->added_ids, content.at, content.n, id)) {
        field_error(at, HD_E_FORMAT, "%s", content.n ? "stands twice" : "is empty");
        return false;
    }
    const added_token a = {.id = id, .content = content, .pattern = content, .special = special};
    hd_push(r->arena, &t->added, a);
    t->tokens[id] = content;
    t->special[id] = special;
    t->n_ids++;
    return true;
}

/* Adds special tokens with consecutive ids after those of the file. Ids that the config does not
 * name get a token all the same. */
static bool read_specials(reader *r, const field *names, const code *c) {
    const int64_t first = (int64_t)r->t->n_ids;
    size_t named = 0;
    string_map_init(&r->t->added_ids, r->arena, (size_t)c->specials);
    if (!field_is_object(names)) return false;
    for (int64_t id = first; id < first + c->specials; id++) {
        const field f = field_get(names, hd_printf(r->arena, "%lld", (long long)id));
        const field content = field_get(&f, "content");
        bool special = true;
        string name;
        if (!f.value) {
            name.at = hd_printf(r->arena, "%s%lld%s", c->unnamed[0], (long long)id, c->unnamed[1]);
            name.n = strlen(name.at);
        } else if (!field_is_object(&f) || !read_text(r, &content, &name) ||
                   !field_optional_bool(&f, "special", &special)) {
            return false;
        }
        named += f.value != NULL;
        if (!add_special(r, &content, name, special)) return false;
    }
    if (named == json_object_size(names->value)) return true;
    field_error(names, HD_E_UNSUPPORTED, "ids of special tokens are %lld to %lld", (long long)first,
                (long long)(first + c->specials - 1));
    return false;
}

/* ---- the Python code of the tokenizer ------------------------------------------------------ */

/* Finds the code named by "auto_map": {"AutoTokenizer": ["FILE.CLASS", null]}; the name may be
 * "REPOSITORY--FILE.CLASS". */
static const code *code_of(const field *config) {
    const field map = field_get(config, "auto_map"), own = field_get(&map, "AutoTokenizer"),
                first = json_is_array(own.value) ? field_element(&own, 0) : own;
    const char *name = json_string_value(first.value), *dashes = name ? strstr(name, "--") : NULL;
    for (size_t i = 0; name && i < sizeof codes / sizeof *codes; i++)
        if (strcmp(dashes ? dashes + 2 : name, codes[i].class) == 0) return &codes[i];
    field_error(&first, HD_E_UNSUPPORTED,
                name ? "the pattern that tokenizers of this class cut texts by is not known"
                     : "it is not said which code cuts texts for tiktoken.model")
        ->hint = "save the tokenizer as tokenizer.json with transformers";
    return NULL;
}

/* If the Python file is present, it must contain the patterns of the table. */
static bool same_code(hd_arena *a, hd_diags *d, const char *folder, const code *c) {
    const char *path = hd_path_join(a, folder, c->file);
    size_t n;
    if (!hd_exists(path)) return true;
    const char *text = hd_read_text(a, d, path, MAX_FILE, &n);
    if (!text) return false;
    for (size_t i = 0; c->patterns[i]; i++) {
        if (strstr(text, c->patterns[i])) continue;
        hd_diag *e = hd_err(d, HD_E_UNSUPPORTED, (hd_loc){.file = hd_strdup(d->arena, path)},
                            "it does not cut texts by the pattern that is known of %s", c->class);
        e->cause = hd_printf(d->arena, "%s is not in it", c->patterns[i]);
        e->hint = "save the tokenizer as tokenizer.json with transformers";
        return false;
    }
    return true;
}

static bool add_steps(reader *r, const code *c) {
    hd_text all;
    hd_text_init(&all, r->arena);
    for (size_t i = 0; c->patterns[i]; i++)
        hd_text_f(&all, "%s%s", i ? "|" : "", c->patterns[i]);
    const char *why = NULL;
    const splitter pieces = {.kind = SPLITTER_SPLIT,
                             .pattern = pattern_regex(r->arena, all.at, &why),
                             .behaviour = ISOLATED},
                   bytes = {.kind = SPLITTER_BYTE_LEVEL};
    const decoder back = {.kind = DECODER_BYTE_LEVEL};
    hd_push(r->arena, &r->t->splitters, pieces);
    hd_push(r->arena, &r->t->splitters, bytes);
    hd_push(r->arena, &r->t->decoders, back);
    return pieces.pattern != NULL;
}

/* What the code does not read: nothing is put around a text, and special tokens in it are such. */
static void note_unread(const field *config) {
    static const char *const names[] = {"add_bos_token", "add_eos_token", "add_prefix_space",
                                        "split_special_tokens"};
    note_unknown_fields(config);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const field f = field_get(config, names[i]);
        if (json_is_true(f.value)) field_note(&f, "not read where the tokenizer is tiktoken.model");
    }
}

/* ---- the whole file ------------------------------------------------------------------------ */

static bool read_config(hd_arena *a, hd_diags *d, const char *path, field *out) {
    if (hd_exists(path)) return field_open(a, d, "tokenizer", path, out) && field_is_object(out);
    hd_err(d, HD_E_IO, HD_NOWHERE, "there is no '%s'", path)->hint =
        "it says what belongs to tiktoken.model: special tokens, and the code that cuts texts";
    return false;
}

tokenizer *tokenizer_read_tiktoken(hd_arena *a, hd_diags *d, const char *folder) {
    const char *path = hd_path_join(a, folder, "tiktoken.model");
    field config;
    size_t n;
    if (!read_config(a, d, hd_path_join(a, folder, "tokenizer_config.json"), &config)) return NULL;
    const code *c = code_of(&config);
    const char *text =
        c && same_code(a, d, folder, c) ? hd_read_text(a, d, path, MAX_FILE, &n) : NULL;
    if (!text) return NULL;
    note_unread(&config);
    reader r = {.t = hd_new(a, tokenizer), .arena = a};
    tokenizer *t = r.t;
    t->arena = a;
    t->bpe.unk = -1;
    t->bpe.ignore_merges = true;
    lines l = {.r = &r, .diags = d, .file = hd_strdup(d->arena, path)};
    const field names = field_get(&config, "added_tokens_decoder");
    if (!read_tokens(&l, text, c->specials)) return NULL;
    add_merges(&r, d->arena);
    if (!read_specials(&r, &names, c) || !add_steps(&r, c)) return NULL;
    t->raw = added_set_of(t, false);
    t->normalized = added_set_of(t, true);
    return t;
}
