#include "model/rope.h"

#include <assert.h>
#include <math.h>

static double turns_at(size_t dim, double theta, double original, double turns)
{
    return (double)dim * log(original / (turns * 2 * 3.14159265358979323846)) / (2 * log(theta));
}

void mote__rope_init(mote__rope *r, size_t dim, double theta, double factor, double beta_fast,
                     double beta_slow, size_t original)
{
    assert(dim <= MOTE_MAX_ROPE_DIM && dim % 2 == 0);
    r->dim = dim;
    r->scale = 1;
    double low = 0, high = 1;
    if (original) {
        low = fmax(floor(turns_at(dim, theta, (double)original, beta_fast)), 0);
        high = fmin(ceil(turns_at(dim, theta, (double)original, beta_slow)), (double)dim - 1);
    }
    for (size_t i = 0; i < dim / 2; i++) {
        float f = 1.0f / (float)pow(theta, (double)((float)(2 * i) / (float)dim));
        if (original) {
            float ramp = ((float)i - (float)low) / (float)fmax(high - low, 1e-3);
            ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
            float keep = 1.0f - ramp;
            f = f / (float)factor * (1.0f - keep) + f * keep;
        }
        r->freq[i] = f;
    }
}

void mote__rope_llama3(mote__rope *r, double factor, double low, double high, size_t original)
{
    for (size_t i = 0; i < r->dim / 2; i++) {
        double f = (double)r->freq[i], turns = (double)original * f / (2 * 3.14159265358979323846);
        double keep = turns < low ? 0 : turns > high ? 1 : (turns - low) / (high - low);
        r->freq[i] = (float)((1 - keep) * f / factor + keep * f);
    }
}

void mote__rope_angles(float *cs, const mote__rope *r, uint64_t pos)
{
    for (size_t i = 0; i < r->dim / 2; i++) {
        float angle = (float)pos * r->freq[i];
        cs[2 * i] = (float)cos((double)angle) * r->scale;
        cs[2 * i + 1] = (float)sin((double)angle) * r->scale;
    }
}

void mote__rope_apply(float *x, size_t n_vectors, size_t n, const float *cs, size_t dim,
                      int inverse)
{
    for (size_t v = 0; v < n_vectors; v++) {
        float *t = x + v * n + (n - dim);
        for (size_t i = 0; i < dim; i += 2) {
            double a = t[i], b = t[i + 1], c = cs[i],
                   s = inverse ? -(double)cs[i + 1] : (double)cs[i + 1];
            t[i] = (float)(a * c - b * s);
            t[i + 1] = (float)(a * s + b * c);
        }
    }
}

void mote__rope_apply_halves(float *x, size_t n_vectors, const float *cs, size_t dim)
{
    for (size_t v = 0; v < n_vectors; v++)
        for (size_t i = 0; i < dim / 2; i++) {
            float *low = x + v * dim + i, *high = low + dim / 2;
            double a = *low, b = *high, c = cs[2 * i], s = cs[2 * i + 1];
            *low = (float)(a * c - b * s);
            *high = (float)(a * s + b * c);
        }
}
