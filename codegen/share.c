/* hcg_share_kernels: one function for all kernels that differ in the tensors they touch alone.
 *
 * A table from keys (program_key.h) to functions. Kernels that differ in sizes as well share one if
 * the program has more than FEW forms of them: how many functions there are must not depend on how
 * deep a model is, and a few forms of their own cost less than sizes that are not known before the
 * call. */
#include <ctype.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/program_key.h"

enum { FEW = 4 }; /* sizes of one form that get functions of their own */

/* ---- keys to numbers ---------------------------------------------------------------------------
 */
typedef struct keyed {
    const char *at;
    size_t n;
} keyed;

typedef struct key_table { /* keys are numbered as they come */
    hd_arena *arena;
    HD_VEC(keyed) keys;
    HD_VEC(uint32_t) buckets; /* open addressing: number plus 1 */
} key_table;

static void grow(key_table *t) {
    size_t n = t->buckets.n ? 2 * t->buckets.n : 64;
    t->buckets.at = hd_new_array(t->arena, uint32_t, n);
    t->buckets.n = n;
    for (size_t i = 0; i < t->keys.n; i++) {
        size_t at = XXH3_64bits(t->keys.at[i].at, t->keys.at[i].n) & (n - 1);
        while (t->buckets.at[at])
            at = (at + 1) & (n - 1);
        t->buckets.at[at] = (uint32_t)i + 1;
    }
}

/* The number of a key; keys.n before the call if it is new. */
static uint32_t number_of(key_table *t, const hd_text *key) {
    if (2 * (t->keys.n + 1) > t->buckets.n) grow(t);
    size_t mask = t->buckets.n - 1, at = XXH3_64bits(key->at, key->n) & mask;
    for (; t->buckets.at[at]; at = (at + 1) & mask) {
        const keyed *k = &t->keys.at[t->buckets.at[at] - 1];
        if (k->n == key->n && memcmp(k->at, key->at, key->n) == 0) return t->buckets.at[at] - 1;
    }
    hd_push(t->arena, &t->keys, ((keyed){key->at, key->n}));
    t->buckets.at[at] = (uint32_t)t->keys.n;
    return (uint32_t)t->keys.n - 1;
}

/* ---- forms and families ------------------------------------------------------------------------
 */
enum { NONE = -1 };

typedef struct form { /* kernels of equal bodies */
    hir_id op;        /* the first of them */
    int64_t family;   /* or NONE */
    int64_t size[HCG_SIZES];
} form;

typedef struct family { /* forms that differ in sizes */
    uint32_t forms;
    hcg_size size[HCG_SIZES];
} family;

typedef struct functions {
    bool made;
    uint32_t one, few, many; /* indices into program.kernels */
} functions;

typedef struct sharing {
    hd_arena *a;
    hcg_program *p;
    const hir_module *m;
    hcg_keys *keys;
    key_table form_keys, family_keys, prologue_keys;
    HD_VEC(form) forms;
    HD_VEC(family) families;
    HD_VEC(const char *) names;
    uint32_t *form_of; /* per op */
    hcg_use *uses;
} sharing;

static hd_text new_text(const sharing *s) {
    hd_text t;
    hd_text_init(&t, s->a);
    return t;
}

static void join_family(sharing *s, form *f) {
    hd_text key = new_text(s);
    f->family = NONE;
    if (!hcg_family_key(s->keys, f->op, &key, f->size)) return;
    f->family = number_of(&s->family_keys, &key);
    if ((size_t)f->family == s->families.n) {
        family fresh = {0};
        for (int i = 0; i < HCG_SIZES; i++)
            fresh.size[i] = (hcg_size){f->size[i], f->size[i]};
        hd_push(s->a, &s->families, fresh);
    }
    family *all = &s->families.at[f->family];
    all->forms++;
    for (int i = 0; i < HCG_SIZES; i++) {
        if (f->size[i] < all->size[i].least) all->size[i].least = f->size[i];
        if (f->size[i] > all->size[i].most) all->size[i].most = f->size[i];
    }
}

static void find_form(sharing *s, hir_id id) {
    hd_text key = new_text(s);
    hcg_kernel_key(s->keys, id, &s->uses[id].operands, &key);
    uint32_t number = number_of(&s->form_keys, &key);
    s->form_of[id] = number;
    if (number < s->forms.n) return;
    form f = {.op = id};
    join_family(s, &f);
    hd_push(s->a, &s->forms, f);
}

/* ---- functions ---------------------------------------------------------------------------------
 */
static hcg_kind kind_of(hir_opcode code) {
    if (code == HIR_KERNEL_CONTRACT_OP) return HCG_CONTRACT;
    return code == HIR_KERNEL_SEQUENCE_OP ? HCG_SEQUENCE : HCG_ROW;
}

/* A symbol that no other kernel has, from a name that may hold anything. */
static const char *symbol_name(sharing *s, const char *name) {
    char *base = hd_strdup(s->a, *name ? name : "kernel");
    for (char *c = base; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    const char *symbol = base;
    for (unsigned count = 2;; count++) {
        size_t i = 0;
        while (i < s->names.n && strcmp(s->names.at[i], symbol) != 0)
            i++;
        if (i == s->names.n) break;
        symbol = hd_printf(s->a, "%s_%u", base, count);
    }
    hd_push(s->a, &s->names, symbol);
    return symbol;
}

static uint32_t add_function(sharing *s, hir_id id, const family *sizes, const char *symbol,
                             bool one, bool few) {
    const hcg_operands *operands = &s->uses[id].operands;
    hcg_kernel k = {
        .kind = kind_of(hir_op_at(s->m, id)->code),
        .name = symbol,
        .op = id,
        .one = one,
        .few = few,
        .n_inputs = operands->n_inputs,
        .line = s->p->op_lines[id],
    };
    for (size_t i = 0; i < operands->list.n; i++)
        hd_push(s->a, &k.operands, operands->list.at[i]);
    if (sizes) {
        k.n_sizes = HCG_SIZES;
        memcpy(k.size, sizes->size, sizeof k.size);
    }
    hd_push(s->a, &s->p->kernels, k);
    return (uint32_t)s->p->kernels.n - 1;
}

/* The parts of a contraction (emit_part.c) are written beside the function for many tokens, what
 * makes x beside the first that makes it so. */
static void name_parts(sharing *s, hir_id id, const functions *f, const char *symbol) {
    hcg_kernel *one = &s->p->kernels.at[f->one], *many = &s->p->kernels.at[f->many];
    hd_text key = new_text(s);
    one->y_part = many->y_part = symbol;
    many->makes_y = true;
    if (!hcg_prologue_key(s->keys, id, &key)) return;
    const size_t known = s->prologue_keys.keys.n;
    const uint32_t number = number_of(&s->prologue_keys, &key);
    one->x_part = many->x_part = hd_printf(s->a, "x_%u", number);
    many->makes_x = number == known;
}

static functions make_functions(sharing *s, hir_id id, const family *sizes) {
    const hir_op *op = hir_op_at(s->m, id);
    const char *symbol = symbol_name(s, hir_attr_string(op, HIR_A_NAME, "kernel"));
    functions f = {.made = true};
    if (kind_of(op->code) == HCG_ROW) {
        f.one = f.few = f.many = add_function(s, id, sizes, symbol, false, false);
        return f;
    }
    f.one = add_function(s, id, sizes, hd_printf(s->a, "%s_one", symbol), true, false);
    f.few = f.many = add_function(s, id, sizes, hd_printf(s->a, "%s_many", symbol), false, false);
    if (kind_of(op->code) == HCG_SEQUENCE)
        f.few = add_function(s, id, sizes, hd_printf(s->a, "%s_few", symbol), false, true);
    else
        name_parts(s, id, &f, symbol);
    return f;
}

/* In the order of first use, so that numbers and names are those of the program's text. */
static void use_functions(sharing *s) {
    functions *of_form = hd_new_array(s->a, functions, s->forms.n + 1);
    functions *of_family = hd_new_array(s->a, functions, s->families.n + 1);
    HIR_EACH(s->m, id, s->m->first) {
        if (!hir_has_trait(hir_op_at(s->m, id)->code, HIR_REGION)) continue;
        const form *f = &s->forms.at[s->form_of[id]];
        const family *sizes = f->family == NONE ? NULL : &s->families.at[f->family];
        if (sizes && sizes->forms <= FEW) sizes = NULL;
        functions *own = sizes ? &of_family[f->family] : &of_form[s->form_of[id]];
        if (!own->made) *own = make_functions(s, id, sizes);
        s->uses[id].one = own->one;
        s->uses[id].few = own->few;
        s->uses[id].many = own->many;
        memcpy(s->uses[id].size, f->size, sizeof f->size);
    }
}

const hcg_use *hcg_share_kernels(hcg_program *p) {
    hd_arena *a = p->arena;
    sharing s = {.a = a, .p = p, .m = p->m, .keys = hcg_keys_new(a, p->m)};
    s.form_keys.arena = s.family_keys.arena = s.prologue_keys.arena = a;
    s.form_of = hd_new_array(a, uint32_t, p->m->ops.n + 1);
    s.uses = hd_new_array(a, hcg_use, p->m->ops.n + 1);
    HIR_EACH(p->m, id, p->m->first) {
        if (hir_has_trait(hir_op_at(p->m, id)->code, HIR_REGION)) find_form(&s, id);
    }
    use_functions(&s);
    return s.uses;
}
