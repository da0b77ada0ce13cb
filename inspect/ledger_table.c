/* Table 1 of the paper, counted in the IR by the paper's rules, line by line beside the kernels.
 *
 * What is counted by the rules comes from the same data flow as the ledger: the sublayers, their
 * source lists, the blocks that these form. So it is the closed form where a model is as regular as
 * the closed form takes it to be, and says by how much it is not elsewhere. The column of the
 * kernels is the ledger's, by what its accesses are for.
 *
 *     standard  the old sum and an output read, the new sum written, by ops
 *     mHC       what ops of one sublayer move, a small product and its sum being one operation
 *     Block     each block reads N finished sources; a sublayer writes and reads a result, reads
 *               the live sum and its output, writes the new sum
 *     Full      cut into N equal blocks of S (Appendix B): keys and values of finished sources are
 *               read once a block, those of live ones by each sublayer; results are written twice.
 *               The embedding is no source. S is the least power of two with S^2 >= L: the paper's
 *               16 for its L = 128
 */
#include <string.h>

#include "inspect/ledger.h"

/* ---- the lines ------------------------------------------------------------------------------- */
enum { SOURCES, RESULTS_WRITTEN, RESULTS_READ, OWN_SOURCES, ADDED, SUMS, NUMBERS, INPUTS, LINES };

static uint64_t rows_of(const hir_ledger *l, uint64_t rows) {
    return hd_capped_mul(rows, l->unit);
}

/* The line of the table to which an access of the kernels belongs; LINES: none, since the paper
 * leaves such accesses out. */
static int line_of(const hir_access *x) {
    const bool stream = x->kind != HIR_FLOW_MIX;
    if (x->phase == HIR_PHASE_LAYER_INPUT) return INPUTS;
    if (!hir_phase_is_in_paper(x->phase)) return LINES;
    if (x->kind == HIR_FLOW_NUMBERS) return NUMBERS;
    switch (x->phase) {
    case HIR_PHASE_STREAMS:
    case HIR_PHASE_COEFFICIENTS:
    case HIR_PHASE_ACCUMULATE: return x->write ? SUMS : ADDED;
    case HIR_PHASE_OWN_SUM: return SUMS;
    case HIR_PHASE_PHASE_1: return x->write ? RESULTS_WRITTEN : SOURCES;
    case HIR_PHASE_PHASE_2: return stream ? OWN_SOURCES : RESULTS_READ;
    default: return OWN_SOURCES;
    }
}

static void count_kernels(const ledger_report *r, hir_traffic *lines) {
    const hir_ledger *l = &r->compiled;
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *x = &l->accesses.at[i];
        const int line = line_of(x);
        if (line == LINES) continue;
        uint64_t *sum = x->write ? &lines[line].written : &lines[line].read;
        *sum = hd_capped_add(*sum, x->bytes);
    }
}

static hir_traffic sum_of(hir_traffic a, hir_traffic b) {
    return (hir_traffic){hd_capped_add(a.read, b.read), hd_capped_add(a.written, b.written)};
}

static void add_line(ledger_table *t, const char *what, hir_traffic paper, hir_traffic kernels,
                     const char *why) {
    if (!(paper.read | paper.written | kernels.read | kernels.written)) return;
    t->line[t->n++] = (ledger_line){what, why, paper, kernels};
    t->paper = sum_of(t->paper, paper);
    t->kernels = sum_of(t->kernels, kernels);
}

/* ---- by the rules ---------------------------------------------------------------------------- */
/* Finished sources of the last block: N of the paper. */
static uint32_t most_shared(const hir_flow *f) {
    uint32_t most = 0;
    for (size_t i = 0; i < f->inputs.n; i++)
        if (f->inputs.at[i].sublayer != HIR_FLOW_RESULT && f->inputs.at[i].shared > most)
            most = f->inputs.at[i].shared;
    return most;
}

static void block_rules(const ledger_report *r, hir_traffic *lines) {
    const hir_flow *f = &r->graph.flow;
    const uint64_t each = rows_of(&r->graph, r->graph.sublayers);
    lines[SOURCES].read = rows_of(&r->graph, (uint64_t)f->blocks * most_shared(f));
    lines[RESULTS_WRITTEN].written = lines[RESULTS_READ].read = each;
    lines[OWN_SOURCES].read = lines[ADDED].read = lines[SUMS].written = each;
}

static uint32_t without_embedding(const hir_flow_input *x) {
    uint32_t n = 0;
    for (size_t i = 0; i < hir_flow_sources(x); i++)
        n += hir_flow_source(x, i)->first > 0;
    return n;
}

static uint32_t equal_block(uint32_t sublayers) {
    uint32_t s = 1;
    while ((uint64_t)s * s < sublayers)
        s *= 2;
    return s;
}

static void full_rules(const ledger_report *r, uint32_t per_block, hir_traffic *lines) {
    const hir_flow *f = &r->graph.flow;
    uint64_t finished = 0, live = 0;
    uint32_t shared = 0, k = 0;
    for (size_t i = 0; i < f->inputs.n; i++) {
        const hir_flow_input *x = &f->inputs.at[i];
        if (x->sublayer == HIR_FLOW_RESULT) continue;
        const uint32_t n = without_embedding(x);
        if (k++ % per_block == 0) finished += shared = n;
        live += n > shared ? n - shared : 0;
    }
    lines[SOURCES].read = rows_of(&r->graph, 2 * finished);
    lines[OWN_SOURCES].read = rows_of(&r->graph, 2 * live);
    lines[RESULTS_WRITTEN].written = lines[INPUTS].written = rows_of(&r->graph, r->graph.sublayers);
}

/* ---- the tables ------------------------------------------------------------------------------ */
static const hir_paper_form *form_of(const char *key) {
    const hir_paper_form *forms;
    size_t n = hir_paper_forms(&forms);
    while (n-- > 0)
        if (!strcmp(forms[n].key, key)) return &forms[n];
    return NULL;
}

static void attention_table(const ledger_report *r, bool full, ledger_table *t) {
    hir_traffic paper[LINES] = {0}, kernels[LINES] = {0};
    count_kernels(r, kernels);
    t->form = form_of(full ? "full" : "block");
    t->by_line = true;
    t->has_inputs = full;
    if (full) {
        const uint32_t s = equal_block(r->graph.sublayers);
        t->parameters.per_block = s;
        t->parameters.blocks = t->parameters.sublayers / s;
        full_rules(r, s, paper);
    } else {
        kernels[INPUTS] = (hir_traffic){0}; /* the paper's row leaves layer inputs out */
        block_rules(r, paper);
    }
    const struct {
        const char *what, *why, *why_full;
    } text[LINES] = {
        [SOURCES] =
            {"finished sources read for a block",
             "the paper charges N to every block; the IR has n in block n",
             "the paper reads keys and values separately, and equal blocks; here they are one, in "
             "blocks that save most"},
        [RESULTS_WRITTEN] =
            {"results of phase 1 written",
             "the first of a block has its result where it is made, and few sources "
             "are mixed again",
             "the first of a block has its result where it is made"},
        [RESULTS_READ] = {"results of phase 1 read", "likewise", "not in the paper's count"},
        [OWN_SOURCES] = {"live sources read, and sources mixed in one phase",
                         "the first of a block has no live source",
                         "read once, not as key and value; longer blocks have more of them"},
        [ADDED] =
            {"read for sums",
             "the first output of a block is added to nothing; others are added where they are "
             "made, which reads the old sum instead",
             ""},
        [SUMS] = {"sums written", "the first output of a block is no sum", ""},
        [NUMBERS] = {"scores, log-sum-exps and norms", "the paper leaves them out",
                     "the paper leaves them out"},
        [INPUTS] = {"merged results written", "", "as layer inputs, with their norm"},
    };
    for (int i = 0; i < LINES; i++)
        add_line(t, text[i].what, paper[i], kernels[i], full ? text[i].why_full : text[i].why);
}

static void standard_table(const ledger_report *r, ledger_table *t) {
    hir_traffic kernels[LINES] = {0}, ops = r->graph.paper;
    count_kernels(r, kernels);
    t->form = form_of("standard");
    t->by_line = true;
    add_line(t, "sums and outputs read", (hir_traffic){.read = ops.read}, kernels[ADDED],
             "a contraction adds its output where it makes it, and reads the sum alone");
    add_line(t, "sums written", (hir_traffic){.written = ops.written}, kernels[SUMS],
             "once each, by either");
    add_line(t, "narrower values and norms", (hir_traffic){0}, kernels[NUMBERS],
             "what the paper's residual does not have");
}

/* Number of parallel streams: m of them in the widest value that one kernel leaves to others. */
double ledger_streams(const hir_ledger *l) {
    uint64_t most = 0;
    for (size_t i = 0; i < l->accesses.n; i++)
        if (hir_phase_is_charged(l->accesses.at[i].phase) && l->accesses.at[i].bytes > most)
            most = l->accesses.at[i].bytes;
    const uint64_t streams = l->unit ? most / l->unit : 0;
    return (double)streams;
}

static hir_traffic less(hir_traffic a, hir_traffic b) {
    return (hir_traffic){a.read - b.read, a.written - b.written};
}

static hir_traffic times_over(hir_traffic t, uint64_t times, uint64_t over) {
    return (hir_traffic){hd_capped_mul(t.read / over, times),
                         hd_capped_mul(t.written / over, times)};
}

/* The traffic between two sublayers, as many times as there are such places, and the rest: the
 * first sublayer reads the streams before anything was written, and the output reads what the last
 * sublayer wrote. */
static void streams_table(const ledger_report *r, ledger_table *t) {
    const uint64_t n = r->graph.sublayers;
    const hir_traffic each = times_over(r->products.between, n, n - 1);
    t->form = form_of("mhc");
    t->parameters.streams = ledger_streams(&r->compiled);
    add_line(t, "between two sublayers, by ops", each, (hir_traffic){0},
             "one row program writes into the streams and mixes them, one reads them and makes the "
             "normed input");
    add_line(t, "the ends: streams begun, and read last", less(r->products.rows, each),
             (hir_traffic){0}, "the paper counts no ends");
    t->kernels = r->compiled.paper;
}

ledger_table ledger_count_table(const ledger_report *r) {
    ledger_table t = {.parameters = r->parameters};
    if (!r->has_ops || !r->has_kernels || r->graph.sublayers < 2) return t;
    switch (ledger_kind_of(r)) {
    case LEDGER_PLAIN: standard_table(r, &t); break;
    case LEDGER_STREAMS: streams_table(r, &t); break;
    case LEDGER_ATTENTION: attention_table(r, r->graph.flow.longest_block == 1, &t); break;
    case LEDGER_OTHER: break;
    }
    return t;
}
