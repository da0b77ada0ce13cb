/* The tokens that a run is trained on, and those of a batch. Several files are one sequence of tokens,
 * in the order in which they are given. */
#ifndef API_TRAIN_DATA_H
#define API_TRAIN_DATA_H

#include "api/data.h"
#include "api/train/order.h"

enum { TRAIN_DIGEST = 33 }; /* hexadecimal digits, and the 0 at the end */

typedef struct train_data {
    const hadal_data *const *files;
    const int64_t *first; /* of each file, and of the end */
    size_t n_files;
    int64_t tokens;
} train_data;

/* False, and a diagnostic: no files, a token that is not in the vocabulary, or fewer tokens than
 * `least`. `option` names the data in messages. */
bool train_data_open(hadal_session *s, const hadal_data *const *files, size_t n, int64_t vocab,
                     int64_t least, const char *option, train_data *out);
/* A digest of all tokens and of where files end. */
void train_data_digest(const train_data *d, char out[TRAIN_DIGEST]);
/* Copies tokens `first` .. `first + n - 1`. */
void train_data_copy(const train_data *d, int64_t first, int64_t n, int32_t *out);

/* Sequences as a library with gradients takes them. */
typedef struct train_batch {
    int32_t *tokens, *targets;
    int64_t *lengths;
    int64_t n_tokens, sequences;
    int32_t *window; /* room for one, with the token after it */
} train_batch;

/* Which tokens end a document, after which nothing of it is seen: none, or the last of each file and
 * each `id` (-1: no token). */
typedef struct train_documents {
    bool separate;
    int32_t id;
} train_documents;

/* Bytes of the room for so many windows. */
uint64_t train_batch_bytes(int64_t windows, int64_t context);
/* Room for `windows` of `context` tokens each; empty. */
train_batch train_batch_new(hd_arena *a, int64_t windows, int64_t context);
void train_batch_clear(train_batch *b);
/* Adds the n tokens from `first` on, with the tokens after each as targets: as one sequence, or as one
 * for each document. The last token of a document has no target. */
void train_batch_add(train_batch *b, const train_data *d, const train_documents *documents,
                     int64_t first, int64_t n);

#endif
