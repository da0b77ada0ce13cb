/* The depth map for programs. Lines are those of kernels in the printed kernel IR. */
#include "inspect/depth_map.h"
#include "inspect/json.h"
#include "inspect/ledger.h"
#include "ir/text.h"

typedef struct writer {
    const depth_map *x;
    const uint32_t *lines; /* by op */
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

static void print_row(const writer *w, const depth_map_row *row) {
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
    hd_text_f(out, ", \"direct\": %u, \"partial\": %u, \"phase_1\": %u}", row->reads.direct,
              row->reads.partial, row->reads.phase_1);
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
        print_row(&w, &x->rows.at[i]);
    }
    hd_text_add(out, "]}\n");
}
