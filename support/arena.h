/* Arena: memory that is freed all at once.
 *
 * Allocation never returns NULL. When memory runs out, control goes to the innermost guard
 * (HD_GUARD) of the arena; the public entry points in api/ each hold one and turn it into
 * HD_E_MEMORY. Code between a guard and an allocation must therefore not hold resources that
 * only it knows of (open files, LLVM objects): register them with hd_arena_defer.
 *
 * One arena is used by one thread at a time.
 */
#ifndef HD_ARENA_H
#define HD_ARENA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/known.h"

typedef struct hd_arena hd_arena;

hd_arena *hd_arena_new(void);    /* NULL when out of memory: no other function here returns that */
void hd_arena_free(hd_arena *a); /* runs deferred calls in reverse order; NULL is allowed */

/* `n * size` bytes, zeroed, aligned to 16. A product that overflows counts as out of memory. */
void *hd_alloc(hd_arena *a, size_t n, size_t size);
#define hd_new(arena, type)          ((type *)hd_alloc((arena), 1, sizeof(type)))
#define hd_new_array(arena, type, n) ((type *)hd_alloc((arena), (n), sizeof(type)))

char *hd_strdup(hd_arena *a, const char *s);
char *hd_strndup(hd_arena *a, const char *s, size_t n);
char *hd_printf(hd_arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The ending of a noun after a number: "%zu op%s", n, hd_s(n). */
static inline const char *hd_s(uint64_t n) {
    return n == 1 ? "" : "s";
}
char *hd_vprintf(hd_arena *a, const char *format, va_list args);

/* An arena for what is needed for a while. It is freed by hd_scratch_free, or with `owner`; where it runs
 * out of memory, control goes to the guard that `owner` has now. */
hd_arena **hd_scratch_new(hd_arena *owner);
void hd_scratch_free(hd_arena **scratch);

/* Makes the arena call `call(what)` when it is freed. */
void hd_arena_defer(hd_arena *a, void (*call)(void *), void *what);

/* Sets the jmp_buf to which control goes when memory runs out; returns the one that was set before.
 * Restore that one when done:
 *     jmp_buf here; jmp_buf *outer = hd_arena_guard(a, &here);
 *     if (setjmp(here)) { hd_arena_guard(a, outer); return HD_E_MEMORY; }
 */
jmp_buf *hd_arena_guard(hd_arena *a, jmp_buf *target);

/* Test hook: the n-th allocation from now fails (0: none). */
void hd_arena_fail_after(hd_arena *a, size_t n);

/* Checked arithmetic: true when the result does not fit. */
#define hd_mul_overflow(x, y, out) __builtin_mul_overflow((x), (y), (out))
#define hd_add_overflow(x, y, out) __builtin_add_overflow((x), (y), (out))

/* Sums and products that saturate at the largest number, for sizes that come from files. */
static inline uint64_t hd_capped_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    return hd_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
static inline uint64_t hd_capped_mul(uint64_t a, uint64_t b) {
    uint64_t product;
    return hd_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Growing array in an arena: HD_VEC(int) v = {0}; hd_push(arena, &v, 3); v.at[0], v.n */
#define HD_VEC(type)                                                                               \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t n, cap;                                                                             \
    }
#define hd_push(arena, vec, item)                                                                  \
    ((void)((vec)->n == (vec)->cap ? ((vec)->at = hd_grow((arena), (vec)->at, (vec)->n,            \
                                                          &(vec)->cap, sizeof *(vec)->at))         \
                                   : (vec)->at),                                                   \
     hd_known((vec)->at), (vec)->at[(vec)->n++] = (item))
void *hd_grow(hd_arena *a, const void *old, size_t n, size_t *cap, size_t size);

#endif
