/* All collectives and point-to-point messages are done in the same way: this rank sends a range of
 * bytes to each other rank of a group and receives one from each. They go in rounds, in each of
 * which at most one message goes to and comes from each rank. The bytes of a round are used once
 * all of them are there: blocks are copied to their places, partial sums are added in the order of
 * ranks. */
#include "comm/collective.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/clock.h"
#include "support/halves.h"
#include "support/known.h"

/* ---- errors ---------------------------------------------------------------------------------- */
static const char *collective_name(uint32_t kind) {
    static const char *const names[] = {
#define E(id, name) [HADAL_COMM_##id] = name,
        HADAL_COMM_EXCHANGES(E)
#undef E
            [COMM_CLOSE] = "close"};
    return kind <= COMM_CLOSE ? names[kind] : "something unknown";
}

static uint64_t type_bytes(hadal_comm_type type) {
    static const uint8_t bytes[] = {
#define T(id, bytes) [HADAL_COMM_##id] = bytes,
        HADAL_COMM_TYPES(T)
#undef T
    };
    return (unsigned)type < sizeof bytes ? bytes[type] : 0;
}

/* The first error stays: later ones are its consequences. */
__attribute__((format(printf, 3, 4))) static int fail(comm_collective *x, int code,
                                                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(x->message, sizeof x->message, format, args);
    va_end(args);
    x->broken = code;
    x->link.give_up(x->link.self);
    return code;
}

/* ---- waiting --------------------------------------------------------------------------------- */
typedef comm_patience patience;

static patience patience_of(int64_t timeout_ns) {
    const int64_t now = hd_nanoseconds();
    patience p = {.begun = now};
    if (timeout_ns < 0) timeout_ns = 0;
    if (__builtin_add_overflow(now, timeout_ns, &p.until)) p.until = INT64_MAX;
    return p;
}

/* Waits a little. False: time is up. Other ranks may need this CPU to be able to answer, so this
 * rank spins for a short while only, then yields the CPU, and after a millisecond sleeps. */
static bool wait_a_little(patience *p) {
    enum { LOOKS = 100, OFFERS = 1000000, SLEEP = 50000 };
    if (p->looks++ < LOOKS) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        return true;
    }
    const int64_t now = hd_nanoseconds();
    if (now >= p->until) return false;
    if (now - p->begun < OFFERS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = SLEEP}, NULL);
    return true;
}

/* ---- one collective -------------------------------------------------------------------------- */
typedef comm_job job;
typedef comm_round round;
typedef comm_progress progress;

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Bytes of a range of `total` bytes that belong to the round that begins at byte `at`. */
static uint64_t in_round(uint64_t total, uint64_t at, uint64_t piece) {
    return at < total ? smaller(total - at, piece) : 0;
}

static int post_part(comm_collective *x, const job *j, int32_t i, uint64_t at, bool *done) {
    const int32_t rank = j->group.first + i;
    uint64_t total;
    const uint8_t *from = j->outgoing(j, i, &total);
    const uint64_t bytes = in_round(total, at, x->link.piece);
    *done = true;
    if (bytes == 0) return HADAL_COMM_OK;
    uint8_t *room = x->link.room(x->link.self, rank);
    *done = room != NULL;
    if (!room) return HADAL_COMM_OK;
    const comm_head head = {
        .kind = j->kind, .type = j->type, .number = x->ends[rank].sent++, .total = total};
    memcpy(room, &head, sizeof head);
    memcpy(room + COMM_HEAD, from + at, (size_t)bytes);
    x->traffic[j->kind].sent += bytes;
    const int rc = x->link.post(x->link.self, rank, (size_t)(COMM_HEAD + bytes));
    if (rc)
        return fail(x, rc, "%s: nothing can be sent to rank %d", collective_name(j->kind), rank);
    return HADAL_COMM_OK;
}

static int check_message(comm_collective *x, const job *j, int32_t rank, const uint8_t *message,
                         size_t size, uint64_t bytes, uint64_t total) {
    comm_head head = {.kind = UINT32_MAX};
    if (size >= COMM_HEAD) memcpy(&head, message, sizeof head);
    const uint32_t kind = j->kind == HADAL_COMM_RECV ? HADAL_COMM_SEND : j->kind;
    if (head.kind == COMM_CLOSE && kind != COMM_CLOSE)
        return fail(x, HADAL_COMM_LOST, "%s: rank %d has closed its side", collective_name(j->kind),
                    rank);
    if (head.kind != kind || head.type != (uint32_t)j->type || head.total != total)
        return fail(x, HADAL_COMM_MISMATCH,
                    "rank %d makes %s of %llu bytes, this one %s of %llu of another type or size",
                    rank, collective_name(head.kind), (unsigned long long)head.total,
                    collective_name(j->kind), (unsigned long long)total);
    if (head.number != x->ends[rank].received || size != COMM_HEAD + bytes)
        return fail(x, HADAL_COMM_TRANSPORT, "%s: a message of rank %d is damaged or out of order",
                    collective_name(j->kind), rank);
    x->ends[rank].received++;
    return HADAL_COMM_OK;
}

/* *part: the values of member i in this round, NULL as long as they have not arrived. */
static int look_for_part(comm_collective *x, const job *j, int32_t i, uint64_t at,
                         const uint8_t **part, bool *done) {
    const int32_t rank = j->group.first + i;
    const uint64_t total = j->incoming(j, i), bytes = in_round(total, at, x->link.piece);
    *done = bytes == 0 || *part;
    if (*done) return HADAL_COMM_OK;
    size_t size = 0;
    int code = HADAL_COMM_OK;
    const bool gone = x->link.is_gone(x->link.self, rank); /* read before the look: see below */
    const uint8_t *message = x->link.look(x->link.self, rank, &size, &code);
    if (code)
        return fail(x, code, "%s: nothing can be received of rank %d", collective_name(j->kind),
                    rank);
    if (!message && gone) /* no message although all that the rank had sent has arrived */
        return fail(x, HADAL_COMM_LOST, "%s: rank %d has given up", collective_name(j->kind), rank);
    if (!message) return HADAL_COMM_OK;
    code = check_message(x, j, rank, message, size, bytes, total);
    if (code) return code;
    x->traffic[j->kind].received += bytes;
    *part = message + COMM_HEAD;
    *done = true;
    return HADAL_COMM_OK;
}

static inline bool is_other(const job *j, int32_t i) {
    return i != j->self;
}

/* Tries once to do what is left of the round; *missing: a member that this rank waits for, -1:
 * none. */
static int try_round(comm_collective *x, const job *j, round *r, int32_t *missing) {
    *missing = -1;
    for (int32_t i = 0; i < j->group.count; i++) {
        bool done;
        int rc = HADAL_COMM_OK;
        if (!is_other(j, i)) continue;
        if (!r->posted[i]) rc = post_part(x, j, i, r->at, &r->posted[i]);
        if (rc) return rc;
        rc = look_for_part(x, j, i, r->at, &r->parts[i], &done);
        if (rc) return rc;
        if (!done || !r->posted[i]) *missing = i;
    }
    return HADAL_COMM_OK;
}

static int timed_out(comm_collective *x, const job *j, int32_t i, const patience *p) {
    const long long ms = (hd_nanoseconds() - p->begun) / 1000000;
    return fail(x, HADAL_COMM_TIMEOUT, "%s: rank %d has not answered for %lld.%03lld s",
                collective_name(j->kind), j->group.first + i, ms / 1000, ms % 1000);
}

/* Takes what a round has brought: copies or adds it to its place. */
static void end_round(comm_collective *x, const job *j, round *r) {
    if (j->take) j->take(j, r->at, x->link.piece, r->parts);
    for (int32_t i = 0; i < j->group.count; i++)
        if (r->parts[i]) x->link.drop(x->link.self, j->group.first + i);
}

static void begin_round(const job *j, round *r, uint64_t at) {
    r->at = at;
    memset(r->posted, 0, (size_t)j->group.count * sizeof *r->posted);
    memset(r->parts, 0, (size_t)j->group.count * sizeof *r->parts);
}

/* A member for which a posted message has not yet left this rank: the message must arrive while
 * this rank computes. -1: none. */
static int32_t find_leaving(comm_collective *x, const job *j) {
    for (int32_t i = 0; i < j->group.count; i++)
        if (is_other(j, i) && !x->link.has_left(x->link.self, j->group.first + i)) return i;
    return -1;
}

static uint64_t longest_run(const job *j) {
    uint64_t longest = 0, bytes;
    for (int32_t i = 0; i < j->group.count; i++) {
        if (!is_other(j, i)) continue;
        j->outgoing(j, i, &bytes);
        if (bytes > longest) longest = bytes;
        if (j->incoming(j, i) > longest) longest = j->incoming(j, i);
    }
    return longest;
}

/* Starts the rounds. A group of one has none: this rank's own values are taken at once, as one
 * piece. */
static void begin_progress(comm_collective *x, progress *p, const job *j, uint64_t own,
                           int64_t timeout_ns) {
    p->job = *j;
    p->patience = patience_of(timeout_ns);
    p->longest = longest_run(j);
    if (own > p->longest) p->longest = own;
    begin_round(j, &p->round, 0);
    x->traffic[j->kind].calls++;
}

/* Goes as far as possible without waiting. */
static int go_on(comm_collective *x, progress *p, bool *over) {
    *over = false;
    while (p->round.at < p->longest) {
        const int rc = try_round(x, &p->job, &p->round, &p->missing);
        if (rc) return rc;
        if (p->missing >= 0) return HADAL_COMM_OK;
        end_round(x, &p->job, &p->round);
        begin_round(&p->job, &p->round, p->round.at + x->link.piece);
        p->patience.looks = 0;
    }
    p->missing = find_leaving(x, &p->job);
    *over = p->missing < 0;
    return HADAL_COMM_OK;
}

static int wait_for(comm_collective *x, progress *p) {
    for (;;) {
        bool over;
        const int rc = go_on(x, p, &over);
        if (rc || over) return rc;
        if (!wait_a_little(&p->patience)) return timed_out(x, &p->job, p->missing, &p->patience);
    }
}

static int run_collective(comm_collective *x, const job *j, uint64_t own, int64_t timeout_ns) {
    progress p;
    begin_progress(x, &p, j, own, timeout_ns);
    return wait_for(x, &p);
}

/* ---- arguments ------------------------------------------------------------------------------- */
static int reject(comm_collective *x, uint32_t kind, const char *what) {
    return fail(x, HADAL_COMM_ARGUMENT, "%s: %s", collective_name(kind), what);
}

/* Sums the counts of the members' blocks; false: the sum overflows. */
static bool sum_counts(const uint64_t *counts, int32_t n, uint64_t *sum) {
    *sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (__builtin_add_overflow(*sum, counts[i], sum)) return false;
    return *sum <= INT64_MAX / 4;
}

/* Fills in what the collectives of a group have in common. */
static int begin(comm_collective *x, job *j, const void *in, void *out) {
    if (x->broken) return x->broken;
    if (x->started) return reject(x, j->kind, "a collective that was started is not over");
    const hadal_comm_group g = j->group;
    if (g.first < 0 || g.count < 1 || g.count > x->interface.size - g.first ||
        x->interface.rank < g.first || x->interface.rank - g.first >= g.count)
        return reject(x, j->kind,
                      "this rank is not in the group, or the group has other ranks "
                      "than there are");
    if (type_bytes(j->type) == 0) return reject(x, j->kind, "there is no such type");
    j->self = x->interface.rank - g.first;
    uint64_t all = j->n;
    if (j->counts && !sum_counts(j->counts, g.count, &all))
        return reject(x, j->kind, "the counts are too large");
    if (!j->counts && all > INT64_MAX / 4) return reject(x, j->kind, "the count is too large");
    const uint64_t own = j->counts ? j->counts[j->self] : all;
    const uint64_t wants = j->kind == HADAL_COMM_ALL_GATHER ? own : all;
    const uint64_t gets = j->kind == HADAL_COMM_REDUCE_SCATTER ? own : all;
    if ((wants > 0 && !in) || (gets > 0 && !out))
        return reject(x, j->kind, "a null pointer where there are values");
    j->in = in;
    j->out = out;
    return HADAL_COMM_OK;
}

static uint64_t block_start(const job *j, int32_t member) {
    uint64_t start = 0;
    if (j->starts) return j->starts[member] * type_bytes(j->type);
    for (int32_t i = 0; j->counts && i < member; i++)
        start += j->counts[i];
    return start * type_bytes(j->type);
}

static uint64_t block_bytes(const job *j, int32_t member) {
    return (j->counts ? j->counts[member] : j->n) * type_bytes(j->type);
}

static const uint8_t *own_to_all(const job *j, int32_t i, uint64_t *bytes) {
    (void)i;
    *bytes = block_bytes(j, j->self);
    return j->in;
}

static const uint8_t *theirs_to_each(const job *j, int32_t i, uint64_t *bytes) {
    *bytes = block_bytes(j, i);
    return j->in + block_start(j, i);
}

static uint64_t theirs_from_each(const job *j, int32_t i) {
    return block_bytes(j, i);
}

static uint64_t own_from_all(const job *j, int32_t i) {
    (void)i;
    return block_bytes(j, j->self);
}

/* ---- blocks ---------------------------------------------------------------------------------- */
static void take_blocks(const job *j, uint64_t at, uint64_t piece, const uint8_t *const *parts) {
    for (int32_t i = 0; i < j->group.count; i++) {
        const uint64_t bytes = in_round(block_bytes(j, i), at, piece);
        if (bytes == 0) continue;
        const uint8_t *from = i == j->self ? j->in + at : parts[i];
        uint8_t *to = j->out + block_start(j, i) + at;
        if (to != from) memcpy(to, from, (size_t)bytes);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */
static void add_values(float *sum, const uint8_t *part, uint64_t n, hadal_comm_type type,
                       bool first) {
    if (type == HADAL_COMM_F32) {
        const float *x = (const float *)part;
        for (uint64_t i = 0; i < n; i++)
            sum[i] = first ? x[i] : sum[i] + x[i];
    } else {
        const uint16_t *x = (const uint16_t *)part;
        for (uint64_t i = 0; i < n; i++)
            sum[i] = first ? hd_bf16_to_f32(x[i]) : sum[i] + hd_bf16_to_f32(x[i]);
    }
}

/* Adds one block at a time, so that `out` may be where this rank's part is read. */
static void take_sums(const job *j, uint64_t at, uint64_t piece, const uint8_t *const *parts) {
    enum { BLOCK = 1024 };
    float sum[BLOCK];
    const uint64_t size = type_bytes(j->type), bytes = in_round(block_bytes(j, j->self), at, piece);
    const uint64_t start = j->counts ? block_start(j, j->self) : 0;
    hd_known(size); /* jobs without a type are rejected before */
    const uint8_t *own = bytes ? j->in + start + at : NULL;
    float *out = bytes ? (float *)j->out + at / size : NULL;
    for (uint64_t k = 0, n; k < bytes / size; k += n) {
        n = smaller(bytes / size - k, BLOCK);
        for (int32_t i = 0; i < j->group.count; i++)
            add_values(sum, (i == j->self ? own : parts[i]) + k * size, n, j->type, i == 0);
        memcpy(out + k, sum, (size_t)n * sizeof *sum);
    }
}

static bool is_summed(hadal_comm_type type) {
    return type == HADAL_COMM_F32 || type == HADAL_COMM_BF16;
}

/* Every rank sums a part of the values, then all ranks gather the sums. */
static int reduce_in_parts(comm_collective *x, const job *whole, int64_t timeout_ns) {
    const hadal_comm_group g = whole->group;
    uint64_t counts[HADAL_COMM_MAX_RANKS];
    for (int32_t i = 0; i < g.count; i++)
        counts[i] = (uint64_t)(hadal_comm_first_row((int64_t)whole->n, i + 1, g.count) -
                               hadal_comm_first_row((int64_t)whole->n, i, g.count));
    job j = *whole;
    j.counts = counts;
    j.outgoing = theirs_to_each;
    float *part = (float *)whole->out + hadal_comm_first_row((int64_t)j.n, j.self, g.count);
    j.out = (uint8_t *)part;
    const patience p = patience_of(timeout_ns);
    const int rc = run_collective(x, &j, block_bytes(&j, j.self), timeout_ns);
    if (rc) return rc;
    j.type = HADAL_COMM_F32;
    j.outgoing = own_to_all;
    j.incoming = theirs_from_each;
    j.take = take_blocks;
    j.in = (const uint8_t *)part;
    j.out = whole->out;
    x->traffic[j.kind].calls--; /* both steps count as one collective */
    return run_collective(x, &j, block_bytes(&j, j.self), p.until - hd_nanoseconds());
}

static int all_reduce(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                      float *out, uint64_t n, int64_t timeout_ns) {
    comm_collective *x = context;
    job j = {.kind = HADAL_COMM_ALL_REDUCE,
             .type = type,
             .group = group,
             .outgoing = own_to_all,
             .incoming = own_from_all,
             .take = take_sums,
             .n = n};
    const int rc = begin(x, &j, in, out);
    if (rc) return rc;
    if (!is_summed(type)) return reject(x, j.kind, "only f32 and bf16 can be summed");
    if (!hadal_comm_is_direct(n, type_bytes(type), group.count))
        return reduce_in_parts(x, &j, timeout_ns);
    return run_collective(x, &j, block_bytes(&j, j.self), timeout_ns);
}

/* The part of a job of blocks that is known before it begins. */
static job scatter_job(hadal_comm_group group, hadal_comm_type type, const uint64_t *counts) {
    return (job){.kind = HADAL_COMM_REDUCE_SCATTER,
                 .type = type,
                 .group = group,
                 .outgoing = theirs_to_each,
                 .incoming = own_from_all,
                 .take = take_sums,
                 .counts = counts};
}

static job gather_job(hadal_comm_group group, hadal_comm_type type, const uint64_t *counts) {
    return (job){.kind = HADAL_COMM_ALL_GATHER,
                 .type = type,
                 .group = group,
                 .outgoing = own_to_all,
                 .incoming = theirs_from_each,
                 .take = take_blocks,
                 .counts = counts};
}

static int begin_blocks(comm_collective *x, job *j, const void *in, void *out) {
    if (!j->counts && !x->broken) return reject(x, j->kind, "there are no counts");
    const int rc = begin(x, j, in, out);
    if (rc) return rc;
    if (j->kind == HADAL_COMM_REDUCE_SCATTER && !is_summed(j->type))
        return reject(x, j->kind, "only f32 and bf16 can be summed");
    return HADAL_COMM_OK;
}

static int reduce_scatter(void *context, hadal_comm_group group, hadal_comm_type type,
                          const void *in, float *out, const uint64_t *counts, int64_t timeout_ns) {
    job j = scatter_job(group, type, counts);
    const int rc = begin_blocks(context, &j, in, out);
    return rc ? rc : run_collective(context, &j, block_bytes(&j, j.self), timeout_ns);
}

static int all_gather(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                      void *out, const uint64_t *counts, int64_t timeout_ns) {
    job j = gather_job(group, type, counts);
    const int rc = begin_blocks(context, &j, in, out);
    return rc ? rc : run_collective(context, &j, block_bytes(&j, j.self), timeout_ns);
}

/* ---- alongside computing --------------------------------------------------------------------- */
/* Advances the collective that is under way; *is_over: it has completed or failed. */
static int look_after(comm_collective *x, int *is_over) {
    bool over = false;
    progress *p = &x->going;
    int rc = x->broken ? x->broken : go_on(x, p, &over);
    if (!rc && !over && hd_nanoseconds() >= p->patience.until)
        rc = timed_out(x, &p->job, p->missing, &p->patience);
    x->started = !rc && !over;
    *is_over = !x->started;
    return rc;
}

static int start(void *context, hadal_comm_exchange what, hadal_comm_group group,
                 hadal_comm_type type, const void *in, void *out, const uint64_t *counts,
                 const uint64_t *starts, int64_t timeout_ns) {
    comm_collective *x = context;
    job j = what == HADAL_COMM_REDUCE_SCATTER ? scatter_job(group, type, counts)
                                              : gather_job(group, type, counts);
    if (!x->broken && what != HADAL_COMM_REDUCE_SCATTER && what != HADAL_COMM_ALL_GATHER)
        return reject(x, what, "only a reduce_scatter or an all_gather can be started");
    if (!x->broken && !starts) return reject(x, j.kind, "there are no starts");
    const int rc = begin_blocks(x, &j, in, out);
    if (rc) return rc;
    for (int32_t i = 0; i < group.count; i++)
        if (starts[i] > INT64_MAX / 4) return reject(x, j.kind, "a start is too large");
    memcpy(x->counts, counts, (size_t)group.count * sizeof *counts);
    memcpy(x->starts, starts, (size_t)group.count * sizeof *starts);
    j.counts = x->counts;
    j.starts = x->starts;
    begin_progress(x, &x->going, &j, block_bytes(&j, j.self), timeout_ns);
    int over;
    const int failed = look_after(x, &over);
    x->looked = hd_nanoseconds();
    return failed;
}

/* One look moves what the transport happens to have ready, perhaps a part of a message, and often
 * frees a buffer for more. So this looks again and again, for at most a small fraction of the time
 * that was spent on computing. */
static int advance(void *context, int *over) {
    enum { SHARE = 16 };
    comm_collective *x = context;
    const int64_t begun = hd_nanoseconds(), most = (begun - x->looked) / SHARE;
    int rc = x->broken;
    *over = !x->started;
    while (!rc && !*over) {
        rc = look_after(x, over);
        if (hd_nanoseconds() - begun >= most) break;
    }
    x->looked = hd_nanoseconds();
    return rc;
}

static int finish(void *context) {
    comm_collective *x = context;
    if (!x->started) return x->broken;
    x->started = false;
    x->going.patience.looks = 0;
    x->going.patience.begun = hd_nanoseconds(); /* until now this rank computed */
    return wait_for(x, &x->going);
}

/* ---- point-to-point messages ----------------------------------------------------------------- */
static const uint8_t *all_out(const job *j, int32_t i, uint64_t *bytes) {
    (void)i;
    *bytes = j->n;
    return j->in;
}

static const uint8_t *nothing_out(const job *j, int32_t i, uint64_t *bytes) {
    (void)j, (void)i;
    *bytes = 0;
    return NULL;
}

static uint64_t all_in(const job *j, int32_t i) {
    (void)i;
    return j->n;
}

static uint64_t nothing_in(const job *j, int32_t i) {
    (void)j, (void)i;
    return 0;
}

static void take_received(const job *j, uint64_t at, uint64_t piece, const uint8_t *const *parts) {
    hd_known(parts[0]);
    memcpy(j->out + at, parts[0], (size_t)in_round(j->n, at, piece));
}

static int with_one(comm_collective *x, job *j, int32_t rank, const void *data, uint64_t bytes,
                    int64_t timeout_ns) {
    if (x->broken) return x->broken;
    if (x->started) return reject(x, j->kind, "a collective that was started is not over");
    if (rank < 0 || rank >= x->interface.size || rank == x->interface.rank)
        return reject(x, j->kind, "there is no such other rank");
    if ((bytes > 0 && !data) || bytes > INT64_MAX)
        return reject(x, j->kind, "a null pointer, or a size beyond all memory");
    j->type = HADAL_COMM_BYTES;
    j->group = (hadal_comm_group){rank, 1};
    j->n = bytes;
    j->self = -1;
    return run_collective(x, j, 0, timeout_ns);
}

static int send_bytes(void *context, int32_t to, const void *data, uint64_t bytes,
                      int64_t timeout_ns) {
    job j = {.kind = HADAL_COMM_SEND, .outgoing = all_out, .incoming = nothing_in, .in = data};
    return with_one(context, &j, to, data, bytes, timeout_ns);
}

static int receive_bytes(void *context, int32_t from, void *data, uint64_t bytes,
                         int64_t timeout_ns) {
    job j = {.kind = HADAL_COMM_RECV,
             .outgoing = nothing_out,
             .incoming = all_in,
             .take = take_received,
             .out = data};
    return with_one(context, &j, from, data, bytes, timeout_ns);
}

/* ---- the struct ------------------------------------------------------------------------------ */
static void count(void *context, hadal_comm_traffic *traffic) {
    const comm_collective *x = context;
    memcpy(traffic, x->traffic, sizeof x->traffic);
}

static const char *message(void *context) {
    return ((const comm_collective *)context)->message;
}

void comm_collective_start(comm_collective *x, comm_link link, int32_t rank, int32_t size,
                           comm_ends *ends) {
    *x = (comm_collective){
        .interface = {.version = HADAL_COMM_VERSION,
                      .rank = rank,
                      .size = size,
                      .context = x,
                      .all_reduce = all_reduce,
                      .reduce_scatter = reduce_scatter,
                      .all_gather = all_gather,
                      .send = send_bytes,
                      .recv = receive_bytes,
                      .count = count,
                      .message = message,
                      .start = start,
                      .advance = advance,
                      .finish = finish},
        .link = link,
        .ends = ends,
    };
    memset(ends, 0, (size_t)size * sizeof *ends);
}

/* ---- the end --------------------------------------------------------------------------------- */
static bool say_goodbye(comm_collective *x, int32_t rank) {
    uint8_t *room = x->link.room(x->link.self, rank);
    if (!room) return false;
    const comm_head head = {
        .kind = COMM_CLOSE, .type = HADAL_COMM_BYTES, .number = x->ends[rank].sent++};
    memset(room, 0, COMM_HEAD);
    memcpy(room, &head, sizeof head);
    return x->link.post(x->link.self, rank, COMM_HEAD) == HADAL_COMM_OK;
}

/* 1: the last message of `rank` has arrived; 0: not yet; -1: it will not arrive. */
static int heard_goodbye(comm_collective *x, int32_t rank) {
    size_t size = 0;
    int code = HADAL_COMM_OK;
    const bool gone = x->link.is_gone(x->link.self, rank);
    const uint8_t *m = x->link.look(x->link.self, rank, &size, &code);
    if (code || (!m && gone)) return -1;
    if (!m) return 0;
    comm_head head = {.kind = UINT32_MAX};
    if (size >= COMM_HEAD) memcpy(&head, m, sizeof head);
    x->link.drop(x->link.self, rank);
    return head.kind == COMM_CLOSE ? 1 : -1;
}

bool comm_collective_end(comm_collective *x, int64_t timeout_ns) {
    patience p = patience_of(timeout_ns);
    if (!x->broken && x->started)
        fail(x, HADAL_COMM_LOST, "this rank has closed its side during a collective");
    if (x->broken) return false;
    x->broken = HADAL_COMM_LOST;
    snprintf(x->message, sizeof x->message, "this rank has closed its side");
    bool ok = true;
    for (int32_t r = 0; r < x->interface.size && ok; r++)
        ok = r == x->interface.rank || say_goodbye(x, r);
    for (int32_t r = 0; r < x->interface.size && ok; r++) {
        if (r == x->interface.rank) continue;
        int heard;
        while ((heard = heard_goodbye(x, r)) == 0 && wait_a_little(&p)) {
        }
        ok = heard == 1;
        while (ok && !x->link.has_left(x->link.self, r))
            ok = wait_a_little(&p);
    }
    if (!ok) x->link.give_up(x->link.self);
    return ok;
}
