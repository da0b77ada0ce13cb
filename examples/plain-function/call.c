/* A hand-written .hir kernel, compiled and called as a plain function: y = rmsnorm(x) silu(g).
 *
 *   hadal compile examples/plain-function/swiglu_gate.hir -o out/gate
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gate.h"

enum { ROWS = 3, D = 64 };

int main(void) {
    static float x[ROWS][D], g[ROWS][D], y[ROWS][D];
    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < D; i++) {
            x[t][i] = (float)(i - 20 * t) / 8;
            g[t][i] = (float)(t + 1) * (float)(i % 7 - 3) / 4;
        }
    const size_t size = gate_work_size(ROWS);
    void *work = size ? aligned_alloc(GATE_ALIGN, size) : NULL;
    const int code = gate_call(ROWS, &x[0][0], &g[0][0], &y[0][0], work, size);
    free(work);
    if (code) {
        fprintf(stderr, "gate: %s\n", gate_strerror(code));
        return 1;
    }
    double worst = 0;
    for (int t = 0; t < ROWS; t++) {
        double squares = 0;
        for (int i = 0; i < D; i++)
            squares += (double)x[t][i] * x[t][i];
        for (int i = 0; i < D; i++) {
            const double expected =
                x[t][i] / sqrt(squares / D + 1e-6) * g[t][i] / (1 + exp(-g[t][i]));
            worst = fmax(worst, fabs(expected - y[t][i]));
        }
    }
    printf("largest difference from libm in double: %.2g\n", worst);
    return worst < 1e-5 ? 0 : 1;
}
