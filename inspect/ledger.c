/* The stages of a module laid side by side. */
#include "inspect/ledger.h"

#include "passes/depth/depth.h"

enum { PAPER_STREAMS = 4 }; /* m of Table 1, for models that have no streams of their own */

/* ---- the module without the depth passes ----------------------------------------------------- */

typedef HD_VEC(hir_pass_id) pass_list;

/* A pass that is for the residual mechanism. Attention over what is made of cached rows has no
 * kernels without absorb-latent, whatever the residual mechanism is. */
static bool is_of_mechanism(hir_pass_id id) {
    return hir_pass(id)->stage_out == HIR_STAGE_DEPTH && id != HIR_PASS_ABSORB_LATENT;
}

/* The default pipeline, with or without these. */
static pass_list pipeline(hd_arena *a, bool depth) {
    pass_list list = {0};
    for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++)
        if (depth || !is_of_mechanism(*id)) hd_push(a, &list, *id);
    return list;
}

static bool run(const inspect_subject *s, hir_module *m, bool depth, hir_hooks hooks) {
    pass_list list = pipeline(s->arena, depth);
    hir_run r = {
        .passes = list.at, .n_passes = list.n, .stop_after = HIR_PASS_COUNT, .hooks = hooks};
    return hir_run_passes(m, &r, s->pass_options, NULL, s->diags);
}

/* Of a pipeline the model is one stage: what the passes make of it, they make of its ops alone. The
 * subject as if that had been loaded. It is cut where it is when it is compiled, so behind the same
 * passes. */
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
    hir_pass_options *alone = hd_new(s->arena, hir_pass_options);
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
} recorder;

/* Blocks of Full AttnRes are a schedule, which form-blocks chooses: N of them, of S = L / N. */
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
    hir_ledger l;
    hir_ledger_find(m, r->arena, &l);
    const hir_flow *flow = &r->report->graph.flow;
    if (flow->longest_block == 1 && id == HIR_PASS_FORM_BLOCKS) note_schedule(m, r->report);
    ledger_step step = {hir_pass(id)->name, m->stage, l.total};
    hd_push(r->arena, &r->report->steps, step);
    return true;
}

/* ---- the report ------------------------------------------------------------------------------ */

static hir_paper_parameters parameters_of(const hir_ledger *l) {
    const hir_flow *f = &l->flow;
    hir_paper_parameters p = {.sublayers = l->sublayers, .streams = PAPER_STREAMS};
    p.blocks = f->blocks ? f->blocks : 1;
    p.per_block = f->longest_block ? f->longest_block : 1;
    return p;
}

/* The module as loaded on its way through the passes, and without those of depth; `marked`: depth
 * passes have left their marks already. */
static bool run_again(const inspect_subject *s, bool marked, ledger_report *r) {
    recorder steps = {s->arena, r};
    hir_module *again = hir_module_clone(s->graph, s->arena);
    if (!run(s, again, true, (hir_hooks){.context = &steps, .after = record})) return false;
    if (marked) return true;
    hir_module *naive = hir_module_clone(s->graph, s->arena);
    if (!run(s, naive, false, (hir_hooks){0})) return false;
    hir_ledger_find(naive, s->arena, &r->naive);
    r->has_naive = true;
    return true;
}

/* What the report says about the kernels of the module as it is now. */
static void count_compiled(const inspect_subject *s, ledger_report *r) {
    hir_ledger_find(r->compiled_module, s->arena, &r->compiled);
    ledger_count_blocks(r, s->arena);
    ledger_count_kernels(r, s->arena);
    if (!r->compiled_module->arena_per_token) return; /* not planned */
    r->memory = hd_new(s->arena, ledger_memory);
    ledger_count_memory(r, r->chunk, s->arena, r->memory);
}

bool ledger_collect(const inspect_subject *whole, ledger_report *r) {
    const hir_pass_options *o = whole->pass_options;
    inspect_subject stage;
    const inspect_subject *s = &stage;
    *r = (ledger_report){.name = whole->graph->name,
                         .compiled_module = whole->now,
                         .chunk = o->chunk,
                         .stage = o->stages > 1 ? o->stage : 0,
                         .stages = o->stages > 1 ? o->stages : 1};
    if (!take_stage(whole, &stage)) return false;
    layers_collect(s->now, s->arena, &r->layers);
    hir_ledger_find(s->graph, s->arena, &r->graph);
    r->parameters = parameters_of(&r->graph);
    r->reads = hir_flow_count_reads(&r->graph.flow);
    if (r->graph.sublayers) {
        const bool marked = whole->graph->stage != HIR_STAGE_GRAPH;
        r->has_ops = s->graph->stage != HIR_STAGE_KERNEL;
        if (r->has_ops && !run_again(s, marked, r)) return false;
        r->has_kernels = r->compiled_module->stage == HIR_STAGE_KERNEL;
        if (r->has_ops) r->products = hir_ledger_products(&r->graph, s->graph, s->arena);
        if (r->has_kernels) count_compiled(s, r);
    }
    r->table = ledger_count_table(r);
    return true;
}
