/* Output: stdout that notices when nobody reads it, tables and byte counts for people, JSON,
 * progress on a terminal. */
#ifndef MOTE_CLI_OUT_H
#define MOTE_CLI_OUT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include <mote/mote.h>

/* One line on stderr (control characters become '?', a running progress line is cleared first). */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Flush stdout: CLI_OK, CLI_PIPE_CLOSED (silently) or CLI_FAILED (with a line on stderr). */
int cli_flush(void);

/* Print `root` on stdout and drop the reference. NULL (out of memory on the way) is reported. Exit
 * status. */
int cli_print_json(json_t *root, size_t flags);
/* A finite number, or null. */
json_t *cli_json_real(double v);

/* Numbers for people; `.s` of a result is good until the end of the expression that made it. */
typedef struct cli_text {
    char s[64];
} cli_text;
cli_text cli_bytes(double bytes);         /* "890 B", "34.9 MiB" */
cli_text cli_count(uint64_t n);           /* "1,048,576" */
cli_text cli_fixed(double v, int digits); /* "-" for NaN */

/* A table: rows of cells, printed with columns as wide as needed. A heading that starts with '>' is
 * right-aligned. */
typedef struct cli_table cli_table;
cli_table *cli_table_create(size_t n_columns, const char *const *headings);
/* copies; the next cell, row after row */
void cli_table_add(cli_table *t, const char *cell);
void cli_table_print(cli_table *t, FILE *f, int indent); /* and destroy; f NULL: only that */
/* Columns a UTF-8 string takes on a terminal. */
size_t cli_columns(const char *text);

/* Any JSON value for people: scalars as "name  value", arrays of objects as tables; null and empty
 * ones are left out. `skip`: more names to leave out (may be NULL). */
void cli_view_json(FILE *f, const json_t *value, int indent, const char *const *skip);

/* Progress on stderr, only where it is a terminal; both return non-zero once Ctrl-C was pressed. */
/* mote_model_params.progress */
int cli_progress_open(void *ctx, const char *what, double fraction);
/* For mote_step and mote_eval_window. Also notes the largest scratch memory seen between chunks. */
typedef struct cli_step_ctx {
    const char *what;
    const mote_model *model; /* NULL: do not look at memory */
    size_t scratch_peak;
} cli_step_ctx;
/* ctx: cli_step_ctx * */
int cli_progress_step(void *ctx, size_t done_tokens, size_t all_tokens);
/* lab_progress.step */
int cli_progress_lab(void *ctx, const char *what, double fraction);
void cli_progress_clear(void);
/* The line itself, for a terminal of that many columns: fits, whatever they are. Its bytes. */
int cli_progress_text(char *line, size_t size, const char *what, double fraction, int columns);

/* Whole file, or stdin for "-": malloc'd, 0-terminated. */
int cli_read_file(const char *path, char **text, size_t *n, mote_err *err);

#endif
