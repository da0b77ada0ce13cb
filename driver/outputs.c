#include "driver/outputs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "driver/tables.h"
#include "driver/workspace.h"

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* ---- outputs --------------------------------------------------------------------------------- */

typedef struct output {
    const char *path;
    struct stat file, folder; /* the file that is there, and what it is in */
} output;

static bool find_folder(const char *path, output *out) {
    char folder[PATH_SIZE];
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)n, path);
    return stat(n ? folder : ".", &out->folder) == 0;
}

/* Is there such a file? What is no file, such as a pipe, is not replaced. */
static bool find_output(const char *path, output *out) {
    out->path = path;
    return stat(path, &out->file) == 0 && S_ISREG(out->file.st_mode) && find_folder(path, out);
}

/* The path of the option's output; NULL: the option has none here. */
static const char *output_of(const command_line *line, const option_value *o) {
    const bool names_no_file = line->command == COMMAND_COMPILE || line->command == COMMAND_TRAIN;
    switch (o->id) {
    case OPTION_OUTPUT: return names_no_file ? NULL : o->value;
    case OPTION_PROFILE: return line->command == COMMAND_REPORT ? NULL : o->value;
    case OPTION_LOGITS:
    case OPTION_HIDDEN:
    case OPTION_TRACE_DEPTH:
    case OPTION_TAPS_OUT:
    case OPTION_LOSSES:
    case OPTION_BY_DEPTH:
    case OPTION_MIXING_MATRIX:
    case OPTION_HEATMAP: return o->value;
    default: return NULL;
    }
}

static int cannot(hadal_session *s, const char *path, const char *why, const char *hint) {
    char message[PATH_SIZE + 64];
    snprintf(message, sizeof message, "'%.4300s' %s", path, why);
    return hadal_fail(s, "usage", message, hint);
}

/* Texts may go to standard output, "-"; what has numbers, or is a folder, is a file of some name. */
static int reject_dash(hadal_session *s, const command_line *line) {
    const unsigned texts = OPT | IMPORT | INSPECT | DIFF | REPORT | MACHINE | PLAN;
    for (size_t i = 0; i < line->n_options; i++) {
        const option_value *o = &line->options[i];
        const bool text = o->id == OPTION_OUTPUT && (texts & (1u << line->command));
        const bool out = o->id == OPTION_OUTPUT || output_of(line, o);
        if (out && !text && strcmp(o->value, "-") == 0)
            return cannot(s, o->value, "is no standard output here",
                          "give the output a name; ./- is a file called -");
    }
    return 0;
}

/* ---- endings --------------------------------------------------------------------------------- */

/* The ending of what the option writes, as help has it: of "OUT.npy", or of "SPEC -o FILE.html" for -o;
 * NULL: it has none, or several. */
static const char *ending_of(const command_line *line, option_id id) {
    const char *argument = option_table[id].argument;
    if (id == OPTION_OUTPUT && line->command == COMMAND_REPORT && option_given(line, OPTION_JSON))
        return ".json";
    if (id == OPTION_OUTPUT) {
        argument = strstr(command_at(line->command)->arguments, "-o ");
        argument = argument ? argument + strlen("-o ") : NULL;
    }
    if (!argument || *argument == '[' || strchr(argument, '|')) return NULL;
    return strrchr(argument, '.');
}

/* Rejects a file whose name says that it holds something else than it would: who reads it goes by that.
 * Other endings, and none, are the caller's own. */
static int reject_ending(hadal_session *s, const command_line *line) {
    static const char *const known[] = {".npy",  ".safetensors", ".svg",   ".json",
                                        ".html", ".hir",         ".hadal", ".weights"};
    for (size_t i = 0; i < line->n_options; i++) {
        const char *path = output_of(line, &line->options[i]);
        const char *ending = path ? ending_of(line, line->options[i].id) : NULL;
        char message[96];
        if (!ending || ends_with(path, ending)) continue;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            if (!ends_with(path, known[k])) continue;
            snprintf(message, sizeof message, "is no name for what --%s writes: %s",
                     option_name(line->options[i].id), ending);
            return cannot(s, path, message, "name it by what it holds");
        }
    }
    return 0;
}

/* Do both name one file, which may not be there yet? */
static bool is_one_file(const char *a, const char *b) {
    output x, y;
    struct stat there;
    if (stat(a, &there) == 0 && !S_ISREG(there.st_mode)) return false; /* /dev/null, a pipe */
    const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
    name_a = name_a ? name_a + 1 : a, name_b = name_b ? name_b + 1 : b;
    if (!find_folder(a, &x) || !find_folder(b, &y)) return strcmp(a, b) == 0;
    if (is_same(&x.folder, &y.folder) && strcmp(name_a, name_b) == 0) return true;
    return find_output(a, &x) && find_output(b, &y) && is_same(&x.file, &y.file);
}

/* Rejects two outputs in one file, of which the later one would replace the other. */
static int reject_same(hadal_session *s, const command_line *line) {
    for (size_t i = 0; i < line->n_options; i++) {
        const option_value *a = &line->options[i];
        const char *path = output_of(line, a);
        for (size_t j = 0; path && *path && j < i; j++) {
            const option_value *b = &line->options[j];
            const char *other = a->id != b->id ? output_of(line, b) : NULL;
            char message[96];
            if (!other || !is_one_file(path, other)) continue;
            snprintf(message, sizeof message, "is where both --%s and --%s go", option_name(b->id),
                     option_name(a->id));
            return cannot(s, path, message, "give each output a name of its own");
        }
    }
    return 0;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static bool ends_with_any(const char *path, const char *const *ends, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ends_with(path, ends[i])) return true;
    return false;
}

/* Does a command that reads a model folder read the file's weights? Of several files of weights that
 * one is read which has the usual name. */
static bool reads_weights(const command_line *line, const char *folder, const char *file) {
    char single[PATH_SIZE];
    struct stat there;
    if (line->command == COMMAND_INIT_WEIGHTS || option_given(line, OPTION_WEIGHTS)) return false;
    const int n = snprintf(single, sizeof single, "%s/model.safetensors", folder);
    if (n < 0 || (size_t)n >= sizeof single || stat(single, &there) != 0) return true;
    return ends_with(file, "model.safetensors");
}

/* Is the file one of those that are read of a model folder, or of a run? */
static bool is_read_of(const command_line *line, const char *folder, const char *file) {
    static const char *const ends[] = {
        "config.json", "model.hir",  "run.json",   "tokenizer.json", "tiktoken.model",
        "log.jsonl",   "vocab.json", "merges.txt", "updates.json",   ".jinja"};
    static const char *const weights[] = {".safetensors", ".safetensors.index.json"};
    if (ends_with_any(file, weights, sizeof weights / sizeof *weights))
        return reads_weights(line, folder, file);
    return ends_with_any(file, ends, sizeof ends / sizeof *ends);
}

/* Would the output replace what `path` names, or a part of it? */
static bool replaces(const command_line *line, const output *out, const char *path) {
    struct stat in;
    if (stat(path, &in) != 0) return false;
    if (S_ISDIR(in.st_mode)) return is_same(&out->folder, &in) && is_read_of(line, path, out->path);
    return is_same(&out->file, &in);
}

static bool replaces_compiled(const command_line *line, const output *out, const char *spec) {
    compiled_files files;
    char name[256];
    if (!find_compiled_stages(spec, &files, name, sizeof name)) return false;
    bool any = replaces(line, out, files.library) || replaces(line, out, files.weights);
    for (int i = 1; i < files.stages && find_stage(spec, i, &files); i++)
        any |= replaces(line, out, files.library) || replaces(line, out, files.weights);
    return any;
}

/* What stands before `end` in the text: "FILE" of "FILE.safetensors:TENSOR". */
static bool replaces_before(const command_line *line, const output *out, const char *text,
                            char end) {
    char path[PATH_SIZE];
    const char *at = end == ':' ? strrchr(text, end) : strchr(text, end);
    snprintf(path, sizeof path, "%.*s", at ? (int)(at - text) : PATH_SIZE - 1, text);
    return replaces(line, out, path) || replaces(line, out, text);
}

static bool replaces_value(const command_line *line, const output *out, const option_value *o) {
    switch (o->id) {
    case OPTION_WEIGHTS:
    case OPTION_PROMPT_FILE:
    case OPTION_TOKENIZER: return replaces(line, out, o->value);
    case OPTION_AGAINST:
        return replaces(line, out, o->value) || replaces_compiled(line, out, o->value);
    case OPTION_PROFILE: return line->command == COMMAND_REPORT && replaces(line, out, o->value);
    case OPTION_TOKENS:
    case OPTION_TARGETS:
    case OPTION_DATA:
    case OPTION_EVAL_DATA: return replaces_before(line, out, o->value, ':');
    case OPTION_HOST: return replaces_before(line, out, o->value, ',');
    default: return false;
    }
}

static bool replaces_any(const command_line *line, const output *out) {
    /* what follows the file of reduce is a command */
    const size_t n = line->command == COMMAND_REDUCE ? 1 : line->n_positional;
    for (size_t i = 0; i < n && i < line->n_positional; i++)
        if (replaces(line, out, line->positional[i]) ||
            replaces_compiled(line, out, line->positional[i]))
            return true;
    for (size_t i = 0; i < line->n_options; i++)
        if (replaces_value(line, out, &line->options[i])) return true;
    return false;
}

static int reject_replacing(hadal_session *s, const command_line *line) {
    output out;
    for (size_t i = 0; i < line->n_options; i++) {
        const char *path = output_of(line, &line->options[i]);
        if (!path || !*path || !find_output(path, &out) || !replaces_any(line, &out)) continue;
        return cannot(s, path, "is read here, and would be replaced",
                      "give the output another name");
    }
    return 0;
}

/* ---- places ---------------------------------------------------------------------------------- */

static int cannot_write(hadal_session *s, const char *path, int error) {
    const char *hint = error == ENOENT    ? "the folder does not exist; create it first"
                       : error == ENOTDIR ? "a part of this path is a file"
                       : error == EISDIR  ? "name a file, this is a folder"
                                          : NULL;
    char message[PATH_SIZE + 64];
    snprintf(message, sizeof message, "cannot write '%.4300s': %s", path, strerror(error));
    return hadal_fail(s, "io", message, hint);
}

/* Rejects an output for which there is no place, and not only when all work has been done. */
static int reject_place(hadal_session *s, const command_line *line) {
    for (size_t i = 0; i < line->n_options; i++) {
        const char *path = output_of(line, &line->options[i]);
        output out;
        if (!path || !*path || strcmp(path, "-") == 0) continue;
        if (!find_folder(path, &out)) return cannot_write(s, path, errno);
        if (stat(path, &out.file) == 0 && S_ISDIR(out.file.st_mode))
            return cannot_write(s, path, EISDIR);
    }
    return 0;
}

int check_outputs(hadal_session *s, const command_line *line) {
    return reject_dash(s, line) || reject_place(s, line) || reject_replacing(s, line) ||
           reject_same(s, line) || reject_ending(s, line);
}
