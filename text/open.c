#include "text/open.h"

#include <stdio.h>

#include "support/host.h"

void text_tell(char *message, size_t size, const char *text) {
    if (size > 0) snprintf(message, size, "%s", text);
}

void text_tell_error(hd_arena *a, const hd_diags *d, char *message, size_t size) {
    for (size_t i = 0; i < d->list.n; i++) {
        if (d->list.at[i].severity != HD_ERROR) continue;
        hd_text text;
        hd_text_init(&text, a);
        hd_diag_render(&d->list.at[i], false, &text);
        text_tell(message, size, text.at);
        return;
    }
}

void *text_open(text_read_fn *read, const char *path, char *message, size_t size) {
    HD_ISOLATED_FROM_HOST;
    hd_arena *a = hd_arena_new();
    jmp_buf here;
    text_tell(message, size, "out of memory");
    if (!a) return NULL;
    hd_arena_guard(a, &here);
    if (setjmp(here)) {
        hd_arena_free(a);
        return NULL;
    }
    hd_diags *d = hd_new(a, hd_diags);
    hd_diags_init(d, a);
    void *opened = read(a, d, path);
    if (!opened) text_tell_error(a, d, message, size);
    hd_arena_guard(a, NULL);
    if (!opened) hd_arena_free(a);
    return opened;
}
