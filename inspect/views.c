/* Dispatch over the table of views. */
#include "inspect/views.h"

#include <string.h>

#include "inspect/bench.h"
#include "inspect/by_depth.h"
#include "inspect/depth_map.h"
#include "inspect/facts.h"
#include "inspect/heatmap.h"
#include "inspect/ledger.h"
#include "inspect/memory_plan.h"
#include "inspect/mixing.h"
#include "inspect/profile.h"

/* Each function of the table takes data of its own type; these wrappers take any pointer, so that
 * all views fit in one array. */
#define V(id, type, needs, collect)                                                                \
    static bool collect_##id(const inspect_subject *s, void *out) {                                \
        return collect(s, out);                                                                    \
    }
#define W(id, form, type, write)                                                                   \
    static void write_##id##_##form(const void *data, hd_text *out) {                              \
        const type *typed = data;                                                                  \
        write(typed, out);                                                                         \
    }
#define N(id, type, numbers)                                                                       \
    static inspect_numbers numbers_of_##id(const void *data) {                                     \
        const type *typed = data;                                                                  \
        return numbers(typed);                                                                     \
    }
#include "inspect/views.def"

static const struct {
    inspect_need needs;
    size_t bytes; /* of the data */
    bool (*collect)(const inspect_subject *s, void *out);
} views[INSPECT_VIEWS] = {
#define V(id, type, needs, collect) {INSPECT_NEEDS_##needs, sizeof(type), collect_##id},
#include "inspect/views.def"
};

typedef void writer(const void *data, hd_text *out);
static writer *const writers[INSPECT_VIEWS][INSPECT_FORMS] = {
#define W(id, form, type, write) [INSPECT_##id][INSPECT_##form] = write_##id##_##form,
#include "inspect/views.def"
};

static inspect_numbers (*const numbers[INSPECT_VIEWS])(const void *data) = {
#define N(id, type, numbers) [INSPECT_##id] = numbers_of_##id,
#include "inspect/views.def"
};

inspect_need inspect_needs(inspect_view view) {
    return views[view].needs;
}

const void *inspect_collect(inspect_view view, const inspect_subject *subject) {
    void *data = hd_alloc(subject->arena, views[view].bytes, 1);
    return views[view].collect(subject, data) ? data : NULL;
}

bool inspect_write(inspect_view view, inspect_form form, const void *data, hd_text *out) {
    if (!writers[view][form]) return false;
    writers[view][form](data, out);
    return true;
}

bool inspect_numbers_of(inspect_view view, const void *data, inspect_numbers *out) {
    if (!numbers[view]) return false;
    *out = numbers[view](data);
    return true;
}

bool inspect_find_form(const char *name, inspect_form *out) {
    static const char *const names[INSPECT_FORMS] = {
        [INSPECT_TEXT] = "text",
        [INSPECT_JSON] = "json",
        [INSPECT_SVG] = "svg",
        [INSPECT_FOLDED] = "folded",
    };
    for (int i = 0; i < INSPECT_FORMS; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (inspect_form)i;
            return true;
        }
    return false;
}
