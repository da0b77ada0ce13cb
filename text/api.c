/* The functions of include/hadal/text.h. Exhaustion of memory, and errors, end here as return
 * values. */
#include <string.h>

#include "hadal/text.h"
#include "support/file.h"
#include "text/open.h"
#include "text/tokenizer.h"

struct hadal_tokenizer {
    hd_arena *arena;
    tokenizer *read;
};

struct hadal_text_stream {
    hd_arena *arena;
    text_stream *stream;
};

/* ---- tokenizers ------------------------------------------------------------------------------ */

static bool is_tiktoken(const char *path) {
    return strcmp(hd_path_base(path), "tiktoken.model") == 0;
}

/* Returns the path of the folder's tokenizer.json, or, where there is none, of its
 * tiktoken.model. */
static const char *file_of(hd_arena *a, const char *path) {
    if (!hd_is_directory(path)) return path;
    const char *file = hd_path_join(a, path, "tokenizer.json"),
               *other = hd_path_join(a, path, "tiktoken.model");
    return !hd_exists(file) && hd_exists(other) ? other : file;
}

hadal_tokenizer *tokenizer_open(hd_arena *a, hd_diags *d, const char *path) {
    hadal_tokenizer *t = hd_new(a, hadal_tokenizer);
    const char *file = file_of(a, path);
    t->arena = a;
    t->read = is_tiktoken(file) ? tokenizer_read_tiktoken(a, d, hd_path_dir(a, file))
                                : tokenizer_read(a, d, file);
    return t->read ? t : NULL;
}

const tokenizer *tokenizer_of(const hadal_tokenizer *t) {
    return t->read;
}

static void *read_tokenizer(hd_arena *a, hd_diags *d, const char *path) {
    return tokenizer_open(a, d, path);
}

hadal_tokenizer *hadal_tokenizer_open(const char *path, char *message, size_t size) {
    return text_open(read_tokenizer, path, message, size);
}

void hadal_tokenizer_close(hadal_tokenizer *t) {
    if (t) hd_arena_free(t->arena);
}

int32_t hadal_tokenizer_size(const hadal_tokenizer *t) {
    return (int32_t)t->read->n_ids;
}

int32_t hadal_tokenizer_id(const hadal_tokenizer *t, const char *token) {
    const size_t n = strlen(token);
    const int32_t id = string_map_find(&t->read->added_ids, token, n);
    return id >= 0 ? id : string_map_find(&t->read->bpe.vocab, token, n);
}

const char *hadal_tokenizer_token(const hadal_tokenizer *t, int32_t id) {
    return id >= 0 && (size_t)id < t->read->n_ids ? t->read->tokens[id].at : NULL;
}

int hadal_tokenizer_is_special(const hadal_tokenizer *t, int32_t id) {
    return id >= 0 && (size_t)id < t->read->n_ids && t->read->special[id];
}

int64_t hadal_tokenizer_encode(const hadal_tokenizer *t, const char *text, size_t n,
                               int with_template, int32_t *ids, int64_t capacity) {
    hd_arena *a = hd_arena_new();
    jmp_buf here;
    id_list all = {0};
    if (!a) return HADAL_TEXT_MEMORY;
    hd_arena_guard(a, &here);
    if (setjmp(here)) {
        hd_arena_free(a);
        return HADAL_TEXT_MEMORY;
    }
    const bool ok = tokenizer_encode(t->read, a, text, n, with_template != 0, &all);
    const int64_t count = (int64_t)all.n, most = count < capacity ? count : capacity;
    if (ok && most > 0) memcpy(ids, all.at, (size_t)most * sizeof *ids);
    hd_arena_free(a);
    return ok ? count : HADAL_TEXT_PATTERN;
}

/* ---- streams --------------------------------------------------------------------------------- */

hadal_text_stream *hadal_text_stream_open(const hadal_tokenizer *t, int skip_special) {
    hd_arena *a = hd_arena_new();
    jmp_buf here;
    if (!a) return NULL;
    hd_arena_guard(a, &here);
    if (setjmp(here)) {
        hd_arena_free(a);
        return NULL;
    }
    hadal_text_stream *s = hd_new(a, hadal_text_stream);
    s->arena = a;
    s->stream = text_stream_new(a, t->read, false, skip_special != 0);
    hd_arena_guard(a, NULL);
    return s;
}

typedef enum request { ADD, BYTES, END } request;

static string answer(text_stream *s, request what, int32_t id) {
    if (what == END) return text_stream_end(s);
    return what == ADD ? text_stream_add(s, id) : text_stream_bytes(s, id);
}

static const char *advance(hadal_text_stream *s, request what, int32_t id, size_t *n) {
    jmp_buf here;
    hd_arena_guard(s->arena, &here);
    if (setjmp(here)) {
        hd_arena_guard(s->arena, NULL);
        return NULL;
    }
    const string piece = answer(s->stream, what, id);
    hd_arena_guard(s->arena, NULL);
    if (n) *n = piece.n;
    return piece.at;
}

const char *hadal_text_stream_add(hadal_text_stream *s, int32_t id, size_t *n) {
    return advance(s, ADD, id, n);
}

const char *hadal_text_stream_bytes(hadal_text_stream *s, int32_t id, size_t *n) {
    return advance(s, BYTES, id, n);
}

const char *hadal_text_stream_end(hadal_text_stream *s, size_t *n) {
    return advance(s, END, 0, n);
}

void hadal_text_stream_close(hadal_text_stream *s) {
    if (s) hd_arena_free(s->arena);
}
