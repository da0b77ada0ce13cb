/* The file: module.py, the functions of ops.py that the model calls, its own functions, and its
 * class. */
#include <string.h>

#include "torch/program.h"
#include "torch/torch.h"

/* ---- ops.py ---------------------------------------------------------------------------------- */

typedef struct section { /* a function */
    const char *name, *text;
    bool wanted;
} section;
typedef HD_VEC(section) sections;

static const char *source(const char *name) {
    size_t i = 0;
    while (strcmp(hpt_sources[i].name, name) != 0)
        i++;
    return hpt_sources[i].text;
}

static sections cut(hd_arena *a, const char *text) {
    sections all = {0};
    const char *at = strstr(text, "\ndef ");
    while (at) {
        at++;
        const char *next = strstr(at, "\ndef "), *end = next ? next : at + strlen(at);
        while (end > at && end[-1] == '\n')
            end--;
        section s = {.text = hd_strndup(a, at, (size_t)(end - at))};
        s.name = hd_strndup(a, s.text + 4, strcspn(s.text + 4, "("));
        hd_push(a, &all, s);
        at = next;
    }
    return all;
}

static section *find(sections *all, const char *name) {
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->at[i].name, name) == 0) return &all->at[i];
    return NULL;
}

/* With the functions that it calls. */
static void want(hd_arena *a, sections *all, section *s) {
    if (s->wanted) return;
    s->wanted = true;
    for (size_t i = 0; i < all->n; i++) {
        hir_opcode code;
        const char *call = hd_printf(a, " %s(", all->at[i].name);
        if (!hir_opcode_by_name(all->at[i].name, &code) && strstr(s->text, call))
            want(a, all, &all->at[i]);
    }
}

/* A text as comments of at most 100 columns. */
static void comment(hd_text *out, const char *text) {
    size_t column = 0;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, " ");
        if (!column || column + 1 + n > 100) {
            hd_text_add(out, column ? "\n#" : "#");
            column = 1;
        }
        hd_text_add(out, " ");
        hd_text_add_n(out, at, n);
        column += 1 + n;
        at += n + strspn(at + n, " ");
    }
    hd_text_add(out, "\n");
}

static bool print_ops(const hpt_program *p, hd_text *out) {
    bool called[HIR_OPCODE_COUNT] = {0};
    sections all = cut(p->a, source("ops.py"));
    hpt_mark_called(p, called);
    for (int code = 0; code < HIR_OPCODE_COUNT; code++) {
        if (!called[code]) continue;
        section *s = find(&all, hir_info((hir_opcode)code)->name);
        if (!s) {
            hd_err(p->d, HD_E_INTERNAL, HD_NOWHERE, "torch/ops.py has no function %s",
                   hir_info((hir_opcode)code)->name);
            return false;
        }
        want(p->a, &all, s);
    }
    for (size_t i = 0; i < all.n; i++) {
        hir_opcode code;
        if (!all.at[i].wanted) continue;
        hd_text_add(out, "\n\n");
        if (hir_opcode_by_name(all.at[i].name, &code)) comment(out, hir_info(code)->doc);
        hd_text_f(out, "%s\n", all.at[i].text);
    }
    return true;
}

/* ---- module.py ------------------------------------------------------------------------------- */

static bool has_stacked(const hir_module *m) {
    for (size_t i = 0; i < m->weights.n; i++)
        if (m->weights.at[i].stacked && !m->weights.at[i].unused) return true;
    return false;
}

static void print_head(const hpt_program *p, hd_text *out) {
    const char *text = source("module.py");
    const char *body = strstr(text, "import "), *last = strstr(text, "\n\n\ndef stacked(");
    hd_text_f(out,
              "\"\"\"%s as a PyTorch module, written by `hadal compile --emit=torch`.\n\n"
              "    model = Model().load(\"model.safetensors\")\n"
              "    loss = model.loss(tokens, targets)\n"
              "    model.save(\"trained.safetensors\")\n\n"
              "It computes whole sequences from position 0 on, as the graph of the model says it; "
              "caches are\n"
              "values of the call. Parameters have the names of the checkpoint.\n\"\"\"\n",
              p->m->name);
    hd_text_add_n(out, body, (size_t)(last - body) + 1);
    if (has_stacked(p->m)) hd_text_add(out, last + 1);
}

static void print_class(const hpt_program *p, hd_text *out) {
    const bool model = hir_is_model(p->m);
    hd_text_f(out, "\n\nclass Model(%s):\n", model ? "LanguageModel" : "Checkpoint");
    bool called[HIR_OPCODE_COUNT] = {0};
    hpt_mark_called(p, called);
    if (called[HIR_EXPERT_LINEAR_OP])
        hd_text_add(out, "    one_by_one = True  # the choice of experts decides about shapes\n\n");
    hpt_print_sequence(p, out);
    if (!model)
        hd_text_add(out,
                    "\n    def forward(self, *inputs):\n        return self.sequence(*inputs)\n");
}

static void print_derived(const hpt_program *p, const hpt_function *f, hd_text *out) {
    hd_text_add(out, "\n\n");
    if (f->text)
        hd_text_f(out, "# %s\ndef %s(w):\n    return %s\n", f->about, f->name, f->text);
    else
        hpt_print_function(p, f, out);
    hd_text_f(out, "\n\nWeights.%s = property(%s)\n", f->name, f->name);
}

/* Those that the text has: attempts at loops that failed have made tables, too. */
static void print_tables(const hpt_program *p, const char *text, hd_text *out) {
    for (size_t i = 0; i < p->tables.n; i++) {
        const char *name = hd_printf(p->a, "NUMBERS_%zu", i + 1);
        if (!strstr(text, hd_printf(p->a, "%s[", name))) continue;
        hd_text_f(out, "%s = (", name);
        const size_t indent = strlen(name) + 4;
        size_t column = indent;
        for (const char *at = p->tables.at[i] + 1; *at;) {
            const size_t n = strcspn(at, " ");
            if (column > indent && column + n >= 100) {
                hd_text_f(out, "\n%*s", (int)indent, "");
                column = indent;
            } else if (column > indent) {
                hd_text_add(out, " ");
            }
            hd_text_add_n(out, at, n);
            column += n + 1;
            at += n + (at[n] == ' ');
        }
        hd_text_add(out, "\n");
    }
}

bool hpt_write(const hir_module *m, hd_diags *d, hd_text *out) {
    hpt_program p = {.m = m, .a = out->arena, .d = d};
    if (!hpt_make_nodes(&p)) return false;
    hpt_derive(&p);
    hpt_outline(&p);
    hpt_roll(&p);
    print_head(&p, out);
    hd_text_add(out, "\n\n");
    hpt_print_parameters(&p, out);
    hd_text_add(out, "\n\n# ---- ops of the graph ----");
    if (!print_ops(&p, out)) return false;
    hd_text body;
    hd_text_init(&body, p.a);
    for (size_t i = 0; i < p.derived.n; i++)
        print_derived(&p, p.derived.at[i], &body);
    const char *derived = body.n ? body.at : "";
    if (*derived) hd_text_f(out, "\n\n# ---- derived weights ----\n%s", derived);
    hd_text_add(out, "\n\n# ---- the model ----\n");
    hd_text_init(&body, p.a);
    for (size_t i = 0; i < p.functions.n; i++) {
        hd_text_add(&body, "\n\n");
        hpt_print_function(&p, p.functions.at[i], &body);
    }
    print_class(&p, &body);
    print_tables(&p, hd_printf(p.a, "%s%s", derived, body.at), out);
    hd_text_add(out, body.at);
    return true;
}
