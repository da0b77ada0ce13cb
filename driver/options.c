/* Parsing of the command line, driven by the tables of commands and options. */
#include "driver/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/tables.h"

static const command_info commands[COMMAND_COUNT] = {
#define C(id, name, arguments, least, most, run, brief, text)                                      \
    {name, arguments, least, most, run, brief, text},
#include "driver/commands.def"
#undef C
};

const option_info option_table[OPTION_COUNT] = {
#define O(id, name, letter, argument, commands, help) {name, letter, argument, commands, help},
#include "driver/options.def"
#undef O
};

const command_info *command_at(command_id id) {
    return &commands[id];
}

bool command_named(const char *name, command_id *out) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) {
            *out = (command_id)i;
            return true;
        }
    return false;
}

const char *option_name(option_id id) {
    return option_table[id].name;
}

const char *option_get(const command_line *line, option_id id) {
    for (size_t i = line->n_options; i-- > 0;)
        if (line->options[i].id == id) return line->options[i].value;
    return NULL;
}

bool option_number(hadal_session *s, const command_line *line, option_id id, long long missing,
                   long long least, long long most, long long *out) {
    const char *text = option_get(line, id);
    *out = missing;
    if (!text) return true;
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && *out >= least && *out <= most) return true;
    char message[256];
    snprintf(message, sizeof message, "--%s takes a whole number from %lld to %lld, not \"%s\"",
             option_table[id].name, least, most, text);
    hadal_fail(s, "usage", message, NULL);
    return false;
}

static bool bad_list(hadal_session *s, option_id id, const char *text) {
    char message[512];
    snprintf(message, sizeof message,
             "--%s takes at most %d whole numbers separated by commas, "
             "not \"%.200s\"",
             option_table[id].name, OPTION_NUMBERS, text);
    hadal_fail(s, "usage", message, NULL);
    return false;
}

bool option_numbers(hadal_session *s, const command_line *line, option_id id, const char *missing,
                    option_number_list *out) {
    const char *given = option_get(line, id), *text = given ? given : missing;
    out->n = 0;
    for (const char *at = text; *at;) {
        char *end;
        const long long v = strtoll(at, &end, 10);
        const bool last = *end == 0;
        if (end == at || (!last && *end != ',') || v < 0 || v > 1LL << 40 ||
            out->n == OPTION_NUMBERS)
            return bad_list(s, id, text);
        out->at[out->n++] = v;
        at = end + !last;
        if (!last && !*at) return bad_list(s, id, text);
    }
    return true;
}

bool option_decimal(hadal_session *s, const command_line *line, option_id id, double missing,
                    double least, double most, double *out) {
    const char *text = option_get(line, id);
    *out = missing;
    if (!text) return true;
    char *end;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= least && *out <= most) return true;
    char message[256];
    snprintf(message, sizeof message, "--%s takes a number from %g to %g, not \"%.100s\"",
             option_table[id].name, least, most, text);
    hadal_fail(s, "usage", message, NULL);
    return false;
}

bool option_json(hadal_session *s, const command_line *line, option_id id, bool *json) {
    const char *text = option_get(line, id);
    *json = text && strcmp(text, "json") == 0;
    if (!text || !*text || *json) return true;
    char message[256];
    snprintf(message, sizeof message, "--%s is printed as text or as json, not as \"%s\"",
             option_table[id].name, text);
    hadal_fail(s, "usage", message, NULL);
    return false;
}

/* Number of single-character edits between two words, for "did you mean". */
static size_t distance(const char *a, const char *b) {
    size_t row[64];
    const size_t n = strlen(a), m = strlen(b);
    if (n >= 64 || m >= 64) return 64;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[m];
}

void no_such_command(const char *name) {
    const char *near = NULL;
    size_t best = 3;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const size_t d = distance(name, commands[i].name);
        if (d < best) best = d, near = commands[i].name;
    }
    fprintf(stderr, "hadal: there is no command \"%s\"\n", name);
    if (near) fprintf(stderr, "  hint: did you mean \"%s\"?\n", near);
    fprintf(stderr, "  `hadal help` lists the commands\n");
}

static int usage_error(const command_line *line, const char *text) {
    const command_info *c = &commands[line->command];
    fprintf(stderr, "hadal %s: %s\n  usage: hadal %s%s%s\n", c->name, text, c->name,
            *c->arguments ? " " : "", c->arguments);
    return EXIT_USAGE;
}

/* The option with the most similar name, among those that `command` takes or, if `takes` is false,
 * those that it does not take; -1: no name is similar. */
static int nearest_option(const char *name, command_id command, bool takes) {
    size_t best = strlen(name) / 3 + 1;
    int near = -1;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const bool has = option_table[i].commands & (1u << command);
        const size_t d = has == takes ? distance(name, option_table[i].name) : SIZE_MAX;
        if (d < best) best = d, near = i;
    }
    return near;
}

/* Reports "--NAME", "--NAME=VALUE" or "-N" that the command does not take. */
static int no_such_option(const command_line *line, const char *given) {
    const command_id command = line->command;
    char name[64], text[256];
    snprintf(text, sizeof text, "there is no option \"%s\"", given);
    const int code = usage_error(line, text);
    if (strncmp(given, "--", 2) != 0) return code;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given + 2, "="), given + 2);
    const int own = nearest_option(name, command, true);
    const int other = nearest_option(name, command, false);
    if (own >= 0 && (other < 0 || distance(name, option_table[own].name) <=
                                      distance(name, option_table[other].name)))
        fprintf(stderr, "  hint: did you mean \"--%s\"?\n", option_table[own].name);
    else if (other >= 0) {
        fprintf(stderr, "  hint: --%s is an option of", option_table[other].name);
        for (int i = 0; i < COMMAND_COUNT; i++)
            if (option_table[other].commands & (1u << i)) fprintf(stderr, " %s", commands[i].name);
        fputs("\n", stderr);
    }
    return code;
}

/* Makes getopt's two descriptions of the options that a command takes. */
static void describe(command_id command, struct option *list, char *letters) {
    size_t n = 0;
    *letters++ = ':'; /* makes getopt report missing arguments and unknown options separately */
    for (int i = 0; i < OPTION_COUNT; i++) {
        const option_info *o = &option_table[i];
        if (!(o->commands & (1u << command))) continue;
        const int argument = argument_is_optional(o) ? optional_argument
                             : o->argument           ? required_argument
                                                     : no_argument;
        list[n++] = (struct option){o->name, argument, NULL, LONG_OPTION + i};
        if (!o->letter) continue;
        *letters++ = o->letter;
        if (o->argument) *letters++ = ':';
        if (argument == optional_argument) *letters++ = ':';
    }
    list[n] = (struct option){0};
    *letters = 0;
}

static option_id by_letter(int letter) {
    int i = 0;
    while (i < OPTION_COUNT && option_table[i].letter != letter)
        i++;
    return (option_id)i;
}

int parse_command_line(int argc, char **argv, command_line *line) {
    memset(line, 0, sizeof *line);
    if (!command_named(argv[1], &line->command)) {
        no_such_command(argv[1]);
        return EXIT_USAGE;
    }
    line->options = calloc((size_t)argc, sizeof *line->options);
    line->positional = calloc((size_t)argc, sizeof *line->positional);
    if (!line->options || !line->positional) {
        fprintf(stderr, "hadal: out of memory\n");
        return 3;
    }

    struct option list[OPTION_COUNT + 1];
    char letters[3 * OPTION_COUNT + 2];
    describe(line->command, list, letters);
    optind = 1;
    int got;
    while ((got = getopt_long(argc - 1, argv + 1, letters, list, NULL)) != -1) {
        if (got == '?') return no_such_option(line, argv[optind]);
        if (got == ':') {
            char text[256];
            snprintf(text, sizeof text, "an argument is missing after \"%s\"", argv[optind]);
            return usage_error(line, text);
        }
        const option_id id = got >= LONG_OPTION ? (option_id)(got - LONG_OPTION) : by_letter(got);
        line->options[line->n_options++] = (option_value){id, optarg ? optarg : ""};
    }
    for (int i = optind; i < argc - 1; i++)
        line->positional[line->n_positional++] = argv[i + 1];

    const command_info *c = &commands[line->command];
    if (option_given(line, OPTION_HELP)) return 0;
    if (line->n_positional < c->least) return usage_error(line, "an argument is missing");
    if (line->n_positional > c->most) return usage_error(line, "there is an argument too many");
    return 0;
}

void free_command_line(command_line *line) {
    free(line->options);
    free(line->positional);
}
