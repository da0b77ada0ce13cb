/* The floating-point environment of kernels.
 *
 * Kernels run in the default environment (round to nearest, no exception traps) but with denormals
 * treated as zero, since a denormal operand costs a hundred cycles. Each thread that runs kernels
 * enters this mode, and its earlier settings are restored afterwards, in the threads of OpenMP's
 * pool too. */
#ifndef HRT_FP_MODE_H
#define HRT_FP_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
typedef unsigned hrt_fp_mode;
enum { HRT_MXCSR_KERNEL = 0x1f80 | 0x8040 }; /* all exceptions masked; FTZ and DAZ */
static inline hrt_fp_mode hrt_fp_enter(void) {
    hrt_fp_mode old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(HRT_MXCSR_KERNEL);
    return old;
}
static inline void hrt_fp_leave(hrt_fp_mode old) {
    __builtin_ia32_ldmxcsr(old);
}
#elif defined(__aarch64__)
typedef uint64_t hrt_fp_mode;
static inline hrt_fp_mode hrt_fp_enter(void) {
    hrt_fp_mode old, kernel = 1u << 24; /* FZ */
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(kernel));
    return old;
}
static inline void hrt_fp_leave(hrt_fp_mode old) {
    __asm__ volatile("msr fpcr, %0" : : "r"(old));
}
#else
typedef int hrt_fp_mode;
static inline hrt_fp_mode hrt_fp_enter(void) {
    return 0;
}
static inline void hrt_fp_leave(hrt_fp_mode old) {
    (void)old;
}
#endif

#endif
