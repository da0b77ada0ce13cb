/* Weights: a file mapped read-only, a file read into memory, or its bytes in the caller's memory.
 *
 * The header says which model and rank the weights belong to. The digest covers names, types,
 * layouts and offsets, so once it matches, every offset in the program lies inside the data. Of a
 * mapped file the data itself is not read here: opening costs no more than the map, and processes
 * share the pages. Reading the file takes the time of a copy and memory of the process alone, which
 * then lies in huge pages on file systems that have none, too. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/internal.h"
#include "support/huge_pages.h"

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

/* map_bytes: of the map that begins with the file's bytes, which the weights are to unmap; 0: the
 * memory is the caller's. */
static int make_weights(const hrt_model *m, const void *file, size_t size, size_t map_bytes,
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
        .map = map_bytes ? (void *)(uintptr_t)file : NULL,
        .map_bytes = map_bytes,
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
    return make_weights(m, data, size, 0, out);
}

/* Opens a regular file that may be one of weights. *fd is only the caller's to close on success. */
static int open_file(const char *path, int *fd, size_t *size) {
    struct stat st;
    int rc = HRT_OK;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never hangs on a fifo */
    if (*fd < 0) return HRT_OPEN;
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0)
        rc = HRT_OPEN;
    else if (st.st_size < HRT_WEIGHTS_DATA)
        rc = HRT_FORMAT;
    else
        *size = (size_t)st.st_size;
    if (rc != HRT_OK) close(*fd);
    return rc;
}

int hrt_weights_open(const hrt_model *m, const char *path, hrt_weights **out) {
    int fd;
    size_t size;
    if (out) *out = NULL;
    if (!m || !path || !out) return HRT_ARGUMENT;
    int rc = open_file(path, &fd, &size);
    if (rc != HRT_OK) return rc;
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return HRT_OPEN;
    hd_advise_huge_pages(map, size); /* weights are read from end to end for each token */
    rc = make_weights(m, map, size, size, out);
    if (rc != HRT_OK) munmap(map, size);
    return rc;
}

/* Checks the header that the file has now: gigabytes are not read to reject them. */
static int check_file(const hrt_model *m, int fd, size_t size) {
    hrt_weights_header h;
    const ssize_t n = pread(fd, &h, sizeof h, 0);
    if (n < 0) return HRT_OPEN;
    return (size_t)n < sizeof h ? HRT_FORMAT : check_header(m, &h, size);
}

int hrt_weights_read(const hrt_model *m, const char *path, hrt_weights **out) {
    int fd;
    size_t size, bytes;
    void *memory;
    if (out) *out = NULL;
    if (!m || !path || !out) return HRT_ARGUMENT;
    int rc = open_file(path, &fd, &size);
    if (rc != HRT_OK) return rc;
    rc = check_file(m, fd, size);
    if (rc == HRT_OK) rc = hrt_read_file(fd, size, &memory, &bytes);
    close(fd);
    if (rc != HRT_OK) return rc;
    rc = make_weights(m, memory, size, bytes, out);
    if (rc != HRT_OK) munmap(memory, bytes);
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
