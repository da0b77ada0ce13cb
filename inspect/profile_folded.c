/* A profile as folded stacks, for flame graphs. */
#include <ctype.h>
#include <string.h>

#include "inspect/profile.h"

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
void profile_folded(const profile_tables *x, hd_text *out) {
    const profile *p = x->of;
    for (int i = 0; i < PROFILE_PHASES; i++)
        for (size_t k = 0; k < p->n_steps; k++) {
            const hd_step_info *s = &p->steps[k];
            const step_time *t = &p->phases[i].steps[k];
            const char *stack =
                hd_printf(out->arena, "%s;%.*s;%s;line %llu", x->phases[i].name,
                          *s->scope ? layer_length(s->scope) : 1, *s->scope ? s->scope : "-",
                          s->name, (unsigned long long)s->line);
            if (t->work_ns) hd_text_f(out, "%s %llu\n", stack, (unsigned long long)t->work_ns);
            if (t->wait_ns) hd_text_f(out, "%s;wait %llu\n", stack, (unsigned long long)t->wait_ns);
        }
}
