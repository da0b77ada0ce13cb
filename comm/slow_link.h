/* A link of a transport that delays messages as a slower one would: it shows on one machine how a
 * model behaves over a network that is not there (docs/decisions/transport.md).
 *
 * A message is sent as usual, and carries the time at which it would arrive (comm_head.due); the
 * receiving rank does not see it before. A rank sends one message after the other, of `bytes` each:
 *
 *     leaves  = max(now, leaves) + bytes / rate
 *     arrives = leaves + latency
 *
 * `now` is when the message was sent. So the time that the transport itself takes is a part of the
 * delay as long as it is shorter, as with a network card. All ranks must have the same clock. */
#ifndef HADAL_COMM_SLOW_LINK_H
#define HADAL_COMM_SLOW_LINK_H

#include "comm/collective.h"

typedef struct comm_slow {
    comm_link link; /* of the transport */
    double bytes_per_ns;
    int64_t latency_ns;
    int64_t leaves; /* when the last message has left, in nanoseconds of the monotonic clock */
    uint8_t *rooms[HADAL_COMM_MAX_RANKS];
} comm_slow;

/* Puts `s` in front of the link of `x`, which has sent nothing so far; `s` must live as long as
 * `x`. Returns a hadal_comm_result: HADAL_COMM_ARGUMENT if there is no such link. */
int comm_slow_down(comm_slow *s, comm_collective *x, double bits_per_second, int64_t latency_ns);

#endif
