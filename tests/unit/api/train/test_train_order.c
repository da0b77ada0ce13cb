/* The order of windows: each once in an epoch, in another order in each, from the seed alone. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/train/order.h"

/* Reads epoch `epoch`, and checks that its windows follow each other without gaps. */
static void check_epoch(const train_order *o, int64_t tokens, int64_t epoch) {
    bool *seen = calloc((size_t)o->windows, sizeof *seen);
    int64_t least = INT64_MAX;
    for (int64_t i = 0; i < o->windows; i++) {
        const int64_t at = train_window(o, epoch * o->windows + i);
        cr_assert(at >= 0 && at + o->context + 1 <= tokens, "%lld of %lld", (long long)at,
                  (long long)tokens);
        if (at < least) least = at;
    }
    cr_expect_leq(least, o->spare);
    for (int64_t i = 0; i < o->windows; i++) {
        const int64_t at = train_window(o, epoch * o->windows + i) - least;
        cr_assert_eq(at % o->context, 0);
        cr_assert_not(seen[at / o->context], "window %lld twice", (long long)at);
        seen[at / o->context] = true;
    }
    free(seen);
}

Test(train_order, each_window_once_in_an_epoch) {
    const int64_t tokens[] = {2, 3, 4, 5, 6, 17, 64, 65, 66, 257, 1000, 1025, 5003};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int64_t context = 1; context < tokens[i]; context = 3 * context + 1) {
            const train_order o = train_order_of(7, tokens[i], context);
            for (int64_t epoch = 0; epoch < 3; epoch++)
                check_epoch(&o, tokens[i], epoch);
        }
}

/* How many of the windows of two orders are the same at the same time. */
static int64_t equal(const train_order *a, int64_t from, const train_order *b, int64_t other) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->windows; i++)
        n += train_window(a, from + i) == train_window(b, other + i);
    return n;
}

Test(train_order, epochs_and_seeds_have_orders_of_their_own) {
    const train_order o = train_order_of(1, 10001, 10), other = train_order_of(2, 10001, 10);
    cr_assert_eq(o.windows, 1000);
    cr_expect_eq(equal(&o, 0, &o, 0), 1000);
    cr_expect_lt(equal(&o, 0, &o, 1000), 10); /* by chance 1 */
    cr_expect_lt(equal(&o, 0, &other, 0), 10);
    int64_t in_order = 0;
    for (int64_t i = 1; i < 1000; i++)
        in_order += train_window(&o, i) == train_window(&o, i - 1) + 10;
    cr_expect_lt(in_order, 10);
}

/* Runs go on for years: these numbers are part of what a run.json promises. */
Test(train_order, stays_as_it_is) {
    const train_order o = train_order_of(1, 1007, 10);
    char text[128] = "";
    for (int i = 0; i < 5; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %lld",
                 (long long)train_window(&o, i));
    cr_expect_str_eq(text, " 166 786 126 86 256", "%s", text);
}

Test(train_order, large_numbers) {
    const train_order o = train_order_of(3, INT64_C(1) << 50, 1);
    for (int64_t i = 0; i < 100; i++) {
        const int64_t at = train_window(&o, i);
        cr_assert(at >= 0 && at < o.windows);
    }
}
