/* Weights and states in a table by name. A name that is declared twice is one tensor, and must have
 * the same shape both times. */
#include <string.h>

#include "frontend/language/elaborate.h"

/* ---- table --------------------------------------------------------------------------------- */
static hfe_declared *slot_of(hfe_declared *slots, size_t cap, const char *name) {
    uint64_t h = 14695981039346656037u;
    for (const char *c = name; *c; c++)
        h = (h ^ (unsigned char)*c) * 1099511628211u;
    size_t i = h & (cap - 1);
    while (slots[i].name && strcmp(slots[i].name, name) != 0)
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static hfe_declared *find_declared(hfe_elab *e, const char *name) {
    if (2 * e->declared.n >= e->declared.cap) {
        size_t cap = e->declared.cap == 0 ? 256 : e->declared.cap * 2;
        hfe_declared *slots = hd_new_array(e->arena, hfe_declared, cap);
        for (size_t i = 0; i < e->declared.cap; i++)
            if (e->declared.slot[i].name)
                *slot_of(slots, cap, e->declared.slot[i].name) = e->declared.slot[i];
        e->declared.slot = slots;
        e->declared.cap = cap;
    }
    return slot_of(e->declared.slot, e->declared.cap, name);
}

/* ---- declaring ----------------------------------------------------------------------------- */
bool hfe_is_name(const char *s) {
    bool control = false;
    for (const char *c = s; *c; c++)
        control |= (unsigned char)*c < 0x20 || *c == 0x7f;
    return s[0] && !control;
}

/* Returns the name with its scope, or NULL after an error if it cannot be a name. */
static const char *scoped_name(hfe_elab *e, hd_loc loc, const char *name) {
    if (!hfe_is_name(name)) {
        hfe_fail(e, HD_E_VALUE, loc, NULL, NULL, "a name is text, and not empty");
        return NULL;
    }
    const char *dot = e->scope[0] ? "." : "";
    const char *full = hd_printf(e->arena, "%s%s%s", e->scope, dot, name);
    hfe_value kept = hfe_new_string(e, loc, full, strlen(full));
    return hfe_is(kept, HFE_STRING) ? kept.string : NULL;
}

static hfe_value reject_twice(hfe_elab *e, hd_loc loc, const hfe_declared *d, hir_type type,
                              bool same_kind) {
    hd_text shapes;
    hd_text_init(&shapes, e->arena);
    hir_print_type(&shapes, hir_ref_type(e->m, d->ref));
    hd_text_f(&shapes, " in line %u of %s, ", d->loc.line, d->loc.file);
    hir_print_type(&shapes, type);
    hd_text_add(&shapes, " here");
    return hfe_fail(e, same_kind ? HD_E_TYPE : HD_E_NAME, loc, shapes.at, NULL,
                    same_kind ? "'%s' is declared with two shapes"
                              : "'%s' names a weight and a state",
                    d->name);
}

static bool in_model(hfe_elab *e, hd_loc loc) {
    if (!e->in_model)
        hfe_fail(e, HD_E_TYPE, loc, NULL, "make it a function",
                 "tensors exist only while a model is built");
    return e->in_model;
}

static bool table_has_room(hfe_elab *e, hd_loc loc) {
    if (e->declared.n >= HFE_MAX_OPS)
        hfe_halt(e, loc, NULL, "a module may have %d weights and states", HFE_MAX_OPS);
    return !e->stop;
}

static void keep(hfe_elab *e, hfe_declared *slot, const char *name, hir_ref ref, hd_loc loc) {
    *slot = (hfe_declared){name, ref, loc};
    e->declared.n++;
}

/* Returns the weight of a name, which is declared at its first mention, or NULL after an error. */
static hir_weight *declare(hfe_elab *e, hd_loc loc, const char *name, hir_type type, bool stacked,
                           hir_ref *ref) {
    const char *full;
    if (!table_has_room(e, loc) || !(full = scoped_name(e, loc, name))) return NULL;
    hfe_declared *d = find_declared(e, full);
    if (!d->name) {
        uint32_t w = hir_add_weight(e->m, full, type, hfe_place_of_op(e, loc));
        e->m->weights.at[w].unused = true; /* until something reads it */
        e->m->weights.at[w].stacked = stacked;
        keep(e, d, full, hir_weight_ref(w), loc);
    } else if (d->ref.kind != HIR_REF_WEIGHT || !hir_type_equal(hir_ref_type(e->m, d->ref), type)) {
        reject_twice(e, loc, d, type, d->ref.kind == HIR_REF_WEIGHT);
        return NULL;
    }
    *ref = d->ref;
    hir_weight *w = &e->m->weights.at[d->ref.index];
    if (w->stacked == stacked) return w;
    hfe_fail(e, HD_E_NAME, loc, NULL, NULL, "'%s' is declared as one tensor and as a stack of them",
             full);
    return NULL;
}

hfe_value hfe_declare_weight(hfe_elab *e, hd_loc loc, const char *name, hfe_value shape,
                             bool unused) {
    hir_type type;
    hir_ref ref;
    if (!in_model(e, loc) || !hfe_shape(e, loc, shape, 0, "the shape of a weight", &type))
        return hfe_poison();
    if (type.rank == 0)
        return hfe_fail(e, HD_E_TYPE, loc, NULL, "a single number is a weight of shape [1]",
                        "a weight has at least one dim");
    hir_weight *w = declare(e, loc, name, type, false, &ref);
    if (!w) return hfe_poison();
    w->unused &= unused;
    return unused ? hfe_none() : hfe_tensor(ref);
}

/* Two lists of many numbers are named by their first number that differs: no message is a page. */
static const char *say_init(hfe_elab *e, hir_init init, hir_init other) {
    const uint32_t most = 8;
    if (init.n <= most) return hir_init_text(e->arena, init);
    uint32_t i = 0;
    while (other.n == init.n && i < init.n && init.numbers[i] == other.numbers[i])
        i++;
    return hd_printf(e->arena, "%u numbers (number %u: %.9g)", init.n, i + 1, init.numbers[i]);
}

hfe_value hfe_begin_weight(hfe_elab *e, hd_loc loc, hfe_value weight, hir_init init) {
    if (!hfe_is(weight, HFE_TENSOR)) return weight;
    hir_weight *w = &e->m->weights.at[weight.tensor.index];
    if (!hir_same_init(w->init, (hir_init){0}) && !hir_same_init(w->init, init))
        return hfe_fail(e, HD_E_NAME, loc, NULL,
                        "a weight begins in one way, wherever the model names it",
                        "'%s' begins as %s and as %s", w->name, say_init(e, w->init, init),
                        say_init(e, init, w->init));
    w->init = init;
    return weight;
}

/* Declares a weight whose entries along the first dim are tensors of the checkpoint: the entry's
 * number replaces `*` in the name. */
hfe_value hfe_declare_stacked(hfe_elab *e, hd_loc loc, const char *name, hfe_value shape) {
    hir_type type;
    hir_ref ref;
    if (!in_model(e, loc) || !hfe_shape(e, loc, shape, 0, "the shape of a weight", &type))
        return hfe_poison();
    if (type.rank < 2)
        return hfe_fail(e, HD_E_TYPE, loc, NULL,
                        "stacked_weight(\"experts.*.w1.weight\", [E, N, K])",
                        "a stacked weight has a dim for the parts, and theirs");
    const char *full = hd_printf(e->arena, "%s.%s", e->scope, name);
    if (!hir_is_part_pattern(full))
        return hfe_fail(e, HD_E_VALUE, loc, NULL,
                        "stacked_weight(\"experts.*.w1.weight\", [E, N, K])",
                        "the name of a stacked weight has one `*`, for the number of a part");
    hir_weight *w = declare(e, loc, name, type, true, &ref);
    if (!w) return hfe_poison();
    w->unused = false;
    return hfe_tensor(ref);
}

hfe_value hfe_declare_unused_below(hfe_elab *e, hd_loc loc, const char *prefix) {
    const char *full = in_model(e, loc) ? scoped_name(e, loc, prefix) : NULL;
    if (!full) return hfe_poison();
    hir_add_unused_below(e->m, full);
    return hfe_none();
}

/* Returns an example of how a state of the kind is declared. */
static const char *state_hint(hir_state_kind kind) {
    static const char *const hints[] = {
        [HIR_STATE_CACHE] = "state(\"k\", [C, heads, head_dim])",
        [HIR_STATE_WINDOW] = "state(\"tail\", [rows, channels], kind: \"window\")",
        [HIR_STATE_CARRY] = "state(\"s\", [heads, n, m], kind: \"carry\")",
    };
    return hints[kind];
}

static hfe_value reject_two_kinds(hfe_elab *e, hd_loc loc, const hfe_declared *d,
                                  hir_state_kind kind) {
    const hir_state_kind first = e->m->states.at[d->ref.index].kind;
    return hfe_fail(e, HD_E_TYPE, loc,
                    hd_printf(e->arena, "a %s in line %u of %s, a %s here",
                              hir_state_kind_of(first)->word, d->loc.line, d->loc.file,
                              hir_state_kind_of(kind)->word),
                    NULL, "'%s' is declared as two kinds of state", d->name);
}

/* Each pass of a loop has a state of its own under each name. */
hfe_value hfe_declare_state(hfe_elab *e, hd_loc loc, const char *name, hfe_value shape,
                            hir_state_kind kind) {
    hir_type type;
    const char *full;
    const char *own =
        e->pass.again ? hd_printf(e->arena, "%s.iteration_%s", name, e->pass.number) : name;
    if (!in_model(e, loc) || !hfe_shape(e, loc, shape, HIR_C, "the shape of a state", &type) ||
        !table_has_room(e, loc) || !(full = scoped_name(e, loc, own)))
        return hfe_poison();
    if (kind == HIR_STATE_CACHE && (type.rank == 0 || !hir_is_length(type.dim[0])))
        return hfe_fail(e, HD_E_TYPE, loc,
                        "without a kind it is a cache, which has a row for each position",
                        state_hint(kind), "the first dim of a state is C");
    const char *why_not = hir_why_no_state(kind, type);
    if (why_not)
        return hfe_fail(e, HD_E_TYPE, loc, why_not, state_hint(kind), "'%s' cannot be a %s", name,
                        hir_state_kind_of(kind)->word);
    hfe_declared *d = find_declared(e, full);
    if (!d->name) {
        uint32_t s = hir_add_state(e->m, full, kind, type, hfe_place_of_op(e, loc));
        keep(e, d, full, hir_state_ref(s), loc);
    } else if (d->ref.kind != HIR_REF_STATE || !hir_type_equal(hir_ref_type(e->m, d->ref), type)) {
        return reject_twice(e, loc, d, type, d->ref.kind == HIR_REF_STATE);
    } else if (e->m->states.at[d->ref.index].kind != kind) {
        return reject_two_kinds(e, loc, d, kind);
    }
    return hfe_tensor(d->ref);
}
