#include "api/trainer.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include "api/library.h"
#include "api/ranks.h"
#include "api/taps.h"
#include "inspect/format.h"
#include "runtime/hadal_rt.h"

void api_trainer_close(api_trainer *t) {
    if (t->memory) munmap(t->memory, t->bytes);
    if (t->handle) dlclose(t->handle);
    t->memory = t->at = t->handle = NULL;
}

static void close_deferred(void *what) {
    api_trainer_close(what);
}

static bool need_function(const api_trainer *t, const char *model, const char *name, void *slot) {
    void *address = dlsym(t->handle, hd_printf(t->s->arena, "%s_%s", model, name));
    memcpy(slot, &address, sizeof address);
    if (address) return true;
    hd_err(&t->s->diags, HD_E_RUNTIME, HD_NOWHERE, "%s has no function %s_%s", t->path, model, name)
        ->hint = "hadal compile SPEC --gradients makes a library that has";
    return false;
}

bool api_trainer_ok(const api_trainer *t, int code, const char *what) {
    if (code == 0) return true;
    const char *detail = t->at ? t->trainer_message(t->at) : "";
    /* wrong tokens are an error in the caller's values */
    const hd_error kind = code == HRT_TOKEN ? HD_E_VALUE : HD_E_RUNTIME;
    hd_diag *e = hd_err(&t->s->diags, kind, HD_NOWHERE, "%s: %s", what, t->strerror(code));
    if (*detail) e->cause = hd_strdup(t->s->arena, detail);
    if (code != HRT_CPU) return false;
    if (!e->cause && t->cpu_level) e->cause = api_what_level_lacks(t->s->arena, t->cpu_level);
    e->hint = "`hadal machine` tells the levels that run here";
    return false;
}

static bool open_library(api_trainer *t) {
    hadal_session *s = t->s;
    const char *model = api_library_model(s, t->path);
    if (!model) return false;
    t->handle = dlopen(t->path, RTLD_NOW | RTLD_LOCAL);
    if (!t->handle) {
        hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "%s cannot be loaded: %s", t->path, dlerror());
        return false;
    }
#define F(name, result, arguments)                                                                 \
    if (!need_function(t, model, #name, &t->name)) return false;
    API_TRAINER_FUNCTIONS(F)
#undef F
    return true;
}

/* The longest sequence for which a trainer fits into so much memory. */
static int64_t longest_within(const api_trainer *t, int64_t max_tokens, uint64_t memory) {
    int64_t fits = 0, too_long = max_tokens;
    while (too_long - fits > 1) {
        const int64_t middle = fits + (too_long - fits) / 2;
        if (t->trainer_size(middle) <= memory)
            fits = middle;
        else
            too_long = middle;
    }
    return fits;
}

static bool has_memory(const api_trainer *t, int64_t max_tokens) {
    const uint64_t memory = api_memory();
    hd_arena *a = t->s->arena;
    if (t->bytes <= memory) return true;
    hd_diag *e =
        hd_err(&t->s->diags, HD_E_LIMIT, HD_NOWHERE,
               "sequences of %lld tokens take %s to train on, more than the memory of this "
               "machine, %s",
               (long long)max_tokens, inspect_bytes(a, t->bytes), inspect_bytes(a, memory));
    const int64_t fits = longest_within(t, max_tokens, memory);
    e->hint = fits ? hd_printf(a, "sequences of %lld tokens would fit", (long long)fits)
                   : "the parameters alone do not fit";
    return false;
}

static bool take_memory(api_trainer *t, const hadal_comm *comm, int64_t max_tokens) {
    hadal_session *s = t->s;
    void *memory = MAP_FAILED;
    t->bytes = comm ? t->trainer_size_on(max_tokens, comm) : t->trainer_size(max_tokens);
    if (!has_memory(t, max_tokens)) return false;
    if (t->bytes)
        memory = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        hd_err(&s->diags, HD_E_MEMORY, HD_NOWHERE, "no trainer for a sequence of %lld token%s",
               (long long)max_tokens, hd_s((uint64_t)max_tokens))
            ->hint = "--chunk N, of hadal train --context N, is the longest sequence";
        return false;
    }
    t->memory = memory;
    return true;
}

static bool make_trainer(api_trainer *t, const hadal_comm *comm, int64_t max_tokens) {
    const int code =
        comm ? t->trainer_init_on(t->memory, t->bytes, max_tokens, comm, t->s->comm_timeout, &t->at)
             : t->trainer_init(t->memory, t->bytes, max_tokens, &t->at);
    if (!api_trainer_ok(t, code, "trainer")) return false;
    t->parameters = t->trainer_parameters(t->at, &t->n);
    return true;
}

static bool prepare(api_trainer *t, const hadal_comm *comm, int64_t max_tokens) {
    return t->path && open_library(t) && take_memory(t, comm, max_tokens);
}

static bool set_up(api_trainer *t, int threads) {
    if (threads && !api_trainer_ok(t, t->trainer_set_threads(t->at, threads), "threads"))
        return false;
    return !t->cpu_level ||
           api_trainer_ok(t, t->trainer_set_cpu(t->at, t->cpu_level), t->cpu_level);
}

static void begin(api_trainer *t, hadal_session *s, const char *path, const char *cpu_level) {
    *t = (api_trainer){.s = s, .path = path, .cpu_level = cpu_level};
    hd_arena_defer(s->arena, close_deferred, t);
}

bool api_trainer_open(api_trainer *t, hadal_session *s, const char *path, int64_t max_tokens,
                      int threads, const char *cpu_level) {
    begin(t, s, path, cpu_level);
    const bool did = prepare(t, s->comm, max_tokens);
    return api_all_did(s, did) && make_trainer(t, s->comm, max_tokens) && set_up(t, threads);
}

bool api_trainer_open_alone(api_trainer *t, hadal_session *s, const char *path, int64_t max_tokens,
                            int threads, const char *cpu_level) {
    begin(t, s, path, cpu_level);
    return prepare(t, NULL, max_tokens) && make_trainer(t, NULL, max_tokens) && set_up(t, threads);
}

const api_parameter *api_trainer_find(api_trainer *t, const char *name) {
    for (size_t i = 0; i < t->n; i++) {
        const size_t at = (t->next + i) % t->n;
        if (strcmp(t->parameters[at].name, name) != 0) continue;
        t->next = at + 1;
        return &t->parameters[at];
    }
    return NULL;
}

bool api_trainer_load(api_trainer *t) {
    hadal_session *s = t->s;
    for (size_t i = 0; i < t->n; i++) {
        const api_parameter *p = &t->parameters[i];
        const hd_tensor *w = hd_tensors_find(&s->weights, p->name);
        if (!w || w->elements != p->elements) {
            hd_err(&s->diags, HD_E_WEIGHTS, HD_NOWHERE,
                   "the checkpoint has no tensor \"%s\" of %zu "
                   "elements",
                   p->name, p->elements);
            return false;
        }
        hd_tensor_to_f32(w, 0, w->elements, p->values);
    }
    return true;
}
