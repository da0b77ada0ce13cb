#include "comm/slow_link.h"

#include <math.h>
#include <string.h>

#include "support/clock.h"

static uint8_t *room(void *self, int32_t rank) {
    comm_slow *s = self;
    s->rooms[rank] = s->link.room(s->link.self, rank);
    return s->rooms[rank];
}

static int post(void *self, int32_t rank, size_t bytes) {
    comm_slow *s = self;
    comm_head head;
    const int64_t now = hd_nanoseconds();
    if (s->leaves < now) s->leaves = now;
    s->leaves += (int64_t)((double)bytes / s->bytes_per_ns);
    memcpy(&head, s->rooms[rank], sizeof head);
    head.due = s->leaves + s->latency_ns;
    memcpy(s->rooms[rank], &head, sizeof head);
    return s->link.post(s->link.self, rank, bytes);
}

static bool has_left(void *self, int32_t rank) {
    const comm_slow *s = self;
    return s->link.has_left(s->link.self, rank);
}

static const uint8_t *look(void *self, int32_t rank, size_t *bytes, int *code) {
    const comm_slow *s = self;
    comm_head head = {.due = 0};
    const uint8_t *message = s->link.look(s->link.self, rank, bytes, code);
    if (message && *bytes >= COMM_HEAD) memcpy(&head, message, sizeof head);
    return head.due > hd_nanoseconds() ? NULL : message;
}

static void drop(void *self, int32_t rank) {
    const comm_slow *s = self;
    s->link.drop(s->link.self, rank);
}

/* A rank does not count as gone while a message of it is under way: this rank cannot see that
 * message yet, and would not wait for it. */
static bool is_gone(void *self, int32_t rank) {
    const comm_slow *s = self;
    size_t bytes;
    int code = HADAL_COMM_OK;
    return s->link.is_gone(s->link.self, rank) && !s->link.look(s->link.self, rank, &bytes, &code);
}

static void give_up(void *self) {
    const comm_slow *s = self;
    s->link.give_up(s->link.self);
}

int comm_slow_down(comm_slow *s, comm_collective *x, double bits_per_second, int64_t latency_ns) {
    static const int64_t an_hour = INT64_C(3600000000000);
    if (!(bits_per_second > 0) || !isfinite(bits_per_second) || latency_ns < 0 ||
        latency_ns > an_hour || x->link.self == s)
        return HADAL_COMM_ARGUMENT;
    *s = (comm_slow){
        .link = x->link, .bytes_per_ns = bits_per_second / 8e9, .latency_ns = latency_ns};
    x->link = (comm_link){s, x->link.piece, room, post, has_left, look, drop, is_gone, give_up};
    return HADAL_COMM_OK;
}
