/* hadal_reduce_*: proposes smaller modules, as text. */
#include "ir/compare/reduce.h"

#include "api/session.h"

#define API_FAILED 1

int hadal_reduce_begin(hadal_session *s) {
    API_ENTER(s);
    bool ok = api_need_module(s);
    if (ok) s->reducer = hir_reducer_new(s->m, s->arena, &s->diags);
    API_LEAVE(s, ok && s->reducer);
}

#undef API_FAILED
#define API_FAILED NULL
/* Prints a module into its own arena, which is freed with it: there may be thousands. */
static const char *text_of(const hir_module *m, jmp_buf *guard) {
    hd_arena_guard(m->arena, guard);
    hd_text text;
    hd_text_init(&text, m->arena);
    hir_print(m, (hir_print_options){0}, &text);
    return text.at;
}

const char *hadal_reduce_next(hadal_session *s) {
    API_ENTER(s);
    const hir_module *m = s->reducer ? hir_reducer_next(s->reducer) : NULL;
    const char *text = m ? text_of(m, &api_here_) : NULL;
    API_RETURN(s, text);
}

const char *hadal_reduce_best(hadal_session *s, size_t *ops) {
    API_ENTER(s);
    const char *text = NULL;
    if (s->reducer) {
        const hir_module *m = hir_reducer_best(s->reducer);
        *ops = 0;
        for (size_t i = 0; i < m->ops.n; i++)
            *ops += !m->ops.at[i].erased && m->ops.at[i].code != HIR_YIELD_OP;
        text = text_of(m, &api_here_);
    }
    API_RETURN(s, text);
}

void hadal_reduce_answer(hadal_session *s, int taken) {
    if (s->reducer) hir_reducer_answer(s->reducer, taken != 0);
}
