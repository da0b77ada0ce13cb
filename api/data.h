/* The tokens of a file (hadal_data_open). */
#ifndef API_DATA_H
#define API_DATA_H

#include "api/session.h"

struct hadal_data {
    const char *path;
    int64_t n;
    int64_t bytes, text_tokens; /* of a text, and the tokens that stand for it, without those that a
                                 * tokenizer puts around it; 0: the data are tokens */
    /* One of these: */
    const uint8_t *text; /* a byte is a token */
    const uint8_t *raw;  /* little-endian numbers of 32 bits */
    const int32_t *ids;
    hd_tensor tensor;
};

/* Opens NAME, FILE.npy or FILE:TENSOR of a file of safetensors: one row of whole numbers. */
bool api_open_token_tensor(hadal_session *s, const char *name, hd_tensor *out);
/* Copies tokens `first` .. `first + n - 1`. */
void api_data_copy(const hadal_data *d, int64_t first, int64_t n, int32_t *out);
/* The number of ids that the loaded model takes and predicts; 0: it is kernel IR, which does not say.
 * False, and a diagnostic: it has no loss. */
bool api_vocabulary(hadal_session *s, int64_t *vocab);
/* False, and a diagnostic that names the first token outside of 0 .. vocab - 1. */
bool api_data_check(hadal_session *s, const hadal_data *d, int64_t vocab);
/* False, and a diagnostic, if `path` is the file of the data. */
bool api_data_may_write(hadal_session *s, const hadal_data *d, const char *path);

#endif
