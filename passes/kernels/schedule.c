/* schedule: order, rows, threads and names of the kernels.
 *
 * Needs    kernels.
 * Does     1 output    puts a copying row program in front of an output whose memory cannot be the
 *                      kernel result's own: the value is an input, is given out twice, or is
 *                      logits that are needed for more rows than the caller wants
 *          2 order     keeps the order of the text unless making a kernel later or earlier lowers
 *                      the most bytes live at once; each layer range of a pipeline stage receives
 *                      at its beginning and sends at its end
 *          3 rows      "last" for kernels whose results only output 0 of a model and "last" kernels
 *                      read, which write no state, and whose form permits it
 *                      (ir/kernel/kernels.def): they run for the rows that the caller wants.
 *                      Attention permits it: a row of its result needs that row of q, and the
 *                      cache. What "loss" kernels read does not count: a call that computes losses
 *                      asks for all rows.
 *          4 threads   split_decode (T = 1) and split_prefill (T > 1) as the form has them; cyclic
 *                      in chunks of as many rows as the op does together (ir/kernel/work.c);
 *                      what runs once: none
 *          5 names     row0, row1, contract0 ...: the number counts different bodies, equal ones
 *                      share a name
 * Leaves   bodies.
 */
#include <string.h>

#include "ir/kernel/canonical.h"
#include "ir/kernel/layer_ranges.h"
#include "passes/util.h"

typedef struct scheduler {
    hir_pass_context *c;
    hir_module *m;
    bool model;
    HD_VEC(hir_id) kernels;
    hir_id output0; /* HIR_NONE: no output */
} scheduler;

static bool is_output(const hir_module *m, hir_id op) {
    return hir_op_at(m, op)->code == HIR_OUTPUT_OP;
}

/* Kernel that makes a value; HIR_NONE: an input. */
static hir_id maker(const hir_module *m, uint32_t value) {
    return hir_value_at(m, value)->op;
}

/* Calls visit for every value of the outside that the kernel reads (some more than once). */
static void each_read(const hir_module *m, hir_id kernel, void (*visit)(void *, hir_id, uint32_t),
                      void *context) {
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            hir_id def = pass_def(m, o->args[i]);
            bool outer = def == HIR_NONE || hir_op_at(m, def)->parent == HIR_NONE;
            if (o->args[i].kind == HIR_REF_VALUE && outer) visit(context, kernel, o->args[i].index);
        }
    }
}

/* ---- rows ---------------------------------------------------------------------------------- */
typedef struct rows {
    scheduler *s;
    bool *all; /* by value: somebody reads every row */
} rows;

static void mark_all(void *context, hir_id kernel, uint32_t value) {
    (void)kernel;
    ((rows *)context)->all[value] = true;
}

/* Walks backwards: a kernel is "last" if all its users are. Fills `last`, by op, if not NULL. */
static bool *find_last(scheduler *s) {
    hir_module *m = s->m;
    bool *last = hd_new_array(s->c->scratch, bool, m->ops.n);
    rows r = {s, hd_new_array(s->c->scratch, bool, m->values.n)};
    for (hir_id op = m->last; op != HIR_NONE; op = hir_op_at(m, op)->prev) {
        const hir_op *o = hir_op_at(m, op);
        if (hir_is_kernel(o) && hir_rows_of(o) == HIR_ROWS_LOSS) continue;
        if (is_output(m, op)) {
            if (o->args[0].kind == HIR_REF_VALUE && op != s->output0)
                r.all[o->args[0].index] = true;
            continue;
        }
        last[op] = s->model && hir_has_form_trait(m, op, HIR_LAST_ROWS) && hir_may_skip_rows(m, op);
        for (uint32_t i = 0; i < o->n_results; i++)
            if (r.all[o->results[i]]) last[op] = false;
        if (!last[op]) each_read(m, op, mark_all, &r);
    }
    return last;
}

/* ---- outputs ------------------------------------------------------------------------------- */
/* Inserts a copying kernel before an output. */
static bool insert_copy(scheduler *s, hir_id output, const char *why) {
    hir_module *m = s->m;
    hir_ref x = pass_arg(m, output, 0);
    hir_type t = hir_ref_type(m, x);
    t.dtype = HIR_F32;
    hir_builder b = hir_before(m, s->c->diags, output);
    hir_attr attrs[PASS_KERNEL_ATTRS];
    pass_kernel_attrs(hir_kind(HIR_KERNEL_ROW)->name, attrs);
    hir_id kernel = hir_build_kernel(&b, HIR_KERNEL_ROW_OP, attrs, PASS_KERNEL_ATTRS, &t, 1);
    if (kernel == HIR_NONE) return false;
    hir_builder body = hir_in_body(m, s->c->diags, kernel);
    hir_attr shape = hir_ints(HIR_A_SHAPE, t.dim, t.rank);
    hir_ref copy = hir_emit(&body, HIR_RESHAPE_OP, &x, 1, &shape, 1);
    if (copy.kind == HIR_REF_NONE || hir_build(&body, HIR_YIELD_OP, &copy, 1, NULL, 0) == HIR_NONE)
        return false;
    hir_op_at(m, output)->args[0] = hir_value_ref(hir_result(m, kernel));
    s->c->changed = true;
    hir_remark_add(s->c, false, output,
                   "not written in place, copied by a separate row program: %s; %lld bytes%s are "
                   "read and written for it",
                   why, (long long)(pass_elements(t) * (int64_t)sizeof(float)),
                   hir_type_has_t(t) ? " of each token" : "");
    return true;
}

static void note_read(void *context, hir_id kernel, uint32_t value) {
    (void)kernel;
    hir_id *wanted = context;
    if (*wanted == value) *wanted = HIR_NONE;
}

/* Does a kernel of the loss read the value, which another kernel makes? */
static bool is_read_for_loss(const scheduler *s, hir_id value) {
    hir_id wanted = value;
    for (size_t i = 0; i < s->kernels.n; i++)
        if (hir_rows_of(hir_op_at(s->m, s->kernels.at[i])) == HIR_ROWS_LOSS)
            each_read(s->m, s->kernels.at[i], note_read, &wanted);
    return wanted == HIR_NONE;
}

/* Why an output needs a copy; NULL: the kernel may write to it directly. */
static const char *reason_to_copy(const scheduler *s, hir_id output, const bool *last,
                                  const bool *given_out) {
    hir_ref x = pass_arg(s->m, output, 0);
    if (x.kind != HIR_REF_VALUE) return "it is a weight";
    hir_id kernel = maker(s->m, x.index);
    if (kernel == HIR_NONE) return "it is an input";
    if (hir_value_at(s->m, x.index)->type.dtype != HIR_F32) return "outputs are f32";
    if (given_out[x.index]) return "the value is already another output";
    if (hir_otherwise(s->m, kernel) != HIR_NONE) return "it is computed in place";
    if (s->model && output == s->output0 && !last[kernel] && !hir_runs_once(s->m, kernel))
        return "its value is needed for more rows than the caller asks for";
    if (output == s->output0 && is_read_for_loss(s, x.index))
        return "the loss reads it, in calls that have no such output";
    return NULL;
}

static bool copy_outputs(scheduler *s) {
    hir_module *m = s->m;
    bool *given_out = hd_new_array(s->c->scratch, bool, m->values.n);
    const bool *last = find_last(s);
    size_t n_values = m->values.n;
    HIR_EACH(m, op, m->first) {
        if (!is_output(m, op)) continue;
        const char *why = reason_to_copy(s, op, last, given_out);
        if (why && !insert_copy(s, op, why)) return false;
        hir_ref x = pass_arg(m, op, 0);
        if (x.index < n_values) given_out[x.index] = true;
    }
    return true;
}

/* ---- order --------------------------------------------------------------------------------- */
/* List scheduling of kernels: it takes, of the ready kernels, the one after which the fewest bytes
 * are live; ties are broken by program order, which is kept if the result is not better. */
static uint64_t bytes_of(const hir_module *m, uint32_t value) {
    hir_type t = hir_value_at(m, value)->type;
    if (!hir_type_has_t(t)) return 0;
    int64_t n = pass_elements(t);
    return n > INT32_MAX ? (uint64_t)INT32_MAX * 4 : (uint64_t)n * 4;
}

typedef HD_VEC(uint32_t) index_list;

typedef struct dependences {
    hir_module *m;
    hd_arena *arena;
    index_list *reads; /* by kernel: values made by other kernels, each once */
    index_list *users; /* by value: kernels, each once */
    uint32_t *number;  /* by op */
    uint32_t n;
} dependences;

static void note_dependence(void *context, hir_id kernel, uint32_t value) {
    dependences *d = context;
    if (maker(d->m, value) == HIR_NONE) return;
    index_list *users = &d->users[value];
    uint32_t k = d->number[kernel];
    if (users->n && users->at[users->n - 1] == k) return; /* kernels are visited one by one */
    hd_push(d->arena, users, k);
    hd_push(d->arena, &d->reads[k], value);
}

static dependences find_dependences(scheduler *s) {
    hd_arena *a = s->c->scratch;
    dependences d = {.m = s->m, .arena = a, .n = (uint32_t)s->kernels.n};
    d.reads = hd_new_array(a, index_list, d.n);
    d.users = hd_new_array(a, index_list, s->m->values.n);
    d.number = hd_new_array(a, uint32_t, s->m->ops.n);
    for (uint32_t k = 0; k < d.n; k++)
        d.number[s->kernels.at[k]] = k;
    for (uint32_t k = 0; k < d.n; k++)
        each_read(s->m, s->kernels.at[k], note_dependence, &d);
    return d;
}

typedef struct live { /* bytes live while kernels run in some order */
    uint32_t *left;   /* by value: readers that have not run yet */
    uint64_t now, peak;
} live;

static live new_live(scheduler *s, const dependences *d) {
    live l = {.left = hd_new_array(s->c->scratch, uint32_t, s->m->values.n)};
    for (size_t v = 0; v < s->m->values.n; v++)
        l.left[v] = (uint32_t)d->users[v].n;
    return l;
}

/* Bytes of results that become live, and of operands that die, when a kernel runs. */
static uint64_t bytes_made(const scheduler *s, const dependences *d, uint32_t k) {
    const hir_op *o = hir_op_at(s->m, s->kernels.at[k]);
    uint64_t made = 0;
    for (uint32_t i = 0; i < o->n_results; i++)
        if (d->users[o->results[i]].n) made += bytes_of(s->m, o->results[i]);
    return made;
}

static uint64_t bytes_freed(const scheduler *s, const dependences *d, const live *l, uint32_t k) {
    uint64_t freed = 0;
    for (size_t i = 0; i < d->reads[k].n; i++)
        if (l->left[d->reads[k].at[i]] == 1) freed += bytes_of(s->m, d->reads[k].at[i]);
    return freed;
}

static void run_live(const scheduler *s, const dependences *d, live *l, uint32_t k) {
    l->now += bytes_made(s, d, k);
    if (l->now > l->peak) l->peak = l->now;
    l->now -= bytes_freed(s, d, l, k);
    for (size_t i = 0; i < d->reads[k].n; i++)
        l->left[d->reads[k].at[i]]--;
}

/* The ready kernel after which the fewest bytes are live; `ready` is in program order. */
static size_t choose(const scheduler *s, const dependences *d, const live *l,
                     const index_list *ready) {
    size_t best = 0;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < ready->n; i++) {
        uint32_t k = ready->at[i];
        int64_t grows = (int64_t)bytes_made(s, d, k) - (int64_t)bytes_freed(s, d, l, k);
        if (grows >= least) continue;
        least = grows;
        best = i;
    }
    return best;
}

static void insert_sorted(hd_arena *a, index_list *list, uint32_t k) {
    hd_push(a, list, k);
    for (size_t i = list->n - 1; i > 0 && list->at[i - 1] > k; i--) {
        list->at[i] = list->at[i - 1];
        list->at[i - 1] = k;
    }
}

/* Fills `to` with the greedy order and returns its peak. */
static uint64_t greedy_order(scheduler *s, const dependences *d, uint32_t *to) {
    hd_arena *a = s->c->scratch;
    uint32_t *waits = hd_new_array(a, uint32_t, d->n);
    index_list ready = {0};
    live l = new_live(s, d);
    for (uint32_t k = 0; k < d->n; k++) {
        waits[k] = (uint32_t)d->reads[k].n;
        if (!waits[k]) insert_sorted(a, &ready, k);
    }
    for (uint32_t n = 0; n < d->n; n++) {
        hd_known(ready.at);
        size_t at = choose(s, d, &l, &ready);
        uint32_t k = ready.at[at];
        memmove(&ready.at[at], &ready.at[at + 1], (ready.n - at - 1) * sizeof *ready.at);
        ready.n--;
        to[n] = k;
        run_live(s, d, &l, k);
        const hir_op *o = hir_op_at(s->m, s->kernels.at[k]);
        for (uint32_t r = 0; r < o->n_results; r++)
            for (size_t u = 0; u < d->users[o->results[r]].n; u++) {
                uint32_t user = d->users[o->results[r]].at[u];
                if (--waits[user] == 0) insert_sorted(a, &ready, user);
            }
    }
    return l.peak;
}

static uint64_t text_peak(scheduler *s, const dependences *d) {
    live l = new_live(s, d);
    for (uint32_t k = 0; k < d->n; k++)
        run_live(s, d, &l, k);
    return l.peak;
}

/* Does the module send or receive? A stage receives messages in the order in which they are sent,
 * which is that of the text. */
static bool has_messages(const scheduler *s) {
    for (size_t i = 0; i < s->kernels.n; i++)
        if (hir_message_of(s->m, s->kernels.at[i]) != HIR_OPCODE_COUNT) return true;
    return false;
}

/* Within a layer range of a pipeline stage, receives come first and sends last. A message in
 * between would make two stages wait for each other in the middle of their work, where neither has
 * to. */
static void gather_messages(scheduler *s) {
    static const hir_opcode order[] = {HIR_COMM_RECV_OP, HIR_OPCODE_COUNT, HIR_COMM_SEND_OP};
    const hir_runs runs = hir_find_layer_ranges(s->c->scratch, s->m);
    hir_id *to = hd_new_array(s->c->scratch, hir_id, s->kernels.n);
    size_t n = 0;
    for (size_t r = 0; r < runs.list.n; r++)
        for (int part = 0; part < 3; part++)
            for (uint32_t k = runs.list.at[r].first; k < runs.list.at[r].end; k++)
                if (hir_message_of(s->m, s->kernels.at[k]) == order[part])
                    to[n++] = s->kernels.at[k];
    if (memcmp(to, s->kernels.at, n * sizeof *to) == 0) return;
    for (size_t k = 0; k < n; k++)
        hir_move_before(s->m, to[k], HIR_NONE, s->output0); /* the first of them */
    memcpy(s->kernels.at, to, n * sizeof *to);
    s->c->changed = true;
}

static void order_kernels(scheduler *s) {
    if (!s->kernels.n) return;
    if (has_messages(s)) {
        gather_messages(s);
        return;
    }
    dependences d = find_dependences(s);
    uint32_t *to = hd_new_array(s->c->scratch, uint32_t, d.n);
    uint64_t before = text_peak(s, &d), after = greedy_order(s, &d, to);
    if (after >= before) return;
    hir_remark_add(s->c, true, HIR_NONE,
                   "another order of kernels: %llu bytes per token live "
                   "instead of %llu",
                   (unsigned long long)after, (unsigned long long)before);
    hir_id *moved = hd_new_array(s->c->scratch, hir_id, d.n);
    for (uint32_t k = 0; k < d.n; k++) {
        moved[k] = s->kernels.at[to[k]];
        hir_move_before(s->m, moved[k], HIR_NONE, s->output0); /* the first of them */
    }
    memcpy(s->kernels.at, moved, d.n * sizeof *moved);
    s->c->changed = true;
}

/* ---- names --------------------------------------------------------------------------------- */
static void set_string(scheduler *s, hir_id op, hir_attr_id id, const char *value) {
    if (!strcmp(hir_attr_string(hir_op_at(s->m, op), id, ""), value)) return;
    hir_set_attr(s->m, op, hir_string(id, value));
    s->c->changed = true;
}

/* Kernels of one body have one name: its kind and a number. */
static void name_kernels(scheduler *s) {
    hd_arena *a = s->c->scratch;
    hir_canonical *form = hir_canonical_new(a, s->m);
    hir_canonical_set forms = {.arena = a};
    const char **names = hd_new_array(a, const char *, s->kernels.n + 1);
    uint32_t count[HIR_KERNEL_KINDS] = {0};
    for (size_t i = 0; i < s->kernels.n; i++) {
        const hir_id op = s->kernels.at[i];
        const hir_kernel_kind kind = hir_kind_of(hir_op_at(s->m, op)->code);
        hir_canonical_body(form, op);
        const char **name = &names[hir_canonical_index(&forms, form)];
        if (!*name) *name = hd_printf(a, "%s%u", hir_kind(kind)->name, count[kind]++);
        set_string(s, op, HIR_A_NAME, *name);
    }
    hd_text text;
    hd_text_init(&text, a);
    for (int kind = 0; kind < HIR_KERNEL_KINDS; kind++)
        if (count[kind])
            hd_text_f(&text, "%s %u %s%s", text.n ? "," : "", count[kind],
                      hir_kind((hir_kernel_kind)kind)->noun, hd_s(count[kind]));
    if (text.n)
        hir_remark_add(s->c, true, HIR_NONE, "%zu kernel%s, of which different:%s", s->kernels.n,
                       hd_s(s->kernels.n), text.at);
}

/* ---- the pass ------------------------------------------------------------------------------ */
static void set_splits(scheduler *s, hir_id kernel) {
    const hir_kernel_form form = hir_form_of(s->m, kernel);
    const bool cut = form != HIR_KERNEL_FORMS && !hir_runs_once(s->m, kernel);
    const hir_split decode = cut ? hir_form(form)->decode : HIR_SPLIT_NONE;
    const hir_split prefill = cut ? hir_form(form)->prefill : HIR_SPLIT_NONE;
    if (prefill == HIR_SPLIT_CYCLIC) {
        const int64_t grain = hir_work_of(s->m, hir_form_op(s->m, kernel)).rows_together;
        if (hir_attr_int(hir_op_at(s->m, kernel), HIR_A_GRAIN, 0) != grain)
            hir_set_attr(s->m, kernel, hir_int(HIR_A_GRAIN, grain));
    }
    set_string(s, kernel, HIR_A_SPLIT_DECODE, hir_split_name(decode));
    set_string(s, kernel, HIR_A_SPLIT_PREFILL, hir_split_name(prefill));
}

static bool check_model_output(const scheduler *s) {
    if (!s->model || s->output0 == HIR_NONE) return true;
    if (hir_type_has_t(hir_arg_type(s->m, s->output0, 0))) return true;
    hd_err(s->c->diags, HD_E_UNSUPPORTED, *hir_op_at(s->m, s->output0)->loc,
           "the first output of a model has one row per token; this one has no T");
    return false;
}

static void find_kernels(scheduler *s) {
    s->kernels.n = 0;
    s->output0 = HIR_NONE;
    HIR_EACH(s->m, op, s->m->first) {
        if (!is_output(s->m, op))
            hd_push(s->c->scratch, &s->kernels, op);
        else if (s->output0 == HIR_NONE)
            s->output0 = op;
    }
}

bool pass_schedule(hir_pass_context *c) {
    scheduler s = {.c = c, .m = c->m, .model = hir_is_model(c->m)};
    find_kernels(&s);
    if (!check_model_output(&s) || !copy_outputs(&s)) return false;
    find_kernels(&s);
    order_kernels(&s);
    const bool *last = find_last(&s);
    for (size_t i = 0; i < s.kernels.n; i++) {
        const hir_rows rows = last[s.kernels.at[i]] ? HIR_ROWS_LAST : HIR_ROWS_ALL;
        if (hir_rows_of(hir_op_at(s.m, s.kernels.at[i])) != HIR_ROWS_LOSS)
            set_string(&s, s.kernels.at[i], HIR_A_ROWS, hir_rows_name(rows));
        set_splits(&s, s.kernels.at[i]);
    }
    name_kernels(&s);
    return true;
}
