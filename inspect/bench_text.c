/* Results of hadal bench as a table, a configuration at a time. */
#include <string.h>

#include "inspect/bench.h"

enum { LEAST_WIDTH = 8 };

static double mega(uint64_t bytes) {
    return (double)bytes * 1e-6;
}

int bench_name_width(const bench_load *loads, size_t n) {
    size_t width = LEAST_WIDTH;
    for (size_t i = 0; i < n; i++)
        if (strlen(loads[i].model) > width) width = strlen(loads[i].model);
    return (int)width;
}

void bench_loads_text(const bench_load *loads, size_t n, hd_text *out) {
    const int width = bench_name_width(loads, n);
    for (size_t i = 0; i < n; i++)
        hd_text_f(out,
                  "%-*s  %-8s loads in %.2f ms (weights %.2f ms, session %.2f ms): %.1f MB of "
                  "weights, %.1f MB for a session of %lld tokens\n",
                  width, loads[i].model, loads[i].types,
                  1e3 * (loads[i].open_seconds + loads[i].init_seconds),
                  1e3 * loads[i].open_seconds, 1e3 * loads[i].init_seconds,
                  mega(loads[i].weights_bytes), mega(loads[i].session_bytes),
                  (long long)loads[i].session_tokens);
    hd_text_f(out,
              "%-*s  %-8s th         cache tokens       time              tok/s  GFLOP/s  of "
              "fma     GB/s of read  resident\n",
              width, "model", "weights");
}

static void print_row(const bench_row *r, int width, hd_text *out) {
    hd_text_f(out,
              "%-*s  %-8s %2d %-7s %6lld %6lld %10.3f ms +-%2.0f %% %10.1f %8.1f %7.2f %8.1f "
              "%7.2f %6.0f MB\n",
              width, r->model, r->types, r->threads, r->decode ? "decode" : "prefill",
              (long long)r->past, (long long)r->tokens, r->seconds * 1e3, 100 * r->spread,
              (double)r->tokens / r->seconds, r->flops / r->seconds * 1e-9,
              r->flops / r->seconds / r->fma, r->bytes / r->seconds * 1e-9,
              r->bytes / r->seconds / r->read, mega(r->resident));
}

void bench_rows_text(const bench_row *rows, size_t n, int width, hd_text *out) {
    for (size_t i = 0; i < n; i++)
        print_row(&rows[i], width, out);
    if (rows[0].paired)
        hd_text_f(out, "%-*s  time of %s over %s: %.4f (quartiles %.4f .. %.4f)\n", width, "",
                  rows[0].model, rows[1].model, rows[0].ratio, rows[0].ratio_low,
                  rows[0].ratio_high);
    hd_text_f(out,
              "%-*s  limits: multiply-add %.0f GFLOP/s (+-%.0f %%), read %.1f GB/s (+-%.0f "
              "%%); %zu of %zu rounds count\n",
              width, "", rows[0].fma * 1e-9, 100 * rows[0].fma_spread, rows[0].read * 1e-9,
              100 * rows[0].read_spread, rows[0].rounds, rows[0].tried);
    if (bench_was_busy(&rows[0]))
        hd_text_f(out,
                  "%-*s  warning: the machine was busy: from the first to the second half of the "
                  "rounds multiply-add moved by %.0f %%, read by %.0f %%\n",
                  width, "", 100 * rows[0].fma_drift, 100 * rows[0].read_drift);
}
