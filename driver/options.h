/* The command line: commands.def and options.def, and everything derived from them. */
#ifndef DRIVER_OPTIONS_H
#define DRIVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "hadal/hadal.h"

typedef enum command_id {
#define C(id, name, arguments, least, most, run, brief, text) COMMAND_##id,
#include "driver/commands.def"
#undef C
    COMMAND_COUNT
} command_id;

typedef enum option_id {
#define O(id, name, letter, argument, commands, help) OPTION_##id,
#include "driver/options.def"
#undef O
    OPTION_COUNT
} option_id;

typedef struct option_value { /* one option given on the command line; they are in order */
    option_id id;
    const char *value;
} option_value;

typedef struct command_line {
    command_id command;
    const char **positional;
    size_t n_positional;
    option_value *options;
    size_t n_options;
} command_line;

enum { EXIT_USAGE = 2 };

typedef int command_fn(hadal_session *s, const command_line *line);

typedef struct command_info {
    const char *name, *arguments;
    size_t least, most;
    command_fn *run;
    const char *brief, *text;
} command_info;
const command_info *command_at(command_id id); /* its row of commands.def */

const char *option_name(option_id id); /* without the dashes */
/* The last value of an option ("" for flags), or NULL if it was not given. */
const char *option_get(const command_line *line, option_id id);
static inline bool option_given(const command_line *line, option_id id) {
    return option_get(line, id) != NULL;
}
/* A whole number within bounds; false and an error in `s` otherwise. `missing` when not given. */
bool option_number(hadal_session *s, const command_line *line, option_id id, long long missing,
                   long long least, long long most, long long *out);

/* Parses "1,16,128": whole numbers from 0 on, none in an empty text; `missing` when not given. */
enum { OPTION_NUMBERS = 16 }; /* the most numbers in one option */
typedef struct option_number_list {
    int64_t at[OPTION_NUMBERS];
    size_t n;
} option_number_list;
bool option_numbers(hadal_session *s, const command_line *line, option_id id, const char *missing,
                    option_number_list *out);

/* A decimal number within bounds; otherwise as option_number. */
bool option_decimal(hadal_session *s, const command_line *line, option_id id, double missing,
                    double least, double most, double *out);

/* Does an option with the argument "[=json]" request JSON? False, and an error in `s`, if its value
 * is neither text nor json. */
bool option_json(hadal_session *s, const command_line *line, option_id id, bool *json);

/* Fills `line` from argv (argv[1] is the command). 0, or an exit code with the error printed. */
int parse_command_line(int argc, char **argv, command_line *line);
void free_command_line(command_line *line); /* frees arrays only: the texts are those of argv */

void print_usage(FILE *out); /* prints the list of commands */
void print_command_help(FILE *out, command_id id);
void print_completion(FILE *out);
void print_man_page(FILE *out);
bool command_named(const char *name, command_id *out);
void no_such_command(const char *name); /* reports an unknown command, with the most similar one */

#endif
