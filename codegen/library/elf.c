/* Merging relocatable objects.
 *
 * Bodies are compiled in parallel, each piece to an object of its own, but `--emit=obj` promises
 * one object and no linker. Nothing has to be laid out for that: an object may have any number of
 * sections of one name. So all sections are copied, with new numbers; the symbol tables become one,
 * locals first as ELF wants it; and relocations get the new number of their symbol. */
#include <elf.h>
#include <string.h>

#include "codegen/library/elf.h"

enum { MOST_ALIGNED = 4096 };

typedef struct part {
    const uint8_t *at;
    size_t bytes;
    Elf64_Ehdr head;
    Elf64_Shdr *sections;
    uint32_t *section_map; /* old number to new, 0: left out */
    uint32_t symtab;       /* section number */
    Elf64_Sym *symbols;
    uint32_t n_symbols;
    uint32_t *symbol_map;
} part;

typedef struct global {
    const char *name;
    uint32_t index; /* in merger.symbols */
} global;

typedef struct merger {
    hd_arena *a;
    hd_diags *d;
    part *parts;
    size_t n;
    HD_VEC(Elf64_Shdr) sections;
    HD_VEC(const uint8_t *) contents; /* of each section, NULL: none */
    HD_VEC(Elf64_Sym) symbols;
    HD_VEC(global) globals;
    global **table; /* open addressing by name */
    size_t table_size;
    uint32_t n_locals;
    hd_text names;
} merger;

static bool broken(merger *m, const char *what) {
    hd_err(m->d, HD_E_INTERNAL, HD_NOWHERE, "an object of LLVM's cannot be merged: %s", what);
    return false;
}

/* ---- reading -----------------------------------------------------------------------------------
 */
static bool within(const part *p, uint64_t offset, uint64_t bytes) {
    return offset <= p->bytes && bytes <= p->bytes - offset;
}

static bool read_sections(merger *m, part *p) {
    if (p->bytes < sizeof p->head) return broken(m, "it is cut short");
    memcpy(&p->head, p->at, sizeof p->head);
    const unsigned char *ident = p->head.e_ident;
    if (memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_CLASS] != ELFCLASS64 ||
        ident[EI_DATA] != ELFDATA2LSB || p->head.e_type != ET_REL)
        return broken(m, "it is no relocatable 64-bit ELF");
    if (p->head.e_shentsize != sizeof(Elf64_Shdr) || p->head.e_shnum == 0)
        return broken(m, "its section headers");
    uint64_t bytes = (uint64_t)p->head.e_shnum * sizeof(Elf64_Shdr);
    if (!within(p, p->head.e_shoff, bytes)) return broken(m, "its section headers");
    p->sections = hd_new_array(m->a, Elf64_Shdr, p->head.e_shnum);
    memcpy(p->sections, p->at + p->head.e_shoff, bytes);
    p->section_map = hd_new_array(m->a, uint32_t, p->head.e_shnum);
    for (uint32_t i = 1; i < p->head.e_shnum; i++) {
        const Elf64_Shdr *s = &p->sections[i];
        if (s->sh_type != SHT_NOBITS && !within(p, s->sh_offset, s->sh_size))
            return broken(m, "a section");
        if (s->sh_addralign & (s->sh_addralign - 1) || s->sh_addralign > MOST_ALIGNED)
            return broken(m, "a section's alignment");
        if (s->sh_type == SHT_GROUP || s->sh_type == SHT_SYMTAB_SHNDX || s->sh_type == SHT_REL)
            return broken(m, "a section of an unknown kind");
        if (s->sh_type == SHT_SYMTAB) p->symtab = i;
    }
    return p->symtab != 0 || broken(m, "it has no symbols");
}

static bool read_symbols(merger *m, part *p) {
    const Elf64_Shdr *s = &p->sections[p->symtab];
    p->n_symbols = (uint32_t)(s->sh_size / sizeof(Elf64_Sym));
    p->symbols = hd_new_array(m->a, Elf64_Sym, p->n_symbols);
    p->symbol_map = hd_new_array(m->a, uint32_t, p->n_symbols);
    if (p->n_symbols) memcpy(p->symbols, p->at + s->sh_offset, p->n_symbols * sizeof(Elf64_Sym));
    if (s->sh_link >= p->head.e_shnum) return broken(m, "its symbol table");
    for (uint32_t i = 0; i < p->n_symbols; i++) {
        uint16_t at = p->symbols[i].st_shndx;
        if (at >= p->head.e_shnum && at != SHN_ABS && at != SHN_COMMON)
            return broken(m, "a symbol's section");
    }
    return true;
}

/* A name in one of the part's string tables; NULL if it does not end inside. */
static const char *string(const part *p, uint32_t section, uint64_t offset) {
    if (section >= p->head.e_shnum) return NULL;
    const Elf64_Shdr *s = &p->sections[section];
    if (s->sh_type != SHT_STRTAB || offset >= s->sh_size) return NULL;
    const char *text = (const char *)p->at + s->sh_offset + offset;
    return memchr(text, '\0', s->sh_size - offset) ? text : NULL;
}

static uint32_t add_name(merger *m, const char *name) {
    if (!*name) return 0;
    uint32_t at = (uint32_t)m->names.n;
    hd_text_add_n(&m->names, name, strlen(name) + 1);
    return at;
}

/* ---- sections ----------------------------------------------------------------------------------
 */
static bool is_kept(const part *p, uint32_t i) {
    uint32_t type = p->sections[i].sh_type;
    return type != SHT_NULL && type != SHT_SYMTAB && type != SHT_STRTAB;
}

static bool map_sections(merger *m, part *p) {
    for (uint32_t i = 1; i < p->head.e_shnum; i++) {
        if (!is_kept(p, i)) continue;
        Elf64_Shdr s = p->sections[i];
        const char *name = string(p, p->head.e_shstrndx, s.sh_name);
        if (!name) return broken(m, "a section's name");
        s.sh_name = add_name(m, name);
        p->section_map[i] = (uint32_t)m->sections.n;
        hd_push(m->a, &m->sections, s);
        hd_push(m->a, &m->contents, s.sh_type == SHT_NOBITS ? NULL : p->at + s.sh_offset);
    }
    return m->sections.n + 2 < SHN_LORESERVE || broken(m, "too many sections");
}

/* ---- symbols -----------------------------------------------------------------------------------
 */
static uint16_t new_section(const part *p, uint16_t old) {
    return old == SHN_UNDEF || old >= SHN_LORESERVE ? old : (uint16_t)p->section_map[old];
}

static uint64_t hash(const char *name) {
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

/* The slot of a global's name, empty if it is new. The table is at most half full. */
static global **slot_of(merger *m, const char *name) {
    size_t at = hash(name) & (m->table_size - 1);
    while (m->table[at] && strcmp(m->table[at]->name, name) != 0)
        at = (at + 1) & (m->table_size - 1);
    return &m->table[at];
}

static uint8_t narrower(uint8_t a, uint8_t b) { /* of two visibilities */
    if (a == STV_DEFAULT) return b;
    return b != STV_DEFAULT && b < a ? b : a;
}

/* A definition takes the place of a reference; two definitions are a defect. */
static bool unite(merger *m, Elf64_Sym *have, Elf64_Sym more, const char *name) {
    uint8_t seen = narrower(have->st_other & 3, more.st_other & 3);
    bool defines = more.st_shndx != SHN_UNDEF;
    if (defines && have->st_shndx != SHN_UNDEF)
        return broken(m, hd_printf(m->a, "\"%s\" is defined twice", name));
    if (defines) {
        more.st_name = have->st_name;
        *have = more;
    }
    have->st_other = (uint8_t)((have->st_other & ~3) | seen);
    return true;
}

static bool add_symbol(merger *m, part *p, uint32_t i, bool local) {
    Elf64_Sym s = p->symbols[i];
    const char *name = string(p, p->sections[p->symtab].sh_link, s.st_name);
    if (!name && s.st_name) return broken(m, "a symbol's name");
    s.st_shndx = new_section(p, s.st_shndx);
    global **slot = local ? NULL : slot_of(m, name ? name : "");
    if (slot && *slot) {
        p->symbol_map[i] = (*slot)->index;
        return unite(m, &m->symbols.at[(*slot)->index], s, name);
    }
    s.st_name = add_name(m, name ? name : "");
    p->symbol_map[i] = (uint32_t)m->symbols.n;
    if (slot) {
        *slot = hd_new(m->a, global);
        **slot = (global){name ? name : "", (uint32_t)m->symbols.n};
    }
    hd_push(m->a, &m->symbols, s);
    return true;
}

static bool merge_symbols(merger *m) {
    size_t total = 1;
    for (size_t i = 0; i < m->n; i++)
        total += m->parts[i].n_symbols;
    for (m->table_size = 64; m->table_size < 2 * total;)
        m->table_size *= 2;
    m->table = hd_new_array(m->a, global *, m->table_size);
    hd_push(m->a, &m->symbols, (Elf64_Sym){0});
    for (int locals = 1; locals >= 0; locals--) {
        for (size_t k = 0; k < m->n; k++)
            for (uint32_t i = 1; i < m->parts[k].n_symbols; i++) {
                bool local = ELF64_ST_BIND(m->parts[k].symbols[i].st_info) == STB_LOCAL;
                if (local == locals && !add_symbol(m, &m->parts[k], i, local)) return false;
            }
        if (locals) m->n_locals = (uint32_t)m->symbols.n;
    }
    return true;
}

/* ---- relocations and links ---------------------------------------------------------------------
 */
static bool relocate(merger *m, const part *p, uint32_t section) {
    Elf64_Shdr *s = &m->sections.at[section];
    size_t n = s->sh_size / sizeof(Elf64_Rela);
    Elf64_Rela *list = hd_new_array(m->a, Elf64_Rela, n);
    if (n) memcpy(list, m->contents.at[section], n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        uint64_t symbol = ELF64_R_SYM(list[i].r_info);
        if (symbol >= p->n_symbols) return broken(m, "a relocation's symbol");
        list[i].r_info =
            ELF64_R_INFO((uint64_t)p->symbol_map[symbol], ELF64_R_TYPE(list[i].r_info));
    }
    m->contents.at[section] = (const uint8_t *)list;
    s->sh_size = n * sizeof *list;
    return true;
}

static bool renumber(merger *m, const part *p, uint32_t symtab) {
    for (uint32_t i = 1; i < p->head.e_shnum; i++) {
        uint32_t section = p->section_map[i];
        if (!section) continue;
        Elf64_Shdr *s = &m->sections.at[section];
        if (s->sh_type == SHT_RELA) {
            if (s->sh_info >= p->head.e_shnum) return broken(m, "a relocation's section");
            s->sh_info = p->section_map[s->sh_info];
            s->sh_link = symtab;
            if (!relocate(m, p, section)) return false;
        } else if (s->sh_link != 0) {
            if (s->sh_link >= p->head.e_shnum) return broken(m, "a section's link");
            s->sh_link = s->sh_link == p->symtab ? symtab : p->section_map[s->sh_link];
        }
    }
    return true;
}

/* ---- writing -----------------------------------------------------------------------------------
 */
static uint64_t align_to(uint64_t x, uint64_t align) {
    return align > 1 ? (x + align - 1) / align * align : x;
}

static void add_table(merger *m, const char *name, Elf64_Shdr s, const void *content) {
    s.sh_name = add_name(m, name);
    hd_push(m->a, &m->sections, s);
    hd_push(m->a, &m->contents, content);
}

static hd_bytes write_object(merger *m) {
    uint64_t end = sizeof(Elf64_Ehdr);
    for (size_t i = 1; i < m->sections.n; i++) {
        Elf64_Shdr *s = &m->sections.at[i];
        s->sh_offset = align_to(end, s->sh_addralign);
        end = s->sh_offset + (s->sh_type == SHT_NOBITS ? 0 : s->sh_size);
    }
    Elf64_Ehdr head = m->parts[0].head;
    head.e_shoff = align_to(end, 8);
    head.e_shnum = (Elf64_Half)m->sections.n;
    head.e_shstrndx = (Elf64_Half)(m->sections.n - 1);
    size_t table = m->sections.n * sizeof(Elf64_Shdr), total = head.e_shoff + table;
    uint8_t *out = hd_alloc(m->a, total, 1);
    memcpy(out, &head, sizeof head);
    for (size_t i = 1; i < m->sections.n; i++) {
        const Elf64_Shdr *s = &m->sections.at[i];
        if (m->contents.at[i] && s->sh_size > 0)
            memcpy(out + s->sh_offset, m->contents.at[i], s->sh_size);
    }
    memcpy(out + head.e_shoff, m->sections.at, table);
    return (hd_bytes){out, total};
}

bool hcg_merge_objects(hd_arena *a, hd_diags *d, const hd_bytes *parts, size_t n, hd_bytes *out) {
    merger m = {.a = a, .d = d, .parts = hd_new_array(a, part, n), .n = n};
    if (n == 0) return broken(&m, "there is none");
    hd_text_init(&m.names, a);
    hd_text_add_n(&m.names, "", 1);
    hd_push(a, &m.sections, (Elf64_Shdr){0});
    hd_push(a, &m.contents, NULL);
    for (size_t i = 0; i < n; i++) {
        m.parts[i] = (part){.at = parts[i].at, .bytes = parts[i].n};
        if (!read_sections(&m, &m.parts[i]) || !read_symbols(&m, &m.parts[i]) ||
            !map_sections(&m, &m.parts[i]))
            return false;
        if (m.parts[i].head.e_machine != m.parts[0].head.e_machine)
            return broken(&m, "they are for several machines");
    }
    if (!merge_symbols(&m)) return false;
    uint32_t symtab = (uint32_t)m.sections.n;
    for (size_t i = 0; i < n; i++)
        if (!renumber(&m, &m.parts[i], symtab)) return false;
    add_table(&m, ".symtab",
              (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                           .sh_size = m.symbols.n * sizeof(Elf64_Sym),
                           .sh_link = symtab + 1,
                           .sh_info = m.n_locals,
                           .sh_addralign = 8,
                           .sh_entsize = sizeof(Elf64_Sym)},
              m.symbols.at);
    add_table(&m, ".strtab", (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_addralign = 1}, NULL);
    m.sections.at[symtab + 1].sh_size = m.names.n;
    m.contents.at[symtab + 1] = (const uint8_t *)m.names.at;
    *out = write_object(&m);
    return true;
}
