/* Loops for sequences of nodes that repeat in a body: calls of one function for layer after layer,
 * or the steps of an iterative computation.
 *
 * The nodes from .. from + period * times - 1 become a loop if the nodes of all iterations are the
 * same but for numbers, and if each operand of a node is one of these in every iteration:
 *   - the same variable, made outside of the loop;
 *   - a result of the same iteration;
 *   - a result of the iteration before, where the first iteration reads something from outside: a
 *     loop-carried variable;
 *   - a list that is that of the iteration before, its last elements replaced by results of that
 *     iteration, followed by results of this one.
 * Results of earlier iterations that are read after the loop are collected in a list. */
#include <string.h>

#include "support/known.h"
#include "torch/program.h"

enum { LONGEST_PERIOD = 256, LEAST_SAVED = 16, LEAST_OPS = 4, SHORT_TABLE = 32 };

typedef struct known_list { /* after a loop: a list and what it holds */
    uint32_t list, n;
    const uint32_t *holds;
} known_list;

typedef struct rolling {
    hpt_program *p;
    const char *counter;
    const hpt_body *body;
    uint32_t *key;        /* by node: the same for nodes of the same form */
    uint32_t *definer;    /* by variable */
    uint32_t *last;       /* by variable; UINT32_MAX: what comes after the body reads it */
    hpt_ref *now;         /* by variable: what it has become */
    uint32_t n_variables; /* of these tables: those that were there before */
    HD_VEC(known_list) lists;
    hpt_body out;
} rolling;

typedef struct candidate {
    uint32_t from, period, times;
} candidate;

typedef struct trial { /* a loop that is being made */
    rolling *r;
    candidate c;
    hpt_loop *loop;
    double *count;        /* by iteration */
    uint32_t tables;      /* numbers that no expression gives */
    HD_VEC(uint32_t) own; /* by result of an iteration: the variable in the loop's body */
} trial;

/* ---- the body as it is ----------------------------------------------------------------------- */

static const char *form_of(rolling *r, const hpt_node *n) {
    hd_text out;
    hd_text_init(&out, r->p->a);
    hd_text_f(&out, "%s %u %u", n->shape, n->n_out, n->n_numbers);
    for (uint32_t k = 0; k < n->n_in; k++) {
        if (n->in[k].many) {
            hd_text_add(&out, " *");
            continue;
        }
        const hpt_ref *ref = &n->in[k].at[0];
        hd_text_f(&out, " %d", ref->kind);
        if (ref->kind == HPT_WEIGHT || ref->kind == HPT_SCOPE) hd_text_add(&out, ref->name.pattern);
    }
    return out.at;
}

static void note_use(rolling *r, const hpt_ref *ref, uint32_t node) {
    if (ref->kind == HPT_VARIABLE) r->last[ref->variable] = node;
}

static void read_body(rolling *r, const hpt_ref *after, size_t n_after) {
    const hpt_body *b = r->body;
    hir_names known;
    hir_names_init(&known, r->p->a);
    r->key = hd_new_array(r->p->a, uint32_t, b->n + 1);
    for (uint32_t i = 0; i < b->n; i++) {
        const hpt_node *n = &b->at[i];
        const uint32_t *same = hir_names_add(&known, form_of(r, n), i);
        r->key[i] = same ? *same : i;
        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != HIR_NONE) r->definer[n->out[k]] = i;
        for (uint32_t k = 0; k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++)
                note_use(r, &n->in[k].at[e], i);
    }
    for (size_t i = 0; i < n_after; i++)
        note_use(r, &after[i], UINT32_MAX);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* (counter + d) % m, as where the layers of a looped model come again; NULL: it is not that. */
static const char *turns(const trial *t, const double *number) {
    const uint32_t n = t->c.times;
    double m = 0;
    for (uint32_t i = 0; i < n; i++)
        m = number[i] >= m ? number[i] + 1 : m;
    if (m < 2 || m > HIR_MAX_OPS || !hpt_is_whole(m) || !hpt_is_whole(number[0])) return NULL;
    const int64_t turn = (int64_t)m;
    const int64_t d = (((int64_t)(number[0] - t->count[0])) % turn + turn) % turn;
    for (uint32_t i = 0; i < n; i++)
        if (number[i] != (double)(((int64_t)t->count[i] + d) % turn)) return NULL;
    if (d == 0) return hd_printf(t->r->p->a, "%s %% %lld", t->loop->counter, (long long)turn);
    return hd_printf(t->r->p->a, "(%s + %lld) %% %lld", t->loop->counter, (long long)d,
                     (long long)turn);
}

/* A long table has a name. */
static const char *name_table(hpt_program *p, const char *table) {
    size_t i = 0;
    if (strlen(table) <= SHORT_TABLE) return table;
    while (i < p->tables.n && strcmp(p->tables.at[i], table) != 0)
        i++;
    if (i == p->tables.n) hd_push(p->a, &p->tables, table);
    return hd_printf(p->a, "NUMBERS_%zu", i + 1);
}

static bool unify_number(trial *t, hpt_number *out, const hpt_number *at) {
    const uint32_t n = t->c.times;
    hd_arena *a = t->r->p->a;
    bool same = true, texts = false;
    double *number = hd_new_array(a, double, n);
    for (uint32_t i = 0; i < n; i++) {
        same = same && hpt_same_number(at[0], at[i]);
        texts = texts || at[i].text;
        number[i] = at[i].at;
    }
    *out = at[0];
    if (same) return true;
    if (texts) return false;
    if (!at[0].n) out->text = hpt_linear(a, t->loop->counter, t->count, number, n);
    if (!at[0].n && !out->text) out->text = turns(t, number);
    if (out->text) return true;
    t->tables++;
    hd_text table;
    hd_text_init(&table, a);
    for (uint32_t i = 0; i < n; i++) {
        hd_text_add(&table, i ? ", " : "(");
        hpt_print_number(at[i], &table);
    }
    hd_text_add(&table, ")");
    const char *name = name_table(t->r->p, table.at);
    const long long first = (long long)t->loop->first, step = (long long)t->loop->step;
    out->text = step != 1
                    ? hd_printf(a, "%s[(%s - %lld) // %lld]", name, t->loop->counter, first, step)
                : first ? hd_printf(a, "%s[%s - %lld]", name, t->loop->counter, first)
                        : hd_printf(a, "%s[%s]", name, t->loop->counter);
    return true;
}

static const hpt_node *node_at(const trial *t, uint32_t iteration, uint32_t j) {
    return &t->r->body->at[t->c.from + iteration * t->c.period + j];
}

/* The counter goes through the numbers of a name that grows by the same in each iteration. */
static void find_count(trial *t) {
    const uint32_t n = t->c.times;
    t->count = hd_new_array(t->r->p->a, double, n);
    t->loop->step = 1;
    for (uint32_t i = 0; i < n; i++)
        t->count[i] = i;
    for (uint32_t j = 0; j < t->c.period; j++)
        for (uint32_t k = 0; k < node_at(t, 0, j)->n_in; k++) {
            const hpt_operand *o = &node_at(t, 0, j)->in[k];
            if (o->many || (o->at[0].kind != HPT_SCOPE && o->at[0].kind != HPT_WEIGHT)) continue;
            for (uint32_t s = 0; s < o->at[0].name.n; s++) {
                const double first = o->at[0].name.number[s].at;
                const double by = node_at(t, 1, j)->in[k].at[0].name.number[s].at - first;
                bool grows = by >= 1;
                for (uint32_t i = 0; i < n; i++)
                    grows =
                        grows && node_at(t, i, j)->in[k].at[0].name.number[s].at == first + by * i;
                if (!grows) continue;
                for (uint32_t i = 0; i < n; i++)
                    t->count[i] = first + by * i;
                t->loop->first = (int64_t)first;
                t->loop->step = (int64_t)by;
                return;
            }
        }
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Where a variable is made: in which iteration (`times`: outside), and as which of its results. */
typedef struct origin {
    uint32_t iteration, result;
} origin;

static origin origin_of(const trial *t, const hpt_ref *ref) {
    const origin outside = {t->c.times, 0};
    if (ref->kind != HPT_VARIABLE) return outside;
    const uint32_t by = t->r->definer[ref->variable];
    if (by < t->c.from || by >= t->c.from + t->c.period * t->c.times) return outside;
    origin o = {(by - t->c.from) / t->c.period, 0};
    const uint32_t j = (by - t->c.from) % t->c.period;
    for (uint32_t i = 0; i < j; i++)
        o.result += node_at(t, 0, i)->n_out;
    for (uint32_t k = 0; t->r->body->at[by].out[k] != ref->variable; k++)
        o.result++;
    return o;
}

static hpt_ref own_ref(const trial *t, uint32_t result) {
    return (hpt_ref){.kind = HPT_VARIABLE, .variable = t->own.at[result]};
}

static uint32_t carry(trial *t, const hpt_ref *first, uint32_t result) {
    const hpt_ref next = own_ref(t, result);
    for (size_t i = 0; i < t->loop->carried.n; i++)
        if (hpt_same_ref(&t->loop->carried.at[i].first, first) &&
            hpt_same_ref(&t->loop->carried.at[i].next, &next))
            return t->loop->carried.at[i].variable;
    const hpt_variable like = t->r->p->variables.at[next.variable];
    const uint32_t v = hpt_add_variable(t->r->p, like.type, like.noun);
    hd_push(t->r->p->a, &t->loop->carried,
            ((hpt_carried){.variable = v, .first = *first, .next = next}));
    return v;
}

static bool unify_name(trial *t, hpt_ref *out, const hpt_ref *at) {
    hpt_number *number = hd_new_array(t->r->p->a, hpt_number, at[0].name.n + 1);
    hpt_number *all = hd_new_array(t->r->p->a, hpt_number, t->c.times);
    for (uint32_t s = 0; s < at[0].name.n; s++) {
        for (uint32_t i = 0; i < t->c.times; i++)
            all[i] = at[i].name.number[s];
        if (!unify_number(t, &number[s], all)) return false;
    }
    *out = at[0];
    out->name.number = number;
    return true;
}

/* at[i]: the operand in iteration i. */
static bool unify_ref(trial *t, hpt_ref *out, const hpt_ref *at) {
    const uint32_t n = t->c.times;
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        if (at[i].kind != at[0].kind) return false;
        same = same && hpt_same_ref(&at[0], &at[i]);
    }
    if (at[0].kind == HPT_WEIGHT || at[0].kind == HPT_SCOPE) {
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(at[i].name.pattern, at[0].name.pattern) || at[i].parts != at[0].parts)
                return false;
        return unify_name(t, out, at);
    }
    if (at[0].kind == HPT_NUMBER) {
        hpt_number *all = hd_new_array(t->r->p->a, hpt_number, n);
        for (uint32_t i = 0; i < n; i++)
            all[i] = at[i].number;
        *out = at[0];
        return unify_number(t, &out->number, all);
    }
    const origin first = origin_of(t, &at[0]), second = origin_of(t, &at[1]);
    if (same) { /* from outside; what an iteration makes is no longer the same in the next */
        *out = at[0];
        return first.iteration == n;
    }
    const uint32_t back = second.iteration == n ? n : 1 - second.iteration;
    if (at[0].kind != HPT_VARIABLE || back > 1) return false;
    for (uint32_t i = back; i < n; i++) {
        const origin o = origin_of(t, &at[i]);
        if (o.iteration != i - back || o.result != second.result) return false;
    }
    *out = own_ref(t, second.result);
    if (back == 0) return true;
    if (first.iteration != n) return false;
    *out = (hpt_ref){.kind = HPT_VARIABLE, .variable = carry(t, &at[0], second.result)};
    return true;
}

/* The elements of a list in iteration i one by one. */
static bool unify_elements(trial *t, hpt_operand *out, const hpt_operand *const *at) {
    hd_arena *a = t->r->p->a;
    const uint32_t n = at[0]->n;
    hpt_ref *all = hd_new_array(a, hpt_ref, t->c.times), *ref = hd_new_array(a, hpt_ref, n + 1);
    for (uint32_t i = 0; i < t->c.times; i++)
        if (at[i]->n != n) return false;
    const size_t carried = t->loop->carried.n;
    for (uint32_t e = 0; e < n; e++) {
        for (uint32_t i = 0; i < t->c.times; i++)
            all[i] = at[i]->at[e];
        if (unify_ref(t, &ref[e], all)) continue;
        t->loop->carried.n = carried;
        return false;
    }
    *out = (hpt_operand){true, n, ref};
    return true;
}

/* How many last elements of a list without its last `skip` are made in an iteration. */
static uint32_t made_in(const trial *t, const hpt_operand *list, uint32_t skip,
                        uint32_t iteration) {
    uint32_t n = 0;
    while (skip + n < list->n &&
           origin_of(t, &list->at[list->n - 1 - skip - n]).iteration == iteration)
        n++;
    return n;
}

static uint32_t result_at(const trial *t, const hpt_operand *list, uint32_t from_end) {
    return origin_of(t, &list->at[list->n - 1 - from_end]).result;
}

static uint32_t list_of(trial *t, const hpt_operand *first, uint32_t n, uint32_t drop,
                        const hpt_operand *push) {
    for (size_t i = 0; i < t->loop->lists.n; i++) {
        const hpt_operand *f = &t->loop->lists.at[i].first, *q = &t->loop->lists.at[i].push;
        bool same = f->n == n && t->loop->lists.at[i].drop == drop && q->n == push->n;
        for (uint32_t k = 0; same && k < n; k++)
            same = hpt_same_ref(&f->at[k], &first->at[k]);
        for (uint32_t k = 0; same && k < q->n; k++)
            same = hpt_same_ref(&q->at[k], &push->at[k]);
        if (same) return t->loop->lists.at[i].list;
    }
    hpt_program *p = t->r->p;
    const bool begun = n && first->at[0].kind == HPT_VARIABLE;
    const hpt_variable *of = &p->variables.at[begun ? first->at[0].variable : push->at[0].variable];
    const char *noun = *of->noun ? of->noun : "x";
    const uint32_t v = hpt_add_variable(p, of->type, hd_printf(p->a, "%ss", noun));
    p->variables.at[v].list = true;
    const hpt_growing grows = {v, {true, n, first->at}, drop, *push};
    hd_push(p->a, &t->loop->lists, grows);
    return v;
}

/* A list that is that of the iteration before, its last `drop` elements replaced, and after it what
 * this iteration makes. */
static bool unify_growing(trial *t, hpt_operand *out, const hpt_operand *const *at) {
    hd_arena *a = t->r->p->a;
    const uint32_t n = t->c.times, tail = made_in(t, at[0], 0, 0);
    const uint32_t pushed = made_in(t, at[1], tail, 0);
    if (at[1]->n < tail + pushed || pushed == 0) return false;
    const uint32_t kept = at[1]->n - tail - pushed;
    if (at[0]->n < tail + kept) return false;
    const uint32_t drop = at[0]->n - tail - kept;
    for (uint32_t i = 0; i < n; i++) {
        if (made_in(t, at[i], 0, i) != tail) return false;
        for (uint32_t k = 0; k < tail; k++)
            if (result_at(t, at[i], k) != result_at(t, at[0], k)) return false;
        if (i == 0) continue;
        const uint32_t base = at[i]->n - tail, before = at[i - 1]->n - tail;
        if (base < pushed || before < drop || base - pushed != before - drop) return false;
        for (uint32_t k = 0; k < pushed; k++) {
            const origin o = origin_of(t, &at[i]->at[base - 1 - k]);
            if (o.iteration != i - 1 || o.result != result_at(t, at[1], tail + k)) return false;
        }
        for (uint32_t k = 0; k < base - pushed; k++)
            if (!hpt_same_ref(&at[i]->at[k], &at[i - 1]->at[k])) return false;
    }
    for (uint32_t k = 0; k < at[0]->n - tail; k++)
        if (origin_of(t, &at[0]->at[k]).iteration != n) return false;
    hpt_operand push = {true, pushed, hd_new_array(a, hpt_ref, pushed + 1)};
    for (uint32_t k = 0; k < pushed; k++)
        push.at[pushed - 1 - k] = own_ref(t, result_at(t, at[1], tail + k));
    *out = (hpt_operand){true, 1 + tail, hd_new_array(a, hpt_ref, 2 + tail)};
    out->at[0] =
        (hpt_ref){.kind = HPT_LIST, .variable = list_of(t, at[0], at[0]->n - tail, drop, &push)};
    for (uint32_t k = 0; k < tail; k++)
        out->at[tail - k] = own_ref(t, result_at(t, at[0], k));
    return true;
}

/* ---- a loop ---------------------------------------------------------------------------------- */

static bool unify_node(trial *t, uint32_t j) {
    hd_arena *a = t->r->p->a;
    const uint32_t n = t->c.times;
    hpt_node node = hpt_copy_node(a, node_at(t, 0, j));
    hpt_number *numbers = hd_new_array(a, hpt_number, n);
    for (uint32_t k = 0; k < node.n_numbers; k++) {
        for (uint32_t i = 0; i < n; i++)
            numbers[i] = node_at(t, i, j)->number[k];
        if (!unify_number(t, &node.number[k], numbers)) return false;
    }
    hpt_ref *refs = hd_new_array(a, hpt_ref, n);
    const hpt_operand **many = hd_new_array(a, const hpt_operand *, n);
    for (uint32_t k = 0; k < node.n_in; k++) {
        for (uint32_t i = 0; i < n; i++)
            many[i] = &node_at(t, i, j)->in[k];
        if (node.in[k].many) {
            if (!unify_elements(t, &node.in[k], many) && !unify_growing(t, &node.in[k], many))
                return false;
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            refs[i] = many[i]->at[0];
        if (!unify_ref(t, &node.in[k].at[0], refs)) return false;
    }
    uint32_t result = 0;
    for (uint32_t i = 0; i < j; i++)
        result += node_at(t, 0, i)->n_out;
    hd_known(t->own.at || !node.n_out);
    for (uint32_t k = 0; k < node.n_out; k++)
        node.out[k] = t->own.at[result + k];
    hd_push(a, &t->loop->body, node);
    return true;
}

static void make_own(trial *t) {
    hpt_program *p = t->r->p;
    for (uint32_t j = 0; j < t->c.period; j++)
        for (uint32_t k = 0; k < node_at(t, 0, j)->n_out; k++) {
            uint32_t read = HIR_NONE;
            for (uint32_t i = 0; i < t->c.times && read == HIR_NONE; i++)
                read = node_at(t, i, j)->out[k];
            uint32_t own = HIR_NONE;
            if (read != HIR_NONE) {
                const hpt_variable like = p->variables.at[read];
                own = hpt_add_variable(p, like.type, like.noun);
            }
            hd_push(p->a, &t->own, own);
        }
}

static bool make_loop(rolling *r, candidate c, trial *t) {
    *t = (trial){.r = r, .c = c, .loop = hd_new(r->p->a, hpt_loop)};
    t->loop->counter = r->counter;
    t->loop->times = c.times;
    find_count(t);
    make_own(t);
    for (uint32_t j = 0; j < c.period; j++)
        if (!unify_node(t, j)) return false;
    return true;
}

/* ---- after a loop ---------------------------------------------------------------------------- */

static void know_list(rolling *r, uint32_t list, const uint32_t *holds, uint32_t n) {
    hd_push(r->p->a, &r->lists, ((known_list){list, n, holds}));
}

/* The variables that result number `result` has been in the iterations. */
static uint32_t *in_iterations(const trial *t, uint32_t result) {
    uint32_t *all = hd_new_array(t->r->p->a, uint32_t, t->c.times + 1);
    uint32_t j = 0;
    while (result >= node_at(t, 0, j)->n_out)
        result -= node_at(t, 0, j++)->n_out;
    for (uint32_t i = 0; i < t->c.times; i++)
        all[i] = node_at(t, i, j)->out[result];
    return all;
}

static uint32_t result_of(const trial *t, uint32_t own) {
    uint32_t i = 0;
    while (t->own.at[i] != own)
        i++;
    return i;
}

/* What a list of the loop holds at its end. */
static void follow_list(trial *t, size_t l) {
    hd_arena *a = t->r->p->a;
    HD_VEC(uint32_t) held = {0};
    const hpt_operand *first = &t->loop->lists.at[l].first, *push = &t->loop->lists.at[l].push;
    for (uint32_t k = 0; k < first->n; k++)
        hd_push(a, &held, (first->at[k].kind == HPT_VARIABLE ? first->at[k].variable : HIR_NONE));
    for (uint32_t i = 0; i < t->c.times; i++) {
        held.n -= t->loop->lists.at[l].drop;
        for (uint32_t k = 0; k < push->n; k++) {
            const uint32_t v = in_iterations(t, result_of(t, push->at[k].variable))[i];
            hd_push(a, &held, v);
        }
    }
    know_list(t->r, t->loop->lists.at[l].list, held.at, (uint32_t)held.n);
}

static bool find_element(const rolling *r, uint32_t variable, hpt_ref *out) {
    for (size_t l = r->lists.n; l-- > 0;)
        for (uint32_t k = 0; k < r->lists.at[l].n; k++)
            if (r->lists.at[l].holds[k] == variable) {
                *out = (hpt_ref){
                    .kind = HPT_ELEMENT, .variable = r->lists.at[l].list, .number = {.at = k}};
                return true;
            }
    return false;
}

/* Says what variables of the iterations are after the loop. */
static void leave_loop(trial *t) {
    rolling *r = t->r;
    const uint32_t end = t->c.from + t->c.period * t->c.times;
    for (size_t l = 0; l < t->loop->lists.n; l++)
        follow_list(t, l);
    for (uint32_t result = 0; result < t->own.n; result++) {
        const uint32_t *v = in_iterations(t, result);
        bool all_known = true;
        for (uint32_t i = 0; i < t->c.times; i++) {
            if (v[i] == HIR_NONE) continue;
            if (i + 1 == t->c.times)
                r->now[v[i]] = own_ref(t, result);
            else if (r->last[v[i]] >= end)
                all_known = find_element(r, v[i], &r->now[v[i]]) && all_known;
        }
        if (all_known) continue;
        const hpt_operand nothing = {.many = true};
        hpt_operand push = {true, 1, hd_new(r->p->a, hpt_ref)};
        push.at[0] = own_ref(t, result);
        const uint32_t list = list_of(t, &nothing, 0, 0, &push);
        know_list(r, list, v, t->c.times);
        for (uint32_t i = 0; i + 1 < t->c.times; i++)
            if (v[i] != HIR_NONE) find_element(r, v[i], &r->now[v[i]]);
    }
}

static void fix_ref(const rolling *r, hpt_ref *ref) {
    if (ref->kind == HPT_VARIABLE && ref->variable < r->n_variables) *ref = r->now[ref->variable];
}

/* Elements from `at` on that are the beginning of a known list. */
static uint32_t find_list(const rolling *r, const hpt_operand *o, uint32_t at, hpt_ref *out) {
    uint32_t best = 1;
    for (size_t l = 0; l < r->lists.n; l++) {
        const known_list *k = &r->lists.at[l];
        uint32_t n = 0;
        while (n < k->n && at + n < o->n && o->at[at + n].kind == HPT_VARIABLE &&
               o->at[at + n].variable == k->holds[n])
            n++;
        if (n <= best) continue;
        best = n;
        *out = (hpt_ref){.kind = HPT_LIST, .variable = k->list, .number = {.at = n < k->n ? n : 0}};
    }
    return best;
}

static void fix_operand(const rolling *r, hpt_operand *o) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n;) {
        hpt_ref ref = o->at[i];
        const uint32_t taken = o->many ? find_list(r, o, i, &ref) : 1;
        if (taken == 1) fix_ref(r, &ref);
        o->at[n++] = ref;
        i += taken;
    }
    o->n = n;
}

static void fix_node(const rolling *r, hpt_node *n) {
    for (uint32_t k = 0; k < n->n_in; k++)
        fix_operand(r, &n->in[k]);
}

static void fix_loop(const rolling *r, hpt_loop *l) {
    for (size_t i = 0; i < l->body.n; i++)
        fix_node(r, &l->body.at[i]);
    for (size_t i = 0; i < l->carried.n; i++)
        fix_ref(r, &l->carried.at[i].first);
    for (size_t i = 0; i < l->lists.n; i++) {
        hpt_operand *first = &l->lists.at[i].first, copy = *first;
        copy.at = hd_new_array(r->p->a, hpt_ref, copy.n + 1);
        if (copy.n) memcpy(copy.at, first->at, copy.n * sizeof *copy.at);
        fix_operand(r, &copy);
        *first = copy;
    }
}

/* ---- one name for a variable that is carried ------------------------------------------------- */

static bool reads(const hpt_operand *o, uint32_t variable) {
    for (uint32_t k = 0; k < o->n; k++)
        if (o->at[k].kind == HPT_VARIABLE && o->at[k].variable == variable) return true;
    return false;
}

/* May the result that is carried on take the variable's name, as in x = layer(x)? */
static bool may_take_name(const hpt_loop *l, size_t c) {
    const uint32_t v = l->carried.at[c].variable, next = l->carried.at[c].next.variable;
    bool made = false;
    for (size_t i = 0; i < l->body.n; i++) {
        const hpt_node *n = &l->body.at[i];
        for (uint32_t k = 0; made && k < n->n_in; k++)
            if (reads(&n->in[k], v)) return false;
        for (uint32_t k = 0; k < n->n_out; k++)
            made = made || n->out[k] == next;
    }
    for (size_t i = 0; i < l->carried.n; i++) {
        const bool other = i != c && l->carried.at[i].next.variable == next;
        if ((other && i < c) || (i != c && l->carried.at[i].next.variable == v)) return false;
    }
    for (size_t i = 0; i < l->lists.n; i++)
        if (reads(&l->lists.at[i].push, v)) return false;
    return true;
}

/* Does nobody but the loop, as the first value of this one variable, read it from `from` on? */
static bool is_first_alone(const rolling *r, const trial *t, size_t c) {
    const hpt_ref *first = &t->loop->carried.at[c].first;
    if (first->kind != HPT_VARIABLE || first->variable >= r->n_variables) return false;
    if (r->last[first->variable] >= t->c.from + t->c.period) return false;
    for (size_t i = 0; i < t->loop->carried.n; i++)
        if (i != c && hpt_same_ref(first, &t->loop->carried.at[i].first)) return false;
    for (size_t i = 0; i < t->loop->lists.n; i++)
        if (reads(&t->loop->lists.at[i].first, first->variable)) return false;
    for (size_t i = 0; i < t->loop->body.n; i++)
        for (uint32_t k = 0; k < t->loop->body.at[i].n_in; k++)
            if (reads(&t->loop->body.at[i].in[k], first->variable)) return false;
    return true;
}

static void join_names(const rolling *r, trial *t) {
    for (size_t c = 0; c < t->loop->carried.n; c++) {
        t->loop->carried.at[c].is_first = is_first_alone(r, t, c);
        t->loop->carried.at[c].is_next = may_take_name(t->loop, c);
    }
}

/* ---- search ---------------------------------------------------------------------------------- */

static uint32_t iterations(const rolling *r, uint32_t from, uint32_t period) {
    uint32_t same = 0;
    while (from + period + same < r->body->n && r->key[from + same] == r->key[from + period + same])
        same++;
    return same / period + 1;
}

static bool has_call(const hpt_loop *l) {
    for (size_t i = 0; i < l->body.n; i++)
        if (l->body.at[i].call) return true;
    return false;
}

/* The loop that begins at a node and saves most; each variable that it carries costs a line. One
 * that needs tables has to save twice as much as one that needs none. */
static bool find_loop(rolling *r, uint32_t from, trial *best) {
    uint32_t most[2] = {0}; /* without and with tables */
    trial found[2];
    for (uint32_t period = 1; period <= LONGEST_PERIOD && from + 2 * period <= r->body->n;
         period++) {
        uint32_t times = iterations(r, from, period);
        for (uint32_t less = 1; times >= 2 && (times - 1) * period > most[0]; less *= 2) {
            if (times == 2 && period < LEAST_SAVED) break;
            trial t;
            if (!make_loop(r, (candidate){from, period, times}, &t)) {
                times -= less < times ? less : times;
                continue;
            }
            const uint32_t carries = (uint32_t)(t.loop->carried.n + t.loop->lists.n);
            const uint32_t saved = (times - 1) * period;
            const int kind = t.tables > 0;
            if (saved <= most[kind] + carries) break;
            found[kind] = t;
            most[kind] = saved - carries;
            break;
        }
    }
    const int kind = most[1] > 2 * most[0];
    if (!most[kind] || (most[kind] < LEAST_OPS && !has_call(found[kind].loop))) return false;
    *best = found[kind];
    return true;
}

static void roll_body(hpt_program *p, hpt_body *body, const char *counter, hpt_ref *after,
                      size_t n_after) {
    const uint32_t n = (uint32_t)p->variables.n;
    rolling r = {.p = p, .counter = counter, .body = body, .n_variables = n};
    r.definer = hd_new_array(p->a, uint32_t, n + 1);
    r.last = hd_new_array(p->a, uint32_t, n + 1);
    r.now = hd_new_array(p->a, hpt_ref, n + 1);
    memset(r.definer, 0xff, n * sizeof *r.definer);
    for (uint32_t v = 0; v < n; v++)
        r.now[v] = (hpt_ref){.kind = HPT_VARIABLE, .variable = v};
    read_body(&r, after, n_after);
    for (uint32_t i = 0; i < body->n;) {
        trial t;
        if (!find_loop(&r, i, &t)) {
            hpt_node node = hpt_copy_node(p->a, &body->at[i++]);
            fix_node(&r, &node);
            hd_push(p->a, &r.out, node);
            continue;
        }
        join_names(&r, &t);
        fix_loop(&r, t.loop);
        leave_loop(&t);
        hd_push(p->a, &r.out, ((hpt_node){.loop = t.loop}));
        i += t.c.period * t.c.times;
    }
    for (size_t i = 0; i < n_after; i++)
        fix_ref(&r, &after[i]);
    *body = r.out;
}

void hpt_roll(hpt_program *p) {
    for (size_t i = 0; i < p->functions.n; i++) {
        hpt_function *f = p->functions.at[i];
        roll_body(p, &f->body, "i", f->out.at, f->out.n);
    }
    hpt_ref *out = hd_new_array(p->a, hpt_ref, p->outputs.n + 1);
    for (size_t i = 0; i < p->outputs.n; i++)
        out[i] = p->outputs.at[i].at;
    roll_body(p, &p->body, "l", out, p->outputs.n);
    for (size_t i = 0; i < p->outputs.n; i++)
        p->outputs.at[i].at = out[i];
}
