/* The compiler's own threads: every item once, and in order where that was asked for. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "support/workers.h"

enum { ITEMS = 300 };

typedef struct seen {
    atomic_int made[ITEMS], inside;
    size_t put, in_place[HCG_MOST_PLACES];
    bool in_order, alone, as_made;
} seen;

static void make(void *context, size_t worker, size_t item) {
    seen *s = context;
    (void)worker;
    for (size_t i = 0; i < item * 7 % 11; i++)
        sched_yield(); /* some take longer than others */
    s->made[item]++;
}

static void make_in_place(void *context, size_t worker, size_t place, size_t item) {
    seen *s = context;
    s->in_place[place] = item;
    make(context, worker, item);
}

static void put(void *context, size_t place, size_t item) {
    seen *s = context;
    s->alone &= atomic_fetch_add(&s->inside, 1) == 0;
    s->in_order &= item == s->put++;
    s->as_made &= s->made[item] == 1 && s->in_place[place] == item;
    for (size_t i = 0; i < item * 5 % 7; i++)
        sched_yield();
    s->inside--;
}

Test(workers, each_in_order) {
    static const size_t workers[] = {1, 2, 3, 7, HCG_MOST_WORKERS}, items[] = {0, 1, 2, ITEMS};
    static const size_t places[] = {1, 2, 5, HCG_MOST_PLACES};
    for (size_t w = 0; w < 5; w++)
        for (size_t i = 0; i < 16; i++) {
            seen s = {.in_order = true, .alone = true, .as_made = true};
            const size_t n = items[i % 4];
            hcg_each_in_order(&(hcg_in_order){.workers = workers[w],
                                              .n = n,
                                              .places = places[i / 4],
                                              .make = make_in_place,
                                              .put = put,
                                              .context = &s});
            cr_expect_eq(s.put, n);
            cr_expect(s.in_order && s.alone && s.as_made, "%zu workers, %zu places", workers[w],
                      places[i / 4]);
            for (size_t k = 0; k < ITEMS; k++)
                cr_expect_eq(s.made[k], k < n);
        }
}

/* Whoever has made an item makes the next one while another is put: here that waits for it. */
static void wait_for_second(void *context, size_t place, size_t item) {
    seen *s = context;
    (void)place;
    while (item == 0 && s->made[2] == 0)
        sched_yield();
    s->put++;
}

Test(workers, made_while_another_is_put, .timeout = 60) {
    seen s = {0};
    hcg_each_in_order(&(hcg_in_order){.workers = 2,
                                      .n = 3,
                                      .places = 3,
                                      .make = make_in_place,
                                      .put = wait_for_second,
                                      .context = &s});
    cr_expect_eq(s.put, 3);
}

Test(workers, each_item_once) {
    for (size_t w = 1; w <= HCG_MOST_WORKERS; w += 5) {
        seen s = {0};
        hcg_each_item(w, ITEMS, make, &s);
        for (size_t k = 0; k < ITEMS; k++)
            cr_expect_eq(s.made[k], 1);
    }
}
