/* A link of a transport that takes as long as a slower one would: to see on one machine what a
 * model does over a network that is not there (docs/decisions/transport.md).
 *
 * A message is sent as ever, and says when it would arrive (comm_head.due); the rank that receives
 * it does not see it before. What leaves a rank leaves it one message after the other, of `bytes`
 * each:
 *
 *     leaves  = max(now, leaves) + bytes / rate
 *     arrives = leaves + latency
 *
 * `now` is when it was sent. So the time of the transport itself goes by within that of the link as
 * far as it fits, like that of a network card. Only for ranks that have one clock. */
#ifndef HADAL_COMM_SLOW_LINK_H
#define HADAL_COMM_SLOW_LINK_H

#include "comm/collective.h"

typedef struct comm_slow {
    comm_link link; /* of the transport */
    double bytes_per_ns;
    int64_t latency_ns;
    int64_t leaves; /* nanoseconds of the monotonic clock: when the last message has left */
    uint8_t *rooms[HADAL_COMM_MAX_RANKS];
} comm_slow;

/* Puts `s` before the link of an exchange that nothing was sent with so far; `s` must live as long.
 * A hadal_comm_result: HADAL_COMM_ARGUMENT if there is no such link. */
int comm_slow_down(comm_slow *s, comm_collective *x, double bits_per_second, int64_t latency_ns);

#endif
