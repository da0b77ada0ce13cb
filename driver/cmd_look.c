/* hadal opt, inspect, diff, machine, ops, passes: commands that show models and the compiler. */
#include <string.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/ranks.h"
#include "driver/report.h"

int cmd_opt(hadal_session *s, const command_line *line) {
    hadal_pipeline pipeline;
    if (make_pipeline(s, line, &pipeline) || load_model(s, line, NULL)) return 1;
    if ((pipeline.passes || pipeline.stop_after) && run_pipeline(s, line, &pipeline)) return 1;
    return deliver_text(s, line, hadal_ir_text(s, option_given(line, OPTION_LOCATIONS)));
}

static const char *look_at_tokens(hadal_session *s, const command_line *line) {
    const int32_t *tokens;
    int64_t n;
    if (hadal_read_tokens(s, option_get(line, OPTION_TOKENS), &tokens, &n)) return NULL;
    const char *heatmap = option_get(line, OPTION_HEATMAP);
    return heatmap ? hadal_heatmap(s, tokens, n, heatmap)
                   : hadal_mixing_matrix(s, tokens, n, option_get(line, OPTION_MIXING_MATRIX));
}

/* The report that an option requests; NULL: the option is wrong, or the report cannot be made. */
static const char *inspection(hadal_session *s, const command_line *line) {
    bool json = false;
    if (!option_json(s, line, OPTION_LEDGER, &json)) return NULL;
    json |= option_given(line, OPTION_JSON);
    if (option_given(line, OPTION_LEDGER)) return hadal_ledger_text(s, json);
    if (option_given(line, OPTION_DEPTH_MAP)) return hadal_depth_map_text(s);
    return hadal_inspect(s, json);
}

int cmd_inspect(hadal_session *s, const command_line *line) {
    hadal_pipeline pipeline;
    const bool on_tokens =
        option_given(line, OPTION_MIXING_MATRIX) || option_given(line, OPTION_HEATMAP);
    if (make_pipeline(s, line, &pipeline) || load_model(s, line, NULL)) return 1;
    if (option_given(line, OPTION_WEIGHTS) && hadal_check_weights(s)) return 1;
    if (strcmp(hadal_stage(s), "kernel") == 0) pipeline.passes = ""; /* nothing is left to do */
    if (!on_tokens && run_pipeline(s, line, &pipeline)) return 1;
    const char *text = on_tokens ? look_at_tokens(s, line) : inspection(s, line);
    return text ? deliver_text(s, line, text) : 1;
}

int cmd_diff(hadal_session *s, const command_line *line) {
    const bool alone = line->n_positional == 1;
    if (alone && !option_given(line, OPTION_AGAINST_DEFINE))
        return hadal_fail(s, "usage", "hadal diff takes two models",
                          "A B, or one and --against-define NAME=VALUE, which the second has");
    const char *a = line->positional[0], *b = line->positional[alone ? 0 : 1];
    hadal_session *second = hadal_open();
    if (!second) return hadal_fail(s, "memory", "out of memory", NULL);
    int differences = 0;
    const bool loaded =
        !hadal_load(s, a, NULL) && !define_second(second, line, b) && !hadal_load(second, b, NULL);
    const int code = report_diagnostics(second, line);
    const char *text = loaded ? hadal_diff_loaded(s, second, &differences) : NULL;
    hadal_close(second);
    return text ? deliver_text(s, line, text) || differences : code;
}

int cmd_ops(hadal_session *s, const command_line *line) {
    const char *only = line->n_positional ? line->positional[0] : NULL;
    const char *text = hadal_ops_text(s, only, option_given(line, OPTION_MARKDOWN));
    if (!text) return 1;
    fputs(text, stdout);
    return 0;
}

int cmd_families(hadal_session *s, const command_line *line) {
    (void)line;
    const char *text = hadal_families_text(s);
    if (text) fputs(text, stdout);
    return text ? 0 : 1;
}

int cmd_passes(hadal_session *s, const command_line *line) {
    (void)line;
    fputs(hadal_passes_text(s), stdout);
    return 0;
}

/* Measures the machine. Processes started by mpirun measure together, and find what each of them
 * has. */
int cmd_machine(hadal_session *s, const command_line *line) {
    const char *level = option_get(line, OPTION_CPU_LEVEL);
    long long threads;
    ranks group = {0};
    if (!option_number(s, line, OPTION_THREADS, -1, 0, 256, &threads)) return 1;
    if (level && hadal_check_level(s, level)) return 1;
    if ((threads != 0 || !is_in_job()) && join_measuring(s, line, &group))
        return leave_ranks(&group, 1);
    char folder[PATH_SIZE] = "";
    if (threads != 0 && make_temporary_folder(s, folder, sizeof folder))
        return leave_ranks(&group, 1);
    const char *text = hadal_machine_text(s, option_given(line, OPTION_JSON), (int)threads,
                                          *folder ? folder : NULL, level);
    if (*folder) remove_temporary_folder(folder);
    const int failed = !text || (!group.silent && deliver_text(s, line, text));
    return leave_ranks(&group, failed);
}
