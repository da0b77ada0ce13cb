/* Work apart from the host's settings.
 *
 * A program that calls the library may have a locale whose decimal point is a comma, round towards
 * zero, or trap divisions by zero. Numbers are read and written here, by C's functions and by the
 * libraries that are used (JSON, LLVM), and constants are folded: so each public function works in
 * the C locale and in the default floating-point environment, and gives both back. They belong to
 * the thread; other threads of the host see nothing of it. */
#ifndef HD_HOST_H
#define HD_HOST_H

#include <fenv.h>
#include <locale.h>

typedef struct hd_host {
    locale_t locale;
    fenv_t floats;
} hd_host;

hd_host hd_host_leave(void);
void hd_host_return(const hd_host *host);

/* Until the end of the block, however it is left. */
#define HD_APART_FROM_HOST                                                                         \
    const hd_host hd_host_here_ __attribute__((cleanup(hd_host_return), unused)) = hd_host_leave()

#endif
