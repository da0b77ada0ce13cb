/* Which variants are emitted: levels of the triple's architecture, or one for a given CPU.
 *
 * What a variant may use comes from the tables and, for "native", from CPUID's answers alone. A
 * CPU's name only chooses for which pipeline LLVM schedules. */
#include "codegen/target/target.h"

#include <string.h>

#include "runtime/detect.h"
#include "runtime/hadal_rt.h"

static const struct {
    const char *arch, *level, *beyond; /* features: the level's, and others */
    const char *names;                 /* " " between */
} cpus[] = {
#define C(arch, level, beyond, names) {arch, level, beyond, names},
#include "codegen/target/cpus.def"
#undef C
};
enum { N_CPUS = sizeof cpus / sizeof *cpus };

/* ---- sets of features ------------------------------------------------------------------------ */
static const struct {
    const char *name;
    uint64_t bit;
} feature_names[] = {
#define C(id, bit, name) {name, HRT_CPU_##id},
    HRT_CPU_FEATURES(C)
#undef C
};
enum { N_FEATURES = sizeof feature_names / sizeof *feature_names };

static uint64_t feature_bit(const char *name, size_t n) {
    for (size_t i = 0; i < N_FEATURES; i++)
        if (strlen(feature_names[i].name) == n && memcmp(feature_names[i].name, name, n) == 0)
            return feature_names[i].bit;
    return 0;
}

/* "avx avx2" */
static uint64_t parse_features(const char *text) {
    uint64_t set = 0;
    for (; *text; text += strspn(text, " ")) {
        size_t n = strcspn(text, " ");
        set |= feature_bit(text, n);
        text += n;
    }
    return set;
}

/* In target/levels.def's way: " " between, "" before each. In LLVM's: "," and "+". */
static const char *feature_list(hd_arena *a, uint64_t set, const char *between,
                                const char *before) {
    hd_text text;
    hd_text_init(&text, a);
    hd_text_add(&text, "");
    for (size_t i = 0; i < N_FEATURES; i++)
        if (set & feature_names[i].bit)
            hd_text_f(&text, "%s%s%s", text.n ? between : "", before, feature_names[i].name);
    return text.at;
}

const char *hcg_feature_names(hd_arena *a, uint64_t features) {
    return feature_list(a, features, " ", "");
}

/* ---- triples --------------------------------------------------------------------------------- */
#if defined(__x86_64__)
#define HERE "x86_64"
#elif defined(__aarch64__)
#define HERE "aarch64"
#else
#error "Hadal makes code for x86-64 and aarch64, and runs there"
#endif

const char *hcg_arch(hd_arena *a, const char *triple) {
    const char *arch = triple ? hd_strndup(a, triple, strcspn(triple, "-")) : HERE;
    return strcmp(arch, "arm64") == 0 ? "aarch64" : arch;
}

bool hcg_is_foreign(const char *arch) {
    return strcmp(arch, HERE) != 0;
}

static bool find_triple(const hcg_request *r, hd_arena *a, hd_diags *d, hcg_target *t) {
    const char *arch = t->arch = hcg_arch(a, r->triple);
    t->triple = r->triple ? r->triple : HERE "-linux-gnu";
    const bool known = strcmp(arch, "x86_64") == 0 || strcmp(arch, "aarch64") == 0;
    if (!known || !strstr(t->triple, "linux")) {
        hd_err(d, HD_E_TARGET, HD_NOWHERE, "no code can be made for the target \"%s\"", r->triple)
            ->hint = "targets: x86_64-linux-gnu, aarch64-linux-gnu";
        return false;
    }
    return true;
}

/* ---- variants -------------------------------------------------------------------------------- */
uint64_t hcg_level_features(const hcg_level *level) {
    return parse_features(level->features);
}

hcg_variant hcg_variant_of_level(hd_arena *a, const hcg_level *level) {
    uint64_t features = hcg_level_features(level);
    return (hcg_variant){.level = *level,
                         .tune = level->cpu,
                         .llvm_features = feature_list(a, features, ",", "+"),
                         .features = features};
}

const hcg_level *hcg_best_level(const char *arch, uint64_t features) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (strcmp(levels[i].arch, arch) == 0 && !(hcg_level_features(&levels[i]) & ~features))
            return &levels[i];
    return NULL;
}

const hcg_level *hcg_level_named(const char *arch, const char *name) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (strcmp(levels[i].arch, arch) == 0 && strcmp(levels[i].name, name) == 0)
            return &levels[i];
    return NULL;
}

/* The next name of a list, "haswell broadwell"; false: there is none left. */
static bool next_name(const char **list, const char **name, size_t *n) {
    *name = *list;
    *n = strcspn(*list, " ");
    *list += *n + strspn(*list + *n, " ");
    return *n > 0;
}

/* The features of a CPU by its name; false: the table lacks it. */
static bool find_cpu(const char *arch, const char *wanted, uint64_t *features) {
    for (size_t i = 0; i < N_CPUS; i++) {
        const char *list = cpus[i].names, *name;
        size_t n;
        while (strcmp(cpus[i].arch, arch) == 0 && next_name(&list, &name, &n)) {
            if (strlen(wanted) != n || memcmp(wanted, name, n) != 0) continue;
            const hcg_level *level = hcg_level_named(arch, cpus[i].level);
            hd_known(level);
            *features = hcg_level_features(level) | parse_features(cpus[i].beyond);
            return true;
        }
    }
    return false;
}

/* Makes one variant for a CPU: the best level that it has, plus its features beyond the level.
 * `name`: LLVM's name to tune for; NULL: the level's. */
static void add_cpu(hd_arena *a, hcg_target *t, const char *name, uint64_t features) {
    const hcg_level *level = hcg_best_level(t->arch, features);
    if (!level) return;
    hcg_variant v = {.level = *level,
                     .tune = name ? name : level->cpu,
                     .llvm_features = feature_list(a, features, ",", "+"),
                     .features = features};
    if (name) v.level.name = name;
    v.level.features = feature_list(a, features, " ", "");
    hd_push(a, &t->variants, v);
}

/* LLVM's name for the CPU, unless it names an older one: hypervisors mask model numbers, and LLVM
 * then takes, for example, a Granite Rapids for a Rocket Lake, which lacks some of its features. */
static const char *trusted_name(const char *name, const char *arch, uint64_t features) {
    uint64_t known;
    return name && find_cpu(arch, name, &known) && !(features & ~known) ? name : NULL;
}

/* The CPU that the compiler runs on, as CPUID describes it. */
static bool add_native(const hcg_request *r, hd_arena *a, hd_diags *d, hcg_target *t) {
    if (hcg_is_foreign(t->arch)) {
        hd_err(d, HD_E_TARGET, HD_NOWHERE, "\"native\" is not a CPU of %s", t->triple)->hint =
            "name the CPU that the library shall run on";
        return false;
    }
    const hrt_cpuid *cpuid = r->cpuid ? r->cpuid : hrt_cpuid_here();
    hrt_machine here = hrt_detect(cpuid);
    here.features = hrt_permitted(cpuid, here.features);
    add_cpu(a, t, trusted_name(r->host_cpu, t->arch, here.features), here.features);
    hd_known(t->variants.at);
    hd_machine *m = &t->variants.at[0].level.machine;
    *m = hd_machine_or(here.facts, *m);
    return true;
}

/* Suggests the nearest name, or, where none is near, all names. */
static bool unknown_cpu(const char *wanted, hd_arena *a, hd_diags *d, const hcg_target *t) {
    HD_VEC(const char *) names = {0};
    const hcg_level *levels;
    const size_t n_levels = hcg_levels(&levels);
    hd_push(a, &names, "native");
    for (size_t i = 0; i < n_levels; i++)
        if (strcmp(levels[i].arch, t->arch) == 0) hd_push(a, &names, levels[i].name);
    for (size_t i = 0; i < N_CPUS; i++) {
        const char *list = cpus[i].names, *name;
        size_t n;
        while (strcmp(cpus[i].arch, t->arch) == 0 && next_name(&list, &name, &n))
            hd_push(a, &names, hd_strndup(a, name, n));
    }
    hd_text all;
    hd_text_init(&all, a);
    for (size_t i = 0; i < names.n; i++)
        hd_text_f(&all, "%s%s", i ? ", " : "", names.at[i]);
    const char *near = hd_nearest(wanted, names.at, names.n);
    hd_err(d, HD_E_TARGET, HD_NOWHERE, "there is no %s CPU \"%s\"", t->arch, wanted)->hint =
        near ? hd_printf(a, "did you mean \"%s\"?", near) : all.at;
    return false;
}

/* The next level of the architecture, with the same vectors and otherwise the same code? */
static bool is_redundant(const hcg_request *r, const hcg_level *level, const hcg_level *end) {
    const hcg_level *next = level + 1;
    while (next < end && strcmp(next->arch, level->arch) != 0)
        next++;
    if (next == end || next->lanes != level->lanes || next->registers != level->registers ||
        next->fma != level->fma)
        return false;
    return !r->same_code || r->same_code(r->context, level, next);
}

/* The levels, with the facts that the user gives of the machine. */
static const hcg_level *levels_on(hd_arena *a, hd_machine machine, size_t *n) {
    const hcg_level *levels;
    *n = hcg_levels(&levels);
    hcg_level *out = hd_new_array(a, hcg_level, *n);
    for (size_t i = 0; i < *n; i++) {
        out[i] = levels[i];
        out[i].machine = hd_machine_or(machine, levels[i].machine);
    }
    return out;
}

static bool add_variants(const hcg_request *r, hd_arena *a, hd_diags *d, hcg_target *t) {
    const char *cpu_name = r->cpu;
    size_t n;
    const hcg_level *levels = levels_on(a, r->machine, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(levels[i].arch, t->arch) == 0 &&
            (cpu_name ? strcmp(cpu_name, levels[i].name) == 0
                      : !is_redundant(r, &levels[i], levels + n)))
            hd_push(a, &t->variants, hcg_variant_of_level(a, &levels[i]));
    if (t->variants.n > 0) return true;
    hd_known(cpu_name); /* without a name there is a variant for the lowest level at least */
    if (strcmp(r->cpu, "native") == 0) return add_native(r, a, d, t);
    uint64_t features;
    if (!find_cpu(t->arch, r->cpu, &features)) return unknown_cpu(r->cpu, a, d, t);
    add_cpu(a, t, r->cpu, features);
    return true;
}

bool hcg_choose_variants(const hcg_request *r, hd_arena *a, hd_diags *d, hcg_target *out) {
    *out = (hcg_target){0};
    if (!find_triple(r, a, d, out) || !add_variants(r, a, d, out)) return false;
    for (size_t i = 0; i < out->variants.n; i++)
        out->variants.at[i].level.machine =
            hd_machine_or(r->machine, out->variants.at[i].level.machine);
    return true;
}
