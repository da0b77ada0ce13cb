/* Collecting a profile: what the steps of an open library take in the calls of its session. */
#include "api/profile.h"

#include "api/stats.h"

profile *api_profile_new(hd_arena *a, const api_library *l, int threads) {
    const hd_info *info = l->info;
    profile *p = hd_new(a, profile);
    hd_info_step *steps = hd_new_array(a, hd_info_step, info->n_steps + 1);
    for (size_t i = 0; i < info->n_steps; i++) {
        steps[i] = info->steps[i];
        steps[i].name = hd_strdup(a, steps[i].name);
        steps[i].kind = hd_strdup(a, steps[i].kind);
        steps[i].scope = hd_strdup(a, steps[i].scope);
    }
    *p = (profile){.model = hd_strdup(a, info->name),
                   .cpu = hd_strdup(a, l->session_cpu(l->session)),
                   .machine = hd_strdup(a, l->session_machine(l->session)),
                   .threads = threads,
                   .n_steps = info->n_steps,
                   .max_chunk = info->max_chunk,
                   .steps = steps};
    for (int i = 0; i < PROFILE_PHASES; i++) {
        p->phases[i].steps = hd_new_array(a, step_time, info->n_steps + 1);
        p->phases[i].work = hd_new_array(a, step_work, info->n_steps + 1);
    }
    return p;
}

static profile_phase *phase_of(profile *p, int64_t n) {
    return &p->phases[n == 1 ? PROFILE_DECODE : PROFILE_PREFILL];
}

bool api_profile_start(profile *p, api_library *l, int64_t n) {
    profile_phase *phase = phase_of(p, n);
    const bool ok =
        api_library_ok(l, l->session_profile(l->session, phase->steps, p->n_steps), "profile");
    phase->seconds -= now(ON_THE_WALL);
    return ok;
}

void api_profile_end(profile *p, int64_t n, int64_t past) {
    profile_phase *phase = phase_of(p, n);
    phase->seconds += now(ON_THE_WALL);
    phase->calls++;
    phase->tokens += (uint64_t)n;
    const int64_t chunk = (int64_t)p->max_chunk;
    for (int64_t done = 0, part; done < n; done += part) {
        part = n - done < chunk ? n - done : chunk;
        for (size_t i = 0; i < p->n_steps; i++)
            step_work_add(&phase->work[i], step_work_of(&p->steps[i], part, past + done, part));
    }
}
