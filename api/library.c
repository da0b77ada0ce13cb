#include "api/ranks.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include "codegen/module/module.h"
#include "runtime/build_id.h"
#include "runtime/detect.h"
#include "runtime/hadal_rt.h"
#include "support/huge_pages.h"

/* ---- opening --------------------------------------------------------------------------------- */

/* POSIX lets dlsym's result be stored through a void **; ISO C has no cast for it. */
static bool find_symbol(const api_library *l, const char *model, const char *name, void *slot) {
    void *address = dlsym(l->handle, hd_printf(l->s->arena, "%s_%s", model, name));
    memcpy(slot, &address, sizeof address);
    return address != NULL;
}

static bool need_symbol(const api_library *l, const char *model, const char *name, void *slot) {
    if (find_symbol(l, model, name, slot)) return true;
    hd_err(&l->s->diags, HD_E_RUNTIME, HD_NOWHERE, "%s has no function %s_%s", l->path, model, name)
        ->hint = "models of tokens can be run; the library must be of this version of hadal, and "
                 "its file named after the model: lib<name>.so";
    return false;
}

static bool find_functions(api_library *l, const char *model) {
    const hd_info *(*info)(void);
    if (!need_symbol(l, model, "info", &info)) return false;
    l->info = info();
    if (l->info->struct_size < sizeof *l->info || l->info->step_size != sizeof(hd_info_step)) {
        hd_err(&l->s->diags, HD_E_RUNTIME, HD_NOWHERE, "%s is of another Hadal (%s, this is %s)",
               l->path, l->info->version, hadal_version())
            ->hint = "compile the model again";
        return false;
    }
    void *trainer;
    if (find_symbol(l, model, "trainer_init", &trainer)) {
        hd_err(&l->s->diags, HD_E_RUNTIME, HD_NOWHERE,
               "%s is a library of gradients, which does not run a model", l->path)
            ->hint = "hadal compile without --gradients makes one that does";
        return false;
    }
#define F(name, result, arguments)                                                                 \
    if (!need_symbol(l, model, #name, &l->name)) return false;
    API_LIBRARY_FUNCTIONS(F)
#undef F
    find_symbol(l, model, "forward_outputs", &l->forward_outputs);
    find_symbol(l, model, "loss", &l->loss);
    if (find_symbol(l, model, "session_init_on", &l->session_init_on)) return true;
    return need_symbol(l, model, "session_init", &l->session_init);
}

const char *api_library_model(hadal_session *s, const char *path) {
    const char *file = hd_path_base(path);
    const size_t n = strlen(file);
    if (strncmp(file, "lib", 3) == 0 && hd_ends_with(file, ".so"))
        return hd_strndup(s->arena, file + 3, n - 6);
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s is not named lib<name>.so", path)->hint =
        "the name is the prefix of the library's functions";
    return NULL;
}

size_t api_logits_row(const hd_info *info) {
    uint64_t row = 1;
    if (info->n_outputs == 0) return 1;       /* a pipeline stage before the last */
    const char *type = info->outputs[0].type; /* f32[T, 32000] */
    for (const char *c = strchr(type, ','); c; c = strchr(c + 1, ','))
        row *= strtoull(c + 1, NULL, 10);
    return row ? row : 1;
}

/* The loader says of a library of another architecture that there is no such file. */
static bool is_for_this_machine(hadal_session *s, const char *path, const Elf64_Ehdr *head) {
#if defined(__x86_64__)
    enum { HERE = EM_X86_64 };
#else
    enum { HERE = EM_AARCH64 };
#endif
    if (head->e_machine == HERE) return true;
    const char *other = head->e_machine == EM_X86_64    ? "x86_64"
                        : head->e_machine == EM_AARCH64 ? "aarch64"
                                                        : "another architecture";
    hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "%s is code for %s, and this machine is %s", path,
           other, hcg_arch(s->arena, NULL))
        ->hint = "run it there, or compile the model without --target";
    return false;
}

/* Does the file have all bytes that the loader will map? Pages after its end would be a bus error.
 * For a file that is no library at all the loader itself has the message. */
static bool is_whole(hadal_session *s, const char *path) {
    hd_bytes file;
    if (!hd_map_file(s->arena, &s->diags, path, &file)) return false;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file.at;
    if (file.n < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_phentsize != sizeof(Elf64_Phdr) ||
        head->e_phoff % _Alignof(Elf64_Phdr))
        return true;
    if (!is_for_this_machine(s, path, head)) return false;
    const Elf64_Phdr *part = (const Elf64_Phdr *)(file.at + head->e_phoff);
    bool whole =
        head->e_phoff <= file.n && head->e_phnum <= (file.n - head->e_phoff) / sizeof *part;
    for (uint32_t i = 0; whole && i < head->e_phnum; i++)
        whole = part[i].p_type != PT_LOAD ||
                (part[i].p_offset <= file.n && part[i].p_filesz <= file.n - part[i].p_offset);
    if (!whole)
        hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "%s is cut short", path)->hint =
            "was all of it copied? Or compile the model again";
    return whole;
}

bool api_library_open(api_library *l, hadal_session *s, const char *path, const char *model) {
    *l = (api_library){.s = s, .path = path};
    if (!is_whole(s, path)) return false;
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) {
        hd_diag *e =
            hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "%s cannot be loaded: %s", path, dlerror());
        struct statvfs there;
        if (statvfs(path, &there) == 0 && there.f_flag & ST_NOEXEC)
            e->hint = "nothing may be executed on its file system (noexec): compile to another "
                      "folder; for `hadal run` of a model TMPDIR names it";
        return false;
    }
    if (find_functions(l, model)) return true;
    api_library_close(l);
    return false;
}

/* Makes a session without weights: this rank cannot take part, and the others learn that where all
 * ranks make their sessions. */
static void tell_ranks(const api_library *l) {
    void *session = NULL;
    (void)l->session_init_on(NULL, 0, NULL, 1, l->s->comm, l->s->comm_timeout, &session);
}

static bool is_zero(const uint8_t digest[16]) {
    static const uint8_t zero[16];
    return memcmp(digest, zero, sizeof zero) == 0;
}

const char *api_weights_build_id(hadal_session *s, const char *path) {
    hrt_weights_header h;
    size_t got;
    char *id = hd_alloc(s->arena, HRT_BUILD_ID, 1);
    if (!hd_read_beginning(s->arena, &s->diags, path, &h, sizeof h, &got)) return NULL;
    if (got == sizeof h && !is_zero(h.program))
        hrt_build_id(id, h.program, is_zero(h.set) ? h.content : h.set);
    return id;
}

api_kinship api_library_kinship(const api_library *l, const char *build_id) {
    const char *own = l->info->build_id;
    const size_t n = strcspn(own, "-");
    if (!*build_id) return API_UNKNOWN_BUILD;
    if (strncmp(own, build_id, n) != 0 || (build_id[n] && build_id[n] != '-'))
        return API_OTHER_BUILD;
    return !own[n] || strcmp(own, build_id) == 0 ? API_SAME_BUILD : API_OTHER_VALUES;
}

static hd_diag *report_code(api_library *l, int code, const char *what) {
    const char *detail = l->session ? l->session_message(l->session) : "";
    /* Wrong tokens are an error in the caller's values. */
    const hd_error kind = code == HRT_TOKEN ? HD_E_VALUE : HD_E_RUNTIME;
    hd_diag *e = hd_err(&l->s->diags, kind, HD_NOWHERE, "%s: %s", what, l->strerror(code));
    if (detail && *detail) e->cause = hd_strdup(l->s->arena, detail);
    return e;
}

bool api_library_ok(api_library *l, int code, const char *what) {
    if (code != HRT_OK) report_code(l, code, what);
    return code == HRT_OK;
}

bool api_weights_ok(api_library *l, int code, const char *path) {
    hd_bytes file;
    if (code == HRT_OK) return true;
    /* The library says that it cannot open the file, and not why. */
    if (code == HRT_OPEN && !hd_map_file(l->s->arena, &l->s->diags, path, &file)) return false;
    hd_diag *e = report_code(l, code, path);
    if (code == HRT_FORMAT || code == HRT_DIGEST)
        e->hint = "hadal compile makes the weights with the library; hadal pack makes them for a "
                  "library that is there";
    return false;
}

/* Weights of the same layout may come from another compilation. A note or a warning says so. */
static bool tell_kinship(api_library *l, const char *path) {
    const char *id = api_weights_build_id(l->s, path);
    if (!id) return false;
    const api_kinship kinship = api_library_kinship(l, id);
    hd_diag *g = NULL;
    if (kinship == API_OTHER_VALUES) {
        g = hd_note(&l->s->diags, HD_NOWHERE,
                    "'%s' holds other values than those that %s was compiled with", path, l->path);
    } else if (kinship == API_OTHER_BUILD) {
        g = hd_warn(&l->s->diags, HD_E_RUNTIME, HD_NOWHERE,
                    "'%s' and %s were not made together: they are of different programs", path,
                    l->path);
        g->hint = "compile the model again, or pack the weights with the spec and the options that "
                  "the library was compiled with";
    }
    if (g) g->cause = hd_printf(l->s->arena, "build ids: %s, library %s", id, l->info->build_id);
    return true;
}

static bool open_weights(api_library *l, const char *path) {
    const bool reads = l->s->reads_weights;
    const int code =
        reads ? l->weights_read(path, &l->weights) : l->weights_open(path, &l->weights);
    if (code != HRT_MEMORY || !reads) return api_weights_ok(l, code, path);
    hd_err(&l->s->diags, HD_E_MEMORY, HD_NOWHERE, "there is no memory to read '%s' into", path)
        ->hint = "mapped weights (mmap) take no memory of the process";
    return false;
}

static bool open_share(api_library *l, const char *path) {
    if (!api_need_ranks(l)) return false;
    path = hcg_share_path(l->s->arena, path, l->s->comm->rank, l->s->comm->size);
    if (open_weights(l, path)) return tell_kinship(l, path);
    tell_ranks(l);
    return false;
}

bool api_library_weights(api_library *l, const char *path) {
    if (l->session_init_on) return open_share(l, path);
    return open_weights(l, path) && tell_kinship(l, path);
}

const char *api_what_level_lacks(hd_arena *a, const char *level) {
    hcg_target t;
    hd_diags none;
    hd_diags_init(&none, a);
    if (!hcg_find_variants(&(hcg_options){.cpu = level}, a, &none, &t)) return NULL;
    const uint64_t have = hrt_detect(hrt_cpuid_here()).features;
    const uint64_t need = hcg_level_features(&t.variants.at[0].level), lacks = need & ~have;
    const uint64_t withheld = need & ~hrt_permitted(hrt_cpuid_here(), need);
    if (!lacks && !withheld) return NULL;
    return hd_printf(a, "level %s: %s %s", level,
                     lacks ? "the CPU lacks" : "the operating system does not allow",
                     hcg_feature_names(a, lacks ? lacks : withheld));
}

/* The text of what this machine lacks for each level of a library none of whose levels runs
 * here. */
static const char *what_levels_ask_for(const api_library *l) {
    hd_arena *a = l->s->arena;
    hd_text text;
    hd_text_init(&text, a);
    for (size_t i = 0; i < l->info->n_levels; i++) {
        const char *lacks = api_what_level_lacks(a, l->info->levels[i]);
        if (lacks) hd_text_f(&text, "%s%s", text.n ? "; " : "", lacks);
    }
    return text.n ? text.at : NULL;
}

static bool reject_machine(api_library *l) {
    hd_diag *e =
        hd_err(&l->s->diags, HD_E_RUNTIME, HD_NOWHERE, "session: %s", l->strerror(HRT_CPU));
    const char *of_ranks = l->session ? l->session_message(l->session) : "";
    e->cause = *of_ranks ? hd_strdup(l->s->arena, of_ranks) : what_levels_ask_for(l);
    e->hint = "`hadal machine` tells the levels that run here";
    return false;
}

/* Requests huge pages but for the first of them: each token reads all rows of the caches. A small
 * session, which is all of the first, is left alone: clearing a huge page takes longer than making it. */
static void ask_for_huge_pages(char *memory, size_t size) {
    const size_t first = HD_HUGE_PAGE - (uintptr_t)memory % HD_HUGE_PAGE;
    if (size > first) hd_advise_huge_pages(memory + first, size - first);
}

bool api_library_session(api_library *l, int64_t max_tokens) {
    l->memory_bytes = l->session_size(max_tokens);
    void *memory = MAP_FAILED;
    if (l->memory_bytes > 0)
        memory = mmap(NULL, l->memory_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        hd_err(&l->s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory for a session of %lld token%s",
               (long long)max_tokens, hd_s((uint64_t)max_tokens));
        return false;
    }
    l->memory = memory;
    if (!l->room_to_spare) ask_for_huge_pages(memory, l->memory_bytes);
    const int code =
        l->session_init_on
            ? l->session_init_on(memory, l->memory_bytes, l->weights, max_tokens, l->s->comm,
                                 l->s->comm_timeout, &l->session)
            : l->session_init(memory, l->memory_bytes, l->weights, max_tokens, &l->session);
    return code == HRT_CPU ? reject_machine(l) : api_library_ok(l, code, "session");
}

/* False, and a diagnostic: no level of that name can be chosen; `names` are those that can. */
static bool is_level(hadal_session *s, const char *level, const char *const *names, size_t n,
                     const char *of) {
    hd_text list;
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], level) == 0) return true;
    hd_text_init(&list, s->arena);
    for (size_t i = 0; i < n; i++)
        hd_text_f(&list, "%s%s", i ? ", " : "", names[i]);
    const char *near = hd_nearest(level, names, n);
    hd_diag *e =
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "there is no CPU level \"%s\" %s", level, of);
    e->cause = hd_printf(s->arena, "levels: %s", list.n ? list.at : "none");
    if (near) e->hint = hd_printf(s->arena, "did you mean \"%s\"?", near);
    return false;
}

bool api_library_level(api_library *l, const char *level) {
    if (!level) return true;
    const char *of = hd_printf(l->s->arena, "in %s", l->path);
    return is_level(l->s, level, l->info->levels, l->info->n_levels, of) &&
           api_library_ok(l, l->session_set_cpu(l->session, level), level);
}

bool api_library_start(api_library *l, const char *packed, int64_t max_tokens, int threads,
                       const char *cpu_level) {
    if (!api_library_weights(l, packed) || !api_library_session(l, max_tokens)) return false;
    if (threads && !api_library_ok(l, l->session_set_threads(l->session, threads), "threads"))
        return false;
    return api_library_level(l, cpu_level);
}

void api_library_end_session(api_library *l) {
    if (l->memory) munmap(l->memory, l->memory_bytes);
    if (l->weights) l->weights_close(l->weights);
    l->memory = l->session = l->weights = NULL;
}

void api_library_close(api_library *l) {
    api_library_end_session(l);
    if (l->handle) dlclose(l->handle);
    l->handle = NULL;
}

#define API_FAILED 1
int hadal_weights_load(hadal_session *s, const char *how) {
    API_ENTER(s);
    const bool reads = how && strcmp(how, "read") == 0;
    const bool known = !how || reads || strcmp(how, "mmap") == 0;
    if (known) s->reads_weights = reads;
    if (!known)
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "there is no way \"%s\" to load weights", how)
            ->hint = "mmap: their file is mapped; read: it is read into memory in huge pages";
    API_LEAVE(s, known);
}

/* ---- levels ---------------------------------------------------------------------------------- */

bool api_is_level_of(hadal_session *s, const char *level, const char *arch) {
    const hcg_level *all;
    const size_t n = hcg_levels(&all);
    const char **names = hd_new_array(s->arena, const char *, n);
    size_t here = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].arch, arch) == 0) names[here++] = all[i].name;
    return is_level(s, level, names, here, hd_printf(s->arena, "of %s", arch));
}

int hadal_check_level(hadal_session *s, const char *level) {
    API_ENTER(s);
    API_LEAVE(s, api_is_level_of(s, level, hcg_arch(s->arena, NULL)));
}

/* ---- work ------------------------------------------------------------------------------------ */

step_work api_step_work(const hd_info *info, size_t step, int64_t n, int64_t past, int64_t asked) {
    step_work sum = {0};
    const int64_t chunk = (int64_t)info->max_chunk;
    for (int64_t done = 0, part; done < n; done += part) {
        part = n - done < chunk ? n - done : chunk;
        /* of the last `asked` rows of the call, those that lie in this pass */
        int64_t rows = asked - (n - done - part);
        if (rows < 0) rows = 0;
        if (rows > part) rows = part;
        step_work_add(&sum, step_work_of(&info->steps[step], part, past + done, rows));
    }
    return sum;
}

step_work api_call_work(const hd_info *info, int64_t n, int64_t past, int64_t asked) {
    step_work sum = {0};
    for (size_t i = 0; i < info->n_steps; i++)
        step_work_add(&sum, api_step_work(info, i, n, past, asked));
    return sum;
}
