/* Steps of an optimizer.
 *
 *     g = (sum of gradients) / count min(1, clip / norm)
 *     AdamW: m = beta1 m + (1 - beta1) g     v = beta2 v + (1 - beta2) g^2
 *            w -= learning_rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + decay w)
 *
 *     Muon:  muon.c
 *
 * decay is 0 for what is no matrix (updates.def). A step of AdamW goes through memory twice: for the
 * norm, in doubles, and for the update, which also leaves zeros in the gradients. Both are bound by
 * memory on every CPU, so this is plain C for the least of them: its bits are the same at every level.
 * Squares are summed in HRT_NORM_PARTS parts of each parameter, whatever the number of threads, and
 * the sums added in order. */
#include <inttypes.h>
#include <math.h>

#include "runtime/fp_mode.h"
#include "runtime/lanes.h"
#include "runtime/optimizer.h"

static const bool decays[HRT_UPDATES] = {
#define U(id, text, moments, decays, meaning) [HRT_UPDATE_##id] = (decays),
#include "runtime/updates.def"
#undef U
};

/* Of what this rank changes. */
static hrt_span share_of(const hrt_trainer *t, const hrt_parameter *p, int index, int count) {
    return hrt_share(hrt_mine_of(t, p), index, count);
}

/* ---- the norm -------------------------------------------------------------------------------- */
double hrt_squares(const float *x, size_t n) {
    typedef double wide __attribute__((vector_size(HRT_LANES * sizeof(double))));
    wide even = {0}, odd = {0};
    double sum = 0;
    size_t i = 0;
    for (; i + 2 * HRT_LANES <= n; i += 2 * HRT_LANES) {
        const wide a = __builtin_convertvector(hrt_get(x + i), wide);
        const wide b = __builtin_convertvector(hrt_get(x + i + HRT_LANES), wide);
        even += a * a;
        odd += b * b;
    }
    even += odd;
    for (int k = 0; k < HRT_LANES; k++)
        sum += even[k];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static void add_squares(void *context, int index, int count) {
    hrt_optimizer *s = context;
    const hrt_model *m = s->t->session.model;
    const hrt_fp_mode old = hrt_fp_enter();
    for (int part = index; part < HRT_NORM_PARTS; part += count) {
        s->sums[part] = 0;
        for (uint32_t i = 0; i < m->n_parameters; i++) {
            const hrt_span mine = share_of(s->t, &m->parameters[i], part, HRT_NORM_PARTS);
            s->sums[part] +=
                hrt_squares(s->t->views[i].gradient + mine.from, (size_t)(mine.to - mine.from));
        }
    }
    hrt_fp_leave(old);
    if (index == 0) hrt_watch_work(&s->watch, HRT_STEP_NORM);
}

/* The first gradient that is infinite or no number, of what this rank changes. */
static void find_infinite(const hrt_trainer *t, hrt_norm_part *out) {
    const hrt_model *m = t->session.model;
    for (uint32_t i = 0; i < m->n_parameters; i++) {
        const hrt_span mine = hrt_mine_of(t, &m->parameters[i]);
        for (int64_t k = mine.from; k < mine.to; k++) {
            out->value = t->views[i].gradient[k];
            if (isfinite(out->value)) continue;
            out->parameter = i, out->element = (uint64_t)k;
            return;
        }
    }
}

static int name_infinite(hrt_trainer *t, const hrt_norm_part *all) {
    hrt_session *s = &t->session;
    if (s->side.comm) t->spoilt = true; /* they are sums in part: another step would add again */
    if (all->parameter == s->model->n_parameters)
        return hrt_fail(s, HRT_FINITE, "the norm of the gradients is not finite");
    return hrt_fail(s, HRT_FINITE, "element %" PRIu64 " of the gradient of %.100s is %g",
                    all->element, s->model->parameters[all->parameter].name, (double)all->value);
}

/* Of the sums of gradients. */
static int find_norm(hrt_optimizer *s, double *norm) {
    hrt_trainer *t = s->t;
    hrt_norm_part all = {.parameter = t->session.model->n_parameters};
    hrt_watch_start(&s->watch);
    hrt_in_shares(hrt_workers(&t->session), add_squares, s);
    hrt_watch_wait(&s->watch, HRT_STEP_NORM);
    for (int i = 0; i < HRT_NORM_PARTS; i++)
        all.sum += s->sums[i];
    if (!isfinite(all.sum)) find_infinite(t, &all);
    const int code = hrt_sum_squares(t, &all);
    if (code != HRT_OK) return code;
    *norm = hrt_root_of(all.sum);
    return isfinite(all.sum) ? HRT_OK : name_infinite(t, &all);
}

/* ---- AdamW ----------------------------------------------------------------------------------- */
/* Numbers of a parameter, one array for each of these. */
enum { VALUE, GRADIENT, FIRST, SECOND, ARRAYS };

static inline void change(const hrt_optimizer *s, float keep, float *const at[ARRAYS]) {
    const hrt_lanes g = hrt_get(at[GRADIENT]) * s->scale;
    const hrt_lanes first = hrt_get(at[FIRST]) * s->beta1 + g * s->rest1;
    const hrt_lanes second = hrt_get(at[SECOND]) * s->beta2 + g * s->rest2 * g;
    const hrt_lanes by = hrt_root(second) * s->root + s->eps;
    hrt_put(at[VALUE], hrt_get(at[VALUE]) * keep - first * s->rate / by);
    hrt_put(at[GRADIENT], (hrt_lanes){0});
    hrt_put(at[FIRST], first);
    hrt_put(at[SECOND], second);
}

/* The last elements, fewer than there are lanes. */
static void change_rest(const hrt_optimizer *s, float keep, float *const at[ARRAYS], size_t n) {
    float copy[ARRAYS][HRT_LANES] = {0};
    float *const there[ARRAYS] = {copy[VALUE], copy[GRADIENT], copy[FIRST], copy[SECOND]};
    for (int k = 0; k < ARRAYS; k++)
        memcpy(copy[k], at[k], n * sizeof(float));
    change(s, keep, there);
    for (int k = 0; k < ARRAYS; k++)
        memcpy(at[k], copy[k], n * sizeof(float));
}

static void change_all(const hrt_optimizer *s, float keep, float *const from[ARRAYS], size_t n) {
    float *at[ARRAYS] = {from[VALUE], from[GRADIENT], from[FIRST], from[SECOND]};
    for (; n >= HRT_LANES; n -= HRT_LANES) {
        change(s, keep, at);
        for (int k = 0; k < ARRAYS; k++)
            at[k] += HRT_LANES;
    }
    if (n) change_rest(s, keep, at, n);
}

static void by_adamw(const hrt_optimizer *s, int index, int count) {
    const hrt_trainer *t = s->t;
    const hrt_model *m = t->session.model;
    for (uint32_t i = 0; i < m->n_parameters; i++) {
        const hrt_parameter *p = &m->parameters[i];
        const hrt_span mine = share_of(t, p, index, count);
        if (hrt_part_of(p) != HRT_ELEMENTS || mine.from == mine.to) continue;
        const size_t from = (size_t)mine.from;
        float *const at[ARRAYS] = {
            t->views[i].values + from,
            t->views[i].gradient + from,
            hrt_moment(t, p, HRT_FIRST, from),
            hrt_moment(t, p, HRT_SECOND, from),
        };
        change_all(s, s->keep[p->update], at, (size_t)(mine.to - mine.from));
    }
}

/* ---- the step -------------------------------------------------------------------------------- */
static const struct {
    const char *name;
    double least, most;
    size_t at;
} numbers[] = {
#define O(name, value, least, most, meaning) {#name, least, most, offsetof(hrt_step_options, name)},
#include "runtime/step_options.def"
#undef O
};

static int check_options(hrt_trainer *t, const hrt_step_options *o) {
    hrt_session *s = &t->session;
    if (!o) return hrt_fail(s, HRT_ARGUMENT, "the options are a null pointer");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double x;
        memcpy(&x, (const char *)o + numbers[i].at, sizeof x);
        if (!(x >= numbers[i].least && x <= numbers[i].most))
            return hrt_fail(s, HRT_ARGUMENT, "%s is %g: not in %g .. %g", numbers[i].name, x,
                            numbers[i].least, numbers[i].most);
    }
    if (o->step == t->steps + 1) return HRT_OK;
    return hrt_fail(s, HRT_ARGUMENT, "this cannot be step %" PRId64 ": the next one is %" PRId64,
                    o->step, t->steps + 1);
}

static int check_gradients(hrt_trainer *t) {
    if (t->spoilt)
        return hrt_fail(&t->session, HRT_FINITE,
                        "a loss was not finite, and its gradients are in these, or a gradient "
                        "of many ranks: trainer_clear takes them away");
    if (t->count > 0) return HRT_OK;
    return hrt_fail(&t->session, HRT_COUNT,
                    "no target has counted since the last step: gradients come first");
}

static double power(double x, int64_t n) {
    double y = 1;
    for (; n; n /= 2, x *= x)
        if (n % 2) y *= x;
    return y;
}

static void set_numbers(hrt_optimizer *s, const hrt_step_options *o, double norm) {
    const double count = (double)s->t->count, mean = norm / count;
    s->scale = (float)((mean > o->clip ? o->clip / mean : 1) / count);
    s->beta1 = (float)o->beta1, s->rest1 = (float)(1 - o->beta1);
    s->beta2 = (float)o->beta2, s->rest2 = (float)(1 - o->beta2);
    s->eps = (float)o->eps;
    s->momentum = (float)o->momentum, s->learning_rate = o->learning_rate;
    s->rate = (float)(o->learning_rate / (1 - power(o->beta1, o->step)));
    s->root = (float)(1 / hrt_root_of(1 - power(o->beta2, o->step)));
    for (int i = 0; i < HRT_UPDATES; i++)
        s->keep[i] = (float)(1 - (decays[i] ? o->learning_rate * o->weight_decay : 0));
}

static bool has_matrices(const hrt_optimizer *s) {
    return s->t->session.model->muon_bytes > 0;
}

/* Equal shares first, so that threads are done with matrices at about the same time. */
static void change_parameters(void *context, int index, int count) {
    hrt_optimizer *s = context;
    const hrt_fp_mode old = hrt_fp_enter();
    by_adamw(s, index, count);
    if (index == 0) hrt_watch_work(&s->watch, HRT_STEP_ADAMW);
    hrt_by_muon(s, index);
    hrt_fp_leave(old);
    if (index == 0 && has_matrices(s)) hrt_watch_work(&s->watch, HRT_STEP_MUON);
}

int hrt_trainer_step(hrt_trainer *t, const hrt_step_options *o, float *norm) {
    if (!t) return HRT_ARGUMENT;
    hrt_session *s = &t->session;
    if (!hrt_enter(s)) return hrt_why_not(s);
    hrt_optimizer all = {.t = t};
    if (s->profile) all.watch.steps = s->profile + s->model->n_steps;
    double sum = 0;
    int code = check_options(t, o);
    if (code == HRT_OK) code = check_gradients(t);
    code = hrt_agree_on_training(t, HRT_CALL_STEP, code, o ? hrt_checksum(o, sizeof *o) : 0);
    if (code == HRT_OK) code = hrt_sum_gradients(t);
    if (code == HRT_OK) code = find_norm(&all, &sum);
    if (code != HRT_OK) return hrt_leave(s, code);
    set_numbers(&all, o, sum);
    hrt_watch_start(&all.watch);
    hrt_in_shares(hrt_workers(s), change_parameters, &all);
    hrt_watch_wait(&all.watch, has_matrices(&all) ? HRT_STEP_MUON : HRT_STEP_ADAMW);
    code = hrt_gather_parameters(t);
    if (code != HRT_OK) return hrt_leave(s, code);
    if (norm) *norm = (float)(sum / (double)t->count);
    if (s->side.comm) hrt_clear_gradients(t); /* of what others have changed, too */
    t->count = 0;
    t->steps++;
    return hrt_leave(s, HRT_OK);
}

int64_t hrt_trainer_steps(const hrt_trainer *t) {
    return t && t->session.self == &t->session ? t->steps : 0;
}

int hrt_trainer_profile(hrt_trainer *t, hrt_profile_step *steps, size_t n) {
    return t ? hrt_set_profile(&t->session, steps, n, HRT_STEP_PARTS) : HRT_ARGUMENT;
}

/* ---- no step --------------------------------------------------------------------------------- */
static void clear(void *context, int index, int count) {
    const hrt_trainer *t = context;
    const hrt_span mine =
        hrt_share((hrt_span){0, (int64_t)t->session.model->parameters_bytes}, index, count);
    memset(t->gradients + mine.from, 0, (size_t)(mine.to - mine.from));
}

void hrt_clear_gradients(hrt_trainer *t) {
    hrt_in_shares(hrt_workers(&t->session), clear, t);
    t->count = 0;
    t->spoilt = false;
}

int hrt_trainer_clear(hrt_trainer *t) {
    if (!t) return HRT_ARGUMENT;
    hrt_session *s = &t->session;
    if (!hrt_enter(s)) return hrt_why_not(s);
    hrt_clear_gradients(t);
    return hrt_leave(s, HRT_OK);
}
