/* hrt_loss on the program made by hand (runtime_toy.h), with a step that runs in its calls alone, in
 * place of the one that makes the first output. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/runtime/runtime_toy.h"

enum { STEPS = 8, OPERANDS = 18, OUT = 5, LIMIT = 30 };

/* losses[t] = s[t] + targets[t], 0 for a target below 0 */
static void k_loss(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    (void)f, (void)c0, (void)c1;
    const float *s = args[0];
    const int32_t *targets = args[1];
    float *losses = args[2];
    for (int64_t t = r0; t < r1; t++)
        losses[t] = targets[t] < 0 ? 0 : s[t] + (float)targets[t];
}

static hrt_kernel *const with_loss[] = {k_embed, k_append, k_sum,  k_cols,
                                        k_fixed, k_out,    k_copy, k_loss};
static const hrt_level loss_levels[] = {{.name = "plain", .kernels = with_loss}};
static hrt_step loss_steps[STEPS];
static hrt_operand loss_operands[OPERANDS];

static hrt_model loss_model(void) {
    static const hrt_operand own[] = {
        ARENA(4, 4), {HRT_TARGETS, 0, 0, 4, 0, 0, 0}, {HRT_LOSSES, 0, 0, 4, 0, 0, 0}};
    hrt_model m = MODEL(loss_levels, 1);
    memcpy(loss_operands, operands, sizeof operands);
    memcpy(loss_operands + 15, own, sizeof own);
    memcpy(loss_steps, steps, sizeof steps);
    loss_steps[OUT].condition.when = HRT_NOT_IN_LOSS;
    loss_steps[7] = (hrt_step)STEP(7, 15, 3, NONE, ROWS, 1, 0, 1);
    loss_steps[7].condition.when = HRT_IN_LOSS;
    m.n_steps = STEPS, m.n_operands = OPERANDS, m.n_kernels = 8;
    m.steps = loss_steps, m.operands = loss_operands;
    return m;
}

static void fill(int32_t *ids, int32_t *targets) {
    for (int i = 0; i < LIMIT; i++) {
        ids[i] = 3 * i % VOCAB;
        targets[i] = i % 4 - 2; /* the toy has two logits */
    }
}

Test(losses, are_those_of_all_rows_however_a_call_is_cut) {
    const hrt_model m = loss_model();
    hrt_weights *w = toy_weights(&m);
    int32_t ids[LIMIT], targets[LIMIT];
    fill(ids, targets);
    for (int threads = 1; threads <= 5; threads += 2)
        for (int first = 1; first < LIMIT - 1; first++) { /* a chunk is 8 tokens */
            hrt_session *s = open_session(&m, w, LIMIT);
            float got[LIMIT + 1], out[2];
            got[LIMIT] = -7;
            use_threads(s, threads);
            cr_assert_eq(hrt_loss(s, ids, targets, first, got), HRT_OK);
            cr_assert_eq(hrt_loss(s, ids + first, targets + first, LIMIT - first - 1, got + first),
                         HRT_OK);
            cr_assert_eq(hrt_session_length(s), LIMIT - 1);
            for (int i = 0; i < LIMIT - 1; i++)
                cr_assert_eq(got[i], targets[i] < 0 ? 0 : prefix_sum(ids, i) + (float)targets[i]);
            cr_assert_eq(got[LIMIT], -7, "written past the last loss");
            /* a forward call goes on after it, and makes the first output again */
            cr_assert_eq(hrt_forward(s, ids + LIMIT - 1, 1, (float *const[]){out, NULL}, 1),
                         HRT_OK);
            cr_assert_eq(out[1], LIMIT - 1);
            free(s);
        }
    hrt_weights_close(w);
}

Test(losses, no_bad_call_changes_anything) {
    const hrt_model m = loss_model();
    hrt_weights *w = toy_weights(&m);
    hrt_session *s = open_session(&m, w, LIMIT);
    int32_t ids[LIMIT + 1] = {0}, targets[LIMIT + 1] = {0};
    float got[LIMIT + 1];
    fill(ids, targets);
    for (int i = 0; i <= LIMIT; i++)
        got[i] = -7;
    cr_assert_eq(hrt_loss(NULL, ids, targets, 1, got), HRT_ARGUMENT);
    cr_assert_eq(hrt_loss(s, NULL, targets, 1, got), HRT_ARGUMENT);
    cr_assert_eq(hrt_loss(s, ids, NULL, 1, got), HRT_ARGUMENT);
    cr_assert_eq(hrt_loss(s, ids, targets, 1, NULL), HRT_ARGUMENT);
    cr_assert_eq(hrt_loss(s, ids, targets, 0, got), HRT_ARGUMENT);
    cr_assert_eq(hrt_loss(s, ids, targets, LIMIT + 1, got), HRT_FULL);
    targets[9] = 2;
    cr_assert_eq(hrt_loss(s, ids, targets, LIMIT, got), HRT_TOKEN);
    cr_assert_str_eq(hrt_session_message(s),
                     "target 9 is 2: targets are 0 .. 1, or below 0: not counted");
    ids[3] = VOCAB;
    cr_assert_eq(hrt_loss(s, ids, targets, LIMIT, got), HRT_TOKEN);
    cr_assert(strstr(hrt_session_message(s), "token 3 is 50"), "%s", hrt_session_message(s));
    atomic_flag_test_and_set(&s->busy);
    cr_assert_eq(hrt_loss(s, ids, targets, 1, got), HRT_BUSY);
    atomic_flag_clear(&s->busy);
    hrt_session *moved = malloc(sizeof *s);
    memcpy(moved, s, sizeof *s);
    cr_assert_eq(hrt_loss(moved, ids, targets, 1, got), HRT_MOVED);
    free(moved);
    for (int i = 0; i <= LIMIT; i++)
        cr_assert_eq(got[i], -7);
    cr_assert_eq(hrt_session_length(s), 0);
    cr_assert_eq(hrt_loss(s, ids, targets, 2, got), HRT_OK);
    free(s);
    hrt_weights_close(w);
}
