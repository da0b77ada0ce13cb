/* What layers keep and move, for people. */
#include "inspect/layers.h"
#include "inspect/units.h"

static const char *length_name(hd_arena *a, int64_t positions) {
    return positions < 1 << 20 ? hd_printf(a, "%lldK", (long long)(positions >> 10))
                               : hd_printf(a, "%lldM", (long long)(positions >> 20));
}

typedef uint64_t column(const state_bytes *b);
static uint64_t held(const state_bytes *b) {
    return b->held;
}
static uint64_t read(const state_bytes *b) {
    return b->read;
}

static void print_head(const layers *x, const char *title, const char *last, hd_text *out) {
    hd_text_f(out, "\n%-34s", title);
    for (int i = 0; i < STATE_LENGTHS; i++)
        hd_text_f(out, " %12s", length_name(out->arena, x->at[i].positions));
    hd_text_f(out, "%s\n", last);
}

/* A group of states, or -1: all. */
static const state_bytes *bytes_of(const states_at *at, int group) {
    return group < 0 ? &at->all : &at->group[group];
}

static void print_row(const layers *x, int group, column *of, hd_text *out) {
    hd_text_f(out, "  %-32s", group < 0 ? "in all" : state_group_label(group));
    for (int i = 0; i < STATE_LENGTHS; i++)
        hd_text_f(out, " %12s", inspect_bytes(out->arena, of(bytes_of(&x->at[i], group))));
}

/* A token writes the same wherever it stands. */
static void print_rows(const layers *x, column *of, bool written, hd_text *out) {
    for (int i = 0; i <= STATE_GROUPS; i++) {
        const int g = i < STATE_GROUPS ? i : -1;
        if (g >= 0 ? !x->states[g] : x->groups < 2) continue;
        print_row(x, g, of, out);
        if (written)
            hd_text_f(out, " %12s", inspect_bytes(out->arena, bytes_of(&x->at[0], g)->written));
        hd_text_add(out, "\n");
    }
}

void layers_held_text(const layers *x, hd_text *out) {
    if (!x->groups) return;
    print_head(x, "state of a session, by positions", "", out);
    print_rows(x, held, false, out);
    print_head(x, "read by a token behind them", "", out);
    print_rows(x, read, false, out);
}

static void print_experts(const expert_group *g, hd_text *out) {
    static const int64_t tokens[] = {1, 16, 128, 512};
    hd_text_f(out, "\nexperts of %u layer%s, %lld of %lld chosen by a token\n", g->layers,
              g->layers == 1 ? "" : "s", (long long)g->chosen, (long long)g->experts);
    hd_text_f(out, "  %-32s %12s %12s %12s\n", "if all are chosen alike", "experts", "touched",
              "untouched");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const double n = expert_group_touched(g, tokens[i]);
        const uint64_t bytes = (uint64_t)((double)g->bytes * (n / (double)g->experts) + 0.5);
        const uint64_t touched = bytes < g->bytes ? bytes : g->bytes;
        const char *label =
            hd_printf(out->arena, "%lld token%s", (long long)tokens[i], tokens[i] == 1 ? "" : "s");
        hd_text_f(out, "  %-32s %12.1f %12s %12s\n", label, n, inspect_bytes(out->arena, touched),
                  inspect_bytes(out->arena, g->bytes - touched));
    }
}

void layers_traffic_text(const layers *x, hd_text *out) {
    if (x->groups) {
        print_head(x, "states read by a token behind", "      written", out);
        print_rows(x, read, true, out);
    }
    for (size_t i = 0; i < x->experts.n; i++)
        print_experts(&x->experts.at[i], out);
}
