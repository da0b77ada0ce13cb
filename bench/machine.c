#include "bench/machine.h"

#include <stdio.h>

static void print(void (*describe)(const machine *m, hd_text *out), const machine *m) {
    hd_arena *a = hd_arena_new();
    if (!a) return;
    hd_text text;
    hd_text_init(&text, a);
    describe(m, &text);
    fputs(text.at, stdout);
    hd_arena_free(a);
}

void machine_print(const machine *m) {
    print(machine_describe, m);
}

static void describe_host(const machine *m, hd_text *out) {
    (void)m;
    machine_describe_host(out);
}

void machine_print_host(void) {
    print(describe_host, NULL);
}
