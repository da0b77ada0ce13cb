/* Weights: a file mapped read-only, or the same bytes in the caller's memory.
 *
 * The header says which model and rank the weights belong to. The digest covers names, types,
 * layouts and offsets, so once it matches, every offset in the program lies inside the data. The
 * data itself is not read here: opening costs no more than the map, and processes share the pages.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/internal.h"

/* The order of the checks matters for the message: first "is this a weights file", then "does it
 * belong to this model". */
static int check_header(const hrt_model *m, const void *file, size_t size) {
    hrt_weights_header h;
    if (size < HRT_WEIGHTS_DATA) return HRT_FORMAT;
    memcpy(&h, file, sizeof h);
    if (memcmp(h.magic, HRT_WEIGHTS_MAGIC, sizeof h.magic) != 0) return HRT_FORMAT;
    if (h.version != HRT_VERSION || h.data_offset != HRT_WEIGHTS_DATA) return HRT_FORMAT;
    if (h.data_bytes != size - HRT_WEIGHTS_DATA) return HRT_FORMAT;
    if (memcmp(h.digest, m->digest, sizeof h.digest) != 0) return HRT_DIGEST;
    if (h.data_bytes != m->weights_bytes) return HRT_FORMAT;
    return HRT_OK;
}

static int make_weights(const hrt_model *m, const void *file, size_t size, bool mapped,
                        hrt_weights **out) {
    int rc = check_header(m, file, size);
    if (rc != HRT_OK) return rc;
    hrt_weights *w = malloc(sizeof *w);
    if (!w) return HRT_MEMORY;
    hrt_weights_header h;
    memcpy(&h, file, sizeof h);
    *w = (hrt_weights){
        .model = m,
        .rank = h.rank,
        .data = (const uint8_t *)file + HRT_WEIGHTS_DATA,
        .map = mapped ? (void *)(uintptr_t)file : NULL,
        .map_bytes = mapped ? size : 0,
    };
    memcpy(w->content, h.content, sizeof w->content);
    memcpy(w->set, h.set, sizeof w->set);
    memcpy(w->source, h.source, sizeof w->source);
    *out = w;
    return HRT_OK;
}

int hrt_weights_from_memory(const hrt_model *m, const void *data, size_t size, hrt_weights **out) {
    if (out) *out = NULL;
    if (!m || !data || !out) return HRT_ARGUMENT;
    if ((uintptr_t)data % HRT_ALIGN != 0) return HRT_ALIGNMENT;
    return make_weights(m, data, size, false, out);
}

/* Size of a regular file; false for anything else. */
static bool file_size(int fd, size_t *size) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0) return false;
    *size = (size_t)st.st_size;
    return true;
}

/* Requests huge pages. Weights are read from end to end for each token: fewer pages mean fewer page
 * table walks (4 % of a token on the machine measured). It is a hint: where the file system has no
 * huge pages nothing happens. */
static void ask_for_huge_pages(void *map, size_t size) {
#ifdef MADV_HUGEPAGE
    (void)madvise(map, size, MADV_HUGEPAGE);
#else
    (void)map, (void)size;
#endif
}

int hrt_weights_open(const hrt_model *m, const char *path, hrt_weights **out) {
    if (out) *out = NULL;
    if (!m || !path || !out) return HRT_ARGUMENT;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never hangs on a fifo */
    if (fd < 0) return HRT_OPEN;
    size_t size;
    if (!file_size(fd, &size)) {
        close(fd);
        return HRT_OPEN;
    }
    if (size < HRT_WEIGHTS_DATA) {
        close(fd);
        return HRT_FORMAT;
    }
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return HRT_OPEN;
    ask_for_huge_pages(map, size);
    int rc = make_weights(m, map, size, true, out);
    if (rc != HRT_OK) munmap(map, size);
    return rc;
}

void hrt_weights_close(hrt_weights *w) {
    if (!w) return;
    if (w->map) munmap(w->map, w->map_bytes);
    free(w);
}

bool hrt_weights_fit(const hrt_model *m, const hrt_weights *w) {
    if (w->model == m) return true;
    return memcmp(w->model->digest, m->digest, sizeof m->digest) == 0 &&
           w->model->weights_bytes == m->weights_bytes;
}
