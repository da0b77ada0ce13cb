/* A compiled model that is divided over ranks, where this process is one rank of an MPI job. */
#ifndef DRIVER_RANKS_H
#define DRIVER_RANKS_H

#include "driver/workspace.h"

typedef struct ranks {
    void *group, *library; /* NULL: the model is not divided */
    int (*close)(void *group, int64_t timeout_ns);
    int64_t timeout_ns;
    int rank, count;
    bool silent; /* another rank prints and writes the results */
} ranks;

/* Was this process started by mpirun? */
bool is_in_job(void);
/* Joins the other processes of the job, and gives the session their communicator. All but the first
 * rank are silent. */
int join_job(hadal_session *s, const command_line *line, ranks *out);
/* Joins the other processes that train together, or that measure a machine, if there are any. */
int join_measuring(hadal_session *s, const command_line *line, ranks *out);
int join_training(hadal_session *s, const command_line *line, ranks *out);
/* Rejects options about communication for a model that is not divided, since it has none. */
int reject_rank_options(hadal_session *s, const command_line *line);
/* Joins the job if the model compiled as `spec` is divided, which must be over as many ranks as
 * there are processes. `files`, found for `spec`, become those of this process's pipeline stage.
 * The first rank that has logits is the one that is not silent. */
int join_ranks(hadal_session *s, const command_line *line, const char *spec, compiled_files *files,
               ranks *out);
/* Leaves the job; 1 if that failed, or if the command has failed: then the job ends without waiting
 * for the others. */
int leave_ranks(ranks *r, int failed);

#endif
