/* shard-pipeline: the layers are divided among pipeline stages; this module becomes one of them.
 *
 * Needs    the graph, dead code removed; `stages` in the options (1: nothing is done).
 * Does     cuts the program into as many ranges of ops (`runs`) as stages times virtual stages, so
 *          that the one that takes longest for a prompt is as short as can be, and none holds much
 *          more than the mean (stage_cuts.h); range j goes to stage j mod stages. What is live at a
 *          cut is sent on: the running sum of a residual system, its finished blocks, or whatever
 *          it is; it is found by liveness and not known by name. A stage keeps what it has made or
 *          been sent, so that from its second range on only what is new is sent (cross-stage
 *          caching).
 * Leaves   what needs no row of the call, such as tables of positions and expressions of weights:
 *          every stage computes it. dce removes weights and states of other stages.
 *
 * It runs before depth attention is recognised: a stage treats what it is sent as sources of its
 * own. */
#include <string.h>

#include "passes/analysis/depth_flow.h"
#include "passes/shard/shard.h"
#include "passes/shard/stage_cuts.h"

typedef struct cutter {
    hir_pass_context *c;
    hir_module *m;
    int64_t stages, runs; /* ranges of ops: stages times virtual stages */
    uint32_t n;           /* ops at the top */
    hir_id *program;
    hir_flow flow;
    uint32_t *at;  /* by op: its number in the program */
    bool *free;    /* by op: every stage computes it */
    uint32_t *run; /* by op: the range that it is in */
    /* by value: the op that makes it, and the last that reads it, by number; only of values that
     * can cross */
    uint32_t *last;
    int64_t *live; /* by number: elements live in front of this op; -1: no cut here */
    uint32_t *cut; /* by range: number of its first op */
    /* By range, in thousandths of the whole: the time of a prompt, and the bytes that are held. */
    uint32_t *work, *held;
} cutter;

static bool can_cross(const cutter *k, hir_ref r) {
    if (r.kind != HIR_REF_VALUE) return false;
    const hir_id op = pass_def(k->m, r);
    return op != HIR_NONE && !k->free[op];
}

/* ---- what every stage does ------------------------------------------------------------------- */

static bool is_free(const cutter *k, hir_id op) {
    const hir_op *o = hir_op_at(k->m, op);
    if (hir_has_trait(o->code, HIR_EFFECT | HIR_SEQUENCE | HIR_COMM)) return false;
    if (!hir_has_trait(o->code, HIR_LOCAL) || o->code == HIR_GATHER_OP) return false;
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        const hir_id made = pass_def(k->m, o->args[i]);
        if (made == HIR_NONE || !k->free[made]) return false;
    }
    return true;
}

static void list_program(cutter *k) {
    hd_arena *a = k->c->scratch;
    const size_t ops = k->m->ops.n;
    k->at = hd_new_array(a, uint32_t, ops);
    k->free = hd_new_array(a, bool, ops);
    k->run = hd_new_array(a, uint32_t, ops);
    k->program = hd_new_array(a, hir_id, ops);
    HIR_EACH(k->m, op, k->m->first) {
        k->at[op] = k->n;
        k->program[k->n++] = op;
        k->free[op] = is_free(k, op);
    }
}

/* ---- where to cut ---------------------------------------------------------------------------- */

/* Elements of a row; -1: it cannot be sent. */
static int64_t elements_sent(const cutter *k, hir_id value) {
    const hir_type t = hir_value_at(k->m, value)->type;
    const bool row = t.rank > 0 && t.dim[0] == HIR_T && t.dtype == HIR_F32;
    return row ? pass_elements(t) : -1;
}

static void measure(cutter *k) {
    hd_arena *a = k->c->scratch;
    const size_t values = k->m->values.n;
    k->last = hd_new_array(a, uint32_t, values);
    k->live = hd_new_array(a, int64_t, k->n + 1);
    int64_t *barred = hd_new_array(a, int64_t, k->n + 2),
            *rows = hd_new_array(a, int64_t, k->n + 2);
    for (uint32_t i = 0; i < k->n; i++) {
        const hir_op *o = hir_op_at(k->m, k->program[i]);
        for (uint32_t j = 0; j < o->n_args; j++)
            if (can_cross(k, o->args[j])) k->last[o->args[j].index] = i;
    }
    for (uint32_t i = 0; i < k->n; i++) {
        const hir_op *o = hir_op_at(k->m, k->program[i]);
        for (uint32_t r = 0; r < o->n_results; r++) {
            const hir_id v = o->results[r];
            if (k->free[k->program[i]] || k->last[v] <= i) continue;
            const int64_t n = elements_sent(k, v);
            int64_t *change = n < 0 ? barred : rows;
            change[i + 1] += n < 0 ? 1 : n;
            change[k->last[v] + 1] -= n < 0 ? 1 : n;
        }
    }
    int64_t bars = 0, now = 0;
    for (uint32_t i = 0; i <= k->n; i++) {
        bars += barred[i], now += rows[i];
        k->live[i] = bars ? -1 : now;
    }
}

/* By number: is the place in front of the op inside a sublayer, that is after an op that reads its
 * input and not after its output? There other values than the stream are live, and between ranks
 * they would have to be gathered. */
static bool *find_inside(const cutter *k) {
    hd_arena *a = k->c->scratch;
    const hir_flow *f = &k->flow;
    uint32_t *start = hd_new_array(a, uint32_t, f->outputs.n + 1); /* by sublayer; 0: not known */
    for (uint32_t i = k->n; i-- > 0;) {
        const hir_op *o = hir_op_at(k->m, k->program[i]);
        for (uint32_t j = 0; j < o->n_args && hir_flow_is_border(&k->flow, o); j++) {
            if (o->args[j].kind != HIR_REF_VALUE) continue;
            const uint32_t input = f->input[f->origin[o->args[j].index]];
            const uint32_t sublayer = input == HIR_NONE ? 0 : f->inputs.at[input].sublayer;
            if (sublayer > 0 && sublayer <= f->outputs.n) start[sublayer] = i + 1;
        }
    }
    int *change = hd_new_array(a, int, k->n + 2), depth = 0;
    for (uint32_t sublayer = 1; sublayer <= f->outputs.n; sublayer++) {
        const uint32_t end = k->at[hir_value_at(k->m, f->outputs.at[sublayer - 1])->op] + 1;
        if (!start[sublayer] || start[sublayer] >= end) continue;
        change[start[sublayer]]++;
        change[end]--;
    }
    bool *inside = hd_new_array(a, bool, k->n + 1);
    for (uint32_t i = 0; i <= k->n; i++)
        inside[i] = (depth += change[i]) > 0;
    return inside;
}

/* Where the program may be cut: between two sublayers, at the place where the fewest elements are
 * live, the first of several such places. Where these are too few, between any two ops that
 * multiply by a matrix or read weights. */
typedef struct places {
    stage_places p;
    uint32_t *at; /* by place: number of the op after it */
    uint64_t *work, *at_end, *held, *live;
    uint32_t *layers;
} places;

static void add_place(const cutter *k, places *x, uint32_t number, const stage_cost *before) {
    const bool end = number == 0 || number == k->n;
    const uint32_t i = x->p.n++;
    x->at[i] = number;
    x->work[i] = before->work;
    x->at_end[i] = before->at_end;
    x->held[i] = before->held;
    x->live[i] = end ? 0 : (uint64_t)k->live[number];
}

static places find_places(cutter *k, bool anywhere) {
    hd_arena *a = k->c->scratch;
    const stage_cost *cost = stage_costs(k->c, k->program, k->n, k->free);
    places x = {.at = hd_new_array(a, uint32_t, k->n + 2),
                .work = hd_new_array(a, uint64_t, k->n + 2),
                .at_end = hd_new_array(a, uint64_t, k->n + 2),
                .held = hd_new_array(a, uint64_t, k->n + 2),
                .live = hd_new_array(a, uint64_t, k->n + 2),
                .layers = hd_new_array(a, uint32_t, k->n + 2)};
    if (!k->flow.m) hir_flow_find(k->m, a, &k->flow);
    const bool *inside = find_inside(k);
    stage_cost sum = {0};
    uint32_t layers = 0;
    bool open = false; /* the last place belongs to the present stretch */
    add_place(k, &x, 0, &sum);
    for (uint32_t i = 0; i < k->n; i++) {
        const bool possible = i > 0 && k->live[i] >= 0 && (anywhere || !inside[i]);
        const bool fewer = open && possible && k->live[i] < k->live[x.at[x.p.n - 1]];
        if (fewer) x.p.n--;
        if (possible && (fewer || !open)) {
            add_place(k, &x, i, &sum);
            x.layers[x.p.n - 1] = layers;
            open = true;
        }
        sum.work = hd_capped_add(sum.work, cost[i].work);
        sum.at_end = hd_capped_add(sum.at_end, cost[i].at_end);
        sum.held = hd_capped_add(sum.held, cost[i].held);
        layers += cost[i].layer;
        const hir_op *o = hir_op_at(k->m, k->program[i]);
        const bool begins = anywhere && (cost[i].layer || cost[i].contracted);
        if (begins || hir_flow_is_border(&k->flow, o)) open = false;
    }
    add_place(k, &x, k->n, &sum);
    x.layers[x.p.n - 1] = layers;
    x.p.work = x.work, x.p.at_end = x.at_end, x.p.held = x.held, x.p.live = x.live;
    x.p.layers = x.layers;
    return x;
}

static uint32_t of_thousand(uint64_t part, uint64_t all) {
    return all ? (uint32_t)((double)part / (double)all * 1000 + 0.5) : 0;
}

/* Computes the shares of the ranges, for the remark. */
static void share_out(cutter *k, const stage_places *p) {
    const uint32_t runs = (uint32_t)k->runs;
    k->work = hd_new_array(k->c->scratch, uint32_t, runs);
    k->held = hd_new_array(k->c->scratch, uint32_t, runs);
    uint64_t all = 0;
    for (uint32_t j = 0; j < runs; j++)
        all = hd_capped_add(all, stage_run_work(p, k->cut[j], k->cut[j + 1]));
    for (uint32_t j = 0; j < runs; j++) {
        const uint32_t from = k->cut[j], to = k->cut[j + 1];
        k->work[j] = of_thousand(stage_run_work(p, from, to), all);
        k->held[j] = of_thousand(p->held[to] - p->held[from], p->held[p->n - 1]);
    }
}

static bool choose_cuts(cutter *k) {
    hd_arena *a = k->c->scratch;
    const uint32_t runs = (uint32_t)k->runs;
    k->cut = hd_new_array(a, uint32_t, (size_t)runs + 1);
    places x = find_places(k, false);
    bool found = stage_best_cuts(a, &x.p, runs, k->cut);
    if (!found) { /* more ranges than sublayers */
        x = find_places(k, true);
        found = stage_best_cuts(a, &x.p, runs, k->cut);
    }
    if (!found) {
        hd_err(k->c->diags, HD_E_UNSUPPORTED, HD_NOWHERE,
               "the layers cannot be cut into %lld runs: %lld stages of %lld", (long long)k->runs,
               (long long)k->stages, (long long)(k->runs / k->stages))
            ->hint = "a run has at least one layer: take fewer stages, or fewer virtual stages";
        return false;
    }
    share_out(k, &x.p);
    for (uint32_t j = 0; j <= runs; j++)
        k->cut[j] = x.at[k->cut[j]];
    for (uint32_t j = 0; j < runs; j++)
        for (uint32_t i = k->cut[j]; i < k->cut[j + 1]; i++)
            k->run[k->program[i]] = j;
    return true;
}

/* ---- what stages send ------------------------------------------------------------------------ */

typedef struct crossing {
    HD_VEC(hir_id) values; /* what the range before sends to this one */
} crossing;

typedef struct crossings {
    crossing *at;        /* by range; [0] is empty */
    int64_t sent, whole; /* elements per token: those sent, and those live at all cuts */
} crossings;

static bool is_live_at(const cutter *k, hir_id v, uint32_t cut) {
    const hir_id op = hir_value_at(k->m, v)->op;
    return op != HIR_NONE && !hir_op_at(k->m, op)->erased && !k->free[op] && k->at[op] < cut &&
           k->last[v] >= cut;
}

/* Finds what has to be sent: a stage has what it has computed, and what it has received. */
static crossings find_crossings(cutter *k) {
    const size_t values = k->m->values.n;
    crossings x = {.at = hd_new_array(k->c->scratch, crossing, (size_t)k->runs)};
    bool **has = hd_new_array(k->c->scratch, bool *, (size_t)k->stages);
    for (int64_t s = 0; s < k->stages; s++)
        has[s] = hd_new_array(k->c->scratch, bool, values);
    for (hir_id v = 0; v < values; v++) {
        const hir_id op = hir_value_at(k->m, v)->op;
        if (op != HIR_NONE && hir_op_at(k->m, op)->parent == HIR_NONE)
            has[k->run[op] % (uint64_t)k->stages][v] = true;
    }
    for (int64_t j = 1; j < k->runs; j++)
        for (hir_id v = 0; v < values; v++) {
            if (!is_live_at(k, v, k->cut[j])) continue;
            x.whole += elements_sent(k, v);
            if (has[j % k->stages][v]) continue;
            has[j % k->stages][v] = true;
            x.sent += elements_sent(k, v);
            hd_push(k->c->scratch, &x.at[j].values, v);
        }
    return x;
}

/* Does each range send something? The runtime finds the ranges of a stage by their messages
 * (ir/kernel/layer_ranges.h). */
static bool all_send(const cutter *k, const crossings *x) {
    for (int64_t j = 1; j < k->runs; j++) {
        if (x->at[j].values.n) continue;
        hd_err(k->c->diags, HD_E_UNSUPPORTED, HD_NOWHERE,
               "run %lld of the layers makes nothing that the next one needs", (long long)(j - 1))
            ->hint = "take one run for each stage, or other numbers of stages and runs";
        return false;
    }
    return true;
}

/* ---- one stage ------------------------------------------------------------------------------- */

static bool receive(cutter *k, const crossing *x, int64_t run, hir_id before, hir_ref *here) {
    for (size_t i = 0; i < x->values.n; i++) {
        const hir_id v = x->values.at[i];
        const hir_type t = hir_value_at(k->m, v)->type;
        const hir_attr attrs[] = {hir_ints(HIR_A_SHAPE, t.dim, t.rank),
                                  hir_int(HIR_A_FROM, (run - 1) % k->stages)};
        hir_builder b = hir_before(k->m, k->c->diags, before);
        b.loc = *hir_op_at(k->m, hir_value_at(k->m, v)->op)->loc;
        here[v] = hir_emit(&b, HIR_COMM_RECV_OP, NULL, 0, attrs, 2);
        if (here[v].kind == HIR_REF_NONE) return false;
    }
    return true;
}

static bool send(cutter *k, const crossing *x, int64_t to, hir_id before, const hir_ref *here) {
    for (size_t i = 0; i < x->values.n; i++) {
        const hir_id v = x->values.at[i];
        const hir_attr attr = hir_int(HIR_A_TO, to % k->stages);
        hir_builder b = hir_before(k->m, k->c->diags, before);
        b.loc = *hir_op_at(k->m, hir_value_at(k->m, v)->op)->loc;
        if (hir_emit(&b, HIR_COMM_SEND_OP, &here[v], 1, &attr, 1).kind == HIR_REF_NONE)
            return false;
    }
    return true;
}

/* The first op of a range; none at the end of the program, where a builder has no op to be before.
 */
static hir_id first_of_run(const cutter *k, int64_t run) {
    return run < k->runs ? k->program[k->cut[run]] : HIR_NONE;
}

static bool build_stage(cutter *k, const crossings *x) {
    const int64_t stage = k->c->options->stage;
    const size_t values = k->m->values.n;
    hir_ref *here = hd_new_array(k->c->scratch, hir_ref, values);
    for (hir_id v = 0; v < values; v++)
        here[v] = hir_value_ref(v);
    for (int64_t j = 0; j < k->runs; j++) {
        if (j % k->stages != stage) continue;
        if (!receive(k, &x->at[j], j, first_of_run(k, j), here)) return false;
        for (uint32_t i = k->cut[j]; i < k->cut[j + 1]; i++) {
            hir_op *o = hir_op_at(k->m, k->program[i]);
            for (uint32_t n = 0; n < o->n_args; n++)
                if (can_cross(k, o->args[n]) && o->args[n].index < values)
                    o->args[n] = here[o->args[n].index];
        }
        if (j + 1 < k->runs && !send(k, &x->at[j + 1], j + 1, first_of_run(k, j + 1), here))
            return false;
    }
    for (uint32_t i = k->n; i-- > 0;) {
        const hir_id op = k->program[i];
        if (!k->free[op] && k->run[op] % (uint64_t)k->stages != (uint64_t)stage)
            hir_erase(k->m, op);
    }
    return true;
}

/* The part of the whole that the stage has, in tenths of a percent. */
static void remark_share(const cutter *k) {
    const int64_t stage = k->c->options->stage;
    uint32_t work = 0, held = 0;
    for (int64_t j = stage; j < k->runs; j += k->stages)
        work += k->work[j], held += k->held[j];
    hir_remark_add(k->c, true, HIR_NONE,
                   "the stage has %u.%u %% of the work of a prompt, and holds %u.%u %% of the "
                   "weights and states; the mean is %.1f",
                   work / 10, work % 10, held / 10, held % 10, 100.0 / (double)k->stages);
}

bool pass_shard_pipeline(hir_pass_context *c) {
    const int64_t stages = c->options->stages;
    const int64_t parts = c->options->virtual_stages > 1 ? c->options->virtual_stages : 1;
    if (stages <= 1) return true;
    if (stages > HIR_MAX_RANKS || parts > HIR_MAX_RANKS || c->options->stage < 0 ||
        c->options->stage >= stages) {
        hd_err(c->diags, HD_E_VALUE, HD_NOWHERE,
               "there is no stage %lld of %lld, of %lld runs each", (long long)c->options->stage,
               (long long)stages, (long long)parts);
        return false;
    }
    cutter k = {.c = c, .m = c->m, .stages = stages, .runs = stages * parts};
    list_program(&k);
    measure(&k);
    if (!choose_cuts(&k)) return false;
    const crossings x = find_crossings(&k);
    if (parts > 1 && !all_send(&k, &x)) return false;
    if (!build_stage(&k, &x)) return false;
    hir_remark_add(
        c, true, HIR_NONE,
        "stage %lld of %lld, with %lld run%s of layers: %lld elements of each token cross "
        "between all stages; %lld would if no stage kept what it was sent",
        (long long)c->options->stage, (long long)stages, (long long)parts, hd_s((uint64_t)parts),
        (long long)x.sent, (long long)x.whole);
    remark_share(&k);
    c->changed = true;
    return true;
}

bool shard_all_stages(const hir_module *graph, const hir_compile_options *options, hd_diags *d,
                      hd_arena *a, const hir_module **stages) {
    for (int64_t i = 0; i < options->stages; i++) {
        hir_compile_options one = *options;
        one.stage = i;
        hir_module *m = hir_module_clone(graph, a);
        m->stage = HIR_STAGE_DEPTH;
        hir_pass_context c = {.m = m, .diags = d, .options = &one, .scratch = a};
        if (!pass_shard_pipeline(&c)) return false;
        stages[i] = m;
    }
    return true;
}
