/* A build: files of one directory that are useful only together, such as a library, its header and
 * its weights.
 *
 * Each is written to a temporary of its own, as every output is (file.h), and waits for the
 * others. What builds that were killed have left of such in the directory is removed with the
 * earlier files. All of them are renamed together: under a lock of the directory, and after
 * everything that an earlier build has left under these names is gone. So two processes that make
 * one build at the same time leave the files of one of them, and a process that is killed leaves
 * all of its files, or none that could be mistaken for a whole build: never files of two builds.
 * Where a file system has no locks for directories (some network file systems), only processes
 * that do not overlap in time are kept from mixing their files. */
#ifndef HD_BUILD_H
#define HD_BUILD_H

#include "support/diag.h"
#include "support/scratch.h"

typedef struct hd_build hd_build;

hd_build *hd_build_new(void);    /* NULL: no memory */
void hd_build_free(hd_build *b); /* what has not been published is removed; NULL is allowed */

/* Names a file that an earlier build may have left and that is removed when this build appears; for
 * NAME.weights also the shares of ranks, NAME.r0of4.weights and so on. False: no memory. */
bool hd_build_replaces(hd_build *b, const char *path);
/* Removes these files now: from here on a failure leaves nothing that looks fresh. */
void hd_build_remove_earlier(hd_build *b);

/* Adds a file that is complete under the name `temporary`, with the scratch directory that holds
 * it, which is the build's from then on. False: no memory. The targets appear in the order in
 * which files are added, but libraries after all others: without a library nothing runs. */
bool hd_build_add(hd_build *b, hd_scratch *scratch, const char *temporary, const char *target);
/* Gives all files their names. If one cannot be renamed: false, a diagnostic, and none of them
 * remains. */
bool hd_build_publish(hd_build *b, hd_diags *d);

#endif
