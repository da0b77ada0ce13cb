/* What layers keep and move, for programs. */
#include "inspect/json.h"
#include "inspect/layers.h"

static void print_bytes(const char *key, const state_bytes *b, hd_text *out) {
    inspect_json_key(out, key);
    hd_text_f(out, "{\"held\": %llu, \"read\": %llu, \"written\": %llu}",
              (unsigned long long)b->held, (unsigned long long)b->read,
              (unsigned long long)b->written);
}

static void print_length(const layers *x, const states_at *at, hd_text *out) {
    hd_text_f(out, "{\"positions\": %lld, ", (long long)at->positions);
    for (int g = 0; g < STATE_GROUPS; g++) {
        if (!x->states[g]) continue;
        print_bytes(state_group_key(g), &at->group[g], out);
        hd_text_add(out, ", ");
    }
    print_bytes("all", &at->all, out);
    hd_text_add(out, "}");
}

void layers_json(const layers *x, hd_text *out) {
    hd_text_add(out, "\"states\": [");
    for (int i = 0; i < STATE_LENGTHS; i++) {
        hd_text_add(out, i ? ",\n    " : "\n    ");
        print_length(x, &x->at[i], out);
    }
    hd_text_add(out, "],\n  \"experts\": [");
    for (size_t i = 0; i < x->experts.n; i++) {
        const expert_group *g = &x->experts.at[i];
        hd_text_f(out,
                  "%s{\"experts\": %lld, \"chosen\": %lld, \"layers\": %u, \"bytes\": %llu, "
                  "\"bytes_of_a_token\": %llu}",
                  i ? ", " : "", (long long)g->experts, (long long)g->chosen, g->layers,
                  (unsigned long long)g->bytes,
                  (unsigned long long)((double)g->bytes * (double)g->chosen / (double)g->experts));
    }
    hd_text_add(out, "]");
}
