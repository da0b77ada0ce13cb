/* What a step of the optimizer moves and computes, once for all tokens since the last one: by the parts
 * that a profile of a trainer has, too (runtime/step_parts.def). */
#include "codegen/codegen.h"
#include "codegen/program/program.h"
#include "inspect/format.h"
#include "inspect/ledger.h"

static const struct {
    const char *name;
    unsigned reads, writes, flops;
} parts[HRT_STEP_PARTS] = {
#define P(id, name, reads, writes, flops, meaning) [HRT_STEP_##id] = {name, reads, writes, flops},
#include "runtime/step_parts.def"
#undef P
};

const char *ledger_step_part_name(int part) {
    return parts[part].name;
}

static void add(ledger_optimizer *o, int part, const hrt_parameter *p) {
    ledger_step_part *to = &o->parts[part];
    const double n = (double)p->elements;
    to->tensors++;
    to->parameters += p->elements;
    to->each.read += sizeof(float) * parts[part].reads * p->elements;
    to->each.written += sizeof(float) * parts[part].writes * p->elements;
    to->flops += parts[part].flops * n;
}

/* The products of each matrix of a tensor, and of each of those that are joined in one. */
static double products_of(const hcg_program *program, const hrt_parameter *p) {
    const uint64_t matrices = p->elements / (p->rows * p->columns);
    double each = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        each += hrt_muon_flops(program->parts.at[p->first_part + i].rows, p->columns);
    return (double)matrices * (p->n_parts ? each : hrt_muon_flops(p->rows, p->columns));
}

void ledger_optimizer_of(const hcg_program *program, ledger_optimizer *o) {
    *o = (ledger_optimizer){0};
    for (size_t i = 0; i < program->parameters.n; i++) {
        const hrt_parameter *p = &program->parameters.at[i];
        const bool muon = p->update == HRT_UPDATE_MUON;
        add(o, HRT_STEP_NORM, p);
        add(o, muon ? HRT_STEP_MUON : HRT_STEP_ADAMW, p);
        if (muon) o->parts[HRT_STEP_MUON].flops += products_of(program, p);
    }
}

bool ledger_count_optimizer(const inspect_subject *s, ledger_optimizer *o) {
    const hcg_options options = {.exact = hcg_exact_by_default(), .compile = *s->pass_options};
    const hcg_program *program = hcg_lower(s->arena, s->diags, s->now, &options);
    if (program) ledger_optimizer_of(program, o);
    return program != NULL;
}

void ledger_optimizer_text(const ledger_optimizer *o, hd_text *out) {
    ledger_step_part all = {0};
    hd_text_f(out, "\n%-18s %8s %14s %16s %16s %14s\n", "optimizer, a step", "tensors",
              "parameters", "bytes read", "bytes written", "FLOPs");
    for (int i = 0; i < HRT_STEP_PARTS; i++) {
        const ledger_step_part *p = &o->parts[i];
        if (!p->tensors) continue;
        all.each.read += p->each.read, all.each.written += p->each.written, all.flops += p->flops;
        hd_text_f(out, "  %-16s %8llu %14llu %16llu %16llu %14.6g\n", parts[i].name,
                  (unsigned long long)p->tensors, (unsigned long long)p->parameters,
                  (unsigned long long)p->each.read, (unsigned long long)p->each.written, p->flops);
    }
    hd_text_f(out, "  %-40s %16llu %16llu %14.6g\n", "all", (unsigned long long)all.each.read,
              (unsigned long long)all.each.written, all.flops);
}

void ledger_optimizer_json(const ledger_optimizer *o, hd_text *out) {
    hd_text_add(out, ",\n  \"optimizer\": {");
    for (int i = 0; i < HRT_STEP_PARTS; i++) {
        const ledger_step_part *p = &o->parts[i];
        hd_text_f(out,
                  "%s\n   \"%s\": {\"tensors\": %llu, \"parameters\": %llu, \"read_bytes\": %llu, "
                  "\"written_bytes\": %llu, \"flops\": ",
                  i ? "," : "", parts[i].name, (unsigned long long)p->tensors,
                  (unsigned long long)p->parameters, (unsigned long long)p->each.read,
                  (unsigned long long)p->each.written);
        hd_text_double(out, p->flops);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "}");
}
