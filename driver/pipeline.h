/* From command-line options to a pipeline of passes: shared by compile, run, opt and inspect. */
#ifndef DRIVER_PIPELINE_H
#define DRIVER_PIPELINE_H

#include "driver/options.h"

/* Sets defines (-D, or another option of this kind) and include directories; call it before
 * anything is loaded. */
int apply_definitions(hadal_session *s, const command_line *line, option_id defines);
/* The same for the second of two models: what -D says is for both if it is a spec, and what
 * --against-define says is for this one alone. */
int define_second(hadal_session *s, const command_line *line, const char *path);
bool is_spec(const char *path); /* a text or folder that has parameters, by its name */
/* Loads SPEC and its weights, those of --weights or of the model folder. 0 on success. */
int load_model(hadal_session *s, const command_line *line, const char *name);
/* Makes a directory and those that contain it, as far as they do not exist. */
int make_folders(hadal_session *s, const char *dir);
/* Removes the folders that were made so and have nothing in them, as after a command that failed. */
void remove_empty_folders(void);
/* Makes a temporary directory in TMPDIR or /tmp; `dir` becomes its path, "" on failure. */
int make_temporary_folder(hadal_session *s, char *dir, size_t size);
const char *temporary_folder(void);            /* TMPDIR, or /tmp */
void remove_temporary_folder(const char *dir); /* the directory must be empty */
int make_pipeline(hadal_session *s, const command_line *line, hadal_pipeline *out);
/* For a loaded model that the evaluator runs: it takes only the types of weights from the passes. The
 * passes after those are for code alone, and need not run unless somebody looks at their output; kernel
 * IR has been through them. */
void stop_for_evaluator(hadal_session *s, hadal_pipeline *p);
/* Runs the pipeline, then prints remarks if they were requested (also after a failure). */
int run_pipeline(hadal_session *s, const command_line *line, const hadal_pipeline *p);
/* Prints the remarks from number `from` on, if remarks were requested. */
void print_remarks(hadal_session *s, const command_line *line, size_t from);
/* Writes text to the file of -o, or to standard output ("-" or no -o). */
int deliver_text(hadal_session *s, const command_line *line, const char *text);

#endif
