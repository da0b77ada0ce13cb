/* The compiler's own threads: every item once, and in order where that was asked for. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "codegen/library/workers.h"

enum { ITEMS = 300 };

typedef struct seen {
    atomic_int made[ITEMS], inside;
    size_t put, by[ITEMS];
    bool in_order, alone, by_its_maker;
} seen;

static void make(void *context, size_t worker, size_t item) {
    seen *s = context;
    for (size_t i = 0; i < item * 7 % 11; i++)
        sched_yield(); /* some take longer than others */
    s->by[item] = worker;
    s->made[item]++;
}

static void put(void *context, size_t worker, size_t item) {
    seen *s = context;
    s->alone &= atomic_fetch_add(&s->inside, 1) == 0;
    s->in_order &= item == s->put++;
    s->by_its_maker &= s->made[item] == 1 && s->by[item] == worker;
    sched_yield();
    s->inside--;
}

Test(workers, each_in_order) {
    static const size_t workers[] = {1, 2, 3, 7, HCG_MOST_WORKERS}, items[] = {0, 1, 2, ITEMS};
    for (size_t w = 0; w < 5; w++)
        for (size_t i = 0; i < 4; i++) {
            seen s = {.in_order = true, .alone = true, .by_its_maker = true};
            hcg_each_in_order(workers[w], items[i], make, put, &s);
            cr_expect_eq(s.put, items[i]);
            cr_expect(s.in_order && s.alone && s.by_its_maker, "%zu workers", workers[w]);
            for (size_t k = 0; k < ITEMS; k++)
                cr_expect_eq(s.made[k], k < items[i]);
        }
}

Test(workers, each_item_once) {
    for (size_t w = 1; w <= HCG_MOST_WORKERS; w += 5) {
        seen s = {0};
        hcg_each_item(w, ITEMS, make, &s);
        for (size_t k = 0; k < ITEMS; k++)
            cr_expect_eq(s.made[k], 1);
    }
}
