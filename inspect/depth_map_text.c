/* The depth map for people. */
#include "inspect/depth_map.h"
#include "inspect/ledger.h"

enum { LEAST_WIDTH = 6 }; /* of the column of names */

static void print_sources(const depth_map_row *x, size_t from, size_t to, hd_text *out) {
    for (size_t i = from; i < to; i++)
        hd_text_f(out, "%s%s", i > from ? " " : "", x->sources[i]);
}

static const char *plural(uint32_t n, const char *one, const char *more) {
    return n == 1 ? one : more;
}

/* ---- how the kernels do it ------------------------------------------------------------------- */

static void print_phase_1(const hir_module *m, const depth_map_phase_1 *b, hd_text *out) {
    if (b->kernel == HIR_NONE) return;
    hd_text_f(out, "  [phase 1 in %s: %u source%s, %u mix%s]", ledger_op_name(m, b->kernel),
              b->sources, plural(b->sources, "", "s"), b->mixes, plural(b->mixes, "", "es"));
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
    print_count(out, &any, p->partial, plural(p->partial, "partial mix", "partial mixes"));
    print_count(out, &any, p->direct, "direct");
    hd_text_f(out, "%s]", any ? "" : "nothing of other kernels");
}

/* ---- the map --------------------------------------------------------------------------------- */

/* What stands in front of the first row of a block. */
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

void depth_map_text(const depth_map *x, hd_text *out) {
    if (!x->sublayers) {
        hd_text_f(out, "%s has no residual stream: nothing that sublayers add to\n", x->name);
        return;
    }
    const hir_flow_reads reads = x->source_reads;
    hd_text_f(out,
              "depth map of %s: %zu sublayers in %u block%s of at most %u; %u %s %llu "
              "sources\n"
              "e is the embedding, 3 the output of sublayer 3, 1-2 a sum of outputs; before | are\n"
              "the sources that the next one reads too, behind it the live one\n",
              x->name, x->sublayers, x->n_blocks, plural(x->n_blocks, "", "s"), x->longest_block,
              reads.mixes, plural(reads.mixes, "mix reads", "mixes read"),
              (unsigned long long)reads.naive);
    const int width = x->longest_name > LEAST_WIDTH ? (int)x->longest_name : LEAST_WIDTH;
    for (size_t i = 0; i < x->rows.n; i++) {
        const depth_map_row *row = &x->rows.at[i];
        if (i == 0 || !row->sublayer || row->block != row[-1].block) print_block(x, row, out);
        print_row(row, width, out);
        if (x->scheduled) print_reads(x->module, &row->reads, out);
        hd_text_add(out, "\n");
    }
}
