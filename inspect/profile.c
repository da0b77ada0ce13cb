/* Turns the measured times of steps into tables of kernels and of lines of the kernel IR. */
#include "inspect/profile.h"

#include <stdlib.h>
#include <string.h>

#include "inspect/format.h"

double profile_nanoseconds(const profile_entry *e) {
    return (double)e->work_ns + (double)e->wait_ns;
}

static void add(profile_entry *e, const profile_phase *phase, size_t i) {
    e->calls += phase->steps[i].calls;
    e->work_ns += phase->steps[i].work_ns;
    e->wait_ns += phase->steps[i].wait_ns;
    step_work_add(&e->work, phase->work[i]);
}

static int longest_first(const void *a, const void *b) {
    const double x = profile_nanoseconds(a), y = profile_nanoseconds(b);
    return (x < y) - (x > y);
}

/* Fills the entries, sorted by time, and returns their number; `merge`: one entry per kernel. */
static size_t entries_of(const profile *p, const profile_phase *phase, bool merge, hd_arena *a,
                         profile_entry **out) {
    profile_entry *list = hd_new_array(a, profile_entry, p->n_steps + 1);
    size_t n = 0;
    for (size_t i = 0; i < p->n_steps; i++) {
        size_t at = merge ? 0 : n;
        while (at < n && strcmp(list[at].step->name, p->steps[i].name) != 0)
            at++;
        if (at == n) list[n++] = (profile_entry){.step = &p->steps[i]};
        add(&list[at], phase, i);
    }
    qsort(list, n, sizeof *list, longest_first);
    *out = list;
    return n;
}

static profile_entry total_of(const profile *p, const profile_phase *phase) {
    profile_entry sum = {0};
    for (size_t i = 0; i < p->n_steps; i++)
        add(&sum, phase, i);
    return sum;
}

bool profile_collect(const inspect_subject *s, profile_tables *out) {
    static const char *const names[PROFILE_PHASES] = {
        [PROFILE_PREFILL] = "prefill", [PROFILE_DECODE] = "decode"};
    const profile *p = s->profile;
    *out = (profile_tables){.of = p};
    for (int i = 0; i < PROFILE_PHASES; i++) {
        const profile_phase *phase = &p->phases[i];
        profile_table *t = &out->phases[i];
        *t = (profile_table){.name = p->training ? "training" : names[i],
                             .phase = phase,
                             .total = total_of(p, phase)};
        t->n_kernels = entries_of(p, phase, true, s->arena, &t->kernels);
        t->n_lines = entries_of(p, phase, false, s->arena, &t->lines);
    }
    return true;
}

/* ---- for people ------------------------------------------------------------------------------ */

static double rate(double amount, const profile_entry *e) {
    return profile_nanoseconds(e) > 0 ? amount / profile_nanoseconds(e) : 0;
}

static void print_entry(const profile_entry *e, double all, bool line, hd_text *out) {
    hd_text_f(out, "  %10.3f %5.1f %8llu %9.3f %8.1f %8.1f  ", profile_nanoseconds(e) * 1e-6,
              all > 0 ? 100 * profile_nanoseconds(e) / all : 0, (unsigned long long)e->calls,
              (double)e->wait_ns * 1e-6, rate(e->work.flops, e), rate(e->work.bytes, e));
    if (line)
        hd_text_f(out, "%5llu %-16s %s\n", (unsigned long long)e->step->line, e->step->name,
                  e->step->scope);
    else
        hd_text_f(out, "%-16s %s\n", e->step->name, e->step->kind);
}

static void print_head(hd_text *out, const char *last) {
    hd_text_f(out, "  %10s %5s %8s %9s %8s %8s  %s\n", "ms", "%", "calls", "wait ms", "GFLOP/s",
              "GB/s", last);
}

static void print_kernels(const profile_table *t, hd_text *out) {
    const profile_entry *total = &t->total;
    const double all = t->phase->seconds * 1e9, inside = profile_nanoseconds(total);
    print_head(out, "kernel           kind");
    for (size_t i = 0; i < t->n_kernels; i++)
        if (t->kernels[i].calls) print_entry(&t->kernels[i], all, false, out);
    hd_text_f(out, "  %10.3f %5.1f %8llu %9.3f %8.1f %8.1f  all kernels\n", inside * 1e-6,
              all > 0 ? 100 * inside / all : 0, (unsigned long long)total->calls,
              (double)total->wait_ns * 1e-6, rate(total->work.flops, total),
              rate(total->work.bytes, total));
    hd_text_f(out, "  %10.3f %5.1f  outside of kernels\n", (all - inside) * 1e-6,
              all > 0 ? 100 * (all - inside) / all : 0);
}

/* Prints the traffic of layers that is not their dense matrices. Bytes are those that cannot be
 * avoided. */
static void print_layers(const profile_table *t, hd_text *out) {
    const step_work *w = &t->total.work;
    const double calls = (double)t->phase->calls, all = w->touched + w->untouched;
    if (w->state_bytes > 0)
        hd_text_f(out, "  states: %.3f MB a call\n", w->state_bytes / calls * 1e-6);
    if (all > 0)
        hd_text_f(out, "  experts: %.3f MB a call of %.3f MB, if all are chosen alike\n",
                  w->touched / calls * 1e-6, all / calls * 1e-6);
}

static void print_lines(const profile_table *t, hd_text *out) {
    print_head(out, " line kernel           scope");
    for (size_t i = 0; i < t->n_lines; i++)
        if (t->lines[i].calls) print_entry(&t->lines[i], t->phase->seconds * 1e9, true, out);
}

void profile_text(const profile_tables *x, hd_text *out) {
    hd_text_f(out, "profile of %s, variant %s", x->of->model, x->of->cpu);
    hd_text_f(out, x->of->threads ? ", threads: %d\n" : "\n", x->of->threads);
    hd_text_f(out, "machine: %s\n", x->of->machine);
    for (int i = 0; i < PROFILE_PHASES; i++) {
        const profile_table *t = &x->phases[i];
        if (t->phase->calls == 0) continue;
        hd_text_f(out, "\n%s: %llu call%s, %llu token%s, %.3f ms, by kernel\n", t->name,
                  (unsigned long long)t->phase->calls, hd_s(t->phase->calls),
                  (unsigned long long)t->phase->tokens, hd_s(t->phase->tokens),
                  t->phase->seconds * 1e3);
        print_kernels(t, out);
        print_layers(t, out);
        hd_text_f(out, "\n%s, by line of the kernel IR\n", t->name);
        print_lines(t, out);
    }
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void print_bytes(const char *key, double bytes, hd_text *out) {
    hd_text_f(out, ", \"%s\": ", key);
    hd_text_double(out, bytes);
}

static void json_entry(const profile_entry *e, bool line, hd_text *out) {
    hd_text_add(out, "{\"kernel\": ");
    inspect_json_string(out, e->step->name);
    hd_text_add(out, ", \"kind\": ");
    inspect_json_string(out, e->step->kind);
    if (line) {
        hd_text_f(out, ", \"line\": %llu, \"scope\": ", (unsigned long long)e->step->line);
        inspect_json_string(out, e->step->scope);
    }
    hd_text_f(out, ", \"calls\": %llu, \"work_ns\": %llu, \"wait_ns\": %llu, \"flops\": ",
              (unsigned long long)e->calls, (unsigned long long)e->work_ns,
              (unsigned long long)e->wait_ns);
    hd_text_double(out, e->work.flops);
    print_bytes("bytes", e->work.bytes, out);
    print_bytes("state_bytes", e->work.state_bytes, out);
    print_bytes("expert_bytes", e->work.touched, out);
    print_bytes("expert_bytes_untouched", e->work.untouched, out);
    hd_text_add(out, "}");
}

static void print_entries(const char *key, const profile_entry *at, size_t n, bool lines,
                          hd_text *out) {
    hd_text_f(out, ",\n     \"%s\": [", key);
    for (size_t i = 0; i < n; i++) {
        hd_text_add(out, i ? ",\n       " : "\n       ");
        json_entry(&at[i], lines, out);
    }
    hd_text_add(out, "]");
}

static void print_phase(const profile_table *t, hd_text *out) {
    hd_text_f(out,
              "\n    {\"phase\": \"%s\", \"calls\": %llu, \"tokens\": %llu, \"seconds\": ", t->name,
              (unsigned long long)t->phase->calls, (unsigned long long)t->phase->tokens);
    hd_text_double(out, t->phase->seconds);
    print_entries("kernels", t->kernels, t->n_kernels, false, out);
    print_entries("lines", t->lines, t->n_lines, true, out);
    hd_text_add(out, "}");
}

void profile_json(const profile_tables *x, hd_text *out) {
    hd_text_add(out, "{\"schema\": \"" PROFILE_SCHEMA "\", \"model\": ");
    inspect_json_string(out, x->of->model);
    hd_text_add(out, ", \"cpu\": ");
    inspect_json_string(out, x->of->cpu);
    hd_text_f(out, ", \"machine\": %s", x->of->machine);
    hd_text_add(out, ", \"threads\": ");
    if (x->of->threads)
        hd_text_f(out, "%d", x->of->threads);
    else
        hd_text_add(out, "null"); /* the default of OpenMP */
    hd_text_add(out, ",\n  \"phases\": [");
    bool first = true;
    for (int i = 0; i < PROFILE_PHASES; i++) {
        if (x->phases[i].phase->calls == 0) continue;
        hd_text_add(out, first ? "" : ",");
        print_phase(&x->phases[i], out);
        first = false;
    }
    hd_text_add(out, "\n  ]\n}\n");
}

/* ---- as folded stacks, for flame graphs ------------------------------------------------------ */

/* "model.layers.3" of "model.layers.3.self_attn", "model.layers.3, pass 2" of a layer that runs several
 * times; a scope without a number stays. */
static const char *layer_of(hd_arena *a, const char *scope) {
    const size_t n = hd_layer_length(scope);
    const char *pass = strstr(scope, ", pass ");
    if (!n) return *scope ? scope : "-";
    return hd_printf(a, "%.*s%s", (int)n, scope, pass ? pass : "");
}

/* Lines "phase;layer;kernel;line nanoseconds"; the wait for other threads is a frame below. */
void profile_folded(const profile_tables *x, hd_text *out) {
    const profile *p = x->of;
    for (int i = 0; i < PROFILE_PHASES; i++)
        for (size_t k = 0; k < p->n_steps; k++) {
            const hd_info_step *s = &p->steps[k];
            const step_time *t = &p->phases[i].steps[k];
            const char *stack =
                hd_printf(out->arena, "%s;%s;%s;line %llu", x->phases[i].name,
                          layer_of(out->arena, s->scope), s->name, (unsigned long long)s->line);
            if (t->work_ns) hd_text_f(out, "%s %llu\n", stack, (unsigned long long)t->work_ns);
            if (t->wait_ns) hd_text_f(out, "%s;wait %llu\n", stack, (unsigned long long)t->wait_ns);
        }
}
