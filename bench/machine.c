#include "bench/machine.h"

#include <stdio.h>

#include "inspect/bench.h"

void rounds_begin_strict(rounds *r, machine *m, size_t wanted) {
    rounds_begin(r, m, wanted);
    r->threshold = 0.96;
}

static void print(void (*describe)(const machine *m, hd_text *out), const machine *m) {
    hd_arena *a = hd_arena_new();
    if (!a) return;
    hd_text text;
    hd_text_init(&text, a);
    describe(m, &text);
    fputs(text.at, stdout);
    hd_arena_free(a);
}

void machine_print_moved(const machine *m) {
    const double most = 0.10;
    bool any = false;
    for (int l = 0; l < LIMIT_COUNT; l++) {
        const double moved = machine_drift(m, (limit)l);
        if (moved <= most) continue;
        if (!any) printf("limits that moved by more than %.0f %%:", 100 * most);
        printf("%s %s %.0f %%", any ? "," : "", machine_limit_name((limit)l), 100 * moved);
        any = true;
    }
    if (any) printf("\n");
    if (machine_of_cores(m) < BENCH_CORES)
        printf("other work had a part of the cores: %.2f was left\n", machine_of_cores(m));
}

void machine_print(const machine *m) {
    print(machine_describe, m);
    machine_print_moved(m);
}

static void describe_host(const machine *m, hd_text *out) {
    (void)m;
    machine_describe_host(out);
}

void machine_print_host(void) {
    print(describe_host, NULL);
}
