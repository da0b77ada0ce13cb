/* States grouped by what they are for, and experts by how many a token uses, from the ops that read
 * them. */
#include "inspect/layers.h"

#include "inspect/format.h"
#include "inspect/steps.h"

static const char *const keys[] = {
#define G(id, key, label) key,
#include "inspect/state_groups.def"
#undef G
};
static const char *const labels[] = {
#define G(id, key, label) label,
#include "inspect/state_groups.def"
#undef G
};

const char *state_group_key(int group) {
    if (group < STATE_GROUP_OF_KIND) return keys[group];
    return hir_state_kind_of((hir_state_kind)(group - STATE_GROUP_OF_KIND))->word;
}

const char *state_group_label(int group) {
    return group < STATE_GROUP_OF_KIND ? labels[group] : state_group_key(group);
}

/* ---- who reads a state ----------------------------------------------------------------------- */
typedef struct reader {
    uint32_t state;
    int64_t rows; /* rows that a token reads at most; 0: all */
} reader;

typedef struct collector {
    const hir_module *m;
    hd_arena *arena;
    bool *by_attention, *by_choice, *latent, *far,
        *chosen;      /* by state: the kinds of ops that read it, and how much of it */
    uint32_t *passes; /* by weight of experts: how often a token chooses among them */
    bool *counted;    /* the same: it is in a group */
    HD_VEC(reader) readers;
    layers *out;
} collector;

/* The state whose rows an operand holds; HIR_NONE: it holds those of none. */
static uint32_t state_read(const hir_module *m, hir_ref r) {
    if (r.kind == HIR_REF_STATE) return r.index;
    if (r.kind != HIR_REF_VALUE) return HIR_NONE;
    const hir_value *v = hir_value_at(m, r.index);
    if (v->place == HIR_PLACE_STATE) return (uint32_t)v->offset; /* written by another kernel */
    return hir_state_of_value(m, r);
}

static void note_read(collector *c, const hir_op *o, uint32_t operand, uint32_t state) {
    const hir_row_limit most = hir_rows_read(c->m, o, operand);
    const bool choice = o->code == HIR_SELECT_OP;
    c->by_choice[state] |= choice;
    c->by_attention[state] |= !choice && hir_has_trait(o->code, HIR_SEQUENCE);
    c->latent[state] |= o->code == HIR_ATTENTION_LATENT_OP;
    c->far[state] |= most.rows == 0;
    c->chosen[state] |= most.chosen;
    hd_push(c->arena, &c->readers, ((reader){state, most.rows}));
}

/* An op reads a state once, however many of its operands that state is. An op that only appends
 * rows to a state, or passes it on, reads nothing. Of the two forms of latent attention (absorbed
 * for few tokens, expanded for many) the absorbed one is counted, since one token runs that. */
static void note_reads(collector *c, const hir_op *o) {
    if (hir_has_trait(o->code, HIR_VIEW) || hir_is_kernel(o) || o->code == HIR_YIELD_OP ||
        o->code == HIR_ATTENTION_EXPANDED_OP)
        return;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const uint32_t state = state_read(c->m, o->args[i]);
        bool again = state == HIR_NONE;
        for (uint32_t k = 0; k < i && !again; k++)
            again = state_read(c->m, o->args[k]) == state;
        if (!again) note_read(c, o, i, state);
    }
}

static int group_of(const collector *c, uint32_t s) {
    const hir_state_kind kind = c->m->states.at[s].kind;
    if (hir_state_kind_of(kind)->rows != HIR_ROWS_PER_POSITION) return STATE_GROUP_OF_KIND + kind;
    if (c->latent[s]) return STATE_GROUP_LATENTS;
    if (!c->by_attention[s]) return c->by_choice[s] ? STATE_GROUP_INDEX : STATE_GROUP_ROWS;
    if (c->chosen[s]) return STATE_GROUP_CHOSEN;
    return c->far[s] ? STATE_GROUP_KEYS : STATE_GROUP_WINDOWED;
}

/* ---- bytes ----------------------------------------------------------------------------------- */
typedef struct row_size {
    uint64_t rows; /* 0: one row for each position, or for every `rate` positions */
    uint64_t rate, bytes;
} row_size;

static row_size size_of(const hir_state *s) {
    const hir_state_shape shape = hir_shape_of_state(s);
    const uint64_t elements = hd_capped_mul((uint64_t)shape.heads, (uint64_t)shape.width);
    return (row_size){(uint64_t)shape.rows, (uint64_t)shape.rate,
                      hd_capped_mul(elements, hir_dtype_bytes(s->type.dtype))};
}

static uint64_t rows_behind(row_size size, int64_t positions) {
    return size.rows ? size.rows : (uint64_t)positions / size.rate;
}

static void add(uint64_t *sum, uint64_t rows, uint64_t bytes) {
    *sum = hd_capped_add(*sum, hd_capped_mul(rows, bytes));
}

/* A token writes one row to a window or a cache, or its share of a row where a row stands for
 * several positions; a carry (a state of fixed size that is rewritten whole) is one row. Scores are
 * written wherever they are read (count_reader). */
static void count_state(const collector *c, uint32_t s, states_at *at) {
    const row_size size = size_of(&c->m->states.at[s]);
    state_bytes *b = &at->group[group_of(c, s)];
    if (hir_is_of_call(&c->m->states.at[s])) return; /* nothing of it is kept */
    add(&b->held, rows_behind(size, at->positions), size.bytes);
    add(&b->written, 1, size.bytes / size.rate);
}

static void count_reader(const collector *c, const reader *r, states_at *at) {
    const row_size size = size_of(&c->m->states.at[r->state]);
    const uint64_t all = rows_behind(size, at->positions), most = (uint64_t)r->rows;
    state_bytes *b = &at->group[group_of(c, r->state)];
    const uint64_t rows = most && most < all ? most : all;
    add(&b->read, rows, size.bytes);
    if (hir_is_of_call(&c->m->states.at[r->state])) add(&b->written, rows, size.bytes);
}

static void count_length(const collector *c, int64_t positions, states_at *at) {
    *at = (states_at){.positions = positions};
    for (uint32_t s = 0; s < c->m->states.n; s++)
        count_state(c, s, at);
    for (size_t i = 0; i < c->readers.n; i++)
        count_reader(c, &c->readers.at[i], at);
    for (int g = 0; g < STATE_GROUPS; g++) {
        add(&at->all.held, 1, at->group[g].held);
        add(&at->all.read, 1, at->group[g].read);
        add(&at->all.written, 1, at->group[g].written);
    }
}

/* ---- experts --------------------------------------------------------------------------------- */
double expert_group_touched(const expert_group *g, int64_t tokens) {
    return (double)g->experts *
           step_share_touched((uint64_t)g->experts, (uint64_t)g->chosen, tokens * g->passes);
}

static expert_group *group_for(collector *c, int64_t experts, int64_t chosen, int64_t passes) {
    for (size_t i = 0; i < c->out->experts.n; i++) {
        expert_group *g = &c->out->experts.at[i];
        if (g->experts == experts && g->chosen == chosen && g->passes == passes) return g;
    }
    const expert_group fresh = {.experts = experts, .chosen = chosen, .passes = passes};
    hd_push(c->arena, &c->out->experts, fresh);
    return &c->out->experts.at[c->out->experts.n - 1];
}

typedef HD_VEC(hir_ref) choice_list; /* values with numbers of experts, as far as seen */

static bool is_new(collector *c, choice_list *seen, hir_ref ids) {
    for (size_t i = 0; i < seen->n; i++)
        if (hir_ref_equal(seen->at[i], ids)) return false;
    hd_push(c->arena, seen, ids);
    return true;
}

static uint32_t experts_of(const collector *c, hir_id op) {
    const hir_op *o = hir_op_at(c->m, op);
    const bool experts = o->code == HIR_EXPERT_LINEAR_OP && o->args[1].kind == HIR_REF_WEIGHT;
    return experts ? o->args[1].index : HIR_NONE;
}

static void count_passes(collector *c, hir_id first) {
    HIR_EACH(c->m, op, first) {
        const uint32_t weight = experts_of(c, op);
        if (weight != HIR_NONE) c->passes[weight]++;
        count_passes(c, hir_op_at(c->m, op)->body_first);
    }
}

/* Weights of a layer that runs several times are counted once. */
static void note_experts(collector *c, choice_list *seen, hir_id op) {
    const uint32_t weight = experts_of(c, op);
    if (weight == HIR_NONE || c->counted[weight]) return;
    uint64_t bytes = 0;
    const hir_weight *w = &c->m->weights.at[weight];
    expert_group *g =
        group_for(c, w->type.dim[0], hir_arg_type(c->m, op, 2).dim[1], c->passes[weight]);
    c->counted[weight] = true;
    if (!hir_weight_bytes(w, &bytes)) bytes = UINT64_MAX;
    g->bytes = hd_capped_add(g->bytes, bytes);
    g->layers += is_new(c, seen, hir_op_at(c->m, op)->args[2]);
}

/* ---- all ops --------------------------------------------------------------------------------- */
static void look(collector *c, choice_list *seen, hir_id first) {
    HIR_EACH(c->m, op, first) {
        note_reads(c, hir_op_at(c->m, op));
        note_experts(c, seen, op);
        look(c, seen, hir_op_at(c->m, op)->body_first);
    }
}

void layers_collect(const hir_module *m, hd_arena *a, layers *out) {
    static const int64_t lengths[STATE_LENGTHS] = {4 << 10, 32 << 10, 128 << 10, 1 << 20};
    const size_t n = m->states.n + 1;
    collector c = {.m = m, .arena = a, .out = out};
    choice_list seen = {0};
    *out = (layers){0};
    c.by_attention = hd_new_array(a, bool, n);
    c.by_choice = hd_new_array(a, bool, n);
    c.latent = hd_new_array(a, bool, n);
    c.far = hd_new_array(a, bool, n);
    c.chosen = hd_new_array(a, bool, n);
    c.passes = hd_new_array(a, uint32_t, m->weights.n + 1);
    c.counted = hd_new_array(a, bool, m->weights.n + 1);
    count_passes(&c, m->first);
    look(&c, &seen, m->first);
    for (uint32_t s = 0; s < m->states.n; s++)
        out->groups += out->states[group_of(&c, s)]++ == 0;
    for (int i = 0; i < STATE_LENGTHS; i++)
        count_length(&c, lengths[i], &out->at[i]);
}

/* ---- for people ------------------------------------------------------------------------------ */

static const char *length_name(hd_arena *a, int64_t positions) {
    return positions < 1 << 20 ? hd_printf(a, "%lldK", (long long)(positions >> 10))
                               : hd_printf(a, "%lldM", (long long)(positions >> 20));
}

typedef uint64_t column(const state_bytes *b);
static uint64_t held(const state_bytes *b) {
    return b->held;
}
static uint64_t read(const state_bytes *b) {
    return b->read;
}

static void print_head(const layers *x, const char *title, const char *last, hd_text *out) {
    hd_text_f(out, "\n%-34s", title);
    for (int i = 0; i < STATE_LENGTHS; i++)
        hd_text_f(out, " %12s", length_name(out->arena, x->at[i].positions));
    hd_text_f(out, "%s\n", last);
}

/* The bytes of one group of states; group -1: of all. */
static const state_bytes *bytes_of(const states_at *at, int group) {
    return group < 0 ? &at->all : &at->group[group];
}

static void print_row(const layers *x, int group, column *of, hd_text *out) {
    hd_text_f(out, "  %-32s", group < 0 ? "in all" : state_group_label(group));
    for (int i = 0; i < STATE_LENGTHS; i++)
        hd_text_f(out, " %12s", inspect_bytes(out->arena, of(bytes_of(&x->at[i], group))));
}

/* What a token writes does not depend on its position, so the line for writing has one column. */
static void print_rows(const layers *x, column *of, bool written, hd_text *out) {
    for (int i = 0; i <= STATE_GROUPS; i++) {
        const int g = i < STATE_GROUPS ? i : -1;
        if (g >= 0 ? !x->states[g] : x->groups < 2) continue;
        print_row(x, g, of, out);
        if (written)
            hd_text_f(out, " %12s", inspect_bytes(out->arena, bytes_of(&x->at[0], g)->written));
        hd_text_add(out, "\n");
    }
}

void layers_held_text(const layers *x, hd_text *out) {
    if (!x->groups) return;
    print_head(x, "state of a session, by positions", "", out);
    print_rows(x, held, false, out);
    print_head(x, "read by a token after them", "", out);
    print_rows(x, read, false, out);
}

static void print_experts(const expert_group *g, hd_text *out) {
    static const int64_t tokens[] = {1, 16, 128, 512};
    hd_text_f(out, "\nexperts of %u layer%s, %lld of %lld chosen by a token", g->layers,
              g->layers == 1 ? "" : "s", (long long)g->chosen, (long long)g->experts);
    if (g->passes > 1) hd_text_f(out, " in each of %lld passes", (long long)g->passes);
    hd_text_add(out, "\n");
    hd_text_f(out, "  %-32s %12s %12s %12s\n", "if all are chosen alike", "experts", "touched",
              "untouched");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const double n = expert_group_touched(g, tokens[i]);
        const uint64_t bytes = (uint64_t)((double)g->bytes * (n / (double)g->experts) + 0.5);
        const uint64_t touched = bytes < g->bytes ? bytes : g->bytes;
        const char *label =
            hd_printf(out->arena, "%lld token%s", (long long)tokens[i], tokens[i] == 1 ? "" : "s");
        hd_text_f(out, "  %-32s %12.1f %12s %12s\n", label, n, inspect_bytes(out->arena, touched),
                  inspect_bytes(out->arena, g->bytes - touched));
    }
}

void layers_traffic_text(const layers *x, hd_text *out) {
    if (x->groups) {
        print_head(x, "states read by a token after", "      written", out);
        print_rows(x, read, true, out);
    }
    for (size_t i = 0; i < x->experts.n; i++)
        print_experts(&x->experts.at[i], out);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void print_bytes(const char *key, const state_bytes *b, hd_text *out) {
    inspect_json_key(out, key);
    hd_text_f(out, "{\"held\": %llu, \"read\": %llu, \"written\": %llu}",
              (unsigned long long)b->held, (unsigned long long)b->read,
              (unsigned long long)b->written);
}

static void print_length(const layers *x, const states_at *at, hd_text *out) {
    hd_text_f(out, "{\"positions\": %lld, ", (long long)at->positions);
    for (int g = 0; g < STATE_GROUPS; g++) {
        if (!x->states[g]) continue;
        print_bytes(state_group_key(g), &at->group[g], out);
        hd_text_add(out, ", ");
    }
    print_bytes("all", &at->all, out);
    hd_text_add(out, "}");
}

void layers_json(const layers *x, hd_text *out) {
    hd_text_add(out, "\"states\": [");
    for (int i = 0; i < STATE_LENGTHS; i++) {
        hd_text_add(out, i ? ",\n    " : "\n    ");
        print_length(x, &x->at[i], out);
    }
    hd_text_add(out, "],\n  \"experts\": [");
    for (size_t i = 0; i < x->experts.n; i++) {
        const expert_group *g = &x->experts.at[i];
        hd_text_f(out,
                  "%s{\"experts\": %lld, \"chosen\": %lld, \"layers\": %u, \"passes\": %lld, "
                  "\"bytes\": %llu, "
                  "\"bytes_of_a_token\": %llu}",
                  i ? ", " : "", (long long)g->experts, (long long)g->chosen, g->layers,
                  (long long)g->passes, (unsigned long long)g->bytes,
                  (unsigned long long)((double)g->bytes * (double)g->chosen * (double)g->passes /
                                       (double)g->experts));
    }
    hd_text_add(out, "]");
}
