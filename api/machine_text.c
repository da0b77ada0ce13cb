/* What Hadal detects on the machine that it runs on: `hadal machine`.
 *
 * The sources are those that the rest of Hadal uses: runtime/detect.h for features and caches, the
 * table of CPU levels, target detection for the CPU that "native" is scheduled for, api/machine.h
 * for the limits. */
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/machine.h"
#include "api/machine_clock.h"
#include "api/machine_kernels.h"
#include "api/machine_levels.h"
#include "api/machine_ranks.h"
#include "api/session.h"
#include "codegen/module/module.h"
#include "inspect/bench.h"
#include "inspect/format.h"
#include "runtime/detect.h"
#include "support/quota.h"

#define API_FAILED NULL

typedef struct facts {
    hd_arena *arena;
    hrt_machine here;
    machine_levels levels;
    const hcg_level *only; /* the level that is asked for; NULL: the best that the machine runs */
    hcg_variant code;      /* that of this level, or "native" */
    int cpus, allowed;     /* CPUs of the machine; CPUs that this process may use */
    bool by_quota;         /* a quota allows fewer of them than the affinity does */
    uint64_t memory;       /* bytes; 0: not known */
    char huge_pages[16];   /* always, madvise or never: for memory of processes; "": not known */
    machine *limits;       /* NULL: not measured */
    machine_links links;   /* .ranks is 0: there are no other ranks */
    machine_cache cache;
    machine_flight flight;
    machine_clock clock;
    double barrier; /* seconds */
    machine_kernels kernels;
    rounds tried; /* rounds in which the limits were measured */
    double cpu;   /* the share of the time in which threads that could run had a CPU */
    bool busy;    /* the machine was busy: the limits are too low, or accidental */
} facts;

/* Number of threads for which there is memory: measuring takes 160 MB for each, and leaves half of
 * the free memory. */
static int threads_with_memory(int wanted) {
    enum { EACH = 160 << 20 };
    const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages < 1 || page < 1) return 1;
    const long most = pages / 2 / (EACH / page);
    return most < 1 ? 1 : most < wanted ? (int)most : wanted;
}

static uint64_t memory_here(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages < 1 || page < 1 ? 0 : (uint64_t)pages * (uint64_t)page;
}

/* The word in brackets in "always [madvise] never". */
static void find_huge_pages(char *word, size_t size) {
    char line[64] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    if (f) fclose(f);
    const char *at = strchr(line, '[');
    const size_t n = at ? strcspn(at + 1, "]") : 0;
    snprintf(word, size, "%.*s", (int)n, n ? at + 1 : "");
}

/* Measures how long collectives take, if there are other ranks. */
static bool measure_links(hadal_session *s, facts *f) {
    const hadal_comm *c = s->comm;
    if (!c || c->size == 1 || !machine_measure_links(c, s->comm_timeout, &f->links)) return true;
    hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "a collective between ranks failed: %s",
           c->message(c->context));
    return false;
}

/* Does the limit vary from one moment to the next by as much as hadal bench warns of? */
static bool is_restless(const machine *m, limit l) {
    return machine_drift(m, l) > BENCH_DRIFT || machine_spread(m, l) > BENCH_DRIFT;
}

/* Measures the limits in rounds; those in which the machine was busy do not count. If it is always
 * busy, all rounds are alike: that is found by how long several threads had a CPU, since they never
 * rest. (One thread is measured by its CPU time; ranks wait for each other.) */
static void measure_limits(facts *f, bool alone) {
    enum { WANTED = 5 };
    const double least = 0.8;
    const int threads = machine_threads(f->limits);
    const int running = threads < f->allowed ? threads : f->allowed;
    const double wall = now(ON_THE_WALL), cpu = cpu_seconds();
    rounds_begin(&f->tried, f->limits, WANTED);
    while (rounds_next(&f->tried)) {
    }
    f->cpu = (cpu_seconds() - cpu) / ((now(ON_THE_WALL) - wall) * running);
    f->busy = f->tried.n_kept < WANTED || (alone && threads > 1 && f->cpu < least) ||
              is_restless(f->limits, LIMIT_FMA) || is_restless(f->limits, LIMIT_READ) ||
              machine_of_cores(f->limits) < BENCH_CORES;
}

/* Of several ranks, all of which have the same figures, only the first warns. */
static void warn_if_busy(hadal_session *s, const facts *f) {
    if (!f->busy || (s->comm && s->comm->rank > 0)) return;
    hd_diag *w = hd_warn(&s->diags, HD_E_RUNTIME, HD_NOWHERE,
                         "the machine was busy while it was measured: its limits are higher");
    w->cause = hd_printf(
        s->arena,
        "%zu of %zu rounds count, in which f32 multiply-adds differ by +-%.0f %% "
        "and memory read by +-%.0f %%; threads had %.0f %% of their CPUs, and %.2f of what a "
        "core executes",
        f->tried.n_kept, f->tried.n, 100 * machine_spread(f->limits, LIMIT_FMA),
        100 * machine_spread(f->limits, LIMIT_READ), 100 * f->cpu, machine_of_cores(f->limits));
    w->hint = "measure again when nothing else runs; hadal plan warns of such a host";
}

/* Does the machine run the level, and is it asked for? */
static bool counts(const facts *f, const hcg_level *level) {
    return machine_is_of(&f->levels, level) && !machine_lacks(&f->levels, level) &&
           (!f->only || f->only == level);
}

/* The widest that code of the level puts to work. */
static clock_load load_of(const hcg_level *level) {
    int l = CLOCK_SCALAR;
    if (hcg_has_feature(level, "amx-tile")) return CLOCK_TILES;
    while (machine_clock_lanes((clock_load)l) != level->lanes)
        l++;
    return (clock_load)l;
}

static void measure_clock(facts *f) {
    bool may_use[CLOCK_LOADS] = {[CLOCK_SCALAR] = true};
    for (size_t i = 0; i < f->levels.n; i++)
        if (counts(f, &f->levels.at[i])) may_use[load_of(&f->levels.at[i])] = true;
    f->clock = machine_measure_clock(machine_threads(f->limits), may_use);
}

static bool measure(hadal_session *s, facts *f, int threads, const char *folder) {
    if (threads == 0) return true;
    if (threads < 0) threads = threads_with_memory(f->allowed);
    f->limits = machine_open(threads);
    if (!f->limits) {
        hd_err(&s->diags, HD_E_MEMORY, HD_NOWHERE, "there is no memory to measure with")->hint =
            "each thread takes 160 MB: --threads 1, or 0 for no limits";
        return false;
    }
    if (s->comm && s->comm->size > 1) machine_share(f->limits, s->comm, s->comm_timeout);
    if (f->only) machine_use_features(f->limits, f->only->lanes, hcg_level_features(f->only));
    f->barrier = machine_barrier(f->limits);
    if (folder)
        machine_measure_kernels(f->limits, s->arena, f->only ? f->only->name : "native", folder,
                                f->barrier, &f->kernels);
    measure_limits(f, !s->comm || s->comm->size == 1);
    warn_if_busy(s, f);
    f->cache = machine_measure_cache(f->limits);
    f->flight = machine_measure_flight(f->limits);
    measure_clock(f);
    return measure_links(s, f);
}

static bool find_facts(hadal_session *s, facts *f, const char *level) {
    const char *arch = hcg_arch(s->arena, NULL);
    const hcg_options options = {.cpu = level ? level : "native"};
    hcg_target t;
    f->arena = s->arena;
    f->here = hrt_detect(hrt_cpuid_here());
    f->levels =
        machine_levels_of(arch, hrt_permitted(hrt_cpuid_here(), f->here.features), f->here.facts);
    f->only = level ? machine_find_level(s, &f->levels, level) : NULL;
    if (level && !f->only) return false;
    if (!hcg_find_target(&options, s->arena, &s->diags, &t)) return false;
    f->code = t.variants.at[0];
    f->cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    f->allowed = omp_get_num_procs();
    f->by_quota = hd_quota() < f->allowed;
    if (f->by_quota) f->allowed = hd_quota();
    f->memory = memory_here();
    find_huge_pages(f->huge_pages, sizeof f->huge_pages);
    return true;
}

/* The rates of the machine model as they were measured; a limit that the machine does not have is
 * 0. */
static hd_machine measured_rates(const facts *f) {
    const double fma = machine_limit(f->limits, LIMIT_FMA);
    return (hd_machine){
        .bf16_dots = (uint32_t)(100 * machine_limit(f->limits, LIMIT_DOTS) / fma + 0.5),
        .matrix_unit = (uint32_t)(100 * machine_limit(f->limits, LIMIT_TILES) / fma + 0.5)};
}

/* ---- text ------------------------------------------------------------------------------------ */
/* Prints the rates that are not among the "facts", which are those that code generation uses. */
static void print_rates(const facts *f, hd_text *out) {
    hd_machine m = measured_rates(f);
    if (!m.bf16_dots && !m.matrix_unit) return;
    hd_text_add(out, "rates, of which f32 multiply-adds are 100, measured: ");
    hd_machine_print(m, out);
    hd_text_add(out, "\n");
}

static void print_links(const machine_links *l, hd_text *out) {
    hd_text_f(out, "ranks         %d, each of which has the limits below while all are at work\n",
              (int)l->ranks);
    hd_text_f(out, "collectives   %.1f us, and %.3g Gbit/s that leave a rank\n", 1e6 * l->latency,
              1e-9 * l->network);
}

static void print_cache(const facts *f, hd_text *out) {
    if (f->cache.bytes > 0)
        hd_text_f(out, "%s stay in caches when they are read again, at %.0f GB/s\n",
                  inspect_bytes(f->arena, (uint64_t)f->cache.bytes), f->cache.rate * 1e-9);
}

/* Bytes in flight as the machine model has them (in_flight), in whole lines. */
static uint32_t bytes_in_flight(machine_flight f) {
    const double bytes = f.rate * f.latency;
    return bytes > 0 && bytes < 1 << 30 ? (uint32_t)bytes / 64 * 64 : 0;
}

static void print_flight(machine_flight f, hd_text *out) {
    hd_text_f(out,
              "one core has %u bytes on their way from memory: it reads %.0f GB/s, and a read that "
              "waits takes %.0f ns\n",
              bytes_in_flight(f), f.rate * 1e-9, f.latency * 1e9);
}

/* Calls `print` for each level that lowers the clock, with what it goes down by. */
static int each_throttled(const facts *f, hd_text *out,
                          void (*print)(const hcg_level *l, double by, bool first, hd_text *out)) {
    int n = 0;
    for (size_t i = 0; i < f->levels.n; i++) {
        const hcg_level *l = &f->levels.at[i];
        if (!counts(f, l)) continue;
        const double by = machine_throttled_by(&f->clock, load_of(l));
        if (by > 0) print(l, by, n++ == 0, out);
    }
    return n;
}

static void print_throttled(const hcg_level *l, double by, bool first, hd_text *out) {
    hd_text_f(out, "%s%s by %.0f %%", first ? "" : ", ", l->name, 100 * by);
}

static void print_clock(const facts *f, hd_text *out) {
    const char *between = "; of it";
    if (f->clock.hertz <= 0) {
        hd_text_f(out, "the clock was not measured: it moved by %.0f %% between rounds\n",
                  100 * f->clock.moved);
        return;
    }
    hd_text_f(out, "the clock is %.2f GHz with scalar code", f->clock.hertz * 1e-9);
    for (int l = CLOCK_SCALAR + 1; l < CLOCK_LOADS; l++) {
        const unsigned lanes = machine_clock_lanes((clock_load)l);
        if (f->clock.share[l] <= 0) continue;
        hd_text_f(out, "%s %.2f with ", between, f->clock.share[l]);
        if (lanes)
            hd_text_f(out, "vectors of %u f32", lanes);
        else
            hd_text_add(out, "tiles");
        between = ",";
    }
    hd_text_add(out, "\nlevels whose width lowers the clock: ");
    hd_text_add(out, each_throttled(f, out, print_throttled) ? "\n" : "none\n");
}

static void print_text(const facts *f, hd_text *out) {
    const char *features = hcg_feature_names(f->arena, f->here.features);
    machine_describe_host(out);
    hd_text_f(out, "architecture  %s\n", f->code.level.arch);
    hd_text_f(out, "features      %s\n", *features ? features : "those of every such CPU");
    machine_levels_text(&f->levels, out);
    hd_text_f(out, "%-13s scheduled for %s, vectors of %u f32\n",
              f->only ? f->only->name : "native", f->code.tune, f->code.level.lanes);
    hd_text_add(out, "facts         ");
    hd_machine_print(f->code.level.machine, out);
    hd_text_add(out, "\n");
    hd_text_f(out, "CPUs          %d, of which this process may use %d%s\n", f->cpus, f->allowed,
              f->by_quota ? ", by the quota of its cgroup" : "");
    if (f->memory) hd_text_f(out, "memory        %s\n", inspect_bytes(f->arena, f->memory));
    if (*f->huge_pages)
        hd_text_f(out, "huge pages    %s%s\n", f->huge_pages,
                  strcmp(f->huge_pages, "never") == 0
                      ? ": --weights-load read gives pages of the usual size"
                      : "");
    if (f->links.ranks) print_links(&f->links, out);
    if (f->limits) machine_describe(f->limits, out);
    if (f->limits) print_cache(f, out);
    if (f->flight.latency > 0) print_flight(f->flight, out);
    if (f->limits) hd_text_f(out, "a barrier of the threads takes %.2f us\n", 1e6 * f->barrier);
    if (f->limits) print_rates(f, out);
    if (f->limits) print_clock(f, out);
    machine_describe_kernels(&f->kernels, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */
/* Prints each limit's value, after what the object holds already. */
static void print_of_limits(const machine *m, double (*value)(const machine *m, limit l),
                            const char *between, hd_text *out) {
    for (int l = 0; l < LIMIT_COUNT; l++) {
        if (machine_limit(m, (limit)l) == 0) continue; /* the machine has no such unit */
        hd_text_f(out, "%s\n    \"%s\": ", between, machine_limit_name((limit)l));
        hd_text_double(out, value(m, (limit)l));
        between = ",";
    }
    hd_text_add(out, "}");
}

static void print_limits(const facts *f, hd_text *out) {
    hd_text_f(out, ",\n  \"limits\": {\"threads\": %d", machine_threads(f->limits));
    print_of_limits(f->limits, machine_limit, ",", out);
    hd_text_add(out, ",\n  \"spread\": {");
    print_of_limits(f->limits, machine_spread, "", out);
    hd_text_f(out, ",\n  \"rounds\": %zu, \"rounds_tried\": %zu, \"busy\": %s", f->tried.n_kept,
              f->tried.n, f->busy ? "true" : "false");
}

/* Prints the links as facts for --host of hadal plan. */
static void print_links_json(const machine_links *l, hd_text *out) {
    hd_text_f(out, ",\n  \"ranks\": %d, \"latency\": ", (int)l->ranks);
    hd_text_double(out, l->latency);
    if (l->network > 0) {
        hd_text_add(out, ", \"network\": ");
        hd_text_double(out, l->network);
    }
}

/* Prints the caches as facts for --host of hadal plan. */
static void print_cache_json(machine_cache c, hd_text *out) {
    if (c.bytes <= 0) return;
    hd_text_f(out, ",\n  \"cache\": %.0f, \"cached\": ", c.bytes);
    hd_text_double(out, c.rate);
}

static void print_flight_json(machine_flight f, hd_text *out) {
    if (f.latency <= 0) return;
    hd_text_f(out, ",\n  \"in_flight\": %u, \"memory_latency\": ", bytes_in_flight(f));
    hd_text_double(out, f.latency);
    hd_text_add(out, ", \"core_read\": ");
    hd_text_double(out, f.rate);
}

static void print_throttled_json(const hcg_level *l, double by, bool first, hd_text *out) {
    hd_text_f(out, "%s\"%s\": ", first ? "" : ", ", l->name);
    hd_text_double(out, by);
}

static void print_clock_json(const facts *f, hd_text *out) {
    hd_text_add(out, ",\n  \"clock\": {");
    if (f->clock.hertz <= 0) {
        hd_text_add(out, "\"moved\": ");
        hd_text_double(out, f->clock.moved);
        hd_text_add(out, "}");
        return;
    }
    hd_text_add(out, "\"hertz\": ");
    hd_text_double(out, f->clock.hertz);
    hd_text_add(out, ", \"share\": {");
    for (int l = 0; l < CLOCK_LOADS; l++) {
        if (f->clock.share[l] <= 0) continue;
        hd_text_f(out, "%s\"%s\": ", l ? ", " : "", machine_clock_name((clock_load)l));
        hd_text_double(out, f->clock.share[l]);
    }
    hd_text_add(out, "}, \"throttled\": {");
    each_throttled(f, out, print_throttled_json);
    hd_text_add(out, "}}");
}

static void print_measured_rates(const facts *f, hd_text *out) {
    hd_text_add(out, ",\n  \"rates\": ");
    hd_machine_print_json(measured_rates(f), out);
}

static void print_json(const facts *f, hd_text *out) {
    hd_text_f(out, "{\"schema\": \"hadal-machine-1\", \"architecture\": \"%s\",\n  \"features\": ",
              f->code.level.arch);
    inspect_json_words(out, hcg_feature_names(f->arena, f->here.features));
    machine_levels_json(&f->levels, out);
    if (f->only) hd_text_f(out, ",\n  \"level\": \"%s\"", f->only->name);
    hd_text_f(out, ",\n  \"scheduled_for\": \"%s\", \"lanes\": %u,\n  \"found\": ", f->code.tune,
              f->code.level.lanes);
    hd_machine_print_json(f->here.facts, out);
    hd_text_add(out, ", \"assumed\": ");
    hd_machine_print_json(f->code.level.machine, out);
    hd_text_f(out, ",\n  \"cpus\": %d, \"allowed\": %d", f->cpus, f->allowed);
    if (f->memory) hd_text_f(out, ", \"memory\": %llu", (unsigned long long)f->memory);
    if (*f->huge_pages) hd_text_f(out, ", \"huge_pages\": \"%s\"", f->huge_pages);
    if (f->links.ranks) print_links_json(&f->links, out);
    if (f->limits) {
        hd_text_add(out, ",\n  \"barrier\": ");
        hd_text_double(out, f->barrier);
        print_cache_json(f->cache, out);
        print_flight_json(f->flight, out);
        print_limits(f, out);
    }
    if (f->limits) print_measured_rates(f, out);
    if (f->limits) print_clock_json(f, out);
    machine_kernels_json(&f->kernels, out);
    hd_text_add(out, "}\n");
}

const char *hadal_machine_text(hadal_session *s, int json, int threads, const char *folder,
                               const char *level) {
    API_ENTER(s);
    facts f = {0};
    hd_text text;
    hd_text_init(&text, s->arena);
    const bool ok = find_facts(s, &f, level) && measure(s, &f, threads, folder);
    if (ok) (json ? print_json : print_text)(&f, &text);
    machine_close(f.limits);
    API_RETURN(s, ok ? text.at : NULL);
}
