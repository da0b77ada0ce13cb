/* Merging objects: what two compiler runs made works as one, and damaged objects are refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/library/elf.h"

#define FOLDER "/tmp/hadal-elf-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(elf, .init = open_folder, .fini = close_folder);

static hd_bytes object(const char *name, const char *source) {
    const char *c = in_folder(hd_printf(arena, "%s.c", name));
    cr_assert(hd_write_file(arena, &diags, c, source, strlen(source)));
    const char *command = hd_printf(arena, "${CC:-cc} -fPIC -g -c %s -o %s", c,
                                    in_folder(hd_printf(arena, "%s.o", name)));
    cr_assert_eq(system(command), 0);
    hd_bytes bytes;
    cr_assert(hd_map_file(arena, &diags, in_folder(hd_printf(arena, "%s.o", name)), &bytes));
    return bytes;
}

static const char first[] =
    "static const char *const names[] = {\"zero\", \"one\"};\n"
    "static int hidden(int x) { return x + 1; }\n"
    "int other(int);\n"
    "int counter;\n"
    "int both(int x) { counter++; return hidden(x) * other(x) + names[1][0]; }\n";
static const char second[] = "static int hidden(int x) { return x - 1; }\n"
                             "extern int counter;\n"
                             "int other(int x) { return hidden(x) + counter; }\n";
static const char program[] = "int both(int); int main(void) { return both(5) != 6 * 5 + 'o'; }\n";

Test(elf, merged_objects_run) {
    hd_bytes parts[] = {object("first", first), object("second", second)}, whole, again;
    for (int turn = 0; turn < 2; turn++) {
        cr_assert(hcg_merge_objects(arena, &diags, parts, 2, &whole));
        cr_assert(hd_write_file(arena, &diags, in_folder("whole.o"), whole.at, whole.n));
        object("program", program);
        cr_assert_eq(system(hd_printf(arena,
                                      "cd %s && ${CC:-cc} program.o whole.o -o run && ./run && "
                                      "readelf -aW whole.o > /dev/null 2> said && test ! -s said",
                                      folder)),
                     0, "order %d", turn);
        hd_bytes swap = parts[0];
        parts[0] = parts[1];
        parts[1] = swap;
    }
    cr_assert(hcg_merge_objects(arena, &diags, parts, 2, &whole));
    cr_assert(hcg_merge_objects(arena, &diags, parts, 2, &again));
    cr_assert(whole.n == again.n && memcmp(whole.at, again.at, whole.n) == 0);
}

Test(elf, two_definitions_are_refused) {
    hd_bytes parts[] = {object("first", first), object("again", first)}, whole;
    cr_assert_not(hcg_merge_objects(arena, &diags, parts, 2, &whole));
    cr_assert_eq(hd_diags_first(&diags), HD_E_INTERNAL);
    cr_assert_not_null(strstr(diags.list.at[0].message, "is defined twice"));
}

/* Wherever an object is cut or damaged: refused, or merged into something, but no crash. */
Test(elf, damage_is_survived) {
    hd_bytes good = object("first", first), whole;
    size_t refused = 0;
    for (size_t n = 0; n < good.n; n += 1 + n / 64) {
        uint8_t *copy = malloc(n + 1); /* exact, so that a sanitizer sees the end */
        memcpy(copy, good.at, n);
        hd_bytes part = {copy, n};
        refused += !hcg_merge_objects(arena, &diags, &part, 1, &whole);
        free(copy);
    }
    cr_assert_gt(refused, 0);
    for (size_t i = 0; i < good.n; i += 1 + i / 512) {
        uint8_t *copy = malloc(good.n);
        memcpy(copy, good.at, good.n);
        copy[i] ^= 0xff;
        hd_bytes part = {copy, good.n};
        hcg_merge_objects(arena, &diags, &part, 1, &whole);
        free(copy);
    }
    hd_bytes none = {NULL, 0};
    cr_assert_not(hcg_merge_objects(arena, &diags, &none, 1, &whole));
    cr_assert_not(hcg_merge_objects(arena, &diags, NULL, 0, &whole));
}
