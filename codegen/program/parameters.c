/* The weights of a program with gradients: parameters in memory of the caller.
 *
 *     parameters, f32, in the layout of checkpoints | what kernels read in another layout
 *
 * Parameters that Muon changes come after all others, so that ranks which train together divide both
 * in ranges (runtime/trainer_ranks.c).
 *
 * Both lie in one area, so that an offset says where a weight is, whichever it is. Vectors and tables
 * are read where the parameters are; panels, and matrices that are transposed or reshaped, are made
 * of the parameters when a call begins (runtime/trainer.c), as this file says. */
#include <string.h>

#include "codegen/program/lowering.h"
#include "ir/eval/eval.h"
#include "support/known.h"

static bool too_large(lowering *l, const hir_weight *w) {
    hd_err(l->d, HD_E_LIMIT, w->loc, "the parameters up to @%s take more than 2^63 bytes", w->name);
    return false;
}

/* Takes `bytes` at the end of the area. */
static bool take(lowering *l, const hir_weight *w, uint64_t bytes, uint64_t *at) {
    uint64_t end;
    *at = l->p->weights_bytes;
    if (hd_add_overflow(*at, bytes, &end) || end > INT64_MAX - HRT_ALIGN) return too_large(l, w);
    l->p->weights_bytes = hrt_aligned(end);
    return true;
}

/* ---- parameters ------------------------------------------------------------------------------ */
/* The tensors of a checkpoint that the weight is made of: itself, or its parts. */
static void add_tensors(lowering *l, const hir_weight *w, uint64_t offset) {
    hd_arena *a = l->a;
    for (int64_t i = 0; i < hir_parts(w); i++) {
        hir_weight part = hir_part_of(a, w, i);
        part.type.dtype = HIR_F32; /* whatever its panels are */
        const uint64_t elements = (uint64_t)hir_type_row_elements(part.type);
        const hrt_parameter one = {
            .name = part.name,
            .type = hir_type_string(a, part.type),
            .offset = offset + (uint64_t)i * elements * sizeof(float),
            .elements = elements,
        };
        hd_push(a, &l->p->parameters, one);
    }
}

static bool place_parameter(lowering *l, uint32_t i) {
    const hir_weight *w = &l->m->weights.at[i];
    const int64_t elements = hir_type_row_elements(w->type);
    uint64_t offset;
    /* panels may be bf16, which are made of it */
    const bool in_place = w->layout == HIR_LAYOUT_ROWS && l->p->weight_offsets.at[i] != HCG_UNREAD;
    if (w->type.dtype != HIR_F32 && in_place) {
        hd_err(l->d, HD_E_UNSUPPORTED, w->loc, "parameter '%s' is %s", w->name,
               hir_type_string(l->a, w->type))
            ->hint = "parameters are f32";
        return false;
    }
    if (elements < 0 || elements > INT64_MAX / (int64_t)sizeof(float)) return too_large(l, w);
    if (!take(l, w, (uint64_t)elements * sizeof(float), &offset)) return false;
    l->p->weight_offsets.at[i] = offset;
    return true;
}

/* Those of Muon, or all others. */
static bool place_parameters(lowering *l, bool muon) {
    for (uint32_t i = 0; i < l->m->weights.n; i++)
        if (!hir_is_derived(&l->m->weights.at[i]) && (l->updates[i] == HRT_UPDATE_MUON) == muon &&
            !place_parameter(l, i))
            return false;
    return true;
}

/* ---- what is made of them -------------------------------------------------------------------- */
static void set_layout(const hir_weight *w, hrt_packing *p) {
    p->panel = (uint32_t)hir_panel_rows(w->layout);
    p->depth = w->layout == HIR_LAYOUT_NARROW ? 2 : hir_panel_depth(w->type.dtype);
    p->rounded = w->type.dtype == HIR_BF16;
}

/* Bytes of each matrix of the weight. */
static uint64_t matrix_bytes(const hir_weight *w) {
    uint64_t all = 0;
    hir_weight_bytes(w, &all);
    return w->type.rank == 3 ? all / (uint64_t)w->type.dim[0] : all;
}

/* Panels of the matrices of a parameter. */
static void pack_matrices(lowering *l, const hir_weight *w, uint64_t from, uint64_t to) {
    const uint32_t rank = w->type.rank;
    const uint64_t rows = (uint64_t)w->type.dim[rank - 2],
                   columns = (uint64_t)w->type.dim[rank - 1];
    const uint64_t n = rank == 3 ? (uint64_t)w->type.dim[0] : 1;
    for (uint64_t i = 0; i < n; i++) {
        hrt_packing p = {.from = from + i * rows * columns * sizeof(float),
                         .to = to + i * matrix_bytes(w),
                         .rows = rows,
                         .columns = columns};
        set_layout(w, &p);
        hd_push(l->a, &l->p->packings, p);
    }
}

/* Rows of a derived weight that are those of a parameter, from row *first of all its matrices on. A
 * panel is of one matrix. */
static void pack_rows(lowering *l, const hir_weight *w, hrt_packing p, uint64_t *first) {
    const uint64_t weight = p.to, whole = p.rows;
    const uint64_t each = w->type.rank == 3 ? (uint64_t)w->type.dim[1] : UINT64_MAX;
    hd_known(each > 0);
    set_layout(w, &p);
    for (uint64_t done = 0; done < whole; done += p.rows) {
        p.first = *first % each;
        p.to = weight + *first / each * matrix_bytes(w);
        p.rows = whole - done < each - p.first ? whole - done : each - p.first;
        hd_push(l->a, &l->p->packings, p);
        p.from += p.rows * p.columns * sizeof(float);
        *first += p.rows;
    }
}

static bool reject_derived(lowering *l, const hir_weight *w) {
    hd_err(l->d, HD_E_UNSUPPORTED, w->loc,
           "weight '%s' is computed from parameters, and no gradient runs through it", w->name)
        ->hint = "compile the spec, and not IR whose weights are folded";
    return false;
}

/* A derived weight: each of its parts is matrices, or rows of one, of a parameter. What is transposed
 * is one matrix (fold-weights). */
static bool pack_derived(lowering *l, const hir_weight *w, uint64_t to) {
    const uint64_t columns = (uint64_t)hir_derived_row_elements(w->type);
    const uint64_t matrix = w->type.rank == 3 ? (uint64_t)w->type.dim[1] : 0; /* rows of one */
    uint64_t first = 0;
    for (uint32_t i = 0; i < w->n_rows; i++) {
        const hir_derived_factor *f = w->rows[i].factor;
        const uint32_t source = hir_find_weight(l->m, f->name);
        if (w->rows[i].n != 1 || f->by > HIR_DERIVED_TRANSPOSED || source == HIR_NONE)
            return reject_derived(l, w);
        const int64_t all = hir_type_row_elements(l->m->weights.at[source].type);
        const hrt_packing p = {
            .from = l->p->weight_offsets.at[source] + (uint64_t)f->first * sizeof(float),
            .to = to,
            .rows = (uint64_t)hir_factor_elements(f, all) / columns,
            .columns = columns,
            .transposed = f->by == HIR_DERIVED_TRANSPOSED,
        };
        if (p.transposed && matrix && (first % matrix || p.rows > matrix))
            return reject_derived(l, w);
        pack_rows(l, w, p, &first);
    }
    return true;
}

static bool place_packed(lowering *l, uint32_t i) {
    const hir_weight *w = &l->m->weights.at[i];
    const uint64_t from = l->p->weight_offsets.at[i];
    uint64_t bytes, to;
    if (!hir_weight_bytes(w, &bytes)) return too_large(l, w);
    if (!take(l, w, bytes, &to)) return false;
    l->p->weight_offsets.at[i] = to;
    if (hir_is_derived(w)) return pack_derived(l, w, to);
    pack_matrices(l, w, from, to);
    return true;
}

/* Derived weights come first: they are made of parameters, which other packed weights leave. */
bool lower_parameters(lowering *l) {
    hcg_program *p = l->p;
    const uint32_t n = (uint32_t)l->m->weights.n;
    bool *read = hd_new_array(l->a, bool, n + 1);
    for (uint32_t i = 0; i < n; i++)
        read[i] = p->weight_offsets.at[i] != HCG_UNREAD;
    lower_choose_updates(l);
    if (!place_parameters(l, false)) return false;
    p->muon_offset = p->weights_bytes;
    if (!place_parameters(l, true)) return false;
    p->parameters_bytes = p->weights_bytes;
    l->parameter_offsets = hd_new_array(l->a, uint64_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        l->parameter_offsets[i] = p->weight_offsets.at[i];
        if (!hir_is_derived(&l->m->weights.at[i]))
            add_tensors(l, &l->m->weights.at[i], l->parameter_offsets[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (read[i] && hir_is_derived(&l->m->weights.at[i]) && !place_packed(l, i)) return false;
    for (uint32_t i = 0; i < n; i++) {
        const hir_weight *w = &l->m->weights.at[i];
        const bool packed = read[i] && !hir_is_derived(w) && w->layout != HIR_LAYOUT_ROWS;
        if (packed && !place_packed(l, i)) return false;
    }
    return true;
}

/* ---- gradients ------------------------------------------------------------------------------- */
void lower_gradients(lowering *l) {
    if (!hcg_has_gradients(l->p)) return;
    l->p->targets = hir_fewest_ids(l->m, 1);
    for (size_t i = 0; i < l->p->outputs.n; i++) {
        hcg_port *port = &l->p->outputs.at[i];
        if (!hd_begins_with(port->name, HIR_GRADIENT)) continue;
        const uint32_t w = hir_find_weight(l->m, port->name + strlen(HIR_GRADIENT));
        if (w != HIR_NONE) port->offset = l->parameter_offsets[w];
    }
}
