/* The tokens of a file: text, by a tokenizer or byte by byte, or token ids (data.h). Files are
 * mapped and read as they are used; only the tokens that a tokenizer makes are held in memory. */
#include "api/data.h"

#include "hadal/text.h"
#include "support/utf8.h"

#define API_FAILED 1

static int64_t read_raw(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                     (uint32_t)p[3] << 24);
}

/* Token i; numbers that are no i32 become -1, which is in no vocabulary. */
static int64_t token_at(const hadal_data *d, int64_t i) {
    if (d->text) return d->text[i];
    if (d->ids) return d->ids[i];
    if (d->raw) return read_raw(d->raw + 4 * i);
    const double v = hd_tensor_get(&d->tensor, (uint64_t)i);
    return v >= INT32_MIN && v <= INT32_MAX ? (int64_t)v : -1;
}

void api_data_copy(const hadal_data *d, int64_t first, int64_t n, int32_t *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = (int32_t)token_at(d, first + i);
}

bool api_data_check(hadal_session *s, const hadal_data *d, int64_t vocab) {
    if (d->text && vocab < 256) {
        hd_err(&s->diags, HD_E_VALUE, HD_NOWHERE,
               "the bytes of '%s' are no tokens: the vocabulary has %lld", d->path,
               (long long)vocab)
            ->hint = "--tokenizer names a tokenizer; .npy and .i32 files hold token ids";
        return false;
    }
    for (int64_t i = 0; !d->text && i < d->n; i++) {
        const int64_t id = token_at(d, i);
        if (id >= 0 && id < vocab) continue;
        const double value = d->tensor.data ? hd_tensor_get(&d->tensor, (uint64_t)i) : (double)id;
        hd_diag *e = hd_err(&s->diags, HD_E_VALUE, HD_NOWHERE,
                            "token %lld of '%s' is %.0f, outside of the vocabulary", (long long)i,
                            d->path, value);
        e->cause = hd_printf(s->arena, "ids are 0 to %lld; tokens are counted from 0",
                             (long long)(vocab - 1));
        return false;
    }
    return true;
}

bool api_data_may_write(hadal_session *s, const hadal_data *d, const char *path) {
    if (!hd_same_file(path, d->path)) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "'%s' is read here, and would be replaced", path)
        ->hint = "give the output another name";
    return false;
}

/* ---- opening --------------------------------------------------------------------------------- */
static bool is_integer(hd_tensor_dtype t) {
    return t >= HD_T_U8 && t <= HD_T_U64;
}
_Static_assert(HD_T_BOOL < HD_T_U8 && HD_T_U64 < HD_T_F16, "integer types are consecutive");

bool api_open_token_tensor(hadal_session *s, const char *name, hd_tensor *out) {
    const char *colon = strrchr(name, ':');
    if (hd_ends_with(name, ".npy")) {
        if (!hd_npy_read(s->arena, &s->diags, name, out)) return false;
    } else {
        hd_tensors file = {0};
        const char *path = hd_strndup(s->arena, name, (size_t)(colon - name));
        if (!hd_safetensors_open(s->arena, &s->diags, path, &file)) return false;
        const hd_tensor *t = hd_tensors_find(&file, colon + 1);
        if (!t) {
            hd_err(&s->diags, HD_E_NAME, HD_NOWHERE, "%s has no tensor \"%s\"", path, colon + 1);
            return false;
        }
        *out = *t;
    }
    if (is_integer(out->dtype) && out->rank == 1) return true;
    hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE,
           "%s holds %s of rank %u, tokens are integers of rank 1", name,
           hd_tensor_dtype_name(out->dtype), out->rank)
        ->hint = "one row of ids, of any type of whole numbers";
    return false;
}

static bool open_tensor(hadal_session *s, hadal_data *d) {
    if (!api_open_token_tensor(s, d->path, &d->tensor)) return false;
    d->n = (int64_t)d->tensor.elements;
    return true;
}

static bool open_raw(hadal_session *s, hadal_data *d) {
    hd_bytes file;
    if (!hd_map_file(s->arena, &s->diags, d->path, &file)) return false;
    if (file.n % sizeof(int32_t)) {
        hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "'%s' has %zu bytes", d->path, file.n)->cause =
            "a .i32 file holds numbers of 4 bytes";
        return false;
    }
    d->raw = file.at, d->n = (int64_t)(file.n / sizeof(int32_t));
    return true;
}

static bool is_utf8(hadal_session *s, const hadal_data *d, hd_bytes file) {
    const size_t at = hd_utf8_span((const char *)file.at, file.n);
    if (at == file.n) return true;
    hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "the text of '%s' is not UTF-8 at byte %zu", d->path,
           at)
        ->hint = "a tokenizer reads UTF-8; .npy and .i32 files hold token ids";
    return false;
}

static bool reject_text(hadal_session *s, const hadal_data *d, int64_t code) {
    if (code == HADAL_TEXT_MEMORY)
        hd_err(&s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory for the tokens of '%s'", d->path);
    else
        hd_err(&s->diags, HD_E_LIMIT, HD_NOWHERE,
               "a pattern of the tokenizer takes too long on the text of '%s'", d->path)
            ->hint = "shorter words, or fewer of the same character in a row";
    return false;
}

/* Tokenizes once, or twice if the text has more tokens than bytes, which normalisation can
 * cause. */
static bool tokenize(hadal_session *s, hadal_data *d, hd_bytes file, const hadal_tokenizer *t,
                     bool around) {
    const char *text = file.n ? (const char *)file.at : "";
    const int64_t added = around ? hadal_tokenizer_encode(t, "", 0, 1, NULL, 0) : 0;
    int64_t most = (int64_t)file.n + (added > 0 ? added : 0), n;
    int32_t *ids;
    if (!is_utf8(s, d, file)) return false;
    for (;; most = n) {
        ids = hd_alloc(s->arena, (size_t)most + 1, sizeof *ids);
        n = hadal_tokenizer_encode(t, text, file.n, around, ids, most);
        if (n <= most) break;
    }
    if (n < 0) return reject_text(s, d, n);
    d->ids = ids, d->n = n;
    d->bytes = (int64_t)file.n;
    d->text_tokens = added > 0 && added < n ? n - added : n;
    return true;
}

static bool open_text(hadal_session *s, hadal_data *d, const hadal_tokenizer *t, bool around) {
    hd_bytes file;
    if (!hd_map_file(s->arena, &s->diags, d->path, &file)) return false;
    if (t) return tokenize(s, d, file, t, around);
    d->text = file.n ? file.at : (const uint8_t *)"";
    d->n = d->bytes = d->text_tokens = (int64_t)file.n;
    return true;
}

/* The colon of FILE.safetensors:TENSOR; NULL: it is another file. */
static const char *colon_of(const char *path) {
    static const char suffix[] = ".safetensors";
    const char *colon = strrchr(path, ':');
    const size_t n = colon ? (size_t)(colon - path) : 0, k = sizeof suffix - 1;
    return n >= k && memcmp(colon - k, suffix, k) == 0 ? colon : NULL;
}

int hadal_data_is_text(const char *path) {
    return !hd_ends_with(path, ".npy") && !hd_ends_with(path, ".i32") && !colon_of(path);
}

int hadal_data_open(hadal_session *s, const char *path, const struct hadal_tokenizer *t,
                    int with_template, const hadal_data **out) {
    API_ENTER(s);
    hadal_data *d = hd_new(s->arena, hadal_data);
    d->path = hd_strdup(s->arena, path);
    *out = d;
    const bool tensor = hd_ends_with(path, ".npy") || colon_of(path);
    const bool ok = tensor                     ? open_tensor(s, d)
                    : hadal_data_is_text(path) ? open_text(s, d, t, with_template != 0)
                                               : open_raw(s, d);
    if (ok && d->n < 2)
        hd_err(&s->diags, HD_E_VALUE, HD_NOWHERE, "'%s' has %s", path,
               d->n ? "one token: there is none to predict" : "no tokens")
            ->hint = "a loss needs at least two tokens";
    API_LEAVE(s, ok && d->n >= 2);
}
