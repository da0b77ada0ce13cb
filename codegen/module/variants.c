/* The variants of the code that a program requests, and what is reported of them: what they assume
 * of a machine, what they do not round, and the schedules of their row programs. */
#include <string.h>

#include "codegen/attention/query_amx.h"
#include "codegen/matmul/backend.h"
#include "codegen/module/module.h"
#include "codegen/rowwise/emit/emit_row.h"

/* ---- which ----------------------------------------------------------------------------------- */
/* Do two levels multiply all matrices with the same back ends, and compute attention alike? */
static bool same_code(const void *context, const hcg_level *a, const hcg_level *b) {
    const hcg_options *o = context;
    if (o->attention && hcg_attends_by_amx(a) != hcg_attends_by_amx(b)) return false;
    return hcg_same_backends(a, b, hcg_exact_products(o), o->matrices);
}

/* ---- bf16 products of gradients --------------------------------------------------------------- */
static bool reject_bf16(const hcg_target *t, const char *cpu, hd_arena *a, hd_diags *d) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    hd_diag *e = hd_err(d, HD_E_TARGET, HD_NOWHERE, "--matmul-dtype bf16 is not for %s", cpu);
    e->cause = "it has no instructions that multiply bf16 faster than f32";
    hd_text names;
    hd_text_init(&names, a);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(levels[i].arch, t->arch) != 0 || !hcg_multiplies_bf16(&levels[i])) continue;
        if (strcmp(levels[i].name, cpu) == 0)
            e->cause = "by the facts of --machine it multiplies bf16 no faster than f32";
        else
            hd_text_f(&names, "%s%s", names.n ? ", " : "", levels[i].name);
    }
    e->hint = hd_printf(a, "leave the option out; levels that have some: %s", names.at);
    return false;
}

/* Keeps the variants whose products of gradients can all be rounded as the option says. */
static bool keep_bf16(hcg_target *t, hd_arena *a, hd_diags *d) {
    const char *best = t->variants.at[0].level.name;
    size_t kept = 0;
    for (size_t i = 0; i < t->variants.n; i++)
        if (hcg_multiplies_bf16(&t->variants.at[i].level))
            t->variants.at[kept++] = t->variants.at[i];
    t->variants.n = kept;
    return kept > 0 || reject_bf16(t, best, a, d);
}

bool hcg_find_variants(const hcg_options *o, hd_arena *a, hd_diags *d, hcg_target *out) {
    const hcg_request r = {.triple = o->triple,
                           .cpu = o->cpu,
                           .machine = o->machine,
                           .cpuid = o->cpuid,
                           .host_cpu = o->host_cpu,
                           .same_code = same_code,
                           .context = o};
    return hcg_choose_variants(&r, a, d, out) &&
           (o->compile.matmul_dtype != HIR_BF16 || keep_bf16(out, a, d));
}

/* Copies a string that LLVM allocated, and frees it. */
static const char *taken(hd_arena *a, char *made) {
    const char *copy = hd_strdup(a, made);
    LLVMDisposeMessage(made);
    return copy;
}

bool hcg_find_target(const hcg_options *o, hd_arena *a, hd_diags *d, hcg_target *out) {
    hcg_options here = *o;
    if (!hcg_llvm_open(d)) return false;
    if (!o->cpuid) here.host_cpu = taken(a, LLVMGetHostCPUName());
    if (!hcg_find_variants(&here, a, d, out)) return false;
    out->triple = taken(a, LLVMNormalizeTargetTriple(out->triple));
    return true;
}

/* ---- what they round ------------------------------------------------------------------------- */
/* Prints the roundings that the default allows and that a list turned off by not naming them. A
 * list of nothing, "f32", is no oversight. */
static void print_left_out(const hcg_program *p, const hcg_target *t, hd_text *out) {
    const unsigned exact = p->options.exact, by_default = hcg_exact_by_default();
    for (unsigned r = 0; r < HCG_ROUNDINGS && exact != HCG_ROUND_ALL; r++) {
        const unsigned bit = 1u << r;
        unsigned gains = 0;
        if (!(exact & ~by_default & bit)) continue;
        for (size_t i = 0; i < t->variants.n; i++)
            gains |= hcg_roundings_on(&t->variants.at[i].level, p->options.matrices, exact & ~bit);
        if (gains & bit)
            hd_text_f(out,
                      "--activations has no %s in its list: matrices that dot products of it "
                      "would multiply, faster, take f32 activations\n",
                      hcg_rounding_name(r));
    }
}

bool hcg_activations_not_rounded(hcg_program *p, hd_diags *d, hd_text *out) {
    const unsigned exact = p->options.exact;
    const unsigned attention = p->options.attention ? HCG_ROUND_BF16 & ~exact : 0;
    const unsigned asked = hcg_roundings_of(p->options.matrices, exact) | attention;
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    for (size_t i = 0; i < t.variants.n; i++) {
        const hcg_level *level = &t.variants.at[i].level;
        const unsigned done = hcg_roundings_on(level, p->options.matrices, exact) |
                              (hcg_attends_by_amx(level) ? attention : 0);
        for (unsigned r = 0; r < HCG_ROUNDINGS; r++)
            if (asked & ~done & 1u << r)
                hd_text_f(out, "level %s rounds nothing to %s: activations stay f32 there\n",
                          level->name, hcg_rounding_name(r));
    }
    print_left_out(p, &t, out);
    return true;
}

bool hcg_print_assumed(hcg_program *p, hd_diags *d, hd_text *out) {
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    for (size_t i = 0; i < t.variants.n; i++) {
        hd_text_f(out, "; code for %s assumes ", t.variants.at[i].level.name);
        hd_machine_print(t.variants.at[i].level.machine, out);
        hd_text_add(out, "\n");
    }
    return true;
}

/* ---- schedules ------------------------------------------------------------------------------- */
typedef struct level_text {
    const char *level, *text;
} level_text;

static bool schedule_text(hcg_program *p, hd_diags *d, const hcg_kernel *k, const hcg_level *level,
                          level_text *out) {
    const row_target target = row_target_of(level);
    row_graph g;
    row_schedule s;
    hd_text text;
    hd_text_init(&text, p->arena);
    if (!row_schedule_kernel(p->arena, d, p->m, k, &target, &g, &s)) return false;
    row_print_schedule(&s, ";   ", &text);
    *out = (level_text){level->name, text.at};
    return true;
}

/* Prints equal schedules once, with the names of all their levels. */
static void add_levels(hd_text *out, const hcg_kernel *k, const level_text *at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool before = false;
        for (size_t j = 0; j < i; j++)
            before |= strcmp(at[j].text, at[i].text) == 0;
        if (before) continue;
        hd_text_f(out, "; %s, line %u,", k->name, k->line);
        for (size_t j = i; j < n; j++)
            if (strcmp(at[j].text, at[i].text) == 0) hd_text_f(out, " %s", at[j].level);
        hd_text_f(out, ":\n%s", at[i].text);
    }
}

bool hcg_print_schedules(hcg_program *p, hd_diags *d, hd_text *out) {
    hcg_target t;
    bool any = false;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    level_text *at = hd_new_array(p->arena, level_text, t.variants.n);
    for (size_t i = 0; i < p->kernels.n; i++) {
        const hcg_kernel *k = &p->kernels.at[i];
        if (k->kind != HIR_KERNEL_ROW) continue;
        if (!any) hd_text_add(out, "\n; Schedules of row programs (docs/row-programs.md)\n");
        any = true;
        for (size_t l = 0; l < t.variants.n; l++)
            if (!schedule_text(p, d, k, &t.variants.at[l].level, &at[l])) return false;
        add_levels(out, k, at, t.variants.n);
    }
    return true;
}
