/* Arena: bump allocation in chunks that are freed together. */
#include "support/arena.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define HD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HD_ASAN 1
#endif
#endif

/* Under AddressSanitizer every byte of a chunk that was not handed out is poisoned, and a red zone
 * separates items, so that overruns inside a chunk are found as overruns of malloc'd memory are. */
#ifdef HD_ASAN
#include <sanitizer/asan_interface.h>
enum { REDZONE = 16 };
#define hide(p, n) __asan_poison_memory_region((p), (n))
#define show(p, n) __asan_unpoison_memory_region((p), (n))
#else
enum { REDZONE = 0 };
#define hide(p, n) ((void)(p), (void)(n))
#define show(p, n) ((void)(p), (void)(n))
#endif

enum { ALIGN = 16, FIRST_CHUNK = 1 << 14, LARGEST_CHUNK = 1 << 20 };

/* Larger sizes count as out of memory; the system is not asked for them. */
static const size_t largest_item = (size_t)1 << (sizeof(size_t) > 4 ? 39 : 30);

typedef struct chunk {
    struct chunk *next;
    size_t size; /* of the bytes after this header */
    _Alignas(ALIGN) unsigned char at[];
} chunk;

typedef struct deferred {
    struct deferred *next;
    void (*call)(void *);
    void *what;
} deferred;

struct hd_arena {
    chunk *chunks; /* the first is the one being filled */
    unsigned char *free, *end;
    size_t next_chunk;
    deferred *deferred;
    jmp_buf *guard;
    size_t fail_after;
};

hd_arena *hd_arena_new(void) {
    hd_arena *a = calloc(1, sizeof *a);
    if (a) a->next_chunk = FIRST_CHUNK;
    return a;
}

void hd_arena_free(hd_arena *a) {
    if (!a) return;
    for (deferred *d = a->deferred; d; d = d->next)
        d->call(d->what);
    for (chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        show(c->at, c->size);
        free(c);
    }
    free(a);
}

/* Without a guard there is nowhere to go: the caller broke the contract of arena.h. */
static _Noreturn void exhausted(hd_arena *a) {
    if (a->guard) longjmp(*a->guard, 1);
    abort();
}

/* Returns `size` zeroed bytes of a new chunk. Large items get a chunk of their own after the one
 * being filled, whose rest stays usable. */
static unsigned char *new_chunk(hd_arena *a, size_t size) {
    if (size > largest_item) exhausted(a);
    bool own = size > LARGEST_CHUNK / 4;
    size_t capacity = own ? size : a->next_chunk;
    while (!own && capacity < size)
        capacity *= 2;
    chunk *c = calloc(1, sizeof *c + capacity);
    if (!c) exhausted(a);
    c->size = capacity;
    hide(c->at, capacity);
    if (own && a->chunks) {
        c->next = a->chunks->next;
        a->chunks->next = c;
        return c->at;
    }
    c->next = a->chunks;
    a->chunks = c;
    a->free = c->at + size;
    a->end = c->at + capacity;
    if (a->next_chunk < LARGEST_CHUNK) a->next_chunk *= 2;
    return c->at;
}

void *hd_alloc(hd_arena *a, size_t n, size_t size) {
    size_t bytes, padded;
    if (a->fail_after) {
        a->fail_after--;
        if (a->fail_after == 0) exhausted(a);
    }
    if (hd_mul_overflow(n, size, &bytes) ||
        hd_add_overflow(bytes, (size_t)(ALIGN - 1 + REDZONE), &padded))
        exhausted(a);
    padded &= ~(size_t)(ALIGN - 1);
    unsigned char *p;
    if ((size_t)(a->end - a->free) >= padded) {
        p = a->free;
        if (p) a->free += padded;
    } else {
        p = new_chunk(a, padded);
    }
    if (!p) /* zero bytes were requested from an arena without a chunk */
        p = new_chunk(a, ALIGN);
    show(p, bytes);
    return p;
}

char *hd_strndup(hd_arena *a, const char *s, size_t n) {
    size_t length = strnlen(s, n);
    char *copy = hd_alloc(a, length + 1, 1);
    memcpy(copy, s, length);
    return copy;
}

char *hd_strdup(hd_arena *a, const char *s) {
    return hd_strndup(a, s, strlen(s));
}

char *hd_vprintf(hd_arena *a, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format ? format : "(null)", args);
    if (length < 0) {
        va_end(again);
        exhausted(a);
    }
    char *out = hd_alloc(a, (size_t)length + 1, 1);
    vsnprintf(out, (size_t)length + 1, format, again);
    va_end(again);
    return out;
}

char *hd_printf(hd_arena *a, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *out = hd_vprintf(a, format, args);
    va_end(args);
    return out;
}

void hd_arena_defer(hd_arena *a, void (*call)(void *), void *what) {
    deferred *d = hd_new(a, deferred);
    *d = (deferred){a->deferred, call, what};
    a->deferred = d;
}

static void free_slot(void *slot) {
    hd_arena_free(*(hd_arena **)slot);
    *(hd_arena **)slot = NULL;
}

hd_arena **hd_scratch_new(hd_arena *owner) {
    hd_arena **scratch = hd_new(owner, hd_arena *);
    hd_arena_defer(owner, free_slot, scratch);
    *scratch = hd_arena_new();
    if (!*scratch) exhausted(owner);
    (*scratch)->guard = owner->guard;
    return scratch;
}

void hd_scratch_free(hd_arena **scratch) {
    free_slot(scratch);
}

jmp_buf *hd_arena_guard(hd_arena *a, jmp_buf *target) {
    jmp_buf *outer = a->guard;
    a->guard = target;
    return outer;
}

void hd_arena_fail_after(hd_arena *a, size_t n) {
    a->fail_after = n;
}

void *hd_grow(hd_arena *a, const void *old, size_t n, size_t *cap, size_t size) {
    size_t wanted = *cap ? *cap : 4;
    if (hd_mul_overflow(wanted, (size_t)2, &wanted)) exhausted(a);
    void *grown = hd_alloc(a, wanted, size);
    if (n) memcpy(grown, old, n * size);
    *cap = wanted;
    return grown;
}
