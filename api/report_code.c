/* The code of a report: what the kernels of a module become for one CPU level, by function, with
 * the line of the kernel IR for each line of LLVM IR and assembly. */
#include "api/report_code.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/library/library.h"
#include "codegen/program.h"

/* ---- functions by name ------------------------------------------------------------------------
 */

typedef struct collector {
    hadal_session *s;
    report_code *code;
    hir_names index; /* of functions */
} collector;

static report_function *function_named(collector *c, const char *name) {
    const uint32_t *old = hir_names_find(&c->index, name);
    if (old) return &c->code->functions.at[*old];
    report_function f = {.name = hd_strdup(c->s->arena, name)};
    hd_text_init(&f.llvm.text, c->s->arena);
    hd_text_init(&f.assembly.text, c->s->arena);
    hir_names_add(&c->index, f.name, (uint32_t)c->code->functions.n);
    hd_push(c->s->arena, &c->code->functions, f);
    return &c->code->functions.at[c->code->functions.n - 1];
}

static void add_line(collector *c, report_listing *to, const char *at, size_t n, uint32_t line) {
    if (to->lines.n) hd_text_add(&to->text, "\n");
    hd_text_add_n(&to->text, at, n);
    hd_push(c->s->arena, &to->lines, line);
}

static bool begins(const char *at, const char *with) {
    return strncmp(at, with, strlen(with)) == 0;
}

/* ---- LLVM IR ----------------------------------------------------------------------------------
 */

/* By number of metadata: the line of the kernel IR, from `!7 = !DILocation(line: 88, ...`. */
typedef struct locations {
    HD_VEC(uint32_t) line;
} locations;

static void find_locations(hd_arena *a, const char *text, locations *out) {
    for (const char *at = strstr(text, "\n!"); at; at = strstr(at + 1, "\n!")) {
        char *end;
        const unsigned long number = strtoul(at + 2, &end, 10);
        const size_t n = strcspn(end, "\n");
        const char *line = memmem(end, n, "line: ", 6);
        if (end == at + 2 || number > UINT32_MAX) continue;
        while (out->line.n <= number)
            hd_push(a, &out->line, 0);
        if (line) out->line.at[number] = (uint32_t)strtoul(line + 6, NULL, 10);
    }
}

/* A line of a function without the reference to its location, which becomes a number. */
static void add_llvm_line(collector *c, const locations *known, report_listing *to, const char *at,
                          size_t n) {
    static const char mark[] = ", !dbg !";
    const char *dbg = memmem(at, n, mark, strlen(mark));
    uint32_t line = 0;
    if (dbg) {
        const unsigned long number = strtoul(dbg + strlen(mark), NULL, 10);
        if (number < known->line.n) line = known->line.at[number];
        n = (size_t)(dbg - at);
    }
    add_line(c, to, at, n, line);
}

static const char *llvm_function_name(hd_arena *a, const char *at, size_t n) {
    const char *name = memchr(at, '@', n);
    if (!name) return "";
    name++;
    const size_t quoted = *name == '"';
    return hd_strndup(a, name + quoted, strcspn(name + quoted, quoted ? "\"" : "("));
}

static void read_llvm(collector *c, const char *text) {
    locations known = {0};
    find_locations(c->s->arena, text, &known);
    report_listing *to = NULL;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        if (begins(at, "define "))
            to = &function_named(c, llvm_function_name(c->s->arena, at, n))->llvm;
        if (to) add_llvm_line(c, &known, to, at, n);
        if (*at == '}') to = NULL;
        at += n + (at[n] == '\n');
    }
}

/* ---- assembly ---------------------------------------------------------------------------------
 */

/* `NAME:` in the first column, but for labels inside of functions. */
static const char *asm_function_name(hd_arena *a, const char *at, size_t n) {
    if (n < 2 || *at == '\t' || *at == ' ' || *at == '.' || *at == '#') return NULL;
    const char *colon = memchr(at, ':', n);
    return colon ? hd_strndup(a, at, (size_t)(colon - at)) : NULL;
}

static uint32_t line_of_directive(const char *at) { /* "\t.loc\t1 88 3" */
    const char *file = at + strlen("\t.loc\t");
    return (uint32_t)strtoul(file + strcspn(file, " \n"), NULL, 10);
}

static bool is_code(const char *at, size_t n) {
    if (begins(at, ".LBB")) return true;
    return n > 1 && *at == '\t' && at[1] != '.' && at[1] != '#';
}

static void read_assembly(collector *c, const char *text) {
    report_listing *to = NULL;
    uint32_t line = 0;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        const char *name = asm_function_name(c->s->arena, at, n);
        if (name) {
            const uint32_t *known = hir_names_find(&c->index, name);
            to = known ? &c->code->functions.at[*known].assembly : NULL;
            line = 0;
        } else if (begins(at, "\t.size\t")) {
            to = NULL;
        } else if (begins(at, "\t.loc\t")) {
            line = line_of_directive(at);
        } else if (to && is_code(at, n)) {
            add_line(c, to, at, n, line);
        }
        at += n + (at[n] == '\n');
    }
}

/* ---- the object -------------------------------------------------------------------------------
 */

/* Where functions lie in the text of an object that was made a moment ago. */
static void read_object(collector *c, const hd_text *object) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)object->at;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(object->at + head->e_shoff);
    for (unsigned i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(object->at + sections[i].sh_offset);
        const char *names = object->at + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
            if (ELF64_ST_TYPE(symbols[k].st_info) != STT_FUNC) continue;
            const uint32_t *known = hir_names_find(&c->index, names + symbols[k].st_name);
            if (!known) continue;
            c->code->functions.at[*known].offset = symbols[k].st_value;
            c->code->functions.at[*known].bytes = symbols[k].st_size;
        }
    }
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static const char *symbol(const collector *c, const hcg_program *p, uint32_t kernel) {
    return hd_printf(c->s->arena, "%s_%s_%s", p->m->name, p->kernels.at[kernel].name,
                     c->code->level);
}

static void list_steps(collector *c, const hcg_program *p) {
    for (size_t i = 0; i < p->steps.n; i++) {
        const hrt_step *step = &p->steps.at[i];
        const hcg_step_work *work = &p->work.at[i];
        const report_step out = {
            .line = work->line,
            .name = step->name,
            .scope = work->scope,
            .function = {symbol(c, p, step->kernel_decode), symbol(c, p, step->kernel_small_batch),
                         symbol(c, p, step->kernel_prefill)},
            .row_flops = work->row_flops,
            .pair_flops = work->pair_flops,
            .pass_bytes = work->pass_bytes,
            .row_bytes = work->row_bytes,
            .position_bytes = work->position_bytes,
        };
        hd_push(c->s->arena, &c->code->steps, out);
    }
}

static bool write_form(hadal_session *s, hcg_code_form form, hd_text *out) {
    hd_text_init(out, s->arena);
    return hcg_write_code(s->program, &s->diags, form, out);
}

const report_code *api_report_code(hadal_session *s, const hadal_target *target) {
    collector c = {.s = s, .code = hd_new(s->arena, report_code)};
    hcg_target t;
    hd_text llvm, assembly, object;
    hir_names_init(&c.index, s->arena);
    if (!api_need_program(s, target) ||
        !hcg_find_target(&s->program->options, s->arena, &s->diags, &t))
        return NULL;
    c.code->level = t.variants.at[0].level.name;
    if (!write_form(s, HCG_CODE_LLVM, &llvm) || !write_form(s, HCG_CODE_ASM, &assembly) ||
        !write_form(s, HCG_CODE_OBJECT, &object))
        return NULL;
    read_llvm(&c, llvm.at);
    read_assembly(&c, assembly.at);
    read_object(&c, &object);
    list_steps(&c, s->program);
    return c.code;
}
