/* The report of eval, as tables. tune and ladder print parts of it too. */
#ifndef MOTE_CLI_CMD_EVAL_H
#define MOTE_CLI_CMD_EVAL_H

#include <jansson.h>

#include <mote/mote.h>

void cli_print_eval(const json_t *report);
void cli_print_needle(const json_t *needle); /* report.needle */
void cli_print_blame(const json_t *blame);   /* one of report.blame[] */
/* Write what --svg and --html ask for: `add` is one of lab_report_eval, ..., `what` the command's
 * result. 0 where neither was given. */
struct lab_report;
struct cli_args;
int cli_write_pictures(const struct cli_args *a, void (*add)(struct lab_report *, const json_t *),
                       const json_t *what, mote_err *err);
/* A number of an object, or NaN. */
double cli_number(const json_t *o, const char *key);

#endif
