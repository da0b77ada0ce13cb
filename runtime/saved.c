/* Saves sessions to memory of the caller, and restores them into a session of the same model, build
 * and weights, whose capacity may be another one. The whole header is checked before anything is
 * written to a session. */
#include <inttypes.h>
#include <string.h>

#include "runtime/internal.h"

_Static_assert(sizeof(hrt_saved_header) <= HRT_SAVED_DATA, "the header has its place");
_Static_assert(offsetof(hrt_saved_header, content) == sizeof(hrt_saved_origin), "it begins so");

uint64_t hrt_checksum(const void *at, size_t n) {
    const unsigned char *bytes = at;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

void hrt_set_origin(const hrt_model *m, const char *magic, void *header) {
    hrt_saved_origin o = {.version = HRT_VERSION};
    memcpy(o.magic, magic, sizeof o.magic);
    memcpy(o.digest, m->digest, sizeof o.digest);
    memcpy(o.build, m->build, sizeof o.build);
    memcpy(header, &o, sizeof o);
}

int hrt_check_origin(hrt_session *s, const void *header, const char *magic, bool whole,
                     const char *what, const char *part) {
    hrt_saved_origin o;
    memcpy(&o, header, sizeof o);
    if (memcmp(o.magic, magic, sizeof o.magic) != 0)
        return hrt_fail(s, HRT_SAVED, "the bytes are no saved %s", what);
    if (o.version != HRT_VERSION)
        return hrt_fail(s, HRT_BUILD, "saved by version %" PRIu32 " of the runtime; this is %u",
                        o.version, HRT_VERSION);
    if (!whole || o.reserved != 0)
        return hrt_fail(s, HRT_SAVED, "the header of the saved %s is damaged", what);
    if (memcmp(o.digest, s->model->digest, sizeof o.digest) != 0)
        return hrt_fail(s, HRT_BUILD, "saved by another model, or one with %s", part);
    if (memcmp(o.build, s->model->build, sizeof o.build) != 0)
        return hrt_fail(s, HRT_BUILD, "saved by another build of the model");
    return HRT_OK;
}

static uint64_t checksum(const hrt_saved_header *h) {
    return hrt_checksum(h, offsetof(hrt_saved_header, check));
}

static uint64_t saved_bytes(const hrt_model *m, int64_t length) {
    uint64_t bytes = HRT_SAVED_DATA; /* no overflow: less than the session's memory */
    for (uint32_t i = 0; i < m->n_states; i++)
        bytes += hrt_saved_rows(&m->states[i], length) * m->states[i].row_bytes;
    return bytes;
}

/* The header that a session of `length` tokens has. */
static hrt_saved_header header_of(const hrt_session *s, int64_t length) {
    const hrt_model *m = s->model;
    hrt_saved_header h;
    memset(&h, 0, sizeof h);
    hrt_set_origin(m, HRT_SAVED_MAGIC, &h);
    if (s->weights) {
        const void *file = s->weights - HRT_WEIGHTS_DATA; /* weights.c: the data follows it */
        hrt_weights_header weights;
        memcpy(&weights, file, sizeof weights);
        memcpy(h.content, weights.content, sizeof h.content);
    }
    h.length = length;
    h.bytes = saved_bytes(m, length);
    h.check = checksum(&h);
    return h;
}

/* Copies the rows in use of all states from the session to `data` (save), or back. */
static void copy_states(const hrt_session *s, int64_t length, char *data, bool save) {
    for (uint32_t i = 0; i < s->model->n_states; i++) {
        const hrt_state_info *state = &s->model->states[i];
        const size_t row = (size_t)(state->row_bytes / state->heads);
        const size_t head = (size_t)hrt_state_rows(state, s->memory.cap) * row;
        const size_t used = (size_t)hrt_saved_rows(state, length) * row;
        for (uint32_t g = 0; g < state->heads; g++, data += used) {
            char *own = s->memory.states[i] + g * head;
            if (used) memcpy(save ? data : own, save ? own : data, used);
        }
    }
}

size_t hrt_session_save_size(const hrt_session *s) {
    return s ? (size_t)saved_bytes(s->model, s->length) : 0;
}

static int too_small(hrt_session *s, size_t size, uint64_t bytes) {
    return hrt_fail(s, HRT_SIZE, "%zu bytes are given, %" PRIu64 " are needed", size, bytes);
}

static int save(hrt_session *s, void *memory, size_t size) {
    if (!memory) return hrt_fail(s, HRT_ARGUMENT, "the memory to save to is a null pointer");
    const hrt_saved_header h = header_of(s, s->length);
    if (size < h.bytes) return too_small(s, size, h.bytes);
    memset(memory, 0, HRT_SAVED_DATA);
    memcpy(memory, &h, sizeof h);
    copy_states(s, s->length, (char *)memory + HRT_SAVED_DATA, true);
    return HRT_OK;
}

int hrt_session_save(hrt_session *s, void *memory, size_t size) {
    if (!s) return HRT_ARGUMENT;
    if (!hrt_enter(s)) return hrt_why_not(s);
    return hrt_leave(s, save(s, memory, size));
}

/* Rejects bytes that are no saved session, then sessions of another model, build or weights. */
static int check_origin(hrt_session *s, const hrt_saved_header *h) {
    const int code = hrt_check_origin(s, h, HRT_SAVED_MAGIC, h->check == checksum(h), "session",
                                      "another weights layout");
    if (code != HRT_OK) return code;
    const hrt_saved_header own = header_of(s, 0);
    if (memcmp(h->content, own.content, sizeof h->content) != 0)
        return hrt_fail(s, HRT_BUILD, "saved with other weights");
    return HRT_OK;
}

static int restore(hrt_session *s, const void *memory, size_t size) {
    hrt_saved_header h;
    if (!memory) return hrt_fail(s, HRT_ARGUMENT, "the memory to restore from is a null pointer");
    if (size < HRT_SAVED_DATA) return too_small(s, size, HRT_SAVED_DATA);
    memcpy(&h, memory, sizeof h);
    int rc = check_origin(s, &h);
    if (rc != HRT_OK) return rc;
    if (h.length < 0) return hrt_fail(s, HRT_SAVED, "a saved length of %" PRId64, h.length);
    if (h.length > s->memory.cap)
        return hrt_fail(s, HRT_FULL,
                        "%" PRId64 " tokens were saved: the session holds %" PRId64 " at most",
                        h.length, s->memory.cap);
    if (h.bytes != saved_bytes(s->model, h.length))
        return hrt_fail(s, HRT_SAVED, "the header of the saved session is damaged");
    if (size < h.bytes) return too_small(s, size, h.bytes);
    copy_states(s, h.length, (char *)(uintptr_t)memory + HRT_SAVED_DATA, false);
    s->length = h.length;
    return HRT_OK;
}

int hrt_session_restore(hrt_session *s, const void *memory, size_t size) {
    if (!s) return HRT_ARGUMENT;
    if (!hrt_enter(s)) return hrt_why_not(s);
    return hrt_leave(s, restore(s, memory, size));
}
