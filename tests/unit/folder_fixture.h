/* A fixture for tests that work with files: an arena, diagnostics, and a folder that goes
 * afterwards. Before the include, FOLDER names the folder: "/tmp/hadal-file-XXXXXX". */
#ifndef FOLDER_FIXTURE_H
#define FOLDER_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/file.h"
#include "tests/unit/arena_fixture.h"

static char folder[] = FOLDER;

static void open_folder(void) {
    open_arena();
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void close_folder(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    close_arena();
}

static inline char *in_folder(const char *name) {
    return hd_path_join(arena, folder, name);
}

#endif
