/* Types, the module's tables, attributes, and copies of whole modules. */
#include <stdlib.h>
#include <string.h>

#include "ir/signature.h"

/* ---- types --------------------------------------------------------------------------------- */
hir_type hir_make_type(hir_dtype dtype, uint32_t rank, const int64_t *dims) {
    hir_type t = {.dtype = dtype, .rank = rank < HIR_MAX_RANK ? rank : HIR_MAX_RANK};
    for (uint32_t i = 0; i < t.rank; i++)
        t.dim[i] = dims[i];
    return t;
}

bool hir_type_equal(hir_type a, hir_type b) {
    if (a.dtype != b.dtype || a.rank != b.rank) return false;
    for (uint32_t i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

bool hir_type_has_t(hir_type t) {
    return t.rank > 0 && hir_is_tokens(t.dim[0]);
}

bool hir_type_has_c(hir_type t) {
    return t.rank > 0 && hir_is_length(t.dim[0]);
}

int64_t hir_type_row_elements(hir_type t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < t.rank; i++)
        if (t.dim[i] >= 0 && hd_mul_overflow(n, t.dim[i], &n)) return -1;
    return n;
}

hir_type hir_ref_type(const hir_module *m, hir_ref r) {
    switch ((hir_ref_kind)r.kind) {
    case HIR_REF_VALUE: return m->values.at[r.index].type;
    case HIR_REF_WEIGHT: return m->weights.at[r.index].type;
    case HIR_REF_STATE: return m->states.at[r.index].type;
    case HIR_REF_NONE: break;
    }
    return (hir_type){0};
}

/* ---- tables -------------------------------------------------------------------------------- */
hir_module *hir_module_new(hd_arena *a, const char *name) {
    hir_module *m = hd_new(a, hir_module);
    m->arena = a;
    m->name = hd_strdup(a, name);
    m->first = m->last = HIR_NONE;
    return m;
}

static void index_weight(hir_module *m, size_t i) {
    if (!m->weight_names.arena) hir_names_init(&m->weight_names, m->arena);
    hir_names_add(&m->weight_names, m->weights.at[i].name, (uint32_t)i);
}

uint32_t hir_add_weight(hir_module *m, const char *name, hir_type type, hd_loc loc) {
    hir_weight w = {.name = hd_strdup(m->arena, name), .type = type, .loc = loc};
    hd_push(m->arena, &m->weights, w);
    if (m->weight_names.n == m->weights.n - 1) index_weight(m, m->weights.n - 1);
    return (uint32_t)(m->weights.n - 1);
}

void hir_set_state_dtype(hir_module *m, hir_state_kind kind, hir_dtype dtype) {
    for (size_t i = 0; i < m->states.n; i++)
        if (m->states.at[i].kind == kind) m->states.at[i].type.dtype = dtype;
    if (hir_state_kind_of(kind)->rows != HIR_ROWS_PER_POSITION) return; /* no value is one */
    for (size_t i = 0; i < m->values.n; i++) {
        hir_type *t = &m->values.at[i].type;
        const bool state = m->stage == HIR_STAGE_KERNEL || /* where kernels pass states on */
                           hir_state_of_value(m, hir_value_ref((hir_id)i)) != HIR_NONE;
        if (hir_type_has_c(*t) && state) t->dtype = dtype;
    }
}

uint32_t hir_find_weight(const hir_module *m, const char *name) {
    if (m->weight_names.n == m->weights.n) {
        const uint32_t *i = hir_names_find(&m->weight_names, name);
        return i ? *i : HIR_NONE;
    }
    for (size_t i = 0; i < m->weights.n; i++) /* two of one name, or it was edited */
        if (strcmp(m->weights.at[i].name, name) == 0) return (uint32_t)i;
    return HIR_NONE;
}

bool hir_is_part_pattern(const char *name) {
    const char *star = strchr(name, '*');
    return star && !strchr(star + 1, '*');
}

const char *hir_part_name(hd_arena *a, const hir_weight *w, int64_t part) {
    const char *star = strchr(w->name, '*');
    return hd_printf(a, "%.*s%lld%s", (int)(star - w->name), w->name, (long long)part, star + 1);
}

int64_t hir_parts(const hir_weight *w) {
    return w->stacked ? w->type.dim[0] : 1;
}

hir_weight hir_part_of(hd_arena *a, const hir_weight *w, int64_t part) {
    hir_weight one = *w;
    if (!w->stacked) return one;
    one.name = hir_part_name(a, w, part);
    one.type = hir_make_type(w->type.dtype, w->type.rank - 1, w->type.dim + 1);
    one.stacked = false;
    return one;
}

hir_weight_list hir_checkpoint_tensors(hd_arena *a, const hir_module *m) {
    hir_weight_list all = {0};
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        for (int64_t k = 0; !hir_is_derived(w) && k < hir_parts(w); k++)
            hd_push(a, &all, hir_part_of(a, w, k));
    }
    return all;
}

hir_id hir_add_input(hir_module *m, const char *name, hir_type type) {
    hir_value v = {.type = type, .op = HIR_NONE};
    v.name = name ? hd_strdup(m->arena, name) : NULL;
    hd_push(m->arena, &m->values, v);
    hir_id id = (hir_id)(m->values.n - 1);
    hd_push(m->arena, &m->inputs, id);
    return id;
}

void hir_add_unused_below(hir_module *m, const char *prefix) {
    if (hir_unused_below(m, prefix) < m->unused_below.n) return;
    const char *kept = hd_strdup(m->arena, prefix);
    hd_push(m->arena, &m->unused_below, kept);
}

const char *hir_behind_match(const char *name, const char *pattern) {
    hd_known(name);
    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            const size_t digits = strspn(name, "0123456789");
            if (digits == 0) return NULL;
            name += digits;
        } else if (*name++ != *pattern)
            return NULL;
    }
    return name;
}

size_t hir_unused_below(const hir_module *m, const char *name) {
    size_t i = 0;
    while (i < m->unused_below.n && !hir_behind_match(name, m->unused_below.at[i]))
        i++;
    return i;
}

void hir_set_option(hir_module *m, const char *key, const char *value) {
    hir_option option = {NULL, hd_strdup(m->arena, value)};
    for (size_t i = 0; i < m->options.n; i++)
        if (strcmp(m->options.at[i].key, key) == 0) {
            m->options.at[i].value = option.value;
            return;
        }
    option.key = hd_strdup(m->arena, key);
    hd_push(m->arena, &m->options, option);
}

static bool same_call(const hd_loc *a, const hd_loc *b) {
    if (a == b || !a || !b) return a == b;
    return a->file == b->file && a->line == b->line && a->column == b->column &&
           a->end_column == b->end_column && a->call == b->call;
}

static bool same_loc(const hd_loc *a, const hd_loc *b) {
    return a->file == b->file && a->line == b->line && a->column == b->column &&
           a->end_column == b->end_column && same_call(a->call, b->call);
}

const hd_loc *hir_keep_loc(hir_module *m, hd_loc loc) {
    const size_t n = sizeof m->kept_locs / sizeof *m->kept_locs;
    const hd_loc **kept = &m->kept_locs[(loc.line * 31 + loc.column) % n];
    if (*kept && same_loc(*kept, &loc)) return *kept;
    hd_loc *own = hd_new(m->arena, hd_loc);
    *own = loc;
    return *kept = own;
}

hd_loc hir_place_of(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    if (op < m->n_text_locs && m->text_locs[op].file) return m->text_locs[op];
    if (!o->loc->file && o->parent != HIR_NONE) return hir_place_of(m, o->parent);
    return *o->loc;
}

/* ---- attributes ---------------------------------------------------------------------------- */
const hir_attr *hir_find_attr(const hir_op *op, hir_attr_id id) {
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].id == id) return &op->attrs[i];
    return NULL;
}

int64_t hir_attr_int(const hir_op *op, hir_attr_id id, int64_t missing) {
    const hir_attr *a = hir_find_attr(op, id);
    return a ? a->i : missing;
}

double hir_attr_float(const hir_op *op, hir_attr_id id, double missing) {
    const hir_attr *a = hir_find_attr(op, id);
    return a ? a->f : missing;
}

const char *hir_attr_string(const hir_op *op, hir_attr_id id, const char *missing) {
    const hir_attr *a = hir_find_attr(op, id);
    return a ? a->s : missing;
}

bool hir_same_attr(const hir_attr *a, const hir_attr *b) {
    if (a->id != b->id) return false;
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: return a->i == b->i;
    case HIR_ATTR_FLOAT: return !memcmp(&a->f, &b->f, sizeof a->f);
    case HIR_ATTR_STRING: return !strcmp(a->s, b->s);
    case HIR_ATTR_INTS:
        return a->n == b->n && (!a->n || !memcmp(a->ints, b->ints, a->n * sizeof *a->ints));
    case HIR_ATTR_FLOATS:
        return a->n == b->n && (!a->n || !memcmp(a->floats, b->floats, a->n * sizeof *a->floats));
    }
    return false;
}

bool hir_same_slice(const hir_op *a, const hir_op *b) {
    return hir_attr_int(a, HIR_A_AXIS, 0) == hir_attr_int(b, HIR_A_AXIS, 0) &&
           hir_attr_int(a, HIR_A_START, 0) == hir_attr_int(b, HIR_A_START, 0) &&
           hir_attr_int(a, HIR_A_LENGTH, 0) == hir_attr_int(b, HIR_A_LENGTH, 0);
}

hir_attr hir_copy_attr(hd_arena *a, hir_attr attr) {
    const hir_attr_kind kind =
        (unsigned)attr.id < HIR_A_COUNT ? hir_attr_kind_of(attr.id) : HIR_ATTR_INT;
    if (kind == HIR_ATTR_STRING && attr.s) attr.s = hd_strdup(a, attr.s);
    if (kind == HIR_ATTR_INTS && attr.ints) {
        int64_t *ints = hd_new_array(a, int64_t, attr.n);
        memcpy(ints, attr.ints, attr.n * sizeof *ints);
        attr.ints = ints;
    }
    if (kind == HIR_ATTR_FLOATS && attr.floats) {
        double *floats = hd_new_array(a, double, attr.n);
        memcpy(floats, attr.floats, attr.n * sizeof *floats);
        attr.floats = floats;
    }
    return attr;
}

void hir_set_attr(hir_module *m, hir_id id, hir_attr attr) {
    hir_op *op = hir_op_at(m, id);
    attr = hir_copy_attr(m->arena, attr);
    uint32_t at = 0;
    while (at < op->n_attrs && op->attrs[at].id < attr.id)
        at++;
    if (at < op->n_attrs && op->attrs[at].id == attr.id) {
        op->attrs[at] = attr;
        return;
    }
    hir_attr *attrs = hd_new_array(m->arena, hir_attr, op->n_attrs + 1);
    if (op->n_attrs) {
        memcpy(attrs, op->attrs, at * sizeof *attrs);
        memcpy(attrs + at + 1, op->attrs + at, (op->n_attrs - at) * sizeof *attrs);
    }
    attrs[at] = attr;
    op->attrs = attrs;
    op->n_attrs++;
}

hir_ref hir_through_reshapes(const hir_module *m, hir_ref r) {
    while (r.kind == HIR_REF_VALUE) {
        hir_id op = hir_value_at(m, r.index)->op;
        if (op == HIR_NONE || hir_op_at(m, op)->code != HIR_RESHAPE_OP) break;
        r = hir_op_at(m, op)->args[0];
    }
    return r;
}

/* ---- in place ------------------------------------------------------------------------------ */
static bool same_rows(const hir_value *a, const hir_value *b) {
    return hir_type_has_t(a->type) && hir_type_has_t(b->type) && a->type.dim[0] == b->type.dim[0] &&
           a->type.dtype == b->type.dtype &&
           hir_type_row_elements(a->type) == hir_type_row_elements(b->type);
}

hir_id hir_otherwise(const hir_module *m, hir_id kernel) {
    if (hir_op_at(m, kernel)->code != HIR_KERNEL_SEQUENCE_OP) return HIR_NONE;
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_ATTENTION_EXPANDED_OP && o->args[0].kind == HIR_REF_VALUE)
            return o->args[0].index;
    }
    return HIR_NONE;
}

bool hir_may_be_in_place(const hir_module *m, hir_id kernel, hir_id value) {
    const hir_op *k = hir_op_at(m, kernel);
    bool behind = false, read = false;
    if (k->code == HIR_KERNEL_ROW_OP) return true;
    if (k->code == HIR_KERNEL_SEQUENCE_OP) return hir_otherwise(m, kernel) == value;
    if (k->code != HIR_KERNEL_CONTRACT_OP || k->n_results != 1) return false;
    const hir_type type = hir_value_at(m, k->results[0])->type;
    HIR_EACH(m, op, k->body_first) {
        const hir_op *o = hir_op_at(m, op);
        bool its = false;
        for (uint32_t j = 0; j < o->n_args; j++)
            its |= hir_ref_equal(o->args[j], hir_value_ref(value));
        if (o->code == HIR_LINEAR_OP) {
            if (its || read) return false;
            behind = true;
        }
        if (!its) continue;
        const bool alike = hir_has_trait(o->code, HIR_ELEMENTWISE) &&
                           hir_type_equal(hir_value_at(m, value)->type, type) &&
                           hir_type_equal(hir_value_at(m, o->results[0])->type, type);
        if (!behind || !alike) return false;
        read = true;
    }
    return read;
}

typedef struct placed_result {
    hir_place place;
    uint64_t offset;
    hir_id value, *in_place_of;
} placed_result;

static bool is_placed(const hir_value *v) {
    return v->place == HIR_PLACE_ARENA || v->place == HIR_PLACE_LOCAL || v->place == HIR_PLACE_TILE;
}

static int by_place(const void *x, const void *y) {
    const placed_result *a = x, *b = y;
    if (a->place != b->place) return a->place < b->place ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The first of the sorted results that is not before the place of v. */
static size_t first_at(const placed_result *at, size_t n, const hir_value *v) {
    const placed_result key = {.place = v->place, .offset = v->offset};
    size_t from = 0;
    while (n > 0) {
        const size_t half = n / 2;
        const bool before = by_place(&at[from + half], &key) < 0;
        from += before ? half + 1 : 0;
        n = before ? n - half - 1 : half;
    }
    return from;
}

static void note_in_place(const hir_module *m, hir_id kernel, const placed_result *at, size_t n,
                          hir_id read) {
    const hir_value *x = hir_value_at(m, read);
    if (!is_placed(x)) return;
    for (size_t i = first_at(at, n, x); i < n; i++) {
        if (at[i].place != x->place || at[i].offset != x->offset) break;
        if (*at[i].in_place_of == HIR_NONE && same_rows(hir_value_at(m, at[i].value), x) &&
            hir_may_be_in_place(m, kernel, read))
            *at[i].in_place_of = read;
    }
}

static void find_in_place(const hir_module *m, hir_id kernel, const placed_result *at, size_t n) {
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t j = 0; j < o->n_args; j++)
            if (o->args[j].kind == HIR_REF_VALUE) note_in_place(m, kernel, at, n, o->args[j].index);
    }
}

const hir_id *hir_in_place(const hir_module *m, hir_id kernel, hd_arena *a) {
    const hir_op *k = hir_op_at(m, kernel);
    hir_id *of = hd_new_array(a, hir_id, k->n_results + 1);
    placed_result *at = hd_new_array(a, placed_result, k->n_results + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < k->n_results; i++) {
        const hir_value *v = hir_value_at(m, k->results[i]);
        of[i] = HIR_NONE;
        if (is_placed(v)) at[n++] = (placed_result){v->place, v->offset, k->results[i], &of[i]};
    }
    if (n > 1) qsort(at, n, sizeof *at, by_place);
    if (n) find_in_place(m, kernel, at, n);
    return of;
}

hir_id hir_in_place_of(const hir_module *m, hir_id kernel, uint32_t i) {
    const hir_id result = hir_op_at(m, kernel)->results[i];
    const hir_value *v = hir_value_at(m, result);
    hir_id of = HIR_NONE;
    const placed_result at = {v->place, v->offset, result, &of};
    if (is_placed(v)) find_in_place(m, kernel, &at, 1);
    return of;
}

/* ---- copies -------------------------------------------------------------------------------- */
/* Locations share few file names and calls: each is copied only where it differs from the one
 * before. */
typedef struct loc_copier {
    hd_arena *arena;
    const char *from, *to;
    const hd_loc *from_call, *to_call;
} loc_copier;

static const char *copy_file(loc_copier *c, const char *file) {
    if (file && file != c->from) {
        c->from = file;
        c->to = hd_strdup(c->arena, file);
    }
    return file ? c->to : NULL;
}

static hd_loc copy_loc(loc_copier *c, hd_loc loc) {
    if (loc.call && loc.call != c->from_call) {
        hd_loc call = *loc.call;
        call.file = hd_strdup(c->arena, call.file);
        c->from_call = loc.call;
        c->to_call = hd_kept_call(c->arena, NULL, call);
    }
    loc.file = copy_file(c, loc.file);
    loc.call = loc.call ? c->to_call : NULL;
    return loc;
}

/* A shallow copy of a table's array; the caller copies what the items point to. It has room for a
 * quarter more, since passes that change a copy add some ops to it. */
#define COPY_TABLE(a, to, from)                                                                    \
    do {                                                                                           \
        (to)->n = (from)->n;                                                                       \
        (to)->cap = (from)->n + (from)->n / 4 + 4;                                                 \
        (to)->at = hd_alloc((a), (to)->cap, sizeof *(from)->at);                                   \
        if ((from)->n) memcpy((to)->at, (from)->at, (from)->n * sizeof *(from)->at);               \
    } while (0)

static void copy_list(void *to, const void *from, uint32_t n, size_t size) {
    if (n) memcpy(to, from, n * size);
}

/* Ops of equal layers have the same few locations. */
typedef struct op_locs {
    hir_module *to;
    loc_copier copier;
    struct {
        const hd_loc *from, *to;
    } known[256];
} op_locs;

static const hd_loc *copy_op_loc(op_locs *l, const hd_loc *from) {
    const size_t at = (uintptr_t)from / sizeof *from % (sizeof l->known / sizeof *l->known);
    if (l->known[at].from != from) {
        l->known[at].from = from;
        l->known[at].to = hir_keep_loc(l->to, copy_loc(&l->copier, *from));
    }
    return l->known[at].to;
}

static void copy_op(hd_arena *a, op_locs *locs, hir_op *op) {
    const hir_op from = *op;
    hir_new_lists(a, op);
    copy_list(op->args, from.args, op->n_args, sizeof *op->args);
    copy_list(op->results, from.results, op->n_results, sizeof *op->results);
    copy_list(op->attrs, from.attrs, op->n_attrs, sizeof *op->attrs);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        op->attrs[i] = hir_copy_attr(a, op->attrs[i]);
    op->loc = copy_op_loc(locs, op->loc);
}

hir_module *hir_module_clone(const hir_module *m, hd_arena *a) {
    hir_module *c = hir_module_new(a, m->name);
    loc_copier locs = {.arena = a};
    c->stage = m->stage;
    c->first = m->first;
    c->last = m->last;
    c->ranks = m->ranks;
    c->divide_from = m->divide_from;
    c->arena_per_token = m->arena_per_token;
    c->local_per_token = m->local_per_token;
    c->tile_per_token = m->tile_per_token;
    c->arena_kept = m->arena_kept;
    c->local_kept = m->local_kept;
    c->fixed_bytes = m->fixed_bytes;
    for (size_t i = 0; i < m->options.n; i++)
        hir_set_option(c, m->options.at[i].key, m->options.at[i].value);
    for (size_t i = 0; i < m->unused_below.n; i++)
        hir_add_unused_below(c, m->unused_below.at[i]);
    COPY_TABLE(a, &c->weights, &m->weights);
    COPY_TABLE(a, &c->states, &m->states);
    COPY_TABLE(a, &c->inputs, &m->inputs);
    COPY_TABLE(a, &c->values, &m->values);
    COPY_TABLE(a, &c->ops, &m->ops);
    for (size_t i = 0; i < c->weights.n; i++) {
        hir_weight *w = &c->weights.at[i];
        w->name = hd_strdup(a, w->name);
        w->loc = copy_loc(&locs, w->loc);
        index_weight(c, i);
        w->init = hir_copy_init(a, w->init);
        if (hir_is_derived(w)) w->rows = hir_copy_derived_rows(a, w->rows, w->n_rows);
    }
    for (size_t i = 0; i < c->states.n; i++) {
        hir_state *s = &c->states.at[i];
        s->name = hd_strdup(a, s->name);
        s->loc = copy_loc(&locs, s->loc);
    }
    for (size_t i = 0; i < c->values.n; i++)
        if (c->values.at[i].name) c->values.at[i].name = hd_strdup(a, c->values.at[i].name);
    op_locs op_locs = {.to = c, .copier = locs};
    for (size_t i = 0; i < c->ops.n; i++)
        copy_op(a, &op_locs, &c->ops.at[i]);
    hd_loc *text = hd_new_array(a, hd_loc, m->n_text_locs);
    for (uint32_t i = 0; i < m->n_text_locs; i++)
        text[i] = copy_loc(&locs, m->text_locs[i]);
    c->text_locs = text;
    c->n_text_locs = m->n_text_locs;
    return c;
}
