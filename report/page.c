/* The page: a template into which styles, scripts and data are inserted at marked places.
 *
 * The data are JSON in a script element of a type that browsers do not run. So that no text in them
 * can end the element, every `<` is written as an escape of JSON. */
#include "report/page.h"

#include <string.h>

#include "report/report.h"

/* The scripts of a page, in the order in which they run. */
static const char *const of_report[] = {"data.js",    "view.js",   "chart.js", "theme.js",
                                        "summary.js", "passes.js", "depth.js", "ledger.js",
                                        "memory.js",  "time.js",   "code.js",  "compare.js",
                                        "life.js",    "main.js",   NULL};
static const char *const of_runs[] = {"view.js", "chart.js", "theme.js", "runs.js", NULL};
static const char *const styles[] = {"style.css", NULL};

static const char *part_of(const char *name) {
    const report_page_part *p = report_page_parts;
    while (strcmp(p->name, name) != 0)
        p++;
    return p->text;
}

static void add_parts(const char *const *names, hd_text *out) {
    for (; *names; names++)
        hd_text_add(out, part_of(*names));
}

/* U+2028 and U+2029 need no escape: they are legal in JSON. Older JavaScript ends lines at them,
 * but the data are never run. */
static void add_json(const char *json, hd_text *out) {
    while (*json) {
        const size_t n = strcspn(json, "<");
        hd_text_add_n(out, json, n);
        json += n;
        if (*json == '<') {
            hd_text_add(out, "\\u003c");
            json++;
        }
    }
}

static void add_page(const char *const *scripts, const char *json, const char *against,
                     const char *difference, hd_text *out) {
    const char *at = part_of("page.html");
    static const char open[] = "<!--{", close[] = "}-->";
    for (const char *mark; (mark = strstr(at, open)); at = strstr(mark, close) + strlen(close)) {
        hd_text_add_n(out, at, (size_t)(mark - at));
        const char *what = mark + strlen(open);
        if (strncmp(what, "style", 5) == 0) add_parts(styles, out);
        if (strncmp(what, "script", 6) == 0) add_parts(scripts, out);
        if (strncmp(what, "report", 6) == 0) add_json(json, out);
        if (strncmp(what, "against", 7) == 0) add_json(against ? against : "null", out);
        if (strncmp(what, "difference", 10) == 0) add_json(difference ? difference : "null", out);
    }
    hd_text_add(out, at);
}

void report_page(const char *json, const char *against, const char *difference, hd_text *out) {
    add_page(of_report, json, against, difference, out);
}

void report_runs_page(const char *json, hd_text *out) {
    add_page(of_runs, json, NULL, NULL, out);
}
