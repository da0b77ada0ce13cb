#include "api/train/data.h"

#include <stdio.h>
#include <xxhash.h>

enum { BLOCK = 4096 }; /* tokens that are copied at once */

static bool too_short(hadal_session *s, const train_data *d, int64_t least, const char *option) {
    hd_diag *e = hd_err(&s->diags, HD_E_VALUE, HD_NOWHERE, "%s has %lld token%s", option,
                        (long long)d->tokens, hd_s((uint64_t)d->tokens));
    e->cause =
        hd_printf(s->arena, "a window is %lld tokens: those of the context, and the one after them",
                  (long long)least);
    e->hint = "give more data, or a smaller --context";
    return false;
}

bool train_data_open(hadal_session *s, const hadal_data *const *files, size_t n, int64_t vocab,
                     int64_t least, const char *option, train_data *out) {
    int64_t *first = hd_new_array(s->arena, int64_t, n + 1);
    *out = (train_data){.files = files, .first = first, .n_files = n};
    if (n == 0) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s is missing", option)->hint =
            "a text, or token ids in a .npy or .i32 file";
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        first[i] = out->tokens;
        out->tokens += files[i]->n;
        if (!api_data_check(s, files[i], vocab)) return false;
    }
    first[n] = out->tokens;
    return out->tokens >= least || too_short(s, out, least, option);
}

/* The file that has the token. */
static size_t file_of(const train_data *d, int64_t token) {
    size_t from = 0, to = d->n_files;
    while (to - from > 1) {
        const size_t middle = from + (to - from) / 2;
        if (d->first[middle] <= token)
            from = middle;
        else
            to = middle;
    }
    return from;
}

void train_data_copy(const train_data *d, int64_t first, int64_t n, int32_t *out) {
    for (size_t i = n ? file_of(d, first) : 0; n > 0; i++) {
        const int64_t left = d->first[i + 1] - first, part = left < n ? left : n;
        api_data_copy(d->files[i], first - d->first[i], part, out);
        first += part, n -= part, out += part;
    }
}

/* The digest of each block covers that of the blocks before it. */
void train_data_digest(const train_data *d, char out[TRAIN_DIGEST]) {
    struct {
        XXH128_hash_t before;
        int32_t ids[BLOCK];
    } block;
    XXH128_hash_t hash = XXH3_128bits(d->first, (d->n_files + 1) * sizeof *d->first);
    for (int64_t at = 0; at < d->tokens; at += BLOCK) {
        const int64_t n = d->tokens - at < BLOCK ? d->tokens - at : BLOCK;
        block.before = hash;
        train_data_copy(d, at, n, block.ids);
        hash = XXH3_128bits(&block, sizeof hash + (size_t)n * sizeof *block.ids);
    }
    snprintf(out, TRAIN_DIGEST, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

/* ---- batches --------------------------------------------------------------------------------- */

uint64_t train_batch_bytes(int64_t windows, int64_t context) {
    const uint64_t each = 2 * sizeof(int32_t) + sizeof(int64_t);
    return hd_capped_mul(hd_capped_mul((uint64_t)windows, (uint64_t)context), each);
}

train_batch train_batch_new(hd_arena *a, int64_t windows, int64_t context) {
    const size_t n = (size_t)hd_capped_mul((uint64_t)windows, (uint64_t)context);
    return (train_batch){.tokens = hd_new_array(a, int32_t, n),
                         .targets = hd_new_array(a, int32_t, n),
                         .lengths = hd_new_array(a, int64_t, n),
                         .window = hd_new_array(a, int32_t, (size_t)context + 1)};
}

void train_batch_clear(train_batch *b) {
    b->n_tokens = b->sequences = 0;
}

static bool ends_file(const train_data *d, int64_t token) {
    return token + 1 == d->first[file_of(d, token) + 1];
}

void train_batch_add(train_batch *b, const train_data *d, const train_documents *documents,
                     int64_t first, int64_t n) {
    enum { UNCOUNTED = -1 };
    int64_t length = 0;
    train_data_copy(d, first, n + 1, b->window);
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = b->window[i];
        const bool ends = documents->separate && (id == documents->id || ends_file(d, first + i));
        b->tokens[b->n_tokens] = id;
        b->targets[b->n_tokens++] = ends ? UNCOUNTED : b->window[i + 1];
        length++;
        if (!ends && i + 1 < n) continue;
        b->lengths[b->sequences++] = length;
        length = 0;
    }
}
