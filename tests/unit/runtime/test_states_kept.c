/* The runtime's states by kind: what a session begins with, what a batch does to them, rewinding,
 * and sessions that are saved and restored. */
#include <stdio.h>

#include "tests/unit/runtime/runtime_states.h"

typedef struct fixture {
    hrt_weights *weights;
    int32_t ids[N];
} fixture;

static fixture open_all(void) {
    fixture f = {.weights = toy_weights(&keep_model)};
    fill_ids(f.ids);
    return f;
}

static void close_all(fixture *f, hrt_session *s) {
    free(s);
    hrt_weights_close(f->weights);
}

static float *state(const hrt_session *s, int i) {
    return (float *)(void *)s->memory.states[i];
}

/* ---- every kind in calls --------------------------------------------------------------------- */
Test(states, windows_and_carries_begin_as_zeros) {
    fixture f = open_all();
    hrt_session *s = open_session(&keep_model, f.weights, N); /* in memory full of NaNs */
    for (int i = 0; i < 2 * KEEP_WINDOW; i++)
        cr_assert_eq(state(s, KEEP_W)[i], 0);
    cr_assert_eq(state(s, KEEP_S)[0], 0);
    close_all(&f, s);
}

Test(states, however_a_sequence_is_cut_into_calls) {
    fixture f = open_all();
    static const int64_t cuts[][8] = {{N}, {1, 1, 1, 1, 36}, {9, 1, 8, 22}, {17, 23}};
    for (int threads = 1; threads <= 5; threads += 2)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            hrt_session *s = open_session(&keep_model, f.weights, N);
            use_threads(s, threads);
            for (int k = 0; k < 8 && cuts[i][k]; k++)
                keep_read(s, f.ids, cuts[i][k]);
            cr_assert_eq(hrt_session_length(s), N);
            free(s);
        }
    hrt_weights_close(f.weights);
}

/* Each row of a batch changes the states of its own session, whatever the lengths and sizes. */
Test(states, a_batch_changes_the_states_of_its_sessions) {
    enum { COUNT = 11 };
    fixture f = open_all();
    hrt_session *s[COUNT];
    int32_t tokens[COUNT];
    float out[KEEP_OUT * COUNT], *outs[1] = {out};
    for (int i = 0; i < COUNT; i++) {
        s[i] = open_session(&keep_model, f.weights, i + 5);
        use_threads(s[i], 3);
        if (i) keep_read(s[i], f.ids, i);
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < COUNT; i++)
            tokens[i] = f.ids[hrt_session_length(s[i])];
        cr_assert_eq(hrt_forward_batch(s, tokens, COUNT, outs), HRT_OK);
        for (int i = 0; i < COUNT; i++)
            keep_expect(f.ids, hrt_session_length(s[i]), 1, out + KEEP_OUT * i);
    }
    for (int i = 0; i < COUNT; i++) {
        keep_read(s[i], f.ids, 1); /* what the batch left is what a call goes on with */
        free(s[i]);
    }
    hrt_weights_close(f.weights);
}

/* ---- rewinding ------------------------------------------------------------------------------- */
static hrt_model with_states(uint32_t first, uint32_t n) {
    hrt_model m = {.version = HRT_VERSION,
                   .chunk = CHUNK,
                   .n_levels = 1,
                   .levels = keep_levels,
                   .n_states = n,
                   .states = keep_states + first};
    return m;
}

static hrt_session *session_of(const hrt_model *m, int64_t tokens) {
    static const int32_t ids[N];
    float *outs[1] = {NULL};
    hrt_session *s = open_session(m, NULL, N);
    cr_assert_eq(hrt_forward(s, ids, tokens, outs, 0), HRT_OK);
    return s;
}

Test(states, caches_rewind_to_any_length) {
    const hrt_model m = with_states(KEEP_K, 1);
    hrt_session *s = session_of(&m, 9);
    for (int64_t length = 9; length >= 0; length -= 3) {
        cr_assert_eq(hrt_session_rewind(s, length), HRT_OK);
        cr_assert_eq(hrt_session_length(s), length);
    }
    cr_assert_eq(hrt_session_rewind(s, 1), HRT_LENGTH);
    free(s);
}

Test(states, windows_and_carries_are_cleared_or_left) {
    static const char *const said[] = {
        [KEEP_W] = "cannot rewind from 9 to 4 tokens: w, a window, can only be cleared; rewind to "
                   "0, or restore what session_save has kept",
        [KEEP_S] = "cannot rewind from 9 to 4 tokens: s, a carry, can only be cleared; rewind to "
                   "0, or restore what session_save has kept"};
    for (uint32_t i = KEEP_W; i <= KEEP_S; i++) {
        const hrt_model m = with_states(i, 1);
        hrt_session *s = session_of(&m, 9);
        state(s, 0)[0] = 3;
        cr_assert_eq(hrt_session_rewind(s, 4), HRT_REWIND);
        cr_assert_str_eq(hrt_session_message(s), said[i]);
        cr_assert_eq(hrt_session_rewind(s, 8), HRT_REWIND);
        cr_assert_eq(hrt_session_rewind(s, -1), HRT_ARGUMENT);
        cr_assert_eq(hrt_session_rewind(s, 10), HRT_LENGTH);
        cr_assert_eq(hrt_session_rewind(s, 9), HRT_OK);
        cr_assert(hrt_session_length(s) == 9 && state(s, 0)[0] == 3);
        cr_assert_eq(hrt_session_rewind(s, 0), HRT_OK);
        cr_assert(hrt_session_length(s) == 0 && state(s, 0)[0] == 0);
        free(s);
    }
}

Test(states, after_a_rewind_to_0_all_begins_again) {
    fixture f = open_all();
    hrt_session *s = open_session(&keep_model, f.weights, N);
    for (int round = 0; round < 3; round++) {
        keep_read(s, f.ids, 7 + round);
        keep_read(s, f.ids, 1);
        cr_assert_eq(hrt_session_rewind(s, 3), HRT_REWIND, "one kind of the three decides");
        cr_assert_eq(hrt_session_rewind(s, 0), HRT_OK);
    }
    close_all(&f, s);
}

/* ---- saving and restoring -------------------------------------------------------------------- */
enum { HEADS = 2, CACHE_ROW = 8, FIXED_STATE = 2 * KEEP_WINDOW * 4 + 4 };

Test(states, only_what_is_in_use_is_saved) {
    fixture f = open_all();
    for (int64_t cap = 9; cap <= N; cap += 31) {
        hrt_session *s = open_session(&keep_model, f.weights, cap);
        cr_assert_eq(hrt_session_save_size(s), HRT_SAVED_DATA + FIXED_STATE);
        keep_read(s, f.ids, 9);
        cr_assert_eq(hrt_session_save_size(s), HRT_SAVED_DATA + FIXED_STATE + 9 * CACHE_ROW);
        free(s);
    }
    cr_assert_eq(hrt_session_save_size(NULL), 0);
    hrt_weights_close(f.weights);
}

/* The layout that docs/formats.md tells: state by state, head by head. */
Test(states, saved_bytes_are_as_documented) {
    fixture f = open_all();
    hrt_session *s = open_session(&keep_model, f.weights, N);
    keep_read(s, f.ids, 4);
    char bytes[HRT_SAVED_DATA + FIXED_STATE + 4 * CACHE_ROW];
    memset(bytes, 0xff, sizeof bytes);
    cr_assert_eq(hrt_session_save(s, bytes, sizeof bytes), HRT_OK);
    hrt_saved_header h;
    memcpy(&h, bytes, sizeof h);
    cr_assert_arr_eq(h.magic, "HADALSS1", 8);
    cr_assert(h.version == HRT_VERSION && h.length == 4 && h.bytes == sizeof bytes);
    cr_assert_arr_eq(h.digest, keep_model.digest, 16);
    cr_assert_arr_eq(h.build, keep_model.build, 16);
    for (size_t i = sizeof h; i < HRT_SAVED_DATA; i++)
        cr_assert_eq(bytes[i], 0);
    float rows[HEADS * 4 + 2 * KEEP_WINDOW + 1], x[4];
    memcpy(rows, bytes + HRT_SAVED_DATA, sizeof rows);
    for (int p = 0; p < 4; p++) {
        x[p] = 2 * (float)f.ids[p];
        cr_assert(rows[p] == x[p] && rows[4 + p] == -x[p]);
    }
    const float window[] = {x[3], x[1], x[2]}; /* position p in row p mod 3 */
    for (int i = 0; i < KEEP_WINDOW; i++)
        cr_assert(rows[8 + i] == window[i] && rows[8 + KEEP_WINDOW + i] == 10 * window[i]);
    cr_assert_eq(rows[14], state(s, KEEP_S)[0]);
    close_all(&f, s);
}

/* Bytes at an odd address, as a buffer of the caller's may begin anywhere. */
static char *saved(hrt_session *s, size_t *size) {
    *size = hrt_session_save_size(s);
    char *memory = malloc(*size + 1);
    cr_assert_eq(hrt_session_save(s, memory + 1, *size), HRT_OK, "%s", hrt_session_message(s));
    return memory;
}

Test(states, three_continuations_of_one_prompt) {
    fixture f = open_all();
    size_t size;
    hrt_session *s = open_session(&keep_model, f.weights, N);
    keep_read(s, f.ids, 13);
    char *kept = saved(s, &size);
    for (int i = 0; i < 3; i++) {
        int32_t ids[N];
        memcpy(ids, f.ids, sizeof ids);
        for (int k = 13; k < N; k++)
            ids[k] = (k * (i + 3)) % VOCAB;
        keep_read(s, ids, 10 + i);
        keep_read(s, ids, 1);
        cr_assert_eq(hrt_session_restore(s, kept + 1, size), HRT_OK);
        cr_assert_eq(hrt_session_length(s), 13);
    }
    keep_read(s, f.ids, N - 13);
    free(kept);
    close_all(&f, s);
}

Test(states, a_session_of_another_size_takes_it_over) {
    fixture f = open_all();
    for (int64_t n = 0; n <= 12; n += 4) {
        size_t size;
        hrt_session *from = open_session(&keep_model, f.weights, N);
        if (n) keep_read(from, f.ids, n);
        char *kept = saved(from, &size);
        free(from);
        for (int64_t cap = n + 1; cap <= 2 * N; cap += 19) {
            hrt_session *to = open_session(&keep_model, f.weights, cap);
            float *none[1] = {NULL};
            cr_assert_eq(hrt_forward(to, f.ids + 20, 1, none, 0), HRT_OK, "something else first");
            cr_assert_eq(hrt_session_restore(to, kept + 1, size), HRT_OK);
            cr_assert_eq(hrt_session_length(to), n);
            keep_read(to, f.ids, 1);
            free(to);
        }
        free(kept);
    }
    hrt_weights_close(f.weights);
}

Test(states, restored_sessions_stand_in_batches) {
    enum { COUNT = 4 };
    fixture f = open_all();
    size_t size;
    hrt_session *s[COUNT];
    int32_t ids[COUNT][N], tokens[COUNT];
    float out[KEEP_OUT * COUNT], *outs[1] = {out};
    s[0] = open_session(&keep_model, f.weights, N);
    keep_read(s[0], f.ids, 10);
    char *kept = saved(s[0], &size);
    for (int i = 0; i < COUNT; i++) {
        if (i) s[i] = open_session(&keep_model, f.weights, 14 + i);
        if (i) cr_assert_eq(hrt_session_restore(s[i], kept + 1, size), HRT_OK);
        memcpy(ids[i], f.ids, sizeof f.ids);
        for (int k = 10; k < N; k++)
            ids[i][k] = (k + 11 * i) % VOCAB;
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < COUNT; i++)
            tokens[i] = ids[i][10 + round];
        cr_assert_eq(hrt_forward_batch(s, tokens, COUNT, outs), HRT_OK);
        for (int i = 0; i < COUNT; i++)
            keep_expect(ids[i], 11 + round, 1, out + KEEP_OUT * i);
    }
    for (int i = 0; i < COUNT; i++)
        free(s[i]);
    free(kept);
    hrt_weights_close(f.weights);
}

/* ---- what is refused ------------------------------------------------------------------------- */
typedef struct rejection {
    fixture f;
    hrt_session *s;
    char *kept, *before;
    size_t size, states;
} rejection;

/* A session of 6 tokens, and what one of 9 tokens saved. */
static rejection open_rejection(void) {
    rejection r = {.f = open_all()};
    hrt_session *from = open_session(&keep_model, r.f.weights, N);
    keep_read(from, r.f.ids, 9);
    r.kept = saved(from, &r.size);
    memmove(r.kept, r.kept + 1, r.size);
    free(from);
    r.s = open_session(&keep_model, r.f.weights, 12);
    keep_read(r.s, r.f.ids, 6);
    r.states = (size_t)(r.s->memory.arena - r.s->memory.states[0]);
    r.before = malloc(r.states);
    memcpy(r.before, r.s->memory.states[0], r.states);
    return r;
}

static void expect_untouched(const rejection *r) {
    cr_assert_eq(hrt_session_length(r->s), 6);
    cr_assert_arr_eq(r->s->memory.states[0], r->before, r->states);
}

static void expect_rejected(rejection *r, size_t size, int code, const char *message) {
    cr_assert_eq(hrt_session_restore(r->s, r->kept, size), code, "%s", message);
    cr_assert_str_eq(hrt_session_message(r->s), message);
    expect_untouched(r);
}

static void close_rejection(rejection *r) {
    cr_assert_eq(hrt_session_restore(r->s, r->kept, r->size), HRT_OK, "as it was, it is accepted");
    keep_read(r->s, r->f.ids, 1);
    free(r->kept);
    free(r->before);
    close_all(&r->f, r->s);
}

Test(states, null_pointers_and_short_buffers) {
    rejection r = open_rejection();
    char small[HRT_SAVED_DATA + 8];
    memset(small, 7, sizeof small);
    cr_assert_eq(hrt_session_save(NULL, small, sizeof small), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_save(r.s, NULL, 1000), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_save(r.s, small, sizeof small), HRT_SIZE);
    cr_assert_str_eq(hrt_session_message(r.s), "136 bytes are given, 204 are needed");
    for (size_t i = 0; i < sizeof small; i++)
        cr_assert_eq(small[i], 7, "nothing is written");
    cr_assert_eq(hrt_session_restore(NULL, r.kept, r.size), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_restore(r.s, NULL, r.size), HRT_ARGUMENT);
    expect_untouched(&r);
    expect_rejected(&r, 0, HRT_SIZE, "0 bytes are given, 128 are needed");
    expect_rejected(&r, HRT_SAVED_DATA - 1, HRT_SIZE, "127 bytes are given, 128 are needed");
    expect_rejected(&r, r.size - 1, HRT_SIZE, "227 bytes are given, 228 are needed");
    close_rejection(&r);
}

/* One field of the header changed, with the checksum made right again or not. */
static uint64_t fnv(const char *bytes, size_t n) {
    uint64_t sum = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    return sum;
}

static void expect_field(rejection *r, size_t at, int64_t value, size_t bytes, bool right, int code,
                         const char *message) {
    char old[HRT_SAVED_DATA];
    memcpy(old, r->kept, sizeof old);
    memcpy(r->kept + at, &value, bytes);
    const uint64_t check = fnv(r->kept, offsetof(hrt_saved_header, check));
    if (right) memcpy(r->kept + offsetof(hrt_saved_header, check), &check, sizeof check);
    expect_rejected(r, r->size, code, message);
    memcpy(r->kept, old, sizeof old);
}
#define FIELD(name) offsetof(hrt_saved_header, name)

Test(states, bytes_of_something_else) {
    rejection r = open_rejection();
    const char *damaged = "the header of the saved session is damaged";
    expect_field(&r, 0, 'W', 1, true, HRT_SAVED, "the bytes are no saved session");
    char version[64];
    snprintf(version, sizeof version, "saved by version 5 of the runtime; this is %u", HRT_VERSION);
    expect_field(&r, FIELD(version), 5, 4, true, HRT_BUILD, version);
    expect_field(&r, FIELD(digest), 9, 1, true, HRT_BUILD,
                 "saved by another model, or one with another weights layout");
    expect_field(&r, FIELD(build), 9, 1, true, HRT_BUILD, "saved by another build of the model");
    expect_field(&r, FIELD(content), 9, 1, true, HRT_BUILD, "saved with other weights");
    expect_field(&r, FIELD(reserved), 1, 4, true, HRT_SAVED, damaged);
    expect_field(&r, FIELD(length), 8, 8, false, HRT_SAVED, damaged);
    expect_field(&r, FIELD(check), 8, 8, false, HRT_SAVED, damaged);
    expect_field(&r, FIELD(length), 8, 8, true, HRT_SAVED, damaged);
    expect_field(&r, FIELD(bytes), 229, 8, true, HRT_SAVED, damaged);
    expect_field(&r, FIELD(length), -1, 8, true, HRT_SAVED, "a saved length of -1");
    expect_field(&r, FIELD(length), 13, 8, true, HRT_FULL,
                 "13 tokens were saved: the session holds 12 at most");
    expect_field(&r, FIELD(length), INT64_MAX, 8, true, HRT_FULL,
                 "9223372036854775807 tokens were saved: the session holds 12 at most");
    close_rejection(&r);
}

Test(states, more_than_the_session_holds) {
    rejection r = open_rejection();
    hrt_session *small = open_session(&keep_model, r.f.weights, 8);
    cr_assert_eq(hrt_session_restore(small, r.kept, r.size), HRT_FULL);
    cr_assert_eq(hrt_session_length(small), 0);
    free(small);
    close_rejection(&r);
}

Test(states, a_busy_session_is_neither_saved_nor_restored) {
    rejection r = open_rejection();
    cr_assert(hrt_enter(r.s));
    cr_assert_eq(hrt_session_save(r.s, r.kept, r.size), HRT_BUSY);
    cr_assert_eq(hrt_session_restore(r.s, r.kept, r.size), HRT_BUSY);
    hrt_leave(r.s, HRT_OK);
    expect_untouched(&r);
    close_rejection(&r);
}

/* ---- tables that no session can be made of --------------------------------------------------- */
Test(states, states_that_the_runtime_does_not_know) {
    static const hrt_state_info bad[] = {
        {"kind", HRT_STATE_KINDS, 1, 1, 4},   {"heads", HRT_STATE_CACHE, 0, 0, 4},
        {"uneven", HRT_STATE_CACHE, 3, 0, 8}, {"rows", HRT_STATE_WINDOW, 1, 0, 4},
        {"one", HRT_STATE_CARRY, 1, 0, 4},    {"huge", HRT_STATE_WINDOW, 1, UINT64_C(1) << 62, 8},
    };
    hrt_model m = with_states(KEEP_K, 1);
    cr_assert_gt(hrt_session_size(&m, 4), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        m.states = &bad[i];
        cr_assert_eq(hrt_session_size(&m, 4), 0, "%s", bad[i].name);
    }
}
