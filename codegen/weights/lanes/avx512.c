#if defined(__x86_64__)
#define LANES 16
#define FORM  hcg_quantise_avx512
#include "codegen/weights/lanes/quantise.h"
#endif
