#include "lab/stats.h"

#include <math.h>

void lab_sum_add(lab_sum *s, double x)
{
    s->n++;
    s->sum += x;
    s->squares += x * x;
    s->block += x;
    if (++s->in_block == LAB_BLOCK) {
        double mean = s->block / LAB_BLOCK;
        s->n_blocks++;
        s->block_sum += mean;
        s->block_squares += mean * mean;
        lab_sum_gap(s);
    }
}

void lab_sum_gap(lab_sum *s)
{
    s->in_block = 0;
    s->block = 0;
}

double lab_sum_mean(const lab_sum *s) { return s->n ? s->sum / (double)s->n : (double)NAN; }

static double error_of(size_t n, double sum, double squares)
{
    if (n < 2)
        return (double)NAN;
    double m = (double)n, variance = (squares - sum * sum / m) / (m - 1);
    return variance > 0 ? sqrt(variance / m) : 0;
}

double lab_sum_error(const lab_sum *s)
{
    double single = error_of(s->n, s->sum, s->squares);
    /* a handful of blocks says little about their spread */
    double blocks = s->n_blocks >= 8 ? error_of(s->n_blocks, s->block_sum, s->block_squares) : 0;
    return blocks > single ? blocks : single;
}

int lab_is_real(double mean, double error, int errors)
{
    return isfinite(mean) && isfinite(error) && fabs(mean) > errors * error;
}
