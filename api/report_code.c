/* The code in a report: what the kernels of a module are compiled to for one CPU level, by
 * function, with the line of the kernel IR for each line of LLVM IR and assembly. */
#include "api/report.h"

#include <stdlib.h>
#include <string.h>

#include "api/object_lines.h"
#include "codegen/module/module.h"
#include "codegen/program/program.h"

/* ---- functions by name ----------------------------------------------------------------------- */

typedef struct collector {
    hadal_session *s;
    report_code *code;
    hir_names index; /* functions by name */
    bool listings;
    HD_VEC(uint32_t) locs; /* by number of `.loc`: the line after it in its function's listing */
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

/* ---- LLVM IR --------------------------------------------------------------------------------- */

/* By number of a metadata node: the line of the kernel IR, from `!7 = !DILocation(line: 88,
 * ...`. */
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

/* Adds a line of a function; the reference to its location is removed, and kept as a number. */
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
        if (hd_begins_with(at, "define "))
            to = &function_named(c, llvm_function_name(c->s->arena, at, n))->llvm;
        if (to) add_llvm_line(c, &known, to, at, n);
        if (*at == '}') to = NULL;
        at += n + (at[n] == '\n');
    }
}

/* ---- assembly -------------------------------------------------------------------------------- */

/* The name in `NAME:` in the first column; NULL for labels inside functions. */
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
    if (hd_begins_with(at, ".LBB")) return true;
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
        } else if (hd_begins_with(at, "\t.size\t")) {
            to = NULL;
        } else if (hd_begins_with(at, "\t.loc\t")) {
            line = line_of_directive(at);
            hd_push(c->s->arena, &c->locs, to ? (uint32_t)to->lines.n : 0);
        } else if (to && is_code(at, n)) {
            add_line(c, to, at, n, line);
        }
        at += n + (at[n] == '\n');
    }
}

/* ---- the object ------------------------------------------------------------------------------ */

static void place_functions(collector *c, const object_lines *object) {
    for (size_t i = 0; i < object->functions.n; i++) {
        const object_function *f = &object->functions.at[i];
        if (c->listings && !hir_names_find(&c->index, f->name)) continue;
        report_function *known = function_named(c, f->name);
        known->offset = f->offset;
        known->bytes = f->bytes;
    }
}

/* Orders functions by their addresses. */
static int by_offset(const void *a, const void *b) {
    const report_function *x = *(report_function *const *)a, *y = *(report_function *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static report_function **sorted_functions(const collector *c) {
    report_function **all = hd_new_array(c->s->arena, report_function *, c->code->functions.n);
    for (size_t i = 0; i < c->code->functions.n; i++)
        all[i] = &c->code->functions.at[i];
    qsort(all, c->code->functions.n, sizeof *all, by_offset);
    return all;
}

/* The function whose code contains an address; NULL: none. */
static report_function *function_at(const collector *c, report_function **sorted,
                                    uint64_t address) {
    size_t low = 0, high = c->code->functions.n;
    while (low < high) { /* finds the first function that begins after the address */
        const size_t middle = low + (high - low) / 2;
        if (sorted[middle]->offset > address)
            high = middle;
        else
            low = middle + 1;
    }
    report_function *f = low ? sorted[low - 1] : NULL;
    return f && address - f->offset < f->bytes ? f : NULL;
}

/* Adds [begin, end) to the ranges of a function. The range may continue the one before. */
static void add_range(collector *c, report_function *f, report_range range) {
    report_range *last = f->ranges.n ? &f->ranges.at[f->ranges.n - 1] : NULL;
    if (last && last->line == range.line && last->first + last->bytes == range.first)
        last->bytes += range.bytes;
    else
        hd_push(c->s->arena, &f->ranges, range);
}

/* Adds the ranges of all rows. A row of the line table belongs to a `.loc` of the assembly, in the
 * same order. */
static void add_ranges(collector *c, const object_lines *object) {
    report_function **sorted = sorted_functions(c);
    size_t loc = 0;
    for (size_t i = 0; i + 1 < object->rows.n; i++) {
        const object_row *row = &object->rows.at[i];
        if (row->ends) continue;
        const uint32_t listed = loc < c->locs.n ? c->locs.at[loc] : 0;
        const uint64_t end = object->rows.at[i + 1].address;
        report_function *f = function_at(c, sorted, row->address);
        loc++;
        if (!f || end <= row->address) continue;
        const uint64_t first = row->address - f->offset, most = f->bytes - first;
        const uint64_t bytes = end - row->address < most ? end - row->address : most;
        add_range(c, f, (report_range){row->line, (uint32_t)first, (uint32_t)bytes, listed});
    }
}

static bool read_object(collector *c, const hd_text *text) {
    object_lines object;
    size_t rows = 0;
    const bool read = api_read_object(c->s->arena, text, &object);
    for (size_t i = 0; read && i < object.rows.n; i++)
        rows += !object.rows.at[i].ends;
    if (!read || (c->listings && rows != c->locs.n)) {
        hd_err(&c->s->diags, HD_E_INTERNAL, HD_NOWHERE,
               read ? "the line table of the object is not that of its assembly"
                    : "the line table of the object cannot be read");
        return false;
    }
    place_functions(c, &object);
    add_ranges(c, &object);
    return true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

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

/* Reads both listings; functions get their order from them. */
static bool read_listings(collector *c) {
    hd_text llvm, assembly;
    if (!write_form(c->s, HCG_CODE_LLVM, &llvm) || !write_form(c->s, HCG_CODE_ASM, &assembly))
        return false;
    read_llvm(c, llvm.at);
    read_assembly(c, assembly.at);
    return true;
}

const report_code *api_report_code(hadal_session *s, const hadal_target *target, bool listings) {
    collector c = {.s = s, .code = hd_new(s->arena, report_code), .listings = listings};
    hcg_target t;
    hd_text object;
    hir_names_init(&c.index, s->arena);
    if (!api_need_program(s, target) ||
        !hcg_find_target(&s->program->options, s->arena, &s->diags, &t))
        return NULL;
    c.code->level = t.variants.at[0].level.name;
    if (listings && !read_listings(&c)) return NULL;
    list_steps(&c, s->program);
    const bool read = write_form(s, HCG_CODE_OBJECT, &object) && read_object(&c, &object);
    return read ? c.code : NULL;
}
