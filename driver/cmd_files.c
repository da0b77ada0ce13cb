/* hadal pack, init-weights, import: commands that make files. */
#include <string.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/report.h"
#include "driver/workspace.h"

static const char *need_output(hadal_session *s, const command_line *line, const char *hint) {
    const char *path = option_get(line, OPTION_OUTPUT);
    if (!path) hadal_fail(s, "usage", "-o PATH is missing", hint);
    return path;
}

int cmd_pack(hadal_session *s, const command_line *line) {
    const char *path = need_output(s, line, "for example -o out/model.weights");
    hadal_pipeline pipeline;
    if (!path || make_pipeline(s, line, &pipeline) || load_model(s, line, NULL)) return 1;
    if (hadal_check_weights(s) || run_pipeline(s, line, &pipeline)) return 1;
    report_step("packing weights");
    return hadal_emit(s, NULL, "weights", path);
}

int cmd_info(hadal_session *s, const command_line *line) {
    compiled_files files;
    char name[256], header[PATH_SIZE];
    int together = 1;
    if (!find_compiled(line->positional[0], &files, name, sizeof name)) {
        char message[PATH_SIZE + 64];
        snprintf(message, sizeof message, "'%s' is no compiled model: there is no %s",
                 line->positional[0], files.library);
        return hadal_fail(s, "usage", message,
                          "name DIR/NAME as given to compile -o, or its libNAME.so");
    }
    snprintf(header, sizeof header, "%.*s.h", (int)(strlen(files.weights) - strlen(".weights")),
             files.weights);
    const char *text = hadal_library_text(s, files.library, is_file(header) ? header : NULL,
                                          files.weights, &together);
    if (!text) return 1;
    fputs(text, stdout);
    return together ? 0 : 1;
}

int cmd_init_weights(hadal_session *s, const command_line *line) {
    const char *path = need_output(s, line, "for example -o model.safetensors");
    long long seed;
    if (!path || !option_number(s, line, OPTION_SEED, 1, 0, INT64_MAX, &seed)) return 1;
    if (load_model(s, line, NULL)) return 1;
    report_step("writing weights");
    const char *dtype = option_get(line, OPTION_WEIGHTS_DTYPE);
    return option_given(line, OPTION_DRAW_ALL) ? hadal_draw_weights(s, (uint64_t)seed, dtype, path)
                                               : hadal_init_weights(s, (uint64_t)seed, dtype, path);
}

int cmd_import(hadal_session *s, const command_line *line) {
    const char *path = need_output(s, line, "for example -o model.hadal");
    if (!path) return 1;
    if (strcmp(path, "-") != 0) return hadal_import(s, line->positional[0], path);
    const char *text = hadal_import_text(s, line->positional[0]);
    if (text) fputs(text, stdout);
    return text ? 0 : 1;
}
