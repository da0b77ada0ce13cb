/* The command `hadal`. */
#include <string.h>

#include "driver/commands.h"
#include "driver/report.h"

static bool is_flag(const char *arg, const char *a, const char *b) {
    return strcmp(arg, a) == 0 || strcmp(arg, b) == 0;
}

/* Defines and include folders belong to the session before anything is loaded. */
static int apply_definitions(hadal_session *s, const command_line *line) {
    for (size_t i = 0; i < line->n_options; i++) {
        const option_value *o = &line->options[i];
        if (o->id == OPTION_INCLUDE && hadal_include_path(s, o->value)) return 1;
        if (o->id != OPTION_DEFINE) continue;
        char name[128];
        const char *equals = strchr(o->value, '=');
        const size_t n = equals ? (size_t)(equals - o->value) : 0;
        if (n == 0 || n >= sizeof name)
            return hadal_fail(s, "usage", "-D takes NAME=VALUE", "for example -D layers=24");
        memcpy(name, o->value, n);
        name[n] = 0;
        if (hadal_define(s, name, equals + 1)) return 1;
    }
    return 0;
}

static int run_command(const command_line *line) {
    hadal_session *s = hadal_open();
    if (!s) {
        fprintf(stderr, "hadal: out of memory\n");
        return 3;
    }
    report_start(s, line);
    const int failed = apply_definitions(s, line) ? 1 : command_at(line->command)->run(s, line);
    const int code = report_diagnostics(s, line);
    hadal_close(s);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "hadal: standard output cannot be written\n");
        return 3;
    }
    return code ? code : failed;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (is_flag(argv[1], "--version", "-V")) {
        printf("hadal %s\n", hadal_version());
        return 0;
    }
    if (is_flag(argv[1], "--help", "-h")) {
        print_usage(stdout);
        return 0;
    }
    command_line line;
    int code = parse_command_line(argc, argv, &line);
    if (code == 0) {
        if (option_given(&line, OPTION_HELP))
            print_command_help(stdout, line.command);
        else
            code = run_command(&line);
    }
    free_command_line(&line);
    return code;
}
