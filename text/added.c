/* Added tokens are searched in the text as it is: the longest token at the leftmost place wins. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

static int by_pattern(const void *x, const void *y) {
    const added_token *a = *(added_token *const *)x, *b = *(added_token *const *)y;
    const size_t n = a->pattern.n < b->pattern.n ? a->pattern.n : b->pattern.n;
    const int order = memcmp(a->pattern.at, b->pattern.at, n);
    if (order) return order;
    if (a->pattern.n != b->pattern.n) return a->pattern.n < b->pattern.n ? -1 : 1;
    return (a > b) - (a < b); /* equal patterns keep the order of the file */
}

static bool same_pattern(const added_token *a, const added_token *b) {
    return a->pattern.n == b->pattern.n && memcmp(a->pattern.at, b->pattern.at, a->pattern.n) == 0;
}

added_set added_set_of(tokenizer *t, bool normalized) {
    added_set s = {.at = hd_new_array(t->arena, added_token *, t->added.n + 1)};
    size_t n = 0;
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.at[i].normalized == normalized && t->added.at[i].pattern.n &&
            !(t->splits_special && t->added.at[i].special))
            s.at[n++] = &t->added.at[i];
    if (n) qsort(s.at, n, sizeof *s.at, by_pattern);
    for (size_t i = 0; i < n; i++)
        if (!s.n || !same_pattern(s.at[i], s.at[s.n - 1])) s.at[s.n++] = s.at[i];
    return s;
}

/* Returns the first token in [low, high) whose byte at `depth` is at least c (with `above`: greater
 * than c). All tokens of the range are longer than `depth` and share their first `depth` bytes. */
static size_t bound(const added_set *s, size_t low, size_t high, size_t depth, uint8_t c,
                    bool above) {
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const uint8_t at = (uint8_t)s->at[middle]->pattern.at[depth];
        if (at < c || (above && at == c))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Is the token one that a message cannot write, and is any byte of its place a message's? */
static bool is_quoted(const encoder *e, const added_token *t, const uint8_t *mask) {
    return mask && e->control[t - e->t->added.at] && memchr(mask, 1, t->pattern.n);
}

/* Returns the longest token that text[0..n) begins with. */
static const added_token *longest(const encoder *e, const added_set *s, const char *text, size_t n,
                                  const uint8_t *mask) {
    const added_token *best = NULL;
    size_t low = 0, high = s->n;
    for (size_t depth = 0; depth < n && low < high; depth++) {
        const uint8_t c = (uint8_t)text[depth];
        low = bound(s, low, high, depth, c, false);
        high = bound(s, low, high, depth, c, true);
        /* of tokens with a common beginning, the shortest comes first */
        if (low < high && s->at[low]->pattern.n == depth + 1) {
            if (!is_quoted(e, s->at[low], mask)) best = s->at[low];
            low++;
        }
    }
    return best;
}

static bool stands_alone(string text, size_t from, size_t to) {
    return !ends_in_word((string){text.at, from}) &&
           (to == text.n || !is_word_character(hd_utf8_code(text.at + to)));
}

static void add_text(encoder *e, piece in, size_t from, size_t to, piece_list *out) {
    const piece p = {in.at + from, to - from, -1, in.first && from == 0};
    if (to > from) hd_push(e->arena, out, p);
}

void cut_added(encoder *e, const added_set *set, piece in, const uint8_t *mask, piece_list *out) {
    const string text = {in.at, in.n};
    size_t done = 0;
    for (size_t at = 0; at < in.n;) {
        const added_token *t = longest(e, set, in.at + at, in.n - at, mask ? mask + at : NULL);
        if (!t) {
            at += (size_t)hd_utf8(in.at + at, in.n - at);
            continue;
        }
        size_t from = at, to = at + t->pattern.n;
        at = to;
        if (t->single_word && !stands_alone(text, from, to)) continue;
        if (t->strip_left && from > done) from -= space_at_end((string){in.at + done, from - done});
        if (t->strip_right) to += space_at_start((string){in.at + to, in.n - to});
        add_text(e, in, done, from, out);
        const piece p = {in.at + from, to > from ? to - from : 0, t->id, in.first && from == 0};
        hd_push(e->arena, out, p);
        done = to;
    }
    add_text(e, in, done, in.n, out);
}
