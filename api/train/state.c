#include "api/train/state.h"

#include <string.h>
#include <xxhash.h>

static XXH128_canonical_t digest_of(const void *at, size_t n) {
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(at, n));
    return digest;
}

bool train_state_write(hd_arena *a, hd_diags *d, const char *path, hd_bytes state) {
    const XXH128_canonical_t digest = digest_of(state.at, state.n);
    hd_output *o = hd_output_open(a, d, path);
    if (!o) return false;
    hd_output_write(o, state.at, state.n);
    hd_output_write(o, &digest, sizeof digest);
    return hd_output_commit(o);
}

bool train_bad_state(hadal_session *s, const char *path, const char *why) {
    hd_diag *e = hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "the run cannot go on from '%s'", path);
    e->cause = why;
    e->hint = "without this checkpoint the run goes on from the one before it: remove its folder";
    return false;
}

bool train_state_read(hadal_session *s, const char *path, size_t n, hd_bytes *out) {
    XXH128_canonical_t digest, stored;
    if (!hd_map_file(s->arena, &s->diags, path, out)) return false;
    if (out->n != n + sizeof stored)
        return train_bad_state(s, path,
                               "it has another size than the state of this model's trainer");
    digest = digest_of(out->at, n);
    memcpy(&stored, out->at + n, sizeof stored);
    if (memcmp(&digest, &stored, sizeof digest) != 0)
        return train_bad_state(s, path, "it is damaged");
    out->n = n;
    return true;
}
