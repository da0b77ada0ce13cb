/* The plan for programs: schema hadal-plan-1, docs/many-machines.md. */
#include "inspect/json.h"
#include "inspect/plan.h"

static void number(hd_text *out, const char *key, double value, const char *after) {
    inspect_json_key(out, key);
    hd_text_double(out, value);
    hd_text_add(out, after);
}

static void print_time(hd_text *out, const char *key, plan_time t) {
    inspect_json_key(out, key);
    hd_text_add(out, "{");
    number(out, "arithmetic", t.arithmetic, ", ");
    number(out, "memory", t.memory, ", ");
    number(out, "overhead", t.overhead, ", ");
    number(out, "latency", t.latency, ", ");
    number(out, "network", t.network, ", ");
    number(out, "hidden", t.hidden, ", ");
    number(out, "all", plan_time_all(t), ", ");
    hd_text_f(out, "\"held_by\": \"%s\"}", plan_binds(t));
}

/* How even the cut is. */
static void print_stages(hd_text *out, const plan_shape *s) {
    inspect_json_key(out, "stages_prefill_seconds");
    hd_text_add(out, "[");
    for (size_t i = 0; i < s->stage.n; i++) {
        hd_text_add(out, i ? ", " : "");
        hd_text_double(out, s->stage.at[i].prompt);
    }
    hd_text_add(out, "],\n     ");
}

static void print_shape(const plan *p, size_t i, hd_text *out) {
    const plan_shape *s = &p->shapes.at[i];
    hd_text_f(out, "%s\n    {\"hosts\": %lld, \"ranks\": %lld, \"stages\": %lld, ", i ? "," : "",
              (long long)(s->ranks * s->stages), (long long)s->ranks, (long long)s->stages);
    if (s->refused) {
        inspect_json_key(out, "refused");
        inspect_json_string(out, s->refused);
        hd_text_add(out, "}");
        return;
    }
    hd_text_f(out, "\"fits\": %s, \"chunk\": %lld,\n     \"bytes\": {", s->fits ? "true" : "false",
              (long long)s->chunk);
    number(out, "weights", (double)s->weight_bytes, ", ");
    number(out, "states", (double)s->state_bytes, ", ");
    number(out, "arena", (double)s->arena_bytes, ", ");
    number(out, "all", (double)s->bytes, "}, ");
    hd_text_add(out, "\"leave_a_host_for_a_token\": {");
    number(out, "prefill", s->prefill_crossing, ", ");
    number(out, "decode", s->decode_crossing, "},\n     ");
    print_time(out, "prefill_seconds", s->prefill);
    hd_text_add(out, ", ");
    number(out, "prefill_tokens_per_second", s->prefill_rate, ",\n     ");
    print_stages(out, s);
    print_time(out, "decode_seconds", s->decode);
    hd_text_add(out, ", ");
    number(out, "decode_tokens_per_second", s->decode_rate, "}");
}

static void print_best(const plan *p, const char *key, size_t best, hd_text *out) {
    inspect_json_key(out, key);
    if (best < p->shapes.n)
        hd_text_f(out, "%zu", best);
    else
        hd_text_add(out, "null");
}

/* Of what kernels reach those facts that are known: the others are the table's. */
static void print_host(const plan *p, hd_text *out) {
    const char *between = "";
    for (int f = 0; f < PLAN_REACHED; f++)
        number(out, plan_fact_name((plan_fact)f), p->host.fact[f], ", ");
    hd_text_add(out, "\"reached\": {");
    for (int f = PLAN_REACHED; f < PLAN_FACTS; f++) {
        if (p->host.fact[f] <= 0) continue;
        hd_text_add(out, between);
        number(out, plan_fact_key((plan_fact)f), p->host.fact[f], "");
        between = ", ";
    }
    hd_text_add(out, "}},\n  ");
}

void plan_json(const plan *p, hd_text *out) {
    hd_text_add(out, "{\"schema\": \"hadal-plan-1\", ");
    inspect_json_key(out, "model");
    inspect_json_string(out, p->model);
    hd_text_add(out, ",\n  \"host\": {");
    print_host(p, out);
    hd_text_f(out, "\"prompt\": %lld, \"position\": %lld,\n  \"shapes\": [",
              (long long)p->call.prompt, (long long)p->call.position);
    for (size_t i = 0; i < p->shapes.n; i++)
        print_shape(p, i, out);
    hd_text_add(out, "],\n  ");
    print_best(p, "best_prefill", p->best_prefill, out);
    hd_text_add(out, ", ");
    print_best(p, "best_decode", p->best_decode, out);
    hd_text_add(out, "}\n");
}
