#include "driver/workplace.h"

#include "driver/pipeline.h"
#include "driver/report.h"

int make_workplace(hadal_session *s, workplace *w) {
    if (make_temporary_folder(s, w->dir, sizeof w->dir)) return 1;
    snprintf(w->library, sizeof w->library, "%s/libmodel.so", w->dir);
    snprintf(w->weights, sizeof w->weights, "%s/model.weights", w->dir);
    return 0;
}

void remove_workplace(const workplace *w) {
    if (!w->dir[0]) return;
    remove(w->library);
    remove(w->weights);
    remove_temporary_folder(w->dir);
}

int build_in_workplace(hadal_session *s, const command_line *line, const workplace *w) {
    const char *level = option_get(line, OPTION_CPU_LEVEL);
    const hadal_target target = {
        .struct_size = sizeof target,
        .cc = option_get(line, OPTION_LINKER),
        .cpu = level ? level : "native",
        .activations = option_get(line, OPTION_ACTIVATIONS),
        .machine = option_get(line, OPTION_MACHINE),
    };
    report_step("compiling");
    if (hadal_emit(s, &target, "so", w->library)) return 1;
    report_step("packing weights");
    return hadal_emit(s, &target, "weights", w->weights);
}
