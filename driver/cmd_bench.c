/* hadal bench: reads which models to measure, how they are compiled, and where. The measuring
 * itself is in the library. */
#include <stdlib.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/ranks.h"
#include "driver/report.h"
#include "driver/workspace.h"

enum { MOST = OPTION_NUMBERS, MODELS = 2 };

/* ---- lists ----------------------------------------------------------------------------------- */

typedef struct type_list {
    char at[MOST][256];
    size_t n;
} type_list;

/* Parses types. Items are separated by commas; an item with "=" is about some tensors only and
 * belongs to the item before it: f32,q4,lm_head=q8 has two, f32 and q4,lm_head=q8. */
static int parse_types(hadal_session *s, const command_line *line, type_list *out) {
    for (size_t i = 0; i < line->n_options; i++) {
        if (line->options[i].id != OPTION_WEIGHTS_DTYPE) continue;
        bool first = true;
        for (const char *at = line->options[i].value; *at || first; first = false) {
            const size_t n = strcspn(at, ",");
            const bool detail = !first && memchr(at, '=', n);
            if (!detail && out->n < MOST) out->at[out->n++][0] = 0;
            char *item = out->at[out->n - 1];
            const size_t have = strlen(item);
            if (n == 0 || have + n + 2 > sizeof *out->at || (!detail && have))
                return hadal_fail(s, "usage", "--weights-dtype is no list of at most 16 types",
                                  "for example --weights-dtype f32,bf16");
            snprintf(item + have, sizeof *out->at - have, "%s%.*s", have ? "," : "", (int)n, at);
            at += n;
            if (*at == ',') at++;
            if (!*at && at[-1] == ',')
                return hadal_fail(s, "usage", "--weights-dtype ends in a comma", NULL);
        }
    }
    return 0;
}

/* Parses --weights-load, "mmap,read": each is measured, one after the other. */
enum { MOST_LOADS = 4 };
typedef struct load_list {
    char at[MOST_LOADS][16];
    size_t n;
} load_list;

static int parse_loads(hadal_session *s, const command_line *line, load_list *out) {
    const char *given = option_get(line, OPTION_WEIGHTS_LOAD);
    for (const char *at = given ? given : "mmap";; at++) {
        const size_t n = strcspn(at, ",");
        if (out->n == MOST_LOADS || n >= sizeof *out->at)
            return hadal_fail(s, "usage", "--weights-load is no list of mmap and read",
                              "for example --weights-load mmap,read");
        snprintf(out->at[out->n], sizeof *out->at, "%.*s", (int)n, at);
        if (hadal_weights_load(s, out->at[out->n++])) return 1;
        at += n;
        if (!*at) return 0;
    }
}

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct model {
    const char *spec;
    bool compiled;     /* the model is a library, not a spec */
    option_id defines; /* the option whose defines are added to those of -D; OPTION_DEFINE: none */
    compiled_files files;
    char random[PATH_SIZE], label[256];
} model;

/* Labels a model with the name of the spec or of the model folder, and its defines. */
static void label_spec(const command_line *line, model *m) {
    size_t end = strlen(m->spec), start;
    if (ends_with(m->spec, ".hadal")) end -= strlen(".hadal");
    if (ends_with(m->spec, ".hir")) end -= strlen(".hir");
    while (end > 1 && m->spec[end - 1] == '/')
        end--;
    for (start = end; start > 0 && m->spec[start - 1] != '/';)
        start--;
    size_t n =
        (size_t)snprintf(m->label, sizeof m->label, "%.*s", (int)(end - start), m->spec + start);
    for (size_t i = 0; i < line->n_options && n < sizeof m->label; i++)
        if (line->options[i].id == OPTION_DEFINE || line->options[i].id == m->defines)
            n += (size_t)snprintf(m->label + n, sizeof m->label - n, " %s", line->options[i].value);
}

static int find_model(hadal_session *s, const command_line *line, const char *dir, model *m) {
    m->compiled = find_compiled_stages(m->spec, &m->files, m->label, sizeof m->label);
    if (m->compiled) return 0;
    if (ends_with(m->spec, ".so")) {
        char message[PATH_SIZE + 64];
        snprintf(message, sizeof message, "there is no library %s", m->spec);
        return hadal_fail(s, "io", message, NULL);
    }
    const bool second = m->defines != OPTION_DEFINE;
    label_spec(line, m);
    snprintf(m->files.library, sizeof m->files.library, "%s/libbench%d.so", dir, second);
    snprintf(m->files.weights, sizeof m->files.weights, "%s/bench%d.weights", dir, second);
    snprintf(m->random, sizeof m->random, "%s/bench%d.safetensors", dir, second);
    return 0;
}

/* Rejects options that say how a model is compiled, if a compiled model would ignore them. If one
 * of the models is a SPEC they are for that one, except for options that the table lists for
 * both. */
static int reject_options(hadal_session *s, const command_line *line, const model *m, size_t n) {
    static const option_id of_both[] = {OPTION_WEIGHTS, OPTION_WEIGHTS_DTYPE};
    char message[128];
    const bool first = m[0].compiled, second = n > 1 && m[1].compiled;
    if (second && option_given(line, OPTION_AGAINST_DEFINE))
        return hadal_fail(s, "usage",
                          "--against-define is for a SPEC, and this is a compiled model", NULL);
    if (!first && !second) return 0;
    if (first && (n == 1 || second)) return reject_spec_options(s, line);
    for (size_t i = 0; i < sizeof of_both / sizeof *of_both; i++) {
        if (!option_given(line, of_both[i])) continue;
        snprintf(message, sizeof message, "--%s is for a SPEC, and one of the models is compiled",
                 option_name(of_both[i]));
        return hadal_fail(s, "usage", message, "measure the models one by one");
    }
    return 0;
}

/* Sets the weights: those of --weights, those of the model folder if it has any, or random ones,
 * which are made once. */
static int give_weights(hadal_session *s, const command_line *line, const model *m) {
    const char *given = m->defines == OPTION_DEFINE ? option_get(line, OPTION_WEIGHTS) : NULL;
    if (given) return hadal_weights(s, given) || hadal_check_weights(s);
    if (hadal_weights_exist(s)) return hadal_check_weights(s);
    report_step("making random weights");
    if (!is_file(m->random) && hadal_draw_weights(s, 1, "f32", m->random)) return 1;
    return hadal_weights(s, m->random);
}

/* Reads the model and runs the passes: all that can be wrong with the command line. */
static int run_passes(hadal_session *s, const command_line *line, const model *m,
                      const char *types) {
    hadal_pipeline pipeline;
    if (apply_definitions(s, line, OPTION_DEFINE)) return 1;
    if (m->defines != OPTION_DEFINE && apply_definitions(s, line, m->defines)) return 1;
    if (make_pipeline(s, line, &pipeline)) return 1;
    pipeline.weights_dtype = types;
    report_step("reading the model");
    if (hadal_load(s, m->spec, m->defines == OPTION_DEFINE ? "bench0" : "bench1")) return 1;
    return give_weights(s, line, m) || run_pipeline(s, line, &pipeline);
}

/* Compiles in a session of its own, which is closed before anything is measured; `all`: to code.
 * Returns an exit code. */
static int build(const command_line *line, const model *m, const char *types, bool all) {
    if (m->compiled) return 0;
    hadal_session *s = hadal_open();
    if (!s) return 3;
    const int failed = run_passes(s, line, m, types) || (all && build_library(s, line, &m->files));
    const int code = report_diagnostics(s, line);
    hadal_close(s);
    return code ? code : failed;
}

/* What is wrong with types that come later is said before the first are measured. */
static int try_types(const command_line *line, const model *m, size_t n, const type_list *types) {
    int code = 0;
    for (size_t t = 1; t < types->n; t++)
        for (size_t i = 0; i < n && !code; i++)
            code = build(line, &m[i], types->at[t], false);
    return code;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void print_text(void *context, const char *text) {
    (void)context;
    (void)report_text(text, strlen(text));
}

static int begin(hadal_session *s, const command_line *line, bool silent) {
    option_number_list prefill, decode, threads;
    int counts[MOST];
    long long rounds;
    if (!option_numbers(s, line, OPTION_PREFILL, "1,16,128,512", &prefill) ||
        !option_numbers(s, line, OPTION_DECODE, "0,512,4096", &decode) ||
        !option_numbers(s, line, OPTION_THREADS, "1,2", &threads))
        return 1;
    if (!option_number(s, line, OPTION_ROUNDS, 5, 1, 80, &rounds)) return 1;
    for (size_t i = 0; i < threads.n; i++)
        counts[i] = threads.at[i] > 1 << 20 ? 1 << 20 : (int)threads.at[i];
    const hadal_bench_options o = {
        .struct_size = sizeof o,
        .prefill = prefill.at,
        .n_prefill = prefill.n,
        .decode = decode.at,
        .n_decode = decode.n,
        .threads = counts,
        .n_threads = threads.n,
        .rounds = (int)rounds,
        .cpu_level = option_get(line, OPTION_CPU_LEVEL),
        .print = silent || option_given(line, OPTION_JSON) ? NULL : print_text,
    };
    return hadal_bench_begin(s, &o);
}

/* Measures all models with their weights in one type, loaded in each of the ways. A library has its
 * own type, so only specs are recompiled for each. */
static int measure(hadal_session *s, const command_line *line, const model *m, size_t n,
                   const char *types, const load_list *loads) {
    hadal_bench_model list[MODELS];
    for (size_t i = 0; i < n; i++) {
        const int code = build(line, &m[i], types, true);
        if (code) return code;
        list[i] = (hadal_bench_model){m[i].files.library, m[i].files.weights, m[i].label,
                                      m[i].compiled ? "-"
                                      : types       ? types
                                                    : "f32"};
    }
    report_step("measuring");
    int failed = 0;
    for (size_t i = 0; i < loads->n && !failed; i++)
        failed = hadal_weights_load(s, loads->at[i]) || hadal_bench_run(s, list, n);
    return failed;
}

static void choose_models(const command_line *line, model *m, size_t *n) {
    m[0] = (model){.spec = line->positional[0], .defines = OPTION_DEFINE};
    const char *against = option_get(line, OPTION_AGAINST);
    *n = against || option_given(line, OPTION_AGAINST_DEFINE) ? 2 : 1;
    m[1] = (model){.spec = against ? against : m[0].spec, .defines = OPTION_AGAINST_DEFINE};
}

/* Joins the ranks of a divided model, which cannot share its processes with another model. */
static int join(hadal_session *s, const command_line *line, model *m, size_t n, ranks *group) {
    for (size_t i = 0; i < n; i++) {
        int64_t wanted = 0;
        if (!m[i].compiled) continue;
        if (hadal_library_ranks(s, m[i].files.library, &wanted)) return 1;
        if (wanted > 0 && n > 1)
            return hadal_fail(s, "usage", "--against is for models of one process",
                              "measure models that are divided over ranks one by one");
        if (wanted > 0) return join_ranks(s, line, m[i].spec, &m[i].files, group);
    }
    return reject_rank_options(s, line);
}

static int bench(hadal_session *s, const command_line *line, const char *dir, model *m,
                 ranks *group) {
    size_t n;
    static type_list types;
    static load_list loads;
    choose_models(line, m, &n);
    if (parse_types(s, line, &types) || parse_loads(s, line, &loads)) return 1;
    for (size_t i = 0; i < n; i++)
        if (find_model(s, line, dir, &m[i])) return 1;
    if (reject_options(s, line, m, n) || join(s, line, m, n, group) ||
        begin(s, line, group->silent))
        return 1;
    int code = try_types(line, m, n, &types);
    for (size_t i = 0; !code && i < (types.n ? types.n : 1); i++)
        code = measure(s, line, m, n, types.n ? types.at[i] : NULL, &loads);
    if (!code && option_given(line, OPTION_JSON) && !group->silent)
        print_text(NULL, hadal_bench_json(s));
    return code;
}

int cmd_bench(hadal_session *s, const command_line *line) {
    char dir[4096];
    static model m[MODELS];
    if (make_temporary_folder(s, dir, sizeof dir)) return 1;
    ranks group = {0};
    const int failed = leave_ranks(&group, bench(s, line, dir, m, &group));
    for (int i = 0; i < MODELS; i++) {
        if (m[i].compiled || !m[i].random[0]) continue;
        remove(m[i].files.library);
        remove(m[i].files.weights);
        remove(m[i].random);
    }
    remove_temporary_folder(dir);
    return failed;
}
