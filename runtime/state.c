/* The states of a session by their kind (ir/states.def): how many rows a state has, how many are in
 * use, and what rewinding does to it. */
#include <string.h>

#include "runtime/internal.h"

typedef enum rows_rule { PER_POSITION, FIRST_DIM, ONE, PER_PAIR } rows_rule;
typedef enum rewind_rule { SHORTEN, CLEAR } rewind_rule;

static const struct {
    const char *word;
    rows_rule rows;
    rewind_rule rewind;
} kinds[] = {
#define S(id, word, rows, rewind, dims, growth, rewinding, saved, address, doc)                    \
    {word, rows, rewind},
#include "ir/states.def"
#undef S
};

/* Of PER_PAIR, s->rows is the most tokens that are done at once; kernels write whole panels of 16
 * of them. UINT64_MAX: more than can be counted. */
static uint64_t rows_of_pairs(const hrt_state_info *s, int64_t cap) {
    const uint64_t most = s->rows < (uint64_t)cap ? s->rows : (uint64_t)cap;
    uint64_t rows;
    return __builtin_mul_overflow((most + 15) / 16 * 16, (uint64_t)cap, &rows) ? UINT64_MAX : rows;
}

uint64_t hrt_saved_rows(const hrt_state_info *s, int64_t length) {
    return kinds[s->kind].rows == PER_PAIR ? 0 : hrt_state_rows(s, length);
}

uint64_t hrt_state_rows(const hrt_state_info *s, int64_t cap) {
    if (kinds[s->kind].rows == PER_PAIR) return rows_of_pairs(s, cap);
    if (kinds[s->kind].rows != PER_POSITION) return s->rows;
    return s->rows > 1 ? (uint64_t)cap / s->rows : (uint64_t)cap;
}

const char *hrt_state_word(const hrt_state_info *s) {
    return kinds[s->kind].word;
}

bool hrt_states_known(const hrt_model *m) {
    for (uint32_t i = 0; i < m->n_states; i++) {
        const hrt_state_info *s = &m->states[i];
        if (s->kind >= HRT_STATE_KINDS || s->heads == 0 || s->row_bytes % s->heads) return false;
        if (kinds[s->kind].rows != PER_POSITION && s->rows == 0) return false;
    }
    return true;
}

const hrt_state_info *hrt_state_to_clear(const hrt_model *m) {
    for (uint32_t i = 0; i < m->n_states; i++)
        if (kinds[m->states[i].kind].rewind == CLEAR) return &m->states[i];
    return NULL;
}

void hrt_clear_states(const hrt_model *m, const hrt_memory *memory) {
    for (uint32_t i = 0; i < m->n_states; i++) {
        const hrt_state_info *s = &m->states[i];
        if (kinds[s->kind].rewind == CLEAR)
            memset(memory->states[i], 0, (size_t)(s->rows * s->row_bytes));
    }
}
