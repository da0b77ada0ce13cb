/* The depth map: which sublayer reads which sources, where the residual blocks begin, and which
 * kernels do the reading.
 *
 * The sources come from the graph as loaded, so that the map is that of the model. How they are
 * read comes from the kernels: in phase 1, which reads the sources that several sublayers of a
 * block share, or in the kernel that makes the sublayer's input. */
#include "inspect/depth_map.h"

#include <string.h>

#include "inspect/format.h"
#include "inspect/ledger.h"
#include "ir/text/text.h"

/* ---- how the kernels do it ------------------------------------------------------------------- */

typedef struct schedule {
    depth_map_reads *reads;    /* by sublayer; 0: the output of the model */
    depth_map_phase_1 *blocks; /* by residual block */
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

/* An input that is not written to memory is made in the prologue of the contraction that reads
 * it. */
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
        return; /* a sum to which an epilogue adds: not part of making an input */
    if (a->kind == HIR_FLOW_MIX && a->phase == HIR_PHASE_STREAMS) p->streams++;
    if (a->kind == HIR_FLOW_MIX && a->phase != HIR_PHASE_STREAMS) p->partial++;
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

static depth_map_row row_of(const hir_flow_label *labels, const hir_flow_input *x, hd_arena *a) {
    const bool result = x->sublayer == HIR_FLOW_RESULT;
    depth_map_row row = {
        .sublayer = result ? 0 : x->sublayer,
        .block = x->block,
        .name = result ? "output" : labels[x->sublayer - 1].name,
        .n_sources = hir_flow_sources(x),
        .shared = x->shared,
        .reads.kernel = HIR_NONE,
    };
    row.sources = hd_new_array(a, const char *, hir_flow_sources(x) + 1);
    for (size_t i = 0; i < hir_flow_sources(x); i++)
        row.sources[i] = source_label(hir_flow_source(x, i), a);
    return row;
}

static size_t longest_name(const hir_flow_label *labels, size_t sublayers) {
    size_t longest = 0;
    for (size_t l = 0; l < sublayers; l++) {
        const size_t n = strlen(labels[l].name);
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
    const hir_flow_label *labels = hir_flow_labels(f, a);
    out->passes = hir_flow_passes(labels, f->outputs.n, a);
    out->longest_name = longest_name(labels, f->outputs.n);
    out->n_blocks = f->blocks;
    out->longest_block = f->longest_block;
    out->source_reads = hir_flow_count_reads(f, a);
    out->scheduled = s->now->stage == HIR_STAGE_KERNEL && compiled.sublayers == graph.sublayers &&
                     compiled.flow.blocks == f->blocks;
    const schedule plan = out->scheduled ? find_schedule(&compiled, a) : (schedule){0};
    out->phase_1 = plan.blocks;
    for (size_t i = 0; i < f->inputs.n; i++) {
        depth_map_row row = row_of(labels, &f->inputs.at[i], a);
        if (out->scheduled) hd_known(plan.reads), row.reads = plan.reads[row.sublayer];
        hd_push(a, &out->rows, row);
    }
    return true;
}

/* ---- for people ------------------------------------------------------------------------------ */

enum { LEAST_WIDTH = 6 }; /* of the column of names */

static void print_sources(const depth_map_row *x, size_t from, size_t to, hd_text *out) {
    for (size_t i = from; i < to; i++)
        hd_text_f(out, "%s%s", i > from ? " " : "", x->sources[i]);
}

/* ---- how the kernels do it ------------------------------------------------------------------- */

static void print_phase_1(const hir_module *m, const depth_map_phase_1 *b, hd_text *out) {
    if (b->kernel == HIR_NONE) return;
    hd_text_f(out, "  [phase 1 in %s: %u source%s, %u mix%s]", ledger_op_name(m, b->kernel),
              b->sources, hd_s(b->sources), b->mixes, b->mixes == 1 ? "" : "es");
}

static void print_count(hd_text *out, bool *any, uint32_t n, const char *what) {
    if (!n) return;
    hd_text_f(out, "%s%u %s", *any ? ", " : "", n, what);
    *any = true;
}

static void print_reads(const hir_module *m, const depth_map_reads *p, hd_text *out) {
    if (p->kernel == HIR_NONE) return;
    bool any = false;
    hd_text_f(out, "  [%s: reads ", ledger_op_name(m, p->kernel));
    print_count(out, &any, p->phase_1, "with phase 1");
    print_count(out, &any, p->partial, p->partial == 1 ? "partial mix" : "partial mixes");
    print_count(out, &any, p->streams, p->streams == 1 ? "stream" : "streams");
    print_count(out, &any, p->direct, "direct");
    hd_text_f(out, "%s]", any ? "" : "nothing of other kernels");
}

/* ---- the map as text ------------------------------------------------------------------------- */

/* The line above the first row of a residual block. */
static void print_block(const depth_map *x, const depth_map_row *row, hd_text *out) {
    if (!row->sublayer) {
        hd_text_add(out, "\n");
        return;
    }
    hd_text_f(out, "\nblock %u", row->block);
    if (row->shared) {
        hd_text_add(out, ": shared ");
        print_sources(row, 0, row->shared, out);
    }
    if (x->scheduled) print_phase_1(x->module, &x->phase_1[row->block], out);
    hd_text_add(out, "\n");
}

static void print_row(const depth_map_row *x, int width, hd_text *out) {
    if (!x->sublayer)
        hd_text_f(out, "  %4s  %-*s  ", "", width, x->name);
    else
        hd_text_f(out, "  %4u  %-*s  ", x->sublayer, width, x->name);
    print_sources(x, 0, x->shared, out);
    if (x->shared < x->n_sources) {
        hd_text_add(out, !x->sublayer ? "" : x->shared ? " | " : "| ");
        print_sources(x, x->shared, x->n_sources, out);
    }
}

/* Says which sublayers have no row: what they read cannot be followed to the stream. */
static void print_gaps(const depth_map *x, hd_text *out) {
    bool *has_row = hd_new_array(out->arena, bool, x->sublayers + 1);
    size_t missing = 0;
    for (size_t i = 0; i < x->rows.n; i++)
        has_row[x->rows.at[i].sublayer] = true;
    for (size_t l = 1; l <= x->sublayers; l++)
        missing += !has_row[l];
    if (!missing) return;
    hd_text_f(out, "%zu sublayer%s without a row, as nothing of the stream is known to reach %s:",
              missing, hd_s(missing), missing == 1 ? "it" : "them");
    for (size_t l = 1, shown = 0; l <= x->sublayers && shown < 16; l++)
        if (!has_row[l]) hd_text_f(out, "%s %zu", shown++ ? "," : "", l);
    hd_text_add(out, missing > 16 ? ", ..\n" : "\n");
}

static void print_mixes(const hir_flow_reads *reads, hd_text *out) {
    const uint32_t direct = reads->direct_mixes, others = reads->mixes - direct;
    if (direct || !others)
        hd_text_f(out, "%u %s %llu source%s", direct, direct == 1 ? "mix reads" : "mixes read",
                  (unsigned long long)reads->direct, hd_s(reads->direct));
    if (others)
        hd_text_f(out, "%s%u %s earlier mixes", direct ? ", " : "", others,
                  others == 1 ? "mix reads" : "mixes read");
}

void depth_map_text(const depth_map *x, hd_text *out) {
    if (!x->sublayers) {
        hd_text_f(out, "%s has no residual stream: nothing that sublayers add to\n", x->name);
        return;
    }
    hd_text_f(out, "depth map of %s: %zu sublayer%s in %u block%s of at most %u; ", x->name,
              x->sublayers, hd_s(x->sublayers), x->n_blocks, hd_s(x->n_blocks), x->longest_block);
    print_mixes(&x->source_reads, out);
    hd_text_f(out,
              "\n"
              "e is the embedding, 3 the output of sublayer 3, 1-2 a sum of outputs; before | are\n"
              "the sources that the next one reads too, after it the live one\n");
    print_gaps(x, out);
    if (x->passes) hd_text_f(out, "layers that run several times, by sublayers: %s\n", x->passes);
    const int width = x->longest_name > LEAST_WIDTH ? (int)x->longest_name : LEAST_WIDTH;
    for (size_t i = 0; i < x->rows.n; i++) {
        const depth_map_row *row = &x->rows.at[i];
        if (i == 0 || !row->sublayer || row->block != row[-1].block) print_block(x, row, out);
        print_row(row, width, out);
        if (x->scheduled) print_reads(x->module, &row->reads, out);
        hd_text_add(out, "\n");
    }
}

/* ---- for programs: `line` is a kernel's line in the printed kernel IR ------------------------ */

typedef struct writer {
    const depth_map *x;
    const uint32_t *lines; /* by op: its line */
    hd_text *out;
} writer;

static void print_kernel(const writer *w, hir_id kernel) {
    hd_text_add(w->out, "\"kernel\": ");
    if (kernel == HIR_NONE) {
        hd_text_add(w->out, "null, \"line\": 0");
        return;
    }
    inspect_json_string(w->out, ledger_op_name(w->x->module, kernel));
    hd_text_f(w->out, ", \"line\": %u", w->lines[kernel]);
}

static void json_row(const writer *w, const depth_map_row *row) {
    hd_text *out = w->out;
    hd_text_f(out, "{\"sublayer\": %u, \"block\": %u, \"name\": ", row->sublayer, row->block);
    inspect_json_string(out, row->name);
    hd_text_f(out, ", \"shared\": %zu, \"sources\": [", row->shared);
    for (size_t i = 0; i < row->n_sources; i++) {
        hd_text_add(out, i ? ", " : "");
        inspect_json_string(out, row->sources[i]);
    }
    hd_text_add(out, "], ");
    print_kernel(w, row->reads.kernel);
    hd_text_f(out, ", \"direct\": %u, \"partial\": %u, \"phase_1\": %u, \"streams\": %u}",
              row->reads.direct, row->reads.partial, row->reads.phase_1, row->reads.streams);
}

static void print_blocks(const writer *w) {
    const depth_map *x = w->x;
    hd_text_add(w->out, ",\n  \"phase_1\": [");
    for (uint32_t b = 1; x->scheduled && b <= x->n_blocks; b++) {
        const depth_map_phase_1 *p = &x->phase_1[b];
        hd_text_f(w->out, "%s{\"block\": %u, ", b > 1 ? ",\n    " : "\n    ", b);
        print_kernel(w, p->kernel);
        hd_text_f(w->out, ", \"sources\": %u, \"mixes\": %u}", p->sources, p->mixes);
    }
    hd_text_add(w->out, "]");
}

void depth_map_json(const depth_map *x, hd_text *out) {
    const writer w = {x, hir_op_lines(x->module, out->arena), out};
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, x->name);
    hd_text_f(out, ", \"sublayers\": %zu, \"blocks\": %u, \"longest_block\": %u, \"scheduled\": %s",
              x->sublayers, x->n_blocks, x->longest_block, x->scheduled ? "true" : "false");
    print_blocks(&w);
    hd_text_add(out, ",\n  \"rows\": [");
    for (size_t i = 0; i < x->rows.n; i++) {
        hd_text_add(out, i ? ",\n    " : "\n    ");
        json_row(&w, &x->rows.at[i]);
    }
    hd_text_add(out, "]}\n");
}
