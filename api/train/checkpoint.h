/* Checkpoints of a run: RUN/checkpoint-STEP, a model folder with the state of the trainer in it.
 *
 *     model.safetensors             the parameters, as a checkpoint has them
 *     model.hir, or config.json ..  the model: what a run was begun with, so that it needs no other file
 *     tokenizer.json ..             if the data were text
 *     trainer.state                 what a run goes on from
 *
 * A checkpoint is written beside its name, and has the name when all of it is on the disk. */
#ifndef API_TRAIN_CHECKPOINT_H
#define API_TRAIN_CHECKPOINT_H

#include "api/train/folder.h"
#include "api/trainer.h"

typedef struct train_file {
    const char *name;
    hd_bytes bytes;
} train_file;

typedef struct train_checkpoints {
    hadal_session *s;
    api_trainer *t;
    const train_folder *folder;
    HD_VEC(hd_tensor) tensors; /* the parameters */
    HD_VEC(train_file) files;  /* the same in each checkpoint */
    int64_t last;              /* the step of the last one; 0: there is none */
} train_checkpoints;

/* `tokenizer`: a tokenizer's file, or the folder of one; NULL: none. `bytes`: the data are text whose
 * bytes are the tokens, for which a tokenizer is made. */
bool train_checkpoints_open(train_checkpoints *c, api_trainer *t, const train_folder *folder,
                            const char *tokenizer, bool bytes);
/* The trainer as it was after the step. Ranks that train together call it together, and
 * train_checkpoint_write as well: the first of them reads and writes the files. */
bool train_checkpoint_read(train_checkpoints *c, int64_t step);
bool train_checkpoint_write(train_checkpoints *c, int64_t step);

#endif
