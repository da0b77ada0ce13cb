#include "api/train/work.h"

#include <omp.h>

#include "api/machine.h"
#include "codegen/target/target.h"
#include "inspect/steps.h"
#include "support/clock.h"
#include "support/quota.h"

static void measure(train_work *w) {
    const double pause = 2; /* seconds */
    w->rates += machine_multiply_add_rate(w->threads, w->lanes);
    w->samples++;
    w->next = hd_seconds() + pause;
}

/* As many as a trainer has. */
static int threads_of(int wanted) {
    int most = omp_get_max_threads();
    if (hd_quota() < most) most = hd_quota();
    return wanted && wanted < most ? wanted : most;
}

static unsigned lanes_of(hd_arena *a, const char *name) {
    const hcg_level *level = hcg_level_named(hcg_arch(a, NULL), name);
    return level ? level->lanes : UINT32_MAX;
}

void train_work_begin(train_work *w, hd_arena *a, const hcg_program *p, int64_t context,
                      int threads, const char *level) {
    *w = (train_work){.p = p,
                      .flops = hd_new_array(a, double, (size_t)context + 1),
                      .threads = threads_of(threads),
                      .lanes = lanes_of(a, level)};
    measure(w);
}

static double flops_of(train_work *w, int64_t n) {
    if (w->flops[n] > 0) return w->flops[n];
    for (size_t i = 0; i < w->p->steps.n; i++) {
        const hd_info_step step = hcg_step_info(w->p, i);
        w->flops[n] += step_work_of(&step, n, 0, n).flops;
    }
    return w->flops[n];
}

void train_work_add(train_work *w, const int64_t *lengths, int64_t sequences, double seconds) {
    for (int64_t i = 0; i < sequences; i++)
        w->done += flops_of(w, lengths[i]);
    w->seconds += seconds;
    if (hd_seconds() >= w->next) measure(w);
}

double train_work_share(const train_work *w) {
    const double limit = w->samples > 0 ? w->rates / w->samples : 0;
    return limit > 0 && w->seconds > 0 ? w->done / w->seconds / limit : 0;
}
