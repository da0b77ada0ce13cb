/* The depth map: which sublayer reads which sources, where the blocks begin, and which kernels do
 * it.
 *
 * Sources come from the graph as loaded, so that the map is that of the model; how they are read
 * comes from the kernels: phase 1 (read with others of the block), or beside the sublayer itself.
 */
#include "inspect/depth_map.h"

#include <string.h>

#include "inspect/ledger.h"

/* ---- how the kernels do it ------------------------------------------------------------------- */

typedef struct schedule {
    depth_map_reads *reads;    /* by sublayer; 0: of the output */
    depth_map_phase_1 *blocks; /* by block */
} schedule;

static depth_map_reads *reads_of(const schedule *s, const hir_access *a) {
    return &s->reads[a->sublayer == HIR_FLOW_RESULT ? 0 : a->sublayer];
}

static void note_write(const hir_ledger *l, const hir_access *a, const schedule *s) {
    uint32_t i = l->flow.input[l->flow.origin[a->value]];
    if (i == HIR_NONE) {
        depth_map_phase_1 *b = &s->blocks[a->block];
        if (a->phase != HIR_PHASE_PHASE_1 || a->kind != HIR_FLOW_MIX) return;
        if (b->kernel == HIR_NONE) b->kernel = a->op;
        b->mixes++;
        return;
    }
    uint32_t sublayer = l->flow.inputs.at[i].sublayer;
    s->reads[sublayer == HIR_FLOW_RESULT ? 0 : sublayer].kernel = a->op;
}

/* An input that is not written is made in the contraction that reads it. */
static void note_prologues(const hir_ledger *l, const schedule *s) {
    for (size_t i = 0; i < l->flow.inputs.n; i++) {
        const hir_flow_input *x = &l->flow.inputs.at[i];
        depth_map_reads *p = &s->reads[x->sublayer == HIR_FLOW_RESULT ? 0 : x->sublayer];
        hir_id op = hir_value_at(l->flow.m, x->value)->op;
        if (p->kernel == HIR_NONE && op != HIR_NONE) p->kernel = hir_op_at(l->flow.m, op)->parent;
    }
}

static void note_read(const hir_ledger *l, const hir_access *a, const schedule *s) {
    bool source = a->kind != HIR_FLOW_MIX && a->kind != HIR_FLOW_NUMBERS;
    depth_map_phase_1 *b = &s->blocks[a->block];
    if (source && a->phase == HIR_PHASE_PHASE_1 && a->op == b->kernel) b->sources++;
    depth_map_reads *p = reads_of(s, a);
    if (a->op != p->kernel) return;
    if (a->phase == HIR_PHASE_ACCUMULATE &&
        hir_op_at(l->flow.m, a->op)->code == HIR_KERNEL_CONTRACT_OP)
        return; /* behind the arithmetic */
    if (a->kind == HIR_FLOW_MIX) p->partial++;
    if (source && a->phase == HIR_PHASE_PHASE_1) p->phase_1++;
    if (source && a->phase != HIR_PHASE_PHASE_1) p->direct++;
}

static schedule find_schedule(const hir_ledger *l, hd_arena *a) {
    schedule s = {hd_new_array(a, depth_map_reads, l->sublayers + 1),
                  hd_new_array(a, depth_map_phase_1, l->flow.blocks + 1)};
    for (uint32_t i = 0; i <= l->sublayers; i++)
        s.reads[i].kernel = HIR_NONE;
    for (uint32_t i = 0; i <= l->flow.blocks; i++)
        s.blocks[i].kernel = HIR_NONE;
    for (size_t i = 0; i < l->accesses.n; i++)
        if (l->accesses.at[i].write) note_write(l, &l->accesses.at[i], &s);
    note_prologues(l, &s);
    for (size_t i = 0; i < l->accesses.n; i++)
        if (!l->accesses.at[i].write) note_read(l, &l->accesses.at[i], &s);
    return s;
}

/* ---- the map --------------------------------------------------------------------------------- */

static const char *source_label(const hir_source *s, hd_arena *a) {
    hd_text text;
    hd_text_init(&text, a);
    hir_flow_print_source(s, &text);
    return text.at;
}

static depth_map_row row_of(const hir_flow *f, const hir_flow_input *x, hd_arena *a) {
    depth_map_row row = {
        .sublayer = x->sublayer == HIR_FLOW_RESULT ? 0 : x->sublayer,
        .block = x->block,
        .name = hir_flow_sublayer_name(f, x->sublayer, a),
        .n_sources = x->sources.n,
        .shared = x->shared,
        .reads.kernel = HIR_NONE,
    };
    row.sources = hd_new_array(a, const char *, x->sources.n + 1);
    for (size_t i = 0; i < x->sources.n; i++)
        row.sources[i] = source_label(&x->sources.at[i], a);
    return row;
}

static size_t longest_name(const hir_flow *f, hd_arena *a) {
    size_t longest = 0;
    for (uint32_t l = 1; l <= f->outputs.n; l++) {
        const size_t n = strlen(hir_flow_sublayer_name(f, l, a));
        if (n > longest) longest = n;
    }
    return longest;
}

bool depth_map_collect(const inspect_subject *s, depth_map *out) {
    hd_arena *a = s->arena;
    hir_ledger graph, compiled;
    hir_ledger_find(s->graph, a, &graph);
    hir_ledger_find(s->now, a, &compiled);
    const hir_flow *f = &graph.flow;
    *out = (depth_map){.module = s->now, .name = s->now->name};
    if (!f->width || !f->outputs.n) return true;
    out->sublayers = f->outputs.n;
    out->longest_name = longest_name(f, a);
    out->n_blocks = f->blocks;
    out->longest_block = f->longest_block;
    out->source_reads = hir_flow_count_reads(f);
    out->scheduled = s->now->stage == HIR_STAGE_KERNEL && compiled.sublayers == graph.sublayers &&
                     compiled.flow.blocks == f->blocks;
    const schedule plan = out->scheduled ? find_schedule(&compiled, a) : (schedule){0};
    out->phase_1 = plan.blocks;
    for (size_t i = 0; i < f->inputs.n; i++) {
        depth_map_row row = row_of(f, &f->inputs.at[i], a);
        if (out->scheduled) hd_known(plan.reads), row.reads = plan.reads[row.sublayer];
        hd_push(a, &out->rows, row);
    }
    return true;
}
