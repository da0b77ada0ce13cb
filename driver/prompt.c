#include "driver/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/chat.h"
#include "driver/report.h"
#include "driver/workspace.h"

enum { MOST_BYTES = 256 << 20 };

static const option_id sources[] = {OPTION_TOKENS, OPTION_PROMPT, OPTION_PROMPT_FILE};
enum { SOURCES = sizeof sources / sizeof *sources };

bool has_prompt(const command_line *line) {
    for (int i = 0; i < SOURCES; i++)
        if (option_given(line, sources[i])) return true;
    return false;
}

static int need_source(hadal_session *s, const command_line *line) {
    if (!has_prompt(line) && isatty(STDIN_FILENO))
        return hadal_fail(s, "usage", "--prompt is missing",
                          "--prompt TEXT, --prompt-file FILE, or text on standard input");
    return 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct bytes {
    char *at;
    size_t n;
} bytes;

static int cannot_read(hadal_session *s, const char *path, const char *why) {
    char message[4400];
    snprintf(message, sizeof message, "cannot read '%.4000s': %s", path, why);
    return hadal_fail(s, "io", message, NULL);
}

/* Reads a whole stream, whatever bytes it has: rejecting text that is not UTF-8 is up to the
 * tokenizer. */
static int read_stream(hadal_session *s, FILE *in, const char *path, bytes *out) {
    size_t capacity = 0;
    while (out->n <= MOST_BYTES) {
        if (out->n == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            char *larger = realloc(out->at, capacity);
            if (!larger) return hadal_fail(s, "memory", "no memory for the prompt", NULL);
            out->at = larger;
        }
        const size_t room = capacity - out->n, got = fread(out->at + out->n, 1, room, in);
        out->n += got;
        if (got < room) break; /* the end of the stream, or a read error */
    }
    if (ferror(in)) return cannot_read(s, path, strerror(errno));
    return out->n > MOST_BYTES ? cannot_read(s, path, "it is larger than 256 MB") : 0;
}

static int read_file(hadal_session *s, const char *path, bytes *out) {
    if (!path || strcmp(path, "-") == 0) return read_stream(s, stdin, "standard input", out);
    FILE *in = fopen(path, "rb");
    if (!in) return cannot_read(s, path, strerror(errno));
    const int failed = read_stream(s, in, path, out);
    fclose(in);
    return failed;
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The directory itself, or the one that contains a file. */
static void folder_of(const char *path, char *out, size_t size) {
    const char *slash = is_folder(path) ? NULL : strrchr(path, '/');
    if (is_folder(path))
        snprintf(out, size, "%s", path);
    else
        snprintf(out, size, "%.*s", slash ? slash == path ? 1 : (int)(slash - path) : 1,
                 slash ? path : ".");
}

/* Is the spec neither a file nor a directory nor, as the name given to compile -o, a library? */
static bool is_absent(const char *spec) {
    compiled_files files;
    char name[256];
    struct stat st;
    return stat(spec, &st) != 0 && !find_compiled_stages(spec, &files, name, sizeof name);
}

/* `needed`: there is text to tokenize. */
static int find_tokenizer(hadal_session *s, const command_line *line, bool needed, prompt *out) {
    const char *given = option_get(line, OPTION_TOKENIZER);
    const char *path = given ? given : line->positional[0];
    folder_of(path, out->folder, sizeof out->folder);
    if (!given) path = out->folder;
    if (!given && !needed && !hadal_has_tokenizer(path)) return 0;
    if (!given && is_absent(line->positional[0])) /* reports that the model does not exist */
        return hadal_load(s, line->positional[0], NULL);
    out->tokenizer = hadal_tokenizer_of(s, path);
    return out->tokenizer ? 0 : 1;
}

int find_tokenizer_of_text(hadal_session *s, const command_line *line, prompt *out) {
    *out = (prompt){0};
    return find_tokenizer(s, line, false, out);
}

int find_text_model(hadal_session *s, const command_line *line, prompt *out) {
    *out = (prompt){0};
    return find_tokenizer(s, line, true, out);
}

static int reject_prompt(hadal_session *s, int64_t n) {
    if (n == 0)
        return hadal_fail(s, "usage", "the prompt is empty",
                          "--prompt TEXT, --prompt-file FILE, or text on standard input");
    if (n == HADAL_TEXT_MEMORY) return hadal_fail(s, "memory", "no memory for the prompt", NULL);
    return hadal_fail(s, "limit", "a pattern of the tokenizer takes too long on this prompt",
                      "shorter words, or fewer of the same character in a row");
}

/* Tokenizes once, or twice if the text has more tokens than bytes, which normalisation can
 * cause. */
static int encode(hadal_session *s, const command_line *line, const bytes *text, prompt *out) {
    const bool around = !option_given(line, OPTION_RAW_PROMPT);
    int64_t most = (int64_t)text->n + 64, n = 0;
    int32_t *ids = NULL;
    for (;;) {
        int32_t *larger = realloc(ids, (size_t)most * sizeof *ids);
        n = larger ? hadal_tokenizer_encode(out->tokenizer, text->at, text->n, around, larger, most)
                   : HADAL_TEXT_MEMORY;
        if (larger) ids = larger;
        if (n <= most) break;
        most = n;
    }
    if (n <= 0) {
        free(ids);
        return reject_prompt(s, n);
    }
    int32_t *fitting = realloc(ids, (size_t)n * sizeof *ids);
    out->ids = fitting ? fitting : ids;
    out->n = n;
    return 0;
}

/* The text is the message of a user, and the template of the folder makes a prompt of it. */
static int encode_message(hadal_session *s, const command_line *line, const bytes *text,
                          prompt *out) {
    chat c;
    char *message = strndup(text->n ? text->at : "", text->n);
    int failed = message ? open_chat(s, line, out->tokenizer, out->folder, &c) ||
                               add_message(s, &c, "user", message)
                         : hadal_fail(s, "memory", "no memory for the prompt", NULL);
    if (!failed && text->n && memchr(text->at, 0, text->n))
        failed = hadal_fail(s, "value", "the prompt has the byte 0", NULL);
    if (!failed && !encode_chat(&c)) failed = report_rendered(c.error);
    if (!failed) failed = reject_no_text(s, &c);
    if (!failed) {
        out->ids = c.ids, out->n = c.n_ids;
        c.ids = NULL;
    }
    if (message) close_chat(&c);
    free(message);
    return failed;
}

static int encode_text(hadal_session *s, const command_line *line, const bytes *text, prompt *out) {
    return option_given(line, OPTION_CHAT) ? encode_message(s, line, text, out)
                                           : encode(s, line, text, out);
}

int read_prompt(hadal_session *s, const command_line *line, prompt *out) {
    const char *tokens = option_get(line, OPTION_TOKENS), *text = option_get(line, OPTION_PROMPT);
    bytes read = {0};
    *out = (prompt){0};
    if (need_source(s, line) || find_tokenizer(s, line, tokens == NULL, out)) return 1;
    if (tokens) {
        int32_t *ids = NULL;
        const int32_t *list;
        if (hadal_read_tokens(s, tokens, &list, &out->n)) return 1;
        ids = malloc((size_t)out->n * sizeof *ids);
        if (!ids) return hadal_fail(s, "memory", "no memory for the prompt", NULL);
        memcpy(ids, list, (size_t)out->n * sizeof *ids);
        out->ids = ids;
        return 0;
    }
    if (text) return encode_text(s, line, &(bytes){(char *)text, strlen(text)}, out);
    const int failed = read_file(s, option_get(line, OPTION_PROMPT_FILE), &read) ||
                       encode_text(s, line, &read, out);
    free(read.at);
    return failed;
}

void free_prompt(prompt *p) {
    free((void *)p->ids);
}
