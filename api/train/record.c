#include "api/train/record.h"

#include <jansson.h>

#include "support/json.h"

enum { RECORD_LIMIT = 1 << 20 };

/* ---- writing --------------------------------------------------------------------------------- */
static void add_text(hd_text *out, const char *x) {
    if (x)
        hd_text_add_json(out, x);
    else
        hd_text_add(out, "null");
}

static void add_whole(hd_text *out, int64_t x) {
    hd_text_f(out, "%lld", (long long)x);
}

static void add_decimal(hd_text *out, double x) {
    hd_text_double(out, x);
}

#define ADD(x) _Generic((x), const char * : add_text, int64_t : add_whole, double : add_decimal)

const char *train_record_text(hd_arena *a, const train_record *r, size_t *n) {
    hd_text text;
    const char *comma = "{";
    hd_text_init(&text, a);
#define V(member, name, type, rule, called)                                                        \
    hd_text_f(&text, "%s\n  \"" name "\": ", comma);                                               \
    ADD(r->member)(&text, r->member);                                                              \
    comma = ",";
    TRAIN_RECORD(V)
#undef V
    hd_text_add(&text, "\n}\n");
    *n = text.n;
    return text.at;
}

bool train_record_write(hadal_session *s, const char *path, const train_record *r) {
    size_t n;
    const char *text = train_record_text(s->arena, r, &n);
    return hd_write_file(s->arena, &s->diags, path, text, n);
}

/* ---- reading --------------------------------------------------------------------------------- */
static bool get_text(hd_arena *a, const json_t *x, const char **out) {
    if (json_is_string(x)) *out = hd_strdup(a, json_string_value(x));
    return json_is_string(x) || json_is_null(x);
}

static bool get_whole(hd_arena *a, const json_t *x, int64_t *out) {
    (void)a;
    *out = json_integer_value(x);
    return json_is_integer(x);
}

static bool get_decimal(hd_arena *a, const json_t *x, double *out) {
    (void)a;
    *out = json_number_value(x);
    return json_is_number(x);
}

#define GET(x)                                                                                     \
    _Generic((x), const char ** : get_text, int64_t * : get_whole, double * : get_decimal)
#define KIND(x)                                                                                    \
    _Generic((x), const char * : "a text or null", int64_t : "a whole number", double : "a "       \
                                                                                        "number")

bool train_record_read(hadal_session *s, const char *path, train_record *out) {
    size_t n;
    *out = (train_record){0};
    const char *text = hd_read_text(s->arena, &s->diags, path, RECORD_LIMIT, &n);
    json_t *all = text ? hd_json_parse(&s->diags, "record of the run", path, text, n) : NULL;
    const char *wrong = NULL, *kind = NULL;
    if (!all) return false;
#define V(member, name, type, rule, called)                                                        \
    if (!wrong && !GET(&out->member)(s->arena, json_object_get(all, name), &out->member))          \
        wrong = name, kind = KIND(out->member);
    TRAIN_RECORD(V)
#undef V
    json_decref(all);
    if (!wrong) return true;
    hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "'%s' has no \"%s\" that is %s", path, wrong, kind)
        ->hint = "a run goes on by the run.json that hadal train has written";
    return false;
}

/* ---- comparing ------------------------------------------------------------------------------- */
static bool same_text(const char *x, const char *y) {
    return x && y ? strcmp(x, y) == 0 : x == y;
}

static bool same_whole(int64_t x, int64_t y) {
    return x == y;
}

static bool same_decimal(double x, double y) {
    return x == y;
}

#define SAME(x)           _Generic((x), const char * : same_text, int64_t : same_whole, double : same_decimal)
#define MAY_SAME(member)  SAME(now->member)(begun->member, now->member)
#define MAY_GROWS(member) (now->member >= begun->member)
#define MAY_FREE(member)  true

static const char *shown_text(hd_arena *a, const char *x) {
    (void)a;
    return x ? x : "not given";
}

static const char *shown_whole(hd_arena *a, int64_t x) {
    return hd_printf(a, "%lld", (long long)x);
}

static const char *shown_decimal(hd_arena *a, double x) {
    hd_text text;
    hd_text_init(&text, a);
    hd_text_double(&text, x);
    return text.at;
}

#define SHOWN(x)                                                                                   \
    _Generic((x), const char * : shown_text, int64_t : shown_whole, double : shown_decimal)

bool train_record_may_go_on(hadal_session *s, const char *run, const train_record *begun,
                            const train_record *now) {
    bool ok = true;
#define V(member, name, type, rule, called)                                                        \
    if (!MAY_##rule(member)) {                                                                     \
        hd_diag *e = hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE,                                     \
                            "the run in '%s' cannot go on with another value of %s", run, called); \
        e->cause = hd_printf(s->arena, "\"" name "\" was %s, and is %s",                           \
                             SHOWN(begun->member)(s->arena, begun->member),                        \
                             SHOWN(now->member)(s->arena, now->member));                           \
        e->hint =                                                                                  \
            "give what it was begun with (run.json has it), or begin a run in another folder";     \
        ok = false;                                                                                \
    }
    TRAIN_RECORD(V)
#undef V
    return ok;
}
