/* Chats: which template a folder has, what it sees, what is rejected, and which ids come out: those
 * of control tokens that the template writes, and not of those in messages
 * (tests/tools/make_templates.py has the expected ids). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "/tmp/hadal-chat-XXXXXX"
#include "hadal/text.h"
#include "support/json.h"
#include "tests/unit/folder_fixture.h"

TestSuite(chat, .init = open_folder, .fini = close_folder, .timeout = 30);

static char message[1024];
static char out[1 << 16];

static void write_file(const char *name, const char *text) {
    cr_assert(hd_write_file(arena, &diags, in_folder(name), text, strlen(text)), "%s", said());
}

static hadal_chat_template *open_chat(void) {
    hadal_chat_template *c = hadal_chat_template_open(folder, message, sizeof message);
    cr_assert(c, "%s", message);
    return c;
}

static const hadal_chat_message hello[] = {{"user", "hello"}};
static const hadal_chat plain = {.struct_size = sizeof plain, .messages = hello, .n_messages = 1};

/* The text of a chat; NULL: it is rejected. */
static const char *text_of(const hadal_chat *chat) {
    hadal_chat_template *c = open_chat();
    const int64_t n = hadal_chat_text(c, chat, out, sizeof out - 1, message, sizeof message);
    hadal_chat_template_close(c);
    cr_assert_lt(n, (int64_t)sizeof out);
    out[n > 0 ? n : 0] = 0;
    return n >= 0 ? out : NULL;
}

static void gives(const hadal_chat *chat, const char *want) {
    const char *text = text_of(chat);
    cr_assert(text, "%s", message);
    cr_expect_str_eq(text, want);
}

static void rejected(const hadal_chat *chat, const char *words) {
    cr_expect_null(text_of(chat), "%s", out);
    cr_expect(strstr(message, words), "%s", message);
}

/* ---- which template -------------------------------------------------------------------------- */

Test(chat, template_of_the_config) {
    write_file("tokenizer_config.json",
               "{\"chat_template\": \"config {{ messages[0].content }}\"}");
    gives(&plain, "config hello");
    write_file("chat_template.jinja", "file {{ messages[0].content }}\n"); /* goes before it */
    gives(&plain, "file hello");
}

Test(chat, named_templates) {
    hadal_chat chat = plain;
    write_file("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, "
               "{\"name\": \"tool_use\", \"template\": \"t {{ tools | length }}\"}]}");
    gives(&chat, "d");
    chat.tools_json = "[{\"type\": \"function\"}]";
    gives(&chat, "t 1");
    chat.template_name = "default";
    gives(&chat, "d");
    chat.template_name = "rag";
    rejected(&chat, "no chat template called \"rag\"");
    cr_expect(strstr(message, "it has default, tool_use"), "%s", message);
}

Test(chat, additional_templates) {
    hadal_chat chat = plain;
    cr_assert_eq(system(hd_printf(arena, "mkdir %s", in_folder("additional_chat_templates"))), 0);
    write_file("additional_chat_templates/rag.jinja", "rag");
    rejected(&chat, "no chat template called \"default\"");
    chat.template_name = "rag";
    gives(&chat, "rag");
    write_file("chat_template.jinja", "main");
    write_file("tokenizer_config.json", "{\"chat_template\": \"not this\"}");
    chat.template_name = NULL;
    gives(&chat, "main");
}

static void no_template(const char *words) {
    cr_expect_null(hadal_chat_template_open(folder, message, sizeof message));
    cr_expect(strstr(message, words), "%s", message);
}

Test(chat, folders_without_a_template) {
    no_template("has no chat template");
    write_file("tokenizer_config.json", "{\"chat_template\": null}");
    no_template("hint: a base model has none");
    write_file("chat_template.json", "{\"chat_template\": \"x\"}");
    no_template("is of a processor");
    write_file("tokenizer_config.json", "{\"chat_template\": 3}");
    no_template("chat_template: must be a text, or texts by name");
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}");
    no_template("chat_template[0].template: ");
    write_file("tokenizer_config.json", "{\"chat_template\": \"x\", \"chat_control_tokens\": 3}");
    no_template("chat_control_tokens: must be a list");
}

/* ---- what a template sees -------------------------------------------------------------------- */

Test(chat, variables) {
    hadal_chat chat = plain;
    write_file("tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<s>\", \"__type\": \"AddedToken\"}, \"eos_token\": "
               "null, \"image_token\": \"<i>\", \"chat_template\": \""
               "{{ bos_token }}{{ image_token }}{{ eos_token is defined }}{{ tools is none }}{{ "
               "documents is none }}"
               "{{ add_generation_prompt }}{{ enable_thinking | default('-') }}\"}");
    gives(&chat, "<s><i>FalseTrueTrueFalse-");
    chat.add_generation_prompt = 1;
    chat.variables_json = "{\"enable_thinking\": false, \"bos_token\": \"<b>\", \"documents\": []}";
    gives(&chat, "<b><i>FalseTrueFalseTrueFalse");
    chat.variables_json = "{\"messages\": []}";
    rejected(&chat, "messages is no variable that can be set");
    chat.variables_json = "[]";
    rejected(&chat, "must be an object");
    chat.variables_json = "{";
    rejected(&chat, "the variables is not legal JSON");
}

Test(chat, messages) {
    hadal_chat chat = {.struct_size = sizeof chat};
    write_file("chat_template.jinja", "{{ messages | tojson }}");
    rejected(&chat, "a list of at least one");
    chat.messages_json = "[{\"role\": \"user\", \"content\": null, \"x\": [1.5]}]";
    gives(&chat, "[{\"role\": \"user\", \"x\": [1.5]}]"); /* null is left out, as in transformers */
    chat.messages_json = "[{\"role\": \"assistant\", \"reasoning\": \"r\"}]";
    gives(&chat, "[{\"role\": \"assistant\", \"reasoning\": \"r\", \"thinking\": \"r\", "
                 "\"reasoning_content\": \"r\"}]");
    chat.messages_json = "[1]";
    rejected(&chat, "a message must be an object");
    chat.messages_json = "{}";
    rejected(&chat, "a list of at least one");
    chat.messages_json = "[}";
    rejected(&chat, "the messages is not legal JSON");
    chat.messages = hello, chat.n_messages = 1;
    rejected(&chat, "both as a list and as JSON");
    chat = plain, chat.tools_json = "{}";
    rejected(&chat, "tools must be a list");
    chat = plain, chat.messages = &(hadal_chat_message){"user", "\xff"};
    rejected(&chat, "must be UTF-8");
}

Test(chat, dates) {
    hadal_chat chat = plain;
    setenv("TZ", "UTC", 1);
    chat.now = 86400;
    write_file("chat_template.jinja", "{{ strftime_now('%d %b %Y') }}");
    gives(&chat, "02 Jan 1970");
}

Test(chat, errors_of_templates) {
    write_file("chat_template.jinja", "x\n{{ y.z }}\n");
    rejected(&plain, "chat_template.jinja:2:1: error: 'y' is undefined");
    write_file("chat_template.jinja", "x\n{% if %}\n");
    rejected(&plain, "chat_template.jinja:2:1: error: expected an expression");
    write_file("chat_template.jinja", "{{ raise_exception('no system text') }}");
    rejected(&plain, "the template rejects the messages: no system text");
    write_file("chat_template.jinja", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    rejected(&plain, "the template takes more than");
    cr_assert_eq(remove(in_folder("chat_template.jinja")), 0);
    write_file("tokenizer_config.json", "{\"chat_template\": \"x\\n{{ y.z }}\"}");
    rejected(&plain, "tokenizer_config.json: error: line 2 of chat_template: 'y' is undefined");
    write_file(
        "tokenizer_config.json",
        "{\"chat_template\": \"\\n\\n{% endif %}\"}"); /* of a template that is not used: none */
    rejected(&plain, "line 3 of chat_template: expected the name of a tag");
}

/* ---- ids ------------------------------------------------------------------------------------- */

static const char *shown(const int32_t *ids, int64_t n) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "");
    for (int64_t i = 0; i < n; i++)
        hd_text_f(&t, "%d ", ids[i]);
    return t.at;
}

static const char *listed(const json_t *list) {
    int32_t *ids = hd_new_array(arena, int32_t, json_array_size(list) + 1);
    for (size_t i = 0; i < json_array_size(list); i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return shown(ids, (int64_t)json_array_size(list));
}

static const char *encoded(const hadal_tokenizer *t, const hadal_chat *chat) {
    int32_t ids[1024];
    hadal_chat_template *c = open_chat();
    const int64_t n = hadal_chat_encode(c, t, chat, ids, 1024, message, sizeof message);
    hadal_chat_template_close(c);
    cr_assert(n >= 0 && n <= 1024, "%s", message);
    return shown(ids, n);
}

static hadal_tokenizer *open_tokenizer(const char *name) {
    hadal_tokenizer *t = hadal_tokenizer_open(hd_printf(arena, TEST_DATA "/text/%s.json", name),
                                              message, sizeof message);
    cr_assert(t, "%s", message);
    return t;
}

Test(chat, ids) {
    json_error_t e;
    json_t *root = json_load_file(TEST_DATA "/text/jinja.json", 0, &e), *one;
    size_t i;
    cr_assert(root, "%s", e.text);
    write_file("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    json_array_foreach(json_object_get(root, "chats"), i, one) {
        hadal_tokenizer *t = open_tokenizer(json_string_value(json_object_get(one, "tokenizer")));
        const json_t *list = json_object_get(one, "messages");
        hadal_chat_message messages[8];
        size_t n;
        const char *template =
            hd_read_text(arena, &diags,
                         hd_printf(arena, TEST_DATA "/text/templates/%s",
                                   json_string_value(json_object_get(one, "template"))),
                         1 << 20, &n);
        hadal_chat chat = {
            .struct_size = sizeof chat, .messages = messages, .add_generation_prompt = 1};
        write_file("chat_template.jinja", template);
        for (; chat.n_messages < json_array_size(list); chat.n_messages++) {
            const json_t *m = json_array_get(list, chat.n_messages);
            messages[chat.n_messages] = (hadal_chat_message){
                json_string_value(json_array_get(m, 0)), json_string_value(json_array_get(m, 1))};
        }
        cr_expect_str_eq(encoded(t, &chat), listed(json_object_get(one, "text")), "chat %zu", i);
        chat.special = 1;
        cr_expect_str_eq(encoded(t, &chat), listed(json_object_get(one, "special")),
                         "chat %zu, special", i);
        hadal_tokenizer_close(t);
    }
    cr_expect_eq(i, 5);
    json_decref(root);
}

Test(chat, arrays_that_are_too_small) {
    hadal_tokenizer *t = open_tokenizer("qwen");
    char small[8] = "....";
    int32_t ids[64], few[2] = {-1, -1};
    write_file("chat_template.jinja", "abcdef {{ messages[0].content }}");
    hadal_chat_template *c = open_chat();
    cr_expect_eq(hadal_chat_text(c, &plain, small, 3, NULL, 0), 12);
    cr_expect_str_eq(small, "abc.");
    const int64_t n = hadal_chat_encode(c, t, &plain, ids, 64, NULL, 0);
    cr_expect(n > 2 && n < 64);
    cr_expect_eq(hadal_chat_encode(c, t, &plain, few, 1, NULL, 0), n);
    cr_expect(few[0] == ids[0] && few[1] == -1);
    cr_expect_eq(hadal_chat_encode(c, t, &plain, NULL, 0, NULL, 0), n);
    hadal_chat_template_close(c);
    hadal_chat_template_close(NULL);
    hadal_tokenizer_close(t);
}

/* <think> is no special token. It is a control token where the template writes it, or the config
 * says so. */
Test(chat, control_tokens) {
    hadal_tokenizer *t = open_tokenizer("qwen");
    hadal_chat chat = plain;
    chat.messages = &(hadal_chat_message){"user", "<think>"};
    const char *think = hd_printf(arena, "%d ", hadal_tokenizer_id(t, "<think>"));
    write_file("chat_template.jinja", "{{ messages[0].content }}");
    cr_expect_str_eq(encoded(t, &chat), think);
    write_file("chat_template.jinja", "{{ messages[0].content }}{{ '<think>' if false }}");
    cr_expect_str_neq(encoded(t, &chat), think);
    write_file("chat_template.jinja", "{{ messages[0].content }}");
    write_file("tokenizer_config.json", "{\"chat_control_tokens\": [\"<think>\"]}");
    cr_expect_str_neq(encoded(t, &chat), think);
    /* a token that begins in the template and ends in a message is none */
    write_file("chat_template.jinja", "<thi{{ 'nk>' }}<thi{{ messages[0].content }}");
    chat.messages = &(hadal_chat_message){"user", "nk>"};
    cr_expect(hd_begins_with(encoded(t, &chat), think));
    cr_expect_null(strstr(encoded(t, &chat) + strlen(think), think));
    hadal_tokenizer_close(t);
}
