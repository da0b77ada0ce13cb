#include "api/train/profile.h"

#include "api/session.h"
#include "codegen/program/program.h"
#include "inspect/ledger.h"

static hd_info_step *steps_of(hd_arena *a, const hcg_program *p, size_t n) {
    hd_info_step *steps = hd_new_array(a, hd_info_step, n);
    for (size_t i = 0; i < n; i++)
        steps[i] = i < p->steps.n
                       ? hcg_step_info(p, i)
                       : (hd_info_step){.name = ledger_step_part_name((int)(i - p->steps.n)),
                                        .kind = "optimizer",
                                        .scope = "the step"};
    return steps;
}

bool train_profile_open(train_profile *x, const api_trainer *t, int64_t context, int threads) {
    hadal_session *s = t->s;
    const size_t n = s->program->steps.n + HRT_STEP_PARTS;
    *x = (train_profile){.of = hd_new(s->arena, profile),
                         .sequences = hd_new_array(s->arena, int64_t, (size_t)context + 1),
                         .longest = context};
    *x->of = (profile){.model = s->program->m->name,
                       .cpu = hd_strdup(s->arena, t->trainer_cpu(t->at)),
                       .machine = hd_strdup(s->arena, t->trainer_machine(t->at)),
                       .threads = threads,
                       .training = true,
                       .n_steps = n,
                       .max_chunk = (size_t)context,
                       .steps = steps_of(s->arena, s->program, n)};
    for (int i = 0; i < PROFILE_PHASES; i++) {
        x->of->phases[i].steps = hd_new_array(s->arena, step_time, n);
        x->of->phases[i].work = hd_new_array(s->arena, step_work, n);
    }
    s->profile = x->of;
    const int code = t->trainer_profile(t->at, x->of->phases[PROFILE_PREFILL].steps, n);
    train_profile_turn(x, t, false);
    return api_trainer_ok(t, code, "the profile");
}

void train_profile_turn(const train_profile *x, const api_trainer *t, bool on) {
    if (!x->of) return;
    (void)t->trainer_profile(t->at, on ? x->of->phases[PROFILE_PREFILL].steps : NULL,
                             on ? x->of->n_steps : 0);
}

void train_profile_add(train_profile *x, const int64_t *lengths, int64_t sequences,
                       double seconds) {
    if (!x->of) return;
    profile_phase *phase = &x->of->phases[PROFILE_PREFILL];
    for (int64_t i = 0; i < sequences; i++) {
        x->sequences[lengths[i]]++;
        phase->tokens += (uint64_t)lengths[i];
    }
    phase->seconds += seconds;
    phase->calls++;
    x->steps++;
}

/* The work of so many calls. */
static step_work times(step_work w, double n) {
    return (step_work){n * w.flops, n * w.bytes, n * w.state_bytes, n * w.touched, n * w.untouched};
}

void train_profile_close(train_profile *x, const hcg_program *p) {
    if (!x->of) return;
    step_work *work = x->of->phases[PROFILE_PREFILL].work;
    ledger_optimizer optimizer;
    ledger_optimizer_of(p, &optimizer);
    for (int64_t n = 1; n <= x->longest; n++)
        for (size_t i = 0; i < p->steps.n && x->sequences[n]; i++)
            step_work_add(&work[i],
                          times(step_work_of(&x->of->steps[i], n, 0, n), (double)x->sequences[n]));
    for (int i = 0; i < HRT_STEP_PARTS; i++) {
        const ledger_step_part *part = &optimizer.parts[i];
        const double bytes = (double)(part->each.read + part->each.written);
        work[p->steps.n + (size_t)i] =
            times((step_work){.flops = part->flops, .bytes = bytes}, (double)x->steps);
    }
}
