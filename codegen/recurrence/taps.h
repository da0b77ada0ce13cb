/* The taps of a convolution as vectors. In memory the taps of a channel stand side by side; vectors
 * hold one tap of channels side by side. So taps are transposed: for each vector of channels once,
 * or for each token that has its own taps.
 */
#ifndef HCG_TAPS_H
#define HCG_TAPS_H

#include "codegen/emit/emit.h"

typedef struct hcg_taps {
    LLVMValueRef at;     /* f32 [groups][n], or [T][groups][n] if each token has its own */
    LLVMValueRef turned; /* the transposed taps: f32 [n][lanes] for each vector of a block */
    int64_t channels, groups, n;
    bool own;    /* each token has its own taps */
    bool shared; /* the channels of a vector are in one group, whose taps they share */
} hcg_taps;

/* The address of tap 0 of the group of a channel, for token t. */
LLVMValueRef hcg_taps_at(hcg_emit *e, const hcg_taps *w, LLVMValueRef t, LLVMValueRef channel);
/* Transposes the taps of token t for vector `v` of a block: channels from `channel` on, `valid` of
 * them (NULL: all lanes). */
void hcg_turn_taps(hcg_emit *e, const hcg_taps *w, LLVMValueRef t, LLVMValueRef channel,
                   LLVMValueRef valid, unsigned v);
/* The address of a transposed tap of vector v, and the tap. */
LLVMValueRef hcg_turned_at(hcg_emit *e, const hcg_taps *w, unsigned v, LLVMValueRef tap);
LLVMValueRef hcg_tap(hcg_emit *e, const hcg_taps *w, unsigned v, LLVMValueRef tap);
/* The way back, where each channel has its own: stores what `turned` holds for vector 0 to the
 * channels from `to` on, [lanes][n], or, if `adds`, adds it to what is there. */
void hcg_turn_back(hcg_emit *e, const hcg_taps *w, LLVMValueRef to, LLVMValueRef valid, bool adds);

#endif
