/* The step interpreter: one parallel region per call, a barrier between steps.
 *
 * Every thread walks the same list of chunks and steps and does its share of each step. Which share
 * depends on the thread's number alone, so that a thread reads the same panels of weights in every
 * call. Only contractions of many rows may be scheduled dynamically (offer_cells). No result
 * depends on which thread computes it. With one thread no OpenMP construct is executed at all. A
 * region may get fewer threads than were requested (nested regions, limits of the host): the shares
 * are cut for the threads that are there.
 *
 * In a batch the rows are tokens of different sessions. Steps that are the same for all of them run
 * over all rows, so that weights are read once; steps that depend on the position or on state
 * (hrt_step.by_row) run row by row, each row with its session's length and state. */
#include <dlfcn.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/fp_mode.h"
#include "runtime/grid.h"
#include "runtime/pipeline.h"
#include "runtime/team.h"
#include "runtime/walk.h"
#include "support/known.h"
#include "support/quota.h"

typedef hrt_span span;
typedef hrt_worker worker;
typedef hrt_team team;
typedef hrt_place place; /* of a chunk in the call */

/* ---- operands -------------------------------------------------------------------------------- */

/* The rows of the chunk that are among the last `rows` of the call. */
static span wanted_rows(const hrt_job *j, const place *at) {
    int64_t first = j->n - j->rows - at->start;
    if (first < 0) first = 0;
    if (first > at->tokens) first = at->tokens;
    return (span){first, at->tokens};
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

static void *output_base(const hrt_job *j, uint32_t i, const place *at) {
    const int64_t start = at->start;
    const hrt_tensor_info *t = &j->model->outputs[i];
    void *wanted = j->outs ? j->outs[i] : NULL;
    if (!wanted && i > 0)
        return j->memory->sinks[i] + hrt_sink_bytes(t, j->memory->chunk) * (size_t)at->slot;
    if (!t->has_t) return wanted;
    int64_t first = i == 0 ? j->n - j->rows : 0; /* the token that row 0 of the output belongs to */
    return offset_rows(wanted, start - first, t->row_bytes);
}

static void *other_base(const hrt_job *j, const hrt_operand *o, const place *at) {
    const hrt_memory *mem = j->memory;
    switch ((hrt_base)o->base) {
    case HRT_FIXED: return mem->fixed + o->offset;
    case HRT_STATE: return j->batch ? (void *)(uintptr_t)o->index : mem->states[o->index];
    case HRT_INPUT: return input_base(j, o->index, at->start);
    case HRT_OUTPUT: return output_base(j, o->index, at);
    case HRT_NUMBER: return (void *)(uintptr_t)o->offset;
    case HRT_LOCAL: return mem->local + o->offset * hd_arena_rows(at->tokens);
    case HRT_KEPT:
        return mem->kept + mem->kept_bytes * (size_t)at->slot +
               o->offset * hd_arena_rows(at->tokens);
    case HRT_LOCAL_KEPT:
        return mem->kept + mem->kept_bytes * (size_t)mem->flight +
               mem->local_kept_bytes * (size_t)at->slot + o->offset * hd_arena_rows(at->tokens);
    case HRT_TILE: return mem->tile + o->offset * hd_arena_rows(at->tokens);
    case HRT_TARGETS: return offset_rows(j->targets, at->start, sizeof *j->targets);
    case HRT_LOSSES: return offset_rows(j->losses, at->start, sizeof *j->losses);
    case HRT_ARENA:
    case HRT_WEIGHT: break;
    }
    return NULL;
}

/* Most operands lie in the arena or are weights. With one token a kernel takes no longer than
 * thirty such look-ups, so these two cases need neither a call nor a jump table. */
static inline __attribute__((always_inline)) void *
operand_base(const hrt_job *j, const hrt_operand *o, const place *at) {
    if (o->base == HRT_ARENA) return j->memory->arena + o->offset * hd_arena_rows(at->tokens);
    if (o->base == HRT_WEIGHT) return (void *)(uintptr_t)(j->weights + o->offset);
    return other_base(j, o, at);
}

void *hrt_operand_base(const hrt_job *j, const hrt_operand *o, const place *at) {
    return operand_base(j, o, at);
}

/* ---- shares ---------------------------------------------------------------------------------- */
static void call_kernel(const worker *w, hrt_kernel *kernel, span rows, span cols) {
    if (rows.from < rows.to && cols.from < cols.to)
        kernel(&w->frame, w->args, rows.from, rows.to, cols.from, cols.to);
}

/* Columns first: as many as each thread can have whole, since a column is a head whose keys and values
 * a thread then reads once and finds in its own cache for all other rows. The columns that are left,
 * fewer than threads, are cut into chunks of `grain` rows, assigned round robin: row t of causal
 * attention costs t, so contiguous shares would leave the last thread with most of the work. Every
 * other column goes backwards: a thread that gets the shorter chunks of one column gets the longer
 * ones of the next.
 */
static void call_cyclic(const worker *w, hrt_kernel *kernel, span rows, int64_t cols,
                        int64_t grain) {
    if (grain < 1) grain = 1;
    const int64_t whole = cols - cols % w->count;
    call_kernel(w, kernel, rows, hrt_share((span){0, whole}, w->index, w->count));
    int64_t chunks = (rows.to - rows.from + grain - 1) / grain;
    for (int64_t i = w->index; i < chunks * (cols - whole); i += w->count) {
        hd_known(chunks > 0);
        int64_t c = whole + i / chunks, k = i % chunks, back = chunks - 1 - k;
        int64_t r = rows.from + (c % 2 ? back : k) * grain, left = rows.to - r;
        call_kernel(w, kernel, (span){r, r + (left < grain ? left : grain)}, (span){c, c + 1});
    }
}

/* The number of ranges that cover the list of a step for one token; at least one. */
static int64_t list_ranges(int64_t length, const hrt_step *step) {
    int64_t rows = length / step->list_rate, near = length;
    if (rows > step->list_most) rows = step->list_most;
    if (step->window && near > step->window) near = step->window;
    if (!step->list_only) rows += near;
    const int64_t each = hrt_list_range(rows);
    return rows > 0 ? (rows + each - 1) / each : 1;
}

/* The columns of a step whose columns are cut into ranges of the cache: those ranges with a
 * position that some token of the call attends to. */
static span key_columns(const worker *w, const hrt_step *step) {
    if (step->list_rate) return (span){0, step->cols * list_ranges(w->frame.C, step)};
    const int64_t last = (w->frame.C + HRT_KEYS - 1) / HRT_KEYS;
    const int64_t before = w->frame.C - w->frame.T + 1 - (int64_t)step->window;
    const int64_t first = step->window && before > 0 ? before / HRT_KEYS : 0;
    return (span){0, step->cols * (last - first)};
}

/* Does this thread's cell of the grid: threads with adjacent numbers share rows and have columns of
 * their own. */
static void call_cell(const worker *w, hrt_kernel *kernel, span rows, span cols) {
    if (rows.from == rows.to) return;
    hrt_grid grid = hrt_cut(rows.to - rows.from, cols.to - cols.from, w->count);
    if (w->index >= grid.rows * grid.cols) return;
    call_kernel(w, kernel, hrt_share(rows, w->index / grid.cols, grid.rows),
                hrt_share(cols, w->index % grid.cols, grid.cols));
}

/* The same for many rows, whose columns a kernel may schedule dynamically among the threads. */
static void offer_cells(worker *w, hrt_kernel *kernel, span rows, span cols) {
    const hrt_dynamic dynamic = {
        hrt_next_counters(w), rows.from, rows.to, cols.to, w->count, w->index};
    w->frame.dynamic = &dynamic;
    call_cell(w, kernel, rows, cols);
    w->frame.dynamic = NULL;
}

/* The row at which part `part` of `parts` begins. Row t costs past + t, its position, since a
 * causal row attends to as many keys. */
static int64_t causal_start(span rows, int64_t past, int64_t part, int64_t parts) {
    const double first = (double)(past + rows.from), last = (double)(past + rows.to);
    const double wanted = (last * last - first * first) * (double)part / (double)parts;
    int64_t low = rows.from, high = rows.to;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        const double at = (double)(past + mid);
        if (at * at - first * first < wanted)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Divides the heads among threads, and the rows of a head only where there are fewer heads than
 * threads: threads that share a head each prepare its keys for themselves. */
static void call_heads(const worker *w, hrt_kernel *kernel, span rows, span cols) {
    const int64_t heads = cols.to - cols.from, past = w->frame.C - w->frame.T;
    const int64_t across = heads < w->count ? heads : w->count, along = w->count / across;
    const int64_t part = w->index / across;
    if (part >= along) return;
    const span own = {causal_start(rows, past, part, along),
                      causal_start(rows, past, part + 1, along)};
    call_kernel(w, kernel, own, hrt_share(cols, w->index % across, across));
}

static hrt_split step_split(const hrt_step *step, int64_t tokens) {
    return (hrt_split)(tokens == 1 || tokens <= step->small_batch ? step->split_decode
                                                                  : step->split_prefill);
}

hrt_kernel *hrt_step_kernel(const hrt_job *j, const hrt_step *step, int64_t tokens) {
    return j->level->kernels[tokens == 1                   ? step->kernel_decode
                             : tokens <= step->small_batch ? step->kernel_small_batch
                                                           : step->kernel_prefill];
}

/* Runs a step over all rows at once. */
static void run_rows(worker *w, const hrt_job *j, const hrt_step *step, span rows) {
    int64_t tokens = w->frame.T;
    hrt_kernel *kernel = hrt_step_kernel(j, step, tokens);
    span cols = {0, step->cols};
    switch (step_split(step, tokens)) {
    case HRT_SPLIT_NONE:
        if (w->index == 0) call_kernel(w, kernel, rows, cols);
        break;
    case HRT_SPLIT_ROWS: call_kernel(w, kernel, hrt_share(rows, w->index, w->count), cols); break;
    case HRT_SPLIT_CYCLIC: call_cyclic(w, kernel, rows, step->cols, step->grain); break;
    case HRT_SPLIT_COLS:
        if (tokens > 1 && w->count > 1)
            offer_cells(w, kernel, rows, cols);
        else
            call_cell(w, kernel, rows, cols);
        break;
    case HRT_SPLIT_KEYS:
        cols = key_columns(w, step);
        call_kernel(w, kernel, rows, hrt_share(cols, w->index, w->count));
        break;
    case HRT_SPLIT_CHANNELS:
        call_kernel(w, kernel, rows, hrt_share(cols, w->index, w->count));
        break;
    case HRT_SPLIT_HEADS: call_heads(w, kernel, rows, cols); break;
    }
}

/* ---- row by row ------------------------------------------------------------------------------ */
/* Sets the operands for one row of a batch: those of the step, at that row, with its session's
 * state. */
static void place_row(worker *w, const hrt_job *j, const hrt_step *step, const place *at,
                      int64_t row) {
    const hrt_session *s = j->batch[at->start + row];
    for (uint32_t k = 0; k < step->n_operands; k++) {
        const hrt_operand *o = &j->model->operands[step->first_operand + k];
        w->args[k] = o->base == HRT_STATE ? s->memory.states[o->index]
                                          : offset_rows(operand_base(j, o, at), row, o->row_bytes);
    }
    w->frame.C = s->length + 1;
    w->frame.cap = s->memory.cap;
    w->frame.shared = s->memory.shared;
}

/* Runs each row as a call of one token. The assignment of shares to threads rotates from row to
 * row, so that rows which are not divided go to different threads. */
static void run_each_row(worker *w, const hrt_job *j, const hrt_step *step, const place *at,
                         span rows) {
    const hrt_frame whole = w->frame;
    hrt_kernel *kernel = j->level->kernels[step->kernel_decode];
    bool keys = step->split_decode == HRT_SPLIT_KEYS,
         cut = keys || step->split_decode == HRT_SPLIT_COLS ||
               step->split_decode == HRT_SPLIT_CHANNELS;
    w->frame.T = 1;
    for (int64_t row = rows.from; row < rows.to; row++) {
        int index = (int)((w->index + row) % w->count);
        if (!cut && index != 0) continue;
        place_row(w, j, step, at, row);
        span cols = keys ? key_columns(w, step) : (span){0, step->cols};
        call_kernel(w, kernel, (span){0, 1}, cut ? hrt_share(cols, index, w->count) : cols);
    }
    w->frame = whole;
}

/* ---- the walk -------------------------------------------------------------------------------- */
/* Does thread 0 do this step alone? */
static bool is_alone(const hrt_job *j, const hrt_step *step, const place *at) {
    return step_split(step, at->tokens) == HRT_SPLIT_NONE && !(j->batch && step->by_row);
}

/* Has the step nothing to do in this call: no rows, or is its result made in another way? Rows of a
 * batch are calls of one token. */
static bool is_idle(const hrt_job *j, const hrt_step *step, const place *at, span last) {
    if (step->last_rows && last.from == last.to) return true;
    if (step->condition.when == HRT_ALWAYS) return false;
    if (step->condition.when >= HRT_IN_LOSS)
        return (step->condition.when == HRT_IN_LOSS) != j->in_loss;
    if (j->batch) return step->condition.when == HRT_MANY;
    const int64_t rows = step->last_rows ? last.to - last.from : at->tokens;
    return !hrt_runs(&step->condition, rows, j->position + at->start + at->tokens);
}

/* The first step from `i` on that is not idle; n_steps: none. */
static uint32_t next_step(const hrt_job *j, uint32_t i, const place *at, span last) {
    while (i < j->model->n_steps && is_idle(j, &j->model->steps[i], at, last))
        i++;
    return i;
}

/* Rows of a chunk, of which `at` is a tile. */
static void *base_in_tile(const hrt_job *j, const hrt_operand *o, const place *at,
                          const place *whole) {
    if (o->base == HRT_TILE) return other_base(j, o, at);
    return offset_rows(operand_base(j, o, whole), at->start - whole->start, o->row_bytes);
}

/* Finds the operands of a step at the first row of the chunk, or of the tile. */
static void find_args(worker *w, const hrt_job *j, const hrt_step *step, const place *at) {
    const hrt_operand *operands = j->model->operands + step->first_operand;
    for (uint32_t k = 0; k < step->n_operands; k++)
        w->args[k] = w->whole ? base_in_tile(j, &operands[k], at, w->whole)
                              : operand_base(j, &operands[k], at);
}

/* Does this thread's share of a step. */
static void run_step(worker *w, const hrt_job *j, const hrt_step *step, const place *at,
                     span rows) {
    if (j->batch && step->by_row) {
        run_each_row(w, j, step, at, rows);
        return;
    }
    if (is_alone(j, step, at) && w->index != 0) return;
    find_args(w, j, step, at);
    run_rows(w, j, step, rows);
}

/* Prepares the prefetch of the weights that this thread reads in the next step, from `i` on, that
 * is divided by columns. */
static void look_ahead(worker *w, const hrt_job *j, const place *at, span last, uint32_t i) {
    const hrt_model *m = j->model;
    while (i < m->n_steps && step_split(&m->steps[i], at->tokens) != HRT_SPLIT_COLS)
        i = next_step(j, i + 1, at, last);
    if (i >= m->n_steps || at->tokens > 1) return;
    span mine = hrt_share((span){0, m->steps[i].cols}, w->index, w->count);
    hrt_prefetch_aim(&w->ahead, m, j->weights, i, mine.from, mine.to, w->prefetch_most);
}

/* Sets what kernels see of the present rows. */
static void set_frame(worker *w, const hrt_job *j, const place *at) {
    w->frame.T = at->tokens;
    w->frame.C = j->position + at->start + at->tokens;
    w->frame.owners = j->batch ? (const hrt_owner *const *)(j->batch + at->start) : NULL;
}

void hrt_take_step(worker *w, const hrt_job *j, const hrt_step *step, const place *at) {
    set_frame(w, j, at);
    find_args(w, j, step, at);
}

void hrt_team_barrier(worker *w, team *c) {
    if (w->count > 1) hrt_barrier_wait(&c->barrier, (unsigned)w->count, &w->patience, &w->ahead);
}

/* Steps [from, end), of which the first is not idle. */
static void run_steps(worker *w, const hrt_job *j, hrt_barrier *barrier, const place *at,
                      uint32_t from, uint32_t end) {
    const hrt_model *m = j->model;
    span all = {0, at->tokens}, last = wanted_rows(j, at);
    const bool again = w->whole && at->start > w->whole->start; /* not the first tile */
    set_frame(w, j, at);
    for (uint32_t i = from, next; i < end; i = next) {
        const hrt_step *step = &m->steps[i];
        next = next_step(j, i + 1, at, last);
        run_step(w, j, step, at, step->last_rows ? last : all);
        (again ? hrt_watch_more : hrt_watch_work)(&w->watch, i);
        /* No barrier is needed between two steps that thread 0 does alone. */
        bool nobody = is_alone(j, step, at) && next < end && is_alone(j, &m->steps[next], at);
        if (w->count > 1 && !nobody) {
            look_ahead(w, j, at, last, next);
            hrt_barrier_wait(barrier, (unsigned)w->count, &w->patience, &w->ahead);
            hrt_watch_wait(&w->watch, i);
        }
    }
}

/* The steps of a chunk that go tile by tile. Tiles are of nearly equal length. */
static void run_tiles(worker *w, const hrt_job *j, hrt_barrier *barrier, const place *whole,
                      const hrt_tiled_steps *tiled) {
    const int64_t tokens = j->model->tile_tokens, tiles = (whole->tokens + tokens - 1) / tokens;
    w->whole = whole;
    for (int64_t i = 0; i < tiles; i++) {
        const span rows = hrt_share((span){0, whole->tokens}, i, tiles);
        const place at = {whole->start + rows.from, rows.to - rows.from, whole->slot};
        const uint32_t first = next_step(j, tiled->first, &at, wanted_rows(j, &at));
        run_steps(w, j, barrier, &at, first, tiled->end);
    }
    w->whole = NULL;
}

static void run_chunk(worker *w, const hrt_job *j, hrt_barrier *barrier, const place *at) {
    const hrt_model *m = j->model;
    const span last = wanted_rows(j, at);
    uint32_t from = next_step(j, 0, at, last);
    hrt_watch_start(&w->watch);
    for (uint32_t i = 0; i < m->n_tiled; i++) {
        const hrt_tiled_steps *tiled = &m->tiled[i];
        run_steps(w, j, barrier, at, from, tiled->first);
        run_tiles(w, j, barrier, at, tiled);
        from = next_step(j, tiled->end, at, last);
    }
    run_steps(w, j, barrier, at, from, m->n_steps);
}

/* ---- the walk of one rank ---------------------------------------------------------------------
 * As above, with two more kinds of steps: steps over the rows of this rank, to which they are a
 * chunk of their own, and communication between ranks, which thread 0 makes. */
static void run_collective(const worker *w, const hrt_job *j, const hrt_step *step,
                           const place *all, const place *mine, hrt_outcome *failed) {
    const hrt_model *m = j->model;
    const hrt_operand *operands = m->operands + step->first_operand;
    const hrt_collective *e = &m->collectives[step->collective - 1];
    const int64_t wanted = step->last_rows ? wanted_rows(j, all).from : 0;
    void *at[2] = {NULL, NULL};
    for (uint32_t k = 0; k < step->n_operands && k < 2; k++)
        at[k] = operand_base(j, &operands[k], hrt_is_local(&operands[k]) ? mine : all);
    const bool receives = e->kind == HRT_RECV;
    const int code = hrt_make_collective(m, j->side, e, receives ? NULL : at[0],
                                         receives ? at[0] : at[1], j->memory->staging, all, wanted);
    hrt_set_failed(failed, w->collectives, code);
}

static void run_step_of_rank(worker *w, const hrt_job *j, const hrt_step *step, const place *all,
                             const place *mine, hrt_outcome *failed) {
    const place *at = step->local ? mine : all;
    if (step->collective) {
        w->collectives++;
        if (w->index == 0) run_collective(w, j, step, all, mine, failed);
        return;
    }
    set_frame(w, j, at);
    run_step(w, j, step, at, step->last_rows ? wanted_rows(j, at) : (span){0, at->tokens});
}

bool hrt_is_idle(const hrt_job *j, const hrt_step *step, const place *all, const place *mine) {
    const place *at = step->local && !step->collective ? mine : all;
    return is_idle(j, step, at, wanted_rows(j, at));
}

static uint32_t next_step_of_rank(const hrt_job *j, uint32_t i, const place *all,
                                  const place *mine) {
    while (i < j->model->n_steps && hrt_is_idle(j, &j->model->steps[i], all, mine))
        i++;
    return i;
}

static bool is_alone_on_rank(const hrt_job *j, const hrt_step *step, const place *all,
                             const place *mine) {
    return step->collective || is_alone(j, step, step->local ? mine : all);
}

/* ---- alongside collectives ------------------------------------------------------------------- */
/* The part of an overlap that the step is: a collective (1), or computing (0); -1: it is in no
 * overlap. */
static int part_of_overlap(const hrt_model *m, uint32_t step) {
    for (uint32_t i = 0; i < m->n_overlaps && m->overlaps[i].front <= step; i++)
        if (step < m->overlaps[i].end) return m->steps[step].collective != 0;
    return -1;
}

/* What thread 0 measures in a chunk that is timed; every step of an overlap adds to one of two
 * times. */
typedef struct measure {
    hrt_figures *to; /* NULL: nothing */
    hrt_stopwatch watch;
    int64_t taken[2]; /* computing, communicating */
} measure;

static void measure_step(measure *s, const hrt_model *m, uint32_t step) {
    if (!s->to) return;
    const int part = part_of_overlap(m, step);
    const uint64_t time = hrt_lap(&s->watch);
    if (part >= 0) s->taken[part] += (int64_t)time;
}

static void end_measure(const measure *s) {
    if (!s->to) return;
    s->to->compute_ns = s->taken[0];
    s->to->collective_ns = s->taken[1];
    s->to->taken = true;
}

static measure begin_measure(const worker *w, const hrt_job *j) {
    measure s = {0};
    if (w->index != 0 || !hrt_times_chunk(j->figures)) return s;
    s.to = j->figures;
    (void)hrt_lap(&s.watch);
    return s;
}

/* Chooses for all threads into how many tiles the overlaps of the chunk are cut; `begins`: as in
 * hrt_choose_tiles. False: a collective between the ranks has failed. */
static bool choose_tiles(worker *w, team *c, const place *all, bool begins) {
    const hrt_job *j = c->job;
    int code = HADAL_COMM_OK;
    if (j->model->n_overlaps == 0 || all->tokens < j->model->divide_from) return true;
    w->collectives++;
    if (w->index == 0) {
        c->tiles = hrt_choose_tiles(j->model, j->side, j->figures, all->tokens, begins, &code);
        hrt_set_failed(&c->failed, w->collectives, code);
    }
    hrt_team_barrier(w, c);
    return !hrt_has_failed(&c->failed, w->collectives);
}

/* The overlap that begins with the step, if the chunk is cut into tiles; NULL: none does. */
static const hrt_overlap *overlap_at(const team *c, const place *all, uint32_t step) {
    const hrt_model *m = c->job->model;
    if (m->n_overlaps == 0 || all->tokens < m->divide_from || c->tiles < 2) return NULL;
    for (uint32_t i = 0; i < m->n_overlaps && m->overlaps[i].front <= step; i++)
        if (m->overlaps[i].front == step) return &m->overlaps[i];
    return NULL;
}

/* One step, for all threads. False: a communication step has failed. */
static bool walk_step(worker *w, team *c, const place *all, const place *mine, uint32_t i,
                      uint32_t next) {
    const hrt_job *j = c->job;
    const hrt_step *step = &j->model->steps[i];
    run_step_of_rank(w, j, step, all, mine, &c->failed);
    hrt_watch_work(&w->watch, i);
    const bool nobody = !step->collective && is_alone_on_rank(j, step, all, mine) &&
                        next < j->model->n_steps &&
                        is_alone_on_rank(j, &j->model->steps[next], all, mine);
    if (w->count > 1 && !nobody) {
        hrt_team_barrier(w, c);
        hrt_watch_wait(&w->watch, i);
    }
    return !step->collective || !hrt_has_failed(&c->failed, w->collectives);
}

/* Steps [from, end) of a chunk. False: a communication step has failed; all threads leave the walk
 * at the same step. */
static bool walk_steps(worker *w, team *c, const place *all, uint32_t from, uint32_t end,
                       measure *taken) {
    const hrt_job *j = c->job;
    const place mine = hrt_place_of(j->model, all, j->side->rank);
    hrt_watch_start(&w->watch);
    for (uint32_t i = next_step_of_rank(j, from, all, &mine), next; i < end; i = next) {
        const hrt_overlap *o = overlap_at(c, all, i);
        next = next_step_of_rank(j, o ? o->end : i + 1, all, &mine);
        if (o ? !hrt_run_overlap(w, c, o, all, &mine)
              : !walk_step(w, c, all, &mine, i, next < end ? next : j->model->n_steps))
            return false;
        measure_step(taken, j->model, i);
    }
    return true;
}

static bool run_chunk_of_rank(worker *w, team *c, const place *all) {
    if (!choose_tiles(w, c, all, true)) return false;
    measure taken = begin_measure(w, c->job);
    if (!walk_steps(w, c, all, 0, c->job->model->n_steps, &taken)) return false;
    end_measure(&taken);
    return true;
}

/* ---- a pipeline stage with several layer ranges -------------------------------------------------
 * It takes turns among the chunks in flight (pipeline.h). */
typedef struct stage { /* state of one thread */
    worker *w;
    team *c;
    const hrt_pipeline *p;
    int64_t most;  /* rows of a chunk, at most */
    measure taken; /* times of the first chunk in flight, over all its turns */
} stage;

static place chunk_of(const stage *s, hrt_turn t) {
    const int64_t start = t.chunk * s->most, left = s->c->job->n - start;
    return (place){start, left < s->most ? left : s->most, hrt_slot_of(s->p, t.chunk)};
}

static bool compute(stage *s, hrt_turn t, const place *at) {
    const hrt_layer_range *run = &s->c->job->model->runs[t.run];
    measure nothing = {0}, *taken = at->slot == 0 ? &s->taken : &nothing;
    const bool begins = at->slot == 0 && t.run == 0;
    if (!choose_tiles(s->w, s->c, at, begins)) return false;
    if (begins) s->taken = begin_measure(s->w, s->c->job);
    if (taken->to) (void)hrt_lap(&taken->watch);
    if (!walk_steps(s->w, s->c, at, run->work, run->send, taken)) return false;
    if (t.run + 1 == s->p->runs) end_measure(taken);
    return true;
}

static bool do_part(stage *s, hrt_doing doing, hrt_turn t) {
    const hrt_layer_range *run = &s->c->job->model->runs[t.run];
    const place at = chunk_of(s, t);
    measure nothing = {0};
    if (doing == HRT_COMPUTES) return compute(s, t, &at);
    if (doing == HRT_SENDS) return walk_steps(s->w, s->c, &at, run->send, run->end, &nothing);
    return walk_steps(s->w, s->c, &at, run->first, run->work, &nothing);
}

static void take_turns(worker *w, team *c, int64_t most) {
    const hrt_job *j = c->job;
    hd_known(j->side); /* sessions of a pipeline stage have a communicator */
    hrt_turns turns = {.p = {.stages = j->model->stages,
                             .runs = j->model->n_runs,
                             .chunks = (j->n + most - 1) / most,
                             .flight = j->memory->flight,
                             .stage = j->model->stage}};
    stage s = {.w = w, .c = c, .p = &turns.p, .most = most};
    hrt_doing doing;
    hrt_turn turn;
    while (hrt_next(&turns, &doing, &turn) && do_part(&s, doing, turn)) {
    }
}

/* ---- the region ------------------------------------------------------------------------------ */
/* The most rows in one pass through the steps. The rows of a batch are not divided over ranks: to
 * the steps that depend on positions and states each row is one token, of which all ranks need the
 * row. */
static int64_t most_rows(const hrt_job *j) {
    const int64_t chunk = j->memory->chunk, whole = j->model->divide_from - 1;
    return j->batch && j->side && j->model->ranks > 1 && whole < chunk ? whole : chunk;
}

static void run_chunks(worker *w, team *c) {
    const hrt_job *j = c->job;
    const int64_t most = most_rows(j);
    for (int64_t start = 0; start < j->n; start += most) {
        const int64_t left = j->n - start;
        const place at = {start, left < most ? left : most, 0};
        if (!j->side)
            run_chunk(w, j, &c->barrier, &at);
        else if (!run_chunk_of_rank(w, c, &at))
            break;
    }
}

static void run_worker(team *c, int index, int count) {
    const hrt_job *j = c->job;
    const hrt_memory *mem = j->memory;
    char *own = mem->workers + mem->worker_bytes * (size_t)index;
    void *args = own;
    worker w = {.index = index, .count = count, .counters = c->counters, .args = args};
    w.frame.cap = mem->cap;
    w.frame.scratch = own + mem->args_bytes;
    w.frame.shared = mem->shared;
    w.frame.l3 = (int64_t)c->machine.l3;
    w.frame.rank = j->side ? j->side->rank : 0;
    w.prefetch_most = hrt_prefetch_most(c->machine.l2);
    w.patience.spin = HRT_SPIN_MOST;
    w.ahead.step = UINT32_MAX;
    w.watch.steps = index == 0 ? j->profile : NULL;
    hrt_fp_mode old = hrt_fp_enter();
    if (j->model->n_runs > 1)
        take_turns(&w, c, most_rows(j));
    else
        run_chunks(&w, c);
    hrt_fp_leave(old);
}

__attribute__((noinline)) static void join_team(team *c, int index, int count) {
    (void)atomic_load_explicit(&c->begun, memory_order_acquire);
    hrt_team_joined(index, count);
    run_worker(c, index, count);
    atomic_fetch_add_explicit(&c->left, 1, memory_order_release);
}

__attribute__((no_sanitize("thread"))) static void run_region(team *c, int threads) {
#pragma omp parallel num_threads(threads)
    join_team(c, omp_get_thread_num(), omp_get_num_threads());
}

/* ---- other work of a call -------------------------------------------------------------------- */
typedef struct work {
    void (*share)(void *context, int index, int count);
    void *context;
    atomic_int begun, left;
} work;

__attribute__((noinline)) static void join_work(work *w, int index, int count) {
    (void)atomic_load_explicit(&w->begun, memory_order_acquire);
    hrt_team_joined(index, count);
    w->share(w->context, index, count);
    atomic_fetch_add_explicit(&w->left, 1, memory_order_release);
}

__attribute__((no_sanitize("thread"))) static void work_region(work *w, int threads) {
#pragma omp parallel num_threads(threads)
    join_work(w, omp_get_thread_num(), omp_get_num_threads());
}

void hrt_in_shares(int threads, void (*share)(void *context, int index, int count), void *context) {
    work w = {.share = share, .context = context};
    threads = hrt_team_size(threads);
    if (threads <= 1) {
        share(context, 0, 1);
        return;
    }
    atomic_store_explicit(&w.begun, 1, memory_order_release);
    work_region(&w, threads);
    (void)atomic_load_explicit(&w.left, memory_order_acquire);
}

/* OpenMP's worker threads outlive the region. If this code were in a library that is unloaded, and
 * nothing else used OpenMP, the OpenMP runtime would be unmapped while its threads run; so it stays
 * loaded. */
__attribute__((constructor)) static void keep_openmp_loaded(void) {
    Dl_info where;
    int (*function)(void) = omp_get_max_threads;
    void *address;
    memcpy(&address, &function, sizeof address);
    if (!dladdr(address, &where) || !where.dli_fname) return;
    void *handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (handle) dlclose(handle);
}

static int comm_code(const team *c) {
    const int64_t failed = atomic_load_explicit(&c->failed, memory_order_relaxed);
    return (int)(failed & ((1 << HRT_CODE_BITS) - 1));
}

int hrt_run(const hrt_job *job, int threads) {
    team c = {.job = job, .machine = hrt_machine_facts(job->model, job->level)};
    threads = hrt_team_size(threads);
    if (threads <= 1) {
        run_worker(&c, 0, 1);
        return comm_code(&c);
    }
    atomic_store_explicit(&c.begun, 1, memory_order_release);
    run_region(&c, threads);
    (void)atomic_load_explicit(&c.left, memory_order_acquire);
    return comm_code(&c);
}

int hrt_processors(void) {
    int allowed = omp_get_num_procs();
    const int quota = hd_quota();
    if (allowed > quota) allowed = quota;
    if (allowed > HRT_MAX_THREADS) allowed = HRT_MAX_THREADS;
    return allowed < 1 ? 1 : allowed;
}

int hrt_default_threads(void) {
    int wanted = omp_get_max_threads(), most = hrt_processors();
    if (wanted > most) wanted = most;
    return wanted < 1 ? 1 : wanted;
}
