/* For tests and benchmarks of kernel emitters: one kernel op of a module, emitted for one CPU
 * level, compiled to an object and loaded into this process. Without the passes over the IR,
 * lowering and the runtime: what is tested is the emitter alone. LLVM's module, target machine,
 * passes and attributes are those of the compiler (codegen/module/module.h).
 */
#ifndef EMIT_HARNESS_H
#define EMIT_HARNESS_H

#include <elf.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/attention/attention.h"
#include "codegen/emit/emit.h"
#include "codegen/matmul/backend.h"
#include "codegen/module/module.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"
#include "codegen/weights/quant.h"
#include "runtime/detect.h"
#include "support/tensorfile.h"
#include "tests/tools/amx_emulator.h"
#include "tests/tools/full.h"
#include "tests/unit/diags_text.h"

typedef struct bench {
    hd_arena *arena;
    hd_diags diags;
    hir_module *m;
    unsigned exact;   /* as hcg_options says */
    hir_dtype matmul; /* hir_compile_options.matmul_dtype */
    bool small_batch; /* attention: the function for small batches, not for decode or prefill */
    bool shared;      /* row_harness.h: row programs share functions as in a program */
    hcg_llvm *llvm;   /* of the function that is being emitted */
    const char *what; /* NULL, or the case that is tested: named where its kernel crashes */
} bench;

static inline bench bench_new(void) {
    bench b = {.arena = hd_arena_new()};
    b.m = hir_module_new(b.arena, "test");
    b.m->stage = HIR_STAGE_KERNEL;
    return b;
}

/* hd_diags keeps a pointer to the arena only, but the struct itself must stay where it is. */
static inline void bench_start(bench *b) {
    hd_diags_init(&b->diags, b->arena);
}

static inline void bench_free(bench *b) {
    hd_arena_free(b->arena);
}

static inline const char *bench_errors(bench *b) {
    return diags_text(b->arena, &b->diags);
}

/* Whether this machine can run the level. */
static inline bool level_runs(const hcg_level *l) {
    const uint64_t have = hrt_detect(hrt_cpuid_here()).features, need = hcg_level_features(l);
    return strcmp(l->arch, "x86_64") == 0 && !(need & ~have) &&
           hrt_permitted(hrt_cpuid_here(), need) == need;
}

/* The next level of the table, where it has the same vectors and this machine runs it, too; NULL: no. */
static inline const hcg_level *next_of_vectors(const hcg_level *l) {
    const hcg_level *levels, *next = l + 1;
    const size_t n = hcg_levels(&levels);
    return next < levels + n && next->lanes == l->lanes && level_runs(next) ? next : NULL;
}

/* Whether kernels that multiply no matrix are tested at the level: the next one, of the same vectors,
 * makes the same code of them but for its schedule. In the full set at every level that runs. */
static inline bool vectors_run(const hcg_level *l) {
    return level_runs(l) && (full_set() || !next_of_vectors(l));
}

/* Whether kernels with such a matrix are: the next level multiplies it in the same way. */
static inline bool products_run(const hcg_level *l, unsigned exact, hir_dtype dtype,
                                hir_layout layout) {
    const hcg_level *next = next_of_vectors(l);
    return level_runs(l) &&
           (full_set() || !next || !hcg_same_backends(l, next, exact, hcg_matrix(dtype, layout)));
}

/* The level with a matrix unit: that of the table where this machine runs it; else the best AVX-512
 * level of this machine with the tile instructions emulated, in this process from now on. False:
 * there is no AVX-512. */
static inline bool level_with_tiles(hcg_level *out) {
    static char features[512];
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (levels[i].lanes != 16 || !level_runs(&levels[i])) continue;
        *out = levels[i];
        if (hcg_has_feature(out, "amx-tile")) return true;
        snprintf(features, sizeof features, "%s amx-tile amx-bf16 amx-int8", out->features);
        out->features = features, out->name = "emulated";
        out->machine.matrix_unit = 1600, out->machine.unit_rows = 4;
        return amx_emulator_start();
    }
    return false;
}

/* ---- operands in the order of hcg_kernel.operands -------------------------------------------- */

static inline void add_operand(bench *b, hcg_kernel *k, hir_ref r) {
    if (r.kind == HIR_REF_NONE) return;
    if (r.kind == HIR_REF_VALUE) {
        const hir_value *v = hir_value_at(b->m, r.index);
        if (v->op != HIR_NONE && hir_op_at(b->m, v->op)->parent == k->op) return;
        if (v->place == HIR_PLACE_STATE) r = hir_state_ref((uint32_t)v->offset);
    }
    for (size_t i = 0; i < k->operands.n; i++)
        if (hir_ref_equal(k->operands.at[i], r)) return;
    hd_push(b->arena, &k->operands, r);
}

static inline hcg_kernel kernel_of(bench *b, hir_kernel_kind kind, hir_id op, bool one) {
    hcg_kernel k = {.kind = kind, .name = "kernel", .op = op};
    k.phase = one ? HIR_DECODE : b->small_batch ? HIR_SMALL_BATCH : HIR_PREFILL;
    k.prologue_name = "x", k.epilogue_name = "kernel", k.holds_prologue = k.holds_epilogue = true;
    HIR_EACH(b->m, id, hir_op_at(b->m, op)->body_first)
    for (uint32_t i = 0; i < hir_op_at(b->m, id)->n_args; i++)
        add_operand(b, &k, hir_op_at(b->m, id)->args[i]);
    k.n_inputs = (uint32_t)k.operands.n;
    for (uint32_t i = 0; i < hir_op_at(b->m, op)->n_results; i++)
        if (hir_value_at(b->m, hir_op_at(b->m, op)->results[i])->place != HIR_PLACE_STATE)
            hd_push(b->arena, &k.operands, hir_value_ref(hir_op_at(b->m, op)->results[i]));
    return k;
}

/* ---- compiling ------------------------------------------------------------------------------- */

typedef struct compiled {
    hcg_kernel k;
    hrt_kernel *call;
    uint64_t scratch;
    size_t code_bytes; /* of the object */
    LLVMOrcLLJITRef jit;
} compiled;

static inline void harness_check(LLVMErrorRef error) {
    if (!error) return;
    fprintf(stderr, "%s\n", LLVMGetErrorMessage(error));
    exit(1);
}

/* How much LLVM optimises a kernel that a test calls. These tests compare values, and values must not
 * depend on LLVM's optimisation. So in the short set the first kernel of a test and every twelfth after
 * it are translated as in libraries, and the others without optimisation, in a third of the time. In
 * the full set, and in benchmarks, every kernel is translated as in libraries. */
#ifndef EMIT_EFFORT
static inline LLVMCodeGenOptLevel next_effort(void) {
    static unsigned kernels;
    return has_turn(kernels++, 12) ? LLVMCodeGenLevelDefault : LLVMCodeGenLevelNone;
}
#define EMIT_EFFORT next_effort()
#endif

static inline hcg_llvm *llvm_for(bench *b, const hcg_level *level, LLVMCodeGenOptLevel effort) {
    const bool x86 = strcmp(level->arch, "x86_64") == 0;
    const hcg_target target = {.triple =
                                   x86 ? "x86_64-unknown-linux-gnu" : "aarch64-unknown-linux-gnu",
                               .arch = level->arch};
    hcg_llvm *l = hcg_llvm_new(b->arena, &b->diags, &target, "test", effort);
    if (l) return l;
    fprintf(stderr, "%s\n", bench_errors(b));
    exit(1);
}

static inline void enter_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->ptr, e->i64, e->i64, e->i64, e->i64};
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->cx), params, 6, false);
    e->fn = LLVMAddFunction(e->mod, "kernel", type);
    hcg_variant v = hcg_variant_of_level(e->arena, e->level);
    hcg_set_function_target(e->fn, &v);
    e->frame = LLVMGetParam(e->fn, 0), e->args = LLVMGetParam(e->fn, 1);
    e->r0 = LLVMGetParam(e->fn, 2), e->r1 = LLVMGetParam(e->fn, 3);
    e->c0 = LLVMGetParam(e->fn, 4), e->c1 = LLVMGetParam(e->fn, 5);
    LLVMPositionBuilderAtEnd(e->b, LLVMAppendBasicBlockInContext(e->cx, e->fn, "entry"));
}

static inline hcg_emit emit_with(bench *b, hcg_program *p, const hcg_level *level,
                                 LLVMCodeGenOptLevel effort) {
    hcg_emit e = {.p = p, .level = level, .arena = b->arena, .diags = &b->diags};
    b->llvm = llvm_for(b, level, effort);
    e.cx = b->llvm->cx, e.mod = b->llvm->mod, e.b = b->llvm->b;
    e.i1 = LLVMInt1TypeInContext(e.cx), e.i8 = LLVMInt8TypeInContext(e.cx);
    e.i16 = LLVMInt16TypeInContext(e.cx), e.i32 = LLVMInt32TypeInContext(e.cx);
    e.i64 = LLVMInt64TypeInContext(e.cx), e.f32 = LLVMFloatTypeInContext(e.cx);
    e.f64 = LLVMDoubleTypeInContext(e.cx), e.ptr = LLVMPointerTypeInContext(e.cx, 0);
    e.vec = LLVMVectorType(e.f32, level->lanes);
    return e;
}

static inline hcg_emit emit_for(bench *b, hcg_program *p, const hcg_level *level) {
    return emit_with(b, p, level, LLVMCodeGenLevelDefault);
}

/* What code promises LLVM beside what it does (that a load is invariant, a pointer never null) shows in
 * no value until LLVM makes use of it. Kernels promise nothing: metadata only says which stores are
 * non-temporal. */
static inline void check_promises(const bench *b, LLVMModuleRef mod) {
    const unsigned allowed = LLVMGetMDKindIDInContext(LLVMGetModuleContext(mod), "nontemporal", 11);
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f))
        for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(f); block;
             block = LLVMGetNextBasicBlock(block))
            for (LLVMValueRef i = LLVMGetFirstInstruction(block); i;
                 i = LLVMGetNextInstruction(i)) {
                size_t n;
                LLVMValueMetadataEntry *all = LLVMInstructionGetAllMetadataOtherThanDebugLoc(i, &n);
                for (unsigned k = 0; k < n; k++) {
                    if (LLVMValueMetadataEntriesGetKind(all, k) == allowed) continue;
                    fprintf(stderr, "%s: an instruction promises %s\n", b->what ? b->what : "",
                            LLVMPrintValueToString(i));
                    exit(1);
                }
                LLVMDisposeValueMetadataEntries(all);
            }
}

/* Called with the LLVM IR of each kernel before LLVM's passes; NULL: not called. */
static void (*change_module)(LLVMModuleRef mod);

/* With the environment variable EMIT_DUMP, the LLVM IR and the object are left in files of that
 * prefix. */
static inline bool emit_kernel_module(bench *b, hcg_emit *e, compiled *out) {
    hcg_contraction *c = hd_new(b->arena, hcg_contraction);
    const bool contraction = hir_form_of(b->m, out->k.op) == HIR_FORM_CONTRACTION;
    if (contraction && !out->k.contraction) {
        if (!hcg_plan_contraction(b->arena, &b->diags, b->m, out->k.op, c)) return false;
        out->k.contraction = c;
    }
    enter_function(e);
    bool ok = hcg_emit_kernel(e, &out->k);
    if (!ok) return false;
    LLVMBuildRetVoid(e->b);
    check_promises(b, e->mod);
    if (change_module) change_module(e->mod);
    out->scratch = e->scratch + e->outlined_scratch;
    const char *dump = getenv("EMIT_DUMP");
    if (dump) LLVMPrintModuleToFile(e->mod, hd_printf(b->arena, "%s.ll", dump), NULL);
    return true;
}

/* Verifies, runs the compiler's passes of LLVM and generates code; NULL, and a diagnostic: it is
 * illegal. */
static inline LLVMMemoryBufferRef generate(bench *b, LLVMCodeGenFileType type) {
    LLVMMemoryBufferRef code = NULL;
    if (!hcg_generate(b->llvm, type, &code)) return NULL;
    const char *dump = getenv("EMIT_DUMP");
    FILE *f = dump ? fopen(hd_printf(b->arena, "%s.o", dump), "wb") : NULL;
    if (f) {
        fwrite(LLVMGetBufferStart(code), 1, LLVMGetBufferSize(code), f);
        fclose(f);
    }
    return code;
}

/* The first symbol that an object wants from elsewhere, or NULL. Kernels call nothing but each other:
 * neither what multiplies and adds where a level has no instruction for it, nor memset. */
static inline const char *wanted_symbol(const char *object) {
    const Elf64_Ehdr *head = (const void *)object;
    const Elf64_Shdr *sections = (const void *)(object + head->e_shoff);
    for (size_t i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (const void *)(object + sections[i].sh_offset);
        const char *names = object + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 1; k < sections[i].sh_size / sizeof *symbols; k++)
            if (symbols[k].st_shndx == SHN_UNDEF) return names + symbols[k].st_name;
    }
    return NULL;
}

/* The JIT would find what the code calls in this process, so it is looked at here. */
static inline bool load(bench *b, compiled *out) {
    LLVMMemoryBufferRef object = generate(b, LLVMObjectFile);
    if (!object) return false;
    const char *wanted = wanted_symbol(LLVMGetBufferStart(object));
    if (wanted) {
        fprintf(stderr, "%s: the kernel calls %s\n", b->what ? b->what : "", wanted);
        exit(1);
    }
    out->code_bytes = LLVMGetBufferSize(object);
    harness_check(LLVMOrcCreateLLJIT(&out->jit, NULL));
    LLVMOrcJITDylibRef lib = LLVMOrcLLJITGetMainJITDylib(out->jit);
    harness_check(LLVMOrcLLJITAddObjectFile(out->jit, lib, object));
    LLVMOrcExecutorAddress at;
    harness_check(LLVMOrcLLJITLookup(out->jit, &at, "kernel"));
    out->call = (hrt_kernel *)(uintptr_t)at;
    return true;
}

/* The last kernel that was compiled. Criterion says that a test crashed; this says where. */
static char last_kernel[256];

static inline void name_last_kernel(int number) {
    signal(number, SIG_DFL);
    if (write(STDERR_FILENO, last_kernel, strlen(last_kernel)) < 0) abort();
    raise(number);
}

static inline void remember_kernel(const bench *b, const hcg_level *level,
                                   LLVMCodeGenOptLevel effort) {
    static unsigned kernels;
    snprintf(last_kernel, sizeof last_kernel,
             "crashed after kernel %u of the test was compiled: %s%slevel %s, %soptimised\n",
             ++kernels, b->what ? b->what : "", b->what ? ", " : "", level->name,
             effort == LLVMCodeGenLevelNone ? "not " : "");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which say more */
    signal(SIGSEGV, name_last_kernel);
    signal(SIGBUS, name_last_kernel);
    signal(SIGFPE, name_last_kernel);
#endif
}

static inline bool compile_function(bench *b, hcg_program *p, const hcg_kernel *k,
                                    const hcg_level *level, compiled *out) {
    const LLVMCodeGenOptLevel effort = EMIT_EFFORT;
    remember_kernel(b, level, effort);
    hcg_emit e = emit_with(b, p, level, effort);
    *out = (compiled){.k = *k};
    bool ok = emit_kernel_module(b, &e, out) && load(b, out);
    hcg_llvm_free(b->llvm);
    return ok;
}

/* What a kernel asks for of the memory that threads share, in a program where another kernel has
 * more counters. */
static inline void shared_in_program(const bench *b, hir_id kernel, uint64_t *counters,
                                     uint64_t *range) {
    enum { OTHERS = 2 };
    hcg_shared_bytes(b->m, kernel, counters, range);
    *counters += OTHERS * HCG_COUNTER_BYTES;
}

static inline bool compile_kernel(bench *b, hir_kernel_kind kind, hir_id op, bool one,
                                  const hcg_level *level, compiled *out) {
    hcg_program p = {.arena = b->arena, .m = b->m, .chunk = 512};
    p.options.exact = b->exact, p.options.compile.matmul_dtype = b->matmul;
    shared_in_program(b, op, &p.counter_bytes, &p.range_bytes);
    hcg_kernel k = kernel_of(b, kind, op, one);
    return compile_function(b, &p, &k, level, out);
}

/* Assembly of a level that need not be this machine's; NULL on failure. */
static inline const char *assemble_kernel(bench *b, hir_kernel_kind kind, hir_id op, bool one,
                                          const hcg_level *level) {
    hcg_program p = {.arena = b->arena, .m = b->m, .chunk = 512};
    p.options.exact = b->exact, p.options.compile.matmul_dtype = b->matmul;
    hcg_emit e = emit_for(b, &p, level);
    compiled c = {.k = kernel_of(b, kind, op, one)};
    const char *text = NULL;
    LLVMMemoryBufferRef code = emit_kernel_module(b, &e, &c) ? generate(b, LLVMAssemblyFile) : NULL;
    if (code) {
        text = hd_strndup(b->arena, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
        LLVMDisposeMemoryBuffer(code);
    }
    hcg_llvm_free(b->llvm);
    return text;
}

static inline bool line_holds(const char *line, size_t n, const char *word) {
    const char *at = strstr(line, word);
    return at && at < line + n;
}

/* Lines that move a vector register to the stack or from there. */
static inline size_t count_spills(const char *text, const char *end) {
    size_t n = 0;
    while (text < end) {
        const size_t length = strcspn(text, "\n");
        n += line_holds(text, length, "mm") && line_holds(text, length, "(%rsp");
        text += length + 1;
    }
    return n;
}

/* The first symbol that the code of a kernel wants from elsewhere, or NULL, for a level that need not be
 * this machine's. Of kernels that are loaded, load() has seen that there is none. */
static inline const char *calls_outside(bench *b, hir_kernel_kind kind, hir_id op, bool one,
                                        const hcg_level *level) {
    hcg_program p = {.arena = b->arena, .m = b->m, .chunk = 512};
    p.options.exact = b->exact, p.options.compile.matmul_dtype = b->matmul;
    hcg_emit e = emit_with(b, &p, level, EMIT_EFFORT);
    compiled c = {.k = kernel_of(b, kind, op, one)};
    LLVMMemoryBufferRef code = emit_kernel_module(b, &e, &c) ? generate(b, LLVMObjectFile) : NULL;
    const char *name = "a function that was not made";
    if (code) {
        name = wanted_symbol(LLVMGetBufferStart(code));
        if (name) name = hd_strdup(b->arena, name);
        LLVMDisposeMemoryBuffer(code);
    }
    hcg_llvm_free(b->llvm);
    return name;
}

static inline void compiled_free(compiled *c) {
    LLVMErrorRef error = LLVMOrcDisposeLLJIT(c->jit);
    if (error) LLVMConsumeError(error);
}

/* ---- data ------------------------------------------------------------------------------------ */

static inline uint64_t random_bits(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

static inline int64_t random_below(uint64_t *state, int64_t n) {
    return (int64_t)((random_bits(state) >> 11) % (uint64_t)n);
}

static inline float random_float(uint64_t *state) { /* [-1, 1) */
    return (float)((double)(random_bits(state) >> 11) / (double)(1ull << 52) - 1.0);
}

/* Memory whose last byte lies before a page that may not be touched: a kernel that reads or writes
 * behind its operand ends the test. Aligned as far as `bytes` allows. */
enum { PAGE = 4096 };
static inline void *guarded(size_t bytes) {
    size_t pages = (bytes + PAGE - 1) / PAGE, total = (pages + 2) * PAGE;
    char *base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + (pages + 1) * PAGE, PAGE, PROT_NONE)) exit(1);
    memcpy(base, &total, sizeof total);
    return base + (pages + 1) * PAGE - bytes;
}

static inline void guarded_free(void *p) {
    if (!p) return;
    char *base = (char *)(((uintptr_t)p / PAGE - 1) * PAGE);
    size_t total;
    memcpy(&total, base, sizeof total);
    munmap(base, total);
}

static inline float *random_floats(uint64_t *state, size_t n) {
    float *x = guarded(n * 4);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(state);
    return x;
}

/* Panels of groups (quant.h); w keeps the values as stored, rounded to f32. Rows of a type that has
 * factors get some, the same in every row of that number. */
static inline void *pack_groups(float *w, int64_t n, int64_t k, hir_dtype dtype) {
    size_t panels = (size_t)(n + HIR_PANEL - 1) / HIR_PANEL, size = hcg_group_bytes(dtype);
    size_t groups = (size_t)(k + HIR_GROUP - 1) / HIR_GROUP;
    const size_t panel = groups * size + (size_t)hcg_panel_end(dtype);
    uint8_t *out = guarded(panels * panel);
    float factor[HIR_PANEL];
    for (int i = 0; i < HIR_PANEL; i++)
        factor[i] = hcg_panel_end(dtype) ? 0.7f + 0.043f * (float)i : 1;
    for (size_t p = 0; p < panels; p++)
        hcg_put_factors(dtype, factor, out + p * panel + groups * size);
    for (size_t at = 0; at < panels * groups; at++) {
        const int64_t first = (int64_t)(at / groups) * HIR_PANEL,
                      column = (int64_t)(at % groups) * HIR_GROUP;
        const int64_t rows = n - first < HIR_PANEL ? n - first : HIR_PANEL,
                      some = k - column < HIR_GROUP ? k - column : HIR_GROUP;
        float x[HIR_PANEL * HIR_GROUP];
        for (int64_t i = 0; i < rows; i++)
            hcg_fill_group(w + (first + i) * k + column, (unsigned)some, x + i * HIR_GROUP);
        const hcg_rows all = hcg_rows_of(x, HIR_GROUP);
        uint8_t *to = out + at / groups * panel + at % groups * size;
        if (!hcg_quantise_rows(dtype, &all, (unsigned)rows, to)) exit(1);
        for (int64_t i = 0; i < rows; i++) {
            hcg_group g;
            hcg_get_group(dtype, to, (unsigned)i, &g);
            g.factor = (double)factor[i];
            for (int64_t j = 0; j < some; j++)
                w[(first + i) * k + column + j] = (float)hcg_group_at(dtype, &g, (unsigned)j);
        }
    }
    return out;
}

/* The layouts of ir.h that have panels; w keeps the values as stored. */
static inline void *pack_matrix(float *w, int64_t n, int64_t k, hir_dtype dtype,
                                hir_layout layout) {
    if (hir_is_quantised(dtype)) return pack_groups(w, n, k, dtype);
    const bool narrow = layout == HIR_LAYOUT_NARROW;
    int64_t rows = narrow ? 8 : 16, panels = (n + rows - 1) / rows;
    size_t size = hir_dtype_bytes(dtype);
    int64_t depth = narrow ? 2 : hir_panel_depth(dtype), lines = (k + depth - 1) / depth;
    size_t bytes = (size_t)(panels * lines * depth * rows) * size;
    char *out = guarded(bytes);
    memset(out, 0, bytes);
    for (int64_t p = 0; p < panels * rows; p++)
        for (int64_t i = 0; i < k; i++) {
            int64_t line = p / rows * lines + i / depth;
            int64_t at = (line * rows + p % rows) * depth + i % depth;
            float x = p < n ? w[p * k + i] : 0;
            if (dtype == HIR_F32) {
                memcpy(out + at * 4, &x, 4);
                continue;
            }
            bool bf16 = dtype == HIR_BF16;
            uint16_t half = bf16 ? hd_bf16_from_f32(x) : hd_f16_from_f64((double)x);
            memcpy(out + at * 2, &half, 2);
            if (p < n) w[p * k + i] = bf16 ? hd_bf16_to_f32(half) : hd_f16_to_f32(half);
        }
    return out;
}

static inline void *pack_panels(float *w, int64_t n, int64_t k, hir_dtype dtype) {
    return pack_matrix(w, n, k, dtype, HIR_LAYOUT_PANEL);
}

/* Matrices of [e, n, k], one after the other. */
static inline void *pack_stack(float *w, int64_t e, int64_t n, int64_t k, hir_dtype dtype,
                               hir_layout layout) {
    const hir_weight one = {.type = hir_make_type(dtype, 2, (const int64_t[]){n, k}),
                            .layout = layout};
    uint64_t bytes;
    if (!hir_weight_bytes(&one, &bytes)) exit(1);
    char *out = guarded((size_t)e * bytes);
    for (int64_t i = 0; i < e; i++) {
        void *packed = pack_matrix(w + i * n * k, n, k, dtype, layout);
        memcpy(out + (uint64_t)i * bytes, packed, bytes);
        guarded_free(packed);
    }
    return out;
}

/* A layout that this matrix can have, every second time the narrow one. */
static inline hir_layout random_layout(uint64_t *seed, int64_t k, hir_dtype dtype) {
    const bool narrow = dtype == HIR_F32 && k % 2 == 0 && random_below(seed, 2);
    return narrow ? HIR_LAYOUT_NARROW : HIR_LAYOUT_PANEL;
}

#endif
