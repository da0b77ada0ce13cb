/* Chat templates against jinja2 as transformers sets it up (tests/tools/make_templates.py made
 * tests/text/jinja.json); errors and their lines; bounds; which bytes come from a message. */
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "support/file.h"
#include "tests/unit/arena_fixture.h"
#include "text/jinja.h"

TestSuite(jinja, .init = open_arena, .fini = close_arena, .timeout = 60);

static jinja_error error;
static jinja_limits limits;

/* Renders with the members of an object as variables; those of `messages` and `tools` are a
 * message's. */
static bool render(const char *source, size_t n, const json_t *variables, const struct tm *now,
                   jinja_string *out) {
    jinja_variable list[32];
    size_t count = 0;
    const char *name;
    json_t *value;
    const jinja_template *t = jinja_parse(arena, source, n, &error);
    if (!t) return false;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value) {
        const bool content = strcmp(name, "messages") == 0 || strcmp(name, "tools") == 0;
        cr_assert(count < 32);
        list[count++] = (jinja_variable){name, value, content};
    }
    const jinja_input in = {.variables = list, .n_variables = count, .now = now, .limits = limits};
    return jinja_render(arena, t, &in, out, &error);
}

static const char *shown(const jinja_string *s) {
    return hd_strndup(arena, s->at, s->n);
}

/* Renders without variables, or with a message m and a list l of messages. */
static const char *rendered(const char *source) {
    json_t *variables = json_loads(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"n\": 3}", 0, NULL);
    jinja_string out;
    const bool ok = render(source, strlen(source), variables, NULL, &out);
    json_decref(variables);
    return ok ? shown(&out) : NULL;
}

/* What int and float make of a text is what Python's make: elsewhere the filter's default. */
Test(jinja, numbers_of_texts) {
    cr_assert_str_eq(rendered("{{ ['12', ' +1_2 ', '-0x_f', '1_2.5', '00']|map('int', 7)|list }}"),
                     "[12, 12, 7, 12, 0]");
    cr_assert_str_eq(rendered("{{ ['_1', '1_', '1__2', '-_1', '', '-', '_']|map('int', 7)|list }}"),
                     "[7, 7, 7, 7, 7, 7, 7]");
    cr_assert_str_eq(rendered("{{ ['-0x_f', '0XFF', 'ff', 'f_f']|map('int', 7, 16)|list }}"),
                     "[-15, 255, 255, 255]");
    cr_assert_str_eq(rendered("{{ ['0_xf', '0x', '0x_', '0x__f']|map('int', 7, 16)|list }}"),
                     "[7, 7, 7, 7]");
    cr_assert_str_eq(rendered("{{ '0b101'|int(7, 2) }} {{ '+0O17'|int(7, 8) }} "
                              "{{ '0b101'|int(7, 8) }} {{ '0b101'|int(7, 16) }}"),
                     "5 15 7 45313");
    cr_assert_str_eq(rendered("{{ ['1_0.5', '1_0e1_0', '.5', '5.', '-1']|map('float', 7)|list }}"),
                     "[10.5, 100000000000.0, 0.5, 5.0, -1.0]");
    cr_assert_str_eq(rendered("{{ ['1_.5', '1._5', '1e_5', '1_e5', '_.5', '-_1', 'in_f', '_']"
                              "|map('float', 7)|list }}"),
                     "[7, 7, 7, 7, 7, 7, 7, 7]");
}

/* ---- against jinja2 -------------------------------------------------------------------------- */

static json_t *expected(void) {
    json_error_t e;
    json_t *root = json_load_file(TEST_DATA "/text/jinja.json", 0, &e);
    cr_assert(root, "%s", e.text);
    return root;
}

static struct tm clock_of(const json_t *root) {
    const time_t when = (time_t)json_integer_value(json_object_get(root, "when"));
    struct tm now;
    cr_assert(gmtime_r(&when, &now));
    return now;
}

static bool is_output(const jinja_string *s, const json_t *want) {
    if (json_is_string(want))
        return s->n == json_string_length(want) &&
               memcmp(s->at, json_string_value(want), s->n) == 0;
    uint64_t hash = 0xcbf29ce484222325;
    char digest[32];
    for (size_t i = 0; i < s->n; i++)
        hash = (hash ^ (uint8_t)s->at[i]) * 0x100000001b3;
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)hash);
    return json_integer_value(json_array_get(want, 0)) == (json_int_t)s->n &&
           strcmp(json_string_value(json_array_get(want, 1)), digest) == 0;
}

/* A string or [length, digest]: that output. {"raised": text}: that error. null: another error. */
static void compare(const char *what, const char *source, size_t n, const json_t *variables,
                    const struct tm *now, const json_t *want) {
    jinja_string out;
    const char *raised = json_string_value(json_object_get(want, "raised"));
    if (render(source, n, variables, now, &out)) {
        cr_expect(is_output(&out, want), "%s gives %s", what, shown(&out));
        return;
    }
    cr_expect(json_is_null(want) || raised, "%s: line %u: %s", what, error.line, error.message);
    if (raised)
        cr_expect(error.raised && strcmp(error.message, raised) == 0, "%s: %s", what,
                  error.message);
}

Test(jinja, snippets) {
    json_t *root = expected();
    const json_t *variables = json_object_get(root, "variables");
    const struct tm now = clock_of(root);
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(root, "snippets"), i, one) {
        const json_t *source = json_array_get(one, 0);
        compare(json_string_value(source), json_string_value(source), json_string_length(source),
                variables, &now, json_array_get(one, 1));
    }
    cr_expect_gt(i, 300);
    json_decref(root);
}

Test(jinja, templates) {
    json_t *root = expected(), *list, *want;
    const struct tm now = clock_of(root);
    const json_t *conversations = json_object_get(root, "conversations");
    const char *name;
    json_object_foreach(json_object_get(root, "templates"), name, list) {
        size_t n, i;
        const char *source = hd_read_text(
            arena, &diags, hd_printf(arena, TEST_DATA "/text/templates/%s", name), 1 << 20, &n);
        cr_assert(source, "%s", said());
        json_array_foreach(list, i, want) {
            const json_t *c = json_array_get(conversations, i);
            compare(hd_printf(arena, "%s: %s", name, json_string_value(json_array_get(c, 0))),
                    source, n, json_array_get(c, 1), &now, want);
        }
    }
    json_decref(root);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void fails(const char *source, unsigned line, const char *words) {
    const char *out = rendered(source);
    cr_expect_null(out, "%s gives %s", source, out);
    if (out) return;
    cr_expect(strstr(error.message, words), "%s: %s", source, error.message);
    cr_expect_eq(error.line, line, "%s: line %u", source, error.line);
}

Test(jinja, errors_of_syntax) {
    fails("a\n{{ (n }}", 2, "expected ')', not '}'");
    fails("{{ n", 1, "ends within a tag");
    fails("{% if n %}\n\nx", 3, "expected a tag 'elif else endif', not the end");
    fails("{% endif %}", 1, "name of a tag, not 'endif'");
    fails("\n\n{{ 'abc }}", 3, "a string does not end");
    fails("{# x", 1, "a comment does not end");
    fails("{% raw %}x", 1, "raw %} does not end");
    fails("{{ ) }}", 1, "unexpected ')'");
    fails("{{ n ! 2 }}", 1, "unexpected character '!'");
    fails("{% include 'x' %}", 1, "'include' is not known in chat templates");
    fails("{% break %}", 1, "no loop to leave");
    fails("{% for x in n %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", 1,
          "no loop to leave");
    fails("{% set 1 = 2 %}", 1, "given to a name only");
    fails("{{ f(a=1, 2) }}", 1, "without a name after one with a name");
    fails("{{ 99999999999999999999 }}", 1, "too large");
    fails("{{ '\\ud800' }}", 1, "stands for no character");
    fails("{{ '\\x00' }}", 1, "the character 0");
}

Test(jinja, errors_of_execution) {
    fails("x\n{{ nothing.a }}", 2, "'nothing' is undefined");
    fails("{{ messages[0].a.b }}", 1, "a dict has no attribute 'a'");
    fails("{{ messages.append(1) }}", 1, "append of a list would change it");
    fails("{{ messages[0].update({}) }}", 1, "update of a dict would change it");
    fails("{{ 1 + 'a' }}", 1, "'+' cannot be applied to a int and a str");
    fails("{{ n / 0 }}", 1, "division by zero");
    fails("{{ 9223372036854775807 + 1 }}", 1, "too large");
    fails("{{ n | nonsense }}", 1, "no filter 'nonsense'");
    fails("{{ n is nonsense }}", 1, "no test 'nonsense'");
    fails("{{ n() }}", 1, "a int cannot be called");
    fails("{% for x in n %}{% endfor %}", 1, "a int has no elements");
    fails("{% set n.a = 1 %}", 1, "only members of a namespace");
    fails("{{ namespace(_a=1) }}", 1, "must not begin with '_'");
    fails("{{ 'a'.split('') }}", 1, "separator is empty");
    fails("{{ n | replace('a') }}", 1, "'new' is missing");
    fails("{{ n | upper(1) }}", 1, "at most 0 arguments");
    fails("{{ strftime_now('%Y') }}", 1, "no clock");
    fails("\n{{ raise_exception('no ' ~ n) }}", 2, "no 3");
    cr_expect(error.raised);
    fails("{% macro m(a) %}{{ a.x }}{% endmacro %}\n{{ m() }}", 1, "parameter 'a' was not given");
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void exceeds(const char *source, const char *words) {
    const char *out = rendered(source);
    cr_expect_null(out, "%.80s", source);
    cr_expect(error.limit && strstr(error.message, words), "%.80s: %s", source, error.message);
}

static const char *repeated(const char *text, size_t n) {
    hd_text out;
    hd_text_init(&out, arena);
    for (size_t i = 0; i < n; i++)
        hd_text_add(&out, text);
    return out.at;
}

static const char forever[] =
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";

Test(jinja, bounds_of_execution) {
    limits = (jinja_limits){.steps = 100000, .output = 1 << 16};
    exceeds(forever, "100000 steps");
    exceeds("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "in each other");
    exceeds("{{ 'abcdefgh' * 1000000000 }}", "steps");
    exceeds("{{ [0] * 9000000 }}", "steps");
    limits.steps = 1 << 30, limits.memory = 1 << 25;
    exceeds("{{ [0] * 9000000 }}", "bytes of memory");
    exceeds("{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
            "endfor %}",
            "bytes of memory");
    exceeds("{% for i in range(70000) %}{{ 'x' }}{% endfor %}", "65536 bytes of output");
    exceeds("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% "
            "endfor %}{{ ns.l }}",
            "in each other");
    exceeds("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% "
            "endfor %}{{ ns.l == [ns.l] }}",
            "in each other");
    exceeds("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% "
            "endfor %}{{ ns.l | tojson }}",
            "in each other");
    limits = (jinja_limits){0};
}

Test(jinja, bounds_of_syntax) {
    fails(hd_printf(arena, "{{ %s1%s }}", repeated("(", 300), repeated(")", 300)), 1,
          "in each other");
    fails(hd_printf(arena, "{{ %sn }}", repeated("not ", 300)), 1, "in each other");
    fails(hd_printf(arena, "{{ %sn }}", repeated("-", 300)), 1, "in each other");
    fails(repeated("{% if n %}", 300), 1, "in each other");
    fails(repeated("x", (1 << 20) + 1), 0, "more than 1048576 bytes");
    exceeds(hd_printf(arena, "{{ 1%s }}", repeated(" + 1", 2000)), "in each other");
    cr_expect_str_eq(rendered(hd_printf(arena, "{{ 1%s }}", repeated(" + 1", 300))), "301");
    cr_expect_not_null(rendered(hd_printf(arena, "%s", repeated("{% if n %}x{% endif %}", 3000))));
}

/* ---- what a message says --------------------------------------------------------------------- */

/* Writes the output with the bytes of messages between ~ ~. */
static const char *marked(const char *source) {
    json_t *variables =
        json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \" <b>x,Y \"}, "
                   "{\"role\": \"a|b\", \"content\": [\"p\", \"q\"]}], \"bos_token\": \"<s>\"}",
                   0, NULL);
    jinja_string s;
    hd_text out;
    bool inside = false;
    hd_text_init(&out, arena);
    hd_text_add(&out, "");
    cr_assert(render(source, strlen(source), variables, NULL, &s), "%s: %s", source, error.message);
    json_decref(variables);
    for (size_t i = 0; i <= s.n; i++) {
        const bool content = i < s.n && (s.mask ? s.mask[i] != 0 : s.content);
        if (content != inside) hd_text_add(&out, "~");
        inside = content;
        if (i < s.n) hd_text_add_n(&out, s.at + i, 1);
    }
    return out.at;
}

static void marks(const char *source, const char *want) {
    cr_expect_str_eq(marked(source), want, "%s", source);
}

Test(jinja, what_a_message_says) {
    marks("a{{ messages[0].content }}b", "a~ <b>x,Y ~b");
    marks("{{ bos_token }}{{ '<|' + messages[0].role + '|>' }}", "<s><|user|>");
    marks("{{ '<|' + messages[1].role + '|>' }}", "<|~a|b~|>"); /* a role that is no plain name */
    marks("{{ messages[0].content | trim }}{{ messages[0].content.strip() }}", "~<b>x,Y<b>x,Y~");
    marks("{{ 'A' ~ messages[0].content.split(',')[1] ~ 'B' }}", "A~Y ~B");
    marks("{{ ('[' + messages[0].content + ']') | upper }}", "[~ <B>X,Y ~]");
    marks("{{ ('[' + messages[0].content + ']').replace('x', '|').replace('<b>', '') }}",
          "[~ ~|~,Y ~]");
    marks("{{ ('(' + messages[0].content + ')')[::-1] }}", ")~ Y,x>b< ~(");
    marks("{{ ('(' + messages[0].content + ')')[1:3] }}{{ ('(' + messages[0].content)[0] }}",
          "~ <~(");
    marks("{{ messages[1].content | join('|') }}{{ '-'.join(messages[1].content) }}",
          "~p~|~qp~-~q~");
    marks("{% set x %}({{ messages[1].content[0] }}){% endset %}{{ x }}", "(~p~)");
    marks("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(messages[1].content[1]) }}", "<~q~>");
    marks("{{ '%s=%s' % ('k', messages[1].content[0]) }}", "k=~p~");
    marks("{{ '{}={}'.format('k', messages[1].content[0]) }}", "k=~p~");
    marks("{{ ('a\n' + messages[1].content[0]) | indent(1) }}", "a\n ~p~");
    marks("{{ messages[1].content | tojson }}", "~[\"p\", \"q\"]~"); /* all of it */
    marks("{{ messages[1].content }}{{ ['a'] }}", "~['p', 'q']~['a']");
    marks("{{ messages[0].content | e }}", "~ &lt;b&gt;x,Y ~");
    marks("{{ messages | length }}{% for c in 'a' ~ messages[1].content[0] %}{{ c }}{% endfor %}",
          "2a~p~");
    marks("{% for k in messages[0] %}{{ k }}{% endfor %}", "~rolecontent~");
}
