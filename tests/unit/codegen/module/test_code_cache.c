/* Translated units in the folder of HADAL_CODE_CACHE: what is taken from it, what is not, and which
 * folders are refused. A unit that is translated gets a file of its own; one that is taken leaves
 * the file that is there. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/module/module.h"
#include "tests/unit/codegen/toy_model.h"

#define FOLDER "/tmp/hadal-cache-XXXXXX"
#include "tests/unit/folder_fixture.h"

enum { MOST = 64 };

static void open_cache(void) {
    open_folder();
    setenv("HADAL_CODE_CACHE", in_folder("cache"), 1);
}

TestSuite(code_cache, .init = open_cache, .fini = close_folder, .timeout = 120);

static bool compile(const char *name, int layers, const char *cpu, hcg_objects *out) {
    const hcg_options o = {.compile.chunk = 8, .cpu = cpu, .threads = 2};
    hir_module *m = hir_parse(arena, &diags, "toy.hir", toy_model(arena, "toy", layers, 40));
    hcg_program *p = m ? hcg_lower(arena, &diags, m, &o) : NULL;
    return p && hcg_emit_units(p, &diags, in_folder(name), out);
}

/* Compiled as ever. */
static hcg_objects objects(const char *name, int layers, const char *cpu) {
    hcg_objects out;
    if (!compile(name, layers, cpu, &out)) cr_assert_fail("%s", diags.list.at[0].message);
    return out;
}

static hd_bytes bytes_of(const char *path) {
    hd_bytes out;
    cr_assert(hd_map_file(arena, &diags, path, &out), "%s", path);
    return out;
}

static void check_same(const hcg_objects *a, const hcg_objects *b) {
    cr_assert_eq(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        const hd_bytes x = bytes_of(a->at[i]), y = bytes_of(b->at[i]);
        cr_assert(x.n == y.n && memcmp(x.at, y.at, x.n) == 0, "object %zu differs", i);
    }
}

typedef struct entries {
    size_t n;
    char *path[MOST];
    struct stat file[MOST];
} entries;

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static entries list(void) {
    entries out = {0};
    DIR *dir = opendir(in_folder("cache"));
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.' && out.n < MOST)
            out.path[out.n++] = hd_path_join(arena, in_folder("cache"), e->d_name);
    if (dir) closedir(dir);
    qsort(out.path, out.n, sizeof *out.path, by_name);
    for (size_t i = 0; i < out.n; i++)
        cr_assert_eq(stat(out.path[i], &out.file[i]), 0);
    return out;
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static size_t new_files(const entries *before, const entries *after) {
    size_t n = 0;
    for (size_t i = 0; i < after->n; i++)
        n += i >= before->n || !same_file(&after->file[i], &before->file[i]);
    return n;
}

Test(code_cache, what_was_translated_is_taken) {
    unsetenv("HADAL_CODE_CACHE");
    const hcg_objects without = objects("without", 2, "baseline");
    cr_assert_not(hd_exists(in_folder("cache")));
    setenv("HADAL_CODE_CACHE", in_folder("cache"), 1);
    const hcg_objects first = objects("first", 2, "baseline");
    const entries before = list();
    cr_assert_eq(before.n, first.n);
    const hcg_objects again = objects("again", 2, "baseline");
    const entries after = list();
    cr_assert(after.n == before.n && new_files(&before, &after) == 0);
    check_same(&first, &without);
    check_same(&again, &without);
}

Test(code_cache, other_levels_and_models_have_entries_of_their_own) {
    const hcg_objects of_two = objects("two", 2, "baseline");
    const size_t n = list().n;
    objects("avx2", 2, "avx2");
    cr_assert_eq(list().n, 2 * n);
    const hcg_objects of_three = objects("three", 3, "baseline");
    /* tiles and other shared functions are common, whatever else a model has */
    cr_assert(of_two.n == of_three.n && list().n > 2 * n && list().n <= 3 * n - 2);
}

/* A file that was cut, one with a wrong bit, and one that is empty, are translated again. */
Test(code_cache, damaged_entries_are_none) {
    const hcg_objects first = objects("first", 2, "baseline");
    const entries before = list();
    cr_assert_geq(before.n, 3);
    for (size_t i = 0; i < 3; i++) {
        struct stat st;
        cr_assert_eq(stat(before.path[i], &st), 0);
        FILE *f = fopen(before.path[i], "r+");
        cr_assert(f);
        if (i == 1) {
            fseek(f, st.st_size / 2, SEEK_SET);
            const int c = fgetc(f);
            fseek(f, st.st_size / 2, SEEK_SET);
            fputc(c ^ 1, f);
        }
        fclose(f);
        if (i != 1) cr_assert_eq(truncate(before.path[i], i ? 0 : st.st_size / 2), 0);
    }
    const entries damaged = list();
    const hcg_objects again = objects("again", 2, "baseline");
    check_same(&again, &first);
    const entries after = list();
    cr_assert_eq(after.n, before.n);
    cr_assert_eq(new_files(&damaged, &after), 3);
}

static void expect_rejected(const char *cause) {
    hcg_objects out;
    cr_assert_not(compile("refused", 2, "baseline", &out));
    cr_assert_eq(hd_diags_first(&diags), HD_E_IO);
    const hd_diag *d = &diags.list.at[0];
    cr_assert(d->cause && strstr(d->cause, cause), "%s: %s", d->message, d->cause);
    cr_assert(d->hint && strstr(d->hint, "HADAL_CODE_CACHE"));
}

Test(code_cache, a_folder_of_all_is_rejected) {
    cr_assert_eq(mkdir(in_folder("cache"), 0700), 0);
    cr_assert_eq(chmod(in_folder("cache"), 0777), 0);
    expect_rejected("others may write to it");
}

Test(code_cache, a_file_is_rejected) {
    cr_assert(hd_write_file(arena, &diags, in_folder("cache"), "x", 1));
    expect_rejected("it is no folder");
}

Test(code_cache, a_folder_that_cannot_be_made_is_rejected) {
    setenv("HADAL_CODE_CACHE", in_folder("none/cache"), 1);
    expect_rejected("No such file");
}
