/* Files: atomic outputs, maps, size limits, and what happens when the file system says no. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/file.h"

#define FOLDER "/tmp/hadal-file-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(file, .init = open_folder, .fini = close_folder);

static int files_in_dir(void) {
    int n = 0;
    FILE *p = popen(hd_printf(arena, "ls -A %s | wc -l", folder), "r");
    cr_assert_eq(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

static void expect_error(hd_error code, const char *part) {
    cr_assert_gt(diags.errors, 0, "no error, expected: %s", part);
    cr_expect_eq(diags.list.at[0].code, code);
    cr_expect(strstr(diags.list.at[0].message, part), "'%s' is not in: %s", part,
              diags.list.at[0].message);
}

Test(file, an_output_appears_only_when_committed) {
    hd_output *o = hd_output_open(arena, &diags, in_folder("x"));
    cr_assert(o);
    cr_expect(hd_output_write(o, "hello", 5));
    cr_expect_not(hd_exists(in_folder("x")));
    cr_expect(hd_output_commit(o));
    size_t n;
    cr_expect_str_eq(hd_read_text(arena, &diags, in_folder("x"), 100, &n), "hello");
    cr_expect_eq(n, 5);
    cr_expect_eq(files_in_dir(), 1);
    struct stat st;
    mode_t mask = umask(0);
    umask(mask);
    stat(in_folder("x"), &st);
    cr_expect_eq(st.st_mode & 0777, 0666 & ~mask);
}

Test(file, the_old_file_is_gone_at_open_and_after_a_failure) {
    hd_write_file(arena, &diags, in_folder("x"), "old", 3);
    hd_output *o = hd_output_open(arena, &diags, in_folder("x"));
    cr_expect_not(hd_exists(in_folder("x")));
    hd_output_write(o, "half", 4);
    hd_output_discard(o);
    cr_expect_eq(files_in_dir(), 0);
    cr_expect_not(hd_output_write(o, "more", 4));
}

Test(file, dropping_the_arena_deletes_the_temporary) {
    hd_arena *other = hd_arena_new();
    hd_diags e;
    hd_diags_init(&e, other);
    cr_expect(hd_output_open(other, &e, in_folder("x")));
    cr_expect_eq(files_in_dir(), 1);
    hd_arena_free(other);
    cr_expect_eq(files_in_dir(), 0);
}

Test(file, large_and_small_writes_keep_their_order) {
    enum { N = 5 << 20, HUGE_PAGE = 2 << 20 };
    const size_t sizes[] = {3, 70000, 0, N, 5, HUGE_PAGE, 65536, 1};
    char *big = malloc(N), *expected = malloc(2 * N);
    memset(big, 'b', N);
    hd_output *o = hd_output_open(arena, &diags, in_folder("x"));
    size_t n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(big, 'a' + (int)i, N);
        cr_expect(hd_output_write(o, big, sizes[i]));
        memset(expected + n, 'a' + (int)i, sizes[i]);
        n += sizes[i];
    }
    cr_expect(hd_output_rewrite(o, 1, "XY", 2));
    memcpy(expected + 1, "XY", 2);
    cr_expect(hd_output_commit(o));
    hd_bytes got;
    cr_assert(hd_map_file(arena, &diags, in_folder("x"), &got));
    cr_assert_eq(got.n, n);
    cr_expect_eq(memcmp(got.at, expected, n), 0);
    free(big);
    free(expected);
}

Test(file, another_program_may_replace_the_temporary) {
    hd_output *o = hd_output_open(arena, &diags, in_folder("x"));
    const char *name = hd_output_temporary(o);
    unlink(name);
    FILE *f = fopen(name, "w");
    fputs("linked", f);
    fclose(f);
    cr_expect(hd_output_commit(o));
    cr_expect_str_eq(hd_read_text(arena, &diags, in_folder("x"), 100, NULL), "linked");
}

Test(file, a_temporary_that_vanished_fails_the_commit) {
    hd_output *o = hd_output_open(arena, &diags, in_folder("x"));
    unlink(hd_output_temporary(o));
    cr_expect_not(hd_output_commit(o));
    expect_error(HD_E_IO, "cannot write");
    cr_expect_eq(files_in_dir(), 0);
}

Test(file, a_linked_output_stays_linked) {
    hd_write_file(arena, &diags, in_folder("real"), "old", 3);
    cr_assert_eq(symlink("real", in_folder("link")), 0);
    cr_expect(hd_write_file(arena, &diags, in_folder("link"), "new", 3));
    struct stat st;
    lstat(in_folder("link"), &st);
    cr_expect(S_ISLNK(st.st_mode));
    cr_expect_str_eq(hd_read_text(arena, &diags, in_folder("real"), 10, NULL), "new");
}

Test(file, full_disk) {
    char bytes[100] = {0};
    cr_expect_not(hd_write_file(arena, &diags, "/dev/full", bytes, sizeof bytes));
    expect_error(HD_E_IO, "No space left on device");
    cr_expect(hd_exists("/dev/full"), "a device must not be removed");
}

/* As `ulimit -f` has it, where the signal that goes with it is not the end. */
Test(file, a_file_that_may_not_grow) {
    struct rlimit old, few = {.rlim_cur = 10};
    char bytes[100] = {0};
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    few.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
    const bool written = hd_write_file(arena, &diags, in_folder("x"), bytes, sizeof bytes);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    cr_expect_not(written);
    expect_error(HD_E_IO, "File too large");
    cr_expect_str_eq(diags.list.at[0].hint,
                     "it would be larger than this process may write, or than its file system "
                     "holds: raise the limit (ulimit -f), or choose a folder elsewhere");
    cr_expect_eq(files_in_dir(), 0);
}

Test(file, full_disk_is_sticky_and_reported_once) {
    hd_output *o = hd_output_open(arena, &diags, "/dev/full");
    const size_t n = 3 << 20; /* more than waits in memory */
    char *big = calloc(1, n);
    cr_expect_not(hd_output_write(o, big, n));
    cr_expect_not(hd_output_write(o, "x", 1));
    cr_expect_eq(diags.errors, 0);
    cr_expect_not(hd_output_commit(o));
    cr_expect_eq(diags.errors, 1);
    free(big);
}

Test(file, outputs_that_cannot_be_opened) {
    cr_expect_null(hd_output_open(arena, &diags, folder));
    expect_error(HD_E_IO, "Is a directory");
    hd_diags_init(&diags, arena);
    cr_expect_null(hd_output_open(arena, &diags, in_folder("none/x")));
    expect_error(HD_E_IO, "No such file");
    cr_expect_not_null(diags.list.at[0].hint);
    hd_diags_init(&diags, arena);
    hd_write_file(arena, &diags, in_folder("file"), "", 0);
    cr_expect_null(hd_output_open(arena, &diags, in_folder("file/x")));
    expect_error(HD_E_IO, "Not a directory");
    hd_diags_init(&diags, arena);
    cr_expect_null(hd_output_open(arena, &diags, "/proc/x")); /* not writable even for root */
    expect_error(HD_E_IO, "/proc/x");
}

Test(file, an_unwritable_folder) {
    if (geteuid() == 0) cr_skip_test("root may write everywhere");
    chmod(folder, 0500);
    cr_expect_null(hd_output_open(arena, &diags, in_folder("x")));
    expect_error(HD_E_IO, "Permission denied");
    chmod(folder, 0700);
}

Test(file, text_limits) {
    hd_write_file(arena, &diags, in_folder("x"), "12345", 5);
    cr_expect_str_eq(hd_read_text(arena, &diags, in_folder("x"), 5, NULL), "12345");
    cr_expect_null(hd_read_text(arena, &diags, in_folder("x"), 4, NULL));
    expect_error(HD_E_LIMIT, "larger than the 4 bytes");
}

Test(file, text_that_cannot_be_read) {
    cr_expect_null(hd_read_text(arena, &diags, in_folder("none"), 5, NULL));
    expect_error(HD_E_IO, "No such file");
    hd_diags_init(&diags, arena);
    cr_expect_null(hd_read_text(arena, &diags, folder, 5, NULL));
    expect_error(HD_E_IO, "Is a directory");
    hd_diags_init(&diags, arena);
    hd_write_file(arena, &diags, in_folder("nul"), "a\0b", 3);
    cr_expect_null(hd_read_text(arena, &diags, in_folder("nul"), 5, NULL));
    expect_error(HD_E_FORMAT, "byte 1 is NUL");
}

Test(file, text_is_utf8) {
    static const struct {
        const char *bytes, *error; /* NULL: it is */
    } cases[] = {
        {"plain", NULL},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", NULL},
        {"\xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf", NULL},
        {"ab\xff", "byte 2 is 0xff"},
        {"\x80", "byte 0 is 0x80"},
        {"a\xc3", "byte 1 is 0xc3"},    /* cut short */
        {"\xc0\xaf", "byte 0 is 0xc0"}, /* longer than needed */
        {"\xe0\x80\xaf", "byte 0 is 0xe0"},
        {"\xf0\x80\x80\xaf", "byte 0 is 0xf0"},
        {"\xed\xa0\x80", "byte 0 is 0xed"},     /* half of a pair of UTF-16 */
        {"\xf4\x90\x80\x80", "byte 0 is 0xf4"}, /* beyond the last character */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        hd_write_file(arena, &diags, in_folder("x"), cases[i].bytes, strlen(cases[i].bytes));
        const char *text = hd_read_text(arena, &diags, in_folder("x"), 100, NULL);
        cr_expect_eq(text != NULL, !cases[i].error, "case %zu", i);
        if (cases[i].error) expect_error(HD_E_FORMAT, cases[i].error);
    }
}

Test(file, a_mark_of_utf8_is_no_text) {
    size_t n;
    hd_write_file(arena, &diags, in_folder("x"), "\xef\xbb\xbfhello", 8);
    cr_expect_str_eq(hd_read_text(arena, &diags, in_folder("x"), 100, &n), "hello");
    cr_expect_eq(n, 5);
    hd_write_file(arena, &diags, in_folder("x"), "m\0o\0", 4);
    cr_expect_null(hd_read_text(arena, &diags, in_folder("x"), 100, &n));
    expect_error(HD_E_FORMAT, "byte 1 is NUL");
    cr_expect(strstr(diags.list.at[0].hint, "UTF-16"));
}

Test(file, a_pipe_is_not_mapped) {
    hd_bytes bytes;
    cr_assert_eq(mkfifo(in_folder("pipe"), 0600), 0);
    cr_expect_not(hd_map_file(arena, &diags, in_folder("pipe"), &bytes), "and not waited for");
    expect_error(HD_E_IO, "not a regular file");
}

Test(file, the_same_file) {
    hd_write_file(arena, &diags, in_folder("x"), "x", 1);
    hd_write_file(arena, &diags, in_folder("y"), "x", 1);
    cr_assert_eq(symlink(in_folder("x"), in_folder("link")), 0);
    cr_expect(hd_same_file(in_folder("x"), in_folder("link")));
    cr_expect_not(hd_same_file(in_folder("x"), in_folder("y")));
    cr_expect_not(hd_same_file(in_folder("x"), in_folder("none")));
    cr_expect_not(hd_same_file(NULL, NULL));
}

Test(file, text_from_a_pipe) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    char *big = malloc(60000);
    memset(big, 'x', 60000);
    cr_assert_eq(write(ends[1], big, 60000), 60000);
    close(ends[1]);
    size_t n;
    cr_expect_not_null(
        hd_read_text(arena, &diags, hd_printf(arena, "/proc/self/fd/%d", ends[0]), 1 << 20, &n));
    cr_expect_eq(n, 60000);
    close(ends[0]);
    free(big);
}

Test(file, maps) {
    hd_bytes b;
    hd_write_file(arena, &diags, in_folder("x"), "", 0);
    cr_expect(hd_map_file(arena, &diags, in_folder("x"), &b));
    cr_expect_eq(b.n, 0);
    cr_expect_not(hd_map_file(arena, &diags, folder, &b));
    cr_expect_not(hd_map_file(arena, &diags, "/dev/zero", &b));
    cr_expect_eq(diags.errors, 2);
}

Test(file, paths) {
    cr_expect_str_eq(hd_path_join(arena, "a", "b"), "a/b");
    cr_expect_str_eq(hd_path_join(arena, "a/", "b"), "a/b");
    cr_expect_str_eq(hd_path_join(arena, "a", "/b"), "/b");
    cr_expect_str_eq(hd_path_join(arena, "", "b"), "b");
    cr_expect_str_eq(hd_path_base("a/b/c.x"), "c.x");
    cr_expect_str_eq(hd_path_base("c.x"), "c.x");
    cr_expect_str_eq(hd_path_dir(arena, "a/b/c"), "a/b");
    cr_expect_str_eq(hd_path_dir(arena, "c"), ".");
    cr_expect_str_eq(hd_path_dir(arena, "/c"), "/");
}
