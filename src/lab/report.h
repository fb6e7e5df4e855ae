/* A report of text, tables and figures, written as one SVG (the figures under each other) and as
 * one self-contained HTML page. */
#ifndef MOTE_LAB_REPORT_H
#define MOTE_LAB_REPORT_H

#include <jansson.h>

#include <mote/mote.h>

#include "lab/svg.h"

typedef struct lab_report lab_report;
/* NULL when out of memory; then, and after a failed addition, writing says so. */
lab_report *lab_report_create(const char *title, const char *subtitle);
void lab_report_destroy(lab_report *r);
void lab_report_heading(lab_report *r, const char *text);
void lab_report_text(lab_report *r, const char *text);
/* A table: a heading that starts with '>' is right-aligned. cells: row after row; copied. */
void lab_report_table(lab_report *r, const char *const *headings, size_t n_columns,
                      const char *const *cells, size_t n_cells);
void lab_report_chart(lab_report *r, const lab_chart *c);
void lab_report_map(lab_report *r, const lab_map *m);
void lab_report_stacks(lab_report *r, const lab_stacks *s);
void lab_report_bars(lab_report *r, const lab_bars *b);
/* Either path may be NULL. Files are replaced in one step. */
int lab_report_write(lab_report *r, const char *svg, const char *html, mote_err *err);

/* What the commands' JSON says, as tables and figures. */
void lab_report_eval(lab_report *r, const json_t *report);
void lab_report_tune(lab_report *r, const json_t *result);
void lab_report_ladder(lab_report *r, const json_t *result);
void lab_report_plan(lab_report *r, const json_t *plan);

#endif
