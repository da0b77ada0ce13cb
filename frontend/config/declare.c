/* Declarations and rules of configs as they are written: what can be known of them without running
 * anything. */
#include <string.h>

#include "frontend/config/config.h"

static const struct {
    const char *word, *what;
} kinds[] = {
#define KIND(id, word, what) [HFE_KIND_##id] = {word, what},
#include "frontend/config/config.def"
};

static const char *const aspects[] = {
#define ASPECT(name) [HFE_ASPECT_##name] = #name,
#include "frontend/config/config.def"
};

static const struct {
    const char *word;
    size_t least, most;
    const char *signature;
} rules[] = {
#define RULE(id, word, least, most, signature) [HFE_RULE_##id] = {word, least, most, signature},
#include "frontend/config/config.def"
};

bool hfe_is_rule(const hfe_expr *x, hfe_rule *out) {
    if (!x || x->kind != HFE_X_CALL || x->call.callee->kind != HFE_X_NAME) return false;
    for (int i = 0; i < HFE_N_RULES; i++)
        if (strcmp(rules[i].word, x->call.callee->name) == 0) {
            *out = (hfe_rule)i;
            return true;
        }
    return false;
}

/* ---- declarations -------------------------------------------------------------------------- */

static hd_diag *complain(hfe_program *p, hd_loc loc, const char *what) {
    hd_diag *d = p ? hd_err(p->diags, HD_E_TYPE, loc, "%s", what) : NULL;
    if (d) d->cause = "a field is declared: field NAME = KIND(\"json_name\", \"meaning\", ...)";
    return d;
}

static bool find_kind(const char *name, hfe_kind *out) {
    for (int i = 0; i < HFE_N_KINDS; i++)
        if (strcmp(kinds[i].word, name) == 0) {
            *out = (hfe_kind)i;
            return true;
        }
    return false;
}

static bool reject_kind(hfe_program *p, const hfe_expr *x) {
    const hfe_expr *callee = x->kind == HFE_X_CALL ? x->call.callee : x;
    hd_diag *d = complain(p, callee->loc, "this is no kind of field");
    if (d) {
        const char *words[HFE_N_KINDS];
        for (int i = 0; i < HFE_N_KINDS; i++)
            words[i] = kinds[i].word;
        const char *near =
            callee->kind == HFE_X_NAME ? hd_nearest(callee->name, words, HFE_N_KINDS) : NULL;
        d->hint = near ? hd_printf(p->arena, "did you mean '%s'?", near) : NULL;
    }
    return false;
}

static bool read_aspect(hfe_program *p, const hfe_arg *arg, hfe_declaration *out) {
    for (int i = 0; i < HFE_N_ASPECTS; i++)
        if (strcmp(aspects[i], arg->name) == 0) {
            out->aspect[i] = arg->value;
            return true;
        }
    hd_diag *d = complain(p, arg->name_loc, "fields have no such aspect");
    if (d) {
        const char *near = hd_nearest(arg->name, aspects, HFE_N_ASPECTS);
        d->hint = near ? hd_printf(p->arena, "did you mean '%s'?", near) : NULL;
    }
    return false;
}

static bool has_what_it_needs(hfe_program *p, const hfe_expr *x, const hfe_declaration *d) {
    const hfe_expr *of = d->aspect[HFE_ASPECT_of];
    const hfe_expr *also = d->aspect[HFE_ASPECT_also];
    if (also && !hfe_literal(also))
        complain(p, also->loc, "the other name of a field is a plain string");
    else if (d->kind == HFE_KIND_WORD && !d->aspect[HFE_ASPECT_one_of])
        complain(p, x->loc, "a word needs one_of: [...]");
    else if (d->kind == HFE_KIND_OBJECT && (!of || of->kind != HFE_X_NAME))
        complain(p, x->loc, "a record needs of: NAME, the config of its fields");
    else if (d->kind == HFE_KIND_NUMBERED &&
             (!of || of->kind != HFE_X_NAME || !d->aspect[HFE_ASPECT_length]))
        complain(p, x->loc, "a numbered object needs of: NAME and length: N");
    else if (d->kind == HFE_KIND_SYSTEM &&
             (!hfe_literal(d->aspect[HFE_ASPECT_pages]) || !d->aspect[HFE_ASPECT_type]))
        complain(p, x->loc, "a system needs pages: \"folder\" and type: \"page\"");
    else
        return true;
    return false;
}

bool hfe_is_declaration(hfe_program *p, const hfe_stmt *s, hfe_declaration *out) {
    const hfe_expr *x = s->value;
    *out = (hfe_declaration){0};
    if (s->kind != HFE_S_ASSIGN || s->mark == HFE_PLAIN || !x) return false;
    const bool call = x->kind == HFE_X_CALL && x->call.callee->kind == HFE_X_NAME;
    const bool named = call && x->call.args.n > 0 && hfe_literal(x->call.args.at[0].value);
    if (s->mark != HFE_FIELD && !named) return false; /* an expression: param x = expression */
    if (!call || !find_kind(x->call.callee->name, &out->kind))
        return s->mark == HFE_FIELD ? reject_kind(p, x) : false;
    if (!named || x->call.args.n < 2 || !hfe_literal(x->call.args.at[1].value) ||
        x->call.args.at[0].name || x->call.args.at[1].name) {
        complain(p, x->loc, "a field has a name and a meaning, both plain strings");
        return false;
    }
    out->name = hfe_literal(x->call.args.at[0].value);
    out->meaning = hfe_literal(x->call.args.at[1].value);
    for (size_t i = 2; i < x->call.args.n; i++) {
        if (!x->call.args.at[i].name) {
            complain(p, x->call.args.at[i].value->loc, "aspects of a field are named");
            return false;
        }
        if (!read_aspect(p, &x->call.args.at[i], out)) return false;
    }
    return has_what_it_needs(p, x, out);
}

bool hfe_check_declaration(hfe_program *p, const hfe_stmt *s, hfe_parts *out) {
    hfe_declaration d;
    if (!hfe_is_declaration(p, s, &d)) return false;
    for (int i = 0; i < HFE_N_ASPECTS; i++)
        if (d.aspect[i]) hd_push(p->arena, &out->list, d.aspect[i]);
    out->config = d.aspect[HFE_ASPECT_of];
    return true;
}

/* ---- rules --------------------------------------------------------------------------------- */

/* Arguments that name fields must be plain strings, since they are read without running the
 * config. */
static bool names_field(hfe_rule rule, size_t i) {
    return rule == HFE_RULE_IGNORED || ((rule == HFE_RULE_ONLY) && i < 2) ||
           (rule == HFE_RULE_EACH_ONCE && i >= 3) || (rule == HFE_RULE_GIVEN && i == 0);
}

bool hfe_check_rule(hfe_program *p, const hfe_expr *call) {
    hfe_rule rule;
    if (!hfe_is_rule(call, &rule)) return false;
    const size_t n = call->call.args.n;
    if (n < rules[rule].least || n > rules[rule].most) {
        hd_err(p->diags, HD_E_TYPE, call->loc, "too %s arguments for '%s'",
               n < rules[rule].least ? "few" : "many", rules[rule].word)
            ->cause = hd_printf(p->arena, "it is %s", rules[rule].signature);
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        const hfe_arg *arg = &call->call.args.at[i];
        if (arg->name)
            hd_err(p->diags, HD_E_NAME, arg->name_loc, "'%s' has no named arguments",
                   rules[rule].word)
                ->cause = hd_printf(p->arena, "it is %s", rules[rule].signature);
        else if (names_field(rule, i) && !hfe_literal(arg->value))
            hd_err(p->diags, HD_E_TYPE, arg->value->loc, "fields are named by plain strings");
    }
    return true;
}

/* ---- the fields that a config knows -------------------------------------------------------- */

static void add_known(hd_arena *a, hfe_known_fields *out, hfe_known_field f) {
    if (!f.name) { /* this fault of the page has been reported */
        return;
    }
    for (size_t i = 0; i < out->list.n; i++)
        if (strcmp(out->list.at[i].name, f.name) == 0) {
            out->list.at[i] = f;
            return;
        }
    hd_push(a, &out->list, f);
}

static void add_rule(hd_arena *a, const hfe_def *config, const hfe_expr *call,
                     hfe_known_fields *out) {
    hfe_rule rule;
    if (!hfe_is_rule(call, &rule)) return;
    if (rule == HFE_RULE_ONLY) {
        add_known(a, out,
                  (hfe_known_field){.name = hfe_literal(call->call.args.at[0].value),
                                    .meaning = hfe_literal(call->call.args.at[1].value),
                                    .config = config,
                                    .only = call});
    }
    for (size_t i = 1; rule == HFE_RULE_IGNORED && i < call->call.args.n; i++) {
        add_known(a, out,
                  (hfe_known_field){.name = hfe_literal(call->call.args.at[i].value),
                                    .meaning = hfe_literal(call->call.args.at[0].value),
                                    .config = config});
    }
}

static void list_config(hd_arena *a, const hfe_def *config, int depth, hfe_known_fields *out);

static void list_block(hd_arena *a, const hfe_def *config, const hfe_block *b, int depth,
                       hfe_known_fields *out) {
    for (size_t i = 0; i < b->list.n; i++) {
        const hfe_stmt *s = b->list.at[i];
        hfe_declaration d;
        if (s->kind == HFE_S_INCLUDE) {
            const hfe_def *other = hfe_included_config(config->file, s);
            if (s->name) {
                add_known(a, out,
                          (hfe_known_field){.name = hfe_literal(s->name),
                                            .meaning = "the model's own fields",
                                            .config = config,
                                            .inside = other});
            } else if (other) {
                list_config(a, other, depth + 1, out);
            }
        } else if (hfe_is_declaration(NULL, s, &d)) {
            add_known(a, out,
                      (hfe_known_field){.name = d.name,
                                        .meaning = d.meaning,
                                        .config = config,
                                        .declared = true,
                                        .declaration = d});
            add_known(a, out,
                      (hfe_known_field){.name = hfe_literal(d.aspect[HFE_ASPECT_also]),
                                        .meaning = d.meaning,
                                        .config = config,
                                        .alias_of = d.name});
        } else if (s->kind == HFE_S_EXPR) {
            add_rule(a, config, s->value, out);
        }
        list_block(a, config, &s->body, depth, out);
        list_block(a, config, &s->otherwise, depth, out);
    }
}

static void list_config(hd_arena *a, const hfe_def *config, int depth, hfe_known_fields *out) {
    if (depth < HFE_MAX_INCLUDED) list_block(a, config, &config->body, depth, out);
}

void hfe_list_fields(hd_arena *a, const hfe_def *config, hfe_known_fields *out) {
    *out = (hfe_known_fields){0};
    list_config(a, config, 0, out);
}
