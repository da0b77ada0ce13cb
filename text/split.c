/* Splitting text into pieces ("pre-tokenizers"). */
#include <string.h>

#include "text/tokenizer.h"

typedef struct part { /* a range of a piece */
    size_t from, to;
    bool match;
} part;
typedef HD_VEC(part) part_list;

static void add_part(encoder *e, part_list *parts, size_t from, size_t to, bool match) {
    const part p = {from, to, match};
    hd_push(e->arena, parts, p);
}

/* Divides the whole piece into matches and the ranges between them. */
static void find_parts(encoder *e, const splitter *s, const piece *in, part_list *parts) {
    matches state = {0};
    span m;
    size_t done = 0;
    found f;
    while ((f = pattern_next(s->pattern, e->search, in->at, in->n, &state, &m)) == FOUND) {
        if (m.from > done) add_part(e, parts, done, m.from, s->invert);
        add_part(e, parts, m.from, m.to, !s->invert);
        done = m.to;
    }
    if (f == FOUND_LIMIT) e->limit = true;
    if (done < in->n) add_part(e, parts, done, in->n, s->invert);
}

/* Joins neighbouring parts where the behaviour requires it. */
static size_t join_forwards(part *at, size_t n, behaviour b) {
    size_t kept = 0;
    bool previous = false; /* the previous part is a match */
    for (size_t i = 0; i < n; i++) {
        const bool match = at[i].match;
        const bool join = b == CONTIGUOUS ? match == previous : match && !previous;
        if (join && kept)
            at[kept - 1].to = at[i].to;
        else
            at[kept++] = at[i];
        previous = match;
    }
    return kept;
}

static size_t join_backwards(part *at, size_t n) {
    size_t kept = n; /* the parts from `kept` on remain */
    bool previous = false;
    for (size_t i = n; i-- > 0;) {
        const bool match = at[i].match;
        if (match && !previous && kept < n)
            at[kept].from = at[i].from;
        else
            at[--kept] = at[i];
        previous = match;
    }
    memmove(at, at + kept, (n - kept) * sizeof *at);
    return n - kept;
}

static void split(encoder *e, const splitter *s, const piece *in, piece_list *out) {
    part_list parts = {0};
    find_parts(e, s, in, &parts);
    if (!parts.n) return;
    if (s->behaviour == CONTIGUOUS || s->behaviour == MERGED_WITH_PREVIOUS)
        parts.n = join_forwards(parts.at, parts.n, s->behaviour);
    if (s->behaviour == MERGED_WITH_NEXT) parts.n = join_backwards(parts.at, parts.n);
    for (size_t i = 0; i < parts.n; i++) {
        const part *p = &parts.at[i];
        const piece some = {in->at + p->from, p->to - p->from, -1, in->first && p->from == 0};
        if (some.n && !(s->behaviour == REMOVED && p->match)) hd_push(e->arena, out, some);
    }
}

/* ---- changes to a piece before it is split --------------------------------------------------- */

static void prepend(encoder *e, piece *p, string before) {
    char *text = hd_alloc(e->arena, p->n + before.n + 1, 1);
    memcpy(text, before.at, before.n);
    memcpy(text + before.n, p->at, p->n);
    p->at = text, p->n += before.n;
}

static void as_metaspace(encoder *e, const splitter *s, piece *p) {
    hd_text out;
    hd_text_init(&out, e->arena);
    const string r = s->replacement;
    for (size_t i = 0; i < p->n; i++)
        hd_text_add_n(&out, p->at[i] == ' ' ? r.at : p->at + i, p->at[i] == ' ' ? r.n : 1);
    p->at = out.at, p->n = out.n;
    const bool there = p->n >= r.n && memcmp(p->at, r.at, r.n) == 0;
    if (!there && (s->scheme == PREPEND_ALWAYS || (s->scheme == PREPEND_FIRST && p->first)))
        prepend(e, p, r);
}

static void before_split(encoder *e, const splitter *s, piece *p) {
    if (s->kind == SPLITTER_METASPACE) as_metaspace(e, s, p);
    if (s->kind == SPLITTER_BYTE_LEVEL && s->add_prefix_space && p->at[0] != ' ')
        prepend(e, p, (string){" ", 1});
}

void split_pieces(encoder *e, const splitter *s, piece_list *pieces) {
    piece_list out = {0};
    for (size_t i = 0; i < pieces->n; i++) {
        piece p = pieces->at[i];
        const size_t from = out.n;
        if (p.id < 0) before_split(e, s, &p);
        if (p.id < 0 && s->pattern)
            split(e, s, &p, &out);
        else
            hd_push(e->arena, &out, p);
        for (size_t k = from; s->kind == SPLITTER_BYTE_LEVEL && k < out.n; k++) {
            if (out.at[k].id >= 0) continue;
            const string bytes = as_byte_characters(e->arena, out.at[k].at, out.at[k].n);
            out.at[k].at = bytes.at, out.at[k].n = bytes.n;
        }
    }
    *pieces = out;
}
