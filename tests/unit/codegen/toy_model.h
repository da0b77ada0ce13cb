/* A small model as kernel IR, written by hand: layers of attention with a residual sum, and a head
 * tied to the embedding. For tests of lowering, objects, headers and links without frontend or
 * passes. Layers differ in their weights and states only. */
#ifndef TOY_MODEL_H
#define TOY_MODEL_H

#include <string.h>

#include "codegen/program/program.h"

/* Replaces each '#' by the layer's number, each '^' by the next one's. */
static inline void toy_numbered(hd_text *out, const char *text, int layer) {
    for (; *text; text++) {
        if (*text == '#' || *text == '^')
            hd_text_f(out, "%d", layer + (*text == '^'));
        else
            hd_text_add_n(out, text, 1);
    }
}

static const char toy_weights[] = "weight @l#.q : f32[64, 64] panel\n"
                                  "weight @l#.k : f32[32, 64] panel\n"
                                  "weight @l#.v : f32[32, 64] panel\n"
                                  "weight @l#.vb : f32[32]\n"
                                  "weight @l#.o : bf16[64, 64] panel\n";
static const char toy_states[] = "state $l#.k : f32[C, 1, 32]\n"
                                 "state $l#.v : f32[C, 1, 32]\n";

/* Arena: h 0 and 1024 in turn, q 256, k 512, v 640, o 768. */
static const char toy_layer[] =
    "  %q#, %k#, %v# = kernel.contract {name = \"qkv#\", rows = \"all\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : f32[T, 64] in arena[256], f32[T, 32] in arena[512], f32[T, 32] in "
    "arena[640] {\n"
    "    %ql# = linear %h#, @l#.q, _ : f32[T, 64]\n"
    "    %kl# = linear %h#, @l#.k, _ : f32[T, 32]\n"
    "    %vl# = linear %h#, @l#.v, @l#.vb : f32[T, 32]\n"
    "    yield %ql#, %kl#, %vl#\n"
    "  }\n"
    "  %kc#, %vc# = kernel.row {name = \"append#\", rows = \"all\", split_decode = \"none\", "
    "split_prefill = \"rows\"} : f32[C, 1, 32] in state[<K>], f32[C, 1, 32] in state[<V>] {\n"
    "    %kr# = reshape %k# {shape = [T, 1, 32]} : f32[T, 1, 32]\n"
    "    %ka# = cache_append %kr#, $l#.k : f32[C, 1, 32]\n"
    "    %vr# = reshape %v# {shape = [T, 1, 32]} : f32[T, 1, 32]\n"
    "    %va# = cache_append %vr#, $l#.v : f32[C, 1, 32]\n"
    "    yield %ka#, %va#\n"
    "  }\n"
    "  %o# = kernel.sequence {name = \"attention#\", rows = \"all\", split_decode = \"keys\", "
    "split_prefill = \"cyclic\", grain = 4} : f32[T, 64] in arena[768] {\n"
    "    %qr# = reshape %q# {shape = [T, 2, 32]} : f32[T, 2, 32]\n"
    "    %ao# = attention %qr#, %kc#, %vc# {scale = 0.25} : f32[T, 2, 32]\n"
    "    %af# = reshape %ao# {shape = [T, 64]} : f32[T, 64]\n"
    "    yield %af#\n"
    "  }\n"
    "  %h^ = kernel.contract {name = \"out#\", rows = \"all\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : f32[T, 64] in arena[<H>] {\n"
    "    %ol# = linear %o#, @l#.o, _ : f32[T, 64]\n"
    "    %os# = add %ol#, %h# : f32[T, 64]\n"
    "    yield %os#\n"
    "  }\n";

static inline const char *toy_replace(hd_arena *a, const char *text, const char *what, int with) {
    const char *at = strstr(text, what);
    size_t before = at ? (size_t)(at - text) : 0;
    if (!at) return text;
    return hd_printf(a, "%.*s%d%s", (int)before, text, with, at + strlen(what));
}

static inline const char *toy_model(hd_arena *a, const char *name, int layers, int vocab) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_f(&t,
              "hir 1 kernel @%s\n\noption layers = \"%d\"\n\narena 1536 per token\nfixed 256\n\n",
              name, layers);
    hd_text_f(&t,
              "weight @embed : f32[%d, 64] panel\nweight @spare : f32[7] unused\n"
              "weight @gain : f32[64]\n",
              vocab);
    for (int l = 0; l < layers; l++)
        toy_numbered(&t, toy_weights, l);
    hd_text_add(&t, "\nstate $extra : f32[C, 3]\n");
    for (int l = 0; l < layers; l++)
        toy_numbered(&t, toy_states, l);
    hd_text_add(&t,
                "\nfunc(%tokens: i32[T] in input[0]) {\n"
                "  %g = kernel.row {name = \"gain\", rows = \"all\", split_decode = \"none\", "
                "split_prefill = \"none\"} : f32[64] in fixed[0] {\n"
                "    %gs = sigmoid @gain : f32[64]\n"
                "    yield %gs\n"
                "  }\n"
                "  %h0 = kernel.row {name = \"embed\", rows = \"all\", split_decode = \"none\", "
                "split_prefill = \"rows\"} : f32[T, 64] in arena[0] {\n"
                "    %e = gather @embed, %tokens : f32[T, 64]\n"
                "    %eg = mul %e, %g : f32[T, 64]\n"
                "    yield %eg\n"
                "  }\n");
    for (int l = 0; l < layers; l++) {
        const char *text = toy_replace(a, toy_layer, "<K>", 1 + 2 * l);
        text = toy_replace(a, text, "<V>", 2 + 2 * l);
        text = toy_replace(a, text, "<H>", l % 2 ? 0 : 1024);
        hd_text numbered;
        hd_text_init(&numbered, a);
        toy_numbered(&numbered, text, l);
        hd_text_add(&t, numbered.at);
    }
    hd_text_f(&t,
              "  %%logits = kernel.contract {name = \"head\", rows = \"last\", split_decode = "
              "\"cols\", split_prefill = \"cols\"} : f32[T, %d] in output[0] {\n"
              "    %%y = linear %%h%d, @embed, _ : f32[T, %d]\n"
              "    yield %%y\n"
              "  }\n"
              "  output %%logits {name = \"logits\"}\n}\n",
              vocab, layers, vocab);
    return t.at;
}

#endif
