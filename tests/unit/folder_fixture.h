/* A fixture for tests that work with files: an arena, diagnostics, and a folder that goes
 * afterwards. Before the include, FOLDER names the folder: "/tmp/hadal-file-XXXXXX". */
#ifndef FOLDER_FIXTURE_H
#define FOLDER_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/file.h"

static hd_arena *a;
static hd_diags d;
static char dir[] = FOLDER;

static void setup(void) {
    a = hd_arena_new();
    hd_diags_init(&d, a);
    strcpy(dir + sizeof dir - 7, "XXXXXX");
    cr_assert(mkdtemp(dir));
}

static void teardown(void) {
    hd_arena_free(a);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}

static char *at(const char *name) {
    return hd_path_join(a, dir, name);
}

#endif
