#include "api/machine_levels.h"

#include <string.h>

#include "api/library.h"
#include "inspect/format.h"

machine_levels machine_levels_of(const char *arch, uint64_t permitted, hd_machine facts) {
    machine_levels x = {.arch = arch, .permitted = permitted, .facts = facts};
    x.n = hcg_levels(&x.at);
    return x;
}

bool machine_is_of(const machine_levels *x, const hcg_level *level) {
    return strcmp(level->arch, x->arch) == 0;
}

uint64_t machine_lacks(const machine_levels *x, const hcg_level *level) {
    return hcg_level_features(level) & ~x->permitted;
}

static const char *levels_that_run(const machine_levels *x, hd_arena *a) {
    hd_text out;
    hd_text_init(&out, a);
    for (size_t i = 0; i < x->n; i++)
        if (machine_is_of(x, &x->at[i]) && !machine_lacks(x, &x->at[i]))
            hd_text_f(&out, "%s%s", out.n ? ", " : "", x->at[i].name);
    return out.n ? out.at : "none";
}

const hcg_level *machine_find_level(hadal_session *s, const machine_levels *x, const char *name) {
    if (!api_is_level_of(s, name, x->arch)) return NULL;
    const hcg_level *found = hcg_level_named(x->arch, name);
    const uint64_t missing = machine_lacks(x, found);
    if (!missing) return found;
    hd_diag *e = hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE,
                        "the CPU level %s does not run on this machine", name);
    e->cause = hd_printf(s->arena, "it lacks %s", hcg_feature_names(s->arena, missing));
    e->hint = hd_printf(s->arena, "levels that run here: %s", levels_that_run(x, s->arena));
    return NULL;
}

/* The rate at which the machine does bf16; a machine that does not say has that of the level. */
static uint32_t dots_of(const machine_levels *x, const hcg_level *level) {
    return hd_machine_or(x->facts, level->machine).bf16_dots;
}

bool machine_passes_over(const machine_levels *x, const hcg_level *level) {
    return !machine_lacks(x, level) && dots_of(x, level) < level->machine.bf16_dots;
}

/* ---- text and JSON --------------------------------------------------------------------------- */

void machine_levels_text(const machine_levels *x, hd_text *out) {
    for (size_t i = 0, shown = 0; i < x->n; i++) {
        const hcg_level *l = &x->at[i];
        if (!machine_is_of(x, l)) continue;
        const uint64_t missing = machine_lacks(x, l);
        hd_text_f(out, "%-13s %-10s ", shown++ ? "" : "levels", l->name);
        if (missing)
            hd_text_f(out, "lacks %s\n", hcg_feature_names(out->arena, missing));
        else if (machine_passes_over(x, l))
            hd_text_f(out, "runs, but is passed over: bf16_dots is %u here, its code is for %u\n",
                      dots_of(x, l), l->machine.bf16_dots);
        else
            hd_text_add(out, "runs\n");
    }
}

void machine_levels_json(const machine_levels *x, hd_text *out) {
    bool first = true;
    hd_text_add(out, ",\n  \"levels\": [");
    for (size_t i = 0; i < x->n; i++) {
        const hcg_level *l = &x->at[i];
        if (!machine_is_of(x, l)) continue;
        hd_text_f(out, "%s\n    {\"name\": \"%s\", \"runs\": %s, \"lacks\": ", first ? "" : ",",
                  l->name, machine_lacks(x, l) ? "false" : "true");
        inspect_json_words(out, hcg_feature_names(out->arena, machine_lacks(x, l)));
        if (machine_passes_over(x, l))
            hd_text_f(out, ", \"passed_over\": {\"bf16_dots\": %u, \"assumed\": %u}", dots_of(x, l),
                      l->machine.bf16_dots);
        hd_text_add(out, "}");
        first = false;
    }
    hd_text_add(out, "]");
}
