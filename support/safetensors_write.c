/* The safetensors writer: the header, padded with spaces so that the data begins at a multiple of
 * 64 bytes, then the tensors in the order given. The same list gives the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "support/tensorfile.h"

enum { DATA_ALIGN = 64 };

static int by_pointed_name(const void *x, const void *y) {
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static bool names_differ(hd_diags *d, const hd_tensor *list, size_t n) {
    const char **names = hd_new_array(d->arena, const char *, n + 1);
    for (size_t i = 0; i < n; i++)
        names[i] = list[i].name;
    qsort(names, n, sizeof *names, by_pointed_name);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], "__metadata__") != 0 &&
            (i == 0 || strcmp(names[i - 1], names[i]) != 0))
            continue;
        hd_err(d, HD_E_NAME, HD_NOWHERE, "a tensor cannot be written under the name '%s'%s",
               names[i], i && strcmp(names[i - 1], names[i]) == 0 ? " twice" : "");
        return false;
    }
    return true;
}

static void add_entry(hd_text *out, const hd_tensor *t, uint64_t begin) {
    hd_text_add_json(out, t->name);
    hd_text_f(out, ":{\"dtype\":\"%s\",\"shape\":[", hd_tensor_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->rank; i++)
        hd_text_f(out, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    hd_text_f(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
              (unsigned long long)(begin + t->bytes));
}

bool hd_safetensors_write_header(hd_output *o, hd_diags *d, const hd_tensor *list, size_t n) {
    hd_text header;
    hd_text_init(&header, d->arena);
    uint64_t end = 0;
    if (!names_differ(d, list, n)) return false;
    hd_text_add(&header, "{");
    for (size_t i = 0; i < n; i++) {
        hd_tensor t = list[i];
        uint64_t begin = end;
        if (!hd_tensor_measure(&t) || hd_add_overflow(end, t.bytes, &end)) {
            hd_err(d, HD_E_LIMIT, HD_NOWHERE, "tensor '%s' is too large to be written", t.name);
            return false;
        }
        if (i) hd_text_add(&header, ",");
        add_entry(&header, &t, begin);
    }
    hd_text_add(&header, "}");
    while ((8 + header.n) % DATA_ALIGN != 0)
        hd_text_add(&header, " ");
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(header.n >> (8 * i));
    return hd_output_write(o, length, 8) && hd_output_write(o, header.at, header.n);
}

bool hd_safetensors_write(hd_arena *a, hd_diags *d, const char *path, const hd_tensor *list,
                          size_t n) {
    hd_output *o = hd_output_open(a, d, path);
    if (!o) return false;
    size_t errors = d->errors;
    hd_safetensors_write_header(o, d, list, n);
    if (d->errors != errors) {
        hd_output_discard(o);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        hd_tensor t = list[i];
        hd_tensor_measure(&t);
        hd_output_write(o, t.data, (size_t)t.bytes);
    }
    return hd_output_commit(o);
}
