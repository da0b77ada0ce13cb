/* The depth map: which sublayer reads which sources, where the blocks begin, and which kernels do
 * it.
 *
 * Sources come from the graph as loaded, so that the map is that of the model; how they are read
 * comes from the kernels: phase 1 (read with others of the block), or beside the sublayer itself.
 */
#include "api/ledger.h"

static void print_sources(const hir_flow_input *x, size_t from, size_t to, hd_text *out) {
    for (size_t i = from; i < to; i++) {
        hd_text_add(out, i > from ? " " : "");
        hir_flow_print_source(&x->sources.at[i], out);
    }
}

/* ---- how the kernels do it ------------------------------------------------------------------- */

typedef struct plan { /* of one sublayer; 0: of the output */
    hir_id kernel;    /* that makes its input; HIR_NONE: not known */
    uint32_t direct, partial, phase_1;
} plan;

typedef struct batch { /* phase 1 of one block */
    hir_id kernel;     /* HIR_NONE: there is none */
    uint32_t sources, mixes;
} batch;

typedef struct schedule {
    plan *plans;    /* by sublayer */
    batch *batches; /* by block */
} schedule;

static plan *plan_of(const schedule *s, const hir_access *a) {
    return &s->plans[a->sublayer == HIR_FLOW_RESULT ? 0 : a->sublayer];
}

static void note_write(const hir_ledger *l, const hir_access *a, const schedule *s) {
    uint32_t i = l->flow.input[l->flow.origin[a->value]];
    if (i == HIR_NONE) {
        batch *b = &s->batches[a->block];
        if (a->phase != HIR_PHASE_PHASE_1 || a->kind != HIR_FLOW_MIX) return;
        if (b->kernel == HIR_NONE) b->kernel = a->op;
        b->mixes++;
        return;
    }
    uint32_t sublayer = l->flow.inputs.at[i].sublayer;
    s->plans[sublayer == HIR_FLOW_RESULT ? 0 : sublayer].kernel = a->op;
}

/* An input that is not written is made in the contraction that reads it. */
static void note_prologues(const hir_ledger *l, const schedule *s) {
    for (size_t i = 0; i < l->flow.inputs.n; i++) {
        const hir_flow_input *x = &l->flow.inputs.at[i];
        plan *p = &s->plans[x->sublayer == HIR_FLOW_RESULT ? 0 : x->sublayer];
        hir_id op = hir_value_at(l->flow.m, x->value)->op;
        if (p->kernel == HIR_NONE && op != HIR_NONE) p->kernel = hir_op_at(l->flow.m, op)->parent;
    }
}

static void note_read(const hir_ledger *l, const hir_access *a, const schedule *s) {
    bool source = a->kind != HIR_FLOW_MIX && a->kind != HIR_FLOW_NUMBERS;
    batch *b = &s->batches[a->block];
    if (source && a->phase == HIR_PHASE_PHASE_1 && a->op == b->kernel) b->sources++;
    plan *p = plan_of(s, a);
    if (a->op != p->kernel) return;
    if (a->phase == HIR_PHASE_ACCUMULATE &&
        hir_op_at(l->flow.m, a->op)->code == HIR_KERNEL_CONTRACT_OP)
        return; /* behind the arithmetic */
    if (a->kind == HIR_FLOW_MIX) p->partial++;
    if (source && a->phase == HIR_PHASE_PHASE_1) p->phase_1++;
    if (source && a->phase != HIR_PHASE_PHASE_1) p->direct++;
}

static schedule find_schedule(const hir_ledger *l, hd_arena *a) {
    schedule s = {hd_new_array(a, plan, l->sublayers + 1),
                  hd_new_array(a, batch, l->flow.blocks + 1)};
    for (uint32_t i = 0; i <= l->sublayers; i++)
        s.plans[i].kernel = HIR_NONE;
    for (uint32_t i = 0; i <= l->flow.blocks; i++)
        s.batches[i].kernel = HIR_NONE;
    for (size_t i = 0; i < l->accesses.n; i++)
        if (l->accesses.at[i].write) note_write(l, &l->accesses.at[i], &s);
    note_prologues(l, &s);
    for (size_t i = 0; i < l->accesses.n; i++)
        if (!l->accesses.at[i].write) note_read(l, &l->accesses.at[i], &s);
    return s;
}

static const char *plural(uint32_t n, const char *one, const char *more) {
    return n == 1 ? one : more;
}

static void print_batch(const hir_module *m, const batch *b, hd_text *out) {
    if (b->kernel == HIR_NONE) return;
    hd_text_f(out, "  [phase 1 in %s: %u source%s, %u mix%s]", ledger_op_name(m, b->kernel),
              b->sources, plural(b->sources, "", "s"), b->mixes, plural(b->mixes, "", "es"));
}

static void print_count(hd_text *out, bool *any, uint32_t n, const char *what) {
    if (!n) return;
    hd_text_f(out, "%s%u %s", *any ? ", " : "", n, what);
    *any = true;
}

static void print_plan(const hir_module *m, const plan *p, hd_text *out) {
    if (p->kernel == HIR_NONE) return;
    bool any = false;
    hd_text_f(out, "  [%s: reads ", ledger_op_name(m, p->kernel));
    print_count(out, &any, p->phase_1, "with phase 1");
    print_count(out, &any, p->partial, plural(p->partial, "partial mix", "partial mixes"));
    print_count(out, &any, p->direct, "direct");
    hd_text_f(out, "%s]", any ? "" : "nothing of other kernels");
}

/* ---- the map --------------------------------------------------------------------------------- */

static void print_block(const hir_module *m, const hir_flow *f, size_t i, const schedule *plan,
                        hd_text *out) {
    const hir_flow_input *x = &f->inputs.at[i];
    if (x->sublayer == HIR_FLOW_RESULT) {
        hd_text_add(out, "\n");
        return;
    }
    hd_text_f(out, "\nblock %u", x->block);
    if (x->shared) {
        hd_text_add(out, ": shared ");
        print_sources(x, 0, x->shared, out);
    }
    if (plan) print_batch(m, &plan->batches[x->block], out);
    hd_text_add(out, "\n");
}

static int name_width(const hir_flow *f, hd_arena *a) {
    int width = 6;
    for (uint32_t l = 1; l <= f->outputs.n; l++) {
        const char *name = hir_flow_sublayer_name(f, l, a);
        int n = 0;
        while (name[n])
            n++;
        if (n > width) width = n;
    }
    return width;
}

static void print_input(const hir_flow *f, const hir_flow_input *x, int width, hd_text *out) {
    const char *name = hir_flow_sublayer_name(f, x->sublayer, out->arena);
    if (x->sublayer == HIR_FLOW_RESULT)
        hd_text_f(out, "  %4s  %-*s  ", "", width, name);
    else
        hd_text_f(out, "  %4u  %-*s  ", x->sublayer, width, name);
    print_sources(x, 0, x->shared, out);
    if (x->shared < x->sources.n) {
        bool result = x->sublayer == HIR_FLOW_RESULT;
        hd_text_add(out, result ? "" : x->shared ? " | " : "| ");
        print_sources(x, x->shared, x->sources.n, out);
    }
}

void depth_map_print(const hir_module *m, const hir_ledger *graph, const hir_ledger *compiled,
                     hd_text *out) {
    const hir_flow *f = &graph->flow;
    if (!f->width || !f->outputs.n) {
        hd_text_f(out, "%s has no residual stream: nothing that sublayers add to\n", m->name);
        return;
    }
    hir_flow_reads reads = hir_flow_count_reads(f);
    hd_text_f(out,
              "depth map of %s: %zu sublayers in %u block%s of at most %u; %u %s %llu "
              "sources\n"
              "e is the embedding, 3 the output of sublayer 3, 1-2 a sum of outputs; before | are\n"
              "the sources that the next one reads too, behind it the live one\n",
              m->name, f->outputs.n, f->blocks, plural(f->blocks, "", "s"), f->longest_block,
              reads.mixes, plural(reads.mixes, "mix reads", "mixes read"),
              (unsigned long long)reads.naive);
    const bool planned =
        compiled && compiled->sublayers == graph->sublayers && compiled->flow.blocks == f->blocks;
    schedule plan = {0};
    if (planned) plan = find_schedule(compiled, out->arena);
    const int width = name_width(f, out->arena);
    for (size_t i = 0; i < f->inputs.n; i++) {
        const hir_flow_input *x = &f->inputs.at[i];
        bool result = x->sublayer == HIR_FLOW_RESULT;
        if (i == 0 || result || x->block != x[-1].block)
            print_block(m, f, i, planned ? &plan : NULL, out);
        print_input(f, x, width, out);
        if (planned) print_plan(m, &plan.plans[result ? 0 : x->sublayer], out);
        hd_text_add(out, "\n");
    }
}
