#include "inspect/bench.h"

#include <string.h>

#include "inspect/format.h"

/* The measurements are the data. */
bool bench_collect(const inspect_subject *s, bench_results *out) {
    *out = *s->bench;
    return true;
}

/* ---- for people ------------------------------------------------------------------------------ */

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
                  "%-*s  %-8s loads in %.2f ms (weights, by %s, %.2f ms, session %.2f ms): %.1f MB "
                  "of weights, %.1f MB for a session of %lld token%s\n",
                  width, loads[i].model, loads[i].types,
                  1e3 * (loads[i].open_seconds + loads[i].init_seconds), loads[i].load,
                  1e3 * loads[i].open_seconds, 1e3 * loads[i].init_seconds,
                  mega(loads[i].weights_bytes), mega(loads[i].session_bytes),
                  (long long)loads[i].session_tokens, hd_s((uint64_t)loads[i].session_tokens));
    hd_text_f(out,
              "%-*s  %-8s th         cache tokens       time              tok/s  GFLOP/s  of "
              "fma     GB/s of read  resident   in huge\n",
              width, "model", "weights");
}

static void print_row(const bench_row *r, int width, hd_text *out) {
    hd_text_f(out,
              "%-*s  %-8s %2d %-7s %6lld %6lld %10.3f ms +-%2.0f %% %10.1f %8.1f %7.2f %8.1f "
              "%7.2f %6.0f MB %6.0f MB\n",
              width, r->model, r->types, r->threads, r->decode ? "decode" : "prefill",
              (long long)r->past, (long long)r->tokens, r->seconds * 1e3, 100 * r->spread,
              (double)r->tokens / r->seconds, r->flops / r->seconds * 1e-9,
              r->flops / r->seconds / r->fma, r->bytes / r->seconds * 1e-9,
              r->bytes / r->seconds / r->read, mega(r->resident), mega(r->huge));
}

static void print_undisturbed(const bench_row *r, int width, hd_text *out) {
    if (r->undisturbed <= 0) return;
    hd_text_f(
        out,
        "%-*s  %-8s undisturbed: %.3f ms, %.1f tok/s, %.2f of fma, %.2f of read: the sum of what "
        "each kernel takes in the fastest tenth of its runs (in the fastest quarter %.1f %% "
        "more)\n",
        width, r->model, r->types, r->undisturbed * 1e3, (double)r->tokens / r->undisturbed,
        r->flops / r->undisturbed / r->undisturbed_fma,
        r->bytes / r->undisturbed / r->undisturbed_read,
        100 * (r->undisturbed_more / r->undisturbed - 1));
}

void bench_rows_text(const bench_row *rows, size_t n, int width, hd_text *out) {
    for (size_t i = 0; i < n; i++)
        print_row(&rows[i], width, out);
    for (size_t i = 0; i < n; i++)
        print_undisturbed(&rows[i], width, out);
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
                  "rounds multiply-add moved by %.0f %%, read by %.0f %%; %.2f of the cores was "
                  "left to it\n",
                  width, "", 100 * rows[0].fma_drift, 100 * rows[0].read_drift, rows[0].of_cores);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void member(hd_text *out, const char *key, const char *value) {
    inspect_json_key(out, key);
    inspect_json_string(out, value);
    hd_text_add(out, ", ");
}

static void number(hd_text *out, const char *key, double value) {
    inspect_json_key(out, key);
    hd_text_double(out, value);
    hd_text_add(out, ", ");
}

static void json_load(const bench_load *l, hd_text *out) {
    hd_text_add(out, "{");
    member(out, "model", l->model);
    member(out, "weights_dtype", l->types);
    member(out, "weights_load", l->load);
    number(out, "weights_bytes", (double)l->weights_bytes);
    number(out, "weights_open_seconds", l->open_seconds);
    number(out, "session_init_seconds", l->init_seconds);
    number(out, "session_tokens", (double)l->session_tokens);
    hd_text_f(out, "\"session_bytes\": %llu}", (unsigned long long)l->session_bytes);
}

static void json_row(const bench_row *r, hd_text *out) {
    hd_text_add(out, "{");
    member(out, "model", r->model);
    member(out, "weights_dtype", r->types);
    member(out, "weights_load", r->load);
    member(out, "phase", r->decode ? "decode" : "prefill");
    number(out, "threads", r->threads);
    number(out, "cache", (double)r->past);
    number(out, "tokens", (double)r->tokens);
    number(out, "seconds", r->seconds);
    number(out, "spread", r->spread);
    number(out, "tokens_per_second", (double)r->tokens / r->seconds);
    number(out, "flops", r->flops);
    number(out, "bytes", r->bytes);
    number(out, "flops_per_second", r->flops / r->seconds);
    number(out, "bytes_per_second", r->bytes / r->seconds);
    number(out, "fma_limit", r->fma);
    number(out, "fma_limit_spread", r->fma_spread);
    number(out, "read_limit", r->read);
    number(out, "read_limit_spread", r->read_spread);
    number(out, "fma_limit_drift", r->fma_drift);
    number(out, "read_limit_drift", r->read_drift);
    number(out, "of_cores", r->of_cores);
    hd_text_f(out, "\"busy\": %s, ", bench_was_busy(r) ? "true" : "false");
    number(out, "fma_fraction", r->flops / r->seconds / r->fma);
    number(out, "read_fraction", r->bytes / r->seconds / r->read);
    if (r->undisturbed > 0) {
        number(out, "undisturbed_seconds", r->undisturbed);
        number(out, "undisturbed_spread", r->undisturbed_more / r->undisturbed - 1);
        number(out, "undisturbed_tokens_per_second", (double)r->tokens / r->undisturbed);
        number(out, "undisturbed_fma_limit", r->undisturbed_fma);
        number(out, "undisturbed_read_limit", r->undisturbed_read);
        number(out, "undisturbed_fma_fraction", r->flops / r->undisturbed / r->undisturbed_fma);
        number(out, "undisturbed_read_fraction", r->bytes / r->undisturbed / r->undisturbed_read);
    }
    number(out, "resident_bytes", (double)r->resident);
    number(out, "huge_page_bytes", (double)r->huge);
    number(out, "rounds", (double)r->rounds);
    if (r->paired) {
        number(out, "time_ratio", r->ratio);
        number(out, "time_ratio_low", r->ratio_low);
        number(out, "time_ratio_high", r->ratio_high);
    }
    hd_text_f(out, "\"rounds_tried\": %zu}", r->tried);
}

void bench_json(const bench_results *b, hd_text *out) {
    hd_text_add(out, "{\n  \"schema\": \"hadal-bench-1\",\n  \"host\": ");
    inspect_json_string(out, b->host);
    hd_text_f(out, ",\n  \"process_peak_resident_bytes\": %llu,\n  \"models\": [",
              (unsigned long long)b->peak_resident);
    for (size_t i = 0; i < b->loads.n; i++) {
        hd_text_add(out, i ? ",\n    " : "\n    ");
        json_load(&b->loads.at[i], out);
    }
    hd_text_add(out, "\n  ],\n  \"rows\": [");
    for (size_t i = 0; i < b->rows.n; i++) {
        hd_text_add(out, i ? ",\n    " : "\n    ");
        json_row(&b->rows.at[i], out);
    }
    hd_text_add(out, "\n  ]\n}\n");
}
