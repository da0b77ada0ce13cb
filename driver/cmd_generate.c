/* hadal generate. */
#include <string.h>

#include "driver/commands.h"
#include "driver/interrupt.h"
#include "driver/pipeline.h"
#include "driver/prompt.h"
#include "driver/ranks.h"
#include "driver/report.h"
#include "driver/workplace.h"

enum { EXIT_INTERRUPTED = 128 + 2 };

/* ---- writing text while it is generated ------------------------------------------------------ */

typedef struct writer {
    hadal_text_stream *stream; /* NULL: token ids are written */
    bool begun, silent;        /* silent: another rank does the writing */
} writer;

static int open_writer(hadal_session *s, const prompt *p, writer *w) {
    if (!p->tokenizer || w->silent) return 0;
    w->stream = hadal_text_stream_open(p->tokenizer, 1);
    if (!w->stream) return hadal_fail(s, "memory", "no memory for text", NULL);
    for (int64_t i = 0; i < p->n; i++) /* decoding a token depends on the text before it */
        (void)hadal_text_stream_add(w->stream, p->ids[i], NULL);
    return 0;
}

static int write_id(writer *w, int32_t id) {
    char text[16];
    const int n = snprintf(text, sizeof text, w->begun ? " %d" : "%d", id);
    w->begun = true;
    return report_text(text, (size_t)n);
}

static int write_token(void *context, int32_t id) {
    writer *w = context;
    size_t n = 0;
    if (w->silent) return 0;
    if (!w->stream) return write_id(w, id);
    const char *text = hadal_text_stream_add(w->stream, id, &n);
    return report_text(text, text ? n : 0);
}

static void close_writer(writer *w) {
    size_t n = 0;
    if (w->stream) {
        const char *rest = hadal_text_stream_end(w->stream, &n);
        (void)report_text(rest, rest ? n : 0);
    }
    if (!w->silent) (void)report_text("\n", 1);
    hadal_text_stream_close(w->stream);
}

static int ask_interrupted(void *context) {
    (void)context;
    return was_interrupted();
}

static double rate(int64_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

static void tell_rates(const command_line *line, const hadal_generated *g) {
    if (option_given(line, OPTION_QUIET)) return;
    report_end();
    fprintf(stderr, "%lld token%s read in %.3f s (%.1f/s), %lld written in %.3f s (%.1f/s)\n",
            (long long)g->prompt_tokens, g->prompt_tokens == 1 ? "" : "s", g->prompt_seconds,
            rate(g->prompt_tokens, g->prompt_seconds), (long long)g->tokens, g->seconds,
            rate(g->tokens, g->seconds));
}

/* ---- the work -------------------------------------------------------------------------------- */

static int options_of(hadal_session *s, const command_line *line, const prompt *p,
                      hadal_generate_options *o) {
    long long most, top_k, seed, threads;
    double temperature, top_p;
    if (!option_number(s, line, OPTION_MAX_TOKENS, 256, 0, 1LL << 32, &most) ||
        !option_number(s, line, OPTION_TOP_K, 0, 0, 1LL << 32, &top_k) ||
        !option_number(s, line, OPTION_SEED, 1, 0, INT64_MAX, &seed) ||
        !option_number(s, line, OPTION_THREADS, 0, 1, 256, &threads) ||
        !option_decimal(s, line, OPTION_TEMPERATURE, 0, 0, 1e6, &temperature) ||
        !option_decimal(s, line, OPTION_TOP_P, 1, 1e-6, 1, &top_p))
        return 1;
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
    return hadal_stop_tokens(s, p->folder, &o->stop, &o->n_stop);
}

static int compile(hadal_session *s, const command_line *line, workplace *w) {
    hadal_pipeline pipeline;
    return reject_rank_options(s, line) || make_pipeline(s, line, &pipeline) ||
           load_model(s, line, "model") || hadal_check_weights(s) ||
           run_pipeline(s, line, &pipeline) || make_workplace(s, w) ||
           build_library(s, line, &w->files);
}

static int generate(hadal_session *s, const command_line *line, const prompt *p, workplace *w,
                    ranks *group) {
    hadal_generate_options o;
    hadal_generated done = {0};
    writer out = {0};
    char name[256];
    if (options_of(s, line, p, &o)) return 1;
    const char *spec = line->positional[0];
    if (find_compiled_stages(spec, &w->files, name, sizeof name)) {
        if (reject_spec_options(s, line) || join_ranks(s, line, spec, &w->files, group)) return 1;
    } else if (compile(s, line, w)) {
        return 1;
    }
    o.library = w->files.library, o.packed = w->files.weights, o.context = &out;
    out.silent = group->silent;
    if (open_writer(s, p, &out)) return 1;
    report_step("reading the prompt");
    defer_interrupt();
    const int failed = hadal_generate(s, &o, p->ids, p->n, &done);
    close_writer(&out);
    if (failed) return 1;
    if (!group->silent) tell_rates(line, &done);
    return was_interrupted() ? EXIT_INTERRUPTED : 0;
}

int cmd_generate(hadal_session *s, const command_line *line) {
    workplace w = {0};
    prompt p;
    ranks group = {0};
    int failed = read_prompt(s, line, &p) ? 1 : generate(s, line, &p, &w, &group);
    failed = leave_ranks(&group, failed);
    free_prompt(&p);
    remove_workplace(&w);
    return failed;
}
