/* Work that is independent of the host program's settings.
 *
 * A program that calls the library may have a locale whose decimal point is a comma, round towards
 * zero, or trap divisions by zero. This library reads and writes numbers, through C's functions and
 * through the libraries that it uses (JSON, LLVM), and folds constants: so each public function
 * works in the C locale and in the default floating-point environment, and restores both of the
 * host. Both belong to the thread; other threads of the host are not affected. */
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

/* Holds until the end of the enclosing C block, however control leaves it. */
#define HD_ISOLATED_FROM_HOST                                                                      \
    const hd_host hd_host_here_ __attribute__((cleanup(hd_host_return), unused)) = hd_host_leave()

#endif
