/* From the steps of a run to tables of kernels and of lines. */
#include "inspect/profile.h"

#include <stdlib.h>
#include <string.h>

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

/* Sorted by time; `merge`: one entry per kernel. The number of entries. */
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
        *t = (profile_table){.name = names[i], .phase = phase, .total = total_of(p, phase)};
        t->n_kernels = entries_of(p, phase, true, s->arena, &t->kernels);
        t->n_lines = entries_of(p, phase, false, s->arena, &t->lines);
    }
    return true;
}
