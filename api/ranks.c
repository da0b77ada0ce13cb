#include "api/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "inspect/plan_host.h"
#include "support/all_gather.h"

#define API_FAILED 1

/* The number after a name in the options of a library, which are JSON that Hadal itself wrote. */
static int64_t number_in(const char *options, const char *name) {
    const char *at = strstr(options, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

static int32_t ranks_of_stage(const api_library *l) {
    return (int32_t)number_in(l->info->options, "\"ranks\": ");
}

int32_t api_stages(const api_library *l) {
    return l->session_init_on ? (int32_t)number_in(l->info->options, "\"stages\": ") : 1;
}

int32_t api_ranks(const api_library *l) {
    return l->session_init_on ? ranks_of_stage(l) * api_stages(l) : 1;
}

int32_t api_speaker(const api_library *l) {
    return l->session_init_on ? api_ranks(l) - ranks_of_stage(l) : 0;
}

bool api_is_speaker(const api_library *l) {
    return !l->session_init_on || (l->s->comm && l->s->comm->rank == api_speaker(l));
}

bool api_has_logits(const api_library *l) {
    return !l->session_init_on || (l->s->comm && l->s->comm->rank >= api_speaker(l));
}

bool api_is_first_of_stage(const api_library *l, int32_t rank) {
    const int32_t ranks = ranks_of_stage(l);
    if (!l->session_init_on) return true;
    hd_known(ranks); /* a library that has this function states its ranks */
    return rank % ranks == 0;
}

/* Whether there are as many ranks as the library needs is checked by all of them when they make
 * their sessions. */
bool api_need_ranks(const api_library *l) {
    if (!l->session_init_on || l->s->comm) return true;
    hd_err(&l->s->diags, HD_E_RUNTIME, HD_NOWHERE,
           "%s is divided over ranks, and this process is alone", l->path)
        ->hint = "start one process for each: mpirun -n RANKS hadal ...";
    return false;
}

int32_t api_ranks_here(const api_library *l) {
    return l->session_init_on ? l->s->comm->size : 1;
}

static bool gather(hadal_session *s, const char *what, const void *mine, void *all, size_t size) {
    const hadal_comm *c = s->comm;
    const int code = hd_all_gather(c, hd_all_ranks(c), s->comm_timeout, mine, all, size);
    if (code == 0) return true;
    hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "%s: the ranks do not come together", what)->cause =
        hd_strdup(s->arena, c->message(c->context));
    return false;
}

bool api_all_gather(api_library *l, const void *mine, void *all, size_t size) {
    if (!api_need_ranks(l)) return false;
    if (l->session_init_on) return gather(l->s, l->path, mine, all, size);
    memcpy(all, mine, size);
    return true;
}

int32_t api_training_ranks(const hadal_session *s) {
    return s->comm ? s->comm->size : 1;
}

bool api_gather_training(hadal_session *s, const void *mine, void *all, size_t size) {
    if (s->comm) return gather(s, "training", mine, all, size);
    memcpy(all, mine, size);
    return true;
}

bool api_all_did(hadal_session *s, bool did) {
    uint8_t all[HADAL_COMM_MAX_RANKS], mine = did;
    if (!api_gather_training(s, &mine, all, sizeof mine)) return false;
    for (int32_t r = 0; did && r < api_training_ranks(s); r++) {
        if (all[r]) continue;
        hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "rank %d has failed: it says why", (int)r);
        return false;
    }
    return did;
}

bool api_most_of_ranks(api_library *l, int64_t mine, int64_t *most) {
    int64_t all[HADAL_COMM_MAX_RANKS];
    *most = mine;
    if (!api_all_gather(l, &mine, all, sizeof mine)) return false;
    for (int32_t i = 0; i < api_ranks_here(l); i++)
        if (all[i] > *most) *most = all[i];
    return true;
}

static bool library_ranks(hadal_session *s, const char *path, int64_t *ranks) {
    api_library l;
    const char *model = api_library_model(s, path);
    *ranks = 0;
    if (!model || !api_library_open(&l, s, path, model)) return false;
    if (l.session_init_on) *ranks = api_ranks(&l);
    api_library_close(&l);
    return true;
}

int hadal_library_ranks(hadal_session *s, const char *library, int64_t *ranks) {
    API_ENTER(s);
    API_LEAVE(s, library_ranks(s, library, ranks));
}

static bool is_link(hadal_session *s, const char *text, plan_host *link) {
    if (!plan_host_parse(&s->diags, text, link)) return false;
    bool only = true;
    for (int f = 0; f < PLAN_FACTS; f++)
        only = only && (f == PLAN_NETWORK || f == PLAN_LATENCY) == (link->fact[f] > 0);
    if (only) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "\"%s\" is no link", text)->hint =
        "a link has these two facts: network=10G,latency=50us";
    return false;
}

int hadal_read_link(hadal_session *s, const char *text, double *bits_per_second,
                    int64_t *latency_ns) {
    plan_host link;
    API_ENTER(s);
    const bool ok = is_link(s, text, &link);
    *bits_per_second = ok ? link.fact[PLAN_NETWORK] : 0;
    *latency_ns = ok ? (int64_t)(link.fact[PLAN_LATENCY] * 1e9) : 0;
    API_LEAVE(s, ok);
}

void hadal_use_ranks(hadal_session *s, const struct hadal_comm *comm, int64_t timeout_ns) {
    s->comm = comm;
    s->comm_timeout = timeout_ns;
}
