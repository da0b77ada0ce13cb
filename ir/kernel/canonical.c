/* Canonical forms of bodies (canonical.h). */
#include "ir/kernel/canonical.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

hir_canonical *hir_canonical_new(hd_arena *a, const hir_module *m) {
    hir_canonical *c = hd_new(a, hir_canonical);
    const size_t sizes[] = {[HIR_REF_NONE] = 0,
                            [HIR_REF_VALUE] = m->values.n,
                            [HIR_REF_WEIGHT] = m->weights.n,
                            [HIR_REF_STATE] = m->states.n};
    c->arena = a;
    c->m = m;
    for (int kind = 0; kind <= HIR_REF_STATE; kind++) {
        c->seen[kind] = hd_new_array(a, uint32_t, sizes[kind] + 1);
        c->number[kind] = hd_new_array(a, uint32_t, sizes[kind] + 1);
    }
    return c;
}

void hir_canonical_begin(hir_canonical *c, hir_id kernel) {
    c->kernel = kernel;
    c->numbers.n = 0;
    c->operands = (hir_operands){0};
    c->n_values = c->first_value = c->first_operand = 0;
    c->form++;
}

void hir_canonical_continue(hir_canonical *c) {
    c->numbers.n = 0;
    c->first_value = c->n_values;
    c->first_operand = (uint32_t)c->operands.list.n;
}

void hir_canonical_number(hir_canonical *c, uint64_t number) {
    hd_push(c->arena, &c->numbers, number);
}

/* The length, then eight characters in each number. */
static void add_string(hir_canonical *c, const char *s) {
    const size_t n = s ? strlen(s) : 0;
    hir_canonical_number(c, n);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t characters = 0;
        memcpy(&characters, s + i, n - i < 8 ? n - i : 8);
        hir_canonical_number(c, characters);
    }
}

void hir_canonical_attr(hir_canonical *c, const hir_attr *a) {
    uint64_t bits;
    hir_canonical_number(c, a->id);
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: hir_canonical_number(c, (uint64_t)a->i); break;
    case HIR_ATTR_FLOAT:
        memcpy(&bits, &a->f, sizeof bits);
        hir_canonical_number(c, bits);
        break;
    case HIR_ATTR_STRING: add_string(c, a->s); break;
    case HIR_ATTR_INTS:
        hir_canonical_number(c, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            hir_canonical_number(c, (uint64_t)a->ints[i]);
        break;
    case HIR_ATTR_FLOATS:
        hir_canonical_number(c, a->n);
        for (uint32_t i = 0; i < a->n; i++) {
            memcpy(&bits, &a->floats[i], sizeof bits);
            hir_canonical_number(c, bits);
        }
        break;
    }
}

void hir_canonical_type(hir_canonical *c, hir_ref of, hir_type t) {
    if (c->type) t = c->type(c->m, of, t);
    hir_canonical_number(c, (uint64_t)t.dtype << 32 | t.rank);
    for (uint32_t i = 0; i < t.rank; i++)
        hir_canonical_number(c, (uint64_t)t.dim[i]);
}

/* ---- operands ------------------------------------------------------------------------------ */
bool hir_canonical_is_local(const hir_canonical *c, hir_ref r) {
    const hir_id def = r.kind == HIR_REF_VALUE ? hir_value_at(c->m, r.index)->op : HIR_NONE;
    return def != HIR_NONE && hir_op_at(c->m, def)->parent == c->kernel;
}

bool hir_canonical_find(const hir_canonical *c, hir_ref r, uint32_t *number) {
    *number = c->number[r.kind][r.index];
    return c->seen[r.kind][r.index] == c->form;
}

static void set_number(hir_canonical *c, hir_ref r, uint32_t number) {
    c->seen[r.kind][r.index] = c->form;
    c->number[r.kind][r.index] = number;
}

void hir_canonical_make(hir_canonical *c, hir_id value) {
    set_number(c, hir_value_ref(value), c->n_values++);
}

/* The number of an operand from outside of the body; at its first use it gets the next one. */
static uint32_t operand(hir_canonical *c, hir_ref r) {
    uint32_t number;
    if (hir_canonical_find(c, r, &number)) return number;
    number = (uint32_t)c->operands.list.n;
    set_number(c, r, number);
    hd_push(c->arena, &c->operands.list, r);
    return number;
}

/* Numbers count from `first` on, modulo 2^32. */
static void add_reference(hir_canonical *c, uint32_t kind, uint32_t number, uint32_t first) {
    hir_canonical_number(c, kind | (uint64_t)(uint32_t)(number - first) << 8);
}

static void add_operand_type(hir_canonical *c, hir_ref r) {
    hir_canonical_number(c, r.kind);
    hir_canonical_type(c, r, hir_ref_type(c->m, r));
    if (r.kind == HIR_REF_WEIGHT) hir_canonical_number(c, c->m->weights.at[r.index].layout);
}

void hir_canonical_ref(hir_canonical *c, hir_ref r) {
    if (r.kind == HIR_REF_NONE) {
        hir_canonical_number(c, HIR_CANONICAL_NOTHING);
        return;
    }
    if (hir_canonical_is_local(c, r)) {
        add_reference(c, HIR_CANONICAL_LOCAL, c->number[HIR_REF_VALUE][r.index], c->first_value);
        return;
    }
    const uint32_t number = operand(c, r);
    add_reference(c, HIR_CANONICAL_OPERAND, number, c->first_operand);
    if (number < c->first_operand) add_operand_type(c, r); /* not in the list of types */
}

void hir_canonical_operand_types(hir_canonical *c, size_t from) {
    for (size_t i = from; i < c->operands.list.n; i++)
        add_operand_type(c, c->operands.list.at[i]);
}

/* ---- bodies -------------------------------------------------------------------------------- */
void hir_canonical_op(hir_canonical *c, hir_id id, uint32_t from) {
    const hir_op *op = hir_op_at(c->m, id);
    hir_canonical_number(c, op->code);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        hir_canonical_attr(c, &op->attrs[i]);
    hir_canonical_number(c, UINT64_MAX); /* the end of the attributes: not the id of one */
    hir_canonical_number(c, op->n_args);
    for (uint32_t i = from; i < op->n_args; i++)
        hir_canonical_ref(c, op->args[i]);
    for (uint32_t i = 0; i < op->n_results; i++) {
        const hir_id v = op->results[i];
        hir_canonical_make(c, v);
        hir_canonical_type(c, hir_value_ref(v), hir_value_at(c->m, v)->type);
    }
}

void hir_canonical_body(hir_canonical *c, hir_id kernel) {
    hir_canonical_begin(c, kernel);
    hir_canonical_number(c, hir_op_at(c->m, kernel)->code);
    HIR_EACH(c->m, id, hir_op_at(c->m, kernel)->body_first)
    hir_canonical_op(c, id, 0);
    c->operands.n_inputs = (uint32_t)c->operands.list.n;
    hir_canonical_operand_types(c, 0);
}

/* The operand that a result overwrites, by number; UINT32_MAX: the result has its own place.
 * `under`: the value that it aliases. */
static uint32_t place_of(hir_canonical *c, uint32_t result, hir_id under) {
    const hir_value *v = hir_value_at(c->m, hir_op_at(c->m, c->kernel)->results[result]);
    if (v->place == HIR_PLACE_STATE) {
        const bool known = v->offset < c->m->states.n;
        return known ? operand(c, hir_state_ref((uint32_t)v->offset)) : UINT32_MAX;
    }
    return under == HIR_NONE ? UINT32_MAX : operand(c, hir_value_ref(under));
}

void hir_canonical_results(hir_canonical *c) {
    const hir_op *kernel = hir_op_at(c->m, c->kernel);
    const hir_id *in_place = hir_in_place(c->m, c->kernel, c->arena);
    for (uint32_t i = 0; i < kernel->n_results; i++) {
        const hir_ref r = hir_value_ref(kernel->results[i]);
        const bool state = hir_value_at(c->m, r.index)->place == HIR_PLACE_STATE;
        const bool adds = hir_value_at(c->m, r.index)->place == HIR_PLACE_GRADIENT;
        hir_canonical_number(c, state | (uint64_t)adds << 1);
        add_reference(c, HIR_CANONICAL_OPERAND, place_of(c, i, in_place[i]), c->first_operand);
        if (!state) hd_push(c->arena, &c->operands.list, r);
        hir_canonical_type(c, r, hir_ref_type(c->m, r));
    }
}

/* ---- sets of forms ------------------------------------------------------------------------- */
static uint64_t hash(const uint64_t *numbers, size_t n) {
    return XXH3_64bits(numbers, n * sizeof *numbers);
}

static void grow(hir_canonical_set *s) {
    const size_t n = s->buckets.n ? 2 * s->buckets.n : 64;
    s->buckets.at = hd_new_array(s->arena, uint32_t, n);
    s->buckets.n = n;
    for (size_t i = 0; i < s->keys.n; i++) {
        size_t at = hash(s->keys.at[i].at, s->keys.at[i].n) & (n - 1);
        while (s->buckets.at[at])
            at = (at + 1) & (n - 1);
        s->buckets.at[at] = (uint32_t)i + 1;
    }
}

uint32_t hir_canonical_index(hir_canonical_set *s, const hir_canonical *c) {
    if (2 * (s->keys.n + 1) > s->buckets.n) grow(s);
    const size_t n = c->numbers.n, bytes = n * sizeof *c->numbers.at;
    const size_t mask = s->buckets.n - 1;
    size_t at = hash(c->numbers.at, n) & mask;
    for (; s->buckets.at[at]; at = (at + 1) & mask) {
        const struct hir_canonical_key *k = &s->keys.at[s->buckets.at[at] - 1];
        if (k->n == n && memcmp(k->at, c->numbers.at, bytes) == 0) return s->buckets.at[at] - 1;
    }
    uint64_t *numbers = hd_new_array(s->arena, uint64_t, n);
    memcpy(numbers, c->numbers.at, bytes);
    hd_push(s->arena, &s->keys, ((struct hir_canonical_key){numbers, n}));
    s->buckets.at[at] = (uint32_t)s->keys.n;
    return (uint32_t)s->keys.n - 1;
}
