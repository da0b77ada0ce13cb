/* Objects, assembly and LLVM text of a program.
 *
 * Assembly, LLVM text and the object of --emit=obj come from one module that holds every variant
 * and the description. A linked library, which is what most compilations produce, is made in units,
 * each with its own context, module and object, on as many threads as there are CPUs. How a program
 * is divided into units depends on the program alone, so the library's bytes do not depend on the
 * machine. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/emit/shared.h"
#include "codegen/module/module.h"
#include "codegen/module/same_code.h"
#include "codegen/rowwise/stage.h"
#include "support/file.h"
#include "support/workers.h"

/* ---- one module for all ---------------------------------------------------------------------- */
static hcg_llvm *build_library(hcg_program *p, hd_diags *d, const hcg_target *t) {
    hcg_llvm *l = hcg_llvm_new(p->arena, d, t, p->m->name, LLVMCodeGenLevelDefault);
    if (!l) return NULL;
    size_t n = p->kernels.n;
    LLVMValueRef *functions = hd_new_array(p->arena, LLVMValueRef, t->variants.n * n + 1);
    hcg_scratch_needs scratch = {0};
    for (size_t i = 0; i < t->variants.n; i++) {
        hcg_unit unit = {.variant = &t->variants.at[i], .n = n};
        if (!hcg_emit_unit(p, l, p->arena, &unit, functions + i * n, &scratch)) {
            hcg_llvm_free(l);
            return NULL;
        }
    }
    p->scratch_bytes = scratch.kernels + scratch.outlined;
    hcg_describe(p, t, l->mod, l->b, functions);
    return l;
}

static bool print_llvm(hcg_llvm *l, hd_text *out) {
    char *text = hcg_finish_module(l) ? LLVMPrintModuleToString(l->mod) : NULL;
    if (!text) return false;
    hd_text_add(out, text);
    LLVMDisposeMessage(text);
    return true;
}

static bool print_code(hcg_llvm *l, LLVMCodeGenFileType kind, hd_text *out) {
    LLVMMemoryBufferRef code;
    if (!hcg_generate(l, kind, &code)) return false;
    hd_text_add_n(out, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
    LLVMDisposeMemoryBuffer(code);
    return true;
}

bool hcg_write_code(hcg_program *p, hd_diags *d, hcg_code_form form, hd_text *out) {
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    hcg_llvm *l = build_library(p, d, &t);
    if (!l) return false;
    const bool ok =
        form == HCG_CODE_LLVM
            ? print_llvm(l, out)
            : print_code(l, form == HCG_CODE_ASM ? LLVMAssemblyFile : LLVMObjectFile, out);
    hcg_llvm_free(l);
    return ok;
}

bool hcg_emit_code(hcg_program *p, hd_diags *d, hcg_code_form form, const char *path) {
    hd_text code;
    hd_text_init(&code, p->arena);
    return hcg_write_code(p, d, form, &code) && hd_write_file(p->arena, d, path, code.at, code.n);
}

/* ---- units ----------------------------------------------------------------------------------- */
enum {
    UNIT_OPS = 250, /* ops in the bodies of a unit's kernels: a unit costs some ms of its own */
    MOST_UNITS = 6, /* of a class: where there is more work, units get larger instead */
};

/* Classes of units, ordered by the time that the longest unit of each takes. */
typedef enum class {
    ROWS,
    TILES,
    SHARED_CODE,
    CONTRACT_PREFILL,
    SEQUENCES,
    CONTRACT_DECODE,
    CLASSES
} class;

static const struct {
    const char *name;
    LLVMCodeGenOptLevel level;
} classes[CLASSES] = {
    [TILES] = {"tiles", LLVMCodeGenLevelDefault},
    [SHARED_CODE] = {"other shared code", LLVMCodeGenLevelDefault},
    [SEQUENCES] = {"sequences", LLVMCodeGenLevelDefault},
    [CONTRACT_PREFILL] = {"contractions, prefill", LLVMCodeGenLevelLess},
    [CONTRACT_DECODE] = {"contractions, decode", LLVMCodeGenLevelDefault},
    [ROWS] = {"row programs", LLVMCodeGenLevelLess},
};

typedef struct job {
    class class;
    hcg_unit unit;
    size_t ops;      /* of its kernels' bodies; 0: the functions that they share */
    size_t number;   /* in the order of the program */
    hd_arena *arena; /* of the thread that makes it; freed when the object is written */
    hd_diags diags;
    LLVMMemoryBufferRef object;
    hcg_scratch_needs scratch;
    bool done; /* false: see diags, or memory ran out */
    hcg_code_event event;
} job;

typedef struct work {
    hcg_program *p;
    const hcg_target *t;
    HD_VEC(job) jobs;
} work;

static void add_job(work *w, class c, hcg_unit unit, size_t ops) {
    const job j = {.class = c, .unit = unit, .ops = ops, .number = w->jobs.n};
    if (unit.n > 0) hd_push(w->p->arena, &w->jobs, j);
}

static size_t body_ops(const hir_module *m, hir_id kernel) {
    size_t n = 0;
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) n++;
    return n;
}

static class class_of(const hcg_kernel *k) {
    static const class of[HIR_KERNEL_KINDS][HIR_KERNEL_PHASES] = {
        [HIR_KERNEL_ROW] = {ROWS, ROWS, ROWS},
        [HIR_KERNEL_CONTRACT] = {[HIR_DECODE] = CONTRACT_DECODE,
                                 [HIR_PREFILL] = CONTRACT_PREFILL,
                                 [HIR_SMALL_BATCH] = CONTRACT_PREFILL},
        [HIR_KERNEL_BLOCKS] = {[HIR_DECODE] = CONTRACT_DECODE,
                               [HIR_PREFILL] = CONTRACT_PREFILL,
                               [HIR_SMALL_BATCH] = CONTRACT_PREFILL},
        [HIR_KERNEL_SEQUENCE] = {SEQUENCES, SEQUENCES, SEQUENCES},
    };
    return of[k->kind][k->phase];
}

/* Kernels by class. */
typedef struct list {
    uint32_t *at;
    size_t n;
} list;

static void cut_class(work *w, class c, const hcg_variant *v, const list *k) {
    const hir_module *m = w->p->m;
    size_t all = 0;
    for (size_t i = 0; i < k->n; i++)
        all += body_ops(m, w->p->kernels.at[k->at[i]].op);
    const size_t most = all / MOST_UNITS > UNIT_OPS ? all / MOST_UNITS : UNIT_OPS;
    for (size_t from = 0, to = 0; from < k->n; from = to) {
        size_t ops = 0;
        while (to < k->n && ops < most)
            ops += body_ops(m, w->p->kernels.at[k->at[to++]].op);
        const hcg_unit unit = {
            .variant = v, .kernels = k->at + from, .n = to - from, .holds = HCG_KERNELS};
        add_job(w, c, unit, ops);
    }
}

static list empty_list(hcg_program *p) {
    return (list){hd_new_array(p->arena, uint32_t, p->kernels.n + 1), 0};
}

/* May a kernel call functions that kernels share (tiles of contractions, the reading of packed
 * rows, top-k selection)? To find those functions, its code is built once more. A row program calls
 * some only if it looks up rows of a table or selects, so the others are not built again. */
static bool calls_shared(const hir_module *m, const hcg_kernel *k) {
    if (k->kind != HIR_KERNEL_ROW) return true;
    HIR_EACH(m, id, hir_op_at(m, k->op)->body_first) {
        if (hcg_op_calls_shared(hir_op_at(m, id)->code)) return true;
    }
    return false;
}

/* The units that take longest come first, so that all threads end at about the same time; the time
 * of a unit is estimated by its ops. */
static int longest_first(const void *x, const void *y) {
    const job *a = x, *b = y;
    if (a->class != b->class) return a->class < b->class ? -1 : 1;
    if (a->ops != b->ops) return a->ops > b->ops ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

static void cut(work *w) {
    hcg_program *p = w->p;
    for (size_t b = 0; b < w->t->variants.n; b++) {
        const hcg_variant *v = &w->t->variants.at[b];
        list of[CLASSES], callers = empty_list(p);
        for (class c = 0; c < CLASSES; c++)
            of[c] = empty_list(p);
        for (size_t i = 0; i < p->kernels.n; i++) {
            const hcg_kernel *kernel = &p->kernels.at[i];
            if (hcg_has_same_code(v->same, hcg_kernel_name(p, p->arena, kernel))) continue;
            list *k = &of[class_of(kernel)];
            k->at[k->n++] = (uint32_t)i;
            if (calls_shared(p->m, kernel)) callers.at[callers.n++] = (uint32_t)i;
        }
        for (class c = 0; c < CLASSES; c++) {
            if (c == TILES)
                add_job(w, c, (hcg_unit){v, callers.at, callers.n, HCG_TILES, false}, 0);
            if (c == SHARED_CODE)
                add_job(w, c, (hcg_unit){v, callers.at, callers.n, HCG_SHARED, false}, 0);
            cut_class(w, c, v, &of[c]);
        }
    }
    if (w->jobs.n) qsort(w->jobs.at, w->jobs.n, sizeof *w->jobs.at, longest_first);
}

/* CPU time of this thread. */
static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void count_code(LLVMModuleRef mod, hcg_code_event *event) {
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f)) {
        if (LLVMIsDeclaration(f) || LLVMGetLinkage(f) == LLVMAvailableExternallyLinkage) continue;
        event->functions++;
        event->instructions += hcg_instructions(f);
    }
}

static bool build_unit(work *w, job *j, hcg_llvm **l) {
    *l = hcg_llvm_new(j->arena, &j->diags, w->t, w->p->m->name, classes[j->class].level);
    if (!*l) return false;
    LLVMValueRef *functions = hd_new_array(j->arena, LLVMValueRef, w->p->kernels.n + 1);
    return hcg_emit_unit(w->p, *l, j->arena, &j->unit, functions, &j->scratch);
}

static bool compile_unit(work *w, job *j) {
    hcg_llvm *l = NULL;
    const double start = cpu_seconds();
    bool ok = build_unit(w, j, &l);
    const double built = cpu_seconds();
    if (ok && w->p->options.event) count_code(l->mod, &j->event);
    ok = ok && hcg_generate(l, LLVMObjectFile, &j->object);
    if (l) hcg_llvm_free(l);
    j->event.build = built - start;
    j->event.translate = cpu_seconds() - built;
    return ok;
}

/* Does one job. If memory runs out the job ends, not the process: each arena has its guard. */
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
    j->done = compile_unit(w, j);
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

/* Reports the diagnostics of the first unit that failed. */
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

/* ---- the objects ----------------------------------------------------------------------------- */
/* Makes the table and the public functions, which refer to kernels of other units. */
static bool describe(const work *w, hd_diags *d, LLVMMemoryBufferRef *object) {
    hcg_program *p = w->p;
    size_t n = p->kernels.n;
    hcg_llvm *l = hcg_llvm_new(p->arena, d, w->t, p->m->name, LLVMCodeGenLevelLess);
    if (!l) return false;
    LLVMValueRef *functions = hd_new_array(p->arena, LLVMValueRef, w->t->variants.n * n + 1);
    for (size_t i = 0; i < w->t->variants.n; i++)
        hcg_declare_variant(p, p->arena, l->mod, &w->t->variants.at[i], functions + i * n);
    hcg_describe(p, w->t, l->mod, l->b, functions);
    bool ok = hcg_generate(l, LLVMObjectFile, object);
    hcg_llvm_free(l);
    return ok;
}

/* The description comes first, then units in the order of their jobs. */
static bool write_units(const work *w, hd_diags *d, LLVMMemoryBufferRef description,
                        const char *stem, hcg_objects *out) {
    hd_arena *a = w->p->arena;
    out->at = hd_new_array(a, const char *, w->jobs.n + 1);
    for (size_t i = 0; i <= w->jobs.n; i++) {
        LLVMMemoryBufferRef code = i ? w->jobs.at[i - 1].object : description;
        const char *path = hd_printf(a, "%s.%03zu.o", stem, i);
        if (!hd_write_file(a, d, path, LLVMGetBufferStart(code), LLVMGetBufferSize(code))) {
            hcg_remove_objects(out);
            return false;
        }
        out->at[out->n++] = path;
    }
    return true;
}

void hcg_remove_objects(hcg_objects *objects) {
    for (size_t i = 0; i < objects->n; i++)
        remove(objects->at[i]);
    objects->n = 0;
}

static void report_events(const work *w) {
    const hcg_options *o = &w->p->options;
    for (size_t i = 0; o->event && i < w->jobs.n; i++) {
        job *j = &w->jobs.at[i];
        j->event.level = j->unit.variant->level.name;
        j->event.part = classes[j->class].name;
        j->event.bytes = LLVMGetBufferSize(j->object);
        o->event(o->context, &j->event);
    }
}

/* The scratch of all units together. A unit knows its own functions only, so the kernel with the
 * most scratch is assumed to call the prologue or epilogue with the most. */
static void take_scratch(const work *w) {
    hcg_scratch_needs most = {0};
    for (size_t i = 0; i < w->jobs.n; i++) {
        const hcg_scratch_needs *r = &w->jobs.at[i].scratch;
        if (r->kernels > most.kernels) most.kernels = r->kernels;
        if (r->outlined > most.outlined) most.outlined = r->outlined;
    }
    w->p->scratch_bytes = most.kernels + most.outlined;
}

bool hcg_emit_units(hcg_program *p, hd_diags *d, const char *stem, hcg_objects *out) {
    *out = (hcg_objects){0};
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    work *w = hd_new(p->arena, work);
    w->p = p;
    w->t = &t;
    hcg_find_same_code(p, &t);
    hd_arena_defer(p->arena, free_jobs, w);
    cut(w);
    hcg_each_item(hcg_workers(p->options.threads), w->jobs.n, do_job, w);
    LLVMMemoryBufferRef description = NULL;
    take_scratch(w);
    bool ok = report(w, d);
    if (ok) report_events(w);
    ok = ok && describe(w, d, &description) && write_units(w, d, description, stem, out);
    if (description) LLVMDisposeMemoryBuffer(description);
    free_jobs(w);
    return ok;
}
