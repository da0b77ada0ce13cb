#include "inspect/plan_host.h"

#include <math.h>
#include <string.h>

#include "support/file.h"
#include "support/json.h"

typedef enum unit { UNIT_BYTES, UNIT_RATE, UNIT_SECONDS, UNIT_SHARE } unit;
typedef enum needed { NEEDED_HOST, NEEDED_LINK, NEEDED_UNIT } needed;

static const struct {
    const char *name, *key, *text;
    unit unit;
    needed needed;
} facts[PLAN_FACTS] = {
#define F(id, name, key, unit, needed, text) {name, key, text, UNIT_##unit, NEEDED_##needed},
#include "inspect/plan_facts.def"
#undef F
#define R(id, key, matrix, calls, activations, text)                                               \
    {"reached." key, key, text, UNIT_SHARE, NEEDED_UNIT},
#include "inspect/plan_reached.def"
#undef R
};

const char *plan_fact_name(plan_fact f) {
    return facts[f].name;
}

const char *plan_fact_key(plan_fact f) {
    return facts[f].key;
}

/* ---- values by name -------------------------------------------------------------------------- */

/* The suffixes that a value may have after its number. */
static const struct suffix {
    unit unit;
    const char *text;
    double factor;
} suffixes[] = {
    {UNIT_BYTES, "K", 0x1p10},  {UNIT_BYTES, "M", 0x1p20},  {UNIT_BYTES, "G", 0x1p30},
    {UNIT_BYTES, "T", 0x1p40},  {UNIT_RATE, "K", 1e3},      {UNIT_RATE, "M", 1e6},
    {UNIT_RATE, "G", 1e9},      {UNIT_RATE, "T", 1e12},     {UNIT_SECONDS, "ns", 1e-9},
    {UNIT_SECONDS, "us", 1e-6}, {UNIT_SECONDS, "ms", 1e-3}, {UNIT_SECONDS, "s", 1},
};
static const char *const suffix_hint[] = {
    [UNIT_BYTES] = "a number of bytes, with K, M, G or T after it: memory=512G",
    [UNIT_RATE] = "a number per second, with K, M, G or T after it: read=200G",
    [UNIT_SECONDS] = "seconds, or with ns, us or ms after the number: latency=50us",
    [UNIT_SHARE] = "a share, above 1 where a faster unit makes the products: reached.f32=0.9",
};

/* Below this an amount in bytes, or a rate, is taken for one whose suffix was forgotten. */
static const double least_without_letter = 1000;

static bool read_value(unit u, const char *text, size_t n, double *out) {
    double factor = 1;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t length = strlen(suffixes[i].text);
        if (suffixes[i].unit != u || length >= n) continue;
        if (memcmp(text + n - length, suffixes[i].text, length) != 0) continue;
        const char before = text[n - length - 1];
        if (before != '.' && (before < '0' || before > '9')) continue; /* "us" ends with "s" */
        factor = suffixes[i].factor;
        n -= length;
        break;
    }
    if (n == 0 || !hd_read_double(text, n, out)) return false;
    const bool amount = u == UNIT_BYTES || u == UNIT_RATE;
    if (amount && factor == 1 && *out < least_without_letter) return false;
    *out *= factor;
    return isfinite(*out) && *out > 0;
}

static bool unknown_fact(hd_diags *d, const char *name) {
    const char *names[PLAN_FACTS];
    hd_text hint;
    hd_text_init(&hint, d->arena);
    for (int f = 0; f < PLAN_FACTS; f++) {
        names[f] = facts[f].name;
        if (f < PLAN_REACHED) hd_text_f(&hint, "%s, ", names[f]);
    }
    hd_text_f(&hint, "%s and others of what hadal machine --json calls reached",
              names[PLAN_REACHED]);
    const char *near = hd_nearest(name, names, PLAN_FACTS);
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "\"%s\" is no fact about a host", name)->hint =
        near ? hd_printf(d->arena, "did you mean \"%s\"?", near) : hint.at;
    return false;
}

static bool parse_named(hd_diags *d, const char *item, size_t n, plan_host *out) {
    const char *equals = memchr(item, '=', n);
    const size_t length = (size_t)(equals - item);
    int f = 0;
    while (f < PLAN_FACTS &&
           !(strlen(facts[f].name) == length && memcmp(facts[f].name, item, length) == 0))
        f++;
    if (f == PLAN_FACTS) return unknown_fact(d, hd_strndup(d->arena, item, length));
    if (read_value(facts[f].unit, equals + 1, n - length - 1, &out->fact[f])) return true;
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "\"%s\" is no value of %s",
           hd_strndup(d->arena, equals + 1, n - length - 1), facts[f].name)
        ->hint = suffix_hint[facts[f].unit];
    return false;
}

/* ---- the file of a machine ------------------------------------------------------------------- */

enum { MOST_BYTES = 1 << 20 }; /* a file of `hadal machine` has some kilobytes */

static bool wrong_file(hd_diags *d, const char *path, const char *why) {
    hd_err(d, HD_E_FORMAT, HD_NOWHERE, "%s is no description of a machine: %s", path, why)->hint =
        "hadal machine --json -o FILE.json writes one";
    return false;
}

static bool take_fact(hd_diags *d, const char *path, const json_t *all, int f, plan_host *out) {
    const bool share = facts[f].unit == UNIT_SHARE;
    const json_t *x =
        json_object_get(json_object_get(all, share ? "reached" : "limits"), facts[f].key);
    if (!x && !share) x = json_object_get(all, facts[f].key);
    if (!x) return true;
    const double value = json_number_value(x);
    if (!json_is_number(x) || !isfinite(value) || value <= 0)
        return wrong_file(
            d, path, hd_printf(d->arena, "\"%s\" is %s", facts[f].key, hd_json_show(d->arena, x)));
    out->fact[f] = value;
    return true;
}

static bool take_facts(hd_diags *d, const char *path, const json_t *all, plan_host *out) {
    const char *schema = json_string_value(json_object_get(all, "schema"));
    if (!schema || strcmp(schema, "hadal-machine-1") != 0)
        return wrong_file(d, path, "its schema is not \"hadal-machine-1\"");
    for (int f = 0; f < PLAN_FACTS; f++)
        if (!take_fact(d, path, all, f, out)) return false;
    if (json_is_true(json_object_get(all, "busy")))
        hd_warn(d, HD_E_VALUE, HD_NOWHERE, "%s was measured while the machine was busy", path)
            ->hint =
            "its rates are higher: measure it again when nothing else runs, or give them by "
            "name after the file";
    return true;
}

static bool parse_file(hd_diags *d, const char *path, plan_host *out) {
    size_t n;
    const char *text = hd_read_text(d->arena, d, path, MOST_BYTES, &n);
    if (!text) return false;
    json_t *all = hd_json_parse(d, "description of a machine", path, text, n);
    if (!all) return false;
    const bool ok = take_facts(d, path, all, out);
    json_decref(all);
    return ok;
}

bool plan_host_parse(hd_diags *d, const char *text, plan_host *out) {
    plan_host named = {0};
    *out = (plan_host){0};
    for (;;) {
        const size_t n = strcspn(text, ",");
        const char *item = hd_strndup(d->arena, text, n);
        if (!(strchr(item, '=') ? parse_named(d, item, n, &named) : parse_file(d, item, out)))
            return false;
        if (text[n] == '\0') break;
        text += n + 1;
    }
    for (int f = 0; f < PLAN_FACTS; f++)
        if (named.fact[f] > 0) out->fact[f] = named.fact[f];
    return true;
}

bool plan_host_check(hd_diags *d, const plan_host *h, int64_t most_hosts) {
    hd_text missing;
    hd_text_init(&missing, d->arena);
    for (int f = 0; f < PLAN_FACTS; f++) {
        const bool needed =
            facts[f].needed == NEEDED_HOST || (facts[f].needed == NEEDED_LINK && most_hosts > 1);
        if (needed && h->fact[f] <= 0)
            hd_text_f(&missing, "%s%s (%s)", missing.n ? ", " : "", facts[f].name, facts[f].text);
    }
    if (!missing.n) return true;
    hd_err(d, HD_E_USAGE, HD_NOWHERE, "the host lacks %s", missing.at)->hint =
        "--host FILE.json,network=10G,latency=50us, where hadal machine --json -o FILE.json wrote "
        "the file; or all by name: memory=512G,read=200G,flops=3T";
    return false;
}
