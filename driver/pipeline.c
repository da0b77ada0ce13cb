/* From command-line options to a pipeline of passes. */
#include "driver/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/interrupt.h"
#include "driver/report.h"
#include "driver/workspace.h"

int apply_definitions(hadal_session *s, const command_line *line, option_id defines) {
    for (size_t i = 0; i < line->n_options; i++) {
        const option_value *o = &line->options[i];
        if (o->id == OPTION_INCLUDE && defines == OPTION_DEFINE && hadal_include_path(s, o->value))
            return 1;
        if (o->id != defines) continue;
        char name[128];
        const char *equals = strchr(o->value, '=');
        const size_t n = equals ? (size_t)(equals - o->value) : 0;
        if (n == 0 || n >= sizeof name)
            return hadal_fail(s, "usage",
                              defines == OPTION_DEFINE ? "-D takes NAME=VALUE"
                                                       : "--against-define takes NAME=VALUE",
                              defines == OPTION_DEFINE ? "for example -D layers=24"
                                                       : "for example --against-define layers=24");
        memcpy(name, o->value, n);
        name[n] = 0;
        if (hadal_define(s, name, equals + 1)) return 1;
    }
    return 0;
}

bool is_spec(const char *path) {
    compiled_files files;
    char name[256];
    return !ends_with(path, ".hir") && !ends_with(path, ".json") && !hadal_is_dumps(path) &&
           !find_compiled(path, &files, name, sizeof name);
}

int define_second(hadal_session *s, const command_line *line, const char *path) {
    return (is_spec(path) && apply_definitions(s, line, OPTION_DEFINE)) ||
           apply_definitions(s, line, OPTION_AGAINST_DEFINE);
}

int load_model(hadal_session *s, const command_line *line, const char *name) {
    report_step("reading the model");
    if (hadal_load(s, line->positional[0], name)) return 1;
    const char *weights = option_get(line, OPTION_WEIGHTS);
    return weights ? hadal_weights(s, weights) : 0;
}

/* Folders that make_folders has made, each after the one that it is in. What has no room here is
 * not removed. */
static char *made[64];
static size_t n_made;

static void note_folder(const char *path) {
    if (n_made < sizeof made / sizeof *made && (made[n_made] = strdup(path))) n_made++;
}

void remove_empty_folders(void) {
    for (; n_made > 0; free(made[n_made]))
        (void)rmdir(made[--n_made]); /* one that has files stays */
}

int make_folders(hadal_session *s, const char *dir) {
    char path[4096], message[4400];
    if (strlen(dir) >= sizeof path) return hadal_fail(s, "usage", "a path is too long", NULL);
    strcpy(path, dir);
    /* makes every prefix that ends before a slash, then the whole path */
    for (char *c = path;; c++) {
        if (*c && (*c != '/' || c == path)) continue;
        const char kept = *c;
        *c = 0;
        if (mkdir(path, 0777) == 0) {
            note_folder(path);
        } else if (errno != EEXIST) {
            snprintf(message, sizeof message, "the folder %s cannot be made: %s", path,
                     strerror(errno));
            return hadal_fail(s, "io", message, NULL);
        }
        if (!kept) return 0;
        *c = kept;
    }
}

const char *temporary_folder(void) {
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp ? tmp : "/tmp";
}

int make_temporary_folder(hadal_session *s, char *dir, size_t size) {
    char message[4400];
    snprintf(dir, size, "%.4000s/hadal-XXXXXX", temporary_folder());
    if (make_clean_folder(dir)) return 0;
    snprintf(message, sizeof message, "a temporary folder %s cannot be made: %s", dir,
             strerror(errno));
    dir[0] = 0;
    return hadal_fail(s, "io", message,
                      "TMPDIR names the folder in which it is made, /tmp otherwise");
}

void remove_temporary_folder(const char *dir) {
    rmdir(dir);
    forget_folder();
}

/* Bounds of an option's number, and its value if the option is not given. */
typedef struct bounds {
    long long least, most, missing;
} bounds;

static bool take_number(hadal_session *s, const command_line *line, option_id id, bounds b,
                        int64_t *out) {
    long long number;
    if (!option_number(s, line, id, b.missing, b.least, b.most, &number)) return false;
    *out = number;
    return true;
}

static bool take_text(hadal_session *s, const command_line *line, option_id id, bounds none,
                      const char **out) {
    (void)s, (void)none;
    *out = option_get(line, id);
    return true;
}

/* Reads the options of the table that belong to the passes. */
static bool take_options(hadal_session *s, const command_line *line, hadal_pipeline *out) {
#define TEXT(missing)                                                                              \
    { 0 }
#define DTYPE(rejection)                                                                           \
    { 0 }
#define STATE_DTYPE(rejection)                                                                     \
    { 0 }
#define WORD(rejection)                                                                            \
    { 0 }
#define TILES                                                                                      \
    { 0 }
#define BYTES                                                                                      \
    { 0 }
#define NUMBER(least, most, missing)                                                               \
    { least, most, missing }
#define T(...)
#define P(id, member, name, group, type, ...)                                                        \
    if (!_Generic(out->member, int64_t: take_number, const char *: take_text)(                     \
            s, line, OPTION_##id, (bounds)type, &out->member)) \
        return false;
#include "support/compile_options.def"
#undef P
    return true;
}

static bool read_remarks_form(hadal_session *s, const command_line *line, remarks_form *out) {
    static const char *const names[] = {"", "all", "json"};
    const char *text = option_get(line, OPTION_REMARKS);
    *out = REMARKS_GROUPED;
    for (int i = 0; text && i < 3; i++) {
        *out = (remarks_form)i;
        if (!strcmp(text, names[i])) return true;
    }
    if (!text) return true;
    char message[256];
    snprintf(message, sizeof message,
             "--remarks is printed as text, as text that leaves none out (all), or as json, not as "
             "\"%s\"",
             text);
    hadal_fail(s, "usage", message, NULL);
    return false;
}

int make_pipeline(hadal_session *s, const command_line *line, hadal_pipeline *out) {
    *out = (hadal_pipeline){
        .struct_size = sizeof *out,
        .passes = option_get(line, OPTION_PASS_LIST),
        .stop_after = option_get(line, OPTION_STOP_AFTER),
        .dump_dir = option_get(line, OPTION_DUMP_IR),
        .verify_each = option_given(line, OPTION_VERIFY),
        .check = option_given(line, OPTION_CHECK),
        .filter_passes = option_get(line, OPTION_FILTER_PASSES),
        .filter_ops = option_get(line, OPTION_FILTER_OPS),
        .event = option_given(line, OPTION_TIME) ? report_pass_time : NULL,
        .ledger = option_given(line, OPTION_REMARKS),
        .loss = option_given(line, OPTION_LOSS),
        .gradients = option_given(line, OPTION_GRADIENTS),
    };
    remarks_form form;
    if (!take_options(s, line, out) || !read_remarks_form(s, line, &form)) return 1;
    if (!option_given(line, OPTION_CHUNK)) out->chunk = 0; /* what is compiled decides */
    const char *level = option_get(line, OPTION_CPU_LEVEL);
    if (level && hadal_check_level(s, level)) return 1;
    return out->dump_dir ? make_folders(s, out->dump_dir) : 0;
}

void stop_for_evaluator(hadal_session *s, hadal_pipeline *p) {
    const bool looked_at = p->stop_after || p->dump_dir || p->check;
    if (!looked_at && strcmp(hadal_stage(s), "kernel") != 0) p->stop_after = "layout";
}

void print_remarks(hadal_session *s, const command_line *line, size_t from) {
    remarks_form form;
    if (option_given(line, OPTION_REMARKS) && read_remarks_form(s, line, &form))
        report_remarks(s, from, form);
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
    (void)report_text(text, strlen(text)); /* main reports a failed write */
    return 0;
}
