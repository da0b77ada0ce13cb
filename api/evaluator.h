/* Evaluators of the loaded model, for commands that run it without code. */
#ifndef API_EVALUATOR_H
#define API_EVALUATOR_H

#include "api/session.h"
#include "ir/eval/eval.h"

/* Outputs that are added to those of the graph. */
typedef struct api_added {
    bool hidden, loss;
} api_added;

/* Adds them, and the chosen taps; false, and a diagnostic, if the model cannot have them. */
bool api_add_outputs(hadal_session *s, hir_module *m, api_added added);
/* An evaluator of the model, of all ranks and stages that the options divide it over. The passes
 * say how weights are rounded, and the options of the command how states are. NULL, and a
 * diagnostic, on failure. */
hir_eval *api_evaluator(hadal_session *s, api_added added);

#endif
