/* hadal/text.h: tokenizers and chat templates, for programs that call a compiled model with text.
 *
 * Reads the tokenizer.json of a published model and does what the tokenizers library of Hugging
 * Face does with it; or the tiktoken.model of Kimi's models, as the code published with it does.
 * Link libhadaltext, which needs neither the compiler nor LLVM (a program that links libhadalc has
 * these functions already).
 *
 *     char message[512];
 *     hadal_tokenizer *t = hadal_tokenizer_open("model/tokenizer.json", message, sizeof message);
 *     int32_t ids[4096];
 *     int64_t n = hadal_tokenizer_encode(t, text, strlen(text), 1, ids, 4096);
 *     ...                                               tokens in, tokens out: NAME_forward
 *     hadal_text_stream *s = hadal_text_stream_open(t, 1);
 *     fputs(hadal_text_stream_add(s, next, NULL), stdout);
 *
 * Nothing here prints, aborts or exits. A tokenizer does not change once it is open: any number of
 * threads may use it at once. A stream belongs to one thread at a time.
 */
#ifndef HADAL_TEXT_H
#define HADAL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HADAL_API
#if defined(__GNUC__)
#define HADAL_API __attribute__((visibility("default")))
#else
#define HADAL_API
#endif
#endif

typedef struct hadal_tokenizer hadal_tokenizer;

/* `path`: a tokenizer.json, a tiktoken.model with a tokenizer_config.json next to it, or a folder
 * with one of them (tokenizer.json, where it has both). NULL on failure; `message` (if size > 0)
 * then says why, with file, line and column. */
HADAL_API hadal_tokenizer *hadal_tokenizer_open(const char *path, char *message, size_t size);
HADAL_API void hadal_tokenizer_close(hadal_tokenizer *t); /* NULL is allowed */

HADAL_API int32_t hadal_tokenizer_size(const hadal_tokenizer *t); /* all ids are smaller */
/* The id of a token given by its text in the file, "<|eot_id|>"; -1: there is none. */
HADAL_API int32_t hadal_tokenizer_id(const hadal_tokenizer *t, const char *token);
/* The text of an id in the file; NULL: there is no such id. */
HADAL_API const char *hadal_tokenizer_token(const hadal_tokenizer *t, int32_t id);

/* 1: the id is that of a special token, which streams can leave out. */
HADAL_API int hadal_tokenizer_is_special(const hadal_tokenizer *t, int32_t id);

/* Failures of hadal_tokenizer_encode, hadal_chat_encode and hadal_chat_text. */
enum {
    HADAL_TEXT_MEMORY = -1,  /* out of memory */
    HADAL_TEXT_PATTERN = -2, /* a pattern of the tokenizer takes too long on this text */
    HADAL_TEXT_CHAT = -3,    /* of chats: the message says what is wrong */
};
/* The ids of text[0..n), which is UTF-8 (ill-formed bytes count as U+FFFD). With `with_template`
 * the tokens that the model expects around a text are added, usually one at its beginning. Returns
 * the number of ids and writes at most `capacity` of them; if the number is larger, call again with
 * a larger array. */
HADAL_API int64_t hadal_tokenizer_encode(const hadal_tokenizer *t, const char *text, size_t n,
                                         int with_template, int32_t *ids, int64_t capacity);

/* The text of tokens as they arrive. What may still change, the beginning of a character, is held
 * back. Begin with the tokens of the prompt and discard their text: the first token of a text may
 * be written differently from a later one. */
typedef struct hadal_text_stream hadal_text_stream;
HADAL_API hadal_text_stream *hadal_text_stream_open(const hadal_tokenizer *t,
                                                    int skip_special); /* NULL: out of memory */
/* The text that is certain after this token, valid until the next call on the stream; its length in
 * bytes in *n (may be NULL). An id that does not exist gives no text. NULL: out of memory. */
HADAL_API const char *hadal_text_stream_add(hadal_text_stream *s, int32_t id, size_t *n);
/* The bytes that this token would add, unchanged: they may begin or end within a character. The
 * stream is not changed; the rest is as with hadal_text_stream_add. */
HADAL_API const char *hadal_text_stream_bytes(hadal_text_stream *s, int32_t id, size_t *n);
/* The text that was held back; afterwards the stream begins a new text. */
HADAL_API const char *hadal_text_stream_end(hadal_text_stream *s, size_t *n);
HADAL_API void hadal_text_stream_close(hadal_text_stream *s); /* NULL is allowed */

/* ---- chats ----------------------------------------------------------------------------------- */

/* The chat templates of a model folder: chat_template.jinja and additional_chat_templates/, else
 * what tokenizer_config.json has. NULL on failure, as with hadal_tokenizer_open. */
typedef struct hadal_chat_template hadal_chat_template;
HADAL_API hadal_chat_template *hadal_chat_template_open(const char *folder, char *message,
                                                        size_t size);
HADAL_API void hadal_chat_template_close(hadal_chat_template *c); /* NULL is allowed */

typedef struct hadal_chat_message {
    const char *role, *content; /* "system", "user", "assistant"; UTF-8 */
} hadal_chat_message;

/* What is asked of a template. Everything belongs to the caller, and is needed only during the
 * call. */
typedef struct hadal_chat {
    size_t struct_size; /* sizeof(hadal_chat) */
    const hadal_chat_message *messages;
    size_t n_messages;
    /* Instead of `messages`, a JSON list of objects: with tool calls, or contents in parts. */
    const char *messages_json;
    const char *tools_json;     /* a JSON list of tools; NULL: none */
    const char *variables_json; /* a JSON object of other variables, {"enable_thinking": false} */
    const char *template_name;  /* NULL: "tool_use" with tools, if there is one, else "default" */
    int add_generation_prompt;  /* 1: what comes before an answer is at the end */
    /* 0: what messages, tools and variables say is text: "<|im_end|>" in a message is no control
     * token. 1: control tokens in them are control tokens, which lets whoever wrote a message
     * write turns of others. */
    int special;
    int64_t now; /* seconds since 1970, for templates that write a date; 0: the clock */
} hadal_chat;

/* The ids of a chat, with all control tokens that the template writes; nothing is to be added
 * around them. Returns the number of ids and writes at most `capacity` of them, as
 * hadal_tokenizer_encode does. A negative number is a failure: `message` (if size > 0) says why,
 * with the line of the template; HADAL_TEXT_CHAT is an error of the template, of the messages, or
 * one that the template raised. Templates and tokenizers do not change: any number of threads may
 * use them at once. A template is a program of whoever published the model: it sees nothing but
 * the chat and the clock, and its steps, memory and output are bounded. */
HADAL_API int64_t hadal_chat_encode(const hadal_chat_template *c, const hadal_tokenizer *t,
                                    const hadal_chat *chat, int32_t *ids, int64_t capacity,
                                    char *message, size_t size);
/* The same as text, UTF-8 without a NUL, of which at most `capacity` bytes are written. Tokens of
 * this text are not those of hadal_chat_encode where a message has control tokens in it. */
HADAL_API int64_t hadal_chat_text(const hadal_chat_template *c, const hadal_chat *chat, char *out,
                                  int64_t capacity, char *message, size_t size);

/* text[0..n) between double quotes, in a form in which every character can be seen: \n, \r, \t, \"
 * and \\; \xNN for other controls and for bytes that are not UTF-8; \u{N} for characters that leave
 * no mark (spaces other than " ", joiners, marks of direction). Writes at most `size` bytes, the
 * last of them 0, and returns the length without it, as snprintf does. */
HADAL_API size_t hadal_text_quote(const char *text, size_t n, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
