/* Files of weights, mapped or read (runtime/weights.c), and what reads them (runtime/read_file.c). */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/runtime/runtime_toy.h"

/* ---- weights --------------------------------------------------------------------------------- */
typedef int open_fn(const hrt_model *m, const char *path, hrt_weights **w);
static open_fn *const opens[] = {hrt_weights_open, hrt_weights_read};
enum { OPENS = sizeof opens / sizeof *opens };

static int open_bytes(open_fn *open, const void *bytes, size_t n, hrt_weights **w) {
    char path[] = "/tmp/hrt_weights_XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, bytes, n), (ssize_t)n);
    close(fd);
    int rc = open(&model, path, w);
    unlink(path);
    return rc;
}

Test(weights_file, weights_from_a_file) {
    weights_file f;
    fill_weights(&f);
    for (int i = 0; i < OPENS; i++) {
        hrt_weights *w = NULL;
        cr_assert_eq(open_bytes(opens[i], &f, sizeof f, &w), HRT_OK);
        hrt_session *s = open_session(&model, w, 4);
        int32_t id = 3;
        float out[2], *outs[2] = {out, NULL};
        cr_assert_eq(hrt_forward(s, &id, 1, outs, 1), HRT_OK);
        expect_rows(&id, 1, 1, out);
        free(s);
        hrt_weights_close(w);
    }
    hrt_weights_close(NULL);
}

/* Weights that are read are the process's own: what becomes of the file does not matter to them. */
Test(weights_file, weights_that_are_read_do_not_change_with_the_file) {
    weights_file f;
    fill_weights(&f);
    char path[] = "/tmp/hrt_weights_XXXXXX";
    const int fd = mkstemp(path);
    cr_assert_eq(write(fd, &f, sizeof f), (ssize_t)sizeof f);
    hrt_weights *w = NULL;
    cr_assert_eq(hrt_weights_read(&model, path, &w), HRT_OK);
    cr_assert_eq(ftruncate(fd, 0), 0);
    close(fd);
    unlink(path);
    cr_assert_eq(memcmp(w->data, (char *)&f + HRT_WEIGHTS_DATA, sizeof f - HRT_WEIGHTS_DATA), 0);
    hrt_weights_close(w);
}

static void expect_rejected(open_fn *open) {
    weights_file good, f;
    fill_weights(&good);
    hrt_weights *w = (hrt_weights *)1;
    cr_assert_eq(open(&model, "/nonexistent/x.weights", &w), HRT_OPEN);
    cr_assert_null(w);
    cr_assert_eq(open(&model, "/tmp", &w), HRT_OPEN);
    cr_assert_eq(open(&model, "/dev/null", &w), HRT_OPEN);
    cr_assert_eq(open(&model, NULL, &w), HRT_ARGUMENT);
    cr_assert_eq(open(&model, "/tmp", NULL), HRT_ARGUMENT);
    cr_assert_eq(open(NULL, "/tmp", &w), HRT_ARGUMENT);
    cr_assert_eq(open_bytes(open, "", 0, &w), HRT_FORMAT);
    cr_assert_eq(open_bytes(open, &good, 100, &w), HRT_FORMAT);
    cr_assert_eq(open_bytes(open, &good, sizeof good - 1, &w), HRT_FORMAT);
    const struct {
        size_t at;
        int rc;
    } faults[] = {
        {offsetof(hrt_weights_header, magic), HRT_FORMAT},
        {offsetof(hrt_weights_header, version), HRT_FORMAT},
        {offsetof(hrt_weights_header, digest) + 15, HRT_DIGEST},
        {offsetof(hrt_weights_header, data_offset), HRT_FORMAT},
        {offsetof(hrt_weights_header, data_bytes) + 7, HRT_FORMAT},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        f = good;
        f.at[faults[i].at] ^= 0x80;
        cr_assert_eq(open_bytes(open, &f, sizeof f, &w), faults[i].rc, "fault %zu", i);
        cr_assert_null(w);
        cr_assert_eq(hrt_weights_from_memory(&model, &f, sizeof f, &w), faults[i].rc);
    }
    cr_assert_eq(hrt_weights_from_memory(&model, good.at + 4, sizeof good - 4, &w), HRT_ALIGNMENT);
    cr_assert_eq(hrt_weights_from_memory(&model, NULL, 0, &w), HRT_ARGUMENT);
}

Test(weights_file, files_that_are_no_weights_are_rejected) {
    for (int i = 0; i < OPENS; i++)
        expect_rejected(opens[i]);
}

/* ---- files in memory ------------------------------------------------------------------------- */
enum { HUGE = 2 << 20 };

/* An open file of n bytes, byte i of which is a function of i, without a name. */
static int make_file(size_t n, int flags) {
    char path[] = "/tmp/hrt_read_XXXXXX";
    const int made = mkstemp(path);
    cr_assert_geq(made, 0);
    uint8_t *bytes = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    cr_assert_eq(write(made, bytes, n), (ssize_t)n);
    free(bytes);
    const int fd = open(path, flags);
    close(made);
    unlink(path);
    return fd;
}

static void expect_bytes(const void *memory, size_t n) {
    const uint8_t *at = memory;
    for (size_t i = 0; i < n; i++)
        if (at[i] != (uint8_t)(i * 2654435761u >> 13)) cr_assert_fail("byte %zu of %zu", i, n);
}

/* Sizes around those of huge pages and of the blocks that threads take, 8 MB. */
Test(read_file, every_byte_is_read) {
    const size_t sizes[] = {1, 4096, HUGE - 1, HUGE, HUGE + 1, 8 << 20, (17 << 20) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *memory = NULL;
        size_t bytes = 0;
        const int fd = make_file(sizes[i], O_RDONLY);
        cr_assert_eq(hrt_read_file(fd, sizes[i], &memory, &bytes), HRT_OK);
        cr_assert_eq((uintptr_t)memory % HUGE, 0);
        cr_assert(bytes >= sizes[i] && bytes - sizes[i] < HUGE && bytes % HUGE == 0);
        expect_bytes(memory, sizes[i]);
        munmap(memory, bytes);
        close(fd);
    }
}

/* A file may get shorter between the two system calls that find its size and read it. */
Test(read_file, a_shorter_file_is_cut_short) {
    void *memory;
    size_t bytes;
    const int fd = make_file(9 << 20, O_RDONLY);
    cr_assert_eq(hrt_read_file(fd, (9 << 20) + 1, &memory, &bytes), HRT_FORMAT);
    cr_assert_eq(hrt_read_file(fd, 64 << 20, &memory, &bytes), HRT_FORMAT);
    close(fd);
}

Test(read_file, what_cannot_be_read) {
    void *memory;
    size_t bytes;
    const int fd = make_file(4096, O_WRONLY);
    cr_assert_eq(hrt_read_file(fd, 4096, &memory, &bytes), HRT_OPEN);
    close(fd);
    cr_assert_eq(hrt_read_file(-1, 4096, &memory, &bytes), HRT_OPEN);
}

/* More than the address space, and more than can be counted. */
Test(read_file, more_than_there_is_memory) {
    void *memory;
    size_t bytes;
    const int fd = make_file(4096, O_RDONLY);
    cr_assert_eq(hrt_read_file(fd, (size_t)1 << 60, &memory, &bytes), HRT_MEMORY);
    cr_assert_eq(hrt_read_file(fd, SIZE_MAX, &memory, &bytes), HRT_MEMORY);
    cr_assert_eq(hrt_read_file(fd, SIZE_MAX - HUGE, &memory, &bytes), HRT_MEMORY);
    close(fd);
}
