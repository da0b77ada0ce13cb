#include <string.h>

#include "api/train/log.h"
#include "api/train/record.h"
#include "tests/fuzz/fuzz.h"

enum { LAST = 3 }; /* the step of the checkpoint */

/* What was read is written, and is the same. */
static bool read_record(hadal_session *s, const char *path) {
    train_record first, again;
    if (!train_record_read(s, path, &first)) return false;
    if (!train_record_write(s, path, &first) || !train_record_read(s, path, &again) ||
        !train_record_may_go_on(s, "fuzz", &first, &again))
        fuzz_fail("the record is not read as it was written");
    return true;
}

/* A log that was cut to a step takes the next one, and is cut to it. */
static bool read_log(hadal_session *s, const char *path) {
    train_log log;
    bool ok = train_log_open(&log, s, path, LAST);
    if (ok && !train_log_step(&log, LAST + 1, 1, 1, 1)) fuzz_fail("a log takes no line");
    train_log_close(&log);
    if (ok && !train_log_open(&log, s, path, LAST + 1))
        fuzz_fail("a log is not read as it was written");
    train_log_close(&log);
    return ok;
}

/* The run.json of a run; behind a NUL its log.jsonl. */
static bool read_run(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    const char *nul = memchr(data, 0, n);
    const size_t first = nul ? (size_t)(nul - data) : n;
    hadal_session *s = hd_new(a, hadal_session);
    s->arena = a;
    s->diags = *d;
    bool ok = read_record(s, fuzz_write("run.json", data, first));
    ok &= read_log(s, fuzz_write("log.jsonl", nul ? nul + 1 : "", nul ? n - first - 1 : 0));
    *d = s->diags;
    return ok;
}

int fuzz_training(const uint8_t *data, size_t n) {
    fuzz_in_arena(read_run, data, n);
    return 0;
}
