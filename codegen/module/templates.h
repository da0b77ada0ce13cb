/* What the files that write the headers of libraries share: header.c, header_trainer.c. */
#ifndef HCG_TEMPLATES_H
#define HCG_TEMPLATES_H

#include "support/text.h"

/* How a head ends: its program, and what the function that does the work keeps to. */
#define HCG_HEAD_END(function)                                                                     \
    " *         return code;\n"                                                                    \
    " *     }\n"                                                                                   \
    " *\n"                                                                                         \
    " *     cc main.c -L. -l@name@ -Wl,-rpath,.\n"                                                 \
    " *\n"                                                                                         \
    " * Every function that can fail returns 0 or an error code. Nothing here prints, exits, or\n" \
    " * writes a global variable, and @name@_" function " allocates no memory. "

/* ---- header_trainer.c ------------------------------------------------------------------------ */
/* Templates of the header of a library of gradients, and texts for their marks. */
extern const char hcg_trainer_head[], hcg_trainer_functions[];
const char *hcg_step_part_names(hd_arena *a); /* of a step of the optimizer */
const char *hcg_update_texts(hd_arena *a);    /* of hadal_parameter.update */
const char *hcg_step_fields(hd_arena *a);     /* of the struct of a step's options, */
const char *hcg_step_defaults(hd_arena *a);   /* and its initializer */

#endif
