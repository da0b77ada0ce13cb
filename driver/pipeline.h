/* From options to a pipeline: what compile, run, opt and inspect share. */
#ifndef DRIVER_PIPELINE_H
#define DRIVER_PIPELINE_H

#include "driver/options.h"

/* Defines (-D, or those of another option like it) and include folders; before anything is loaded.
 */
int apply_definitions(hadal_session *s, const command_line *line, option_id defines);
/* Loads SPEC, and gives it the weights of --weights (or of the folder). 0 on success. */
int load_model(hadal_session *s, const command_line *line, const char *name);
/* A folder and those it lies in, as far as they are missing. */
int make_folders(hadal_session *s, const char *dir);
/* A new folder below TMPDIR or /tmp; `dir` becomes its path, "" on failure. */
int make_temporary_folder(hadal_session *s, char *dir, size_t size);
void remove_temporary_folder(const char *dir); /* once it is empty */
int make_pipeline(hadal_session *s, const command_line *line, hadal_pipeline *out);
/* Runs it, then prints remarks if they are asked for (also after a failure). */
int run_pipeline(hadal_session *s, const command_line *line, const hadal_pipeline *p);
/* Where they are asked for: the remarks from number `from` on. */
void print_remarks(hadal_session *s, const command_line *line, size_t from);
/* Text to the file of -o, or to standard output ("-" or no -o). */
int deliver_text(hadal_session *s, const command_line *line, const char *text);

#endif
