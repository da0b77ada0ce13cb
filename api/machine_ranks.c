#include "api/machine_ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <xxhash.h>

#include "api/stats.h"
#include "support/all_gather.h"

/* An all-gather of one word: words[i] becomes that of rank i. */
static int tell_all(const hadal_comm *c, int64_t timeout_ns, double word, double *words) {
    return hd_all_gather(c, hd_all_ranks(c), timeout_ns, &word, words, sizeof word);
}

/* ---- rates ----------------------------------------------------------------------------------- */
uint64_t machine_cpus_here(void) {
    char id[HD_BOOT_ID];
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    (void)sched_getaffinity(0, sizeof cpus, &cpus); /* fails beyond 1024 CPUs: then all of them */
    hd_read_boot_id(id);
    return XXH3_64bits_withSeed(&cpus, sizeof cpus, XXH3_64bits(id, sizeof id));
}

typedef struct share { /* what a rank has of the CPUs that it may use */
    uint64_t cpus;
    double rate;
} share;

static double mean_on(uint64_t cpus, const share *all, int32_t ranks) {
    double sum = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < ranks; i++)
        if (all[i].cpus == cpus) sum += all[i].rate, n++;
    return n ? sum / n : 0;
}

int machine_slowest_of_ranks(const hadal_comm *c, int64_t timeout_ns, uint64_t cpus, double mine,
                             double *slowest) {
    const share word = {cpus, mine};
    share all[HADAL_COMM_MAX_RANKS];
    const int code = hd_all_gather(c, hd_all_ranks(c), timeout_ns, &word, all, sizeof word);
    *slowest = 0;
    for (int32_t i = 0; i < c->size && !code; i++) {
        const double mean = all[i].rate > 0 ? mean_on(all[i].cpus, all, c->size) : 0;
        if (i == 0 || mean < *slowest) *slowest = mean;
    }
    return code;
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Elements of a small collective, and as many as a message of hadal_mpi holds. */
enum { FEW = 16, MANY = (1 << 20) / sizeof(float) };

typedef struct job {
    const hadal_comm *c;
    int64_t timeout_ns;
    float *all, *part; /* MANY elements of each rank; of this rank */
} job;

static int few(const job *j) {
    return j->c->all_reduce(j->c->context, hd_all_ranks(j->c), HADAL_COMM_F32, j->all, j->part, FEW,
                            j->timeout_ns);
}

/* The two collectives over rows that a sublayer of a prompt needs. */
static int many(const job *j) {
    const hadal_comm_group group = {0, j->c->size};
    uint64_t counts[HADAL_COMM_MAX_RANKS];
    for (int32_t r = 0; r < j->c->size; r++)
        counts[r] = MANY;
    const int code = j->c->reduce_scatter(j->c->context, group, HADAL_COMM_F32, j->all, j->part,
                                          counts, j->timeout_ns);
    return code ? code
                : j->c->all_gather(j->c->context, group, HADAL_COMM_F32, j->part, j->all, counts,
                                   j->timeout_ns);
}

static int repeat(int (*collective)(const job *), const job *j, int times, double *seconds) {
    const double start = now(ON_THE_WALL);
    int code = HADAL_COMM_OK;
    for (int i = 0; i < times && !code; i++)
        code = collective(j);
    *seconds = (now(ON_THE_WALL) - start) / times;
    return code;
}

/* Seconds of a collective: the median of batches, as measured by the first rank, for all ranks. */
static int measure(int (*collective)(const job *), const job *j, double *seconds) {
    enum { BATCHES = 7, MOST = 1000 };
    const double batch = 0.05;
    double one, words[HADAL_COMM_MAX_RANKS];
    samples times = {0};
    int code = repeat(collective, j, 3, &one); /* opens connections, and touches memory */
    if (!code) code = repeat(collective, j, 3, &one);
    if (!code) code = tell_all(j->c, j->timeout_ns, one, words);
    if (code) return code;
    const double wanted = words[0] > 0 ? batch / words[0] : MOST;
    const int turns = wanted < 1 ? 1 : wanted > MOST ? MOST : (int)wanted;
    for (int i = 0; i < BATCHES && !code; i++) {
        code = repeat(collective, j, turns, &one);
        sample(&times, one);
    }
    if (!code) code = tell_all(j->c, j->timeout_ns, median(&times), words);
    *seconds = words[0];
    return code;
}

int machine_measure_links(const hadal_comm *c, int64_t timeout_ns, machine_links *out) {
    const size_t ranks = (size_t)c->size;
    job j = {c, timeout_ns, calloc(ranks * MANY, sizeof(float)), calloc(MANY, sizeof(float))};
    double short_time = 0, long_time = 0;
    int code = j.all && j.part ? measure(few, &j, &short_time) : HADAL_COMM_MEMORY;
    if (!code) code = measure(many, &j, &long_time);
    free(j.all);
    free(j.part);
    const double bits = 2.0 * 8 * (double)(ranks - 1) * MANY * sizeof(float);
    /* Two latencies are a small part of the time of MANY elements. If they are not, ranks have
     * waited for their turns on busy CPUs, and the rest of the time means nothing. */
    const double least = long_time / 2, sending = long_time - 2 * short_time;
    *out = (machine_links){.ranks = c->size, .latency = short_time};
    if (least > 0) out->network = bits / (sending > least ? sending : least);
    return code;
}
