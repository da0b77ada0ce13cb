#include "driver/generate.h"

#include <stdlib.h>
#include <string.h>

#include "driver/interrupt.h"
#include "driver/pipeline.h"
#include "driver/report.h"

/* ---- writing text while it is generated ------------------------------------------------------ */

int open_writer(hadal_session *s, const hadal_tokenizer *t, const int32_t *ids, int64_t n,
                writer *w) {
    if (!t || w->silent) return 0;
    w->stream = hadal_text_stream_open(t, 1);
    if (!w->stream) return hadal_fail(s, "memory", "no memory for text", NULL);
    for (int64_t i = 0; i < n; i++) /* decoding a token depends on the text before it */
        (void)hadal_text_stream_add(w->stream, ids[i], NULL);
    return 0;
}

static int write_id(writer *w, int32_t id) {
    char text[16];
    const int n = snprintf(text, sizeof text, w->begun ? " %d" : "%d", id);
    w->begun = true;
    return report_text(text, (size_t)n);
}

/* Writes, and keeps, a piece of text. Not 0: writing failed, or there is no memory. */
static int write_text(writer *w, const char *text, size_t n) {
    if (w->keeps && w->n + n + 1 > w->capacity) {
        const size_t capacity = 2 * (w->n + n + 1);
        char *larger = realloc(w->text, capacity);
        if (!larger) return 1;
        w->text = larger, w->capacity = capacity;
    }
    if (w->keeps) {
        memcpy(w->text + w->n, text, n);
        w->n += n;
        w->text[w->n] = 0;
    }
    return report_text(text, n);
}

int write_token(void *context, int32_t id) {
    writer *w = context;
    size_t n = 0;
    if (w->silent) return 0;
    if (!w->stream) return write_id(w, id);
    const char *text = hadal_text_stream_add(w->stream, id, &n);
    if (w->keeps && hadal_tokenizer_is_special(w->keeps, id)) {
        if (w->n > w->last) (void)report_text("\n", 1);
        w->last = w->n;
    }
    return write_text(w, text ? text : "", text ? n : 0);
}

void close_writer(writer *w) {
    size_t n = 0;
    if (w->stream) {
        const char *rest = hadal_text_stream_end(w->stream, &n);
        (void)write_text(w, rest ? rest : "", rest ? n : 0);
    }
    if (!w->silent) (void)report_text("\n", 1);
    hadal_text_stream_close(w->stream);
    w->stream = NULL;
}

static int ask_interrupted(void *context) {
    (void)context;
    return was_interrupted();
}

static double rate(int64_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

void tell_rates(const hadal_generated *g) {
    report_end();
    fprintf(stderr, "%lld token%s read in %.3f s (%.1f/s), %lld written in %.3f s (%.1f/s)\n",
            (long long)g->prompt_tokens, g->prompt_tokens == 1 ? "" : "s", g->prompt_seconds,
            rate(g->prompt_tokens, g->prompt_seconds), (long long)g->tokens, g->seconds,
            rate(g->tokens, g->seconds));
}

/* ---- options --------------------------------------------------------------------------------- */

int generate_options_of(hadal_session *s, const command_line *line, const char *folder,
                        long long most, hadal_generate_options *o) {
    long long top_k, seed, threads;
    double temperature, top_p;
    if (!option_number(s, line, OPTION_MAX_TOKENS, most, 0, 1LL << 32, &most) ||
        !option_number(s, line, OPTION_TOP_K, 0, 0, 1LL << 32, &top_k) ||
        !option_number(s, line, OPTION_SEED, 1, 0, INT64_MAX, &seed) ||
        !option_number(s, line, OPTION_THREADS, 0, 1, 256, &threads) ||
        !option_decimal(s, line, OPTION_TEMPERATURE, 0, 0, 1e6, &temperature) ||
        !option_decimal(s, line, OPTION_TOP_P, 1, 1e-6, 1, &top_p))
        return 1;
    if (hadal_weights_load(s, option_get(line, OPTION_WEIGHTS_LOAD))) return 1;
    const bool draws = option_given(line, OPTION_TOP_K) || option_given(line, OPTION_TOP_P) ||
                       option_given(line, OPTION_SEED);
    if (draws && temperature == 0)
        return hadal_fail(s, "usage", "nothing is drawn at temperature 0",
                          "--temperature 0.8, say, or leave out --top-k, --top-p and --seed");
    *o = (hadal_generate_options){
        .struct_size = sizeof *o,
        .cpu_level = option_get(line, OPTION_CPU_LEVEL),
        .threads = (int)threads,
        .max_tokens = most,
        .temperature = temperature,
        .top_p = top_p,
        .top_k = top_k,
        .seed = (uint64_t)seed,
        .token = write_token,
        .interrupted = ask_interrupted,
    };
    return hadal_stop_tokens(s, folder, &o->stop, &o->n_stop);
}

/* ---- models ---------------------------------------------------------------------------------- */

static int compile(hadal_session *s, const command_line *line, workspace *w) {
    hadal_pipeline pipeline;
    return reject_rank_options(s, line) || make_pipeline(s, line, &pipeline) ||
           load_model(s, line, "model") || hadal_check_weights(s) ||
           run_pipeline(s, line, &pipeline) || make_workspace(s, w) ||
           build_library(s, line, &w->files);
}

int prepare_model(hadal_session *s, const command_line *line, workspace *w, ranks *group) {
    const char *spec = line->positional[0];
    char name[256];
    if (!find_compiled_stages(spec, &w->files, name, sizeof name)) return compile(s, line, w);
    return reject_spec_options(s, line) || join_ranks(s, line, spec, &w->files, group);
}
