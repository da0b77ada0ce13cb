/* The step interpreter: one parallel region per call, a barrier between steps.
 *
 * Every thread walks the same list of chunks and steps and takes its share of each step; which
 * share depends on the thread's number alone, so that a result never depends on timing. With one
 * thread no OpenMP construct is met at all. A region may get fewer threads than asked for (nested
 * regions, limits of the host): the shares are cut for the threads that came. */
#include <dlfcn.h>
#include <omp.h>
#include <string.h>

#include "runtime/internal.h"
#include "runtime/profile.h"

/* ---- floating-point environment -------------------------------------------------------------- */
/* Kernels run in the default environment (round to nearest, nothing traps), with denormals as zero:
 * a denormal operand costs a hundred cycles. The caller's settings come back afterwards. */
#if defined(__x86_64__)
typedef unsigned fp_mode;
enum { MXCSR_KERNEL = 0x1f80 | 0x8040 }; /* all masked; FTZ and DAZ */
static fp_mode fp_enter(void) {
    fp_mode old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(MXCSR_KERNEL);
    return old;
}
static void fp_leave(fp_mode old) {
    __builtin_ia32_ldmxcsr(old);
}
#elif defined(__aarch64__)
typedef uint64_t fp_mode;
static fp_mode fp_enter(void) {
    fp_mode old, kernel = 1u << 24; /* FZ */
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(kernel));
    return old;
}
static void fp_leave(fp_mode old) {
    __asm__ volatile("msr fpcr, %0" : : "r"(old));
}
#else
typedef int fp_mode;
static fp_mode fp_enter(void) {
    return 0;
}
static void fp_leave(fp_mode old) {
    (void)old;
}
#endif

/* ---- operands -------------------------------------------------------------------------------- */
typedef struct span {
    int64_t from, to;
} span;

/* Rows of the chunk that starts at token `start` which are among the last `rows` of the call. */
static span wanted_rows(const hrt_job *j, int64_t start, int64_t tokens) {
    int64_t first = j->n - j->rows - start;
    if (first < 0) first = 0;
    if (first > tokens) first = tokens;
    return (span){first, tokens};
}

/* p + rows * row_bytes, where the sum may lie outside of the object until a row is added: output 0
 * holds only the last rows, and its base stands where row 0 of the chunk would be. */
static void *offset_rows(const void *p, int64_t rows, uint64_t row_bytes) {
    return (void *)((uintptr_t)p + (uintptr_t)rows * (uintptr_t)row_bytes);
}

static void *input_base(const hrt_job *j, uint32_t i, int64_t start) {
    const hrt_tensor_info *t = &j->model->inputs[i];
    return offset_rows(j->ins[i], t->has_t ? start : 0, t->row_bytes);
}

static void *output_base(const hrt_job *j, uint32_t i, int64_t start) {
    const hrt_tensor_info *t = &j->model->outputs[i];
    if (!j->outs[i] && i > 0) return j->memory->sinks[i];
    if (!t->has_t) return j->outs[i];
    int64_t first = i == 0 ? j->n - j->rows : 0; /* token of the output's row 0 */
    return offset_rows(j->outs[i], start - first, t->row_bytes);
}

static void *operand_base(const hrt_job *j, hrt_operand o, int64_t start, int64_t tokens) {
    const hrt_memory *mem = j->memory;
    switch ((hrt_base)o.base) {
    case HRT_ARENA: return mem->arena + o.offset * (uint64_t)tokens;
    case HRT_FIXED: return mem->fixed + o.offset;
    case HRT_WEIGHT: return (void *)(uintptr_t)(j->weights + o.offset);
    case HRT_STATE: return mem->states[o.index];
    case HRT_INPUT: return input_base(j, o.index, start);
    case HRT_OUTPUT: return output_base(j, o.index, start);
    }
    return NULL;
}

/* ---- shares ---------------------------------------------------------------------------------- */
typedef struct worker {
    int index, count;
    hrt_frame frame;
    void **args;
    hrt_stopwatch watch;
} worker;

/* Share `index` of `count` nearly equal contiguous shares. */
static span share(span all, int index, int count) {
    int64_t n = all.to - all.from, each = n / count, more = n % count;
    int64_t from = all.from + each * index + (index < more ? index : more);
    return (span){from, from + each + (index < more)};
}

static void call_kernel(const worker *w, hrt_kernel *kernel, span rows, span cols) {
    if (rows.from < rows.to && cols.from < cols.to)
        kernel(&w->frame, w->args, rows.from, rows.to, cols.from, cols.to);
}

/* Chunks of `grain` rows dealt in turn: row t of causal attention costs t, so contiguous shares
 * would leave the last thread with most of the work. */
static void call_cyclic(const worker *w, hrt_kernel *kernel, span rows, span cols, int64_t grain) {
    if (grain < 1) grain = 1;
    for (int64_t r = rows.from + grain * w->index; r < rows.to; r += grain * w->count) {
        int64_t left = rows.to - r;
        call_kernel(w, kernel, (span){r, r + (left < grain ? left : grain)}, cols);
    }
}

static hrt_split step_split(const hrt_step *step, int64_t tokens) {
    return (hrt_split)(tokens == 1 ? step->split_one : step->split_many);
}

static void run_step(const worker *w, const hrt_job *j, const hrt_step *step, span rows) {
    int64_t tokens = w->frame.T;
    hrt_kernel *kernel = j->level->kernels[tokens == 1 ? step->kernel_one : step->kernel_many];
    span cols = {0, step->cols};
    switch (step_split(step, tokens)) {
    case HRT_SPLIT_NONE:
        if (w->index == 0) call_kernel(w, kernel, rows, cols);
        break;
    case HRT_SPLIT_ROWS: call_kernel(w, kernel, share(rows, w->index, w->count), cols); break;
    case HRT_SPLIT_CYCLIC: call_cyclic(w, kernel, rows, cols, step->grain); break;
    case HRT_SPLIT_COLS: call_kernel(w, kernel, rows, share(cols, w->index, w->count)); break;
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */
/* The next step from `i` on that has rows to do; n_steps: none. */
static uint32_t next_step(const hrt_model *m, uint32_t i, span last) {
    while (i < m->n_steps && m->steps[i].last_rows && last.from == last.to)
        i++;
    return i;
}

static void run_chunk(worker *w, const hrt_job *j, int64_t start, int64_t tokens) {
    const hrt_model *m = j->model;
    span all = {0, tokens}, last = wanted_rows(j, start, tokens);
    w->frame.T = tokens;
    w->frame.C = j->position + start + tokens;
    hrt_watch_start(&w->watch);
    for (uint32_t i = next_step(m, 0, last), next; i < m->n_steps; i = next) {
        const hrt_step *step = &m->steps[i];
        next = next_step(m, i + 1, last);
        bool alone = step_split(step, tokens) == HRT_SPLIT_NONE;
        if (!alone || w->index == 0) {
            for (uint32_t k = 0; k < step->n_operands; k++)
                w->args[k] = operand_base(j, m->operands[step->first_operand + k], start, tokens);
            run_step(w, j, step, step->last_rows ? last : all);
        }
        hrt_watch_work(&w->watch, i);
        /* Between two steps that thread 0 does alone there is nobody to wait for. */
        bool alone_next =
            next < m->n_steps && step_split(&m->steps[next], tokens) == HRT_SPLIT_NONE;
        if (w->count > 1 && !(alone && alone_next)) {
#pragma omp barrier
            hrt_watch_wait(&w->watch, i);
        }
    }
}

static void run_worker(const hrt_job *j, int index, int count) {
    const hrt_memory *mem = j->memory;
    char *own = mem->workers + mem->worker_bytes * (size_t)index;
    worker w = {.index = index, .count = count, .args = (void **)(void *)own};
    w.frame.cap = mem->cap;
    w.frame.scratch = own + mem->args_bytes;
    w.watch.steps = index == 0 ? j->profile : NULL;
    fp_mode old = fp_enter();
    for (int64_t start = 0; start < j->n; start += mem->chunk) {
        int64_t left = j->n - start;
        run_chunk(&w, j, start, left < mem->chunk ? left : mem->chunk);
    }
    fp_leave(old);
}

/* OpenMP's worker threads outlive the region. When this code is in a library that is unloaded, and
 * nobody else uses OpenMP, its runtime would be unmapped under their feet; so it stays loaded. */
__attribute__((constructor)) static void keep_openmp_loaded(void) {
    Dl_info where;
    int (*function)(void) = omp_get_max_threads;
    void *address;
    memcpy(&address, &function, sizeof address);
    if (!dladdr(address, &where) || !where.dli_fname) return;
    void *handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (handle) dlclose(handle);
}

void hrt_run(const hrt_job *job, int threads) {
    if (threads <= 1) {
        run_worker(job, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    run_worker(job, omp_get_thread_num(), omp_get_num_threads());
}

int hrt_default_threads(void) {
    int wanted = omp_get_max_threads(), allowed = omp_get_num_procs();
    if (wanted > allowed) wanted = allowed;
    if (wanted > HRT_MAX_THREADS) wanted = HRT_MAX_THREADS;
    return wanted < 1 ? 1 : wanted;
}
