/* Results of hadal bench for programs. */
#include "inspect/bench.h"
#include "inspect/json.h"

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

static void print_load(const bench_load *l, hd_text *out) {
    hd_text_add(out, "{");
    member(out, "model", l->model);
    member(out, "weights_dtype", l->types);
    number(out, "weights_bytes", (double)l->weights_bytes);
    number(out, "weights_open_seconds", l->open_seconds);
    number(out, "session_init_seconds", l->init_seconds);
    number(out, "session_tokens", (double)l->session_tokens);
    hd_text_f(out, "\"session_bytes\": %llu}", (unsigned long long)l->session_bytes);
}

static void print_row(const bench_row *r, hd_text *out) {
    hd_text_add(out, "{");
    member(out, "model", r->model);
    member(out, "weights_dtype", r->types);
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
    hd_text_f(out, "\"busy\": %s, ", bench_was_busy(r) ? "true" : "false");
    number(out, "fma_fraction", r->flops / r->seconds / r->fma);
    number(out, "read_fraction", r->bytes / r->seconds / r->read);
    number(out, "resident_bytes", (double)r->resident);
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
        print_load(&b->loads.at[i], out);
    }
    hd_text_add(out, "\n  ],\n  \"rows\": [");
    for (size_t i = 0; i < b->rows.n; i++) {
        hd_text_add(out, i ? ",\n    " : "\n    ");
        print_row(&b->rows.at[i], out);
    }
    hd_text_add(out, "\n  ]\n}\n");
}
