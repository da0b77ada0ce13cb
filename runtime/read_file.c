/* A file read into memory of the process that lies in huge pages, where the system has any.
 *
 * Several threads read, each the next block that none has taken: one thread copies from the page
 * cache at a fraction of the memory's rate, and a disk wants several requests in flight. Files are
 * read by plain reads and stay in the page cache, as with a map: the next process to open the file
 * finds it there, and the system drops pages of files before anything else when memory is short. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/internal.h"
#include "support/huge_pages.h"

/* A block is what a reader takes at a time: whole huge pages, so that no two readers touch one first. */
enum { BLOCK = 4 * HD_HUGE_PAGE, MOST_READERS = 8 };

typedef struct reading {
    int fd;
    char *to;
    size_t size;
    atomic_size_t next; /* where the first block begins that no thread has taken */
    atomic_int code;    /* of the first read that failed; HRT_OK: none has */
} reading;

/* Reads bytes at .. end - 1 of the file. A file that ends before them was cut short after it was
 * opened. */
static int read_block(const reading *r, size_t at, size_t end) {
    (void)posix_fadvise(r->fd, (off_t)at, (off_t)(end - at), POSIX_FADV_WILLNEED);
    while (at < end) {
        const ssize_t n = pread(r->fd, r->to + at, end - at, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? HRT_FORMAT : HRT_OPEN;
        at += (size_t)n;
    }
    return HRT_OK;
}

static void *read_blocks(void *context) {
    reading *r = context;
    while (atomic_load(&r->code) == HRT_OK) {
        const size_t at = atomic_fetch_add(&r->next, BLOCK);
        if (at >= r->size) break;
        const int code = read_block(r, at, r->size - at < BLOCK ? r->size : at + BLOCK);
        int none = HRT_OK;
        if (code != HRT_OK) (void)atomic_compare_exchange_strong(&r->code, &none, code);
    }
    return NULL;
}

/* The calling thread reads too, and alone where no thread can be made. Signals of the process are
 * not for the other threads; and none of them may outlive this call, so it cannot be cancelled. */
static void read_together(reading *r) {
    pthread_t others[MOST_READERS];
    const size_t blocks = (r->size + BLOCK - 1) / BLOCK;
    const int processors = hrt_processors();
    const int most = processors < MOST_READERS ? processors : MOST_READERS;
    int n = 1, cancel;
    sigset_t all, before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (n < most && (size_t)n < blocks && pthread_create(&others[n], NULL, read_blocks, r) == 0)
        n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)read_blocks(r);
    for (int i = 1; i < n; i++)
        pthread_join(others[i], NULL);
    pthread_setcancelstate(cancel, &cancel);
}

/* Memory of whole huge pages; NULL: there is none. `bytes` is a multiple of HD_HUGE_PAGE. */
static char *map_huge_pages(size_t bytes) {
    char *at = mmap(NULL, bytes + HD_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    if (at == MAP_FAILED) return NULL;
    const size_t head = -(uintptr_t)at % HD_HUGE_PAGE;
    if (head) munmap(at, head);
    munmap(at + head + bytes, HD_HUGE_PAGE - head);
    at += head;
    hd_advise_huge_pages(at, bytes);
#ifdef MADV_DONTDUMP
    (void)madvise(at, bytes, MADV_DONTDUMP); /* a map of the file is in no core dump either */
#endif
    return at;
}

int hrt_read_file(int fd, size_t size, void **memory, size_t *bytes) {
    if (size > SIZE_MAX / 4) return HRT_MEMORY;
    *bytes = (size + HD_HUGE_PAGE - 1) / HD_HUGE_PAGE * HD_HUGE_PAGE;
    reading r = {.fd = fd, .to = map_huge_pages(*bytes), .size = size};
    if (!r.to) return HRT_MEMORY;
    read_together(&r);
    const int code = atomic_load(&r.code);
    if (code == HRT_OK) {
        (void)mprotect(r.to, *bytes, PROT_READ); /* weights are never written */
        *memory = r.to;
    } else {
        munmap(r.to, *bytes);
    }
    return code;
}
