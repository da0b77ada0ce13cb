/* Parts: what must be divided together. From the outputs of a contraction the search follows the
 * axis to everything that has entries for the same heads or features: forward to the contraction
 * that sums over it, backward to other contractions whose outputs are combined with it, and into
 * caches and recurrent states. The part is the same from whichever contraction the search begins,
 * so that each value is visited once. */
#include <stdlib.h>

#include "passes/shard/shard.h"

typedef struct finder {
    shard *s;
    hir_module *m;
    hd_arena *a;
    shard_part *p;
} finder;

/* ---- classes --------------------------------------------------------------------------------- */

uint32_t shard_class(const shard_part *p, uint32_t class) {
    while (p->classes.at[class] != class)
        class = p->classes.at[class];
    return class;
}

static uint32_t new_class(finder *f) {
    const uint32_t class = (uint32_t)f->p->classes.n;
    hd_push(f->a, &f->p->classes, class);
    return class;
}

static void join(shard_part *p, uint32_t a, uint32_t b) {
    p->classes.at[shard_class(p, a)] = shard_class(p, b);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static void reject(finder *f, hir_id op, const char *why) {
    if (f->p->rejected) return;
    f->p->rejected = why;
    f->p->rejected_at = op;
}

static void add_value(finder *f, hir_ref ref, uint32_t axis, uint32_t class) {
    shard *s = f->s;
    shard_part *p = f->p, *other = s->part_of[ref.index];
    if (other == p) {
        const shard_slot *slot = &p->slots.at[s->slot_of[ref.index]];
        if (slot->axis != axis) reject(f, pass_def(f->m, ref), "two of its axes would be divided");
        join(p, class, slot->class);
        return;
    }
    if (other) {
        reject(f, pass_def(f->m, ref),
               other->rejected ? other->rejected : "it is divided otherwise");
        return;
    }
    s->part_of[ref.index] = p;
    s->slot_of[ref.index] = (uint32_t)p->slots.n;
    const shard_slot slot = {.ref = ref, .axis = axis, .class = class, .op = HIR_NONE};
    hd_push(f->a, &p->slots, slot);
}

static void add_operand(finder *f, hir_id op, uint32_t arg, uint32_t axis, uint32_t class,
                        bool zero) {
    const hir_ref ref = pass_arg(f->m, op, arg);
    if (ref.kind == HIR_REF_NONE) return;
    if (ref.kind == HIR_REF_VALUE) {
        add_value(f, ref, axis, class);
        return;
    }
    for (size_t i = 0; i < f->p->slots.n; i++) {
        const shard_slot *slot = &f->p->slots.at[i];
        const bool same = ref.kind == HIR_REF_STATE || (slot->op == op && slot->arg == arg);
        if (hir_ref_equal(slot->ref, ref) && same) {
            join(f->p, class, slot->class);
            return;
        }
    }
    const shard_slot slot = {
        .ref = ref, .axis = axis, .class = class, .op = op, .arg = arg, .zero = zero};
    hd_push(f->a, &f->p->slots, slot);
}

static uint32_t class_of_operand(finder *f, const shard_axis *of, uint32_t class) {
    return of->grouped ? new_class(f) : class;
}

/* ---- following an axis ----------------------------------------------------------------------- */

/* Marks a value as a border of the part: before it is divided, or after it is gathered. */
static void border(finder *f, hir_id op, hir_id value) {
    const hir_type t = hir_value_at(f->m, value)->type;
    if (!hir_type_has_t(t))
        reject(f, op, "it is the same for every token, and no row of it crosses");
    f->p->borders++;
    f->p->crossing += pass_elements(t);
}

static void begin(finder *f, hir_id op, uint32_t class) {
    const bool experts = hir_op_at(f->m, op)->code == HIR_EXPERT_LINEAR_OP;
    bool first = true; /* to read its x */
    for (size_t i = 0; i < f->p->begins.n; i++)
        first &= !hir_ref_equal(pass_arg(f->m, f->p->begins.at[i], 0), pass_arg(f->m, op, 0));
    hd_push(f->a, &f->p->begins, op);
    f->s->is_begin[op] = true;
    if (first) f->p->crossing += pass_elements(hir_arg_type(f->m, op, 0));
    add_operand(f, op, 1, experts, class, false);
    add_operand(f, op, hir_bias_of(hir_op_at(f->m, op)->code), experts, class, false);
}

static void follow_back(finder *f, uint32_t at) {
    const shard_slot slot = f->p->slots.at[at];
    const hir_id op = pass_def(f->m, slot.ref);
    shard_axis of[SHARD_MAX_ARGS];
    if (op == HIR_NONE || f->s->is_end[op]) {
        reject(f, op, op == HIR_NONE ? "an input has all of it" : "it is a sum over ranks");
    } else if (shard_begins(f->m, op, slot.axis)) {
        begin(f, op, slot.class);
    } else if (shard_axes(f->m, op, slot.axis, of)) {
        const hir_op *o = hir_op_at(f->m, op);
        f->p->sequence |= hir_has_trait(o->code, HIR_SEQUENCE | HIR_WRITES_STATE);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (of[i].axis >= 0)
                add_operand(f, op, i, (uint32_t)of[i].axis, class_of_operand(f, &of[i], slot.class),
                            false);
    } else {
        f->p->slots.at[at].whole = true;
        border(f, op, slot.ref.index);
    }
}

/* Adds the contraction that sums over the axis. */
static void end(finder *f, hir_id op, uint32_t class) {
    const hir_type w = hir_arg_type(f->m, op, 1);
    for (size_t i = 0; i < f->p->ends.n; i++)
        if (f->p->ends.at[i] == op) return;
    if (f->s->is_begin[op]) reject(f, op, "its outputs are divided");
    hd_push(f->a, &f->p->ends, op);
    f->s->is_end[op] = true;
    f->p->crossing += pass_elements(pass_result_type(f->m, op));
    add_operand(f, op, 1, w.rank - 1, class, true);
}

/* Follows the axis of operand `arg` to the result of the op; false: the result does not have it. */
static bool follow_through(finder *f, hir_id op, uint32_t arg, const shard_slot *slot) {
    shard_axis of[SHARD_MAX_ARGS];
    if (hir_op_at(f->m, op)->n_results != 1) return false;
    const hir_type y = pass_result_type(f->m, op);
    for (uint32_t r = 0; r < y.rank; r++) {
        if (!shard_axes(f->m, op, r, of) || of[arg].axis != (int)slot->axis) continue;
        add_value(f, hir_value_ref(hir_result(f->m, op)), r,
                  of[arg].grouped ? new_class(f) : slot->class);
        return true;
    }
    return false;
}

static void follow_users(finder *f, const shard_slot *slot) {
    const hir_uses *u = &f->s->uses;
    const hir_id v = slot->ref.index;
    hir_id last = HIR_NONE;
    for (uint32_t i = 0; i < u->count[v]; i++) {
        const hir_id op = u->user[u->first[v] + i];
        const hir_op *o = hir_op_at(f->m, op);
        if (op == last) continue; /* an op that reads it twice is listed twice */
        last = op;
        for (uint32_t arg = 0; arg < o->n_args; arg++) {
            if (!hir_ref_equal(o->args[arg], slot->ref)) continue;
            if (shard_ends(f->m, op, arg, slot->axis))
                end(f, op, slot->class);
            else if (o->code == HIR_OUTPUT_OP) {
                f->p->given_out = true;
                f->p->crossing += pass_elements(hir_value_at(f->m, v)->type);
            } else if (o->code == HIR_CROSS_ENTROPY_OP && arg == 0) {
                /* 4 numbers of each 256 cross for it (shard_tensor.c): they decide nothing, so that
                 * a model with a loss is divided as the same without one */
            } else if (!follow_through(f, op, arg, slot))
                border(f, op, v);
        }
    }
}

/* ---- how it is divided ----------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b) {
    return b ? gcd(b, a % b) : a;
}

/* Entries of a class: what all its axes are whole multiples of. */
static int64_t entries_of(const finder *f, uint32_t class) {
    int64_t n = 0;
    for (size_t i = 0; i < f->p->slots.n; i++) {
        const shard_slot *slot = &f->p->slots.at[i];
        if (shard_class(f->p, slot->class) == class)
            n = gcd(n, hir_ref_type(f->m, slot->ref).dim[slot->axis]);
    }
    return n;
}

/* Features are divided in units of 32, or of fewer where the shares of ranks would differ too much
 * in size: with 32, panels and the groups of quantised weights are those of the undivided weight.
 */
static int64_t features_of_unit(int64_t n, int64_t ranks) {
    for (int64_t unit = HIR_GROUP; unit > 1; unit /= 2) {
        const int64_t most = (n / unit + ranks - 1) / ranks * unit;
        if (n % unit == 0 && most * ranks * 10 <= n * 11) return unit;
    }
    return 1;
}

static void divide(finder *f) {
    shard_part *p = f->p;
    const int64_t ranks = f->s->m->ranks;
    int64_t groups = 0, several = 1;
    for (uint32_t c = 0; c < p->classes.n; c++)
        if (shard_class(p, c) == c) groups = gcd(groups, entries_of(f, c));
    for (uint32_t c = 0; c < p->classes.n; c++) {
        const bool own = shard_class(p, c) == c;
        hd_known(groups); /* of a class that has entries */
        const int64_t n = own ? entries_of(f, c) : groups;
        hd_share share = {ranks, n, groups, n / groups, true};
        if (own && !p->sequence && n == groups) share.groups /= features_of_unit(n, ranks);
        if (own && share.units > 1 && several > 1 && share.units != several && ranks > groups)
            reject(f, p->slots.at[0].op, "its heads are in groups of several sizes");
        if (own && share.units > 1) several = share.units;
        hd_push(f->a, &p->shares, share);
    }
}

/* Does a part that is divided already hold the contraction? */
static bool is_divided(const shard *s, hir_id op) {
    for (size_t i = 0; op != HIR_NONE && i < s->parts.n; i++) {
        const shard_part *p = s->parts.at[i];
        for (size_t k = 0; k < p->slots.n; k++)
            if (p->slots.at[k].ref.kind == HIR_REF_WEIGHT && p->slots.at[k].op == op) return true;
    }
    return false;
}

/* The bytes of weights that one of several ranks does not hold because of this part. */
static uint64_t bytes_saved(const finder *f) {
    uint64_t saved = 0, bytes;
    for (size_t i = 0; i < f->p->slots.n; i++) {
        const shard_slot *slot = &f->p->slots.at[i];
        if (slot->ref.kind != HIR_REF_WEIGHT || (f->p->rejected && is_divided(f->s, slot->op)))
            continue;
        if (hir_weight_bytes(&f->m->weights.at[slot->ref.index], &bytes))
            saved += bytes - bytes / f->m->ranks;
    }
    return saved;
}

static void decide(finder *f) {
    shard_part *p = f->p;
    p->saved = bytes_saved(f);
    if (p->rejected) return;
    if (p->borders && !p->sequence)
        reject(f, p->begins.at[0], "it would be made whole in between, for other ops");
    else if (!p->sequence && !p->ends.n && !p->given_out)
        reject(f, p->begins.at[0], "nothing sums its outputs up");
    else if (!p->sequence && p->saved < (uint64_t)p->crossing * 4)
        reject(f, p->begins.at[0],
               "more bytes would cross for a token than a rank saves of weights");
    else
        divide(f);
}

/* Releases the contractions of a part that is not divided for other parts. */
static void give_up(finder *f, hir_id op) {
    for (size_t i = 0; i < f->p->ends.n; i++)
        f->s->is_end[f->p->ends.at[i]] = false;
    for (size_t i = 0; i < f->p->begins.n; i++)
        f->s->is_begin[f->p->begins.at[i]] = false;
    const hir_id at = f->p->rejected_at;
    hir_remark_add(
        f->s->c, false, at == HIR_NONE || is_divided(f->s, at) ? op : at,
        "is done by each rank with all of its weights, %llu bytes more than its share: %s",
        (unsigned long long)f->p->saved, f->p->rejected);
}

static void find_from(shard *s, hir_id op) {
    finder f = {s, s->m, s->c->scratch, hd_new(s->c->scratch, shard_part)};
    f.p->rejected_at = HIR_NONE;
    add_value(&f, hir_value_ref(hir_result(s->m, op)), pass_result_type(s->m, op).rank - 1,
              new_class(&f));
    for (uint32_t at = 0; at < f.p->slots.n; at++) {
        if (f.p->slots.at[at].ref.kind != HIR_REF_VALUE) continue;
        follow_back(&f, at);
        const shard_slot slot = f.p->slots.at[at];
        if (!slot.whole) follow_users(&f, &slot);
    }
    decide(&f);
    if (f.p->rejected)
        give_up(&f, op);
    else
        hd_push(s->c->scratch, &s->parts, f.p);
}

/* A table saves memory alone, as a token reads one of its rows: it is divided, by features, if a
 * rank saves at least this many times what is sent for a token. */
enum { TABLE_WORTH = 1024 };

static void find_table(shard *s, hir_id op) {
    const hir_op *o = hir_op_at(s->m, op);
    const hir_id v = o->results[0];
    finder f = {s, s->m, s->c->scratch, hd_new(s->c->scratch, shard_part)};
    const shard_part *other = s->part_of[v];
    if (o->args[0].kind != HIR_REF_WEIGHT || (other && !other->rejected)) return;
    s->part_of[v] = NULL;
    add_value(&f, hir_value_ref(v), 1, new_class(&f));
    add_operand(&f, op, 0, 1, 0, false);
    f.p->crossing = pass_elements(hir_value_at(s->m, v)->type);
    f.p->saved = bytes_saved(&f);
    s->is_begin[op] = true;
    if (f.p->saved / TABLE_WORTH < (uint64_t)f.p->crossing * 4)
        f.p->rejected = "it has few rows";
    else
        divide(&f);
    if (!f.p->rejected) {
        hd_push(s->c->scratch, &s->parts, f.p);
        return;
    }
    s->is_begin[op] = false;
    s->part_of[v] = NULL;
}

/* A contraction at whose outputs a part may begin. */
typedef struct candidate {
    hir_id op;
    size_t at;      /* its place in the program */
    uint64_t bytes; /* of its weight */
} candidate;

static int larger_first(const void *x, const void *y) {
    const candidate *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Where two parts claim the same values, the part of the larger weight gets them: for experts after
 * a map to a narrow row these are the features, not the entries of that row. */
static void find_from_all(shard *s) {
    candidate *all = hd_new_array(s->c->scratch, candidate, s->m->ops.n);
    size_t n = 0;
    HIR_EACH(s->m, op, s->m->first) {
        const hir_op *o = hir_op_at(s->m, op);
        if (o->n_results != 1 || !shard_begins(s->m, op, pass_result_type(s->m, op).rank - 1))
            continue;
        all[n] = (candidate){.op = op, .at = n};
        if (o->args[1].kind == HIR_REF_WEIGHT)
            hir_weight_bytes(&s->m->weights.at[o->args[1].index], &all[n].bytes);
        n++;
    }
    qsort(all, n, sizeof *all, larger_first);
    for (size_t i = 0; i < n; i++) {
        const hir_id v = hir_result(s->m, all[i].op);
        if (!s->part_of[v] && !s->is_end[all[i].op]) find_from(s, all[i].op);
    }
}

void shard_find_parts(shard *s) {
    const size_t values = s->m->values.n;
    s->part_of = hd_new_array(s->c->scratch, shard_part *, values);
    s->slot_of = hd_new_array(s->c->scratch, uint32_t, values);
    s->is_end = hd_new_array(s->c->scratch, bool, s->m->ops.n);
    s->is_begin = hd_new_array(s->c->scratch, bool, s->m->ops.n);
    find_from_all(s);
    HIR_EACH(s->m, op, s->m->first) {
        const hir_op *o = hir_op_at(s->m, op);
        if (o->code == HIR_GATHER_OP) find_table(s, op);
    }
}
