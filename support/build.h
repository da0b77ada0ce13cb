/* A build: files of one folder that are of use together alone, such as a library, its header and its
 * weights.
 *
 * Each is written to a temporary of its own, as every output is (file.h), and waits for the others.
 * They get their names together: under a lock of the folder, after all that an earlier build has
 * left under these names is gone. So two processes that make one build at the same time leave the
 * files of one of them, and a process that is killed leaves all of its files, or none that could be
 * taken for a whole: never those of two builds. Where a file system has no locks for folders (some
 * network file systems), only processes of different times are kept apart. */
#ifndef HD_BUILD_H
#define HD_BUILD_H

#include "support/diag.h"

typedef struct hd_build hd_build;

hd_build *hd_build_new(void);    /* NULL: no memory */
void hd_build_free(hd_build *b); /* what has not been published is removed; NULL is allowed */

/* A file that an earlier build may have left and that goes when this one appears; of NAME.weights
 * also the shares of ranks, NAME.r0of4.weights and so on. False: no memory. */
bool hd_build_replaces(hd_build *b, const char *path);
/* Removes these now: from here on a failure leaves nothing that looks fresh. */
void hd_build_remove_earlier(hd_build *b);

/* A file that is complete under the name `temporary`. False: no memory. `target` appears in the
 * order in which files are added, libraries behind all others: without one nothing runs. */
bool hd_build_add(hd_build *b, const char *temporary, const char *target);
/* They appear. False, a diagnostic, and none of them, if one cannot. */
bool hd_build_publish(hd_build *b, hd_diags *d);

#endif
