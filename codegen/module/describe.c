/* What a library reports about itself: the values of its hrt_model and hadal_info, which
 * constants.c writes, and its public functions. These are thin: they add the model's address to the
 * arguments of the runtime's functions. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/module/module.h"
#include "codegen/program/build_id.h"

typedef struct writer {
    hcg_program *p;
    const hcg_target *t;
    LLVMContextRef cx;
    LLVMModuleRef mod;
    LLVMBuilderRef b;
    LLVMTypeRef i32, i64, ptr, none;
    LLVMValueRef model, info;
} writer;

static LLVMValueRef u64(const writer *w, uint64_t v) {
    return LLVMConstInt(w->i64, v, false);
}

/* ---- hrt_model ------------------------------------------------------------------------------- */
static const hrt_level *levels(const hcg_program *p, const hcg_target *t) {
    hrt_level *rows = hd_new_array(p->arena, hrt_level, t->variants.n + 1);
    for (size_t i = 0; i < t->variants.n; i++) {
        const hcg_variant *v = &t->variants.at[i];
        rows[i] = (hrt_level){
            .name = v->level.name, .features = v->features, .machine = v->level.machine};
    }
    return rows;
}

_Static_assert((int)HIR_MOST_TILES == (int)HRT_MOST_TILES,
               "what --overlap takes, and what the runtime does");

static const hrt_state_kind runtime_kind[] = {
#define S(id, word, rows, rewind, dims, growth, rewinding, saved, address, doc)                    \
    [HIR_STATE_##id] = HRT_STATE_##id,
#include "ir/states.def"
#undef S
};

static const hrt_state_info *states(const hcg_program *p) {
    const hir_module *m = p->m;
    hrt_state_info *rows = hd_new_array(p->arena, hrt_state_info, m->states.n + 1);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        const hir_state_shape shape = hir_shape_of_state(s);
        const uint64_t elements = (uint64_t)shape.heads * (uint64_t)shape.width;
        rows[i] = (hrt_state_info){
            .name = s->name,
            .kind = runtime_kind[s->kind],
            .heads = (uint32_t)shape.heads,
            .rows = hir_is_of_call(s) ? (uint64_t)p->chunk
                                      : (uint64_t)(shape.rows ? shape.rows : shape.rate),
            .row_bytes = elements * hir_dtype_bytes(s->type.dtype),
        };
    }
    return rows;
}

static hrt_tensor_info tensor(const hcg_program *p, const char *name, hir_type type, uint64_t bytes,
                              uint64_t offset) {
    return (hrt_tensor_info){
        .name = name,
        .type = hir_type_string(p->arena, type),
        .row_bytes = bytes,
        .offset = offset,
        .has_t = hir_type_has_t(type),
    };
}

static const hrt_tensor_info *ports(const hcg_program *p, const hcg_port *list, size_t n) {
    hrt_tensor_info *rows = hd_new_array(p->arena, hrt_tensor_info, n + 1);
    for (size_t i = 0; i < n; i++)
        rows[i] = tensor(p, list[i].name, list[i].type, list[i].row_bytes, list[i].offset);
    return rows;
}

static const hrt_tensor_info *weights(const hcg_program *p, uint32_t *count) {
    const hir_module *m = p->m;
    hrt_tensor_info *rows = hd_new_array(p->arena, hrt_tensor_info, m->weights.n + 1);
    *count = 0;
    for (size_t i = 0; i < m->weights.n; i++) {
        uint64_t bytes = 0, offset = p->weight_offsets.at[i];
        if (offset == HCG_UNREAD) continue;
        hir_weight_bytes(&m->weights.at[i], &bytes);
        rows[(*count)++] = tensor(p, m->weights.at[i].name, m->weights.at[i].type, bytes, offset);
    }
    return rows;
}

/* One line a kernel: name, kind, ops. */
static const char *kernel_list(const hcg_program *p) {
    const hir_module *m = p->m;
    hd_text text;
    hd_text_init(&text, p->arena);
    hd_text_add(&text, "");
    for (size_t i = 0; i < p->kernels.n; i++) {
        const hcg_kernel *k = &p->kernels.at[i];
        hd_text_f(&text, "%s %s:", k->name, hir_kind(k->kind)->name);
        HIR_EACH(m, id, hir_op_at(m, k->op)->body_first) {
            if (hir_op_at(m, id)->code != HIR_YIELD_OP)
                hd_text_f(&text, " %s", hir_info(hir_op_at(m, id)->code)->name);
        }
        hd_text_add(&text, "\n");
    }
    return text.at;
}

/* The roundings of activations in the syntax of --activations: what is rounded on at least one
 * level. */
static const char *activations(const hcg_program *p) {
    unsigned rounds = hcg_roundings_of(p->options.matrices, p->options.exact);
    if (p->options.attention) rounds |= HCG_ROUND_BF16 & ~p->options.exact; /* matrix units */
    hd_text text;
    hd_text_init(&text, p->arena);
    for (unsigned i = 0; i < HCG_ROUNDINGS; i++)
        if (rounds & 1u << i) hd_text_f(&text, "%s%s", text.n ? "," : "", hcg_rounding_name(i));
    return text.n ? text.at : "f32";
}

/* The type of all states of a kind, if there are any. */
static void options_of_states(const hir_module *m, hir_state_kind kind, hd_text *out) {
    for (size_t i = 0; i < m->states.n; i++)
        if (m->states.at[i].kind == kind) {
            hd_text_f(out, ", \"%s\": \"%s\"", hir_state_kind_of(kind)->word,
                      hir_dtype_name(m->states.at[i].type.dtype));
            return;
        }
}

const char *hcg_options_json(hcg_program *p, const hcg_target *t) {
    hd_text text;
    hd_text_init(&text, p->arena);
    hd_text_add(&text, "{\"hadal\": ");
    hd_text_add_json(&text, HADAL_VERSION);
    hd_text_add(&text, ", \"target\": ");
    hd_text_add_json(&text, t->triple);
    hd_text_add(&text, ", \"levels\": [");
    for (size_t i = 0; i < t->variants.n; i++) {
        hd_text_add(&text, i ? ", " : "");
        hd_text_add_json(&text, t->variants.at[i].level.name);
    }
    hd_text_add(&text, "], \"assumed\": {");
    for (size_t i = 0; i < t->variants.n; i++) {
        hd_text_add(&text, i ? ", " : "");
        hd_text_add_json(&text, t->variants.at[i].level.name);
        hd_text_add(&text, ": ");
        hd_machine_print_json(t->variants.at[i].level.machine, &text);
    }
    hd_text_add(&text, "}, \"machine\": ");
    hd_machine_print_json(p->options.machine, &text);
    hir_compile_options o = p->options.compile;
    o.chunk = p->chunk, o.ranks = hcg_ranks(p), o.stages = hcg_stages(p);
    o.activations = activations(p);
    hir_options_print_info(&o, &text);
    for (int kind = 0; kind < HIR_STATE_KINDS; kind++)
        options_of_states(p->m, (hir_state_kind)kind, &text);
    hd_text_add(&text, ", \"parameters\": {");
    for (size_t i = 0; i < p->m->options.n; i++) {
        hd_text_add(&text, i ? ", " : "");
        hd_text_add_json(&text, p->m->options.at[i].key);
        hd_text_add(&text, ": ");
        hd_text_add_json(&text, p->m->options.at[i].value);
    }
    hd_text_add(&text, "}}");
    return text.at;
}

/* Digest of everything that decides what the numbers in a session's state mean: two libraries with
 * equal digests can restore each other's saved sessions. */
static void build(hcg_program *p, const hcg_target *t, uint8_t out[16]) {
    XXH128_canonical_t hash;
    hd_text text;
    hd_text_init(&text, p->arena);
    hd_text_add(&text, hcg_options_json(p, t)); /* includes the version of Hadal */
    hir_print(p->m, (hir_print_options){0}, &text);
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text.at, text.n));
    memcpy(out, hash.digest, 16);
}

/* Digest of the model that all stages of a pipeline were cut from, and of how it was cut; the same
 * for all stages. The places of the cuts follow from what is digested: the cost of layers depends
 * on the types of weights, among others. */
static void whole(const hcg_program *p, uint8_t out[16]) {
    const hir_compile_options *o = &p->options.compile;
    const hir_module *graph = p->options.whole;
    XXH128_canonical_t hash;
    hd_text text;
    const bool cut_here = o->stages > 1 && graph && graph->stage != HIR_STAGE_KERNEL;
    if (!cut_here) return;
    hd_text_init(&text, p->arena);
    hd_text_f(&text, "%lld stages of %lld, weights in %s%s\n", (long long)o->stages,
              (long long)o->virtual_stages, o->weights_dtype ? o->weights_dtype : "f32",
              o->keep_traces ? ", with traces" : "");
    hir_module module = *graph;
    module.name = "whole"; /* stages may be compiled under different names */
    hir_print(&module, (hir_print_options){0}, &text);
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text.at, text.n));
    memcpy(out, hash.digest, 16);
}

hrt_model hcg_model_of(hcg_program *p, const hcg_target *t) {
    hrt_model m = {
        .version = HRT_VERSION,
        .least_ranges = (uint32_t)p->least_ranges,
        .name = p->m->name,
        .vocab = p->vocab,
        .chunk = p->chunk,
        .arena_per_token = p->m->arena_per_token - p->m->arena_kept,
        .fixed_bytes = p->m->fixed_bytes,
        .scratch_bytes = p->scratch_bytes,
        .counter_bytes = p->counter_bytes,
        .range_bytes = p->range_bytes,
        .window_ranges = p->window_ranges,
        .window_range_bytes = p->window_range_bytes,
        .weights_bytes = p->weights_bytes,
        .n_steps = (uint32_t)p->steps.n,
        .n_operands = (uint32_t)p->operands.n,
        .n_levels = (uint32_t)t->variants.n,
        .n_states = (uint32_t)p->m->states.n,
        .n_inputs = (uint32_t)p->inputs.n,
        .n_outputs = (uint32_t)p->outputs.n,
        .n_kernels = (uint32_t)p->kernels.n,
        .steps = p->steps.at,
        .operands = p->operands.at,
        .levels = levels(p, t),
        .states = states(p),
        .inputs = ports(p, p->inputs.at, p->inputs.n),
        .outputs = ports(p, p->outputs.at, p->outputs.n),
        .options = hcg_options_json(p, t),
        .ops = kernel_list(p),
        .machine = p->options.machine,
        .ranks = hcg_ranks(p),
        .stage = (uint32_t)p->options.compile.stage,
        .stages = hcg_stages(p),
        .n_collectives = (uint32_t)p->collectives.n,
        .divide_from = p->m->divide_from,
        .local_per_token = p->m->local_per_token - p->m->local_kept,
        .collectives = p->collectives.at,
        .n_overlaps = (uint32_t)p->overlaps.n,
        .tiles = (uint32_t)p->options.compile.overlap,
        .overlaps = p->overlaps.at,
        .kept_per_token = p->m->arena_kept,
        .local_kept_per_token = p->m->local_kept,
        .runs = p->runs.at,
        .n_runs = (uint32_t)p->runs.n,
        .n_tiled = (uint32_t)p->tiled.n,
        .tile_tokens = p->tile_tokens,
        .tile_per_token = p->m->tile_per_token,
        .tiled = p->tiled.at,
        .parameters_bytes = p->parameters_bytes,
        .targets = p->targets,
        .parameters = p->parameters.at,
        .parts = p->parts.at,
        .packings = p->packings.at,
        .n_parameters = (uint32_t)p->parameters.n,
        .n_packings = (uint32_t)p->packings.n,
        .n_parts = (uint32_t)p->parts.n,
        .muon_offset = p->muon_offset,
        .moments_bytes = p->moments_bytes,
        .muon_bytes = p->muon_bytes,
        .products = p->products,
    };
    m.weights = weights(p, &m.n_weights);
    memcpy(m.digest, p->digest, sizeof m.digest);
    build(p, t, m.build);
    whole(p, m.whole);
    return m;
}

/* ---- hadal_info (its C form: codegen/module/header.c) --------------------------------------- */
static const hd_info_tensor *info_tensors(const writer *w, const hcg_port *list, size_t n) {
    hd_info_tensor *rows = hd_new_array(w->p->arena, hd_info_tensor, n + 1);
    for (size_t i = 0; i < n; i++)
        rows[i] = (hd_info_tensor){list[i].name, hir_type_string(w->p->arena, list[i].type)};
    return rows;
}

static const hd_info_step *info_steps(const writer *w) {
    hd_info_step *rows = hd_new_array(w->p->arena, hd_info_step, w->p->steps.n + 1);
    for (size_t i = 0; i < w->p->steps.n; i++)
        rows[i] = hcg_step_info(w->p, i);
    return rows;
}

static const hd_info_state *info_states(const writer *w) {
    const hir_module *m = w->p->m;
    hd_info_state *rows = hd_new_array(w->p->arena, hd_info_state, m->states.n + 1);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        rows[i] = (hd_info_state){s->name, hir_state_kind_of(s->kind)->word,
                                  hir_type_string(w->p->arena, s->type)};
    }
    return rows;
}

static const char *const *level_names(const writer *w) {
    const char **names = hd_new_array(w->p->arena, const char *, w->t->variants.n + 1);
    for (size_t i = 0; i < w->t->variants.n; i++)
        names[i] = w->t->variants.at[i].level.name;
    return names;
}

static LLVMValueRef info(const writer *w) {
    const hcg_program *p = w->p;
    char hex[33] = "";
    for (int i = 0; i < 16; i++) {
        static const char digits[] = "0123456789abcdef";
        hex[2 * i] = digits[p->digest[i] >> 4];
        hex[2 * i + 1] = digits[p->digest[i] & 15];
    }
    const hd_info i = {
        .struct_size = sizeof i,
        .version = HADAL_VERSION,
        .name = p->m->name,
        .digest = hex,
        .options = hcg_options_json(w->p, w->t),
        .ops = kernel_list(p),
        .weights_size = hcg_has_weights(p) ? p->weights_bytes + HRT_WEIGHTS_DATA : 0,
        .max_chunk = (uint64_t)p->chunk,
        .n_levels = w->t->variants.n,
        .levels = level_names(w),
        .n_inputs = p->inputs.n,
        .inputs = info_tensors(w, p->inputs.at, p->inputs.n),
        .n_outputs = p->outputs.n,
        .outputs = info_tensors(w, p->outputs.at, p->outputs.n),
        .vocab = (uint64_t)p->vocab,
        .n_steps = p->steps.n,
        .steps = info_steps(w),
        .n_states = p->m->states.n,
        .states = info_states(w),
        .step_size = sizeof *i.steps,
        .build_id = hcg_build_id(w->p),
    };
    return hcg_info_constant(p->arena, w->mod, &i);
}

/* ---- public functions ------------------------------------------------------------------------ */
static void add_attribute(const writer *w, LLVMValueRef fn, const char *name, uint64_t value) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(w->cx, kind, value));
}

static LLVMValueRef begin(const writer *w, const char *name, LLVMTypeRef result,
                          const LLVMTypeRef *params, unsigned n) {
    const char *symbol = hd_printf(w->p->arena, "%s_%s", w->p->m->name, name);
    LLVMTypeRef type = LLVMFunctionType(result, (LLVMTypeRef *)params, n, false);
    LLVMValueRef fn = LLVMAddFunction(w->mod, symbol, type);
    add_attribute(w, fn, "nounwind", 0);
    add_attribute(w, fn, "uwtable", 2);
    LLVMPositionBuilderAtEnd(w->b, LLVMAppendBasicBlockInContext(w->cx, fn, "entry"));
    return fn;
}

static LLVMValueRef call_runtime(const writer *w, const char *name, LLVMTypeRef result,
                                 LLVMValueRef *args, unsigned n) {
    enum { MOST = 9 };
    LLVMTypeRef types[MOST];
    for (unsigned i = 0; i < n; i++)
        types[i] = LLVMTypeOf(args[i]);
    const char *symbol = hd_printf(w->p->arena, "hrt_%s", name);
    LLVMTypeRef type = LLVMFunctionType(result, types, n, false);
    LLVMValueRef fn = LLVMGetNamedFunction(w->mod, symbol);
    if (!fn) {
        fn = LLVMAddFunction(w->mod, symbol, type);
        LLVMSetVisibility(fn, LLVMHiddenVisibility);
        add_attribute(w, fn, "nounwind", 0);
    }
    return LLVMBuildCall2(w->b, type, fn, args, n, "");
}

static void end(const writer *w, LLVMTypeRef result, LLVMValueRef value) {
    if (result == w->none)
        LLVMBuildRetVoid(w->b);
    else
        LLVMBuildRet(w->b, value);
}

/* Signatures are letters, the result first: v void, i int, l int64_t or size_t, p pointer, and m,
 * the model's address, which only the runtime's function has. */
static LLVMTypeRef letter_type(const writer *w, char c) {
    return c == 'i' ? w->i32 : c == 'l' ? w->i64 : c == 'p' ? w->ptr : w->none;
}

static void forward_to_runtime(const writer *w, const char *name, const char *runtime_name,
                               const char *signature) {
    enum { MOST = 9 };
    LLVMTypeRef params[MOST], result = letter_type(w, signature[0]);
    LLVMValueRef args[MOST];
    unsigned n = 0, n_args = 0;
    for (const char *c = signature + 1; *c; c++)
        if (*c != 'm') params[n++] = letter_type(w, *c);
    LLVMValueRef fn = begin(w, name, result, params, n);
    n = 0;
    for (const char *c = signature + 1; *c; c++)
        args[n_args++] = *c == 'm' ? w->model : LLVMGetParam(fn, n++);
    end(w, result, call_runtime(w, runtime_name, result, args, n_args));
}

static void write_weights_functions(const writer *w) {
    forward_to_runtime(w, "weights_open", "weights_open", "impp");
    forward_to_runtime(w, "weights_read", "weights_read", "impp");
    forward_to_runtime(w, "weights_from_memory", "weights_from_memory", "implp");
    forward_to_runtime(w, "weights_close", "weights_close", "vp");
}

/* An array of n pointers on the stack, all null. */
static LLVMValueRef pointer_array(const writer *w, size_t n) {
    LLVMTypeRef type = LLVMArrayType2(w->ptr, n ? n : 1);
    LLVMValueRef array = LLVMBuildAlloca(w->b, type, "");
    LLVMBuildStore(w->b, LLVMConstNull(type), array);
    return array;
}

static void store_pointer(const writer *w, LLVMValueRef array, size_t i, LLVMValueRef p) {
    LLVMValueRef index = u64(w, i);
    LLVMBuildStore(w->b, p, LLVMBuildInBoundsGEP2(w->b, w->ptr, array, &index, 1, ""));
}

/* int forward(session, tokens, n, logits, rows): the other outputs are not wanted. */
static void write_forward(const writer *w) {
    LLVMTypeRef params[] = {w->ptr, w->ptr, w->i64, w->ptr, w->i64};
    LLVMValueRef fn = begin(w, "forward", w->i32, params, 5);
    LLVMValueRef outs = pointer_array(w, w->p->outputs.n);
    store_pointer(w, outs, 0, LLVMGetParam(fn, 3));
    LLVMValueRef args[] = {LLVMGetParam(fn, 0), LLVMGetParam(fn, 1), LLVMGetParam(fn, 2), outs,
                           LLVMGetParam(fn, 4)};
    end(w, w->i32, call_runtime(w, "forward", w->i32, args, 5));
    if (w->p->outputs.n > 1) forward_to_runtime(w, "forward_outputs", "forward", "ipplpl");
}

/* int forward_batch(sessions, tokens, count, logits): the other outputs are not wanted. */
static void write_forward_batch(const writer *w) {
    LLVMTypeRef params[] = {w->ptr, w->ptr, w->i64, w->ptr};
    LLVMValueRef fn = begin(w, "forward_batch", w->i32, params, 4);
    LLVMValueRef outs = pointer_array(w, w->p->outputs.n);
    store_pointer(w, outs, 0, LLVMGetParam(fn, 3));
    LLVMValueRef args[] = {LLVMGetParam(fn, 0), LLVMGetParam(fn, 1), LLVMGetParam(fn, 2), outs};
    end(w, w->i32, call_runtime(w, "forward_batch", w->i32, args, 4));
    if (w->p->outputs.n > 1)
        forward_to_runtime(w, "forward_batch_outputs", "forward_batch", "ipplp");
}

static void write_model_functions(const writer *w) {
    forward_to_runtime(w, "session_size", "session_size", "lml");
    if (hcg_ranks(w->p) > 0)
        forward_to_runtime(w, "session_init_on", "session_init_on", "implplplp");
    else
        forward_to_runtime(w, "session_init", "session_init", "implplp");
    forward_to_runtime(w, "session_set_threads", "session_set_threads", "ipi");
    forward_to_runtime(w, "session_set_cpu", "session_set_cpu", "ipp");
    forward_to_runtime(w, "session_length", "session_length", "lp");
    forward_to_runtime(w, "session_rewind", "session_rewind", "ipl");
    forward_to_runtime(w, "session_save_size", "session_save_size", "lp");
    forward_to_runtime(w, "session_save", "session_save", "ippl");
    forward_to_runtime(w, "session_restore", "session_restore", "ippl");
    forward_to_runtime(w, "session_message", "session_message", "pp");
    forward_to_runtime(w, "session_cpu", "session_cpu", "pp");
    forward_to_runtime(w, "session_machine", "session_machine", "pp");
    forward_to_runtime(w, "session_profile", "session_profile", "ippl");
    write_forward(w);
    write_forward_batch(w);
    if (hcg_has_loss(w->p)) forward_to_runtime(w, "loss", "loss", "ippplp");
}

static void write_trainer_functions(const writer *w) {
    forward_to_runtime(w, "trainer_size", "trainer_size", "lml");
    forward_to_runtime(w, "trainer_init", "trainer_init", "impllp");
    forward_to_runtime(w, "trainer_size_on", "trainer_size_on", "lmlp");
    forward_to_runtime(w, "trainer_init_on", "trainer_init_on", "impllplp");
    forward_to_runtime(w, "trainer_parameters", "trainer_parameters", "ppp");
    forward_to_runtime(w, "trainer_set_threads", "session_set_threads", "ipi");
    forward_to_runtime(w, "trainer_set_cpu", "session_set_cpu", "ipp");
    forward_to_runtime(w, "trainer_cpu", "session_cpu", "pp");
    forward_to_runtime(w, "trainer_machine", "session_machine", "pp");
    forward_to_runtime(w, "trainer_message", "session_message", "pp");
    forward_to_runtime(w, "trainer_profile", "trainer_profile", "ippl");
    forward_to_runtime(w, "gradients", "gradients", "ipppplpp");
    forward_to_runtime(w, "trainer_loss", "trainer_loss", "ipppplpp");
    forward_to_runtime(w, "trainer_step", "trainer_step", "ippp");
    forward_to_runtime(w, "trainer_steps", "trainer_steps", "lp");
    forward_to_runtime(w, "trainer_clear", "trainer_clear", "ip");
    forward_to_runtime(w, "trainer_save_size", "trainer_save_size", "lp");
    forward_to_runtime(w, "trainer_save", "trainer_save", "ippl");
    forward_to_runtime(w, "trainer_restore", "trainer_restore", "ippl");
}

bool hcg_has_tokens(const hcg_program *p) {
    for (size_t i = 0; i < p->inputs.n; i++)
        if (hir_type_has_t(p->inputs.at[i].type)) return true;
    for (size_t i = 0; i < p->outputs.n; i++)
        if (hir_type_has_t(p->outputs.at[i].type)) return true;
    return false;
}

/* int call([weights,] [tokens,] inputs..., outputs..., work, work_size) */
static void write_call(const writer *w) {
    const hcg_program *p = w->p;
    size_t most = p->inputs.n + p->outputs.n + 4, n = 0, first;
    LLVMTypeRef *params = hd_new_array(p->arena, LLVMTypeRef, most);
    bool has_weights = hcg_has_weights(p), has_tokens = hcg_has_tokens(p);
    if (has_weights) params[n++] = w->ptr;
    if (has_tokens) params[n++] = w->i64;
    first = n;
    for (size_t i = 0; i < p->inputs.n + p->outputs.n + 1; i++)
        params[n++] = w->ptr;
    params[n++] = w->i64;
    LLVMValueRef fn = begin(w, "call", w->i32, params, (unsigned)n);
    LLVMValueRef ins = pointer_array(w, p->inputs.n), outs = pointer_array(w, p->outputs.n);
    for (size_t i = 0; i < p->inputs.n; i++)
        store_pointer(w, ins, i, LLVMGetParam(fn, (unsigned)(first + i)));
    for (size_t i = 0; i < p->outputs.n; i++)
        store_pointer(w, outs, i, LLVMGetParam(fn, (unsigned)(first + p->inputs.n + i)));
    LLVMValueRef args[] = {
        w->model,
        has_weights ? LLVMGetParam(fn, 0) : LLVMConstNull(w->ptr),
        has_tokens ? LLVMGetParam(fn, (unsigned)first - 1) : u64(w, 1),
        ins,
        outs,
        LLVMGetParam(fn, (unsigned)n - 2),
        LLVMGetParam(fn, (unsigned)n - 1),
    };
    end(w, w->i32, call_runtime(w, "call", w->i32, args, 7));
}

static void write_work_size(const writer *w) {
    bool has_tokens = hcg_has_tokens(w->p);
    LLVMValueRef fn = begin(w, "work_size", w->i64, &w->i64, has_tokens);
    LLVMValueRef args[] = {w->model, has_tokens ? LLVMGetParam(fn, 0) : u64(w, 1)};
    end(w, w->i64, call_runtime(w, "work_size", w->i64, args, 2));
}

static void write_info_function(const writer *w) {
    begin(w, "info", w->ptr, NULL, 0);
    LLVMBuildRet(w->b, w->info);
}

void hcg_describe(hcg_program *p, const hcg_target *t, LLVMModuleRef mod, LLVMBuilderRef b,
                  LLVMValueRef *functions) {
    writer w = {.p = p, .t = t, .cx = LLVMGetModuleContext(mod), .mod = mod, .b = b};
    w.i32 = LLVMInt32TypeInContext(w.cx);
    w.i64 = LLVMInt64TypeInContext(w.cx);
    w.ptr = LLVMPointerTypeInContext(w.cx, 0);
    w.none = LLVMVoidTypeInContext(w.cx);
    const hrt_model model = hcg_model_of(p, t);
    w.model = hcg_model_constant(p->arena, mod, &model, functions);
    w.info = info(&w);
    if (hcg_has_weights(p)) write_weights_functions(&w);
    if (hcg_has_gradients(p)) {
        write_trainer_functions(&w);
    } else if (p->is_model) {
        write_model_functions(&w);
    } else {
        write_work_size(&w);
        write_call(&w);
    }
    forward_to_runtime(&w, "strerror", "strerror", "pi");
    write_info_function(&w);
}
