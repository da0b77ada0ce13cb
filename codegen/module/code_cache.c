/* A cache of translated units (code_cache.h).
 *
 * What LLVM makes of a module is a function of the module, the optimisation level, and LLVM itself.
 * So the name of an entry is a digest of the module's bitcode, which includes triple, CPU, features
 * and every name, with the optimisation level and the build ids of LLVM and of this compiler.
 * Nothing that the compiler decides is skipped: passes, emission and LLVM's verifier run as usual;
 * the cache only saves the translation of a finished module to an object.
 *
 * An entry is the object followed by a digest of the object. A damaged one does not count as an
 * entry. Entries appear whole (support/file.h), so that processes may share a directory; nothing
 * deletes them. */
#include "codegen/module/code_cache.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "support/file.h"
#include "support/scratch.h"

enum { MOST_ID = 64, DIGEST = sizeof(XXH128_canonical_t) };

/* ---- build ids of the translator ------------------------------------------------------------- */
/* The build id of the program or library that contains an address; n = 0: it has none. */
typedef struct build_id {
    uintptr_t address;
    size_t n;
    unsigned char at[MOST_ID];
} build_id;

static size_t padded(size_t n) {
    return (n + 3) / 4 * 4;
}

static void find_note(build_id *id, const char *notes, size_t bytes) {
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
        const ElfW(Nhdr) *note = (const void *)(notes + at);
        const char *name = (const char *)(note + 1), *what = name + padded(note->n_namesz);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0 &&
            note->n_descsz <= MOST_ID) {
            id->n = note->n_descsz;
            memcpy(id->at, what, id->n);
            return;
        }
        at += sizeof *note + padded(note->n_namesz) + padded(note->n_descsz);
    }
}

static bool holds(const struct dl_phdr_info *object, uintptr_t address) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        const uintptr_t from = object->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && address >= from && address - from < p->p_memsz) return true;
    }
    return false;
}

static int look_at(struct dl_phdr_info *object, size_t size, void *what) {
    build_id *id = what;
    (void)size;
    if (!holds(object, id->address)) return 0;
    for (int i = 0; i < object->dlpi_phnum && !id->n; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        if (p->p_type == PT_NOTE)
            find_note(id, (const char *)object->dlpi_addr + p->p_vaddr, p->p_memsz);
    }
    return 1;
}

static build_id compiler = {.address = 0}, llvm = {.address = 0};

static void find_ids(void) {
    compiler.address = (uintptr_t)&hcg_cache_entry;
    llvm.address = (uintptr_t)&LLVMTargetMachineEmitToMemoryBuffer;
    dl_iterate_phdr(look_at, &compiler);
    dl_iterate_phdr(look_at, &llvm);
}

/* ---- the folder ------------------------------------------------------------------------------ */
static bool reject(hd_diags *d, const char *folder, const char *cause, const char *hint) {
    hd_diag *e =
        hd_err(d, HD_E_IO, HD_NOWHERE, "'%s' cannot be the cache of translated code", folder);
    e->cause = cause;
    e->hint = hint;
    return false;
}

/* Objects in it will be executed: nobody else may be able to write there. */
static bool check_folder(hd_diags *d, const char *folder) {
    struct stat st;
    if ((mkdir(folder, 0700) != 0 && errno != EEXIST) || stat(folder, &st) != 0)
        return reject(d, folder, strerrordesc_np(errno), "HADAL_CODE_CACHE names it");
    if (!S_ISDIR(st.st_mode))
        return reject(d, folder, "it is no folder", "HADAL_CODE_CACHE names it");
    if (st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
        return reject(d, folder, "others may write to it, and what is in it will be run",
                      "let HADAL_CODE_CACHE name a folder of your own, with mode 700");
    return true;
}

/* ---- entries --------------------------------------------------------------------------------- */
static bool digest_module(hcg_llvm *l, XXH128_canonical_t *out) {
    LLVMMemoryBufferRef bitcode = LLVMWriteBitcodeToMemoryBuffer(l->mod);
    XXH3_state_t *state = bitcode ? XXH3_createState() : NULL;
    if (state) {
        const uint32_t effort = (uint32_t)l->effort;
        XXH3_128bits_reset(state);
        XXH3_128bits_update(state, &effort, sizeof effort);
        XXH3_128bits_update(state, compiler.at, sizeof compiler.at);
        XXH3_128bits_update(state, llvm.at, sizeof llvm.at);
        XXH3_128bits_update(state, LLVMGetBufferStart(bitcode), LLVMGetBufferSize(bitcode));
        XXH128_canonicalFromHash(out, XXH3_128bits_digest(state));
        XXH3_freeState(state);
    }
    if (bitcode) LLVMDisposeMemoryBuffer(bitcode);
    return state != NULL;
}

bool hcg_cache_entry(hcg_llvm *l, hcg_cached *out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static atomic_flag collected = ATOMIC_FLAG_INIT;
    const char *folder = getenv("HADAL_CODE_CACHE");
    *out = (hcg_cached){0};
    if (!folder || !*folder) return true;
    if (!check_folder(l->diags, folder)) return false;
    pthread_once(&once, find_ids);
    if (!atomic_flag_test_and_set(&collected))
        hd_scratch_collect(hd_printf(l->diags->arena, "%s/entry", folder));
    if (!compiler.n || !llvm.n)
        return reject(l->diags, folder, "the compiler or LLVM has no build id, by which to know it",
                      "link them with -Wl,--build-id, or unset HADAL_CODE_CACHE");
    XXH128_canonical_t digest;
    if (!digest_module(l, &digest)) {
        hd_err(l->diags, HD_E_MEMORY, HD_NOWHERE, "out of memory in code generation");
        return false;
    }
    char name[2 * DIGEST + 1];
    for (size_t i = 0; i < DIGEST; i++)
        snprintf(name + 2 * i, 3, "%02x", digest.digest[i]);
    out->path = hd_printf(l->diags->arena, "%s/%s.o", folder, name);
    return true;
}

static XXH128_canonical_t digest_of(const char *at, size_t n) {
    XXH128_canonical_t out;
    XXH128_canonicalFromHash(&out, XXH3_128bits(at, n));
    return out;
}

static bool is_whole(const char *at, size_t n) {
    if (n <= DIGEST) return false;
    const XXH128_canonical_t found = digest_of(at, n - DIGEST);
    return memcmp(&found, at + n - DIGEST, DIGEST) == 0;
}

LLVMMemoryBufferRef hcg_cache_read(const hcg_cached *e) {
    LLVMMemoryBufferRef file = NULL, object = NULL;
    char *text = NULL;
    if (!e->path) return NULL;
    if (LLVMCreateMemoryBufferWithContentsOfFile(e->path, &file, &text) != 0) {
        LLVMDisposeMessage(text); /* usually there is none */
        return NULL;
    }
    const char *at = LLVMGetBufferStart(file);
    const size_t n = LLVMGetBufferSize(file);
    if (is_whole(at, n)) object = LLVMCreateMemoryBufferWithMemoryRangeCopy(at, n - DIGEST, "");
    LLVMDisposeMemoryBuffer(file);
    return object;
}

static bool write_entry(hcg_llvm *l, const hcg_cached *e, LLVMMemoryBufferRef object) {
    const char *at = LLVMGetBufferStart(object);
    const size_t n = LLVMGetBufferSize(object);
    const XXH128_canonical_t digest = digest_of(at, n);
    hd_output *o = hd_output_open(l->diags->arena, l->diags, e->path);
    if (!o) return false;
    hd_output_write(o, at, n);
    hd_output_write(o, &digest, sizeof digest);
    return hd_output_commit(o);
}

/* Writes an entry, which appears at once, since it is not part of a build. */
bool hcg_cache_write(hcg_llvm *l, const hcg_cached *e, LLVMMemoryBufferRef object) {
    if (!e->path) return true;
    struct hd_build *const build = l->diags->build;
    l->diags->build = NULL;
    const bool ok = write_entry(l, e, object);
    l->diags->build = build;
    return ok;
}
