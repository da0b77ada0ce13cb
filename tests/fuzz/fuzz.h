/* Programs that take any bytes: libFuzzer calls them with bytes of its own (tests/fuzz/entry.c),
 * ctest with those that once were a finding (replay.c). */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "support/file.h"

#define T(name, input) int fuzz_##name(const uint8_t *data, size_t n);
#include "tests/fuzz/targets.def"
#undef T

/* A job on memory of its own; exhaustion of it ends the job. The result and the diagnostics must
 * agree: what failed has said why. Diagnostics are rendered, as a user would see them. */
typedef bool fuzz_job(hd_arena *a, hd_diags *d, const char *data, size_t n);
void fuzz_in_arena(fuzz_job *job, const uint8_t *data, size_t n);

/* A folder of this process, below TMPDIR, that goes when it ends; and a file in it. */
const char *fuzz_folder(void);
const char *fuzz_write(const char *name, const void *data, size_t n);
/* Reads every byte, so that memory that is not there is noticed. */
void fuzz_touch(const void *data, size_t n);
/* Ends the process, as a finding. */
void fuzz_fail(const char *why) __attribute__((noreturn));

#endif
