#define LANES 4
#define FORM  hcg_quantise_plain
#include "codegen/weights/lanes/quantise.h"
