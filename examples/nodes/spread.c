/* Weights in memory of their own, spread evenly over the memory nodes of a machine.
 *
 *   spread jargon.weights
 *
 * The pages of a mapped file lie on the node of the CPU that read them first, often all on one
 * node, whose memory then serves the threads of all nodes. Here the file's bytes are copied to
 * memory whose pages go to the nodes in turn (mbind with MPOL_INTERLEAVE; huge pages if the system
 * has them). The program prints how many pages each node has, and checks that a forward call gives
 * the same bits as with the mapped file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "jargon.h"

/* as in include/uapi/linux/mempolicy.h; a program that may depend on libnuma finds the same
 * there */
enum { MPOL_INTERLEAVE = 3, MPOL_F_MEMS_ALLOWED = 4, NODES = 1024, WORD = 8 * sizeof(long) };

static void need(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "spread: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void check(int code, const char *what) {
    if (!code) return;
    fprintf(stderr, "spread: %s: %s\n", what, jargon_strerror(code));
    exit(1);
}

/* Lets the pages of [at, at + size) go in turn to the nodes that this process may use. 0: the
 * system has no nodes, or does not let the process choose. */
static int interleave(void *at, size_t size) {
    unsigned long nodes[NODES / WORD] = {0};
    if (syscall(SYS_get_mempolicy, NULL, nodes, (unsigned long)NODES, NULL, MPOL_F_MEMS_ALLOWED))
        return 0;
    return !syscall(SYS_mbind, at, size, MPOL_INTERLEAVE, nodes, (unsigned long)NODES, 0u);
}

/* Reads the file into such memory. A page is placed when it is first written. */
static void *load(const char *path, size_t *size) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && !fstat(fd, &st) && st.st_size > 0, path);
    *size = (size_t)st.st_size;
    char *at = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(at != MAP_FAILED, "memory");
    (void)madvise(at, *size, MADV_HUGEPAGE); /* if not, pages have the usual size */
    if (!interleave(at, *size)) fprintf(stderr, "spread: pages are where the system puts them\n");
    for (size_t done = 0; done < *size;) {
        const ssize_t n = read(fd, at + done, *size - done);
        if (n < 0 && errno == EINTR) continue;
        need(n > 0, path);
        done += (size_t)n;
    }
    close(fd);
    need(!mprotect(at, *size, PROT_READ), "mprotect");
    return at;
}

/* Prints the number of pages on each node. The system is asked for them one by one. */
static void print_nodes(char *at, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t on[NODES] = {0}, unknown = 0;
    for (size_t i = 0; i < size; i += page) {
        void *p = at + i;
        int node = -1;
        const long code = syscall(SYS_move_pages, 0, 1ul, &p, NULL, &node, 0);
        if (code || node < 0 || node >= NODES)
            unknown++;
        else
            on[node]++;
    }
    for (int node = 0; node < NODES; node++)
        if (on[node]) printf("node %d: %zu pages\n", node, on[node]);
    if (unknown) printf("unknown: %zu pages\n", unknown);
}

static void forward(const jargon_weights *weights, float *logits) {
    static const int32_t tokens[] = {104, 97, 99, 107};
    jargon_session *session;
    const size_t size = (jargon_session_size(8) + JARGON_ALIGN - 1) / JARGON_ALIGN * JARGON_ALIGN;
    void *memory = aligned_alloc(JARGON_ALIGN, size);
    need(memory != NULL, "memory");
    check(jargon_session_init(memory, size, weights, 8, &session), "session");
    check(jargon_forward(session, tokens, 4, logits, 1), "forward");
    free(memory);
}

int main(int argc, char **argv) {
    static float spread[JARGON_LOGITS], mapped[JARGON_LOGITS];
    jargon_weights *weights;
    size_t size;
    if (argc != 2) return fprintf(stderr, "usage: spread jargon.weights\n"), 2;
    void *bytes = load(argv[1], &size);
    print_nodes(bytes, size);
    check(jargon_weights_from_memory(bytes, size, &weights), "weights");
    forward(weights, spread);
    jargon_weights_close(weights);
    munmap(bytes, size);
    check(jargon_weights_open(argv[1], &weights), argv[1]);
    forward(weights, mapped);
    jargon_weights_close(weights);
    const int same = !memcmp(spread, mapped, sizeof spread);
    puts(same ? "the same logits as with the mapped file"
              : "other logits than with the mapped file");
    return !same;
}
