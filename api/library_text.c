/* What a compiled library states about itself, and which files were made with it. */
#include <string.h>

#include "api/library.h"
#include "api/ranks.h"

#define API_FAILED NULL

static const char *const kinships[] = {
    [API_SAME_BUILD] = "made together",
    [API_OTHER_VALUES] =
        "not made together: other values for the same program, as hadal pack makes",
    [API_OTHER_BUILD] = "NOT made together: of another program",
    [API_UNKNOWN_BUILD] = "they do not tell what they were made with",
};

static bool add_file(const api_library *l, const char *what, const char *path, const char *id,
                     hd_text *out) {
    const api_kinship kinship = api_library_kinship(l, id);
    hd_text_f(out, "%-9s %s: %s\n          %s\n", what, path, *id ? id : "no build id",
              kinships[kinship]);
    return kinship != API_OTHER_BUILD;
}

/* The id in `#define NAME_BUILD_ID "..."`. */
static const char *id_of_header(hadal_session *s, const char *path) {
    enum { LIMIT = 16 << 20 };
    static const char macro[] = "_BUILD_ID ";
    size_t n;
    const char *text = hd_read_text(s->arena, &s->diags, path, LIMIT, &n);
    const char *at = text ? strstr(text, macro) : NULL;
    if (!text) return NULL;
    if (at) at = strchr(at, '"');
    return at ? hd_strndup(s->arena, at + 1, strcspn(at + 1, "\"")) : "";
}

static bool tell_header(api_library *l, const char *path, hd_text *out, bool *together) {
    const char *id = id_of_header(l->s, path);
    if (!id) return false;
    /* a header describes one library, so a build with other values counts as another one */
    const bool same = strcmp(id, l->info->build_id) == 0;
    if (same || api_library_kinship(l, id) != API_OTHER_VALUES) {
        *together &= add_file(l, "header", path, id, out);
        return true;
    }
    hd_text_f(out, "header    %s: %s\n          NOT made together: of other weights\n", path, id);
    *together = false;
    return true;
}

static bool tell_weights(api_library *l, const char *path, hd_text *out, bool *together) {
    void *weights;
    if (!hd_exists(path)) {
        hd_text_f(out, "weights   %s: not there\n", path);
        return true;
    }
    if (!api_weights_ok(l, l->weights_open(path, &weights), path)) return false;
    l->weights_close(weights); /* the weights fit the library */
    const char *id = api_weights_build_id(l->s, path);
    if (id) *together &= add_file(l, "weights", path, id, out);
    return id != NULL;
}

static bool tell_all_weights(api_library *l, const char *path, hd_text *out, bool *together) {
    if (l->info->weights_size == 0) return true;
    if (!l->session_init_on) return tell_weights(l, path, out, together);
    const int32_t ranks = api_ranks(l);
    for (int32_t i = 0; i < ranks; i++) {
        const char *share = hcg_share_path(l->s->arena, path, i, ranks);
        /* files of other pipeline stages belong to other libraries */
        if (hd_exists(share) && !tell_weights(l, share, out, together)) return false;
    }
    return true;
}

static void tell_library(const api_library *l, hd_text *out) {
    const hd_info *i = l->info;
    hd_text_f(out, "library   %s: %s\n          model %s, by Hadal %s, weights table %s\n", l->path,
              i->build_id, i->name, i->version, i->digest);
    hd_text_add(out, "levels    ");
    for (size_t k = 0; k < i->n_levels; k++)
        hd_text_f(out, "%s%s", k ? ", " : "", i->levels[k]);
    hd_text_add(out, "\n");
    for (size_t k = 0; k < i->n_outputs; k++)
        hd_text_f(out, "%-9s %s: %s\n", k ? "" : "outputs", i->outputs[k].name, i->outputs[k].type);
    if (l->loss) hd_text_f(out, "loss      %s_loss\n", i->name);
    hd_text_f(out, "states    %llu\noptions   %s\n", (unsigned long long)i->n_states, i->options);
}

static bool tell(hadal_session *s, const char *library, const char *header, const char *weights,
                 hd_text *out, bool *together) {
    api_library l;
    const char *model = api_library_model(s, library);
    if (!model || !api_library_open(&l, s, library, model)) return false;
    tell_library(&l, out);
    const bool ok = (!header || tell_header(&l, header, out, together)) &&
                    (!weights || tell_all_weights(&l, weights, out, together));
    api_library_close(&l);
    return ok;
}

const char *hadal_library_text(hadal_session *s, const char *library, const char *header,
                               const char *weights, int *together) {
    API_ENTER(s);
    hd_text out;
    bool are = true;
    hd_text_init(&out, s->arena);
    const bool ok = tell(s, library, header, weights, &out, &are);
    if (together) *together = are;
    API_RETURN(s, ok ? out.at : NULL);
}
