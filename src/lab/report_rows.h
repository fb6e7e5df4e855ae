/* Between the reports: JSON rows as tables, with numbers as the text of the commands has them. */
#ifndef MOTE_LAB_REPORT_ROWS_H
#define MOTE_LAB_REPORT_ROWS_H

#include "lab/report.h"

enum { LAB_CELL = 96 };

/* A number of an object, or NaN; a string, or "". */
double lab_rows_number(const json_t *o, const char *key);
const char *lab_rows_string(const json_t *o, const char *key);

/* How a field is shown. BYTES, FLOPS: with a unit; SIGNED: with its sign; WORD: a string; YES: the
 * word `true_word` where true. */
typedef enum lab_shown {
    LAB_WORD,
    LAB_COUNT,
    LAB_FIXED,
    LAB_SIGNED,
    LAB_PERCENT,
    LAB_BYTES,
    LAB_FLOPS,
    LAB_YES
} lab_shown;
typedef struct lab_column {
    const char *key, *heading;
    lab_shown as;
    int digits;
    const char *true_word;
} lab_column;
/* At most 24 columns; none where there are no rows. */
void lab_rows_table(lab_report *r, const json_t *rows, const lab_column *columns, size_t n);

/* "4K", "1M", "1000": a context's length. */
void lab_rows_context(char out[16], double ctx);

#endif
