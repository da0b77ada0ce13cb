/* What the runtime's tests use of Criterion, in one process: Criterion starts each test in a
 * process of its own at a fixed address, which ThreadSanitizer keeps for itself. */
#ifndef TSAN_CRITERION_H
#define TSAN_CRITERION_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tsan_test {
    const char *name;
    void (*run)(void);
    struct tsan_test *next;
} tsan_test;
static tsan_test *tsan_tests;

#define Test(suite, title)                                                                         \
    static void suite##_##title(void);                                                             \
    __attribute__((constructor)) static void add_##suite##_##title(void) {                         \
        static tsan_test test = {#suite "/" #title, suite##_##title, NULL};                        \
        test.next = tsan_tests;                                                                    \
        tsan_tests = &test;                                                                        \
    }                                                                                              \
    static void suite##_##title(void)

#define TestSuite(suite, ...) _Static_assert(sizeof #suite, "its options are Criterion's")

#define cr_assert(condition, ...)                                                                  \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                            \
        exit(1);                                                                                   \
    } while (0)
#define cr_assert_eq(a, b, ...)     cr_assert((a) == (b))
#define cr_assert_null(a, ...)      cr_assert((a) == NULL)
#define cr_expect_null(a, ...)      cr_assert_null(a)
#define cr_assert_gt(a, b, ...)     cr_assert((a) > (b))
#define cr_assert_geq(a, b, ...)    cr_assert((a) >= (b))
#define cr_assert_leq(a, b, ...)    cr_assert((a) <= (b))
#define cr_assert_str_eq(a, b, ...) cr_assert(strcmp(a, b) == 0)
#define cr_assert_float_eq(a, b, limit, ...)                                                       \
    cr_assert(fabs((double)(a) - (double)(b)) <= (double)(limit))

int main(void) {
    for (const tsan_test *t = tsan_tests; t; t = t->next) {
        fprintf(stderr, "%s\n", t->name);
        t->run();
    }
    return 0;
}

#endif
