/* tensor_compare A B TOLERANCE [N]   e = max |a - b| / max |b| over a tensor, or over its first N
 * rows; exit 1 if above tensor_compare --print A           the elements, separated by spaces A, B:
 * FILE.npy or FILE.safetensors:TENSOR */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/tensorfile.h"

static bool open_tensor(hd_arena *a, hd_diags *d, const char *name, hd_tensor *out) {
    const char *colon = strrchr(name, ':');
    if (!colon) return hd_npy_read(a, d, name, out);
    hd_tensors file = {0};
    if (!hd_safetensors_open(a, d, hd_strndup(a, name, (size_t)(colon - name)), &file))
        return false;
    const hd_tensor *t = hd_tensors_find(&file, colon + 1);
    if (t)
        *out = *t;
    else
        fprintf(stderr, "%s: no such tensor\n", name);
    return t != NULL;
}

static bool same_shape(const hd_tensor *a, const hd_tensor *b) {
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

static int compare(const hd_tensor *a, const hd_tensor *b, double tolerance, int64_t rows) {
    if (!same_shape(a, b)) {
        fprintf(stderr, "shapes differ\n");
        return 1;
    }
    double worst = 0, largest = 0;
    uint64_t n = a->elements;
    if (rows > 0 && a->rank > 0 && rows < a->shape[0])
        n = n / (uint64_t)a->shape[0] * (uint64_t)rows;
    for (uint64_t i = 0; i < n; i++) {
        const double x = hd_tensor_get(a, i), y = hd_tensor_get(b, i);
        if (!(fabs(x - y) <= worst)) worst = fabs(x - y); /* NaN counts as worst */
        if (fabs(y) > largest) largest = fabs(y);
    }
    const double e = worst / largest;
    printf("e = %.3g (limit %g)\n", e, tolerance);
    return e <= tolerance ? 0 : 1;
}

int main(int argc, char **argv) {
    hd_arena *arena = hd_arena_new();
    hd_diags diags;
    hd_diags_init(&diags, arena);
    hd_tensor a, b;
    int code = 2;
    if (argc == 3 && strcmp(argv[1], "--print") == 0) {
        if (open_tensor(arena, &diags, argv[2], &a)) {
            for (uint64_t i = 0; i < a.elements; i++)
                printf("%g%c", hd_tensor_get(&a, i), i + 1 < a.elements ? ' ' : '\n');
            code = 0;
        }
    } else if (argc == 4 || argc == 5) {
        if (open_tensor(arena, &diags, argv[1], &a) && open_tensor(arena, &diags, argv[2], &b))
            code = compare(&a, &b, strtod(argv[3], NULL), argc > 4 ? strtol(argv[4], NULL, 10) : 0);
    } else {
        fprintf(stderr, "usage: tensor_compare A B TOLERANCE [ROWS] | --print A\n");
    }
    for (size_t i = 0; i < diags.list.n; i++)
        fprintf(stderr, "%s\n", diags.list.at[i].message);
    hd_arena_free(arena);
    return code;
}
