/* A profile for programs. */
#include "inspect/json.h"
#include "inspect/profile.h"

static void print_bytes(const char *key, double bytes, hd_text *out) {
    hd_text_f(out, ", \"%s\": ", key);
    hd_text_double(out, bytes);
}

static void print_entry(const profile_entry *e, bool line, hd_text *out) {
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
        print_entry(&at[i], lines, out);
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
        hd_text_add(out, "null"); /* what OpenMP chose */
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
