/* A tokenizer as its tokenizer.json describes it. From text to tokens: added tokens are cut out
 * (added.c), the text between them is normalised (normalise.c) and split into pieces (split.c), and
 * byte pair encoding makes tokens of each piece (bpe.c); a template adds tokens at both ends
 * (encode.c). From tokens to text: decode.c. A tokenizer does not change once it has been read, so
 * threads may share it. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "support/diag.h"
#include "text/pattern.h"

enum { MOST_IDS = 1 << 22 }; /* every id is below; the largest published vocabularies have 2^18 */

/* ---- names by content ----------------------------------------------------------------------- */

typedef struct string {
    const char *at;
    size_t n;
} string;

typedef struct string_map { /* maps strings to ids; it grows while a file is read */
    string *keys;           /* .at NULL: a free slot */
    int32_t *ids;
    size_t slots, n; /* slots: a power of two */
    uint64_t seed;
} string_map;
void string_map_init(string_map *m, hd_arena *a, size_t most);
bool string_map_add(string_map *m, const char *at, size_t n, int32_t id); /* false: present */
int32_t string_map_find(const string_map *m, const char *at, size_t n);   /* -1: absent */

/* ---- byte pair encoding --------------------------------------------------------------------- */

typedef struct merge {
    uint32_t left, right; /* ids */
    uint32_t rank;        /* lower ranks are merged first */
    int32_t id;           /* of the result; -1: a free slot */
} merge;

typedef struct bpe {
    string_map vocab;
    merge *merges; /* slots, a power of two */
    size_t merge_slots;
    bool ignore_merges; /* a piece that is a token becomes that token without merges */
    bool byte_fallback, fuse_unk;
    int32_t unk;        /* -1: none */
    int32_t bytes[256]; /* ids of <0x00> .. <0xFF>; -1: the vocabulary has no such token */
} bpe;

typedef HD_VEC(int32_t) id_list;
typedef struct bpe_scratch bpe_scratch;
bpe_scratch *bpe_scratch_new(hd_arena *a);
/* Appends the tokens of a piece, in n log n steps. */
void bpe_encode(const bpe *b, bpe_scratch *s, hd_arena *a, const char *text, size_t n,
                id_list *out);
void bpe_merges_init(bpe *b, hd_arena *a, size_t most);
/* A pair that is present already gets the new rank, as in the tokenizers library. */
void bpe_add_merge(bpe *b, uint32_t left, uint32_t right, uint32_t rank, int32_t id);

/* ---- steps ---------------------------------------------------------------------------------- */

typedef enum normalizer_kind {
#define NORMALIZER(id, type, fields) NORMALIZER_##id,
#include "text/kinds.def"
    NORMALIZER_KINDS
} normalizer_kind;

typedef enum splitter_kind {
#define SPLITTER(id, type, fields) SPLITTER_##id,
#include "text/kinds.def"
    SPLITTER_KINDS
} splitter_kind;

typedef enum decoder_kind {
#define DECODER(id, type, fields) DECODER_##id,
#include "text/kinds.def"
    DECODER_KINDS
} decoder_kind;

typedef struct normalizer {
    normalizer_kind kind;
    const pattern *pattern;
    string content;   /* of Prepend and Replace */
    bool left, right; /* of Strip */
} normalizer;

typedef enum behaviour { /* what happens to the matches of a pattern */
                         REMOVED,
                         ISOLATED,
                         MERGED_WITH_PREVIOUS,
                         MERGED_WITH_NEXT,
                         CONTIGUOUS,
} behaviour;

typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

typedef struct splitter {
    splitter_kind kind;
    const pattern *pattern; /* NULL: the step does not split */
    behaviour behaviour;
    bool invert;           /* the roles of matches and of the text between them are swapped */
    bool add_prefix_space; /* ByteLevel */
    string replacement;    /* Metaspace */
    prepend_scheme scheme;
} splitter;

typedef struct decoder {
    decoder_kind kind;
    const pattern *pattern;
    string content; /* Replace, Strip; the character of Metaspace */
    size_t start, stop;
    bool drop_first; /* Metaspace: the character is left out of the first token */
    bool joined;     /* an earlier step joined all tokens to one text */
} decoder;

typedef struct added_token {
    int32_t id;
    string content;
    string pattern; /* the string to find: normalised content if `normalized` is set */
    bool special, single_word, strip_left, strip_right, normalized;
} added_token;

typedef struct added_set { /* sorted by pattern, without duplicates */
    added_token **at;
    size_t n;
} added_set;

typedef struct tokenizer {
    hd_arena *arena;
    bpe bpe;
    HD_VEC(normalizer) normalizers;
    HD_VEC(splitter) splitters;
    HD_VEC(decoder) decoders;
    HD_VEC(added_token) added;
    added_set raw, normalized; /* found before and after normalisation */
    bool splits_special;       /* special tokens are not searched */
    string_map added_ids;      /* by content */
    id_list before, after;     /* added by the template */
    string *tokens;            /* by id; .at NULL: no token has this id */
    bool *special;
    size_t n_ids;
} tokenizer;

/* Reads a tokenizer.json into memory of `a`. Returns NULL and diagnostics if the file is not one,
 * or contains what is not known. */
tokenizer *tokenizer_read(hd_arena *a, hd_diags *d, const char *path);

/* Does the same for a folder's tiktoken.model, with the tokenizer_config.json next to it. */
tokenizer *tokenizer_read_tiktoken(hd_arena *a, hd_diags *d, const char *folder);

/* Opens either file, for include/hadal/text.h; `path` may be a folder. The result lives as long as
 * `a`. */
struct hadal_tokenizer *tokenizer_open(hd_arena *a, hd_diags *d, const char *path);
const tokenizer *tokenizer_of(const struct hadal_tokenizer *t); /* what it has read */

/* ---- text to tokens ------------------------------------------------------------------------- */

typedef struct piece {
    const char *at; /* UTF-8 */
    size_t n;
    int32_t id; /* of an added token; -1: text */
    bool first; /* the piece begins where the whole text did before normalisation */
} piece;
typedef HD_VEC(piece) piece_list;

typedef struct encoder { /* the state of one encoding */
    const tokenizer *t;
    hd_arena *arena;
    search *search;
    const uint8_t *mask; /* by byte of the text: 1 is a message's, in which no control token is
                          * found; NULL: control tokens are found everywhere */
    const bool *control; /* by token of t->added */
    bool limit;          /* a pattern exceeded the limit of backtracking */
    bool cut_off;        /* the last normalisation removed the beginning of its text */
} encoder;

string normalise(encoder *e, string text);
/* Unicode's normal forms: NFKC is compatible and composed, NFD is neither. */
string normal_form(hd_arena *a, string text, bool compatible, bool compose);
/* `mask`: by byte of the piece; NULL: as that of an encoder. */
void cut_added(encoder *e, const added_set *set, piece in, const uint8_t *mask, piece_list *out);
/* Sorts the added tokens by pattern and drops those whose pattern is present already. */
added_set added_set_of(tokenizer *t, bool normalized);
void split_pieces(encoder *e, const splitter *s, piece_list *pieces);

/* Ill-formed UTF-8 becomes U+FFFD, once for each maximal subpart. Returns false if a pattern
 * exceeds the limit of backtracking. */
bool tokenizer_encode(const tokenizer *t, hd_arena *a, const char *text, size_t n,
                      bool with_template, id_list *out);

/* The same for the text of a chat, without the tokens of a template, with a mask and control tokens
 * as those of an encoder. */
bool tokenizer_encode_chat(const tokenizer *t, hd_arena *a, const char *text, size_t n,
                           const uint8_t *mask, const bool *control, id_list *out);

/* ---- tokens to text ------------------------------------------------------------------------- */

/* A stream returns text as early as possible: bytes that may still change with the next token
 * (unfinished UTF-8) are held back. */
typedef struct text_stream text_stream;
/* With `whole`, the caller wants the whole text at once, and ill-formed bytes are replaced by
 * sequences of byte tokens, as in the tokenizers library. */
text_stream *text_stream_new(hd_arena *a, const tokenizer *t, bool whole, bool skip_special);
/* Returns the text that is certain now, valid until the next call. An id without a token adds
 * nothing. */
string text_stream_add(text_stream *s, int32_t id);
/* Returns the bytes that a token would add, without replacement characters; the stream goes on as
 * if this function had not been called. */
string text_stream_bytes(text_stream *s, int32_t id);
/* Returns what was held back; the next token begins a new text. */
string text_stream_end(text_stream *s);

/* ---- characters ----------------------------------------------------------------------------- */

bool is_unseen(uint32_t code); /* prints no mark, or reverses the direction of the text around it */
bool is_space(uint32_t code);  /* has the property White_Space of Unicode */
bool is_word_character(uint32_t code);
size_t space_at_start(string text); /* length in bytes of the white space at the start */
size_t space_at_end(string text);
bool ends_in_word(string text);

/* ---- characters of byte-level vocabularies -------------------------------------------------- */

/* Each byte has a printable character (GPT-2): the byte's character in Latin-1 where that is
 * printable, else one from U+0100 on. */
uint32_t byte_character(uint8_t byte);
int character_byte(uint32_t code); /* -1: the character stands for no byte */
/* Returns the text with each of its bytes written as that character. */
string as_byte_characters(hd_arena *a, const char *text, size_t n);

#endif
