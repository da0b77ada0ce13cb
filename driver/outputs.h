/* Outputs of a command line, beside what it reads. */
#ifndef DRIVER_OUTPUTS_H
#define DRIVER_OUTPUTS_H

#include "driver/options.h"

/* Rejects a command line of which an output would replace a file that it reads (a spec, weights, a
 * library, a file of a model folder, data) or another output, is "-" where no text is written, or is
 * named as what it is not, or has no folder to be in. Not 0: there is an error, and nothing has been read. */
int check_outputs(hadal_session *s, const command_line *line);

#endif
