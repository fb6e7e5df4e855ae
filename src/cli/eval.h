/* The report of eval, as tables. tune and ladder print parts of it too. */
#ifndef MOTE_CLI_EVAL_H
#define MOTE_CLI_EVAL_H

#include <jansson.h>

void cli_print_eval(const json_t *report);
void cli_print_needle(const json_t *needle);           /* report.needle */
void cli_print_blame(const json_t *blame);             /* one of report.blame[] */
/* A number of an object, or NaN. */
double cli_number(const json_t *o, const char *key);

#endif
