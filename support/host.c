#include "support/host.h"

/* The "C" locale is a static object of the C library: it costs no memory and need not be freed. */
hd_host hd_host_leave(void) {
    hd_host host;
    fegetenv(&host.floats);
    fesetenv(FE_DFL_ENV);
    host.locale = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    return host;
}

void hd_host_return(const hd_host *host) {
    uselocale(host->locale);
    fesetenv(&host->floats);
}
