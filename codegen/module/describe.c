/* The constant hrt_model of a library, and its public functions.
 *
 * Tables are written as LLVM structs whose fields follow runtime/hadal_rt.h one by one; natural
 * alignment is the same for LLVM and for C on every target here (LP64, little endian). The public
 * functions are thin: they add the model's address to the runtime's arguments. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/module/module.h"

typedef struct writer {
    hcg_program *p;
    const hcg_target *t;
    LLVMContextRef cx;
    LLVMModuleRef mod;
    LLVMBuilderRef b;
    LLVMTypeRef i8, i32, i64, ptr, none;
    LLVMValueRef model, info;
} writer;

/* ---- constants ------------------------------------------------------------------------------- */
static LLVMValueRef u32(const writer *w, uint64_t v) {
    return LLVMConstInt(w->i32, v, false);
}

static LLVMValueRef u64(const writer *w, uint64_t v) {
    return LLVMConstInt(w->i64, v, false);
}

static LLVMValueRef global(const writer *w, const char *name, LLVMValueRef value) {
    LLVMValueRef g = LLVMAddGlobal(w->mod, LLVMTypeOf(value),
                                   hd_printf(w->p->arena, "%s.%s", w->p->m->name, name));
    LLVMSetInitializer(g, value);
    LLVMSetGlobalConstant(g, true);
    LLVMSetLinkage(g, LLVMInternalLinkage);
    return g;
}

static LLVMValueRef string(const writer *w, const char *s) {
    LLVMValueRef text = LLVMConstStringInContext2(w->cx, s, strlen(s), false);
    LLVMValueRef g = LLVMAddGlobal(w->mod, LLVMTypeOf(text), "");
    LLVMSetInitializer(g, text);
    LLVMSetGlobalConstant(g, true);
    LLVMSetLinkage(g, LLVMPrivateLinkage);
    LLVMSetUnnamedAddress(g, LLVMGlobalUnnamedAddr);
    LLVMSetAlignment(g, 1);
    return g;
}

static LLVMValueRef bytes16(const writer *w, const uint8_t *bytes) {
    LLVMValueRef values[16];
    for (int i = 0; i < 16; i++)
        values[i] = LLVMConstInt(w->i8, bytes[i], false);
    return LLVMConstArray2(w->i8, values, 16);
}

static LLVMValueRef record(const writer *w, LLVMValueRef *fields, unsigned n) {
    return LLVMConstStructInContext(w->cx, fields, n, false);
}
#define RECORD(w, ...)                                                                             \
    record((w), (LLVMValueRef[]){__VA_ARGS__},                                                     \
           sizeof((LLVMValueRef[]){__VA_ARGS__}) / sizeof(LLVMValueRef))

/* A table of records as a global; a null pointer when empty. */
static LLVMValueRef table(const writer *w, const char *name, LLVMValueRef *rows, size_t n) {
    if (n == 0) return LLVMConstNull(w->ptr);
    return global(w, name, LLVMConstArray2(LLVMTypeOf(rows[0]), rows, n));
}

static LLVMValueRef *rows_for(const writer *w, size_t n) {
    return hd_new_array(w->p->arena, LLVMValueRef, n + 1);
}

static LLVMValueRef choice(const writer *w, const hrt_choice *c) {
    const hd_two_forms *f = &c->forms;
    return RECORD(w, u32(w, c->when),
                  RECORD(w, u64(w, (uint64_t)f->window), u64(w, (uint64_t)f->few_pair),
                         u64(w, (uint64_t)f->many_pair), u64(w, (uint64_t)f->few_row),
                         u64(w, (uint64_t)f->many_position), u64(w, (uint64_t)f->most)));
}

/* ---- hrt_model ------------------------------------------------------------------------------- */
static LLVMValueRef steps(const writer *w) {
    LLVMValueRef *rows = rows_for(w, w->p->steps.n);
    for (size_t i = 0; i < w->p->steps.n; i++) {
        const hrt_step *s = &w->p->steps.at[i];
        rows[i] = RECORD(w, u32(w, s->kernel_decode), u32(w, s->kernel_prefill),
                         u32(w, s->first_operand), u32(w, s->n_operands), u32(w, s->split_decode),
                         u32(w, s->split_prefill), u32(w, s->grain), u32(w, s->last_rows),
                         u32(w, s->by_row), u32(w, s->kernel_small_batch), u32(w, s->small_batch),
                         u32(w, s->window), u32(w, s->list_only), u32(w, s->list_rate),
                         u32(w, s->list_most), u64(w, (uint64_t)s->cols), string(w, s->name),
                         choice(w, &s->choice), u32(w, s->local), u32(w, s->exchange));
    }
    return table(w, "steps", rows, w->p->steps.n);
}

static LLVMValueRef operands(const writer *w) {
    LLVMValueRef *rows = rows_for(w, w->p->operands.n);
    for (size_t i = 0; i < w->p->operands.n; i++) {
        const hrt_operand *o = &w->p->operands.at[i];
        rows[i] =
            RECORD(w, u32(w, o->base), u32(w, o->index), u64(w, o->offset), u64(w, o->row_bytes),
                   u32(w, o->first_col), u32(w, o->cols), u64(w, o->col_bytes));
    }
    return table(w, "operands", rows, w->p->operands.n);
}

static LLVMValueRef exchanges(const writer *w) {
    LLVMValueRef *rows = rows_for(w, w->p->exchanges.n);
    for (size_t i = 0; i < w->p->exchanges.n; i++) {
        const hrt_exchange *e = &w->p->exchanges.at[i];
        rows[i] = RECORD(w, u32(w, e->kind), u32(w, e->narrow), u32(w, e->peer), u32(w, e->repeat),
                         u32(w, e->local), u32(w, 0), u64(w, e->element), u64(w, e->row),
                         u64(w, e->outer), u64(w, e->unit), u64(w, e->groups), u64(w, e->units));
    }
    return table(w, "exchanges", rows, w->p->exchanges.n);
}

static LLVMValueRef overlaps(const writer *w) {
    LLVMValueRef *rows = rows_for(w, w->p->overlaps.n);
    for (size_t i = 0; i < w->p->overlaps.n; i++) {
        const hrt_overlap *o = &w->p->overlaps.at[i];
        rows[i] = RECORD(w, u32(w, o->front), u32(w, o->scatter), u32(w, o->middle),
                         u32(w, o->gather), u32(w, o->back), u32(w, o->end));
    }
    return table(w, "overlaps", rows, w->p->overlaps.n);
}

static LLVMValueRef runs(const writer *w) {
    LLVMValueRef *rows = rows_for(w, w->p->runs.n);
    for (size_t i = 0; i < w->p->runs.n; i++) {
        const hrt_run_of_layers *r = &w->p->runs.at[i];
        rows[i] = RECORD(w, u32(w, r->first), u32(w, r->work), u32(w, r->send), u32(w, r->end));
    }
    return table(w, "runs", rows, w->p->runs.n);
}

static LLVMValueRef machine(const writer *w, hd_machine m) {
#define FACT(name, type, ...) LLVMConstInt(sizeof(type) == 8 ? w->i64 : w->i32, m.name, false),
    LLVMValueRef facts[] = {HD_MACHINE_FACTS(FACT)};
#undef FACT
    return record(w, facts, sizeof facts / sizeof *facts);
}

static LLVMValueRef levels(const writer *w, LLVMValueRef *functions) {
    size_t n = w->p->kernels.n;
    LLVMValueRef *rows = rows_for(w, w->t->variants.n);
    for (size_t i = 0; i < w->t->variants.n; i++) {
        const hcg_variant *v = &w->t->variants.at[i];
        const char *name = hd_printf(w->p->arena, "kernels.%s", v->level.name);
        LLVMValueRef kernels = table(w, name, functions + i * n, n);
        rows[i] = RECORD(w, string(w, v->level.name), u64(w, v->features), kernels,
                         machine(w, v->level.machine));
    }
    return table(w, "levels", rows, w->t->variants.n);
}

static const hrt_state_kind runtime_kind[] = {
#define S(id, word, rows, rewind, dims, growth, rewinding, saved, address, doc)                    \
    [HIR_STATE_##id] = HRT_STATE_##id,
#include "ir/states.def"
#undef S
};

static LLVMValueRef states(const writer *w) {
    const hir_module *m = w->p->m;
    LLVMValueRef *rows = rows_for(w, m->states.n);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        const hir_state_shape shape = hir_shape_of_state(s);
        const uint64_t elements = (uint64_t)shape.heads * (uint64_t)shape.width;
        rows[i] = RECORD(w, string(w, s->name), u32(w, runtime_kind[s->kind]),
                         u32(w, (uint64_t)shape.heads),
                         u64(w, (uint64_t)(shape.rows ? shape.rows : shape.rate)),
                         u64(w, elements * hir_dtype_bytes(s->type.dtype)));
    }
    return table(w, "states", rows, m->states.n);
}

static LLVMValueRef tensor(const writer *w, const char *name, hir_type type, uint64_t bytes,
                           uint64_t offset) {
    return RECORD(w, string(w, name), string(w, hir_type_string(w->p->arena, type)), u64(w, bytes),
                  u64(w, offset), u32(w, hir_type_has_t(type)));
}

static LLVMValueRef ports(const writer *w, const char *name, const hcg_port *list, size_t n) {
    LLVMValueRef *rows = rows_for(w, n);
    for (size_t i = 0; i < n; i++)
        rows[i] = tensor(w, list[i].name, list[i].type, list[i].row_bytes, 0);
    return table(w, name, rows, n);
}

static LLVMValueRef weights(const writer *w, size_t *count) {
    const hir_module *m = w->p->m;
    LLVMValueRef *rows = rows_for(w, m->weights.n);
    *count = 0;
    for (size_t i = 0; i < m->weights.n; i++) {
        uint64_t bytes = 0, offset = w->p->weight_offsets.at[i];
        if (offset == HCG_UNREAD) continue;
        hir_weight_bytes(&m->weights.at[i], &bytes);
        rows[(*count)++] = tensor(w, m->weights.at[i].name, m->weights.at[i].type, bytes, offset);
    }
    return table(w, "weights", rows, *count);
}

/* One line a kernel: name, kind, ops. */
static const char *kernel_list(const writer *w) {
    const hir_module *m = w->p->m;
    hd_text text;
    hd_text_init(&text, w->p->arena);
    hd_text_add(&text, "");
    for (size_t i = 0; i < w->p->kernels.n; i++) {
        const hcg_kernel *k = &w->p->kernels.at[i];
        hd_text_f(&text, "%s %s:", k->name, hir_kind(k->kind)->name);
        HIR_EACH(m, id, hir_op_at(m, k->op)->body_first) {
            if (hir_op_at(m, id)->code != HIR_YIELD_OP)
                hd_text_f(&text, " %s", hir_info(hir_op_at(m, id)->code)->name);
        }
        hd_text_add(&text, "\n");
    }
    return text.at;
}

static void json_string(hd_text *out, const char *s) {
    hd_text_add(out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            hd_text_f(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            hd_text_f(out, "\\u%04x", (unsigned char)*s);
        else
            hd_text_add_n(out, s, 1);
    }
    hd_text_add(out, "\"");
}

/* As --activations takes them: what is rounded on some of the levels. */
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
    json_string(&text, HADAL_VERSION);
    hd_text_add(&text, ", \"target\": ");
    json_string(&text, t->triple);
    hd_text_add(&text, ", \"levels\": [");
    for (size_t i = 0; i < t->variants.n; i++) {
        hd_text_add(&text, i ? ", " : "");
        json_string(&text, t->variants.at[i].level.name);
    }
    hd_text_add(&text, "], \"assumed\": {");
    for (size_t i = 0; i < t->variants.n; i++) {
        hd_text_add(&text, i ? ", " : "");
        json_string(&text, t->variants.at[i].level.name);
        hd_text_add(&text, ": ");
        hd_machine_print_json(t->variants.at[i].level.machine, &text);
    }
    hd_text_add(&text, "}, \"machine\": ");
    hd_machine_print_json(p->options.machine, &text);
    hd_text_f(&text, ", \"chunk\": %lld, \"weights\": ", (long long)p->chunk);
    json_string(&text, p->options.weight_types ? p->options.weight_types : "f32");
    hd_text_add(&text, ", \"activations\": ");
    json_string(&text, activations(p));
    hd_text_f(&text, ", \"bank\": \"%s\", \"phase1\": \"%s\", \"merge_norm\": \"%s\"",
              hir_dtype_name(p->options.bank_dtype), hir_dtype_name(p->options.phase1_dtype),
              p->options.norm_of_rows ? "row" : "dots");
    if (hcg_ranks(p) > 0)
        hd_text_f(&text, ", \"ranks\": %u, \"stage\": %u, \"stages\": %u, \"tiles\": %u",
                  hcg_ranks(p), p->options.stage, hcg_stages(p), p->options.tiles);
    for (int kind = 0; kind < HIR_STATE_KINDS; kind++)
        options_of_states(p->m, (hir_state_kind)kind, &text);
    hd_text_add(&text, ", \"parameters\": {");
    for (size_t i = 0; i < p->m->options.n; i++) {
        hd_text_add(&text, i ? ", " : "");
        json_string(&text, p->m->options.at[i].key);
        hd_text_add(&text, ": ");
        json_string(&text, p->m->options.at[i].value);
    }
    hd_text_add(&text, "}}");
    return text.at;
}

/* Of all that decides what the numbers in a session's state mean: two libraries with the same take
 * each other's saved sessions. */
static LLVMValueRef build(const writer *w) {
    XXH128_canonical_t hash;
    hd_text text;
    hd_text_init(&text, w->p->arena);
    hd_text_add(&text, hcg_options_json(w->p, w->t)); /* with the version of Hadal */
    hir_print(w->p->m, (hir_print_options){0}, &text);
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text.at, text.n));
    return bytes16(w, hash.digest);
}

/* The same for all stages of a pipeline: the model that they were cut from, and how. Where it is
 * cut follows from these: types of weights are among what layers cost. */
static LLVMValueRef whole(const writer *w) {
    const hcg_options *o = &w->p->options;
    XXH128_canonical_t hash = {{0}};
    hd_text text;
    const bool cut_here = o->stages > 1 && o->whole && o->whole->stage != HIR_STAGE_KERNEL;
    if (!cut_here) return bytes16(w, hash.digest);
    hd_text_init(&text, w->p->arena);
    hd_text_f(&text, "%u stages of %lld, weights in %s%s\n", o->stages,
              (long long)o->virtual_stages, o->weight_types ? o->weight_types : "f32",
              o->traces ? ", with traces" : "");
    hir_module module = *o->whole;
    module.name = "whole"; /* each stage is made by a name of its own */
    hir_print(&module, (hir_print_options){0}, &text);
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text.at, text.n));
    return bytes16(w, hash.digest);
}

static void write_model(writer *w, LLVMValueRef *functions) {
    hcg_program *p = w->p;
    size_t n_weights;
    LLVMValueRef weight_table = weights(w, &n_weights);
    LLVMValueRef inputs = ports(w, "inputs", p->inputs.at, p->inputs.n);
    LLVMValueRef outputs = ports(w, "outputs", p->outputs.at, p->outputs.n);
    LLVMValueRef model = RECORD(
        w, u32(w, HRT_VERSION), u32(w, p->least_ranges), string(w, p->m->name),
        bytes16(w, p->digest), build(w), u64(w, (uint64_t)p->vocab), u64(w, (uint64_t)p->chunk),
        u64(w, p->m->arena_per_token - p->m->arena_kept), u64(w, p->m->fixed_bytes),
        u64(w, p->scratch_bytes), u64(w, p->counter_bytes), u64(w, p->range_bytes),
        u64(w, p->window_ranges), u64(w, p->window_range_bytes), u64(w, p->weights_bytes),
        u32(w, p->steps.n), u32(w, p->operands.n), u32(w, w->t->variants.n), u32(w, p->m->states.n),
        u32(w, p->inputs.n), u32(w, p->outputs.n), u32(w, n_weights), u32(w, p->kernels.n),
        steps(w), operands(w), levels(w, functions), states(w), inputs, outputs, weight_table,
        string(w, hcg_options_json(p, w->t)), string(w, kernel_list(w)),
        machine(w, p->options.machine), u32(w, hcg_ranks(p)), u32(w, p->options.stage),
        u32(w, hcg_stages(p)), u32(w, p->exchanges.n), u64(w, (uint64_t)p->m->divide_from),
        u64(w, p->m->local_per_token - p->m->local_kept), exchanges(w), u32(w, p->overlaps.n),
        u32(w, p->options.tiles), overlaps(w), whole(w), u64(w, p->m->arena_kept),
        u64(w, p->m->local_kept), runs(w), u32(w, p->runs.n), u32(w, 0));
    w->model = global(w, "model", model);
}

/* ---- hadal_info (its C form: codegen/module/header.c) ---------------------------------------- */
static LLVMValueRef info_tensors(const writer *w, const char *name, const hcg_port *list,
                                 size_t n) {
    LLVMValueRef *rows = rows_for(w, n);
    for (size_t i = 0; i < n; i++)
        rows[i] = RECORD(w, string(w, list[i].name),
                         string(w, hir_type_string(w->p->arena, list[i].type)));
    return table(w, name, rows, n);
}

static LLVMValueRef info_steps(const writer *w) {
    LLVMValueRef *rows = rows_for(w, w->p->steps.n);
    for (size_t i = 0; i < w->p->steps.n; i++) {
        const hd_step_info s = hcg_step_info(w->p, i);
#define TEXT(field)   string(w, s.field),
#define NUMBER(field) u64(w, s.field),
        rows[i] = RECORD(w, HD_STEP_INFO(TEXT, NUMBER));
#undef TEXT
#undef NUMBER
    }
    return table(w, "info.steps", rows, w->p->steps.n);
}

static LLVMValueRef info_states(const writer *w) {
    const hir_module *m = w->p->m;
    LLVMValueRef *rows = rows_for(w, m->states.n);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        rows[i] = RECORD(w, string(w, s->name), string(w, hir_state_kind_of(s->kind)->word),
                         string(w, hir_type_string(w->p->arena, s->type)));
    }
    return table(w, "info.states", rows, m->states.n);
}

static void write_info(writer *w) {
    hcg_program *p = w->p;
    char hex[33];
    for (int i = 0; i < 16; i++) {
        static const char digits[] = "0123456789abcdef";
        hex[2 * i] = digits[p->digest[i] >> 4];
        hex[2 * i + 1] = digits[p->digest[i] & 15];
    }
    hex[32] = '\0';
    LLVMValueRef *names = rows_for(w, w->t->variants.n);
    for (size_t i = 0; i < w->t->variants.n; i++)
        names[i] = string(w, w->t->variants.at[i].level.name);
    LLVMValueRef inputs = info_tensors(w, "info.inputs", p->inputs.at, p->inputs.n);
    LLVMValueRef outputs = info_tensors(w, "info.outputs", p->outputs.at, p->outputs.n);
    enum { FIELDS = 20, STRUCT_SIZE = FIELDS * 8 }; /* each field has 8 bytes */
    LLVMValueRef fields[FIELDS] = {
        u64(w, STRUCT_SIZE),
        string(w, HADAL_VERSION),
        string(w, p->m->name),
        string(w, hex),
        string(w, hcg_options_json(p, w->t)),
        string(w, kernel_list(w)),
        u64(w, p->weights_bytes ? p->weights_bytes + HRT_WEIGHTS_DATA : 0),
        u64(w, (uint64_t)p->chunk),
        u64(w, w->t->variants.n),
        table(w, "info.levels", names, w->t->variants.n),
        u64(w, p->inputs.n),
        inputs,
        u64(w, p->outputs.n),
        outputs,
        u64(w, (uint64_t)p->vocab),
        u64(w, p->steps.n),
        info_steps(w),
        u64(w, p->m->states.n),
        info_states(w),
        u64(w, sizeof(hd_step_info)),
    };
    w->info = global(w, "info", record(w, fields, FIELDS));
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
    w.i8 = LLVMInt8TypeInContext(w.cx);
    w.i32 = LLVMInt32TypeInContext(w.cx);
    w.i64 = LLVMInt64TypeInContext(w.cx);
    w.ptr = LLVMPointerTypeInContext(w.cx, 0);
    w.none = LLVMVoidTypeInContext(w.cx);
    write_model(&w, functions);
    write_info(&w);
    if (hcg_has_weights(p)) write_weights_functions(&w);
    if (p->is_model) {
        write_model_functions(&w);
    } else {
        write_work_size(&w);
        write_call(&w);
    }
    forward_to_runtime(&w, "strerror", "strerror", "pi");
    write_info_function(&w);
}
