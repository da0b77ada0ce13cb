/* A run of training (docs/training.md): hadal_train.
 *
 * What a step does depends on its number, the options and the parameters alone, so a run that goes on
 * from a checkpoint takes the steps that it would have taken. The log is cut back to the checkpoint.
 *
 * Ranks that train together (hadal_use_ranks) make the same calls, each with its share of the windows of
 * a batch. The first of them has the folder, and tells the others what is in it. What each does by
 * itself, and may fail at, ends with api_all_did, so that none waits for another that has given up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "api/ranks.h"
#include "api/taps.h"
#include "api/train/checkpoint.h"
#include "api/train/data.h"
#include "api/train/depth.h"
#include "api/train/log.h"
#include "api/train/profile.h"
#include "api/train/record.h"
#include "api/train/schedule.h"
#include "api/train/work.h"
#include "codegen/module/module.h"
#include "codegen/program/build_id.h"
#include "inspect/format.h"
#include "runtime/detect.h"
#include "support/clock.h"
#include "support/scratch.h"

#define API_FAILED 1

typedef struct run {
    hadal_session *s;
    const hadal_train_options *o;
    hadal_trained *out;
    train_folder folder;
    train_record record;
    train_schedule schedule;
    train_data data, eval_data; /* of evaluations there may be none */
    train_documents documents;
    train_order order;
    train_batch batch, eval_batch;
    api_trainer *t;
    train_checkpoints checkpoints;
    train_depth depth; /* of the first rank */
    train_profile profile;
    train_batch depth_batch;
    train_log log;
    train_work work; /* of the first rank */
    double began;
    int32_t rank, ranks; /* of this process, which has the folder if it is the first */
    int64_t windows;     /* of each rank in a batch */
} run;

/* ---- options --------------------------------------------------------------------------------- */

static bool bad_option(hadal_session *s, const char *what, const char *hint) {
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s", what)->hint = hint;
    return false;
}

static bool check_options(run *r) {
    const hadal_train_options *o = r->o;
    hadal_session *s = r->s;
    r->schedule = (train_schedule){.lr = o->learning_rate, .steps = o->steps, .warmup = o->warmup};
    if (!o->run) return bad_option(s, "a run has no folder", "-o RUN");
    if (o->context < 1 || o->batch < 1 || o->steps < 1)
        return bad_option(s, "context, batch and steps are at least 1", NULL);
    if (o->warmup < 0 || o->eval_every < 0 || o->save_every < 0 || o->depth_every < 0 ||
        o->keep < 0)
        return bad_option(s, "a number of steps or checkpoints is below 0", NULL);
    if (o->profile && r->ranks > 1)
        return bad_option(s, "a profile is of one process", "leave out --profile");
    if (!(o->learning_rate >= 0) || !(o->weight_decay >= 0) || !(o->clip >= 0))
        return bad_option(s, "learning rate, weight decay and clip are not below 0", NULL);
    if (o->batch % r->ranks)
        return bad_option(s,
                          hd_printf(s->arena,
                                    "a batch of %lld windows cannot be divided by %d ranks",
                                    (long long)o->batch, (int)r->ranks),
                          "--batch is a multiple of the number of processes");
    r->windows = o->batch / r->ranks;
    if (!o->schedule || !train_schedule_named(o->schedule, &r->schedule.kind))
        return bad_option(
            s, hd_printf(s->arena, "there is no schedule \"%s\"", o->schedule ? o->schedule : ""),
            "cosine, wsd or constant");
    if (!api_need_kernels(s)) return false;
    if (hir_has_gradients(s->m)) return true;
    return bad_option(s, "the model was compiled without its gradients",
                      "hadal_run_passes has an option for them");
}

/* ---- what a run depends on ------------------------------------------------------------------- */

static const char *digest_of_model(hadal_session *s) {
    hd_text text;
    hir_module m = *s->graph;
    m.name = "model";
    hd_text_init(&text, s->arena);
    hir_print(&m, (hir_print_options){0}, &text);
    const XXH128_hash_t hash = XXH3_128bits(text.at, text.n);
    return hd_printf(s->arena, "%016llx%016llx", (unsigned long long)hash.high64,
                     (unsigned long long)hash.low64);
}

static const char *digest_of_data(hadal_session *s, const train_data *d) {
    char *digest = hd_alloc(s->arena, TRAIN_DIGEST, 1);
    if (!d->n_files) return NULL;
    train_data_digest(d, digest);
    return digest;
}

/* A level by its name, and not this machine: others that have the level compute the same bits. */
static const char *best_level(hadal_session *s) {
    const hcg_options native = {.cpu = "native"};
    const hrt_cpuid *cpuid = hrt_cpuid_here();
    hcg_target t;
    if (!hcg_find_target(&native, s->arena, &s->diags, &t)) return NULL;
    const hcg_level *level =
        hcg_best_level(t.arch, hrt_permitted(cpuid, hrt_detect(cpuid).features));
    return level ? level->name : "native";
}

/* A folder may have none; those that are named are missed. */
static bool has_weights(hadal_session *s) {
    return s->weights_given || (s->weights_path && hd_safetensors_exist(s->arena, s->weights_path));
}

static const char *documents_text(hadal_session *s, const hadal_train_options *o) {
    if (!o->separate_documents) return NULL;
    if (o->document_end < 0) return "files";
    return hd_printf(s->arena, "files, and after token %d", o->document_end);
}

static bool make_record(run *r) {
    const hadal_train_options *o = r->o;
    hadal_session *s = r->s;
    r->record = (train_record){
        .hadal = hadal_version(),
        .spec = s->spec,
        .model = digest_of_model(s),
        .weights = has_weights(s) ? "a checkpoint" : "drawn",
        .cpu_level = o->cpu_level ? o->cpu_level : best_level(s),
        .data = digest_of_data(s, &r->data),
        .tokens = r->data.tokens,
        .eval_data = digest_of_data(s, &r->eval_data),
        .documents = documents_text(s, o),
        .context = o->context,
        .batch = o->batch,
        .ranks = r->ranks,
        .steps = o->steps,
        .optimizer = o->optimizer ? o->optimizer : "adamw",
        .memory = s->pass_options.memory,
        .matmul = hir_dtype_name(s->pass_options.matmul_dtype),
        .lr = o->learning_rate,
        .schedule = o->schedule,
        .warmup = o->warmup,
        .weight_decay = o->weight_decay,
        .clip = o->clip,
        .seed = o->seed,
        .eval_every = o->eval_every,
        .depth_every = o->depth_every,
        .save_every = o->save_every,
        .keep = o->keep,
    };
    return r->record.cpu_level != NULL;
}

static bool open_data(run *r) {
    const hadal_train_options *o = r->o;
    int64_t vocab;
    if (!api_vocabulary(r->s, &vocab) ||
        !train_data_open(r->s, o->data, o->n_data, vocab, o->context + 1, "--data", &r->data))
        return false;
    if (o->n_eval_data && !train_data_open(r->s, o->eval_data, o->n_eval_data, vocab, 2,
                                           "--eval-data", &r->eval_data))
        return false;
    r->documents = (train_documents){o->separate_documents != 0, o->document_end};
    r->order = train_order_of((uint64_t)o->seed, r->data.tokens, o->context);
    return true;
}

/* ---- the run that there is ------------------------------------------------------------------- */

/* With the steps, the rates of those that are left change. */
static void note_longer(run *r, const train_record *begun, int64_t last) {
    if (begun->steps == r->record.steps || r->schedule.kind == TRAIN_CONSTANT || last == 0) return;
    const train_schedule old = {r->schedule.kind, begun->lr, begun->steps, begun->warmup};
    hd_note(
        &r->s->diags, HD_NOWHERE,
        "the run was begun for %lld steps and goes on to %lld: the learning rate was %g at step "
        "%lld, and is %g at the next one",
        (long long)begun->steps, (long long)r->record.steps, train_rate(&old, last),
        (long long)last, train_rate(&r->schedule, last + 1));
}

/* Finds where the run stands: out->begun. */
static bool find_folder(run *r) {
    train_record begun;
    hadal_session *s = r->s;
    if (!train_folder_open(&r->folder, s, r->o->run)) return false;
    if (!r->folder.has_run) return true;
    if (!train_record_read(s, r->folder.record, &begun) ||
        !train_record_may_go_on(s, r->folder.path, &begun, &r->record))
        return false;
    const int64_t last = train_last_checkpoint(&r->folder);
    if (last < 0) return false;
    r->out->begun = r->out->step = last;
    r->out->finished = last >= r->o->steps;
    if (last) r->out->checkpoint = train_checkpoint_path(s->arena, &r->folder, last);
    if (!r->out->finished) note_longer(r, &begun, last);
    return true;
}

/* What ranks tell each other before a run: the first one where it stands, and all what they were
 * started with. */
typedef struct introduction {
    int64_t begun;
    uint64_t digest[2]; /* of run.json, but for the level */
    char level[32];
} introduction;

static introduction introduction_of(const run *r) {
    introduction mine;
    train_record record = r->record;
    size_t n;
    memset(&mine, 0, sizeof mine);
    record.cpu_level = NULL;
    const char *text = train_record_text(r->s->arena, &record, &n);
    const XXH128_hash_t hash = XXH3_128bits(text, n);
    mine.begun = r->out->begun;
    mine.digest[0] = hash.low64, mine.digest[1] = hash.high64;
    snprintf(mine.level, sizeof mine.level, "%s", r->record.cpu_level);
    return mine;
}

static bool is_alike(const run *r, const introduction *all, int32_t rank) {
    hd_diag *e;
    if (memcmp(all[rank].digest, all->digest, sizeof all->digest) != 0) {
        e = hd_err(&r->s->diags, HD_E_USAGE, HD_NOWHERE,
                   "rank %d was started with another model, other data or options than rank 0",
                   (int)rank);
        e->hint = "all processes read the same files: mpirun -n RANKS hadal train ..";
        return false;
    }
    if (strcmp(all[rank].level, all->level) == 0) return true;
    e = hd_err(&r->s->diags, HD_E_USAGE, HD_NOWHERE,
               "the best CPU level of rank %d is %s, and that of rank 0 %s", (int)rank,
               all[rank].level, all->level);
    e->hint = "--cpu-level names a level that all of them have";
    return false;
}

static bool find_run(run *r, bool did) {
    if (did && r->rank == 0) did = find_folder(r);
    if (!api_all_did(r->s, did)) return false;
    introduction all[HADAL_COMM_MAX_RANKS];
    const introduction mine = introduction_of(r);
    if (!api_gather_training(r->s, &mine, all, sizeof mine)) return false;
    for (int32_t i = 1; i < r->ranks; i++)
        if (!is_alike(r, all, i)) return false;
    r->out->begun = r->out->step = all->begun;
    r->out->finished = all->begun >= r->o->steps;
    return true;
}

/* ---- the trainer ----------------------------------------------------------------------------- */

/* Other ranks may be on machines that do not have the folder of the run. */
static const char *place_of_library(const run *r) {
    const char *tmp = getenv("TMPDIR");
    if (r->rank == 0) return r->folder.record;
    return hd_path_join(r->s->arena, tmp && *tmp ? tmp : "/tmp", "hadal");
}

static hadal_target target_of(const run *r) {
    return (hadal_target){
        .struct_size = sizeof(hadal_target), .cc = r->o->cc, .cpu = r->record.cpu_level};
}

/* Where a library is made: the name of the file is that of its functions. */
static const char *library_in(const run *r, const hd_scratch *scratch) {
    hd_arena *a = r->s->arena;
    return hd_path_join(a, scratch->path, hd_printf(a, "lib%s.so", r->s->m->name));
}

/* The magnitudes by depth have a library of their own, and a trainer, which no other rank has. */
static bool make_depth(run *r) {
    hadal_session *s = r->s;
    const hadal_target target = target_of(r);
    hd_scratch *scratch = hd_scratch_open(s->arena, &s->diags, place_of_library(r));
    if (!scratch) return false;
    hd_progress(&s->diags, "compiling for the magnitudes by depth", 0, 0);
    const bool ok = train_depth_open(&r->depth, s, &target, library_in(r, scratch), r->o->context,
                                     r->o->threads);
    hd_scratch_remove(scratch);
    if (ok) r->depth_batch = train_batch_new(s->arena, r->o->batch, r->o->context);
    return ok;
}

static bool make_library(run *r, const char *library) {
    hadal_session *s = r->s;
    const hadal_target target = target_of(r);
    r->t = hd_new(s->arena, api_trainer);
    hd_progress(&s->diags, "compiling", 0, 0);
    if (library && hadal_emit(s, &target, "so", library) != 0) library = NULL;
    if (!api_trainer_open(r->t, s, library, r->o->context, r->o->threads, r->record.cpu_level))
        return false;
    r->record.build = hcg_build_id(s->program);
    for (size_t i = 0; i < r->t->n; i++)
        r->out->parameters += (int64_t)r->t->parameters[i].elements;
    return true;
}

/* Compiles the model beside the run. The files go once they are loaded; both at the end, since the
 * loader would take a second file of the same name for the first. */
static bool make_trainer(run *r) {
    hadal_session *s = r->s;
    const bool by_depth = r->o->depth_every && r->rank == 0;
    hd_scratch *scratch = hd_scratch_open(s->arena, &s->diags, place_of_library(r));
    const bool ok = make_library(r, scratch ? library_in(r, scratch) : NULL) &&
                    api_all_did(s, !by_depth || make_depth(r));
    if (scratch) hd_scratch_remove(scratch);
    return ok;
}

static void draw_parameters(run *r) {
    hadal_session *s = r->s;
    const hir_weight_list all = hir_checkpoint_tensors(s->arena, s->graph);
    for (size_t i = 0; i < all.n; i++) {
        const api_parameter *p = api_trainer_find(r->t, all.at[i].name);
        if (p) hcg_begin_weight(&all.at[i], (uint64_t)r->o->seed, p->values);
    }
}

static bool begin_parameters(run *r) {
    hadal_session *s = r->s;
    if (r->out->begun) return true; /* those of the checkpoint */
    if (has_weights(s))
        return api_need_weights(s) && hcg_check_weights(s->graph, &s->diags, &s->weights) &&
               api_trainer_load(r->t);
    if (api_has_token_map(s))
        return bad_option(s, "n-gram tables are looked up by a map that cannot be drawn",
                          "--weights names a checkpoint to begin from");
    draw_parameters(r);
    return true;
}

/* Are the tokens of the data bytes of texts? */
static bool is_of_bytes(const train_data *d) {
    for (size_t i = 0; i < d->n_files; i++)
        if (!d->files[i]->text) return false;
    return true;
}

/* How a step changes each parameter, for whoever wants to know. */
static bool write_updates(const run *r) {
    hadal_session *s = r->s;
    hd_text text;
    hd_text_init(&text, s->arena);
    for (size_t i = 0; i < r->t->n; i++) {
        const api_parameter *p = &r->t->parameters[i];
        hd_text_add(&text, i ? ",\n  {\"name\": " : "[\n  {\"name\": ");
        hd_text_add_json(&text, p->name);
        hd_text_f(&text, ", \"elements\": %zu, \"update\": ", p->elements);
        hd_text_add_json(&text, p->update);
        hd_text_add(&text, "}");
    }
    hd_text_add(&text, "\n]\n");
    return hd_write_file(s->arena, &s->diags,
                         hd_path_join(s->arena, r->folder.path, "updates.json"), text.at, text.n);
}

/* How many tensors each rule changes: the list itself is in updates.json. */
static void tell_updates(const run *r) {
    hadal_session *s = r->s;
    size_t tensors[2] = {0}, numbers[2] = {0}, plain = 0;
    for (size_t i = 0; i < r->t->n; i++) {
        const api_parameter *p = &r->t->parameters[i];
        const bool muon = hd_begins_with(p->update, "muon");
        tensors[muon]++;
        numbers[muon] += p->elements;
        plain += !muon && strstr(p->update, "no decay");
    }
    const char *muon = "";
    if (tensors[1])
        muon = hd_printf(s->arena, "Muon changes %zu tensors (%zu parameters), ", tensors[1],
                         numbers[1]);
    hd_note(&s->diags, HD_NOWHERE,
            "%sAdamW %s%zu tensors (%zu parameters), %zu of them without decay: '%s' lists them",
            muon, tensors[1] ? "" : "changes ", tensors[0], numbers[0], plain,
            hd_path_join(s->arena, r->folder.path, "updates.json"));
}

static bool describe_depth(const run *r) {
    return train_depth_describe(&r->depth, r->s,
                                hd_path_join(r->s->arena, r->folder.path, "depth.json"));
}

/* The files of a run that begins or goes on. */
static bool open_files(run *r) {
    if (r->rank > 0) return true;
    if (!train_record_write(r->s, r->folder.record, &r->record)) return false;
    if (!r->folder.has_run) tell_updates(r);
    r->folder.has_run = true;
    return write_updates(r) && (!r->o->depth_every || describe_depth(r)) &&
           train_log_open(&r->log, r->s, r->folder.log, r->out->begun);
}

/* A batch lies in memory as a whole, however its windows go through the trainer. */
static bool batch_fits(const run *r) {
    hadal_session *s = r->s;
    const uint64_t memory = api_memory(),
                   taken = r->t->bytes + (r->depth.t ? r->depth.t->bytes : 0);
    uint64_t window =
        train_batch_bytes(1, r->o->context); /* of each copy that there is of a batch */
    if (r->o->n_eval_data) window *= 2;
    if (r->depth.t) window += (uint64_t)r->ranks * train_batch_bytes(1, r->o->context);
    const uint64_t left = memory > taken ? memory - taken : 0,
                   bytes = hd_capped_mul(window, (uint64_t)r->windows);
    if (bytes <= left) return true;
    hd_diag *e = hd_err(&s->diags, HD_E_LIMIT, HD_NOWHERE,
                        "batches of %lld windows of %lld tokens take %s, more than the memory of "
                        "this machine beside the trainer, %s",
                        (long long)r->o->batch, (long long)r->o->context,
                        inspect_bytes(s->arena, bytes), inspect_bytes(s->arena, left));
    const int64_t most = (int64_t)(left / window) * r->ranks;
    e->hint = most ? hd_printf(s->arena, "--batch %lld would fit", (long long)most)
                   : "not one window fits: give a smaller --context";
    return false;
}

static bool start(run *r) {
    hadal_session *s = r->s;
    const hadal_train_options *o = r->o;
    if (!make_trainer(r) || !api_all_did(s, batch_fits(r))) return false;
    const bool did = train_checkpoints_open(&r->checkpoints, r->t, &r->folder, o->tokenizer,
                                            is_of_bytes(&r->data)) &&
                     begin_parameters(r);
    if (!api_all_did(s, did)) return false;
    if (r->out->begun && !train_checkpoint_read(&r->checkpoints, r->out->begun)) return false;
    r->batch = train_batch_new(s->arena, r->windows, o->context);
    if (o->n_eval_data) r->eval_batch = train_batch_new(s->arena, r->windows, o->context);
    return api_all_did(s, open_files(r));
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The state before the step stays, and the first tensor is named whose gradient is not finite. Ranks
 * that have lost one cannot save anything. */
static bool give_up(run *r, int64_t step, int code) {
    const api_trainer *t = r->t;
    hadal_session *s = r->s;
    const char *first = NULL;
    if (r->ranks > 1 && code != HRT_FINITE) return false;
    for (size_t i = 0; i < t->n && !first; i++)
        for (size_t k = 0; k < t->parameters[i].elements && !first; k++)
            if (!isfinite(t->parameters[i].gradient[k])) first = t->parameters[i].name;
    if (first)
        hd_note(&s->diags, HD_NOWHERE,
                "'%s' is the first tensor whose gradient of step %lld is not finite", first,
                (long long)step);
    if (t->trainer_clear(t->at) == 0 && step > 1 &&
        train_checkpoint_write(&r->checkpoints, step - 1) && r->rank == 0)
        hd_note(&s->diags, HD_NOWHERE,
                "'%s' is the state before the step: another run, with a smaller learning rate, can "
                "begin from it (--weights)",
                train_checkpoint_path(s->arena, &r->folder, step - 1));
    return false;
}

static int take_gradients(run *r, int64_t step, double *loss) {
    train_batch *b = &r->batch;
    double sum = 0;
    int64_t count = 0;
    train_batch_clear(b);
    for (int64_t i = 0; i < r->windows; i++) {
        const int64_t number = (step - 1) * r->o->batch + r->rank * r->windows + i;
        train_batch_add(b, &r->data, &r->documents, train_window(&r->order, number), r->o->context);
    }
    const int code =
        r->t->gradients(r->t->at, b->tokens, b->targets, b->lengths, b->sequences, &sum, &count);
    *loss = count ? sum / (double)count : 0;
    r->out->tokens += b->n_tokens * r->ranks;
    (void)api_trainer_ok(r->t, code, "the gradients");
    return code;
}

static api_step_options options_of_step(const run *r, int64_t step) {
    api_step_options o = {
        .step = step,
#define O(name, value, least, most, meaning) .name = (value),
#include "runtime/step_options.def"
#undef O
    };
    o.learning_rate = (double)(float)train_rate(&r->schedule, step);
    o.weight_decay = r->o->weight_decay;
    o.clip = r->o->clip > 0 ? r->o->clip : HUGE_VAL;
    return o;
}

static bool take_step(run *r, int64_t step, hadal_train_event *e) {
    const double start = hd_seconds();
    float norm = 0;
    const api_step_options o = options_of_step(r, step);
    train_profile_turn(&r->profile, r->t, true);
    int code = take_gradients(r, step, &e->loss);
    if (code == 0) {
        code = r->t->trainer_step(r->t->at, &o, &norm);
        (void)api_trainer_ok(r->t, code, "the step");
    }
    const double seconds = hd_seconds() - start;
    if (code) return give_up(r, step, code);
    train_profile_turn(&r->profile, r->t, false);
    train_profile_add(&r->profile, r->batch.lengths, r->batch.sequences, seconds);
    if (r->rank == 0) train_work_add(&r->work, r->batch.lengths, r->batch.sequences, seconds);
    r->out->step = step;
    r->out->loss = e->loss;
    e->learning_rate = o.learning_rate, e->norm = (double)norm;
    return true;
}

/* ---- evaluations ----------------------------------------------------------------------------- */

typedef struct losses {
    double sum;
    int64_t count;
} losses;

static bool add_losses(run *r, losses *all) {
    train_batch *b = &r->eval_batch;
    losses part = {0};
    const int code = r->t->trainer_loss(r->t->at, b->tokens, b->targets, b->lengths, b->sequences,
                                        &part.sum, &part.count);
    all->sum += part.sum, all->count += part.count;
    train_batch_clear(b);
    return api_trainer_ok(r->t, code, "the evaluation");
}

/* A window of context + 1 tokens that begins at token `at`, or what is left from there. */
static void add_window(const run *r, train_batch *b, const train_data *d, int64_t at) {
    const int64_t left = d->tokens - 1 - at;
    train_batch_add(b, d, &r->documents, at, left < r->o->context ? left : r->o->context);
}

/* All of the data, in windows that do not overlap, as hadal eval has them. */
static bool evaluate(run *r, int64_t step, hadal_train_event *e) {
    const int64_t context = r->o->context, tokens = r->eval_data.tokens;
    losses all = {0};
    int64_t windows = 0;
    train_batch_clear(&r->eval_batch);
    for (int64_t at = 0; at + 1 < tokens; at += context + 1) {
        hd_progress(&r->s->diags, "evaluating", (uint64_t)at, (uint64_t)tokens);
        if (windows++ % r->o->batch / r->windows == r->rank)
            add_window(r, &r->eval_batch, &r->eval_data, at);
        if (windows % r->o->batch == 0 && !add_losses(r, &all)) return false;
    }
    if (windows % r->o->batch && !add_losses(r, &all)) return false;
    e->evaluated = r->out->evaluated = 1;
    e->eval_loss = r->out->eval_loss = all.count ? all.sum / (double)all.count : 0;
    return api_all_did(r->s, r->rank > 0 || train_log_evaluation(&r->log, step, e->eval_loss));
}

/* By the first windows of an evaluation, or, without one, of the data: always the same, so that what
 * changes is the model. */
static bool look_by_depth(run *r, int64_t step) {
    const train_data *d = r->eval_data.n_files ? &r->eval_data : &r->data;
    train_batch *b = &r->depth_batch;
    train_batch_clear(b);
    for (int64_t i = 0, at = 0; i < r->o->batch && at + 1 < d->tokens; i++) {
        add_window(r, b, d, at);
        at += r->o->context + 1;
    }
    const char *members = train_depth_measure(&r->depth, r->t, b);
    return members && train_log_depth(&r->log, step, members);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool is_due(int64_t every, int64_t step) {
    return every && step % every == 0;
}

/* The log is on the disk before a checkpoint that goes on from it. */
static bool save(run *r, int64_t step, hadal_train_event *e) {
    if (!api_all_did(r->s, r->rank > 0 || train_log_sync(&r->log)) ||
        !train_checkpoint_write(&r->checkpoints, step))
        return false;
    if (r->rank > 0) return true;
    train_remove_old(&r->folder, r->o->keep);
    e->checkpoint = train_checkpoint_path(r->s->arena, &r->folder, step);
    r->out->checkpoint = e->checkpoint;
    return true;
}

static void tell(const run *r, hadal_train_event *e) {
    e->tokens = r->out->tokens;
    e->multiply_add = train_work_share(&r->work);
    e->seconds = r->out->seconds = hd_seconds() - r->began;
    e->seconds_left = e->seconds / (double)(e->step - r->out->begun) * (double)(e->steps - e->step);
    if (r->o->event && r->rank == 0) r->o->event(r->o->context_of_calls, e);
}

/* Writes the line of a step. *stops: a rank was asked to end after it. */
static bool end_step(run *r, const hadal_train_event *e, bool *stops) {
    const hadal_train_options *o = r->o;
    enum { STOPS = 1, FAILS = 2 };
    uint8_t all[HADAL_COMM_MAX_RANKS], mine = 0, any = 0;
    if (r->rank == 0 && !train_log_step(&r->log, e->step, e->loss, e->learning_rate, e->norm))
        mine |= FAILS;
    if (o->interrupted && o->interrupted(o->context_of_calls)) mine |= STOPS;
    if (!api_gather_training(r->s, &mine, all, sizeof mine)) return false;
    for (int32_t i = 0; i < r->ranks; i++)
        any |= all[i];
    *stops = any & STOPS;
    return !(any & FAILS);
}

static bool loop(run *r) {
    const hadal_train_options *o = r->o;
    for (int64_t step = r->out->begun + 1; step <= o->steps; step++) {
        hadal_train_event e = {.step = step, .steps = o->steps};
        bool stops;
        if (!take_step(r, step, &e) || !end_step(r, &e, &stops)) return false;
        const bool last = step == o->steps;
        if (r->eval_data.n_files && (last || is_due(o->eval_every, step)) && !evaluate(r, step, &e))
            return false;
        const bool by_depth = o->depth_every && (last || is_due(o->depth_every, step));
        if (by_depth && !api_all_did(r->s, r->rank > 0 || look_by_depth(r, step))) return false;
        if ((last || stops || is_due(o->save_every, step)) && !save(r, step, &e)) return false;
        tell(r, &e);
        if (!stops || last) continue;
        r->out->interrupted = 1;
        return true;
    }
    return true;
}

static bool train(run *r) {
    r->out->steps = r->o->steps;
    if (!find_run(r, check_options(r) && open_data(r) && make_record(r))) return false;
    r->out->data_tokens = r->data.tokens;
    if (r->out->finished) {
        if (r->o->profile && r->rank == 0)
            hd_note(&r->s->diags, HD_NOWHERE, "there is no profile: no step was left to do");
        return true;
    }
    if (!start(r)) return false;
    if (r->rank == 0)
        train_work_begin(&r->work, r->s->arena, r->s->program, r->o->context, r->o->threads,
                         r->record.cpu_level);
    if (r->o->profile && !train_profile_open(&r->profile, r->t, r->o->context, r->o->threads))
        return false;
    r->began = hd_seconds();
    const bool ok = loop(r);
    train_profile_close(&r->profile, r->s->program);
    return ok;
}

static void close_run(void *what) {
    run *r = what;
    train_log_close(&r->log);
    train_depth_close(&r->depth);
    if (r->t) api_trainer_close(r->t);
    train_folder_close(&r->folder);
}

int hadal_train(hadal_session *s, const hadal_train_options *o, hadal_trained *out) {
    API_ENTER(s);
    API_TAKE(hadal_train_options, all, o);
    run *r = hd_new(s->arena, run);
    *out = (hadal_trained){0};
    *r = (run){.s = s,
               .o = &all,
               .out = out,
               .log = {.fd = -1},
               .folder = {.fd = -1, .lock = -1},
               .rank = api_training_rank(s),
               .ranks = api_training_ranks(s)};
    hd_arena_defer(s->arena, close_run, r);
    const bool ok = train(r);
    close_run(r);
    API_LEAVE(s, ok);
}
