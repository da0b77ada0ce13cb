/* From tokens to text, token by token. Each step of the decoder takes pieces (the first step:
 * tokens) and passes pieces to the next step; after a step that joins, the pieces are parts of one
 * text. A step holds back what it cannot decide yet. */
#include <string.h>

#include "text/tokenizer.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

typedef struct state { /* of one step of the decoder */
    hd_text held;      /* bytes of an unfinished character, or consecutive byte tokens */
    bool begun;        /* a piece has arrived */
    size_t stripped;   /* characters removed from the beginning so far */
} state;

struct text_stream {
    const tokenizer *t;
    hd_arena *arena;
    bool whole, skip_special;
    bool raw;   /* bytes are passed on as they are, whether they form characters or not */
    bool begun; /* a token has arrived; used for tokenizers without a decoder */
    state *states;
    search *search;
    hd_text out;
};

text_stream *text_stream_new(hd_arena *a, const tokenizer *t, bool whole, bool skip_special) {
    text_stream *s = hd_new(a, text_stream);
    *s = (text_stream){.t = t, .arena = a, .whole = whole, .skip_special = skip_special};
    s->states = hd_new_array(a, state, t->decoders.n + 1);
    s->search = search_new(a);
    for (size_t i = 0; i < t->decoders.n; i++)
        hd_text_init(&s->states[i].held, a);
    hd_text_init(&s->out, a);
    return s;
}

static void feed(text_stream *s, size_t step, string piece);

static void feed_text(text_stream *s, size_t step, const char *text) {
    feed(s, step, (string){text, strlen(text)});
}

/* ---- bytes of byte-level vocabularies -------------------------------------------------------- */

/* Passes held bytes on as characters; ill-formed bytes become U+FFFD, an unfinished character stays
 * held. */
static void hand_on_bytes(text_stream *s, size_t step, hd_text *held) {
    size_t i = 0;
    hd_text out;
    hd_text_init(&out, s->arena);
    while (i < held->n) {
        const int k = hd_utf8(held->at + i, held->n - i);
        if (k == 0) break;
        hd_text_add_n(&out, k > 0 ? held->at + i : replacement, k > 0 ? (size_t)k : 3);
        i += (size_t)(k > 0 ? k : -k);
    }
    held->n -= i;
    if (i) memmove(held->at, held->at + i, held->n);
    if (out.n) feed(s, step + 1, (string){out.at, out.n});
}

/* Appends the bytes that a token stands for, or the token's own bytes if one of its characters
 * stands for no byte. */
static void add_bytes_of(hd_text *out, string piece) {
    const size_t before = out->n;
    for (size_t i = 0; i < piece.n; i += (size_t)hd_utf8(piece.at + i, piece.n - i)) {
        const int byte = character_byte(hd_utf8_code(piece.at + i));
        if (byte < 0) {
            out->n = before;
            hd_text_add_n(out, piece.at, piece.n);
            break;
        }
        hd_text_add_n(out, &(char){(char)byte}, 1);
    }
}

static void take_byte_level(text_stream *s, size_t step, string piece) {
    hd_text *held = &s->states[step].held, bytes;
    if (!s->raw) {
        add_bytes_of(held, piece);
        hand_on_bytes(s, step, held);
        return;
    }
    hd_text_init(&bytes, s->arena);
    hd_text_add(&bytes, "");
    add_bytes_of(&bytes, piece);
    feed(s, step + 1, (string){bytes.at, bytes.n});
}

/* ---- tokens of single bytes ------------------------------------------------------------------ */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the byte of a token such as "<0xE4>", or -1 for any other token. */
static int byte_token(string t) {
    if (t.n != 6 || memcmp(t.at, "<0x", 3) != 0 || t.at[5] != '>') return -1;
    const int high = hex_digit(t.at[3]), low = hex_digit(t.at[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool is_well_formed(string t) {
    int k = 1;
    for (size_t i = 0; i < t.n && k > 0; i += (size_t)(k > 0 ? k : 0))
        k = hd_utf8(t.at + i, t.n - i);
    return k > 0;
}

/* Ends consecutive byte tokens: the bytes are passed on as text if they are well-formed, otherwise
 * each byte becomes one U+FFFD. */
static void end_bytes(text_stream *s, size_t step) {
    hd_text *held = &s->states[step].held, out;
    hd_text_init(&out, s->arena);
    const bool good = is_well_formed((string){held->at, held->n});
    for (size_t i = 0; i < held->n; i++)
        hd_text_add_n(&out, good ? held->at + i : replacement, good ? 1 : 3);
    held->n = 0;
    if (out.n) feed(s, step + 1, (string){out.at, out.n});
}

static void take_byte_fallback(text_stream *s, size_t step, string piece) {
    hd_text *held = &s->states[step].held;
    const int byte = byte_token(piece);
    if (s->raw) {
        feed(s, step + 1, byte < 0 ? piece : (string){&(char){(char)byte}, 1});
        return;
    }
    if (byte < 0) {
        end_bytes(s, step);
        feed(s, step + 1, piece);
        return;
    }
    hd_text_add_n(held, &(char){(char)byte}, 1);
    if (s->whole) return;
    const int k = hd_utf8(held->at, held->n);
    if (k != 0) end_bytes(s, step); /* the bytes are one character, or can no longer become one */
}

/* ---- characters ------------------------------------------------------------------------------ */

static void replace(text_stream *s, size_t step, const decoder *d, string piece) {
    hd_text out;
    hd_text_init(&out, s->arena);
    matches m = {0};
    span at;
    size_t done = 0;
    while (pattern_next(d->pattern, s->search, piece.at, piece.n, &m, &at) == FOUND) {
        hd_text_add_n(&out, piece.at + done, at.from - done);
        hd_text_add_n(&out, d->content.at, d->content.n);
        done = at.to;
    }
    hd_text_add_n(&out, piece.at + done, piece.n - done);
    feed(s, step + 1, (string){out.at, out.n});
}

static bool begins(string text, string with) {
    return text.n >= with.n && memcmp(text.at, with.at, with.n) == 0;
}

static bool ends(string text, string with) {
    return text.n >= with.n && memcmp(text.at + text.n - with.n, with.at, with.n) == 0;
}

/* Removes up to `start` characters from the beginning and `stop` from the end of each piece, or of
 * the joined text, whose beginning may arrive in several pieces. */
static void strip(text_stream *s, size_t step, const decoder *d, string piece) {
    state asked = s->states[step], *x = s->raw ? &asked : &s->states[step];
    if (!d->joined) x->stripped = 0;
    while (x->stripped < d->start && piece.n) {
        if (!begins(piece, d->content)) {
            x->stripped = d->start;
            break;
        }
        piece.at += d->content.n, piece.n -= d->content.n;
        x->stripped++;
    }
    for (size_t i = 0; i < d->stop && ends(piece, d->content); i++)
        piece.n -= d->content.n;
    feed(s, step + 1, piece);
}

/* Replaces the character that stands for a space by a space; in the first token the character is
 * left out. */
static void metaspace(text_stream *s, size_t step, const decoder *d, string piece) {
    const bool drop = d->drop_first && !s->states[step].begun;
    hd_text out;
    hd_text_init(&out, s->arena);
    while (piece.n) {
        const bool space = begins(piece, d->content);
        const size_t n = space ? d->content.n : (size_t)hd_utf8(piece.at, piece.n);
        if (!space || !drop) hd_text_add_n(&out, space ? " " : piece.at, space ? 1 : n);
        piece.at += n, piece.n -= n;
    }
    if (!s->raw) s->states[step].begun = true;
    feed(s, step + 1, (string){out.at, out.n});
}

/* ---- the chain ------------------------------------------------------------------------------- */

static void feed(text_stream *s, size_t step, string piece) {
    if (step == s->t->decoders.n) {
        hd_text_add_n(&s->out, piece.at, piece.n);
        return;
    }
    const decoder *d = &s->t->decoders.at[step];
    /* steps that look for characters are skipped by raw bytes that form none */
    switch (s->raw && !is_well_formed(piece) ? DECODER_FUSE : d->kind) {
    case DECODER_BYTE_LEVEL: take_byte_level(s, step, piece); break;
    case DECODER_BYTE_FALLBACK: take_byte_fallback(s, step, piece); break;
    case DECODER_REPLACE: replace(s, step, d, piece); break;
    case DECODER_STRIP: strip(s, step, d, piece); break;
    case DECODER_METASPACE: metaspace(s, step, d, piece); break;
    default: feed(s, step + 1, piece); /* Fuse: the steps after it know that the text is joined */
    }
}

static void begin_output(text_stream *s) {
    s->out.n = 0;
    hd_text_add(&s->out, "");
}

string text_stream_add(text_stream *s, int32_t id) {
    const tokenizer *t = s->t;
    begin_output(s);
    if (id < 0 || (size_t)id >= t->n_ids || !t->tokens[id].at ||
        (s->skip_special && t->special[id]))
        return (string){s->out.at, 0};
    if (t->decoders.n == 0 && s->begun) hd_text_add(&s->out, " ");
    s->begun = true;
    feed(s, 0, t->tokens[id]);
    return (string){s->out.at, s->out.n};
}

string text_stream_bytes(text_stream *s, int32_t id) {
    const bool begun = s->begun;
    s->raw = true;
    const string bytes = text_stream_add(s, id);
    s->raw = false;
    s->begun = begun;
    return bytes;
}

string text_stream_end(text_stream *s) {
    begin_output(s);
    for (size_t i = 0; i < s->t->decoders.n; i++) {
        state *x = &s->states[i];
        if (s->t->decoders.at[i].kind == DECODER_BYTE_LEVEL && x->held.n) {
            x->held.n = 0; /* the text ends with an unfinished character */
            feed_text(s, i + 1, replacement);
        }
        if (s->t->decoders.at[i].kind == DECODER_BYTE_FALLBACK) end_bytes(s, i);
        x->begun = false, x->stripped = 0;
    }
    s->begun = false;
    return (string){s->out.at, s->out.n};
}
