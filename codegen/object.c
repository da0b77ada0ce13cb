/* Objects, assembly and LLVM text of a program.
 *
 * Assembly and LLVM text come from one module that holds every body and the description. Objects,
 * which every compilation needs, are made in pieces, a context and module each, on as many threads
 * as there are CPUs, and merged (elf.h). How a program is cut into pieces depends on the program
 * alone, so its bytes do not depend on the machine. */
#include <setjmp.h>
#include <string.h>

#include "codegen/elf.h"
#include "codegen/library.h"
#include "codegen/workers.h"
#include "support/file.h"

/* ---- one module for all -------------------------------------------------------------------------
 */
static hcg_llvm *build_library(hcg_program *p, hd_diags *d, const hcg_target *t) {
    hcg_llvm *l = hcg_llvm_new(p->arena, d, t, p->m->name);
    if (!l) return NULL;
    size_t n = p->kernels.n;
    LLVMValueRef *functions = hd_new_array(p->arena, LLVMValueRef, t->bodies.n * n + 1);
    p->scratch_bytes = 0;
    for (size_t i = 0; i < t->bodies.n; i++) {
        hcg_piece piece = {&t->bodies.at[i], NULL, n};
        uint64_t scratch;
        if (!hcg_emit_piece(p, l, p->arena, &piece, functions + i * n, &scratch)) {
            hcg_llvm_free(l);
            return NULL;
        }
        if (scratch > p->scratch_bytes) p->scratch_bytes = scratch;
    }
    hcg_describe(p, t, l->mod, l->b, functions);
    return l;
}

bool hcg_emit_asm(hcg_program *p, hd_diags *d, const char *path) {
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    hcg_llvm *l = build_library(p, d, &t);
    LLVMMemoryBufferRef code;
    if (!l) return false;
    bool ok = hcg_generate(l, LLVMAssemblyFile, &code);
    hcg_llvm_free(l);
    if (!ok) return false;
    ok = hd_write_file(p->arena, d, path, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
    LLVMDisposeMemoryBuffer(code);
    return ok;
}

bool hcg_emit_llvm(hcg_program *p, hd_diags *d, const char *path) {
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    hcg_llvm *l = build_library(p, d, &t);
    if (!l) return false;
    bool ok = hcg_finish_module(l);
    char *text = ok ? LLVMPrintModuleToString(l->mod) : NULL;
    hcg_llvm_free(l);
    if (!ok) return false;
    ok = hd_write_file(p->arena, d, path, text, strlen(text));
    LLVMDisposeMessage(text);
    return ok;
}

/* ---- pieces -------------------------------------------------------------------------------------
 */
enum { ROWS_PER_PIECE = 12 };

typedef struct job {
    hcg_piece piece;
    hd_arena *arena; /* of the thread that does it; freed when the object is written */
    hd_diags diags;
    LLVMMemoryBufferRef object;
    uint64_t scratch;
    bool done; /* false: see diags, or memory ran out */
} job;

typedef struct work {
    hcg_program *p;
    const hcg_target *t;
    HD_VEC(job) jobs;
} work;

static void add_job(work *w, const hcg_body *body, uint32_t *kernels, size_t n) {
    if (n > 0) hd_push(w->p->arena, &w->jobs, ((job){.piece = {body, kernels, n}}));
}

/* Contractions and sequences stay together: they share functions. Row programs stand alone, and
 * there may be many of them. */
static void cut(work *w) {
    hcg_program *p = w->p;
    size_t n = p->kernels.n, n_shared = 0, n_rows = 0;
    uint32_t *shared = hd_new_array(p->arena, uint32_t, n + 1);
    uint32_t *rows = hd_new_array(p->arena, uint32_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        if (p->kernels.at[i].kind == HCG_ROW)
            rows[n_rows++] = (uint32_t)i;
        else
            shared[n_shared++] = (uint32_t)i;
    }
    for (size_t b = 0; b < w->t->bodies.n; b++) {
        add_job(w, &w->t->bodies.at[b], shared, n_shared);
        for (size_t i = 0; i < n_rows; i += ROWS_PER_PIECE) {
            size_t left = n_rows - i;
            add_job(w, &w->t->bodies.at[b], rows + i,
                    left < ROWS_PER_PIECE ? left : ROWS_PER_PIECE);
        }
    }
}

static bool compile_piece(work *w, job *j) {
    hcg_llvm *l = hcg_llvm_new(j->arena, &j->diags, w->t, w->p->m->name);
    if (!l) return false;
    LLVMValueRef *functions = hd_new_array(j->arena, LLVMValueRef, w->p->kernels.n + 1);
    bool ok = hcg_emit_piece(w->p, l, j->arena, &j->piece, functions, &j->scratch) &&
              hcg_generate(l, LLVMObjectFile, &j->object);
    hcg_llvm_free(l);
    return ok;
}

/* Memory that runs out ends the job, not the process: each arena has its guard. */
static void do_job(void *context, size_t worker, size_t item) {
    work *w = context;
    job *j = &w->jobs.at[item];
    (void)worker;
    j->arena = hd_arena_new();
    if (!j->arena) return;
    jmp_buf here;
    hd_arena_guard(j->arena, &here);
    if (setjmp(here)) return;
    hd_diags_init(&j->diags, j->arena);
    j->done = compile_piece(w, j);
}

static void free_jobs(void *what) {
    work *w = what;
    for (size_t i = 0; i < w->jobs.n; i++) {
        if (w->jobs.at[i].object) LLVMDisposeMemoryBuffer(w->jobs.at[i].object);
        hd_arena_free(w->jobs.at[i].arena);
        w->jobs.at[i].object = NULL;
        w->jobs.at[i].arena = NULL;
    }
}

/* The first failed piece speaks for all. */
static bool report(const work *w, hd_diags *d) {
    for (size_t i = 0; i < w->jobs.n; i++) {
        const job *j = &w->jobs.at[i];
        if (j->done) continue;
        for (size_t k = 0; j->arena && k < j->diags.list.n; k++) {
            const hd_diag *from = &j->diags.list.at[k];
            if (from->severity != HD_ERROR) continue;
            hd_diag *e = hd_err(d, from->code, from->loc, "%s", from->message);
            if (from->cause) e->cause = hd_strdup(d->arena, from->cause);
            if (from->hint) e->hint = hd_strdup(d->arena, from->hint);
        }
        if (!j->arena || !j->diags.list.n)
            hd_err(d, HD_E_MEMORY, HD_NOWHERE, "out of memory in code generation");
        return false;
    }
    return true;
}

/* ---- the object ---------------------------------------------------------------------------------
 */
/* The table and the public functions, referring to kernels of other pieces. */
static bool describe(const work *w, hd_diags *d, LLVMMemoryBufferRef *object) {
    hcg_program *p = w->p;
    size_t n = p->kernels.n;
    hcg_llvm *l = hcg_llvm_new(p->arena, d, w->t, p->m->name);
    if (!l) return false;
    LLVMValueRef *functions = hd_new_array(p->arena, LLVMValueRef, w->t->bodies.n * n + 1);
    for (size_t i = 0; i < w->t->bodies.n; i++)
        hcg_declare_body(p, p->arena, l->mod, &w->t->bodies.at[i], functions + i * n);
    hcg_describe(p, w->t, l->mod, l->b, functions);
    bool ok = hcg_generate(l, LLVMObjectFile, object);
    hcg_llvm_free(l);
    return ok;
}

static hd_bytes content(LLVMMemoryBufferRef buffer) {
    return (hd_bytes){(const uint8_t *)LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer)};
}

static bool merge(const work *w, hd_diags *d, LLVMMemoryBufferRef description, const char *path) {
    hd_arena *a = w->p->arena;
    hd_bytes *parts = hd_new_array(a, hd_bytes, w->jobs.n + 1), whole;
    parts[0] = content(description);
    for (size_t i = 0; i < w->jobs.n; i++)
        parts[i + 1] = content(w->jobs.at[i].object);
    return hcg_merge_objects(a, d, parts, w->jobs.n + 1, &whole) &&
           hd_write_file(a, d, path, whole.at, whole.n);
}

bool hcg_emit_object(hcg_program *p, hd_diags *d, const char *path) {
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    work *w = hd_new(p->arena, work);
    w->p = p;
    w->t = &t;
    hd_arena_defer(p->arena, free_jobs, w);
    cut(w);
    hcg_each_item(hcg_workers(p->options.threads), w->jobs.n, do_job, w);
    LLVMMemoryBufferRef description = NULL;
    p->scratch_bytes = 0;
    for (size_t i = 0; i < w->jobs.n; i++)
        if (w->jobs.at[i].scratch > p->scratch_bytes) p->scratch_bytes = w->jobs.at[i].scratch;
    bool ok = report(w, d) && describe(w, d, &description) && merge(w, d, description, path);
    if (description) LLVMDisposeMemoryBuffer(description);
    free_jobs(w);
    return ok;
}
