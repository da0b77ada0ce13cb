/* How ranks divide the work of a model: rows of tokens, and units of a dim such as heads or
 * features. Plain arithmetic, the same for compiler, evaluator, packer and runtime.
 */
#ifndef HD_SHARE_H
#define HD_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* Of `tokens` rows a rank has those from hd_first_row up to, not including, hd_end_row. The ranges
 * differ in size where the number of ranks does not divide the tokens. Below `divide_from` tokens
 * every rank has all rows. */
static inline int64_t hd_first_row(int64_t tokens, int64_t rank, int64_t ranks,
                                   int64_t divide_from) {
    return tokens < divide_from ? 0 : rank * tokens / ranks;
}
static inline int64_t hd_end_row(int64_t tokens, int64_t rank, int64_t ranks, int64_t divide_from) {
    return tokens < divide_from ? tokens : (rank + 1) * tokens / ranks;
}

/* A dim of `whole` elements consists of `groups`, each of `units`, each of whole / (groups units)
 * elements: the query heads of 2 key/value heads are 2 groups, their features 1 group of as many
 * units as there are tiles. The groups are divided among the ranks; where there are more ranks than
 * groups, ranks div groups ranks divide the units of each group, and the remaining ranks have none.
 * All ranks have a share of the same size, so that one module serves them all: shares that are too
 * small are padded with zeros, or with copies of the last unit (`repeat`), which keeps norms and
 * divisions finite. In this way a group of one unit is repeated in each rank of the group: so
 * several ranks can share a key/value head. */
typedef struct hd_share {
    int64_t ranks, whole, groups, units;
    bool repeat;
} hd_share;

static inline int64_t hd_unit_elements(const hd_share *s) {
    return s->whole / (s->groups * s->units);
}
static inline int64_t hd_ranks_of_group(const hd_share *s) {
    return s->ranks <= s->groups ? 1 : s->ranks / s->groups;
}
/* Groups of a rank; 1 where ranks share a group. */
static inline int64_t hd_local_groups(const hd_share *s) {
    return s->ranks <= s->groups ? (s->groups + s->ranks - 1) / s->ranks : 1;
}
/* Units of a rank in each of its groups. */
static inline int64_t hd_local_units(const hd_share *s) {
    const int64_t parts = hd_ranks_of_group(s);
    return (s->units + parts - 1) / parts;
}
static inline int64_t hd_local_elements(const hd_share *s) {
    return hd_local_groups(s) * hd_local_units(s) * hd_unit_elements(s);
}
/* The unit of the whole dim that is unit number `local` of a rank; -1: it is a padding of zeros. */
static inline int64_t hd_unit_of(const hd_share *s, int64_t rank, int64_t local) {
    const int64_t parts = hd_ranks_of_group(s), n = hd_local_units(s);
    int64_t group = rank / parts * hd_local_groups(s) + local / n;
    int64_t unit = rank % parts * n + local % n;
    if ((group >= s->groups || unit >= s->units) && !s->repeat) return -1;
    if (group >= s->groups) group = s->groups - 1;
    if (unit >= s->units) unit = s->units - 1;
    return group * s->units + unit;
}
/* The first rank that has a unit of the whole dim; *local is the number of the unit in that rank.
 */
static inline int64_t hd_owner_of(const hd_share *s, int64_t unit, int64_t *local) {
    const int64_t parts = hd_ranks_of_group(s), n = hd_local_units(s);
    const int64_t group = unit / s->units, inside = unit % s->units;
    *local = group % hd_local_groups(s) * n + inside % n;
    return group / hd_local_groups(s) * parts + inside / n;
}

#endif
