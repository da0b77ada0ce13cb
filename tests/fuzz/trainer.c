#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "api/train/state.h"
#include "runtime/trainer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/tools/muon_products.h"

/* ---- a trainer of seven elements, which AdamW changes, and a matrix of 3 x 7, which Muon does ---- */
enum { ELEMENTS = 7, ROWS = 3, COLUMNS = 7, E_BYTES = 64, W_BYTES = 128, LONGEST = 1 };

static hrt_kernel *const kernels[] = {muon_products};
static const hrt_level levels[] = {{.name = "plain", .kernels = kernels}};
static const hrt_tensor_info outputs[] = {{"loss", "f32[]", 4, 0, 0}};
static const hrt_parameter parameters[] = {
    {.name = "e", .type = "f32[7]", .elements = ELEMENTS},
    {.name = "w",
     .type = "f32[3, 7]",
     .offset = E_BYTES,
     .elements = ROWS * COLUMNS,
     .update = HRT_UPDATE_MUON,
     .rows = ROWS,
     .columns = COLUMNS},
};
static const hrt_model model = {
    .version = HRT_VERSION,
    .name = "fuzz",
    .digest = "digest of fuzz",
    .build = "build of fuzz",
    .chunk = LONGEST,
    .weights_bytes = E_BYTES + W_BYTES,
    .parameters_bytes = E_BYTES + W_BYTES,
    .muon_offset = E_BYTES,
    .moments_bytes = 2 * E_BYTES + W_BYTES,
    .muon_bytes = 512,
    .n_levels = 1,
    .levels = levels,
    .n_kernels = 1,
    .n_outputs = 1,
    .outputs = outputs,
    .n_parameters = sizeof parameters / sizeof *parameters,
    .parameters = parameters,
    .options = "{}",
    .ops = "",
};

/* Memory of exactly that size, so that a byte too many is noticed. */
static void *take(hd_arena *a, size_t n) {
    void *memory = aligned_alloc(HRT_ALIGN, n);
    if (!memory) fuzz_fail("no memory");
    hd_arena_defer(a, free, memory);
    return memory;
}

/* One for all inputs: to restore it sets all that it keeps. To make one looks at the machine, which
 * takes longer than all else here. */
static hrt_trainer *the_trainer(void) {
    static hrt_trainer *t;
    const size_t size = hrt_trainer_size(&model, LONGEST);
    void *memory = t ? NULL : aligned_alloc(HRT_ALIGN, size);
    if (!t && (hrt_trainer_init(&model, memory, size, LONGEST, &t) != HRT_OK ||
               hrt_session_set_threads(&t->session, 1) != HRT_OK))
        fuzz_fail("there is no trainer");
    return t;
}

/* ---- what is done with one that was restored -------------------------------------------------- */

/* Its bytes are those that it was restored from: its header, and what follows the gap behind it. */
static void save_again(hd_arena *a, hrt_trainer *t, const uint8_t *from, size_t n) {
    uint8_t *again = take(a, n);
    if (hrt_trainer_save(t, again, n) != HRT_OK) fuzz_fail("it cannot be saved");
    if (memcmp(again, from, sizeof(hrt_trained_header)) != 0 ||
        memcmp(again + HRT_SAVED_DATA, from + HRT_SAVED_DATA, n - HRT_SAVED_DATA) != 0)
        fuzz_fail("it is not saved as it was restored");
}

/* As if a target had counted, and its gradient was small. */
static void take_step(hrt_trainer *t) {
    const int64_t steps = hrt_trainer_steps(t);
    hrt_step_options o = {
#define O(name, value, least, most, meaning) .name = (value),
#include "runtime/step_options.def"
#undef O
    };
    float norm;
    if (steps == INT64_MAX) fuzz_fail("no step can follow");
    o.step = steps + 1;
    for (uint32_t i = 0; i < model.n_parameters; i++)
        t->views[i].gradient[0] = 0.5f;
    t->count = 1;
    if (hrt_trainer_step(t, &o, &norm) == HRT_OK && hrt_trainer_steps(t) != steps + 1)
        fuzz_fail("a step was not counted");
}

static bool restore(hadal_session *s, hrt_trainer *t, hd_bytes state, const char *path) {
    uint8_t *own = take(s->arena, state.n);
    memcpy(own, state.at, state.n);
    const bool ok = hrt_trainer_restore(t, own, state.n) == HRT_OK;
    if (ok) {
        save_again(s->arena, t, own, state.n);
        take_step(t);
    } else if (!*hrt_session_message(&t->session)) {
        fuzz_fail("it was refused without a message");
    } else {
        train_bad_state(s, path, hrt_session_message(&t->session));
    }
    return ok;
}

static bool read_state(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    hrt_trainer *t = the_trainer();
    hadal_session *s = hd_new(a, hadal_session);
    hd_bytes state;
    s->arena = a;
    s->diags = *d;
    const char *path = fuzz_write("trainer.state", data, n);
    const bool ok =
        train_state_read(s, path, hrt_trainer_save_size(t), &state) && restore(s, t, state, path);
    *d = s->diags;
    return ok;
}

/* ---- targets --------------------------------------------------------------------------------- */

/* The input with the size of a state, and with what checks it, so that what lies behind is reached;
 * `origin`: also as a trainer of this model saves it, whatever version of the runtime the input is of. */
static size_t mend(const uint8_t *data, size_t n, bool origin, uint8_t *out) {
    const size_t size = HRT_SAVED_DATA + (size_t)(model.parameters_bytes + model.moments_bytes);
    XXH128_canonical_t digest;
    hrt_trained_header h;
    memset(out, 0, size);
    memcpy(out, data, n < size ? n : size);
    memcpy(&h, out, sizeof h);
    if (origin) hrt_set_origin(&model, HRT_TRAINED_MAGIC, &h);
    if (origin) h.bytes = size;
    h.check = hrt_checksum(&h, offsetof(hrt_trained_header, check));
    memcpy(out, &h, sizeof h);
    XXH128_canonicalFromHash(&digest, XXH3_128bits(out, size));
    memcpy(out + size, &digest, sizeof digest);
    return size + sizeof digest;
}

int fuzz_trainer(const uint8_t *data, size_t n) {
    uint8_t mended[HRT_SAVED_DATA + 3 * (E_BYTES + W_BYTES)];
    fuzz_in_arena(read_state, data, n);
    fuzz_in_arena(read_state, mended, mend(data, n, false, mended));
    fuzz_in_arena(read_state, mended, mend(data, n, true, mended));
    return 0;
}
