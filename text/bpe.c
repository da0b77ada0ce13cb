/* Byte pair encoding: the neighbours with the lowest rank are merged until no pair can be merged. A
 * heap of candidates and a linked list of symbols make that n log n. */
#include <string.h>
#include <xxhash.h>

#include "text/tokenizer.h"

/* ---- maps ------------------------------------------------------------------------------------ */

static size_t slots_for(size_t most) {
    size_t slots = 16;
    while (slots / 2 < most)
        slots *= 2;
    return slots;
}

void string_map_init(string_map *m, hd_arena *a, size_t most) {
    *m = (string_map){.slots = slots_for(most), .seed = (uintptr_t)a};
    m->keys = hd_new_array(a, string, m->slots);
    m->ids = hd_new_array(a, int32_t, m->slots);
}

static size_t string_slot(const string_map *m, const char *at, size_t n) {
    size_t i = XXH3_64bits_withSeed(at, n, m->seed) & (m->slots - 1);
    while (m->keys[i].at && (m->keys[i].n != n || memcmp(m->keys[i].at, at, n) != 0))
        i = (i + 1) & (m->slots - 1);
    return i;
}

bool string_map_add(string_map *m, const char *at, size_t n, int32_t id) {
    const size_t i = string_slot(m, at, n);
    if (m->keys[i].at) return false;
    m->keys[i] = (string){at, n};
    m->ids[i] = id;
    m->n++;
    return true;
}

int32_t string_map_find(const string_map *m, const char *at, size_t n) {
    if (m->slots == 0) return -1;
    const size_t i = string_slot(m, at, n);
    return m->keys[i].at ? m->ids[i] : -1;
}

void bpe_merges_init(bpe *b, hd_arena *a, size_t most) {
    b->merge_slots = slots_for(most);
    b->merges = hd_new_array(a, merge, b->merge_slots);
    for (size_t i = 0; i < b->merge_slots; i++)
        b->merges[i].id = -1;
}

static merge *merge_slot(const bpe *b, uint32_t left, uint32_t right) {
    const uint32_t pair[] = {left, right};
    size_t i = XXH3_64bits_withSeed(pair, sizeof pair, b->vocab.seed) & (b->merge_slots - 1);
    while (b->merges[i].id >= 0 && (b->merges[i].left != left || b->merges[i].right != right))
        i = (i + 1) & (b->merge_slots - 1);
    return &b->merges[i];
}

void bpe_add_merge(bpe *b, uint32_t left, uint32_t right, uint32_t rank, int32_t id) {
    *merge_slot(b, left, right) = (merge){left, right, rank, id};
}

/* ---- encoding -------------------------------------------------------------------------------- */

typedef struct symbol {
    int32_t id;
    int64_t previous, next; /* -1: none */
    bool gone;              /* this symbol was merged into the one before it */
} symbol;

typedef struct candidate { /* a possible merge of symbol `at` with the next symbol */
    uint32_t rank;
    size_t at;
    int32_t id; /* id of the result; an outdated candidate is recognised by it */
} candidate;

struct bpe_scratch {
    hd_arena *arena;
    HD_VEC(symbol) symbols;
    HD_VEC(candidate) heap;
};

bpe_scratch *bpe_scratch_new(hd_arena *a) {
    bpe_scratch *s = hd_new(a, bpe_scratch);
    s->arena = a;
    return s;
}

static bool is_before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push_candidate(bpe_scratch *s, candidate c) {
    hd_push(s->arena, &s->heap, c);
    candidate *h = s->heap.at;
    size_t i = s->heap.n - 1;
    for (; i > 0 && is_before(&c, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = c;
}

static candidate pop_candidate(bpe_scratch *s) {
    candidate *h = s->heap.at;
    const candidate top = h[0], last = h[--s->heap.n];
    const size_t n = s->heap.n;
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_before(&h[child + 1], &h[child])) child++;
        if (!is_before(&h[child], &last)) break;
        h[i] = h[child];
    }
    if (n) h[i] = last;
    return top;
}

/* Adds the pair that begins at symbol `at` to the heap, if the pair can be merged. */
static void consider(const bpe *b, bpe_scratch *s, int64_t at) {
    const symbol *x = &s->symbols.at[at];
    if (x->next < 0) return;
    const merge *m = merge_slot(b, (uint32_t)x->id, (uint32_t)s->symbols.at[x->next].id);
    if (m->id >= 0) push_candidate(s, (candidate){m->rank, (size_t)at, m->id});
}

static void merge_symbols(const bpe *b, bpe_scratch *s) {
    symbol *all = s->symbols.at;
    s->heap.n = 0;
    for (size_t i = 0; i + 1 < s->symbols.n; i++)
        consider(b, s, (int64_t)i);
    while (s->heap.n > 0) {
        const candidate c = pop_candidate(s);
        symbol *left = &all[c.at];
        if (left->gone || left->next < 0) continue;
        symbol *right = &all[left->next];
        const merge *m = merge_slot(b, (uint32_t)left->id, (uint32_t)right->id);
        if (m->id != c.id) continue; /* outdated: the neighbours have changed since */
        right->gone = true;
        left->id = c.id;
        left->next = right->next;
        if (right->next >= 0) all[right->next].previous = (int64_t)c.at;
        if (left->previous >= 0) consider(b, s, left->previous);
        consider(b, s, (int64_t)c.at);
    }
}

static void add_symbol(bpe_scratch *s, int32_t id) {
    const int64_t i = (int64_t)s->symbols.n;
    const symbol x = {.id = id, .previous = i - 1, .next = i + 1};
    hd_push(s->arena, &s->symbols, x);
}

static bool add_bytes(const bpe *b, bpe_scratch *s, const char *at, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (b->bytes[(uint8_t)at[i]] < 0) return false;
    for (size_t i = 0; i < n; i++)
        add_symbol(s, b->bytes[(uint8_t)at[i]]);
    return true;
}

/* Adds the characters of a text as symbols. A character that is no token becomes its bytes, or else
 * unk, or else nothing. A pending unk is added before the next token, though not before bytes: this
 * is the order of the tokenizers library. */
static void add_characters(const bpe *b, bpe_scratch *s, const char *text, size_t n) {
    bool pending = false;
    for (size_t i = 0, k; i < n; i += k) {
        k = (size_t)hd_utf8(text + i, n - i);
        const int32_t id = string_map_find(&b->vocab, text + i, k);
        if (id < 0 && b->byte_fallback && add_bytes(b, s, text + i, k)) continue;
        if (id < 0 && b->unk < 0) continue;
        if (pending && (id >= 0 || !b->fuse_unk)) add_symbol(s, b->unk);
        pending = id < 0;
        if (id >= 0) add_symbol(s, id);
    }
    if (pending) add_symbol(s, b->unk);
}

void bpe_encode(const bpe *b, bpe_scratch *s, hd_arena *a, const char *text, size_t n,
                id_list *out) {
    const int32_t whole = b->ignore_merges ? string_map_find(&b->vocab, text, n) : -1;
    if (whole >= 0) {
        hd_push(a, out, whole);
        return;
    }
    s->symbols.n = 0;
    add_characters(b, s, text, n);
    if (s->symbols.n == 0) return;
    s->symbols.at[s->symbols.n - 1].next = -1;
    merge_symbols(b, s);
    for (size_t i = 0; i < s->symbols.n; i++)
        if (!s->symbols.at[i].gone) hd_push(a, out, s->symbols.at[i].id);
}
