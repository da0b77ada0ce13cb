#include "api/machine_models.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/program/program.h"
#include "runtime/hadal_rt.h"

/* The names of the matrices begin with their type. */
static const char spec[] =
    "use \"layers\"\n"
    "fn feed(x, type, ff) {\n"
    "    at \"norms.{type}\" { y = rmsnorm(x, \"norm\") }\n"
    "    at \"{type}\" { return x + linear(silu(linear(y, \"up\", ff)), \"down\", dim(x, -1)) }\n"
    "}\n"
    "model kernels(hidden = 1024, ff = 3072, plain = true, attends = true) {\n"
    "    x = embed(\"embed\", 512, hidden)\n"
    "    if attends { x = x + attention(rmsnorm(x, \"n\"), hidden / 128, hidden / 128, head_dim: "
    "128, theta: 10000.0) }\n"
    "    if plain {\n"
    "        x = feed(x, \"f32\", ff)\n"
    "        x = feed(x, \"f16\", ff)\n"
    "    }\n"
    "    for t in [\"bf16\", \"q8\", \"q4\", \"mxfp4\"] { x = feed(x, t, ff) }\n"
    "    output logits = head(rmsnorm(x, \"norm\"), 512)\n"
    "}\n";
#define ROUNDABLE "bf16.*=bf16,q8.*=q8,q4.*=q4,mxfp4.*=mxfp4"

static const struct {
    const char *name, *hidden, *ff, *plain, *attends, *activations;
} models[MACHINE_MODELS] = {
#define MODEL(id, name, hidden, ff, plain, attends, activations)                                   \
    {name, hidden, ff, plain, attends, activations},
#include "api/machine_models.def"
#undef MODEL
};

/* ---- weights --------------------------------------------------------------------------------- */

/* Fills memory with words that are neither tiny nor infinite numbers, whatever type they are read
 * as: as floats 2^-7 to 2^-3 and as f16 1 to 1.5, of either sign. Scales of mxfp4 are bytes, 2^-5
 * to 1. */
static void fill(uint8_t *to, size_t n, hir_dtype dtype) {
    const bool bytes = dtype == HIR_MXFP4;
    const uint32_t base = bytes ? 0x7a7a7a7a : 0x3c003c00, noise = bytes ? 0x05050505 : 0x81ff81ff;
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const uint32_t word = base ^ ((uint32_t)(state >> 32) & noise);
        memcpy(to + i * sizeof word, &word, sizeof word);
    }
}

static hrt_weights_header header_of(const hcg_program *p) {
    hrt_weights_header h = {
        .version = HRT_VERSION, .data_offset = HRT_WEIGHTS_DATA, .data_bytes = p->weights_bytes};
    memcpy(h.magic, HRT_WEIGHTS_MAGIC, sizeof h.magic);
    memcpy(h.digest, p->digest, sizeof h.digest);
    return h;
}

/* Fills the whole file by writing it, as packed weights are: through a map it would get its memory
 * in single pages. */
static bool fill_all(const hcg_program *p, uint8_t *file) {
    const hrt_weights_header h = header_of(p);
    memcpy(file, &h, sizeof h);
    for (size_t i = 0; i < p->m->weights.n; i++) {
        const hir_weight *w = &p->m->weights.at[i];
        uint64_t bytes = 0;
        if (p->weight_offsets.at[i] == HCG_UNREAD) continue;
        if (!hir_weight_bytes(w, &bytes)) return false;
        fill(file + HRT_WEIGHTS_DATA + p->weight_offsets.at[i], bytes / sizeof(uint32_t),
             w->type.dtype);
    }
    return true;
}

/* Writes a weights file of random numbers directly: packing a checkpoint would take as long as all
 * that is measured. */
static bool write_noise(machine_model *m, const char *path) {
    const size_t size = HRT_WEIGHTS_DATA + m->program->weights_bytes;
    uint8_t *file = calloc(1, size);
    const bool ok = file && fill_all(m->program, file) &&
                    hd_write_file(m->s->arena, &m->s->diags, path, file, size);
    free(file);
    return ok;
}

/* ---- compiling ------------------------------------------------------------------------------- */

static bool compile(machine_model *m, machine_model_id id, const char *cpu, const char *text,
                    const char *library) {
    hadal_session *s = m->s;
    const bool plain = strcmp(models[id].plain, "true") == 0;
    const hadal_pipeline passes = {.struct_size = sizeof passes,
                                   .weights_dtype =
                                       plain ? "f32,f16.*=f16," ROUNDABLE : "f32," ROUNDABLE};
    const hadal_target target = {
        .struct_size = sizeof target, .cpu = cpu, .activations = models[id].activations};
    if (hadal_write_text(s, text, spec) || hadal_define(s, "hidden", models[id].hidden) ||
        hadal_define(s, "ff", models[id].ff) || hadal_define(s, "plain", models[id].plain) ||
        hadal_define(s, "attends", models[id].attends) || hadal_load(s, text, models[id].name) ||
        hadal_run_passes(s, &passes) || hadal_emit(s, &target, "so", library))
        return false;
    m->program = s->program;
    m->rounds_int8 = !(m->program->options.exact & HCG_ROUND_INT8);
    m->rounds_bf16 = !(m->program->options.exact & HCG_ROUND_BF16);
    return true;
}

static bool open_library(machine_model *m, machine_model_id id, const char *library,
                         const char *weights, int threads) {
    return api_library_open(&m->library, m->s, library, models[id].name) &&
           api_library_start(&m->library, weights, MACHINE_TOKENS, threads, NULL);
}

/* Compiles and opens a model. What is open stays so when its file is removed. The dynamic loader
 * identifies libraries by their paths, so each needs its own. */
static bool make(machine_model *m, machine_model_id id, const char *cpu, const char *folder,
                 int threads) {
    hd_arena *a = m->s->arena;
    const char *text = hd_path_join(a, folder, "kernels.hadal");
    const char *library = hd_path_join(a, folder, hd_printf(a, "lib%s.so", models[id].name));
    const char *weights = hd_path_join(a, folder, "kernels.weights");
    const bool ok = compile(m, id, cpu, text, library) && write_noise(m, weights) &&
                    open_library(m, id, library, weights, threads);
    (void)unlink(text), (void)unlink(library), (void)unlink(weights);
    return ok && m->library.info->n_steps == m->program->steps.n;
}

bool machine_model_open(machine_model *m, machine_model_id id, const char *cpu, const char *folder,
                        int threads) {
    *m = (machine_model){.s = hadal_open()};
    if (!m->s) return false;
    jmp_buf here, *const outer = hd_arena_guard(m->s->arena, &here);
    if (setjmp(here)) {
        m->s->out_of_memory = true;
        return false;
    }
    const bool ok = make(m, id, cpu, folder, threads);
    hd_arena_guard(m->s->arena, outer);
    return ok;
}

void machine_model_close(machine_model *m) {
    api_library_close(&m->library);
    hadal_close(m->s);
    *m = (machine_model){0};
}

const char *machine_model_failure(const machine_model *m, hd_arena *a) {
    for (size_t i = 0; m->s && i < m->s->diags.list.n; i++) {
        const hd_diag *d = &m->s->diags.list.at[i];
        if (d->severity == HD_ERROR)
            return hd_printf(a, "%s%s%s", d->message, d->cause ? ": " : "",
                             d->cause ? d->cause : "");
    }
    return m->s && !m->s->out_of_memory ? "a library has other steps than its program"
                                        : "out of memory";
}
