/* Files and their definitions: functions, objects, models, configs, constants. */
#include <string.h>

#include "frontend/language/parser.h"

static bool is_taken(const hfe_def *def, const char *name) {
    for (size_t i = 0; i < def->params.n; i++)
        if (def->params.at[i].name == name) return true;
    for (size_t i = 0; i < def->inputs.n; i++)
        if (def->inputs.at[i].name == name) return true;
    return false;
}

static void parse_params(hfe_parser *ps, hfe_def *def) {
    const hfe_token *open = hfe_expect(ps, HFE_P_LPAREN, "parameters");
    if (!open) return;
    while (!hfe_at(ps, HFE_P_RPAREN) && !ps->panic) {
        const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'('");
        if (!name) return;
        hfe_param param = {.name = name->name, .loc = name->loc};
        if (is_taken(def, param.name)) {
            hfe_trouble(ps, param.loc, "'%s' is named twice", param.name);
            return;
        }
        if (hfe_accept(ps, HFE_P_ASSIGN)) {
            param.otherwise = hfe_parse_expr(ps);
        } else if (def->params.n > 0 && def->params.at[def->params.n - 1].otherwise) {
            hd_diag *d = hfe_trouble(ps, param.loc, "'%s' has no default, the one before it has",
                                     param.name);
            if (d) d->hint = "parameters with defaults come last";
        }
        hd_push(ps->p->arena, &def->params, param);
        if (!hfe_accept(ps, HFE_P_COMMA)) break;
    }
    hfe_close(ps, HFE_P_RPAREN, open->loc);
}

static bool dtype_by_name(const char *name, hir_dtype *out) {
    for (int i = 0; i < HIR_DTYPE_COUNT; i++)
        if (strcmp(hir_dtype_name((hir_dtype)i), name) == 0) {
            *out = (hir_dtype)i;
            return *out == HIR_F32 || *out == HIR_I32;
        }
    return false;
}

/* Parses inputs: (x: f32[T, 64], ids: i32[T]) */
static void parse_inputs(hfe_parser *ps, hfe_def *def) {
    hd_loc open = hfe_next(ps)->loc;
    def->has_inputs = true;
    while (!hfe_at(ps, HFE_P_RPAREN) && !ps->panic) {
        const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'('");
        const hfe_token *colon = hfe_expect(ps, HFE_P_COLON, "the type of an input");
        const hfe_token *dtype = hfe_expect(ps, HFE_T_NAME, "':'");
        if (!name || !colon || !dtype) return;
        hfe_input input = {.name = name->name, .loc = name->loc};
        if (is_taken(def, input.name)) {
            hfe_trouble(ps, input.loc, "'%s' is named twice", input.name);
            return;
        }
        if (!dtype_by_name(dtype->name, &input.dtype)) {
            hd_diag *d =
                hfe_trouble(ps, dtype->loc, "'%s' is not the type of an input", dtype->name);
            if (d) d->hint = "inputs are f32[T, ...] or i32[T]";
            return;
        }
        const hfe_token *bracket = hfe_expect(ps, HFE_P_LBRACKET, "the shape of an input");
        while (bracket && !hfe_at(ps, HFE_P_RBRACKET) && !ps->panic) {
            hfe_expr *dim = hfe_parse_expr(ps);
            hd_push(ps->p->arena, &input.dims.list, dim);
            if (!hfe_accept(ps, HFE_P_COMMA)) break;
        }
        if (bracket) hfe_close(ps, HFE_P_RBRACKET, bracket->loc);
        hd_push(ps->p->arena, &def->inputs, input);
        if (!hfe_accept(ps, HFE_P_COMMA)) break;
    }
    hfe_close(ps, HFE_P_RPAREN, open);
}

static hfe_def *new_def(hfe_parser *ps, hfe_def_kind kind, const hfe_token *name) {
    hfe_def *def = hd_new(ps->p->arena, hfe_def);
    def->kind = kind;
    def->name = name->name;
    def->loc = name->loc;
    def->file = ps->file;
    return def;
}

static hfe_def *parse_fn(hfe_parser *ps) {
    hfe_next(ps);
    const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'fn'");
    if (!name) return NULL;
    hfe_def *def = new_def(ps, HFE_D_FN, name);
    parse_params(ps, def);
    const hfe_def *outer = ps->in;
    ps->in = def;
    if (!ps->panic) hfe_parse_block(ps, &def->body);
    ps->in = outer;
    return def;
}

/* Parses the body of an object: statements that set its fields, and methods. */
static void parse_members(hfe_parser *ps, hfe_def *def) {
    const hfe_token *open = hfe_expect(ps, HFE_P_LBRACE, "the body of an object");
    if (!open) return;
    hfe_skip_lines(ps);
    while (!hfe_at(ps, HFE_P_RBRACE) && !hfe_at(ps, HFE_T_END) &&
           (hfe_at(ps, HFE_K_FN) || !hfe_at_definition(ps))) {
        if (hfe_at(ps, HFE_K_FN)) {
            hfe_def *method = parse_fn(ps);
            if (method) {
                method->object = def;
                hd_push(ps->p->arena, &def->methods, method);
            }
            hfe_end_statement(ps);
        } else {
            hfe_stmt *s = hfe_parse_statement(ps);
            hfe_end_statement(ps);
            if (s) hd_push(ps->p->arena, &def->body.list, s);
        }
        hfe_skip_lines(ps);
    }
    hfe_close(ps, HFE_P_RBRACE, open->loc);
}

static hfe_def *parse_object_or_model(hfe_parser *ps, hfe_def_kind kind) {
    hfe_next(ps);
    const hfe_token *name =
        hfe_expect(ps, HFE_T_NAME, kind == HFE_D_MODEL ? "'model'" : "'object'");
    if (!name) return NULL;
    hfe_def *def = new_def(ps, kind, name);
    if (kind != HFE_D_CONFIG || hfe_at(ps, HFE_P_LPAREN)) parse_params(ps, def);
    ps->in = def;
    if (kind == HFE_D_MODEL && hfe_at(ps, HFE_P_LPAREN) && !ps->panic) parse_inputs(ps, def);
    if (kind == HFE_D_MODEL && !ps->panic)
        hfe_parse_block(ps, &def->body);
    else if (!ps->panic)
        parse_members(ps, def);
    ps->in = NULL;
    return def;
}

static void parse_use(hfe_parser *ps) {
    hfe_next(ps);
    const hfe_token *path = hfe_expect(ps, HFE_T_STRING, "'use'");
    if (!path) return;
    if (ps->file->defs.n > 0) {
        hfe_trouble(ps, path->loc, "'use' comes before the definitions of a file");
        return;
    }
    hfe_use use = {.path = hd_strndup(ps->p->arena, path->begin, (size_t)(path->end - path->begin)),
                   .loc = path->loc};
    if (!use.path[0] || strpbrk(use.path, "\\{}")) {
        hfe_trouble(ps, path->loc, "this is not a path");
        return;
    }
    hd_push(ps->p->arena, &ps->file->uses, use);
}

static hfe_def *parse_constant(hfe_parser *ps) {
    const hfe_token *name = ps->at;
    if (name->kind != HFE_T_NAME || ps->at[1].kind != HFE_P_ASSIGN) {
        hd_diag *d = hfe_expected(ps, "a definition");
        if (d && (!d->hint || name->kind == HFE_K_IF))
            d->hint = "a file holds use, fn, object, model, config and NAME = value";
        return NULL;
    }
    hfe_next(ps);
    hfe_next(ps);
    hfe_def *def = new_def(ps, HFE_D_CONSTANT, name);
    def->value = hfe_parse_expr(ps);
    return def;
}

static void check_twice(hfe_parser *ps, const hfe_def *def) {
    for (size_t i = 0; i < ps->file->defs.n; i++) {
        const hfe_def *other = ps->file->defs.at[i];
        if ((other->kind == HFE_D_CONFIG) != (def->kind == HFE_D_CONFIG)) continue;
        if (other->name == def->name || (other->kind == HFE_D_MODEL && def->kind == HFE_D_MODEL)) {
            bool same = other->name == def->name;
            hd_diag *d =
                same ? hd_err(ps->p->diags, HD_E_NAME, def->loc, "'%s' is defined twice", def->name)
                     : hd_err(ps->p->diags, HD_E_NAME, def->loc, "this file has a second model");
            d->cause =
                hd_printf(ps->p->arena, "'%s' stands in line %u", other->name, other->loc.line);
            ps->failed = true;
            return;
        }
    }
}

bool hfe_parse(hfe_program *p, hfe_file *file) {
    hfe_tokens tokens = {0};
    size_t errors = p->diags->errors;
    hfe_lex(p, (hd_loc){file->path, 1, 1, 1, NULL}, file->text, file->text + strlen(file->text),
            &tokens);
    hfe_parser ps = {.p = p, .file = file, .at = tokens.list.at};
    hfe_skip_lines(&ps);
    while (!hfe_at(&ps, HFE_T_END)) {
        hfe_def *def = NULL;
        switch (ps.at->kind) {
        case HFE_K_USE: parse_use(&ps); break;
        case HFE_K_FN: def = parse_fn(&ps); break;
        case HFE_K_OBJECT: def = parse_object_or_model(&ps, HFE_D_OBJECT); break;
        case HFE_K_MODEL: def = parse_object_or_model(&ps, HFE_D_MODEL); break;
        default:
            def =
                hfe_at_config(&ps) ? parse_object_or_model(&ps, HFE_D_CONFIG) : parse_constant(&ps);
            break;
        }
        if (def) {
            check_twice(&ps, def);
            hd_push(p->arena, &file->defs, def);
        }
        ps.in = NULL;
        hfe_end_statement(&ps);
        while (hfe_at(&ps, HFE_T_LINE) || (ps.failed && hfe_at(&ps, HFE_P_RBRACE)))
            hfe_next(&ps); /* extra closing braces follow from an error that was reported */
        if (hfe_at(&ps, HFE_P_RBRACE)) {
            hfe_trouble(&ps, ps.at->loc, "'}' closes nothing");
            hfe_recover(&ps);
            hfe_next(&ps);
            hfe_skip_lines(&ps);
        }
    }
    return !ps.failed && p->diags->errors == errors;
}
