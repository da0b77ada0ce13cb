#include "api/train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/ranks.h"
#include "api/train/state.h"
#include "support/scratch.h"

static const char state_name[] = "trainer.state", model_name[] = "model.hir";

/* ---- files of the model ---------------------------------------------------------------------- */

static void add_file(train_checkpoints *c, const char *name, const void *at, size_t n) {
    const train_file file = {name, {at, n}};
    hd_push(c->s->arena, &c->files, file);
}

/* A file is read now, so that all checkpoints have the same. */
static bool add_one(train_checkpoints *c, const char *path, const char *name) {
    hd_bytes bytes;
    if (!hd_map_file(c->s->arena, &c->s->diags, path, &bytes)) return false;
    uint8_t *copy = hd_alloc(c->s->arena, bytes.n + 1, 1);
    memcpy(copy, bytes.at, bytes.n);
    add_file(c, name, copy, bytes.n);
    return true;
}

/* Files of a folder, as far as they are there. */
static bool add_files(train_checkpoints *c, const char *folder, const char *const *names,
                      size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *path = hd_path_join(c->s->arena, folder, names[i]);
        if (hd_exists(path) && !add_one(c, path, names[i])) return false;
    }
    return true;
}

/* A folder is copied where its config says all; else the graph is written. */
static bool add_model(train_checkpoints *c) {
    static const char *const names[] = {"config.json", "generation_config.json"};
    hadal_session *s = c->s;
    const char *config = hd_path_join(s->arena, s->spec, names[0]);
    if (hd_is_directory(s->spec) && hd_exists(config) && s->defines.n == 0)
        return add_files(c, s->spec, names, sizeof names / sizeof *names);
    hd_text text;
    hd_text_init(&text, s->arena);
    hir_print(s->graph, (hir_print_options){0}, &text);
    add_file(c, model_name, text.at, text.n);
    return true;
}

/* The tokenizer.json of bytes, each of which is its own id: those that are no letters are named by
 * others, as byte-level tokenizers have it. */
static void add_byte_tokenizer(train_checkpoints *c) {
    static const char begin[] =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], "
        "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
        "false, \"trim_offsets\": true, \"use_regex\": false}, \"post_processor\": null, "
        "\"decoder\": "
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": false}, \"model\": {\"type\": \"BPE\", \"vocab\": {";
    static const char settings[] = "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n";
    enum { BYTES = 256, OTHERS = 256 };
    hd_text text;
    uint32_t others = OTHERS;
    hd_text_init(&text, c->s->arena);
    hd_text_add(&text, begin);
    for (uint32_t i = 0; i < BYTES; i++) {
        const bool is_letter = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        char letter[5] = {0};
        (void)hd_utf8_put(is_letter ? i : others++, letter);
        if (i) hd_text_add(&text, ", ");
        hd_text_add_json(&text, letter);
        hd_text_f(&text, ": %u", i);
    }
    hd_text_add(&text, "}, \"merges\": []}}\n");
    add_file(c, "tokenizer.json", text.at, text.n);
    add_file(c, "tokenizer_config.json", settings, sizeof settings - 1);
}

/* A file that `path` names has the usual name in checkpoints; what lies beside it belongs to it. */
static bool add_tokenizer(train_checkpoints *c, const char *path) {
    static const char *const names[] = {"tokenizer.json", "tiktoken.model"};
    static const char *const others[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json", "chat_template.jinja"};
    const bool is_folder = hd_is_directory(path);
    const char *folder = is_folder ? path : hd_path_dir(c->s->arena, path);
    if (!add_files(c, folder, others, sizeof others / sizeof *others)) return false;
    if (is_folder) return add_files(c, path, names, sizeof names / sizeof *names);
    return add_one(c, path, names[!hd_ends_with(path, ".json")]);
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Of the shape that it has in the checkpoint, or in the model. What nothing reads, and whole numbers,
 * such as those of hashes, which no step changes, stay as they are stored. */
static void add_tensor(train_checkpoints *c, const hir_weight *w) {
    const api_parameter *p = api_trainer_find(c->t, w->name);
    const hd_tensor *stored = c->s->weights_open ? hd_tensors_find(&c->s->weights, w->name) : NULL;
    if (stored && (!p || stored->dtype < HD_T_F16)) hd_push(c->s->arena, &c->tensors, *stored);
    if (!p || (stored && stored->dtype < HD_T_F16)) return;
    hd_tensor t = {.name = w->name,
                   .dtype = HD_T_F32,
                   .rank = stored ? stored->rank : w->type.rank,
                   .data = (const uint8_t *)p->values};
    memcpy(t.shape, stored ? stored->shape : w->type.dim, t.rank * sizeof *t.shape);
    hd_push(c->s->arena, &c->tensors, t);
}

static void add_tensors(train_checkpoints *c) {
    const hir_weight_list all = hir_checkpoint_tensors(c->s->arena, c->s->graph);
    for (size_t i = 0; i < all.n; i++)
        add_tensor(c, &all.at[i]);
}

bool train_checkpoints_open(train_checkpoints *c, api_trainer *t, const train_folder *folder,
                            const char *tokenizer, bool bytes) {
    *c = (train_checkpoints){.s = t->s, .t = t, .folder = folder};
    if (!api_is_first_rank(t->s)) return true;
    add_tensors(c);
    if (!add_model(c)) return false;
    if (tokenizer) return add_tokenizer(c, tokenizer);
    if (bytes) add_byte_tokenizer(c);
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Reports what went wrong in an arena of its own. */
static bool pass_on(hadal_session *s, const hd_diags *d) {
    for (size_t i = 0; i < d->list.n; i++) {
        const hd_diag *from = &d->list.at[i];
        hd_diag *to = hd_err(&s->diags, from->code, HD_NOWHERE, "%s", from->message);
        to->cause = from->cause ? hd_strdup(s->arena, from->cause) : NULL;
        to->hint = from->hint ? hd_strdup(s->arena, from->hint) : NULL;
    }
    return false;
}

static bool out_of_memory(hadal_session *s) {
    hd_err(&s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory for a checkpoint");
    return false;
}

/* The bytes of the trainer, which the first rank has. */
static bool save_state(const train_checkpoints *c, hd_arena *a, hd_bytes *out) {
    const api_trainer *t = c->t;
    const size_t n = api_is_first_rank(c->s) ? t->trainer_save_size(t->at) : 0;
    uint8_t *state = n ? hd_alloc(a, n, 1) : NULL;
    *out = (hd_bytes){state, n};
    return api_trainer_ok(t, t->trainer_save(t->at, state, n), "saving the trainer");
}

static bool write_files(const train_checkpoints *c, hd_bytes state, hd_arena *a, hd_diags *d,
                        const char *folder) {
    for (size_t i = 0; i < c->files.n; i++) {
        const train_file *f = &c->files.at[i];
        if (!hd_write_file(a, d, hd_path_join(a, folder, f->name), f->bytes.at, f->bytes.n))
            return false;
    }
    return hd_safetensors_write(a, d, hd_path_join(a, folder, "model.safetensors"), c->tensors.at,
                                c->tensors.n) &&
           train_state_write(a, d, hd_path_join(a, folder, state_name), state);
}

static int sync_folder(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int error = hd_sync(fd);
    close(fd);
    return error;
}

/* Writes the folder beside, and gives it its name. */
static bool write_beside(const train_checkpoints *c, hd_bytes state, hd_arena *a, hd_diags *d,
                         int64_t step) {
    const char *target = train_checkpoint_path(a, c->folder, step);
    const hd_scratch *scratch = hd_scratch_open(a, d, target);
    if (!scratch) return false;
    const char *folder = hd_path_join(a, scratch->path, "checkpoint");
    int error = mkdir(folder, 0777) == 0 ? 0 : errno;
    if (!error && !write_files(c, state, a, d, folder)) return false;
    if (!error) error = sync_folder(folder);
    if (!error && rename(folder, target) != 0) error = errno;
    if (!error) error = sync_folder(c->folder->path);
    return !error || train_io_error(c->s, "write", target, error);
}

/* What a checkpoint needs of memory is given back after it. */
static bool write_checkpoint(const train_checkpoints *c, int64_t step) {
    hd_arena *a = hd_arena_new();
    jmp_buf here;
    hd_bytes state;
    hd_diags d;
    volatile bool ok = false;
    if (!a) return out_of_memory(c->s);
    hd_diags_init(&d, a);
    (void)hd_arena_guard(a, &here);
    if (setjmp(here))
        (void)out_of_memory(c->s);
    else
        ok = save_state(c, a, &state) &&
             (!api_is_first_rank(c->s) || write_beside(c, state, a, &d, step) || pass_on(c->s, &d));
    hd_arena_free(a);
    return ok;
}

bool train_checkpoint_write(train_checkpoints *c, int64_t step) {
    if (step == c->last) return true;
    if (!api_all_did(c->s, write_checkpoint(c, step))) return false;
    c->last = step;
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool train_checkpoint_read(train_checkpoints *c, int64_t step) {
    hd_bytes state = {0};
    const char *path = "the state of rank 0";
    bool did = true;
    if (api_is_first_rank(c->s)) {
        const char *folder = train_checkpoint_path(c->s->arena, c->folder, step);
        path = hd_path_join(c->s->arena, folder, state_name);
        did = train_state_read(c->s, path, c->t->trainer_save_size(c->t->at), &state);
    }
    if (!api_all_did(c->s, did)) return false;
    if (!api_trainer_ok(c->t, c->t->trainer_restore(c->t->at, state.at, state.n), path))
        return false;
    if (c->t->trainer_steps(c->t->at) != step)
        return train_bad_state(c->s, path, "it is the state after another step");
    c->last = step;
    return true;
}
