/* Where compiled models lie: those of the user, and those that a command makes for its own use. */
#ifndef DRIVER_WORKSPACE_H
#define DRIVER_WORKSPACE_H

#include "driver/options.h"

enum { PATH_SIZE = 4400 };

typedef struct compiled_files {
    char library[PATH_SIZE], weights[PATH_SIZE];
    int stages; /* number of pipeline stages, if the files are one of them; 0: they are not */
} compiled_files;

bool is_file(const char *path);
bool ends_with(const char *text, const char *end);

/* Finds the files of a compiled model from DIR/NAME or DIR/libNAME.so, and puts its name into
 * `name`; false: there is no such model. */
bool find_compiled(const char *spec, compiled_files *out, char *name, size_t size);
/* As find_compiled, or DIR/NAME of a pipeline, which has a library for each stage, NAME_s0 and so
 * on: the files of the first stage. */
bool find_compiled_stages(const char *spec, compiled_files *out, char *name, size_t size);
/* Finds the files of one pipeline stage, of a pipeline with as many stages as `of` says. */
bool find_stage(const char *spec, int stage, compiled_files *of);

/* Rejects options that say how a model is compiled, since this one has been compiled already. */
int reject_spec_options(hadal_session *s, const command_line *line);

typedef struct workspace { /* a temporary directory for a compiled model called "model" */
    char dir[4096];
    compiled_files files;
} workspace;

int make_workspace(hadal_session *s, workspace *w);
void remove_workspace(const workspace *w); /* does nothing if none was made */
/* Compiles the session's model, after its passes. Code for this machine is enough, unless a CPU
 * level is requested. */
int build_library(hadal_session *s, const command_line *line, const compiled_files *out);

#endif
