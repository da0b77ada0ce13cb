/* Gradients that have no code yet: lowering rejects a kernel of such a form and names its op. */
#include "codegen/program/forms.h"

const hcg_form hcg_form_attention_selected_grad = {0};
