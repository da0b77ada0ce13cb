/* The build id of a file of weights, which may be larger than the memory: its header alone is read. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/library.h"
#include "runtime/hadal_rt.h"

#define FOLDER "/tmp/hadal-header-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(weights_header, .init = open_folder, .fini = close_folder, .timeout = 60);

/* Writes the first n bytes of a header, and no more than a hole behind it. */
static void write_header(const char *path, hrt_weights_header h, size_t n) {
    FILE *f = fopen(path, "wb");
    cr_assert_eq(fwrite(&h, 1, n, f), n);
    fclose(f);
    if (n == sizeof h) cr_assert_eq(truncate(path, 1 << 30), 0);
}

static bool is_mapped(const char *path) {
    char line[4400];
    bool mapped = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f))
        mapped |= strstr(line, path) != NULL;
    fclose(f);
    return mapped;
}

Test(weights_header, is_read_and_no_more) {
    hadal_session *s = hadal_open();
    const char *path = in_folder("w.weights");
    write_header(path, (hrt_weights_header){.content = {1}, .program = {0xab}},
                 sizeof(hrt_weights_header));
    const char *id = api_weights_build_id(s, path);
    cr_assert_not_null(id);
    cr_expect(strncmp(id, "ab00", 4) == 0 && strstr(id, "-01"), "%s", id);
    cr_expect_not(is_mapped(path));
    hadal_close(s);
}

Test(weights_header, that_has_no_build_id) {
    hadal_session *s = hadal_open();
    const char *path = in_folder("w.weights");
    write_header(path, (hrt_weights_header){.content = {1}}, sizeof(hrt_weights_header));
    cr_expect_str_eq(api_weights_build_id(s, path), "");
    write_header(path, (hrt_weights_header){.program = {0xab}}, sizeof(hrt_weights_header) - 1);
    cr_expect_str_eq(api_weights_build_id(s, path), "", "it is cut short");
    hadal_close(s);
}

Test(weights_header, of_what_is_no_file) {
    hadal_session *s = hadal_open();
    cr_expect_null(api_weights_build_id(s, in_folder("none")));
    cr_expect_null(api_weights_build_id(s, folder));
    cr_assert_eq(mkfifo(in_folder("pipe"), 0600), 0);
    cr_expect_null(api_weights_build_id(s, in_folder("pipe")), "and it is not waited for");
    cr_expect_eq(hadal_diagnostics(s), 3);
    hadal_close(s);
}
