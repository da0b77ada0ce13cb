/* The family that a config.json of no known family is closest to: what a page for it can begin
 * with.
 *
 * A family is the closer the fewer fields of the config it does not know, and the fewer that it
 * needs are absent. Of equals each is tried: its config is run on the file and its model made, in
 * silence, and the fewest errors win, then the fewest tensors of the folder that are not of the
 * model, or of the model and not there; then the fewest fields that the family calls otherwise. If
 * that leaves several, it is the plainest: the family that all others are variations of, else the
 * one that has the fewest fields besides, rare ones counting more. */
#include <stdlib.h>
#include <string.h>

#include "frontend/family.h"
#include "frontend/frontend.h"
#include "frontend/quantisation.h"

typedef struct nearness {
    const hfe_family *family;
    size_t
        strange; /* fields of the config that it does not know, and that it needs and are absent */
    size_t faults;       /* errors that it has on the file */
    size_t tensors;      /* of the folder or of the model alone */
    size_t aliases;      /* fields of the config that it calls otherwise itself */
    size_t other;        /* 0: the plainest */
    size_t besides;      /* weight of the fields that it has besides */
    const char *spec;    /* what it makes of the file; NULL: nothing */
    const char *unknown; /* the fields that it does not know */
} nearness;

/* ---- fields ---------------------------------------------------------------------------------- */
static const hfe_known_field *find_field(const hfe_known_fields *known, const char *name) {
    for (size_t i = 0; i < known->list.n; i++) {
        if (strcmp(known->list.at[i].name, name) == 0) {
            return &known->list.at[i];
        }
    }
    return NULL;
}

static bool is_absent(const hfe_json *j, const hfe_known_field *f) {
    const char *also = hfe_literal(f->declaration.aspect[HFE_ASPECT_also]);
    return json_object_get(j->root, f->name) == NULL &&
           (also == NULL || json_object_get(j->root, also) == NULL);
}

/* How many families know a field. */
static size_t count_families(const hfe_known_fields *known, size_t n, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += find_field(&known[i], name) != NULL;
    }
    return count;
}

static void compare_fields(const hfe_json *j, const hfe_known_fields *of_all, size_t n, size_t at,
                           nearness *out) {
    const hfe_known_fields *known = &of_all[at];
    hd_text unknown;
    hd_text_init(&unknown, j->arena);
    hd_text_add(&unknown, "");
    const char *name;
    json_t *value;
    json_object_foreach(j->root, name, value) {
        const hfe_known_field *f = find_field(known, name);
        if (f != NULL || strcmp(name, "model_type") == 0) {
            out->aliases += f != NULL && f->alias_of != NULL;
            continue;
        }
        if (out->strange++ < 3) {
            hd_text_f(&unknown, "%s%s", out->strange > 1 ? ", " : "",
                      hfe_json_path(j, &(hfe_field){NULL, name}));
        }
    }
    if (out->strange > 3) {
        hd_text_f(&unknown, " and %zu more", out->strange - 3);
    }
    out->unknown = unknown.at;
    for (size_t i = 0; i < known->list.n; i++) {
        const hfe_known_field *f = &known->list.at[i];
        const hfe_declaration *d = &f->declaration;
        if (!f->declared || !is_absent(j, f)) {
            continue;
        }
        out->strange += d->aspect[HFE_ASPECT_default] == NULL && d->kind != HFE_KIND_SYSTEM;
        out->besides += n - count_families(of_all, n, f->name);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */
static bool is_of_model(const hir_module *m, const char *name) {
    if (hir_find_weight(m, name) != HIR_NONE || hir_unused_below(m, name) < m->unused_below.n) {
        return true;
    }
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        const char *rest = w->stacked ? hir_behind_match(name, w->name) : NULL;
        if (rest != NULL && *rest == '\0') {
            return true;
        }
    }
    return false;
}

static size_t compare_tensors(const hir_module *m, const hd_tensors *tensors) {
    size_t n = 0;
    for (size_t i = 0; i < tensors->list.n; i++) {
        n += !is_of_model(m, tensors->list.at[i].name);
    }
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        n += !w->unused && !w->stacked && !hir_is_derived(w) &&
             hd_tensors_find(tensors, w->name) == NULL;
    }
    return n;
}

/* The family's config run on the file; what it says is not for the user. */
static void try_config(hfe_program *p, const hfe_json *j, nearness *out) {
    hd_diags silent, *heard = p->diags;
    hd_diags_init(&silent, p->arena);
    hfe_json file = *j;
    file.diags = p->diags = &silent;
    out->spec = hfe_import_as(p, &file, out->family->config, "closest");
    out->faults = silent.errors;
    p->diags = heard;
}

/* Its model beside the tensors; how many weights it has. */
static size_t try_model(hfe_program *p, const hd_tensors *tensors, nearness *out) {
    hd_diags silent;
    hd_diags_init(&silent, p->arena);
    const hir_module *m =
        hfe_load_spec_text(p->arena, &silent, "closest.hadal", out->spec, p->options);
    out->faults = silent.errors;
    if (m != NULL) {
        out->tensors = compare_tensors(m, tensors);
    }
    return m != NULL ? m->weights.n : 0;
}

/* Those that have no more errors than the best one, as long as it does not take too long: models
 * of ten thousand layers are no reason to wait for a hint. */
static void try_models(hfe_program *p, const hd_tensors *tensors, nearness *list, size_t n) {
    enum { MOST_WEIGHTS = 1 << 17 };
    size_t made = 0;
    for (size_t i = 0; i < n; i++) {
        list[i].tensors = SIZE_MAX;
    }
    for (size_t i = 0; i < n && list[i].faults == list[0].faults && made < MOST_WEIGHTS; i++) {
        if (list[i].spec != NULL) {
            made += try_model(p, tensors, &list[i]);
        }
    }
}

/* ---- the choice ------------------------------------------------------------------------------ */
static int by_size(size_t a, size_t b) {
    return (a > b) - (a < b);
}

static int by_nearness(const void *x, const void *y) {
    const nearness *a = x, *b = y;
    const int order[] = {by_size(a->strange, b->strange), by_size(a->faults, b->faults),
                         by_size(a->tensors, b->tensors), by_size(a->aliases, b->aliases),
                         by_size(a->other, b->other),     by_size(a->besides, b->besides)};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (order[i] != 0) {
            return order[i];
        }
    }
    return strcmp(a->family->name, b->family->name);
}

static const char *said_of(hd_arena *a, const nearness *c, bool folder_has_tensors) {
    const char *tensors = "";
    if (folder_has_tensors && c->tensors < SIZE_MAX) {
        tensors =
            c->tensors == 0
                ? ", and all tensors"
                : hd_printf(a, ", and %zu tensors are of the folder or of it alone", c->tensors);
    }
    return hd_printf(a, "%s: it knows all fields%s%s%s", c->family->name,
                     *c->unknown != '\0' ? " but " : "", c->unknown, tensors);
}

const char *hfe_closest_family(hfe_program *p, const hfe_json *j, const hfe_families *families,
                               const char *plainest) {
    const size_t n = families->list.n;
    nearness *all = hd_new_array(p->arena, nearness, n + 1);
    hfe_known_fields *known = hd_new_array(p->arena, hfe_known_fields, n + 1);
    if (n == 0) {
        return NULL;
    }
    const hd_tensors tensors = hfe_tensors_beside(p->arena, j->file);
    for (size_t i = 0; i < n; i++) {
        hfe_list_fields(p->arena, families->list.at[i].config, &known[i]);
    }
    for (size_t i = 0; i < n; i++) {
        all[i].family = &families->list.at[i];
        all[i].other = strcmp(families->list.at[i].name, plainest) != 0;
        compare_fields(j, known, n, i, &all[i]);
    }
    qsort(all, n, sizeof *all, by_nearness);
    const size_t least = all[0].strange;
    size_t equals = 0;
    while (equals < n && all[equals].strange == least) {
        try_config(p, j, &all[equals++]);
    }
    qsort(all, equals, sizeof *all, by_nearness);
    if (tensors.list.n > 0) {
        try_models(p, &tensors, all, equals);
        qsort(all, equals, sizeof *all, by_nearness);
    }
    return said_of(p->arena, &all[0], tensors.list.n > 0);
}
