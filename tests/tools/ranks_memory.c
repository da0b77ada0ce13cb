/* What the sessions of a library really touch of their memory:
 *
 *     ranks_memory LIBRARY.so WEIGHTS RANKS TOKENS
 *
 * RANKS 1: an undivided library. Others: WEIGHTS is DIR/NAME.weights, whose shares
 * NAME.rRofP.weights are read; ranks are threads of this process, each with a session in pages of
 * its own. A prompt of so many tokens is read in one call and one token more behind it. A line for
 * each rank, "resident RANK BYTES OF", says how many bytes lie in pages that the kernel has given
 * it, and how many it was promised. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hadal/hadal_threads.h"
#include "tests/tools/model_library.h"

enum { MOST_RANKS = 8 };

typedef struct rank {
    const library *l;
    hadal_threads *group; /* NULL: undivided */
    int32_t number;
    char share[4200];
    int64_t tokens;
    size_t size, resident;
    int code;
} rank;

/* Of small pages: a huge one would be there as a whole when one byte of it is. */
static size_t resident_bytes(void *memory, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size + page - 1) / page;
    unsigned char *there = malloc(pages);
    size_t n = 0;
    if (!there || mincore(memory, size, there)) exit(2);
    for (size_t i = 0; i < pages; i++)
        n += there[i] & 1;
    free(there);
    return n * page;
}

static int forward(const rank *r, void *session) {
    const int64_t vocab = (int64_t)((const info *)r->l->info())->vocab;
    int32_t *ids = calloc((size_t)r->tokens + 1, sizeof *ids);
    for (int64_t i = 0; ids && i <= r->tokens; i++)
        ids[i] = (int32_t)((i * 7919 + 11) % (vocab ? vocab : 1));
    int code = ids ? r->l->forward(session, ids, r->tokens, NULL, 0) : 1;
    if (!code) code = r->l->forward(session, ids + r->tokens, 1, NULL, 0);
    free(ids);
    return code;
}

static void run(rank *r) {
    void *weights = NULL, *session = NULL;
    r->size = r->l->session_size(r->tokens + 1);
    void *memory = mmap(NULL, r->size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) exit(2);
    r->code = r->l->weights_open(r->share, &weights);
    if (!r->code && r->group)
        r->code = r->l->session_init_on(memory, r->size, weights, r->tokens + 1,
                                        hadal_threads_comm(r->group, r->number),
                                        INT64_C(60000000000), &session);
    else if (!r->code)
        r->code = r->l->session_init(memory, r->size, weights, r->tokens + 1, &session);
    if (madvise(memory, r->size, MADV_NOHUGEPAGE)) exit(2);
    if (!r->code) r->code = r->l->set_threads(session, 1);
    if (!r->code) r->code = forward(r, session);
    r->resident = resident_bytes(memory, r->size);
    if (weights) r->l->weights_close(weights);
    munmap(memory, r->size);
}

static void *run_thread(void *argument) {
    rank *r = argument;
    run(r);
    hadal_threads_leave(r->group, r->number);
    return NULL;
}

int main(int argc, char **argv) {
    static library l;
    static rank all[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    const int32_t n = argc == 5 ? atoi(argv[3]) : 0;
    if (n < 1 || n > MOST_RANKS) return fprintf(stderr, "usage: see the head of this file\n"), 2;
    if (open_library(&l, argv[1])) return 1;
    hadal_threads *group = NULL;
    if (n > 1 && hadal_threads_open(n, &group)) return 1;
    const size_t stem = strlen(argv[2]) - strlen(".weights");
    for (int32_t i = 0; i < n; i++) {
        all[i] = (rank){.l = &l, .group = group, .number = i, .tokens = atoll(argv[4])};
        if (n == 1)
            snprintf(all[i].share, sizeof all[i].share, "%s", argv[2]);
        else
            snprintf(all[i].share, sizeof all[i].share, "%.*s.r%dof%d.weights", (int)stem, argv[2],
                     i, n);
        if (n > 1) pthread_create(&threads[i], NULL, run_thread, &all[i]);
    }
    if (n == 1) run(&all[0]);
    for (int32_t i = 0; i < n && n > 1; i++)
        pthread_join(threads[i], NULL);
    if (group) hadal_threads_close(group);
    int failed = 0;
    for (int32_t i = 0; i < n; i++) {
        if (all[i].code) failed = fprintf(stderr, "rank %d: %s\n", i, l.strerror(all[i].code));
        printf("resident %d %zu %zu\n", i, all[i].resident, all[i].size);
    }
    return failed != 0;
}
