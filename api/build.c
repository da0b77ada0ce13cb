/* Output files that appear together or not at all (support/build.h). */
#include "support/build.h"

#include "api/session.h"

#define API_FAILED 1

/* The hd_build for which a hadal_build is the public name. */
static hd_build *inner(hadal_build *b) {
    return (hd_build *)b;
}

hadal_build *hadal_build_open(void) {
    return (hadal_build *)hd_build_new();
}

void hadal_build_close(hadal_build *b) {
    hd_build_free(inner(b));
}

void hadal_build_in(hadal_session *s, hadal_build *b) {
    s->build = inner(b);
}

int hadal_build_replaces(hadal_build *b, const char *path) {
    return hd_build_replaces(inner(b), path) ? 0 : 1;
}

void hadal_build_remove_earlier(hadal_build *b) {
    hd_build_remove_earlier(inner(b));
}

int hadal_build_publish(hadal_session *s, hadal_build *b) {
    API_ENTER(s);
    API_LEAVE(s, hd_build_publish(inner(b), &s->diags));
}
