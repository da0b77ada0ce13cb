/* One op statement:  %a, %b = name operands {attributes} : types and places loc "f":1:2 {  */
#include <string.h>

#include "ir/text/parser.h"

typedef struct statement {
    HD_VEC(hir_token) names; /* of the results */
    hir_opcode code;
    HD_VEC(hir_ref) args;
    bool broken; /* the definition of an operand failed */
    hir_attr *attrs;
    uint32_t n_attrs;
    HD_VEC(hir_type) types;
    HD_VEC(hir_place) places;
    HD_VEC(uint64_t) offsets;
    hd_loc here, types_at; /* the op in this text */
    hd_loc loc;            /* the op's location in the spec, from its `loc` */
} statement;

/* ---- reading ------------------------------------------------------------------------------- */
static bool parse_results(hir_parser *p, statement *s) {
    if (p->t.kind != HIR_TOK_VALUE) return true;
    do {
        if (p->t.kind != HIR_TOK_VALUE) return hir_expected(p, "a result (%name)");
        hd_push(p->arena, &s->names, p->t);
        hir_advance(p);
    } while (hir_accept(p, ','));
    return hir_expect(p, '=');
}

static bool parse_opcode(hir_parser *p, statement *s) {
    const char *names[HIR_OPCODE_COUNT];
    if (p->t.kind != HIR_TOK_WORD) return hir_expected(p, "the name of an op");
    if (!hir_opcode_by_name(p->t.text, &s->code)) {
        for (int i = 0; i < HIR_OPCODE_COUNT; i++)
            names[i] = hir_info((hir_opcode)i)->name;
        return hir_parse_error(p, HD_E_NAME, p->t.loc,
                               hir_nearest_hint(p, p->t.text, names, HIR_OPCODE_COUNT),
                               "there is no op '%s'", p->t.text);
    }
    s->here = p->t.loc;
    hir_advance(p);
    return true;
}

static bool at_operand(const hir_parser *p) {
    return p->t.kind == HIR_TOK_VALUE || p->t.kind == HIR_TOK_WEIGHT ||
           p->t.kind == HIR_TOK_STATE || hir_at_word(p, "_");
}

static bool parse_args(hir_parser *p, statement *s) {
    if (!at_operand(p)) return true;
    do {
        hir_ref r;
        if (!hir_parse_ref(p, &r, &s->broken)) return false;
        hd_push(p->arena, &s->args, r);
    } while (hir_accept(p, ','));
    return true;
}

static bool parse_types(hir_parser *p, statement *s) {
    s->types_at = p->t.loc;
    if (!hir_accept(p, ':')) return true;
    s->types_at = p->t.loc;
    do {
        hir_type type;
        hir_place place;
        uint64_t offset;
        if (!hir_parse_type(p, &type)) return false;
        s->types_at.end_column = p->last.end_column;
        if (!hir_parse_place(p, &place, &offset)) return false;
        hd_push(p->arena, &s->types, type);
        hd_push(p->arena, &s->places, place);
        hd_push(p->arena, &s->offsets, offset);
    } while (hir_accept(p, ','));
    return true;
}

static bool parse_statement(hir_parser *p, statement *s) {
    if (!parse_results(p, s) || !parse_opcode(p, s) || !parse_args(p, s) ||
        !hir_parse_attrs(p, s->code, &s->attrs, &s->n_attrs))
        return false;
    s->here.end_column = p->last.end_column;
    if (!parse_types(p, s) || !hir_parse_loc(p, &s->loc)) return false;
    if (hir_has_trait(s->code, HIR_REGION) && !hir_expect(p, '{')) return false;
    if (p->t.kind != HIR_TOK_LINE && p->t.kind != HIR_TOK_END)
        return hir_expected(p, "the end of the line");
    return true;
}

/* ---- building ------------------------------------------------------------------------------ */
static bool counts_fit(hir_parser *p, const statement *s) {
    bool region = hir_has_trait(s->code, HIR_REGION);
    size_t results = region ? s->types.n : hir_result_count(s->code);
    const char *name = hir_info(s->code)->name;
    if (region && s->types.n == 0)
        return hir_parse_error(p, HD_E_TYPE, s->types_at, NULL, "%s needs the types of its results",
                               name);
    if (s->names.n != results)
        return hir_parse_error(p, HD_E_TYPE, s->here, NULL, "%s has %zu result%s, but %zu %s named",
                               name, results, hd_s(results), s->names.n,
                               s->names.n == 1 ? "is" : "are");
    if (s->types.n && s->types.n != results)
        return hir_parse_error(p, HD_E_TYPE, s->types_at, NULL, "%s has %zu result%s, not %zu",
                               name, results, hd_s(results), s->types.n);
    if (region && s->args.n)
        return hir_parse_error(p, HD_E_TYPE, s->here, "a body uses outer values directly",
                               "%s takes no operands", name);
    return true;
}

static void check_stated_type(hir_parser *p, const statement *s, hir_id op) {
    if (s->types.n != 1 || hir_has_trait(s->code, HIR_REGION)) return;
    hir_type given = hir_value_at(p->m, hir_result(p->m, op))->type;
    if (!hir_type_equal(given, s->types.at[0]))
        hir_parse_error(
            p, HD_E_TYPE, s->types_at, NULL, "the result is written as %s, but the op gives %s",
            hir_type_string(p->d->arena, s->types.at[0]), hir_type_string(p->d->arena, given));
}

static hir_id build(hir_parser *p, const statement *s) {
    hir_builder b = hir_at_end(p->m, p->d);
    b.parent = p->kernel;
    b.loc = s->here;
    if (s->broken || !counts_fit(p, s)) return HIR_NONE;
    hir_id op =
        hir_has_trait(s->code, HIR_REGION)
            ? hir_build_kernel(&b, s->code, s->attrs, s->n_attrs, s->types.at, (uint32_t)s->types.n)
            : hir_build(&b, s->code, s->args.at, (uint32_t)s->args.n, s->attrs, s->n_attrs);
    if (op == HIR_NONE) return op;
    hir_op_at(p->m, op)->loc = hir_keep_loc(p->m, s->loc);
    hd_push(p->arena, &p->op_locs, s->here);
    check_stated_type(p, s, op);
    for (size_t i = 0; i < s->places.n; i++) {
        hir_value *v = hir_value_at(p->m, hir_op_at(p->m, op)->results[i]);
        v->place = s->places.at[i];
        v->offset = s->offsets.at[i];
    }
    return op;
}

bool hir_parse_op(hir_parser *p) {
    statement s = {0};
    bool nested = false;
    hir_id op = HIR_NONE;
    s.code = HIR_OPCODE_COUNT;
    if (parse_statement(p, &s)) {
        nested = hir_has_trait(s.code, HIR_REGION) && p->kernel != HIR_NONE;
        if (nested)
            hir_parse_error(p, HD_E_TYPE, s.here, NULL, "%s cannot stand in a kernel's body",
                            hir_info(s.code)->name);
        else
            op = build(p, &s);
    }
    for (size_t i = 0; i < s.names.n; i++)
        hir_define(p, &s.names.at[i], op == HIR_NONE ? HIR_NONE : hir_op_at(p->m, op)->results[i]);
    if (op != HIR_NONE && hir_has_trait(s.code, HIR_REGION)) p->kernel = op;
    p->may_open = s.code == HIR_OPCODE_COUNT || hir_has_trait(s.code, HIR_REGION);
    return op != HIR_NONE;
}
