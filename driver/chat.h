/* The messages of a chat, and the tokens that the template of its model makes of them. */
#ifndef DRIVER_CHAT_H
#define DRIVER_CHAT_H

#include "driver/options.h"
#include "hadal/text.h"

typedef struct chat {
    const hadal_tokenizer *tokenizer;
    const struct hadal_chat_template *templates;
    hadal_chat request;
    hadal_chat_message *messages; /* their contents are the chat's own */
    size_t n, capacity;
    int32_t *ids; /* of the last encode_chat */
    int64_t n_ids, id_capacity;
    char error[4096]; /* of the last encode_chat */
} chat;

/* Opens the templates of a folder, and begins with the message of --system. */
int open_chat(hadal_session *s, const command_line *line, const hadal_tokenizer *t,
              const char *folder, chat *out);
void close_chat(chat *c);

int add_message(hadal_session *s, chat *c, const char *role, const char *content); /* copied */
void take_back(chat *c, size_t n); /* all but the first n messages */
/* Rejects messages of which the template has made no token. */
int reject_no_text(hadal_session *s, const chat *c);
/* Makes ids of the messages, with what comes before an answer. False: `error` says why. */
bool encode_chat(chat *c);

#endif
