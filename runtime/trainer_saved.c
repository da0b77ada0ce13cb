/* Saves trainers to memory of the caller, and restores them into a trainer of the same build of the
 * library: parameters, moments and the number of steps. A trainer that goes on from there takes the
 * same steps, to the bit, at the same CPU level. The header is checked before anything is written. */
#include <inttypes.h>
#include <string.h>

#include "runtime/trainer.h"

_Static_assert(sizeof(hrt_trained_header) <= HRT_SAVED_DATA, "the header has its place");
_Static_assert(offsetof(hrt_trained_header, steps) == sizeof(hrt_saved_origin), "it begins so");

static uint64_t checksum(const hrt_trained_header *h) {
    return hrt_checksum(h, offsetof(hrt_trained_header, check));
}

static uint64_t saved_bytes(const hrt_model *m) { /* less than the trainer's memory */
    return HRT_SAVED_DATA + m->parameters_bytes + m->moments_bytes;
}

static hrt_trained_header header_of(const hrt_trainer *t) {
    const hrt_model *m = t->session.model;
    hrt_trained_header h;
    memset(&h, 0, sizeof h);
    hrt_set_origin(m, HRT_TRAINED_MAGIC, &h);
    h.steps = t->steps;
    h.bytes = saved_bytes(m);
    h.check = checksum(&h);
    return h;
}

size_t hrt_trainer_save_size(const hrt_trainer *t) {
    return t && t->session.self == &t->session ? (size_t)saved_bytes(t->session.model) : 0;
}

/* Of several ranks the first one has the memory. */
static int check_memory(hrt_session *s, const void *memory, size_t size) {
    if (s->side.rank > 0) return HRT_OK;
    if (!memory) return hrt_fail(s, HRT_ARGUMENT, "the memory is a null pointer");
    if (size >= saved_bytes(s->model)) return HRT_OK;
    return hrt_fail(s, HRT_SIZE, "%zu bytes are given, %" PRIu64 " are needed", size,
                    saved_bytes(s->model));
}

int hrt_trainer_save(hrt_trainer *t, void *memory, size_t size) {
    if (!t) return HRT_ARGUMENT;
    hrt_session *s = &t->session;
    if (!hrt_enter(s)) return hrt_why_not(s);
    int code = check_memory(s, memory, size);
    code = hrt_agree_on_training(t, HRT_CALL_SAVE, code, 0);
    if (code != HRT_OK) return hrt_leave(s, code);
    if (!hrt_is_first(t)) return hrt_leave(s, hrt_save_moments(t, NULL));
    const hrt_trained_header h = header_of(t);
    const size_t values = (size_t)s->model->parameters_bytes;
    uint8_t *to = memory;
    memset(to, 0, HRT_SAVED_DATA);
    memcpy(to, &h, sizeof h);
    memcpy(to + HRT_SAVED_DATA, t->weights, values);
    return hrt_leave(s, hrt_save_moments(t, to + HRT_SAVED_DATA + values));
}

static int check_origin(hrt_session *s, const hrt_trained_header *h) {
    /* another step can follow */
    const bool whole = h->check == checksum(h) && h->steps >= 0 && h->steps < INT64_MAX;
    const int code =
        hrt_check_origin(s, h, HRT_TRAINED_MAGIC, whole, "trainer", "other parameters");
    if (code != HRT_OK) return code;
    if (h->bytes == saved_bytes(s->model)) return HRT_OK;
    return hrt_fail(s, HRT_SAVED, "the header of the saved trainer is damaged");
}

/* The header is checked before the size: bytes of another library have another size. */
static int check_saved(hrt_session *s, const void *memory, size_t size, int64_t *steps) {
    hrt_trained_header h;
    if (s->side.rank > 0) return HRT_OK;
    if (!memory || size < HRT_SAVED_DATA) return check_memory(s, memory, size);
    memcpy(&h, memory, sizeof h);
    *steps = h.steps;
    const int code = check_origin(s, &h);
    return code == HRT_OK ? check_memory(s, memory, size) : code;
}

static int restore(hrt_trainer *t, const void *memory, size_t size) {
    hrt_session *s = &t->session;
    int64_t steps = 0;
    int code = check_saved(s, memory, size, &steps);
    code = hrt_agree_on_training(t, HRT_CALL_RESTORE, code, 0);
    if (code != HRT_OK) return code;
    const uint8_t *from = hrt_is_first(t) ? (const uint8_t *)memory + HRT_SAVED_DATA : NULL;
    code = hrt_share_parameters(t, from, &steps);
    if (code == HRT_OK)
        code = hrt_restore_moments(t, from ? from + s->model->parameters_bytes : NULL);
    if (code != HRT_OK) return code;
    t->steps = steps;
    hrt_clear_gradients(t);
    return HRT_OK;
}

int hrt_trainer_restore(hrt_trainer *t, const void *memory, size_t size) {
    if (!t) return HRT_ARGUMENT;
    if (!hrt_enter(&t->session)) return hrt_why_not(&t->session);
    return hrt_leave(&t->session, restore(t, memory, size));
}
