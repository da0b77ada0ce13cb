#if defined(__x86_64__)
#define LANES 8
#define FORM  hcg_quantise_avx2
#include "codegen/weights/lanes/quantise.h"
#endif
