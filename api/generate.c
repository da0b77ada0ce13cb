/* Text from a compiled model: the prompt is read in calls of many tokens, then each generated token
 * is read in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/ranks.h"
#include "api/sample.h"
#include "api/train/folder.h"
#include "frontend/config/generation.h"
#include "frontend/frontend.h"
#include "support/clock.h"
#include "support/file.h"
#include "text/chat.h"

#define API_FAILED 1

/* ---- tokens that end a text ------------------------------------------------------------------ */

int hadal_stop_tokens(hadal_session *s, const char *folder, const int32_t **ids, size_t *n) {
    API_ENTER(s);
    hfe_token_ids list = {0};
    const bool ok = hfe_read_generation(s->arena, &s->diags, folder, &list);
    *ids = list.at, *n = list.n;
    API_LEAVE(s, ok);
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

int hadal_has_tokenizer(const char *path) {
    static const char *const files[] = {"tokenizer.json", "tiktoken.model"};
    char file[4096];
    if (!hd_is_directory(path)) return hd_exists(path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (snprintf(file, sizeof file, "%s/%s", path, files[i]) < (int)sizeof file &&
            hd_exists(file))
            return 1;
    return 0;
}

/* A folder without tokenizer.json may be that of an adapter, and no model at all; else the hint is at
 * files of other tokenizers, which one can be made from. */
static void hint_other_files(hadal_session *s, const char *folder) {
    static const struct {
        const char *file, *hint;
    } others[] = {
        {"tokenizer.model", "tokenizer.model is of sentencepiece: save the tokenizer as "
                            "tokenizer.json with transformers"},
        {"vocab.json", "save the tokenizer as tokenizer.json with transformers"},
    };
    if (hfe_reject_adapter(s->arena, &s->diags, folder)) return;
    hd_diag *d = hd_err(&s->diags, HD_E_IO, HD_NOWHERE,
                        "there is no tokenizer.json or tiktoken.model in '%s'", folder);
    const char *run = train_hint_at_checkpoint(s->arena, folder);
    d->hint = run ? run : "--tokens takes token ids; --tokenizer names another file or folder";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (hd_exists(hd_path_join(s->arena, folder, others[i].file))) {
            d->hint = others[i].hint;
            return;
        }
}

#undef API_FAILED
#define API_FAILED NULL
const struct hadal_tokenizer *hadal_tokenizer_of(hadal_session *s, const char *path) {
    API_ENTER(s);
    const struct hadal_tokenizer *t = NULL;
    if (hd_is_directory(path) && !hadal_has_tokenizer(path))
        hint_other_files(s, path);
    else
        t = tokenizer_open(s->arena, &s->diags, hd_strdup(s->arena, path));
    API_RETURN(s, t);
}
#undef API_FAILED
#define API_FAILED 1

/* ---- generating ------------------------------------------------------------------------------ */

typedef struct generation {
    api_library lib;
    const hadal_generate_options *o;
    hadal_generated *out;
    float *logits; /* of the last token read */
    size_t n_logits;
    HD_VEC(int32_t) held; /* the tokens of the session */
} generation;

static bool is_interrupted(generation *g) {
    if (!g->out->interrupted && g->o->interrupted && g->o->interrupted(g->o->context))
        g->out->interrupted = 1;
    return g->out->interrupted;
}

/* What one rank knows about the next step: the token, if it has logits, and whether its caller
 * wants generation to end. */
typedef struct step_word {
    int32_t token, interrupted;
} step_word;

/* All ranks of a divided model go on with the speaker's token, or end together as soon as one has
 * to. Otherwise one of them would wait in a call that no other rank makes. */
static bool agree(generation *g, int32_t *token) {
    step_word all[HADAL_COMM_MAX_RANKS], mine = {*token, is_interrupted(g)};
    if (!api_all_gather(&g->lib, &mine, all, sizeof mine)) return false;
    for (int32_t i = 0; i < api_ranks(&g->lib); i++)
        if (all[i].interrupted) g->out->interrupted = 1;
    *token = all[api_speaker(&g->lib)].token;
    return true;
}

static bool forward(generation *g, const int32_t *tokens, int64_t n, int64_t rows) {
    const int code = g->lib.forward(g->lib.session, tokens, n, g->logits, rows);
    if (!api_library_ok(&g->lib, code, "forward")) return false;
    for (int64_t i = 0; i < n; i++)
        hd_push(g->lib.s->arena, &g->held, tokens[i]);
    return true;
}

/* Tokens of one call of the prompt. Generation can be stopped between calls; they are as long as
 * the chunks into which the library cuts a long call anyway. On a pipeline one call has many
 * chunks, since they are what keeps all stages busy: so many that little of the call's time goes by
 * before every stage has work. */
static int64_t tokens_of_call(const generation *g) {
    enum { PIECES = 16 };
    const int64_t chunk = (int64_t)g->lib.info->max_chunk;
    const int32_t stages = api_stages(&g->lib);
    return stages > 1 ? chunk * stages * PIECES : chunk;
}

/* Reads what follows the tokens that the session holds. */
static bool read_prompt(generation *g, const int32_t *prompt, int64_t n) {
    const int64_t most = tokens_of_call(g), held = (int64_t)g->held.n;
    const double began = hd_seconds();
    int32_t none = -1;
    while (held + g->out->prompt_tokens < n) {
        const int64_t done = held + g->out->prompt_tokens, part = n - done < most ? n - done : most;
        if (!agree(g, &none)) return false;
        if (g->out->interrupted) break;
        hd_progress(&g->lib.s->diags, "reading the prompt", (uint64_t)(done - held),
                    (uint64_t)(n - held));
        if (!forward(g, prompt + done, part, done + part == n)) return false;
        g->out->prompt_tokens += part;
    }
    g->out->prompt_seconds = hd_seconds() - began;
    return true;
}

static bool is_stop(const hadal_generate_options *o, int32_t id) {
    for (size_t i = 0; i < o->n_stop; i++)
        if (o->stop[i] == id) return true;
    return false;
}

static bool reject_logits(generation *g) {
    hd_err(&g->lib.s->diags, HD_E_RUNTIME, HD_NOWHERE,
           "the logits after %lld token%s are no numbers",
           (long long)(g->out->prompt_tokens + g->out->tokens),
           hd_s((uint64_t)(g->out->prompt_tokens + g->out->tokens)))
        ->hint = "weights of another model, or numbers beyond what a type can hold";
    return false;
}

static bool write_tokens(generation *g, sampler *s, int64_t most) {
    const hadal_generate_options *o = g->o;
    while (g->out->tokens < most) {
        int32_t id = api_has_logits(&g->lib) ? api_sample(s, g->logits) : -1;
        if (!agree(g, &id)) return false;
        if (g->out->interrupted) return true;
        if (id < 0) return reject_logits(g);
        if (is_stop(o, id)) return true;
        g->out->tokens++;
        if (o->token && o->token(o->context, id)) g->out->interrupted = 1;
        /* no token is drawn from the logits of the last one; ranks end together, in agree() */
        const bool ends = g->out->tokens == most || (api_ranks(&g->lib) == 1 && is_interrupted(g));
        if (!ends && !forward(g, &id, 1, 1)) return false;
    }
    return true;
}

/* Opens the weights, and a session of so many tokens. */
static bool start(hadal_session *s, generation *g, int64_t max_tokens, sampler *choice) {
    const hadal_generate_options *o = g->o;
    if (!api_library_start(&g->lib, o->packed, max_tokens, o->threads, o->cpu_level)) return false;
    g->n_logits = api_logits_row(g->lib.info);
    g->logits = hd_new_array(s->arena, float, g->n_logits);
    *choice = api_sampler(s->arena, o, g->n_logits);
    return true;
}

static bool write_text(hadal_session *s, generation *g, sampler *choice, int64_t most) {
    hd_progress(&s->diags, "writing", 0, 0);
    const double began = hd_seconds();
    const bool ok = write_tokens(g, choice, most);
    g->out->seconds = hd_seconds() - began;
    return ok;
}

static bool generate(hadal_session *s, generation *g, const int32_t *prompt, int64_t n) {
    sampler choice;
    g->lib.room_to_spare = n < g->o->max_tokens; /* a text may end early */
    return start(s, g, n + g->o->max_tokens, &choice) && read_prompt(g, prompt, n) &&
           write_text(s, g, &choice, g->o->max_tokens);
}

static bool are_options_good(hadal_session *s, const hadal_generate_options *o, int64_t n) {
    const char *wrong = n < 1               ? "the prompt has no token"
                        : o->max_tokens < 0 ? "max_tokens is negative"
                        : !(o->temperature >= 0 && o->temperature <= 1e6)
                            ? "temperature is not from 0 to 1e6"
                        : !(o->top_p > 0 && o->top_p <= 1) ? "top_p is not above 0 and at most 1"
                        : o->top_k < 0                     ? "top_k is negative"
                                                           : NULL;
    if (wrong) hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s", wrong);
    return !wrong;
}

static bool run(hadal_session *s, const hadal_generate_options *o, const int32_t *prompt, int64_t n,
                hadal_generated *out) {
    generation g = {.o = o, .out = out};
    *out = (hadal_generated){0};
    if (!are_options_good(s, o, n)) return false;
    const char *name = api_library_model(s, o->library);
    if (!name || !api_library_open(&g.lib, s, o->library, name)) return false;
    const bool ok = generate(s, &g, prompt, n);
    api_library_close(&g.lib);
    return ok;
}

int hadal_generate(hadal_session *s, const hadal_generate_options *o, const int32_t *prompt,
                   int64_t n, hadal_generated *out) {
    API_ENTER(s);
    API_TAKE(hadal_generate_options, all, o);
    API_LEAVE(s, run(s, &all, prompt, n, out));
}

/* ---- several texts in one session ------------------------------------------------------------ */

struct hadal_generation {
    hadal_session *s;
    hadal_generate_options options;
    generation g;
    sampler choice;
    int64_t capacity; /* tokens that the session has room for */
    bool rewinds;     /* the session can go back to any length */
    bool failed;      /* a call failed: what the session holds is not known */
    /* Where it cannot: a copy of its state after the last prompt. */
    void *saved;
    size_t saved_bytes;
    int64_t saved_length; /* 0: there is none */
};

static bool all_are_caches(const hd_info *info) {
    for (uint64_t i = 0; i < info->n_states; i++)
        if (strcmp(info->states[i].kind, "cache") != 0) return false;
    return true;
}

static bool open_generation(hadal_generation *c) {
    hadal_session *s = c->s;
    if (!are_options_good(s, &c->options, 1)) return false;
    const char *name = api_library_model(s, c->options.library);
    if (!name || !api_library_open(&c->g.lib, s, c->options.library, name)) return false;
    if (api_ranks(&c->g.lib) > 1 || api_stages(&c->g.lib) > 1) {
        hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE,
               "a model that is divided over processes keeps no session between texts")
            ->hint = "compile it without --ranks and --stages";
        api_library_close(&c->g.lib);
        return false;
    }
    c->g.lib.room_to_spare = true;
    if (start(s, &c->g, c->capacity, &c->choice)) {
        c->rewinds = all_are_caches(c->g.lib.info);
        return true;
    }
    api_library_close(&c->g.lib);
    return false;
}

void hadal_generation_close(hadal_generation *c) {
    if (!c) return;
    free(c->saved);
    c->saved = NULL;
    api_library_close(&c->g.lib);
}

/* Goes back to a length at which the session held the first tokens of the prompt: to the common
 * beginning, or to the copy of the state if that is part of it, or to the start. */
static bool go_back(hadal_generation *c, const int32_t *prompt, int64_t n) {
    api_library *l = &c->g.lib;
    int64_t common = 0;
    while (common < n - 1 && common < (int64_t)c->g.held.n &&
           c->g.held.at[common] == prompt[common])
        common++;
    if (common == (int64_t)c->g.held.n) return true;
    const bool restores = !c->rewinds && c->saved_length > 0 && c->saved_length <= common;
    if (restores) {
        c->g.held.n = (size_t)c->saved_length;
        return api_library_ok(l, l->session_restore(l->session, c->saved, c->saved_bytes),
                              "restore");
    }
    c->g.held.n = c->rewinds ? (size_t)common : 0;
    return api_library_ok(l, l->session_rewind(l->session, (int64_t)c->g.held.n), "rewind");
}

/* Copies the state of a session that cannot be rewound. */
static bool save(hadal_generation *c) {
    api_library *l = &c->g.lib;
    if (c->rewinds) return true;
    const size_t bytes = l->session_save_size(l->session);
    void *larger = bytes > c->saved_bytes ? realloc(c->saved, bytes) : c->saved;
    c->saved_length = 0;
    if (!larger) {
        hd_err(&c->s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory for a copy of the session");
        return false;
    }
    c->saved = larger, c->saved_bytes = bytes;
    if (!api_library_ok(l, l->session_save(l->session, c->saved, bytes), "save")) return false;
    c->saved_length = (int64_t)c->g.held.n;
    return true;
}

static bool is_full(hadal_generation *c, int64_t n) {
    if (n < c->capacity) return false;
    hd_err(&c->s->diags, HD_E_LIMIT, HD_NOWHERE,
           "the text has %lld tokens, and the session has room for %lld", (long long)n,
           (long long)c->capacity);
    return true;
}

static bool continue_text(hadal_generation *c, const int32_t *prompt, int64_t n,
                          hadal_generated *out) {
    const int64_t room = c->capacity - n, most = c->options.max_tokens;
    c->g.out = out;
    return go_back(c, prompt, n) && read_prompt(&c->g, prompt, n) &&
           (out->interrupted ||
            (save(c) && write_text(c->s, &c->g, &c->choice, most < room ? most : room)));
}

int hadal_generation_continue(hadal_generation *c, const int32_t *prompt, int64_t n,
                              hadal_generated *out) {
    hadal_session *s = c->s;
    API_ENTER(s);
    *out = (hadal_generated){0};
    if (n < 1 || c->failed)
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s",
               n < 1 ? "the prompt has no token" : "the session is unusable after a failure");
    bool ok = n >= 1 && !c->failed && !is_full(c, n);
    if (ok) {
        c->failed = true; /* also where memory runs out on the way */
        ok = continue_text(c, prompt, n, out);
        c->failed = !ok;
    }
    API_LEAVE(s, ok);
}

#undef API_FAILED
#define API_FAILED NULL
hadal_generation *hadal_generation_open(hadal_session *s, const hadal_generate_options *o,
                                        int64_t max_tokens) {
    API_ENTER(s);
    hadal_generation *c = hd_new(s->arena, hadal_generation);
    API_TAKE(hadal_generate_options, all, o);
    *c = (hadal_generation){.s = s, .options = all, .capacity = max_tokens};
    c->g.o = &c->options;
    if (!open_generation(c)) c = NULL;
    API_RETURN(s, c);
}

const struct hadal_chat_template *hadal_chat_template_of(hadal_session *s, const char *folder) {
    API_ENTER(s);
    const struct hadal_chat_template *c = chat_template_open(s->arena, &s->diags, folder);
    API_RETURN(s, c);
}
