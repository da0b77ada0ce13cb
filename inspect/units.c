#include "inspect/units.h"

const char *inspect_bytes(hd_arena *a, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int i = 0;
    for (; x >= 1023.5 && i < 4; i++)
        x /= 1024;
    return hd_printf(a, "%.*f %s", i == 0 || x >= 100 ? 0 : 2, x, units[i]);
}
