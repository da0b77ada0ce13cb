/* What CPU levels cannot do: each level of each architecture, forced on a machine that lacks it,
 * and asked for activations that it does not round. What each rounds is written here a second time.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "codegen/matmul/backend.h"
#include "codegen/program/program.h"
#include "codegen/target/target.h"
#include "runtime/internal.h"

static hd_arena *arena;

static void set_up(void) {
    arena = hd_arena_new();
}

static void tear_down(void) {
    hd_arena_free(arena);
}

TestSuite(levels, .init = set_up, .fini = tear_down);

/* ---- activations ----------------------------------------------------------------------------- */
typedef struct rounding {
    const char *level, *rounds; /* "": nothing */
} rounding;
static const rounding roundings[] = {
    {"amx", "int8 bf16"}, {"avx512bf16", "int8 bf16"}, {"avx512vnni", "int8"},
    {"avx512", "int8"},   {"avxvnni", "int8"},         {"avx2", "int8"},
    {"baseline", ""},     {"neonbf16", "int8 bf16"},   {"dotprod", "int8"},
    {"neon", ""},
};

/* What a compilation for one level says of `--activations list`, with matrices of q8 and bf16. */
static const char *said_of(const hcg_level *level, const char *list) {
    hd_diags d;
    hd_diags_init(&d, arena);
    hcg_program p = {.arena = arena};
    p.options.cpu = level->name;
    p.options.triple = hd_printf(arena, "%s-linux-gnu", level->arch);
    p.options.matrices =
        hcg_matrix(HIR_Q8, HIR_LAYOUT_PANEL) | hcg_matrix(HIR_BF16, HIR_LAYOUT_PANEL);
    cr_assert(hcg_read_activations(list, &p.options.exact), "%s", list);
    hd_text text;
    hd_text_init(&text, arena);
    hd_text_add(&text, "");
    cr_assert(hcg_activations_not_rounded(&p, &d, &text), "%s", level->name);
    return text.at;
}

static const char *expected_of(const rounding *r, const char *list) {
    static const char *const names[] = {"int8", "bf16"};
    const char *text = "";
    for (int i = 0; i < 2; i++)
        if (strstr(list, names[i]) && !strstr(r->rounds, names[i]))
            text = hd_printf(arena, "%slevel %s rounds nothing to %s: activations stay f32 there\n",
                             text, r->level, names[i]);
    if (strcmp(list, "bf16") == 0 && strstr(r->rounds, "int8"))
        text = hd_printf(arena,
                         "%s--activations has no int8 in its list: matrices that dot products of "
                         "it would multiply, faster, take f32 activations\n",
                         text);
    return text;
}

Test(levels, activations_that_each_does_not_round) {
    static const char *const lists[] = {"f32", "int8", "bf16", "int8,bf16", "bf16,int8"};
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels), known = sizeof roundings / sizeof *roundings;
    cr_assert_eq(n, known, "a level is missing here");
    for (size_t i = 0; i < n; i++) {
        cr_assert_str_eq(levels[i].name, roundings[i].level);
        for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
            cr_expect_str_eq(said_of(&levels[i], lists[l]), expected_of(&roundings[i], lists[l]),
                             "%s, %s", levels[i].name, lists[l]);
    }
}

/* ---- a level that is forced ------------------------------------------------------------------ */
static void no_kernel(const hrt_frame *frame, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                      int64_t c1) {
    (void)frame, (void)args, (void)r0, (void)r1, (void)c0, (void)c1;
}

/* A library of two levels: `level` and one that every CPU has. */
static hrt_session *session_with(const hcg_level *level, hrt_model *m, hrt_level table[2]) {
    static hrt_kernel *const functions[] = {no_kernel};
    static const hrt_step step = {.grain = 1, .cols = 1};
    table[0] = (hrt_level){level->name, hcg_level_features(level), functions, level->machine};
    table[1] = (hrt_level){"plain", 0, functions, level->machine};
    *m = (hrt_model){.version = HRT_VERSION, .chunk = 4, .n_steps = 1, .steps = &step};
    m->levels = table, m->n_levels = 2;
    const size_t size = hrt_session_size(m, 4), whole = (size + 63) / 64 * 64;
    void *memory = aligned_alloc(64, whole);
    hrt_session *s = NULL;
    cr_assert_not_null(memory);
    cr_assert_eq(hrt_session_init(m, memory, whole, NULL, 4, &s), HRT_OK, "%s", level->name);
    return s;
}

/* Every feature of the level that this machine does not have is named, and none that it has. */
static void check_rejected(const hcg_level *level, const char *message) {
    static const struct {
        uint64_t bit;
        const char *name;
    } names[] = {
#define C(id, bit, name) {HRT_CPU_##id, " " name},
        HRT_CPU_FEATURES(C)
#undef C
    };
    const uint64_t lacks = hcg_level_features(level) & ~hrt_cpu_features();
    const char *list =
        strstr(message, lacks ? "the CPU lacks" : "the operating system does not allow");
    cr_assert_not_null(list, "%s: %s", level->name, message);
    for (size_t i = 0; i < sizeof names / sizeof *names && lacks; i++) {
        bool named = false;
        const size_t length = strlen(names[i].name);
        for (const char *at = list; (at = strstr(at, names[i].name)); at += length)
            named |= !at[length] || at[length] == ' ';
        cr_expect_eq(named, (lacks & names[i].bit) != 0, "%s: \"%s\"%s", level->name, message,
                     names[i].name);
    }
}

Test(levels, one_that_is_missing_is_rejected_with_what_it_lacks) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    unsigned rejected = 0;
    for (size_t i = 0; i < n; i++) {
        hrt_model m;
        hrt_level table[2];
        hrt_session *s = session_with(&levels[i], &m, table);
        bool by_system;
        const bool runs = hrt_level_lacks(&table[0], &by_system) == 0;
        cr_expect_eq(hrt_session_set_cpu(s, levels[i].name), runs ? HRT_OK : HRT_CPU, "%s",
                     levels[i].name);
        cr_expect_str_eq(hrt_session_cpu(s), runs ? levels[i].name : "plain");
        if (!runs) check_rejected(&levels[i], hrt_session_message(s)), rejected++;
        free(s);
    }
    cr_assert_gt(rejected, 0, "levels of another architecture, at least, do not run here");
}
