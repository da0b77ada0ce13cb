/* hrt_model and hadal_info as constants of LLVM.
 *
 * describe.c fills in the C structs; their fields, in order, come from the tables that also define
 * the structs (runtime/structs.def, support/library_info.def). Natural alignment is the same for
 * LLVM and for C on every target here (LP64, little endian). */
#include <string.h>

#include "codegen/module/module.h"

typedef struct writer {
    hd_arena *arena;
    LLVMContextRef cx;
    LLVMModuleRef mod;
    LLVMTypeRef i8, i32, i64, ptr;
    const char *name;        /* prefix of the globals, NAME.TABLE */
    const hrt_model *model;  /* of hrt_model: */
    LLVMValueRef *functions; /* n_kernels for each level, level by level */
} writer;

static LLVMValueRef u32(const writer *w, uint64_t v) {
    return LLVMConstInt(w->i32, v, false);
}

static LLVMValueRef u64(const writer *w, uint64_t v) {
    return LLVMConstInt(w->i64, v, false);
}

static LLVMValueRef bytes16(const writer *w, const uint8_t *bytes) {
    LLVMValueRef values[16];
    for (int i = 0; i < 16; i++)
        values[i] = LLVMConstInt(w->i8, bytes[i], false);
    return LLVMConstArray2(w->i8, values, 16);
}

static LLVMValueRef global(const writer *w, const char *name, LLVMValueRef value) {
    LLVMValueRef g = LLVMAddGlobal(w->mod, LLVMTypeOf(value), name);
    LLVMSetInitializer(g, value);
    LLVMSetGlobalConstant(g, true);
    LLVMSetLinkage(g, LLVMInternalLinkage);
    return g;
}

static LLVMValueRef text(const writer *w, const char *s) {
    LLVMValueRef value = LLVMConstStringInContext2(w->cx, s, strlen(s), false);
    LLVMValueRef g = LLVMAddGlobal(w->mod, LLVMTypeOf(value), "");
    LLVMSetInitializer(g, value);
    LLVMSetGlobalConstant(g, true);
    LLVMSetLinkage(g, LLVMPrivateLinkage);
    LLVMSetUnnamedAddress(g, LLVMGlobalUnnamedAddr);
    LLVMSetAlignment(g, 1);
    return g;
}

/* Values of one type as a global; a null pointer if there are none. */
static LLVMValueRef array(const writer *w, const char *name, LLVMValueRef *values, size_t n) {
    if (n == 0) return LLVMConstNull(w->ptr);
    return global(w, hd_printf(w->arena, "%s.%s", w->name, name),
                  LLVMConstArray2(LLVMTypeOf(values[0]), values, n));
}

static LLVMValueRef texts(const writer *w, const char *name, const char *const *at, size_t n) {
    LLVMValueRef *values = hd_new_array(w->arena, LLVMValueRef, n + 1);
    for (size_t i = 0; i < n; i++)
        values[i] = text(w, at[i]);
    return array(w, name, values, n);
}

/* A table of structs of `size` bytes, each of which `one` makes. */
static LLVMValueRef table(const writer *w, const char *name, const void *at, size_t n, size_t size,
                          LLVMValueRef (*one)(const writer *w, const void *at)) {
    LLVMValueRef *values = hd_new_array(w->arena, LLVMValueRef, n + 1);
    for (size_t i = 0; i < n; i++)
        values[i] = one(w, (const char *)at + i * size);
    return array(w, name, values, n);
}

static LLVMValueRef kernels(const writer *w, const hrt_level *level) {
    const size_t n = w->model->n_kernels, first = (size_t)(level - w->model->levels) * n;
    return array(w, hd_printf(w->arena, "kernels.%s", level->name), w->functions + first, n);
}

/* For each struct NAME of a table a function NAME_constant. */
/* clang-format off */
#define STRUCT(name)                                                                               \
    static LLVMValueRef name##_constant(const writer *w, const void *at) {                         \
        const name *v = at;                                                                        \
        LLVMValueRef fields[] = {
#define END(name)                                                                                  \
        };                                                                                         \
        return LLVMConstStructInContext(w->cx, fields, sizeof fields / sizeof *fields, false);     \
    }
/* clang-format on */
#define U32(field)       u32(w, v->field),
#define U64(field)       u64(w, v->field),
#define I64(field)       u64(w, (uint64_t)v->field),
#define BYTES16(field)   bytes16(w, v->field),
#define TEXT(field)      text(w, v->field),
#define ONE(type, field) type##_constant(w, &v->field),

STRUCT(hd_latent_costs)
HD_LATENT_COSTS(I64)
END(hd_latent_costs)

#define FACT(name, type, ...) LLVMConstInt(sizeof(type) == 8 ? w->i64 : w->i32, v->name, false),
STRUCT(hd_machine)
HD_MACHINE_FACTS(FACT)
END(hd_machine)
#undef FACT

#define KERNELS(field) kernels(w, v),
#define TABLE(type, field, count)                                                                  \
    table(w, #field, v->field, v->count, sizeof(type), type##_constant),
#define TEXTS(field, count) texts(w, #field, v->field, v->count),
#include "runtime/structs.def"
#include "support/library_info.def"

static writer begin(hd_arena *a, LLVMModuleRef mod, const char *name) {
    LLVMContextRef cx = LLVMGetModuleContext(mod);
    return (writer){
        .arena = a,
        .cx = cx,
        .mod = mod,
        .i8 = LLVMInt8TypeInContext(cx),
        .i32 = LLVMInt32TypeInContext(cx),
        .i64 = LLVMInt64TypeInContext(cx),
        .ptr = LLVMPointerTypeInContext(cx, 0),
        .name = name,
    };
}

LLVMValueRef hcg_model_constant(hd_arena *a, LLVMModuleRef mod, const hrt_model *m,
                                LLVMValueRef *functions) {
    writer w = begin(a, mod, m->name);
    w.model = m;
    w.functions = functions;
    return global(&w, hd_printf(a, "%s.model", m->name), hrt_model_constant(&w, m));
}

LLVMValueRef hcg_info_constant(hd_arena *a, LLVMModuleRef mod, const hd_info *i) {
    const writer w = begin(a, mod, hd_printf(a, "%s.info", i->name));
    return global(&w, w.name, hd_info_constant(&w, i));
}
