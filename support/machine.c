/* Facts about a machine as text. */
#include "support/machine.h"

#include <string.h>

#include "support/diag.h"
#include "support/text.h"

static const struct {
    const char *name, *text;
    uint64_t least, most;
} facts[] = {
#define F(name, type, least, most, text) {#name, text, least, most},
    HD_MACHINE_FACTS(F)
#undef F
};
enum { FACTS = sizeof facts / sizeof *facts };

/* "line l1 .." */
#define F(name, type, least, most, text) " " #name
static const char fact_names[] = HD_MACHINE_FACTS(F);
#undef F

static uint64_t get(const hd_machine *m, size_t i) {
    const uint64_t all[FACTS] = {
#define F(name, type, least, most, text) m->name,
        HD_MACHINE_FACTS(F)
#undef F
    };
    return all[i];
}

static void set(hd_machine *m, size_t i, uint64_t value) {
    size_t at = 0;
#define F(name, type, least, most, text)                                                           \
    if (at++ == i) m->name = (type)value;
    HD_MACHINE_FACTS(F)
#undef F
}

/* ---- reading --------------------------------------------------------------------------------- */
static bool parse_one(hd_arena *a, hd_diags *d, const char *item, size_t n, hd_machine *out) {
    const char *equals = memchr(item, '=', n);
    const size_t length = equals ? (size_t)(equals - item) : n;
    size_t i = 0;
    while (i < FACTS && !(strlen(facts[i].name) == length && !memcmp(facts[i].name, item, length)))
        i++;
    if (i == FACTS) {
        hd_err(d, HD_E_USAGE, HD_NOWHERE, "\"%s\" is no fact about a machine",
               hd_strndup(a, item, length))
            ->hint = hd_printf(a, "facts:%s; for example l2=2M,l3=480M", fact_names);
        return false;
    }
    const uint64_t size = equals ? hd_read_size(equals + 1, n - length - 1) : 0;
    const bool fits = size >= facts[i].least && size <= facts[i].most;
    hd_machine one = {0};
    set(&one, i, size);
    one = hd_machine_sane(one);
    if (!fits || get(&one, i) == 0) {
        hd_err(d, HD_E_USAGE, HD_NOWHERE, "\"%s\" cannot be %s", hd_strndup(a, item, n),
               facts[i].text)
            ->hint =
            hd_printf(a, "%llu to %llu; K, M and G may stand after the number",
                      (unsigned long long)facts[i].least, (unsigned long long)facts[i].most);
        return false;
    }
    set(out, i, size);
    return true;
}

bool hd_machine_parse(hd_arena *a, hd_diags *d, const char *text, hd_machine *out) {
    *out = (hd_machine){0};
    for (;;) {
        const size_t n = strcspn(text, ",");
        if (!parse_one(a, d, text, n, out)) return false;
        if (text[n] == '\0') return true;
        text += n + 1;
    }
}

/* ---- printing -------------------------------------------------------------------------------- */
void hd_machine_print(hd_machine m, hd_text *out) {
    bool first = true;
    for (size_t i = 0; i < FACTS; i++) {
        if (get(&m, i) == 0) continue;
        hd_text_f(out, "%s%s ", first ? "" : ", ", facts[i].name);
        hd_text_add_size(out, get(&m, i));
        first = false;
    }
}

void hd_machine_print_json(hd_machine m, hd_text *out) {
    bool first = true;
    hd_text_add(out, "{");
    for (size_t i = 0; i < FACTS; i++) {
        if (get(&m, i) == 0) continue;
        hd_text_f(out, "%s\"%s\": %llu", first ? "" : ", ", facts[i].name,
                  (unsigned long long)get(&m, i));
        first = false;
    }
    hd_text_add(out, "}");
}
