/* Profiles: collecting them, and telling them as tables, as JSON, and as folded stacks.
 *
 * A step is one line of the kernel IR. Steps of one name share their code: they are one kernel of
 * the first table. Time is that which passed on the first thread: its own share and the wait for
 * the others. What is left of a call's time (checks, starting threads) is shown as such. */
#include "api/profile.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "api/json.h"
#include "api/stats.h"

static const char *const phase_names[PROFILE_PHASES] = {"prefill", "decode"};

/* ---- collecting --------------------------------------------------------------------------------
 */

api_profile *api_profile_new(hd_arena *a, const api_library *l, int threads) {
    const api_info *info = l->info;
    api_profile *p = hd_new(a, api_profile);
    api_step *steps = hd_new_array(a, api_step, info->n_steps + 1);
    for (size_t i = 0; i < info->n_steps; i++) {
        steps[i] = info->steps[i];
        steps[i].name = hd_strdup(a, steps[i].name);
        steps[i].kind = hd_strdup(a, steps[i].kind);
        steps[i].scope = hd_strdup(a, steps[i].scope);
    }
    *p = (api_profile){.model = hd_strdup(a, info->name),
                       .cpu = hd_strdup(a, l->session_cpu(l->session)),
                       .machine = hd_strdup(a, l->session_machine(l->session)),
                       .threads = threads,
                       .n_steps = info->n_steps,
                       .max_chunk = info->max_chunk,
                       .steps = steps};
    for (int i = 0; i < PROFILE_PHASES; i++) {
        p->phases[i].steps = hd_new_array(a, api_profile_step, info->n_steps + 1);
        p->phases[i].work = hd_new_array(a, api_work, info->n_steps + 1);
    }
    return p;
}

static profile_phase *phase_of(api_profile *p, int64_t n) {
    return &p->phases[n == 1 ? PROFILE_DECODE : PROFILE_PREFILL];
}

bool api_profile_start(api_profile *p, api_library *l, int64_t n) {
    profile_phase *phase = phase_of(p, n);
    const bool ok =
        api_library_ok(l, l->session_profile(l->session, phase->steps, p->n_steps), "profile");
    phase->seconds -= now(2);
    return ok;
}

void api_profile_end(api_profile *p, int64_t n, int64_t past) {
    profile_phase *phase = phase_of(p, n);
    phase->seconds += now(2);
    phase->calls++;
    phase->tokens += (uint64_t)n;
    const int64_t chunk = (int64_t)p->max_chunk;
    for (int64_t done = 0, part; done < n; done += part) {
        part = n - done < chunk ? n - done : chunk;
        for (size_t i = 0; i < p->n_steps; i++) {
            const api_work w = api_step_work(&p->steps[i], part, past + done, part);
            phase->work[i].flops += w.flops;
            phase->work[i].bytes += w.bytes;
        }
    }
}

/* ---- lines of a table --------------------------------------------------------------------------
 */

typedef struct entry { /* a step, or all steps of a kernel */
    const api_step *step;
    uint64_t calls, work_ns, wait_ns;
    double flops, bytes;
} entry;

static double nanoseconds(const entry *e) {
    return (double)e->work_ns + (double)e->wait_ns;
}

static void add(entry *e, const profile_phase *phase, size_t i) {
    e->calls += phase->steps[i].calls;
    e->work_ns += phase->steps[i].work_ns;
    e->wait_ns += phase->steps[i].wait_ns;
    e->flops += phase->work[i].flops;
    e->bytes += phase->work[i].bytes;
}

static int longest_first(const void *a, const void *b) {
    const double x = nanoseconds(a), y = nanoseconds(b);
    return (x < y) - (x > y);
}

/* Sorted by time; `merge`: one entry per kernel. The number of entries. */
static size_t entries_of(const api_profile *p, const profile_phase *phase, bool merge, hd_arena *a,
                         entry **out) {
    entry *list = hd_new_array(a, entry, p->n_steps + 1);
    size_t n = 0;
    for (size_t i = 0; i < p->n_steps; i++) {
        size_t at = merge ? 0 : n;
        while (at < n && strcmp(list[at].step->name, p->steps[i].name) != 0)
            at++;
        if (at == n) list[n++] = (entry){.step = &p->steps[i]};
        add(&list[at], phase, i);
    }
    qsort(list, n, sizeof *list, longest_first);
    *out = list;
    return n;
}

static entry total_of(const api_profile *p, const profile_phase *phase) {
    entry sum = {0};
    for (size_t i = 0; i < p->n_steps; i++)
        add(&sum, phase, i);
    return sum;
}

/* ---- text --------------------------------------------------------------------------------------
 */

static double rate(double amount, const entry *e) {
    return nanoseconds(e) > 0 ? amount / nanoseconds(e) : 0;
}

static void print_entry(const entry *e, double all, bool line, hd_text *out) {
    hd_text_f(out, "  %10.3f %5.1f %8llu %9.3f %8.1f %8.1f  ", nanoseconds(e) * 1e-6,
              all > 0 ? 100 * nanoseconds(e) / all : 0, (unsigned long long)e->calls,
              (double)e->wait_ns * 1e-6, rate(e->flops, e), rate(e->bytes, e));
    if (line)
        hd_text_f(out, "%5llu %-16s %s\n", (unsigned long long)e->step->line, e->step->name,
                  e->step->scope);
    else
        hd_text_f(out, "%-16s %s\n", e->step->name, e->step->kind);
}

static void print_table(const api_profile *p, const profile_phase *phase, bool lines,
                        hd_text *out) {
    entry *list, total = total_of(p, phase);
    const size_t n = entries_of(p, phase, !lines, out->arena, &list);
    const double all = phase->seconds * 1e9;
    hd_text_f(out, "  %10s %5s %8s %9s %8s %8s  %s\n", "ms", "%", "calls", "wait ms", "GFLOP/s",
              "GB/s", lines ? " line kernel           scope" : "kernel           kind");
    for (size_t i = 0; i < n; i++)
        if (list[i].calls) print_entry(&list[i], all, lines, out);
    if (lines) return;
    hd_text_f(out, "  %10.3f %5.1f %8llu %9.3f %8.1f %8.1f  all kernels\n",
              nanoseconds(&total) * 1e-6, all > 0 ? 100 * nanoseconds(&total) / all : 0,
              (unsigned long long)total.calls, (double)total.wait_ns * 1e-6,
              rate(total.flops, &total), rate(total.bytes, &total));
    hd_text_f(out, "  %10.3f %5.1f  outside of kernels\n", (all - nanoseconds(&total)) * 1e-6,
              all > 0 ? 100 * (all - nanoseconds(&total)) / all : 0);
}

static void print_text(const api_profile *p, hd_text *out) {
    hd_text_f(out, "profile of %s, body %s", p->model, p->cpu);
    hd_text_f(out, p->threads ? ", threads: %d\n" : "\n", p->threads);
    hd_text_f(out, "machine: %s\n", p->machine);
    for (int i = 0; i < PROFILE_PHASES; i++) {
        const profile_phase *phase = &p->phases[i];
        if (phase->calls == 0) continue;
        hd_text_f(out, "\n%s: %llu calls, %llu tokens, %.3f ms, by kernel\n", phase_names[i],
                  (unsigned long long)phase->calls, (unsigned long long)phase->tokens,
                  phase->seconds * 1e3);
        print_table(p, phase, false, out);
        hd_text_f(out, "\n%s, by line of the kernel IR\n", phase_names[i]);
        print_table(p, phase, true, out);
    }
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static void json_entry(const entry *e, bool line, hd_text *out) {
    hd_text_add(out, "{\"kernel\": ");
    api_json_string(out, e->step->name);
    hd_text_add(out, ", \"kind\": ");
    api_json_string(out, e->step->kind);
    if (line) {
        hd_text_f(out, ", \"line\": %llu, \"scope\": ", (unsigned long long)e->step->line);
        api_json_string(out, e->step->scope);
    }
    hd_text_f(out, ", \"calls\": %llu, \"work_ns\": %llu, \"wait_ns\": %llu, \"flops\": ",
              (unsigned long long)e->calls, (unsigned long long)e->work_ns,
              (unsigned long long)e->wait_ns);
    hd_text_double(out, e->flops);
    hd_text_add(out, ", \"bytes\": ");
    hd_text_double(out, e->bytes);
    hd_text_add(out, "}");
}

static void json_list(const api_profile *p, const profile_phase *phase, bool lines, hd_text *out) {
    entry *list;
    const size_t n = entries_of(p, phase, !lines, out->arena, &list);
    hd_text_f(out, ",\n     \"%s\": [", lines ? "lines" : "kernels");
    for (size_t i = 0; i < n; i++) {
        hd_text_add(out, i ? ",\n       " : "\n       ");
        json_entry(&list[i], lines, out);
    }
    hd_text_add(out, "]");
}

static void print_json(const api_profile *p, hd_text *out) {
    hd_text_add(out, "{\"schema\": \"hadal-profile-1\", \"model\": ");
    api_json_string(out, p->model);
    hd_text_add(out, ", \"cpu\": ");
    api_json_string(out, p->cpu);
    hd_text_f(out, ", \"machine\": %s, \"threads\": ", p->machine);
    if (p->threads)
        hd_text_f(out, "%d", p->threads);
    else
        hd_text_add(out, "null"); /* what OpenMP chose */
    hd_text_add(out, ",\n  \"phases\": [");
    bool first = true;
    for (int i = 0; i < PROFILE_PHASES; i++) {
        const profile_phase *phase = &p->phases[i];
        if (phase->calls == 0) continue;
        hd_text_f(out,
                  "%s\n    {\"phase\": \"%s\", \"calls\": %llu, \"tokens\": %llu, \"seconds\": ",
                  first ? "" : ",", phase_names[i], (unsigned long long)phase->calls,
                  (unsigned long long)phase->tokens);
        hd_text_double(out, phase->seconds);
        json_list(p, phase, false, out);
        json_list(p, phase, true, out);
        hd_text_add(out, "}");
        first = false;
    }
    hd_text_add(out, "\n  ]\n}\n");
}

/* ---- folded stacks -----------------------------------------------------------------------------
 */

/* Length of a scope up to its first number: "model.layers.3" of "model.layers.3.self_attn". */
static int layer_length(const char *scope) {
    const char *at = scope;
    while (*at) {
        const size_t n = strcspn(at, ".");
        if (isdigit((unsigned char)*at)) return (int)(at - scope + (ptrdiff_t)n);
        at += n + (at[n] == '.');
    }
    return (int)strlen(scope);
}

/* phase;layer;kernel;line nanoseconds, and the wait for other threads as a frame below. */
static void print_folded(const api_profile *p, hd_text *out) {
    for (int i = 0; i < PROFILE_PHASES; i++)
        for (size_t k = 0; k < p->n_steps; k++) {
            const api_step *s = &p->steps[k];
            const api_profile_step *t = &p->phases[i].steps[k];
            const char *stack =
                hd_printf(out->arena, "%s;%.*s;%s;line %llu", phase_names[i],
                          *s->scope ? layer_length(s->scope) : 1, *s->scope ? s->scope : "-",
                          s->name, (unsigned long long)s->line);
            if (t->work_ns) hd_text_f(out, "%s %llu\n", stack, (unsigned long long)t->work_ns);
            if (t->wait_ns) hd_text_f(out, "%s;wait %llu\n", stack, (unsigned long long)t->wait_ns);
        }
}

void api_profile_print(const api_profile *p, profile_form form, hd_text *out) {
    hd_text_add(out, "");
    if (form == PROFILE_JSON)
        print_json(p, out);
    else if (form == PROFILE_FOLDED)
        print_folded(p, out);
    else
        print_text(p, out);
}
