/* The files of report/page/, as the build has joined them. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

typedef struct report_page_part {
    const char *name, *text;
} report_page_part;
extern const report_page_part report_page_parts[]; /* ends with a NULL name */

#endif
