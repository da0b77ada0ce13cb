/* Quotas of cgroups: files as kernels and containers have them, below a folder. */
#include <limits.h>
#include <sys/stat.h>

#include "support/quota.h"
#define FOLDER "/tmp/hadal-quota-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(quota, .init = open_folder, .fini = close_folder);

/* A file with the folders above it. */
static void put(const char *path, const char *text) {
    char *full = in_folder(path);
    for (char *slash = strchr(full + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0777);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    cr_assert(f, "%s", full);
    fputs(text, f);
    fclose(f);
}

static int quota(void) {
    return hd_quota_below(folder);
}

#define ROOT_MOUNT "22 1 0:21 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a:/b\n"
#define UNIFIED    "35 22 0:32 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

static void unified(const char *own) {
    put("proc/self/mountinfo", ROOT_MOUNT UNIFIED);
    put("proc/self/cgroup", own);
}

Test(quota, none) {
    cr_expect_eq(quota(), INT_MAX, "no /proc");
    put("proc/self/mountinfo", ROOT_MOUNT);
    cr_expect_eq(quota(), INT_MAX, "no cgroups");
    unified("0::/user.slice\n");
    cr_expect_eq(quota(), INT_MAX, "no such group");
    put("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    cr_expect_eq(quota(), INT_MAX, "no limit");
}

Test(quota, rounded_up) {
    static const struct {
        const char *text;
        int cpus;
    } cases[] = {
        {"200000 100000\n", 2},
        {"200001 100000\n", 3},
        {"1000 100000\n", 1},
        {"50000 1000000\n", 1},
        {"99999999999999999 1000\n", INT_MAX},
        {"99999999999999999999999999 100000\n", INT_MAX},
        {"100000", INT_MAX}, /* these are no quotas */
        {"100000 0\n", INT_MAX},
        {"-1 100000\n", INT_MAX},
        {"", INT_MAX},
        {"\n200000 100000\n", INT_MAX},
    };
    unified("0::/a\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("sys/fs/cgroup/a/cpu.max", cases[i].text);
        cr_expect_eq(quota(), cases[i].cpus, "\"%s\": %d", cases[i].text, quota());
    }
}

Test(quota, the_least_of_nested_groups) {
    unified("0::/kubepods/pod/container\n");
    put("sys/fs/cgroup/kubepods/cpu.max", "800000 100000\n");
    put("sys/fs/cgroup/kubepods/pod/cpu.max", "250000 100000\n");
    put("sys/fs/cgroup/kubepods/pod/container/cpu.max", "400000 100000\n");
    put("sys/fs/cgroup/kubepods/other/cpu.max", "100000 100000\n");
    cr_expect_eq(quota(), 3);
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    cr_expect_eq(quota(), 2, "of the group at which the hierarchy is mounted");
}

/* With a namespace of its own a process is in "/", and elsewhere in what the host calls its group,
 * which is all that is mounted. */
Test(quota, containers) {
    unified("0::/\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    cr_expect_eq(quota(), 3);
    put("proc/self/mountinfo",
        ROOT_MOUNT "35 22 0:32 /docker/ab\\040c /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    put("proc/self/cgroup", "0::/docker/ab c/inner\n");
    put("sys/fs/cgroup/inner/cpu.max", "200000 100000\n");
    cr_expect_eq(quota(), 2);
    put("proc/self/cgroup", "0::/docker/ab c\n");
    cr_expect_eq(quota(), 3);
    put("proc/self/cgroup", "0::/docker/ab cd\n");
    cr_expect_eq(quota(), 3, "a group that is not mounted here");
    put("sys/fs/cpu.max", "100000 100000\n");
    put("proc/self/mountinfo", ROOT_MOUNT UNIFIED);
    put("proc/self/cgroup", "0::/../other\n");
    cr_expect_eq(quota(), 3, "no path leads out of the mount");
}

#define CPU_OF_1                                                                                   \
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"                                   \
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                            \
    "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"

Test(quota, version_1) {
    put("proc/self/mountinfo", ROOT_MOUNT CPU_OF_1);
    put("proc/self/cgroup", "9:cpuset:/x\n3:cpuacct,cpu:/batch/job\n0::/x\n");
    put("sys/fs/cgroup/cpuset/x/cpu.cfs_quota_us", "1\n");
    put("sys/fs/cgroup/cpuset/x/cpu.cfs_period_us", "1\n");
    put("sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_period_us", "100000\n");
    cr_expect_eq(quota(), INT_MAX);
    put("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "450000\n");
    cr_expect_eq(quota(), INT_MAX, "a quota without a period");
    put("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n");
    cr_expect_eq(quota(), 5);
    put("proc/self/mountinfo",
        ROOT_MOUNT CPU_OF_1 "38 31 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/unified/x/cpu.max", "400000 100000\n");
    cr_expect_eq(quota(), 4, "both versions");
}

/* Mounts of containers have hundreds of layers in one line. */
Test(quota, long_and_damaged_lines) {
    char *text = hd_alloc(arena, 20000, 1);
    snprintf(text, 20000, "22 1 0:21 / / rw - overlay overlay rw,lowerdir=");
    memset(text + strlen(text), 'l', 16000);
    strcat(text, "\n1 2\n\n - - -\n35 22 0:32 / /a rw - cgroup2\n" UNIFIED);
    put("proc/self/mountinfo", text);
    put("proc/self/cgroup", "nothing\n:\n0:\n0::/a\n");
    put("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    cr_expect_eq(quota(), 2);
    memset(text, 'p', 4000);
    memcpy(text, "0::/", 4);
    text[4000] = '\0';
    put("proc/self/cgroup", text);
    put("sys/fs/cgroup/cpu.max", "100000 100000\n");
    cr_expect_eq(quota(), INT_MAX, "a path that no file can have here");
}

Test(quota, of_this_process_does_not_change) {
    cr_expect_geq(hd_quota(), 1);
    cr_expect_eq(hd_quota(), hd_quota_below(""));
}
