/* Combines stored tensors to the quantised tensors that they are parts of (support/packed.h): finds
 * the parts, checks them, and provides what the readers share. */
#include <stdlib.h>
#include <string.h>

#include "support/packed/reader.h"

/* Readers are tried in this order; a tensor belongs to the first that accepts it. */
static hd_reader *const readers[] = {
    hd_read_e4m3,           hd_read_nvfp4,       hd_read_mxfp4_blocks, hd_read_mxfp4,
    hd_read_plain_integers, hd_read_mxfp4_pairs, hd_read_integers,     hd_read_gptq};

/* ---- parts --------------------------------------------------------------------------------- */

bool hd_has_suffix(const char *name, const char *suffix) {
    const size_t n = strlen(name), k = strlen(suffix);
    return n > k && strcmp(name + n - k, suffix) == 0;
}

char *hd_stem(hd_unpacking *u, const hd_tensor *t, const char *suffix) {
    return hd_strndup(u->a, t->name, strlen(t->name) - strlen(suffix));
}

const hd_tensor *hd_part(hd_unpacking *u, const char *stem, const char *suffix) {
    const hd_tensor *t = hd_tensors_find(u->stored, hd_printf(u->a, "%s%s", stem, suffix));
    if (t) u->taken[t - u->stored->list.at] = true;
    return t;
}

void hd_drop_activations(hd_unpacking *u, const char *module) {
    static const char *const parts[] = {".input_scale",        ".input_zero_point",
                                        ".input_global_scale", ".output_scale",
                                        ".output_zero_point",  ".output_global_scale"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const hd_tensor *t = hd_part(u, module, parts[i]);
        if (t && u->of_activations.n++ == 0) u->of_activations.first = t->name;
    }
}

/* Quotes a name from a file, which may hold any bytes. */
static const char *show(hd_arena *a, const char *name) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_quoted(&t, name);
    return t.at;
}

hd_diag *hd_part_fault(hd_unpacking *u, const hd_tensor *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *what = hd_vprintf(u->a, format, args);
    va_end(args);
    return hd_err(u->d, HD_E_WEIGHTS, (hd_loc){.file = t->file}, "tensor %s %s",
                  show(u->a, t->name), what);
}

const char *hd_type_text(hd_unpacking *u, const hd_tensor *t) {
    hd_text text;
    hd_text_init(&text, u->a);
    hd_tensor_print_type(&text, t);
    return text.at;
}

bool hd_reject_missing(hd_unpacking *u, const hd_tensor *t, const char *what, const char *stem,
                       const char *suffix) {
    hd_diag *g = hd_part_fault(u, t, "is quantised, and %s are missing from the checkpoint", what);
    g->cause =
        hd_printf(u->a, "they should be in %s", show(u->a, hd_printf(u->a, "%s%s", stem, suffix)));
    g->hint = "take the whole checkpoint: codes without their scales are no weights";
    return true;
}

/* ---- checks against the config ------------------------------------------------------------- */

static bool reject_ignored(hd_unpacking *u, const hd_tensor *t, const hd_modules *by,
                           hd_packing packing) {
    const hd_quantisation *q = u->config;
    hd_diag *g = hd_err(u->d, HD_E_WEIGHTS, q->ignore_loc,
                        "tensor %s is quantised (%s), and the config says that it is not",
                        show(u->a, t->name), hd_packing_name(packing));
    g->cause =
        hd_printf(u->a, "%s in '%s' is for its module", show(u->a, by->text), q->ignore_field);
    g->hint = "config and tensors are of two checkpoints, or the list is wrong: take it out there";
    return false;
}

static bool reject_form(hd_unpacking *u, const hd_tensor *t, hd_packing packing) {
    const hd_quantisation *q = u->config;
    hd_text said;
    hd_text_init(&said, u->a);
    hd_text_add(&said, "it has ");
    for (size_t i = 0; i < q->groups.n; i++) {
        const hd_quant_group *g = &q->groups.at[i];
        hd_text_f(&said, "%s%s for", i ? ", " : "", g->format);
        for (size_t k = 0; k < g->targets.list.n; k++)
            hd_text_f(&said, "%s %s", k ? "," : "", show(u->a, g->targets.list.at[k].text));
        if (g->targets.list.n == 0) hd_text_add(&said, " all modules");
    }
    if (q->groups.n == 0) hd_text_add(&said, "no quantised weights");
    hd_diag *g = hd_err(u->d, HD_E_WEIGHTS, q->loc,
                        "tensor %s is quantised (%s), of which the config does not tell",
                        show(u->a, t->name), hd_packing_name(packing));
    g->cause = said.at;
    g->hint = "config and tensors are of two checkpoints, or the config is not complete";
    return false;
}

bool hd_ask_config(hd_unpacking *u, const hd_tensor *t, const char *module, hd_packing packing,
                   const hd_quant_group **group) {
    *group = NULL;
    if (!u->config->given) return true;
    const hd_modules *ignored = hd_find_modules(&u->config->ignore, module);
    if (ignored) return reject_ignored(u, t, ignored, packing);
    *group = hd_find_group(u->config, packing, module);
    return *group || reject_form(u, t, packing);
}

/* ---- scales that round activations or the cache --------------------------------------------- */

/* Scales and zero points of a key/value cache, and the projections that they belong to.
 * compressed-tensors stores them in the attention module (older versions: as output scales of
 * k_proj and v_proj), AutoFP8 and ModelOpt in the projections. */
static const struct {
    const char *suffix, *beside; /* beside: after the stem, the module that must have a weight */
} of_caches[] = {
    {".k_scale", ".k_proj"},      {".v_scale", ".k_proj"},      {".q_scale", ".k_proj"},
    {".k_zero_point", ".k_proj"}, {".v_zero_point", ".k_proj"}, {".kv_scale", ".k_proj"},
    {".k_proj.output_scale", ""}, {".v_proj.output_scale", ""}, {".k_proj.k_scale", ""},
    {".v_proj.v_scale", ""},
};

/* Does the module have a weight, in any storage form? */
static bool has_weight(hd_unpacking *u, const char *module) {
    static const char *const forms[] = {".weight", ".weight_packed", ".qweight"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (hd_tensors_find(u->stored, hd_printf(u->a, "%s%s", module, forms[i]))) return true;
    return false;
}

/* Keys and values are cached as they are computed. Leaving out these scales only omits a rounding:
 * what would be divided by a scale would be multiplied by it when it is read. */
static void drop_of_cache(hd_unpacking *u, size_t i) {
    const hd_tensor *t = &u->stored->list.at[i];
    for (size_t k = 0; !u->taken[i] && k < sizeof of_caches / sizeof *of_caches; k++) {
        if (!hd_has_suffix(t->name, of_caches[k].suffix)) continue;
        const char *stem = hd_stem(u, t, of_caches[k].suffix);
        const char *beside = *of_caches[k].beside ? of_caches[k].beside
                                                  : hd_printf(u->a, "%.7s", of_caches[k].suffix);
        if (!has_weight(u, hd_printf(u->a, "%s%s", stem, beside))) continue;
        u->taken[i] = true;
        if (u->of_cache.n++ == 0) u->of_cache.first = t->name;
    }
}

static void note_left_out(hd_unpacking *u) {
    const hd_quantisation *q = u->config;
    if (u->of_activations.n)
        hd_note(u->d, q->loc,
                "%zu scale%s of activations (%s%s) %s left out: activations are not rounded as the "
                "checkpoint says (--activations has what may be)",
                u->of_activations.n, u->of_activations.n == 1 ? "" : "s",
                show(u->a, u->of_activations.first), u->of_activations.n == 1 ? "" : " ..",
                u->of_activations.n == 1 ? "is" : "are");
    else if (q->rounds_activations)
        hd_note(u->d, q->loc,
                "activations are not rounded as the checkpoint says (--activations has what may "
                "be)");
    if (u->of_cache.n)
        hd_note(u->d, q->loc,
                "%zu scale%s of the cache (%s%s) %s left out: keys and values are not rounded to a "
                "quantised cache, as other programs do",
                u->of_cache.n, u->of_cache.n == 1 ? "" : "s", show(u->a, u->of_cache.first),
                u->of_cache.n == 1 ? "" : " ..", u->of_cache.n == 1 ? "is" : "are");
    else if (q->rounds_cache)
        hd_note(u->d, q->loc,
                "keys and values are not rounded to the quantised cache that 'kv_cache_scheme' "
                "asks for");
}

/* ---- shapes -------------------------------------------------------------------------------- */

static uint64_t tiles(uint64_t n, uint64_t tile) {
    return tile ? n / tile + (n % tile != 0) : 0;
}

bool hd_is_single(const hd_tensor *scales, const hd_quant_group *group) {
    return scales->elements == 1 && scales->rank < 2 &&
           (!group || !group->tile_known || (group->tile.rows == 0 && group->tile.cols == 0));
}

bool hd_check_scales(hd_unpacking *u, const hd_packed *p, uint32_t leading) {
    const hd_tensor *s = p->scales;
    const uint64_t rows = tiles(p->rows, p->tile.rows), cols = tiles(p->cols, p->tile.cols);
    bool fits = s->rank == leading + 2 && (uint64_t)s->shape[leading] == rows &&
                (uint64_t)s->shape[leading + 1] == cols;
    for (uint32_t i = 0; fits && i < leading; i++)
        fits = s->shape[i] == p->codes->shape[i];
    if (fits) return true;
    hd_text want;
    hd_text_init(&want, u->a);
    hd_text_add(&want, "");
    for (uint32_t i = 0; i < leading; i++)
        hd_text_f(&want, "%lld, ", (long long)p->codes->shape[i]);
    hd_diag *g = hd_part_fault(u, s, "is %s, not [%s%llu, %llu]", hd_type_text(u, s), want.at,
                               (unsigned long long)rows, (unsigned long long)cols);
    g->cause = hd_printf(u->a, "%s has matrices of [%llu, %llu], and a scale for each [%llu, %llu]",
                         show(u->a, p->codes->name), (unsigned long long)p->rows,
                         (unsigned long long)p->cols, (unsigned long long)p->tile.rows,
                         (unsigned long long)p->tile.cols);
    return false;
}

void hd_add_packed(hd_unpacking *u, const char *name, const hd_packed *p, uint32_t leading,
                   hd_tensor_dtype dtype) {
    hd_tensor t = {.name = name, .dtype = dtype, .rank = leading + 2, .file = p->codes->file};
    if (strcmp(name, p->codes->name) != 0 && hd_tensors_find(u->stored, name)) {
        hd_part_fault(u, p->codes, "is the quantised form of a tensor that is there as well")
            ->cause = hd_printf(u->a, "%s is in the checkpoint", show(u->a, name));
        return;
    }
    memcpy(t.shape, p->codes->shape, leading * sizeof *t.shape);
    t.shape[leading] = (int64_t)(p->transposed ? p->cols : p->rows);
    t.shape[leading + 1] = (int64_t)(p->transposed ? p->rows : p->cols);
    if (!hd_tensor_measure(&t)) {
        hd_part_fault(u, p->codes, "is too large: the size of its weights overflows");
        return;
    }
    hd_packed *kept = hd_new(u->a, hd_packed);
    *kept = *p;
    t.packed = kept;
    hd_push(u->a, &u->out->list, t);
}

/* ---- all tensors --------------------------------------------------------------------------- */

/* Suffixes of names that only parts of quantised tensors have. */
static const struct {
    const char *suffix, *of; /* of: suffix of the tensor that the part belongs to */
} parts[] = {
    {".weight_packed", NULL},
    {"_scale_inv", ""},
    {".weight_scale", ".weight_packed"},
    {".weight_zero_point", ".weight_packed"},
    {".weight_shape", ".weight_packed"},
    {".weight_g_idx", ".weight_packed"},
    {".weight_global_scale", ".weight_packed"},
    {".weight_scale_2", ".weight"},
    {"_weight_amax", "_weight"},
    {"_weight_outer_scale_denominator", "_weight"},
    {".qweight", NULL},
    {".qzeros", ".qweight"},
    {".g_idx", ".qweight"},
    {".scale", ".weight"},
};

/* A plain .scale may be anything; only one in E8M0 (powers of two) is a part. */
static bool is_part(const hd_tensor *t, size_t *which) {
    for (*which = 0; *which < sizeof parts / sizeof *parts; ++*which)
        if (hd_has_suffix(t->name, parts[*which].suffix))
            return strcmp(parts[*which].suffix, ".scale") != 0 || t->dtype == HD_T_F8_E8M0;
    return false;
}

/* Is `t` codes by its dtype and name alone? MXFP4 blocks have a plain name, but bytes under such a
 * name are never weights of another kind. */
static bool is_codes(const hd_tensor *t) {
    return t->dtype == HD_T_F8_E4M3 || (t->dtype == HD_T_U8 && hd_has_suffix(t->name, "_blocks")) ||
           (t->dtype == HD_T_I32 && hd_has_suffix(t->name, ".qweight"));
}

bool hd_holds_packed(const hd_tensors *stored) {
    size_t which;
    for (size_t i = 0; i < stored->list.n; i++)
        if (is_codes(&stored->list.at[i]) || is_part(&stored->list.at[i], &which)) return true;
    return false;
}

/* Reports a part that no reader has taken. */
static void reject_orphan(hd_unpacking *u, const hd_tensor *t) {
    size_t which;
    if (!is_part(t, &which)) return;
    if (!parts[which].of) {
        hd_part_fault(u, t, "is %s, which no quantised form that is read here has",
                      hd_type_text(u, t))
            ->cause = "packed weights are U8 (MXFP4, NVFP4) or I32 (integers of 4 or 8 bits)";
        return;
    }
    const char *stem = hd_stem(u, t, parts[which].suffix);
    const char *of = hd_printf(u->a, "%s%s", stem, parts[which].of);
    const hd_tensor *owner = hd_tensors_find(u->stored, of);
    if (!owner && *parts[which].of) { /* an unquantised weight may be there in its place */
        const char *plain = hd_printf(u->a, "%s.weight", stem);
        owner = hd_tensors_find(u->stored, plain);
        if (owner) of = plain;
    }
    hd_diag *g = hd_part_fault(u, t, "belongs to a quantised tensor that is not there");
    g->cause = owner ? hd_printf(u->a, "%s is %s", show(u->a, of), hd_type_text(u, owner))
                     : hd_printf(u->a, "%s is missing", show(u->a, of));
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const hd_tensor *)x)->name, ((const hd_tensor *)y)->name);
}

static void collect(hd_unpacking *u) {
    for (size_t i = 0; i < u->stored->list.n; i++) {
        const hd_tensor *t = &u->stored->list.at[i];
        if (u->taken[i]) continue;
        reject_orphan(u, t);
        hd_tensor kept = *t;
        kept.optional = u->optional[i];
        hd_push(u->a, &u->out->list, kept);
    }
    if (u->out->list.n) qsort(u->out->list.at, u->out->list.n, sizeof *u->out->list.at, by_name);
}

bool hd_unpack(hd_arena *a, hd_diags *d, const hd_tensors *stored, const hd_quantisation *q,
               hd_tensors *out) {
    const size_t errors = d->errors;
    hd_unpacking u = {.a = a, .d = d, .stored = stored, .config = q, .out = out};
    *out = (hd_tensors){0};
    u.taken = hd_new_array(a, bool, stored->list.n + 1);
    u.optional = hd_new_array(a, bool, stored->list.n + 1);
    for (size_t i = 0; i < stored->list.n; i++) {
        const hd_tensor *t = &stored->list.at[i];
        for (size_t k = 0; k < sizeof readers / sizeof *readers; k++) {
            if (!readers[k](&u, t)) continue;
            u.taken[i] = true;
            break;
        }
    }
    if (q->given && out->list.n == 0 && d->errors == errors && q->groups.n)
        hd_warn(d, HD_E_WEIGHTS, q->loc,
                "the config says that weights are quantised, and no tensor is")
            ->cause = "the tensors decide: they are taken as they are";
    for (size_t i = 0; i < stored->list.n && (q->given || out->list.n > 0); i++)
        drop_of_cache(&u, i);
    note_left_out(&u);
    collect(&u);
    return d->errors == errors;
}
