/* Means with their standard errors, for numbers that come token by token. */
#ifndef MOTE_LAB_STATS_H
#define MOTE_LAB_STATS_H

#include <stddef.h>

/* Running sums of x over consecutive tokens. Neighbouring tokens are not independent, so the error
 * is taken twice: from single tokens, and from means of blocks of LAB_BLOCK consecutive ones; the
 * larger counts. */
enum { LAB_BLOCK = 32 };
typedef struct lab_sum {
    size_t n, n_blocks, in_block;
    double sum, squares, block, block_sum, block_squares;
} lab_sum;
void lab_sum_add(lab_sum *s, double x);
/* A new window begins: blocks do not cross windows. */
void lab_sum_gap(lab_sum *s);
double lab_sum_mean(const lab_sum *s);  /* NaN when empty */
double lab_sum_error(const lab_sum *s); /* NaN with fewer than two */

/* Beyond the noise: more than two standard errors for a single question, three where several are
 * asked at once (14 questions at two errors would find something by chance every other time). */
enum { LAB_ONE = 2, LAB_SEVERAL = 3 };
int lab_is_real(double mean, double error, int errors);

#endif
