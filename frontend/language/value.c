/* Compile-time values: names of types, equality, lists, text. */
#include "frontend/language/elaborate.h"

#include <string.h>

static const char *const type_names[HFE_TYPE_COUNT] = {
    [HFE_UNSET] = "unset",   [HFE_POISON] = "error",  [HFE_NONE] = "none",
    [HFE_BOOL] = "bool",     [HFE_INT] = "int",       [HFE_FLOAT] = "float",
    [HFE_STRING] = "string", [HFE_LIST] = "list",     [HFE_DIM] = "dim",
    [HFE_TENSOR] = "tensor", [HFE_OBJECT] = "object", [HFE_FUNCTION] = "function",
};

const char *hfe_type_name(hfe_type t) {
    return type_names[t];
}

const char *hfe_type_with_article(hfe_type t) {
    switch (t) {
    case HFE_NONE: return "none";
    case HFE_INT: return "an int";
    case HFE_OBJECT: return "an object";
    case HFE_BOOL: return "a bool";
    case HFE_FLOAT: return "a float";
    case HFE_STRING: return "a string";
    case HFE_LIST: return "a list";
    case HFE_DIM: return "a dim known only at run time";
    case HFE_TENSOR: return "a tensor";
    case HFE_FUNCTION: return "a function";
    default: return "an error";
    }
}

static bool lists_equal(const hfe_list *a, const hfe_list *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!hfe_equal(hfe_item(a, i), hfe_item(b, i))) return false;
    return true;
}

bool hfe_equal(hfe_value a, hfe_value b) {
    if (hfe_is_number(a) && hfe_is_number(b))
        return a.type == HFE_INT && b.type == HFE_INT ? a.integer == b.integer
                                                      : hfe_as_number(a) == hfe_as_number(b);
    if (a.type != b.type) return false;
    switch (a.type) {
    case HFE_BOOL: return a.boolean == b.boolean;
    case HFE_STRING: return strcmp(a.string, b.string) == 0;
    case HFE_LIST: return lists_equal(a.list, b.list);
    case HFE_DIM: return a.integer == b.integer;
    case HFE_TENSOR: return hir_ref_equal(a.tensor, b.tensor);
    case HFE_OBJECT: return a.object == b.object;
    case HFE_FUNCTION:
        return a.function->def == b.function->def && a.function->self == b.function->self &&
               a.function->builtin == b.function->builtin &&
               (!a.function->is_op || a.function->op == b.function->op);
    default: return true;
    }
}

/* ---- lists --------------------------------------------------------------------------------- */
static uint32_t depth_with(uint32_t depth, hfe_value item) {
    uint32_t inner = hfe_is(item, HFE_LIST) ? item.list->depth + 1 : 1;
    return inner > depth ? inner : depth;
}

static bool list_fits(hfe_elab *e, hd_loc loc, size_t n, size_t made, uint32_t depth) {
    e->elements += made;
    if (n > HFE_MAX_LIST || e->elements > HFE_MAX_ELEMENTS) {
        hfe_halt(e, loc,
                 hd_printf(e->arena, "a list may have %d elements, all lists %d", HFE_MAX_LIST,
                           HFE_MAX_ELEMENTS),
                 "lists grow too long");
        return false;
    }
    if (depth > HFE_MAX_NESTING) {
        hfe_halt(e, loc, hd_printf(e->arena, "lists may stand in lists %d deep", HFE_MAX_NESTING),
                 "this list nests too deeply");
        return false;
    }
    return true;
}

static hfe_list *copy_items(hfe_elab *e, const hfe_value *items, size_t n) {
    hfe_buffer *buffer = hd_new(e->arena, hfe_buffer);
    if (n > 0) {
        buffer->items.at = hd_new_array(e->arena, hfe_value, n);
        memcpy(buffer->items.at, items, n * sizeof *items);
    }
    buffer->items.n = buffer->items.cap = n;
    hfe_list *l = hd_new(e->arena, hfe_list);
    l->buffer = buffer;
    l->n = n;
    return l;
}

hfe_value hfe_new_list(hfe_elab *e, hd_loc loc, const hfe_value *items, size_t n) {
    uint32_t depth = 0;
    for (size_t i = 0; i < n; i++)
        depth = depth_with(depth, items[i]);
    if (!list_fits(e, loc, n, n, depth)) return hfe_poison();
    hfe_list *l = copy_items(e, items, n);
    l->depth = depth;
    return (hfe_value){.type = HFE_LIST, .list = l};
}

hfe_value hfe_append(hfe_elab *e, hd_loc loc, const hfe_list *l, hfe_value item) {
    /* If another list continues in this buffer, the item goes to a copy. */
    bool shared = l->start + l->n != l->buffer->items.n;
    uint32_t depth = depth_with(l->depth, item);
    if (!list_fits(e, loc, l->n + 1, shared ? l->n + 1 : 1, depth)) return hfe_poison();
    hfe_list *longer = hd_new(e->arena, hfe_list);
    *longer = shared ? *copy_items(e, l->buffer->items.at + l->start, l->n) : *l;
    hd_push(e->arena, &longer->buffer->items, item);
    longer->n++;
    longer->depth = depth;
    return (hfe_value){.type = HFE_LIST, .list = longer};
}

/* ---- text ---------------------------------------------------------------------------------- */
hfe_value hfe_new_string(hfe_elab *e, hd_loc loc, const char *s, size_t n) {
    e->strings += n;
    if (n > HFE_MAX_STRING || e->strings > HFE_MAX_STRINGS)
        return hfe_halt(e, loc, hd_printf(e->arena, "a string may have %d bytes", HFE_MAX_STRING),
                        "strings grow too long");
    return hfe_string(hd_strndup(e->arena, s, n));
}

bool hfe_show(hfe_value v, hd_text *out) {
    switch (v.type) {
    case HFE_NONE: hd_text_add(out, "none"); return true;
    case HFE_BOOL: hd_text_add(out, v.boolean ? "true" : "false"); return true;
    case HFE_INT: hd_text_f(out, "%lld", (long long)v.integer); return true;
    case HFE_FLOAT: hd_text_double(out, v.number); return true;
    case HFE_STRING: hd_text_add(out, v.string); return true;
    case HFE_DIM:
        hd_text_add(out, v.integer == HIR_T ? "T" : "C");
        if (v.integer < HIR_C) hd_text_f(out, " / %lld", (long long)hir_rate(v.integer));
        return true;
    case HFE_LIST:
        hd_text_add(out, "[");
        for (size_t i = 0; i < v.list->n; i++) {
            hd_text_add(out, i > 0 ? ", " : "");
            if (!hfe_show(hfe_item(v.list, i), out)) return false;
        }
        hd_text_add(out, "]");
        return true;
    default: return false;
    }
}
