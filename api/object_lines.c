/* The line table of an object: DWARF 2 to 5, as far as addresses and lines need it. A line program
 * is read from the end of its header on, so that the tables of files, which differ by version, are
 * not parsed. */
#include "api/object_lines.h"

#include <elf.h>
#include <string.h>

#include "support/arena.h"

/* ---- sections -------------------------------------------------------------------------------- */

typedef struct object_file {
    hd_arena *a;
    const char *at;
    size_t n;
    const Elf64_Shdr *sections;
    uint32_t n_sections;
    const Elf64_Sym *symbols;
    size_t n_symbols;
    const char *names; /* names of symbols */
} object_file;

static bool is_inside(const object_file *f, uint64_t at, uint64_t n) {
    return at <= f->n && n <= f->n - at;
}

static const Elf64_Shdr *section_at(const object_file *f, uint32_t i) {
    if (i >= f->n_sections) return NULL;
    const Elf64_Shdr *s = &f->sections[i];
    return s->sh_type == SHT_NOBITS || is_inside(f, s->sh_offset, s->sh_size) ? s : NULL;
}

/* A table of strings must end with a NUL, so that every string in it does. */
static const char *strings_of(const object_file *f, uint32_t i, uint64_t *n) {
    const Elf64_Shdr *s = section_at(f, i);
    if (!s || s->sh_type != SHT_STRTAB || !s->sh_size) return NULL;
    *n = s->sh_size;
    return f->at[s->sh_offset + s->sh_size - 1] ? NULL : f->at + s->sh_offset;
}

static const Elf64_Shdr *section_named(const object_file *f, const char *name) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)f->at;
    uint64_t n;
    const char *names = strings_of(f, head->e_shstrndx, &n);
    for (uint32_t i = 0; names && i < f->n_sections; i++) {
        const Elf64_Shdr *s = section_at(f, i);
        if (s && s->sh_name < n && strcmp(names + s->sh_name, name) == 0) return s;
    }
    return NULL;
}

static bool find_symbols(object_file *f) {
    uint64_t n;
    for (uint32_t i = 0; i < f->n_sections; i++) {
        const Elf64_Shdr *s = section_at(f, i);
        if (!s || s->sh_type != SHT_SYMTAB || s->sh_offset % _Alignof(Elf64_Sym)) continue;
        f->symbols = (const Elf64_Sym *)(f->at + s->sh_offset);
        f->n_symbols = s->sh_size / sizeof *f->symbols;
        f->names = strings_of(f, s->sh_link, &n);
        for (size_t k = 0; f->names && k < f->n_symbols; k++)
            if (f->symbols[k].st_name >= n) return false;
        return f->names;
    }
    return false;
}

static bool open_object(object_file *f) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)f->at;
    if (f->n < sizeof *head || memcmp(f->at, ELFMAG, SELFMAG) != 0) return false;
    if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB)
        return false;
    if (head->e_shentsize != sizeof *f->sections || head->e_shoff % _Alignof(Elf64_Shdr) ||
        !is_inside(f, head->e_shoff, (uint64_t)head->e_shnum * sizeof *f->sections))
        return false;
    f->sections = (const Elf64_Shdr *)(f->at + head->e_shoff);
    f->n_sections = head->e_shnum;
    return find_symbols(f);
}

static void list_functions(const object_file *f, object_lines *out) {
    for (size_t k = 0; k < f->n_symbols; k++) {
        const Elf64_Sym *s = &f->symbols[k];
        if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || s->st_shndx == SHN_UNDEF) continue;
        const object_function x = {hd_strdup(f->a, f->names + s->st_name), s->st_value, s->st_size};
        hd_push(f->a, &out->functions, x);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *at, *end;
    bool failed; /* a read went beyond the end */
} cursor;

static uint64_t fixed(cursor *c, size_t n) {
    uint64_t x = 0;
    if ((size_t)(c->end - c->at) < n) {
        c->failed = true;
        c->at = c->end;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        x |= (uint64_t)c->at[i] << 8 * i;
    c->at += n;
    return x;
}

static uint64_t uleb(cursor *c) {
    uint64_t x = 0;
    for (unsigned shift = 0;; shift += 7) {
        const uint64_t byte = fixed(c, 1);
        if (shift < 64) x |= (byte & 127) << shift;
        if (byte < 128) return x;
    }
}

static int64_t sleb(cursor *c) {
    uint64_t x = 0, byte;
    unsigned shift = 0;
    do {
        byte = fixed(c, 1);
        if (shift < 64) x |= (byte & 127) << shift;
        shift += 7;
    } while (byte & 128);
    if (byte & 64 && shift < 64) x |= ~(uint64_t)0 << shift;
    return (int64_t)x;
}

/* ---- line programs --------------------------------------------------------------------------- */

typedef struct line_program {
    const object_file *f;
    const Elf64_Shdr *section, *relocations;
    object_lines *out;
    cursor c;
    uint8_t step, base, range, first_special; /* fields of the header */
    const uint8_t *operands;                  /* numbers of operands of the standard opcodes */
    uint64_t address;
    uint64_t line;
} line_program;

enum { /* opcodes that change address or line */
       COPY = 1,
       ADVANCE_PC,
       ADVANCE_LINE,
       CONST_ADD_PC = 8,
       FIXED_ADVANCE_PC,
       EXTENDED = 0,
       END_SEQUENCE = 1,
       SET_ADDRESS,
};

static void add_row(line_program *p, bool ends) {
    const object_row row = {p->address, ends ? 0 : (uint32_t)p->line, ends};
    hd_push(p->f->a, &p->out->rows, row);
}

/* The address at `offset` of the section: the bytes of the object, or their relocation. */
static uint64_t relocated(const line_program *p, uint64_t offset, uint64_t held) {
    const object_file *f = p->f;
    if (!p->relocations) return held;
    const Elf64_Rela *r = (const Elf64_Rela *)(f->at + p->relocations->sh_offset);
    for (size_t i = 0; i < p->relocations->sh_size / sizeof *r; i++) {
        const uint64_t symbol = ELF64_R_SYM(r[i].r_info);
        if (r[i].r_offset != offset || symbol >= f->n_symbols) continue;
        return f->symbols[symbol].st_value + (uint64_t)r[i].r_addend;
    }
    return held;
}

static void run_extended(line_program *p) {
    const uint64_t n = uleb(&p->c);
    const uint8_t *end = p->c.at + n;
    if (!n || n > (uint64_t)(p->c.end - p->c.at)) {
        p->c.failed = true;
        p->c.at = p->c.end;
        return;
    }
    const uint64_t code = fixed(&p->c, 1);
    if (code == END_SEQUENCE) {
        add_row(p, true);
        p->address = 0, p->line = 1;
    } else if (code == SET_ADDRESS) {
        const uint64_t offset =
            (uint64_t)((const char *)p->c.at - p->f->at) - p->section->sh_offset;
        p->address = relocated(p, offset, fixed(&p->c, n - 1 < 8 ? n - 1 : 8));
    }
    p->c.at = end;
}

static void run_special(line_program *p, unsigned code) {
    const unsigned adjusted = code - p->first_special;
    p->address += adjusted / p->range * p->step;
    p->line += (uint64_t)(int64_t)((int8_t)p->base + (int)(adjusted % p->range));
}

static void run_standard(line_program *p, unsigned code) {
    switch (code) {
    case COPY: add_row(p, false); return;
    case ADVANCE_PC: p->address += uleb(&p->c) * p->step; return;
    case ADVANCE_LINE: p->line += (uint64_t)sleb(&p->c); return;
    case CONST_ADD_PC: p->address += (255u - p->first_special) / p->range * p->step; return;
    case FIXED_ADVANCE_PC: p->address += fixed(&p->c, 2); return;
    default:
        for (unsigned i = 0; i < p->operands[code - 1]; i++)
            uleb(&p->c);
    }
}

/* Reads the header up to the line program, whose position it states as a distance. */
static bool read_header(line_program *p) {
    cursor *c = &p->c;
    const uint64_t version = fixed(c, 2);
    if (version < 2 || version > 5) return false;
    if (version == 5) fixed(c, 2); /* sizes of an address and of a segment selector */
    const uint64_t n = fixed(c, 4);
    if (n > (uint64_t)(c->end - c->at)) return false;
    const uint8_t *program = c->at + n;
    p->step = (uint8_t)fixed(c, 1);
    if (version >= 4) fixed(c, 1); /* operations per instruction: of VLIW machines */
    fixed(c, 1);                   /* default of "row is a statement" */
    p->base = (uint8_t)fixed(c, 1);
    p->range = (uint8_t)fixed(c, 1);
    p->first_special = (uint8_t)fixed(c, 1);
    p->operands = c->at;
    if (c->failed || !p->range || !p->first_special || c->at + p->first_special - 1 > program)
        return false;
    c->at = program;
    return true;
}

static bool run_program(line_program *p) {
    if (!read_header(p)) return false;
    p->address = 0, p->line = 1;
    while (p->c.at < p->c.end) {
        const unsigned code = (unsigned)fixed(&p->c, 1);
        if (code >= p->first_special) {
            run_special(p, code);
            add_row(p, false);
        } else if (code == EXTENDED) {
            run_extended(p);
        } else {
            run_standard(p, code);
        }
    }
    return !p->c.failed;
}

/* Runs all line programs one after the other; each has its length in front. */
static bool run_programs(line_program *p) {
    const uint8_t *at = (const uint8_t *)p->f->at + p->section->sh_offset;
    const uint8_t *end = at + p->section->sh_size;
    while (at < end) {
        cursor c = {at, end, false};
        const uint64_t n = fixed(&c, 4);
        if (c.failed || n > (uint64_t)(end - c.at)) return false; /* nor is the 64-bit form read */
        p->c = (cursor){c.at, c.at + n, false};
        if (!run_program(p)) return false;
        at = c.at + n;
    }
    return true;
}

bool api_read_object(hd_arena *a, const hd_text *object, object_lines *out) {
    object_file f = {.a = a, .at = object->at, .n = object->n};
    *out = (object_lines){0};
    if (!open_object(&f)) return false;
    list_functions(&f, out);
    line_program p = {.f = &f, .out = out, .section = section_named(&f, ".debug_line")};
    if (!p.section) return false;
    p.relocations = section_named(&f, ".rela.debug_line");
    if (p.relocations && p.relocations->sh_offset % _Alignof(Elf64_Rela)) return false;
    return run_programs(&p);
}
