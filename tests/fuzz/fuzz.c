#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- jobs ------------------------------------------------------------------------------------ */

static void render(hd_arena *a, const hd_diags *d) {
    hd_text text;
    hd_text_init(&text, a);
    for (size_t i = 0; i < d->list.n; i++)
        hd_diag_render(&d->list.at[i], false, &text);
    if (text.n) fuzz_touch(text.at, text.n);
}

void fuzz_in_arena(fuzz_job *job, const uint8_t *data, size_t n) {
    hd_arena *a = hd_arena_new();
    jmp_buf here;
    if (!a) return;
    hd_arena_guard(a, &here);
    if (setjmp(here) == 0) {
        hd_diags *d = hd_new(a, hd_diags);
        hd_diags_init(d, a);
        const bool ok = job(a, d, (const char *)data, n);
        if (ok && d->errors) fuzz_fail("it was taken, with errors");
        if (!ok && !d->errors) fuzz_fail("it was refused without an error");
        render(a, d);
    }
    hd_arena_free(a);
}

void fuzz_touch(const void *data, size_t n) {
    const volatile uint8_t *at = data;
    uint8_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + at[i]);
    (void)sum;
}

void fuzz_fail(const char *why) {
    fprintf(stderr, "finding: %s\n", why);
    abort();
}

/* ---- files ----------------------------------------------------------------------------------- */

static char folder[256];

static void remove_folder(void) {
    DIR *dir = opendir(folder);
    char path[600];
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        (void)unlink(path);
    }
    if (dir) closedir(dir);
    (void)rmdir(folder);
}

const char *fuzz_folder(void) {
    if (folder[0]) return folder;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/hadal-fuzz-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) fuzz_fail("no temporary folder can be made");
    atexit(remove_folder);
    return folder;
}

const char *fuzz_write(const char *name, const void *data, size_t n) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) fuzz_fail("a file cannot be written");
    return path;
}
