/* The .npy format of numpy, versions 1 to 3:
 *
 *     \x93NUMPY | major | minor | header length (u16, from version 2 on u32) | header | data
 *
 * The header is a Python dict literal with exactly the keys descr, fortran_order and shape. It is
 * read by a grammar of just that; object arrays (pickles) and structured types are rejected.
 */
#include <ctype.h>
#include <string.h>

#include "support/tensorfile.h"

enum {
    MAX_HEADER = 10000, /* numpy's own limit */
    ALIGN = 64,
};
static const char magic[6] = "\x93NUMPY";

static const char *const descrs[] = {
#define T(id, name, bits, npy) npy,
    HD_TENSOR_DTYPES(T)
#undef T
};

/* ---- the header's grammar ------------------------------------------------------------------ */

typedef struct cursor {
    hd_diags *d;
    hd_loc loc;
    const char *begin, *at, *end;
} cursor;

static bool wrong(cursor *c, const char *expected) {
    hd_err(c->d, HD_E_SYNTAX, c->loc, "the .npy header has no %s at byte %zu of it", expected,
           (size_t)(c->at - c->begin));
    return false;
}

static void skip_space(cursor *c) {
    while (c->at < c->end && isspace((unsigned char)*c->at))
        c->at++;
}

static bool accept(cursor *c, const char *token) {
    skip_space(c);
    size_t n = strlen(token);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, token, n) != 0) return false;
    c->at += n;
    return true;
}

/* string := ' chars ' | " chars ", without escapes */
static bool read_string(cursor *c, hd_arena *a, const char **out) {
    skip_space(c);
    char quote = c->at < c->end ? *c->at : 0;
    if (quote != '\'' && quote != '"') return wrong(c, "string");
    const char *from = c->at + 1, *to = memchr(from, quote, (size_t)(c->end - from));
    if (!to || memchr(from, '\\', (size_t)(to - from))) return wrong(c, "plain string");
    *out = hd_strndup(a, from, (size_t)(to - from));
    c->at = to + 1;
    return true;
}

/* shape := ( ) | ( n , ) | ( n , n {, n} [,] ) */
static bool read_shape(cursor *c, hd_tensor *t) {
    if (!accept(c, "(")) return wrong(c, "'(' of the shape");
    bool comma = true;
    while (!accept(c, ")")) {
        if (!comma) return wrong(c, "',' or ')'");
        if (c->at == c->end || !isdigit((unsigned char)*c->at)) return wrong(c, "dim");
        int64_t dim = 0;
        while (c->at < c->end && isdigit((unsigned char)*c->at))
            if (hd_mul_overflow(dim, 10, &dim) || hd_add_overflow(dim, *c->at++ - '0', &dim))
                return wrong(c, "dim of less than 2^63");
        if (t->rank == HD_TENSOR_MAX_RANK) return wrong(c, "end of a shape of at most 8 dims");
        t->shape[t->rank++] = dim;
        comma = accept(c, ",");
    }
    if (t->rank == 1 && !comma) return wrong(c, "',' in a shape of one dim");
    return true;
}

static bool find_descr(cursor *c, const char *descr, hd_tensor_dtype *out) {
    for (int i = 0; i < HD_T_COUNT; i++) {
        if (!descrs[i] || strcmp(descr, descrs[i]) != 0) continue;
        *out = (hd_tensor_dtype)i;
        return true;
    }
    hd_text quoted;
    hd_text_init(&quoted, c->d->arena);
    hd_text_quoted(&quoted, descr);
    hd_diag *g =
        hd_err(c->d, HD_E_FORMAT, c->loc, "the .npy element type %s is not read", quoted.at);
    if (strchr(descr, 'O'))
        g->cause = "it holds pickled Python objects, which are never loaded";
    else if (descr[0] == '>')
        g->cause = "it is big-endian";
    return false;
}

static bool read_descr(cursor *c, hd_arena *a, hd_tensor *t) {
    const char *descr;
    skip_space(c);
    if (c->at < c->end && *c->at == '[') {
        hd_err(c->d, HD_E_FORMAT, c->loc, "the .npy file holds records (a structured dtype)");
        return false;
    }
    return read_string(c, a, &descr) && find_descr(c, descr, &t->dtype);
}

static bool read_flag(cursor *c, bool *out) {
    *out = accept(c, "True");
    return *out || accept(c, "False") || wrong(c, "True or False");
}

static bool read_dict(cursor *c, hd_arena *a, hd_tensor *t, bool *fortran) {
    enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };
    int seen = 0;
    bool comma = true;
    if (!accept(c, "{")) return wrong(c, "'{'");
    while (!accept(c, "}")) {
        const char *key;
        if (!comma) return wrong(c, "',' or '}'");
        if (!read_string(c, a, &key)) return false;
        int bit = !strcmp(key, "descr")           ? DESCR
                  : !strcmp(key, "fortran_order") ? ORDER
                  : !strcmp(key, "shape")         ? SHAPE
                                                  : 0;
        if (!bit || seen & bit) {
            hd_err(c->d, HD_E_FORMAT, c->loc, "the .npy header has the key '%s'%s", key,
                   bit ? " twice" : ", which the format does not know");
            return false;
        }
        seen |= bit;
        if (!accept(c, ":")) return wrong(c, "':'");
        bool ok = bit == DESCR   ? read_descr(c, a, t)
                  : bit == ORDER ? read_flag(c, fortran)
                                 : read_shape(c, t);
        if (!ok) return false;
        comma = accept(c, ",");
    }
    skip_space(c);
    if (c->at != c->end) return wrong(c, "end after the dict");
    return seen == ALL ||
           wrong(c, seen & DESCR ? seen & ORDER ? "shape" : "fortran_order" : "descr");
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Copies Fortran order (first index fastest) into C order (last index fastest). */
static const uint8_t *to_c_order(hd_arena *a, const hd_tensor *t) {
    size_t size = hd_tensor_dtype_bits(t->dtype) / 8;
    uint8_t *out = hd_alloc(a, (size_t)t->elements + 1, size);
    int64_t index[HD_TENSOR_MAX_RANK] = {0};
    for (uint64_t from = 0; from < t->elements; from++) {
        uint64_t to = 0;
        for (uint32_t i = 0; i < t->rank; i++)
            to = to * (uint64_t)t->shape[i] + (uint64_t)index[i];
        memcpy(out + to * size, t->data + from * size, size);
        for (uint32_t i = 0; i < t->rank && ++index[i] == t->shape[i]; i++)
            index[i] = 0;
    }
    return out;
}

static bool find_header(cursor *c, hd_bytes file) {
    size_t start = file.n > 6 && file.at[6] == 1 ? 10 : 12;
    if (file.n < start || memcmp(file.at, magic, sizeof magic) != 0) {
        hd_err(c->d, HD_E_FORMAT, c->loc, "the file does not begin like a .npy file");
        return false;
    }
    if (file.at[6] < 1 || file.at[6] > 3 || file.at[7] != 0) {
        hd_err(c->d, HD_E_FORMAT, c->loc, ".npy version %d.%d is not read (1.0, 2.0 and 3.0 are)",
               file.at[6], file.at[7]);
        return false;
    }
    uint32_t n = (uint32_t)file.at[8] | (uint32_t)file.at[9] << 8;
    if (start == 12) n |= (uint32_t)file.at[10] << 16 | (uint32_t)file.at[11] << 24;
    if (n > file.n - start || n > MAX_HEADER) {
        hd_err(c->d, HD_E_FORMAT, c->loc, "the .npy header length %u is more than %s", n,
               n > MAX_HEADER ? "the 10000 bytes allowed" : "the file holds");
        return false;
    }
    c->begin = c->at = (const char *)file.at + start;
    c->end = c->begin + n;
    return true;
}

bool hd_npy_read(hd_arena *a, hd_diags *d, const char *path, hd_tensor *out) {
    hd_bytes file;
    bool fortran = false;
    *out = (hd_tensor){.name = "", .file = hd_strdup(a, path)};
    cursor c = {.d = d, .loc = {.file = out->file}};
    if (!hd_map_file(a, d, path, &file) || !find_header(&c, file) ||
        !read_dict(&c, a, out, &fortran))
        return false;
    size_t held = file.n - (size_t)((const uint8_t *)c.end - file.at);
    if (!hd_tensor_measure(out)) {
        hd_err(d, HD_E_FORMAT, c.loc,
               "the shape of the .npy array is too large: its size overflows");
        return false;
    }
    if (out->bytes != held) {
        hd_err(d, HD_E_FORMAT, c.loc, "the .npy file %s: its shape takes %llu bytes, it holds %zu",
               held < out->bytes ? "is truncated" : "has trailing bytes",
               (unsigned long long)out->bytes, held);
        return false;
    }
    out->data = (const uint8_t *)c.end;
    if (fortran && out->rank > 1) out->data = to_c_order(a, out);
    return true;
}

bool hd_npy_write(hd_arena *a, hd_diags *d, const char *path, const hd_tensor *tensor) {
    hd_tensor t = *tensor;
    hd_text h;
    hd_text_init(&h, a);
    if (!descrs[t.dtype] || !hd_tensor_measure(&t)) {
        hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "%s of this shape cannot be stored in a .npy file",
               hd_tensor_dtype_name(t.dtype));
        return false;
    }
    hd_text_f(&h, "{'descr': '%s', 'fortran_order': False, 'shape': (", descrs[t.dtype]);
    for (uint32_t i = 0; i < t.rank; i++)
        hd_text_f(&h, "%s%lld", i ? ", " : "", (long long)t.shape[i]);
    hd_text_add(&h, t.rank == 1 ? ",), }" : "), }");
    while ((10 + h.n + 1) % ALIGN != 0)
        hd_text_add(&h, " ");
    hd_text_add(&h, "\n");

    hd_output *o = hd_output_open(a, d, path);
    if (!o) return false;
    uint8_t start[10] = {[6] = 1, [8] = (uint8_t)h.n, [9] = (uint8_t)(h.n >> 8)};
    memcpy(start, magic, sizeof magic);
    hd_output_write(o, start, sizeof start);
    hd_output_write(o, h.at, h.n);
    hd_output_write(o, t.data, (size_t)t.bytes);
    return hd_output_commit(o);
}
