/* Files that appear together: support/build.h. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/build.h"
#define FOLDER "/tmp/hadal-build-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(build, .init = open_folder, .fini = close_folder);

static void write_into(hd_build *b, const char *name) {
    diags.build = b;
    cr_assert(hd_write_file(arena, &diags, in_folder(name), name, strlen(name)));
    diags.build = NULL;
}

static void make_file(const char *name) {
    write_into(NULL, name);
}

static bool is_there(const char *name) {
    return hd_exists(in_folder(name));
}

static const char *all_files(void) {
    static char text[512];
    FILE *p = popen(hd_printf(arena, "cd %s && LC_ALL=C ls -A | tr '\\n' ' '", folder), "r");
    text[fread(text, 1, sizeof text - 1, p)] = 0;
    pclose(p);
    return text;
}

Test(build, files_appear_together) {
    hd_build *b = hd_build_new();
    write_into(b, "libm.so");
    write_into(b, "m.h");
    cr_assert_not(is_there("libm.so") || is_there("m.h"));
    cr_assert(hd_build_publish(b, &diags));
    cr_assert_str_eq(all_files(), "libm.so m.h ");
    hd_build_free(b);
    cr_assert_str_eq(all_files(), "libm.so m.h ");
}

Test(build, what_is_not_published_is_gone_and_leaves_the_earlier_build) {
    make_file("libm.so");
    hd_build *b = hd_build_new();
    cr_assert(hd_build_replaces(b, in_folder("libm.so")));
    write_into(b, "libm.so");
    cr_assert(is_there("libm.so"));
    hd_build_free(b);
    cr_assert_str_eq(all_files(), "libm.so ");
}

Test(build, earlier_files_go_with_the_shares_of_ranks) {
    static const char *const earlier[] = {
        "libm.so", "m.h", "m.weights", "m.o", "m.r0of2.weights", "m.r11of12.weights"};
    for (size_t i = 0; i < sizeof earlier / sizeof *earlier; i++)
        make_file(earlier[i]);
    make_file("m.rof2.weights"); /* which are none */
    make_file("mm.r0of2.weights");
    for (int now = 0; now < 2; now++) {
        hd_build *b = hd_build_new();
        cr_assert(hd_build_replaces(b, in_folder("libm.so")));
        cr_assert(hd_build_replaces(b, in_folder("m.weights")));
        write_into(b, "m.h");
        if (now == 0) hd_build_remove_earlier(b);
        if (now == 0) cr_assert_not(is_there("libm.so") || is_there("m.r0of2.weights"));
        cr_assert(hd_build_publish(b, &diags));
        hd_build_free(b);
    }
    cr_assert_str_eq(all_files(), "m.h m.o m.rof2.weights mm.r0of2.weights ");
}

Test(build, a_name_that_cannot_be_given_leaves_none) {
    hd_build *b = hd_build_new();
    write_into(b, "m.h");
    write_into(b, "m.weights");
    cr_assert_eq(mkdir(in_folder("m.weights"), 0777), 0); /* meanwhile */
    write_into(b, "libm.so");
    cr_assert_not(hd_build_publish(b, &diags));
    cr_assert(strstr(diags.list.at[0].message, "m.weights"));
    cr_assert_str_eq(all_files(), "m.weights ");
    hd_build_free(b);
}

Test(build, temporaries_of_a_build_are_no_files_of_it) {
    hd_build *b = hd_build_new();
    hd_scratch *scratch = hd_scratch_open(arena, &diags, in_folder("libm.so"));
    const char *object = hd_path_join(arena, hd_path_base(scratch->path), "object.o");
    write_into(b, object);
    cr_assert(is_there(object));
    cr_assert(hd_build_publish(b, &diags));
    cr_assert(is_there(object));
    hd_build_free(b);
    hd_scratch_remove(scratch);
    cr_assert_str_eq(all_files(), "");
}

/* A process that is killed while it makes a build. */
static void killed(void (*leave)(hd_build *b)) {
    const pid_t child = fork();
    if (child == 0) {
        leave(hd_build_new());
        kill(getpid(), SIGKILL);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

static void leave_files(hd_build *b) {
    write_into(b, "libm.so");
    hd_scratch *scratch = hd_scratch_open(arena, &diags, in_folder("libm.so"));
    write_into(NULL, hd_path_join(arena, hd_path_base(scratch->path), "object.o"));
    (void)hd_output_open(arena, &diags, hd_path_join(arena, scratch->path, "half.o"));
    (void)hd_output_open(arena, &diags, in_folder("m.weights"));
}

static int scratches(void) {
    int n = 0;
    for (const char *at = all_files(); (at = strstr(at, ".hadal-")); at++)
        n++;
    return n;
}

Test(build, what_killed_processes_left_goes_and_what_others_write_stays) {
    killed(leave_files);
    killed(leave_files);
    cr_assert_eq(scratches(), 6);
    /* names that are no scratch directories, or not of this kind */
    cr_assert_eq(mkdir(in_folder(".hadal-cache"), 0777), 0);
    cr_assert_eq(symlink("..", in_folder(".hadal-7-0.tmp")), 0);
    make_file("notes.txt");
    hd_build *other = hd_build_new(), *b = hd_build_new();
    write_into(other, "libother.so");
    cr_assert_eq(scratches(), 6 + 3);
    cr_assert(hd_build_replaces(b, in_folder("libm.so")));
    hd_build_remove_earlier(b);
    cr_assert_eq(scratches(), 3);
    write_into(b, "libm.so");
    cr_assert(hd_build_publish(b, &diags));
    cr_assert(hd_build_publish(other, &diags));
    hd_build_free(b), hd_build_free(other);
    cr_assert_str_eq(all_files(), ".hadal-7-0.tmp .hadal-cache libm.so libother.so notes.txt ");
}

/* Processes that make scratch directories while another one collects them all the time: none loses
 * one that it has. */
Test(build, collectors_take_nothing_from_those_who_are_at_work) {
    enum { ROUNDS = 400, MAKERS = 3 };
    pid_t makers[MAKERS];
    for (int i = 0; i < MAKERS; i++) {
        if ((makers[i] = fork()) != 0) continue;
        int lost = 0;
        for (int k = 0; k < ROUNDS; k++)
            lost += !hd_write_file(arena, &diags, in_folder(hd_printf(arena, "f%d", i)), "x", 1);
        _exit(lost);
    }
    for (int left = MAKERS, status; left;) {
        hd_scratch_collect(in_folder("any"));
        if (waitpid(-1, &status, WNOHANG) <= 0) continue;
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        left--;
    }
    cr_assert_str_eq(all_files(), "f0 f1 f2 ");
}
