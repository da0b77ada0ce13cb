/* hadal report, hadal explain. */
#include <stdio.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/report.h"
#include "driver/workspace.h"

typedef struct subject { /* the subject of a report; a second one has a session of its own */
    hadal_session *s;
    const char *path;
    workspace work;
    compiled_files compiled; /* library[0] 0: the subject is no compiled model */
    const char *json;        /* NULL: the report could not be made */
} subject;

static bool is_written_report(const subject *x) {
    return ends_with(x->path, ".json");
}

/* ---- loading the subject --------------------------------------------------------------------- */

static int load_spec(subject *x, const command_line *line) {
    hadal_pipeline pipeline;
    if (make_pipeline(x->s, line, &pipeline)) return 1;
    const char *weights = option_get(line, OPTION_WEIGHTS);
    report_step("reading the model");
    if (hadal_load(x->s, x->path, NULL) ||
        (weights && (hadal_weights(x->s, weights) || hadal_check_weights(x->s))))
        return 1;
    pipeline.keep_history = 1;
    if (strcmp(hadal_stage(x->s), "kernel") == 0 && !pipeline.passes)
        pipeline.passes = ""; /* nothing is left to do */
    return run_pipeline(x->s, line, &pipeline);
}

static int load(subject *x, const command_line *line) {
    char name[256];
    if (find_compiled(x->path, &x->compiled, name, sizeof name)) {
        const char *weights = option_get(line, OPTION_WEIGHTS); /* of the checkpoint */
        return hadal_load_library(x->s, x->compiled.library) ||
               (weights && hadal_weights(x->s, weights));
    }
    x->compiled.library[0] = 0;
    if (!hadal_is_dumps(x->path)) return load_spec(x, line);
    report_step("reading the dumps");
    return hadal_load_dumps(x->s, x->path);
}

/* ---- running the model for a profile --------------------------------------------------------- */

typedef struct calls {
    const int32_t *tokens;
    int64_t n;
    long long threads, rounds;
    option_number_list split;
} calls;

/* The default calls: one call for all tokens but the last half, or the last eight if that is less,
 * which come one by one. So there is a prefill and a decode. */
static void set_default_split(calls *c) {
    const int64_t alone = c->n / 2 < 8 ? c->n / 2 : 8;
    if (!c->split.n) c->split = (option_number_list){{c->n - alone}, 1};
}

static int read_calls(subject *x, const command_line *line, calls *c) {
    const char *text = option_get(line, OPTION_TOKENS);
    *c = (calls){0};
    if (!text || is_written_report(x)) return 0;
    if (!option_numbers(x->s, line, OPTION_SPLIT, "", &c->split) ||
        !option_number(x->s, line, OPTION_THREADS, 0, 1, 256, &c->threads) ||
        !option_number(x->s, line, OPTION_ROUNDS, 1, 1, 1000, &c->rounds) ||
        hadal_read_tokens(x->s, text, &c->tokens, &c->n))
        return 1;
    set_default_split(c);
    return 0;
}

/* Finds a library and its weights: compiled earlier, or now. */
static const compiled_files *find_library(subject *x, const command_line *line) {
    if (x->compiled.library[0]) return &x->compiled;
    const bool built = !hadal_check_weights(x->s) && !make_workspace(x->s, &x->work) &&
                       !build_library(x->s, line, &x->work.files);
    return built ? &x->work.files : NULL;
}

static int measure(subject *x, const command_line *line, const calls *c) {
    hadal_run_options options = {
        .struct_size = sizeof options,
        .split = c->split.at,
        .n_split = c->split.n,
        .cpu_level = option_get(line, OPTION_CPU_LEVEL),
        .threads = (int)c->threads,
        .profile = (int)c->rounds,
    };
    if (!c->n || option_given(line, OPTION_PROFILE)) return 0;
    const compiled_files *files = find_library(x, line);
    if (!files) return 1;
    options.library = files->library;
    options.packed = files->weights;
    report_step("running");
    return hadal_run(x->s, &options, c->tokens, c->n, NULL, NULL);
}

/* ---- reports --------------------------------------------------------------------------------- */

static hadal_target target_of(const command_line *line) {
    const char *level = option_get(line, OPTION_CODE);
    return (hadal_target){
        .struct_size = sizeof(hadal_target),
        .cpu = level ? level : "native",
        .ir_file = "kernel.hir",
        .activations = option_get(line, OPTION_ACTIVATIONS),
        .machine = option_get(line, OPTION_MACHINE),
    };
}

static bool no_code(const command_line *line) {
    const char *level = option_get(line, OPTION_CODE);
    return level && strcmp(level, "none") == 0;
}

static int reject_code_options(hadal_session *s, const command_line *line) {
    if (!no_code(line) || option_given(line, OPTION_TOKENS)) return 0;
    const bool activations = option_given(line, OPTION_ACTIVATIONS);
    if (!activations && !option_given(line, OPTION_MACHINE)) return 0;
    return hadal_fail(s, "usage",
                      activations ? "--activations is for code, of which --code none shows none"
                                  : "--machine is for code, of which --code none shows none",
                      "leave out --code none");
}

/* Is an error one of the model? What a wrong command line, a missing file or the machine is at fault
 * for is nothing to write a report of. */
static bool is_of_model(hadal_session *s) {
    enum { EXIT_MACHINE = 3 };
    const int code = hadal_exit_code(s);
    return code != EXIT_USAGE && code != EXIT_MACHINE;
}

/* Writes the report. A model with errors has one too: of its diagnostics. x->json stays NULL where
 * there is none. */
static int report_of(subject *x, const command_line *line, const calls *c, const char *machine) {
    const hadal_target target = target_of(line);
    const hadal_report_options options = {
        .struct_size = sizeof options,
        .path = x->path,
        .tokens = c->tokens,
        .n_tokens = c->n,
        .profile = option_get(line, OPTION_PROFILE),
        .machine = machine,
        .target = no_code(line) ? NULL : &target,
    };
    if (is_written_report(x)) return !(x->json = hadal_read_report(x->s, x->path));
    const int failed = load(x, line) || measure(x, line, c);
    if (failed && !is_of_model(x->s)) return 1;
    report_step("writing the report");
    x->json = hadal_report(x->s, &options);
    return failed || !x->json;
}

/* The limits of this machine, if something is measured here. They are measured in a session of
 * their own, since errors of the machine are not errors of the model. */
static const char *measured_limits(hadal_session *here, const command_line *line, const calls *c) {
    if (!c->n) return NULL;
    report_step("measuring the machine");
    return hadal_machine_text(here, 1, c->threads ? (int)c->threads : -1, NULL,
                              option_get(line, OPTION_CPU_LEVEL));
}

static int check_options(hadal_session *s, const command_line *line) {
    const char *profile = option_get(line, OPTION_PROFILE);
    if (!option_get(line, OPTION_OUTPUT) && !option_given(line, OPTION_JSON))
        return hadal_fail(s, "usage", "-o FILE.html is missing",
                          "for example: hadal report model.hadal -o report.html");
    if (profile && !*profile)
        return hadal_fail(s, "usage", "--profile of a report takes a file",
                          "hadal run --profile=FILE.json writes one; --tokens measures here");
    return 0;
}

/* Writes to the file of -o, or to standard output. */
static int deliver(subject *first, const subject *second, const command_line *line) {
    const char *text = first->json;
    if (!option_given(line, OPTION_JSON))
        text = hadal_report_page(first->s, first->json, second ? second->s : NULL,
                                 second ? second->json : NULL);
    if (!text) return 1;
    return deliver_text(first->s, line, text);
}

static int make_reports(subject *first, subject *second, hadal_session *here,
                        const command_line *line) {
    calls c, other = {0};
    if (read_calls(first, line, &c) || (second && read_calls(second, line, &other))) return 1;
    const char *machine = measured_limits(here, line, &c);
    if (c.n && !machine) return report_diagnostics(here, line);
    const int failed = report_of(first, line, &c, machine);
    if (!first->json) return 1;
    if (second && report_of(second, line, &other, machine)) {
        report_diagnostics(second->s, line);
        return hadal_fail(first->s, "usage", "the model of --against cannot be shown",
                          option_given(line, OPTION_WEIGHTS)
                              ? "--weights is of both; of a model with weights of its own write a "
                                "report, hadal report B --weights F --tokens .. --json -o b.json, "
                                "then --against b.json"
                              : NULL);
    }
    return deliver(first, second, line) || failed;
}

/* What an option is read of. */
enum reader { OF_ANY, OF_MODEL, OF_PASSES, OF_SPEC };

static enum reader reader_of(option_id id) {
    switch (id) {
    case OPTION_DEFINE:
    case OPTION_INCLUDE:
    case OPTION_GRADIENTS: return OF_SPEC;
#define T(id, ...)
#define P(id, ...) case OPTION_##id:
#include "support/compile_options.def"
#undef P
    case OPTION_PASS_LIST: return OF_PASSES;
#define T(id, ...) case OPTION_##id:
#define P(id, ...)
#include "support/compile_options.def"
#undef P
    case OPTION_MACHINE:
    case OPTION_CODE:
    case OPTION_WEIGHTS:
    case OPTION_TOKENS:
    case OPTION_PROFILE: return OF_MODEL;
    default: return OF_ANY;
    }
}

static bool reads(enum reader r, const char *path) {
    if (!path) return false;
    switch (r) {
    case OF_SPEC: return is_spec(path);
    case OF_PASSES: return is_spec(path) || ends_with(path, ".hir");
    case OF_MODEL: return !ends_with(path, ".json");
    default: return true;
    }
}

/* Rejects options that none of the models reads: parameters are of specs, passes run on what is not
 * compiled, and a report that was written before stays as it is. */
static int check_readers(hadal_session *s, const command_line *line, const char *first,
                         const char *second) {
    static const char *const what[] = {
        [OF_MODEL] = "is for a model, and this is a report, which stays as it was written",
        [OF_PASSES] = "is for a SPEC or IR text, on which passes run",
        [OF_SPEC] = "is for a SPEC"};
    if (option_given(line, OPTION_AGAINST_DEFINE) && !is_spec(second))
        return hadal_fail(s, "usage", "--against-define is for a SPEC", "the second model is none");
    for (size_t i = 0; i < line->n_options; i++) {
        const enum reader r = reader_of(line->options[i].id);
        char message[160];
        if (reads(r, first) || reads(r, second)) continue;
        snprintf(message, sizeof message, "--%s %s", option_name(line->options[i].id), what[r]);
        return hadal_fail(s, "usage", message, "give it where this was made");
    }
    return 0;
}

static const char *second_path(const command_line *line) {
    const char *path = option_get(line, OPTION_AGAINST);
    if (path) return path;
    return option_given(line, OPTION_AGAINST_DEFINE) ? line->positional[0] : NULL;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A run has been compiled, and has its own weights and tokens. */
static bool is_of_runs(option_id id) {
    return id == OPTION_OUTPUT || id == OPTION_JSON || id == OPTION_COLOUR || id == OPTION_QUIET;
}

static int check_run_options(hadal_session *s, const command_line *line) {
    char message[96];
    for (size_t i = 0; i < line->n_options; i++) {
        const option_id id = line->options[i].id;
        if (is_of_runs(id)) continue;
        snprintf(message, sizeof message, "--%s is for a report of a model", option_name(id));
        return hadal_fail(s, "usage", message,
                          id == OPTION_AGAINST ? "name the runs one after the other: hadal report "
                                                 "RUN OTHER -o FILE.html"
                                               : "a run has its options in run.json");
    }
    return 0;
}

static int report_runs(hadal_session *s, const command_line *line) {
    if (check_run_options(s, line) || check_options(s, line)) return 1;
    report_step("reading the runs");
    const char *text = hadal_run_report(s, line->positional, line->n_positional);
    if (text && !option_given(line, OPTION_JSON)) text = hadal_run_page(s, text);
    return text ? deliver_text(s, line, text) : 1;
}

/* Its errors are those of the command line. */
static int define_second_model(const subject *second, const command_line *line) {
    if (!second->s || !define_second(second->s, line, second->path)) return 0;
    return report_diagnostics(second->s, line);
}

int cmd_report(hadal_session *s, const command_line *line) {
    if (hadal_is_run(line->positional[0])) return report_runs(s, line);
    if (line->n_positional > 1)
        return hadal_fail(s, "usage", "a report is of one model, or of several runs",
                          "--against shows a second model beside the first; a run is a folder of "
                          "hadal train, with a run.json");
    subject first = {.s = s, .path = line->positional[0]}, second = {.path = second_path(line)};
    if (check_options(s, line) || reject_code_options(s, line) ||
        check_readers(s, line, first.path, second.path))
        return 1;
    hadal_session *here = hadal_open();
    if (second.path) second.s = hadal_open();
    int failed = !here || (second.path && !second.s);
    if (failed) hadal_fail(s, "memory", "out of memory", NULL);
    if (!failed) failed = define_second_model(&second, line);
    if (!failed) failed = make_reports(&first, second.s ? &second : NULL, here, line);
    remove_workspace(&first.work);
    remove_workspace(&second.work);
    hadal_close(second.s);
    hadal_close(here);
    return failed;
}

int cmd_explain(hadal_session *s, const command_line *line) {
    subject x = {.s = s, .path = line->positional[0]};
    if (reject_code_options(s, line) || check_readers(s, line, x.path, NULL)) return 1;
    if (load(&x, line)) return 1;
    const hadal_target target = target_of(line);
    const char *text = hadal_explain(s, line->positional[1], no_code(line) ? NULL : &target);
    return text ? deliver_text(s, line, text) : 1;
}
