/* The weight that is no tensor of a checkpoint: the numbers of tokens whose texts are alike, by which
 * n-gram tables are looked up (text/folded.h). It is made of the tokenizer.json beside the weights,
 * unless the weights have it. */
#include <string.h>

#include "api/session.h"
#include "text/folded.h"

static const char token_map[] = "engram.token_map";

static const hir_weight *find_map(const hir_module *m) {
    for (size_t i = 0; m && i < m->weights.n; i++)
        if (strcmp(m->weights.at[i].name, token_map) == 0) return &m->weights.at[i];
    return NULL;
}

bool api_has_token_map(const hadal_session *s) {
    return find_map(s->graph) != NULL;
}

/* Keeps the list sorted by name. */
static void insert(hd_arena *a, hd_tensors *all, hd_tensor t) {
    hd_push(a, &all->list, t);
    size_t i = all->list.n - 1;
    for (; i > 0 && strcmp(all->list.at[i - 1].name, t.name) > 0; i--)
        all->list.at[i] = all->list.at[i - 1];
    all->list.at[i] = t;
}

/* One number for each id, [ids, 1]; ids after the tokenizer's last have 0. */
static hd_tensor tensor_of(hd_arena *a, const text_folds *folds, int64_t ids, const char *file) {
    float *at = hd_alloc(a, ((size_t)ids + 1) * sizeof *at, sizeof *at);
    for (int64_t i = 0; i < ids; i++)
        at[i] = i < folds->ids ? (float)folds->of[i] : 0;
    hd_tensor t = {.name = token_map, .dtype = HD_T_F32, .rank = 2, .shape = {ids, 1}};
    t.data = (const uint8_t *)at, t.file = file;
    hd_tensor_measure(&t);
    return t;
}

bool api_add_token_map(hadal_session *s) {
    hd_arena *a = s->arena;
    const hir_weight *w = find_map(s->graph);
    if (!w || w->type.rank != 2 || hd_tensors_find(&s->weights, token_map)) return true;
    const char *path = s->weights_path;
    const char *folder = hd_is_directory(path) ? path : hd_path_dir(a, path);
    const char *file = hd_path_join(a, folder, "tokenizer.json");
    hd_diags silent;
    text_folds folds;
    hd_diags_init(&silent, a);
    if (!hd_exists(file) || !text_fold_tokens(a, &silent, folder, &folds)) {
        hd_diag *g = hd_err(&s->diags, HD_E_WEIGHTS, w->loc,
                            "weight '%s' is made of '%s', which cannot be read", token_map, file);
        g->cause = "n-gram tables are looked up by numbers that tokens of like texts share";
        g->hint = "put the tokenizer.json of the model beside its weights";
        return false;
    }
    insert(a, &s->weights, tensor_of(a, &folds, w->type.dim[0], file));
    return true;
}
