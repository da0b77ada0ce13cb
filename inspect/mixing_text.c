/* The depth mixing matrix for people: what was found and checked, and the entries. */
#include "inspect/mixing.h"

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

void mixing_text(const mixing *x, hd_text *out) {
    print_facts(x, out);
    if (x->sources.n > PRINTED) return;
    hd_text_f(out, "\nmean over tokens\n%8s", "");
    for (size_t i = 0; i < x->sources.n; i++)
        hd_text_f(out, " %7s", x->source_labels[i]);
    hd_text_add(out, "\n");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_f(out, "%8s", x->rows.at[r].label);
        for (size_t i = 0; i < x->sources.n && mixing_is_below(x, r, i); i++)
            hd_text_f(out, " %7.3f", x->mean[r * x->sources.n + i]);
        hd_text_add(out, "\n");
    }
}
