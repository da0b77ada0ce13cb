/* The op reference, from the table. */
#include <string.h>

#include "ir/kernel/kernels.h"
#include "ir/signature.h"

static const char *const kind_names[] = {
    [HIR_ATTR_INT] = "integer",
    [HIR_ATTR_FLOAT] = "number",
    [HIR_ATTR_STRING] = "string",
    [HIR_ATTR_INTS] = "list of dims",
    [HIR_ATTR_FLOATS] = "list of numbers",
};

static const struct {
    unsigned trait;
    const char *meaning;
} traits[] = {
    {HIR_ELEMENTWISE, "elementwise"},      {HIR_REDUCE, "reduction"},
    {HIR_MOVE, "moves elements"},          {HIR_LOCAL, "token-local"},
    {HIR_EFFECT, "kept even when unused"}, {HIR_REGION, "holds a body"},
    {HIR_COMPOSITE, "has an expansion"},   {HIR_POSITION, "looks at the position"},
    {HIR_VIEW, "a view of an operand"},    {HIR_SEQUENCE, "looks along the sequence"},
    {HIR_WRITES_STATE, "changes state"},   {HIR_COMM, "between ranks"},
    {HIR_REDUCES_TOKENS, "sums over tokens"},
};

/* `rmsnorm x, gain? {eps}` */
static void print_form(hd_text *out, hir_opcode code) {
    hir_signature s = hir_signature_of(code);
    hd_text_add(out, hir_info(code)->name);
    for (uint32_t i = 0; i < s.n_operands; i++)
        hd_text_f(out, "%s %s%s", i ? "," : "", s.operands[i].name,
                  s.operands[i].rest       ? ", .."
                  : s.operands[i].optional ? "?"
                                           : "");
    for (uint32_t i = 0; i < s.n_attrs; i++)
        hd_text_f(out, "%s%s%s", i ? ", " : " {", hir_attr_name(s.attrs[i].id),
                  s.attrs[i].optional ? "?" : "");
    hd_text_add(out, s.n_attrs ? "}" : "");
    if (hir_has_trait(code, HIR_REGION)) hd_text_add(out, " { body }");
}

static void print_traits(hd_text *out, hir_opcode code) {
    const char *separator = "";
    for (size_t i = 0; i < sizeof traits / sizeof *traits; i++)
        if (hir_has_trait(code, traits[i].trait)) {
            hd_text_f(out, "%s%s", separator, traits[i].meaning);
            separator = ", ";
        }
}

static void print_attrs(hd_text *out, hir_opcode code, const char *indent) {
    hir_signature s = hir_signature_of(code);
    for (uint32_t i = 0; i < s.n_attrs; i++)
        hd_text_f(out, "%s%s: %s%s\n", indent, hir_attr_name(s.attrs[i].id),
                  kind_names[hir_attr_kind_of(s.attrs[i].id)],
                  s.attrs[i].optional ? ", optional" : "");
}

/* Text wrapped at blanks, every line indented. */
static void print_wrapped(hd_text *out, const char *text, const char *indent, size_t width) {
    while (*text) {
        size_t n = strlen(text);
        if (n > width) {
            n = width;
            while (n > 0 && text[n] != ' ')
                n--;
            if (n == 0) n = strcspn(text, " ");
        }
        hd_text_add(out, indent);
        hd_text_add_n(out, text, n);
        hd_text_add(out, "\n");
        text += n;
        text += strspn(text, " ");
    }
}

static void print_plain(hd_text *out, hir_opcode code, bool details) {
    print_form(out, code);
    hd_text_add(out, "\n");
    print_wrapped(out, hir_info(code)->doc, "    ", 92);
    if (!details) return;
    hd_text_add(out, "    (");
    print_traits(out, code);
    hd_text_f(out, "; legal %s)\n", hir_stage_legal(hir_info(code)->stage));
    print_attrs(out, code, "    ");
}

/* Formulas are in code blocks, as they are full of characters that mean something in markdown. */
static void print_markdown(hd_text *out, hir_opcode code) {
    hd_text_f(out, "\n### `%s`\n\n", hir_info(code)->name);
    hd_text_add(out, "    ");
    print_form(out, code);
    hd_text_add(out, "\n\n```\n");
    print_wrapped(out, hir_info(code)->doc, "", 96);
    hd_text_add(out, "```\n\n*");
    print_traits(out, code);
    hd_text_add(out, "*\n");
    if (*hir_info(code)->attrs) {
        hd_text_add(out, "\n");
        print_attrs(out, code, "- ");
    }
}

static void print_introduction(hd_text *out) {
    hd_text_add(out, "# Ops\n\n"
                     "This page is printed by `hadal ops --markdown` from `ir/ops.def`; change it "
                     "there.\n\n"
                     "`?` marks what may be left out (an operand that is left out is written `_`), "
                     "`..` one or more\noperands. Axes count from 0 and include the token dim T, "
                     "which is always dim 0 and is never reduced,\nmoved or sliced. Arithmetic is "
                     "f32 (in the reference evaluator f64); operands stored narrower are widened.\n"
                     "How ops are written down is in [ir.md](ir.md).\n");
}

bool hir_print_reference(hd_text *out, bool markdown, const char *only) {
    hir_opcode code;
    if (only) {
        if (!hir_opcode_by_name(only, &code)) return false;
        if (markdown)
            print_markdown(out, code);
        else
            print_plain(out, code, true);
        return true;
    }
    if (markdown) print_introduction(out);
    for (int stage = 0; stage < HIR_STAGE_COUNT; stage++) {
        bool any = false;
        for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
            if (hir_info((hir_opcode)i)->stage != (hir_stage)stage) continue;
            if (!any && markdown)
                hd_text_f(out, "\n## Legal %s\n", hir_stage_legal((hir_stage)stage));
            any = true;
            if (markdown)
                print_markdown(out, (hir_opcode)i);
            else
                print_plain(out, (hir_opcode)i, false);
        }
    }
    if (markdown) hir_print_kernel_tables(out);
    return true;
}
