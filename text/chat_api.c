/* The functions of include/hadal/text.h for chats. */
#include <string.h>

#include "hadal/text.h"
#include "support/host.h"
#include "text/chat.h"
#include "text/open.h"

struct hadal_chat_template {
    hd_arena *arena;
    chat_templates *read;
};

hadal_chat_template *chat_template_open(hd_arena *a, hd_diags *d, const char *folder) {
    hadal_chat_template *c = hd_new(a, hadal_chat_template);
    c->arena = a;
    c->read = chat_read(a, d, folder);
    return c->read ? c : NULL;
}

static void *read_chat_template(hd_arena *a, hd_diags *d, const char *folder) {
    return chat_template_open(a, d, folder);
}

hadal_chat_template *hadal_chat_template_open(const char *folder, char *message, size_t size) {
    return text_open(read_chat_template, folder, message, size);
}

void hadal_chat_template_close(hadal_chat_template *c) {
    if (c) hd_arena_free(c->arena);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Parses JSON of the caller. False after an error. */
static bool parse(hd_arena *a, hd_diags *d, const char *what, const char *text, json_t **out) {
    *out = NULL;
    if (!text) return true;
    json_t **slot = chat_slot(a);
    *out = *slot = hd_json_parse(d, what, what, text, strlen(text));
    return *out != NULL;
}

static bool messages_of(hd_arena *a, hd_diags *d, const hadal_chat *chat, json_t **out) {
    if (chat->messages_json && chat->n_messages) {
        hd_err(d, HD_E_USAGE, HD_NOWHERE, "messages are given both as a list and as JSON");
        return false;
    }
    if (chat->messages_json) return parse(a, d, "messages", chat->messages_json, out);
    json_t **slot = chat_slot(a);
    *out = *slot = json_array();
    for (size_t i = 0; i < chat->n_messages; i++) {
        const hadal_chat_message *m = &chat->messages[i];
        if (!m->role || !m->content || hd_utf8_span(m->role, strlen(m->role)) != strlen(m->role) ||
            hd_utf8_span(m->content, strlen(m->content)) != strlen(m->content)) {
            hd_err(d, HD_E_VALUE, HD_NOWHERE, "message %zu: role and content must be UTF-8", i);
            return false;
        }
        (void)json_array_append_new(
            *out, json_pack("{s:s, s:s}", "role", m->role, "content", m->content));
    }
    return true;
}

static bool request_of(hd_arena *a, hd_diags *d, const hadal_chat *chat, chat_request *out) {
    *out = (chat_request){.name = chat->template_name,
                          .prompts = chat->add_generation_prompt != 0,
                          .now = chat->now ? (time_t)chat->now : time(NULL)};
    return messages_of(a, d, chat, &out->messages) &&
           parse(a, d, "tools", chat->tools_json, &out->tools) &&
           parse(a, d, "variables", chat->variables_json, &out->variables);
}

/* Renders, and makes tokens where there is a tokenizer to do so. */
static int64_t render(hd_arena *a, hd_diags *d, const hadal_chat_template *c, const tokenizer *t,
                      const hadal_chat *given, jinja_string *text, id_list *ids) {
    hadal_chat chat = {0};
    chat_request r;
    const chat_source *used;
    memcpy(&chat, given, given->struct_size < sizeof chat ? given->struct_size : sizeof chat);
    if (!request_of(a, d, &chat, &r) || !chat_render(a, d, c->read, &r, text, &used))
        return HADAL_TEXT_CHAT;
    if (!t) return (int64_t)text->n;
    const uint8_t *mask = text->mask;
    if (!mask && text->content) {
        uint8_t *all = hd_alloc(a, text->n + 1, 1);
        mask = memset(all, 1, text->n);
    }
    const bool *control = chat_control_tokens(a, c->read, used, t);
    if (!tokenizer_encode_chat(t, a, text->at, text->n, chat.special ? NULL : mask, control, ids))
        return HADAL_TEXT_PATTERN;
    return (int64_t)ids->n;
}

/* Runs `render` in memory of its own, and copies what fits to the caller: ids, or else bytes. */
static int64_t run(const hadal_chat_template *c, const hadal_tokenizer *t, const hadal_chat *chat,
                   void *out, int64_t capacity, char *message, size_t size) {
    HD_ISOLATED_FROM_HOST;
    hd_arena *a = hd_arena_new();
    jmp_buf here;
    jinja_string text = {0};
    id_list ids = {0};
    text_tell(message, size, "out of memory");
    if (!a) return HADAL_TEXT_MEMORY;
    hd_arena_guard(a, &here);
    if (setjmp(here)) {
        hd_arena_free(a);
        return HADAL_TEXT_MEMORY;
    }
    hd_diags *d = hd_new(a, hd_diags);
    hd_diags_init(d, a);
    const int64_t n = render(a, d, c, t ? tokenizer_of(t) : NULL, chat, &text, &ids);
    const int64_t most = n < capacity ? n : capacity;
    text_tell(message, size,
              n == HADAL_TEXT_PATTERN ? "a pattern of the tokenizer takes too long" : "");
    if (n == HADAL_TEXT_CHAT) text_tell_error(a, d, message, size);
    if (most > 0) {
        const void *from = t ? (const void *)ids.at : text.at;
        hd_known(from); /* what has elements has memory */
        memcpy(out, from, (size_t)most * (t ? sizeof *ids.at : 1));
    }
    hd_arena_free(a);
    return n;
}

int64_t hadal_chat_encode(const hadal_chat_template *c, const hadal_tokenizer *t,
                          const hadal_chat *chat, int32_t *ids, int64_t capacity, char *message,
                          size_t size) {
    return run(c, t, chat, ids, capacity, message, size);
}

int64_t hadal_chat_text(const hadal_chat_template *c, const hadal_chat *chat, char *out,
                        int64_t capacity, char *message, size_t size) {
    return run(c, NULL, chat, out, capacity, message, size);
}
