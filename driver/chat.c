#include "driver/chat.h"

#include <stdlib.h>
#include <string.h>

int open_chat(hadal_session *s, const command_line *line, const hadal_tokenizer *t,
              const char *folder, chat *out) {
    *out = (chat){.tokenizer = t, .templates = hadal_chat_template_of(s, folder)};
    out->request = (hadal_chat){.struct_size = sizeof out->request,
                                .variables_json = option_get(line, OPTION_CHAT_VARIABLES),
                                .template_name = option_get(line, OPTION_CHAT_TEMPLATE),
                                .add_generation_prompt = 1,
                                .special = option_given(line, OPTION_SPECIAL)};
    const char *system = option_get(line, OPTION_SYSTEM);
    if (!out->templates) return 1;
    return system ? add_message(s, out, "system", system) : 0;
}

void close_chat(chat *c) {
    take_back(c, 0);
    free(c->messages);
    free(c->ids);
}

int add_message(hadal_session *s, chat *c, const char *role, const char *content) {
    char *copy = strdup(content);
    if (copy && c->n == c->capacity) {
        const size_t capacity = c->capacity ? 2 * c->capacity : 16;
        hadal_chat_message *larger = realloc(c->messages, capacity * sizeof *larger);
        if (larger) c->messages = larger, c->capacity = capacity;
    }
    if (!copy || c->n == c->capacity) {
        free(copy);
        return hadal_fail(s, "memory", "no memory for the messages", NULL);
    }
    c->messages[c->n++] = (hadal_chat_message){role, copy};
    return 0;
}

void take_back(chat *c, size_t n) {
    while (c->n > n)
        free((void *)c->messages[--c->n].content);
}

int reject_no_text(hadal_session *s, const chat *c) {
    if (c->n_ids) return 0;
    return hadal_fail(s, "value", "the chat template makes no text of the messages",
                      "contents are texts here; a template that reads them as lists of parts finds "
                      "none in them");
}

bool encode_chat(chat *c) {
    c->request.messages = c->messages, c->request.n_messages = c->n;
    for (;;) {
        c->n_ids = hadal_chat_encode(c->templates, c->tokenizer, &c->request, c->ids,
                                     c->id_capacity, c->error, sizeof c->error);
        if (c->n_ids <= c->id_capacity) return c->n_ids >= 0;
        int32_t *larger = realloc(c->ids, (size_t)c->n_ids * sizeof *larger);
        if (!larger) {
            snprintf(c->error, sizeof c->error, "no memory for the chat");
            return false;
        }
        c->ids = larger, c->id_capacity = c->n_ids;
    }
}
