/* Help, man page and completion script, all of which are printed from the tables of commands and
 * options. */
#include <string.h>

#include "driver/commands.h"
#include "driver/tables.h"

static const struct {
    int code;
    const char *meaning;
    command_id only; /* print this command; COMMAND_COUNT: all of them */
} exit_codes[] = {
    {0, "everything worked", COMMAND_COUNT},
    {1, "the input is wrong: spec, IR text, config, weights", COMMAND_COUNT},
    {2, "the command line is wrong", COMMAND_COUNT},
    {3, "the machine or the file system failed: a file, memory, the linker, the target",
     COMMAND_COUNT},
    {4, "a defect in Hadal: a pass left an illegal module or changed an answer", COMMAND_COUNT},
    {130, "generate was ended by Ctrl-C", COMMAND_GENERATE},
    {130, "train was ended by Ctrl-C, after a checkpoint", COMMAND_TRAIN},
};

/* By option: the title of the group that begins with it. */
static const char *const titles[OPTION_COUNT] = {
#define O(id, name, letter, argument, commands, help)
#define G(first, title) [OPTION_##first] = (title),
#include "driver/options.def"
#undef O
};

/* The meaning of an option for one command, where it differs from the general help. */
static const struct {
    option_id option;
    command_id command;
    const char *help;
} own_words[] = {
#define O(id, name, letter, argument, commands, help)
#define W(id, command, help) {OPTION_##id, COMMAND_##command, help},
#include "driver/options.def"
#undef O
};

static const char *help_for(option_id option, command_id command) {
    for (size_t i = 0; i < sizeof own_words / sizeof *own_words; i++)
        if (own_words[i].option == option && own_words[i].command == command)
            return own_words[i].help;
    return option_table[option].help;
}

static const struct {
    command_id command;
    const char *line;
} examples[] = {
#define E(command, line) {COMMAND_##command, line},
#include "driver/examples.def"
#undef E
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

/* Prints text wrapped at 78 columns, each line after `indent` spaces. */
static void print_folded(FILE *out, const char *text, int indent) {
    int column = 0;
    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + n > 78) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%*s%.*s", column ? 1 : indent, "", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void print_option(FILE *out, const option_info *o, const char *help) {
    char head[80];
    snprintf(head, sizeof head, "%c%c%s --%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
             o->argument && !argument_is_optional(o) ? " " : "", o->argument ? o->argument : "");
    fprintf(out, "  %s\n", head);
    print_folded(out, help, 10);
}

void print_usage(FILE *out) {
    fprintf(out,
            "hadal %s: compiles language models that attend across depth to C libraries\n\n"
            "usage: hadal COMMAND [ARGUMENTS]\n\n",
            hadal_version());
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-14s %s\n", command_at((command_id)i)->name,
                command_at((command_id)i)->brief);
    fprintf(out, "\n`hadal COMMAND --help` explains one; `hadal --version` prints the version.\n");
}

static void print_examples(FILE *out, command_id id) {
    bool any = false;
    for (size_t i = 0; i < EXAMPLES; i++) {
        if (examples[i].command != id) continue;
        fprintf(out, "%s  %s\n", any ? "" : "\nfor example, in a clone:\n", examples[i].line);
        any = true;
    }
}

void print_command_help(FILE *out, command_id id) {
    const command_info *c = command_at(id);
    const char *title = NULL;
    fprintf(out, "usage: hadal %s%s%s [OPTIONS]\n\n", c->name, *c->arguments ? " " : "",
            c->arguments);
    print_folded(out, c->text, 0);
    print_examples(out, id);
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (titles[i]) title = titles[i];
        if (!(option_table[i].commands & (1u << id))) continue;
        if (title) fprintf(out, "\n%s:\n", title);
        title = NULL;
        print_option(out, &option_table[i], help_for((option_id)i, id));
    }
    fprintf(out, "\nexit codes:\n");
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++)
        if (exit_codes[i].only == COMMAND_COUNT || exit_codes[i].only == id)
            fprintf(out, "  %d  %s\n", exit_codes[i].code, exit_codes[i].meaning);
}

/* ---- man page -------------------------------------------------------------------------------- */

/* Prints text for troff, which takes '-' for a hyphen and a leading '.' for a request. */
static void print_troff(FILE *out, const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
}

static void print_man_option(FILE *out, const option_info *o, const char *help) {
    fprintf(out, ".TP\n");
    if (o->letter) fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    fprintf(out, "\\fB\\-\\-");
    print_troff(out, o->name);
    fprintf(out, "\\fR");
    if (o->argument) {
        fprintf(out, argument_is_optional(o) ? "\\fI" : " \\fI");
        print_troff(out, o->argument);
        fprintf(out, "\\fR");
    }
    fputc('\n', out);
    print_troff(out, help);
    fputc('\n', out);
}

static void print_man_command(FILE *out, command_id id) {
    const command_info *c = command_at(id);
    fprintf(out, ".SS ");
    print_troff(out, c->name);
    fprintf(out, "\n.B hadal ");
    print_troff(out, c->name);
    fputc(' ', out);
    print_troff(out, c->arguments);
    fprintf(out, "\n.PP\n");
    print_troff(out, c->text);
    fputc('\n', out);
    for (size_t i = 0; i < EXAMPLES; i++) {
        if (examples[i].command != id) continue;
        fputs(".PP\n.RS\n", out);
        print_troff(out, examples[i].line);
        fputs("\n.RE\n", out);
    }
    for (int i = 0; i < OPTION_COUNT; i++)
        if ((option_table[i].commands & (1u << id)) && option_table[i].commands != ALL)
            print_man_option(out, &option_table[i], help_for((option_id)i, id));
}

void print_man_page(FILE *out) {
    fprintf(out,
            ".TH HADAL 1 \"\" \"hadal %s\" \"User Commands\"\n"
            ".SH NAME\nhadal \\- compiles language models that attend across depth to C "
            "libraries\n.SH SYNOPSIS\n.B hadal\n.I COMMAND\n[arguments]\n.SH COMMANDS\n",
            hadal_version());
    for (int i = 0; i < COMMAND_COUNT; i++)
        print_man_command(out, (command_id)i);
    fprintf(out, ".SH OPTIONS OF EVERY COMMAND\n");
    for (int i = 0; i < OPTION_COUNT; i++)
        if (option_table[i].commands == ALL)
            print_man_option(out, &option_table[i], option_table[i].help);
    fprintf(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++) {
        fprintf(out, ".TP\n.B %d\n", exit_codes[i].code);
        print_troff(out, exit_codes[i].meaning);
        fputc('\n', out);
    }
    fprintf(out,
            ".SH ENVIRONMENT\n.TP\n.B CC\nthe C compiler that links, unless \\-\\-linker names "
            "one\n.TP\n.B TMPDIR\nwhere `hadal run` compiles to\n.TP\n.B HADAL_CODE_CACHE\na "
            "folder that keeps translated code for the next command; without it nothing is kept\n");
}

/* ---- completion ------------------------------------------------------------------------------ */

static void print_command_names(FILE *out) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "%s ", command_at((command_id)i)->name);
}

/* Prints the fixed words that an argument may be, those in lower case: "off" and "auto" of
 * "auto|off|TILES". Returns their number, also for `out` NULL. */
static int print_words(FILE *out, const char *argument) {
    int printed = 0;
    for (const char *at = argument; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789");
        if (n == 0 || (at[n] != '|' && at[n] != '\0')) continue;
        if (out) fprintf(out, "%.*s ", (int)n, at);
        printed++;
    }
    return printed;
}

/* Prints what may follow an option whose argument is one of a few words. */
static void print_word_cases(FILE *out) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        const option_info *o = &option_table[i];
        if (print_words(NULL, o->argument) == 0) continue;
        fprintf(out, "    --%s) COMPREPLY=($(compgen -W '", o->name);
        print_words(out, o->argument);
        fprintf(out, "' -- \"$word\")); return ;;\n");
    }
}

void print_completion(FILE *out) {
    fprintf(out, "# bash completion for hadal, made by `hadal completion bash`\n_hadal() {\n"
                 "    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}\n"
                 "    if [ \"$COMP_CWORD\" -eq 1 ] || [ \"$command\" = help ]; then\n"
                 "        COMPREPLY=($(compgen -W '");
    print_command_names(out);
    fprintf(out, "--version --help' -- \"$word\"))\n        return\n    fi\n"
                 "    case ${COMP_WORDS[COMP_CWORD - 1]} in\n");
    print_word_cases(out);
    fprintf(out,
            "    esac\n"
            "    case $word in -*) ;; *) COMPREPLY=($(compgen -f -- \"$word\")); return ;; esac\n"
            "    case $command in\n");
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "    %s) COMPREPLY=($(compgen -W '", command_at((command_id)c)->name);
        for (int i = 0; i < OPTION_COUNT; i++)
            if (option_table[i].commands & (1u << c)) fprintf(out, "--%s ", option_table[i].name);
        fprintf(out, "' -- \"$word\")) ;;\n");
    }
    fprintf(out, "    esac\n}\ncomplete -o filenames -F _hadal hadal\n");
}

int cmd_completion(hadal_session *s, const command_line *line) {
    if (strcmp(line->positional[0], "bash") != 0)
        return hadal_fail(s, "usage", "completion is there for bash only", NULL);
    print_completion(stdout);
    return 0;
}

int cmd_man(hadal_session *s, const command_line *line) {
    (void)s, (void)line;
    print_man_page(stdout);
    return 0;
}

int cmd_help(hadal_session *s, const command_line *line) {
    (void)s;
    command_id id;
    if (line->n_positional == 0) {
        print_usage(stdout);
        return 0;
    }
    if (!command_named(line->positional[0], &id)) {
        no_such_command(line->positional[0]);
        return EXIT_USAGE;
    }
    print_command_help(stdout, id);
    return 0;
}
