/* Text from a compiled model: the prompt is read in calls of many tokens, then each generated token
 * is read in turn. */
#include <stdio.h>
#include <string.h>

#include "api/ranks.h"
#include "api/sample.h"
#include "frontend/config/generation.h"
#include "support/clock.h"
#include "support/file.h"
#include "text/tokenizer.h"

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

/* Hints at files of other tokenizers: a folder without tokenizer.json may have files that one can
 * be made from. */
static void hint_other_files(hadal_session *s, const char *folder) {
    static const struct {
        const char *file, *hint;
    } others[] = {
        {"tokenizer.model", "tokenizer.model is of sentencepiece: save the tokenizer as "
                            "tokenizer.json with transformers"},
        {"vocab.json", "save the tokenizer as tokenizer.json with transformers"},
    };
    hd_diag *d = hd_err(&s->diags, HD_E_IO, HD_NOWHERE,
                        "there is no tokenizer.json or tiktoken.model in '%s'", folder);
    d->hint = "--tokens takes token ids; --tokenizer names another file or folder";
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
    return api_library_ok(&g->lib, g->lib.forward(g->lib.session, tokens, n, g->logits, rows),
                          "forward");
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

static bool read_prompt(generation *g, const int32_t *prompt, int64_t n) {
    const int64_t most = tokens_of_call(g);
    const double began = hd_seconds();
    int32_t none = -1;
    while (g->out->prompt_tokens < n) {
        const int64_t done = g->out->prompt_tokens, part = n - done < most ? n - done : most;
        if (!agree(g, &none)) return false;
        if (g->out->interrupted) break;
        hd_progress(&g->lib.s->diags, "reading the prompt", (uint64_t)done, (uint64_t)n);
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

static bool write_tokens(generation *g, sampler *s) {
    const hadal_generate_options *o = g->o;
    while (g->out->tokens < o->max_tokens) {
        int32_t id = api_has_logits(&g->lib) ? api_sample(s, g->logits) : -1;
        if (!agree(g, &id)) return false;
        if (g->out->interrupted) return true;
        if (id < 0) return reject_logits(g);
        if (is_stop(o, id)) return true;
        g->out->tokens++;
        if (o->token && o->token(o->context, id)) g->out->interrupted = 1;
        /* no token is drawn from the logits of the last one; ranks end together, in agree() */
        const bool ends =
            g->out->tokens == o->max_tokens || (api_ranks(&g->lib) == 1 && is_interrupted(g));
        if (!ends && !forward(g, &id, 1, 1)) return false;
    }
    return true;
}

static bool generate(hadal_session *s, generation *g, const int32_t *prompt, int64_t n) {
    const hadal_generate_options *o = g->o;
    if (!api_library_start(&g->lib, o->packed, n + o->max_tokens, o->threads, o->cpu_level))
        return false;
    g->n_logits = api_logits_row(g->lib.info);
    g->logits = hd_new_array(s->arena, float, g->n_logits);
    sampler choice = api_sampler(s->arena, o, g->n_logits);
    if (!read_prompt(g, prompt, n)) return false;
    hd_progress(&s->diags, "writing", 0, 0);
    const double began = hd_seconds();
    const bool ok = write_tokens(g, &choice);
    g->out->seconds = hd_seconds() - began;
    return ok;
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
