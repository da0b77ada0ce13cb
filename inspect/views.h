/* The table of views (views.def): what can be shown, what that needs, and how it is written; and
 * the subject that all views describe. */
#ifndef INSPECT_VIEWS_H
#define INSPECT_VIEWS_H

#include "ir/eval/eval.h"
#include "passes/pass.h"

/* What a view describes: a model at several IR stages, and data of its runs. */
typedef struct inspect_subject {
    hd_arena *arena; /* of the data that views collect */
    hd_diags *diags;
    const hir_module *graph; /* as loaded */
    const hir_module *now;   /* as it stands after passes; equal to `graph` if no pass has run */
    const hir_compile_options *pass_options;
    /* for views that evaluate the model */
    hir_weight_source weight_source;
    void *weights;
    const double *ids; /* [tokens] */
    int64_t tokens;
    /* for views of an execution */
    const struct profile *profile;
    const struct bench_results *bench;
} inspect_subject;

typedef enum inspect_view {
#define V(id, type, needs, collect) INSPECT_##id,
#include "inspect/views.def"
    INSPECT_VIEWS
} inspect_view;

typedef enum inspect_need { /* what of a subject, besides arena and diags, a view needs */
                            INSPECT_NEEDS_MODULE, /* graph, now, pass_options */
                            INSPECT_NEEDS_TOKENS, /* a graph that no pass has lowered, weights and
                                                     tokens */
                            INSPECT_NEEDS_PROFILE,
                            INSPECT_NEEDS_BENCH,
} inspect_need;

typedef enum inspect_form {
    INSPECT_TEXT,   /* for people */
    INSPECT_JSON,   /* for programs */
    INSPECT_SVG,    /* a picture */
    INSPECT_FOLDED, /* stacks for flame graphs */
    INSPECT_FORMS
} inspect_form;

/* An array of numbers, as an .npy file stores it. */
typedef struct inspect_numbers {
    const double *at;
    uint32_t rank;
    int64_t shape[3];
} inspect_numbers;

inspect_need inspect_needs(inspect_view view);
/* Collects the data of a view, in the subject's arena; NULL, and a diagnostic, on failure. */
const void *inspect_collect(inspect_view view, const inspect_subject *subject);
/* Writes the data of a view in an output form; false: the view has no such form. */
bool inspect_write(inspect_view view, inspect_form form, const void *data, hd_text *out);
/* The numbers of a view; false: it has none of one shape. */
bool inspect_numbers_of(inspect_view view, const void *data, inspect_numbers *out);
/* Finds the output form called `name` ("text", "json", "svg", "folded"); false: there is none. */
bool inspect_find_form(const char *name, inspect_form *out);

#endif
