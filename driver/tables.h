/* The table of options, for parsing and for all texts that are printed from it. */
#ifndef DRIVER_TABLES_H
#define DRIVER_TABLES_H

#include "driver/options.h"

enum { LONG_OPTION = 256 }; /* getopt's value of the first long option */

/* bits of commands, by the names that options.def uses */
enum command_bits {
#define C(id, name, arguments, least, most, run, brief, text) id = 1u << COMMAND_##id,
#include "driver/commands.def"
#undef C
    ALL = (1u << COMMAND_COUNT) - 1
};

typedef struct option_info {
    const char *name;
    char letter;
    const char *argument; /* NULL: the option takes none; "[=WORD]": it is optional */
    unsigned commands;
    const char *help;
} option_info;
extern const option_info option_table[OPTION_COUNT];

static inline bool argument_is_optional(const option_info *o) {
    return o->argument && *o->argument == '[';
}

#endif
