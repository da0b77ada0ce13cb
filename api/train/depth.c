#include "api/train/depth.h"

#include <math.h>

#include "api/gradients.h"
#include "inspect/format.h"
#include "inspect/trainer_memory.h"

/* ---- the model with its sums ----------------------------------------------------------------- */

/* An output that shows a mix. Outputs of a spec are identifiers, and those of taps begin with
 * "tap.". */
#define MIX "mix."

static const char *mix_output_name(size_t i, hd_arena *a) {
    return hd_printf(a, MIX "%zu.value", i);
}

static bool add_mixes(const depth_weights *x, hir_module *m, hd_diags *d) {
    hir_builder b = hir_at_end(m, d);
    for (size_t i = 0; i < x->rows.n; i++) {
        const hir_attr name = hir_string(HIR_A_NAME, mix_output_name(i, m->arena));
        if (hir_build(&b, HIR_OUTPUT_OP, &x->rows.at[i].weights, 1, &name, 1) == HIR_NONE)
            return false;
    }
    return true;
}

/* The value for each token: what depends on no token is the same for all of them. */
static hir_ref with_tokens(hir_builder *b, hir_ref x) {
    const hir_type t = hir_ref_type(b->m, x);
    int64_t shape[HIR_MAX_RANK] = {HIR_T};
    if (hir_type_has_t(t) || t.rank == HIR_MAX_RANK) return x;
    for (uint32_t i = 0; i < t.rank; i++)
        shape[i + 1] = t.dim[i];
    const hir_attr attrs[] = {hir_float(HIR_A_VALUE, 1), hir_ints(HIR_A_SHAPE, shape, t.rank + 1)};
    const hir_ref ones = hir_emit(b, HIR_CONST_OP, NULL, 0, attrs, 2);
    return ones.kind == HIR_REF_NONE ? ones : hir_emit2(b, HIR_MUL_OP, ones, x);
}

/* Gives out the sum over tokens of a value, or of its squares, as the gradient of a parameter. */
static bool sum_output(hir_pass_context *c, const char *name, hir_ref x, bool squares) {
    hir_module *m = c->m;
    hir_builder b = hir_at_end(m, c->diags);
    x = with_tokens(&b, x);
    if (squares && x.kind != HIR_REF_NONE) x = hir_emit2(&b, HIR_MUL_OP, x, x);
    if (x.kind != HIR_REF_NONE) x = hir_emit1(&b, HIR_SUM_TOKENS_OP, x);
    if (x.kind == HIR_REF_NONE) return false;
    if (hir_find_weight(m, name) != HIR_NONE) {
        hd_err(c->diags, HD_E_NAME, HD_NOWHERE, "a sum by depth needs the name of weight '%s'",
               name)
            ->hint = "give the weight another name, or leave out --depth-every";
        return false;
    }
    hir_add_weight(m, name, hir_ref_type(m, x), HD_NOWHERE);
    const hir_attr attr = hir_string(HIR_A_NAME, hd_printf(m->arena, HIR_GRADIENT "%s", name));
    return hir_build(&b, HIR_OUTPUT_OP, &x, 1, &attr, 1) != HIR_NONE;
}

/* A pass after differentiate: each output that shows a value becomes its sum, under the name of the
 * output. */
static bool sum_outputs(hir_pass_context *c) {
    hir_module *m = c->m;
    HD_VEC(hir_id) shown = {0};
    HIR_EACH(m, id, m->first) {
        const hir_op *op = hir_op_at(m, id);
        if (op->code != HIR_OUTPUT_OP || hir_is_gradient(op)) continue;
        if (strcmp(hir_attr_string(op, HIR_A_NAME, ""), HIR_LOSS) != 0)
            hd_push(c->scratch, &shown, id);
    }
    for (size_t i = 0; i < shown.n; i++) {
        const hir_op op = *hir_op_at(m, shown.at[i]);
        const char *name = hd_strdup(m->arena, hir_attr_string(&op, HIR_A_NAME, ""));
        const bool mix = hd_begins_with(name, MIX);
        const bool wanted = !hd_begins_with(name, HIR_GRADIENT_AT MIX);
        const hir_ref x = op.args[0];
        hir_erase(m, shown.at[i]);
        if (wanted && !sum_output(c, name, x, !mix)) return false;
        c->changed = true;
    }
    return true;
}

static hir_module *with_sums(const train_depth *x, hadal_session *s,
                             const hir_compile_options *options) {
    static const hir_pass_info sums = {"sum-outputs", sum_outputs, HIR_STAGE_DEPTH, HIR_STAGE_DEPTH,
                                       "outputs become sums over tokens"};
    hir_run run = hir_run_of(hir_gradient_pipeline());
    run.extra = &sums, run.n_extra = 1;
    while (run.passes[run.extra_at++] != HIR_PASS_DIFFERENTIATE) {
    }
    hir_module *m = hir_module_clone(s->graph, s->arena);
    if (!hir_add_loss(m, &s->diags) || !taps_add_outputs(x->outputs, m, &s->diags) ||
        !add_mixes(&x->mixes, m, &s->diags))
        return NULL;
    api_recast_states(s, m);
    return hir_run_passes(m, &run, options, NULL, &s->diags) ? m : NULL;
}

/* ---- the library ----------------------------------------------------------------------------- */

static void tell_memory(hadal_session *s, const hcg_program *p) {
    trainer_memory memory;
    trainer_memory_find(p, p->chunk, s->arena, &memory);
    hd_note(&s->diags, HD_NOWHERE,
            "the magnitudes by depth take %s beside it, and %s for each thread",
            inspect_bytes(s->arena, memory.all), inspect_bytes(s->arena, memory.thread));
}

static void find_sums(train_depth *x, hd_arena *a) {
    const size_t n = x->outputs->list.n, mixes = x->mixes.rows.n;
    x->of_output = hd_new_array(a, const api_parameter *, n);
    x->of_gradient = hd_new_array(a, const api_parameter *, n);
    x->of_mix = hd_new_array(a, const api_parameter *, mixes + 1);
    for (size_t i = 0; i < n; i++) {
        const char *name = taps_output_name(x->outputs->list.at[i].shown, a);
        x->of_output[i] = api_trainer_find(x->t, name);
        x->of_gradient[i] = api_trainer_find(x->t, hd_printf(a, HIR_GRADIENT_AT "%s", name));
    }
    for (size_t i = 0; i < mixes; i++)
        x->of_mix[i] = api_trainer_find(x->t, mix_output_name(i, a));
}

static hcg_program *lower(const train_depth *x, hadal_session *s, const hir_compile_options *o,
                          const hadal_target *target) {
    const hir_module *m = with_sums(x, s, o);
    return m ? api_lower(s, m, o, target) : NULL;
}

/* Where memory is bounded, this trainer has what the one of the steps leaves: that one is compiled as it
 * would be without magnitudes by depth, so that its bits are the same. */
static hcg_program *lower_in_bound(const train_depth *x, hadal_session *s,
                                   const hadal_target *target) {
    hir_compile_options o = s->pass_options;
    trainer_memory steps, mine;
    o.bounded = false;
    o.optimizer = HIR_OPTIMIZER_ADAMW;
    hcg_program *p = lower(x, s, &o, target);
    if (!p || !o.memory) return p;
    trainer_memory_find(s->program, s->program->chunk, s->arena, &steps);
    trainer_memory_find(p, p->chunk, s->arena, &mine);
    const int64_t left = o.memory - (int64_t)steps.all;
    if ((int64_t)mine.all <= left) return p;
    o.bounded = true;
    o.beside = o.free_bytes;
    o.rest_bytes = (int64_t)(mine.all - mine.arena);
    o.arena_bytes = left - o.rest_bytes;
    return lower(x, s, &o, target);
}

bool train_depth_open(train_depth *x, hadal_session *s, const hadal_target *target,
                      const char *path, int64_t context, int threads) {
    *x = (train_depth){0};
    hd_text_init(&x->members, s->arena);
    x->outputs = api_output_taps(s);
    if (!x->outputs) return false;
    (void)heatmap_plan(s->graph, s->arena, &x->mixes);
    hcg_program *p = lower_in_bound(x, s, target);
    if (!p || !api_emit_library(s, p, target, path)) return false;
    tell_memory(s, p);
    x->t = hd_new(s->arena, api_trainer);
    if (!api_trainer_open_alone(x->t, s, path, context, threads, target->cpu)) return false;
    find_sums(x, s->arena);
    return true;
}

void train_depth_close(train_depth *x) {
    if (x->t) api_trainer_close(x->t);
    x->t = NULL;
}

/* ---- what does not change -------------------------------------------------------------------- */

static void describe_mixes(const depth_weights *x, hd_text *out) {
    hd_text_add(out, "{\"columns\": [");
    for (size_t c = 0; c < x->columns.n; c++) {
        hd_text_add(out, c ? ", " : "");
        inspect_json_string(out, x->columns.at[c].label);
    }
    hd_text_add(out, "],\n  \"rows\": [");
    for (size_t r = 0; r < x->rows.n; r++) {
        const depth_row *row = &x->rows.at[r];
        hd_text_f(out, "%s{\"sublayer\": %u, \"label\": ", r ? ",\n    " : "\n    ", row->sublayer);
        inspect_json_string(out, row->label);
        hd_text_add(out, ", \"columns\": [");
        for (int64_t i = 0; i < row->n; i++)
            hd_text_f(out, "%s%zu", i ? ", " : "", row->sources[i].column);
        hd_text_add(out, "]}");
    }
    hd_text_add(out, "]}");
}

bool train_depth_describe(const train_depth *x, hadal_session *s, const char *path) {
    hd_text out;
    hd_text_init(&out, s->arena);
    hd_text_add(&out, "{\"sublayers\": [");
    for (uint32_t k = 0; k < x->outputs->sublayers; k++) {
        hd_text_add(&out, k ? ",\n    " : "\n    ");
        inspect_json_string(&out, x->outputs->names[k]);
    }
    hd_text_add(&out, "],\n  \"mixes\": ");
    if (x->mixes.rows.n)
        describe_mixes(&x->mixes, &out);
    else
        hd_text_add(&out, "null");
    hd_text_add(&out, "}\n");
    return hd_write_file(s->arena, &s->diags, path, out.at, out.n);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* The root mean square of a value over `tokens` of them and its elements; 0 where it has no sum: no
 * path leads from it to the loss. */
static double rms_of(const api_parameter *p, int64_t tokens) {
    double sum = 0;
    for (size_t i = 0; p && i < p->elements; i++)
        sum += (double)p->gradient[i];
    return p ? sqrt(sum / ((double)p->elements * (double)tokens)) : 0;
}

/* By sublayer. */
static void add_rms(train_depth *x, const char *key, const api_parameter *const *sums,
                    int64_t tokens, double by) {
    hd_text *out = &x->members;
    hd_text_f(out, "\"%s\": [", key);
    for (size_t i = 0; i < x->outputs->list.n; i++) {
        hd_text_add(out, i ? ", " : "");
        inspect_json_rounded(out, true, rms_of(sums[i], tokens) * by);
    }
    hd_text_add(out, "]");
}

/* The mean over tokens, and over heads or inputs. */
static void add_mix(train_depth *x, size_t r, int64_t tokens) {
    const size_t n = (size_t)x->mixes.rows.at[r].n;
    const api_parameter *p = x->of_mix[r];
    const size_t ways = p ? p->elements / n : 0;
    hd_text *out = &x->members;
    hd_text_add(out, r ? ", [" : "[");
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t k = 0; k < ways; k++)
            sum += (double)p->gradient[k * n + i];
        hd_text_add(out, i ? ", " : "");
        inspect_json_rounded(out, ways > 0, sum / ((double)ways * (double)tokens));
    }
    hd_text_add(out, "]");
}

/* Parameters of the same names have the same shapes. */
static void copy_parameters(train_depth *x, const api_trainer *of) {
    for (size_t i = 0; i < of->n; i++) {
        const api_parameter *from = &of->parameters[i], *to = api_trainer_find(x->t, from->name);
        if (to) memcpy(to->values, from->values, from->elements * sizeof *from->values);
    }
}

const char *train_depth_measure(train_depth *x, const api_trainer *of, const train_batch *b) {
    static const char what[] = "the magnitudes by depth";
    api_trainer *t = x->t;
    double sum;
    int64_t count;
    copy_parameters(x, of);
    if (!api_trainer_ok(
            t, t->gradients(t->at, b->tokens, b->targets, b->lengths, b->sequences, &sum, &count),
            what))
        return NULL;
    x->members.n = 0;
    add_rms(x, "out_rms", x->of_output, b->n_tokens, 1);
    hd_text_add(&x->members, ", ");
    add_rms(x, "out_grad_rms", x->of_gradient, b->n_tokens, count ? 1 / (double)count : 0);
    if (x->mixes.rows.n) hd_text_add(&x->members, ", \"mixes\": [");
    for (size_t r = 0; r < x->mixes.rows.n; r++)
        add_mix(x, r, b->n_tokens);
    if (x->mixes.rows.n) hd_text_add(&x->members, "]");
    return api_trainer_ok(t, t->trainer_clear(t->at), what) ? x->members.at : NULL;
}
