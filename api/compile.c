/* Running passes and writing outputs: hadal_run_passes, hadal_emit, the texts of the IR. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/evaluator.h"
#include "api/gradients.h"
#include "api/ranks.h"
#include "api/report.h"
#include "api/session.h"
#include "api/taps.h"
#include "codegen/module/module.h"
#include "codegen/program/program.h"
#include "inspect/ledger.h"
#include "report/history.h"
#include "support/packed.h"
#include "support/scratch.h"
#include "torch/torch.h"

#define API_FAILED 1

/* ---- passes ---------------------------------------------------------------------------------- */

typedef struct pass_hooks {
    hadal_session *s;
    const hadal_pipeline *p;
    const api_filter *passes, *ops;
    ledger_watch *ledger; /* NULL: the ledger's changes are not recorded */
    size_t n_remarks;     /* number of remarks before the pass that is running */
    bool depth_failed;    /* depth_path could not be written */
} pass_hooks;

static bool want_op(const void *filter, const hir_op *op) {
    return api_filter_takes(filter, hir_info(op->code)->name);
}

/* Is the path a file that this model was read from? The model may be a dump itself. */
static bool is_read(const hadal_session *s, const char *path) {
    struct stat a, b;
    return s->spec && stat(s->spec, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Removes dumps of an earlier execution: a file NN-PASS.hir of one with more passes would be taken
 * for one of these. */
static void remove_dumps(const hadal_session *s, const char *folder) {
    DIR *dir = opendir(folder);
    int index;
    const char *pass;
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (api_is_dump(e->d_name, &index, &pass) &&
            !is_read(s, hd_path_join(s->arena, folder, e->d_name)))
            (void)unlink(hd_path_join(s->arena, folder, e->d_name));
    if (dir) closedir(dir);
}

/* Writes dump_dir/07-fuse.hir. For a pass that changed nothing the file is one line that says
 * so. */
static bool dump(const pass_hooks *h, int index, const char *pass, const hir_module *m,
                 bool changed) {
    hadal_session *s = h->s;
    if (!h->p->dump_dir || !api_filter_takes(h->passes, pass)) return true;
    hir_print_options options = {.locations = true};
    hd_text text;
    hd_text_init(&text, s->arena);
    if (h->ops->text) {
        options.want = want_op;
        options.context = h->ops;
        hd_text_f(&text, "; the ops that match \"%s\"\n", h->ops->text);
    }
    if (changed)
        hir_print(m, options, &text);
    else
        hd_text_f(&text, "; %s (unchanged)\n", pass);
    const char *name = hd_printf(s->arena, "%02d-%s.hir", index, pass);
    return hd_write_file(s->arena, &s->diags, hd_path_join(s->arena, h->p->dump_dir, name), text.at,
                         text.n);
}

/* Does the remark match the filters of the last execution of passes? */
static bool is_kept(const hadal_session *s, const hir_remark *r) {
    return (!s->filter_passes || api_filter_takes(s->filter_passes, r->pass)) &&
           (!s->filter_ops || api_filter_takes(s->filter_ops, r->op_name));
}

static void filter_remarks(hadal_session *s) {
    hir_remarks *r = &s->remarks;
    size_t kept = 0;
    for (size_t i = 0; i < r->list.n; i++)
        if (is_kept(s, &r->list.at[i])) r->list.at[kept++] = r->list.at[i];
    r->list.n = kept;
}

/* Writes depth_path: the depth IR as it is before the pass that makes kernels. */
static void before_pass(void *context, int index, hir_pass_id id, const hir_module *m) {
    (void)index;
    pass_hooks *hooks = context;
    hadal_session *s = hooks->s;
    const hir_pass_info *pass = hir_pass(id);
    hooks->n_remarks = s->remarks.list.n;
    if (!hooks->p->depth_path || m->stage == HIR_STAGE_KERNEL ||
        pass->stage_out != HIR_STAGE_KERNEL)
        return;
    hd_text text;
    hd_text_init(&text, s->arena);
    hir_print(m, (hir_print_options){.locations = true}, &text);
    s->diags.build = s->build;
    hooks->depth_failed =
        !hd_write_file(s->arena, &s->diags, hooks->p->depth_path, text.at, text.n);
    s->diags.build = NULL;
}

static void keep_stage(hadal_session *s, const char *pass, int index, const hir_module *m,
                       bool changed, double seconds) {
    if (index == 0) {
        s->history = report_history_new(s->arena);
        s->history_remarks.n = 0;
    }
    report_history_add(s->history, pass, index, m, changed, seconds);
    hd_push(s->arena, &s->history_remarks, s->remarks.list.n);
}

static bool after_pass(void *context, int index, hir_pass_id id, const hir_module *m, bool changed,
                       double seconds, hd_diags *d) {
    (void)d;
    const pass_hooks *hooks = context;
    const char *name = hir_pass(id)->name;
    if (hooks->depth_failed) return false;
    hir_remarks_name(&hooks->s->remarks, hooks->n_remarks, m);
    if (hooks->p->event)
        hooks->p->event(hooks->p->context, &(hadal_pass_event){index + 1, name, changed, seconds});
    if (hooks->ledger && changed)
        ledger_watch_pass(hooks->ledger, m, name, hooks->s->arena, &hooks->s->remarks);
    if (hooks->p->keep_history) keep_stage(hooks->s, name, index + 1, m, changed, seconds);
    return dump(hooks, index + 1, name, m, changed);
}

static bool pass_named(hadal_session *s, const char *name, hir_pass_id *out) {
    if (hir_pass_by_name(name, out)) return true;
    size_t n;
    const char **names = hir_pass_names(s->arena, &n);
    const char *near = hd_nearest(name, names, n);
    hd_diag *e = hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "there is no pass \"%s\"", name);
    e->hint =
        near ? hd_printf(s->arena, "did you mean \"%s\"?", near) : "`hadal passes` lists them";
    return false;
}

typedef HD_VEC(hir_pass_id) pass_list;

/* What remarks are of that no pass makes. */
static const char of_activations[] = "activations", of_module[] = "module";

/* A filter that matches no name there is was misspelt. */
static bool check_filters(const pass_hooks *h, const pass_list *running) {
    hadal_session *s = h->s;
    const char *ops[HIR_OPCODE_COUNT + 1];
    HD_VEC(const char *) passes = {0};
    hd_push(s->arena, &passes, "input");
    hd_push(s->arena, &passes, of_activations);
    for (size_t i = 0; i < running->n; i++)
        hd_push(s->arena, &passes, hir_pass(running->at[i])->name);
    for (int i = 0; i < HIR_OPCODE_COUNT; i++)
        ops[i] = hir_info((hir_opcode)i)->name;
    ops[HIR_OPCODE_COUNT] = of_module;
    return api_filter_takes_any(s, h->passes, "pass that runs", passes.at, passes.n,
                                "`hadal passes` lists them; `input` is what came in") &&
           api_filter_takes_any(s, h->ops, "op", ops, HIR_OPCODE_COUNT + 1,
                                "`hadal ops` lists them");
}

/* Kernel IR is what the pipeline ends with, so a dump that somebody has edited is compiled as it
 * stands. */
static void default_passes(hadal_session *s, bool gradients, pass_list *out) {
    if (s->graph->stage == HIR_STAGE_KERNEL) return;
    const hir_pass_id *all = gradients ? hir_gradient_pipeline() : hir_pipeline();
    for (const hir_pass_id *id = all; *id != HIR_PASS_COUNT; id++)
        hd_push(s->arena, out, *id);
}

/* Parses names of passes; `default` among them stands for the whole pipeline. */
static bool parse_passes(hadal_session *s, const char *list, bool gradients, pass_list *out) {
    char *copy = hd_strdup(s->arena, list), *rest = copy;
    for (char *name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        hir_pass_id id;
        if (strcmp(name, "default") == 0) {
            default_passes(s, gradients, out);
            continue;
        }
        if (!pass_named(s, name, &id)) return false;
        hd_push(s->arena, out, id);
    }
    return true;
}

/* Finds the pass to stop after, which must be one of those that run. */
static bool stops_at(hadal_session *s, const char *name, const pass_list *passes,
                     hir_pass_id *out) {
    if (!pass_named(s, name, out)) return false;
    for (size_t i = 0; i < passes->n; i++)
        if (passes->at[i] == *out) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "the pass \"%s\", to stop after, does not run", name)
        ->hint = "--passes names the passes that run; `default` is the pipeline";
    return false;
}

void api_recast_states(const hadal_session *s, hir_module *m) {
    const struct {
        hir_state_kind kind;
        hir_state_dtype asked;
    } states[] = {{HIR_STATE_CACHE, s->pass_options.cache_dtype},
                  {HIR_STATE_CARRY, s->pass_options.carry_dtype}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (states[i].asked.given) hir_set_state_dtype(m, states[i].kind, states[i].asked.dtype);
}

/* Formats of checkpoints that are types of Hadal's, too. */
static const struct published {
    hd_packing packing;
    hir_dtype dtype;
} published[] = {{HD_PACKING_MXFP4, HIR_MXFP4}, {HD_PACKING_NVFP4, HIR_NVFP4}};

/* Is the weight, or are all its parts, stored in the checkpoint in this format, with groups along
 * its rows or, if `transposed`, along its columns? */
static bool is_published(hadal_session *s, const hir_weight *w, hd_packing packing,
                         bool transposed) {
    const int64_t parts = hir_parts(w);
    for (int64_t i = 0; i < parts; i++) {
        const hir_weight part = hir_part_of(s->arena, w, i);
        const hd_tensor *t = hd_tensors_find(&s->weights, part.name);
        if (!t || !t->packed || t->packed->packing != packing ||
            t->packed->transposed != transposed)
            return false;
    }
    return parts > 0;
}

/* If no type was requested for all matrices, those that the checkpoint stores in a type of Hadal's
 * keep that type. The rules come before the caller's, which override them. */
static bool offer_published_types(hadal_session *s, hir_weight_types *types) {
    hir_weight_types all = {.matrices = types->matrices, .given = types->given};
    s->published_types = false;
    if (types->given || !s->weights_path || !hd_safetensors_exist(s->arena, s->weights_path))
        return true;
    if (!s->weights_open && !api_need_weights(s)) return false;
    for (size_t i = 0; i < s->graph->weights.n; i++) {
        const hir_weight *w = &s->graph->weights.at[i];
        if (hir_is_derived(w)) continue;
        for (int i = 0; i < 4; i++) {
            const struct published *p = &published[i / 2];
            const bool transposed = i % 2;
            const hir_weight_rule rule = {w->name, p->dtype, true, transposed};
            if (!is_published(s, w, p->packing, transposed)) continue;
            hd_push(s->arena, &all.rules, rule);
            s->published_types = true;
        }
    }
    for (size_t i = 0; i < types->rules.n; i++)
        hd_push(s->arena, &all.rules, types->rules.at[i]);
    *types = all;
    return true;
}

static bool set_weight_types(hadal_session *s) {
    hir_weight_types types;
    if (!hir_parse_weight_types(s->arena, &s->diags, s->pass_options.weights_dtype, &types) ||
        !offer_published_types(s, &types))
        return false;
    s->pass_options.matrix_dtype = types.matrices;
    s->pass_options.weight_rules = types.rules.at;
    s->pass_options.n_weight_rules = types.rules.n;
    return true;
}

/* Sets all options of the table that belong to the passes (support/compile_options.def). */
bool api_read_options(hadal_session *s, const hadal_pipeline *p) {
    hir_compile_options *o = &s->pass_options;
#define T(...)
#define P(id, member, ...)                                                                                           \
    if (!_Generic(p->member, int64_t: hir_compile_option_read_number, const char *: hir_compile_option_read_text)( \
            o, HIR_OPTION_##id, p->member, &s->diags)) \
        return false;
#include "support/compile_options.def"
#undef P
    if (o->stage < o->stages) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "there is no stage %lld of %lld", (long long)o->stage,
           (long long)o->stages)
        ->hint = "stages count from 0";
    return false;
}

static bool sums_over_tokens(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    if (hir_has_trait(hir_op_at(m, op)->code, HIR_REDUCES_TOKENS)) return true;
    return false;
}

/* Rejects an option that this model, or what is made of it, has no use for. */
static bool options_have_effect(hadal_session *s, const hadal_pipeline *p,
                                const pass_list *passes) {
    const hir_compile_options *o = &s->pass_options;
    const bool stages = o->stages > 1, ranks = o->ranks > 1;
    /* as of kernel IR: it has been through the passes, which made of it what they were told then */
    const bool past = passes->n == 0;
    static const char told[] = "it is for passes, and none runs: kernel IR has been through them";
    const struct {
        bool idle;
        const char *message, *hint;
    } rules[] = {
        {p->optimizer && !p->gradients, "--optimizer is for libraries of gradients",
         "--gradients makes one"},
        {p->token_sums && !p->gradients && !sums_over_tokens(s->graph),
         "--token-sums is for gradients: nothing else sums over tokens",
         "--gradients makes a library of gradients"},
        {p->matmul_dtype && !p->gradients && !hir_has_gradients(s->graph),
         "--matmul-dtype is for gradients",
         "for inference --weights-dtype bf16 --activations bf16 rounds both operands"},
        {past && p->weights_dtype, "--weights-dtype comes too late", told},
        {past && p->bank_dtype, "--bank-dtype comes too late", told},
        {past && p->phase1_dtype, "--phase1-dtype comes too late", told},
        {past && p->merge_norm, "--merge-norm comes too late", told},
        {past && p->memory, "--memory comes too late", told},
        {past && p->token_sums, "--token-sums comes too late", told},
        {past && p->matmul_dtype, "--matmul-dtype comes too late", told},
        {past && ranks, "--ranks comes too late", told},
        {past && stages, "--stages comes too late", told},
        {p->gather_dtype && !ranks, "--gather-dtype is for a model that is divided over ranks",
         "--ranks P divides it"},
        {o->divide_from > 0 && !ranks, "--divide-from is for a model that is divided over ranks",
         "--ranks P divides it"},
        {p->overlap && !ranks && !stages && !s->graph->ranks,
         "--overlap is for a model that is divided over machines",
         "--ranks P and --stages S divide it"},
        {o->virtual_stages > 1 && !stages, "--virtual-stages is for a model in stages",
         "--stages S divides it"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].idle) continue;
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s", rules[i].message)->hint = rules[i].hint;
        return false;
    }
    return true;
}

static bool run_passes(hadal_session *s, const hadal_pipeline *p) {
    if (!api_need_module(s) || !api_read_options(s, p)) return false;
    if (p->gradients && !api_may_differentiate(s, p)) return false;
    pass_list passes = {0};
    if (!parse_passes(s, p->passes ? p->passes : "default", p->gradients != 0, &passes) ||
        !options_have_effect(s, p, &passes))
        return false;
    if (!set_weight_types(s)) return false;
    s->pass_options.keep_traces = p->keep_traces != 0;
    s->pass_options.gradients = p->gradients != 0;
    if (!api_bound_memory(s, p)) return false;
    s->m = hir_module_clone(s->graph, s->arena);
    const api_added added = {.hidden = p->keep_hidden != 0,
                             .loss = p->loss != 0 || p->gradients != 0};
    if (!api_choose_taps(s, p) || !api_add_outputs(s, s->m, added)) return false;
    api_recast_states(s, s->m);
    s->program = NULL;
    s->remarks.list.n = 0;

    if (p->depth_path && s->m->stage == HIR_STAGE_KERNEL) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "this is kernel IR: its depth IR is gone");
        return false;
    }
    hir_pass_id stop = HIR_PASS_COUNT;
    if (p->stop_after && !stops_at(s, p->stop_after, &passes, &stop)) return false;
    pass_hooks hooks = {
        .s = s,
        .p = p,
        .passes = api_filter_new(s, "passes", p->filter_passes),
        .ops = api_filter_new(s, "ops", p->filter_ops),
    };
    if (!hooks.passes || !hooks.ops || !check_filters(&hooks, &passes)) return false;
    s->filter_passes = hooks.passes, s->filter_ops = hooks.ops;
    if (p->dump_dir) remove_dumps(s, p->dump_dir);
    if (!dump(&hooks, 0, "input", s->m, true)) return false;

    s->history = NULL;
    if (p->keep_history) keep_stage(s, "input", 0, s->m, true, -1);
    ledger_watch ledger;
    if (p->ledger) {
        ledger_watch_start(&ledger, s->m, s->arena);
        hooks.ledger = &ledger;
    }
    const hir_run run = {
        .passes = passes.at,
        .n_passes = passes.n,
        .stop_after = stop,
        .verify = p->verify_each != 0,
        .check = p->check != 0,
        .hooks = {.context = &hooks, .before = before_pass, .after = after_pass},
    };
    const bool ok = hir_run_passes(s->m, &run, &s->pass_options, &s->remarks, &s->diags);
    filter_remarks(s);
    return ok && api_holds_bound(s);
}

int hadal_run_passes(hadal_session *s, const hadal_pipeline *p) {
    API_ENTER(s);
    API_TAKE(hadal_pipeline, all, p);
    API_LEAVE(s, run_passes(s, &all));
}

size_t hadal_remarks(const hadal_session *s) {
    return s->remarks.list.n;
}

hadal_remark hadal_remark_at(const hadal_session *s, size_t i) {
    const hir_remark *r = &s->remarks.list.at[i];
    return (hadal_remark){
        .pass = r->pass,
        .op = r->op_name,
        .file = r->loc.file,
        .line = r->loc.line,
        .column = r->loc.column,
        .taken = r->taken,
        .text = r->text,
        .value = r->value,
        .weight = r->weight,
        .call_file = r->loc.call ? r->loc.call->file : NULL,
        .call_line = r->loc.call ? r->loc.call->line : 0,
        .call_column = r->loc.call ? r->loc.call->column : 0,
        .layer_pass = r->layer_pass,
    };
}

/* ---- output ---------------------------------------------------------------------------------- */

bool api_need_kernels(hadal_session *s) {
    if (!api_need_module(s)) return false;
    if (s->m->stage == HIR_STAGE_KERNEL) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "code can only be made from kernel IR")->hint =
        "run the whole pipeline first";
    return false;
}

static bool read_activations(hadal_session *s, const char *text, unsigned *exact) {
    if (hcg_read_activations(text, exact)) return true;
    hd_text names;
    hd_text_init(&names, s->arena);
    for (unsigned i = 0; i < HCG_ROUNDINGS; i++)
        hd_text_f(&names, "%s%s", i ? ", " : "", hcg_rounding_name(i));
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "activations cannot be \"%s\"", text)->hint =
        hd_printf(s->arena, "%s, several with commas between, or f32", names.at);
    return false;
}

/* Adds a remark for each CPU level that does not do what --activations allows. */
static bool remark_activations(hadal_session *s) {
    hd_text text;
    hd_text_init(&text, s->arena);
    if (!hcg_activations_not_rounded(s->program, &s->diags, &text)) return false;
    for (const char *at = text.n ? text.at : ""; *at;) {
        const size_t n = strcspn(at, "\n");
        hir_remark r = {.pass = of_activations, .op = HIR_NONE, .loc = HD_NOWHERE};
        r.op_name = of_module, r.text = hd_strndup(s->arena, at, n);
        if (is_kept(s, &r)) hd_push(s->arena, &s->remarks.list, r);
        at += n + 1;
    }
    return true;
}

/* What activations stay exact for a target. */
static bool find_exact(hadal_session *s, const hadal_target *t, unsigned *exact) {
    *exact = hcg_exact_by_default();
    /* weights that keep few bits without the user's request are not multiplied with rounded
     * activations */
    if (s->published_types && !s->pass_options.weights_dtype) *exact = HCG_ROUND_ALL;
    return !t || !t->activations || read_activations(s, t->activations, exact);
}

hcg_program *api_lower(hadal_session *s, const hir_module *m, const hir_compile_options *compile,
                       const hadal_target *t) {
    const char *machine = t && t->machine ? t->machine : "";
    hcg_options options = {
        .triple = t && t->triple ? hd_strdup(s->arena, t->triple) : NULL,
        .cpu = t && t->cpu ? hd_strdup(s->arena, t->cpu) : NULL,
        .ir_file = t && t->ir_file ? hd_strdup(s->arena, t->ir_file) : NULL,
        .compile = *compile,
        .whole = s->graph,
    };
    if (!find_exact(s, t, &options.exact)) return NULL;
    if (*machine && !hd_machine_parse(s->arena, &s->diags, machine, &options.machine)) return NULL;
    return hcg_lower(s->arena, &s->diags, m, &options);
}

bool api_need_program(hadal_session *s, const hadal_target *t) {
    if (!api_need_kernels(s)) return false;
    const char *triple = t && t->triple ? t->triple : "", *cpu = t && t->cpu ? t->cpu : "";
    const char *ir_file = t && t->ir_file ? t->ir_file : "";
    const char *machine = t && t->machine ? t->machine : "";
    unsigned exact;
    if (!find_exact(s, t, &exact)) return false;
    const char *key = hd_printf(s->arena, "%s|%s|%s|%u|%s", triple, cpu, ir_file, exact, machine);
    if (s->program && strcmp(key, s->target_key) == 0) return true;
    s->program = api_lower(s, s->m, &s->pass_options, t);
    s->target_key = key;
    return s->program && (!t || !t->activations || remark_activations(s));
}

static void tell_code(void *context, const hcg_code_event *e) {
    const hadal_target *t = context;
    t->event(t->context, &(hadal_code_event){.level = e->level,
                                             .part = e->part,
                                             .functions = e->functions,
                                             .instructions = e->instructions,
                                             .bytes = e->bytes,
                                             .build = e->build,
                                             .translate = e->translate});
}

/* Prints what code for the target assumes, and how its row programs are scheduled, as comments
 * after the kernel IR, so that line numbers stay the same. */
static bool print_target(hadal_session *s, const hadal_target *t, hd_text *out) {
    return api_need_program(s, t) && hcg_print_assumed(s->program, &s->diags, out) &&
           hcg_print_schedules(s->program, &s->diags, out);
}

static bool emit_ir(hadal_session *s, const hadal_target *t, const char *path) {
    hd_text text;
    hd_text_init(&text, s->arena);
    hir_print(s->m, (hir_print_options){.locations = true}, &text);
    if (t && s->m->stage == HIR_STAGE_KERNEL && !print_target(s, t, &text)) return false;
    return hd_write_file(s->arena, &s->diags, path, text.at, text.n);
}

/* Is a weight of the folder stored as codes? What is written could not load it. */
static bool reject_quantised(hadal_session *s) {
    if (!s->weights_path || !hd_safetensors_exist(s->arena, s->weights_path)) return false;
    if (!api_need_weights(s)) return true;
    const hd_tensor *t = api_find_codes(s);
    if (!t) return false;
    hd_diag *e = hd_err(&s->diags, HD_E_UNSUPPORTED, (hd_loc){.file = t->file},
                        "weight %s is quantised, and PyTorch is written for numbers", t->name);
    e->cause = "gradients are those of numbers; the module does not decode codes";
    e->hint = "store the checkpoint in f32 or bf16 first, or give the config.json alone";
    return true;
}

static bool emit_torch(hadal_session *s, const char *path) {
    hd_text text;
    hd_text_init(&text, s->arena);
    return !reject_quantised(s) && hpt_write(s->graph, &s->diags, &text) &&
           hd_write_file(s->arena, &s->diags, path, text.at, text.n);
}

static bool emit_object(hadal_session *s, const char *path) {
    return hcg_emit_code(s->program, &s->diags, HCG_CODE_OBJECT, path);
}

static bool emit_llvm(hadal_session *s, const char *path) {
    return hcg_emit_code(s->program, &s->diags, HCG_CODE_LLVM, path);
}

static bool emit_asm(hadal_session *s, const char *path) {
    return hcg_emit_code(s->program, &s->diags, HCG_CODE_ASM, path);
}

static bool emit_header(hadal_session *s, const char *path) {
    return hcg_emit_header(s->program, &s->diags, path);
}

static bool emit_python(hadal_session *s, const char *path) {
    if (hir_has_gradients(s->m))
        return api_reject_gradients(s, "--emit=python writes a class for inference",
                                    "compile the model without --gradients, too");
    return hcg_emit_python(s->program, &s->diags, path);
}

static bool emit_weights(hadal_session *s, const char *path) {
    if (hir_has_gradients(s->m))
        return api_reject_gradients(s, "its weights are parameters, in memory of the caller",
                                    "NAME_trainer_parameters says where a checkpoint goes");
    return api_need_weights(s) && api_may_write(s, path) &&
           hcg_pack(s->program, &s->diags, &s->weights, path);
}

static bool emit_units(hadal_session *s, hcg_program *p, const hadal_target *t, const char *stem,
                       hcg_objects *out) {
    p->options.event = t && t->event ? tell_code : NULL;
    p->options.context = (void *)t;
    const bool ok = hcg_emit_units(p, &s->diags, stem, out);
    p->options.event = NULL;
    return ok;
}

bool api_emit_library(hadal_session *s, hcg_program *p, const hadal_target *t, const char *path) {
    const char *runtime = t && t->runtime ? t->runtime : hcg_runtime(p, s->lib_dir);
    hcg_objects objects;
    hd_scratch *scratch = hd_scratch_open(s->arena, &s->diags, path);
    if (!scratch) return false;
    const char *stem = hd_path_join(s->arena, scratch->path, "unit");
    const bool ok = emit_units(s, p, t, stem, &objects) &&
                    hcg_link(p, &s->diags, &objects, t ? t->cc : NULL, runtime, path);
    hd_scratch_remove(scratch);
    return ok;
}

static bool emit_library(hadal_session *s, const hadal_target *t, const char *path) {
    if (!api_emit_library(s, s->program, t, path)) return false;
    if (hir_has_gradients(s->m) && api_is_first_rank(s)) api_tell_trainer_memory(s);
    return true;
}

static bool emit(hadal_session *s, const hadal_target *t, const char *kind, const char *path) {
    static const struct {
        const char *kind;
        bool (*write)(hadal_session *s, const char *path);
    } writers[] = {
        {"llvm", emit_llvm},     {"asm", emit_asm},         {"obj", emit_object},
        {"header", emit_header}, {"weights", emit_weights}, {"python", emit_python},
    };
    if (strcmp(kind, "ir") == 0) return api_need_module(s) && emit_ir(s, t, path);
    if (strcmp(kind, "torch") == 0) return api_need_module(s) && emit_torch(s, path);
    if (!api_need_program(s, t)) return false;
    if (strcmp(kind, "so") == 0) return emit_library(s, t, path);
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
        if (strcmp(kind, writers[i].kind) == 0) return writers[i].write(s, path);
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "nothing of kind \"%s\" can be emitted", kind);
    return false;
}

static hadal_target target_of(const hadal_target *t) {
    API_TAKE(hadal_target, all, t);
    return all;
}

int hadal_check_target(hadal_session *s, const hadal_target *t) {
    API_ENTER(s);
    const hadal_target all = target_of(t);
    hcg_target found;
    const bool ok = api_need_program(s, &all) &&
                    hcg_find_variants(&s->program->options, s->arena, &s->diags, &found);
    API_LEAVE(s, ok);
}

static int emit_guarded(hadal_session *s, const hadal_target *t, const char *kind,
                        const char *path) {
    API_ENTER(s);
    const hadal_target all = t ? target_of(t) : (hadal_target){0};
    API_LEAVE(s, emit(s, t ? &all : NULL, kind, path));
}

/* The only files of a session that may be part of a build; dumps and entries of the code cache are
 * not. */
int hadal_emit(hadal_session *s, const hadal_target *t, const char *kind, const char *path) {
    s->diags.build = s->build;
    const int code = emit_guarded(s, t, kind, path);
    s->diags.build = NULL;
    return code;
}

/* Writes random weights. The file has one of the dtypes that other programs write as well; NULL:
 * f32. */
static bool init_weights(hadal_session *s, uint64_t seed, bool draw_all, const char *dtype,
                         const char *path) {
    static const struct {
        const char *name;
        hd_tensor_dtype dtype;
    } kinds[] = {{"f32", HD_T_F32}, {"bf16", HD_T_BF16}, {"f16", HD_T_F16}};
    if (!api_need_module(s) || !api_may_write(s, path)) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(dtype ? dtype : "f32", kinds[i].name) == 0)
            return hcg_init_weights(s->graph, &s->diags, seed, draw_all, kinds[i].dtype, path);
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "a checkpoint cannot be made in \"%s\"", dtype)
        ->hint =
        "f32, bf16 or f16; weights are put into groups (q8, q4, mxfp4, nvfp4) when they are packed";
    return false;
}

int hadal_init_weights(hadal_session *s, uint64_t seed, const char *dtype, const char *out_path) {
    API_ENTER(s);
    API_LEAVE(s, init_weights(s, seed, false, dtype, out_path));
}

int hadal_draw_weights(hadal_session *s, uint64_t seed, const char *dtype, const char *out_path) {
    API_ENTER(s);
    API_LEAVE(s, init_weights(s, seed, true, dtype, out_path));
}

static int write_guarded(hadal_session *s, const char *path, const char *text) {
    API_ENTER(s);
    API_LEAVE(s, hd_write_file(s->arena, &s->diags, path, text, strlen(text)));
}

int hadal_write_text(hadal_session *s, const char *path, const char *text) {
    s->diags.build = s->build;
    const int code = write_guarded(s, path, text);
    s->diags.build = NULL;
    return code;
}

int hadal_check_weights(hadal_session *s) {
    API_ENTER(s);
    const bool fit = api_need_module(s) && api_need_weights(s) &&
                     hcg_check_weights(s->graph, &s->diags, &s->weights);
    if (fit) hcg_warn_of_absent(s->graph, &s->diags, &s->weights);
    API_LEAVE(s, fit);
}

#undef API_FAILED
#define API_FAILED ""
const char *hadal_ir_text(hadal_session *s, int locations) {
    API_ENTER(s);
    hd_text text;
    hd_text_init(&text, s->arena);
    if (s->m) hir_print(s->m, (hir_print_options){.locations = locations != 0}, &text);
    API_RETURN(s, text.at ? text.at : "");
}
