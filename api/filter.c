/* Regular expressions over names: which passes and ops dumps and remarks are kept of. */
#include "api/session.h"

static void free_filter(void *what) {
    api_filter *f = what;
    if (f->text) regfree(&f->regex);
}

const api_filter *api_filter_new(hadal_session *s, const char *what, const char *text) {
    api_filter *f = hd_new(s->arena, api_filter);
    if (!text) return f;
    const char *copy = hd_strdup(s->arena, text);
    hd_arena_defer(s->arena, free_filter, f);
    const int code = regcomp(&f->regex, text, REG_EXTENDED | REG_NOSUB);
    if (code == 0) {
        f->text = copy;
        return f;
    }
    char why[256];
    regerror(code, &f->regex, why, sizeof why);
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "the filter of %s \"%s\" is no regular expression",
           what, text)
        ->cause = hd_strdup(s->arena, why);
    return NULL;
}

bool api_filter_takes(const api_filter *f, const char *name) {
    return !f->text || (name && regexec(&f->regex, name, 0, NULL, 0) == 0);
}
