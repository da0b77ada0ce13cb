/* The quotas of cgroups, of version 1 and 2 (quota.h).
 *
 * /proc/self/cgroup names the group of this process and /proc/self/mountinfo where its hierarchy is
 * mounted, and from which group on: in a container that may be the process's own group. The quota
 * of a group holds for all groups in it, so the least one of the groups between is taken. */
#include "support/quota.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of a line and of a path; longer ones are passed over. Small, since a library may be loaded by a
 * thread with a small stack. */
enum { LONGEST = 2048 };

/* ---- lines ----------------------------------------------------------------------------------- */

typedef struct lines {
    int fd;
    size_t at, n; /* in the buffer: the next byte, the end */
    char buffer[512];
    char line[LONGEST];
} lines;

static bool open_lines(lines *l, const char *root, const char *folder, const char *name) {
    l->at = l->n = 0, l->fd = -1;
    const int n = snprintf(l->line, sizeof l->line, "%s%s/%s", root, folder, name);
    if (n > 0 && n < LONGEST) l->fd = open(l->line, O_RDONLY | O_CLOEXEC);
    return l->fd >= 0;
}

/* -1: there is none. */
static int next_byte(lines *l) {
    if (l->at == l->n) {
        const ssize_t n = read(l->fd, l->buffer, sizeof l->buffer);
        l->at = 0, l->n = n > 0 ? (size_t)n : 0;
    }
    return l->at < l->n ? (unsigned char)l->buffer[l->at++] : -1;
}

/* The next line that is not too long, without its end; NULL: there is none. */
static char *next_line(lines *l) {
    for (;;) {
        size_t n = 0;
        int c = next_byte(l);
        if (c < 0) return NULL;
        for (; c >= 0 && c != '\n'; c = next_byte(l), n++)
            if (n < LONGEST - 1) l->line[n] = (char)c;
        if (n > LONGEST - 1) continue;
        l->line[n] = '\0';
        return l->line;
    }
}

static void close_lines(const lines *l) {
    close(l->fd);
}

/* ---- a group's own quota --------------------------------------------------------------------- */

/* The number at *at, which moves behind it and what separates it from the next; 0: none is there
 * ("max", -1). */
static int64_t take_number(const char **at) {
    int64_t value = 0;
    const char *digit = *at;
    for (; *digit >= '0' && *digit <= '9'; digit++)
        value = value > INT64_MAX / 10 - 1 ? value : value * 10 + (*digit - '0');
    *at = digit + (*digit == ' ');
    return value;
}

/* The numbers in the first line of a file; false: there is no such file. */
static bool read_numbers(lines *l, const char *root, const char *group, const char *name, int most,
                         int64_t *out) {
    if (!open_lines(l, root, group, name)) return false;
    const char *at = next_line(l);
    for (int i = 0; at && i < most; i++)
        out[i] = take_number(&at);
    close_lines(l);
    return true;
}

static int quota_of_group(lines *l, const char *root, const char *group, bool unified) {
    int64_t time[2] = {0, 0}; /* that it may run in each period, of all CPUs together; the period */
    if (unified) {
        (void)read_numbers(l, root, group, "cpu.max", 2, time);
    } else if (read_numbers(l, root, group, "cpu.cfs_quota_us", 1, &time[0])) {
        (void)read_numbers(l, root, group, "cpu.cfs_period_us", 1, &time[1]);
    }
    if (time[0] <= 0 || time[1] <= 0) return INT_MAX;
    const int64_t cpus = time[0] / time[1] + (time[0] % time[1] != 0);
    return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

/* ---- which groups ---------------------------------------------------------------------------- */

/* Is "cpu" one of the words of a list with commas? */
static bool has_cpu(const char *list) {
    for (; list; list = strchr(list, ',')) {
        list += *list == ',';
        if (strncmp(list, "cpu", 3) == 0 && (list[3] == ',' || list[3] == '\0')) return true;
    }
    return false;
}

/* The group of this process in the unified hierarchy (ID::PATH), or in that of version 1 which has
 * the controller of CPUs (ID:cpu,cpuacct:PATH). False: it is in none. */
static bool find_own_group(lines *l, const char *root, bool unified, char *out) {
    bool found = false;
    if (!open_lines(l, root, "/proc/self", "cgroup")) return false;
    for (char *line = next_line(l); line && !found; line = next_line(l)) {
        char *controllers = strchr(line, ':'), *path;
        path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        found = unified ? controllers[1] == '\0' : has_cpu(controllers + 1);
        if (found) memcpy(out, path, strlen(path) + 1);
    }
    close_lines(l);
    return found;
}

typedef struct mount {
    char *from, *point; /* the group at its root; where it is */
    const char *type, *options;
} mount;

/* Characters that separate fields stand as \040 and the like. */
static void decode_octal(char *text) {
    char *to = text;
    for (const char *at = text; *at; at++) {
        const bool coded = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' &&
                           at[2] <= '7' && at[3] >= '0' && at[3] <= '7';
        *to++ = coded ? (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0')) : *at;
        if (coded) at += 3;
    }
    *to = '\0';
}

/* ID PARENT DEVICE ROOT POINT OPTIONS TAG.. - TYPE SOURCE OPTIONS */
static bool read_mount(char *line, mount *m) {
    enum { ROOT = 3, POINT = 4, FIRST_TAG = 6, MOST = 40 };
    char *fields[MOST];
    int n = 0, dash = FIRST_TAG;
    for (char *at = line; at && n < MOST; n++) {
        fields[n] = at;
        at = strchr(at, ' ');
        if (at) *at++ = '\0';
    }
    while (dash < n && strcmp(fields[dash], "-") != 0)
        dash++;
    if (dash + 3 >= n) return false;
    *m = (mount){fields[ROOT], fields[POINT], fields[dash + 1], fields[dash + 3]};
    decode_octal(m->from);
    decode_octal(m->point);
    return true;
}

/* `own` as a path below the mount; "": the mount begins at this group, or does not show it. */
static const char *below_mount(const mount *m, const char *own) {
    const size_t n = strcmp(m->from, "/") == 0 ? 0 : strlen(m->from);
    if (strncmp(own, m->from, n) != 0 || own[n] != '/' || own[n + 1] == '\0') return "";
    return strstr(own + n, "/..") ? "" : own + n;
}

/* The least quota from the group of this process up to where the hierarchy is mounted. */
static int quota_of_mount(lines *l, const char *root, const mount *m, bool unified) {
    char own[LONGEST], group[LONGEST];
    int least = INT_MAX;
    if (!find_own_group(l, root, unified, own)) return least;
    const size_t top = strlen(m->point);
    const int n = snprintf(group, sizeof group, "%s%s", m->point, below_mount(m, own));
    if (n < 0 || n >= LONGEST) return least;
    for (;;) {
        const int quota = quota_of_group(l, root, group, unified);
        char *slash = strrchr(group, '/');
        if (quota < least) least = quota;
        if (strlen(group) <= top || !slash) return least;
        *slash = '\0';
    }
}

int hd_quota_below(const char *root) {
    lines mounts, l;
    int least = INT_MAX;
    if (!open_lines(&mounts, root, "/proc/self", "mountinfo")) return least;
    for (char *line = next_line(&mounts); line; line = next_line(&mounts)) {
        mount m;
        if (!read_mount(line, &m)) continue;
        const bool unified = strcmp(m.type, "cgroup2") == 0;
        if (!unified && (strcmp(m.type, "cgroup") != 0 || !has_cpu(m.options))) continue;
        const int quota = quota_of_mount(&l, root, &m, unified);
        if (quota < least) least = quota;
    }
    close_lines(&mounts);
    return least;
}

/* ---- at load --------------------------------------------------------------------------------- */

static int quota_at_load = INT_MAX; /* not written any more once this code is loaded */

__attribute__((constructor)) static void read_quota(void) {
    quota_at_load = hd_quota_below("");
}

int hd_quota(void) {
    return quota_at_load;
}
