/* NAME.py: the library as a class of Python, for ctypes. The file is python/model.py but for what the
 * model says: lines between `#@constants` and `#@end` are written here, `#@info` becomes the fields of
 * hadal_info, and parts of functions that the library lacks (`#@loss`, `#@outputs`) are left out. */
#include <string.h>

#include "codegen/module/module.h"
#include "codegen/module/python.h"
#include "codegen/program/build_id.h"
#include "support/file.h"

static bool reject(hd_diags *d, const char *what, const char *hint) {
    hd_diag *e =
        hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "no class of Python is written for %s", what);
    e->hint = hint;
    return false;
}

/* Words of Python, and what the file imports: NAME.py could not be imported, or would stand in the
 * place of another module. */
static bool is_taken(const char *name) {
    static const char *const words[] = {
        "and",    "as",   "assert", "async",  "await",    "break", "class", "continue", "def",
        "del",    "elif", "else",   "except", "finally",  "for",   "from",  "global",   "if",
        "import", "in",   "is",     "lambda", "nonlocal", "not",   "or",    "pass",     "raise",
        "return", "try",  "while",  "with",   "yield",    "None",  "True",  "False",    "array",
        "ctypes", "json", "mmap",   "numpy",  "os"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0) return true;
    return false;
}

/* ---- constants ------------------------------------------------------------------------------- */
/* ("rows", True, (64,)): whether it has a row for each token, and the dims of a row. */
static void print_output(const hcg_port *port, hd_text *out) {
    const bool tokens = hir_type_has_t(port->type);
    hd_text_add(out, "(");
    hd_text_quoted(out, port->name);
    hd_text_f(out, ", %s, (", tokens ? "True" : "False");
    for (uint32_t i = tokens; i < port->type.rank; i++)
        hd_text_f(out, "%lld%s", (long long)port->type.dim[i],
                  i + 1 < port->type.rank ? ", " : ",");
    hd_text_add(out, ")),");
}

static void print_constants(hcg_program *p, hd_text *out) {
    const uint64_t logits = p->outputs.at[0].row_bytes / sizeof(float);
    hd_text_f(out, "NAME, VERSION, BUILD_ID = \"%s\", \"%s\", \"%s\"\n", p->m->name, HADAL_VERSION,
              hcg_build_id(p));
    hd_text_f(out, "VOCAB = %lld  # token ids are 0 .. VOCAB - 1\n", (long long)p->vocab);
    hd_text_f(out, "LOGITS = %llu  # numbers in a row\n", (unsigned long long)logits);
    hd_text_f(out, "MAX_CHUNK = %lld  # longer calls are cut into passes of so many tokens\n",
              (long long)p->chunk);
    hd_text_add(out, "OUTPUTS = (  # name, whether there is a row for each token, its dims\n");
    for (size_t i = 0; i < p->outputs.n; i++) {
        hd_text_add(out, "    ");
        print_output(&p->outputs.at[i], out);
        hd_text_add(out, "\n");
    }
    hd_text_add(out, ")\nCODES = {  # of Error\n");
#define R(id, value, text)                                                                         \
    if (value) hd_text_f(out, "    %d: \"%s\",  # %s\n", value, #id, text);
#include "runtime/errors.def"
#undef R
    hd_text_add(out, "}\n");
}

/* ---- hadal_info ------------------------------------------------------------------------------ */
static const struct {
    const char *name, *fields;
} structs[] = {
#define STRUCT(name)                                                                               \
    {                                                                                              \
#name, ""
#define END(name)                                                                                  \
    }                                                                                              \
    ,
#define TEXT(field)               "(\"" #field "\", ctypes.c_char_p),\n"
#define U64(field)                "(\"" #field "\", ctypes.c_uint64),\n"
#define TEXTS(field, count)       "(\"" #field "\", ctypes.c_void_p),\n"
#define TABLE(type, field, count) "(\"" #field "\", ctypes.c_void_p),\n"
#include "support/library_info.def"
#undef STRUCT
#undef END
#undef TEXT
#undef U64
#undef TEXTS
#undef TABLE
};

/* `indent`: n spaces. */
static void print_info(const char *indent, size_t n, hd_text *out) {
    size_t i = 0;
    while (strcmp(structs[i].name, "hd_info") != 0)
        i++;
    for (const char *at = structs[i].fields; *at;) {
        const size_t length = strcspn(at, "\n") + 1;
        hd_text_add_n(out, indent, n);
        hd_text_add_n(out, at, length);
        at += length;
    }
}

/* ---- the file -------------------------------------------------------------------------------- */
static void print_head(const hcg_program *p, hd_text *out) {
    const char *name = p->m->name;
    hd_text_f(
        out,
        "\"\"\"%s: a model compiled by Hadal %s, as a class of Python: ctypes, and numpy where "
        "it is there.\n\n"
        "    from %s import Model\n\n"
        "    with Model.open(max_tokens=1024) as model:  # lib%s.so and %s.weights lie beside "
        "this file\n"
        "        logits = model.forward([0, 1, 2])       # of the last token: [1, %s]\n\n"
        "Written by `hadal compile --emit=so,weights,python`.\n\"\"\"\n",
        name, HADAL_VERSION, name, name, name, "LOGITS");
}

static bool is_mark(const char *line, size_t n, const char *mark) {
    const size_t space = strspn(line, " "), length = strlen(mark);
    return n >= space + length && strncmp(line + space, mark, length) == 0;
}

static void print_body(hcg_program *p, hd_text *out) {
    bool skip = false;
    for (const char *at = hcg_python_sources[0].text; *at;) {
        const size_t n = strcspn(at, "\n"), space = strspn(at, " ");
        if (is_mark(at, n, "#@constants")) {
            print_constants(p, out);
            skip = true;
        } else if (is_mark(at, n, "#@info")) {
            print_info(at, space, out);
        } else if (is_mark(at, n, "#@loss")) {
            skip = !hcg_has_loss(p);
        } else if (is_mark(at, n, "#@outputs")) {
            skip = p->outputs.n < 2;
        } else if (is_mark(at, n, "#@end")) {
            skip = false;
        } else if (!skip) {
            hd_text_add_n(out, at, n + 1);
        }
        at += n + (at[n] == '\n');
    }
}

bool hcg_emit_python(hcg_program *p, hd_diags *d, const char *path) {
    hd_text text;
    if (!p->is_model)
        return reject(d, "a plain function", "its header says how ctypes calls it: NAME_call");
    if (hcg_ranks(p) > 0)
        return reject(d, "a model that is divided over machines",
                      "leave out --ranks and --stages; divided ones are called from C");
    if (is_taken(p->m->name))
        return reject(d, hd_printf(p->arena, "a model called \"%s\"", p->m->name),
                      "-o DIR/NAME gives it another name");
    hd_text_init(&text, p->arena);
    print_head(p, &text);
    print_body(p, &text);
    return hd_write_file(p->arena, d, path, text.at, text.n);
}
