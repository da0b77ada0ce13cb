#include "bench/program.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/library.h"
#include "api/machine.h"
#include "codegen/target/target.h"
#include "hadal/hadal.h"
#include "support/file.h"

enum { MOST_TEXT = 1 << 28 };

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

numbers read_numbers(const char *text, int64_t least, int64_t most) {
    numbers out = {.n = 0};
    for (const char *at = text; at;) {
        char *end;
        const int64_t number = strtol(at, &end, 10);
        if (end == at || number < least || number > most || (*end && *end != ',') ||
            out.n == NUMBERS)
            fail("\"%s\" is not a list of at most %d numbers from %ld to %ld", text, NUMBERS,
                 (long)least, (long)most);
        out.at[out.n++] = number;
        at = *end ? end + 1 : NULL;
    }
    return out;
}

int64_t largest(const numbers *l) {
    int64_t most = l->at[0];
    for (size_t i = 1; i < l->n; i++)
        if (l->at[i] > most) most = l->at[i];
    return most;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void *symbol(const program *p, const char *suffix, bool needed) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", p->name, suffix);
    void *at = dlsym(p->library, full);
    if (!at && needed) fail("%s: no symbol %s", p->name, full);
    return at;
}

static char *joined(hd_arena *a, const char *dir, const char *prefix, const char *name,
                    const char *suffix) {
    return hd_printf(a, "%s/%s%s%s", dir, prefix, name, suffix);
}

static const hir_module *load_kernels(hd_arena *a, const char *path) {
    hd_diags *diags = hd_new(a, hd_diags);
    hd_diags_init(diags, a);
    if (!hd_exists(path)) return NULL;
    const char *text = hd_read_text(a, diags, path, MOST_TEXT, NULL);
    if (!text) fail("%s cannot be read", path);
    const hir_module *m = hir_parse(a, diags, path, text);
    if (!m) fail("%s is no kernel IR", path);
    return m;
}

/* Function pointers and data pointers have the same representation wherever dlsym exists. */
#define BIND(p, field, suffix, needed) *(void **)&(p)->field = symbol(p, suffix, needed)

program *program_load(const char *path) {
    program *p = calloc(1, sizeof *p);
    if (!p || !(p->arena = hd_arena_new())) fail("out of memory");
    const char *slash = strrchr(path, '/');
    char *dir = slash ? hd_printf(p->arena, "%.*s", (int)(slash - path), path) : ".";
    p->name = hd_strdup(p->arena, slash ? slash + 1 : path);
    const char *library = joined(p->arena, dir, "lib", p->name, ".so");
    if (!(p->library = dlopen(library, RTLD_NOW | RTLD_LOCAL))) fail("%s", dlerror());
    const hd_info *(*get_info)(void);
    *(void **)&get_info = symbol(p, "_info", true);
    p->weights_size = get_info()->weights_size;
    BIND(p, strerror, "_strerror", true);
    BIND(p, call, "_call", false);
    BIND(p, work_size, "_work_size", p->call != NULL);
    BIND(p, forward, "_forward", p->call == NULL);
    BIND(p, session_size, "_session_size", p->call == NULL);
    BIND(p, session_init, "_session_init", p->call == NULL);
    BIND(p, set_threads, "_session_set_threads", p->call == NULL);
    BIND(p, forward_batch, "_forward_batch", false);
    BIND(p, rewind, "_session_rewind", p->call == NULL);
    if (p->weights_size) {
        int (*open)(const char *path, void **out);
        *(void **)&open = symbol(p, "_weights_open", true);
        const char *weights = joined(p->arena, dir, "", p->name, ".weights");
        const int code = open(weights, &p->weights);
        if (code) fail("%s: %s", weights, p->strerror(code));
    }
    p->kernels = load_kernels(p->arena, joined(p->arena, dir, "", p->name, ".kernel.hir"));
    for (size_t i = 0; p->kernels && i < p->kernels->weights.n; i++) {
        const hir_weight *w = &p->kernels->weights.at[i];
        if (strcmp(w->name, "model.embed_tokens.weight") == 0) p->vocab = w->type.dim[0];
    }
    return p;
}

void program_check(const program *p, int code) {
    if (code) fail("%s: %s", p->name, p->strerror(code));
}

void program_close(program *p) {
    if (!p) return;
    void (*close_weights)(void *weights);
    *(void **)&close_weights = symbol(p, "_weights_close", p->weights != NULL);
    if (p->weights) close_weights(p->weights);
    dlclose(p->library);
    hd_arena_free(p->arena);
    free(p);
}

/* ---- compiling ------------------------------------------------------------------------------- */

void compiler_check(hadal_session *s, int failed, const char *what) {
    if (!failed) return;
    for (size_t i = 0; i < hadal_diagnostics(s); i++)
        fputs(hadal_diagnostic_text(s, i, 0), stderr);
    fail("%s failed", what);
}

static void define_all(hadal_session *s, const char *defines) {
    char *copy = strdup(defines), *rest = copy;
    for (char *d = strtok_r(copy, ",", &rest); d; d = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(d, '=');
        if (!equals) fail("\"%s\" is not name=value", d);
        *equals = 0;
        compiler_check(s, hadal_define(s, d, equals + 1), d);
    }
    free(copy);
}

const char *program_machine, *program_cpu = "native";

machine *program_limits(int threads) {
    machine *m = machine_open(threads);
    if (!m) fail("out of memory");
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (strcmp(levels[i].name, program_cpu) == 0) machine_use_vectors(m, levels[i].lanes);
    return m;
}

program *program_compile(const char *spec, const char *name, const char *defines,
                         const hadal_pipeline *pipeline) {
    char dir[] = "/tmp/hadal-bench-XXXXXX";
    if (!mkdtemp(dir)) fail("no folder in /tmp can be made");
    hd_arena *a = hd_arena_new();
    hadal_session *s = hadal_open();
    if (!a || !s) fail("out of memory");
    const char *random = joined(a, dir, "", name, ".safetensors");
    const char *files[] = {joined(a, dir, "lib", name, ".so"), joined(a, dir, "", name, ".weights"),
                           joined(a, dir, "", name, ".kernel.hir"), random};
    define_all(s, defines);
    compiler_check(s, hadal_load(s, spec, name), "reading the spec");
    compiler_check(s, hadal_draw_weights(s, 1, "f32", random), "making weights");
    compiler_check(s, hadal_weights(s, random), "reading weights");
    const hadal_pipeline usual = {.struct_size = sizeof usual};
    const hadal_target t = {
        .struct_size = sizeof t, .cpu = program_cpu, .machine = program_machine};
    compiler_check(s, hadal_run_passes(s, pipeline ? pipeline : &usual), "the pipeline");
    compiler_check(s, hadal_emit(s, &t, "so", files[0]), "emitting the library");
    compiler_check(s, hadal_emit(s, &t, "weights", files[1]), "packing weights");
    compiler_check(s, hadal_emit(s, NULL, "ir", files[2]), "printing kernels");
    hadal_close(s);
    program *out = program_load(joined(a, dir, "", name, ""));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    rmdir(dir);
    hd_arena_free(a);
    return out;
}
