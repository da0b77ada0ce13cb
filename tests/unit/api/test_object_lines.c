/* Reading the line table of an object: one that a C compiler made (whatever version of DWARF it
 * writes), cut off at every length, and with every byte changed. That ranges are right is tested
 * against binutils, by tests/report/data.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/object_lines.h"

static const char source[] = "int one(int x) {\n"
                             "    return x + 1;\n"
                             "}\n"
                             "int two(int x) {\n"
                             "    int y = one(x);\n"
                             "    return y * y;\n"
                             "}\n";

static void compile(hd_arena *a, hd_text *out) {
    char folder[] = "/tmp/hadal-lines-XXXXXX", command[256], block[4096];
    cr_assert(mkdtemp(folder));
    const char *cc = getenv("CC") ? getenv("CC") : "cc";
    snprintf(command, sizeof command, "cd %s && cat > a.c && %.100s -g -O0 -c a.c -o a.o", folder,
             cc);
    FILE *pipe = popen(command, "w");
    cr_assert(pipe && fputs(source, pipe) >= 0 && pclose(pipe) == 0, "%s", command);
    snprintf(command, sizeof command, "cat %s/a.o && rm -r %s", folder, folder);
    pipe = popen(command, "r");
    hd_text_init(out, a);
    for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;)
        hd_text_add_n(out, block, n);
    cr_assert_eq(pclose(pipe), 0);
}

static const object_function *named(const object_lines *o, const char *name) {
    for (size_t i = 0; i < o->functions.n; i++)
        if (strcmp(o->functions.at[i].name, name) == 0) return &o->functions.at[i];
    return NULL;
}

Test(object_lines, functions_begin_with_their_lines) {
    hd_arena *a = hd_arena_new();
    hd_text object;
    object_lines o;
    compile(a, &object);
    cr_assert(api_read_object(a, &object, &o));
    const struct {
        const char *name;
        uint32_t line;
    } wanted[] = {{"one", 1}, {"two", 4}};
    for (int k = 0; k < 2; k++) {
        const object_function *f = named(&o, wanted[k].name);
        bool found = false;
        cr_assert(f && f->bytes > 0, "%s", wanted[k].name);
        for (size_t i = 0; i < o.rows.n; i++)
            found |= !o.rows.at[i].ends && o.rows.at[i].address == f->offset &&
                     o.rows.at[i].line == wanted[k].line;
        cr_assert(found, "%s does not begin at line %u", wanted[k].name, wanted[k].line);
    }
    cr_assert(o.rows.at[o.rows.n - 1].ends);
    hd_arena_free(a);
}

/* Nothing is read beyond what there is; the sanitizers see to that. */
Test(object_lines, damaged_objects_are_rejected_or_read) {
    hd_arena *a = hd_arena_new();
    hd_text object;
    compile(a, &object);
    size_t rejected = 0;
    for (size_t n = 0; n < object.n; n++) {
        hd_arena *b = hd_arena_new();
        object_lines o;
        hd_text part = {b, malloc(n ? n : 1), n, n}; /* of its own, so that its end is one */
        memcpy(part.at, object.at, n);
        rejected += !api_read_object(b, &part, &o);
        free(part.at);
        hd_arena_free(b);
    }
    cr_assert_eq(rejected, object.n, "the table of sections is at the end of the file");
    for (size_t i = 0; i < object.n; i++) {
        hd_arena *b = hd_arena_new();
        object_lines o;
        const char kept = object.at[i];
        object.at[i] = (char)(kept ^ 0xff);
        (void)api_read_object(b, &object, &o);
        object.at[i] = kept;
        hd_arena_free(b);
    }
    hd_arena_free(a);
}
