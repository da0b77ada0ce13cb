#include "passes/weigh_depth.h"

#include "passes/analysis/backward_ledger.h"

typedef struct weigher {
    const hir_module *m;
    const hir_pass_id *passes; /* to the one that makes kernels */
    size_t n;
    const hir_compile_options *options;
    hd_arena *arena;
} weigher;

/* Groups of passes that can be left out together. What form-blocks and the passes after it do,
 * they do with what recognise-depth-attention has found. */
enum { MIXES = 1, NORMS = 2, ALL = MIXES | NORMS };

static int group_of(hir_pass_id id) {
    switch ((int)id) {
    case HIR_PASS_RECOGNISE_DEPTH:
    case HIR_PASS_FORM_BLOCKS:
    case HIR_PASS_BATCH_QUERIES:
    case HIR_PASS_NARROW_DEPTH:
    case HIR_PASS_SPLIT_MERGE: return MIXES;
    case HIR_PASS_DEFER_NORMS: return NORMS;
    default: return 0;
    }
}

bool depth_is_weighed(hir_pass_id id) {
    return group_of(id) != 0;
}

/* ---- a run on a copy ------------------------------------------------------------------------- */

static bool note_change(void *context, int index, hir_pass_id id, const hir_module *m, bool changed,
                        double seconds, hd_diags *d) {
    (void)index, (void)m, (void)seconds, (void)d;
    bool *weighed = context;
    *weighed |= changed && depth_is_weighed(id);
    return true;
}

typedef HD_VEC(hir_pass_id) pass_list;

static bool run(const weigher *w, hir_module *copy, const pass_list *list, bool *changed) {
    hd_diags unread;
    hd_diags_init(&unread, w->arena);
    const hir_run r = {.passes = list->at,
                       .n_passes = list->n,
                       .stop_after = HIR_PASS_COUNT,
                       .hooks = {.context = changed, .after = note_change},
                       .all = true};
    return hir_run_passes(copy, &r, w->options, NULL, &unread);
}

/* The number of passes up to the last that can be left out. */
static size_t to_last_weighed(const pass_list *list) {
    size_t n = list->n;
    while (n && !depth_is_weighed(list->at[n - 1]))
        n--;
    return n;
}

/* Bytes of a token that the kernels move, in both halves of a step if there are gradients. */
static uint64_t bytes_of(const hir_module *m, hd_arena *a) {
    hir_ledger l;
    hir_ledger_find_totals(m, a, &l);
    const uint64_t forward = hd_capped_add(l.total.read, l.total.written);
    if (!hir_has_gradients(m)) return forward;
    hir_back_ledger back;
    hir_back_ledger_find(m, &l, a, &back);
    return hd_capped_add(forward, hd_capped_add(back.total.read, back.total.written));
}

/* The same without these groups, on a copy that is freed before the next is made; UINT64_MAX: there
 * are no kernels, or nothing is left out and no pass over depth changes anything. */
static uint64_t bytes_without(const weigher *whole, int left_out, bool *changed) {
    hd_arena **scratch = hd_scratch_new(whole->arena);
    weigher w = *whole;
    w.arena = *scratch;
    pass_list list = {0};
    for (size_t i = 0; i < w.n; i++)
        if (!(group_of(w.passes[i]) & left_out)) hd_push(w.arena, &list, w.passes[i]);
    const pass_list first = {.at = list.at, .n = to_last_weighed(&list)};
    const pass_list rest = {.at = list.at + first.n, .n = list.n - first.n};
    hir_module *copy = hir_module_clone(w.m, w.arena);
    uint64_t bytes = UINT64_MAX;
    if (run(&w, copy, &first, changed) && (left_out || *changed) && run(&w, copy, &rest, changed) &&
        copy->stage == HIR_STAGE_KERNEL)
        bytes = bytes_of(copy, w.arena);
    hd_scratch_free(scratch);
    return bytes;
}

/* ---- what is left out ------------------------------------------------------------------------ */

static void leave_out(const weigher *w, int groups, const char *why, depth_weighed *out) {
    int told = 0;
    for (size_t i = 0; i < w->n; i++) {
        const int group = group_of(w->passes[i]) & groups;
        if (!group) continue;
        out->skip[w->passes[i]] = true;
        out->speaks[w->passes[i]] = !(group & told);
        told |= group;
    }
    out->why = why;
}

/* What was written in ops over depth has no kernels without these passes. */
static bool has_mixes(const hir_module *m) {
    HIR_EACH(m, op, m->first) {
        const hir_opcode code = hir_op_at(m, op)->code;
        if (code == HIR_DEPTH_ATTEND_OP || code == HIR_DEPTH_WEIGHTS_OP) return true;
    }
    return false;
}

static size_t to_kernels(const hir_pass_id *passes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (passes[i] == HIR_PASS_FUSE) return i + 1;
    return 0;
}

void depth_weigh(const hir_module *m, const hir_pass_id *passes, size_t n,
                 const hir_compile_options *options, hd_arena *scratch, hd_arena *a,
                 depth_weighed *out) {
    const weigher w = {m, passes, to_kernels(passes, n), options, scratch};
    bool changed = false;
    *out = (depth_weighed){.done = true};
    if (!w.n || has_mixes(m)) return;
    const uint64_t with = bytes_without(&w, 0, &changed);
    if (with == UINT64_MAX) return; /* they change nothing, or the run itself will say what fails */
    const uint64_t without = bytes_without(&w, ALL, &changed);
    if (without >= with) return;
    int best = ALL;
    uint64_t least = without;
    static const int parts[] = {NORMS, MIXES};
    for (int i = 0; i < 2; i++) {
        const uint64_t bytes = bytes_without(&w, parts[i], &changed);
        if (bytes > least) continue; /* of equal ones that which leaves out less */
        least = bytes;
        best = parts[i];
    }
    leave_out(&w, best,
              hd_printf(a,
                        "left out, as kernels would move more with it: %llu bytes of each token "
                        "instead of %llu",
                        (unsigned long long)with, (unsigned long long)least),
              out);
}
