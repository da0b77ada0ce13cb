/* A profile as tables. */
#include "inspect/profile.h"

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

/* What layers move beside their dense matrices. Bytes are those that cannot be avoided. */
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
        hd_text_f(out, "\n%s: %llu calls, %llu tokens, %.3f ms, by kernel\n", t->name,
                  (unsigned long long)t->phase->calls, (unsigned long long)t->phase->tokens,
                  t->phase->seconds * 1e3);
        print_kernels(t, out);
        print_layers(t, out);
        hd_text_f(out, "\n%s, by line of the kernel IR\n", t->name);
        print_lines(t, out);
    }
}
