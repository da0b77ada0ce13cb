/* hcg_share_kernels: which kernels share a function.
 *
 * Kernels with equal forms (keys.h), which differ only in the tensors that they read and write,
 * have one function. Kernels that differ in sizes as well (row programs: program/row_family.h)
 * share one if the program has more than FEW such forms: the number of functions must not grow with
 * the depth of a model, but a few functions with constant sizes are faster than one whose sizes are
 * arguments. For row programs the forms of all families are counted together, since each number of
 * queries has a family of its own. Any two forms fit some a + b N, so only families of more than
 * CHANCE forms count. */
#include <ctype.h>
#include <string.h>

#include "codegen/program/lowering.h"
#include "codegen/program/row_family.h"

enum {
    FEW = 4,   /* forms up to which each has a function of its own */
    CHANCE = 2 /* forms of row programs that always fit some a + b N */
};

/* ---- forms and families ---------------------------------------------------------------------- */
enum { NONE = -1 };

typedef struct form { /* kernels with equal forms */
    hir_id op;        /* the first of them */
    int64_t family;   /* or NONE */
    int64_t size[HCG_SIZES];
    const hcg_row_form *row; /* of a row program that may be in a family; NULL */
} form;

typedef struct functions {
    bool made;
    uint32_t of[HIR_KERNEL_PHASES]; /* indices into program.kernels */
} functions;

typedef struct family { /* forms that differ in sizes */
    uint32_t forms;
    uint32_t kin; /* of contractions: the same for families that differ in N % HIR_PANEL alone */
    hcg_size size[HCG_SIZES];
    functions own;
    /* of row programs: */
    uint32_t key;
    const hcg_row_form *first;
    hcg_row_model model; /* set once there are two forms */
} family;

typedef struct sharing {
    hd_arena *a;
    hcg_program *p;
    const hir_module *m;
    hir_canonical *canonical; /* the form that was made last */
    const bool *views;        /* by op (hcg_find_row_views) */
    hir_canonical_set form_keys, kin_keys, family_keys, row_keys, prologue_keys, epilogue_keys;
    HD_VEC(form) forms;
    HD_VEC(uint32_t) kin;    /* number of forms with each kin number */
    HD_VEC(family) families; /* of contractions, by key, and of row programs, in any order */
    HD_VEC(family) row_families;
    HD_VEC(const char *) names;
    uint32_t row_forms; /* in families of more than CHANCE */
    uint32_t *form_of;  /* per op */
    hcg_use *uses;
} sharing;

static hir_kernel_kind kind_of(const sharing *s, hir_id kernel) {
    return hir_kind_of(hir_op_at(s->m, kernel)->code);
}

/* The number in `set` of the form that was made last. */
static uint32_t number_in(sharing *s, hir_canonical_set *set) {
    return hir_canonical_index(set, s->canonical);
}

static void add_form(family *all, const int64_t size[HCG_SIZES]) {
    for (int i = 0; i < HCG_SIZES; i++) {
        hcg_size *s = &all->size[i];
        if (!all->forms || size[i] < s->least) s->least = size[i];
        if (!all->forms || size[i] > s->most) s->most = size[i];
    }
    all->forms++;
}

/* Adds a contraction to its family. N % HIR_PANEL decides the shape of the last panel, so it is the
 * same in a family. */
static void join_family(sharing *s, form *f) {
    if (!hcg_family_key(s->canonical, f->op, s->p->contractions[f->op], f->size)) return;
    const uint32_t kin = number_in(s, &s->kin_keys);
    if (kin == s->kin.n) hd_push(s->a, &s->kin, 0);
    s->kin.at[kin]++;
    hir_canonical_number(s->canonical, (uint64_t)(f->size[HCG_N] % HIR_PANEL));
    f->family = number_in(s, &s->family_keys);
    if ((size_t)f->family == s->families.n) hd_push(s->a, &s->families, (family){.kin = kin});
    add_form(&s->families.at[f->family], f->size);
}

/* Does form `x` belong to the family? The second form of a family decides which size is N. */
static bool fits(sharing *s, family *all, const hcg_row_form *x) {
    hcg_row_model model;
    if (all->forms > 1) return hcg_fits_row_model(&all->model, x);
    if (!hcg_find_row_model(s->a, all->first, x, &model)) return false;
    const int64_t size[HCG_SIZES] = {all->first->numbers.at[model.n]};
    all->model = model;
    all->forms = 0;
    add_form(all, size);
    return true;
}

static void join_row_family(sharing *s, form *f) {
    hcg_row_form *x = hd_new(s->a, hcg_row_form);
    if (!hcg_find_row_form(s->canonical, s->views, f->op, x)) return;
    const uint32_t key = number_in(s, &s->row_keys);
    size_t i = 0;
    while (i < s->row_families.n &&
           (s->row_families.at[i].key != key || !fits(s, &s->row_families.at[i], x)))
        i++;
    if (i == s->row_families.n) hd_push(s->a, &s->row_families, ((family){.key = key, .first = x}));
    family *all = &s->row_families.at[i];
    const int64_t size[HCG_SIZES] = {all->forms ? x->numbers.at[all->model.n] : 0};
    add_form(all, size);
    f->family = (int64_t)i;
    f->row = x;
}

static void find_form(sharing *s, hir_id id) {
    hcg_kernel_key(s->canonical, id);
    s->uses[id].operands = s->canonical->operands;
    if (hcg_is_collective(s->m, id)) return; /* it has no function */
    const uint32_t number = number_in(s, &s->form_keys);
    s->form_of[id] = number;
    if (number < s->forms.n) return;
    form f = {.op = id, .family = NONE};
    if (kind_of(s, id) == HIR_KERNEL_ROW)
        join_row_family(s, &f);
    else
        join_family(s, &f);
    hd_push(s->a, &s->forms, f);
}

/* ---- functions ------------------------------------------------------------------------------- */
/* A symbol that no other kernel has, made from a name that may contain any character. */
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
                             hir_kernel_phase phase) {
    const hir_operands *operands = &s->uses[id].operands;
    hcg_kernel k = {
        .kind = kind_of(s, id),
        .name = symbol,
        .op = id,
        .phase = phase,
        .contraction = s->p->contractions[id],
        .n_inputs = operands->n_inputs,
        .line = s->p->op_lines[id],
    };
    for (size_t i = 0; i < operands->list.n; i++)
        hd_push(s->a, &k.operands, operands->list.at[i]);
    if (sizes) {
        k.n_sizes = k.kind == HIR_KERNEL_ROW ? 1 : HCG_SIZES;
        memcpy(k.size, sizes->size, sizeof k.size);
    }
    if (sizes && k.kind == HIR_KERNEL_ROW)
        hcg_make_row_family(s->p, &sizes->model, s->forms.at[s->form_of[id]].row, &k);
    hd_push(s->a, &s->p->kernels, k);
    return (uint32_t)s->p->kernels.n - 1;
}

/* Names the outlined prologue and epilogue of a contraction (contract/epilogue.c). Of the prefill
 * functions that have an equal one, the first holds it. If sizes are arguments, the function shares
 * its epilogue with no other. */
static void name_outlined(sharing *s, hir_id id, const functions *f, const char *symbol) {
    hcg_kernel *decode = &s->p->kernels.at[f->of[HIR_DECODE]];
    hcg_kernel *prefill = &s->p->kernels.at[f->of[HIR_PREFILL]];
    uint32_t first;
    decode->epilogue_name = prefill->epilogue_name = hd_printf(s->a, "k_%s", symbol);
    prefill->holds_epilogue = true;
    if (!prefill->n_sizes && hcg_epilogue_key(s->canonical, id, &first)) {
        const size_t known = s->epilogue_keys.keys.n;
        const uint32_t number = number_in(s, &s->epilogue_keys);
        decode->epilogue_name = prefill->epilogue_name = hd_printf(s->a, "y_%u", number);
        decode->epilogue_first_arg = prefill->epilogue_first_arg = first;
        prefill->holds_epilogue = number == known;
    }
    if (!hcg_prologue_key(s->canonical, id, s->p->contractions[id])) return;
    const size_t known = s->prologue_keys.keys.n;
    const uint32_t number = number_in(s, &s->prologue_keys);
    decode->prologue_name = prefill->prologue_name = hd_printf(s->a, "x_%u", number);
    prefill->holds_prologue = number == known;
}

/* Makes one function for each phase (number of tokens) that the form has code for, in the order of
 * the phases; the other phases call the function of prefill. */
static functions make_functions(sharing *s, hir_id id, const family *sizes) {
    const hir_op *op = hir_op_at(s->m, id);
    const char *symbol = symbol_name(s, hir_attr_string(op, HIR_A_NAME, "kernel"));
    const unsigned phases = hir_form(hir_form_of(s->m, id))->phases;
    functions f = {.made = true};
    for (int i = 0; i < HIR_KERNEL_PHASES; i++) {
        const hir_kernel_phase phase = (hir_kernel_phase)i;
        const bool alone = phases == 1u << i;
        const char *name =
            alone ? symbol : hd_printf(s->a, "%s_%s", symbol, hir_kernel_phase_name(phase));
        if (phases & 1u << i) f.of[i] = add_function(s, id, sizes, name, phase);
    }
    for (int i = 0; i < HIR_KERNEL_PHASES; i++)
        if (!(phases & 1u << i)) f.of[i] = f.of[HIR_PREFILL];
    if (s->p->contractions[id]) name_outlined(s, id, &f, symbol);
    return f;
}

/* The family whose function form `f` uses; NULL: the form has a function of its own. */
static family *family_of(sharing *s, const form *f) {
    if (f->family == NONE) return NULL;
    family *all = f->row ? &s->row_families.at[f->family] : &s->families.at[f->family];
    hd_known(all);
    const uint32_t forms = f->row ? s->row_forms : s->kin.at[all->kin];
    return all->forms > 1 && forms > FEW ? all : NULL;
}

/* Orders the operands of a kernel as the function of its family expects them. */
static void order_operands(sharing *s, hir_id id, const family *all, hcg_use *use) {
    hcg_row_form x; /* of this kernel: of its form, with other operands */
    if (!hcg_find_row_form(s->canonical, s->views, id, &x)) return;
    use->operands = x.operands;
    use->size[HCG_N] = x.numbers.at[all->model.n];
    for (size_t i = 0; i < x.lists.n; i++)
        for (uint32_t j = 0; j < x.lists.at[i].n; j++)
            hd_push(s->a, &use->runs, x.lists.at[i].at[j]);
}

/* Assigns functions in the order of first use, so that numbers and names follow the program's text.
 */
static void use_functions(sharing *s) {
    functions *of_form = hd_new_array(s->a, functions, s->forms.n + 1);
    HIR_EACH(s->m, id, s->m->first) {
        if (!hir_is_kernel(hir_op_at(s->m, id)) || hcg_is_collective(s->m, id)) continue;
        const form *f = &s->forms.at[s->form_of[id]];
        hcg_use *use = &s->uses[id];
        family *sizes = family_of(s, f);
        functions *own = sizes ? &sizes->own : &of_form[s->form_of[id]];
        memcpy(use->size, f->size, sizeof f->size);
        if (sizes && f->row) order_operands(s, id, sizes, use);
        if (!own->made) *own = make_functions(s, id, sizes);
        memcpy(use->function, own->of, sizeof own->of);
    }
}

const hcg_use *hcg_share_kernels(hcg_program *p) {
    hd_arena *a = p->arena;
    sharing s = {.a = a, .p = p, .m = p->m, .canonical = hir_canonical_new(a, p->m)};
    s.form_keys.arena = s.kin_keys.arena = s.family_keys.arena = s.row_keys.arena = a;
    s.prologue_keys.arena = s.epilogue_keys.arena = a;
    s.views = hcg_find_row_views(a, p->m);
    s.form_of = hd_new_array(a, uint32_t, p->m->ops.n + 1);
    s.uses = hd_new_array(a, hcg_use, p->m->ops.n + 1);
    HIR_EACH(p->m, id, p->m->first) {
        if (hir_is_kernel(hir_op_at(p->m, id))) find_form(&s, id);
    }
    for (size_t i = 0; i < s.row_families.n; i++)
        if (s.row_families.at[i].forms > CHANCE) s.row_forms += s.row_families.at[i].forms;
    use_functions(&s);
    return s.uses;
}
