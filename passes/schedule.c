/* schedule: order, rows, threads and names of the kernels.
 *
 * Needs    kernels.
 * Does     1 output    puts a copying row program in front of an output whose memory cannot be the
 *                      kernel result's own: the value is an input, is given out twice, or is
 *                      logits that are needed for more rows than the caller asks for
 *          2 order     keeps the order of the text unless making a kernel later or earlier lowers
 *                      the most bytes alive at once
 *          3 rows      "last" for kernels whose results only output 0 of a model and "last" kernels
 *                      read, and which write no state: they run for the rows asked for. Attention
 *                      may be one: a row of its result needs that row of q, and the cache.
 *          4 threads   split_decode (T = 1), split_prefill (T > 1): row programs none, rows;
 * contractions cols, cols; sequences keys, cyclic in chunks of as many rows as make 128 queries of
 * a key/value head; what runs once: none 5 names     row0, row1, contract0 ...: the number counts
 * different bodies, equal ones share a name Leaves   bodies.
 */
#include <string.h>

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

static bool writes_state(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first)
    if (hir_op_at(m, op)->code == HIR_CACHE_APPEND_OP) return true;
    return false;
}

/* Has no result with T (or C): runs once. */
static bool runs_once(const hir_module *m, hir_id kernel) {
    const hir_op *k = hir_op_at(m, kernel);
    for (uint32_t i = 0; i < k->n_results; i++) {
        hir_type t = hir_value_at(m, k->results[i])->type;
        if (hir_type_has_t(t) || pass_type_has_c(t)) return false;
    }
    return true;
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
        if (is_output(m, op)) {
            if (o->args[0].kind == HIR_REF_VALUE && op != s->output0)
                r.all[o->args[0].index] = true;
            continue;
        }
        last[op] = s->model && !writes_state(m, op) && !runs_once(m, op);
        for (uint32_t i = 0; i < o->n_results; i++)
            if (r.all[o->results[i]]) last[op] = false;
        if (!last[op]) each_read(m, op, mark_all, &r);
    }
    return last;
}

/* ---- outputs ------------------------------------------------------------------------------- */
/* An output reads the result of a kernel of its own in front of it. */
static bool insert_copy(scheduler *s, hir_id output, const char *why) {
    hir_module *m = s->m;
    hir_ref x = pass_arg(m, output, 0);
    hir_type t = hir_ref_type(m, x);
    t.dtype = HIR_F32;
    hir_builder b = hir_before(m, s->c->diags, output);
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "row"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "none"),
                        hir_string(HIR_A_SPLIT_PREFILL, "none")};
    hir_id kernel = hir_build_kernel(&b, HIR_KERNEL_ROW_OP, attrs, 4, &t, 1);
    if (kernel == HIR_NONE) return false;
    hir_builder body = hir_in_body(m, s->c->diags, kernel);
    hir_attr shape = hir_ints(HIR_A_SHAPE, t.dim, t.rank);
    hir_ref copy = hir_emit(&body, HIR_RESHAPE_OP, &x, 1, &shape, 1);
    if (copy.kind == HIR_REF_NONE || hir_build(&body, HIR_YIELD_OP, &copy, 1, NULL, 0) == HIR_NONE)
        return false;
    hir_op_at(m, output)->args[0] = hir_value_ref(hir_result(m, kernel));
    s->c->changed = true;
    hir_remark_add(s->c, true, output, "copied by a row program of its own: %s", why);
    return true;
}

/* Why an output needs a copy; NULL: the kernel may write to it directly. */
static const char *reason_to_copy(const scheduler *s, hir_id output, const bool *last,
                                  const bool *given_out) {
    hir_ref x = pass_arg(s->m, output, 0);
    if (x.kind != HIR_REF_VALUE) return "it is a weight";
    hir_id kernel = maker(s->m, x.index);
    if (kernel == HIR_NONE) return "it is an input";
    if (hir_value_at(s->m, x.index)->type.dtype != HIR_F32) return "outputs are f32";
    if (given_out[x.index]) return "the value is given out twice";
    if (s->model && output == s->output0 && !last[kernel] && !runs_once(s->m, kernel))
        return "its value is needed for more rows than are asked for";
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
/* List scheduling over kernels: of those whose operands are there, the one after which fewest bytes
 * are alive; the order of the text decides between equals and wins if the result is not better. */
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

typedef struct live { /* bytes alive while kernels run one by one */
    uint32_t *left;   /* by value: readers that are still to come */
    uint64_t now, peak;
} live;

static live new_live(scheduler *s, const dependences *d) {
    live l = {.left = hd_new_array(s->c->scratch, uint32_t, s->m->values.n)};
    for (size_t v = 0; v < s->m->values.n; v++)
        l.left[v] = (uint32_t)d->users[v].n;
    return l;
}

/* Bytes that come alive and bytes that die with a kernel. */
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

/* The ready kernel after which least is alive; ready is in the order of the text. */
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

static void order_kernels(scheduler *s) {
    if (!s->kernels.n) return;
    dependences d = find_dependences(s);
    uint32_t *to = hd_new_array(s->c->scratch, uint32_t, d.n);
    uint64_t before = text_peak(s, &d), after = greedy_order(s, &d, to);
    if (after >= before) return;
    hir_remark_add(s->c, true, HIR_NONE,
                   "another order of kernels: %llu bytes per token alive "
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
/* A kernel's body as numbers, in which outer operands are numbered by first use: equal numbers are
 * equal code. */
typedef HD_VEC(uint64_t) number_list;

typedef struct key {
    scheduler *s;
    number_list numbers;
    HD_VEC(hir_ref) outer;
    uint32_t *local; /* by value: number in the body + 1 */
    HD_VEC(uint32_t) locals;
} key;

static void key_add(key *k, uint64_t v) {
    hd_push(k->s->c->scratch, &k->numbers, v);
}

static void key_type(key *k, hir_type t) {
    key_add(k, (uint64_t)t.dtype << 32 | t.rank);
    for (uint32_t i = 0; i < t.rank; i++)
        key_add(k, (uint64_t)t.dim[i]);
}

enum { KEY_LOCAL = 8 }; /* beside the kinds of outer operands */

static void key_ref(key *k, hir_ref r) {
    const hir_module *m = k->s->m;
    if (r.kind == HIR_REF_VALUE && k->local[r.index]) {
        key_add(k, (uint64_t)k->local[r.index] << 4 | KEY_LOCAL);
        return;
    }
    size_t i = 0;
    while (r.kind != HIR_REF_NONE && i < k->outer.n && !hir_ref_equal(k->outer.at[i], r))
        i++;
    key_add(k, i << 4 | r.kind);
    if (r.kind == HIR_REF_NONE || i < k->outer.n) return;
    hd_push(k->s->c->scratch, &k->outer, r);
    key_type(k, hir_ref_type(m, r));
    key_add(k, r.kind == HIR_REF_WEIGHT ? m->weights.at[r.index].layout : HIR_LAYOUT_ROWS);
}

static void key_string(key *k, const char *s) {
    size_t n = strlen(s);
    key_add(k, n);
    for (size_t i = 0; i < n; i++)
        key_add(k, (unsigned char)s[i]);
}

static void key_attr(key *k, const hir_attr *a) {
    uint64_t bits;
    key_add(k, a->id);
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: key_add(k, (uint64_t)a->i); break;
    case HIR_ATTR_FLOAT:
        memcpy(&bits, &a->f, sizeof bits);
        key_add(k, bits);
        break;
    case HIR_ATTR_STRING: key_string(k, a->s); break;
    case HIR_ATTR_INTS:
        key_add(k, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            key_add(k, (uint64_t)a->ints[i]);
        break;
    }
}

static number_list key_of(key *k, hir_id kernel) {
    const hir_module *m = k->s->m;
    hd_arena *scratch = k->s->c->scratch;
    for (size_t i = 0; i < k->locals.n; i++)
        k->local[k->locals.at[i]] = 0;
    k->locals.n = k->outer.n = 0;
    k->numbers = (number_list){0};
    key_add(k, hir_op_at(m, kernel)->code);
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, op);
        key_add(k, (uint64_t)o->code << 32 | o->n_args << 16 | o->n_attrs);
        for (uint32_t i = 0; i < o->n_args; i++)
            key_ref(k, o->args[i]);
        for (uint32_t i = 0; i < o->n_attrs; i++)
            key_attr(k, &o->attrs[i]);
        for (uint32_t i = 0; i < o->n_results; i++) {
            hd_push(scratch, &k->locals, o->results[i]);
            k->local[o->results[i]] = (uint32_t)k->locals.n;
            key_type(k, hir_value_at(m, o->results[i])->type);
        }
    }
    return k->numbers;
}

typedef struct named { /* a body seen before */
    number_list key;
    const char *name;
} named;

static uint64_t hash_numbers(number_list l) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < l.n; i++) {
        h = (h ^ l.at[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h ^ h >> 32;
}

static bool same_numbers(number_list a, number_list b) {
    return a.n == b.n && memcmp(a.at, b.at, a.n * sizeof *a.at) == 0;
}

static void set_string(scheduler *s, hir_id op, hir_attr_id id, const char *value) {
    if (!strcmp(hir_attr_string(hir_op_at(s->m, op), id, ""), value)) return;
    hir_set_attr(s->m, op, hir_string(id, value));
    s->c->changed = true;
}

static void name_kernels(scheduler *s) {
    static const char *const stems[] = {"row", "contract", "sequence"};
    hd_arena *a = s->c->scratch;
    size_t size = 16;
    while (size < 2 * s->kernels.n)
        size *= 2;
    named *table = hd_new_array(a, named, size);
    uint32_t count[3] = {0};
    key k = {.s = s, .local = hd_new_array(a, uint32_t, s->m->values.n)};
    for (size_t i = 0; i < s->kernels.n; i++) {
        hir_id op = s->kernels.at[i];
        number_list own = key_of(&k, op);
        size_t at = hash_numbers(own) & (size - 1);
        while (table[at].name && !same_numbers(table[at].key, own))
            at = (at + 1) & (size - 1);
        if (!table[at].name) {
            uint32_t kind = hir_op_at(s->m, op)->code - HIR_KERNEL_ROW_OP;
            table[at] = (named){own, hd_printf(a, "%s%u", stems[kind], count[kind]++)};
        }
        set_string(s, op, HIR_A_NAME, table[at].name);
    }
    hir_remark_add(
        s->c, true, HIR_NONE,
        "%zu kernels, of which different: %u row programs, %u contractions, %u sequences",
        s->kernels.n, count[0], count[1], count[2]);
}

/* ---- the pass ------------------------------------------------------------------------------ */
/* Tokens whose queries of one key/value head fill a tile. */
static int64_t rows_of_tile(const hir_module *m, hir_id kernel) {
    int64_t rows = HIR_QUERY_TILE;
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        if (hir_op_at(m, op)->code != HIR_ATTENTION_OP) continue;
        rows = HIR_QUERY_TILE / (hir_arg_type(m, op, 0).dim[1] / hir_arg_type(m, op, 1).dim[1]);
    }
    return rows > 0 ? rows : 1;
}

static void set_splits(scheduler *s, hir_id op) {
    const hir_op *o = hir_op_at(s->m, op);
    const char *one = "none", *many = "rows";
    if (o->code == HIR_KERNEL_CONTRACT_OP) one = many = "cols";
    if (o->code == HIR_KERNEL_SEQUENCE_OP) {
        one = "keys";
        many = "cyclic";
        int64_t grain = rows_of_tile(s->m, op);
        if (hir_attr_int(o, HIR_A_GRAIN, 0) != grain)
            hir_set_attr(s->m, op, hir_int(HIR_A_GRAIN, grain));
    }
    if (runs_once(s->m, op)) one = many = "none";
    set_string(s, op, HIR_A_SPLIT_DECODE, one);
    set_string(s, op, HIR_A_SPLIT_PREFILL, many);
}

static bool check_model_output(const scheduler *s) {
    if (!s->model || s->output0 == HIR_NONE) return true;
    if (hir_type_has_t(hir_arg_type(s->m, s->output0, 0))) return true;
    hd_err(s->c->diags, HD_E_UNSUPPORTED, hir_op_at(s->m, s->output0)->loc,
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
    scheduler s = {.c = c, .m = c->m, .model = pass_is_model(c->m)};
    find_kernels(&s);
    if (!check_model_output(&s) || !copy_outputs(&s)) return false;
    find_kernels(&s);
    order_kernels(&s);
    const bool *last = find_last(&s);
    for (size_t i = 0; i < s.kernels.n; i++) {
        set_string(&s, s.kernels.at[i], HIR_A_ROWS, last[s.kernels.at[i]] ? "last" : "all");
        set_splits(&s, s.kernels.at[i]);
    }
    name_kernels(&s);
    return true;
}
