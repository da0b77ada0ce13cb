/* hadal compile. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "driver/commands.h"
#include "driver/interrupt.h"
#include "driver/pipeline.h"
#include "driver/report.h"
#include "driver/together.h"

/* K(ENUM, "name for --emit", "prefix", "suffix" of the file name, stage of the command) */
#define OUTPUT_KINDS(K)                                                                            \
    K(GRAPH, "graph", "", ".graph.hir", BEFORE_PASSES)                                             \
    K(TORCH, "torch", "", ".py", BEFORE_PASSES)                                                    \
    K(DEPTH, "depth", "", ".depth.hir", AMONG_PASSES)                                              \
    K(KERNEL, "kernel", "", ".kernel.hir", AFTER_PASSES)                                           \
    K(PLAN, "plan", "", ".plan.txt", AFTER_PASSES)                                                 \
    K(WEIGHTS, "weights", "", ".weights", AFTER_PASSES) /* first: others have their build id */    \
    K(LLVM, "llvm", "", ".ll", AFTER_PASSES)                                                       \
    K(ASM, "asm", "", ".s", AFTER_PASSES)                                                          \
    K(OBJ, "obj", "", ".o", AFTER_PASSES)                                                          \
    K(HEADER, "header", "", ".h", AFTER_PASSES)                                                    \
    K(PYTHON, "python", "", ".py", AFTER_PASSES)                                                   \
    K(SO, "so", "lib", ".so", AFTER_PASSES)

enum stage { BEFORE_PASSES, AMONG_PASSES, AFTER_PASSES };
enum {
#define K(id, name, prefix, suffix, stage) EMIT_##id,
    OUTPUT_KINDS(K)
#undef K
        EMIT_COUNT
};
static const struct {
    const char *name, *prefix, *suffix;
    enum stage stage;
} kinds[EMIT_COUNT] = {
#define K(id, name, prefix, suffix, stage) {name, prefix, suffix, stage},
    OUTPUT_KINDS(K)
#undef K
};

typedef struct plan { /* what this execution of the command writes, and where */
    char dir[4096], name[256];
    bool wanted[EMIT_COUNT];
    bool stale[EMIT_COUNT]; /* earlier outputs that must not stay next to the new ones */
    hadal_build *build;     /* the build that contains all outputs, those of all pipeline stages */
} plan;

static int split_output(hadal_session *s, const char *output, plan *p) {
    const char *slash = strrchr(output, '/');
    const char *name = slash ? slash + 1 : output;
    const size_t n = slash ? (size_t)(slash - output) : 0;
    if (n >= sizeof p->dir || strlen(name) >= sizeof p->name)
        return hadal_fail(s, "usage", "the path of -o is too long", NULL);
    snprintf(p->dir, sizeof p->dir, "%.*s", (int)n, output);
    if (!slash) strcpy(p->dir, ".");
    if (slash == output) strcpy(p->dir, "/");
    strcpy(p->name, name);
    struct stat there;
    if (!*name || (stat(output, &there) == 0 && S_ISDIR(there.st_mode)))
        return hadal_fail(s, "usage", "-o names a folder and no library",
                          "DIR/NAME: a name after the directory, for example out/model");
    bool ok = !(*name >= '0' && *name <= '9');
    for (const char *c = name; *c; c++)
        ok = ok && (*c == '_' || (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                    (*c >= 'A' && *c <= 'Z'));
    if (ok) return 0;
    char message[512];
    snprintf(message, sizeof message, "\"%s\" cannot prefix C symbols", name);
    return hadal_fail(s, "usage", message,
                      "the last part of -o names the library: letters, digits and _, not starting "
                      "with a digit");
}

static int parse_kinds(hadal_session *s, const char *list, plan *p) {
    if (!*list)
        return hadal_fail(s, "usage", "--emit names nothing", "for example --emit=so,header");
    while (*list) {
        const size_t n = strcspn(list, ",");
        int k = 0;
        while (k < EMIT_COUNT && !(strlen(kinds[k].name) == n && !strncmp(kinds[k].name, list, n)))
            k++;
        if (k == EMIT_COUNT) {
            char message[256];
            snprintf(message, sizeof message, "nothing of kind \"%.*s\" can be emitted", (int)n,
                     list);
            return hadal_fail(
                s, "usage", message,
                "graph, torch, depth, kernel, plan, llvm, asm, obj, so, header, python, weights");
        }
        p->wanted[k] = true;
        list += n + (list[n] == ',');
    }
    return 0;
}

static void path_of(const plan *p, int kind, char *out, size_t size) {
    snprintf(out, size, "%s/%s%s%s", p->dir, kinds[kind].prefix, p->name, kinds[kind].suffix);
}

/* Rejects a spec that is one of the outputs to be replaced: an edited dump must not be removed as
 * an older output. */
static int reject_to_replace(hadal_session *s, const char *spec, const plan *p) {
    struct stat read, old;
    char path[4600], message[4700];
    if (stat(spec, &read) != 0) return 0;
    for (int k = 0; k < EMIT_COUNT; k++) {
        path_of(p, k, path, sizeof path);
        if (!p->stale[k] || stat(path, &old) != 0) continue;
        if (read.st_dev != old.st_dev || read.st_ino != old.st_ino) continue;
        snprintf(message, sizeof message, "'%s' is read here, and would be replaced", spec);
        return hadal_fail(s, "usage", message, "give -o another name");
    }
    return 0;
}

/* Marks older outputs of some stages of the command; they are removed when the new ones appear. */
static int replace_outputs(hadal_session *s, const plan *p, enum stage first, enum stage last) {
    char path[4600];
    for (int k = 0; k < EMIT_COUNT; k++) {
        if (!p->stale[k] || kinds[k].stage < first || kinds[k].stage > last) continue;
        path_of(p, k, path, sizeof path);
        if (hadal_build_replaces(p->build, path))
            return hadal_fail(s, "memory", "no memory for a path", NULL);
    }
    return 0;
}

static int emit_one(hadal_session *s, const hadal_target *t, const plan *p, int kind) {
    char path[4600], step[64];
    path_of(p, kind, path, sizeof path);
    snprintf(step, sizeof step, "writing %s", kinds[kind].name);
    report_step(step);
    if (kind == EMIT_GRAPH || kind == EMIT_KERNEL) return hadal_emit(s, t, "ir", path);
    if (kind == EMIT_PLAN) return hadal_write_text(s, path, hadal_plan_text(s));
    return hadal_emit(s, t, kinds[kind].name, path);
}

static int emit_stage(hadal_session *s, const hadal_target *t, const plan *p, enum stage stage) {
    for (int k = 0; k < EMIT_COUNT; k++)
        if (p->wanted[k] && kinds[k].stage == stage && emit_one(s, t, p, k)) return 1;
    return 0;
}

static int emit_stopped(hadal_session *s, const plan *p, const char *pass) {
    char path[4700];
    snprintf(path, sizeof path, "%s/%s.%s.hir", p->dir, p->name, pass);
    return hadal_emit(s, NULL, "ir", path);
}

static int choose_outputs(hadal_session *s, const command_line *line, plan *p) {
    const char *output = option_get(line, OPTION_OUTPUT);
    if (!output)
        return hadal_fail(s, "usage", "-o DIR/NAME is missing",
                          "for example: hadal compile model.hadal -o out/model");
    if (split_output(s, output, p)) return 1;
    const char *list = option_get(line, OPTION_EMIT);
    if (list && parse_kinds(s, list, p)) return 1;
    if (p->wanted[EMIT_TORCH] && p->wanted[EMIT_PYTHON])
        return hadal_fail(s, "usage", "--emit=torch and --emit=python both write NAME.py",
                          "give one of them another -o DIR/NAME, in a command of its own");
    if (!list) p->wanted[EMIT_SO] = p->wanted[EMIT_HEADER] = true;
    /* line tables point into the kernel IR, so its text must be written as well */
    if (option_given(line, OPTION_DEBUG_INFO)) p->wanted[EMIT_KERNEL] = true;
    memcpy(p->stale, p->wanted, sizeof p->stale);
    /* weights of an earlier execution belong to the library of that execution */
    if (!list) p->stale[EMIT_WEIGHTS] = true;
    return 0;
}

static hadal_target make_target(const command_line *line, const char *ir_file, bool *has_head) {
    const char *cpu = option_get(line, OPTION_TARGET_CPU);
    return (hadal_target){
        .struct_size = sizeof(hadal_target),
        .activations = option_get(line, OPTION_ACTIVATIONS),
        .machine = option_get(line, OPTION_MACHINE),
        .triple = option_get(line, OPTION_TARGET),
        .cpu = cpu ? cpu : option_get(line, OPTION_MARCH),
        .cc = option_get(line, OPTION_LINKER),
        .ir_file = option_given(line, OPTION_DEBUG_INFO) ? ir_file : NULL,
        .event = option_given(line, OPTION_TIME) ? report_code_time : NULL,
        .context = has_head,
    };
}

/* Reads the inputs before anything is written, so that a rejected input leaves earlier outputs as
 * they are. */
static int read_inputs(hadal_session *s, const command_line *line, plan *p) {
    if (make_folders(s, p->dir) || load_model(s, line, p->name)) return 1;
    const bool all = !option_given(line, OPTION_EMIT) && !option_given(line, OPTION_STOP_AFTER);
    const bool weights = !option_given(line, OPTION_GRADIENTS) && hadal_weights_path(s);
    if (all && weights) p->wanted[EMIT_WEIGHTS] = true;
    const bool needed = p->wanted[EMIT_WEIGHTS] || option_given(line, OPTION_WEIGHTS);
    /* checks the weights against the model as written, before the long work; a model folder may
     * have no weights where none are needed */
    return needed || hadal_weights_exist(s) ? hadal_check_weights(s) : 0;
}

static bool wants_any(const plan *p, enum stage stage) {
    for (int k = 0; k < EMIT_COUNT; k++)
        if (p->wanted[k] && kinds[k].stage == stage) return true;
    return false;
}

static bool wants_only(const plan *p, int kind) {
    for (int k = 0; k < EMIT_COUNT; k++)
        if (p->wanted[k] != (k == kind)) return false;
    return true;
}

/* PyTorch is written from the graph as it is: options that divide what is generated from it would
 * be of no effect, and where it is all that is written so are all options of passes. */
static int reject_beside_torch(hadal_session *s, const command_line *line, const plan *p) {
    static const option_id dividing[] = {OPTION_RANKS, OPTION_STAGES, OPTION_STAGE};
    char message[128];
    if (!p->wanted[EMIT_TORCH]) return 0;
    for (size_t i = 0; i < sizeof dividing / sizeof *dividing; i++)
        if (option_given(line, dividing[i]))
            return hadal_fail(s, "usage", "--emit=torch writes the whole model, and is not divided",
                              "leave out --ranks, --stages and --stage, or emit the rest alone");
    for (size_t i = 0; wants_only(p, EMIT_TORCH) && i < line->n_options; i++) {
        if (!is_of_passes(line->options[i].id)) continue;
        snprintf(message, sizeof message, "--%s is for passes, and for --emit=torch none runs",
                 option_name(line->options[i].id));
        return hadal_fail(s, "usage", message, "the module is written from the graph as it is");
    }
    return 0;
}

/* Options of what is made of the kernel IR, with the outputs that they are of. */
static int reject_idle(hadal_session *s, const command_line *line, const plan *p) {
    enum {
        LINKED = 1 << EMIT_SO,
        CODE = LINKED | 1 << EMIT_LLVM | 1 << EMIT_ASM | 1 << EMIT_OBJ,
        LOWERED = CODE | 1 << EMIT_KERNEL | 1 << EMIT_PLAN | 1 << EMIT_WEIGHTS | 1 << EMIT_HEADER |
                  1 << EMIT_PYTHON,
    };
    static const struct {
        option_id option;
        int kinds;
    } rows[] = {
        {OPTION_LINKER, LINKED},       {OPTION_DEBUG_INFO, CODE}, {OPTION_TARGET, LOWERED},
        {OPTION_TARGET_CPU, LOWERED},  {OPTION_MARCH, LOWERED},   {OPTION_MACHINE, LOWERED},
        {OPTION_ACTIVATIONS, LOWERED},
    };
    int wanted = 0;
    char message[256];
    for (int k = 0; k < EMIT_COUNT; k++)
        wanted |= p->wanted[k] ? 1 << k : 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!option_given(line, rows[i].option) || (rows[i].kinds & wanted)) continue;
        int n =
            snprintf(message, sizeof message, "--%s is for --emit=", option_name(rows[i].option));
        for (int k = 0, first = 1; k < EMIT_COUNT; k++) {
            if (!(rows[i].kinds & 1 << k)) continue;
            n += snprintf(message + n, sizeof message - (size_t)n, first ? "%s" : ",%s",
                          kinds[k].name);
            first = 0;
        }
        return hadal_fail(s, "usage", message, "nothing that is asked for is made with it");
    }
    return 0;
}

static int write_library(hadal_session *s, const hadal_target *t, const plan *p) {
    if (!wants_any(p, AFTER_PASSES)) return 0;
    report_step("lowering");
    if (hadal_check_target(s, t) || replace_outputs(s, p, AFTER_PASSES, AFTER_PASSES)) return 1;
    hadal_build_remove_earlier(p->build);
    return emit_stage(s, t, p, AFTER_PASSES);
}

static int write_outputs(hadal_session *s, const command_line *line, const plan *p,
                         const hadal_pipeline *options) {
    char ir_file[4600], depth_file[4600];
    path_of(p, EMIT_KERNEL, ir_file, sizeof ir_file);
    path_of(p, EMIT_DEPTH, depth_file, sizeof depth_file);
    hadal_pipeline pipeline = *options;
    if (p->wanted[EMIT_DEPTH]) pipeline.depth_path = depth_file;
    bool has_head = false;
    const hadal_target target = make_target(line, ir_file, &has_head);
    begin_outputs();
    if (replace_outputs(s, p, BEFORE_PASSES, AMONG_PASSES) ||
        emit_stage(s, &target, p, BEFORE_PASSES))
        return 1;
    if (wants_only(p, EMIT_TORCH)) return 0;
    if (run_pipeline(s, line, &pipeline)) return 1;
    if (pipeline.stop_after) return emit_stopped(s, p, pipeline.stop_after);
    const size_t remarks = hadal_remarks(s);
    const int failed = write_library(s, &target, p);
    print_remarks(s, line, remarks); /* remarks of code generation */
    return failed;
}

/* `stage`: the pipeline stage to compile; -1: as the command line says. */
static int compile(hadal_session *s, const command_line *line, plan *p, long long stage) {
    hadal_pipeline pipeline;
    hadal_build_in(s, p->build);
    if (make_pipeline(s, line, &pipeline)) return 1;
    if (stage >= 0) pipeline.stage = stage;
    if (reject_to_replace(s, line->positional[0], p) || read_inputs(s, line, p)) return 1;
    return write_outputs(s, line, p, &pipeline);
}

/* Compiles a library for each pipeline stage, NAME_s0 and so on, each in a session of its own. The
 * libraries are only of use together, so if one fails none is left. Returns an exit code. */
static int compile_stages(const command_line *line, const plan *p, long long stages) {
    int code = 0;
    for (long long i = 0; i < stages && !code; i++) {
        plan part = *p;
        const size_t size = sizeof part.name;
        if ((size_t)snprintf(part.name, size, "%.200s_s%lld", p->name, i) >= size) return 3;
        hadal_session *own = hadal_open();
        if (!own) return 3;
        report_start(own, line);
        const int failed =
            apply_definitions(own, line, OPTION_DEFINE) || compile(own, line, &part, i);
        code = report_diagnostics(own, line);
        if (failed && !code) code = 1;
        hadal_close(own);
    }
    return code;
}

static int make_all(hadal_session *s, const command_line *line, plan *p) {
    long long stages;
    if (!option_number(s, line, OPTION_STAGES, 1, 1, 4096, &stages)) return 1;
    const bool all = stages > 1 && !option_given(line, OPTION_STAGE);
    const int failed = all ? compile_stages(line, p, stages) : compile(s, line, p, -1);
    if (failed) return failed;
    hold_signals();
    const int code = hadal_build_publish(s, p->build);
    end_outputs();
    let_signals();
    return code;
}

int cmd_compile(hadal_session *s, const command_line *line) {
    plan p = {0};
    if (choose_outputs(s, line, &p) || reject_beside_torch(s, line, &p) || reject_idle(s, line, &p))
        return 1;
    p.build = hadal_build_open();
    if (!p.build) return hadal_fail(s, "memory", "no memory for a list of outputs", NULL);
    const int failed = make_all(s, line, &p);
    end_outputs();
    hadal_build_close(p.build);
    return failed;
}
