/* A report: what a compilation did to a model and what came of it, as data. Everything that views
 * of inspect/ collect is in it as they write it; the history of the ops joins them.
 *
 * Written as JSON (docs/report-json.md), which programs read and the page shows. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "passes/pass.h"
#include "report/history.h"

#define REPORT_SCHEMA "hadal-report-1"

typedef enum report_source {                    /* what the report was made of */
                             REPORT_OF_MODEL,   /* passes ran over a spec, IR text or a folder */
                             REPORT_OF_DUMPS,   /* files of --dump-ir */
                             REPORT_OF_LIBRARY, /* a compiled library, and the IR that lies beside
                                                   it */
} report_source;

/* A function of the generated code, in the two forms that can be read. Each text is lines, and for
 * each of them the line of the kernel IR that it was made for, 0: none. */
typedef struct report_listing {
    hd_text text;
    HD_VEC(uint32_t) lines;
} report_listing;
/* Machine code that was made for one line of the kernel IR. */
typedef struct report_range {
    uint32_t line;         /* 0: for none */
    uint32_t first, bytes; /* counted from where the function begins */
    uint32_t listed;       /* the line of the assembly listing where it begins */
} report_range;
typedef struct report_function {
    const char *name;       /* symbol: "tiny_row2_avx512" */
    uint64_t offset, bytes; /* of its code in the object's text */
    report_listing llvm, assembly;
    HD_VEC(report_range) ranges; /* in the order of addresses; of functions without lines none */
} report_function;

/* A step of the library: a kernel of the IR, and the functions that compute it. */
typedef struct report_step {
    uint32_t line; /* of the kernel in the printed kernel IR */
    const char *name, *scope;
    const char *function[3]; /* symbols, for one token, a few, many; repeated where they are one */
    uint64_t row_flops, pair_flops, pass_bytes, row_bytes, position_bytes;
} report_step;

typedef struct report_code {
    const char *level; /* of the CPU that it is for */
    HD_VEC(report_function) functions;
    HD_VEC(report_step) steps;
} report_code;

typedef struct report_file { /* a text that locations point into */
    const char *path, *text;
} report_file;

/* JSON of views, as they write it; NULL: not there. */
#define REPORT_VIEWS(V)                                                                            \
    V(settings)                                                                                    \
    V(facts)                                                                                       \
    V(ledger)                                                                                      \
    V(depth)                                                                                       \
    V(memory)                                                                                      \
    V(heatmap)                                                                                     \
    V(mixing)                                                                                      \
    V(profile)                                                                                     \
    V(machine)                                                                                     \
    V(library)

typedef struct report_remark {
    uint32_t stage; /* index in the history */
    hir_remark remark;
} report_remark;

typedef struct report {
    report_source source;
    const char *path, *name;
    const report_history *history; /* NULL: there is none */
    const hd_diags *diags;         /* what was said on the way */
#define V(name) const char *name;
    REPORT_VIEWS(V)
#undef V
    HD_VEC(report_remark) remarks;
    HD_VEC(report_file) files;
    const report_code *code; /* NULL: none */
} report;

void report_json(const report *r, hd_text *out);

/* A page that shows the JSON of a report, beside that of another one (NULL: alone), and how their
 * models differ op by op (NULL: not known). */
void report_page(const char *json, const char *against, const char *difference, hd_text *out);

/* What became of an op, a weight or a state: its life in words. `what`: %N or %NAME of a value in
 * the last dump, PASS:%N in that of a pass (`input`: as loaded), or the name of a weight or a
 * state. False and a diagnostic: there is no such thing. */
bool report_explain(const report *r, const char *what, hd_diags *d, hd_text *out);

#endif
