#include "bench/machine.h"

#include <stdio.h>

#include "inspect/bench.h"

void begin_rounds(rounds *r, machine *m, size_t wanted) {
    rounds_begin(r, m, wanted);
    r->least = 0.96;
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

void print_moved(const moving *of, size_t n) {
    const double most = 0.10;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (of[i].drift <= most) continue;
        if (!any) printf("limits that moved by more than %.0f %%:", 100 * most);
        printf("%s %s %.0f %%", any ? "," : "", of[i].limit, 100 * of[i].drift);
        any = true;
    }
    if (any) printf("\n");
}

void machine_print_moved(const machine *m) {
    moving of[LIMIT_COUNT];
    for (int l = 0; l < LIMIT_COUNT; l++)
        of[l] = (moving){machine_limit_name((limit)l), machine_drift(m, (limit)l)};
    print_moved(of, LIMIT_COUNT);
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
