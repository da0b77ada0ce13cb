/* The command `hadal`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/interrupt.h"
#include "driver/outputs.h"
#include "driver/pipeline.h"
#include "driver/report.h"
#include "driver/together.h"

static bool is_flag(const char *arg, const char *a, const char *b) {
    return strcmp(arg, a) == 0 || strcmp(arg, b) == 0;
}

static void watch_outputs(const command_line *line) {
    static const int outputs[] = {OPTION_OUTPUT,      OPTION_LOGITS,  OPTION_HIDDEN,
                                  OPTION_TRACE_DEPTH, OPTION_PROFILE, OPTION_MIXING_MATRIX,
                                  OPTION_HEATMAP};
    const char *dumps = option_get(line, OPTION_DUMP_IR), *cache = getenv("HADAL_CODE_CACHE");
    catch_interrupts();
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (option_get(line, outputs[i])) clean_beside(option_get(line, outputs[i]));
    if (dumps) clean_in(dumps);
    if (cache && *cache) clean_in(cache);
}

static int check_colour(hadal_session *s, const command_line *line) {
    static const char *const words[] = {"auto", "always", "never"};
    const char *when = option_get(line, OPTION_COLOUR);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!when || strcmp(when, words[i]) == 0) return 0;
    char message[128];
    snprintf(message, sizeof message, "--color is auto, always or never, not \"%.60s\"", when);
    return hadal_fail(s, "usage", message, NULL);
}

static int run_command(const command_line *line) {
    hadal_session *s = hadal_open();
    if (!s) {
        fprintf(stderr, "hadal: out of memory\n");
        return 3;
    }
    watch_outputs(line);
    report_start(s, line);
    const int failed = check_colour(s, line) || check_together(s, line) || check_outputs(s, line) ||
                               apply_definitions(s, line, OPTION_DEFINE)
                           ? 1
                           : command_at(line->command)->run(s, line);
    const int code = report_diagnostics(s, line);
    hadal_close(s);
    if (code || failed) remove_empty_folders();
    return code ? code : failed;
}

static int run_line(int argc, char **argv) {
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

static int run_arguments(int argc, char **argv) {
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
    return run_line(argc, argv);
}

/* Closes a stream. An error now is one of a full disk, or of a network file system, that no write
 * has reported. A stream that is closed already is none, if nothing was to be written. */
static bool is_written(FILE *stream) {
    const bool lost = fflush(stream) != 0 || ferror(stream) != 0;
    return (fclose(stream) == 0 || errno == EBADF) && !lost;
}

/* Files that are opened must not get the number of a standard stream that the parent has closed: what
 * is said would be written into them. The other direction than that of the stream makes its use fail
 * as if it were closed. */
static void hold_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv) {
    hold_standard_streams();
    (void)signal(SIGCHLD,
                 SIG_DFL); /* the parent may have ignored it, but children are waited for */
    const int code = run_arguments(argc, argv);
    if (is_written(stdout)) return code;
    fprintf(stderr, "hadal: standard output cannot be written\n");
    return 3;
}
