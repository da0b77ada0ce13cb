#include "api/machine.h"
#include "api/machine_ranks.h"

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/barrier.h"
#include "runtime/detect.h"
#include "runtime/hadal_rt.h"
#include "support/huge_pages.h"

enum {
    STREAM_MEMORY,
    STREAM_READ,
    STREAM_COPY,
    STREAM_TRIAD,
    STREAM_FMA,
    STREAM_LOADS,
    STREAM_DOTS,
    STREAM_BYTES,
    STREAM_TILES
};
enum { AREA = 96 << 20, WEIGHTS = 64 << 20 };
enum { TILE_TURNS = 100000 };
enum { FMA_TURNS = 400000, FMA_CHAINS = 12, LINE = 64 };
/* Bytes by which kernels that read weights once prefetch: the next lines, and one line of each page
 * further on (codegen/emit/stream.h). */
enum { AHEAD = 4096, PAGE = 4096, PAGE_AHEAD = 4 * PAGE };

typedef struct loop {
    const char *name;
    int kind;
    size_t bytes; /* per thread; 0: the loop reads no memory */
} loop;

static const loop limits[] = {
#define L(id, name, kind, bytes) {name, kind, bytes},
    MACHINE_LIMITS(L)
#undef L
};

/* ---- loops in the widest vectors that the CPU has -------------------------------------------- */

#define LOOPS(suffix, width, attributes)                                                           \
    typedef float v##suffix __attribute__((vector_size(width)));                                   \
    attributes static void read_##suffix(const float *x, size_t n) {                               \
        const v##suffix *v = (const v##suffix *)x;                                                 \
        v##suffix a = {0}, b = {0}, c = {0}, d = {0}, f = {0}, g = {0}, h = {0}, k = {0};          \
        for (size_t i = 0; i + 8 <= n * sizeof(float) / width; i += 8) {                           \
            a += v[i], b += v[i + 1], c += v[i + 2], d += v[i + 3];                                \
            f += v[i + 4], g += v[i + 5], h += v[i + 6], k += v[i + 7];                            \
        }                                                                                          \
        a += b + c + d + f + g + h + k;                                                            \
        volatile float sink = a[0];                                                                \
        (void)sink;                                                                                \
    }                                                                                              \
    /* The same, asking for what comes: a few per cent more than a CPU finds out by itself. */     \
    attributes static void stream_##suffix(const float *x, size_t n) {                             \
        const char *p = (const char *)x, *end = (const char *)(x + n);                             \
        v##suffix a = {0}, b = {0}, c = {0}, d = {0};                                              \
        for (; p + 256 <= end; p += 256) {                                                         \
            if ((uintptr_t)p % PAGE < 256) __builtin_prefetch(p + PAGE_AHEAD, 0, 2);               \
            for (int i = 0; i < 256; i += LINE)                                                    \
                __builtin_prefetch(p + i + AHEAD);                                                 \
            for (size_t i = 0; i < 256; i += 4 * width) {                                          \
                const v##suffix *v = (const v##suffix *)(p + i);                                   \
                a += v[0], b += v[1], c += v[2], d += v[3];                                        \
            }                                                                                      \
        }                                                                                          \
        a += b + c + d;                                                                            \
        volatile float sink = a[0];                                                                \
        (void)sink;                                                                                \
    }                                                                                              \
    attributes static void triad_##suffix(float *y, const float *x, const float *z, size_t n) {    \
        v##suffix *to = (v##suffix *)y;                                                            \
        const v##suffix *from = (const v##suffix *)x, *add = (const v##suffix *)z;                 \
        for (size_t i = 0; i < n * sizeof(float) / width; i++)                                     \
            to[i] = from[i] + 3.0f * add[i];                                                       \
    }                                                                                              \
    attributes static void copy_##suffix(float *y, const float *x, size_t n) {                     \
        v##suffix *to = (v##suffix *)y;                                                            \
        const v##suffix *from = (const v##suffix *)x;                                              \
        for (size_t i = 0; i < n * sizeof(float) / width; i++)                                     \
            to[i] = -from[i];                                                                      \
    }

LOOPS(narrow, 16, )
#if defined(__x86_64__)
LOOPS(avx2, 32, __attribute__((target("avx2,fma"))))
LOOPS(avx512, 64, __attribute__((target("avx512f"))))

/* Twelve independent chains, written out: compilers keep such an array on the stack. */
#define CHAINS(f) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13)
#define FMA512(i) "vfmadd231ps %%zmm0, %%zmm1, %%zmm" #i "\n\t"
#define FMA256(i) "vfmadd231ps %%ymm0, %%ymm1, %%ymm" #i "\n\t"
#define MULADD(i)                                                                                  \
    "movaps %%xmm0, %%xmm14\n\tmulps %%xmm1, %%xmm14\n\taddps %%xmm14, %%xmm" #i "\n\t"
#define ZERO(i)     "pxor %%xmm" #i ", %%xmm" #i "\n\t"
#define DOTS512(i)  "vdpbf16ps %%zmm0, %%zmm1, %%zmm" #i "\n\t"
#define BYTES512(i) "vpdpbusd %%zmm0, %%zmm1, %%zmm" #i "\n\t"
#define BYTES256(i) "%{vex%} vpdpbusd %%ymm0, %%ymm1, %%ymm" #i "\n\t"
/* Where one instruction does not do it: products in pairs, sums of pairs, and their sum. */
#define PAIRS256(i)                                                                                \
    "vpmaddubsw %%ymm0, %%ymm1, %%ymm14\n\tvpmaddwd %%ymm14, %%ymm1, %%ymm14\n\t"                  \
    "vpaddd %%ymm14, %%ymm" #i ", %%ymm" #i "\n\t"
#define VECTORS                                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13", "xmm14"
#define PEAK(name, step)                                                                           \
    static void name(int64_t n) {                                                                  \
        __asm__ volatile(ZERO(0) ZERO(1) CHAINS(ZERO) "1:\n\t" CHAINS(step) "dec %0\n\tjnz 1b\n\t" \
                         : "+r"(n)::VECTORS, "cc");                                                \
    }

/* The same multiply-adds as products of matrices have them: two vectors of weights and six numbers
 * of x come from memory for twelve. */
#define ROW(v, line, a, b)                                                                         \
    "vbroadcastss " #line "*64(%1), %%" #v "14\n\tvfmadd231ps %%" #v "0, %%" #v "14, %%" #v #a     \
    "\n\tvfmadd231ps %%" #v "1, %%" #v "14, %%" #v #b "\n\t"
#define LOADED(name, v)                                                                            \
    static void name(int64_t n) {                                                                  \
        static const float operands[8 * LINE / sizeof(float)] __attribute__((aligned(LINE)));      \
        __asm__ volatile(CHAINS(ZERO) "1:\n\tvmovups (%1), %%" #v "0\n\tvmovups 64(%1), %%" #v     \
                                      "1\n\t" ROW(v, 2, 2, 3) ROW(v, 3, 4, 5) ROW(v, 4, 6, 7)      \
                                          ROW(v, 5, 8, 9) ROW(v, 6, 10, 11)                        \
                                              ROW(v, 7, 12, 13) "dec %0\n\tjnz 1b\n\t"             \
                         : "+r"(n)                                                                 \
                         : "r"(operands), "m"(operands)                                            \
                         : VECTORS, "cc");                                                         \
    }

/* Four independent sums of products of tiles; tiles of x and weights stay in registers. */
#define TILE_PRODUCTS(name, product)                                                               \
    __attribute__((target("amx-tile,amx-bf16,amx-int8"))) static void name(int64_t n) {            \
        static const struct {                                                                      \
            uint8_t palette, start, none[14];                                                      \
            uint16_t line[16];                                                                     \
            uint8_t lines[16];                                                                     \
        } whole = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}}; \
        __asm__ volatile("ldtilecfg %1\n\t1:\n\t" product " %%tmm6, %%tmm4, %%tmm0\n\t" product    \
                         " %%tmm7, %%tmm4, %%tmm1\n\t" product                                     \
                         " %%tmm6, %%tmm5, %%tmm2\n\t" product                                     \
                         " %%tmm7, %%tmm5, %%tmm3\n\tdec %0\n\tjnz 1b\n\ttilerelease\n\t"          \
                         : "+r"(n)                                                                 \
                         : "m"(whole)                                                              \
                         : "cc");                                                                  \
    }
TILE_PRODUCTS(tile_products, "tdpbf16ps")
TILE_PRODUCTS(tile_byte_products, "tdpbssd")

int64_t machine_tile_products(bool of_bytes, int64_t turns) {
    enum { AT_ONCE = 1000 };
    const double start = now(2), most = 20e-3;
    int64_t done = 0;
    while (done < turns && now(2) - start < most) {
        const int64_t n = turns - done < AT_ONCE ? turns - done : AT_ONCE;
        of_bytes ? tile_byte_products(n) : tile_products(n);
        done += n;
    }
    return done;
}

PEAK(peak_dots, DOTS512)
PEAK(peak_bytes512, BYTES512)
PEAK(peak_bytes256, BYTES256)
PEAK(peak_pairs256, PAIRS256)
PEAK(peak_avx512, FMA512)
PEAK(peak_avx2, FMA256)
PEAK(peak_narrow, MULADD)
LOADED(loaded_avx512, zmm)
LOADED(loaded_avx2, ymm)
#else
int64_t machine_tile_products(bool of_bytes, int64_t turns) {
    (void)of_bytes, (void)turns;
    return 0;
}

static void peak_narrow(int64_t n) {
    vnarrow a[FMA_CHAINS] = {{0}}, x = {1e-9f, 1e-9f, 1e-9f, 1e-9f};
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < FMA_CHAINS; j++)
            a[j] = a[j] * x + x;
    for (int j = 0; j < FMA_CHAINS; j++)
        __asm__ volatile("" ::"w"(a[j]));
}
#endif

static const struct loops {
    int lanes;
    void (*stream)(const float *x, size_t n);
    void (*read)(const float *x, size_t n);
    void (*copy)(float *y, const float *x, size_t n);
    void (*triad)(float *y, const float *x, const float *z, size_t n);
    void (*peak)(int64_t iterations);
    void (*loaded)(int64_t iterations); /* peak with operands from memory; NULL: there is none */
} all_loops[] = {
#if defined(__x86_64__)
    {16, stream_avx512, read_avx512, copy_avx512, triad_avx512, peak_avx512, loaded_avx512},
    {8, stream_avx2, read_avx2, copy_avx2, triad_avx2, peak_avx2, loaded_avx2},
#endif
    {4, stream_narrow, read_narrow, copy_narrow, triad_narrow, peak_narrow, NULL},
};

/* The operations of so many turns of the loops of multiply-adds. */
static double multiply_adds(const struct loops *l, int64_t turns) {
    return 2.0 * FMA_CHAINS * (double)l->lanes * (double)turns;
}

double machine_multiply_adds(int lanes, int64_t turns) {
    const struct loops *l = all_loops;
    while (l->lanes > lanes)
        l++;
    l->peak(turns);
    return multiply_adds(l, turns);
}

static const struct loops *widest(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return &all_loops[0];
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &all_loops[1];
    return &all_loops[2];
#else
    return &all_loops[0];
#endif
}

/* Dot products. Of each kind the widest comes first. */
static const struct dots {
    int kind;
    uint64_t feature;
    void (*run)(int64_t turns);
    int products; /* products of one instruction */
} all_dots[] = {
#if defined(__x86_64__)
    {STREAM_DOTS, HRT_CPU_AVX512BF16, peak_dots, 32},
    {STREAM_BYTES, HRT_CPU_AVX512VNNI, peak_bytes512, 64},
    {STREAM_BYTES, HRT_CPU_AVXVNNI, peak_bytes256, 32},
    {STREAM_BYTES, HRT_CPU_AVX2, peak_pairs256, 32},
#endif
    {0},
};

/* May this process use the matrix unit? The operating system has to be asked for permission. */
static bool has_tiles(void) {
    const uint64_t need = HRT_CPU_AMXTILE | HRT_CPU_AMXBF16;
    const uint64_t have = hrt_detect(hrt_cpuid_here()).features & need;
    return hrt_permitted(hrt_cpuid_here(), have) == need;
}

/* ---- samples --------------------------------------------------------------------------------- */

struct machine {
    int threads, capacity; /* threads in use; threads that have memory */
    const struct loops *loops;
    float *area[256], *weights[256]; /* in huge pages, which sessions and weights may have */
    uint64_t features;
    bool tiles;             /* there is a matrix unit */
    const hadal_comm *comm; /* of ranks that sample together; NULL: this process is alone */
    int64_t comm_timeout;
    uint64_t cpus; /* machine_cpus_here, for ranks */
    samples at[LIMIT_COUNT];
};

/* Fills memory by the thread that will use it, so that its pages lie near that thread. The numbers
 * are none that slow arithmetic down. */
static void fill(float *x, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof *x; i++)
        x[i] = 0.01f;
}

/* Memory in huge pages where the system has any; NULL: there is none. */
static void *huge_pages(size_t bytes) {
    void *at = aligned_alloc(HD_HUGE_PAGE, bytes);
    if (at) hd_advise_huge_pages(at, bytes);
    return at;
}

machine *machine_open(int threads) {
    machine *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->capacity = m->threads = threads < 1 ? 1 : threads > 256 ? 256 : threads;
    m->loops = widest();
    m->features = hrt_detect(hrt_cpuid_here()).features, m->tiles = has_tiles();
    for (int t = 0; t < m->threads; t++) {
        m->area[t] = huge_pages(AREA);
        m->weights[t] = huge_pages(WEIGHTS);
        if (!m->area[t] || !m->weights[t]) {
            machine_close(m);
            return NULL;
        }
    }
#pragma omp parallel num_threads(m->threads)
    {
        const int t = omp_get_thread_num();
        fill(m->area[t], AREA);
        fill(m->weights[t], WEIGHTS);
    }
    return m;
}

void machine_close(machine *m) {
    for (int t = 0; m && t < m->capacity; t++) {
        free(m->area[t]);
        free(m->weights[t]);
    }
    free(m);
}

void machine_use(machine *m, int threads) {
    m->threads = threads < 1 ? 1 : threads > m->capacity ? m->capacity : threads;
    machine_forget(m);
}

void machine_use_vectors(machine *m, unsigned lanes) {
    const struct loops *last = all_loops + sizeof all_loops / sizeof *all_loops - 1;
    while (m->loops < last && (unsigned)m->loops->lanes > lanes)
        m->loops++;
    machine_forget(m);
}

void machine_use_features(machine *m, unsigned lanes, uint64_t features) {
    m->features &= features;
    m->tiles &= (features & HRT_CPU_AMXTILE) != 0;
    machine_use_vectors(m, lanes);
}

void machine_share(machine *m, const hadal_comm *c, int64_t timeout_ns) {
    m->comm = c;
    m->comm_timeout = timeout_ns;
    m->cpus = machine_cpus_here();
}

int machine_threads(const machine *m) {
    return m->threads;
}

/* The dot products of this kind; NULL: the CPU has none. */
static const struct dots *dots_of(const machine *m, int kind) {
    for (size_t i = 0; i < sizeof all_dots / sizeof *all_dots; i++)
        if (all_dots[i].kind == kind && m->features & all_dots[i].feature) return &all_dots[i];
    return NULL;
}

/* One pass over `bytes` of one thread's memory. The result is the bytes read and written. */
static double pass(const machine *m, float *area, int kind, size_t bytes) {
    const size_t n = bytes / sizeof(float);
    switch (kind) {
    case STREAM_MEMORY: m->loops->stream(area, n); return (double)bytes;
    case STREAM_READ: m->loops->read(area, n); return (double)bytes;
    case STREAM_COPY: m->loops->copy(area, area + n / 2, n / 2); return (double)bytes;
    case STREAM_TRIAD:
        m->loops->triad(area, area + n / 3, area + n / 3 * 2, n / 3);
        return (double)bytes;
    case STREAM_DOTS:
    case STREAM_BYTES:
        dots_of(m, kind)->run(FMA_TURNS);
        return 2.0 * FMA_TURNS * FMA_CHAINS * dots_of(m, kind)->products;
    case STREAM_LOADS: m->loops->loaded(FMA_TURNS); return multiply_adds(m->loops, FMA_TURNS);
    case STREAM_TILES: return (double)machine_tile_products(false, TILE_TURNS) * MACHINE_TILE_FLOPS;
    default: return machine_multiply_adds(m->loops->lanes, FMA_TURNS);
    }
}

/* Runs the loop on all threads. The result is the bytes read and written, or the operations;
 * *seconds: how long it took, by the clock now(clock). */
static double run(machine *m, const loop *l, int clock, double *seconds) {
    enum { LEAST_BYTES = 64 << 20, MEMORY_PASSES = 4 }; /* the limit that matters most: longer */
    const size_t bytes = l->bytes;
    size_t passes = bytes == 0 || bytes >= LEAST_BYTES ? 1 : LEAST_BYTES / bytes;
    if (l->kind == STREAM_MEMORY) passes = MEMORY_PASSES;
    double done = 0, start = 0;
#pragma omp parallel num_threads(m->threads) reduction(+ : done)
    {
        const int t = omp_get_thread_num();
        float *area = l->kind == STREAM_MEMORY ? m->weights[t] : m->area[t];
        if (bytes && bytes < LEAST_BYTES) pass(m, area, l->kind, bytes); /* into the cache */
#pragma omp barrier
#pragma omp master
        start = now(clock);
#pragma omp barrier
        for (size_t i = 0; i < passes; i++)
            done += pass(m, area, l->kind, bytes);
    }
    *seconds = now(clock) - start;
    return done;
}

static bool is_there(const machine *m, int kind) {
    if (kind == STREAM_DOTS || kind == STREAM_BYTES) return dots_of(m, kind) != NULL;
    if (kind == STREAM_LOADS) return m->loops->loaded != NULL;
    return kind != STREAM_TILES || m->tiles;
}

/* The rate of the loop, repeated for so many seconds on the wall. */
static double rate_for(machine *m, const loop *l, double seconds) {
    const double begun = now(ON_THE_WALL);
    double done = 0, taken = 0, each;
    do {
        done += run(m, l, ON_THE_WALL, &each);
        taken += each;
    } while (now(ON_THE_WALL) - begun < seconds);
    return done / taken;
}

bool machine_is_shared(const machine *m) {
    return m->comm != NULL;
}

double machine_of_ranks(const machine *m, double mine) {
    double all;
    if (!m->comm) return mine;
    return machine_slowest_of_ranks(m->comm, m->comm_timeout, m->cpus, mine, &all) ? 0 : all;
}

/* The rate when all ranks run the loop. Ranks that share CPUs take turns of some milliseconds, so
 * each measures over several turns. 0: some rank has no such limit, or a collective failed. */
static double rate_of_ranks(machine *m, const loop *l) {
    const double turns = 0.03;
    const hadal_comm *c = m->comm;
    double slowest;
    if (machine_slowest_of_ranks(c, m->comm_timeout, m->cpus, 0, &slowest))
        return 0; /* a barrier: all ranks begin */
    const double mine = is_there(m, l->kind) ? rate_for(m, l, turns) : 0;
    return machine_slowest_of_ranks(c, m->comm_timeout, m->cpus, mine, &slowest) ? 0 : slowest;
}

/* The rate of the loop; 0: the machine has no such limit. */
static double rate(machine *m, const loop *l) {
    double seconds;
    if (m->comm) return rate_of_ranks(m, l);
    if (!is_there(m, l->kind)) return 0;
    const double done = run(m, l, m->threads, &seconds);
    return done / seconds;
}

double machine_multiply_add_rate(int threads, unsigned lanes) {
    enum { TIMES = 2 };
    machine m = {.threads = threads, .capacity = threads, .loops = widest()};
    double best = 0;
    machine_use_vectors(&m, lanes);
    for (int i = 0; i < TIMES; i++)
        best = fmax(best, rate(&m, &limits[LIMIT_FMA]));
    return best;
}

void machine_sample(machine *m) {
    for (int l = 0; l < LIMIT_COUNT; l++) {
        const double x = rate(m, &limits[l]);
        if (x > 0) sample(&m->at[l], x);
    }
}

double machine_pulse(machine *m) {
    return rate(m, &limits[is_there(m, STREAM_LOADS) ? LIMIT_LOADS : LIMIT_FMA]);
}

double machine_of_cores(const machine *m) {
    const double loads = machine_limit(m, LIMIT_LOADS), fma = machine_limit(m, LIMIT_FMA);
    return loads > 0 && loads < fma ? loads / fma : 1;
}

/* ---- capacity of the caches ------------------------------------------------------------------ */

static double median_rate(machine *m, const loop *l) {
    enum { TIMES = 5 };
    samples rates = {0};
    for (int i = 0; i < TIMES; i++)
        sample(&rates, rate(m, l));
    return median(&rates);
}

/* Reads ever larger areas, each of them repeatedly, with all threads at once. If an area of s bytes
 * is read at the rate r, then C(s) bytes of it were found in caches:
 *
 *     s / r = C / cached + (s - C) / memory
 *
 * Here `cached` is the rate of the largest area of which all but a tenth is found in caches. C
 * grows with s, and stays the same or falls once s is more than caches hold: the largest C
 * counts. */
machine_cache machine_measure_cache(machine *m) {
    enum { LEAST = 1 << 20, MOST = 64 << 20 };
    const double memory = median_rate(m, &limits[LIMIT_READ]);
    machine_cache held = {0};
    for (size_t bytes = LEAST; bytes <= MOST; bytes *= 2) {
        const double all = (double)bytes * m->threads;
        const double rate = median_rate(m, &(loop){"cached", STREAM_READ, bytes});
        if (rate <= memory) break;
        if (held.rate == 0) held.rate = rate;
        double found = all * (1 / memory - 1 / rate) / (1 / memory - 1 / held.rate);
        if (found >= 0.9 * all) found = all, held.rate = rate;
        if (found < held.bytes) break;
        held.bytes = found;
    }
    return held;
}

/* ---- bytes in flight from memory ------------------------------------------------------------- */

typedef struct chained { /* one cache line */
    struct chained *next;
    char rest[LINE - sizeof(struct chained *)];
} chained;

/* Links all lines into one circle, in an order that hardware cannot predict (Sattolo's shuffle). */
static void chain(chained *line, size_t n) {
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++)
        line[i].next = &line[i];
    for (size_t i = n - 1; i > 0; i--) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const size_t k = (size_t)(state >> 33) % i;
        chained *other = line[k].next;
        line[k].next = line[i].next, line[i].next = other;
    }
}

/* Seconds of a read that waits for the one before; no line is read twice. First other memory is
 * read, so that caches hold nothing of the chain any more. */
static double latency_of(machine *m, chained *at) {
    enum { BATCHES = 5, READS = 20000 };
    samples times = {0};
    (void)pass(m, m->area[0], STREAM_READ, AREA);
    for (int b = 0; b < BATCHES; b++) {
        const double start = now(1);
        for (int i = 0; i < READS; i++)
            at = *(chained *volatile *)&at->next;
        sample(&times, (now(1) - start) / READS);
    }
    return median(&times);
}

machine_flight machine_measure_flight(machine *m) {
    const int threads = m->threads;
    chained *line = huge_pages(WEIGHTS);
    if (!line) return (machine_flight){0};
    chain(line, WEIGHTS / sizeof *line);
    machine_flight f = {.latency = latency_of(m, line)};
    free(line);
    m->threads = 1;
    f.rate = median_rate(m, &limits[LIMIT_READ]);
    m->threads = threads;
    return f;
}

/* The median of batches: a batch in which a thread lost its CPU for a moment does not count. */
double machine_barrier(const machine *m) {
    enum { BATCHES = 15, WAITS = 1000 };
    hrt_barrier barrier = {0};
    samples times = {0};
#pragma omp parallel num_threads(m->threads)
    {
        hrt_patience patience = {HRT_SPIN_MOST};
        const unsigned threads = (unsigned)omp_get_num_threads();
        for (int b = 0; b < BATCHES; b++) {
            const double start = now(m->threads);
            for (int i = 0; i < WAITS; i++)
                hrt_barrier_wait(&barrier, threads, &patience, NULL);
#pragma omp master
            sample(&times, (now(m->threads) - start) / WAITS);
        }
    }
    return median(&times);
}

void machine_keep(machine *m, const bool *kept, size_t all) {
    for (int l = 0; l < LIMIT_COUNT; l++)
        if (m->at[l].n) keep_samples(&m->at[l], kept, all);
}

void machine_forget(machine *m) {
    for (int l = 0; l < LIMIT_COUNT; l++)
        m->at[l].n = 0;
}

double machine_limit(const machine *m, limit l) {
    return m->at[l].n ? median(&m->at[l]) : 0;
}

double machine_quantile(const machine *m, limit l, double q) {
    return quantile(&m->at[l], q);
}

double machine_latest(const machine *m, limit l) {
    return m->at[l].n ? m->at[l].at[m->at[l].n - 1] : 0;
}

double machine_spread(const machine *m, limit l) {
    return m->at[l].n ? spread(&m->at[l]) : 0;
}

double machine_drift(const machine *m, limit l) {
    return m->at[l].n ? drift(&m->at[l]) : 0;
}

const char *machine_limit_name(limit l) {
    return limits[l].name;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void rounds_begin(rounds *r, machine *m, size_t wanted) {
    memset(r, 0, sizeof *r);
    r->m = m;
    r->wanted = wanted;
    r->threshold = 0.85;
    machine_forget(m);
    machine_pulse(m); /* wakes the threads */
    machine_sample(m);
}

static void choose(rounds *r) {
    double best = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->pulse[i] > best) best = r->pulse[i];
    r->n_kept = 0;
    for (size_t i = 0; i < r->n; i++)
        r->n_kept += r->kept[i] = r->pulse[i] >= r->threshold * best;
}

/* Sample i of the limits was taken between round i - 1 and round i: it counts if one of these
 * rounds does. */
static void keep_limits(rounds *r) {
    bool kept[SAMPLES] = {false};
    for (size_t i = 0; i < r->n; i++)
        if (r->kept[i]) kept[i] = kept[i + 1] = true;
    machine_keep(r->m, kept, r->n + 1);
}

bool rounds_next(rounds *r) {
    const size_t most = 6 * r->wanted < SAMPLES - 1 ? 6 * r->wanted : SAMPLES - 1;
    if (r->n > 0) {
        const double after = machine_pulse(r->m);
        if (after < r->pulse[r->n - 1]) r->pulse[r->n - 1] = after;
        machine_sample(r->m);
        choose(r);
        if (r->n_kept >= r->wanted || r->n >= most) {
            keep_limits(r);
            return false;
        }
    }
    r->pulse[r->n++] = machine_pulse(r->m);
    return true;
}

void rounds_keep(const rounds *r, samples *s) {
    keep_samples(s, r->kept, r->n);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *unit_of(limit l) {
    return limits[l].kind == STREAM_BYTES ? "Gop/s" : l >= LIMIT_FMA ? "GFLOP/s" : "GB/s";
}

void machine_describe(const machine *m, hd_text *out) {
    hd_text_f(out, "limits of the machine, %d thread%s, median of %zu runs among those above:\n ",
              m->threads, m->threads == 1 ? "" : "s", m->at[0].n);
    for (int l = 0; l < LIMIT_COUNT; l++)
        if (m->at[l].n)
            hd_text_f(out, "%s %s %.0f %s (+-%.0f %%)", l ? "," : "", limits[l].name,
                      machine_limit(m, (limit)l) * 1e-9, unit_of((limit)l),
                      100 * machine_spread(m, (limit)l));
    hd_text_add(out, "\n");
}

void machine_describe_host(hd_text *out) {
    char line[256], cpu[256] = "unknown CPU", date[32];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(cpu, sizeof cpu, "%s", colon + 2);
        cpu[strcspn(cpu, "\n")] = 0;
        break;
    }
    if (f) fclose(f);
    const time_t t = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime(&t));
    double load[1] = {0};
    if (getloadavg(load, 1) != 1) load[0] = 0;
    hd_text_f(out, "%s, %s, %ld CPUs, load %.1f\n", date, cpu, sysconf(_SC_NPROCESSORS_ONLN),
              load[0]);
}
