#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "text/jinja.h"

/* Accepted output is well-formed text, and has a mask of as many bytes. */
static void check(const jinja_string *s) {
    if (hd_utf8_span(s->at, s->n) != s->n) fuzz_fail("text that is no UTF-8 was made");
    fuzz_touch(s->at, s->n);
    if (s->mask) fuzz_touch(s->mask, s->n);
}

static bool reject(hd_diags *d, const jinja_error *e) {
    if (!e->message) return false;
    hd_err(d, HD_E_FORMAT, HD_NOWHERE, "line %u: %s", e->line, e->message);
    return false;
}

/* Bounds far below those of use, so that an input takes milliseconds. */
static const jinja_limits limits = {.steps = 200000, .memory = 32 << 20, .output = 1 << 20};

static bool render(hd_arena *a, hd_diags *d, const jinja_template *t, const json_t *variables) {
    jinja_variable list[16];
    size_t n = 0;
    const char *name;
    json_t *value;
    const struct tm now = {
        .tm_year = 125, .tm_mon = 10, .tm_mday = 26, .tm_wday = 3, .tm_yday = 329};
    json_object_foreach((json_t *)(uintptr_t)variables, name,
                        value) if (n < sizeof list / sizeof *list) list[n++] =
        (jinja_variable){name, value, true};
    const jinja_input in = {.variables = list, .n_variables = n, .now = &now, .limits = limits};
    jinja_string out;
    jinja_error e;
    if (!jinja_render(a, t, &in, &out, &e)) return reject(d, &e);
    check(&out);
    return true;
}

static void drop(void *json) {
    json_decref(json);
}

/* A template; behind a NUL a JSON object of its variables. */
static bool parse_and_render(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    static const char usual[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"h\xc3\xa9 "
                                "<x>\\n\"}, {\"role\": \"assistant\", "
                                "\"content\": [{\"text\": \"b\"}], \"n\": 1.5}], \"n\": 3, \"s\": "
                                "\" a b \", \"d\": {\"k\": null}}";
    const char *nul = memchr(data, 0, n);
    const size_t size = nul ? (size_t)(nul - data) : n;
    const char *text = nul ? nul + 1 : usual;
    jinja_error e;
    if (hd_utf8_span(data, size) != size) return reject(d, &(jinja_error){.message = "not UTF-8"});
    const jinja_template *t = jinja_parse(a, data, size, &e);
    if (!t) return reject(d, &e);
    json_t *variables = json_loadb(text, nul ? n - size - 1 : sizeof usual - 1, 0, NULL);
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_loadb(usual, sizeof usual - 1, 0, NULL);
    }
    hd_arena_defer(a, drop, variables);
    return render(a, d, t, variables);
}

int fuzz_template(const uint8_t *data, size_t n) {
    fuzz_in_arena(parse_and_render, data, n);
    return 0;
}
