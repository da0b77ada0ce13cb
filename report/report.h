/* A report: what a compilation did to a model, and its result, as data. It contains what all views
 * of inspect/ print, and the history of the ops, which connects them.
 *
 * The report is written as JSON (docs/report-json.md), which programs read and the page shows. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "passes/pass.h"
#include "report/history.h"

#define REPORT_SCHEMA "hadal-report-1"

typedef enum report_source {                  /* what the report was made from */
                             REPORT_OF_MODEL, /* passes ran on a spec, IR text or a folder */
                             REPORT_OF_DUMPS, /* files of --dump-ir */
                             /* a compiled library, and the IR next to it */
                             REPORT_OF_LIBRARY,
} report_source;

/* One of the two listings of a generated function. The text consists of lines; each line has the
 * line of the kernel IR that it was made for, 0: none. */
typedef struct report_listing {
    hd_text text;
    HD_VEC(uint32_t) lines;
} report_listing;
/* A range of machine code that was made for one line of the kernel IR. */
typedef struct report_range {
    uint32_t line;         /* 0: it was made for none */
    uint32_t first, bytes; /* `first` is counted from the start of the function */
    uint32_t listed;       /* line of the assembly listing where the range starts */
} report_range;
typedef struct report_function {
    const char *name;       /* the symbol: "tiny_row2_avx512" */
    uint64_t offset, bytes; /* position and size of its code in the object's text section */
    report_listing llvm, assembly;
    HD_VEC(report_range) ranges; /* by address; empty for functions without line numbers */
} report_function;

/* A step of the library: a kernel of the IR, and the functions that compute the kernel. */
typedef struct report_step {
    uint32_t line; /* of the kernel in the printed kernel IR */
    const char *name, *scope;
    const char *function[3]; /* symbols, for one, a few and many tokens; equal if one serves all */
    uint64_t row_flops, pair_flops, pass_bytes, row_bytes, position_bytes;
} report_step;

typedef struct report_code {
    const char *level; /* the CPU level of the code */
    HD_VEC(report_function) functions;
    HD_VEC(report_step) steps;
} report_code;

typedef struct report_file { /* a text that locations point into */
    const char *path, *text;
} report_file;

/* JSON of views, as the views write it; NULL: the report does not have that view. */
#define REPORT_VIEWS(V)                                                                            \
    V(settings)                                                                                    \
    V(facts)                                                                                       \
    V(ledger)                                                                                      \
    V(depth)                                                                                       \
    V(memory)                                                                                      \
    V(heatmap)                                                                                     \
    V(mixing)                                                                                      \
    V(by_depth)                                                                                    \
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
    const hd_diags *diags;         /* diagnostics of loading and compiling */
#define V(name) const char *name;
    REPORT_VIEWS(V)
#undef V
    HD_VEC(report_remark) remarks;
    HD_VEC(report_file) files;
    const report_code *code; /* NULL: none */
} report;

void report_json(const report *r, hd_text *out);

/* Writes a page that shows the JSON of a report: beside that of another report (NULL: alone), with
 * how their models differ op by op (NULL: not known). */
void report_page(const char *json, const char *against, const char *difference, hd_text *out);

/* Writes a page that shows runs of training, from the JSON of hadal_run_report. */
void report_runs_page(const char *json, hd_text *out);

/* Prints what became of an op, a weight or a state. `what`: %N or %NAME of a value in the last
 * dump, PASS:%N of a value in that pass's dump (`input`: as loaded), or the name of a weight or a
 * state. False, and a diagnostic: there is no such thing. */
bool report_explain(const report *r, const char *what, hd_diags *d, hd_text *out);

#endif
