/* Where compiled models lie: those of the user, and those that a command makes for itself. */
#ifndef DRIVER_WORKPLACE_H
#define DRIVER_WORKPLACE_H

#include "driver/options.h"

enum { PATH_SIZE = 4400 };

typedef struct compiled_files {
    char library[PATH_SIZE], weights[PATH_SIZE];
    int stages; /* of a pipeline, of which these are one; 0: of none */
} compiled_files;

bool is_file(const char *path);
bool ends_with(const char *text, const char *end);

/* DIR/NAME or DIR/libNAME.so of a compiled model, whose name is put into `name`; false: it is none.
 */
bool find_compiled(const char *spec, compiled_files *out, char *name, size_t size);
/* The same, or DIR/NAME of a pipeline, a library for each of its stages, NAME_s0 and so on: the
 * first of them. */
bool find_compiled_stages(const char *spec, compiled_files *out, char *name, size_t size);
/* Those of one stage, of as many as `of` says. */
bool find_stage(const char *spec, int stage, compiled_files *of);

/* Options that say how a model is compiled; this one has been. */
int reject_spec_options(hadal_session *s, const command_line *line);

typedef struct workplace { /* a temporary folder for a compiled model called "model" */
    char dir[4096];
    compiled_files files;
} workplace;

int make_workplace(hadal_session *s, workplace *w);
void remove_workplace(const workplace *w); /* where one was made */
/* The session's model, after its passes. Code for this machine is enough, unless a level is
 * asked for. */
int build_library(hadal_session *s, const command_line *line, const compiled_files *out);

#endif
