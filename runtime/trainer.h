/* What the files of trainers share: trainer.c makes them and computes gradients, optimizer.c and muon.c
 * take steps, trainer_saved.c keeps them, trainer_ranks.c has what they do with other ranks. */
#ifndef HRT_TRAINER_H
#define HRT_TRAINER_H

#include <string.h>

#include "runtime/internal.h"
#include "runtime/walk.h"

/* The two parts of the parameters: what AdamW changes, element by element, and after it the matrices
 * that Muon changes (hrt_model.muon_offset). */
enum { HRT_ELEMENTS, HRT_MATRICES, HRT_PARTS };
/* Moments: the first and the second of elements, that of matrices. */
enum { HRT_FIRST, HRT_SECOND, HRT_MOMENTUM, HRT_MOMENTS };
#define U(id, text, moments, decays, meaning)                                                      \
    _Static_assert((moments) == (HRT_UPDATE_##id == HRT_UPDATE_MUON ? 1 : 2), "as in its part");
#include "runtime/updates.def"
#undef U

struct hrt_trainer {
    hrt_session session; /* comes first */
    hrt_parameter_view *views;
    void **outs; /* by output of the program */
    uint8_t *weights, *gradients, *space;
    hrt_span mine[HRT_PARTS]; /* floats of the parameters that this rank changes: of one rank all */
    float *moments[HRT_MOMENTS]; /* of these */
    size_t space_threads;        /* that `space` is for, muon_bytes for each */
    int64_t count;               /* targets that have counted since the last step, on all ranks */
    int64_t steps;               /* taken so far */
    bool spoilt; /* a loss was not finite, and so are gradients, or nothing but noise */
    float loss;  /* of a sequence: the first output */
};

/* Sets all gradients to zero, and what belongs to them. */
void hrt_clear_gradients(hrt_trainer *t);

static inline int hrt_part_of(const hrt_parameter *p) {
    return p->update == HRT_UPDATE_MUON ? HRT_MATRICES : HRT_ELEMENTS;
}

static inline int hrt_part_of_moment(int which) {
    return which == HRT_MOMENTUM ? HRT_MATRICES : HRT_ELEMENTS;
}

/* What of a parameter this rank changes, in elements of it. */
hrt_span hrt_mine_of(const hrt_trainer *t, const hrt_parameter *p);

/* A moment of element `i` of a parameter, which this rank changes. */
static inline float *hrt_moment(const hrt_trainer *t, const hrt_parameter *p, int which, size_t i) {
    const int64_t at = (int64_t)(p->offset / sizeof(float) + i);
    return t->moments[which] + (at - t->mine[hrt_part_of(p)].from);
}

/* ---- trainer_ranks.c ------------------------------------------------------------------------- */
/* What rank `rank` of `ranks` changes of each part. */
void hrt_divide(const hrt_model *m, int32_t rank, int32_t ranks, hrt_span mine[HRT_PARTS]);

/* The functions below do nothing, with the result HRT_OK or `code`, where there is one rank. All
 * ranks call them, and all return an error where one does. */
typedef enum hrt_trainer_call {
    HRT_CALL_GRADIENTS,
    HRT_CALL_LOSS,
    HRT_CALL_STEP,
    HRT_CALL_SAVE,
    HRT_CALL_RESTORE,
} hrt_trainer_call;
/* Before a call, which this rank rejects if `code` is an error: all ranks make the same call. `facts`
 * are the same on all: of gradients and losses a checksum of the parameters, of a step one of the
 * options. */
int hrt_agree_on_training(hrt_trainer *t, hrt_trainer_call call, int code, uint64_t facts);
/* The sums over ranks of what a call has found, if it was successful on all of them. */
int hrt_sum_losses(hrt_trainer *t, int code, double *sum, int64_t *count);
/* The gradients of what this rank changes become their sums over ranks. */
int hrt_sum_gradients(hrt_trainer *t);
/* The squares of gradients, and the first of them that is not finite: `parameter` is n_parameters of
 * the model where there is none. */
typedef struct hrt_norm_part {
    double sum;
    uint64_t element;
    uint32_t parameter;
    float value;
} hrt_norm_part;
int hrt_sum_squares(hrt_trainer *t, hrt_norm_part *all);
/* All ranks get what each of them has changed. */
int hrt_gather_parameters(hrt_trainer *t);
/* Moments of all ranks as bytes, of which rank 0 has the memory: saves them, or puts them back. */
int hrt_save_moments(hrt_trainer *t, uint8_t *to);
int hrt_restore_moments(hrt_trainer *t, const uint8_t *from);
/* All ranks get the parameters that rank 0 has in memory, and its number of steps. */
int hrt_share_parameters(hrt_trainer *t, const uint8_t *from, int64_t *steps);
static inline bool hrt_is_first(const hrt_trainer *t) {
    return t->session.side.rank == 0;
}

#endif
