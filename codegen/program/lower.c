/* hcg_lower: kernel IR to hcg_program.
 *
 * Walks the kernels once. Each becomes a step: its kernel function, shared with every kernel of the
 * same body; where its operands lie; how it is cut among threads. Weights that some kernel reads
 * get offsets in the order of the table. No LLVM here: the result is plain data. */
#include <ctype.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/program/choices.h"
#include "codegen/program/contraction.h"
#include "codegen/program/exchanges.h"
#include "codegen/program/forms.h"
#include "codegen/program/keys.h"
#include "ir/kernel/overlap.h"
#include "ir/kernel/runs.h"
#include "ir/text/text.h"

enum { DEFAULT_GRAIN = 16 };

typedef struct lowering {
    hd_arena *a;
    hd_diags *d;
    const hir_module *m;
    hcg_program *p;
    const hcg_use *uses;       /* per op */
    const hrt_choice *choices; /* likewise */
} lowering;

/* ---- small facts ----------------------------------------------------------------------------- */
/* Bytes of one token's row; of everything where there is no T. */
static bool row_bytes(hir_type t, uint64_t *bytes) {
    int64_t elements = hir_type_row_elements(t);
    return elements >= 0 &&
           !hd_mul_overflow((uint64_t)elements, (uint64_t)hir_dtype_bytes(t.dtype), bytes);
}

static hd_loc loc_of(const lowering *l, const hir_op *op) {
    return hir_place_of(l->m, (hir_id)(op - l->m->ops.at));
}

static bool refuse(lowering *l, hd_error code, hd_loc loc, const char *message, const char *hint) {
    hd_err(l->d, code, loc, "%s", message)->hint = hint;
    return false;
}

/* ---- the program's interface: inputs, outputs, name ------------------------------------------ */
static bool check_name(lowering *l) {
    const char *name = l->m->name;
    bool ok = name && (isalpha((unsigned char)*name) || *name == '_');
    for (const char *c = ok ? name : ""; *c; c++)
        ok = ok && (isalnum((unsigned char)*c) || *c == '_');
    if (!ok) {
        hd_err(l->d, HD_E_NAME, HD_NOWHERE, "the name \"%s\" is no C identifier", name ? name : "")
            ->cause = "it is the prefix of every symbol of the generated library";
        return false;
    }
    if (strcmp(name, "hrt") != 0 && strncmp(name, "hrt_", 4) != 0) return true;
    return refuse(l, HD_E_NAME, HD_NOWHERE,
                  "a model cannot be called hrt: the runtime's symbols are", "choose another name");
}

static bool add_port(lowering *l, bool input, const char *name, hir_type type, hd_loc loc) {
    hcg_port port = {.name = name, .type = type};
    if (hir_type_has_c(type) || !row_bytes(type, &port.row_bytes)) {
        hd_err(l->d, HD_E_UNSUPPORTED, loc, "%s \"%s\" is %s", input ? "input" : "output", name,
               hir_type_string(l->a, type))
            ->cause = hir_type_has_c(type)
                          ? "what has the length of the cache cannot be handed over"
                          : "its size does not fit";
        return false;
    }
    if (input)
        hd_push(l->a, &l->p->inputs, port);
    else
        hd_push(l->a, &l->p->outputs, port);
    return true;
}

static bool add_inputs(lowering *l) {
    const hir_module *m = l->m;
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hir_value *v = hir_value_at(m, m->inputs.at[i]);
        const char *name = v->name ? v->name : hd_printf(l->a, "x%zu", i);
        if (!add_port(l, true, name, v->type, HD_NOWHERE)) return false;
    }
    l->p->is_model = hir_is_model(m);
    if (hcg_ranks(l->p) > 0 && !l->p->is_model)
        return refuse(l, HD_E_UNSUPPORTED, HD_NOWHERE,
                      "only models of tokens are divided over ranks",
                      "compile the function without --ranks");
    if (l->p->is_model || m->states.n == 0) return true;
    return refuse(l, HD_E_UNSUPPORTED, m->states.at[0].loc,
                  "a program with state must have one input, i32[T] tokens",
                  "without state it could be any plain function");
}

/* Output 0 of a model holds the last rows of a call, so it must come from a kernel of last rows;
 * every other output holds all rows. */
static bool check_output_rows(lowering *l, const hir_op *out, hir_id maker) {
    size_t i = l->p->outputs.n - 1;
    const hir_op *kernel = hir_op_at(l->m, maker);
    const bool last = hir_rows_of(kernel) == HIR_ROWS_LAST;
    if (!l->p->is_model) return true;
    if (i == 0 && (!last || !hir_type_has_t(l->p->outputs.at[0].type)))
        return refuse(l, HD_E_UNSUPPORTED, loc_of(l, out),
                      "the first output of a model must be f32[T, ...] from a kernel of rows "
                      "\"last\"",
                      "the schedule pass arranges that");
    if (i > 0 && last && hir_type_has_t(l->p->outputs.at[i].type))
        return refuse(l, HD_E_UNSUPPORTED, loc_of(l, out),
                      "only the first output of a model may come from a kernel of rows \"last\"",
                      "give its kernel rows = \"all\"");
    return true;
}

static bool add_output(lowering *l, const hir_op *op) {
    hir_ref r = op->args[0];
    size_t i = l->p->outputs.n;
    const hir_value *v = r.kind == HIR_REF_VALUE ? hir_value_at(l->m, r.index) : NULL;
    if (!v || v->place != HIR_PLACE_OUTPUT || v->offset != i || v->op == HIR_NONE)
        return refuse(l, HD_E_TYPE, loc_of(l, op),
                      "an output must be a kernel's result in output[n]",
                      "the plan-memory pass gives every output its place");
    if (v->type.dtype != HIR_F32)
        return refuse(l, HD_E_TYPE, loc_of(l, op), "outputs are f32", NULL);
    return add_port(l, false, hir_attr_string(op, HIR_A_NAME, "y"), v->type, loc_of(l, op)) &&
           check_output_rows(l, op, v->op);
}

/* A stage of a pipeline may have nothing else to show. */
static bool sends(const hir_module *m) {
    HIR_EACH(m, id, m->first) {
        const hir_op *op = hir_op_at(m, id);
        if (hir_is_kernel(op) && hcg_is_exchange(m, id) &&
            hir_op_at(m, op->body_first)->code == HIR_COMM_SEND_OP)
            return true;
    }
    return false;
}

static bool add_outputs(lowering *l) {
    HIR_EACH(l->m, id, l->m->first) {
        const hir_op *op = hir_op_at(l->m, id);
        if (op->code == HIR_OUTPUT_OP && !add_output(l, op)) return false;
    }
    if (l->p->outputs.n > 0 || sends(l->m)) return true;
    return refuse(l, HD_E_UNSUPPORTED, HD_NOWHERE, "the program has no output", NULL);
}

/* ---- weights --------------------------------------------------------------------------------- */
static void mark_read(lowering *l, const hir_op *kernel) {
    HIR_EACH(l->m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(l->m, id);
        for (uint32_t i = 0; i < op->n_args; i++)
            if (op->args[i].kind == HIR_REF_WEIGHT) l->p->weight_offsets.at[op->args[i].index] = 0;
    }
}

/* Are the rows of w those of `in` from one of them on? Its number. */
static bool find_rows(const lowering *l, const hir_weight *w, const hir_weight *in, uint64_t *row) {
    *row = 0;
    for (uint32_t r = 0; r + w->n_rows <= in->n_rows; r++) {
        uint32_t same = 0;
        while (same < w->n_rows && hir_same_derived_row(&w->rows[same], &in->rows[r + same]))
            same++;
        if (same == w->n_rows) return true;
        *row += (uint64_t)hir_derived_rows(l->m, &in->rows[r], hir_derived_row_elements(in->type));
    }
    return false;
}

/* Parts of a vector are no rows. */
static bool is_derived_rows(const hir_weight *w) {
    return hir_is_derived(w) && !w->share.on && w->layout == HIR_LAYOUT_ROWS &&
           w->type.dtype == HIR_F32 && (w->type.rank == 2 || w->n_rows == 1);
}

/* The query that a sublayer reads by itself is a row of the table that phase 1 of its block has
 * read: it is stored once, and found in the caches. */
static void find_holder(lowering *l, uint32_t weight) {
    hcg_program *p = l->p;
    const hir_weight *w = &l->m->weights.at[weight];
    if (!is_derived_rows(w) || p->weight_offsets.at[weight] == HCG_UNREAD) return;
    const int64_t k = w->type.dim[w->type.rank - 1];
    const uint64_t bytes = (uint64_t)k * sizeof(float);
    uint64_t row;
    for (uint32_t i = 0; i < l->m->weights.n && bytes % HRT_ALIGN == 0; i++) {
        const hir_weight *in = &l->m->weights.at[i];
        if (!is_derived_rows(in) || in->n_rows <= w->n_rows || in->type.dim[in->type.rank - 1] != k)
            continue;
        if (p->weight_offsets.at[i] == HCG_UNREAD || p->weight_holders.at[i] != HIR_NONE) continue;
        if (!find_rows(l, w, in, &row)) continue;
        p->weight_holders.at[weight] = i;
        p->weight_offsets.at[weight] = row * bytes; /* from there on */
        return;
    }
}

static bool place_weight(lowering *l, uint32_t weight) {
    hcg_program *p = l->p;
    const hir_weight *w = &l->m->weights.at[weight];
    uint64_t bytes, end;
    p->weight_offsets.at[weight] = p->weights_bytes;
    if (!hir_weight_bytes(w, &bytes) || hd_add_overflow(p->weights_bytes, bytes, &end) ||
        end > INT64_MAX - HRT_WEIGHTS_DATA - HRT_ALIGN)
        return hd_err(l->d, HD_E_LIMIT, w->loc, "the weights up to @%s take more than 2^63 bytes",
                      w->name) == NULL;
    p->weights_bytes = (end + HRT_ALIGN - 1) / HRT_ALIGN * HRT_ALIGN;
    return true;
}

static bool place_weights(lowering *l) {
    hcg_program *p = l->p;
    const uint32_t n = (uint32_t)l->m->weights.n;
    for (uint32_t i = 0; i < n; i++) {
        hd_push(l->a, &p->weight_offsets, HCG_UNREAD);
        hd_push(l->a, &p->weight_holders, HIR_NONE);
    }
    HIR_EACH(l->m, id, l->m->first) {
        if (hir_is_kernel(hir_op_at(l->m, id))) mark_read(l, hir_op_at(l->m, id));
    }
    for (uint32_t i = 0; i < n; i++)
        find_holder(l, i);
    for (uint32_t i = 0; i < n; i++) {
        const bool own = p->weight_offsets.at[i] != HCG_UNREAD;
        if (own && p->weight_holders.at[i] == HIR_NONE && !place_weight(l, i)) return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (p->weight_holders.at[i] != HIR_NONE)
            p->weight_offsets.at[i] += p->weight_offsets.at[p->weight_holders.at[i]];
    return true;
}

/* Those that contractions may read, and what attention meets as one. */
static uint32_t matrices_of(const hir_module *m) {
    uint32_t matrices = 0;
    HIR_EACH(m, id, m->first)
    if (hir_is_kernel(hir_op_at(m, id))) matrices |= hcg_cached_matrices(m, id);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (w->layout != HIR_LAYOUT_ROWS) matrices |= hcg_matrix(w->type.dtype, w->layout);
    }
    return matrices;
}

/* Whether queries meet keys, in one of the forms that a tile of queries serves. */
static bool has_attention(const hir_module *m) {
    HIR_EACH(m, id, m->first) {
        const hir_kernel_form form = hir_form_of(m, id);
        if (form == HIR_FORM_ATTENTION || form == HIR_FORM_LATENT || form == HIR_FORM_EXPANDED)
            return true;
    }
    return false;
}

static void add_factor(hd_text *table, const hir_derived_factor *f) {
    hd_text_quoted(table, f->name);
    if (f->by) hd_text_f(table, " %s", hir_derived_by_name(f->by));
    if (f->n) hd_text_f(table, " %lld %lld", (long long)f->first, (long long)f->n);
}

/* Which part of it the ranks have. */
static void add_share(hd_text *table, const hir_weight *w) {
    const hd_share *s = &w->share.share;
    if (w->share.on)
        hd_text_f(table, " shard %u %lld %lld %lld %lld %d", w->share.dim, (long long)s->ranks,
                  (long long)s->whole, (long long)s->groups, (long long)s->units, s->repeat);
}

/* Of all that decides where in the file a kernel looks for what. */
static void make_digest(lowering *l) {
    hd_text table;
    hd_text_init(&table, l->a);
    hd_text_f(&table, "hadal weights %u\n", HRT_VERSION);
    for (size_t i = 0; i < l->m->weights.n; i++) {
        const hir_weight *w = &l->m->weights.at[i];
        if (l->p->weight_offsets.at[i] == HCG_UNREAD) continue;
        hd_text_quoted(&table, w->name);
        hd_text_add(&table, " ");
        hir_print_type(&table, w->type);
        add_share(&table, w);
        for (uint32_t r = 0; r < w->n_rows; r++)
            for (uint32_t k = 0; k < w->rows[r].n; k++) {
                hd_text_add(&table, k ? " * " : r ? ", " : " = ");
                add_factor(&table, &w->rows[r].factor[k]);
            }
        hd_text_f(&table, " %d %llu\n", w->layout, (unsigned long long)l->p->weight_offsets.at[i]);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(table.at, table.n));
    memcpy(l->p->digest, canonical.digest, sizeof l->p->digest);
}

/* ---- steps ----------------------------------------------------------------------------------- */
/* From one token's row to the next. */
static uint64_t bytes_between_rows(hir_type t) {
    uint64_t bytes;
    return hir_type_has_t(t) && row_bytes(t, &bytes) ? bytes : 0; /* plan-memory: it fits */
}

/* Of an arena, what is kept for each chunk in flight is an area of its own. */
static void split_arena(const hir_module *m, hir_place place, hrt_operand *o) {
    if (place != HIR_PLACE_ARENA && place != HIR_PLACE_LOCAL) return;
    const uint64_t kept = place == HIR_PLACE_ARENA ? m->arena_kept : m->local_kept;
    if (o->offset >= kept)
        o->offset -= kept;
    else
        o->base = place == HIR_PLACE_ARENA ? HRT_KEPT : HRT_LOCAL_KEPT;
}

static bool value_operand(lowering *l, hd_loc loc, hir_id id, hrt_operand *out) {
    const hir_value *v = hir_value_at(l->m, id);
    static const uint32_t bases[] = {
        [HIR_PLACE_ARENA] = HRT_ARENA, [HIR_PLACE_FIXED] = HRT_FIXED,
        [HIR_PLACE_INPUT] = HRT_INPUT, [HIR_PLACE_OUTPUT] = HRT_OUTPUT,
        [HIR_PLACE_STATE] = HRT_STATE, [HIR_PLACE_LOCAL] = HRT_LOCAL,
    };
    if (v->op == HIR_NONE) { /* an input, whether or not it is written so */
        size_t i = 0;
        while (i < l->m->inputs.n && l->m->inputs.at[i] != id)
            i++;
        *out = (hrt_operand){
            .base = HRT_INPUT, .index = (uint32_t)i, .row_bytes = bytes_between_rows(v->type)};
        return true;
    }
    if (v->place == HIR_PLACE_NONE)
        return refuse(l, HD_E_TYPE, loc, "a value that leaves a kernel has no place",
                      "the plan-memory pass gives every such value its place");
    bool area =
        v->place == HIR_PLACE_ARENA || v->place == HIR_PLACE_FIXED || v->place == HIR_PLACE_LOCAL;
    *out = (hrt_operand){.base = bases[v->place],
                         .index = area ? 0 : (uint32_t)v->offset,
                         .offset = area ? v->offset : 0,
                         .row_bytes = bytes_between_rows(v->type)};
    split_arena(l->m, v->place, out);
    return true;
}

/* Which columns of the kernel the panels of a weight are (program/contraction.h); c NULL: none. */
static void find_columns(lowering *l, const hcg_contraction *c, hir_ref r, hrt_operand *o) {
    const hir_weight *w = &l->m->weights.at[r.index];
    const uint64_t rows = (uint64_t)hir_panel_rows(w->layout);
    uint64_t bytes;
    for (size_t i = 0; c && i < c->linears.n; i++) {
        const hcg_column_group *g = &c->groups.at[c->linears.at[i].group];
        if (!hir_ref_equal(c->linears.at[i].w, r) || !hir_weight_bytes(w, &bytes)) continue;
        const uint64_t panels = ((uint64_t)g->n + rows - 1) / rows;
        o->first_col = (uint32_t)g->first_column;
        o->cols = (uint32_t)((g->panels + c->width - 1) / c->width);
        o->col_bytes = bytes / panels * (HIR_PANEL / rows) * (uint64_t)c->width;
    }
}

static bool add_operand(lowering *l, hd_loc loc, hir_ref r, const hcg_contraction *c) {
    hrt_operand o = {0};
    switch ((hir_ref_kind)r.kind) {
    case HIR_REF_WEIGHT:
        o = (hrt_operand){.base = HRT_WEIGHT, .offset = l->p->weight_offsets.at[r.index]};
        find_columns(l, c, r, &o);
        break;
    case HIR_REF_STATE: o = (hrt_operand){.base = HRT_STATE, .index = r.index}; break;
    case HIR_REF_VALUE:
        if (!value_operand(l, loc, r.index, &o)) return false;
        break;
    case HIR_REF_NONE: break;
    }
    hd_push(l->a, &l->p->operands, o);
    return true;
}

/* Splits are handed to the runtime by number. */
#define S(id, name, doc)                                                                           \
    _Static_assert((int)HIR_SPLIT_##id == (int)HRT_SPLIT_##id,                                     \
                   "ir/kernel/splits.def and hrt_split differ");
#include "ir/kernel/splits.def"
#undef S
_Static_assert((int)HIR_SPLITS == HRT_SPLIT_HEADS + 1,
               "hrt_split has more than ir/kernel/splits.def");

/* Row programs whose results are the same for every token run once, on one thread. */
static bool is_token_free(const lowering *l, hir_id kernel) {
    return hir_op_at(l->m, kernel)->code == HIR_KERNEL_ROW_OP && hir_runs_once(l->m, kernel);
}

static void raise(uint64_t *most, uint64_t x) {
    if (x > *most) *most = x;
}

/* Positions that a row of the kernel sees, or of the attention that it works for where that has two
 * forms; 0: all before it. */
static uint32_t window_of(const lowering *l, hir_id kernel) {
    if (l->choices[kernel].when != HRT_ALWAYS) return (uint32_t)l->choices[kernel].forms.window;
    return (uint32_t)hir_attr_int(hir_op_at(l->m, hir_form_op(l->m, kernel)), HIR_A_WINDOW, 0);
}

/* Only ranges of positions are limited by a window: a list has rows of entries beside it. */
static void ask_for_shared(lowering *l, hir_id kernel, const hrt_step *step) {
    const uint64_t window = step->list_rate ? 0 : step->window;
    uint64_t counters, range;
    hcg_shared_bytes(l->m, kernel, &counters, &range);
    raise(&l->p->counter_bytes, counters);
    raise(window ? &l->p->window_range_bytes : &l->p->range_bytes, range);
    if (step->list_rate) raise(&l->p->least_ranges, HRT_LIST_RANGES);
    if (window) raise(&l->p->window_ranges, hcg_window_ranges(window));
}

/* Rows of a batch go one by one, unless the form finds the session of each itself. */
static bool goes_by_row(const lowering *l, hir_id kernel) {
    if (hir_has_form_trait(l->m, kernel, HIR_OWNERS)) return false;
    HIR_EACH(l->m, id, hir_op_at(l->m, kernel)->body_first)
    if (hir_has_trait(hir_op_at(l->m, id)->code, HIR_POSITION)) return true;
    return false;
}

/* With one token, cutting a contraction saves half of the time that its weights take, and costs a
 * meeting of the threads before it and one behind, 0.1 us each: as long as 32 KB take. */
static bool is_small(const lowering *l, const hrt_step *step) {
    enum { SMALL = 32 << 10 };
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < step->n_operands; i++) {
        const hrt_operand *o = &l->p->operands.at[step->first_operand + i];
        bytes += o->cols * o->col_bytes;
    }
    return bytes <= SMALL;
}

/* What crosses between ranks: the first operand is x, the last one y. */
static bool add_exchange(lowering *l, hir_id id) {
    const hir_op *op = hir_op_at(l->m, id);
    const hir_operands *operands = &l->uses[id].operands;
    hrt_exchange e;
    if (!hcg_make_exchange(l->d, l->m, id, &e)) return false;
    hd_push(l->a, &l->p->exchanges, e);
    hrt_step step = {
        .split_decode = HRT_SPLIT_NONE,
        .split_prefill = HRT_SPLIT_NONE,
        .last_rows = hir_rows_of(op) == HIR_ROWS_LAST,
        .first_operand = (uint32_t)l->p->operands.n,
        .n_operands = (uint32_t)operands->list.n,
        .grain = DEFAULT_GRAIN,
        .cols = 1,
        .name = hir_attr_string(op, HIR_A_NAME, "comm"),
        .exchange = (uint32_t)l->p->exchanges.n,
    };
    for (size_t i = 0; i < operands->list.n; i++)
        if (!add_operand(l, loc_of(l, op), operands->list.at[i], NULL)) return false;
    hd_push(l->a, &l->p->steps, step);
    hcg_step_work work = hcg_count_work(l->a, l->m, id);
    work.line = l->p->op_lines[id];
    hd_push(l->a, &l->p->work, work);
    return true;
}

static bool add_step(lowering *l, hir_id id) {
    if (hcg_is_exchange(l->m, id)) return add_exchange(l, id);
    const hir_op *op = hir_op_at(l->m, id);
    const hcg_use *use = &l->uses[id];
    const hcg_kernel *prefill = &l->p->kernels.at[use->function[HIR_PREFILL]];
    const unsigned phases = hir_form(hir_form_of(l->m, id))->phases;
    const uint32_t n_sizes = prefill->n_sizes;
    hrt_step step = {
        .kernel_decode = use->function[HIR_DECODE],
        .kernel_prefill = use->function[HIR_PREFILL],
        .kernel_small_batch = use->function[HIR_SMALL_BATCH],
        .small_batch = phases & 1u << HIR_SMALL_BATCH ? HRT_SMALL_BATCH : 0,
        .split_decode = hir_split_of(op, HIR_A_SPLIT_DECODE),
        .split_prefill = hir_split_of(op, HIR_A_SPLIT_PREFILL),
        .last_rows = hir_rows_of(op) == HIR_ROWS_LAST,
        .first_operand = (uint32_t)l->p->operands.n,
        .n_operands = (uint32_t)(use->operands.list.n + n_sizes + use->runs.n),
        .grain = (uint32_t)hir_attr_int(op, HIR_A_GRAIN, DEFAULT_GRAIN),
        .by_row = goes_by_row(l, id),
        .window = window_of(l, id),
        .choice = l->choices[id],
        .local = hcg_is_local(l->m, id),
        .name = hir_attr_string(op, HIR_A_NAME, prefill->name),
    };
    if (hir_attr_int(op, HIR_A_GRAIN, DEFAULT_GRAIN) < 1 ||
        hir_attr_int(op, HIR_A_GRAIN, DEFAULT_GRAIN) > INT32_MAX)
        return refuse(l, HD_E_VALUE, loc_of(l, op), "grain is not positive", NULL);
    hcg_list_rows(l->m, id, &step);
    ask_for_shared(l, id, &step);
    if (is_token_free(l, id)) step.split_decode = step.split_prefill = HRT_SPLIT_NONE;
    const hcg_contraction *c = l->p->contractions[id];
    step.cols = c ? c->columns : hcg_columns(l->m, id);
    for (size_t i = 0; i < use->operands.list.n; i++)
        if (!add_operand(l, loc_of(l, op), use->operands.list.at[i], c)) return false;
    for (uint32_t i = 0; i < n_sizes; i++)
        hd_push(l->a, &l->p->operands,
                ((hrt_operand){.base = HRT_NUMBER, .offset = (uint64_t)use->size[i]}));
    for (size_t i = 0; i < use->runs.n; i++)
        if (!add_operand(l, loc_of(l, op), use->runs.at[i], c)) return false;
    if (c && step.split_decode == HRT_SPLIT_COLS && is_small(l, &step))
        step.split_decode = HRT_SPLIT_NONE;
    hd_push(l->a, &l->p->steps, step);
    hcg_step_work work = hcg_count_work(l->a, l->m, id);
    work.line = l->p->op_lines[id];
    hd_push(l->a, &l->p->work, work);
    return true;
}

/* ---- token ids ------------------------------------------------------------------------------- */
/* Ids must lie in every table they are looked up in, unless it has a row for those behind it. */
static void find_vocab(lowering *l, const hir_op *kernel) {
    HIR_EACH(l->m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(l->m, id);
        if (op->code != HIR_GATHER_OP || hir_attr_int(op, HIR_A_BEYOND, -1) >= 0) continue;
        int64_t rows = hir_arg_type(l->m, id, 0).dim[0];
        if (rows > 0 && (l->p->vocab == 0 || rows < l->p->vocab)) l->p->vocab = rows;
    }
}

static bool add_steps(lowering *l) {
    HIR_EACH(l->m, id, l->m->first) {
        const hir_op *op = hir_op_at(l->m, id);
        if (op->code == HIR_OUTPUT_OP) continue;
        if (!hir_is_kernel(op)) {
            hd_err(l->d, HD_E_TYPE, loc_of(l, op), "%s stands outside of a kernel",
                   hir_info(op->code)->name)
                ->hint = "the fuse pass puts every op into a kernel";
            return false;
        }
        find_vocab(l, op);
        if (!add_step(l, id)) return false;
    }
    return true;
}

/* ---- steps beside exchanges ------------------------------------------------------------------ */
/* May one be written for some rows while the other is in use for others? */
static bool are_apart(const hrt_operand *a, const hrt_operand *b) {
    const bool area = a->base == HRT_ARENA || a->base == HRT_LOCAL || a->base == HRT_KEPT ||
                      a->base == HRT_LOCAL_KEPT;
    if (a->base != b->base || !area) return true;
    if (a->offset == b->offset && a->row_bytes == b->row_bytes) return true; /* row by row */
    return a->offset + a->row_bytes <= b->offset || b->offset + b->row_bytes <= a->offset;
}

/* Are the operands of steps [from, end) where any of them may run before any other? plan-memory
 * sees to it, unless it was told that none does. */
static bool all_apart(const hcg_program *p, uint32_t from, uint32_t end) {
    const hrt_step *first = &p->steps.at[from], *last = &p->steps.at[end - 1];
    const uint32_t n = last->first_operand + last->n_operands;
    for (uint32_t a = first->first_operand; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++)
            if (!are_apart(&p->operands.at[a], &p->operands.at[b])) return false;
    return true;
}

/* A step is a kernel of the module, in its order. */
static void add_overlaps(lowering *l) {
    const hir_overlaps all = hir_find_overlaps(l->a, l->m);
    for (size_t i = 0; l->p->options.compile.overlap != HIR_OVERLAP_OFF && i < all.list.n; i++) {
        const hir_overlap *o = &all.list.at[i];
        if (!all_apart(l->p, o->front, o->end)) continue;
        hd_push(l->a, &l->p->overlaps,
                ((hrt_overlap){o->front, o->scatter, o->middle, o->gather, o->back, o->end}));
    }
}

static void add_runs(lowering *l) {
    const hir_runs all = hir_find_runs(l->a, l->m);
    for (size_t i = 0; all.list.n > 1 && i < all.list.n; i++) {
        const hir_run_of_layers *r = &all.list.at[i];
        hd_push(l->a, &l->p->runs, ((hrt_run_of_layers){r->first, r->work, r->send, r->end}));
    }
}

hcg_program *hcg_lower(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_options *o) {
    lowering l = {.a = a, .d = d, .m = m, .p = hd_new(a, hcg_program)};
    if (m->stage != HIR_STAGE_KERNEL) {
        refuse(&l, HD_E_TYPE, HD_NOWHERE, "code can only be made from kernel IR",
               "run the whole pipeline first");
        return NULL;
    }
    if (!check_name(&l) || !hir_verify(m, d) || !hir_verify_kernels(m, d)) return NULL;
    l.p->arena = a;
    l.p->m = m;
    if (o) l.p->options = *o;
    l.p->chunk = o && o->compile.chunk > 0 ? o->compile.chunk : hir_default_options.chunk;
    l.p->op_lines = hir_op_lines(m, a);
    l.p->options.matrices = matrices_of(m);
    l.p->options.attention = has_attention(m);
    if (!hcg_plan_contractions(l.p, d)) return NULL;
    l.uses = hcg_share_kernels(l.p);
    l.choices = hcg_find_choices(a, m);
    if (!add_inputs(&l) || !add_outputs(&l) || !place_weights(&l) || !add_steps(&l)) return NULL;
    add_overlaps(&l);
    add_runs(&l);
    make_digest(&l);
    return l.p;
}
