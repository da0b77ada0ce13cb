/* The ledgers of a module at its IR stages, side by side. */
#include "inspect/ledger.h"

#include <string.h>

#include "inspect/memory_plan.h"
#include "passes/depth/depth.h"
#include "passes/weigh_depth.h"
#include "runtime/pipeline.h"

enum { PAPER_M = 4 }; /* of Table 1 (m), for models without streams of their own */

/* ---- the module without the depth passes ----------------------------------------------------- */

typedef HD_VEC(hir_pass_id) pass_list;

/* The default pipeline, with or without the passes over depth: those that the guard of the pipeline
 * weighs. What divides a model among ranks or stages is in both. */
static pass_list pipeline(hd_arena *a, bool gradients, bool depth) {
    pass_list list = {0};
    const hir_pass_id *all = gradients ? hir_gradient_pipeline() : hir_pipeline();
    for (const hir_pass_id *id = all; *id != HIR_PASS_COUNT; id++)
        if (depth || !depth_is_weighed(*id)) hd_push(a, &list, *id);
    return list;
}

static bool run(const inspect_subject *s, hir_module *m, bool depth, hir_hooks hooks) {
    const bool gradients = hir_has_gradients(s->now);
    if (gradients && !hir_add_loss(m, s->diags)) return false;
    pass_list list = pipeline(s->arena, gradients, depth);
    hir_run r = {
        .passes = list.at, .n_passes = list.n, .stop_after = HIR_PASS_COUNT, .hooks = hooks};
    hir_compile_options options = *s->pass_options;
    if (!depth) options.bounded = false; /* without them more memory may be needed */
    return hir_run_passes(m, &r, &options, NULL, s->diags);
}

/* A pipeline-parallel model is reported stage by stage. This makes the subject whose loaded graph
 * is that one pipeline stage, cut after the same passes as in a compilation; all further passes
 * then see the ops of this stage alone. */
static bool take_stage(const inspect_subject *s, inspect_subject *out) {
    *out = *s;
    if (s->pass_options->stages <= 1 || s->graph->stage != HIR_STAGE_GRAPH) return true;
    hir_module *stage = hir_module_clone(s->graph, s->arena);
    static const hir_pass_id unused[] = {HIR_PASS_DCE};
    const hir_run cut = {.passes = hir_pipeline(),
                         .n_passes = hir_pipeline_length(),
                         .stop_after = HIR_PASS_SHARD_PIPELINE};
    const hir_run clean = {.passes = unused, .n_passes = 1, .stop_after = HIR_PASS_COUNT};
    if (!hir_run_passes(stage, &cut, s->pass_options, NULL, s->diags) ||
        !hir_run_passes(stage, &clean, s->pass_options, NULL, s->diags))
        return false;
    hir_compile_options *alone = hd_new(s->arena, hir_compile_options);
    *alone = *s->pass_options;
    alone->stages = 0;
    out->graph = stage;
    out->pass_options = alone;
    return true;
}

/* ---- after each pass ------------------------------------------------------------------------- */

typedef struct recorder {
    hd_arena *arena;
    ledger_report *report;
    bool has_depth; /* a pass over depth has changed something */
} recorder;

/* In Full AttnRes the blocks are only a schedule, which form-blocks chooses: N blocks of S = L / N
 * sublayers. */
static void note_schedule(const hir_module *m, ledger_report *r) {
    ledger_schedule s = {0};
    int64_t last = -1;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_DEPTH_ATTEND_OP) continue;
        const int64_t block = hir_attr_int(o, HIR_A_BLOCK, -1),
                      shared = block < 0 ? 0 : hir_attr_int(o, HIR_A_SHARED, 0);
        s.single += o->n_args - ATTEND_SOURCES - (uint64_t)shared;
        if (block < 0 || block == last) continue;
        s.blocks++;
        s.shared += (uint64_t)shared;
        last = block;
    }
    r->schedule = s;
    if (!s.blocks) return;
    r->parameters.blocks = s.blocks;
    r->parameters.per_block = r->parameters.sublayers / s.blocks;
}

static bool record(void *context, int index, hir_pass_id id, const hir_module *m, bool changed,
                   double seconds, hd_diags *d) {
    (void)index, (void)seconds, (void)d;
    recorder *r = context;
    if (!changed) return true;
    r->report->has_attends |= id == HIR_PASS_RECOGNISE_DEPTH;
    r->has_depth |= depth_is_weighed(id);
    hir_ledger l;
    hd_arena **scratch = hd_scratch_new(r->arena);
    hir_ledger_find_totals(m, *scratch, &l);
    const hir_flow *flow = &r->report->graph.flow;
    if (flow->longest_block == 1 && id == HIR_PASS_FORM_BLOCKS) note_schedule(m, r->report);
    ledger_step step = {hir_pass(id)->name, m->stage, l.total, {0}};
    if (hir_has_gradients(m)) {
        hir_back_ledger back;
        hir_back_ledger_find(m, &l, *scratch, &back);
        step.back = back.total;
    }
    hd_scratch_free(scratch);
    hd_push(r->arena, &r->report->steps, step);
    return true;
}

/* Keeps the backward half as differentiate leaves it, without what nobody reads. */
static bool record_ops(void *context, int index, hir_pass_id id, const hir_module *m, bool changed,
                       double seconds, hd_diags *d) {
    (void)index, (void)seconds, (void)d;
    recorder *r = context;
    const bool graph = m->stage != HIR_STAGE_KERNEL && hir_has_gradients(m);
    if (!changed || !graph || (id != HIR_PASS_DIFFERENTIATE && id != HIR_PASS_CSE)) return true;
    hir_ledger *l = hd_new(r->arena, hir_ledger);
    hir_ledger_find(m, r->arena, l);
    hir_back_ledger_find(m, l, r->arena, &r->report->back->ops);
    return true;
}

/* ---- the report ------------------------------------------------------------------------------ */

static hir_paper_parameters parameters_of(const hir_ledger *l) {
    const hir_flow *f = &l->flow;
    hir_paper_parameters p = {.sublayers = l->sublayers, .streams = PAPER_M};
    p.blocks = f->blocks ? f->blocks : 1;
    p.per_block = f->longest_block ? f->longest_block : 1;
    return p;
}

/* Counts the kernels that are made without the depth passes. */
static bool run_naive(const inspect_subject *s, recorder *steps, ledger_report *r) {
    hir_module *naive = hir_module_clone(s->graph, s->arena);
    const hir_hooks keep_ops = {.context = steps, .after = record_ops};
    if (!run(s, naive, false, r->back ? keep_ops : (hir_hooks){0})) return false;
    if (r->back) /* phases of the backward half depend on the sources */
        hir_ledger_find(naive, s->arena, &r->naive);
    else
        hir_ledger_find_totals(naive, s->arena, &r->naive);
    hir_ledger_count_as(&r->naive, &r->graph);
    if (r->back) hir_back_ledger_find(naive, &r->naive, s->arena, &r->back->naive);
    return true;
}

/* Runs a copy of the loaded module through the pipeline, and another one without the depth passes; where
 * these have changed nothing, the kernels are the same. `marked`: they have already left their marks
 * in the module. */
static bool run_again(const inspect_subject *s, bool marked, ledger_report *r) {
    recorder steps = {s->arena, r, false};
    hd_arena **scratch = hd_scratch_new(s->arena);
    hir_module *again = hir_module_clone(s->graph, *scratch);
    if (!run(s, again, true, (hir_hooks){.context = &steps, .after = record})) return false;
    const bool same = !steps.has_depth && !r->back;
    if (same && !marked) {
        hir_ledger_find_totals(again, *scratch, &r->naive);
        hir_ledger_count_as(&r->naive, &r->graph);
        r->naive.flow = (hir_flow){0};
        r->naive.accesses.at = NULL, r->naive.accesses.n = 0;
    }
    hd_scratch_free(scratch);
    if (marked) return true;
    r->has_naive = true;
    return same || run_naive(s, &steps, r);
}

/* What the report says about the kernels of the module as it stands. */
static void count_compiled(const inspect_subject *s, ledger_report *r) {
    hir_ledger_find(r->compiled_module, s->arena, &r->compiled);
    hir_ledger_count_as(&r->compiled, &r->graph);
    ledger_count_blocks(r, s->arena);
    ledger_count_kernels(r, s->arena);
    if (r->back) ledger_count_backward(r, s->arena);
    if (r->back || !r->compiled_module->arena_per_token) return; /* plan-memory has not run */
    r->memory = hd_new(s->arena, ledger_memory);
    ledger_count_memory(r, r->chunk, s->arena, r->memory);
}

bool ledger_collect(const inspect_subject *whole, ledger_report *r) {
    const hir_compile_options *o = whole->pass_options;
    inspect_subject stage;
    const inspect_subject *s = &stage;
    *r = (ledger_report){.name = whole->graph->name,
                         .compiled_module = whole->now,
                         .chunk = o->chunk,
                         .stage = o->stages > 1 ? o->stage : 0,
                         .stages = o->stages > 1 ? o->stages : 1};
    if (!take_stage(whole, &stage)) return false;
    if (hir_has_gradients(whole->now)) r->back = hd_new(whole->arena, ledger_backward);
    layers_collect(s->now, s->arena, &r->layers);
    hir_ledger_find(s->graph, s->arena, &r->graph);
    r->parameters = parameters_of(&r->graph);
    r->reads = hir_flow_count_reads(&r->graph.flow, s->arena);
    if (r->graph.sublayers) {
        const bool marked = whole->graph->stage != HIR_STAGE_GRAPH;
        r->has_ops = s->graph->stage != HIR_STAGE_KERNEL;
        if (r->has_ops && !run_again(s, marked, r)) return false;
        r->has_kernels = r->compiled_module->stage == HIR_STAGE_KERNEL;
        if (r->has_ops) r->products = hir_ledger_products(&r->graph, s->graph, s->arena);
        if (r->has_kernels) count_compiled(s, r);
    }
    r->table = ledger_count_table(r);
    if (!r->back || whole->now->stage != HIR_STAGE_KERNEL) return true;
    r->optimizer = hd_new(whole->arena, ledger_optimizer);
    return ledger_count_optimizer(whole, r->optimizer);
}

/* ---- the closed forms of the paper ------------------------------------------------------------ */

/* Attention over depth reads what sublayers have made. Where mixes read earlier mixes, such as
 * ANCRe's states or streams that begin as the first outputs, the system is another one, even if the
 * pass that recognises such attention has found some in it. */
ledger_kind ledger_kind_of(const ledger_report *r) {
    const hir_flow_reads *reads = &r->reads;
    if (!reads->mixes) return LEDGER_PLAIN;
    if (r->has_attends && reads->bank + reads->live)
        return reads->direct_mixes == reads->mixes ? LEDGER_ATTENTION : LEDGER_OTHER;
    return r->has_kernels && ledger_streams(&r->compiled) > 1 ? LEDGER_STREAMS : LEDGER_OTHER;
}

/* A plain residual is a measure for all; AttnRes in blocks has the row of full AttnRes, too, which
 * takes each block for a source. */
bool ledger_form_fits(const ledger_report *r, hir_paper_kind of) {
    const ledger_kind kind = ledger_kind_of(r);
    switch (of) {
    case PAPER_ANY: return true;
    case PAPER_STREAMS: return kind == LEDGER_ATTENTION || kind == LEDGER_STREAMS;
    case PAPER_FULL:
    case PAPER_BLOCK: return kind == LEDGER_ATTENTION;
    }
    return false;
}

/* ---- traffic by residual block and by kernel ------------------------------------------------- */

const char *ledger_op_name(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    return hir_attr_string(o, HIR_A_NAME, hir_info(o->code)->name);
}

static void charge(hir_traffic *t, const hir_access *x) {
    *(x->write ? &t->written : &t->read) += x->bytes;
}

void ledger_count_blocks(ledger_report *r, hd_arena *a) {
    const hir_ledger *l = &r->compiled;
    if (l->flow.blocks < 2) return;
    r->by_block = hd_new_array(a, hir_traffic, l->flow.blocks + 1);
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *x = &l->accesses.at[i];
        if (!hir_phase_is_charged(x->phase) || x->block > l->flow.blocks) continue;
        charge(&r->by_block[x->phase == HIR_PHASE_OUTPUT ? 0 : x->block], x);
    }
}

static bool is_of(const ledger_group *g, const hir_access *x) {
    return g->phase == x->phase && g->kind == x->kind && g->write == x->write &&
           g->dtype == x->dtype;
}

static void count_access(ledger_kernel *k, const hir_access *x, hd_arena *a) {
    if (hir_phase_is_charged(x->phase)) charge(&k->each, x);
    for (size_t i = 0; i < k->groups.n; i++)
        if (is_of(&k->groups.at[i], x)) {
            k->groups.at[i].n++;
            return;
        }
    const ledger_group g = {1, x->write, x->phase, x->kind, x->dtype};
    hd_push(a, &k->groups, g);
}

static bool same_group(const ledger_group *a, const ledger_group *b) {
    return a->n == b->n && a->write == b->write && a->phase == b->phase && a->kind == b->kind &&
           a->dtype == b->dtype;
}

static bool does_the_same(const ledger_kernel *a, const ledger_kernel *b) {
    if (strcmp(a->name, b->name) != 0 || a->groups.n != b->groups.n) return false;
    for (size_t i = 0; i < a->groups.n; i++)
        if (!same_group(&a->groups.at[i], &b->groups.at[i])) return false;
    return a->each.read == b->each.read && a->each.written == b->each.written;
}

static void add_kernel(ledger_report *r, const ledger_kernel *new, hd_arena *a) {
    for (size_t i = 0; i < r->kernels.n; i++)
        if (does_the_same(&r->kernels.at[i], new)) {
            r->kernels.at[i].times++;
            return;
        }
    hd_push(a, &r->kernels, *new);
}

/* The accesses of one kernel are adjacent in the list. */
void ledger_count_kernels(ledger_report *r, hd_arena *a) {
    const hir_ledger *l = &r->compiled;
    for (size_t i = 0; i < l->accesses.n;) {
        const hir_id op = l->accesses.at[i].op;
        ledger_kernel new = {.name = ledger_op_name(r->compiled_module, op), .times = 1};
        for (; i < l->accesses.n && l->accesses.at[i].op == op; i++)
            count_access(&new, &l->accesses.at[i], a);
        add_kernel(r, &new, a);
    }
}

/* ---- the memory of a session ----------------------------------------------------------------- */

/* Memory of a session with a long prompt: states for all tokens, the arena for one chunk. The
 * figures also say how much of both belongs to the residual mechanism, and how large the
 * mechanism's arena would be in a program that takes all tokens at once (the paper's prefill
 * memory, N T d). */

/* By state: an op that reads along the sequence reads it, such as attention reads keys and
 * values. */
static bool *states_of_attention(const hir_ledger *l, const hir_module *m, hd_arena *a) {
    bool *of_attention = hd_new_array(a, bool, m->states.n + 1);
    for (size_t k = 0; k < l->flow.program.n; k++) {
        const hir_op *o = hir_op_at(m, l->flow.program.at[k]);
        for (uint32_t i = 0; hir_has_trait(o->code, HIR_SEQUENCE) && i < o->n_args; i++) {
            if (o->args[i].kind == HIR_REF_STATE) of_attention[o->args[i].index] = true;
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_ref made = hir_value_ref(l->flow.origin[o->args[i].index]);
            const uint32_t state = hir_state_of_value(m, made);
            if (state != HIR_NONE) of_attention[state] = true;
        }
    }
    return of_attention;
}

static void count_states(const hir_ledger *l, const hir_module *m, hd_arena *a,
                         ledger_memory *out) {
    const bool *of_attention = states_of_attention(l, m, a);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        const uint64_t bytes = hir_state_bytes(s);
        if (hir_is_of_call(s)) {
            out->call_state = hd_capped_add(out->call_state, bytes);
            continue;
        }
        if (hir_state_kind_of(s->kind)->rows != HIR_ROWS_PER_POSITION) {
            out->fixed_state = hd_capped_add(out->fixed_state, bytes);
            continue;
        }
        out->state = hd_capped_add(out->state, bytes);
        if (!of_attention[i]) out->mechanism_state = hd_capped_add(out->mechanism_state, bytes);
    }
}

/* The most bytes of the residual mechanism that the arena holds at one time. */
static uint64_t most_alive(const hir_ledger *l, const hir_module *m, hd_arena *a) {
    memory_plan plan;
    memory_plan_find(m, a, &plan);
    uint64_t *alive = hd_new_array(a, uint64_t, (size_t)plan.kernels + 1), most = 0;
    for (size_t i = 0; i < plan.rows.n; i++) {
        const memory_plan_row *row = &plan.rows.at[i];
        const bool ours = l->flow.kind[l->flow.origin[row->value]] != HIR_FLOW_NONE;
        const hir_place place = hir_value_at(m, row->value)->place;
        if (!ours || (place != HIR_PLACE_ARENA && place != HIR_PLACE_LOCAL)) continue;
        for (uint32_t k = row->first + row->in_place; k <= row->last; k++)
            alive[k] = hd_capped_add(alive[k], row->bytes);
    }
    for (uint32_t k = 0; k < plan.kernels; k++)
        if (alive[k] > most) most = alive[k];
    return most;
}

/* The most rows that one rank has in calls of up to so many tokens. In calls too short to be
 * divided, each rank has all rows. */
static uint64_t most_local_rows(const hir_module *m, uint64_t tokens) {
    if (!m->ranks) return tokens;
    const uint64_t share = (tokens + m->ranks - 1) / m->ranks, whole = (uint64_t)m->divide_from - 1;
    const uint64_t undivided = whole < tokens ? whole : tokens;
    return share > undivided ? share : undivided;
}

void ledger_count_memory(const ledger_report *r, int64_t chunk, hd_arena *a, ledger_memory *out) {
    const hir_module *m = r->compiled_module;
    *out = (ledger_memory){.tokens = 128 * 1024, .chunk = (uint64_t)chunk};
    if (out->chunk > out->tokens) out->chunk = out->tokens;
    count_states(&r->compiled, m, a, out);
    out->arena = m->arena_per_token;
    out->mechanism_arena = most_alive(&r->compiled, m, a);
    out->fixed = m->fixed_bytes;
    out->session = hd_capped_add(hd_capped_mul(out->state, out->tokens),
                                 hd_capped_mul(out->arena, out->chunk));
    out->ranks = m->ranks ? m->ranks : 1;
    out->local = m->local_per_token;
    out->local_rows = most_local_rows(m, out->chunk);
    out->mechanism_rows = out->local_rows;
    out->kept = m->arena_kept;
    out->local_kept = m->local_kept;
    out->in_flight = 1;
    if (out->kept || out->local_kept)
        out->in_flight =
            (uint64_t)hrt_chunks_in_flight((int64_t)out->tokens, (int64_t)out->chunk, r->stages);
    const uint64_t more = out->in_flight - 1; /* one chunk's part is in the arena above */
    out->session = hd_capped_add(out->session, hd_capped_mul(out->kept, more * out->chunk));
    out->session =
        hd_capped_add(out->session, hd_capped_mul(out->local_kept, more * out->local_rows));
    out->all_rows = (out->tokens + out->ranks - 1) / out->ranks;
    out->session = hd_capped_add(out->session, hd_capped_mul(out->local, out->local_rows));
    out->session = hd_capped_add(out->session, hd_capped_add(out->fixed, out->fixed_state));
    const uint64_t pairs = hd_capped_mul(out->chunk, out->tokens);
    out->session = hd_capped_add(out->session, hd_capped_mul(out->call_state, pairs));
}

/* ---- how each pass changed the ledger, as remarks -------------------------------------------- */

static void look(const hir_module *m, hd_arena *a, hir_ledger *l, ledger_watch *w) {
    hd_arena **scratch = hd_scratch_new(a);
    hir_ledger_find_totals(m, *scratch, l);
    *w = (ledger_watch){.stage = m->stage, .total = l->total, .has_back = hir_has_gradients(m)};
    hir_back_ledger back = {0};
    if (w->has_back) hir_back_ledger_find(m, l, *scratch, &back);
    w->back = back.total;
    *l = (hir_ledger){.sublayers = l->sublayers, .unit = l->unit};
    hd_scratch_free(scratch);
}

void ledger_watch_start(ledger_watch *w, const hir_module *m, hd_arena *a) {
    hir_ledger l;
    look(m, a, &l, w);
    w->sublayers = l.sublayers;
    w->unit = l.unit;
}

static bool is_same(hir_traffic a, hir_traffic b) {
    return a.read == b.read && a.written == b.written;
}

static void remark(hir_remarks *remarks, const char *pass, const char *text) {
    const hir_remark r = {.pass = pass, .taken = true, .op = HIR_NONE, .text = text};
    hd_push(remarks->arena, &remarks->list, r);
}

/* `before`: what the half moved before the pass; NULL: it was not there. */
static void tell(hir_remarks *remarks, hd_arena *a, const char *pass, const char *half,
                 const hir_ledger *l, const hir_traffic *before, hir_traffic now, bool kernels) {
    const char *instead = before ? hd_printf(a, " instead of %.3f d",
                                             hir_ledger_units(l, before->read + before->written))
                                 : "";
    remark(remarks, pass,
           hd_printf(a, "ledger%s: %.3f d%s per token per sublayer%s (%.3f read, %.3f written)",
                     half, hir_ledger_units(l, now.read + now.written), instead,
                     kernels ? ", counted by kernels now" : "", hir_ledger_units(l, now.read),
                     hir_ledger_units(l, now.written)));
}

void ledger_watch_pass(ledger_watch *w, const hir_module *m, const char *pass, hd_arena *a,
                       hir_remarks *remarks) {
    hir_ledger l;
    const ledger_watch old = *w;
    look(m, a, &l, w);
    const bool one_stage = !strcmp(pass, hir_pass(HIR_PASS_SHARD_PIPELINE)->name);
    const hir_ledger loaded = {.sublayers = old.sublayers, .unit = old.unit};
    if (!one_stage) hir_ledger_count_as(&l, &loaded);
    w->sublayers = l.sublayers;
    w->unit = l.unit;
    const bool kernels = old.stage != m->stage && m->stage == HIR_STAGE_KERNEL;
    if (!is_same(old.total, w->total))
        tell(remarks, a, pass, "", &l, &old.total, w->total, kernels);
    if (w->has_back && !is_same(old.back, w->back))
        tell(remarks, a, pass, ", backward half", &l, old.has_back ? &old.back : NULL, w->back,
             kernels);
}
