#include "driver/together.h"

#include "driver/tables.h"

/* What the passes read. Sets end with OPTION_COUNT. */
static const option_id of_passes[] = {
#define T(...)
#define P(id, ...) OPTION_##id,
#include "support/compile_options.def"
#undef P
    OPTION_COUNT};

enum relation { NEEDS_ONE, EXCLUDES_ALL };

static const struct row {
    unsigned commands;
    enum relation relation;
    const option_id *options, *others;
    const char *hint;
} rows[] = {
#define SET(...)                                  ((const option_id[]){__VA_ARGS__, OPTION_COUNT})
#define OF_PASSES                                 of_passes
#define NEEDS(commands, options, others, hint)    {commands, NEEDS_ONE, options, others, hint},
#define EXCLUDES(commands, options, others, hint) {commands, EXCLUDES_ALL, options, others, hint},
#include "driver/together.def"
#undef SET
#undef OF_PASSES
#undef NEEDS
#undef EXCLUDES
};

bool is_of_passes(option_id id) {
    static const option_id about[] = {OPTION_PASS_LIST,     OPTION_DUMP_IR,    OPTION_VERIFY,
                                      OPTION_CHECK,         OPTION_REMARKS,    OPTION_GRADIENTS,
                                      OPTION_FILTER_PASSES, OPTION_FILTER_OPS, OPTION_LOSS};
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        if (about[i] == id) return true;
    for (const option_id *o = of_passes; *o != OPTION_COUNT; o++)
        if (*o == id) return true;
    return false;
}

/* The first option of a set that is given; OPTION_COUNT: none. */
static option_id first_given(const command_line *line, const option_id *set) {
    while (*set != OPTION_COUNT && !option_given(line, *set))
        set++;
    return *set;
}

static int lacks(hadal_session *s, option_id option, const struct row *r) {
    char message[256];
    int n = snprintf(message, sizeof message, "--%s needs --%s", option_name(option),
                     option_name(r->others[0]));
    for (const option_id *o = r->others + 1; *o != OPTION_COUNT; o++)
        n += snprintf(message + n, sizeof message - (size_t)n, "%s--%s",
                      o[1] == OPTION_COUNT ? " or " : ", ", option_name(*o));
    return hadal_fail(s, "usage", message, r->hint);
}

static int clashes(hadal_session *s, option_id option, option_id other, const struct row *r) {
    char message[256];
    snprintf(message, sizeof message, "--%s does not go with --%s", option_name(option),
             option_name(other));
    return hadal_fail(s, "usage", message, r->hint);
}

int check_together(hadal_session *s, const command_line *line) {
    for (const struct row *r = rows; r < rows + sizeof rows / sizeof *rows; r++) {
        if (!(r->commands & (1u << line->command))) continue;
        const option_id option = first_given(line, r->options);
        const option_id other = first_given(line, r->others);
        if (option == OPTION_COUNT) continue;
        if (r->relation == NEEDS_ONE && other == OPTION_COUNT) return lacks(s, option, r);
        if (r->relation == EXCLUDES_ALL && other != OPTION_COUNT)
            return clashes(s, option, other, r);
    }
    return 0;
}
