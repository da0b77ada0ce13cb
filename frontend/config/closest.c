/* Finds the family that a config.json of an unknown family is closest to, so that a page for the
 * config can begin with the page of that family.
 *
 * A family fits a config if three things hold: it knows all fields of the config; the config has
 * all fields that the family requires; and, where the family has many fields that hardly another
 * family knows, one of these is in the config. (All fields of Gemma 3n that others lack have
 * defaults, but a config without any of them is not Gemma 3n.) Where the config has its language
 * model in an object (text_config), families that have it there, too, are compared with both, and
 * the other families with that object; the latter rank after the former.
 *
 * All families that fit are tried: the config of the family is run on the file and the model is
 * made, without messages to the user. The fewest errors win, then the fewest tensors that only the
 * folder or only the model has, then the fewest fields that the family knows by another name. If
 * several families are left, the one whose name the model_type begins with is closest. Otherwise it
 * is the plainest, which is the family that all others are variations of, or else the one with the
 * fewest additional fields, rare fields counting more. */
#include <stdlib.h>
#include <string.h>

#include "frontend/config/family.h"
#include "frontend/config/quantisation.h"

/* The fields of a family. For a family that has the language model in an object, `inner` has the
 * fields of that object. */
typedef struct knowledge {
    hfe_known_fields fields, inner;
    const char *part; /* the name of that object; NULL: the family has none */
} knowledge;

typedef struct nearness {
    const hfe_family *family;
    const char *part;  /* the object of the config that the family fits; NULL: the whole config */
    size_t strange;    /* fields that the family does not know, or requires but misses */
    size_t own, shown; /* fields that hardly another family knows; those in the config */
    size_t faults;     /* errors of the family's config on the file */
    size_t tensors;    /* tensors that only the folder or only the model has */
    size_t aliases;    /* fields of the config that the family knows by another name */
    size_t unnamed;    /* letters of the model_type after the family's name (unnamed_of) */
    size_t other;      /* 0 for the plainest family, else 1 */
    size_t besides;    /* weight of the additional fields that the family knows */
    const char *spec;  /* the spec that the family makes of the file; NULL: none */
} nearness;

/* ---- fields ---------------------------------------------------------------------------------- */
static const hfe_known_field *find_field(const hfe_known_fields *known, const char *name) {
    for (size_t i = 0; i < known->list.n; i++)
        if (strcmp(known->list.at[i].name, name) == 0) return &known->list.at[i];
    return NULL;
}

static bool is_absent(const json_t *object, const hfe_known_field *f) {
    const char *also = hfe_literal(f->declaration.aspect[HFE_ASPECT_also]);
    return !json_object_get(object, f->name) && (!also || !json_object_get(object, also));
}

/* Counts the letters of the model_type after the family's name: "qwen3_vl" is likelier a qwen3 than
 * a llama, if both know its fields. */
static size_t unnamed_of(const json_t *root, const char *family) {
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const size_t n = strlen(family);
    return type && strncmp(type, family, n) == 0 ? strlen(type + n) : SIZE_MAX;
}

/* Returns the name of the object with the language model, or NULL if the config itself describes
 * it. */
static const char *language_part(const json_t *root) {
    for (size_t i = 0; i < HFE_LANGUAGE_PARTS; i++)
        if (json_is_object(json_object_get(root, hfe_language_parts[i])))
            return hfe_language_parts[i];
    return NULL;
}

static knowledge know(hd_arena *a, const hfe_def *config) {
    knowledge k = {0};
    hfe_list_fields(a, config, &k.fields);
    for (size_t i = 0; i < HFE_LANGUAGE_PARTS && !k.part; i++) {
        const hfe_known_field *f = find_field(&k.fields, hfe_language_parts[i]);
        if (f && f->inside) {
            k.part = f->name;
            hfe_list_fields(a, f->inside, &k.inner);
        }
    }
    return k;
}

/* Returns how many families know a field. */
static size_t count_families(const knowledge *all, size_t n, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += find_field(&all[i].fields, name) || find_field(&all[i].inner, name);
    return count;
}

/* Counts the fields of one object that the family does not know. */
static void count_strange(const hfe_json *j, const hfe_field *object, const hfe_known_fields *known,
                          nearness *out) {
    const char *name;
    json_t *value;
    json_object_foreach(hfe_json_get(j, object), name, value) {
        const hfe_known_field *f = find_field(known, name);
        out->aliases += f && f->alias_of;
        out->strange += !f && strcmp(name, "model_type") != 0;
    }
}

/* Counts the family's fields that are absent in the object, and those that hardly another family
 * has. */
static void count_absent(const json_t *object, const hfe_known_fields *known, const knowledge *all,
                         size_t n, nearness *out) {
    enum { HARDLY_ANOTHER = 2 }; /* one model may be two families: alone, and in an object */
    for (size_t i = 0; i < known->list.n; i++) {
        const hfe_known_field *f = &known->list.at[i];
        const hfe_declaration *d = &f->declaration;
        if (!f->declared) continue;
        const size_t families = count_families(all, n, f->name);
        const bool absent = is_absent(object, f);
        out->own += families <= HARDLY_ANOTHER;
        out->shown += families <= HARDLY_ANOTHER && !absent;
        if (!absent) continue;
        out->strange += !d->aspect[HFE_ASPECT_default] && d->kind != HFE_KIND_SYSTEM;
        out->besides += n - families;
    }
}

static void compare_fields(const hfe_json *j, const knowledge *all, size_t n, size_t at,
                           nearness *out) {
    const knowledge *k = &all[at];
    const char *part = language_part(j->root);
    const hfe_field inner = {NULL, part};
    out->part = k->part ? NULL : part;
    if (!out->part) {
        count_strange(j, NULL, &k->fields, out);
        count_absent(j->root, &k->fields, all, n, out);
    }
    if (k->part) out->own = out->shown = 0; /* the fields of the language model decide */
    out->strange += k->part && !part;
    if (part && (!k->part || strcmp(k->part, part) == 0)) {
        const hfe_known_fields *known = k->part ? &k->inner : &k->fields;
        count_strange(j, &inner, known, out);
        count_absent(hfe_json_get(j, &inner), known, all, n, out);
    }
}

static bool fits(const nearness *c) {
    enum { MANY = 4 };
    return c->strange == 0 && (c->own < MANY || c->shown > 0);
}

/* ---- tensors --------------------------------------------------------------------------------- */
static bool is_of_model(const hir_module *m, const char *name) {
    if (hir_find_weight(m, name) != HIR_NONE || hir_unused_below(m, name) < m->unused_below.n)
        return true;
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        const char *rest = w->stacked ? hir_behind_match(name, w->name) : NULL;
        if (rest && !*rest) return true;
    }
    return false;
}

static size_t compare_tensors(const hir_module *m, const hd_tensors *tensors) {
    size_t n = 0;
    for (size_t i = 0; i < tensors->list.n; i++)
        n += !is_of_model(m, tensors->list.at[i].name);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        n += !w->unused && !w->stacked && !hir_is_derived(w) && !hd_tensors_find(tensors, w->name);
    }
    return n;
}

/* Runs the family's config on the file; its messages are not for the user. */
static void try_config(hfe_program *p, const hfe_json *j, nearness *out) {
    hd_diags silent, *heard = p->diags;
    hd_diags_init(&silent, p->arena);
    hfe_json file = *j;
    file.diags = p->diags = &silent;
    if (out->part) file.root = json_object_get(j->root, out->part);
    out->spec = hfe_import_as(p, &file, out->family->config, "closest");
    out->faults = silent.errors;
    p->diags = heard;
}

/* Makes the family's model, compares it with the tensors, and returns how many weights it has. */
static size_t try_model(hfe_program *p, const hd_tensors *tensors, nearness *out) {
    hd_diags silent;
    hd_diags_init(&silent, p->arena);
    hfe_program alone = {
        .arena = p->arena, .diags = &silent, .options = p->options, .words = p->words};
    const hir_module *m = hfe_load(&alone, "closest.hadal", out->spec);
    out->faults = silent.errors;
    if (m) out->tensors = compare_tensors(m, tensors);
    return m ? m->weights.n : 0;
}

/* Tries the families that have no more errors than the best one, up to a limit on the work: models
 * of ten thousand layers are no reason to wait for a hint. */
static void try_models(hfe_program *p, const hd_tensors *tensors, nearness *list, size_t n) {
    enum { MOST_WEIGHTS = 1 << 17 };
    size_t made = 0;
    for (size_t i = 0; i < n; i++)
        list[i].tensors = SIZE_MAX;
    for (size_t i = 0; i < n && list[i].faults == list[0].faults && made < MOST_WEIGHTS; i++)
        if (list[i].spec) made += try_model(p, tensors, &list[i]);
}

/* ---- selection ------------------------------------------------------------------------------- */
static int by_size(size_t a, size_t b) {
    return (a > b) - (a < b);
}

static int by_nearness(const void *x, const void *y) {
    const nearness *a = x, *b = y;
    const int order[] = {by_size(!fits(a), !fits(b)),     by_size(a->part != NULL, b->part != NULL),
                         by_size(a->faults, b->faults),   by_size(a->tensors, b->tensors),
                         by_size(a->aliases, b->aliases), by_size(a->unnamed, b->unnamed),
                         by_size(a->other, b->other),     by_size(a->besides, b->besides)};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i] != 0) return order[i];
    return strcmp(a->family->name, b->family->name);
}

static const char *said_of(hd_arena *a, const nearness *c, bool folder_has_tensors) {
    const char *tensors = "";
    if (folder_has_tensors && c->tensors < SIZE_MAX && !c->part) {
        tensors =
            c->tensors == 0 ? ", and all tensors"
            : c->tensors == 1
                ? ", and 1 tensor is of the folder or of it alone"
                : hd_printf(a, ", and %zu tensors are of the folder or of it alone", c->tensors);
    }
    return hd_printf(a, "%s: it knows all fields%s%s%s%s", c->family->name, c->part ? " of " : "",
                     c->part ? c->part : "", c->faults ? ", though not each value" : "", tensors);
}

const char *hfe_closest_family(hfe_program *p, const hfe_json *j, const hfe_families *families,
                               const char *plainest, const char **near) {
    const char *named = *near;
    *near = NULL;
    const size_t n = families->list.n;
    nearness *all = hd_new_array(p->arena, nearness, n + 1);
    knowledge *known = hd_new_array(p->arena, knowledge, n + 1);
    if (n == 0) return NULL;
    const hd_tensors tensors = hfe_tensors_beside(p->arena, j->file);
    for (size_t i = 0; i < n; i++)
        known[i] = know(p->arena, families->list.at[i].config);
    for (size_t i = 0; i < n; i++) {
        all[i].family = &families->list.at[i];
        all[i].other = strcmp(families->list.at[i].name, plainest) != 0;
        all[i].unnamed = unnamed_of(j->root, families->list.at[i].name);
        compare_fields(j, known, n, i, &all[i]);
    }
    qsort(all, n, sizeof *all, by_nearness);
    if (!fits(&all[0])) return NULL;
    /* The first `equals` families fit the same part of the config as the closest one. */
    size_t fitting = 0, equals = 1;
    for (; fitting < n && fits(&all[fitting]); fitting++) {
        const nearness *c = &all[fitting];
        try_config(p, j, &all[fitting]);
        if (named && !c->faults && strcmp(named, c->family->name) == 0) *near = named;
    }
    qsort(all, fitting, sizeof *all, by_nearness);
    while (equals < fitting && (all[equals].part != NULL) == (all[0].part != NULL))
        equals++;
    if (tensors.list.n > 0) {
        try_models(p, &tensors, all, equals);
        qsort(all, equals, sizeof *all, by_nearness);
    }
    return said_of(p->arena, &all[0], tensors.list.n > 0);
}
