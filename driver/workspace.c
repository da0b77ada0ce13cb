#include "driver/workspace.h"

#include <string.h>
#include <sys/stat.h>

#include "driver/pipeline.h"
#include "driver/report.h"

bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

bool find_compiled(const char *spec, compiled_files *out, char *name, size_t size) {
    const char *slash = strrchr(spec, '/'), *file = slash ? slash + 1 : spec;
    const int dir = slash ? (int)(slash - spec) : 1;
    const char *folder = slash ? spec : ".";
    if (strncmp(file, "lib", 3) == 0 && ends_with(file, ".so"))
        snprintf(name, size, "%.*s", (int)strlen(file) - 6, file + 3);
    else
        snprintf(name, size, "%s", file);
    snprintf(out->library, sizeof out->library, "%.*s/lib%s.so", dir, folder, name);
    snprintf(out->weights, sizeof out->weights, "%.*s/%s.weights", dir, folder, name);
    out->stages = 0;
    return is_file(out->library);
}

bool find_stage(const char *spec, int stage, compiled_files *of) {
    char part[PATH_SIZE], name[256];
    const int stages = of->stages;
    snprintf(part, sizeof part, "%.4000s_s%d", spec, stage);
    const bool found = find_compiled(part, of, name, sizeof name);
    of->stages = stages;
    return found;
}

bool find_compiled_stages(const char *spec, compiled_files *out, char *name, size_t size) {
    compiled_files next = {.stages = 0};
    if (find_compiled(spec, out, name, size)) return true;
    if (!find_stage(spec, 0, out)) return false;
    for (out->stages = 1; find_stage(spec, out->stages, &next);)
        out->stages++;
    const char *slash = strrchr(spec, '/');
    snprintf(name, size, "%s", slash ? slash + 1 : spec);
    return true;
}

/* Does the option say how a SPEC is read or compiled, or what is looked at on the way? */
static bool is_of_specs(option_id id) {
    switch (id) {
#define P(id, ...) case OPTION_##id:
#include "support/compile_options.def"
#undef P
    case OPTION_DEFINE:
    case OPTION_INCLUDE:
    case OPTION_WEIGHTS:
    case OPTION_MACHINE:
    case OPTION_LINKER:
    case OPTION_DUMP_IR:
    case OPTION_VERIFY:
    case OPTION_CHECK:
    case OPTION_REMARKS:
    case OPTION_FILTER_PASSES:
    case OPTION_FILTER_OPS: return true;
    default: return false;
    }
}

int reject_spec_options(hadal_session *s, const command_line *line) {
    for (size_t i = 0; i < line->n_options; i++) {
        if (!is_of_specs(line->options[i].id)) continue;
        char message[128];
        snprintf(message, sizeof message, "--%s is for a SPEC, and this is a compiled model",
                 option_name(line->options[i].id));
        return hadal_fail(s, "usage", message, "give it to hadal compile");
    }
    return 0;
}

int make_workspace(hadal_session *s, workspace *w) {
    if (make_temporary_folder(s, w->dir, sizeof w->dir)) return 1;
    snprintf(w->files.library, sizeof w->files.library, "%s/libmodel.so", w->dir);
    snprintf(w->files.weights, sizeof w->files.weights, "%s/model.weights", w->dir);
    return 0;
}

void remove_workspace(const workspace *w) {
    if (!w->dir[0]) return;
    remove(w->files.library);
    remove(w->files.weights);
    remove_temporary_folder(w->dir);
}

int build_library(hadal_session *s, const command_line *line, const compiled_files *out) {
    const char *level = option_get(line, OPTION_CPU_LEVEL);
    const hadal_target target = {
        .struct_size = sizeof target,
        .cc = option_get(line, OPTION_LINKER),
        .cpu = level ? level : "native",
        .activations = option_get(line, OPTION_ACTIVATIONS),
        .machine = option_get(line, OPTION_MACHINE),
    };
    report_step("packing weights"); /* first, since the library contains their build id */
    if (hadal_emit(s, &target, "weights", out->weights)) return 1;
    report_step("compiling");
    return hadal_emit(s, &target, "so", out->library);
}
