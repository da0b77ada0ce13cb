/* A compiled model that is divided over ranks: this process is one of an MPI job. */
#ifndef DRIVER_RANKS_H
#define DRIVER_RANKS_H

#include "driver/workplace.h"

typedef struct ranks {
    void *group, *library; /* NULL: the model is not divided */
    int (*close)(void *group, int64_t timeout_ns);
    int64_t timeout_ns;
    int rank, count;
    bool silent; /* another rank tells and writes what comes of it */
} ranks;

/* Was this process started by mpirun? */
bool is_in_job(void);
/* Joins the other processes of the job, and gives the session its exchanges. All but the first rank
 * are silent. */
int join_job(hadal_session *s, const command_line *line, ranks *out);
/* A model that is not divided exchanges nothing: options that say how are refused. */
int reject_rank_options(hadal_session *s, const command_line *line);
/* The same if what was compiled as `spec` is divided, over as many ranks as there are processes;
 * `files`, found for it, become those of the stage that this process has. The first rank that has
 * logits is the one that is not silent. */
int join_ranks(hadal_session *s, const command_line *line, const char *spec, compiled_files *files,
               ranks *out);
/* Leaves it; 1 if that went wrong, or if the command has failed: then the job ends without the
 * others being waited for. */
int leave_ranks(ranks *r, int failed);

#endif
