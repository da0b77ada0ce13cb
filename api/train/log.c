#include "api/train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "api/train/folder.h"

static bool fail(const train_log *l, const char *doing) {
    return train_io_error(l->s, doing, l->path, errno);
}

/* The step of a line: {"step": N, .. -1: it has none. */
static int64_t step_of(const char *line, size_t n) {
    static const char begin[] = "{\"step\": ";
    enum { DIGITS = 18 };
    const size_t before = sizeof begin - 1;
    if (n < before || memcmp(line, begin, before) != 0 || line[n - 1] != '}') return -1;
    int64_t step = 0;
    size_t i = before;
    for (; i < n && i < before + DIGITS && line[i] >= '0' && line[i] <= '9'; i++)
        step = 10 * step + (line[i] - '0');
    return i > before && i < n && line[i] == ',' ? step : -1;
}

static bool bad_line(const train_log *l, int64_t line) {
    hd_err(&l->s->diags, HD_E_FORMAT, HD_NOWHERE,
           "'%s' has a line that is none of a log: line %lld", l->path, (long long)line)
        ->hint = "remove that line, or the file: a run goes on without the log of its first steps";
    return false;
}

/* Where the lines of the steps up to `last` end, and the last step that has one. */
static bool find_end(const train_log *l, hd_bytes file, int64_t last, size_t *end, int64_t *found) {
    const char *text = (const char *)file.at;
    *end = 0, *found = 0;
    for (int64_t line = 1;; line++) {
        const char *newline = file.n > *end ? memchr(text + *end, '\n', file.n - *end) : NULL;
        if (!newline) return true;
        const size_t n = (size_t)(newline - text) - *end;
        const int64_t step = step_of(text + *end, n);
        if (step < 0) return bad_line(l, line);
        if (step > last) return true;
        *end += n + 1, *found = step;
    }
}

static bool cut(train_log *l, int64_t last) {
    hd_bytes file;
    size_t end;
    int64_t found;
    if (!hd_map_file(l->s->arena, &l->s->diags, l->path, &file) ||
        !find_end(l, file, last, &end, &found))
        return false;
    if (found < last)
        hd_warn(&l->s->diags, HD_E_FORMAT, HD_NOWHERE,
                "'%s' ends with step %lld, and the checkpoint is of step %lld: the steps between "
                "stay without a line",
                l->path, (long long)found, (long long)last);
    return end == file.n || ftruncate(l->fd, (off_t)end) == 0 || fail(l, "write");
}

bool train_log_open(train_log *l, hadal_session *s, const char *path, int64_t last) {
    *l = (train_log){.s = s, .path = path};
    hd_text_init(&l->line, s->arena);
    l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return l->fd >= 0 ? cut(l, last) : fail(l, "write");
}

/* A line is written in one piece, and is whole for whoever follows the log. */
static bool add(train_log *l, const char *line, size_t n) {
    while (n > 0) {
        const ssize_t put = write(l->fd, line, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail(l, "write");
        line += put, n -= (size_t)put;
    }
    return true;
}

bool train_log_step(train_log *l, int64_t step, double loss, double lr, double norm) {
    char line[192];
    const int n = snprintf(line, sizeof line,
                           "{\"step\": %lld, \"loss\": %.9g, \"lr\": %.7g, \"norm\": %.9g}\n",
                           (long long)step, loss, lr, norm);
    return add(l, line, (size_t)n);
}

bool train_log_evaluation(train_log *l, int64_t step, double loss) {
    char line[96];
    const int n = snprintf(line, sizeof line, "{\"step\": %lld, \"eval_loss\": %.9g}\n",
                           (long long)step, loss);
    return add(l, line, (size_t)n);
}

bool train_log_depth(train_log *l, int64_t step, const char *members) {
    l->line.n = 0;
    hd_text_f(&l->line, "{\"step\": %lld, %s}\n", (long long)step, members);
    return add(l, l->line.at, l->line.n);
}

bool train_log_sync(train_log *l) {
    const int error = hd_sync(l->fd);
    return error == 0 || train_io_error(l->s, "write", l->path, error);
}

void train_log_close(train_log *l) {
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}
