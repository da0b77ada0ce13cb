/* Products with selected expert matrices, and the delta rule, by ggml, the library of llama.cpp:
 * the peers of bench_experts and bench_recurrence. layers.py compiles this program against a build
 * of ggml and runs it.
 *
 *     ggml_layers THREADS ROUNDS experts T E K WIDTH D TYPE     f32, bf16, f16, q8_0, q4_0, ..
 *     ggml_layers THREADS ROUNDS delta T HEADS SIZE
 *
 * experts: up is mul_mat_id of gate and of up and their SwiGLU, [T, D] to [T, K, WIDTH]; down is
 * mul_mat_id back to [T, K, D]. Calls of one token go through so many layers of matrices that none
 * is in a cache, and use other experts in each call; calls of many tokens have one layer. Matrices
 * lie in the buffer type that ggml has for its repacked weights, if it takes them, and in its
 * ordinary one; the better result is printed. Before anything is timed some elements are compared
 * with sums in double. delta: gated_delta_net with a decay for each channel; for one token the
 * states are in no cache either.
 *
 * Prints `what us`, where us is the median over rounds of the time of a call. */
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLD = 1280 << 20, CHOICES = 64 /* selections of experts */, MOST_ROUNDS = 64, CHECKS = 8 };

static void fail(const char *why) {
    fprintf(stderr, "ggml_layers: %s\n", why);
    exit(1);
}

static float random_float(uint64_t *s) { /* -1 .. 1 */
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*s >> 33) / (double)(1u << 30) - 1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct run {
    ggml_backend_t cpu;
    int rounds;
    struct ggml_context *weights, *values;
    ggml_backend_buffer_t buffers[2];
    struct ggml_cgraph *graph;
} run;

static struct ggml_context *new_context(size_t tensors) {
    return ggml_init((struct ggml_init_params){
        .mem_size = tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(tensors, false),
        .no_alloc = true,
    });
}

static void set_floats(struct ggml_tensor *t, uint64_t *seed, float low, float high) {
    const size_t n = (size_t)ggml_nelements(t);
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = low + (high - low) * (0.5f + 0.5f * random_float(seed));
    ggml_backend_tensor_set(t, x, 0, n * sizeof *x);
    free(x);
}

/* Seconds of the graph: the median over rounds, after one round that does not count. */
static double seconds(run *r) {
    double s[MOST_ROUNDS];
    for (int i = -1; i < r->rounds; i++) {
        const double start = now();
        if (ggml_backend_graph_compute(r->cpu, r->graph) != GGML_STATUS_SUCCESS) fail("no result");
        if (i >= 0) s[i] = now() - start;
    }
    qsort(s, (size_t)r->rounds, sizeof *s, by_size);
    return s[r->rounds / 2];
}

static void end_run(run *r) {
    for (int i = 0; i < 2; i++)
        ggml_backend_buffer_free(r->buffers[i]);
    ggml_free(r->weights), ggml_free(r->values);
}

/* ---- experts --------------------------------------------------------------------------------- */
typedef struct shape {
    int64_t t, experts, chosen, k, n; /* a matrix maps k numbers to n */
    enum ggml_type type;
    bool down;
} shape;

/* Makes rows of one matrix in the type of the weights. */
static char *new_matrix(const shape *s, uint64_t *seed) {
    float *x = malloc((size_t)(s->n * s->k) * sizeof *x);
    char *w = malloc(ggml_row_size(s->type, s->k) * (size_t)s->n);
    for (int64_t i = 0; i < s->n * s->k; i++)
        x[i] = random_float(seed);
    if (s->type == GGML_TYPE_F32)
        memcpy(w, x, (size_t)(s->n * s->k) * sizeof *x);
    else
        ggml_quantize_chunk(s->type, x, w, 0, s->n, s->k, NULL);
    free(x);
    return w;
}

/* Selects different experts for each token. */
static void choose(struct ggml_tensor *ids, const shape *s, uint64_t *seed) {
    int32_t *id = malloc((size_t)(s->t * s->chosen) * sizeof *id);
    for (int64_t i = 0; i < s->t * s->chosen; i++) {
        const int64_t row = i / s->chosen * s->chosen;
        bool again = true;
        while (again) {
            id[i] = (int32_t)((0.5f + 0.499f * random_float(seed)) * (float)s->experts);
            again = false;
            for (int64_t j = row; j < i; j++)
                again |= id[j] == id[i];
        }
    }
    ggml_backend_tensor_set(ids, id, 0, (size_t)(s->t * s->chosen) * sizeof *id);
    free(id);
}

/* Compares elements of the product of x with the matrix w, the same for every expert, with sums in
 * double of the stored numbers. The tolerance is 3 %, since ggml rounds activations to 8 bits for
 * quantised weights; signs are random. */
static void check(const shape *s, const char *w, const struct ggml_tensor *y,
                  const struct ggml_tensor *x) {
    const size_t row = ggml_row_size(s->type, s->k);
    float *wr = malloc((size_t)s->k * sizeof *wr), *xr = malloc((size_t)s->k * sizeof *xr), got;
    const struct ggml_type_traits *traits = ggml_get_type_traits(s->type);
    ggml_backend_tensor_get(x, xr, 0, (size_t)s->k * sizeof *xr);
    for (int64_t i = 0; i < CHECKS; i++) {
        const int64_t n = i * (s->n - 1) / (CHECKS - 1);
        double want = 0, size = 0;
        if (s->type == GGML_TYPE_F32)
            memcpy(wr, w + (size_t)n * row, row);
        else
            traits->to_float(w + (size_t)n * row, wr, s->k);
        for (int64_t k = 0; k < s->k; k++)
            want += (double)wr[k] * xr[k], size += pow((double)wr[k] * xr[k], 2);
        ggml_backend_tensor_get(y, &got, (size_t)n * sizeof got, sizeof got);
        if (!(fabs(got - want) <= 0.03 * sqrt(size))) fail("a product is wrong");
    }
    free(wr), free(xr);
}

static ggml_backend_buffer_type_t repacked(ggml_backend_t cpu) {
    ggml_backend_dev_t device = ggml_backend_get_device(cpu);
    ggml_backend_dev_get_extra_bufts_t extra = NULL;
    *(void **)&extra = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                         "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *list = extra ? extra(device) : NULL;
    for (; list && *list; list++)
        if (strstr(ggml_backend_buft_name(*list), "REPACK")) return *list;
    return NULL;
}

/* Microseconds of one call; below 0: this buffer type does not take such matrices. */
static double time_experts(run *r, const shape *s, ggml_backend_buffer_type_t type) {
    const int products = s->down ? 1 : 2;
    const size_t matrix = ggml_row_size(s->type, s->k) * (size_t)s->n;
    const size_t layer = matrix * (size_t)s->experts * (size_t)products;
    const int layers = s->t == 1 ? (int)(COLD / layer) + 1 : 1;
    const int calls = s->t > 1 ? 1 : layers > CHOICES ? layers : CHOICES;
    const size_t tensors = (size_t)calls * 8 + 8;
    uint64_t seed = 1;
    r->weights = new_context(tensors), r->values = new_context(2 * tensors);
    r->graph = ggml_new_graph_custom(r->values, tensors, false);
    struct ggml_tensor *x =
        ggml_new_tensor_3d(r->values, GGML_TYPE_F32, s->k, s->down ? s->chosen : 1, s->t);
    struct ggml_tensor **w = calloc((size_t)layers * 2, sizeof(struct ggml_tensor *));
    struct ggml_tensor **ids = calloc((size_t)calls, sizeof(struct ggml_tensor *)), *first = NULL;
    ggml_set_input(x);
    for (int l = 0; l < layers * products; l++)
        w[l] = ggml_new_tensor_3d(r->weights, s->type, s->k, s->n, s->experts);
    for (int c = 0; c < calls; c++) {
        struct ggml_tensor *y[2] = {NULL, NULL}, **of = &w[c % layers * products];
        ids[c] = ggml_new_tensor_2d(r->values, GGML_TYPE_I32, s->chosen, s->t);
        ggml_set_input(ids[c]);
        for (int i = 0; i < products; i++)
            y[i] = ggml_mul_mat_id(r->values, of[i], x, ids[c]);
        if (!first) first = y[0], ggml_set_output(first);
        struct ggml_tensor *out = s->down ? y[0] : ggml_swiglu_split(r->values, y[0], y[1]);
        ggml_set_output(out);
        ggml_build_forward_expand(r->graph, out);
    }
    r->buffers[0] = ggml_backend_alloc_ctx_tensors_from_buft(r->weights, type);
    r->buffers[1] = ggml_backend_alloc_ctx_tensors(r->values, r->cpu);
    if (!r->buffers[0] || !r->buffers[1]) fail("out of memory");
    char *one = new_matrix(s, &seed), *all = malloc(matrix * (size_t)s->experts);
    for (int64_t i = 0; i < s->experts; i++)
        memcpy(all + (size_t)i * matrix, one, matrix);
    for (int l = 0; l < layers * products; l++)
        ggml_backend_tensor_set(w[l], all, 0, matrix * (size_t)s->experts);
    for (int c = 0; c < calls; c++)
        choose(ids[c], s, &seed);
    set_floats(x, &seed, -1, 1);
    const double us = 1e6 * seconds(r) / calls;
    check(s, one, first, x);
    free(one), free(all), free(w), free(ids);
    end_run(r);
    return us;
}

/* Is there a kernel for these matrices in that buffer type? */
static bool takes(ggml_backend_t cpu, const shape *s, ggml_backend_buffer_type_t type) {
    struct ggml_context *c = new_context(8);
    struct ggml_tensor *w = ggml_new_tensor_3d(c, s->type, s->k, s->n, s->experts);
    struct ggml_tensor *x = ggml_new_tensor_3d(c, GGML_TYPE_F32, s->k, 1, s->t);
    struct ggml_tensor *ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, s->chosen, s->t);
    struct ggml_tensor *y = ggml_mul_mat_id(c, w, x, ids);
    w->buffer = ggml_backend_buft_alloc_buffer(type, 0);
    const bool is = ggml_backend_dev_supports_op(ggml_backend_get_device(cpu), y);
    ggml_backend_buffer_free(w->buffer);
    ggml_free(c);
    return is;
}

static void experts(run *r, int64_t t, int64_t e, int64_t k, int64_t width, int64_t d,
                    enum ggml_type type) {
    ggml_backend_buffer_type_t plain = ggml_backend_get_default_buffer_type(r->cpu);
    ggml_backend_buffer_type_t packed = repacked(r->cpu);
    for (int down = 0; down < 2; down++) {
        const shape s = {t, e, k, down ? width : d, down ? d : width, type, down};
        double us = time_experts(r, &s, plain);
        const char *how = "";
        if (packed && takes(r->cpu, &s, packed)) {
            const double other = time_experts(r, &s, packed);
            if (other < us) us = other, how = " repacked";
        }
        printf("%s %.1f%s\n", down ? "down" : "up", us, how);
    }
}

/* ---- delta rule ------------------------------------------------------------------------------ */
static void delta(run *r, int64_t t, int64_t heads, int64_t n) {
    const int calls = t == 1 ? (int)(COLD / (n * n * heads * 4)) + 1 : 1;
    const size_t tensors = (size_t)calls * 8 + 8;
    uint64_t seed = 1;
    struct ggml_tensor *in[5];
    r->weights = new_context(tensors), r->values = new_context(tensors);
    r->graph = ggml_new_graph_custom(r->values, tensors, false);
    for (int i = 0; i < 5; i++) /* q, k, v, g, beta */
        in[i] = ggml_new_tensor_4d(r->weights, GGML_TYPE_F32, i < 4 ? n : 1, heads, t, 1);
    struct ggml_tensor **state = calloc((size_t)calls, sizeof(struct ggml_tensor *));
    for (int i = 0; i < calls; i++) {
        state[i] = ggml_new_tensor_4d(r->weights, GGML_TYPE_F32, n, n, heads, 1);
        struct ggml_tensor *y =
            ggml_gated_delta_net(r->values, in[0], in[1], in[2], in[3], in[4], state[i], 1);
        ggml_build_forward_expand(r->graph, y);
    }
    r->buffers[0] = ggml_backend_alloc_ctx_tensors(r->weights, r->cpu);
    r->buffers[1] = ggml_backend_alloc_ctx_tensors(r->values, r->cpu);
    if (!r->buffers[0] || !r->buffers[1]) fail("out of memory");
    const float width = 1 / sqrtf((float)n);
    for (int i = 0; i < 3; i++)
        set_floats(in[i], &seed, -width, width);
    set_floats(in[3], &seed, -0.05f, 0), set_floats(in[4], &seed, 0.95f, 1);
    for (int i = 0; i < calls; i++)
        ggml_backend_tensor_memset(state[i], 0, 0, ggml_nbytes(state[i]));
    printf("delta %.1f\n", 1e6 * seconds(r) / calls);
    free(state);
    end_run(r);
}

static enum ggml_type type_called(const char *name) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++)
        if (ggml_type_name((enum ggml_type)i) && !strcmp(name, ggml_type_name((enum ggml_type)i)))
            return (enum ggml_type)i;
    fail("no such type");
    return GGML_TYPE_COUNT;
}

int main(int argc, char **argv) {
    const bool is_experts = argc == 10 && !strcmp(argv[3], "experts");
    const bool is_delta = argc == 7 && !strcmp(argv[3], "delta");
    if (!is_experts && !is_delta)
        fail("THREADS ROUNDS experts T E K WIDTH D TYPE | delta T HEADS SIZE");
    run r = {.cpu = ggml_backend_cpu_init(), .rounds = atoi(argv[2])};
    if (!r.cpu || r.rounds < 1 || r.rounds > MOST_ROUNDS) fail("1 to 64 rounds");
    ggml_backend_cpu_set_n_threads(r.cpu, atoi(argv[1]));
    printf("ggml %s %s\n", ggml_version(), ggml_commit());
    if (is_experts)
        experts(&r, atol(argv[4]), atol(argv[5]), atol(argv[6]), atol(argv[7]), atol(argv[8]),
                type_called(argv[9]));
    else
        delta(&r, atol(argv[4]), atol(argv[5]), atol(argv[6]));
    ggml_backend_free(r.cpu);
    return 0;
}
