/* The depth mixing matrix for people: what was found and checked, the entries, and a picture. */
#include <math.h>

#include "api/mixing.h"
#include "api/svg.h"

enum { PRINTED = 20 }; /* columns of the printed matrix */

static void print_kind(const mixing *x, hd_text *out) {
    switch (x->kind) {
    case MIXING_NUMBER:
        hd_text_add(out, "  entries: numbers; every source arrives as a multiple of itself\n");
        break;
    case MIXING_CHANNELS:
        hd_text_f(out,
                  "  entries: <v, J v> / <v, v>, as every channel has a number of its own (J is "
                  "diagonal); these\n"
                  "    means alone would give the rows to %.2g\n",
                  x->numbers_error);
        break;
    case MIXING_MAP:
        hd_text_f(out,
                  "  entries: <v, J v> / <v, v>, the part of each source that arrives as itself (J "
                  "mixes channels);\n"
                  "    these alone would give the rows to %.2g\n",
                  x->numbers_error);
        break;
    }
}

static void print_facts(const mixing *x, hd_text *out) {
    hd_text_f(out,
              "mixing matrix of %s: h_l = sum_i M(l, i) v_i, %zu rows, %zu sources, %lld token%s\n"
              "  v is the embedding (e) or the output of sublayer i; h is what sublayer l reads, "
              "before its norm;\n"
              "  the last row is what the head reads\n",
              x->name, x->rows.n, x->sources.n, (long long)x->tokens, x->tokens == 1 ? "" : "s");
    print_kind(x, out);
    if (x->norms)
        hd_text_f(out,
                  "  %u norm%s on the way: each is the multiplication with the inverse norm that "
                  "it had\n",
                  x->norms, x->norms == 1 ? "" : "s");
    if (x->constant > MIXING_TOLERANCE)
        hd_text_f(out, "  up to %.2g of a row is made of no source (biases)\n", x->constant);
    if (x->inside)
        hd_text_f(out,
                  "  %u sublayers also read what earlier ones made inside, past the stream: that "
                  "is not in M\n",
                  x->inside);
    hd_text_f(out, "  check: the sources make up the rows to %.2g of their size (limit %g)\n",
              x->error, MIXING_TOLERANCE);
    hd_text_f(
        out,
        "  semiseparable rank: %u of at most %u (blocks of rows >= l, sources < l; %lld token%s",
        x->rank, x->full_rank, (long long)x->rank_tokens, x->rank_tokens == 1 ? "" : "s");
    if (x->kind == MIXING_CHANNELS) hd_text_f(out, ", %d channels", x->channels);
    hd_text_f(out, "; pivots above %g)\n", MIXING_TOLERANCE);
}

static bool is_below(const mixing *x, size_t row, size_t source) {
    return source < (size_t)x->starts + x->rows.at[row].sublayer - 1;
}

void mixing_print(const mixing *x, hd_text *out) {
    print_facts(x, out);
    if (x->sources.n > PRINTED) return;
    hd_text_f(out, "\nmean over tokens\n%8s", "");
    for (size_t i = 0; i < x->sources.n; i++)
        hd_text_f(out, " %7s", x->source_labels[i]);
    hd_text_add(out, "\n");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_f(out, "%8s", x->rows.at[r].label);
        for (size_t i = 0; i < x->sources.n && is_below(x, r, i); i++)
            hd_text_f(out, " %7.3f", x->mean[r * x->sources.n + i]);
        hd_text_add(out, "\n");
    }
}

void mixing_draw(const mixing *x, hd_text *out) {
    const size_t n = x->sources.n;
    double *cells = hd_new_array(out->arena, double, x->rows.n *n);
    const char **rows = hd_new_array(out->arena, const char *, x->rows.n);
    for (size_t r = 0; r < x->rows.n; r++) {
        rows[r] = x->rows.at[r].label;
        for (size_t i = 0; i < n; i++)
            cells[r * n + i] = is_below(x, r, i) ? x->mean[r * n + i] : NAN;
    }
    static const char *const kinds[] = {
        [MIXING_NUMBER] = "exact numbers",
        [MIXING_CHANNELS] = "means over channels",
        [MIXING_MAP] = "the parts that arrive as themselves",
    };
    const char *notes[] = {
        hd_printf(out->arena, "how much of each output a sublayer reads, mean of %lld tokens; %s",
                  (long long)x->tokens, kinds[x->kind]),
        hd_printf(out->arena, "semiseparable rank %u", x->rank),
    };
    const svg_panel panel = {
        .rows = x->rows.n,
        .columns = n,
        .at = cells,
        .row_labels = rows,
        .column_labels = x->source_labels,
    };
    const svg_map map = {
        .title = hd_printf(out->arena, "Depth mixing matrix of %s", x->name),
        .notes = notes,
        .n_notes = 2,
        .x_name = "output of sublayer (e: embedding)",
        .y_name = "read by sublayer",
        .scale_name = "weight",
        .panels = &panel,
        .n_panels = 1,
    };
    svg_print(&map, out);
}
