/* replay FOLDER: runs every file of FOLDER/TARGET/ through its target, for each target; and an
 * empty input. For compilers without libFuzzer, and for what fuzzing has found. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static const struct {
    const char *name;
    int (*run)(const uint8_t *data, size_t n);
} targets[] = {
#define T(name, input) {#name, fuzz_##name},
#include "tests/fuzz/targets.def"
#undef T
};

/* In memory of exactly its size, so that a byte too many is noticed. */
static int replay(int (*run)(const uint8_t *data, size_t n), const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return 1;
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    const size_t n = data ? fread(data, 1, (size_t)size, f) : 0;
    fclose(f);
    printf("%s\n", path);
    fflush(stdout);
    run(data, n);
    free(data);
    return 0;
}

int main(int argc, char **argv) {
    char path[4096];
    int failed = argc != 2;
    for (size_t i = 0; !failed && i < sizeof targets / sizeof *targets; i++) {
        targets[i].run((const uint8_t *)"", 0);
        snprintf(path, sizeof path, "%s/%s", argv[1], targets[i].name);
        DIR *dir = opendir(path);
        for (struct dirent *e; dir && (e = readdir(dir));) {
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%.2000s/%s/%.1000s", argv[1], targets[i].name, e->d_name);
            failed |= replay(targets[i].run, path);
        }
        if (dir) closedir(dir);
    }
    return failed;
}
