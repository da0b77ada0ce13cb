/* tensor_compare A B TOLERANCE [N]
 *     e = max |a - b| / max |b| over a tensor, or over its first N rows; exit code 1 if above
 * tensor_compare --losses LOSSES LOGITS TOKENS TOLERANCE
 *     the same of losses, and of what they are by logits and tokens
 * tensor_compare --print A
 *     the elements, separated by spaces
 *
 * A, B: FILE.npy or FILE.safetensors:TENSOR */
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

static void print_list(const char *sign, const int64_t *list, uint32_t n) {
    printf("%c", sign[0]);
    for (uint32_t i = 0; i < n; i++)
        printf("%s%lld", i ? ", " : "", (long long)list[i]);
    printf("%c", sign[1]);
}

/* [2, 7] of element i. */
static void print_place(const hd_tensor *t, uint64_t i) {
    int64_t at[HD_TENSOR_MAX_RANK];
    for (uint32_t d = t->rank; d-- > 0; i /= (uint64_t)t->shape[d])
        at[d] = (int64_t)(i % (uint64_t)t->shape[d]);
    print_list("[]", at, t->rank);
}

/* Infinite where either is infinite or NaN: results of models are finite. */
static double difference(double x, double y) {
    return isfinite(x) && isfinite(y) ? fabs(x - y) : INFINITY;
}

typedef struct distance {
    double worst, largest; /* max |a - b|; max |b| */
    uint64_t at, over, n;  /* where the worst is; how many are over the limit, of how many */
} distance;

static distance measure(const hd_tensor *a, const hd_tensor *b, double tolerance, int64_t rows) {
    distance d = {.n = a->elements};
    if (rows > 0 && a->rank > 0 && rows < a->shape[0])
        d.n = d.n / (uint64_t)a->shape[0] * (uint64_t)rows;
    for (uint64_t i = 0; i < d.n; i++) {
        const double x = hd_tensor_get(a, i), y = hd_tensor_get(b, i);
        if (difference(x, y) > d.worst) d.worst = difference(x, y), d.at = i;
        if (isfinite(y) && fabs(y) > d.largest) d.largest = fabs(y);
    }
    for (uint64_t i = 0; i < d.n; i++)
        d.over += difference(hd_tensor_get(a, i), hd_tensor_get(b, i)) > tolerance * d.largest;
    return d;
}

/* What was compared, and where it differs most, is said where it differs too much. */
static int compare(const char *name_a, const hd_tensor *a, const char *name_b, const hd_tensor *b,
                   double tolerance, int64_t rows) {
    if (!same_shape(a, b)) {
        printf("%s is ", name_a);
        print_list("[]", a->shape, a->rank);
        printf(", and %s ", name_b);
        print_list("[]", b->shape, b->rank);
        printf("\n");
        return 1;
    }
    const distance d = measure(a, b, tolerance, rows);
    const double e = d.worst > 0 ? d.worst / d.largest : 0;
    printf("e = %.3g (limit %g)", e, tolerance);
    if (e <= tolerance) return printf("\n"), 0;
    printf(": %s differs from %s in %llu of %llu elements by more, most at ", name_a, name_b,
           (unsigned long long)d.over, (unsigned long long)d.n);
    print_place(a, d.at);
    printf(": %.9g, not %.9g\n", hd_tensor_get(a, d.at), hd_tensor_get(b, d.at));
    return 1;
}

/* Are the losses [n - 1] what the tokens [n] after the first cost by the logits [n, V] of the rows
 * before them? */
static int compare_losses(const hd_tensor *losses, const hd_tensor *logits, const hd_tensor *tokens,
                          double tolerance) {
    double worst = 0, largest = 0;
    if (logits->rank != 2 || losses->elements + 1 != tokens->elements ||
        (uint64_t)logits->shape[0] != tokens->elements) {
        fprintf(stderr, "shapes differ\n");
        return 1;
    }
    const uint64_t vocab = (uint64_t)logits->shape[1];
    for (uint64_t t = 0; t < losses->elements; t++) {
        double most = -INFINITY, sum = 0;
        for (uint64_t j = 0; j < vocab; j++)
            most = fmax(most, hd_tensor_get(logits, t * vocab + j));
        for (uint64_t j = 0; j < vocab; j++)
            sum += exp(hd_tensor_get(logits, t * vocab + j) - most);
        const uint64_t target = (uint64_t)hd_tensor_get(tokens, t + 1);
        const double loss = log(sum) + most - hd_tensor_get(logits, t * vocab + target);
        const double off = fabs(hd_tensor_get(losses, t) - loss);
        if (!(off <= worst)) worst = off;
        if (loss > largest) largest = loss;
    }
    printf("e = %.3g (limit %g)\n", worst / largest, tolerance);
    return worst / largest <= tolerance ? 0 : 1;
}

int main(int argc, char **argv) {
    hd_arena *arena = hd_arena_new();
    hd_diags diags;
    hd_diags_init(&diags, arena);
    hd_tensor a, b, c;
    int code = 2;
    if (argc == 3 && strcmp(argv[1], "--print") == 0) {
        if (open_tensor(arena, &diags, argv[2], &a)) {
            for (uint64_t i = 0; i < a.elements; i++)
                printf("%g%c", hd_tensor_get(&a, i), i + 1 < a.elements ? ' ' : '\n');
            code = 0;
        }
    } else if (argc == 6 && strcmp(argv[1], "--losses") == 0) {
        if (open_tensor(arena, &diags, argv[2], &a) && open_tensor(arena, &diags, argv[3], &b) &&
            open_tensor(arena, &diags, argv[4], &c))
            code = compare_losses(&a, &b, &c, strtod(argv[5], NULL));
    } else if (argc == 4 || argc == 5) {
        if (open_tensor(arena, &diags, argv[1], &a) && open_tensor(arena, &diags, argv[2], &b))
            code = compare(argv[1], &a, argv[2], &b, strtod(argv[3], NULL),
                           argc > 4 ? strtol(argv[4], NULL, 10) : 0);
    } else {
        fprintf(stderr, "usage: tensor_compare A B TOLERANCE [ROWS] | --print A | "
                        "--losses LOSSES LOGITS TOKENS TOLERANCE\n");
    }
    for (size_t i = 0; i < diags.list.n; i++)
        fprintf(stderr, "%s\n", diags.list.at[i].message);
    hd_arena_free(arena);
    return code;
}
