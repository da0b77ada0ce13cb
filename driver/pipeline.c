/* From options to a pipeline. */
#include "driver/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/interrupt.h"
#include "driver/report.h"

int apply_definitions(hadal_session *s, const command_line *line, option_id defines) {
    for (size_t i = 0; i < line->n_options; i++) {
        const option_value *o = &line->options[i];
        if (o->id == OPTION_INCLUDE && hadal_include_path(s, o->value)) return 1;
        if (o->id != defines) continue;
        char name[128];
        const char *equals = strchr(o->value, '=');
        const size_t n = equals ? (size_t)(equals - o->value) : 0;
        if (n == 0 || n >= sizeof name)
            return hadal_fail(s, "usage",
                              defines == OPTION_DEFINE ? "-D takes NAME=VALUE"
                                                       : "--against-define takes NAME=VALUE",
                              "for example -D layers=24");
        memcpy(name, o->value, n);
        name[n] = 0;
        if (hadal_define(s, name, equals + 1)) return 1;
    }
    return 0;
}

int load_model(hadal_session *s, const command_line *line, const char *name) {
    report_step("reading the model");
    if (hadal_load(s, line->positional[0], name)) return 1;
    const char *weights = option_get(line, OPTION_WEIGHTS);
    return weights ? hadal_weights(s, weights) : 0;
}

int make_folders(hadal_session *s, const char *dir) {
    char path[4096], message[4400];
    if (strlen(dir) >= sizeof path) return hadal_fail(s, "usage", "a path is too long", NULL);
    strcpy(path, dir);
    /* every prefix that ends before a slash, then the whole */
    for (char *c = path;; c++) {
        if (*c && (*c != '/' || c == path)) continue;
        const char kept = *c;
        *c = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            snprintf(message, sizeof message, "the folder %s cannot be made: %s", path,
                     strerror(errno));
            return hadal_fail(s, "io", message, NULL);
        }
        if (!kept) return 0;
        *c = kept;
    }
}

int make_temporary_folder(hadal_session *s, char *dir, size_t size) {
    const char *tmp = getenv("TMPDIR");
    char message[4400];
    snprintf(dir, size, "%.4000s/hadal-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (make_clean_folder(dir)) return 0;
    snprintf(message, sizeof message, "a temporary folder %s cannot be made: %s", dir,
             strerror(errno));
    dir[0] = 0;
    return hadal_fail(s, "io", message, "TMPDIR says where");
}

void remove_temporary_folder(const char *dir) {
    rmdir(dir);
    forget_folder();
}

int make_pipeline(hadal_session *s, const command_line *line, hadal_pipeline *out) {
    long long chunk;
    if (!option_number(s, line, OPTION_CHUNK, 512, 1, 1 << 20, &chunk)) return 1;
    bool json;
    if (!option_json(s, line, OPTION_REMARKS, &json)) return 1;
    const char *level = option_get(line, OPTION_CPU_LEVEL);
    if (level && hadal_check_level(s, level)) return 1;
    long long ranks, divide_from, stages, parts, stage;
    if (!option_number(s, line, OPTION_RANKS, 1, 1, 4096, &ranks) ||
        !option_number(s, line, OPTION_DIVIDE_FROM, 0, 0, 1 << 20, &divide_from) ||
        !option_number(s, line, OPTION_STAGES, 1, 1, 4096, &stages) ||
        !option_number(s, line, OPTION_VIRTUAL_STAGES, 1, 1, 4096, &parts) ||
        !option_number(s, line, OPTION_STAGE, 0, 0, 4095, &stage))
        return 1;
    *out = (hadal_pipeline){
        .struct_size = sizeof *out,
        .stop_after = option_get(line, OPTION_STOP_AFTER),
        .dump_dir = option_get(line, OPTION_DUMP_IR),
        .verify_each = option_given(line, OPTION_VERIFY),
        .check = option_given(line, OPTION_CHECK),
        .weights_dtype = option_get(line, OPTION_WEIGHTS_DTYPE),
        .cache_dtype = option_get(line, OPTION_CACHE_DTYPE),
        .carry_dtype = option_get(line, OPTION_CARRY_DTYPE),
        .chunk = chunk,
        .bank_dtype = option_get(line, OPTION_BANK_DTYPE),
        .phase1_dtype = option_get(line, OPTION_PHASE1_DTYPE),
        .ranks = ranks,
        .divide_from = divide_from,
        .stages = stages,
        .virtual_stages = parts,
        .stage = stage,
        .gather_dtype = option_get(line, OPTION_GATHER_DTYPE),
        .overlap = option_get(line, OPTION_OVERLAP),
        .merge_norm = option_get(line, OPTION_MERGE_NORM),
        .filter_passes = option_get(line, OPTION_FILTER_PASSES),
        .filter_ops = option_get(line, OPTION_FILTER_OPS),
        .event = option_given(line, OPTION_TIME) ? report_pass_time : NULL,
        .ledger = option_given(line, OPTION_REMARKS),
    };
    return out->dump_dir ? make_folders(s, out->dump_dir) : 0;
}

void print_remarks(hadal_session *s, const command_line *line, size_t from) {
    bool json = false;
    if (option_given(line, OPTION_REMARKS) && option_json(s, line, OPTION_REMARKS, &json))
        report_remarks(s, from, json);
}

int run_pipeline(hadal_session *s, const command_line *line, const hadal_pipeline *p) {
    report_step("running passes");
    const int failed = hadal_run_passes(s, p);
    print_remarks(s, line, 0);
    return failed;
}

int deliver_text(hadal_session *s, const command_line *line, const char *text) {
    const char *path = option_get(line, OPTION_OUTPUT);
    if (path && strcmp(path, "-") != 0) return hadal_write_text(s, path, text);
    (void)report_text(text, strlen(text)); /* main says if it could not be written */
    return 0;
}
