/* The files of report/page/, which the build joins into one table. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

typedef struct report_page_part {
    const char *name, *text;
} report_page_part;
extern const report_page_part report_page_parts[]; /* a NULL name ends the table */

#endif
