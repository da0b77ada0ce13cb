/* How many CPUs the quotas of cgroups leave to this process.
 *
 * A container may run on all CPUs of its machine and yet have the time of two of them (docker
 * --cpus=2, a CPU limit of Kubernetes): with more threads all of them would stand still, together,
 * for a part of every period. The affinity mask does not show that. */
#ifndef HD_QUOTA_H
#define HD_QUOTA_H

/* The quota as it was when this code was loaded, rounded up, at least 1; INT_MAX: there is none.
 * Nothing is read here, so calls may ask. */
int hd_quota(void);
/* The quota as the files below `root` have it now: "" for the system's, a folder for tests. */
int hd_quota_below(const char *root);

#endif
